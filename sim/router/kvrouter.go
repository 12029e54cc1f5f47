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
	hosts       hosts  // host memory behind the KV pools
	cfg         Config // of this side
	side        Side
	blockSize   int32
	dpSize      int32   // ranks per worker
	batchTokens float64 // max_num_batched_tokens
	lagMs       float64

	book    book
	queue   queue
	index   *index
	lag     lagQueue
	ties    rng.PCG
	softmax rng.PCG
	changes int // of the book, counted under the tag invariants

	slotOf       []int32 // [worker*dpSize+rank], -1: unknown
	freeSlots    []int32
	eligible     []int32  // slots of candidates, by worker, then rank
	eligibleSet  []uint64 // the same as a set
	slotsInOrder bool     // eligible is ascending

	pick         picker
	scanMost     int  // candidates up to which each is looked at
	needsPrefill bool // pick.prefill is kept

	// Scratch of one placement.
	cached query  // leading blocks that were announced
	live   query  // leading blocks of live prompts
	loads  []load // [candidate], where each is looked at
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
		queue:       newQueue(cfg.Profile.Classes),
		book:        book{index: newIndex(), prefill: cfg.TrackPrefillTokens, estimator: cfg.Estimator},
		ties:        rng.Stream(o.Seed, "router ties "+o.Side.String()),
		softmax:     rng.Stream(o.Seed, "router softmax "+o.Side.String())}
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
	k.index = k.book.index
	k.hosts.weight = cfg.HostWeight
	k.preparePick()
	return k, nil
}

// Place routes a request now or queues it. Overlap is frozen here; load is read at
// admission (spec kv-router 5).
func (k *KV) Place(r Request, nowMs float64) (Route, bool, error) {
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
		k.cached.reset(k.index.words)
		return
	}
	k.index.match(r.Prompt, r.ISL/k.blockSize, &k.cached, nil)
	k.hosts.match(k, r.Prompt, r.ISL/k.blockSize)
}

// bestCached is the largest number of a request's tokens cached at a candidate.
func (k *KV) bestCached(isl int32) int64 {
	tokens, _ := k.bestOverlap()
	return min(tokens, int64(isl))
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
		prompt: *r.Prompt, overlap: p.overlap, hosts: p.hosts}
	k.cached.freeze(&p.overlap)
	p.hosts = append(p.hosts[:0], k.hosts.extend...)
	k.queue.push(r.ID)
	return nil
}

// admit chooses a rank for a request whose overlaps are in k.cached, and books it.
func (k *KV) admit(req, isl int32, p *kv.Prompt, nowMs float64) (Route, error) {
	if len(k.eligible) == 0 {
		return Route{}, errNoEndpoints
	}
	nowNs := nanos(nowMs)
	l, err := k.place(isl, p, nowNs)
	if err != nil {
		return Route{}, err
	}
	k.book.admit(admission{req: req, slot: l.slot, isl: isl, blocks: isl / k.blockSize,
		cached: k.cachedTokens(l.cached, l.host)}, p, nowNs)
	k.loaded(l.slot)
	k.check()
	at := k.book.ranks[l.slot].Rank
	_, best := k.bestOverlap()
	return Route{Req: req, Worker: at.Worker, Rank: at.Rank, OverlapBlocks: int32(k.hosts.effective(l.cached, l.host)),
		BestBlocks: best, ISLBlocks: ceilDiv(isl, k.blockSize)}, nil
}

// place chooses a candidate for a request whose overlaps are in k.cached, and
// returns its load.
func (k *KV) place(isl int32, p *kv.Prompt, nowNs int64) (load, error) {
	a := ask{isl: isl, blocks: isl / k.blockSize, requestBlocks: float64(max(ceilDiv(isl, k.blockSize), 1))}
	if k.book.tracking == shared {
		k.index.match(p, a.blocks, nil, &k.live)
	} else {
		k.live.reset(k.index.words)
	}
	if k.book.tracking == untracked {
		a.blocks = 0
	}
	if len(k.eligible) > k.scanMost && k.hosts.index == nil {
		ties := k.ties
		if l, ok := k.pickLoad(&a); ok {
			return l, k.checkPick(l.slot, ties, &a, nowNs)
		}
	}
	k.project(&a, nowNs)
	if err := k.costs(&a); err != nil {
		return load{}, err
	}
	return k.loads[k.choose()], nil
}

// project fills k.loads with the present load of every candidate
// (spec kv-router 7.2).
func (k *KV) project(a *ask, nowNs int64) {
	k.loads = k.loads[:0]
	for _, slot := range k.eligible {
		l := k.loadOf(slot, k.cached.of(slot), k.live.of(slot), a)
		l.host = k.hosts.of(slot)
		if k.book.estimator != nil {
			l.prefill = k.book.active(&k.book.ranks[slot].prefill, nowNs)
		}
		k.loads = append(k.loads, l)
	}
}

// allBusy reports whether every candidate is above the busy line of a class; an
// empty pool is.
func (k *KV) allBusy(c *Class, nowMs float64) bool {
	if k.needsPrefill {
		least := k.pick.prefill.min()
		return math.IsInf(least, 1) || k.busy(c, int64(least))
	}
	nowNs := nanos(nowMs)
	for _, slot := range k.eligible {
		tokens := k.book.active(&k.book.ranks[slot].prefill, nowNs)
		if !k.busy(c, tokens) {
			return false
		}
	}
	return true
}

