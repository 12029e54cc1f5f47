// Package sglang is the SGLang scheduler (spec engine-sglang). A batch is either
// prefill or decode. A token pool has a radix cache over pages, admission reserves
// room for new tokens by a ratio that decays, and decoding requests are retracted
// when the pool is full. In a disaggregated handoff the destination comes first.
//
// A Core is one rank. Its order of use is that of engine.Core; a pass is
//
//  1. drop prompts over max_model_len, promote activated handoffs, order the queue
//  2. admit a prefill batch from the head of the queue
//  3. if the batch is not empty, give finished prompts their first token; else decode,
//     retracting requests while the pages of one more token each do not fit
//  4. finish, requeue what was retracted, decay the ratio
//
// Lengths are tokens, leases and the tree count pages of Config.BlockSize tokens.
// At all times free + tree + private pages = pool. Pages are counted, not numbered;
// the type tree says why that is enough.
//
// Where the reference can go no further and ends its run, this core refuses a request
// that is alone on its rank and still cannot proceed, and gives a reason; any other
// standstill is reported as a stall (spec engine-sglang 10).
package sglang

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/rng"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// Core is one SGLang rank.
type Core struct {
	cfg     engine.Config
	page    int32 // tokens
	total   int32 // pages
	maxRun  int   // max_num_seqs
	chunk   int64 // chunked_prefill_size of this rank
	prefill int64 // max_prefill_tokens
	clip    int32
	burst   int32 // tokens a decode step may yield
	sampler *timing.Sampler

	ratio, ratioInit, ratioMin, ratioStep float64

	reqs    requests
	waiting deque
	running []int32
	free    int32 // pages
	tree    tree
	handoff handoff

	deferredPasses int  // passes that still admit nobody
	idle           bool // the pass of this group was an idle round
	overlong       int  // waiting requests that max_model_len refuses
	retracts       int64
	queuedPrefill  lengths // of waiting requests without output
	queuedDecode   lengths // of waiting requests with output

	batch     []admitted // of the pass
	retracted []int32    // of the pass
	done      []int32    // of the pass: requests that completed
	refused   []int32    // of the pass: over max_model_len
	order     []ranked   // scratch of the queue policy
	keys      []kv.BlockID
	plan      decodeRun
	ev        *kv.Events // where events go now; nil: nobody listens
	private   []int32    // requests with offered pages outside the tree; kept for events only
}

var (
	_ engine.Core    = (*Core)(nil)
	_ engine.Handoff = (*Core)(nil)
)

// Constants of the reference (spec engine-sglang 3).
const (
	initialRatio   = 0.7
	minRatioFactor = 0.14
	ratioSteps     = 600.0
	retractReserve = 20  // tokens per survivor of a retraction
	lpmMaxQueue    = 128 // a longer queue stays as it is
	lpmDupTokens   = 32  // prefix that makes two cold requests duplicates
)

// unlimited stands for max_num_seqs null, and bounds what is counted in int32.
const unlimited = 1 << 30

// New returns an empty rank. cfg is complete and valid but for the share of
// chunked_prefill_size that attention data parallelism leaves, which is checked
// here.
func New(cfg engine.Config) (*Core, error) {
	s := cfg.SGLang
	chunk, conservativeness := s.ChunkedPrefillSize, s.Conservativeness
	if cfg.DPSize > 1 {
		chunk /= cfg.DPSize
		conservativeness *= 0.3
		if chunk == 0 {
			return nil, fmt.Errorf("SGLang attention DP size %d reduces chunked_prefill_size=%d to zero",
				cfg.DPSize, s.ChunkedPrefillSize)
		}
	}
	if cfg.Blocks > unlimited {
		return nil, fmt.Errorf("num_gpu_blocks must be at most %d, got %d", unlimited, cfg.Blocks)
	}
	c := &Core{cfg: cfg, page: int32(cfg.BlockSize), total: int32(cfg.Blocks), free: int32(cfg.Blocks),
		maxRun: cfg.MaxNumSeqs, chunk: int64(chunk), prefill: int64(s.MaxPrefillTokens),
		clip: int32(min(s.ClipMaxNewTokens, unlimited)), burst: 1, tree: newTree()}
	if c.maxRun == 0 {
		c.maxRun = unlimited
	}
	if cfg.NextN > 0 && cfg.Role != engine.Prefill {
		c.burst = int32(cfg.NextN) + 1
		bits := rng.NewChaCha(cfg.MTPSeed)
		c.sampler = timing.NewSampler(cfg.AcceptRates, &bits)
	}
	c.ratioInit = initialRatio * conservativeness
	c.ratioMin = c.ratioInit * minRatioFactor
	c.ratioStep = (c.ratioInit - c.ratioMin) / ratioSteps
	c.ratio = c.ratioInit
	return c, nil
}

// Submit puts r at the back of the waiting queue.
func (c *Core) Submit(r engine.Request) { c.queueBack(c.reqs.add(c.newRequest(r))) }

