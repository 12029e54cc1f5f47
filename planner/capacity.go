package planner

import "math"

// demand is what throughput scaling sizes a replica for.
type demand struct {
	isl, osl      int
	hit, accept   float64
	ttftMs, itlMs float64 // the SLA
}

// effective is the part of a prompt that is computed.
func (q demand) effective() int { return max(1, int(math.Ceil(float64(q.isl)*(1-q.hit)))) }

// context is the mean length of a request in decode.
func (q demand) context() int { return max(1, q.isl+q.osl/2) }

// capacity is the request rate in 1/s that one replica sustains: the best batch
// among those that meet the SLA, else the fastest of all (spec planner 6.6).
// Not ok if the model has no answer.
func (m *model) capacity(q demand) (rps float64, ok bool) {
	if q.isl <= 0 || m.role != prefillRole && q.osl <= 0 {
		return 0, false
	}
	most := m.largestBatch(q)
	if most < 1 {
		return 0, false
	}
	met := false
	for i := range min(most, 128) {
		b := i + 1
		if most > 128 {
			b = 1 + i*(most-1)/127
		}
		got, meets, known := m.batchRate(b, q)
		if !known {
			return 0, false
		}
		if got <= 0 || met && !meets {
			continue
		}
		if !ok || meets && !met || got > rps {
			rps, met, ok = got, meets, true
		}
	}
	return rps, ok
}

func (m *model) largestBatch(q demand) int {
	if m.role == prefillRole {
		if e := q.effective(); e <= m.limits.batchedTokens {
			return min(m.limits.seqs, m.limits.batchedTokens/e)
		}
		return 1
	}
	most := min(m.limits.seqs, m.limits.kvTokens/q.context())
	if m.role == aggregatedRole {
		if m.limits.batchedTokens <= 1 {
			return 0
		}
		most = min(most, max(1, m.limits.batchedTokens-1))
	}
	return most
}

// batchRate is the rate of batches of b requests, and whether they meet the SLA.
// rps is 0 for a batch that is no candidate; known is false if an estimate is
// missing.
func (m *model) batchRate(b int, q demand) (rps float64, meets, known bool) {
	e := q.effective()
	switch m.role {
	case prefillRole:
		ms, ok := m.chunked(e*b, work{n: 1})
		if !ok || ms <= 0 {
			return 0, false, ok
		}
		return float64(b) / (ms / 1000), ms <= q.ttftMs, true
	case decodeRole:
		ms, ok := m.estimate(work{d: float64(b), kv: float64(b * q.context())})
		if !ok || ms <= 0 {
			return 0, false, ok
		}
		ms /= math.Max(1, q.accept)
		return float64(b) / (float64(q.osl) * (ms / 1000)), ms <= q.itlMs, true
	}
	load := math.Ceil(float64(b) * math.Max(1, q.accept) * float64(e) / float64(q.osl))
	room := m.limits.batchedTokens - b
	if room <= 0 || load > float64(room) {
		return 0, false, true
	}
	p := min(m.limits.batchedTokens, int(load))
	decode := work{d: float64(b), kv: float64(b * q.context()), n: 1}
	step := decode
	step.prefill = float64(p)
	itl, ok := m.estimate(step)
	if !ok {
		return 0, false, false
	}
	ttft, ok := m.chunked(p+e, decode)
	if !ok || itl <= 0 || ttft <= 0 {
		return 0, false, ok
	}
	itl /= math.Max(1, q.accept)
	return float64(b) / (float64(q.osl) * (itl / 1000)), itl <= q.itlMs && ttft <= q.ttftMs, true
}
