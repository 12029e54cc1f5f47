package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/dynosweep/dynosweep/sim/metrics"
)

// scaler drives the scaling policy (spec replay-runtime 9).
type scaler struct {
	window  metrics.Window
	snap    Snapshot
	armedMs float64 // next tick; +Inf: none
	ordinal int
	events  []ScalingEvent
	idle    int // ticks in a row with nothing else to happen
}

// maxIdleTicks ends a run in which only ticks are left while requests wait: a
// policy that has not helped by then will not.
const maxIdleTicks = 100_000

// armTicks takes the baseline sample and arms the first telemetry and scaling
// ticks.
func (s *Sim) armTicks() error {
	if err := s.baselineSample(); err != nil {
		return err
	}
	if s.cfg.Scaling == nil {
		return nil
	}
	if t := s.cfg.Scaling.FirstTickMs(); !math.IsNaN(t) && !math.IsInf(t, 0) {
		s.scaling.armedMs = max(t, s.nowMs)
	}
	return nil
}

// ticksDue reports whether a telemetry or scaling tick is due now.
func (s *Sim) ticksDue() bool {
	return s.telemetry.armedMs <= s.nowMs || s.scaling.armedMs <= s.nowMs
}

// eventsDue reports whether worker-ready or transfer events of this instant are left.
func (s *Sim) eventsDue() bool {
	e := s.events.top()
	return e != nil && e.atMs <= s.nowMs || s.handoffs.links.endMs() <= s.nowMs
}

// ticks handles the ticks of the instant, telemetry before scaling, once its events
// are behind it. It reports whether anything may have changed.
func (s *Sim) ticks() (bool, error) {
	if !s.ticksDue() || s.eventsDue() {
		return false, nil
	}
	if s.telemetry.armedMs <= s.nowMs {
		if err := s.sample(metrics.Periodic); err != nil {
			return false, err
		}
	}
	atMs := s.scaling.armedMs
	if atMs > s.nowMs {
		return false, nil
	}
	s.scaling.armedMs = math.Inf(1)
	if s.done() {
		return false, nil
	}
	return true, s.scalingTick(atMs)
}

func (s *Sim) scalingTick(atMs float64) error {
	sc := &s.scaling
	if len(s.completions.items) == 0 && math.IsInf(s.src.NextMs(), 1) && len(s.events.items) == 0 {
		if sc.idle++; sc.idle > maxIdleTicks {
			return s.stuckError()
		}
	} else {
		sc.idle = 0
	}
	s.snapshot()
	d, err := s.cfg.Scaling.Tick(&sc.snap)
	if err != nil {
		return &Error{ScalingFault, err}
	}
	if f := s.cfg.Observers.Tick; f != nil {
		if err := f(&TickRecord{Snapshot: &sc.snap, Decision: d}); err != nil {
			return err
		}
	}
	sc.ordinal++
	if s.prefill != nil && d.TargetPrefill != Keep {
		if err := s.scaleTo(s.prefill, d.TargetPrefill, atMs); err != nil {
			return err
		}
	}
	if d.TargetDecode != Keep {
		if err := s.scaleTo(s.decode, d.TargetDecode, atMs); err != nil {
			return err
		}
	}
	if t := d.NextTickMs; t > s.nowMs && !math.IsInf(t, 1) && !s.done() {
		sc.armedMs = t
	}
	return nil
}

// snapshot fills the view of one tick and consumes what it shows.
func (s *Sim) snapshot() {
	s.mustBeSettled("the scaling policy", s.pools...)
	sc := &s.scaling
	sn := &sc.snap
	sn.Ordinal, sn.NowMs = sc.ordinal, s.nowMs
	if s.prefill != nil {
		s.poolSnapshot(s.prefill, &sn.Prefill)
	}
	s.poolSnapshot(s.decode, &sn.Decode)
	sn.Traffic = sc.window.Consume(s.nowMs)
}

// idleMetricMs is the age after which the metric of an idle rank is replaced by
// zeros.
const idleMetricMs = 1000

func (s *Sim) poolSnapshot(p *pool, v *PoolSnapshot) {
	v.Metrics = v.Metrics[:0]
	v.Active, v.Starting, v.Draining = p.idsByState(v.Active, v.Starting, v.Draining)
	for _, w := range p.present {
		for i := range w.ranks {
			rk := &w.ranks[i]
			if w.state != active {
				rk.metricsFresh = false
				continue
			}
			if age := s.nowMs - rk.lastMs; age >= idleMetricMs {
				rk.metrics, rk.metricsFresh = RankMetrics{Worker: w.id, Rank: int32(i)}, true
				rk.lastMs += math.Floor(age/idleMetricMs) * idleMetricMs
			}
			if rk.metricsFresh {
				v.Metrics = append(v.Metrics, rk.metrics)
				rk.metricsFresh = false
			}
		}
	}
}

