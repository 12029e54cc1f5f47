package planner

import "math"

// sideDecision is what the load loop wants of one side.
type sideDecision struct {
	n      int // replicas
	has    bool
	reason Reason // why nothing was decided, or why the side stays as it is
}

// hysteresis counts load ticks in a row that asked for a scale-down.
type hysteresis struct{ needs, asked int }

// grant reports whether a scale-down may pass: needs asks in a row have come.
func (h *hysteresis) grant() bool {
	h.asked++
	if h.asked < h.needs {
		return false
	}
	h.asked = 0
	return true
}

// filter holds a scale-down back until it was asked for often enough.
func (h *hysteresis) filter(o sideDecision, ready int) sideDecision {
	if !o.has || o.n >= ready {
		h.asked = 0
		return o
	}
	if h.grant() {
		return o
	}
	return sideDecision{n: ready, has: true, reason: HysteresisHold}
}

// proposeLoad is the reactive loop (spec planner 8).
func (p *Policy) proposeLoad() proposal {
	if reason := p.loadGate(); reason != "" {
		p.hysteresis.prefill.asked, p.hysteresis.decode.asked = 0, 0
		p.tick.LoadReason = reason
		if p.cfg.Mode == Disagg {
			p.tick.LoadReasonPrefill, p.tick.LoadReasonDecode = reason, reason
		}
		return proposal{n: p.tick.Counts.ready()}
	}
	if p.cfg.Mode == Agg {
		return p.loadAgg()
	}
	return p.loadDisagg()
}

// loadGate returns why the loop cannot judge now, "" if it can.
func (p *Policy) loadGate() Reason {
	t := &p.tick
	if p.cfg.Mode == Agg {
		switch {
		case len(t.DecodeFPM) == 0:
			return NoFPMData
		case t.Counts.decodeMoving():
			return ScalingInProgress
		case !covers(t.DecodeFPM, t.Counts.ReadyDecode):
			return WorkerCountMismatch
		}
		return ""
	}
	switch {
	case len(t.PrefillFPM) == 0 && len(t.DecodeFPM) == 0:
		return NoFPMData
	case t.Counts.prefillMoving() || t.Counts.decodeMoving():
		return ScalingInProgress
	case len(t.PrefillFPM) > 0 && !covers(t.PrefillFPM, t.Counts.ReadyPrefill),
		len(t.DecodeFPM) > 0 && !covers(t.DecodeFPM, t.Counts.ReadyDecode):
		return WorkerCountMismatch
	}
	return ""
}

func (p *Policy) loadAgg() proposal {
	ready := p.tick.Counts.ReadyDecode
	var o sideDecision
	if p.cfg.Target == SLA {
		o = p.aggSLA(ready)
	} else {
		o = p.easy(p.tick.DecodeFPM, ready, p.minimum.d, false)
	}
	if !o.has && o.reason == InsufficientData {
		p.hysteresis.decode.asked = 0
		p.tick.LoadReason = InsufficientData
		return proposal{n: p.tick.Counts.ready()}
	}
	o = p.hysteresis.decode.filter(o, ready)
	want := ready
	if o.has {
		want = o.n
	}
	n := max(want, p.minimum.d)
	if p.cfg.ThroughputScaling {
		n = max(n, p.floor.d)
	}
	lifted := want < ready && n > want
	n, guard := guardSingle(ready, n, p.cost.d, p.limits, p.minimum.d)
	p.tick.LoadReason = sideReason(ready, n, lifted, o.reason)
	if guard != "" {
		p.tick.LoadReason = guard
	}
	return proposal{n: pair{p.tick.Counts.ready().p, n}, d: n != ready}
}

// sideReason explains the final size of one side.
func sideReason(ready, n int, lifted bool, why Reason) Reason {
	switch {
	case n > ready:
		return ScaleUp
	case lifted:
		return CappedByThroughput
	case n < ready:
		return ScaleDown
	case why != "":
		return why
	}
	return NoChange
}

