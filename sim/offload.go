package sim

import (
	"math"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/tier"
)

// newMemory makes the memory behind a pool's KV pools; nil if it has none.
func (s *Sim) newMemory(cfg *PoolConfig) *tier.Memory {
	if cfg.Offload == nil || cfg.Rank.Role == engine.Decode {
		return nil
	}
	return tier.New(*cfg.Offload, s.cfg.Hasher)
}

// offloadMs is the next instant at which a transfer between tiers ends.
func (s *Sim) offloadMs() float64 {
	next := math.Inf(1)
	for _, p := range s.pools {
		if p.memory != nil {
			next = min(next, p.memory.NextMs())
		}
	}
	return next
}

// offloads applies the ends of transfers between tiers that are due, before and after
// the ends of passes of the same instant (spec kv-offload 4, replay-runtime 3.1). What
// a worker has for itself waits for the end of its pass.
func (s *Sim) offloads() (changed bool, err error) {
	for _, p := range s.pools {
		if p.memory == nil || p.memory.NextMs() > s.nowMs {
			continue
		}
		for _, w := range p.present {
			if w.inRun && w.waitsForTransfer() && (p.memory.Shared() || p.memory.Due(w.id, s.nowMs)) {
				if err := s.settle(w); err != nil {
					return changed, err
				}
				if w.busy {
					p.memory.BeginPass(w.id)
				}
			}
			if !w.busy || w.inRun && !w.waitsForTransfer() {
				changed = p.memory.Advance(w.id, s.nowMs) || changed
			}
		}
		changed = p.memory.Advance(-1, s.nowMs) || changed
		for _, w := range p.present {
			if !w.busy {
				if err := s.endTransfers(w); err != nil {
					return changed, err
				}
			}
		}
	}
	return changed, nil
}

// waitsForTransfer reports that the end of a transfer ends the decode run of w.
func (w *worker) waitsForTransfer() bool {
	for i := range w.ranks {
		if o := w.ranks[i].offload; o != nil && o.Waits() {
			return true
		}
	}
	return false
}

// endTransfers shows what the transfers that ended changed, once no pass of the worker
// is in flight.
func (s *Sim) endTransfers(w *worker) error {
	for i := range w.ranks {
		o := w.ranks[i].offload
		if o == nil || !o.TakeEvents(&s.poolEvents, &s.hostEvents) {
			continue
		}
		s.wake(w)
		if err := s.publishEvents(w, int32(i), &s.poolEvents); err != nil {
			return err
		}
		if err := s.publishHostEvents(w, int32(i), &s.hostEvents); err != nil {
			return err
		}
	}
	return nil
}

// publishHostEvents hands the events of a rank's host memory to whoever listens.
func (s *Sim) publishHostEvents(w *worker, rank int32, ev *kv.Events) error {
	if len(ev.Items) == 0 || !w.pool.placement.WantsEvents() {
		return nil
	}
	if o, ok := w.pool.placement.(hostObserver); ok {
		o.ObserveHost(router.Rank{Worker: w.id, Rank: rank}, ev, s.nowMs)
	}
	return nil
}

// hostObserver is a placement that follows what host memory holds.
type hostObserver interface {
	ObserveHost(from router.Rank, ev *kv.Events, nowMs float64)
}

// endPass submits the stores that the pass of w prepared.
func (s *Sim) endPass(w *worker) {
	for i := range w.ranks {
		if o := w.ranks[i].offload; o != nil {
			o.EndPass(s.nowMs)
		}
	}
	w.pool.memory.EndPass(w.id)
}

// offloadTotals adds what memory behind the KV pools did.
func (s *Sim) offloadTotals(t *metrics.Totals) {
	for _, p := range s.pools {
		if p.memory == nil {
			continue
		}
		host, third := p.memory.Host(), p.memory.Third()
		if p.memory.Shared() {
			t.G2Domains = append(t.G2Domains, metrics.G2Domain{CapacityBlocks: host.Capacity, ResidentBlocks: host.Resident, UsedBlocks: host.Used})
		}
		t.Tiers = append(t.Tiers, tierFigures("host", host, p))
		if third.Pools == 0 {
			continue
		}
		t.Tiers = append(t.Tiers, tierFigures("g3", third.Figures, p))
		t.G3 = &metrics.G3Offload{LookupProbes: third.Probes, LookupHits: third.Hits, LookupPending: third.Pending,
			Read: transfers(third.Out), Write: transfers(third.In), Evictions: third.Evictions,
			CrossWorkerReadBlocks: third.Crossed, ResidentBlocks: third.Resident, PendingBlocks: third.Used - third.Resident}
	}
}

func transfers(m tier.Moved) metrics.Transfers {
	return metrics.Transfers{SubmittedJobs: m.Submitted, CompletedJobs: m.Completed, CompletedBytes: int64(m.Bytes), TransferMs: m.Ms}
}

func tierFigures(name string, f tier.Figures, p *pool) metrics.Tier {
	tokens := f.Out.Bytes / p.memory.BlockBytes() * float64(p.cfg.Rank.BlockSize)
	return metrics.Tier{Name: name, CapacityBlocks: f.Capacity, PeakBlocks: f.Peak, ResidentBlocks: f.Resident,
		HitTokens: int64(tokens), JobsIn: f.In.Completed, JobsOut: f.Out.Completed, BytesIn: f.In.Bytes, BytesOut: f.Out.Bytes,
		InMs: f.In.Ms, OutMs: f.Out.Ms, Evictions: f.Evictions, StoresRefused: f.Refused}
}
