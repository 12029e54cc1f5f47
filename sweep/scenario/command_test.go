package scenario

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// readArgs puts the arguments of replay into its flags: a flag without dashes is the
// name of its field.
func readArgs(t *testing.T, args []string) *ReplayFlags {
	t.Helper()
	c := &ReplayFlags{}
	v := reflect.ValueOf(c).Elem()
	for i := 0; i < len(args); i++ {
		name, flag := strings.CutPrefix(args[i], "--")
		if !flag {
			c.Traces = append(c.Traces, args[i])
			continue
		}
		name = strings.ReplaceAll(name, "-", "")
		field := v.FieldByNameFunc(func(f string) bool { return strings.EqualFold(f, name) })
		if !field.IsValid() {
			t.Fatalf("replay has no flag %s", args[i])
		}
		i++
		text, value := args[i], reflect.New(field.Type().Elem())
		var err error
		switch p := value.Interface().(type) {
		case *string:
			*p = text
		case *int64:
			*p, err = strconv.ParseInt(text, 10, 64)
		case *uint64:
			*p, err = strconv.ParseUint(text, 10, 64)
		case *float64:
			*p, err = strconv.ParseFloat(text, 64)
		}
		if err != nil {
			t.Fatalf("%s %s: %v", args[i-1], text, err)
		}
		field.Set(value)
	}
	return c
}

// withoutSeeds is a resolved configuration where a written arrival seed counts as an
// open one of the same value.
func withoutSeeds(t *testing.T, resolved []byte) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(resolved, &m); err != nil {
		t.Fatal(err)
	}
	delete(m["workload"].(map[string]any), "arrival_seed")
	seeds := m["seeds"].(map[string]any)
	for _, key := range [...]string{"engine", "prefill_engine", "decode_engine"} {
		if role, ok := m[key].(map[string]any); ok {
			if v, ok := role["engine"].(map[string]any)["aic_mtp_seed"]; ok {
				seeds["aic_mtp"] = v
				delete(role["engine"].(map[string]any), "aic_mtp_seed")
			}
		}
	}
	if m["router"].(map[string]any)["mode"] == "round_robin" {
		delete(seeds, "router") // draws nothing
	}
	text, _ := json.Marshal(m)
	return string(text)
}

const commandSweep = `
name: commands
workload:
  - synthetic: {input_tokens: 3000, output_tokens: 200, requests: 40, shared_prefix_ratio: 0.5, num_prefix_groups: 8}
    request_rate: 6
  - synthetic: {input_tokens: 512, output_tokens: 16, requests: 10}
    concurrency: 4
  - synthetic: {input_tokens: 64, output_tokens: 16, requests: 10, turns_per_session: 2, inter_turn_delay_ms: 5.5}
    arrival_interval_ms: 12.5
    arrival_speedup: 2
  - trace: trace.jsonl
    arrival_speedup: 1.5
    max_sim_time_seconds: 100.1
engine:
  - {backend: vllm, block_size: 32, num_gpu_blocks: 4096, max_num_seqs: null, aic_nextn: 2}
  - {backend: sglang, block_size: 16, sglang: {schedule_policy: lpm, chunked_prefill_size: 4096}, tensor_parallel_size: 2}
topology:
  - {mode: aggregated, workers: 2}
  - {mode: disaggregated, prefill_workers: 1, decode_workers: 3, decode_engine: {max_num_seqs: 512}, kv_transfer: {bytes_per_token: 131072, bandwidth_gb_per_second: 50, timing_mode: destination_missing, contention: [none, fair_share]}}
router:
  - null
  - {mode: kv_router, kv_event_lag_ms: 3, config: {overlap_score_credit: 0.5, router_temperature: 0.25, router_queue_threshold: 0.75, router_queue_policy: wspt}}
  - {mode: kv_router}
timing:
  - {type: polynomial}
  - {type: fixed, prefill_ms: 10, decode_ms: 2.5}
planner:
  - null
  - {mode: agg, optimization_target: load, decode_scale_up_kv_rate: 60, decode_scale_down_kv_rate: 30, max_gpu_budget: 12, decode_engine_num_gpu: 1, startup_seconds: 20}
  - {mode: disagg, optimization_target: sla, ttft_ms: 800, itl_ms: 40, throughput_adjustment_interval_seconds: 60, load_predictor: kalman, kalman_r: 5}
  - {mode: agg, optimization_target: latency, min_endpoint: 2, hysteresis_ticks: 3}
sla: {ttft_ms: 2000, itl_ms: 50}
seeds: [1, 5]
`