// scaleTo moves a pool to target non-draining workers.
func (s *Sim) scaleTo(p *pool, target int, atMs float64) error {
	have := p.alive - p.draining
	if target == have {
		return nil
	}
	if target < 0 || target > MaxWorkers {
		return &Error{ScalingFault, fmt.Errorf("%s: asked for %d workers, a pool has 0 to %d", p.kind, target, MaxWorkers)}
	}
	e := ScalingEvent{AtS: atMs / 1000, Component: p.kind.String(), From: have, To: target, Reason: "scale_up"}
	if target < have {
		e.Reason = "scale_down"
	}
	s.scaling.events = append(s.scaling.events, e)
	if err := s.beginOperation(p, PlannerScale, s.scaling.ordinal-1, -1); err != nil {
		return err
	}
	if target > have {
		return s.scaleUp(p, target-have)
	}
	return s.scaleDown(p, have-target)
}

func (s *Sim) scaleUp(p *pool, k int) error {
	state := active
	if p.cfg.StartupMs > 0 {
		state = starting
	}
	for ; k > 0; k-- {
		w, err := s.addWorker(p, state)
		if err != nil {
			return err
		}
		s.setState(w, "", state)
		if state == starting {
			s.events.push(event{atMs: s.nowMs + p.cfg.StartupMs, kind: evWorkerReady, stage: p.stage, key: int64(w.id)})
		}
	}
	return s.topologySettled(p)
}

// scaleDown cancels starting workers first, then drains active ones, highest id
// first.
func (s *Sim) scaleDown(p *pool, k int) error {
	for i := len(p.present) - 1; i >= 0 && k > 0; i-- {
		if w := p.present[i]; w.state == starting {
			s.setState(w, starting.String(), removed)
			s.removeWorker(p, w)
			k--
		}
	}
	for i := len(p.present) - 1; i >= 0 && k > 0; i-- {
		w := p.present[i]
		if w.state != active {
			continue
		}
		s.setState(w, active.String(), draining)
		p.active--
		p.draining++
		p.placement.WorkerDraining(w.id, s.nowMs)
		k--
	}
	return s.topologySettled(p)
}

// topologySettled lets the router's queue drain, and wakes parked actions.
func (s *Sim) topologySettled(p *pool) error {
	b := s.routeBuf()
	b.routes, b.err = p.placement.TopologySettled(s.nowMs, b.routes)
	for _, r := range b.routes {
		s.recordReleased(p, r.Req)
	}
	if err := s.dispatchReleased(p, b); err != nil {
		return err
	}
	if p.active > 0 {
		for _, a := range p.waiting {
			s.handoffs.push(a.kind, a.req)
		}
		p.waiting = p.waiting[:0]
	}
	return nil
}

// workerReady ends the startup of a worker; a cancelled one is gone already.
func (s *Sim) workerReady(p *pool, id int32) error {
	w := p.workers[id]
	if w == nil || w.state != starting {
		return nil
	}
	if err := s.beginOperation(p, WorkerReady, -1, w.origin); err != nil {
		return err
	}
	s.setState(w, starting.String(), active)
	p.active++
	for i := range w.ranks {
		w.ranks[i].lastMs = s.nowMs
	}
	p.placement.WorkerReady(id, s.nowMs)
	return s.topologySettled(p)
}

// removeDrained removes draining workers that became empty.
func (s *Sim) removeDrained(p *pool) (bool, error) {
	if p.draining == 0 {
		return false, nil
	}
	before := len(p.present)
	for i := 0; i < len(p.present); {
		w := p.present[i]
		if w.state != draining || !w.drained() {
			i++
			continue
		}
		p.draining--
		if err := s.beginDrained(w); err != nil {
			return false, err
		}
		s.setState(w, draining.String(), removed)
		p.placement.WorkerRemoved(w.id, s.nowMs)
		s.removeWorker(p, w)
	}
	return len(p.present) < before, nil
}

func (s *Sim) removeWorker(p *pool, w *worker) {
	p.integrate(s.nowMs)
	p.alive--
	p.ready.clear(w.id)
	for i := range w.ranks {
		p.removedCounts.Add(w.ranks[i].counted)
		s.collector.Occupied(p.kind, w.ranks[i].occupancy)
	}
	p.workers[w.id] = nil
	p.present = slices.DeleteFunc(p.present, func(x *worker) bool { return x == w })
}
