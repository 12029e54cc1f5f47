package planner

import (
	"math"
	"strconv"

	"github.com/dynosweep/dynosweep/sim"
)

// AppendTick appends one element of the report's planner.ticks, in the keys of
// spec planner 12.2. The record must come from a run with a *Policy.
func AppendTick(dst []byte, r *sim.TickRecord) []byte {
	t := r.Decision.Detail.(*Tick)
	w := writer{dst, false}
	w.open('{')
	w.key("ordinal").integer(t.Ordinal)
	w.key("at_ms").number(r.Snapshot.NowMs)
	w.key("scheduled_tick").schedule(t.Schedule)
	w.key("input").input(t, r.Snapshot)
	w.key("topology").open('{')
	w.key("prefill").pool(&r.Snapshot.Prefill)
	w.key("decode").pool(&r.Snapshot.Decode)
	w.close('}')
	w.key("effects").open('{')
	w.key("scale_to").scaleTo(t)
	w.key("next_tick").schedule(t.Next)
	w.key("diagnostics").diagnostics(t)
	w.close('}')
	w.key("runtime_decision").decision(t, &r.Decision)
	w.close('}')
	return w.dst
}

// writer appends JSON; commas come by themselves.
type writer struct {
	dst   []byte
	comma bool // the next key or element follows another
}

func (w *writer) open(c byte) {
	w.dst = append(w.dst, c)
	w.comma = false
}

func (w *writer) close(c byte) {
	w.dst = append(w.dst, c)
	w.comma = true
}

func (w *writer) sep() {
	if w.comma {
		w.dst = append(w.dst, ',')
	}
	w.comma = true
}

func (w *writer) key(k string) *writer {
	w.sep()
	w.dst = append(w.dst, '"')
	w.dst = append(w.dst, k...)
	w.dst = append(w.dst, '"', ':')
	return w
}

func (w *writer) raw(s string) { w.dst = append(w.dst, s...) }

func (w *writer) integer(v int) { w.dst = strconv.AppendInt(w.dst, int64(v), 10) }

func (w *writer) boolean(v bool) { w.dst = strconv.AppendBool(w.dst, v) }

// count writes null for Unset.
func (w *writer) count(v int) {
	if v == Unset {
		w.raw("null")
		return
	}
	w.integer(v)
}

// number writes null for NaN and infinities.
func (w *writer) number(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		w.raw("null")
		return
	}
	w.dst = strconv.AppendFloat(w.dst, v, 'g', -1, 64)
}

// reason writes null for none; reasons need no escapes.
func (w *writer) reason(r Reason) {
	if r == "" {
		w.raw("null")
		return
	}
	w.dst = append(w.dst, '"')
	w.raw(string(r))
	w.dst = append(w.dst, '"')
}

func (w *writer) schedule(s Schedule) {
	w.open('{')
	w.key("at_s").number(s.AtS)
	w.key("at_monotonic_s").number(s.AtS)
	w.key("run_load_scaling").boolean(s.RunLoad)
	w.key("run_throughput_scaling").boolean(s.RunThroughput)
	w.key("need_traffic_metrics").boolean(s.NeedTraffic)
	w.key("use_full_traffic_metrics").boolean(s.FullTraffic)
	w.key("traffic_metrics_duration_s").number(s.TrafficDurationS)
	w.key("need_worker_states").boolean(true)
	w.key("need_worker_fpm").boolean(s.NeedFPM)
	w.close('}')
}

func (w *writer) input(t *Tick, s *sim.Snapshot) {
	w.open('{')
	w.key("now_s").number(s.NowMs / 1000)
	w.key("traffic")
	if t.HasTraffic {
		o := &t.Traffic
		w.open('{')
		w.key("duration_s").number(o.DurationS)
		w.key("num_req").number(o.NumReq)
		w.key("isl").number(o.ISL)
		w.key("osl").number(o.OSL)
		w.key("kv_hit_rate").number(o.HitRate)
		w.key("accept_length").number(o.AcceptLength)
		w.close('}')
	} else {
		w.raw("null")
	}
	c := &t.Counts
	w.key("worker_counts").open('{')
	w.key("ready_num_prefill").count(c.ReadyPrefill)
	w.key("ready_num_decode").count(c.ReadyDecode)
	w.key("expected_num_prefill").count(c.ExpectedPrefill)
	w.key("expected_num_decode").count(c.ExpectedDecode)
	w.key("prefill_scaling_in_progress").boolean(c.PrefillInProgress)
	w.key("decode_scaling_in_progress").boolean(c.DecodeInProgress)
	w.key("pending_num_prefill").integer(0)
	w.key("pending_num_decode").integer(0)
	w.close('}')
	w.key("fpm_observations")
	if t.Schedule.NeedFPM {
		w.open('{')
		w.key("prefill").metrics(t.PrefillFPM)
		w.key("decode").metrics(t.DecodeFPM)
		w.close('}')
	} else {
		w.raw("null")
	}
	w.close('}')
}

