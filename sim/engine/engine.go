// Package engine declares the interface of a scheduler core and what all backends share:
// the arguments of a rank, the request it is given, the pass it returns.
//
// A rank is one scheduler with its own KV pool. A Core runs one pass at a time;
// all of its state moves when the pass starts, and what the pass reports becomes
// visible at its end (spec engine-vllm 1). The order of use is
//
//	core.Submit(request)            any time, also during a pass
//	core.Pass(nowMs, step, &pass)   when the worker is idle and core.Runnable()
//	core.EndGroup(group)            after all ranks of the worker did their pass
//
// Cores never block, read a clock or look at other ranks. Times are float64 ms.
package engine

import "github.com/dynosweep/dynosweep/sim/kv"

// Role is the part of a deployment a rank plays.
type Role uint8

const (
	Aggregated Role = iota
	Prefill
	Decode
)

func (r Role) String() string { return [...]string{"aggregated", "prefill", "decode"}[r] }

// Request is what a core is told when a request is submitted to it.
type Request struct {
	ID           int32     // the run's slot of the request; comes back in signals
	PromptTokens int32     // ISL, >= 1
	OutputTokens int32     // tokens to generate, >= 0 (1 on a prefill worker)
	Prompt       kv.Prompt // block identities at this rank's block size
}

// End says how a signal ends its request.
type End uint8

const (
	Running   End = iota // not terminal
	Completed            // finished; the tokens of the signal are its last
	Rejected             // refused by the scheduler; carries a Reason
)

// Reason names why a scheduler refused a request.
type Reason uint8

const (
	NoReason          Reason = iota
	OverModelLen             // prompt >= max_model_len
	PromptOverPool           // prompt needs more blocks than the pool has
	OutputOverPool           // prompt and output need more blocks than the pool has: could never end
	OverPrefillBudget        // the next chunk exceeds what a prefill pass may compute: could never start
)

func (r Reason) String() string {
	return [...]string{"", "prompt reaches max_model_len", "prompt exceeds the KV pool",
		"prompt and output exceed the KV pool", "next chunk exceeds the prefill budget"}[r]
}

// Signal is one output of a pass, in scheduler order: Tokens new tokens of a
// request (0 for an end without a token), all of them at the pass end.
type Signal struct {
	Req    int32
	Tokens int32
	End    End
	Reason Reason
}

// Admission reports that a request left the waiting queue, at the pass start.
type Admission struct {
	Req    int32
	Reused int32 // prompt (and, after a preemption, own) tokens found in the cache
	Device int32 // those of them found in the KV pool itself, the others came from behind it
}

// Stall says what a pass without visible effect asks for (spec replay-runtime 4.3,
// engine-sglang 10).
type Stall uint8

const (
	Progress  Stall = iota // the pass had an effect
	Countdown              // deferred by an interval; run again, a counter strictly fell
	Retry                  // inner state moved; run again, at most 1024 times in a row
	Nothing                // nothing changed: deadlock unless something outside acts
)

// Reservation reports a destination that got its blocks (decode role).
type Reservation struct {
	Req         int32
	FreshTokens int32 // fresh blocks x block size: what destination_missing transfers
}

// Pass is what one rank's pass did. The caller owns it and reuses it; the core
// resets it and fills it, slices keep their room.
type Pass struct {
	EndMs      float64 // of this rank alone; the worker's pass ends at the latest rank
	Admissions []Admission
	Signals    []Signal
	Preempted  []int32     // requests preempted (vLLM) or retracted (SGLang), in order
	Held       []int32     // prefill role: sources whose blocks now wait for release
	Events     kv.Events   // visible at the pass end, before the signals
	Metrics    ForwardPass // forward-pass metrics, spec engine-vllm 11, engine-sglang 9.1
	Accepted   int64       // accepted tokens and request decode-forwards of the pass,
	Forwards   int64       // spec engine-timing 7
	CacheHit   int64       // SGLang cache metrics; 0 elsewhere
	CacheTotal int64
	Blocks     int64 // KV blocks in use during the pass, by requests that it ends as well
	Stall      Stall
	ModelWork  bool  // some prefill token or decode step was computed
	Err        error // the timing source gave no usable duration: the run ends with it
}

// Reset empties p and keeps its buffers.
func (p *Pass) Reset() {
	ev := p.Events
	ev.Reset()
	*p = Pass{Admissions: p.Admissions[:0], Signals: p.Signals[:0],
		Preempted: p.Preempted[:0], Held: p.Held[:0], Events: ev}
}

// ForwardPass is one forward-pass metric row. Counts, sums in tokens, population
// variances in tokens squared. PrefillTokens is always filled; the rest only if
// Config.WantMetrics.
type ForwardPass struct {
	PrefillRequests, PrefillTokens, PrefillKVTokens int64
	PrefillVar                                      float64
	DecodeRequests, DecodeKVTokens                  int64
	DecodeVar                                       float64
	QueuedPrefill, QueuedPrefillTokens              int64
	QueuedPrefillVar                                float64
	QueuedDecode, QueuedDecodeKVTokens              int64
	QueuedDecodeVar                                 float64
}

