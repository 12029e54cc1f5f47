package sglang

import (
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// Pass does one pass that starts at nowMs (spec engine-sglang 9). The group's
// step counter is not used by this backend.
func (c *Core) Pass(nowMs float64, _ int64, p *engine.Pass) {
	p.Reset()
	p.EndMs = nowMs
	c.batch, c.retracted, c.done, c.refused = c.batch[:0], c.retracted[:0], c.done[:0], c.refused[:0]
	if c.cfg.WantEvents && c.cfg.PrefixCaching {
		c.ev = &p.Events
	}
	before := c.ratio
	deferred := c.deferredPasses > 0
	c.dropOverlong()
	admits := c.promote(p)
	if c.sorts() {
		c.orderQueue()
	}
	no := fits
	if admits && !deferred {
		no = c.admit(p)
	}
	estimate := -1.0
	if len(c.batch) > 0 {
		c.prefillPass(nowMs, p)
	} else {
		if no != fits && len(c.running) == 0 {
			c.refuseHead(no, p)
		}
		c.idle = deferred && len(c.running) == 0
		estimate = c.decodePass(nowMs, p)
	}
	p.Blocks = int64(c.total - c.free)
	c.settle(p)
	c.nextRatio(estimate)
	c.queueMetrics(p)
	c.ev = nil
	p.Stall = stall(p, nowMs, deferred, c.ratio != before)
}

// nextRatio moves the new-token ratio at the end of a pass: to the estimate of a
// retraction (negative: none), else one step down, but not after a prefill batch
// or an idle round.
func (c *Core) nextRatio(estimate float64) {
	switch {
	case estimate >= 0:
		c.ratio = estimate
	case len(c.batch) == 0 && !c.idle:
		c.ratio = max(c.ratio-c.ratioStep, c.ratioMin)
	}
}

// stall classifies a pass that took no time and did nothing visible (spec engine-sglang 10).
// Computed prompt tokens are progress: the next chunk is another one.
func stall(p *engine.Pass, nowMs float64, deferred, ratioMoved bool) engine.Stall {
	switch {
	case p.EndMs > nowMs || p.ModelWork, p.Err != nil,
		len(p.Admissions)+len(p.Signals)+len(p.Preempted) > 0:
		return engine.Progress
	case deferred:
		return engine.Countdown
	case ratioMoved:
		return engine.Retry
	}
	return engine.Nothing
}

// prefillPass times the batch and gives finished prompts their first token; the
// requests that were running wait (spec engine-sglang 9, steps 5 to 7).
func (c *Core) prefillPass(nowMs float64, p *engine.Pass) {
	ms := c.prefillMs(p)
	p.EndMs = nowMs + ms
	decoding := len(c.running)
	for _, a := range c.batch {
		if r := c.reqs.At(a.place); r.computed < r.len() {
			c.cache(a.place, r.computed)
			c.queueFront(a.place)
		} else if r.remaining() == 0 {
			c.end(a.place, 0, p)
		}
	}
	for _, a := range c.batch {
		if r := c.reqs.At(a.place); r.computed == r.len() && r.remaining() == 1 {
			r.out++
			c.end(a.place, 1, p)
		} else if r.computed == r.len() && r.remaining() > 1 {
			c.running = append(c.running, a.place)
		}
	}
	c.firstTokens(c.running[decoding:], p)
}

// firstTokens emits one token for each finished prompt that has more to come. If
// their pages do not fit even after eviction none gets it now: they decode it.
func (c *Core) firstTokens(list []int32, p *engine.Pass) {
	var need int32
	for _, i := range list {
		r := c.reqs.At(i)
		need += c.pagesFor(r.len()+1) - r.pages
	}
	c.evict(need - c.free)
	if need > c.free {
		return
	}
	for _, i := range list {
		c.emit(i, 1, p)
	}
}

// emit appends n tokens to a live request, whose pages fit, and caches what they
// complete. The last token of a request is left to settle, which caches it after
// the tokens of the requests behind; the others of its burst are not (spec
// engine-sglang 9, step 8g token by token). It reports whether the request ends.
func (c *Core) emit(i, n int32, p *engine.Pass) (ends bool) {
	r := c.reqs.At(i)
	r.out += n
	r.computed += n
	pages := c.pagesFor(r.computed)
	c.free -= pages - r.pages
	r.pages = pages
	if r.out >= r.maxOut {
		c.cache(i, r.computed-1)
		c.end(i, n, p)
		return true
	}
	c.cache(i, r.computed)
	p.Signals = append(p.Signals, engine.Signal{Req: r.id, Tokens: n})
	return false
}

// end reports a completed request; settle ends its lease.
func (c *Core) end(i, tokens int32, p *engine.Pass) {
	c.done = append(c.done, i)
	p.Signals = append(p.Signals, engine.Signal{Req: c.reqs.At(i).id, Tokens: tokens, End: engine.Completed})
}

// prefillMs prices the batch by its integer means and fills the prefill metrics.
// A decode worker's prompts cost nothing (spec engine-sglang 9, step 5).
func (c *Core) prefillMs(p *engine.Pass) float64 {
	var isl, prefix int64
	var prompts lengths
	m := &p.Metrics
	for _, a := range c.batch {
		isl += int64(a.prefix + a.computed)
		prefix += int64(a.prefix)
		if a.computed > 0 {
			prompts.add(c.reqs.At(a.place).promptLen)
			m.PrefillTokens += int64(a.computed)
			m.PrefillKVTokens += int64(a.prefix)
		}
	}
	m.PrefillRequests = prompts.n
	if c.cfg.WantMetrics {
		m.PrefillVar = prompts.variance()
	}
	p.CacheTotal = p.CacheHit + m.PrefillTokens
	p.ModelWork = m.PrefillTokens > 0
	b := int64(len(c.batch))
	if isl /= b; isl <= prefix/b || c.cfg.Role == engine.Decode {
		return 0
	}
	return c.duration(c.cfg.Timing.PrefillMs(b, isl, prefix/b), c.cfg.SpeedupRatio, p)
}

// duration is timing.Duration; its error goes into the pass.
func (c *Core) duration(rawMs, ratio float64, p *engine.Pass) float64 {
	ms, err := timing.Duration(rawMs, ratio)
	if err != nil {
		p.Err = err
	}
	return ms
}

// settle ends the leases of completed requests, or holds them as handoff sources,
// then reports prompts over max_model_len and requeues what was retracted (spec
// engine-sglang 9, steps 9 to 11).
func (c *Core) settle(p *engine.Pass) {
	for _, i := range c.done {
		r := c.reqs.At(i)
		if r.source {
			c.handoff.held = append(c.handoff.held, i)
			p.Held = append(p.Held, r.id)
			continue
		}
		c.endLease(i)
		c.reqs.release(i)
		c.handoff.generation++
	}
	for _, i := range c.refused {
		c.reject(i, engine.OverModelLen, p)
	}
	for _, i := range c.retracted {
		c.queueBack(i)
	}
	if len(c.retracted) > 0 {
		c.handoff.generation++
	}
}

// reject reports a request that ends without completing and drops its lease.
func (c *Core) reject(i int32, why engine.Reason, p *engine.Pass) {
	p.Signals = append(p.Signals, engine.Signal{Req: c.reqs.At(i).id, End: engine.Rejected, Reason: why})
	c.dropLease(i)
	c.reqs.release(i)
	c.handoff.generation++
}

// refuseHead rejects the head of the queue, refused while nobody runs, if it can
// never be admitted: it does not fit the pool, or nobody else owns a page, so its
// budget will never be larger. Matches that other prompts could still bring cannot
// come then, since none overtakes it: the queue is blocked, and under lpm only a
// prompt with a longer match goes ahead, which can share no page with the head
// that the head does not find itself. On a decode worker an activation may bring
// them; there only the pool counts. The reference ends the run at this point (spec
// engine-sglang 10).
func (c *Core) refuseHead(no refusal, p *engine.Pass) {
	if !c.handoff.empty() {
		return
	}
	i := c.waiting.at(0)
	r := c.reqs.At(i)
	why := c.poolReason(r)
	if !c.overPool(r) {
		if c.cfg.Role == engine.Decode || !c.alone(r) {
			return
		}
		if no == noChunk {
			why = engine.OverPrefillBudget
		}
	}
	c.removeWaiting(0)
	c.reject(i, why, p)
}