// newRequest is a request that owns nothing yet.
func (c *Core) newRequest(r engine.Request) request {
	maxOut := r.OutputTokens
	if limit := c.cfg.MaxModelLen; limit > 0 {
		maxOut = int32(min(int(maxOut), max(0, limit-int(r.PromptTokens))))
	}
	return request{id: r.ID, prompt: r.Prompt, promptLen: r.PromptTokens, maxOut: maxOut}
}

// Runnable reports whether a pass has anything to look at.
func (c *Core) Runnable() bool {
	return c.waiting.n > 0 || len(c.running) > 0 || len(c.handoff.ready) > 0 || c.deferredPasses > 0
}

// Offload returns nil: this core has no memory behind its pool.
func (c *Core) Offload() engine.Offload { return nil }

// Drained reports whether the rank holds nothing at all.
func (c *Core) Drained() bool { return !c.Runnable() && c.handoff.empty() }

// EndGroup counts the prefill/decode interval (spec engine-sglang 8).
func (c *Core) EndGroup(g engine.GroupPass) {
	if g.Prefilled {
		c.deferredPasses = c.cfg.PrefillDecodeInterval
	} else if c.deferredPasses > 0 {
		c.deferredPasses--
	}
	if c.idle && !g.ModelWork {
		c.ratio = c.ratioInit
	}
	c.idle = false
}

// Gauges returns the present occupancy: cached pages count as active.
func (c *Core) Gauges() engine.Gauges {
	h := &c.handoff
	return engine.Gauges{
		ActiveBlocks: int64(c.total - c.free), TotalBlocks: int64(c.total),
		Running:     int64(len(c.running)),
		Waiting:     int64(c.waiting.n + len(h.ready) + len(h.pending) + len(h.reserved)),
		Preemptions: c.retracts,
	}
}

// Handoff returns the core itself on a disaggregated worker, else nil.
func (c *Core) Handoff() engine.Handoff {
	if c.cfg.Role == engine.Aggregated {
		return nil
	}
	return c
}

// pagesFor is the number of pages that n tokens start.
func (c *Core) pagesFor(n int32) int32 {
	if c.page == 1 {
		return n
	}
	return (n + c.page - 1) / c.page
}

// full is the number of pages that n tokens complete.
func (c *Core) full(n int32) int32 {
	if c.page == 1 {
		return n
	}
	return n / c.page
}

// available and evictable room together, in pages.
func (c *Core) room() int32 { return c.free + c.tree.evictable() }

// overLimit reports a prompt that max_model_len refuses.
func (c *Core) overLimit(r *request) bool {
	return c.cfg.MaxModelLen > 0 && int(r.promptLen) >= c.cfg.MaxModelLen
}

// queueBack, queueFront and dequeue keep the sums of the waiting queue.

func (c *Core) queueBack(i int32) {
	c.waiting.pushBack(i)
	c.countQueued(i)
}

func (c *Core) queueFront(i int32) {
	c.waiting.pushFront(i)
	c.countQueued(i)
}

func (c *Core) countQueued(i int32) {
	r := c.reqs.At(i)
	if r.out == 0 && !r.handoff {
		c.queuedPrefill.add(r.len())
	} else {
		c.queuedDecode.add(r.len())
	}
	if c.overLimit(r) {
		c.overlong++
	}
}

func (c *Core) countDequeued(i int32) {
	r := c.reqs.At(i)
	if r.out == 0 && !r.handoff {
		c.queuedPrefill.remove(r.len())
	} else {
		c.queuedDecode.remove(r.len())
	}
	if c.overLimit(r) {
		c.overlong--
	}
}

// removeWaiting takes entry k out of the queue; the others keep their order.
func (c *Core) removeWaiting(k int) {
	i := c.waiting.at(k)
	for ; k > 0; k-- {
		c.waiting.set(k, c.waiting.at(k-1))
	}
	c.waiting.popFront()
	c.countDequeued(i)
}

// Check returns the first broken law of the rank's structures.
func (c *Core) Check() error {
	if err := c.tree.check(); err != nil {
		return err
	}
	var private, holders int32
	count := func(list []int32) {
		for _, i := range list {
			r := c.reqs.At(i)
			private += r.pages - r.cached
			if r.node != root {
				holders++
			}
		}
	}
	count(c.running)
	count(c.handoff.ready)
	count(c.handoff.held)
	count(c.handoff.reserved)
	for k := 0; k < c.waiting.n; k++ {
		count([]int32{c.waiting.at(k)})
	}
	if got := c.free + c.tree.pages + private; got != c.total || c.free < 0 || private < 0 {
		return fmt.Errorf("pages: free %d + tree %d + private %d = %d, pool %d", c.free, c.tree.pages, private, got, c.total)
	}
	var locks int32 // leases that pass through the top of the tree
	for i := range c.tree.nodes {
		if n := &c.tree.nodes[i]; n.parent == root && n.end > n.start && n.leaf < 0 {
			locks += n.lock
		}
	}
	if locks != holders {
		return fmt.Errorf("radix tree: %d leases locked, %d requests hold one", locks, holders)
	}
	return nil
}
