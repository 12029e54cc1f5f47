package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// caseFile is a file of testdata/cases.
func caseFile(elem ...string) string {
	return filepath.Join(append([]string{"testdata", "cases"}, elem...)...)
}

// mustPredict runs a document that has to end well, and returns prediction.json.
func mustPredict(t *testing.T, path string, more ...string) map[string]any {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	out, talk, code := runProgram(append([]string{"predict", "-c", path, "--output-dir", dir, "--quiet"}, more...)...)
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, talk)
	}
	text, err := os.ReadFile(filepath.Join(dir, "prediction.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report map[string]any
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	return report
}

func scores(doc recommended) (out []float64) {
	for _, id := range doc.Views.Top {
		i := slices.IndexFunc(doc.Candidates, func(c recommendedOne) bool { return c.ID == id })
		out = append(out, *doc.Candidates[i].Score)
	}
	return out
}

func TestWidthsOfExpertsMeanNothingToDenseModels(t *testing.T) {
	doc, _, _ := mustRecommend(t, 0, caseFile("dense-moe-widths", "case.yaml"))
	if got := scores(doc); !slices.Equal(got, []float64{2000, 1000}) {
		t.Errorf("scores %v, want 2000 and 1000", got)
	}
	text, err := os.ReadFile(caseFile("dense-moe-widths", "case.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	moe := filepath.Join(t.TempDir(), "moe.yaml")
	if err := os.WriteFile(moe, bytes.Replace(text, []byte("tiny-dense"), []byte("Qwen/Qwen3-30B-A3B"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	doc, _, _ = mustRecommend(t, 0, moe)
	if doc.Counts["feasible"] != 1 || doc.Counts["unsupported"] != 1 {
		t.Errorf("a model with experts: %v, want the wrong widths refused", doc.Counts)
	}
}

func TestEveryPolicyTakesNoPrefillLoadModel(t *testing.T) {
	doc, _, _ := mustRecommend(t, 0, caseFile("round-robin", "case.yaml"), "--stack", "dynamo")
	if got := scores(doc); len(got) != 2 || got[0] != 2000 {
		t.Errorf("scores %v, want 2000 first", got)
	}
	mustPredict(t, caseFile("round-robin", "predict.yaml"), "--stack", "dynamo")
	for _, set := range []string{"router.prefill_load_model.type=ais", "router.prefill_load_model.type={choices: [none, ais]}"} {
		_, talk, code := runProgram("recommend", "-c", caseFile("round-robin", "case.yaml"), "--stack", "dynamo", "--output-dir", t.TempDir(), "--set", set)
		if code != 2 || !strings.Contains(talk, "router.prefill_load_model: prefill_load_model belongs to policy kv_router") {
			t.Errorf("%s: exit %d: %s", set, code, talk)
		}
	}
}

func TestASearchWithoutCandidatesNamesTheReason(t *testing.T) {
	text, err := os.ReadFile(caseFile("no-data", "case.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	disaggregated := strings.NewReplacer("gb300", "h200_sxm", "mode: aggregated", "mode: disaggregated", "max_candidate_gpus: 8", "max_candidate_gpus: 1",
		"aggregated: {parallelism: {preset: default}}", "{prefill: {}, decode: {}}")
	for _, c := range []struct{ name, text, want string }{
		{"no data", string(text), "case.yaml:8: engine.hardware: the embedded data does not hold vllm 0.24.0 on gb300"},
		{"no data of two backends", strings.Replace(string(text), "backend: vllm", "backend: {choices: [vllm, sglang]}", 1), "on gb300"},
		{"unknown model", strings.Replace(string(text), "openai/gpt-oss-120b", "openai/gpt-9", 1), `case.yaml:7: engine.model: unknown model "openai/gpt-9"`},
		{"two roles, one GPU", strings.Replace(disaggregated.Replace(string(text)), "workers:\n    ", "workers: ", 1), "disaggregated needs at least 2 GPUs, max_candidate_gpus is 1"},
		{"no room", strings.NewReplacer("gb300", "h200_sxm", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3", "max_candidate_gpus: 8", "max_candidate_gpus: 1").Replace(string(text)), "estimate of KV blocks"},
	} {
		path := filepath.Join(t.TempDir(), "case.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, talk, code := runProgram("recommend", "-c", path, "--output-dir", t.TempDir())
		if code != 2 || !strings.Contains(talk, c.want) || strings.Contains(talk, "no candidate fits") {
			t.Errorf("%s: exit %d: %s", c.name, code, talk)
		}
	}
}

func TestEveryBackendTakesANumericContextLength(t *testing.T) {
	report := mustPredict(t, caseFile("context-length", "case.yaml"))
	if report["duration_ms"] != 12.0 || report["output_throughput_tok_s"] != 2000.0 {
		t.Errorf("duration %v ms, %v tokens/s, want 12 and 2000", report["duration_ms"], report["output_throughput_tok_s"])
	}
}

// AISimulate 0.13 prices the query and key norms of a decode step, DynoSim 1.6.1 with core
// 0.12 does not: 1.690952 ms a step for this model (spec aic-perfmodel 14).
func TestPredictPricesQueryAndKeyNorms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte(`
traffic: {source: {type: synthetic, input_tokens: 512, output_tokens: 11}, load: {type: concurrency, concurrency: 1}, stop: {requests: 1}}
engine: {model: Qwen/Qwen3-32B, hardware: h200_sxm, workers: {aggregated: {kv_cache: {capacity: {type: fixed, blocks: 4096}}}}}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	itl := func(more ...string) float64 { return mustPredict(t, path, more...)["mean_itl_ms"].(float64) }
	on, off := itl(), itl("--set", "engine.workers.aggregated.timing.decode_qk_norm=false")
	if d := on - off; math.Abs(d-1.690952) > 1e-5 {
		t.Errorf("mean ITL %v ms, without norms %v ms: %v apart", on, off, d)
	}
	report := filepath.Join(t.TempDir(), "r.json")
	if _, talk, code := runProgram("replay", "--input-tokens", "512", "--output-tokens", "11", "--request-count", "1", "--replay-concurrency", "1", "--report-json", report,
		"--extra-engine-args", `{"num_gpu_blocks":4096,"aic_backend":"vllm","aic_system":"h200_sxm","aic_model_path":"Qwen/Qwen3-32B"}`); code != 0 {
		t.Fatalf("exit %d: %s", code, talk)
	}
	var replayed map[string]any
	readJSON(t, report, &replayed)
	if replayed["mean_itl_ms"] != off {
		t.Errorf("replay says %v ms, predict without norms %v", replayed["mean_itl_ms"], off)
	}
}

// A label or a file name may hold anything: it neither acts on a terminal nor computes in a
// spreadsheet.
func TestTextOfUsersDoesNotAct(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a\x1b[2Jb.yaml")
	if err := os.WriteFile(name, []byte("x: [\n"), 0o644); err != nil {
		t.Skip(err) // a file system without such names
	}
	if _, talk, code := runProgram("sweep", name, "--dry-run"); code != 2 || strings.Contains(talk, "\x1b") || !strings.Contains(talk, `a\x1b[2Jb.yaml:1`) {
		t.Errorf("exit %d: %q", code, talk)
	}
	table := filepath.Join(dir, "b.csv")
	if err := os.WriteFile(table, []byte("model,system,backend,parallel,phase,batch,length,note\nQwen/Qwen3-32B,h200_sxm,vllm,tp=1,decode,1,100,=HYPERLINK(1)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, talk, code := runProgram("perf", "step", "--batch", table)
	if code != 0 || !strings.Contains(out, "'=HYPERLINK(1)") {
		t.Errorf("exit %d: %s%s", code, out, talk)
	}
}

// A rejected request fails its play: the report names it, skips what waits for it, and
// settles the play when nothing of it is held any more.
func TestRejectionsFailTheirPlays(t *testing.T) {
	text, err := os.ReadFile(caseFile("agentic-rejections", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Case      string
		Args      []string
		Reference map[string]any
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) != 6 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, c := range cases {
		out := filepath.Join(t.TempDir(), "report.json")
		args := append([]string{"replay", caseFile("agentic-rejections", c.Args[0])}, c.Args[1:]...)
		if _, talk, code := runProgram(append(args, "--report-json", out)...); code != 0 {
			t.Errorf("%s: exit %d: %s", c.Case, code, talk)
			continue
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		var report map[string]any
		if err := json.Unmarshal(text, &report); err != nil {
			t.Fatal(err)
		}
		for key, want := range c.Reference {
			if !reflect.DeepEqual(report[key], want) {
				t.Errorf("%s: %s %v, want %v", c.Case, key, report[key], want)
			}
		}
	}
}

// Failed requests of a data set are left out and said to be, so that they neither count
// as served nor keep every point from its SLA.
func TestFailedRowsOfATableAreNoRequests(t *testing.T) {
	dir := t.TempDir()
	table := filepath.Join(dir, "b.jsonl")
	_, talk, code := runProgram("trace", "convert", "--format", "burstgpt", caseFile("burstgpt-failed", "requests.csv"), "--out", table)
	if code != 0 || !strings.Contains(talk, "2 requests, 512 tokens per hash id (--trace-block-size 512); 0 cut, 0 dropped, 2 failed\n") ||
		!strings.Contains(talk, "2 of 4 rows have no response tokens: failed requests in this data set; they are left out (--keep-failed keeps them)") {
		t.Fatalf("exit %d: %s", code, talk)
	}
	spec, err := os.ReadFile(caseFile("burstgpt-failed", "spec.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "spec.yaml"), spec, 0o644); err != nil {
		t.Fatal(err)
	}
	out, talk, code := runProgram("sweep", filepath.Join(dir, "spec.yaml"), "--out", filepath.Join(dir, "out"), "--quiet")
	if code != 0 || strings.Contains(out+talk, "No point meets the SLA") {
		t.Errorf("exit %d: %s%s", code, out, talk)
	}
	if _, talk, code := runProgram("trace", "stats", table, "--keep-failed"); code != 2 || !strings.Contains(talk, "--keep-failed goes with --format burstgpt") {
		t.Errorf("exit %d: %s", code, talk)
	}
}
