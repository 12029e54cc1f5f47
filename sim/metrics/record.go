// Package metrics measures a run: per-request records, exact and sketched
// distributions, the summary report, telemetry and the terminal table
// (spec report).
//
// The event loop owns one Record per request in flight and fills it with plain
// values. The order of use is
//
//	c := NewCollector(options)
//	c.Arrive()              for every offered request
//	c.Gap(ms, n)            gaps between tokens, or Record.TokenMs one by one
//	c.Finish(&record)       at its terminal event; kept only with capture
//	s := c.Summary(totals)  once, then WriteTable, Report.WriteJSON, WriteRecords
//
// Keys is the table of report keys with unit and meaning, from which JSON, columns
// and documentation are made. Times are float64 ms on the logical clock, lengths
// are tokens; every request that arrived is counted once in Coverage.Outcomes.
package metrics

// Status is how a request ended.
type Status uint8

const (
	Unfinished Status = iota
	Completed
	Rejected
	Canceled
	Failed
)

func (s Status) String() string {
	return [...]string{"unfinished", "completed", "rejected", "canceled", "failed"}[s]
}

// Unset marks a time that never happened.
const Unset = -1.0

// Record is what is known of one request (spec report 2). A zero Record is not
// valid: call Reset.
type Record struct {
	Ordinal       int64 // session-major number, breaks ties in the report
	ArrivalMs     float64
	FirstAdmitMs  float64 // Unset until admitted by any scheduler
	FirstTokenMs  float64
	SecondTokenMs float64
	LastTokenMs   float64
	TerminalMs    float64
	Input         int32
	Requested     int32 // output tokens asked for
	Output        int32 // tokens emitted so far
	Reused        int32 // max over all admissions, both pools
	FirstReused   int32 // at the first admission
	FirstDevice   int32 // those of FirstReused found in the KV pool itself, if Tiered
	Tiered        bool  // something is behind the KV pool
	Admissions    int32
	Status        Status
	Reason        string    // why it was rejected or failed, "" otherwise
	ClientMs      float64   // spent by the client and before the server, in TTFT and latency alone
	TokenMs       []float64 // exact mode only: end of the pass of every token
	Detail        *Detail   // capture only
}

// Detail is what only a captured record needs (spec report 7).
type Detail struct {
	RequestID, PlayID, Session                              string
	LaneID, RootID, ParentID                                string // agentic only, "" is none
	HasSession                                              bool
	Turn                                                    int32   // -1: none, as in a graph
	DispatchedMs                                            float64 // agentic only, else Unset
	PrefillScheduler                                        int32   // scheduler id of the first assignment, -1 none
	DecodeScheduler                                         int32
	PrefillAdmitMs, SourceHeldMs, DestinationReservedMs     float64
	DestinationActivatedMs, DecodeAdmitMs, SourceReleasedMs float64
	PrefillReused, DecodeReused                             int32 // max over the pool's admissions; -1 none
	PrefillOverlapTokens, DecodeOverlapTokens               int32 // capped at ISL; -1 none
	Routing                                                 []Routing
	Admitted                                                []Admission
}

// Pool names a pool in records.
type Pool uint8

const (
	Agg Pool = iota
	PrefillPool
	DecodePool
)

func (p Pool) String() string { return [...]string{"agg", "prefill", "decode"}[p] }

// Routing is one entry of routing_history.
type Routing struct {
	Pool                    Pool
	Queued                  bool
	EnteredMs, ReleasedMs   float64 // Unset when immediate, or never released
	Worker, Scheduler, Rank int32   // -1 while not released
	OverlapTokens           int32
	Selected, Best          int32 // blocks; -1 under round robin
}

// Admission is one entry of admission_history.
type Admission struct {
	Pool        Pool
	PoolOrdinal int32
	AtMs        float64
	Reused      int32
	Device      int32 // those of Reused found in the KV pool itself, if Tiered
	Tiered      bool
}

// Reset makes r ready for a new request and keeps its buffers.
func (r *Record) Reset() {
	*r = Record{FirstAdmitMs: Unset, FirstTokenMs: Unset, SecondTokenMs: Unset,
		LastTokenMs: Unset, TerminalMs: Unset, TokenMs: r.TokenMs[:0]}
}

// TTFTMs is the time to the first token; only with Output >= 1.
func (r *Record) TTFTMs() float64 { return r.serverTTFTMs() + r.ClientMs }

// serverTTFTMs is TTFTMs without the client's part: what a Planner can see.
func (r *Record) serverTTFTMs() float64 { return max(r.FirstTokenMs-r.ArrivalMs, 0) }

// TTSTMs is the gap between the first and the second token; only with Output >= 2.
func (r *Record) TTSTMs() float64 { return max(r.SecondTokenMs-r.FirstTokenMs, 0) }

// TPOTMs is the mean gap between tokens; only with Output >= 2.
func (r *Record) TPOTMs() float64 {
	return max(r.LastTokenMs-r.FirstTokenMs, 0) / float64(r.Output-1)
}

// E2EMs ends at the last token, not at the terminal event; only with Output >= 1.
func (r *Record) E2EMs() float64 { return r.serverE2EMs() + r.ClientMs }

func (r *Record) serverE2EMs() float64 { return max(r.LastTokenMs-r.ArrivalMs, 0) }

// meanGapMs is the mean gap as an SLA judges it, from the two latencies; 0 for a
// single token.
func (r *Record) meanGapMs() float64 {
	if r.Output < 2 {
		return 0
	}
	return (r.serverE2EMs() - r.serverTTFTMs()) / float64(r.Output-1)
}
