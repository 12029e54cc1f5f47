package sim

import (
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/slab"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// request is one request in the cluster. Slots are recycled; the index is the
// request's id for engines, routers and the handoff coordinator.
type request struct {
	rec             metrics.Record
	src             *workload.Request
	worker          int32 // where its tokens are made: aggregated or decode worker and rank
	rank            int32
	firstSignalSeen bool // a signal of it was seen: prefill_completed is behind it
	handoff         handoff
}

// slots holds the requests of a run by dense id.
type slots struct {
	slab.Slab[request]
	live int // in the cluster, router queues and open handoffs included
}

func (s *slots) allocate() int32 {
	s.live++
	return s.Allocate()
}

func (s *slots) release(id int32) {
	s.At(id).src = nil
	s.Release(id)
	s.live--
}
