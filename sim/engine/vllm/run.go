package vllm

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/invariant"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// A decode run is a stretch of passes that only make every running request one
// token longer (spec replay-runtime 13). Its bounds are arithmetic: the smallest
// remaining output, the blocks that can still be had, and a queue whose head
// stays blocked. In it nothing is released, so the LRU list only loses heads, and
// taking the blocks of several passes at once evicts the same ones in the same
// order.
//
// Why a head that has no room stays so: its length and what it may reuse do not
// grow. Held hits grow only where an evicted copy uncovers a held one, by at most
// one per eviction, and every eviction takes one from the room. Where admission
// counts room less promises, which a run does not move, there are no copies: with
// full hits at most one request computes a prompt at a time, behind all blocks that
// were visible, and a block outlives the blocks after it.

// Run looks for a decode run of at most limit passes.
func (c *Core) Run(limit int) engine.Run {
	n := len(c.running)
	if n == 0 || n > c.maxTokens || c.sampler != nil || c.cfg.Role == engine.Prefill {
		return engine.Run{}
	}
	var context int64
	for _, s := range c.running {
		r := c.reqs.At(s)
		if r.computed != r.length-1 || r.length == r.prompt {
			return engine.Run{}
		}
		context += int64(r.length)
		limit = min(limit, int(r.total-r.length)-1)
	}
	if limit < 1 || c.offload != nil && c.hasOpenCursor() || !c.headStays() {
		return engine.Run{}
	}
	passes, grown := c.affordable(limit)
	if passes < 1 {
		return engine.Run{}
	}
	c.members = c.members[:0]
	for _, s := range c.running {
		c.members = append(c.members, c.reqs.At(s).id)
	}
	return engine.Run{Passes: passes, Members: int64(n), Context: context,
		Events: c.emitsEvents() && grown > c.pool.Free()}
}

// growth is the number of blocks that passes more passes of a run take.
func (c *Core) growth(passes int) int {
	sum := 0
	for _, s := range c.running {
		r := c.reqs.At(s)
		sum += int(max(0, ceil(r.computed+int32(passes), c.blockSize)-r.blocks))
	}
	return sum
}

// affordable cuts passes to those whose blocks the pool can give, and returns
// those blocks.
func (c *Core) affordable(passes int) (n, blocks int) {
	blocks = c.growth(passes)
	supply := c.pool.Capacity() - c.pool.Active()
	if c.offload != nil && c.offload.stores > 0 && !c.offload.holds {
		supply = c.pool.Free() // a pass that evicts may have to wait for a store
	}
	if blocks <= supply {
		return passes, blocks
	}
	lo, hi := 0, passes // growth(lo) fits, growth(hi) does not
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; c.growth(mid) <= supply {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, c.growth(lo)
}

// headStays reports that no pass of a decode run can admit or reject anybody.
func (c *Core) headStays() bool {
	if c.offload != nil {
		return c.queueStays()
	}
	s := c.head()
	if s == 0 || len(c.running) >= c.maxSeqs {
		return true
	}
	r := c.reqs.At(s)
	if r.computed > 0 || r.status == waiting && c.refuse(r) != engine.NoReason {
		return false
	}
	c.p.budget = c.maxTokens - len(c.running)
	if c.p.budget == 0 && c.needsTokens(r) {
		return true
	}
	cached, fits := c.fits(s)
	if !fits {
		return true
	}
	ahead := int(r.prompt) - cached
	return ahead > 0 && !c.cfg.ChunkedPrefill && ahead > c.p.budget
}

// Advance commits n passes of the run.
func (c *Core) Advance(n int, ev *kv.Events) {
	ev = c.events(ev)
	blocks := c.growth(n)
	if !c.pool.Acquire(nil, blocks, ev) {
		panic(fmt.Sprintf("vllm: a run of %d passes needs %d blocks of %d free and %d inactive",
			n, blocks, c.pool.Free(), c.pool.Inactive()))
	}
	c.blocksOwed -= blocks
	for _, s := range c.running {
		r := c.reqs.At(s)
		r.computed += int32(n)
		r.length += int32(n)
		r.blocks = max(r.blocks, ceil(r.computed, c.blockSize))
		c.finalize(r, r.computed, ev)
		if invariant.On && r.length >= r.total {
			panic(fmt.Sprintf("vllm: request %d ended inside a run at %d of %d tokens", r.id, r.length, r.total))
		}
	}
	c.passes += int64(n)
	// Some pass of the run may not have been a deferred one.
	if (c.step+int64(n))/c.interval > c.step/c.interval || c.admissionBlocked {
		c.admissionBlocked = c.wait.n > 0
	}
	c.step += int64(n)
}

// RunBlocks adds the blocks that the members take to those in use now.
func (c *Core) RunBlocks(dst []int64) {
	clear(dst)
	for _, s := range c.running {
		r := c.reqs.At(s)
		for j := int(r.blocks*c.blockSize - r.computed); j < len(dst); j += int(c.blockSize) {
			dst[j]++
		}
	}
	used := int64(c.pool.Active())
	for j := range dst {
		used += dst[j]
		dst[j] = used
	}
}

// Members lists the requests of the run that Run found last.
func (c *Core) Members() []int32 { return c.members }

// RunMetrics is the row of the latest committed pass: its lengths are those before
// its token.
func (c *Core) RunMetrics() engine.ForwardPass {
	var m engine.ForwardPass
	var decode sums
	for _, s := range c.running {
		decode.add(int64(c.reqs.At(s).length)-1, 1)
	}
	m.DecodeRequests, m.DecodeKVTokens, m.DecodeVar = decode.n, decode.sum, decode.variance()
	c.queueMetrics(&m)
	return m
}