func (w *writer) metrics(rows []FPM) {
	if len(rows) == 0 {
		w.raw("null")
		return
	}
	w.open('[')
	for i := range rows {
		w.sep()
		f := &rows[i]
		w.open('{')
		w.worker(f)
		w.key("metrics").open('{')
		w.key("version").integer(1)
		w.worker(f)
		w.key("counter_id").integer(0)
		w.key("wall_time").number(f.WallS)
		p := &f.Pass
		w.key("scheduled_requests").open('{')
		w.key("num_prefill_requests").integer(int(p.PrefillRequests))
		w.key("sum_prefill_tokens").integer(int(p.PrefillTokens))
		w.key("var_prefill_length").number(p.PrefillVar)
		w.key("sum_prefill_kv_tokens").integer(int(p.PrefillKVTokens))
		w.key("num_decode_requests").integer(int(p.DecodeRequests))
		w.key("sum_decode_kv_tokens").integer(int(p.DecodeKVTokens))
		w.key("var_decode_kv_tokens").number(p.DecodeVar)
		w.close('}')
		w.key("queued_requests").open('{')
		w.key("num_prefill_requests").integer(int(p.QueuedPrefill))
		w.key("sum_prefill_tokens").integer(int(p.QueuedPrefillTokens))
		w.key("var_prefill_length").number(p.QueuedPrefillVar)
		w.key("num_decode_requests").integer(int(p.QueuedDecode))
		w.key("sum_decode_kv_tokens").integer(int(p.QueuedDecodeKVTokens))
		w.key("var_decode_kv_tokens").number(p.QueuedDecodeVar)
		w.close('}')
		w.close('}')
		w.close('}')
	}
	w.close(']')
}

func (w *writer) worker(f *FPM) {
	w.key("worker_id").raw(`"`)
	w.integer(int(f.Worker))
	w.raw(`"`)
	w.key("dp_rank").integer(int(f.Rank))
}

func (w *writer) pool(p *sim.PoolSnapshot) {
	w.open('{')
	w.key("active").ids(p.Active)
	w.key("active_count").integer(len(p.Active))
	w.key("starting").ids(p.Starting)
	w.key("starting_count").integer(len(p.Starting))
	w.key("draining").ids(p.Draining)
	w.key("draining_count").integer(len(p.Draining))
	w.close('}')
}

func (w *writer) ids(list []int32) {
	w.open('[')
	for _, id := range list {
		w.sep()
		w.integer(int(id))
	}
	w.close(']')
}

func (w *writer) scaleTo(t *Tick) {
	if t.ScaleToPrefill == Unset && t.ScaleToDecode == Unset {
		w.raw("null")
		return
	}
	w.open('{')
	w.key("num_prefill").count(t.ScaleToPrefill)
	w.key("num_decode").count(t.ScaleToDecode)
	w.close('}')
}

func (w *writer) diagnostics(t *Tick) {
	w.open('{')
	w.key("estimated_ttft_ms").number(t.EstimatedTTFTMs)
	w.key("estimated_itl_ms").number(t.EstimatedITLMs)
	w.key("predicted_num_req").number(t.PredictedNumReq)
	w.key("predicted_isl").number(t.PredictedISL)
	w.key("predicted_osl").number(t.PredictedOSL)
	w.key("predicted_kv_hit_rate").number(t.PredictedHitRate)
	w.key("engine_rps_prefill").number(t.EngineRPSPrefill)
	w.key("engine_rps_decode").number(t.EngineRPSDecode)
	w.key("throughput_lower_bound_prefill").integer(t.LowerBoundPrefill)
	w.key("throughput_lower_bound_decode").integer(t.LowerBoundDecode)
	w.key("load_decision_reason").reason(t.LoadReason)
	w.key("throughput_decision_reason").reason(t.ThroughputReason)
	w.key("load_decision_reason_prefill").reason(t.LoadReasonPrefill)
	w.key("load_decision_reason_decode").reason(t.LoadReasonDecode)
	w.key("throughput_decision_reason_prefill").reason(t.ThroughputReasonPrefill)
	w.key("throughput_decision_reason_decode").reason(t.ThroughputReasonDecode)
	w.key("plugin_overrides").raw("[]")
	w.key("reconcile_reasons").raw("{}")
	w.key("held_over_plugins").raw("[]")
	w.key("execute_action").raw(`"apply"`)
	w.key("short_circuit_reason").raw(`""`)
	w.key("audit_events").raw("[]")
	w.close('}')
}

// decision writes the targets as the reference does, whose aggregated decisions
// carry a prefill target of 0.
func (w *writer) decision(t *Tick, d *sim.Decision) {
	prefill := d.TargetPrefill
	if t.Counts.ReadyPrefill == Unset && d.TargetDecode != sim.Keep {
		prefill = 0
	}
	w.open('{')
	w.key("target_prefill").count(prefill)
	w.key("target_decode").count(d.TargetDecode)
	w.key("next_tick_ms").number(d.NextTickMs)
	w.close('}')
}
