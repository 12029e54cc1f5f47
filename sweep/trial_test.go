package sweep

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// loaded is a small run under synthetic load.
func loaded(t *testing.T, load, stop string) *scenario.Run {
	t.Helper()
	text := `
engine:
  model: m
  hardware: h
  workers:
    aggregated:
      kv_cache: {block_size: 64, capacity: {type: fixed, blocks: 512}}
      timing: {type: polynomial}
traffic:
  source: {type: synthetic, input_tokens: 512, output_tokens: 32}
  load: ` + load + `
  stop: ` + stop + "\n"
	run, err := scenario.ParsePredict("p.yaml", "", []byte(text), scenario.PredictOptions{Stack: "engine"}, &scenario.Files{})
	if err != nil {
		t.Fatal(err)
	}
	return &run
}

func TestAPrefixIsARunOfItsRequests(t *testing.T) {
	for _, load := range []string{"{type: poisson, requests_per_second: 20}", "{type: constant_rate, requests_per_second: 20}", "{type: concurrency, concurrency: 8}"} {
		in := &Inputs{}
		whole, part := loaded(t, load, "{requests: 200}"), loaded(t, load, "{requests: 50}")
		tried := in.Try(context.Background(), []Trial{{Run: whole, Requests: 50}, {Run: part}, {Run: whole}}, 2, 0)
		for i, want := range []int64{50, 50, 200} {
			if tried[i].Err != nil || tried[i].Simulated != want {
				t.Fatalf("%s: trial %d: %d requests, %v", load, i, tried[i].Simulated, tried[i].Err)
			}
		}
		for _, key := range []string{"duration_ms", "mean_ttft_ms", "mean_e2e_latency_ms", "output_throughput_tok_s", "gpu_hours"} {
			a, _ := tried[0].Outcome.Summary.Get(key)
			b, _ := tried[1].Outcome.Summary.Get(key)
			if a != b {
				t.Errorf("%s: %s of a prefix is %v, of so many requests %v", load, key, a, b)
			}
		}
	}
}

func TestTrialsEndAlone(t *testing.T) {
	in := &Inputs{}
	run := loaded(t, "{type: poisson, requests_per_second: 20}", "{requests: 20000}")
	asked := 0
	trials := []Trial{
		{Run: run, ShouldStop: func(nowMs float64) bool { asked++; return nowMs > 1000 }},
		{Run: run, Timeout: time.Nanosecond},
		{Run: loaded(t, "{type: concurrency, concurrency: 2}", "{requests: 4}")},
	}
	tried := in.Try(context.Background(), trials, 1, 0)
	if !tried[0].Stopped || tried[0].Simulated >= 20000 || asked == 0 {
		t.Errorf("hopeless: %+v", tried[0])
	}
	if !tried[1].TimedOut || !strings.Contains(tried[1].Err.Error(), "did not end within 1ns") {
		t.Errorf("timeout: %+v", tried[1])
	}
	if tried[2].Err != nil {
		t.Errorf("the others: %v", tried[2].Err)
	}
	if e := in.Try(context.Background(), trials[2:], 1, 1<<20)[0].Err; e == nil || !strings.Contains(e.Error(), "1 MiB are free") {
		t.Errorf("memory: %v", e)
	}
}

func TestExpertsAreToldFromTheModel(t *testing.T) {
	for model, want := range map[string]bool{"Qwen/Qwen3-32B": false, "Qwen/Qwen3-30B-A3B": true} {
		moe, err := (&Inputs{}).Experts(scenario.AICRequest{Model: model, System: "h200_sxm", Backend: "vllm"})
		if err != nil || moe != want {
			t.Errorf("%s: %v %v", model, moe, err)
		}
	}
}

func TestPredictorsAreRankedByTheirForecasts(t *testing.T) {
	// Requests per window: a ramp, on which repeating the last value is always late.
	var b strings.Builder
	for w := 0; w < 40; w++ {
		for i := 0; i <= 2*w; i++ {
			b.WriteString(`{"timestamp":` + strconv.Itoa(w*1000+i) + `,"input_length":512,"output_length":8,"hash_ids":[1]}` + "\n")
		}
	}
	path := filepath.Join(t.TempDir(), "ramp.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	trace := &scenario.Trace{Paths: []string{path}, Load: trace.DefaultLoadOptions(trace.Mooncake)}
	constant := planner.PredictorConfig{Kind: "constant"}
	kalman := planner.PredictorConfig{Kind: "kalman", KalmanQLevel: 10, KalmanQTrend: 1, KalmanR: 5, KalmanMinPoints: 3}
	in := &Inputs{}
	best, why, err := in.BestPredictor(trace, 1, []planner.PredictorConfig{constant, kalman})
	if err != nil || best != 1 || !strings.Contains(why, "on 40 windows of 1 s") {
		t.Errorf("best %d, %q, %v", best, why, err)
	}
	if best, _, err := in.BestPredictor(trace, 3600, []planner.PredictorConfig{kalman, constant}); err != nil || best != 0 {
		t.Errorf("one window: best %d, %v", best, err)
	}
	if loss := forecastLoss(constant, make([]trafficWindow, 3), 3); !math.IsInf(loss, 1) {
		t.Errorf("no window after the warm-up: %v", loss)
	}
}
