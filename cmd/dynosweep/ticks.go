package main

import (
	"math"
	"slices"

	"dynosweep/planner"
	"dynosweep/sim"
	"dynosweep/sweep"
)

// tickLog keeps the Planner's ticks for the report, up to a bound.
type tickLog struct {
	total int
	ticks []tickEntry
}

// maxReportTicks bounds the ticks of a JSON report; a longer run keeps their count
// and the first ones.
const maxReportTicks = 10_000

// plannerBlock is the report's planner object (spec report 10).
type plannerBlock struct {
	Metadata      map[string]any `json:"metadata"`
	Ticks         []tickEntry    `json:"ticks"`
	TicksKept     int            `json:"ticks_kept"`
	ScalingEvents []scalingEntry `json:"scaling_events"`
	TotalTicks    int            `json:"total_ticks"`
	GPUHours      *float64       `json:"planner_gpu_hours"`
}

type scalingEntry struct {
	AtS       float64 `json:"at_s"`
	Component string  `json:"component"`
	From      int     `json:"from_count"`
	To        int     `json:"to_count"`
	Reason    string  `json:"reason"`
}

type tickEntry struct {
	Ordinal   int                 `json:"ordinal"`
	AtMs      float64             `json:"at_ms"`
	Scheduled planner.Schedule    `json:"scheduled_tick"`
	Input     tickInput           `json:"input"`
	Topology  map[string]poolLog  `json:"topology"`
	Effects   map[string]any      `json:"effects"`
	Decision  map[string]*float64 `json:"runtime_decision"`
}

type tickInput struct {
	NowS    float64                `json:"now_s"`
	Traffic *sim.Traffic           `json:"traffic"`
	Metrics map[string][]metricRow `json:"fpm_observations"`
}

type metricRow struct {
	Worker  int32              `json:"worker_id"`
	Rank    int32              `json:"dp_rank"`
	Metrics map[string]float64 `json:"metrics"`
}

type poolLog struct {
	Active        []int32 `json:"active"`
	ActiveCount   int     `json:"active_count"`
	Starting      []int32 `json:"starting"`
	StartingCount int     `json:"starting_count"`
	Draining      []int32 `json:"draining"`
	DrainingCount int     `json:"draining_count"`
}

// watch hangs the log on a run.
func (l *tickLog) watch(o *sim.Observers) {
	o.Tick = func(t *sim.TickRecord) error {
		if l.total++; l.total <= maxReportTicks {
			l.ticks = append(l.ticks, newTickEntry(t))
		}
		return nil
	}
}

func newTickEntry(t *sim.TickRecord) tickEntry {
	s := t.Snapshot
	e := tickEntry{
		Ordinal: s.Ordinal, AtMs: s.NowMs,
		Input: tickInput{NowS: s.NowMs / 1000, Metrics: map[string][]metricRow{
			"prefill": metricRows(s.Prefill.Metrics), "decode": metricRows(s.Decode.Metrics)}},
		Topology: map[string]poolLog{"prefill": newPoolLog(&s.Prefill), "decode": newPoolLog(&s.Decode)},
		Decision: map[string]*float64{
			"target_prefill": target(t.Decision.TargetPrefill), "target_decode": target(t.Decision.TargetDecode),
			"next_tick_ms": finite(t.Decision.NextTickMs)},
	}
	traffic := s.Traffic
	e.Input.Traffic = &traffic
	if d, ok := t.Decision.Detail.(*planner.Tick); ok {
		e.Scheduled = d.Schedule
		e.Effects = effects(d)
	}
	return e
}

