package results

import (
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Tick is one Planner tick as recorded: what was seen, what was decided, and what
// the Planner thought. Pointers are read during the call only.
type Tick struct {
	Record      *sim.TickRecord
	Diagnostics Diagnostics
}

// Diagnostics are the Planner's own figures at a tick (spec planner 12.2).
// Undefined floats are NaN, undefined counts -1, undefined reasons "".
type Diagnostics struct {
	EstimatedTTFTMs, EstimatedITLMs               float64
	PredictedRequests, PredictedISL, PredictedOSL float64
	PredictedHitRate                              float64
	EngineRPSPrefill, EngineRPSDecode             float64
	LowerBoundPrefill, LowerBoundDecode           int

	LoadReason, LoadReasonPrefill, LoadReasonDecode                   string
	ThroughputReason, ThroughputReasonPrefill, ThroughputReasonDecode string
	PlannerGPUHours                                                   float64 // so far
}

// The rows of the child tables carry the key of their point.
type (
	tickRow struct {
		key Key
		*Tick
	}
	passRow struct {
		key     Key
		ordinal int
		pool    metrics.Pool
		m       *sim.RankMetrics
	}
	scalingRow struct {
		key Key
		e   sim.ScalingEvent
	}
	requestRow struct {
		key Key
		r   *metrics.Record
		d   *metrics.Detail
	}
)

// noDetail stands for the detail of a record taken without capture.
var noDetail = metrics.NoDetail()
