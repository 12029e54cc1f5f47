package sim

import "github.com/dynosweep/dynosweep/sim/metrics"

// Operation is one change of the workers of a pool, as the report tells it (spec
// report 10). Slices live during the observer's call.
type Operation struct {
	Ordinal     int
	AtMs        float64
	Pool        metrics.Pool
	Cause       Cause
	Tick        int // ordinal of the tick that caused it, -1: none
	Origin      int // operation that began what this one ends, -1: none, or several
	Transitions []Transition
	Released    []int64 // ordinals of requests that left the router's queue because of it
	// The pool afterwards, ids ascending.
	Active, Starting, Draining []int32
}

// Cause says what changes the workers of a pool.
type Cause string

const (
	PlannerScale    Cause = "planner_scale"
	WorkerReady     Cause = "worker_ready_event"
	DrainSettlement Cause = "drain_settlement"
)

// Transition is the change of one worker.
type Transition struct {
	Worker    int32
	From, To  string // states; From "" for a new worker
	Cancelled bool   // removed before it was ready
	Origin    int    // operation that began it
}

func (s workerState) String() string {
	return [...]string{active: "active", starting: "starting", draining: "draining", removed: "removed"}[s]
}

// lifecycle gathers operations for an observer; without one it does nothing. An
// operation stays open while its instant lasts, since a worker that is empty when it
// is told to drain leaves within the same operation.
type lifecycle struct {
	observer    func(*Operation) error
	nextOrdinal int
	open        [3]Operation // [stage]
	isOpen      [3]bool      // [stage], open holds one
}

// beginOperation opens an operation on a pool whose workers are still as they were; those
// before it end.
func (s *Sim) beginOperation(p *pool, cause Cause, tick, origin int) error {
	l := &s.lifecycle
	if l.observer == nil {
		return nil
	}
	for _, q := range s.pools {
		if l.isOpen[q.stage] && (q == p || l.open[q.stage].AtMs < s.nowMs) {
			if err := s.endOperations(); err != nil {
				return err
			}
		}
	}
	o := &l.open[p.stage]
	*o = Operation{Ordinal: l.nextOrdinal, AtMs: s.nowMs, Pool: p.kind, Cause: cause, Tick: tick, Origin: origin,
		Transitions: o.Transitions[:0], Released: o.Released[:0],
		Active: o.Active[:0], Starting: o.Starting[:0], Draining: o.Draining[:0]}
	l.isOpen[p.stage] = true
	l.nextOrdinal++
	return nil
}

// setState changes the state of a worker; from is "" for a new one. A worker remembers
// the operation that began its start or its drain.
func (s *Sim) setState(w *worker, from string, to workerState) {
	cancelled := w.state == starting && to == removed
	w.state = to
	l := &s.lifecycle
	if l.observer == nil {
		return
	}
	o := &l.open[w.pool.stage]
	if o.Cause == PlannerScale {
		w.origin = o.Ordinal
	}
	o.Transitions = append(o.Transitions, Transition{w.id, from, to.String(), cancelled, w.origin})
}

// beginDrained opens the operation in which a drained worker is removed: the one
// that told it to drain if that is of this instant, else one of its own.
func (s *Sim) beginDrained(w *worker) error {
	l := &s.lifecycle
	o := &l.open[w.pool.stage]
	now := l.isOpen[w.pool.stage] && o.AtMs == s.nowMs
	switch {
	case now && o.Ordinal == w.origin:
	case now && o.Cause == DrainSettlement:
		if o.Origin != w.origin {
			o.Origin = -1
		}
	default:
		return s.beginOperation(w.pool, DrainSettlement, -1, w.origin)
	}
	return nil
}

// recordReleased adds requests that a change of the pool let go.
func (s *Sim) recordReleased(p *pool, req int32) {
	if l := &s.lifecycle; l.observer != nil && l.isOpen[p.stage] {
		o := &l.open[p.stage]
		o.Released = append(o.Released, s.slots.At(req).rec.Ordinal)
	}
}

// endOperations hands the open operations to the observer, in their order.
func (s *Sim) endOperations() error {
	l := &s.lifecycle
	for {
		var first *pool
		for _, p := range s.pools {
			if l.isOpen[p.stage] && (first == nil || l.open[p.stage].Ordinal < l.open[first.stage].Ordinal) {
				first = p
			}
		}
		if first == nil {
			return nil
		}
		l.isOpen[first.stage] = false
		o := &l.open[first.stage]
		o.Active, o.Starting, o.Draining = first.idsByState(o.Active, o.Starting, o.Draining)
		if err := l.observer(o); err != nil {
			return err
		}
	}
}
