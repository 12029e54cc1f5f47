package sim

import (
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// ForwardPass is the forward-pass metric row of one pass.
type ForwardPass = engine.ForwardPass

// ScalingPolicy decides how many workers each pool should have. It is the only
// door between the run and a Planner (spec replay-runtime 9).
type ScalingPolicy interface {
	// FirstTickMs is when the first tick is wanted; +Inf or NaN for never.
	FirstTickMs() float64
	// Tick looks at one snapshot, which it must not keep, and says what to do.
	Tick(s *Snapshot) (Decision, error)
}

// Keep is a Decision target that leaves a pool as it is.
const Keep = -1

// MaxWorkers is the most that one pool may be asked to have.
const MaxWorkers = 1 << 20

// Decision is the answer to one tick. Targets count non-draining workers (active
// plus starting); an aggregated run has only the decode side.
type Decision struct {
	TargetPrefill int     // Keep: unchanged
	TargetDecode  int     // Keep: unchanged
	NextTickMs    float64 // +Inf or NaN: no more ticks
	Detail        any     // the policy's own diagnostics, handed to the TickSink untouched
}

// Snapshot is what a policy sees at a tick (spec replay-runtime 9). Slices live
// until the next tick.
type Snapshot struct {
	Ordinal int
	NowMs   float64
	Prefill PoolSnapshot
	Decode  PoolSnapshot // the only pool of an aggregated run
	Traffic Traffic
}

// PoolSnapshot is the state of one pool. Ids ascend.
type PoolSnapshot struct {
	Metrics                    []RankMetrics // newest per (worker, rank) since the last tick, sorted
	Active, Starting, Draining []int32
}

// RankMetrics is one forward-pass metric row (spec replay-runtime 9).
type RankMetrics struct {
	Worker, Rank int32
	WallS        float64 // duration of the pass in seconds
	Pass         ForwardPass
}

// Traffic is what arrived and completed between two ticks. Means of nothing are 0.
type Traffic = metrics.Traffic

// TickRecord is one Planner tick as recorded: what was seen and what was decided.
// It lives until the next tick.
type TickRecord struct {
	Snapshot *Snapshot
	Decision Decision
}

// ScalingEvent is one change of a pool's target (spec report 10).
type ScalingEvent struct {
	AtS       float64 // scheduled time of the tick, seconds
	Component string  // agg, prefill or decode
	From, To  int     // non-draining counts
	Reason    string  // scale_up or scale_down
}
