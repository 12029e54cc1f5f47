package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/safetext"
	"github.com/dynosweep/dynosweep/sweep/recommend"
)

// runProgram runs the whole program in this process.
func runProgram(args ...string) (stdout, stderr string, code int) {
	var out, talk bytes.Buffer
	err := run(context.Background(), &out, &talk, append([]string{"dynosweep"}, args...))
	if err != nil {
		fmt.Fprintln(safetext.NewWriter(&talk), err)
	}
	return out.String(), talk.String(), exitCode(err)
}

// searchFile is an AISimulate file with a search over it.
func searchFile(t *testing.T, goal string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "search.yaml")
	text := `
engine:
  mode: aggregated
  model: Qwen/Qwen3-32B
  hardware: h200_sxm
  backend: vllm
  workers:
    aggregated:
      parallelism: {replicas: {choices: [1, 2, 4]}, tensor: {choices: [1, 2]}}
      scheduler: {max_batched_tokens: {choices: [2048, 8192]}, max_sequences: {choices: [64, 256]}}
      kv_cache: {block_size: 64, capacity: {type: fixed, blocks: 4096}}
      timing: {type: polynomial}
traffic:
  source: {type: synthetic, input_tokens: 1024, output_tokens: 32}
  load: {type: concurrency, concurrency: 8}
  stop: {requests: 64}
cost: {usd_per_gpu_hour: {h200_sxm: 3.5}}
optimizer: {algorithm: grid}
` + goal
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// recommendedOne is a candidate of recommendation.json.
type recommendedOne struct {
	ID      string             `json:"candidate_id"`
	Status  string             `json:"status"`
	GPUs    int                `json:"used_gpus"`
	Score   *float64           `json:"score"`
	Metrics map[string]float64 `json:"metrics"`
	Reason  *string            `json:"reason"`
}

// recommended is recommendation.json.
type recommended struct {
	Counts     map[string]int   `json:"counts"`
	Candidates []recommendedOne `json:"candidates"`
	Views      struct {
		Top   []string `json:"top_n"`
		Front []string `json:"pareto_front"`
	} `json:"views"`
	Provenance struct {
		Halving struct {
			Simulated int64 `json:"simulated_requests"`
			Grid      int64 `json:"grid_requests"`
		} `json:"halving"`
	} `json:"provenance"`
}

// mustRecommend runs a search that has to end with an exit code.
func mustRecommend(t *testing.T, want int, path string, more ...string) (recommended, string, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	out, talk, code := runProgram(append([]string{"recommend", "-c", path, "--output-dir", dir, "--quiet"}, more...)...)
	if code != want {
		t.Fatalf("exit %d, want %d\n%s%s", code, want, out, talk)
	}
	var doc recommended
	text, err := os.ReadFile(filepath.Join(dir, "recommendation.json"))
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc, dir, out + talk
}

