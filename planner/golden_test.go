package planner

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"dynosweep/sim"
)

// golden is a recorded run of the reference: its Planner configuration, its engine
// arguments, and every tick with what went in and what came out.
type golden struct {
	Config               map[string]any
	Agg, Prefill, Decode *goldenEngine
	Ticks                []goldenTick
	Events               []struct {
		At        float64 `json:"at_s"`
		Component string
		From      int `json:"from_count"`
		To        int `json:"to_count"`
	} `json:"scaling_events"`
}

type goldenEngine struct {
	BlockSize int `json:"block_size"`
	Blocks    int `json:"num_gpu_blocks"`
	MaxLen    int `json:"max_model_len"`
	Batched   int `json:"max_num_batched_tokens"`
	Seqs      int `json:"max_num_seqs"`
	TP        int `json:"tensor_parallel_size"`
	NextN     int `json:"aic_nextn"`
}

func (e *goldenEngine) facts() Engine {
	if e == nil {
		return Engine{}
	}
	return Engine{GPUs: max(e.TP, 1), MaxBatchedTokens: e.Batched, MaxSeqs: e.Seqs,
		ContextLength: e.MaxLen, KVTokens: e.Blocks * e.BlockSize, Ranks: 1, NextN: e.NextN}
}

type goldenTick struct {
	Ordinal   int
	At        float64        `json:"at_ms"`
	Scheduled goldenSchedule `json:"scheduled_tick"`
	Input     struct {
		Traffic *struct {
			Duration float64 `json:"duration_s"`
			NumReq   float64 `json:"num_req"`
			ISL, OSL float64
			Hit      float64  `json:"kv_hit_rate"`
			Accept   *float64 `json:"accept_length"`
		}
		FPM    *struct{ Prefill, Decode []goldenFPM } `json:"fpm_observations"`
		Counts struct {
			ReadyPrefill    *int `json:"ready_num_prefill"`
			ReadyDecode     int  `json:"ready_num_decode"`
			ExpectedPrefill *int `json:"expected_num_prefill"`
			ExpectedDecode  int  `json:"expected_num_decode"`
		} `json:"worker_counts"`
	}
	Topology struct {
		Prefill, Decode struct{ Active, Starting, Draining []int32 }
	}
	Effects struct {
		ScaleTo *struct {
			P *int `json:"num_prefill"`
			D *int `json:"num_decode"`
		} `json:"scale_to"`
		Next        goldenSchedule `json:"next_tick"`
		Diagnostics map[string]any
	}
	Runtime struct {
		P    *int    `json:"target_prefill"`
		D    *int    `json:"target_decode"`
		Next float64 `json:"next_tick_ms"`
	} `json:"runtime_decision"`
}

type goldenSchedule struct {
	At         float64 `json:"at_s"`
	Load       bool    `json:"run_load_scaling"`
	Throughput bool    `json:"run_throughput_scaling"`
	Traffic    bool    `json:"need_traffic_metrics"`
	Full       bool    `json:"use_full_traffic_metrics"`
	Duration   float64 `json:"traffic_metrics_duration_s"`
	FPM        bool    `json:"need_worker_fpm"`
}

func (g goldenSchedule) schedule() Schedule {
	return Schedule{AtS: g.At, RunLoad: g.Load, RunThroughput: g.Throughput, NeedTraffic: g.Traffic,
		FullTraffic: g.Full, TrafficDurationS: g.Duration, NeedFPM: g.FPM}
}

type goldenFPM struct {
	Worker  string `json:"worker_id"`
	Rank    int32  `json:"dp_rank"`
	Metrics struct {
		Wall      float64            `json:"wall_time"`
		Scheduled map[string]float64 `json:"scheduled_requests"`
		Queued    map[string]float64 `json:"queued_requests"`
	}
}

func rowsOf(list []goldenFPM) (out []FPM) {
	for _, g := range list {
		id, _ := strconv.Atoi(g.Worker)
		s, q := g.Metrics.Scheduled, g.Metrics.Queued
		out = append(out, FPM{Worker: int32(id), Rank: g.Rank, WallS: g.Metrics.Wall, Pass: sim.ForwardPass{
			PrefillRequests: int64(s["num_prefill_requests"]), PrefillTokens: int64(s["sum_prefill_tokens"]),
			PrefillKVTokens: int64(s["sum_prefill_kv_tokens"]), DecodeRequests: int64(s["num_decode_requests"]),
			DecodeKVTokens: int64(s["sum_decode_kv_tokens"]), QueuedPrefill: int64(q["num_prefill_requests"]),
			QueuedPrefillTokens: int64(q["sum_prefill_tokens"]), QueuedDecode: int64(q["num_decode_requests"]),
			QueuedDecodeKVTokens: int64(q["sum_decode_kv_tokens"])}})
	}
	return out
}

