package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// twins are configurations as an AISimulate file and as replay flags. TRACE stands
// for the same trace in both.
var twins = []struct {
	name, yaml string
	flags      []string
}{
	{"fixed timing, concurrency", `
engine:
  model: Qwen/Qwen3-8B
  hardware: h200_sxm
  workers:
    aggregated: {parallelism: {replicas: 2}, scheduler: {max_sequences: 16, max_batched_tokens: 2048}, kv_cache: {block_size: 32, prefix_caching: false, capacity: {type: fixed, blocks: 512}}, timing: {type: fixed, prefill_ms: 10, decode_ms: 2}}
traffic: {source: {type: synthetic, input_tokens: 700, output_tokens: 40}, load: {type: concurrency, concurrency: 24}, stop: {requests: 120}}
`, []string{"--input-tokens", "700", "--output-tokens", "40", "--request-count", "120", "--replay-concurrency", "24", "--num-workers", "2",
		"--extra-engine-args", `{"max_num_seqs":16,"max_num_batched_tokens":2048,"block_size":32,"enable_prefix_caching":false,"num_gpu_blocks":512,"timing_model":{"type":"fixed","prefill_ms":10,"decode_ms":2}}`}},
	{"polynomial timing, sglang, Poisson sessions", `
engine:
  model: Qwen/Qwen3-8B
  hardware: h200_sxm
  backend: sglang
  workers:
    aggregated: {parallelism: {replicas: 2}, scheduler: {prefill_decode_interval: 2}, kv_cache: {block_size: 16, capacity: {type: fixed, blocks: 4096}}, timing: {type: polynomial}}
traffic: {source: {type: synthetic-session, new_input_tokens_per_turn: 300, output_tokens_per_turn: 20, session: {turns: 3, shared_prefix_ratio: 0.5, prefix_groups: 4, inter_turn_delay_ms: 50}}, load: {type: poisson, sessions_per_second: 8, seed: 5}, stop: {sessions: 40}}
router: {policy: kv_router, overlap_score_credit: 0.5, prefill_load_scale: 2, temperature: 0.3}
`, []string{"--input-tokens", "300", "--output-tokens", "20", "--request-count", "40", "--turns-per-session", "3", "--shared-prefix-ratio", "0.5", "--num-prefix-groups", "4",
		"--inter-turn-delay-ms", "50", "--request-rate", "8", "--arrival-seed", "5", "--num-workers", "2",
		"--extra-engine-args", `{"engine_type":"sglang","block_size":16,"num_gpu_blocks":4096,"prefill_decode_interval":2}`,
		"--router-mode", "kv_router", "--router-config", `{"overlap_score_credit":0.5,"prefill_load_scale":2,"router_temperature":0.3}`}},
	{"hardware timing and estimated capacity, router estimate, Planner", `
engine:
  model: Qwen/Qwen3-32B
  hardware: h200_sxm
  workers:
    aggregated: {parallelism: {replicas: 2, tensor: 2}, kv_cache: {capacity: {memory_fraction: 0.6}}, startup_seconds: 3, timing: {decode_qk_norm: false}}
traffic: {source: {type: trace, paths: [TRACE]}, load: {type: trace_timestamps, speedup: 2}, stop: {max_virtual_time_seconds: 50}}
router: {policy: kv_router, prefill_load_model: {type: ais}}
planner: {policy: enabled, target: sla, max_num_gpus: 8, enable_load_scaling: true, throughput_adjustment_interval_seconds: 10, load_predictor: kalman, kalman_min_points: 2}
evaluation: {sla: {ttft_ms: 300, itl_ms: 20}}
`, []string{"TRACE", "--arrival-speedup-ratio", "2", "--max-sim-time-seconds", "50", "--num-workers", "2",
		"--extra-engine-args", `{"aic_backend":"vllm","aic_model_path":"Qwen/Qwen3-32B","aic_system":"h200_sxm","aic_tp_size":2,"gpu_memory_utilization":0.6,"startup_time":3}`,
		"--router-mode", "kv_router", "--router-config", `{"router_prefill_load_model":"ais"}`,
		"--aic-backend", "vllm", "--aic-system", "h200_sxm", "--aic-model-path", "Qwen/Qwen3-32B", "--aic-tp-size", "2",
		"--planner-config", `{"mode":"agg","optimization_target":"sla","ttft_ms":300,"itl_ms":20,"max_gpu_budget":8,"enable_load_scaling":true,"throughput_adjustment_interval_seconds":10,"load_predictor":"kalman","kalman_min_points":2,"decode_engine_num_gpu":2,"report_interval_hours":null}`,
		"--sla-ttft-ms", "300", "--sla-itl-ms", "20"}},
	{"experts and data-parallel ranks", `
engine:
  model: Qwen/Qwen3-30B-A3B
  hardware: h100_sxm
  workers:
    aggregated: {parallelism: {tensor: 2, attention_data: 2, moe_tensor: 1, moe_expert: 4}, timing: {decode_qk_norm: false}}
traffic: {source: {type: synthetic, input_tokens: 900, output_tokens: 30}, load: {type: constant_rate, requests_per_second: 20}, stop: {requests: 60}}
`, []string{"--input-tokens", "900", "--output-tokens", "30", "--request-count", "60", "--arrival-interval-ms", "50",
		"--extra-engine-args", `{"aic_backend":"vllm","aic_model_path":"Qwen/Qwen3-30B-A3B","aic_system":"h100_sxm","aic_tp_size":2,"aic_attention_dp_size":2,"aic_moe_tp_size":1,"aic_moe_ep_size":4}`}},
	{"disaggregated, automatic transfer bytes shared fairly, Planner", `
engine:
  mode: disaggregated
  model: Qwen/Qwen3-32B
  hardware: h200_sxm
  workers:
    prefill: {parallelism: {replicas: 2, tensor: 2}, startup_seconds: 2, timing: {decode_qk_norm: false}}
    decode: {parallelism: {tensor: 4}, scheduler: {max_sequences: 64}, timing: {decode_qk_norm: false}}
  kv_transfer: {bandwidth_gb_per_second: 5, contention: fair_share}
traffic: {source: {type: trace, paths: [TRACE]}, load: {type: trace_timestamps}}
router: {policy: kv_router}
planner: {policy: enabled, target: load, max_num_gpus: 16}
`, []string{"TRACE", "--num-prefill-workers", "2",
		"--prefill-engine-args", `{"is_prefill":true,"aic_backend":"vllm","aic_model_path":"Qwen/Qwen3-32B","aic_tp_size":2,"startup_time":2,"max_num_seqs":1,"kv_transfer_bytes_per_token":"auto","kv_transfer_bandwidth":5,"kv_transfer_timing_mode":"destination_missing","kv_transfer_contention":"fair_share"}`,
		"--decode-engine-args", `{"is_decode":true,"aic_backend":"vllm","aic_model_path":"Qwen/Qwen3-32B","aic_tp_size":4,"max_num_seqs":64}`,
		"--router-mode", "kv_router",
		"--planner-config", `{"mode":"disagg","optimization_target":"load","max_gpu_budget":16,"prefill_scale_up_queue_tokens":1,"prefill_scale_down_queue_tokens":0,"decode_scale_up_kv_rate":90,"decode_scale_down_kv_rate":70,"prefill_engine_num_gpu":2,"decode_engine_num_gpu":4,"report_interval_hours":null}`}},
}