// effects are the diagnostics of a tick, null where undefined (spec planner 12.2).
func effects(d *planner.Tick) map[string]any {
	return map[string]any{
		"estimated_ttft_ms": finite(d.EstimatedTTFTMs), "estimated_itl_ms": finite(d.EstimatedITLMs),
		"predicted_num_req": finite(d.PredictedNumReq), "predicted_isl": finite(d.PredictedISL),
		"predicted_osl": finite(d.PredictedOSL), "predicted_kv_hit_rate": finite(d.PredictedHitRate),
		"engine_rps_prefill": finite(d.EngineRPSPrefill), "engine_rps_decode": finite(d.EngineRPSDecode),
		"throughput_lower_bound_prefill": target(d.LowerBoundPrefill), "throughput_lower_bound_decode": target(d.LowerBoundDecode),
		"load_decision_reason": word(d.LoadReason), "load_decision_reason_prefill": word(d.LoadReasonPrefill),
		"load_decision_reason_decode":        word(d.LoadReasonDecode),
		"throughput_decision_reason":         word(d.ThroughputReason),
		"throughput_decision_reason_prefill": word(d.ThroughputReasonPrefill),
		"throughput_decision_reason_decode":  word(d.ThroughputReasonDecode),
		"scale_to_prefill":                   target(d.ScaleToPrefill),
		"scale_to_decode":                    target(d.ScaleToDecode),
		"observed_ttft_ms":                   finite(d.ObservedTTFTMs),
		"observed_itl_ms":                    finite(d.ObservedITLMs),
		"observed_requests_per_second":       finite(d.ObservedRPS),
		"observed_isl":                       finite(d.ObservedISL),
		"observed_osl":                       finite(d.ObservedOSL),
		"observed_kv_hit_rate":               finite(d.ObservedHitRate),
		"planner_gpu_hours":                  finite(d.PlannerGPUHours),
	}
}

func metricRows(rows []sim.RankMetrics) []metricRow {
	out := make([]metricRow, 0, len(rows))
	for i := range rows {
		r, p := &rows[i], &rows[i].Pass
		out = append(out, metricRow{r.Worker, r.Rank, map[string]float64{
			"wall_time":            r.WallS,
			"num_prefill_requests": float64(p.PrefillRequests), "sum_prefill_tokens": float64(p.PrefillTokens),
			"var_prefill_length": p.PrefillVar, "sum_prefill_kv_tokens": float64(p.PrefillKVTokens),
			"num_decode_requests": float64(p.DecodeRequests), "sum_decode_kv_tokens": float64(p.DecodeKVTokens),
			"var_decode_kv_tokens": p.DecodeVar,
			"num_queued_prefill":   float64(p.QueuedPrefill), "sum_queued_prefill_tokens": float64(p.QueuedPrefillTokens),
			"var_queued_prefill_length": p.QueuedPrefillVar,
			"num_queued_decode":         float64(p.QueuedDecode), "sum_queued_decode_kv_tokens": float64(p.QueuedDecodeKVTokens),
			"var_queued_decode_kv_tokens": p.QueuedDecodeVar,
		}})
	}
	return out
}

func newPoolLog(p *sim.PoolSnapshot) poolLog {
	return poolLog{append([]int32{}, p.Active...), len(p.Active), append([]int32{}, p.Starting...), len(p.Starting),
		append([]int32{}, p.Draining...), len(p.Draining)}
}

// target is a count as JSON; sim.Keep and planner.Unset are null.
func target(n int) *float64 {
	if n < 0 {
		return nil
	}
	v := float64(n)
	return &v
}

// finite is v as JSON; what is undefined is null.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func word(r planner.Reason) any {
	if r == "" {
		return nil
	}
	return string(r)
}

// block is the report's planner object.
func (l *tickLog) block(out *sweep.Outcome) plannerBlock {
	b := plannerBlock{Ticks: slices.Clip(l.ticks), TicksKept: len(l.ticks), TotalTicks: out.Result.Ticks,
		ScalingEvents: []scalingEntry{}, Metadata: map[string]any{}}
	for _, e := range out.Result.ScalingEvents {
		b.ScalingEvents = append(b.ScalingEvents, scalingEntry{e.AtS, e.Component, e.From, e.To, e.Reason})
	}
	if hours, ok := out.Policy.GPUHours(); ok {
		b.GPUHours = &hours
	}
	b.Metadata["bootstrap"] = out.Policy.Bootstrap()
	return b
}
