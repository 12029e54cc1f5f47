package sim

import "fmt"

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
