package vllm

import "github.com/dynosweep/dynosweep/sim/engine"

// burstMax is the most tokens that r can emit in a speculative pass.
func (c *Core) burstMax(r *request) int32 {
	if c.cfg.Role == engine.Prefill {
		return 1
	}
	return min(int32(c.cfg.NextN)+1, r.total-r.length)
}

// reserve takes private blocks for the longest bursts of all ready requests and
// returns their number, preempting until they fit. False, with nothing taken, if
// nobody is ready or nobody is left to preempt: the pass then emits nothing.
func (c *Core) reserve() (blocks int, ok bool) {
	for {
		need, ready := 0, false
		for _, s := range c.running {
			if r := c.reqs.At(s); r.emits() {
				ready = true
				need += int(ceil(r.length+c.burstMax(r), c.blockSize) - ceil(r.length, c.blockSize))
			}
		}
		if !ready {
			return 0, false
		}
		if c.pool.Acquire(nil, need, c.p.ev) {
			return need, true
		}
		victim := c.victim()
		if victim == 0 {
			return 0, false
		}
		c.preempt(victim)
	}
}

// burst samples every ready request in running order and appends the accepted
// tokens, with blocks from the reservation (spec engine-vllm 8).
func (c *Core) burst(reservation int) {
	kept := c.running[:0]
	out := c.p.out
	for _, s := range c.running {
		r := c.reqs.At(s)
		if !r.emits() {
			kept = append(kept, s)
			continue
		}
		accepted := int32(1)
		if c.cfg.Role != engine.Prefill {
			accepted = c.sampler.Accepted()
		}
		c.price(r, accepted)
		n := min(accepted, r.total-r.length)
		reservation -= c.appendTokens(r, n)
		sig := engine.Signal{Req: r.id, Tokens: n}
		if r.length == r.total {
			sig.End = engine.Completed
			c.finish(s)
		} else {
			kept = append(kept, s)
		}
		out.Signals = append(out.Signals, sig)
	}
	c.running = kept
	c.pool.Release(nil, reservation)
}

// appendTokens appends n tokens to r, all of whose tokens are computed, and returns
// how many reserved blocks that took. The last token is not computed yet.
func (c *Core) appendTokens(r *request, n int32) (taken int) {
	r.length += n
	r.computed = r.length - 1
	if grown := int(ceil(r.length, c.blockSize) - r.blocks); grown > 0 {
		taken = grown
		c.blocksOwed -= taken
		r.blocks += int32(taken)
	}
	c.finalize(r, r.computed, c.p.ev)
	return taken
}
