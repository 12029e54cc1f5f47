package sglang

import "github.com/dynosweep/dynosweep/sim/engine"

// decodePass decodes every running request once, after retracting what the pages
// of their next tokens do not leave room for (spec engine-sglang 9, step 8). It
// returns the new-token ratio that a retraction estimates, -1 without one.
func (c *Core) decodePass(nowMs float64, p *engine.Pass) (estimate float64) {
	need := c.gather(p)
	if len(c.running) == 0 {
		return -1
	}
	need = c.retract(need, p)
	c.evict(need - c.free)
	estimate = -1
	if len(c.retracted) > 0 {
		estimate = c.estimate()
	}
	var context int64
	for _, i := range c.running {
		context += int64(c.reqs.At(i).len())
	}
	raw := c.cfg.Timing.DecodeMs(int64(len(c.running)), context, int64(c.total)*int64(c.page))
	ms := c.duration(raw, c.cfg.SpeedupRatio*c.cfg.DecodeSpeedupRatio, p)
	if need > c.free {
		c.refuseStuck(p)
		return estimate
	}
	c.decode(p)
	p.EndMs = nowMs + ms
	return estimate
}

// gather ends running requests that want no token, fills the decode metrics and
// returns the pages that one step of all needs.
func (c *Core) gather(p *engine.Pass) (need int32) {
	var lens lengths
	kept := c.running[:0]
	for _, i := range c.running {
		r := c.reqs.At(i)
		if r.remaining() == 0 {
			c.end(i, 0, p)
			continue
		}
		kept = append(kept, i)
		need += c.stepPages(r)
		lens.add(r.len())
	}
	c.running = kept
	if c.cfg.WantMetrics {
		m := &p.Metrics
		m.DecodeRequests, m.DecodeKVTokens, m.DecodeVar = lens.n, lens.sum, lens.variance()
	}
	return need
}

// stepPages is the number of pages that one decode step of r may take.
func (c *Core) stepPages(r *request) int32 {
	return max(0, c.pagesFor(r.len()+min(c.burst, r.remaining()))-r.pages)
}

// retract takes requests out of the running list until one step of the others
// fits or one is left: fewest outputs first, then first in order. It returns the
// pages that step needs.
func (c *Core) retract(need int32, p *engine.Pass) int32 {
	for need > c.room() && len(c.running) > 1 {
		v := 0
		for k, i := range c.running {
			if c.reqs.At(i).out < c.reqs.At(c.running[v]).out {
				v = k
			}
		}
		i := c.running[v]
		c.running = append(c.running[:v], c.running[v+1:]...)
		need -= c.stepPages(c.reqs.At(i))
		c.dropLease(i)
		c.retracts++
		c.retracted = append(c.retracted, i)
		p.Preempted = append(p.Preempted, c.reqs.At(i).id)
	}
	return need
}

// estimate is the new-token ratio after a retraction: the outputs that the
// survivors made plus a reserve, over the outputs they were asked for.
func (c *Core) estimate() float64 {
	var made, asked int64
	for _, i := range c.running {
		made += int64(c.reqs.At(i).out)
		asked += int64(c.reqs.At(i).maxOut)
	}
	made += retractReserve * int64(len(c.running))
	return min(1, float64(made)/float64(asked+1))
}

// decode appends the tokens of one step to every running request, in order. What
// a speculative step reserved and did not use is never taken.
func (c *Core) decode(p *engine.Pass) {
	kept := c.running[:0]
	for _, i := range c.running {
		n := int32(1)
		if c.sampler != nil {
			n = c.sampler.Accepted()
		}
		p.Accepted += int64(n)
		p.Forwards++
		if !c.emit(i, min(n, c.reqs.At(i).remaining()), p) {
			kept = append(kept, i)
		}
	}
	c.running = kept
	p.ModelWork = true
}

// refuseStuck looks for a request to reject when the pages of the only running
// one's next step do not fit: that request itself if they never will, because it
// exceeds the pool, or nobody else owns a page and the ratio, at its minimum, will
// not let anybody in; else a prompt in chunks that holds pages and exceeds the
// pool. If what holds them can end (a prompt in chunks, a handoff) nobody is
// rejected; the stall tells. The reference ends or hangs here (spec engine-sglang 10).
func (c *Core) refuseStuck(p *engine.Pass) {
	if len(c.retracted) > 0 {
		return
	}
	i := c.running[0]
	r := c.reqs.At(i)
	dead := c.cfg.Role == engine.Aggregated && c.alone(r) && c.ratio <= c.ratioMin
	if dead || c.overPool(r) {
		c.running = c.running[:0]
		c.reject(i, engine.OutputOverPool, p)
		return
	}
	for k := 0; k < c.waiting.n; k++ {
		i := c.waiting.at(k)
		if r := c.reqs.At(i); r.pages > 0 && c.overPool(r) {
			c.removeWaiting(k)
			c.reject(i, c.poolReason(r), p)
			return
		}
	}
}

// overPool reports that r can never end: before its last token is emitted, all
// tokens before it own KV.
func (c *Core) overPool(r *request) bool {
	return c.pagesFor(r.promptLen+max(0, r.maxOut-1)) > c.total
}

// poolReason says whether the prompt alone exceeds the pool.
func (c *Core) poolReason(r *request) engine.Reason {
	if c.pagesFor(r.promptLen) > c.total {
		return engine.PromptOverPool
	}
	return engine.OutputOverPool
}

// alone reports that every page in use is r's or can be evicted.
func (c *Core) alone(r *request) bool { return c.room()+r.pages == c.total }