// The same configuration by file and by flags is the same point with the same
// report, ticks of the Planner included.
func TestPredictReportsWhatReplayReports(t *testing.T) {
	trace := filepath.Join("testdata", "traces", "conversation_500.jsonl.gz")
	trace, err := filepath.Abs(trace)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range twins {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "p.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(c.yaml, "TRACE", trace)), 0o644); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(dir, "out")
			if _, talk, code := runProgram("predict", "-c", file, "--stack", "dynamo", "--output-dir", out); code != 0 {
				t.Fatalf("predict: exit %d: %s", code, talk)
			}
			report := filepath.Join(dir, "report.json")
			args := []string{"replay", "--report-json", report}
			for _, a := range c.flags {
				args = append(args, strings.Replace(a, "TRACE", trace, 1))
			}
			if _, talk, code := runProgram(args...); code != 0 {
				t.Fatalf("replay: exit %d: %s", code, talk)
			}
			var byFile, byFlags map[string]json.RawMessage
			readJSON(t, filepath.Join(out, "prediction.json"), &byFile)
			readJSON(t, report, &byFlags)
			if _, nested := byFile["summary"]; nested {
				t.Error("figures are nested under summary")
			}
			if len(byFile) < 80 {
				t.Errorf("only %d figures", len(byFile))
			}
			for key, v := range byFile {
				switch {
				case key == "wall_time_ms" || strings.HasPrefix(key, "processed_"):
					continue
				case key == "provenance":
					v = withoutHardware(v)
				}
				if !sameJSON(v, withoutHardware(byFlags[key])) {
					t.Errorf("%s: %s by file, %s by flags", key, v, byFlags[key])
				}
			}
		})
	}
}

// withoutHardware leaves out what a file names beside fixed timing and flags cannot
// name, and the digest over it.
func withoutHardware(v json.RawMessage) json.RawMessage {
	return regexp.MustCompile(`"(hardware|config_sha256)": "[^"]*",`).ReplaceAll(v, nil)
}

