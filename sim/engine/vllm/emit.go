package vllm

import (
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// emit prices the pass and hands out its tokens: first requests that end without
// one, then the ready ones in running order (spec engine-vllm 6, emission).
func (c *Core) emit(nowMs float64) {
	if c.tokenless > 0 {
		c.finishTokenless()
	}
	out := c.p.out
	out.EndMs = c.computeMs(nowMs) + c.prefillMs()
	out.ModelWork = c.p.scheduled > 0
	if c.sampler == nil {
		c.append()
	} else if reservation, ok := c.reserve(); ok {
		out.Blocks = int64(c.pool.Active())
		c.burst(reservation)
	}
	out.EndMs += c.decodeMs()
}

// emits reports that every token of r is computed: it gets the next one.
func (r *request) emits() bool { return r.computed == r.length }

// finishTokenless ends requests that computed their prompt and want no output.
func (c *Core) finishTokenless() {
	kept := c.running[:0]
	for _, s := range c.running {
		r := c.reqs.At(s)
		if !r.emits() || r.length < r.total {
			kept = append(kept, s)
			continue
		}
		c.p.out.Signals = append(c.p.out.Signals, engine.Signal{Req: r.id, End: engine.Completed})
		c.finish(s)
	}
	c.running = kept
}

// price adds an emitting request to the decode part and to the acceptance count,
// before its tokens. An aggregated rank gives the first token with the prompt,
// unless a draft model speculates from it (spec engine-timing 2).
func (c *Core) price(r *request, accepted int32) {
	advanced := r.advanced(c.passes)
	if !advanced {
		c.p.out.Accepted += int64(accepted)
		c.p.out.Forwards++
	}
	if advanced && r.length == r.prompt && c.cfg.Role == engine.Aggregated && c.sampler == nil {
		return
	}
	c.p.decodes++
	c.p.context += int64(r.length)
}

// advanced reports that the prompt of r moved in this pass.
func (r *request) advanced(pass int64) bool { return r.pass == pass && r.promptTokens > 0 }

// prefillMs is the clock time of the prefill part.
func (c *Core) prefillMs() float64 {
	n := c.p.prefills
	if n == 0 {
		return 0
	}
	isl, prefix := c.p.sumISL/n, c.p.sumPrefix/n
	if isl <= prefix {
		return 0
	}
	raw := c.cfg.Timing.PrefillMs(n, isl, prefix)
	c.p.prefillPriced = raw > 0
	return c.clock("prefill", max(0, raw), c.cfg.SpeedupRatio)
}

// decodeMs is the clock time of the decode part.
func (c *Core) decodeMs() float64 {
	if c.p.decodes == 0 || c.cfg.Role == engine.Prefill {
		return 0
	}
	total := int64(c.cfg.Blocks) * int64(c.cfg.BlockSize)
	var raw float64
	if c.mixed != nil && c.p.prefillPriced {
		raw = c.mixed.MixedDecodeMs(c.p.decodes, c.p.context, total)
	} else {
		raw = c.cfg.Timing.DecodeMs(c.p.decodes, c.p.context, total)
	}
	return c.clock("decode", raw, c.cfg.SpeedupRatio*c.cfg.DecodeSpeedupRatio)
}

// clock rounds a model's answer; a bad one ends the run through Pass.Err.
func (c *Core) clock(part string, raw, ratio float64) float64 {
	var err error
	switch {
	case math.IsNaN(raw) || math.IsInf(raw, 0):
		err = fmt.Errorf("%s timing provider returned non-finite duration %v", part, raw)
	case raw < 0:
		err = fmt.Errorf("%s timing provider returned negative duration %v", part, raw)
	default:
		var ms float64
		if ms, err = timing.Duration(raw, ratio); err == nil {
			return ms
		}
	}
	if c.p.out.Err == nil {
		c.p.out.Err = err
	}
	return 0
}

// append gives every ready request one token.
func (c *Core) append() {
	kept := c.running[:0]
	out := c.p.out
	for _, s := range c.running {
		r := c.reqs.At(s)
		if !r.emits() {
			kept = append(kept, s)
			continue
		}
		c.price(r, 1)
		r.length++
		if r.length < r.total {
			out.Signals = append(out.Signals, engine.Signal{Req: r.id, Tokens: 1})
			kept = append(kept, s)
			continue
		}
		out.Signals = append(out.Signals, engine.Signal{Req: r.id, Tokens: 1, End: engine.Completed})
		c.finish(s)
	}
	c.running = kept
}

// finish ends a running request that the caller takes out of c.running. A source
// keeps its blocks until they are released.
func (c *Core) finish(s int32) {
	r := c.reqs.At(s)
	c.blocksOwed -= c.blocksToComplete(r)
	c.handoff.generation++
	if r.source {
		r.status = held
		c.handoff.held.insert(&c.reqs, s, 0)
		c.p.out.Held = append(c.p.out.Held, r.id)
		return
	}
	c.release(r)
	c.free(s)
}
