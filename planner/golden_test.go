package planner

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
)

// golden is a recorded run of the reference (its name stands in Origin): Planner
// configuration, engine arguments, and every tick with what went in and what came
// out, in the report's own keys.
type golden struct {
	Origin               string
	Config               map[string]any
	Agg, Prefill, Decode *goldenEngine
	Ticks                []map[string]any
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

// recordedTick is the part of a tick that goes in.
type recordedTick struct {
	Ordinal int
	AtMs    float64 `json:"at_ms"`
	Input   struct {
		Traffic *struct {
			DurationS float64 `json:"duration_s"`
			NumReq    float64 `json:"num_req"`
			ISL, OSL  float64
			Hit       float64  `json:"kv_hit_rate"`
			Accept    *float64 `json:"accept_length"`
		}
		FPM struct{ Prefill, Decode []recordedFPM } `json:"fpm_observations"`
	}
	Topology struct {
		Prefill, Decode struct{ Active, Starting, Draining []int32 }
	}
}

type recordedFPM struct {
	Worker  string `json:"worker_id"`
	Rank    int32  `json:"dp_rank"`
	Metrics struct {
		Wall      float64            `json:"wall_time"`
		Scheduled map[string]float64 `json:"scheduled_requests"`
		Queued    map[string]float64 `json:"queued_requests"`
	}
}

func rowsOf(list []recordedFPM) (out []FPM) {
	for _, g := range list {
		id, _ := strconv.Atoi(g.Worker)
		s, q := g.Metrics.Scheduled, g.Metrics.Queued
		out = append(out, FPM{Worker: int32(id), Rank: g.Rank, WallS: g.Metrics.Wall, Pass: sim.ForwardPass{
			PrefillRequests: int64(s["num_prefill_requests"]), PrefillTokens: int64(s["sum_prefill_tokens"]),
			PrefillKVTokens: int64(s["sum_prefill_kv_tokens"]), PrefillVar: s["var_prefill_length"],
			DecodeRequests: int64(s["num_decode_requests"]), DecodeKVTokens: int64(s["sum_decode_kv_tokens"]),
			DecodeVar: s["var_decode_kv_tokens"], QueuedPrefill: int64(q["num_prefill_requests"]),
			QueuedPrefillTokens: int64(q["sum_prefill_tokens"]), QueuedPrefillVar: q["var_prefill_length"],
			QueuedDecode: int64(q["num_decode_requests"]), QueuedDecodeKVTokens: int64(q["sum_decode_kv_tokens"]),
			QueuedDecodeVar: q["var_decode_kv_tokens"]}})
	}
	return out
}

// snapshot is the recorded input as a run would have shown it. Windows were merged
// when they were recorded, so each comes whole at the tick that consumed it.
func snapshot(t *testing.T, tick map[string]any) *sim.Snapshot {
	t.Helper()
	text, err := json.Marshal(tick)
	if err != nil {
		t.Fatal(err)
	}
	var r recordedTick
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	p, d := r.Topology.Prefill, r.Topology.Decode
	s := &sim.Snapshot{Ordinal: r.Ordinal, NowMs: r.AtMs,
		Prefill: sim.PoolSnapshot{Metrics: rowsOf(r.Input.FPM.Prefill), Active: p.Active, Starting: p.Starting, Draining: p.Draining},
		Decode:  sim.PoolSnapshot{Metrics: rowsOf(r.Input.FPM.Decode), Active: d.Active, Starting: d.Starting, Draining: d.Draining}}
	if w := r.Input.Traffic; w != nil {
		s.Traffic = sim.Traffic{DurationS: w.DurationS, Arrived: int64(w.NumReq), Completed: 1, AvgISL: w.ISL,
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
	text, err := json.Marshal(g.Config)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := ReadJSON("golden.json", text)
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
// Policy and compares the whole tick as the report writes it: schedule, input,
// targets, reasons. Model estimates may differ by the reference's own spread.
func TestRecordedTicksAreDecidedAlike(t *testing.T) {
	files, _ := filepath.Glob("testdata/goldens/*.json.gz")
	if len(files) < 10 {
		t.Fatalf("only %d recorded runs", len(files))
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".json.gz"), func(t *testing.T) {
			g := readGolden(t, name)
			p := goldenPolicy(t, g)
			for _, want := range g.Ticks {
				s := snapshot(t, want)
				d, err := p.Tick(s)
				if err != nil {
					t.Fatal(err)
				}
				var got map[string]any
				if err := json.Unmarshal(AppendTick(nil, &sim.TickRecord{Snapshot: s, Decision: d}), &got); err != nil {
					t.Fatal(err)
				}
				differences := compare("", got, want)
				for _, diff := range differences {
					t.Errorf("t=%v s %s", s.NowMs/1000, diff)
				}
			}
		})
	}
}

// tolerance is relative. In disagg_sla_spec_decode the prefill model knows two
// prompt lengths only; its features are collinear, and rounding decides between
// fits that lie 10 % apart (spec planner 13.6).
func tolerance(path string) float64 {
	switch {
	case strings.HasSuffix(path, "engine_rps_prefill"):
		return 0.11
	case strings.Contains(path, "engine_rps"), strings.Contains(path, "estimated"):
		return 1e-6
	}
	return 1e-9
}

func compare(path string, got, want any) (out []string) {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for _, key := range keysOf(g, w) {
			out = append(out, compare(path+"."+key, g[key], w[key])...)
		}
		return out
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return []string{fmt.Sprintf("%s: %v, reference %v", path, got, want)}
		}
		for i := range w {
			out = append(out, compare(path+"["+strconv.Itoa(i)+"]", g[i], w[i])...)
		}
		return out
	case float64:
		if g, ok := got.(float64); ok && math.Abs(g-w) <= tolerance(path)*math.Abs(w) {
			return nil
		}
	default:
		if got == want {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s: %v, reference %v", path, got, want)}
}

func keysOf(maps ...map[string]any) (out []string) {
	seen := map[string]bool{}
	for _, m := range maps {
		for k := range m {
			if !seen[k] {
				seen[k] = true
				out = append(out, k)
			}
		}
	}
	sort.Strings(out)
	return out
}
