package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// outputOf runs the program and returns what it prints.
func outputOf(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(context.Background(), &out, io.Discard, append([]string{"dynosweep"}, args...)); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out.String()
}

// figuresOf replays args and returns every figure of the report but wall time.
func figuresOf(t *testing.T, args ...string) map[string]any {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	outputOf(t, append(append([]string{"replay"}, args...), "--report-json", path)...)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]any{}
	if err := json.Unmarshal(raw, &figures); err != nil {
		t.Fatal(err)
	}
	for _, key := range append([]string{"provenance"}, notCompared...) {
		delete(figures, key)
	}
	return figures
}

func TestSynthesizedTraceReplaysLikeTheLoad(t *testing.T) {
	for _, load := range []string{
		"--input-tokens 2048 --output-tokens 32 --request-count 40 --request-rate 9.5",
		"--input-tokens 700 --output-tokens 17 --request-count 20 --arrival-interval-ms 33.3 --turns-per-session 3 --inter-turn-delay-ms 13.5 --shared-prefix-ratio 0.5 --num-prefix-groups 3",
		"--input-tokens 640 --output-tokens 9 --request-count 30 --replay-concurrency 4 --shared-prefix-ratio 0.9 --num-prefix-groups 2",
	} {
		flags := strings.Fields(load)
		path := filepath.Join(t.TempDir(), "load.jsonl")
		outputOf(t, append(append([]string{"trace", "synth"}, flags...), "--block-size", "64", "--out", path)...)
		again := []string{path, "--trace-block-size", "64", "--num-workers", "2"}
		if i := strings.Index(load, "--replay-concurrency"); i >= 0 {
			again = append(again, "--replay-concurrency", strings.Fields(load[i:])[1])
		}
		want, have := figuresOf(t, append(flags, "--num-workers", "2")...), figuresOf(t, again...)
		for key, v := range want {
			if !alike(have[key], v, 1e-12) {
				t.Errorf("%s: %s is %v, replayed %v", load, key, v, have[key])
			}
		}
	}
}

func TestTraceRefusesAWrongNumberOfGroups(t *testing.T) {
	_, talk, code := runProgram("trace", "stats", "--num-prefix-groups", "-1", local(t, "traces/conversation_500.jsonl"))
	if code != 2 || !strings.Contains(talk, "--num-prefix-groups: must be from 0 to 2147483647, got -1") {
		t.Errorf("exit %d, %s", code, talk)
	}
}

func TestConvertCutsAndSpeedsUp(t *testing.T) {
	trace := local(t, "traces/conversation_500.jsonl")
	cut := filepath.Join(t.TempDir(), "cut.jsonl")
	outputOf(t, "trace", "convert", trace, "--until-seconds", "60", "--speedup", "2", "--out", cut)
	var s struct {
		Requests   int64
		DurationMs float64 `json:"duration_ms"`
	}
	if err := json.Unmarshal([]byte(outputOf(t, "trace", "stats", cut, "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Requests < 50 || s.DurationMs > 30_000 {
		t.Errorf("%d requests over %v ms: want those of the first minute in half the time", s.Requests, s.DurationMs)
	}
	if !strings.Contains(outputOf(t, "trace", "stats", trace), "500 in 500 sessions") {
		t.Error("the table does not count 500 requests")
	}
}

// No verb that reads a file replaces or removes it.
func TestOutputsSpareWhatIsRead(t *testing.T) {
	dir := t.TempDir()
	trace, config, planner := filepath.Join(dir, "requests.jsonl"), filepath.Join(dir, "recommendations", "0001.yaml"), filepath.Join(dir, "planner.json")
	texts := map[string]string{
		trace:   `{"timestamp":0,"input_length":64,"output_length":2,"hash_ids":[1]}` + "\n",
		planner: `{"mode":"agg","optimization_target":"load","max_gpu_budget":4,"decode_scale_up_kv_rate":90,"decode_scale_down_kv_rate":70}`,
		config: "engine: {model: m, hardware: h200_sxm, backend: vllm, workers: {aggregated: {scheduler: {max_sequences: 8, max_batched_tokens: 512}," +
			" parallelism: {replicas: 1, tensor: 1}, kv_cache: {block_size: 64, capacity: {type: fixed, blocks: 99}}, timing: {type: fixed, prefill_ms: 1, decode_ms: 1}}}, mode: aggregated}\n" +
			"traffic: {source: {type: trace, paths: [../requests.jsonl], block_size: 64}, load: {type: trace_timestamps}}\n",
	}
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	search := filepath.Join(dir, "recommendations", "0002.yaml")
	texts[search] = texts[config] + "optimization: {}\n"
	elsewhere := filepath.Join(dir, "search.yaml")
	texts[elsewhere] = strings.Replace(texts[search], "../", "", 1)
	for path, text := range texts {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"trace", "convert", trace, "--block-size", "64", "--out", trace},
		{"replay", trace, "--trace-block-size", "64", "--planner-config", planner, "--report-json", planner},
		{"predict", "-c", config, "--output-dir", dir, "--overwrite"},
		{"recommend", "-c", search, "--output-dir", dir, "--overwrite"},
		{"recommend", "-c", elsewhere, "--output-dir", dir, "--overwrite"},
	} {
		_, talk, code := runProgram(args...)
		if code != 2 || !strings.Contains(talk, "the run reads") {
			t.Errorf("%q: exit %d, %s", args, code, talk)
		}
		for path, want := range texts {
			if text, err := os.ReadFile(path); err != nil || string(text) != want {
				t.Fatalf("%q: %s reads %q, %v", args, path, text, err)
			}
		}
	}
}
