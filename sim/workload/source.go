// Package workload makes the requests of a run: synthetic load, arrivals, and the
// load driver that releases requests (spec workload 1 and 3). Requests that files
// describe come from the package trace below this one, which hands its sessions to
// the same driver as a Feed.
//
// A Synthetic describes generated load; its NewSource returns a Source, which belongs
// to one run. The run asks its Source at every instant
//
//	src.Flush(now)                      after completions were reported
//	src.BeginRelease(now, inflight)
//	for r := src.Next(now); r != nil; r = src.Next(now) { place r }
//	next := src.NextMs()                to know when to come back
//
// Times are float64 ms on the run's clock, lengths are tokens. A prompt is never
// text and never a token list: see kv.Prompt. The pointer that Next returns is valid
// until Done, and no method of a Source allocates per request once as many requests
// were in flight as ever will be.
//
// The rules are those of spec workload: 1 for synthetic load, 3 for the driver.
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

// PlayOutcome says how one play of an agentic trace went.
type PlayOutcome struct {
	PlayID     string
	Status     string  // completed, failed, or incomplete while something of it may still happen
	StartMs    float64 // first release; NaN if none
	TerminalMs float64 // first failure, else the last completion so far; NaN if none
	SettledMs  float64 // when nothing of it was held any more; NaN before

	FailedRequest string  // id of the request whose end failed the play; "": it did not fail
	FailedBy      Outcome // how that request ended
}

// String names an outcome as reports do.
func (o Outcome) String() string { return [...]string{"completed", "rejected", "failed"}[o] }

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
	// Quiescent reports that nothing of a request is held any more: at its Done, or
	// later where a prefill worker still held its blocks. A no-op unless a graph.
	Quiescent(ordinal int64, nowMs float64)
	// Flush applies the feedback of Done and Quiescent that a graph gathers until all
	// completions of the instant are known. A no-op for other sources.
	Flush(nowMs float64)
	// Drained reports that nothing will ever be released any more.
	Drained() bool
	// ClosedLoop reports whether arrivals are release instants.
	ClosedLoop() bool
	// Total is the number of requests that the source offers if nothing fails and
	// no limit cuts the run.
	Total() int64
	// Plays lists the plays of an agentic trace in play order; nil for other load.
	Plays() []PlayOutcome
	// Lifecycle is the number of events of an agentic trace up to now, and the digest
	// of their log in hex; 0 and "" for other load.
	Lifecycle() (events int64, digest string)
}
