// Package router chooses the rank that serves a request: round robin, or the KV
// router with its prefix index, active-sequence book, cost, queue and policy
// classes.
//
// A configuration is read with ReadDocument, a policy-class file with ReadPolicy, and
// Document.Config makes the complete Config of both. NewKV and NewRoundRobin
// return a Placement without workers; the event loop adds each with WorkerReady and
// calls the hooks in simulated time; KV events of a pass come before its outputs. Every
// hook may release requests that were queued; they are appended to the caller's
// list and dispatched at once, in list order.
//
// Loads are tokens and engine blocks, times float64 ms. One KV router serves one
// pool; ties and softmax draws come from streams named by seed and side, so equal
// calls give equal routes. The load that a request adds to its rank is removed at its
// terminal signal, and a block is live as long as a request holds it.
//
// Source: spec replay-runtime 6, kv-router.
package router

import "github.com/dynosweep/dynosweep/sim/kv"

// Request is what a placement sees of a request.
type Request struct {
	ID             int32 // the run's slot
	ISL            int32
	Prompt         *kv.Prompt // valid during the call, its Nodes until Terminal
	Priority       int32
	StrictPriority uint32
	PolicyClass    string
}

// Route is a decision for one request.
type Route struct {
	Req    int32
	Worker int32
	Rank   int32
	// The KV router's view; Overlap < 0 under round robin (no such figures).
	OverlapBlocks, BestBlocks, ISLBlocks int32
}

// Rank names one rank of one worker.
type Rank struct{ Worker, Rank int32 }

// Placement is one pool's placement policy. Workers are known by id; every worker
// of the pool has the same number of ranks. All hooks append released routes to
// out and return it.
type Placement interface {
	// Place decides now, or queues the request (queued true, no route). Errors
	// end the run (no active worker under round robin, a queue limit reached).
	Place(r Request, nowMs float64) (route Route, queued bool, err error)
	// Observe applies the KV events of one rank: of a finished pass before its
	// signals, or of a command.
	Observe(from Rank, ev *kv.Events, nowMs float64, out []Route) []Route
	// PrefillCompleted is called once per request that has more output to come.
	PrefillCompleted(req int32, nowMs float64, out []Route) []Route
	// Terminal is called when a request ended.
	Terminal(req int32, nowMs float64, out []Route) []Route
	// CancelPending drops a queued request; true if it was queued.
	CancelPending(req int32) bool
	// WorkerReady, WorkerDraining and WorkerRemoved follow scaling; after a batch
	// of them TopologySettled lets the queue drain.
	WorkerReady(worker int32, nowMs float64)
	WorkerDraining(worker int32, nowMs float64)
	WorkerRemoved(worker int32, nowMs float64)
	TopologySettled(nowMs float64, out []Route) []Route
	// Queued is the number of requests waiting in the router.
	Queued() int
	// WantsEvents reports whether Observe does anything.
	WantsEvents() bool
}
