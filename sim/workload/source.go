// Package workload makes the requests of a run: synthetic load, trace readers and
// the load driver that releases them (spec workload).
//
//	trace, err := workload.Load(files, options)   // or a Synthetic
//	src, err := trace.NewSource(drive)
//
// A Trace is read once and shared read-only by any number of runs; a Source
// belongs to one run and is asked at every drain
//
//	src.Flush(now)                      after completions were reported
//	src.BeginRelease(now, inflight)
//	for r := src.Next(now); r != nil; r = src.Next(now) { place r }
//	next := src.NextMs()                to know when to come back
//
// Times are float64 ms on the run's clock, lengths are tokens. A prompt is never
// text and never a token list: see kv.Prompt. Its blocks get their identity when the
// trace is read, as nodes of prefix chains; an engine's block size only decides how
// they are divided.
//
// Stat describes a trace, Convert writes it in another format, and
// Synthetic.WriteTrace writes generated load as a trace. A fault of an input file is an
// *InputError with the text of spec workload 4.
package workload

import "github.com/dynosweep/dynosweep/sim/kv"

// Request is one released request. The pointer that Next returns, and the Prompt
// slices in it, live until the request was reported Done.
type Request struct {
	Handle         int32   // the source's own name for it, for Done
	Ordinal        int64   // session-major number from 0, breaks ties in reports
	ArrivalMs      float64 // authored or scheduled time; the release time in closed loop
	PromptTokens   int32
	OutputTokens   int32
	Prompt         kv.Prompt
	Priority       int32
	StrictPriority uint32
	PolicyClass    string // "" is none
}

// Names is what the records of a report call a request.
type Names struct {
	Session    string // shown if HasSession
	Turn       int32  // -1: none, as in a graph
	HasSession bool
	RequestID  string // authored id of a graph node, else ""
	PlayID     string
	LaneID     string // "" without agentic lanes
	RootID     string // the play's only root; "" if it has several
	ParentID   string // the request that spawned this one; "" is none
}

// Outcome says how a request ended, for the driver.
type Outcome uint8

const (
	Completed Outcome = iota
	Rejected
	Failed // or cancelled: the session ends
)

// Total is the number of requests that a source of this package offers if nothing
// fails and no limit cuts the run; 0 for another.
func Total(src Source) int64 {
	switch s := src.(type) {
	case *queue:
		return s.feed.total()
	case *sessions:
		return s.feed.total()
	case *plays:
		return int64(len(s.graph.ids))
	}
	return 0
}

// Source is an admission source (spec workload 3).
type Source interface {
	// NextMs is the next instant at which Next could return a request that it
	// does not return now; +Inf if only a Done can make one ready, or none is left.
	NextMs() float64
	// BeginRelease opens a release phase: inflight requests are in the cluster or
	// queued in its router. Only a flat closed loop looks at it.
	BeginRelease(nowMs float64, inflight int)
	// Next returns the next request to release at nowMs, nil if none is ready.
	Next(nowMs float64) *Request
	// Names returns the names of a request that is not Done yet.
	Names(handle int32) Names
	// Done reports the end of a request; emitted is the number of output tokens
	// it really produced.
	Done(handle int32, nowMs float64, emitted int32, how Outcome)
	// Flush applies the feedback of Done that a graph gathers until all
	// completions of the instant are known. A no-op for other sources.
	Flush(nowMs float64)
	// Drained reports that nothing will ever be released any more.
	Drained() bool
	// ClosedLoop reports whether arrivals are release instants.
	ClosedLoop() bool
}
