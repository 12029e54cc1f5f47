package router

import "errors"

// Rotation is the order in which a round robin visits ranks.
type Rotation uint8

const (
	// WorkersFirst takes the next worker, then that worker's next rank: 2 workers
	// of 2 ranks are visited 0, 2, 1, 3 (aggregated, spec replay-runtime 6.1).
	WorkersFirst Rotation = iota
	// Flattened takes the next of all ranks, by worker, then rank: 0, 1, 2, 3
	// (each disaggregated pool, spec replay-runtime 6.2).
	Flattened
)

// rotationOf is the rotation of the pool that a side has.
func rotationOf(s Side) Rotation {
	if s == Aggregated {
		return WorkersFirst
	}
	return Flattened
}

// errNoWorkers ends the run: a round robin has no queue.
var errNoWorkers = errors.New("no active workers for round-robin placement")

// RoundRobin places requests in rotation over the active workers of a pool. It
// starts without workers and never queues.
type RoundRobin struct {
	immediate
	rotation Rotation
	dpSize   int
	active   workerSet
	next     int     // position in active, or in the flattened list
	nextRank []int32 // [worker id], WorkersFirst only
}

var _ Placement = (*RoundRobin)(nil)

// NewRoundRobin returns a round robin over workers of dpSize >= 1 ranks each.
func NewRoundRobin(rotation Rotation, dpSize int) *RoundRobin {
	return &RoundRobin{rotation: rotation, dpSize: dpSize}
}

// Place returns the next rank in rotation. The counter is stored after the modulo,
// so that the rotation keeps its position when the pool grows or shrinks.
func (rr *RoundRobin) Place(r Request, _ float64) (Route, bool, error) {
	n := len(rr.active)
	if rr.rotation == Flattened {
		n *= rr.dpSize
	}
	if n == 0 {
		return Route{}, false, errNoWorkers
	}
	i := rr.next % n
	rr.next = i + 1
	route := Route{Req: r.ID, OverlapBlocks: -1, BestBlocks: -1, ISLBlocks: -1}
	if rr.rotation == Flattened {
		route.Worker, route.Rank = rr.active[i/rr.dpSize], int32(i%rr.dpSize)
		return route, false, nil
	}
	route.Worker = rr.active[i]
	route.Rank = rr.nextRank[route.Worker] % int32(rr.dpSize)
	rr.nextRank[route.Worker] = route.Rank + 1
	return route, false, nil
}

// WorkerReady adds a worker to the rotation.
func (rr *RoundRobin) WorkerReady(worker int32, _ float64) {
	for int(worker) >= len(rr.nextRank) {
		rr.nextRank = append(rr.nextRank, 0)
	}
	rr.active.add(worker)
}

// WorkerDraining takes a worker out of the rotation.
func (rr *RoundRobin) WorkerDraining(worker int32, _ float64) {
	rr.active.remove(worker)
}

// WorkerRemoved forgets a worker and its rank counter.
func (rr *RoundRobin) WorkerRemoved(worker int32, nowMs float64) {
	rr.WorkerDraining(worker, nowMs)
	if int(worker) < len(rr.nextRank) {
		rr.nextRank[worker] = 0
	}
}
