package sim

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sim/invariant"
)

// check returns the first broken law of the run's structures at a settled instant:
// those of every scheduler, and arrived = ended + in the cluster.
func (s *Sim) check() error {
	for _, p := range s.pools {
		alive, act, drain := 0, 0, 0
		for _, w := range p.workers {
			if w == nil {
				continue
			}
			alive++
			switch w.state {
			case active:
				act++
			case draining:
				drain++
			}
			if w.inflight < 0 {
				return fmt.Errorf("sim: %s worker %d holds %d requests", p.kind, w.id, w.inflight)
			}
			for i := range w.ranks {
				if err := w.ranks[i].core.Check(); err != nil {
					return fmt.Errorf("sim: %s worker %d rank %d at %v ms: %w", p.kind, w.id, i, s.nowMs, err)
				}
			}
		}
		if alive != p.alive || act != p.active || drain != p.draining {
			return fmt.Errorf("sim: %s pool has %d workers, %d active, %d draining; counted %d, %d, %d",
				p.kind, alive, act, drain, p.alive, p.active, p.draining)
		}
	}
	if open := s.arrived - s.finished; open != int64(s.outstanding) || s.slots.live < s.outstanding {
		return fmt.Errorf("sim: %d requests arrived, %d ended, %d outstanding, %d live", s.arrived, s.finished, s.outstanding, s.slots.live)
	}
	return nil
}

// mustBeSettled panics, under the tag invariants, if a pass of a worker of pools ended
// by now and is not visible: who observes now would see an older pass.
func (s *Sim) mustBeSettled(observer string, pools ...*pool) {
	if !invariant.On {
		return
	}
	for _, p := range pools {
		for _, w := range p.present {
			if w.unsettled(s.nowMs) {
				panic(fmt.Sprintf("sim: %s looks at %s worker %d at %v ms, whose pass that ended at %v ms is not visible",
					observer, p.kind, w.id, s.nowMs, w.ends[w.published]))
			}
		}
	}
}

// mustKnowEvents is mustBeSettled for a router that chooses by KV events: only passes
// that make events have to be visible.
func (s *Sim) mustKnowEvents(p *pool) {
	if !invariant.On {
		return
	}
	for _, w := range p.present {
		if w.runEvents && w.unsettled(s.nowMs) {
			panic(fmt.Sprintf("sim: a request is placed at %v ms without the KV events of %s worker %d at %v ms",
				s.nowMs, p.kind, w.id, w.ends[w.published]))
		}
	}
}

// unsettled reports that a pass inside the worker's decode run ended by nowMs and is
// not visible.
func (w *worker) unsettled(nowMs float64) bool {
	return w.inRun && w.published < len(w.ends) && w.ends[w.published] <= nowMs
}