func TestRecommendWritesWhatPredictTakes(t *testing.T) {
	path := searchFile(t, "optimization: {target: throughput_per_gpu}\n")
	doc, dir, out := mustRecommend(t, 0, path)
	if doc.Counts["evaluated"] != 24 || doc.Counts["feasible"] != 24 || len(doc.Views.Top) != 10 || len(doc.Views.Front) == 0 {
		t.Errorf("counts %v, %d on top, %d on the front", doc.Counts, len(doc.Views.Top), len(doc.Views.Front))
	}
	if !strings.HasPrefix(out, "AISimulate recommendations\n1 throughput_per_gpu=") {
		t.Errorf("printed %q", out)
	}
	f, err := os.Open(filepath.Join(dir, "recommendation.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 25 || strings.Join(rows[0], ",") != "schema_version,candidate_id,status,reason_category,reason,used_gpus,score,config_json,prediction_config_json,metrics_json,objectives_json,provenance_json,is_top_n,is_pareto" {
		t.Errorf("%d rows, head %v: %v", len(rows), rows[0], err)
	}
	best := slices.IndexFunc(rows, func(r []string) bool { return r[1] == doc.Views.Top[0] })
	pred := filepath.Join(t.TempDir(), "p")
	if out, talk, code := runProgram("predict", "-c", filepath.Join(dir, "recommendations", "0001.yaml"), "--output-dir", pred); code != 0 {
		t.Fatalf("predict: exit %d\n%s%s", code, out, talk)
	}
	text, err := os.ReadFile(filepath.Join(pred, "prediction.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report map[string]any
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	var metrics map[string]float64
	if err := json.Unmarshal([]byte(rows[best][9]), &metrics); err != nil || report["mean_ttft_ms"] != metrics["mean_ttft_ms"] {
		t.Errorf("predict reports %v, recommend %v (%v)", report["mean_ttft_ms"], metrics["mean_ttft_ms"], err)
	}
}

func TestRecommendTwiceIsTheSameBytes(t *testing.T) {
	path := searchFile(t, "optimization: {target: pareto}\n")
	read := func(more ...string) []byte {
		_, dir, _ := mustRecommend(t, 0, path, append(more, "--set", "optimizer.algorithm=random", "--set", "optimizer.max_trials=10")...)
		text, err := os.ReadFile(filepath.Join(dir, "recommendation.json"))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if a, b := read("--jobs", "1"), read("--jobs", "4"); !bytes.Equal(a, b) {
		t.Error("one and four jobs write different files")
	}
}

func TestAnSLAThatNothingMeetsIsToldAndNeverRelaxed(t *testing.T) {
	for goal, status := range map[string]string{
		"optimization: {target: throughput, strict_sla: true}\nevaluation: {sla: {ttft_ms: 1, itl_ms: 50}}\n": "infeasible",
		"optimization: {target: throughput}\nevaluation: {sla: {ttft_ms: 1, itl_ms: 50}}\n":                   "feasible",
		"optimization: {target: goodput}\nevaluation: {sla: {ttft_ms: 1, itl_ms: 50}}\n":                      "feasible",
	} {
		doc, dir, out := mustRecommend(t, 1, searchFile(t, goal))
		if doc.Candidates[0].Status != status || len(doc.Views.Top) != 0 {
			t.Errorf("%s: status %s, %d recommended", goal, doc.Candidates[0].Status, len(doc.Views.Top))
		}
		for _, want := range []string{"no candidate meets the SLA; the nearest are", "misses 1 ms by", "(prefill), mean ITL", "meets 50 ms"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", goal, want, out)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "recommendations")); err == nil {
			t.Errorf("%s: files were recommended", goal)
		}
	}
}

func TestLeastDeploymentForAGoodput(t *testing.T) {
	sla := "evaluation: {sla: {ttft_ms: 2000, itl_ms: 50}}\n"
	doc, _, _ := mustRecommend(t, 0, searchFile(t, "optimization: {target: min_gpus, constraints: {min_goodput_rps: 25}}\n"+sla))
	least := 1 << 20
	for _, c := range doc.Candidates {
		if c.Metrics["goodput_request_throughput_rps"] >= 25 {
			least = min(least, c.GPUs)
		} else if c.Status != "infeasible" {
			t.Errorf("%s misses the goodput and is %s", c.ID, c.Status)
		}
	}
	first := slices.IndexFunc(doc.Candidates, func(c recommendedOne) bool { return c.ID == doc.Views.Top[0] })
	if got := doc.Candidates[first].GPUs; got != least || least < 2 {
		t.Errorf("recommended %d GPUs, the least is %d", got, least)
	}
	cost, _, _ := mustRecommend(t, 0, searchFile(t, "optimization: {target: min_cost, constraints: {min_goodput_rps: 25}}\n"+sla))
	if cost.Views.Top[0] == "" || cost.Candidates[0].Metrics["cost_usd"] <= 0 || cost.Candidates[0].Metrics["usd_per_hour"] < 3.49 {
		t.Errorf("cost figures %v", cost.Candidates[0].Metrics)
	}
}

func TestRecommendRefusals(t *testing.T) {
	path := searchFile(t, "optimization: {target: throughput}\n")
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-c", path, "--set", "optimization.targt=1"}, "optimization.targt: unknown field `targt`"},
		{[]string{"-c", path, "--set", "optimizer.max_trials=5"}, "the grid has 24 candidates, max_trials is 5"},
		{[]string{"-c", path, "--stack", "other"}, "--stack"},
		{[]string{"-c", path, "--format", "xml"}, "--format must be table or json"},
		{[]string{"-c", path, "--output-dir", full}, "mine.txt"},
		{[]string{"-c", "nowhere.yaml"}, "nowhere.yaml"},
	} {
		args := append([]string{"recommend"}, c.args...)
		if !slices.Contains(args, "--output-dir") {
			args = append(args, "--output-dir", filepath.Join(t.TempDir(), "o"))
		}
		if out, talk, code := runProgram(args...); code != 2 || !strings.Contains(talk, c.want) {
			t.Errorf("%v: exit %d\n%s%s", c.args, code, out, talk)
		}
	}
}

func TestOneAbsurdCandidateIsRefusedAlone(t *testing.T) {
	path := searchFile(t, "optimization: {target: throughput}\n")
	doc, _, _ := mustRecommend(t, 0, path, "--set", "traffic.load={type: kv_capacity_fraction, fraction: {choices: [0.01, 90000]}}",
		"--set", "traffic.stop={requests_per_load_unit: 4}")
	if doc.Counts["unsupported"] != 24 || doc.Counts["feasible"] != 24 {
		t.Fatalf("counts %v", doc.Counts)
	}
	for _, c := range doc.Candidates {
		if c.Status == "unsupported" && !strings.Contains(*c.Reason, "optimizer.max_candidate_requests is 5000000") {
			t.Errorf("%s: %s", c.ID, *c.Reason)
		}
	}
}

// space500 is a space of 500 aggregated deployments under Poisson load that only the
// larger ones can bear: on a prefix the small ones look best.
const space500 = `
engine:
  mode: aggregated
  model: m
  hardware: h
  backend: vllm
  workers:
    aggregated:
      parallelism: {replicas: {choices: [2, 3, 4, 6, 8]}, tensor: 1}
      scheduler: {max_batched_tokens: {choices: [512, 1024, 2048, 4096, 8192]}, max_sequences: {choices: [4, 8, 16, 64]}}
      kv_cache: {block_size: 64, capacity: {type: fixed, blocks: 512}}
      timing: {type: polynomial}
traffic:
  source: {type: synthetic-session, new_input_tokens_per_turn: 2048, output_tokens_per_turn: 64, session: {turns: 2, shared_prefix_ratio: 0.5, prefix_groups: 4, inter_turn_delay_ms: 100}}
  load: {type: poisson, sessions_per_second: 5, seed: $SEED}
  stop: {sessions: $SESSIONS}
router:
  policy: {choices: [round_robin, kv_router]}
  overlap_score_credit: {choices: [0.5, 1]}
  prefill_load_scale: {choices: [1, 4]}
  temperature: 0
  prefill_load_model: {type: none}
evaluation: {sla: {ttft_ms: 1500, itl_ms: 40}}
optimization: {target: $TARGET}
optimizer: {algorithm: $ALGORITHM, seed: $SEED}
`

// halvingAgainstGrid returns the share of the grid's requests that halving
// simulated, and how far its winner's score is below the grid's.
func halvingAgainstGrid(t *testing.T, target string, seed, sessions int) (share, regret float64) {
	t.Helper()
	search := func(algorithm string) (recommended, float64) {
		text := strings.NewReplacer("$SEED", fmt.Sprint(seed), "$SESSIONS", fmt.Sprint(sessions), "$TARGET", target, "$ALGORITHM", algorithm).Replace(space500)
		path := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		doc, _, _ := mustRecommend(t, 0, path, "--stack", "dynamo")
		for _, c := range doc.Candidates {
			if c.ID == doc.Views.Top[0] {
				return doc, *c.Score
			}
		}
		t.Fatal("no winner")
		return doc, 0
	}
	grid, best := search("grid")
	if len(grid.Candidates) != 500 {
		t.Fatalf("%d candidates", len(grid.Candidates))
	}
	halved, found := search("halving")
	regret = (best - found) / max(best, -best)
	return float64(halved.Provenance.Halving.Simulated) / float64(halved.Provenance.Halving.Grid), regret
}

func TestHalvingFindsTheGridsWinner(t *testing.T) {
	targets, seeds, sessions := []string{"goodput_per_gpu"}, 1, 60
	if os.Getenv("DYNOSWEEP_LONG") != "" {
		targets, seeds, sessions = []string{"goodput_per_gpu", "goodput", "throughput_per_gpu", "e2e_latency"}, 10, 400
	}
	for _, target := range targets {
		for seed := 1; seed <= seeds; seed++ {
			share, regret := halvingAgainstGrid(t, target, seed, sessions)
			t.Logf("%s seed %d: %.1f%% of the grid's requests, winner %.3f%% below the grid's", target, seed, 100*share, 100*regret)
			if share > 0.25 || regret > 0.01 {
				t.Errorf("%s seed %d: share %.3f, regret %.4f", target, seed, share, regret)
			}
		}
	}
}

// A prefix of an agentic load is what its plays release first; the whole runs decide.
func TestHalvingTakesAgenticTraces(t *testing.T) {
	dir := t.TempDir()
	var rows strings.Builder
	for p := range 60 {
		for n, wait := range []string{"", fmt.Sprintf(`,"wait_for":["p%d.0"],"tool_wait_ms":40`, p), fmt.Sprintf(`,"wait_for":["p%d.1"]`, p)} {
			fmt.Fprintf(&rows, `{"request_id":"p%d.%d","session_id":"s%d","timestamp":%d,"input_length":%d,"output_length":24,"hash_ids":[%d%s]%s}`+"\n",
				p, n, p, 60*p, 1024*(n+1), p, strings.Repeat(fmt.Sprintf(",%d", p), 2*n+1), wait)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "plays.jsonl"), []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(space500, "traffic:")
	text = strings.NewReplacer("[512, 1024, 2048, 4096, 8192]", "[512, 4096]").Replace(text) + `
traffic:
  source: {type: trace, paths: [plays.jsonl], format: agentic_mooncake}
  load: {type: trace_timestamps}
optimization: {target: e2e_latency}
`
	path := filepath.Join(dir, "s.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	best := map[string]float64{}
	for _, algorithm := range []string{"grid", "halving"} {
		doc, _, _ := mustRecommend(t, 0, path, "--set", "optimizer.algorithm="+algorithm)
		for _, c := range doc.Candidates {
			if c.ID == doc.Views.Top[0] {
				best[algorithm] = *c.Score
			}
		}
		if h := doc.Provenance.Halving; algorithm == "halving" && (h.Grid != 40*180 || h.Simulated > h.Grid/4) {
			t.Errorf("halving simulated %d of %d requests", h.Simulated, h.Grid)
		}
	}
	if best["halving"] != best["grid"] {
		t.Errorf("the best scores %v, by halving %v", best["grid"], best["halving"])
	}
}

func TestTargetsHaveOneListOfNames(t *testing.T) {
	for _, name := range recommend.Targets {
		goal := "optimization: {target: " + name + ", constraints: {min_goodput_rps: 0.1}}\nevaluation: {sla: {ttft_ms: 5000, itl_ms: 500}}\n"
		if doc, _, _ := mustRecommend(t, 0, searchFile(t, goal), "--set", "optimizer.algorithm=random", "--set", "optimizer.max_trials=2"); doc.Counts["feasible"] != 2 {
			t.Errorf("target %s: %v", name, doc.Counts)
		}
	}
}
