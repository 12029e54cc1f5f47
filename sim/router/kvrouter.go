package router

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/sim/invariant"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/rng"
)

// Options describe a KV router and the pool of workers that it places on.
type Options struct {
	Config           Config // of the deployment; the side's own is derived from it
	Side             Side
	BlockSize        int    // tokens of an engine block, >= 1
	DPSize           int    // ranks per worker, >= 1
	MaxBatchedTokens int    // of the engines; 0: unlimited
	Seed             uint64 // of the streams for ties and softmax draws
	EventLagMs       float64
}

// unlimitedBatch stands in for an engine without a token limit (spec kv-router 2).
const unlimitedBatch = 10_000_000

// errNoEndpoints ends the run: nobody can take a request that may not wait.
var errNoEndpoints = errors.New("no endpoints")

// KV is the KV router of one pool: prefix index, active-sequence book, cost and
// queue (spec kv-router). It starts without workers. A booked or queued request's
// prompt nodes must stay readable until its terminal signal.
type KV struct {
	cfg         Config // of this side
	side        Side
	blockSize   int32
	dpSize      int32   // ranks per worker
	batchTokens float64 // max_num_batched_tokens
	lagMs       float64

	book    book
	queue   queue
	index   index
	lag     lagQueue
	ties    rng.PCG
	softmax rng.PCG
	err     error // a placement released from the queue failed
	changes int   // of the book, counted under the tag invariants

	slotOf    []int32 // [worker*dpSize+rank], -1: unknown
	freeSlots []int32
	eligible  []int32 // slots of candidates, by worker, then rank

	// Scratch of one placement.
	cached []int32 // [slot] leading blocks in the index
	live   []int32 // [slot] leading blocks of live prompts
	loads  []load  // [candidate]
	cost   []float64
	weight []float64
}

var _ Placement = (*KV)(nil)

// NewKV returns the router of one pool, or what is wrong with its options. What
// differs between the routers of a disaggregated deployment is derived here.
func NewKV(o Options) (*KV, error) {
	errs := []error{o.Config.Validate()}
	if o.BlockSize < 1 || o.BlockSize > math.MaxInt32 || o.DPSize < 1 || o.DPSize > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("block_size and dp_size must be > 0, got %d and %d", o.BlockSize, o.DPSize))
	}
	if !finite(o.EventLagMs) {
		errs = append(errs, fmt.Errorf("kv_event_lag_ms must be finite and non-negative, got %v", o.EventLagMs))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg := o.Config.derive(o.Side)
	k := &KV{cfg: cfg, side: o.Side, blockSize: int32(o.BlockSize), dpSize: int32(o.DPSize), lagMs: o.EventLagMs,
		batchTokens: float64(o.MaxBatchedTokens),
		index:       newIndex(), queue: newQueue(cfg.Profile.Classes),
		book:    book{live: newIndex(), prefill: cfg.TrackPrefillTokens, estimator: cfg.Estimator},
		ties:    rng.Stream(o.Seed, "router ties "+o.Side.String()),
		softmax: rng.Stream(o.Seed, "router softmax "+o.Side.String())}
	if o.MaxBatchedTokens == 0 {
		k.batchTokens = unlimitedBatch
	}
	switch {
	case !cfg.TrackActiveBlocks:
		k.book.tracking = untracked
	case cfg.AssumeKVReuse:
		k.book.tracking = shared
	default:
		k.book.tracking = unshared
	}
	return k, nil
}

