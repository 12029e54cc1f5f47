package planner

import "math"

// verdict gathers the SLA estimates of one side over its ranks.
type verdict struct {
	worst    float64 // ms, largest estimate; NaN: none
	known    int     // estimates
	allAbove bool    // every estimate misses the SLA
	mayDown  bool    // every rank passes the scale-down test
	refused  bool    // some rank would miss the SLA after a scale-down
	cold     bool    // the model is not ready
}

// phase names one of the four estimates of spec planner 8.3. The aggregated ones
// test a scale-down with the work of both phases moving over.
type phase struct{ prefill, aggregated bool }

// judge estimates one phase on every rank and tests a scale-down on every rank.
func (p *Policy) judge(of phase, m *model, n int) verdict {
	v := verdict{worst: math.NaN(), allAbove: true, mayDown: n > 1}
	if n == 0 || !m.ready() {
		v.cold = true
		return v
	}
	rows, sla := p.tick.DecodeFPM, p.cfg.ITLMs
	if of.prefill {
		sla = p.cfg.TTFTMs
		if !of.aggregated {
			rows = p.tick.PrefillFPM
		}
	}
	spread := 1.0 // how much more each rank carries with one replica less
	if n > 1 {
		spread = float64(n) / float64(n-1)
	}
	for i := range rows {
		ms, ok := p.estimateRank(of, m, &rows[i])
		if ok {
			v.known++
			v.worst = maxKnown(v.worst, ms)
			v.allAbove = v.allAbove && ms > sla
		}
		if n <= 1 {
			continue
		}
		switch p.consolidation(of, m, &rows[i], spread) {
		case refuses:
			v.refused, v.mayDown = true, false
		case unknown:
			v.mayDown = false
		}
	}
	return v
}

func maxKnown(a, b float64) float64 {
	if math.IsNaN(a) {
		return b
	}
	return math.Max(a, b)
}

func (p *Policy) estimateRank(of phase, m *model, f *FPM) (ms float64, ok bool) {
	if of.prefill {
		return m.queuedMs(f, 1, 1, false, p.last.hit())
	}
	ms, ok = m.iterationMs(f, 1, false)
	return ms / p.last.accept, ok
}

type answer uint8

const (
	passes answer = iota
	refuses
	unknown
)

// consolidation tests whether a rank still meets the SLA, with the margin of the
// down sensitivity, when it carries spread times its work.
func (p *Policy) consolidation(of phase, m *model, f *FPM, spread float64) answer {
	margin := float64(p.cfg.Regression.DownSensitivity) / 100
	if of.prefill {
		decode := 1.0
		if of.aggregated {
			decode = spread
		}
		own, ok1 := m.queuedMs(f, 0, decode, of.aggregated, p.last.hit())
		if !ok1 {
			return unknown
		}
		budget := (p.cfg.TTFTMs - own) * margin
		if budget <= 0 {
			return refuses
		}
		post, ok2 := m.queuedMs(f, spread, decode, of.aggregated, p.last.hit())
		switch {
		case !ok2:
			return unknown
		case post-own >= budget:
			return refuses
		}
		return passes
	}
	q := &f.Pass
	kv := q.DecodeKVTokens + q.QueuedDecodeKVTokens
	if of.aggregated {
		kv += q.QueuedPrefillTokens
	}
	if math.Floor(float64(kv)*spread) >= float64(m.limits.kvTokens) {
		return refuses
	}
	ms, ok := m.iterationMs(f, spread, of.aggregated)
	switch {
	case !ok:
		return unknown
	case ms/p.last.accept >= p.cfg.ITLMs*margin:
		return refuses
	}
	return passes
}

// decide turns a verdict into replicas.
func (v verdict) decide(n, minimum int) sideDecision {
	switch {
	case v.cold || v.known == 0:
		return sideDecision{reason: InsufficientData}
	case v.allAbove:
		return sideDecision{n: n + 1, has: true}
	case v.mayDown:
		return sideDecision{n: max(n-1, minimum), has: true}
	case v.refused:
		return sideDecision{reason: RefusedConsolidation}
	}
	return sideDecision{reason: NoChange}
}

// aggSLA combines both phases of an aggregated pool (spec planner 8.4): either may
// ask for more, both must agree to fewer, unless prefill has no say.
func (p *Policy) aggSLA(n int) sideDecision {
	m := p.models.decode
	if n == 0 || !m.ready() {
		return sideDecision{reason: InsufficientData}
	}
	prefill := p.judge(phase{prefill: true, aggregated: true}, m, n)
	decode := p.judge(phase{aggregated: true}, m, n)
	p.tick.EstimatedTTFTMs, p.tick.EstimatedITLMs = prefill.worst, decode.worst
	op, od := prefill.decide(n, p.minimum.d), decode.decide(n, p.minimum.d)
	// A refusal is a vote to stay.
	stay := func(o sideDecision) sideDecision {
		if o.reason == RefusedConsolidation {
			return sideDecision{n: n, has: true, reason: o.reason}
		}
		return o
	}
	op, od = stay(op), stay(od)
	up := func(o sideDecision) bool { return o.has && o.n > n }
	down := func(o sideDecision) bool { return o.has && o.n < n }
	switch {
	case up(op):
		return op
	case up(od):
		return od
	case !op.has && down(od):
		return od
	case down(op) && down(od):
		return sideDecision{n: max(op.n, od.n), has: true}
	case op.reason == RefusedConsolidation || od.reason == RefusedConsolidation:
		return sideDecision{n: n, has: true, reason: RefusedConsolidation}
	}
	return sideDecision{n: n, has: true, reason: NoChange}
}
