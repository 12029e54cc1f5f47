package vllm

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// pass is what one pass gathers on its way.
type pass struct {
	out       *engine.Pass
	ev        *kv.Events // nil if nobody listens
	budget    int        // tokens left
	deferred  bool       // prefills wait for a later step (spec engine-vllm 9, rule 4)
	preempted bool       // admissions are over
	scheduled int        // requests

	// The prefill part: requests whose prompt advances, their prompt tokens after
	// this pass and before it (spec engine-timing 2).
	prefills, sumISL, sumPrefix int64
	prefillPriced               bool  // the prefill part takes time
	decodes, context            int64 // requests that pay for the decode part, their lengths

	hits     []int32 // latest lookup: cached blocks of the prefix
	rejected []engine.Signal
}

// blockedHead remembers the lookup of a head that did not fit. As long as the
// pool made no gain its held hits can only have become fewer.
type blockedHead struct {
	order int64
	gains uint64
	held  int
}

// verdict is how scheduling one request ended.
type verdict uint8

const (
	scheduled verdict = iota
	blocked
	selfPreempted
)

// Pass does one pass (spec engine-vllm 6). All state moves now; step is the
// worker's group-pass counter.
func (c *Core) Pass(nowMs float64, step int64, out *engine.Pass) {
	out.Reset()
	c.passes++
	c.step = step
	c.p = pass{out: out, ev: c.events(&out.Events), budget: c.maxTokens,
		deferred: c.defers(step), hits: c.p.hits[:0], rejected: c.p.rejected[:0]}
	if c.offload != nil {
		c.offload.beginPass(nowMs)
	}
	c.scheduleRunning()
	c.admit()
	if c.offload != nil {
		c.prepareStores()
	}
	if !c.p.deferred && !c.p.preempted {
		c.admissionBlocked = c.wait.n > 0
	}
	if c.cfg.WantMetrics {
		c.batchMetrics(&out.Metrics)
	}
	out.Blocks = int64(c.pool.Active())
	c.emit(nowMs)
	out.Signals = append(out.Signals, c.p.rejected...)
	c.checkProgress()
	if c.cfg.WantMetrics {
		c.queueMetrics(&out.Metrics)
	}
	// The end of a pass is also when a pending destination is tried.
	if c.p.scheduled == 0 && len(out.Admissions)+len(out.Signals)+len(out.Preempted) == 0 && !c.mayReserve() {
		out.Stall = engine.Nothing
	}
}

// maxPreemptionsInVain is the number of preemptions without a single output in between
// after which a pass gives up. A batch that only just fits without its speculative
// bursts otherwise recomputes and preempts itself for ever, in no time at all on a
// decode rank.
const maxPreemptionsInVain = 10000

func (c *Core) checkProgress() {
	if len(c.p.out.Signals) > 0 {
		c.lastProgress = c.preemptions
		return
	}
	if c.preemptions-c.lastProgress > maxPreemptionsInVain && c.p.out.Err == nil {
		r := c.reqs.At(c.wait.head)
		c.p.out.Err = fmt.Errorf("a request of %d tokens is preempted for ever: the KV pool of %d blocks of %d tokens cannot hold "+
			"what it needs beside the blocks of others; raise num_gpu_blocks or lower max_num_seqs",
			r.length, c.cfg.Blocks, c.cfg.BlockSize)
	}
}

// defers reports whether prefills wait at this step: not every interval-th, some
// prompt is done, and the latest admission was not cut short by capacity.
func (c *Core) defers(step int64) bool {
	if c.interval == 1 || step%c.interval == 0 || c.admissionBlocked {
		return false
	}
	for _, s := range c.running {
		if r := c.reqs.At(s); r.computed >= r.prompt {
			return true
		}
	}
	return false
}

// scheduleRunning gives the running requests their tokens, oldest first. The
// index does not follow a victim that disappears before it: under fifo preemption
// the request after the current one then loses its turn, as in the reference.
func (c *Core) scheduleRunning() {
	for i := 0; i < len(c.running) && c.p.budget > 0; {
		s := c.running[i]
		r := c.reqs.At(s)
		if c.p.deferred && r.computed < r.prompt || c.scheduleDecode(r) {
			i++
			continue
		}
		switch c.schedule(s, 0) {
		case scheduled:
			i++
		case blocked:
			return
		}
	}
}

// scheduleDecode is schedule for the usual case, decided without a division: the newest
// token of a request past its prompt, in a block that it has. False, with nothing
// done, in any other case. The budget is not 0.
func (c *Core) scheduleDecode(r *request) bool {
	if r.computed != r.length-1 || r.computed < r.prompt || r.length > r.blocks*c.blockSize {
		return false
	}
	r.computed = r.length
	if r.computed >= int32(len(r.cached)+1)*c.blockSize {
		c.finalize(r, r.computed, c.p.ev)
	}
	r.pass, r.tokens, r.promptTokens = c.passes, 1, 0
	c.p.scheduled++
	c.p.budget--
	return true
}

// admit takes requests from the head of the queue while they fit.
func (c *Core) admit() {
	for !c.p.preempted && len(c.running) < c.maxSeqs {
		s := c.head()
		if c.offload != nil {
			s = c.nextCandidate()
		}
		if s == 0 {
			return
		}
		r := c.reqs.At(s)
		if r.status == waiting && r.computed == 0 {
			if reason := c.refuse(r); reason != engine.NoReason {
				c.reject(s, reason)
				continue
			}
		}
		cached := 0
		if r.computed == 0 { // else a destination: its prompt is here
			var fits bool
			if c.offload != nil {
				var l look
				if cached, l = c.lookBehind(s); l == wait {
					c.offload.defers(s)
					continue
				}
				fits = l == admissible
			} else {
				cached, fits = c.fits(s)
			}
			if !fits {
				return
			}
			if c.p.deferred && int(r.length)-cached > 1 {
				return
			}
		}
		if c.schedule(s, cached) != scheduled {
			return
		}
		c.enterRunning(s, cached)
		if r.tokens == 0 && c.p.budget == 0 {
			return
		}
	}
}