// Place routes a request now or queues it. Overlap is frozen here; load is read at
// admission (spec kv-router 5).
func (k *KV) Place(r Request, nowMs float64) (Route, bool, error) {
	if k.err != nil {
		return Route{}, false, k.err
	}
	k.applyDue(nowMs)
	k.overlaps(r)
	profile := &k.cfg.Profile
	class, cached := profile.classByName(r.PolicyClass), int64(-1)
	if class < 0 {
		cached = k.bestCached(r.ISL)
		class = profile.classify(r.PolicyClass, int64(r.ISL)-cached)
	}
	if c := &profile.Classes[class]; c.queues() && (len(k.queue.queues[class].heap) > 0 || k.allBusy(c, nowMs)) {
		if cached < 0 {
			cached = k.bestCached(r.ISL)
		}
		return Route{}, true, k.enqueue(class, cached, r, nowMs)
	}
	route, err := k.admit(r.ID, r.ISL, r.Prompt, nowMs)
	return route, false, err
}

// overlaps fills k.cached for a request that arrives.
func (k *KV) overlaps(r Request) {
	if k.side == Decode {
		clear(k.cached)
		return
	}
	k.index.match(r.Prompt, r.ISL/k.blockSize, k.cached)
}

// bestCached is the largest number of a request's tokens cached at a candidate.
func (k *KV) bestCached(isl int32) int64 {
	best := int32(0)
	for _, slot := range k.eligible {
		best = max(best, k.cached[slot])
	}
	return min(int64(best)*int64(k.blockSize), int64(isl))
}

// enqueue makes a request wait, with what k.cached holds; an error if a limit of
// its class is reached.
func (k *KV) enqueue(class int, cached int64, r Request, nowMs float64) error {
	if err := k.queue.limit(class, len(k.eligible)); err != nil {
		return err
	}
	p := k.queue.slot(r.ID)
	if p.pos >= 0 {
		panic(fmt.Sprintf("router: request %d is queued twice", r.ID))
	}
	cost := max(int64(r.ISL)-cached, 1)
	*p = pending{strict: r.StrictPriority, class: int32(class), isl: r.ISL, cost: cost, cached: cached,
		score:  score(k.queue.classes[class].Policy, r.Priority, nowMs/1000, cost),
		prompt: *r.Prompt, overlap: p.overlap[:0]}
	for slot, blocks := range k.cached {
		if blocks > 0 {
			p.overlap = append(p.overlap, held{int32(slot), blocks})
		}
	}
	k.queue.push(r.ID)
	return nil
}

// admit chooses a rank for a request whose overlaps are in k.cached, and books it.
func (k *KV) admit(req, isl int32, p *kv.Prompt, nowMs float64) (Route, error) {
	if len(k.eligible) == 0 {
		return Route{}, errNoEndpoints
	}
	nowNs := nanos(nowMs)
	blocks := isl / k.blockSize
	best := k.project(p, blocks, nowNs)
	if err := k.costs(isl); err != nil {
		return Route{}, err
	}
	l := &k.loads[k.choose()]
	k.book.admit(admission{req: req, slot: l.slot, isl: isl, blocks: blocks,
		cached: int64(l.cached) * int64(k.blockSize)}, p, nowNs)
	k.check()
	at := k.book.ranks[l.slot].Rank
	return Route{Req: req, Worker: at.Worker, Rank: at.Rank, OverlapBlocks: l.cached, BestBlocks: best,
		ISLBlocks: ceilDiv(isl, k.blockSize)}, nil
}

// project fills k.loads with the present load of every candidate for a request of
// so many full blocks (spec kv-router 7.2). It returns the best overlap.
func (k *KV) project(p *kv.Prompt, blocks int32, nowNs int64) int32 {
	switch k.book.tracking {
	case shared:
		k.book.live.match(p, blocks, k.live)
	case untracked:
		blocks = 0
	}
	k.loads = k.loads[:0]
	best := int32(0)
	for _, slot := range k.eligible {
		r := &k.book.ranks[slot]
		k.loads = append(k.loads, load{slot: slot, prefill: k.book.active(&r.prefill, nowNs),
			blocks: r.activeBlocks() + int64(blocks-k.live[slot]), live: r.requests, cached: k.cached[slot]})
		best = max(best, k.cached[slot])
	}
	return best
}

