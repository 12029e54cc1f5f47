package router

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sim/rng"
)

// balancer places each request at once on an active worker that its draw chooses
// from the requests in flight, and on the rank of it that has the fewest, the first
// among equals. A request is in flight from its placement to its terminal signal in
// this pool.
type balancer struct {
	immediate
	name     string
	dpSize   int32
	workers  workerSet
	inFlight []int32 // [worker] requests
	onRank   []int32 // [worker*dpSize+rank] requests
	placed   []int32 // [request] worker*dpSize+rank, -1: not in flight
	stream   rng.PCG
	draw     func(b *balancer) int32
}

var _ Placement = (*balancer)(nil)

func newBalancer(o Options, name string, draw func(b *balancer) int32) *balancer {
	return &balancer{name: name, dpSize: int32(o.DPSize), draw: draw,
		stream: rng.Stream(o.Seed, "router "+name+" "+o.Side.String())}
}

// drawAny draws an active worker, all with the same probability.
func drawAny(b *balancer) int32 {
	if len(b.workers) == 1 {
		return b.workers[0]
	}
	return b.workers[b.stream.IntN(len(b.workers))]
}

// drawLeastLoaded returns the active worker with the fewest requests in flight;
// among equals it draws.
func drawLeastLoaded(b *balancer) int32 {
	least, ties := b.workers[0], 1
	for _, w := range b.workers[1:] {
		switch n := b.inFlight[w]; {
		case n < b.inFlight[least]:
			least, ties = w, 1
		case n == b.inFlight[least]:
			ties++
		}
	}
	if ties == 1 {
		return least
	}
	nth := b.stream.IntN(ties)
	for _, w := range b.workers {
		if b.inFlight[w] != b.inFlight[least] {
			continue
		}
		if nth == 0 {
			return w
		}
		nth--
	}
	panic("router: fewer workers with the least load than were counted")
}

// drawOfTwo draws two different active workers and returns the one with fewer
// requests in flight, the first drawn among equals.
func drawOfTwo(b *balancer) int32 {
	n := len(b.workers)
	if n == 1 {
		return b.workers[0]
	}
	i, j := b.stream.IntN(n), b.stream.IntN(n-1)
	if j >= i {
		j++
	}
	first, second := b.workers[i], b.workers[j]
	if b.inFlight[second] < b.inFlight[first] {
		return second
	}
	return first
}

// Place routes a request at once.
func (b *balancer) Place(r Request, _ float64) (Route, bool, error) {
	if len(b.workers) == 0 {
		return Route{}, false, fmt.Errorf("no active workers for %s placement", b.name)
	}
	worker := b.draw(b)
	ranks := b.onRank[worker*b.dpSize : (worker+1)*b.dpSize]
	rank := int32(0)
	for i, n := range ranks {
		if n < ranks[rank] {
			rank = int32(i)
		}
	}
	for int(r.ID) >= len(b.placed) {
		b.placed = append(b.placed, -1)
	}
	if b.placed[r.ID] >= 0 {
		panic(fmt.Sprintf("router: request %d is placed twice", r.ID))
	}
	b.placed[r.ID] = worker*b.dpSize + rank
	b.inFlight[worker]++
	ranks[rank]++
	return Route{Req: r.ID, Worker: worker, Rank: rank, OverlapBlocks: -1, BestBlocks: -1, ISLBlocks: -1}, false, nil
}

// Terminal takes a request off the worker that had it in flight.
func (b *balancer) Terminal(req int32, _ float64, out []Route) ([]Route, error) {
	if int(req) < len(b.placed) && b.placed[req] >= 0 {
		at := b.placed[req]
		b.placed[req] = -1
		b.inFlight[at/b.dpSize]--
		b.onRank[at]--
	}
	return out, nil
}

// WorkerReady adds an idle worker.
func (b *balancer) WorkerReady(worker int32, _ float64) {
	for int(worker) >= len(b.inFlight) {
		b.inFlight = append(b.inFlight, 0)
		b.onRank = append(b.onRank, make([]int32, b.dpSize)...)
	}
	b.workers.add(worker)
}

// WorkerDraining takes a worker out of every choice; its requests stay in flight.
func (b *balancer) WorkerDraining(worker int32, _ float64) { b.workers.remove(worker) }

// WorkerRemoved forgets a worker.
func (b *balancer) WorkerRemoved(worker int32, _ float64) { b.workers.remove(worker) }
