package sim

import (
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/tier"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// Stages order the pools among simultaneous events.
const (
	stageAggregated = uint8(iota)
	stagePrefill
	stageDecode
)

// pool is the set of workers of one role with its placement policy.
type pool struct {
	memory        *tier.Memory // behind the KV pools; nil: none
	stage         uint8
	kind          metrics.Pool
	cfg           PoolConfig
	placement     router.Placement
	extrapolation timing.ExtrapolationCounter // the timing model, if it counts what it priced
	workers       []*worker                   // [id]; nil once removed, ids are never used again
	present       []*worker                   // those not removed, ids ascending
	ready         bitset                      // idle workers that may have work
	eventRuns     bitset                      // workers whose decode run emits KV events and was not settled since it began
	draining      int
	alive         int // active + starting + draining
	active        int
	workerMs      float64 // integral of alive over the clock, up to countedMs
	countedMs     float64
	waiting       []action         // disaggregated: actions parked until a worker is active
	removedCounts metrics.Counters // counted by removed workers since the last sample
}

// idsByState returns the ids of the pool's workers by state, ascending, in the room of
// three older lists.
func (p *pool) idsByState(up, coming, going []int32) (_, _, _ []int32) {
	up, coming, going = up[:0], coming[:0], going[:0]
	for _, w := range p.present {
		switch w.state {
		case active:
			up = append(up, w.id)
		case starting:
			coming = append(coming, w.id)
		case draining:
			going = append(going, w.id)
		}
	}
	return up, coming, going
}

// bitset is a set of small ids.
type bitset []uint64

func (b *bitset) set(i int32) {
	for int(i>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

func (b bitset) clear(i int32) {
	if int(i>>6) < len(b) {
		b[i>>6] &^= 1 << (i & 63)
	}
}

// first returns the smallest member >= from, or -1.
func (b bitset) first(from int32) int32 {
	for w := from >> 6; int(w) < len(b); w++ {
		word := b[w]
		if w == from>>6 {
			word &= ^uint64(0) << (from & 63)
		}
		if word != 0 {
			return w<<6 + int32(bits.TrailingZeros64(word))
		}
	}
	return -1
}

// integrate adds the pool's worker time up to nowMs.
func (p *pool) integrate(nowMs float64) {
	if dt := nowMs - p.countedMs; dt > 0 {
		p.workerMs += float64(p.alive) * dt
		p.countedMs = nowMs
	}
}

// addWorker makes a worker with the next id.
func (s *Sim) addWorker(p *pool, state workerState) (*worker, error) {
	w := &worker{id: int32(len(p.workers)), pool: p, state: state, heapAt: -1}
	w.ranks = make([]rank, p.cfg.DPSize)
	for i := range w.ranks {
		cfg := p.cfg.Rank
		cfg.DPSize = p.cfg.DPSize
		cfg.Memory, cfg.Worker = p.memory, w.id
		cfg.MTPSeed += uint64(w.id)*uint64(p.cfg.DPSize) + uint64(i)
		core, err := newCore(cfg)
		if err != nil {
			return nil, err
		}
		w.ranks[i].core = core
		w.ranks[i].handoff = core.Handoff()
		w.ranks[i].offload = core.Offload()
		w.ranks[i].gauges = core.Gauges()
		w.ranks[i].lastMs = s.nowMs
	}
	p.integrate(s.nowMs)
	p.workers = append(p.workers, w)
	p.present = append(p.present, w)
	p.alive++
	if state == active {
		p.active++
		p.placement.WorkerReady(w.id, s.nowMs)
	}
	return w, nil
}

// schedulerID is the flat id of a rank (spec replay-runtime 2).
func (p *pool) schedulerID(worker, rank int32) int32 { return worker*int32(p.cfg.DPSize) + rank }

// wake marks an idle worker as a candidate for a pass.
func (s *Sim) wake(w *worker) {
	if !w.busy {
		w.pool.ready.set(w.id)
	}
}

// startPasses starts passes on ready workers of the pool, ascending, until none
// starts. It reports whether anything happened.
func (s *Sim) startPasses(p *pool) (bool, error) {
	changed := false
	for id := p.ready.first(0); id >= 0; id = p.ready.first(id) {
		w := p.workers[id]
		p.ready.clear(id)
		if w == nil || w.busy || !w.runnable() {
			continue
		}
		effect, inline, err := s.startPass(w)
		if err != nil {
			return changed, err
		}
		changed = changed || effect
		if inline && effect {
			id = 0 // its effects may have given work to any worker
		}
	}
	s.unpark(p)
	return changed, nil
}

// unpark makes workers whose last pass had no effect candidates of the next drive.
func (s *Sim) unpark(p *pool) {
	for _, w := range s.parked {
		if w.pool == p {
			p.ready.set(w.id)
			w.parked = false
		}
	}
	s.parked = s.parked[:0]
}

// startPass starts the next pass of an idle worker. effect tells whether it did
// anything visible; inline, that it took no time and is over already.
func (s *Sim) startPass(w *worker) (effect, inline bool, err error) {
	w.busy = true
	if !s.cfg.SlowPath && s.startRun(w) {
		s.completions.push(w)
		return true, false, nil
	}
	w.inRun = false
	w.startMs = s.nowMs
	s.runPass(w)
	for i := range w.ranks {
		if rk := &w.ranks[i]; rk.ran {
			if rk.pass.Err != nil {
				return true, false, &Error{EngineFault, rk.pass.Err}
			}
			s.recordAdmissions(w, int32(i), rk.pass.Admissions)
			if n := int64(len(rk.pass.Preempted)); n > 0 {
				s.collector.Preempted(n)
			}
		}
	}
	if w.endMs > s.nowMs {
		w.retries = 0
		if w.pool.memory != nil {
			w.pool.memory.BeginPass(w.id)
		}
		s.completions.push(w)
		return true, false, nil
	}
	stall := w.stall()
	if stall == engine.Progress {
		w.retries = 0
		return true, true, s.complete(w)
	}
	w.busy = false
	reserved, err := s.reserveAtEnd(w)
	if err != nil || reserved {
		w.retries = 0
		s.wake(w)
		return reserved, true, err
	}
	return false, true, s.retry(w, stall)
}

// reserveAtEnd is the attempt that every pass end makes, for a pass that did
// nothing else: a reservation is progress.
func (s *Sim) reserveAtEnd(w *worker) (bool, error) {
	if w.pool != s.decode || s.prefill == nil {
		return false, nil
	}
	reserved := false
	for i := range w.ranks {
		before := w.ranks[i].pending
		if err := s.handoffs.tryReservation(s, w, int32(i)); err != nil {
			return false, err
		}
		reserved = reserved || w.ranks[i].pending < before
	}
	return reserved, nil
}

// runPass lets every runnable rank do one ordinary pass from now; the worker's
// pass ends with the latest.
func (s *Sim) runPass(w *worker) {
	w.endMs = s.nowMs
	var g engine.GroupPass
	for i := range w.ranks {
		rk := &w.ranks[i]
		if rk.ran = rk.core.Runnable(); !rk.ran {
			rk.pass.Reset()
			continue
		}
		rk.core.Pass(s.nowMs, w.step, &rk.pass)
		w.endMs = max(w.endMs, rk.pass.EndMs)
		g.Prefilled = g.Prefilled || rk.pass.Metrics.PrefillTokens > 0
		g.ModelWork = g.ModelWork || rk.pass.ModelWork
	}
	w.step++
	for i := range w.ranks {
		w.ranks[i].core.EndGroup(g)
	}
}

// stall is the group's answer to a zero-length pass without effect: one interval
// answer wins, then one retry, then nothing (spec engine-sglang 10).
func (w *worker) stall() engine.Stall {
	out := engine.Nothing
	for i := range w.ranks {
		rk := &w.ranks[i]
		if !rk.ran {
			continue
		}
		switch p := &rk.pass; {
		case p.Stall == engine.Progress || len(p.Events.Items) > 0:
			return engine.Progress
		case p.Stall == engine.Countdown:
			out = engine.Countdown
		case p.Stall == engine.Retry && out == engine.Nothing:
			out = engine.Retry
		}
	}
	return out
}

// maxRetries is the number of effect-free passes in a row that may follow one
// another at one instant.
const maxRetries = 1024

func (s *Sim) retry(w *worker, stall engine.Stall) error {
	switch stall {
	case engine.Countdown:
		w.retries = 0
		w.pool.ready.set(w.id)
	case engine.Retry:
		if w.retries++; w.retries >= maxRetries {
			return s.stuckError()
		}
		w.pool.ready.set(w.id)
	default:
		w.retries = 0
		if !w.parked {
			w.parked = true
			s.parked = append(s.parked, w)
		}
	}
	return nil
}
