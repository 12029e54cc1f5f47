package planner

// Reason says why a loop decided as it did; "" where it did not run
// (spec planner 8, 9).
type Reason string

const (
	ScaleUp              Reason = "scale_up"
	ScaleDown            Reason = "scale_down"
	NoChange             Reason = "no_change"
	CappedByThroughput   Reason = "scale_down_capped_by_throughput"
	RefusedConsolidation Reason = "scale_down_refused_consolidation"
	HysteresisHold       Reason = "scale_down_hysteresis_hold" // our own: hysteresis_ticks not reached
	Disabled             Reason = "disabled"
	NoFPMData            Reason = "no_fpm_data"
	ScalingInProgress    Reason = "scaling_in_progress"
	WorkerCountMismatch  Reason = "worker_count_mismatch"
	InsufficientData     Reason = "insufficient_data"
	BudgetHold           Reason = "gpu_budget_guard_hold"
	BudgetReconcile      Reason = "gpu_budget_reconcile"
	Scale                Reason = "scale"
	SetLowerBound        Reason = "set_lower_bound"
	NoTrafficData        Reason = "no_traffic_data"
	PredictFailed        Reason = "predict_failed"
	ModelNotReady        Reason = "model_not_ready"
	PartnerNotReady      Reason = "partner_not_ready"
)

// Unset marks a count that a tick does not have.
const Unset = -1

// Tick is everything the Planner saw and thought at one tick (spec planner 12.2).
// Undefined floats are NaN, undefined counts Unset, undefined reasons "". It belongs
// to the Policy and lives until the next tick.
type Tick struct {
	Ordinal               int
	Schedule              Schedule
	Next                  Schedule
	Traffic               Observation // of the merged window, if HasTraffic
	Counts                Counts
	PrefillFPM, DecodeFPM []FPM // nil on a tick that needs none

	HasTraffic bool

	EstimatedTTFTMs, EstimatedITLMs                 float64 // max over ranks
	PredictedNumReq, PredictedISL, PredictedOSL     float64 // of the next throughput interval
	PredictedHitRate                                float64
	EngineRPSPrefill, EngineRPSDecode               float64 // capacity of one replica
	LowerBoundPrefill, LowerBoundDecode             int
	LoadReason, LoadReasonPrefill, LoadReasonDecode Reason
	ThroughputReason                                Reason
	ThroughputReasonPrefill, ThroughputReasonDecode Reason
	ScaleToPrefill, ScaleToDecode                   int // what the Planner proposes, Unset: nothing

	// The recorder's view: values of the last consumed window, and GPU-hours of
	// active workers by *_engine_num_gpu (NaN: unset). Recorded is false on ticks
	// that the reference's recorder skips.
	Recorded                              bool
	ObservedTTFTMs, ObservedITLMs         float64
	ObservedRPS, ObservedISL, ObservedOSL float64
	ObservedHitRate                       float64
	PlannerGPUHours                       float64
}

// Counts are the workers that a decision starts from; an aggregated run has only
// the decode side and Unset on the other.
type Counts struct {
	ReadyPrefill, ReadyDecode           int  // active
	ExpectedPrefill, ExpectedDecode     int  // the outstanding target, else active + starting
	PrefillInProgress, DecodeInProgress bool // the outstanding target is not reached
}

func (c Counts) ready() pair { return pair{max(c.ReadyPrefill, 0), c.ReadyDecode} }

func (c Counts) prefillMoving() bool {
	return c.PrefillInProgress || c.ExpectedPrefill != c.ReadyPrefill
}

func (c Counts) decodeMoving() bool { return c.DecodeInProgress || c.ExpectedDecode != c.ReadyDecode }
