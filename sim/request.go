package sim

import (
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/slab"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// request is one request in the cluster. Slots are recycled; the index is the
// request's id for engines, routers and the handoff coordinator.
type request struct {
	rec    metrics.Record
	src    *workload.Request
	worker int32 // where its tokens are made: aggregated or decode worker and rank
	rank   int32
	sawOut bool // a signal of it was seen: prefill_completed is behind it
	hand   handoff
}

// slots holds the requests of a run by dense id.
type slots struct {
	slab.Slab[request]
	live int // in the cluster, router queues and open handoffs included
}

func (s *slots) take() int32 {
	s.live++
	return s.Take()
}

func (s *slots) release(id int32) {
	s.At(id).src = nil
	s.Put(id)
	s.live--
}
