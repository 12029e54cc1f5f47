// Package router chooses the rank that serves a request: round robin, at random, by
// load, or by the KV router with its prefix index, active-sequence book, cost, queue
// and policy classes. Modes lists what there is; a new one is an entry of the table
// in mode.go, a file with its Placement, a test and a paragraph of docs/router.md.
//
// A configuration is read with ReadDocument, a policy-class file with ReadPolicy, and
// Document.Config makes the complete Config of both. Mode.New returns a
// Placement without workers; the event loop adds each with WorkerReady and
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

import (
	"slices"

	"github.com/dynosweep/dynosweep/sim/kv"
)

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
	// The KV router's view; all < 0 under the other modes, which have no such figures.
	OverlapBlocks, BestBlocks, ISLBlocks int32
}

// Rank names one rank of one worker.
type Rank struct{ Worker, Rank int32 }

// Placement is one pool's placement policy. Workers are known by id; every worker
// of the pool has the same number of ranks. Hooks that can let queued requests go
// append their routes to out and return it; an error ends the run.
type Placement interface {
	Placer
	EventReader
	WorkerWatcher
	// Queued is the number of requests waiting in the router.
	Queued() int
}

// Placer decides for requests and follows them to their end.
type Placer interface {
	// Place decides now, or queues the request (queued true, no route). Errors
	// end the run (no active worker, a queue limit reached).
	Place(r Request, nowMs float64) (route Route, queued bool, err error)
	// PrefillCompleted is called once per request that has more output to come.
	PrefillCompleted(req int32, nowMs float64, out []Route) ([]Route, error)
	// Terminal is called when a request ended.
	Terminal(req int32, nowMs float64, out []Route) ([]Route, error)
}

// EventReader follows what the ranks have cached.
type EventReader interface {
	// WantsEvents reports whether Observe does anything.
	WantsEvents() bool
	// Observe applies the KV events of one rank: of a finished pass before its
	// signals, or of a command.
	Observe(from Rank, ev *kv.Events, nowMs float64)
}

// WorkerWatcher follows scaling. After a batch of the other calls TopologySettled
// lets the queue drain.
type WorkerWatcher interface {
	WorkerReady(worker int32, nowMs float64)
	WorkerDraining(worker int32, nowMs float64)
	WorkerRemoved(worker int32, nowMs float64)
	TopologySettled(nowMs float64, out []Route) ([]Route, error)
}

// immediate has the hooks of a placement that never queues and reads no KV events.
type immediate struct{}

func (immediate) Observe(Rank, *kv.Events, float64)                                 {}
func (immediate) PrefillCompleted(_ int32, _ float64, out []Route) ([]Route, error) { return out, nil }
func (immediate) Terminal(_ int32, _ float64, out []Route) ([]Route, error)         { return out, nil }
func (immediate) TopologySettled(_ float64, out []Route) ([]Route, error)           { return out, nil }
func (immediate) Queued() int                                                       { return 0 }
func (immediate) WantsEvents() bool                                                 { return false }

// workerSet holds the ids of active workers, ascending.
type workerSet []int32

func (s *workerSet) add(worker int32) {
	if at, found := slices.BinarySearch(*s, worker); !found {
		*s = slices.Insert(*s, at, worker)
	}
}

func (s *workerSet) remove(worker int32) {
	if at, found := slices.BinarySearch(*s, worker); found {
		*s = slices.Delete(*s, at, at+1)
	}
}
