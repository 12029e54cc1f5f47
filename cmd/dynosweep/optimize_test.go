package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/recommend"
	"github.com/dynosweep/dynosweep/sweep/scenario"
	"github.com/dynosweep/dynosweep/sweep/scenario/optimizer"
)

// fixedAt is the engine arguments of spec sweeps-and-schema 4.7 C at a size.
func fixedAt(tp int) string {
	return fmt.Sprintf(`{"block_size": 64, "num_gpu_blocks": 4096, "timing_model": {"type": "fixed", "prefill_ms": %v, "decode_ms": %v}}`,
		40/float64(tp), 8/float64(tp))
}

// optimizeDoc is a specification with the load of that example.
func optimizeDoc(engine, rest string) string {
	return fmt.Sprintf(`{"engine": {"model": "Qwen/Qwen3-32B", "backend": "vllm", %s}, "hardware": {"gpuSku": "h200_sxm", "totalGpus": 4},
 "workload": {"isl": 1024, "osl": 32, "requestCount": 64, "concurrency": 16}, "router": {"mode": "round_robin"}%s}`, engine, rest)
}

// runFixed runs every state with the timing of its own sizes.
func runFixed(t *testing.T) func(context.Context, []recommend.State) []recommend.Result {
	runner := candidateRunner{in: &sweep.Inputs{}, jobs: 2}
	return func(ctx context.Context, states []recommend.State) []recommend.Result {
		out := make([]recommend.Result, len(states))
		for i, s := range states {
			engine := `"baseEngineArgs": ` + fixedAt(s.DecodeTP)
			if !s.Aggregated() {
				engine = `"basePrefillEngineArgs": ` + fixedAt(s.PrefillTP) + `, "baseDecodeEngineArgs": ` + fixedAt(s.DecodeTP)
			}
			o, err := optimizer.Parse("o.json", "", []byte(optimizeDoc(engine, "")), &scenario.Files{})
			if err != nil {
				t.Fatal(err)
			}
			out[i] = recommend.StateRunner(o, runner)(ctx, states[i:i+1])[0]
		}
		return out
	}
}

// figure compares figures printed to so many decimals.
func figure(t *testing.T, r *recommend.Row, key string, want, within float64) {
	t.Helper()
	got, ok := r.Figures.Get(key)
	if !ok || math.Abs(got-want) > within {
		t.Errorf("%v: %s %v, want %v", r.State, key, got, want)
	}
}