// snapshot is the recorded input as a run would have shown it. Windows were merged
// when they were recorded, so each comes whole at the tick that consumed it.
func (t *goldenTick) snapshot() *sim.Snapshot {
	s := &sim.Snapshot{Ordinal: t.Ordinal, NowMs: t.At}
	s.Prefill = sim.PoolSnapshot{Active: t.Topology.Prefill.Active, Starting: t.Topology.Prefill.Starting, Draining: t.Topology.Prefill.Draining}
	s.Decode = sim.PoolSnapshot{Active: t.Topology.Decode.Active, Starting: t.Topology.Decode.Starting, Draining: t.Topology.Decode.Draining}
	if f := t.Input.FPM; f != nil {
		s.Prefill.Metrics, s.Decode.Metrics = rowsOf(f.Prefill), rowsOf(f.Decode)
	}
	if w := t.Input.Traffic; w != nil {
		s.Traffic = sim.Traffic{DurationS: w.Duration, Arrived: int64(w.NumReq), Completed: 1, AvgISL: w.ISL,
			AvgOSL: w.OSL, AvgHitRate: w.Hit, HitRateCount: 1}
		if w.Accept != nil {
			s.Traffic.AvgAcceptLength, s.Traffic.Forwards = *w.Accept, 1
		}
	}
	return s
}

func readGolden(t *testing.T, name string) golden {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

func goldenPolicy(t *testing.T, g golden) *Policy {
	t.Helper()
	cfg, _, err := Document{Root: g.Config}.Config()
	if err != nil {
		t.Fatal(err)
	}
	e := Engines{Disaggregated: cfg.Mode == Disagg, Prefill: g.Prefill.facts(), Decode: g.Decode.facts()}
	if cfg.Mode == Agg {
		e.Decode = g.Agg.facts()
	}
	p, err := New(cfg, e)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRecordedTicksAreDecidedAlike feeds the recorded inputs of every tick to a
// Policy and compares schedule, targets and diagnostics with what the reference
// answered: decisions and reasons exactly, estimates within the reference's own
// spread between runs.
func TestRecordedTicksAreDecidedAlike(t *testing.T) {
	files, _ := filepath.Glob("testdata/goldens/*.json.gz")
	if len(files) < 10 {
		t.Fatalf("only %d recorded runs", len(files))
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			g := readGolden(t, name)
			p := goldenPolicy(t, g)
			for i := range g.Ticks {
				compareTick(t, p, &g.Ticks[i])
			}
		})
	}
}

func compareTick(t *testing.T, p *Policy, want *goldenTick) {
	t.Helper()
	d, err := p.Tick(want.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	got := d.Detail.(*Tick)
	fail := func(what string, have, need any) {
		t.Errorf("t=%v %s: %v, reference %v", want.At/1000, what, have, need)
	}
	if got.Schedule != want.Scheduled.schedule() || got.Next != want.Effects.Next.schedule() {
		fail("schedule", got.Schedule, want.Scheduled)
	}
	target := func(v *int) int {
		if v == nil {
			return sim.Keep
		}
		return *v
	}
	p0, d0 := target(want.Runtime.P), target(want.Runtime.D)
	if p.cfg.Mode == Agg {
		p0 = sim.Keep
	}
	if d.TargetPrefill != p0 || d.TargetDecode != d0 || d.NextTickMs != want.Runtime.Next {
		fail("decision", []any{d.TargetPrefill, d.TargetDecode, d.NextTickMs}, []any{p0, d0, want.Runtime.Next})
	}
	if c := want.Input.Counts; got.Counts.ReadyDecode != c.ReadyDecode || got.Counts.ExpectedDecode != c.ExpectedDecode ||
		got.Counts.ReadyPrefill != target(c.ReadyPrefill) || got.Counts.ExpectedPrefill != target(c.ExpectedPrefill) {
		fail("counts", got.Counts, c)
	}
	sp, sd := Unset, Unset
	if s := want.Effects.ScaleTo; s != nil {
		sp, sd = target(s.P), target(s.D)
	}
	if got.ScaleToPrefill != sp || got.ScaleToDecode != sd {
		fail("scale_to", []int{got.ScaleToPrefill, got.ScaleToDecode}, []int{sp, sd})
	}
	for key, v := range map[string]float64{
		"estimated_ttft_ms": got.EstimatedTTFTMs, "estimated_itl_ms": got.EstimatedITLMs,
		"predicted_num_req": got.PredictedNumReq, "predicted_isl": got.PredictedISL, "predicted_osl": got.PredictedOSL,
		"predicted_kv_hit_rate": got.PredictedHitRate, "engine_rps_prefill": got.EngineRPSPrefill,
		"engine_rps_decode":              got.EngineRPSDecode,
		"throughput_lower_bound_prefill": float64(got.LowerBoundPrefill),
		"throughput_lower_bound_decode":  float64(got.LowerBoundDecode)} {
		ref, ok := want.Effects.Diagnostics[key].(float64)
		if ok == math.IsNaN(v) || ok && math.Abs(v-ref) > 0.01*math.Abs(ref) {
			fail(key, v, want.Effects.Diagnostics[key])
		}
		if ok && ref != 0 && os.Getenv("DIFF") != "" && math.Abs(v-ref) > 1e-9*math.Abs(ref) {
			t.Logf("t=%v %s %v %v rel %g", want.At/1000, key, v, ref, math.Abs(v-ref)/ref)
		}
	}
	for key, r := range map[string]Reason{
		"load_decision_reason": got.LoadReason, "load_decision_reason_prefill": got.LoadReasonPrefill,
		"load_decision_reason_decode": got.LoadReasonDecode, "throughput_decision_reason": got.ThroughputReason,
		"throughput_decision_reason_prefill": got.ThroughputReasonPrefill,
		"throughput_decision_reason_decode":  got.ThroughputReasonDecode} {
		if ref, _ := want.Effects.Diagnostics[key].(string); string(r) != ref {
			fail(key, r, ref)
		}
	}
}