// busy reports whether so many active prefill tokens are above the busy line of a
// class.
func (k *KV) busy(c *Class, tokens int64) bool {
	return c.BusyTokens >= 0 && tokens > c.BusyTokens ||
		c.BusyFrac >= 0 && float64(tokens) > c.BusyFrac*k.batchTokens
}

// drain admits waiting requests while a candidate of their class is not busy.
func (k *KV) drain(nowMs float64, out []Route) ([]Route, error) {
	for k.queue.size > 0 {
		for i := range k.queue.ready {
			k.queue.ready[i] = len(k.queue.queues[i].heap) > 0 && !k.allBusy(&k.queue.classes[i], nowMs)
		}
		req := k.queue.pop()
		if req < 0 {
			break
		}
		p := &k.queue.waiting[req]
		k.cached.thaw(&p.overlap, k.index.words)
		k.hosts.extend = append(k.hosts.extend[:0], p.hosts...)
		route, err := k.admit(req, p.isl, &p.prompt, nowMs)
		if err != nil {
			return out, err
		}
		out = append(out, route)
	}
	return out, nil
}

// Observe applies the events of a rank, now or after the event lag.
func (k *KV) Observe(from Rank, ev *kv.Events, nowMs float64) {
	if k.side == Decode {
		return
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
		if v.Stored && v.HasParent && !k.index.caches(v.Parent, slot) {
			panic(fmt.Sprintf("router: rank %+v stored a block behind %#x, which it does not hold",
				k.book.ranks[slot].Rank, uint64(v.Parent)))
		}
		if v.Stored {
			for ids := ev.BlocksOf(v); len(ids) > 0; {
				n := pageRun(ids)
				k.index.store(ids[0], n, slot)
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
			if !k.index.evict(first, n, slot) {
				panic(fmt.Sprintf("router: rank %+v removed one of %d blocks from %#x on, which it does not hold",
					k.book.ranks[slot].Rank, n, uint64(first)))
			}
			ids = ids[n:]
		}
	}
}

// PrefillCompleted drops a request's prefill load and drains the queue.
func (k *KV) PrefillCompleted(req int32, nowMs float64, out []Route) ([]Route, error) {
	k.applyDue(nowMs)
	if !k.book.booked(req) {
		return out, nil
	}
	k.book.prefillCompleted(req, nanos(nowMs))
	k.loaded(k.book.entries[req].slot)
	return k.drain(nowMs, out)
}

// Terminal drops a request from the book and drains the queue.
func (k *KV) Terminal(req int32, nowMs float64, out []Route) ([]Route, error) {
	k.applyDue(nowMs)
	if !k.book.booked(req) {
		return out, nil
	}
	slot := k.book.entries[req].slot
	k.book.terminal(req, nanos(nowMs))
	k.loaded(slot)
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
		k.loaded(slot)
	}
	if first := worker * k.dpSize; len(k.eligible) > 0 && k.slotsInOrder && int(first+k.dpSize) == len(k.slotOf) &&
		k.slotOf[first] > k.eligible[len(k.eligible)-1] {
		k.addEligible(first, first+k.dpSize) // a fleet that starts is not gone through for each worker
		return
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
	k.book.ranks = append(k.book.ranks, rank{prefill: prefillFIFO{front: -1, back: -1}})
	n := len(k.book.ranks)
	if n > mostSlots {
		panic(fmt.Sprintf("router: more than %d ranks", mostSlots))
	}
	k.index.widen(n)
	k.pick.load.widen(n)
	k.pick.prefill.widen(n)
	for 64*len(k.eligibleSet) < n {
		k.eligibleSet, k.pick.tied = append(k.eligibleSet, 0), append(k.pick.tied, 0)
	}
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
	clear(k.eligibleSet)
	k.slotsInOrder = true
	k.addEligible(0, int32(len(k.slotOf)))
}

// addEligible appends the candidates among the ranks from one on and before another.
func (k *KV) addEligible(from, to int32) {
	for _, slot := range k.slotOf[from:to] {
		if slot < 0 || !k.book.ranks[slot].eligible {
			continue
		}
		if n := len(k.eligible); n > 0 && k.eligible[n-1] > slot {
			k.slotsInOrder = false
		}
		k.eligible = append(k.eligible, slot)
		k.eligibleSet[slot>>6] |= 1 << (slot & 63)
	}
}

// WorkerDraining takes a worker out of every candidate set; its book and index
// stay, so that its requests finish normally.
func (k *KV) WorkerDraining(worker int32, _ float64) {
	for i := range k.dpSize {
		if slot := k.slot(worker, i); slot >= 0 {
			k.book.ranks[slot].eligible = false
			k.loaded(slot)
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
		if k.hosts.index != nil {
			k.hosts.index.drop(slot)
		}
		k.lag.forget(slot)
		k.queue.forget(slot)
		k.slotOf[worker*k.dpSize+i] = -1
		k.freeSlots = append(k.freeSlots, slot)
	}
}

// TopologySettled drains the queue after the worker set changed.
func (k *KV) TopologySettled(nowMs float64, out []Route) ([]Route, error) {
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

// checkPick returns what is wrong with the choice of a slot beside a look at every
// candidate, with the same draws.
func (k *KV) checkPick(slot int32, ties rng.PCG, a *ask, nowNs int64) error {
	if !invariant.On || k.changes%16 != 0 {
		return nil
	}
	after := k.ties
	k.ties = ties
	k.project(a, nowNs)
	if err := k.costs(a); err != nil {
		return err
	}
	if l := &k.loads[k.choose()]; l.slot != slot || k.ties != after {
		panic(fmt.Sprintf("router: picked slot %d, a look at every candidate chooses %d", slot, l.slot))
	}
	return nil
}