// Every point of a sweep can be run by replay with the arguments rendered from its
// row: they resolve to the very configuration.
func TestReplayArgsResolveToTheSameConfiguration(t *testing.T) {
	dir := t.TempDir()
	trace := `{"timestamp": 0, "input_length": 100, "output_length": 4, "hash_ids": [1]}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "trace.jsonl"), []byte(trace), 0o644); err != nil {
		t.Fatal(err)
	}
	files := &Files{}
	grid, err := ParseSweep("commands.yaml", dir, []byte(commandSweep), files)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for i := range grid.Points {
		p := &grid.Points[i]
		if p.Skip != "" {
			continue
		}
		args, err := ReplayArgs(p.Resolved(), nil)
		if err != nil {
			t.Fatalf("%s: %v", p.Resolved(), err)
		}
		run, err := readArgs(t, args).Resolve(files)
		if err != nil {
			t.Fatalf("replay %q: %v", args, err)
		}
		if got, want := withoutSeeds(t, run.ResolvedJSON()), withoutSeeds(t, p.Resolved()); got != want {
			t.Fatalf("replay %q\n got %s\nwant %s", args, got, want)
		}
		ran++
	}
	if ran < 100 {
		t.Fatalf("only %d points of the grid are runnable", ran)
	}
}

func TestReplayArgsRefuseWhatHasNoFlag(t *testing.T) {
	run := mustPredict(t, minimal(t), "engine", "engine.workers.aggregated.kv_cache.capacity={type: default}")
	_, err := ReplayArgs(run.ResolvedJSON(), nil)
	want := "replay has no flags for a capacity estimate beside timing that is not measured: run it with sweep SPEC --point ID"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, bad := range []string{"", "null", "{}", `{"workload":3}`, `{"workload":{}}`} {
		if _, err := ReplayArgs([]byte(bad), nil); err == nil && bad != `{"workload":{}}` {
			t.Errorf("%q: no error", bad)
		}
	}
}

// With hardware timing the transfer's automatic bytes become a number.
func TestReplayArgsAskForAutomaticBytes(t *testing.T) {
	grid, err := ParseSweep("auto.yaml", ".", []byte(`
workload: {synthetic: {input_tokens: 8, output_tokens: 2, requests: 1}, concurrency: 1}
topology: {mode: disaggregated, kv_transfer: {bytes_per_token: auto, bandwidth_gb_per_second: 50}}
timing: {type: aic, model: Qwen/Qwen3-32B, system: h200_sxm, tensor_parallel: 2}
`), &Files{})
	if err != nil {
		t.Fatal(err)
	}
	p := &grid.Points[0]
	if _, err := ReplayArgs(p.Resolved(), nil); err == nil || !strings.Contains(err.Error(), "bytes_per_token auto") {
		t.Errorf("nobody to ask: %v", err)
	}
	ask := func(q TimingQuery) (TimingAnswer, error) {
		if q.TransferBytes == nil || q.TransferBytes.Model != "Qwen/Qwen3-32B" || q.TransferBytes.TP != 2 {
			t.Errorf("asked %+v", q.TransferBytes)
		}
		return TimingAnswer{BytesPerToken: 131072}, nil
	}
	args, err := ReplayArgs(p.Resolved(), ask)
	if err != nil {
		t.Fatal(err)
	}
	run, err := readArgs(t, args).Resolve(&Files{})
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	got := string(run.ResolvedJSON())
	if want := strings.Replace(string(p.Resolved()), `"bytes_per_token":"auto"`, `"bytes_per_token":131072`, 1); withoutSeeds(t, []byte(got)) != withoutSeeds(t, []byte(want)) {
		t.Errorf("replay %q\n got %s\nwant %s", args, got, want)
	}
}

func FuzzReplayArgs(f *testing.F) {
	f.Add([]byte(`{"workload":{"type":"trace","trace":[{"path":"a"}]},"engine":{"engine":{"timing_model":{"type":"external","provider":"ais","config":{"model":{"path":"x/config.json"}}}}},"router":{"mode":"kv_router","config":{}},"planner":{"budget":{}},"kv_transfer":{"bytes_per_token":"auto"}}`))
	f.Add([]byte(`{"workload":{"max_sim_time_ms":1e308},"prefill_engine":{},"router":{"mode":"kv_router"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = ReplayArgs(text, nil) // whatever the file says, it must not panic
	})
}