// allBusy reports whether every candidate is above the busy line of a class; an
// empty pool is.
func (k *KV) allBusy(c *Class, nowMs float64) bool {
	nowNs := nanos(nowMs)
	for _, slot := range k.eligible {
		tokens := k.book.active(&k.book.ranks[slot].prefill, nowNs)
		overTokens := c.BusyTokens >= 0 && tokens > c.BusyTokens
		overFrac := c.BusyFrac >= 0 && float64(tokens) > c.BusyFrac*k.batchTokens
		if !overTokens && !overFrac {
			return false
		}
	}
	return true
}

// drain admits waiting requests while a candidate of their class is not busy.
func (k *KV) drain(nowMs float64, out []Route) []Route {
	for k.queue.size > 0 && k.err == nil {
		for i := range k.queue.ready {
			k.queue.ready[i] = len(k.queue.queues[i].heap) > 0 && !k.allBusy(&k.queue.classes[i], nowMs)
		}
		req := k.queue.pop()
		if req < 0 {
			break
		}
		p := &k.queue.waiting[req]
		clear(k.cached)
		for _, h := range p.overlap {
			k.cached[h.slot] = h.blocks
		}
		route, err := k.admit(req, p.isl, &p.prompt, nowMs)
		if err != nil {
			k.err = err
			break
		}
		out = append(out, route)
	}
	return out
}

// Err returns the error that stopped the queue; nil if it never failed. Placements
// released by a hook have no other way to report that a cost is not finite.
func (k *KV) Err() error { return k.err }

// Observe applies the events of a rank, now or after the event lag.
func (k *KV) Observe(from Rank, ev *kv.Events, nowMs float64, out []Route) []Route {
	if k.side == Decode {
		return out
	}
	k.applyDue(nowMs)
	slot := k.slot(from.Worker, from.Rank)
	if slot < 0 {
		panic(fmt.Sprintf("router: events of unknown rank %+v", from))
	}
	if k.lagMs > 0 {
		k.lag.push(nowMs+k.lagMs, slot, ev)
	} else {
		k.apply(slot, ev)
	}
	return out
}

// applyDue applies the lagged events that are visible by now.
func (k *KV) applyDue(nowMs float64) {
	for b := k.lag.due(nowMs); b != nil; b = k.lag.due(nowMs) {
		if b.slot >= 0 {
			k.apply(b.slot, &b.events)
		}
	}
}

// apply enters events into the index. A stored block whose parent the rank does not
// hold, or a removed block that it does not hold, is an engine's bug.
func (k *KV) apply(slot int32, ev *kv.Events) {
	for _, v := range ev.Items {
		if v.Stored && v.HasParent && !k.index.has(v.Parent, slot) {
			panic(fmt.Sprintf("router: rank %+v stored a block behind %#x, which it does not hold",
				k.book.ranks[slot].Rank, uint64(v.Parent)))
		}
		if v.Stored {
			for ids := ev.BlocksOf(v); len(ids) > 0; {
				n := pageRun(ids)
				k.index.addRun(ids[0], n, slot)
				ids = ids[n:]
			}
			continue
		}
		for ids := ev.BlocksOf(v); len(ids) > 0; {
			n, first := pageRun(ids), ids[0]
			if n == 1 {
				n = pageRunDown(ids)
				first = ids[n-1]
			}
			if !k.index.removeRun(first, n, slot) {
				panic(fmt.Sprintf("router: rank %+v removed one of %d blocks from %#x on, which it does not hold",
					k.book.ranks[slot].Rank, n, uint64(first)))
			}
			ids = ids[n:]
		}
	}
}

// PrefillCompleted drops a request's prefill load and drains the queue.
func (k *KV) PrefillCompleted(req int32, nowMs float64, out []Route) []Route {
	k.applyDue(nowMs)
	if !k.book.booked(req) {
		return out
	}
	k.book.prefillCompleted(req, nanos(nowMs))
	return k.drain(nowMs, out)
}

