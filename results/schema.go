package results

import (
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// SchemaVersion numbers the columns and the layout of a results directory. A directory
// of another version is not continued. The tables of versions from oldestSchema on are
// read; columns that they lack are absent.
const (
	SchemaVersion = 3
	oldestSchema  = 1
)

// Column is one column of a table.
type Column struct {
	Name, Unit, Meaning string
	Type                Type
	Required            bool // never null
	Axis                bool // a varied key of the specification
}

// Wall reports whether the column holds real time and so differs from run to run.
func (c *Column) Wall() bool { return len(c.Name) > 5 && c.Name[:5] == "wall_" }

// columnOf is a column and how to read it off a row.
type columnOf[R any] struct {
	Column
	of func(*R) Value
}

// TableID numbers the tables of a results directory.
type TableID uint8

const (
	Points TableID = iota
	Ticks
	ForwardPasses
	ScalingEvents
	Requests
	tableCount
)

// File is the table's file in the results directory.
func (t TableID) File() string {
	return [...]string{"points.parquet", "ticks.parquet", "forward_passes.parquet",
		"scaling_events.parquet", "requests.parquet"}[t]
}

// Table describes a table for documentation.
type Table struct {
	ID      TableID
	Row     string // what a row stands for
	Columns []Column
}

// Tables lists every table with its columns in order. Axis columns, one per varied
// key of the specification, follow `reason` in the points.
func Tables() []Table {
	return []Table{
		{Points, "point and seed", plain(pointColumns)},
		{Ticks, "Planner tick", plain(tickColumns)},
		{ForwardPasses, "newest forward pass of a worker's rank, as a Planner tick saw it", plain(passColumns)},
		{ScalingEvents, "scaling event", plain(scalingColumns)},
		{Requests, "request (with --capture-requests)", plain(requestColumns)},
	}
}

func plain[R any](cs []columnOf[R]) []Column {
	out := make([]Column, len(cs))
	for i := range cs {
		out[i] = cs[i].Column
	}
	return out
}

// keyColumns open every table.
func keyColumns[R any](of func(*R) *Key) []columnOf[R] {
	return []columnOf[R]{
		{Column{Name: "point_id", Type: String, Required: true, Meaning: "digest of the resolved configuration and its inputs"},
			func(r *R) Value { return Text(of(r).Point) }},
		{Column{Name: "seed", Type: Int64, Meaning: "seed of the run; null: nothing in it is drawn"},
			func(r *R) Value { return unless(!of(r).Seeded, Int(of(r).Seed)) }},
	}
}

// pointColumns are the columns of points.parquet without the axes.
var pointColumns = buildPointColumns()

// axisAt is where axis columns are inserted: after point_id, seed, status, reason.
const axisAt = 4

func buildPointColumns() []columnOf[Point] {
	cs := append(keyColumns(func(p *Point) *Key { return &p.Key }), []columnOf[Point]{
		{Column{Name: "status", Type: String, Required: true, Meaning: "done, failed or skipped"},
			func(p *Point) Value { return Text(string(p.Status)) }},
		{Column{Name: "reason", Type: String, Meaning: "why it failed or was skipped"},
			func(p *Point) Value { return label(p.Reason) }},
		{Column{Name: "config", Type: String, Meaning: "resolved configuration, JSON"},
			func(p *Point) Value { return label(p.Config) }},
		{Column{Name: "gpus", Type: Int64, Unit: "GPUs", Meaning: "GPUs of the initial workers"},
			func(p *Point) Value { return unless(p.GPUs <= 0, Int(p.GPUs)) }},
	}...)
	for _, k := range metrics.Keys() {
		cs = append(cs, reportColumn(k))
	}
	cs = append(cs, []columnOf[Point]{
		{Column{Name: "scaling_events", Type: Int64, Meaning: "changes of a pool's size that the Planner decided; null without one"},
			func(p *Point) Value { return unless(!p.ScalingEvents.OK, Int(int64(p.ScalingEvents.V))) }},
		{Column{Name: "planner_gpu_hours", Type: Float64, Unit: "h", Meaning: "ready workers x the Planner's *_engine_num_gpu, integrated between ticks; null when unset"},
			func(p *Point) Value { return p.PlannerGPUHours.value() }},
		{Column{Name: "timing_outside_share", Type: Float64, Unit: "0..1", Meaning: "passes priced outside the measured grid of the hardware tables, worst role; null with other timing"},
			func(p *Point) Value { return p.OutsideShare.value() }},
	}...)
	cs = append(cs, tierColumns()...)
	cs = append(cs, []columnOf[Point]{
		{Column{Name: "cost_usd", Type: Float64, Unit: "USD", Meaning: "GPU-hours of each role x the price of its system"},
			func(p *Point) Value { return p.CostUSD.value() }},
		{Column{Name: "usd_per_million_output_tokens", Type: Float64, Unit: "USD", Meaning: "cost_usd / output tokens x 1e6; null without output tokens"},
			func(p *Point) Value { return p.USDPerMillionOutputTokens.value() }},
		{Column{Name: "sla_attainment", Type: Float64, Unit: "0..1", Meaning: "requests that meet the SLA / requests that arrived; null without an SLA"},
			ofSummary(func(s *metrics.Summary) Value {
				v, ok := s.Attainment()
				return unless(!ok, Float(v))
			})},
		{Column{Name: "sla_grid", Type: Nested, Unit: "requests", Meaning: "completed requests with TTFT and mean ITL within both limits; limits in the file's metadata"},
			ofSummary(func(s *metrics.Summary) Value { return gridValue(&s.Grid) })},
	}...)
	return append(cs, outcomeColumns()...)
}

// reportColumn is one key of the report; real-time figures get the prefix wall_.
func reportColumn(k metrics.Key) columnOf[Point] {
	c := Column{Name: k.Name, Unit: k.Unit, Meaning: k.Meaning,
		Type: [...]Type{metrics.Int: Int64, metrics.Float: Float64, metrics.Text: String}[k.Kind]}
	if k.Wall && !c.Wall() {
		c.Name = "wall_" + c.Name
	}
	return columnOf[Point]{c, ofSummary(func(s *metrics.Summary) Value {
		if k.Kind == metrics.Text {
			return Text(k.Text(s))
		}
		v, ok := k.Value(s)
		if !ok || !k.Measured(s) {
			return Null
		}
		if k.Kind == metrics.Int {
			return Int(int64(v))
		}
		return Float(v)
	})}
}

// ofSummary reads a figure of a point that ran; null otherwise.
func ofSummary(get func(*metrics.Summary) Value) func(*Point) Value {
	return func(p *Point) Value {
		if p.Summary == nil {
			return Null
		}
		return get(p.Summary)
	}
}

// outcomeColumns say what became of every request, and where time and memory went.
func outcomeColumns() []columnOf[Point] {
	figure := func(name, unit, meaning string, t Type, get func(*metrics.Coverage) Value) columnOf[Point] {
		return columnOf[Point]{Column{Name: name, Type: t, Unit: unit, Meaning: meaning},
			ofSummary(func(s *metrics.Summary) Value { return get(&s.Coverage) })}
	}
	occupied := func(pool metrics.Pool, get func(metrics.PoolKV) float64) func(*metrics.Coverage) Value {
		return func(c *metrics.Coverage) Value {
			kv, ok := c.KVOccupancy[pool.String()]
			if !ok && pool == metrics.DecodePool {
				kv, ok = c.KVOccupancy[metrics.Agg.String()]
			}
			return unless(!ok, Float(get(kv)))
		}
	}
	meanOf, peakOf := func(kv metrics.PoolKV) float64 { return kv.Mean }, func(kv metrics.PoolKV) float64 { return kv.Peak }
	return []columnOf[Point]{
		figure("rejected_requests", "requests", "refused with a reason", Int64, func(c *metrics.Coverage) Value { return Int(c.Outcomes.Rejected.Count()) }),
		figure("failed_requests", "requests", "failed or canceled", Int64, func(c *metrics.Coverage) Value { return Int(c.Outcomes.Failed + c.Outcomes.Canceled) }),
		figure("unfinished_requests", "requests", "cut by the time limit", Int64, func(c *metrics.Coverage) Value { return Int(c.Outcomes.Unfinished) }),
		figure("unreleased_requests", "requests", "never offered: the time limit came first, or their session or play had failed", Int64, func(c *metrics.Coverage) Value { return Int(c.Outcomes.Unreleased) }),
		figure("preemptions", "", "preemptions (vLLM) or retractions (SGLang)", Int64, func(c *metrics.Coverage) Value { return Int(c.Outcomes.Preempted) }),
		figure("mean_queue_ms", "ms", "mean wait from arrival to first admission", Float64, func(c *metrics.Coverage) Value { return Float(c.QueueMs.Mean) }),
		figure("p99_queue_ms", "ms", "99th percentile of that wait", Float64, func(c *metrics.Coverage) Value { return Float(c.QueueMs.P99) }),
		figure("peak_in_flight", "requests", "most requests that had arrived and not ended", Int64, func(c *metrics.Coverage) Value { return Int(c.PeakInFlight) }),
		figure("prefill_kv_occupancy", "0..1", "KV blocks of the prefill pool in use, mean over the time of passes", Float64, occupied(metrics.PrefillPool, meanOf)),
		figure("prefill_kv_occupancy_peak", "0..1", "fullest prefill rank", Float64, occupied(metrics.PrefillPool, peakOf)),
		figure("decode_kv_occupancy", "0..1", "KV blocks of the decode (or aggregated) pool in use, mean over the time of passes", Float64, occupied(metrics.DecodePool, meanOf)),
		figure("decode_kv_occupancy_peak", "0..1", "fullest decode rank", Float64, occupied(metrics.DecodePool, peakOf)),
	}
}

func column[R any](name, unit, meaning string, t Type, of func(*R) Value) columnOf[R] {
	return columnOf[R]{Column{Name: name, Unit: unit, Meaning: meaning, Type: t}, of}
}

// tickColumns are the columns of ticks.parquet.
var tickColumns = buildTickColumns()

func buildTickColumns() []columnOf[tickRow] {
	number := func(name, unit, meaning string, get func(*tickRow) float64) columnOf[tickRow] {
		return column(name, unit, meaning, Float64, func(r *tickRow) Value { return Float(get(r)) })
	}
	cs := append(keyColumns(func(r *tickRow) *Key { return &r.key }),
		column("tick", "", "ordinal of the tick in its run, from 0", Int64, func(r *tickRow) Value { return Int(r.Record.Snapshot.Ordinal) }),
		number("at_ms", "ms", "simulated time", func(r *tickRow) float64 { return r.Record.Snapshot.NowMs }),
		number("next_tick_ms", "ms", "when the next tick was asked for", func(r *tickRow) float64 { return r.Record.Decision.NextTickMs }))
	cs = append(cs, trafficColumns()...)
	cs = append(cs, poolColumns("prefill", func(r *tickRow) *sim.PoolSnapshot { return &r.Record.Snapshot.Prefill },
		func(r *tickRow) int { return r.Record.Decision.TargetPrefill })...)
	cs = append(cs, poolColumns("decode", func(r *tickRow) *sim.PoolSnapshot { return &r.Record.Snapshot.Decode },
		func(r *tickRow) int { return r.Record.Decision.TargetDecode })...)
	diagnostic := func(name, unit, meaning string, get func(*Diagnostics) float64) columnOf[tickRow] {
		return number(name, unit, meaning, func(r *tickRow) float64 { return get(&r.Diagnostics) })
	}
	bound := func(name, meaning string, get func(*Diagnostics) int) columnOf[tickRow] {
		return column(name, "workers", meaning, Int64, func(r *tickRow) Value { return count(get(&r.Diagnostics)) })
	}
	reason := func(name, meaning string, get func(*Diagnostics) string) columnOf[tickRow] {
		return column(name, "", meaning, String, func(r *tickRow) Value { return label(get(&r.Diagnostics)) })
	}
	return append(cs,
		diagnostic("estimated_ttft_ms", "ms", "worst estimate over ranks", func(d *Diagnostics) float64 { return d.EstimatedTTFTMs }),
		diagnostic("estimated_itl_ms", "ms", "worst estimate over ranks", func(d *Diagnostics) float64 { return d.EstimatedITLMs }),
		diagnostic("predicted_num_req", "requests", "forecast of the next throughput interval", func(d *Diagnostics) float64 { return d.PredictedRequests }),
		diagnostic("predicted_isl", "tokens", "forecast mean input length", func(d *Diagnostics) float64 { return d.PredictedISL }),
		diagnostic("predicted_osl", "tokens", "forecast mean output length", func(d *Diagnostics) float64 { return d.PredictedOSL }),
		diagnostic("predicted_kv_hit_rate", "0..1", "forecast prefix hit rate", func(d *Diagnostics) float64 { return d.PredictedHitRate }),
		diagnostic("engine_rps_prefill", "requests/s", "capacity of one prefill worker", func(d *Diagnostics) float64 { return d.EngineRPSPrefill }),
		diagnostic("engine_rps_decode", "requests/s", "capacity of one decode worker", func(d *Diagnostics) float64 { return d.EngineRPSDecode }),
		bound("throughput_lower_bound_prefill", "least prefill workers by throughput", func(d *Diagnostics) int { return d.LowerBoundPrefill }),
		bound("throughput_lower_bound_decode", "least decode workers by throughput", func(d *Diagnostics) int { return d.LowerBoundDecode }),
		reason("load_decision_reason", "why load scaling decided so", func(d *Diagnostics) string { return d.LoadReason }),
		reason("load_decision_reason_prefill", "the same for prefill", func(d *Diagnostics) string { return d.LoadReasonPrefill }),
		reason("load_decision_reason_decode", "the same for decode", func(d *Diagnostics) string { return d.LoadReasonDecode }),
		reason("throughput_decision_reason", "why throughput scaling decided so", func(d *Diagnostics) string { return d.ThroughputReason }),
		reason("throughput_decision_reason_prefill", "the same for prefill", func(d *Diagnostics) string { return d.ThroughputReasonPrefill }),
		reason("throughput_decision_reason_decode", "the same for decode", func(d *Diagnostics) string { return d.ThroughputReasonDecode }),
		diagnostic("planner_gpu_hours", "h", "ready workers x *_engine_num_gpu so far", func(d *Diagnostics) float64 { return d.PlannerGPUHours }))
}

// trafficColumns are the window since the previous tick; means of nothing are null.
func trafficColumns() []columnOf[tickRow] {
	of := func(name, unit, meaning string, t Type, get func(*metrics.Traffic) Value) columnOf[tickRow] {
		return column(name, unit, meaning, t, func(r *tickRow) Value { return get(&r.Record.Snapshot.Traffic) })
	}
	return []columnOf[tickRow]{
		of("window_s", "s", "simulated time since the previous tick", Float64, func(t *metrics.Traffic) Value { return Float(t.DurationS) }),
		of("num_req", "requests", "arrivals in the window", Int64, func(t *metrics.Traffic) Value { return Int(t.Arrived) }),
		of("completed_requests", "requests", "completions in the window", Int64, func(t *metrics.Traffic) Value { return Int(t.Completed) }),
		of("avg_isl", "tokens", "mean input length of the completed", Float64, func(t *metrics.Traffic) Value { return unless(t.Completed == 0, Float(t.AvgISL)) }),
		of("avg_osl", "tokens", "mean output length of the completed", Float64, func(t *metrics.Traffic) Value { return unless(t.Completed == 0, Float(t.AvgOSL)) }),
		of("avg_ttft_ms", "ms", "mean TTFT of the completed, where above 0", Float64, func(t *metrics.Traffic) Value { return unless(t.TTFTCount == 0, Float(t.AvgTTFTMs)) }),
		of("avg_itl_ms", "ms", "mean TPOT of the completed", Float64, func(t *metrics.Traffic) Value { return unless(t.ITLCount == 0, Float(t.AvgITLMs)) }),
		of("avg_kv_hit_rate", "0..1", "mean overlap of placements", Float64, func(t *metrics.Traffic) Value { return unless(t.HitRateCount == 0, Float(t.AvgHitRate)) }),
		of("avg_accept_length", "tokens", "accepted tokens per decode forward", Float64, func(t *metrics.Traffic) Value { return unless(t.Forwards == 0, Float(t.AvgAcceptLength)) }),
	}
}

// poolColumns are the workers of one pool, what waits in them, and the target.
func poolColumns(pool string, of func(*tickRow) *sim.PoolSnapshot, target func(*tickRow) int) []columnOf[tickRow] {
	size := func(name, meaning string, get func(*sim.PoolSnapshot) int) columnOf[tickRow] {
		return column(name+"_"+pool, "workers", meaning, Int64, func(r *tickRow) Value { return Int(get(of(r))) })
	}
	return []columnOf[tickRow]{
		size("active", "serving", func(p *sim.PoolSnapshot) int { return len(p.Active) }),
		size("starting", "starting up", func(p *sim.PoolSnapshot) int { return len(p.Starting) }),
		size("draining", "finishing what they hold", func(p *sim.PoolSnapshot) int { return len(p.Draining) }),
		column("target_"+pool, "workers", "decided size; null: unchanged", Int64, func(r *tickRow) Value { return count(target(r)) }),
		column("queued_"+pool, "requests", "waiting in the workers, by the newest metrics", Int64, func(r *tickRow) Value {
			n := int64(0)
			for i := range of(r).Metrics {
				m := &of(r).Metrics[i].Pass
				n += m.QueuedPrefill + m.QueuedDecode
			}
			return Int(n)
		}),
	}
}

// passColumns are the columns of forward_passes.parquet.
var passColumns = buildPassColumns()

func buildPassColumns() []columnOf[passRow] {
	whole := func(name, unit, meaning string, get func(*sim.ForwardPass) int64) columnOf[passRow] {
		return column(name, unit, meaning, Int64, func(r *passRow) Value { return Int(get(&r.m.Pass)) })
	}
	variance := func(name, meaning string, get func(*sim.ForwardPass) float64) columnOf[passRow] {
		return column(name, "tokens^2", meaning, Float64, func(r *passRow) Value { return Float(get(&r.m.Pass)) })
	}
	return append(keyColumns(func(r *passRow) *Key { return &r.key }),
		column("tick", "", "ordinal of the tick", Int64, func(r *passRow) Value { return Int(r.ordinal) }),
		column("pool", "", "prefill, or decode (also aggregated)", String, func(r *passRow) Value { return Text(r.pool.String()) }),
		column("worker_id", "", "worker", Int64, func(r *passRow) Value { return Int(r.m.Worker) }),
		column("dp_rank", "", "its data-parallel rank", Int64, func(r *passRow) Value { return Int(r.m.Rank) }),
		column("pass_s", "s", "simulated duration of the pass; 0: idle", Float64, func(r *passRow) Value { return Float(r.m.WallS) }),
		whole("num_prefill_requests", "requests", "with prefill work", func(f *sim.ForwardPass) int64 { return f.PrefillRequests }),
		whole("sum_prefill_tokens", "tokens", "prefill computed", func(f *sim.ForwardPass) int64 { return f.PrefillTokens }),
		variance("var_prefill_length", "of prefill lengths", func(f *sim.ForwardPass) float64 { return f.PrefillVar }),
		whole("sum_prefill_kv_tokens", "tokens", "KV that prefill read", func(f *sim.ForwardPass) int64 { return f.PrefillKVTokens }),
		whole("num_decode_requests", "requests", "with a decode step", func(f *sim.ForwardPass) int64 { return f.DecodeRequests }),
		whole("sum_decode_kv_tokens", "tokens", "KV that decode read", func(f *sim.ForwardPass) int64 { return f.DecodeKVTokens }),
		variance("var_decode_kv_tokens", "of decode contexts", func(f *sim.ForwardPass) float64 { return f.DecodeVar }),
		whole("num_queued_prefill", "requests", "waiting for prefill", func(f *sim.ForwardPass) int64 { return f.QueuedPrefill }),
		whole("sum_queued_prefill_tokens", "tokens", "waiting prefill", func(f *sim.ForwardPass) int64 { return f.QueuedPrefillTokens }),
		variance("var_queued_prefill_length", "of waiting prompts", func(f *sim.ForwardPass) float64 { return f.QueuedPrefillVar }),
		whole("num_queued_decode", "requests", "waiting to decode again", func(f *sim.ForwardPass) int64 { return f.QueuedDecode }),
		whole("sum_queued_decode_kv_tokens", "tokens", "contexts of these", func(f *sim.ForwardPass) int64 { return f.QueuedDecodeKVTokens }),
		variance("var_queued_decode_kv_tokens", "of these contexts", func(f *sim.ForwardPass) float64 { return f.QueuedDecodeVar }))
}

// scalingColumns are the columns of scaling_events.parquet.
var scalingColumns = append(keyColumns(func(r *scalingRow) *Key { return &r.key }),
	column("at_s", "s", "scheduled time of the tick", Float64, func(r *scalingRow) Value { return Float(r.e.AtS) }),
	column("component", "", "agg, prefill or decode", String, func(r *scalingRow) Value { return Text(r.e.Component) }),
	column("from_count", "workers", "not draining, before", Int64, func(r *scalingRow) Value { return Int(r.e.From) }),
	column("to_count", "workers", "not draining, after", Int64, func(r *scalingRow) Value { return Int(r.e.To) }),
	column("reason", "", "scale_up or scale_down", String, func(r *scalingRow) Value { return Text(r.e.Reason) }))

// requestColumns are the columns of requests.parquet.
var requestColumns = buildRequestColumns()

func buildRequestColumns() []columnOf[requestRow] {
	at := func(name, meaning string, get func(*requestRow) float64) columnOf[requestRow] {
		return column(name, "ms", meaning, Float64, func(r *requestRow) Value { v := get(r); return unless(v < 0, Float(v)) })
	}
	latency := func(name, meaning string, tokens int32, get func(*metrics.Record) float64) columnOf[requestRow] {
		return column(name, "ms", meaning, Float64, func(r *requestRow) Value {
			if r.r.Output < tokens {
				return Null
			}
			return Float(get(r.r))
		})
	}
	whole := func(name, unit, meaning string, get func(*requestRow) int64) columnOf[requestRow] {
		return column(name, unit, meaning, Int64, func(r *requestRow) Value { return count(get(r)) })
	}
	return append(keyColumns(func(r *requestRow) *Key { return &r.key }),
		whole("ordinal", "", "number of the request in the load, session by session", func(r *requestRow) int64 { return r.r.Ordinal }),
		column("request_id", "", "authored id", String, func(r *requestRow) Value { return label(r.d.RequestID) }),
		column("play_id", "", "agentic play", String, func(r *requestRow) Value { return label(r.d.PlayID) }),
		column("session_id", "", "session of a multi-turn trace", String, func(r *requestRow) Value { return unless(!r.d.HasSession, Text(r.d.Session)) }),
		column("turn_index", "", "turn in it, from 0", Int64, func(r *requestRow) Value { return unless(!r.d.HasSession || r.d.Turn < 0, Int(r.d.Turn)) }),
		column("status", "", "completed, rejected, canceled or failed", String, func(r *requestRow) Value { return Text(r.r.Status.String()) }),
		column("reason", "", "why it was rejected or failed", String, func(r *requestRow) Value { return label(r.r.Reason) }),
		at("arrival_time_ms", "arrival", func(r *requestRow) float64 { return r.r.ArrivalMs }),
		at("dispatched_at_ms", "dispatch, agentic loads only", func(r *requestRow) float64 { return r.d.DispatchedMs }),
		at("first_admit_ms", "first admission by a scheduler", func(r *requestRow) float64 { return r.r.FirstAdmitMs }),
		at("first_token_ms", "first token", func(r *requestRow) float64 { return r.r.FirstTokenMs }),
		at("last_token_ms", "last token", func(r *requestRow) float64 { return r.r.LastTokenMs }),
		at("terminal_time_ms", "end", func(r *requestRow) float64 { return r.r.TerminalMs }),
		latency("ttft_ms", "time to first token", 1, (*metrics.Record).TTFTMs),
		latency("ttst_ms", "gap between the first two tokens", 2, (*metrics.Record).TTSTMs),
		latency("e2e_latency_ms", "arrival to last token", 1, (*metrics.Record).E2EMs),
		latency("itl_ms", "mean gap between tokens", 2, (*metrics.Record).TPOTMs),
		whole("input_length", "tokens", "prompt", func(r *requestRow) int64 { return int64(r.r.Input) }),
		whole("requested_output_length", "tokens", "asked for", func(r *requestRow) int64 { return int64(r.r.Requested) }),
		whole("output_length", "tokens", "emitted", func(r *requestRow) int64 { return int64(r.r.Output) }),
		whole("reused_input_tokens", "tokens", "found in the cache, best admission (disaggregated: of prefill)", func(r *requestRow) int64 { return int64(r.r.ReusedInput()) }),
		whole("decode_reused_input_tokens", "tokens", "the same in the decode pool, disaggregated", func(r *requestRow) int64 { return int64(r.d.DecodeReused) }),
		whole("prefill_worker_idx", "", "scheduler id of the first prefill assignment", func(r *requestRow) int64 { return int64(r.d.PrefillScheduler) }),
		whole("decode_worker_idx", "", "scheduler id of the first decode (or aggregated) assignment", func(r *requestRow) int64 { return int64(r.d.DecodeScheduler) }),
		at("prefill_admit_ms", "admission to prefill", func(r *requestRow) float64 { return r.d.PrefillAdmitMs }),
		at("source_held_ms", "prefill done, blocks held", func(r *requestRow) float64 { return r.d.SourceHeldMs }),
		at("destination_reserved_ms", "decode blocks reserved", func(r *requestRow) float64 { return r.d.DestinationReservedMs }),
		at("destination_activated_ms", "KV arrived", func(r *requestRow) float64 { return r.d.DestinationActivatedMs }),
		at("decode_admit_ms", "admission to decode", func(r *requestRow) float64 { return r.d.DecodeAdmitMs }),
		at("source_released_ms", "prefill blocks released", func(r *requestRow) float64 { return r.d.SourceReleasedMs }),
		whole("prefill_route_overlap_tokens", "tokens", "overlap the router saw", func(r *requestRow) int64 { return int64(r.d.PrefillOverlapTokens) }),
		whole("decode_route_overlap_tokens", "tokens", "overlap the router saw", func(r *requestRow) int64 { return int64(r.d.DecodeOverlapTokens) }),
		whole("admission_count", "", "admissions, preemptions make more", func(r *requestRow) int64 { return int64(r.r.Admissions) }))
}