// Gauges is the occupancy of a rank (spec report 9).
type Gauges struct {
	ActiveBlocks, InactiveBlocks, TotalBlocks int64
	Running, Waiting                          int64
	Preemptions                               int64 // total so far
}

// GroupPass is told to every rank of a worker, idle ones too, at the end of a
// group pass.
type GroupPass struct {
	Prefilled bool // some rank computed at least one prefill token
	ModelWork bool // some rank did model work
}

// Run describes passes that a core could do next in which nothing but lengths and
// time changes: nobody is admitted, finishes, is preempted or rejected, nobody has
// prompt left, and every member emits exactly one token per pass
// (spec replay-runtime 13).
type Run struct {
	Passes  int   // >= 1 when there is such a run; 0: do an ordinary Pass
	Members int64 // requests that emit, n
	Context int64 // sum of their lengths before the first pass
	Events  bool  // committing it can make KV events (evictions, stored pages)
}

// Core is one rank's scheduler: what a run needs of it, by who needs it.
type Core interface {
	Scheduler
	RunScheduler
	Reporter
	// Handoff returns the disaggregated side of the core; nil if it has none.
	Handoff() Handoff
	// Offload returns the side of the core that uses memory behind its KV pool; nil if
	// it has none.
	Offload() Offload
}

// Scheduler takes requests and does passes.
type Scheduler interface {
	// Submit puts r at the back of the waiting queue.
	Submit(r Request)
	// Runnable reports whether a pass has anything to look at: waiting, running
	// or activated requests, or an interval to count down.
	Runnable() bool
	// Drained reports whether the rank holds nothing at all: no request, no held
	// source, no pending or reserved destination.
	Drained() bool
	// Pass does one pass starting at nowMs. step is the worker's group-pass
	// counter for prefill_schedule_interval (spec engine-vllm 9, item 4).
	Pass(nowMs float64, step int64, p *Pass)
	// EndGroup closes a group pass.
	EndGroup(g GroupPass)
}

// RunScheduler does the passes of a decode run in closed form.
type RunScheduler interface {
	// Run looks for a decode run of at most limit passes from the present state.
	// It changes nothing that an ordinary Pass would not redo.
	Run(limit int) Run
	// Advance commits n passes of the run that Run returned last, in pass order.
	// Several calls may share one Run. Events are appended to ev, not reset.
	Advance(n int, ev *kv.Events)
	// RunBlocks fills dst with the KV blocks in use during each of the next len(dst)
	// passes of the run, which Advance has not committed yet.
	RunBlocks(dst []int64)
	// Members lists the requests of the run in running order. The slice lives
	// until the next call on the core.
	Members() []int32
	// RunMetrics is the metric row of the latest committed pass of the run.
	RunMetrics() ForwardPass
}

// Reporter shows the state of a rank and checks it.
type Reporter interface {
	// Gauges returns the present occupancy.
	Gauges() Gauges
	// Check returns the first broken law of the core's structures, with numbers.
	Check() error
}

// Handoff is the side of a core that disaggregated serving uses (spec
// replay-runtime 8). Commands other than SubmitSource and Accept are given only
// while no pass of the worker is in flight. Events they cause are appended to ev.
type Handoff interface {
	Source
	Destination
}

// Source is the prefill role's side: prompts whose blocks wait for the transfer.
type Source interface {
	// SubmitSource is Submit with the promise that the blocks stay held after the
	// request's only output, until ReleaseSource (prefill role).
	SubmitSource(r Request)
	ReleaseSource(req int32, ev *kv.Events)
	// CancelSource drops a source wherever it is: waiting, running or held.
	CancelSource(req int32, ev *kv.Events)
}

// Destination is the decode role's side: requests whose prompt comes from elsewhere.
type Destination interface {
	// Accept queues a destination. It answers a Reason if the request can never
	// fit; it is then not queued (decode role).
	Accept(r Request) Reason
	// TryReserve attempts the head of the pending destinations once and reserves
	// at most one. A head that failed is not retried before the capacity
	// generation moved.
	TryReserve(ev *kv.Events) (Reservation, bool)
	// Activate turns a reserved destination into a request whose prompt is
	// computed; it enters at the next pass.
	Activate(req int32, ev *kv.Events)
	CancelDestination(req int32, ev *kv.Events)
}

// Offload is the side of a core that copies KV blocks to slower memory and loads them
// back (spec kv-offload).
type Offload interface {
	// EndPass submits the copies that the pass prepared. It is called at its end.
	EndPass(nowMs float64)
	// Waits reports whether the end of a transfer can change what the next pass does.
	Waits() bool
	// TakeEvents swaps the events of the KV pool and of the host memory since the last
	// call into pool and host, and reports whether a transfer of the rank ended.
	TakeEvents(pool, host *kv.Events) bool
}
