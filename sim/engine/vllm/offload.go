package vllm

import (
	"slices"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/tier"
)

// offload is the side of a rank that copies the blocks of prompts to the memory
// behind its pool and loads them back (spec kv-offload 3, 4).
type offload struct {
	memory *tier.Memory
	rank   int32
	reqs   []offloaded // [request slot]

	readBy   []int32  // [pool slot] store that reads the block + 1, 0 none
	stores   int      // of this rank, prepared or running
	fenceMs  float64  // until when stores read blocks that the pass gave out
	reused   []reused // blocks given out under a store
	prepared []int32  // stores to submit at the end of the pass
	loads    []int32  // requests with a load under way
	ready    []int32  // waiting requests that hold what they loaded, in order of its end
	after    int32    // last request of the queue that the pass deferred
	nowMs    float64
	device   int32 // blocks of the latest admission that were found in the pool

	events  kv.Events // of the pool: loaded blocks that became visible
	host    kv.Events // of the host memory
	changed bool
	holds   bool    // stores hold the blocks that they read, so that nobody overwrites them
	held    []int32 // scratch
}

// offloaded is what offloading knows of one request.
type offloaded struct {
	cursor  int32 // leading prompt blocks whose store was settled
	store   int32 // its latest store
	job     int32 // its load, or its read from the third tier
	from    int32 // blocks that were in the pool when the load began
	loaded  int32 // blocks that it holds since
	storing bool
	loading bool
	staging bool
	passed  bool // a pass deferred it since it last ran: preempted requests queue behind it
}

// reused is a block that a request got while a store still reads its bytes.
type reused struct{ req, block, job int32 }

// newOffload joins the memory of cfg, nil without one.
func (c *Core) newOffload(cfg *engine.Config) *offload {
	if cfg.Memory == nil || cfg.Role == engine.Decode {
		return nil
	}
	o := &offload{memory: cfg.Memory, holds: cfg.Memory.Shared()}
	o.rank = cfg.Memory.Join(cfg.Worker, c)
	c.pool.TrackEvicted()
	return o
}

// at returns what is known of the request in a slot.
func (o *offload) at(s int32) *offloaded {
	for int(s) >= len(o.reqs) {
		o.reqs = append(o.reqs, offloaded{})
	}
	return &o.reqs[s]
}

// forget drops what is known of a request that leaves.
func (o *offload) forget(s int32) {
	*o.at(s) = offloaded{}
	for i := 0; i < len(o.reused); {
		if o.reused[i].req == s {
			o.reused = append(o.reused[:i], o.reused[i+1:]...)
			continue
		}
		i++
	}
	o.loads, o.ready = without(o.loads, s), without(o.ready, s)
}

