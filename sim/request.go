package sim

import (
	"slices"

	"dynosweep/sim/metrics"
	"dynosweep/sim/workload"
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
	items []request
	free  []int32
	live  int // in the cluster, router queues and open handoffs included
}

func (s *slots) take() int32 {
	s.live++
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	if len(s.items) == cap(s.items) {
		s.items = slices.Grow(s.items, len(s.items)) // append would add a quarter
	}
	s.items = append(s.items, request{})
	return int32(len(s.items) - 1)
}

func (s *slots) release(id int32) {
	r := &s.items[id]
	r.src = nil
	s.free = append(s.free, id)
	s.live--
}
