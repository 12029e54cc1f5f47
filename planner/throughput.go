package planner

import "math"

// predict feeds the forecast with the tick's traffic and asks it; false with the
// reason set if there is no prediction.
func (p *Policy) predict() bool {
	t := &p.tick
	if !t.HasTraffic {
		p.throughputReason(NoTrafficData)
		return false
	}
	p.last.observe(&t.Traffic, p.nextn)
	p.forecast.observe(t.Traffic.NumReq, t.Traffic.ISL, t.Traffic.OSL)
	n, isl, osl := p.forecast.predict()
	if !finite(n) || !finite(isl) || !finite(osl) {
		p.throughputReason(PredictFailed)
		return false
	}
	t.PredictedNumReq, t.PredictedISL, t.PredictedOSL = n, isl, osl
	t.PredictedHitRate = p.last.hitRate
	return true
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (p *Policy) throughputReason(r Reason) {
	t := &p.tick
	t.ThroughputReason = r
	if p.cfg.Mode == Disagg {
		t.ThroughputReasonPrefill, t.ThroughputReasonDecode = r, r
	}
}

// proposeThroughput sizes the pools for the forecast (spec planner 9). With the
// load loop on it only sets that loop's floor.
func (p *Policy) proposeThroughput() proposal {
	t := &p.tick
	q := demand{isl: ceilInt(t.PredictedISL), osl: max(1, ceilInt(t.PredictedOSL)),
		hit: p.last.hit(), accept: p.last.accept, ttftMs: p.cfg.TTFTMs, itlMs: p.cfg.ITLMs}
	rate := t.PredictedNumReq / t.Traffic.DurationS
	if p.cfg.Mode == Agg {
		return p.throughputAgg(q, rate)
	}
	return p.throughputDisagg(q, rate)
}

func ceilInt(v float64) int { return int(math.Ceil(min(v, 1<<40))) }

// sized is the bounded number of replicas for a rate; ready where the capacity is
// not known.
func (p *Policy) sized(rate, rps float64, known bool, ready, minimum int) int {
	want := ready
	if known {
		want = max(int(math.Ceil(math.Min(rate/rps, 1<<40))), minimum)
	}
	step := p.cfg.Budget.MaxReplicaStep
	want = min(max(want, max(0, ready-step)), ready+step)
	return max(want, minimum)
}

func (p *Policy) throughputAgg(q demand, rate float64) proposal {
	t, ready, least := &p.tick, p.tick.Counts.ReadyDecode, p.minimum.d
	rps, known := p.models.decode.capacity(q)
	if known = known && rps > 0; known {
		t.EngineRPSPrefill, t.EngineRPSDecode = rps, rps
	}
	want := p.sized(rate, rps, known, ready, least)
	fitted, held := guardSingle(ready, want, p.cost.d, p.limits.ceilingOnly(), least)
	none := proposal{n: t.Counts.ready()}
	if p.cfg.LoadScaling {
		p.floor.d = fitted
		p.throughputReason(floorReason(known, held))
		return none
	}
	n, guard := guardSingle(ready, fitted, p.cost.d, p.limits, least)
	if guard == "" {
		guard = held
	}
	p.throughputReason(setReason(n != ready, known, guard))
	none.n.d, none.d = n, n != ready
	return none
}

func floorReason(known bool, held Reason) Reason {
	switch {
	case !known:
		return ModelNotReady
	case held != "":
		return held
	}
	return SetLowerBound
}

func setReason(moved, known bool, guard Reason) Reason {
	switch {
	case moved:
		return Scale
	case !known:
		return ModelNotReady
	case guard != "":
		return guard
	}
	return NoChange
}

func (p *Policy) throughputDisagg(q demand, rate float64) proposal {
	t, ready := &p.tick, p.tick.Counts.ready()
	rpsP, knownP := p.models.prefill.capacity(q)
	rpsD, knownD := p.models.decode.capacity(q)
	if knownP = knownP && rpsP > 0; knownP {
		t.EngineRPSPrefill = rpsP
	}
	if knownD = knownD && rpsD > 0; knownD {
		t.EngineRPSDecode = rpsD
	}
	known := knownP && knownD // a cold side holds its partner
	want := pair{p.sized(rate, rpsP, known, ready.p, p.minimum.p), p.sized(rate, rpsD, known, ready.d, p.minimum.d)}
	short := ready.below(p.minimum)
	fitted := fitPair(ready, want, p.cost, p.limits.ceilingOnly(), p.minimum)
	if short {
		fitted = clampPair(want, p.cost, p.limits.ceilingOnly(), p.minimum)
	}
	var held Reason
	if fitted == ready && want != ready {
		held = BudgetHold
	}
	none := proposal{n: ready}
	if p.cfg.LoadScaling {
		p.floor = fitted
		p.throughputSides(floorReason(known, held), knownP, knownD)
		return none
	}
	n, guard := clampPair(fitted.max(p.minimum), p.cost, p.limits, p.minimum), BudgetReconcile
	if !short {
		n, guard = guardPair(ready, fitted, p.cost, p.limits, p.minimum)
	}
	if guard == "" {
		guard = held
	}
	moved := n != ready
	p.throughputSides(setReason(moved, known, guard), knownP, knownD)
	return proposal{n: n, p: moved, d: moved}
}

// throughputSides records a reason for both sides; with a cold model each says
// whether it or its partner was cold.
func (p *Policy) throughputSides(r Reason, knownP, knownD bool) {
	t := &p.tick
	p.throughputReason(r)
	if r != ModelNotReady {
		return
	}
	if knownP {
		t.ThroughputReasonPrefill = PartnerNotReady
	}
	if knownD {
		t.ThroughputReasonDecode = PartnerNotReady
	}
}