// sameJSON compares values but for their indentation; absent is null.
func sameJSON(a, b json.RawMessage) bool {
	plain := func(v json.RawMessage) string {
		var out bytes.Buffer
		if len(v) == 0 || json.Compact(&out, v) != nil {
			return "null"
		}
		return out.String()
	}
	return plain(a) == plain(b)
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// What the model of text on measured hardware cannot do is refused at its key.
func TestPredictRefusesAtTheKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	text := "engine:\n  model: Qwen/Qwen3-32B\n  hardware: h200_sxm\n  workers: {aggregated: {parallelism: {tensor: 2}}}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{"traffic={source: {type: synthetic, images: {count: 1}}, stop: {requests: 1}}", "traffic.source.images: images are not supported: text tokens only"},
		{"engine.model=Qwen/Qwen3-VL-32B-Instruct", `engine.model: model Qwen/Qwen3-VL-32B-Instruct: architecture "Qwen3VLForConditionalGeneration" is not supported`},
		{"engine.model=nobody/none", `engine.model: unknown model "nobody/none"`},
		{"engine.hardware=h900", `engine.hardware: unknown system "h900"`},
		{"engine.hardware=l40s", "engine.hardware: the embedded data does not hold vllm 0.24.0 on l40s"},
		{"engine.backend_version=0.19.0", `engine.backend_version: backend version "0.19.0" of vllm on h200_sxm: not one of the slots`},
		{"engine.workers.aggregated.parallelism.context=2", "engine.workers.aggregated.parallelism.context: cp_size must be 1: context parallelism is not priced"},
		{"engine.workers.aggregated.parallelism.tensor=3", "num_heads 64 should be divisible by tp_size 3"},
	} {
		_, talk, code := runProgram("predict", "-c", file, "--output-dir", t.TempDir(), "--set", c[0])
		if code != 2 || !strings.Contains(talk, c[1]) {
			t.Errorf("%s: exit %d, %s\nwant %s", c[0], code, talk, c[1])
		}
	}
}

// On the engine stack a synthetic session is what a mooncake-delta trace of the same
// rows is (spec workload 3.9).
func TestSyntheticSessionsGrowOnTheEngineStack(t *testing.T) {
	dir := t.TempDir()
	file, tracePath := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "delta.jsonl")
	text := `
engine:
  model: m
  hardware: h
  workers: {aggregated: {parallelism: {replicas: 2}, kv_cache: {capacity: {type: fixed, blocks: 300}}, timing: {type: polynomial}}}
traffic:
  source: {type: synthetic-session, new_input_tokens_per_turn: 500, output_tokens_per_turn: 40, session: {shared_prefix_ratio: 0.5, prefix_groups: 3, inter_turn_delay_ms: 20}}
  load: {type: constant_rate, sessions_per_second: 8}
  stop: {sessions: 25}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	load := workload.DefaultSynthetic()
	load.InputTokens, load.OutputTokens, load.Requests, load.TurnsPerSession = 500, 40, 25, 4
	load.SharedPrefixRatio, load.PrefixGroups, load.InterTurnDelayMs = 0.5, 3, 20
	load.Control, load.IntervalMs, load.Cumulative, load.GroupSeed = workload.Fixed, 125, true, 0
	var rows bytes.Buffer
	if err := trace.WriteSynthetic(&rows, load, 64); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tracePath, rows.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, talk, code := runProgram("predict", "-c", file, "--output-dir", filepath.Join(dir, "out")); code != 0 {
		t.Fatalf("predict: exit %d: %s", code, talk)
	}
	report := filepath.Join(dir, "report.json")
	if _, talk, code := runProgram("replay", tracePath, "--trace-format", "mooncake-delta", "--trace-block-size", "64", "--num-workers", "2",
		"--extra-engine-args", `{"num_gpu_blocks":300}`, "--report-json", report); code != 0 {
		t.Fatalf("replay: exit %d: %s", code, talk)
	}
	var byFile, byTrace map[string]any
	readJSON(t, filepath.Join(dir, "out", "prediction.json"), &byFile)
	readJSON(t, report, &byTrace)
	if got := byFile["total_input_tokens"]; got != 25.0*(500+1040+1580+2120) {
		t.Errorf("%v input tokens", got)
	}
	for key, v := range byFile {
		if key != "wall_time_ms" && key != "planner" && key != "coverage" && key != "provenance" && !strings.HasPrefix(key, "processed_") && v != byTrace[key] {
			t.Errorf("%s: %v, as a trace %v", key, v, byTrace[key])
		}
	}
}