// without returns list with its s taken out.
func without(list []int32, s int32) []int32 {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// look is what admission does with a waiting request.
type look uint8

const (
	admissible look = iota
	noRoom
	wait
)

// lookBehind is fits with memory behind the pool: it may start a load, for which the
// request waits while others pass it.
func (c *Core) lookBehind(s int32) (cached int, l look) {
	r, o := c.reqs.At(s), c.offload
	q := o.at(s)
	if c.p.budget == 0 && c.needsTokens(r) {
		return 0, noRoom
	}
	if q.loaded > 0 {
		return c.loadedFits(r, q)
	}
	if q.storing || q.loading || q.staging {
		return 0, wait
	}
	hits := c.find(r, int(r.length/c.blockSize))
	found, prompt := len(hits), int(r.prompt/c.blockSize)
	o.memory.Touch(o.rank, tier.Blocks{Prompt: &r.content, To: prompt})
	if found < prompt && c.p.budget > 0 {
		if l := c.loadBehind(s, hits, prompt); l != admissible {
			return 0, l
		}
	}
	cached, fits := c.fits(s)
	if !fits {
		return 0, noRoom
	}
	o.device = int32(cached)
	return cached, admissible
}

// loadBehind starts to move blocks of request s that follow hits to the pool, if the
// memory has any.
func (c *Core) loadBehind(s int32, hits []int32, prompt int) look {
	r, o := c.reqs.At(s), c.offload
	q := o.at(s)
	blocks := tier.Blocks{Prompt: &r.content, From: len(hits), To: prompt}
	if j := o.memory.Stage(o.rank, s, blocks, o.nowMs); j >= 0 {
		q.staging, q.job = true, j
		return wait
	}
	n, pending := o.memory.Lookup(o.rank, blocks)
	if pending {
		return wait
	}
	if n == 0 {
		return admissible
	}
	if o.loadsSome(c, r, len(hits), len(hits)+n) {
		return wait
	}
	if _, fits := c.fits(s); !fits {
		return noRoom
	}
	if hits = c.find(r, blocks.From); !c.pool.Acquire(hits, n, c.p.ev) {
		return noRoom
	}
	c.openList(r)
	r.cached = append(r.cached, hits...)
	r.blocks = int32(len(hits) + n)
	notBefore := o.nowMs
	for _, slot := range c.pool.Evicted() {
		if j := o.source(slot) - 1; j >= 0 {
			notBefore = max(notBefore, o.memory.StoreEndMs(j))
			o.readBy[slot] = 0
		}
	}
	blocks.To = blocks.From + n
	q.from, q.loading, q.cursor = int32(blocks.From), true, int32(blocks.To)
	q.job = o.memory.Load(o.rank, s, blocks, o.nowMs, notBefore)
	o.loads = append(o.loads, s)
	return wait
}

// loadsSome reports that another request loads one of blocks from..to-1 of r.
func (o *offload) loadsSome(c *Core, r *request, from, to int) bool {
	for _, s := range o.loads {
		q, other := o.at(s), c.reqs.At(s)
		i := max(from, int(q.from))
		if i < min(to, int(other.blocks)) && other.content.Block(i) == r.content.Block(i) {
			return true
		}
	}
	return false
}

// loadedFits is fits for a request that holds what it loaded.
func (c *Core) loadedFits(r *request, q *offloaded) (cached int, l look) {
	blocks := q.loaded
	if c.needsTokens(r) {
		blocks = min(blocks, (r.length-1)/c.blockSize)
	}
	known := int(ceil(r.length, c.blockSize))
	if known-int(q.loaded) > c.pool.Capacity()-c.pool.Active() {
		return 0, noRoom
	}
	c.p.hits = c.p.hits[:0]
	c.offload.device = min(q.from, blocks) * c.blockSize
	return int(blocks * c.blockSize), admissible
}

// nextCandidate is the request to look at next, 0 if there is none: first those that
// loaded what they needed, then the queue behind those that the pass deferred.
func (c *Core) nextCandidate() int32 {
	if len(c.offload.ready) > 0 {
		return c.offload.ready[0]
	}
	if c.offload.after == 0 {
		return c.wait.head
	}
	return c.reqs.At(c.offload.after).next
}

// defers notes that the pass goes on behind request s.
func (o *offload) defers(s int32) {
	o.after = s
	o.at(s).passed = true
}

// gaveOut notes the blocks that an allocation of r took from under running stores:
// the pass waits for them. from is the index of the first block that came by eviction.
func (c *Core) gaveOut(s int32, from int) {
	o := c.offload
	for i, slot := range c.pool.Evicted() {
		i = len(c.pool.Evicted()) - 1 - i
		j := o.source(slot) - 1
		if j < 0 {
			continue
		}
		o.readBy[slot] = 0
		o.fenceMs = max(o.fenceMs, o.memory.StoreEndMs(j))
		o.reused = append(o.reused, reused{req: s, block: int32(from + i), job: j})
	}
}

func (o *offload) source(slot int32) int32 {
	if int(slot) >= len(o.readBy) {
		return 0
	}
	return o.readBy[slot]
}

// prepareStores prepares the stores of the prompt blocks that the pass completed, in
// the order in which it scheduled their requests.
func (c *Core) prepareStores() {
	for _, s := range c.running {
		if r := c.reqs.At(s); r.pass == c.passes {
			c.prepareStore(s, r)
		}
	}
}

func (c *Core) prepareStore(s int32, r *request) {
	o := c.offload
	q := o.at(s)
	end := min(r.computed, r.prompt) / c.blockSize
	if end <= q.cursor {
		return
	}
	j, ok := o.memory.PrepareStore(o.rank, s, tier.Blocks{Prompt: &r.content, From: int(q.cursor), To: int(end)}, c.isBusy)
	if !ok {
		return
	}
	q.cursor = end
	if j < 0 {
		return
	}
	q.store, q.storing = j, true
	for _, i := range o.memory.Missing() {
		slot := r.cached[i]
		if o.holds {
			o.memory.Source(j, slot)
			o.held = append(o.held[:0], slot)
			c.pool.Acquire(o.held, 0, nil)
			continue
		}
		for int(slot) >= len(o.readBy) {
			o.readBy = append(o.readBy, 0)
		}
		o.readBy[slot] = j + 1
		o.memory.Source(j, slot)
	}
	o.stores++
	o.prepared = append(o.prepared, j)
}

// isBusy reports that block i of request s lies where another store still reads.
func (c *Core) isBusy(s int32, i int) bool {
	for _, b := range c.offload.reused {
		if b.req == s && int(b.block) == i {
			return true
		}
	}
	return false
}

// Offload returns the core itself, nil without memory behind the pool.
func (c *Core) Offload() engine.Offload {
	if c.offload == nil {
		return nil
	}
	return c
}

// EndPass submits the stores of the pass that ends.
func (c *Core) EndPass(nowMs float64) {
	o := c.offload
	for _, j := range o.prepared {
		o.memory.SubmitStore(j, nowMs)
	}
	o.prepared = o.prepared[:0]
}

// TakeEvents returns the events since the last call and whether a transfer ended.
func (c *Core) TakeEvents(pool, host *kv.Events) (changed bool) {
	o := c.offload
	*pool, o.events = o.events, *pool
	*host, o.host = o.host, *host
	o.events.Reset()
	o.host.Reset()
	changed, o.changed = o.changed, false
	return changed
}

// Waits reports whether the end of a transfer can change what the next pass does.
func (c *Core) Waits() bool {
	return c.wait.n > 0 || c.cfg.WantEvents || c.offload.memory.HasThird() || c.hasOpenCursor()
}

// hasOpenCursor reports that a running request has prompt blocks to store.
func (c *Core) hasOpenCursor() bool {
	for _, s := range c.running {
		r := c.reqs.At(s)
		if min(r.computed, r.prompt)/c.blockSize > c.offload.at(s).cursor {
			return true
		}
	}
	return false
}

// Stored ends a store.
func (c *Core) Stored(req, job int32, sources []int32) {
	o := c.offload
	o.changed = true
	o.stores--
	if o.holds {
		c.pool.Release(sources, 0)
		c.handoff.generation++
		sources = nil
	}
	for _, slot := range sources {
		if o.readBy[slot] == job+1 {
			o.readBy[slot] = 0
		}
	}
	for i := 0; i < len(o.reused); {
		if o.reused[i].job == job {
			o.reused = append(o.reused[:i], o.reused[i+1:]...)
			continue
		}
		i++
	}
	if q := o.at(req); q.storing && q.store == job {
		q.storing = false
	}
}

// Loaded makes the blocks of a load part of the pool; the request holds them.
func (c *Core) Loaded(req, job int32) {
	o := c.offload
	o.changed = true
	q := o.at(req)
	if !q.loading || q.job != job {
		return // it left
	}
	q.loading = false
	o.loads = without(o.loads, req)
	o.ready = append(o.ready, req)
	r := c.reqs.At(req)
	q.loaded = r.blocks
	for i := len(r.cached); i < int(r.blocks); i = len(r.cached) {
		id, n := r.content.Run(i, int(r.blocks))
		r.cached = c.pool.Cache(r.cached, id, n)
	}
	if ev := c.events(&o.events); ev != nil {
		c.emitStored(r, int(q.from), ev)
	}
}

// Staged ends the read of blocks from the third tier into the host memory.
func (c *Core) Staged(req, job int32) {
	c.offload.changed = true
	if q := c.offload.at(req); q.staging && q.job == job {
		q.staging = false
	}
}

// Held tells the router of blocks in the host memory.
func (c *Core) Held(ids []kv.BlockID) {
	if ev := c.events(&c.offload.host); ev != nil && len(ids) > 0 {
		ev.BeginStored(0, false)
		for _, id := range ids {
			ev.Add(id)
		}
	}
}

// Lost tells the router of blocks that left the host memory.
func (c *Core) Lost(ids []kv.BlockID) {
	if ev := c.events(&c.offload.host); ev != nil && len(ids) > 0 {
		ev.BeginRemoved()
		for _, id := range ids {
			ev.Add(id)
		}
	}
}

// beginPass clears what the last pass left.
func (o *offload) beginPass(nowMs float64) {
	o.nowMs, o.fenceMs, o.after = nowMs, 0, 0
}

// computeMs is when a pass that starts now begins to compute: once no store reads what
// it overwrites.
func (c *Core) computeMs(nowMs float64) float64 {
	if c.offload == nil || c.p.scheduled == 0 {
		return nowMs
	}
	return max(nowMs, c.offload.fenceMs)
}

// preempt makes the pass wait for the store of a request that lost its blocks.
func (o *offload) preempt(s int32) {
	q := o.at(s)
	q.loaded, q.from = 0, 0
	if q.storing && !o.holds {
		o.fenceMs = max(o.fenceMs, o.memory.StoreEndMs(q.store))
	}
}

// admitted returns the tokens of an admission that were found in the pool.
func (o *offload) admitted(s int32) int32 {
	q := o.at(s)
	if q.loaded > 0 {
		o.ready = without(o.ready, s)
	}
	q.loaded, q.from, q.passed = 0, 0, false
	return o.device
}

// queuePreempted is the request of the queue before which a preempted one stands:
// those that passes deferred keep their place in front (spec kv-offload 4).
func (c *Core) queuePreempted() int32 {
	s := c.wait.head
	if c.offload == nil {
		return s
	}
	for s != 0 && c.offload.at(s).passed {
		s = c.reqs.At(s).next
	}
	return s
}

// queueStays is headStays with memory behind the pool: no pass of a decode run can
// admit or reject anybody, nor start a load. The end of a transfer ends a run, so that
// what waits for one goes on waiting.
func (c *Core) queueStays() bool {
	if len(c.running) >= c.maxSeqs {
		return true
	}
	o := c.offload
	c.p.budget = c.maxTokens - len(c.running)
	if len(o.ready) > 0 {
		s := o.ready[0]
		if c.p.budget == 0 && c.needsTokens(c.reqs.At(s)) {
			return true
		}
		_, l := c.loadedFits(c.reqs.At(s), o.at(s))
		return l == noRoom
	}
	for s := c.wait.head; s != 0; s = c.reqs.At(s).next {
		r, q := c.reqs.At(s), o.at(s)
		if r.status == waiting && c.refuse(r) != engine.NoReason {
			return false
		}
		if c.p.budget == 0 && c.needsTokens(r) {
			return true
		}
		if q.storing || q.loading || q.staging {
			q.passed = true
			continue
		}
		if !o.memory.Private() {
			return false // what others do to the memory changes it from pass to pass
		}
		hits := c.find(r, int(r.length/c.blockSize))
		prompt := int(r.prompt / c.blockSize)
		o.memory.Touch(o.rank, tier.Blocks{Prompt: &r.content, To: prompt})
		if len(hits) < prompt {
			n, pending := o.memory.Lookup(o.rank, tier.Blocks{Prompt: &r.content, From: len(hits), To: prompt})
			if pending || n > 0 && o.loadsSome(c, r, len(hits), len(hits)+n) {
				q.passed = true
				continue
			}
			if n > 0 {
				_, fits := c.fits(s)
				return !fits || !c.pool.CanAcquire(c.find(r, len(hits)), n)
			}
		}
		cached, fits := c.fits(s)
		if !fits {
			return true
		}
		ahead := int(r.prompt) - cached
		return ahead > 0 && !c.cfg.ChunkedPrefill && ahead > c.p.budget
	}
	return true
}
