// Package vllm is the paged scheduler of vLLM: one rank with a token budget,
// strict first-come admission, chunked prefill, a prefix-cached block pool and
// preemption (spec engine-vllm). TensorRT-LLM is the same core with another
// admission (package trtllm).
//
//	core, err := vllm.New(config)
//	core.Submit(request)
//	core.Pass(nowMs, step, &pass)
//
// A pass first gives every running request its tokens, then admits from the
// waiting queue, prices the batch, and emits. In a run of plain decode passes
// Run and Advance do the same in closed form, bit for bit.
//
// Requests live in slots that are reused, and queues are lists through the slots, so
// a backlog takes memory but no time per pass. A request's tokens are only counted:
// computed <= length <= total. The first of them are the prompt.
package vllm

import (
	"errors"
	"fmt"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/rng"
	"github.com/dynosweep/dynosweep/sim/slab"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// status is where a request is.
type status uint8

const (
	unused    status = iota
	waiting          // in the queue, never run
	preempted        // in the queue, lost its blocks
	running
	pending  // destination without blocks
	reserved // destination whose blocks wait for the transfer
	held     // finished source whose blocks wait for release
)

// request is one slot. Lengths are tokens. What a decode pass touches comes first.
type request struct {
	id       int32
	prompt   int32
	length   int32 // prompt and generated
	total    int32 // length at which it is complete
	computed int32 // leading tokens whose KV exists
	blocks   int32 // held, private ones included
	cached   []int32

	pass         int64 // number of the latest pass that scheduled it, which gave it
	tokens       int32 // so many tokens,
	promptTokens int32 // so many of its prompt,
	promptBefore int32 // after so many of its prompt (if share > 0)

	status      status
	source      bool  // blocks outlive completion (handoff)
	destination bool  // comes from another rank
	prev, next  int32 // queue neighbours
	order       int64 // of arrival, unique
	content     kv.Prompt
}

// queued is what a request in a queue counts for in the metrics: prompt if it
// never ran or comes from another rank, else everything to recompute.
func (r *request) queued() int64 {
	if r.status == preempted && !r.destination {
		return int64(r.length)
	}
	return int64(r.prompt)
}

// Core is one rank. It implements engine.Core.
type Core struct {
	cfg       engine.Config
	variant   Variant
	blockSize int32
	interval  int64 // prefill_schedule_interval where it acts, else 1
	maxSeqs   int   // running requests
	maxTokens int   // token budget of a pass

	pool       *kv.Pool
	reqs       slab.Slab[request] // [slot]; slot 0 is none
	buffers    [][]int32          // unused lists of cached blocks
	arrivals   int64              // requests ever
	wait       queue
	running    []int32 // slots, in order of admission
	blocksOwed int     // blocks that the running requests still need to complete

	tokenless int // requests that want no output

	queuedPrefill, queuedDecode sums // queued: prompts; preempted and handed-over requests
	preemptions                 int64
	lastProgress                int64               // preemptions when the latest signal was given
	sampler                     *timing.Sampler     // nil without speculation
	mixed                       timing.MixedDecoder // nil: decode costs the same in every pass

	passes           int64 // passes so far, numbers them
	step             int64 // group-pass counter of the latest pass
	admissionBlocked bool  // the latest pass that could admit left requests waiting
	blocked          blockedHead
	p                pass
	members          []int32 // ids in a decode run

	handoff handoff
	offload *offload // nil without memory behind the pool
}

var _ engine.Core = (*Core)(nil)

// Variant is where engines with this core differ.
type Variant struct {
	Admission
	NoPreemption bool // a failed allocation only ends the scheduling of the pass
	FullHits     bool // a fully cached context computes nothing, not its last block again
}

// Admission decides who may run.
type Admission interface {
	// Output cuts the output tokens of an arriving request.
	Output(prompt, output int64) int64
	// Refuse says why a request can never run to completion; NoReason if it can.
	Refuse(prompt, total int64) engine.Reason
	// Fits reports whether there is room. It must not come true by less room,
	// fewer held hits or more promised blocks.
	Fits(d Demand) bool
}

// Demand is a request at the head of the queue, in blocks.
type Demand struct {
	Known    int // of its present length
	Total    int // of its length at completion
	HeldHits int // cached blocks of its prompt that others hold
	Room     int // blocks that nobody holds
	Promised int // blocks that running requests still need to complete
}

// New returns the core of one vLLM rank.
func New(cfg engine.Config) (*Core, error) {
	return NewVariant(cfg, Variant{Admission: admission{&cfg}})
}

// NewVariant returns a core with another admission.
func NewVariant(cfg engine.Config, v Variant) (*Core, error) {
	if err := check(&cfg); err != nil {
		return nil, err
	}
	const unlimited = int(^uint(0) >> 1)
	c := &Core{cfg: cfg, variant: v, blockSize: int32(cfg.BlockSize), interval: 1,
		maxSeqs: cfg.MaxNumSeqs, maxTokens: cfg.MaxNumBatchedTokens,
		pool: kv.NewPool(cfg.Blocks), step: -1}
	c.reqs.Allocate() // 0 is none
	c.offload = c.newOffload(&cfg)
	c.mixed, _ = cfg.Timing.(timing.MixedDecoder)
	if c.maxSeqs == 0 {
		c.maxSeqs = unlimited
	}
	if c.maxTokens == 0 {
		c.maxTokens = unlimited
	}
	if cfg.DPSize > 1 && cfg.PrefillScheduleInterval > 1 {
		c.interval = int64(cfg.PrefillScheduleInterval)
	}
	if cfg.NextN > 0 {
		bits := rng.NewChaCha(cfg.MTPSeed)
		c.sampler = timing.NewSampler(cfg.AcceptRates, &bits)
	}
	return c, nil
}

// check refuses what no complete configuration contains.
func check(cfg *engine.Config) error {
	var errs []error
	positive := func(name string, v int) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("engine.%s: must be > 0, got %d", name, v))
		}
	}
	positive("block_size", cfg.BlockSize)
	positive("num_gpu_blocks", cfg.Blocks)
	if cfg.NextN != len(cfg.AcceptRates) {
		errs = append(errs, fmt.Errorf("engine.aic_nextn_accept_rates: %d rates for aic_nextn %d", len(cfg.AcceptRates), cfg.NextN))
	}
	if cfg.Timing == nil {
		errs = append(errs, errors.New("engine.timing_model: missing"))
	}
	return errors.Join(errs...)
}