// head is the next request to admit, 0 if there is none: while a destination waits
// for blocks only those that have theirs may enter.
func (c *Core) head() int32 {
	s := c.wait.head
	if c.handoff.pending.n > 0 {
		for s != 0 && !c.reqs.At(s).ready() {
			s = c.reqs.At(s).next
		}
	}
	return s
}

// ready reports a queued destination whose prompt is computed.
func (r *request) ready() bool { return r.status == waiting && r.computed > 0 }

// refuse says why a new request can never run.
func (c *Core) refuse(r *request) engine.Reason {
	if c.cfg.MaxModelLen > 0 && int(r.prompt) >= c.cfg.MaxModelLen {
		return engine.OverModelLen
	}
	return c.variant.Refuse(int64(r.prompt), int64(r.total))
}

func (c *Core) reject(s int32, reason engine.Reason) {
	c.p.rejected = append(c.p.rejected, engine.Signal{Req: c.reqs.At(s).id, End: engine.Rejected, Reason: reason})
	c.dequeue(s)
	c.handoff.generation++
	c.free(s)
}

// fits looks r up in the cache and reports its cached tokens and whether there is
// room for it. A head known to be blocked is not looked up again.
func (c *Core) fits(s int32) (cached int, ok bool) {
	r := c.reqs.At(s)
	if c.p.budget == 0 && c.needsTokens(r) {
		return 0, false
	}
	d := Demand{Known: int(ceil(r.length, c.blockSize)), Total: int(ceil(r.total, c.blockSize)),
		Room: c.pool.Capacity() - c.pool.Active(), Promised: c.blocksOwed}
	b := &c.blocked
	if b.order == r.order && b.gains == c.pool.Gains() {
		d.HeldHits = b.held
		if !c.variant.Fits(d) {
			return 0, false
		}
	}
	cached, d.HeldHits = c.lookup(r)
	if !c.variant.Fits(d) {
		*b = blockedHead{r.order, c.pool.Gains(), d.HeldHits}
		return 0, false
	}
	return cached, true
}

// needsTokens reports that r computes something even if all of it is cached.
func (c *Core) needsTokens(r *request) bool {
	return !c.variant.FullHits && r.length < r.total
}

// lookup walks the full blocks of r as far as they are cached. It leaves the
// blocks to reuse in c.p.hits and returns their tokens, and how many hits others
// hold, wherever they stand in the walk.
func (c *Core) lookup(r *request) (cached, held int) {
	hits := c.find(r, int(r.length/c.blockSize))
	for _, slot := range hits {
		if c.pool.Held(slot) {
			held++
		}
	}
	if c.needsTokens(r) {
		// The last token is computed again, with its block; a draft model that
		// reads the block before drops one more.
		limit := min(len(hits), int(r.length-1)/int(c.blockSize))
		if c.cfg.NextN > 0 && limit > 0 {
			limit--
		}
		hits, held = hits[:limit], min(held, limit)
	}
	c.p.hits = hits
	return len(hits) * int(c.blockSize), held
}

// schedule gives request s as many tokens as it needs and the budget allows, and
// the blocks for them, preempting others if it must. cached tokens at c.p.hits
// are reused; they are 0 unless s is being admitted.
func (c *Core) schedule(s int32, cached int) verdict {
	r := c.reqs.At(s)
	before := int(r.computed) + cached
	have := min(before, int(r.prompt))
	left := int(r.length) - before
	if ahead := int(r.prompt) - have; ahead > 0 && !c.cfg.ChunkedPrefill && ahead > c.p.budget {
		return blocked
	}
	want := min(left, c.p.budget)
	if want == 0 && left > 0 {
		return blocked
	}
	target := int32(before + want)
	var reuse []int32
	if cached > 0 {
		reuse = c.p.hits
	}
	for !c.grow(s, target, reuse) {
		victim := c.victim()
		if victim == 0 {
			return blocked
		}
		c.p.preempted = true
		c.unschedule(victim)
		c.preempt(victim)
		if victim == s {
			return selfPreempted
		}
	}
	r.computed = target
	c.finalize(r, target, c.p.ev)
	r.pass, r.tokens, r.promptBefore = c.passes, int32(want), int32(have)
	r.promptTokens = min(target, r.prompt) - int32(have)
	c.p.scheduled++
	c.countPrefill(r, 1)
	c.p.budget -= want
	return scheduled
}

// countPrefill adds r to the prefill part of the pass (sign 1) or takes it back.
func (c *Core) countPrefill(r *request, sign int64) {
	if r.promptTokens <= 0 {
		return
	}
	c.p.out.Metrics.PrefillTokens += sign * int64(r.tokens)
	if c.cfg.Role == engine.Decode {
		return
	}
	c.p.prefills += sign
	c.p.sumISL += sign * int64(r.promptBefore+r.promptTokens)
	c.p.sumPrefix += sign * int64(r.promptBefore)
}

// enterRunning moves an admitted request from the queue to the running ones.
func (c *Core) enterRunning(s int32, cached int) {
	c.dequeue(s)
	r := c.reqs.At(s)
	r.status = running
	c.running = append(c.running, s)
	c.blocksOwed += c.blocksToComplete(r)
	device := int32(cached)
	if c.offload != nil {
		device = c.offload.admitted(s)
	}
	c.p.out.Admissions = append(c.p.out.Admissions, engine.Admission{Req: r.id, Reused: int32(cached), Device: device})
}