// Spec sweeps-and-schema 4.7 C.
func TestOptimizerOnTheEngineDisaggregated(t *testing.T) {
	space := recommend.Space{TotalGPUs: 4, PrefillTP: []int{1, 2}, DecodeTP: []int{1, 2}, Routers: []recommend.RouterState{recommend.RoundRobin}}
	goal := recommend.Goal{Objective: recommend.MeanE2ELatency, Bounds: []recommend.Bound{{Key: "mean_ttft_ms", Limit: 400}, {Key: "mean_tpot_ms", Limit: 12}}}
	w, err := recommend.Optimize(context.Background(), space, goal, runFixed(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ ptp, dtp, pw, dw, gpus, tps, ttft, tpot, e2e float64 }{
		{1, 1, 2, 2, 4, 1729.729730, 48, 8, 296},
		{1, 2, 1, 1, 3, 2876.404494, 49, 4, 173},
		{2, 1, 1, 1, 3, 1796.491228, 34, 8, 282},
		{2, 2, 1, 1, 4, 3346.405229, 26.5, 4, 150.5},
	}
	if len(w.Rows) != len(want) || len(w.Feasible()) != len(want) {
		t.Fatalf("%d states, %d feasible", len(w.Rows), len(w.Feasible()))
	}
	for i, c := range want {
		r := &w.Rows[i]
		s := r.State
		if got := [...]float64{float64(s.PrefillTP), float64(s.DecodeTP), float64(s.PrefillWorkers), float64(s.DecodeWorkers), float64(r.GPUs)}; got != [...]float64{c.ptp, c.dtp, c.pw, c.dw, c.gpus} {
			t.Errorf("state %d: %v", i, got)
		}
		figure(t, r, "output_throughput_tok_s", c.tps, 1e-6)
		figure(t, r, "mean_ttft_ms", c.ttft, 1e-9)
		figure(t, r, "mean_tpot_ms", c.tpot, 1e-9)
		figure(t, r, "mean_e2e_latency_ms", c.e2e, 1e-9)
	}
	if best, _ := w.Best(); best.State != w.Rows[3].State {
		t.Errorf("winner %+v", best.State)
	}
	if n := len(w.Columns()); n != 93 {
		t.Errorf("%d columns, want 93", n)
	}
}

// Spec sweeps-and-schema 4.7 D.
func TestOptimizerOnTheEngineAggregated(t *testing.T) {
	space := recommend.Space{Aggregated: true, TotalGPUs: 4, DecodeTP: []int{1, 2, 4}, Routers: []recommend.RouterState{recommend.RoundRobin}}
	for _, c := range []struct {
		ttft, itl      float64
		best, nearest  int // tensor parallel size, 0: none
		feasible       int
		penalty        [3]float64
		penaltiesExact bool
	}{
		{0, 0, 4, 0, 3, [3]float64{}, true},
		{30, 5, 4, 1, 2, [3]float64{0.9333333333333333, 0, 0}, true},
		{1, 1, 0, 4, 0, [3]float64{46, 22, 14.152217741935482}, false},
	} {
		goal := recommend.Goal{}
		for _, b := range []recommend.Bound{{Key: "mean_ttft_ms", Limit: c.ttft}, {Key: "mean_tpot_ms", Limit: c.itl}} {
			if b.Limit > 0 {
				goal.Bounds = append(goal.Bounds, b)
			}
		}
		w, err := recommend.Optimize(context.Background(), space, goal, runFixed(t))
		if err != nil {
			t.Fatal(err)
		}
		want := []struct{ tp, workers, tps, ttft, tpot, e2e, hours float64 }{
			{1, 4, 1777.777777777778, 40, 8, 288, 0.00128},
			{2, 2, 3555.555555555556, 20, 4, 144, 0.00064},
			{4, 1, 5417.989417989418, 13.5625, 2.5897177419354827, 93.84375, 0.00042},
		}
		if len(w.Rows) != len(want) || len(w.Feasible()) != c.feasible {
			t.Fatalf("%d states, %d feasible", len(w.Rows), len(w.Feasible()))
		}
		for i, v := range want {
			r := &w.Rows[i]
			if float64(r.State.DecodeTP) != v.tp || float64(r.State.DecodeWorkers) != v.workers {
				t.Errorf("state %d: %+v", i, r.State)
			}
			figure(t, r, "output_throughput_tok_s", v.tps, 1e-9)
			figure(t, r, "mean_ttft_ms", v.ttft, 1e-12)
			figure(t, r, "mean_tpot_ms", v.tpot, 1e-12)
			figure(t, r, "mean_e2e_latency_ms", v.e2e, 1e-12)
			figure(t, r, "gpu_hours", v.hours, 1e-15)
			if math.Abs(r.Penalty-c.penalty[i]) > 1e-12 {
				t.Errorf("bounds %v/%v, tp %v: penalty %v, want %v", c.ttft, c.itl, v.tp, r.Penalty, c.penalty[i])
			}
		}
		best, _ := w.Best()
		nearest, _ := w.BestInfeasible()
		if best.State.DecodeTP != c.best || nearest.State.DecodeTP != c.nearest {
			t.Errorf("bounds %v/%v: best tp %d, nearest tp %d", c.ttft, c.itl, best.State.DecodeTP, nearest.State.DecodeTP)
		}
		if n := len(w.Columns()); n != 91 {
			t.Errorf("%d columns, want 91", n)
		}
	}
}

func TestOptimizerSpecificationRuns(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "o.json")
	both := `"baseEngineArgs": ` + fixedAt(1) + `, "basePrefillEngineArgs": ` + fixedAt(1) + `, "baseDecodeEngineArgs": ` + fixedAt(1)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(optimizeDoc(both, `, "objective": "throughput", "sla": {"p95Itl": 9, "bounds": {"p99_ttft_ms": 5000}}`))
	out, stderr, code := runProgram("recommend", "-c", path, "--output-dir", filepath.Join(dir, "out"))
	if code != 0 || !strings.Contains(out, "chosen_mode: agg") {
		t.Fatalf("exit %d\n%s%s", code, out, stderr)
	}
	f, err := os.Open(filepath.Join(dir, "out", "agg_evaluated.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 4 || len(rows[0]) != 92 || !slices.Contains(rows[0], "violation_penalty") {
		t.Fatalf("%d rows of %d columns: %v", len(rows), len(rows[0]), err)
	}

	out, _, _ = runProgram("recommend", "-c", path, "--output-dir", filepath.Join(dir, "json"), "--format", "json")
	var doc map[string]struct {
		Evaluated int
		Feasible  []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc["agg"].Evaluated < 3 || len(doc["agg"].Feasible) == 0 || doc["disagg"].Feasible[0]["total_gpus_used"] == nil {
		t.Errorf("--format json: %v\n%s", err, out)
	}

	write(optimizeDoc(both, `, "sla": {"ttft": 1}`))
	_, stderr, code = runProgram("recommend", "-c", path, "--output-dir", filepath.Join(dir, "none"))
	if code != 1 || !strings.Contains(stderr, "sla.ttft: mean_ttft_ms") {
		t.Errorf("bounds that nothing meets: exit %d\n%s", code, stderr)
	}
	write(optimizeDoc(both, `, "sla": {"bounds": {"p99_ttf_ms": 1}}, "objectiv": "throughput"`))
	_, stderr, code = runProgram("recommend", "-c", path, "--output-dir", filepath.Join(dir, "bad"))
	for _, want := range []string{"o.json:2: objectiv: unknown field", "sla.bounds.p99_ttf_ms: no figure of the report (did you mean `p99_ttft_ms`?)"} {
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, %q is not in\n%s", code, want, stderr)
		}
	}
}