// admission is vLLM's own: room for everything known.
type admission struct{ cfg *engine.Config }

func (a admission) Output(_, output int64) int64 { return output }

func (a admission) Refuse(prompt, total int64) engine.Reason {
	bs, blocks := int64(a.cfg.BlockSize), int64(a.cfg.Blocks)
	// The last token needs no slot, unless a burst reserves one for it.
	last := total - 1
	if a.cfg.NextN > 0 {
		last = total
	}
	switch {
	case ceil(prompt, bs) > blocks:
		return engine.PromptOverPool
	case ceil(max(prompt, last), bs) > blocks:
		return engine.OutputOverPool
	}
	return engine.NoReason
}

func (a admission) Fits(d Demand) bool { return d.Known-d.HeldHits <= d.Room }

func ceil[T int | int32 | int64](a, b T) T { return (a + b - 1) / b }

// Submit puts r at the back of the waiting queue.
func (c *Core) Submit(r engine.Request) {
	s := c.newRequest(r)
	c.reqs.At(s).status = waiting
	c.enqueue(s, 0)
}

// newRequest fills a slot.
func (c *Core) newRequest(r engine.Request) int32 {
	s := c.reqs.Allocate()
	prompt := int64(r.PromptTokens)
	total := prompt + max(0, c.variant.Output(prompt, int64(r.OutputTokens)))
	if limit := int64(c.cfg.MaxModelLen); limit > 0 {
		total = max(prompt, min(total, limit))
	}
	const longest = 1<<31 - 1
	c.arrivals++
	*c.reqs.At(s) = request{id: r.ID, prompt: r.PromptTokens, length: r.PromptTokens,
		total: int32(min(total, longest)), order: c.arrivals, content: r.Prompt}
	if total == prompt {
		c.tokenless++
	}
	return s
}

// free gives back the slot of a request that is in no queue and holds nothing.
func (c *Core) free(s int32) {
	if r := c.reqs.At(s); r.total == r.prompt {
		c.tokenless--
	}
	if c.offload != nil {
		c.offload.forget(s)
	}
	*c.reqs.At(s) = request{}
	c.reqs.Release(s)
}

// Runnable reports waiting or running requests.
func (c *Core) Runnable() bool { return c.wait.n > 0 || len(c.running) > 0 }

// Drained reports that nothing is left, handoff included.
func (c *Core) Drained() bool {
	return !c.Runnable() && c.handoff.empty() && (c.offload == nil || !c.offload.memory.Busy(c.offload.rank))
}

// EndGroup does nothing: this core follows no other rank.
func (c *Core) EndGroup(engine.GroupPass) {}

// Gauges returns the present occupancy; destinations that are not activated wait.
func (c *Core) Gauges() engine.Gauges {
	h := &c.handoff
	return engine.Gauges{
		ActiveBlocks: int64(c.pool.Active()), InactiveBlocks: int64(c.pool.Inactive()), TotalBlocks: int64(c.pool.Capacity()),
		Running: int64(len(c.running)), Waiting: int64(c.wait.n + h.pending.n + h.reserved.n), Preemptions: c.preemptions,
	}
}

// events is where KV events go; nil if nobody listens.
func (c *Core) events(ev *kv.Events) *kv.Events {
	if c.emitsEvents() {
		return ev
	}
	return nil
}

func (c *Core) emitsEvents() bool { return c.cfg.WantEvents && c.cfg.PrefixCaching }