// Terminal drops a request from the book and drains the queue.
func (k *KV) Terminal(req int32, nowMs float64, out []Route) []Route {
	k.applyDue(nowMs)
	if !k.book.booked(req) {
		return out
	}
	k.book.terminal(req, nanos(nowMs))
	k.check()
	return k.drain(nowMs, out)
}

// CancelPending drops a queued request; true if it was queued.
func (k *KV) CancelPending(req int32) bool {
	if !k.queue.waits(req) {
		return false
	}
	k.queue.remove(req)
	return true
}

// WorkerReady adds a worker with empty load and index (spec kv-router 10).
func (k *KV) WorkerReady(worker int32, _ float64) {
	for int(worker+1)*int(k.dpSize) > len(k.slotOf) {
		k.slotOf = append(k.slotOf, -1)
	}
	for i := range k.dpSize {
		if k.slot(worker, i) >= 0 {
			panic(fmt.Sprintf("router: worker %d is ready twice", worker))
		}
		slot := k.allocateSlot()
		k.slotOf[worker*k.dpSize+i] = slot
		r := &k.book.ranks[slot]
		r.Rank, r.eligible = Rank{worker, i}, true
	}
	k.refreshEligible()
}

// allocateSlot returns a free slot and makes room for it everywhere.
func (k *KV) allocateSlot() int32 {
	if n := len(k.freeSlots); n > 0 {
		slot := k.freeSlots[n-1]
		k.freeSlots = k.freeSlots[:n-1]
		return slot
	}
	k.book.ranks = append(k.book.ranks, rank{blocks: newRefcount(), prefill: prefillFIFO{front: -1, back: -1}})
	n := len(k.book.ranks)
	k.cached, k.live = append(k.cached, 0), append(k.live, 0)
	k.index.widen(n)
	k.book.live.widen(n)
	return int32(n - 1)
}

// slot is the dense number of a rank, -1 if it is unknown.
func (k *KV) slot(worker, rank int32) int32 {
	if i := int(worker*k.dpSize + rank); i < len(k.slotOf) {
		return k.slotOf[i]
	}
	return -1
}

func (k *KV) refreshEligible() {
	k.eligible = k.eligible[:0]
	for _, slot := range k.slotOf {
		if slot >= 0 && k.book.ranks[slot].eligible {
			k.eligible = append(k.eligible, slot)
		}
	}
}

// WorkerDraining takes a worker out of every candidate set; its book and index
// stay, so that its requests finish normally.
func (k *KV) WorkerDraining(worker int32, _ float64) {
	for i := range k.dpSize {
		if slot := k.slot(worker, i); slot >= 0 {
			k.book.ranks[slot].eligible = false
		}
	}
	k.refreshEligible()
}

// WorkerRemoved forgets a worker: its book, index and lagged events.
func (k *KV) WorkerRemoved(worker int32, nowMs float64) {
	k.WorkerDraining(worker, nowMs)
	for i := range k.dpSize {
		slot := k.slot(worker, i)
		if slot < 0 {
			continue
		}
		k.book.evict(slot, nanos(nowMs))
		k.index.drop(slot)
		k.lag.forget(slot)
		k.queue.forget(slot)
		k.slotOf[worker*k.dpSize+i] = -1
		k.freeSlots = append(k.freeSlots, slot)
	}
}

// TopologySettled drains the queue after the worker set changed.
func (k *KV) TopologySettled(nowMs float64, out []Route) []Route {
	k.applyDue(nowMs)
	return k.drain(nowMs, out)
}

// Queued is the number of waiting requests.
func (k *KV) Queued() int { return k.queue.size }

// WantsEvents reports whether this side has an index.
func (k *KV) WantsEvents() bool { return k.side != Decode }

// check panics if the book breaks a law of its own. It looks at everything, so it
// looks at one change of the book in 64.
func (k *KV) check() {
	if invariant.On {
		if k.changes++; k.changes%64 != 0 {
			return
		}
		if err := k.book.check(); err != nil {
			panic(err)
		}
	}
}
