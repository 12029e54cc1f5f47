package tier

import "github.com/dynosweep/dynosweep/sim/kv"

// writeThrough copies blocks that came into the host memory to the third tier, those
// that it lacks, as one job. Without room nothing is written, now or later
// (spec kv-offload 6).
func (m *Memory) writeThrough(rank int32, slots []int32, nowMs float64) {
	h, t := m.ranks[rank].host, m.ranks[rank].third
	j := m.take(job{kind: writeJob, rank: rank})
	job := &m.jobs[j]
	held := 0
	for _, slot := range slots {
		far := t.store.slot(h.store.id(slot))
		switch {
		case far == 0:
			job.slots = append(job.slots, slot)
		case t.store.isResident(far) && t.store.at(far).pins == 0:
			held++
		}
	}
	n := len(job.slots)
	if n > 0 && !t.makeRoom(n) {
		t.refused++
		n = 0
	}
	if n == 0 {
		m.free = append(m.free, j)
		return
	}
	for _, slot := range job.slots {
		job.far = append(job.far, t.store.reserve(h.store.id(slot), h.store.at(slot).hash, rank))
	}
	h.store.pin(job.slots)
	job.bytes = float64(n) * m.cfg.BlockBytes
	t.writes.submitted++
	m.submit(&t.write, j, nowMs, nowMs)
}

// makeRoom evicts for n blocks.
func (t *third) makeRoom(n int) bool {
	need := t.store.used + n - t.store.capacity
	if need <= 0 {
		return true
	}
	if n > t.store.capacity || t.store.idle() < need {
		return false
	}
	var lost []kv.BlockID
	t.store.room(n, &lost)
	return true
}

// Stage starts to read blocks of b that the host memory lacks from the third tier. It
// returns the job that the request has to wait for, -1 if there is none.
func (m *Memory) Stage(rank, req int32, b Blocks, nowMs float64) (j int32) {
	h, t := m.ranks[rank].host, m.ranks[rank].third
	if t == nil {
		return -1
	}
	j = m.take(job{kind: readJob, rank: rank, req: req})
	m.missing = m.missing[:0]
	for i := b.From; i < b.To; i++ {
		id := b.Prompt.Block(i)
		if slot := h.store.slot(id); slot != 0 {
			continue
		}
		t.probes++
		far := t.store.slot(id)
		if far == 0 {
			break
		}
		if !t.store.isResident(far) {
			t.pending++
			break
		}
		t.hits++
		m.missing = append(m.missing, int32(i))
		m.jobs[j].far = append(m.jobs[j].far, far)
	}
	n := len(m.missing)
	if n == 0 || !m.makeRoom(h, n, 0, b) {
		m.free = append(m.free, j)
		return -1
	}
	job := &m.jobs[j]
	for _, far := range job.far {
		e := t.store.at(far)
		if m.ranks[e.origin].worker != m.ranks[rank].worker {
			t.crossed++
		}
		job.slots = append(job.slots, h.store.reserve(t.store.id(far), e.hash, rank))
	}
	t.store.pin(job.far)
	job.bytes = float64(n) * m.cfg.BlockBytes
	t.reads.submitted++
	m.submit(&t.read, j, nowMs, nowMs)
	return j
}