func (p *Policy) loadDisagg() proposal {
	t, ready := &p.tick, p.tick.Counts.ready()
	var op, od sideDecision
	if len(t.PrefillFPM) > 0 {
		op = p.judgeSide(t.PrefillFPM, ready.p, p.minimum.p, prefillRole)
	}
	if len(t.DecodeFPM) > 0 {
		od = p.judgeSide(t.DecodeFPM, ready.d, p.minimum.d, decodeRole)
	}
	op, od = p.hysteresis.prefill.filter(op, ready.p), p.hysteresis.decode.filter(od, ready.d)
	want := ready
	if op.has {
		want.p = op.n
	}
	if od.has {
		want.d = od.n
	}
	n := want.max(p.minimum)
	raised := n
	if p.cfg.ThroughputScaling {
		if n = n.max(p.floor); n != raised {
			n = fitPair(ready, n, p.cost, p.limits.ceilingOnly(), p.minimum)
		}
	}
	liftedP, liftedD := want.p < ready.p && n.p > want.p, want.d < ready.d && n.d > want.d
	var guard Reason
	if ready.below(p.minimum) {
		n, guard = clampPair(n.max(p.minimum), p.cost, p.limits, p.minimum), BudgetReconcile
	} else {
		n, guard = guardPair(ready, n, p.cost, p.limits, p.minimum)
	}
	t.LoadReasonPrefill = sideReason(ready.p, n.p, liftedP, op.reason)
	t.LoadReasonDecode = sideReason(ready.d, n.d, liftedD, od.reason)
	t.LoadReason = overall(t.LoadReasonPrefill, t.LoadReasonDecode)
	if guard != "" {
		t.LoadReason = guard
	}
	moved := n != ready
	return proposal{n: n, p: moved, d: moved}
}

// overall is the strongest reason of both sides; where nothing moves, the first
// that is more than no_change.
func overall(p, d Reason) Reason {
	for _, r := range [...]Reason{ScaleUp, CappedByThroughput, ScaleDown} {
		if p == r || d == r {
			return r
		}
	}
	if p != NoChange {
		return p
	}
	return d
}

func (p *Policy) judgeSide(rows []FPM, ready, minimum int, r role) sideDecision {
	if p.cfg.Target != SLA {
		return p.easy(rows, ready, minimum, r == prefillRole)
	}
	if r == prefillRole {
		v := p.judge(phase{prefill: true}, p.models.prefill, ready)
		p.tick.EstimatedTTFTMs = v.worst
		return v.decide(ready, minimum)
	}
	v := p.judge(phase{}, p.models.decode, ready)
	p.tick.EstimatedITLMs = v.worst
	return v.decide(ready, minimum)
}

// threshold is an easy target's rule for one value.
type threshold struct {
	up, down             float64
	upStrict, downStrict bool // strictly beyond
}

func (t threshold) above(v float64) bool { return v > t.up || v == t.up && !t.upStrict }

func (t threshold) below(v float64) bool { return v < t.down || v == t.down && !t.downStrict }

// easyRule is the table of spec planner 8.2.
func (c *Config) easyRule(prefill bool) threshold {
	switch {
	case c.Target == Load && prefill:
		return threshold{up: float64(c.Thresholds.PrefillUpTokens), down: float64(c.Thresholds.PrefillDownTokens)}
	case c.Target == Load:
		return threshold{up: c.Thresholds.DecodeUpRate / 100, down: c.Thresholds.DecodeDownRate / 100}
	case c.Target == Latency && prefill:
		return threshold{up: 0.1, down: 0}
	case c.Target == Latency:
		return threshold{up: 0.4, down: 0.1, upStrict: true, downStrict: true}
	case prefill:
		return threshold{up: 1, down: 0.1, downStrict: true}
	}
	return threshold{up: 1, down: 0.6, upStrict: true, downStrict: true}
}

// easy judges one side by static thresholds: up if any rank is above, down if all
// are below and fewer replicas would not bounce back.
func (p *Policy) easy(rows []FPM, n, minimum int, prefill bool) sideDecision {
	capacity := float64(p.engines.Decode.workerKV())
	if prefill {
		capacity = float64(p.engines.Prefill.ContextLength)
		if p.cfg.Target == Load {
			capacity = 1
		}
	}
	if capacity <= 0 || n == 0 {
		return sideDecision{reason: InsufficientData}
	}
	rule := p.cfg.easyRule(prefill)
	anyAbove, allBelow, most := false, true, math.Inf(-1)
	for i := range rows {
		q := &rows[i].Pass
		tokens := q.QueuedPrefillTokens
		if !prefill {
			tokens = q.DecodeKVTokens + q.QueuedDecodeKVTokens
			if p.cfg.Mode == Agg {
				tokens += q.QueuedPrefillTokens
			}
		}
		v := float64(tokens) / capacity
		anyAbove = anyAbove || rule.above(v)
		allBelow = allBelow && rule.below(v)
		most = math.Max(most, v)
	}
	if anyAbove {
		return sideDecision{n: n + 1, has: true}
	}
	if n <= 1 || !allBelow {
		return sideDecision{reason: NoChange}
	}
	to := max(n-1, minimum)
	if to > 0 && to < n && most*float64(n)/float64(to) >= rule.up {
		to = n
	}
	return sideDecision{n: to, has: true}
}
