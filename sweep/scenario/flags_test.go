package scenario

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

func ptr[T any](v T) *T { return &v }

// closed is a valid command line to start from.
func closed() ReplayFlags {
	return ReplayFlags{InputTokens: ptr[int64](64), OutputTokens: ptr[int64](2), RequestCount: ptr[int64](3), ReplayConcurrency: ptr[int64](1)}
}

func traced(path string) ReplayFlags { return ReplayFlags{Traces: []string{path}} }

const (
	prefillArgs = `{"engine":{"worker_type":"prefill"}}`
	decodeArgs  = `{"worker_type":"decode"}`
)

// TestReplayRefusals holds the literal messages of spec workload 1.1, 3.5, 4,
// replay-runtime 1, report 5 and kv-router 3, one command line each.
func TestReplayRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	if err := os.WriteFile(path, []byte(`{"timestamp":0,"output_length":1,"hash_ids":[1]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	load := func(edit func(c *ReplayFlags)) ReplayFlags { c := closed(); edit(&c); return c }
	open := func(edit func(c *ReplayFlags)) ReplayFlags { c := traced(path); edit(&c); return c }
	disagg := func(p, d string, edit func(c *ReplayFlags)) ReplayFlags {
		c := closed()
		c.PrefillEngineArgs, c.DecodeEngineArgs = &p, &d
		if edit != nil {
			edit(&c)
		}
		return c
	}
	for _, c := range []struct {
		flags ReplayFlags
		want  string
	}{
		{ReplayFlags{}, bothLoads},
		{open(func(c *ReplayFlags) { c.InputTokens = ptr[int64](1) }), bothLoads},
		{open(func(c *ReplayFlags) { c.TurnsPerSession = ptr[int64](2) }), bothLoads},
		{ReplayFlags{InputTokens: ptr[int64](1)}, "synthetic replay requires --input-tokens, --output-tokens, and --request-count"},
		{ReplayFlags{SharedPrefixRatio: ptr(0.5)}, "synthetic replay requires --input-tokens, --output-tokens, and --request-count"},
		{load(func(c *ReplayFlags) { c.RequestRate = ptr(1.0) }), "synthetic replay requires exactly one of --replay-concurrency, --request-rate, or --arrival-interval-ms"},
		{load(func(c *ReplayFlags) { c.ReplayConcurrency = nil }), "synthetic replay requires exactly one of --replay-concurrency, --request-rate, or --arrival-interval-ms"},
		{load(func(c *ReplayFlags) { c.ReplayConcurrency = ptr[int64](0) }), "--replay-concurrency: replay_concurrency must be at least 1"},
		{load(func(c *ReplayFlags) { c.InputTokens = ptr[int64](0) }), "input_tokens must be at least 1"},
		{load(func(c *ReplayFlags) { c.OutputTokens = ptr[int64](-4) }), "output_tokens must be at least 1"},
		{load(func(c *ReplayFlags) { c.RequestCount = ptr[int64](0) }), "request_count must be at least 1"},
		{load(func(c *ReplayFlags) { c.ReplayConcurrency, c.RequestRate = nil, ptr(0.0) }), "request_rate must be a finite positive number, got 0"},
		{load(func(c *ReplayFlags) { c.ReplayConcurrency, c.ArrivalIntervalMs = nil, ptr(-1.0) }), "arrival_interval_ms must be a finite non-negative number, got -1"},
		{load(func(c *ReplayFlags) { c.SharedPrefixRatio = ptr(1.5) }), "shared_prefix_ratio must be between 0.0 and 1.0, got 1.5"},
		{load(func(c *ReplayFlags) { c.TurnsPerSession = ptr[int64](0) }), "turns_per_session must be at least 1"},
		{load(func(c *ReplayFlags) { c.InterTurnDelayMs = ptr(math.NaN()) }), "inter_turn_delay_ms must be a finite non-negative number"},
		{load(func(c *ReplayFlags) {
			c.ReplayConcurrency, c.ArrivalIntervalMs, c.ArrivalSpeedupRatio = nil, ptr(1.0), ptr(0.0)
		}), "arrival_speedup_ratio must be a finite positive number, got 0"},
		{load(func(c *ReplayFlags) {
			c.ReplayConcurrency, c.ArrivalIntervalMs, c.ArrivalSpeedupRatio, c.TurnsPerSession = nil, ptr(1.0), ptr(0.0), ptr[int64](2)
		}), "ratio must be a finite positive number, got 0"},
		{load(func(c *ReplayFlags) { c.MaxSimTimeSeconds = ptr(1.0) }), "--max-sim-time-seconds currently only supports trace-file replay"},
		{open(func(c *ReplayFlags) { c.RequestRate = ptr(1.0) }), "--request-rate and --arrival-interval-ms only apply to synthetic replay"},
		{open(func(c *ReplayFlags) { c.Traces = []string{path, path} }), "--trace-format=mooncake requires exactly one trace file"},
		{ReplayFlags{TraceFormat: ptr("dynamo")}, "--trace-format=dynamo requires at least one trace file"},
		{open(func(c *ReplayFlags) { c.TraceFormat = ptr("zz") }), "trace_format must be 'mooncake', 'mooncake-delta', 'agentic_mooncake'/'agentic-mooncake', 'weka', 'applied_compute_agentic', or 'dynamo', got 'zz'"},
		{open(func(c *ReplayFlags) { c.TraceBlockSize = ptr[int64](0) }), "trace_block_size must be greater than 0"},
		{open(func(c *ReplayFlags) { c.ArrivalSpeedupRatio = ptr(-1.0) }), "ratio must be a finite positive number, got -1"},
		{open(func(c *ReplayFlags) { c.MaxSimTimeSeconds = ptr(-1.0) }), "max_sim_time_ms must be a finite, non-negative value"},
		{open(func(c *ReplayFlags) { c.AgenticLanes = ptr[int64](0) }), "agentic_lanes must be at least 1"},
		{open(func(c *ReplayFlags) { c.AgenticLanes = ptr[int64](1) }), "agentic_lanes requires trace_format='agentic_mooncake', 'weka', or 'dynamo'"},
		{open(func(c *ReplayFlags) {
			c.AgenticLanes, c.TraceFormat, c.ReplayConcurrency = ptr[int64](1), ptr("dynamo"), ptr[int64](2)
		}), "agentic_lanes cannot be combined with replay_concurrency"},
		{open(func(c *ReplayFlags) {
			c.TraceFormat, c.ReplayConcurrency = ptr("agentic-mooncake"), ptr[int64](2)
		}), "agentic_mooncake trace format is not supported with replay_concurrency"},
		{open(func(c *ReplayFlags) { c.TraceFormat = ptr("applied_compute_agentic") }), "--trace-format=applied_compute_agentic requires --replay-concurrency because the source traces do not include first-turn timestamps"},
		{open(func(c *ReplayFlags) { c.Traces = []string{path + "x"} }), "failed to open trace file " + path + "x: no such file"},
		{open(func(c *ReplayFlags) { c.Traces = []string{filepath.Dir(path)} }), "failed to open trace file " + filepath.Dir(path) + ": is a directory"},
		{load(func(c *ReplayFlags) { c.TelemetryIntervalMs = ptr(1e-300) }), "--telemetry-interval-ms: must be at least 0.001"},
		{load(func(c *ReplayFlags) { c.AICTPSize = ptr[int64](2) }), "--aic-tp-size: --aic-backend, --aic-system and --aic-model-path are required"},
		{load(func(c *ReplayFlags) {
			c.RouterMode, c.AICBackend, c.AICSystem, c.AICModelPath = ptr("kv_router"), ptr("vllm"), ptr("h200_sxm"), ptr("Qwen/Qwen3-32B")
		}), "--aic-backend: the router does not estimate prefill load: give --router-config"},
		{load(func(c *ReplayFlags) { c.TraceFormat = ptr("zz") }), "--trace-format: trace_format must be 'mooncake'"},
		{load(func(c *ReplayFlags) { c.ExtraEngineArgs = ptr("") }), "--extra-engine-args: the JSON text is empty"},
		{load(func(c *ReplayFlags) { c.NumWorkers = ptr[int64](0) }), "invalid replay spec: aggregated pool must start with at least one worker"},
		{load(func(c *ReplayFlags) { c.NumPrefillWorkers = ptr[int64](2) }), "num_prefill_workers and num_decode_workers are only used for disagg replay; use num_workers for aggregated replay"},
		{load(func(c *ReplayFlags) { c.PrefillEngineArgs = ptr(prefillArgs) }), "prefill_engine_args and decode_engine_args must be provided together"},
		{load(func(c *ReplayFlags) { c.ExtraEngineArgs = ptr(prefillArgs) }), "offline replay only supports aggregated workers, got Prefill"},
		{disagg("{}", decodeArgs, nil), "offline disaggregated replay requires prefill_engine_args.worker_type=prefill, got Aggregated"},
		{disagg(prefillArgs, "{}", nil), "offline disaggregated replay requires decode_engine_args.worker_type=decode, got Aggregated"},
		{disagg(prefillArgs, decodeArgs, func(c *ReplayFlags) { c.ExtraEngineArgs = ptr("{}") }), "extra_engine_args cannot be combined with prefill_engine_args/decode_engine_args"},
		{disagg(prefillArgs, decodeArgs, func(c *ReplayFlags) { c.NumWorkers = ptr[int64](2) }), "num_workers is only used for aggregated replay; use num_prefill_workers and num_decode_workers for disagg replay"},
		{disagg(prefillArgs, decodeArgs, func(c *ReplayFlags) { c.NumDecodeWorkers = ptr[int64](0) }), "invalid replay spec: decode pool must start with at least one worker"},
		{disagg(prefillArgs, `{"is_decode":true,"block_size":32}`, nil), "offline disaggregated replay requires matching prefill/decode block_size, got 64 and 32"},
		{disagg(prefillArgs, `{"is_decode":true,"engine_type":"sglang"}`, nil), "replay invariant violated: offline disaggregated replay requires matching backend engine types"},
		{disagg(`{"is_prefill":true,"engine_type":"trtllm"}`, `{"is_decode":true,"engine_type":"trtllm"}`, nil), "TensorRT-LLM disaggregated serving is not supported"},
		{load(func(c *ReplayFlags) { c.SLATTFTMs = ptr(0.0) }), "invalid replay spec: sla.ttft_ms must be finite and positive, got 0"},
		{load(func(c *ReplayFlags) { c.SLAITLMs = ptr(-1.0) }), "--sla-itl-ms: sla_itl_ms must be a finite, non-negative value, got -1"},
		{load(func(c *ReplayFlags) { c.SLAITLMs, c.SLAE2EMs = ptr(1.0), ptr(1.0) }), "invalid replay spec: sla.e2e_ms is mutually exclusive with sla.ttft_ms/itl_ms"},
		{load(func(c *ReplayFlags) { c.RouterMode = ptr("x") }), "router_mode must be one of 'round_robin', 'kv_router', 'random', 'least_loaded', 'power_of_two', got 'x'"},
		{load(func(c *ReplayFlags) { c.KVEventLagMs = ptr(5.0) }), "kv_event_lag_ms only supports router_mode='kv_router'"},
		{load(func(c *ReplayFlags) { c.KVEventLagMs, c.RouterMode = ptr(-5.0), ptr("kv_router") }), "kv_event_lag_ms must be finite and non-negative, got -5"},
		{load(func(c *ReplayFlags) { c.RouterConfig = ptr(`{"zz":1}`) }), "--router-config: Failed to parse KvRouterConfig JSON: "},
		{load(func(c *ReplayFlags) {
			c.RouterMode, c.RouterConfig = ptr("kv_router"), ptr(`{"router_prefill_load_model":"ais"}`)
		}), "router_prefill_load_model='ais' requires ais_perf_config"},
		{load(func(c *ReplayFlags) { c.AICBackend = ptr("vllm") }), "--aic-backend, --aic-system and --aic-model-path are required"},
		{load(func(c *ReplayFlags) { c.ReplayMode = ptr("online") }), "--replay-mode online is not supported"},
		{load(func(c *ReplayFlags) { c.TelemetryIntervalMs = ptr(0.0) }), "telemetry_sample_interval_ms must be a positive finite number"},
		{load(func(c *ReplayFlags) { c.PlannerConfig = ptr(`{"mode":"disagg"}`) }), "mode disagg does not fit an aggregated topology"},
		{disagg(prefillArgs, decodeArgs, func(c *ReplayFlags) { c.PlannerConfig = ptr(`mode: agg`) }), "mode agg does not fit a disaggregated topology"},
		{load(func(c *ReplayFlags) { c.PlannerConfig = ptr(`{"mode":"agg","zz":1}`) }), "zz"},
		{load(func(c *ReplayFlags) { c.PlannerConfig = ptr(`nowhere.yaml`) }), "cannot read nowhere.yaml"},
		{open(func(c *ReplayFlags) {
			c.PlannerConfig, c.TraceFormat = ptr(`{"mode":"agg"}`), ptr("mooncake-delta")
		}), "the Planner runs on synthetic load, mooncake and dynamo traces, not on mooncake-delta"},
	} {
		_, err := c.flags.Resolve(&Files{})
		wantError(t, err, c.want, c.want)
	}
}

func TestIdleFlagsAreTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	if err := os.WriteFile(path, []byte(`{"timestamp":0,"output_length":1,"hash_ids":[1]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	seed, one := ptr[uint64](7), ptr[int64](1)
	for _, c := range []struct {
		name string
		edit func(c *ReplayFlags)
		want string // flags
	}{
		{"closed loop", func(c *ReplayFlags) { c.ArrivalSpeedupRatio, c.ArrivalSeed = ptr(2.0), seed }, "--arrival-speedup-ratio --arrival-seed"},
		{"Poisson", func(c *ReplayFlags) {
			c.ReplayConcurrency, c.RequestRate, c.ArrivalSpeedupRatio, c.ArrivalSeed = nil, ptr(1.0), ptr(2.0), seed
		}, ""},
		{"groups alone", func(c *ReplayFlags) { c.NumPrefixGroups, c.InterTurnDelayMs = one, ptr(3.0) }, "--inter-turn-delay-ms --num-prefix-groups"},
		{"ratio alone", func(c *ReplayFlags) { c.SharedPrefixRatio = ptr(0.5) }, "--shared-prefix-ratio"},
		{"sessions", func(c *ReplayFlags) {
			c.SharedPrefixRatio, c.NumPrefixGroups, c.InterTurnDelayMs, c.TurnsPerSession = ptr(0.5), one, ptr(3.0), ptr[int64](2)
		}, ""},
		{"flags of traces", func(c *ReplayFlags) {
			c.TraceFormat, c.TraceBlockSize, c.ExecutionModel = ptr("weka"), one, ptr("m")
			c.TraceSharedPrefixRatio, c.TraceNumPrefixGroups = ptr(0.5), one
		}, "--trace-format --trace-block-size --trace-shared-prefix-ratio --trace-num-prefix-groups --execution-model"},
		{"round robin", func(c *ReplayFlags) {
			c.RouterConfig, c.RouterPolicyConfig, c.ModelName, c.RouterSeed = ptr("{}"), ptr("../../sim/router/testdata/policy.json"), ptr("m"), seed
			c.AICBackend, c.AICSystem, c.AICModelPath = ptr("vllm"), ptr("h200_sxm"), ptr("Qwen/Qwen3-32B")
		}, "--router-config --router-policy-config --model-name --router-seed --aic-backend"},
		{"KV router", func(c *ReplayFlags) { c.RouterMode, c.RouterConfig, c.RouterSeed = ptr("kv_router"), ptr("{}"), seed }, ""},
		{"no Planner", func(c *ReplayFlags) { c.BenchmarkGranularity = one }, "--benchmark-granularity"},
		{"a trace", func(c *ReplayFlags) {
			*c = traced(path)
			c.ArrivalSeed, c.ExecutionModel, c.TraceNumPrefixGroups, c.TraceBlockSize = seed, ptr("m"), one, ptr[int64](64)
		}, "--arrival-seed --execution-model --trace-num-prefix-groups"},
		{"applied", func(c *ReplayFlags) {
			*c = traced(path)
			c.TraceFormat, c.ReplayConcurrency, c.TraceSharedPrefixRatio = ptr("applied_compute_agentic"), one, ptr(0.5)
		}, "--trace-shared-prefix-ratio"},
	} {
		flags := closed()
		c.edit(&flags)
		run := mustResolve(t, flags)
		var got []string
		for _, text := range flags.Ineffective(&run) {
			flag, _, _ := strings.Cut(text, " ")
			got = append(got, flag)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

func mustResolve(t *testing.T, c ReplayFlags) Run {
	t.Helper()
	run, err := c.Resolve(&Files{})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func TestReplayBuildsDisaggregatedConfig(t *testing.T) {
	c := closed()
	c.PrefillEngineArgs = ptr(`{"worker_type":"prefill","kv_bytes_per_token":131072,"kv_transfer_bandwidth":10.0,"kv_transfer_timing_mode":"destination_missing","startup_time":7.5}`)
	c.DecodeEngineArgs = ptr(`{"worker_type":"decode","dp_size":2,"tensor_parallel_size":4,"aic_nextn":2,"timing_model":{"type":"fixed","prefill_ms":20,"decode_ms":5}}`)
	c.NumPrefillWorkers, c.NumDecodeWorkers = ptr[int64](3), ptr[int64](2)
	c.RouterMode, c.RouterSeed, c.RouterConfig = ptr("kv_router"), ptr[uint64](7), ptr(`{"overlap_score_credit":0.5}`)
	run := mustResolve(t, c)
	cfg, err := run.Config(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, d := cfg.Prefill, cfg.Decode
	if !cfg.Disaggregated || p.Workers != 3 || p.StartupMs != 7500 || p.Transfer.BytesPerToken != 131072 ||
		p.Transfer.BandwidthGBps != 10 || !p.Transfer.DestinationMissing || p.Rank.Timing != (timing.Polynomial{}) {
		t.Errorf("prefill %+v", p)
	}
	if d.Workers != 2 || d.GPUsPerWorker != 8 || d.DPSize != 2 || d.Rank.Role != engine.Decode ||
		d.Rank.MTPSeed != 42 || d.Rank.Timing != (timing.Fixed{Prefill: 20, Decode: 5}) {
		t.Errorf("decode %+v", d)
	}
	if r := cfg.Router; !r.Mode.Configured || r.Seed != 7 || r.Config.OverlapCredit != 0.5 || !math.IsInf(cfg.MaxSimTimeMs, 1) {
		t.Errorf("router %+v", r)
	}
}

// The handoff's price is the prefill role's, also where our own words are in it.
func TestReplayPricesTheHandoffByThePrefillRole(t *testing.T) {
	c := closed()
	c.PrefillEngineArgs = ptr(`{"is_prefill":true,"aic_backend":"vllm","aic_model_path":"Qwen/Qwen3-32B","aic_tp_size":2,"kv_transfer_bytes_per_token":"auto","kv_transfer_bandwidth":10,"kv_transfer_contention":"fair_share"}`)
	c.DecodeEngineArgs = ptr(`{"is_decode":true}`)
	run := mustResolve(t, c)
	cfg, err := run.Config(nil, func(q TimingQuery) (TimingAnswer, error) {
		if q.TransferBytes != nil && q.TransferBytes.TP != 2 {
			t.Errorf("asked %+v", q.TransferBytes)
		}
		return TimingAnswer{Model: timing.Fixed{}, Blocks: 1000, BytesPerToken: 131072}, nil
	})
	want := sim.TransferConfig{BytesPerToken: 131072, BandwidthGBps: 10, FairShare: true}
	if err != nil || cfg.Prefill.Transfer != want {
		t.Errorf("transfer %+v, %v", cfg.Prefill.Transfer, err)
	}
	c.PrefillEngineArgs = ptr(`{"is_prefill":true,"kv_transfer_bytes_per_token":"auto","kv_transfer_bandwidth":10}`)
	run = mustResolve(t, c)
	_, err = run.Config(nil, nil)
	if !errors.Is(err, document.ErrInput) || !strings.Contains(err.Error(), "kv_transfer.bytes_per_token: auto needs the prefill role's model, which only aic timing names: give an integer") {
		t.Errorf("a model nobody named: %v", err)
	}
}

func TestSystemsPathReachesEveryTable(t *testing.T) {
	dir := t.TempDir()
	c := closed()
	c.SystemsPath = &dir
	c.ExtraEngineArgs = ptr(`{"aic_backend":"vllm","aic_model_path":"Qwen/Qwen3-32B"}`)
	c.RouterMode, c.RouterConfig = ptr("kv_router"), ptr(`{"router_prefill_load_model":"ais"}`)
	c.AICBackend, c.AICSystem, c.AICModelPath = ptr("vllm"), ptr("h200_sxm"), ptr("Qwen/Qwen3-32B")
	run := mustResolve(t, c)
	if a := run.Decode; a.Timing.AIC.SystemsPath != dir || a.Capacity.Model.SystemsPath != dir || run.Router.Estimator.SystemsPath != dir {
		t.Errorf("%+v, estimate %+v", a, run.Router.Estimator)
	}
	c = closed()
	c.SystemsPath = &dir
	if _, err := c.Resolve(&Files{}); err == nil || !strings.HasPrefix(err.Error(), "--systems-path: nothing here reads hardware tables") {
		t.Errorf("polynomial timing: %v", err)
	}
}

func TestEngineQueuePolicyOverridesRouterConfig(t *testing.T) {
	c := closed()
	c.RouterMode, c.RouterConfig = ptr("kv_router"), ptr(`{"router_queue_threshold":1,"router_queue_policy":"lcfs"}`)
	c.ExtraEngineArgs = ptr(`{"router_queue_policy":"wspt"}`)
	if got := mustResolve(t, c).Router.Config.Profile.Classes[0].Policy; got != router.WSPT {
		t.Errorf("policy %v", got)
	}
}

func TestPlannerConfigFromFileAndText(t *testing.T) {
	text := "mode: agg\noptimization_target: latency\n"
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, arg := range []string{path, text, `{"optimization_target":"latency","mode":"agg"}`} {
		c := closed()
		c.PlannerConfig = &arg
		run := mustResolve(t, c)
		if run.Planner.Config.Mode != planner.Agg || run.Planner.Config.Target != planner.Latency {
			t.Errorf("%s: %+v", arg, run.Planner.Config)
		}
		ids = append(ids, run.ID())
	}
	if ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("ids differ: %v", ids)
	}
}

// TestIDIsConfigurationAndContent: spelling, order of keys and folders do not
// count, values and bytes of inputs do.
func TestIDIsConfigurationAndContent(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "t.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	id := func(trace, args string) string {
		c := traced(trace)
		c.ExtraEngineArgs = &args
		run := mustResolve(t, c)
		return run.ID()
	}
	base := id(write("a"), `{"block_size":64,"max_num_seqs":16}`)
	if got := id(write("a"), `{"engine":{"max_num_seqs":16}}`); got != base {
		t.Errorf("same configuration in another folder and spelling: %s, %s", got, base)
	}
	if got := id(write("b"), `{"max_num_seqs":16}`); got == base {
		t.Error("another trace has the same id")
	}
	if got := id(write("a"), `{"max_num_seqs":17}`); got == base {
		t.Error("another configuration has the same id")
	}
	if len(base) != 16 {
		t.Errorf("id %q", base)
	}
}

func TestResolvedJSONIsCompleteAndSorted(t *testing.T) {
	c := closed()
	run := mustResolve(t, c)
	text := run.ResolvedJSON()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(v)
	if string(again) != string(text) {
		t.Errorf("not canonical:\n%s\n%s", text, again)
	}
	for _, want := range []string{`"num_gpu_blocks":16384`, `"type":"polynomial"`, `"mode":"round_robin"`, `"concurrency":1`, `"router":0`, `"workers":1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

func TestResolverAnswersCapacityAndTransferBytes(t *testing.T) {
	c := closed()
	args := `{"aic_backend":"vllm","aic_model_path":"m","worker_type":"`
	c.PrefillEngineArgs, c.DecodeEngineArgs = ptr(args+`prefill"}`), ptr(args+`decode"}`)
	run := mustResolve(t, c)
	run.Transfer = KVTransfer{BytesAuto: true, BandwidthGBps: 5}
	if _, err := run.Config(nil, nil); err == nil {
		t.Error("measured timing without a resolver is accepted")
	}
	cfg, err := run.Config(nil, func(q TimingQuery) (TimingAnswer, error) {
		a := TimingAnswer{BytesPerToken: 77}
		if q.Timing != nil {
			a.Model = timing.Fixed{Prefill: float64(q.Timing.AIC.Role)}
		}
		if q.Capacity != nil {
			a.Blocks = q.Capacity.BlockSize
		}
		return a, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Prefill.Rank.Blocks != 64 || cfg.Decode.Rank.Timing != (timing.Fixed{Prefill: 2}) || cfg.Prefill.Transfer.BytesPerToken != 77 {
		t.Errorf("%+v", cfg)
	}
	if p := run.Provenance(); len(p) != 4 || p[0].Key != "decode_engine.num_gpu_blocks" {
		t.Errorf("provenance %+v", p)
	}
}

func TestDriveCarriesEngineBlockSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := traced(path)
	c.ExtraEngineArgs, c.ArrivalSpeedupRatio = ptr(`{"block_size":16}`), ptr(2.0)
	run := mustResolve(t, c)
	if d, ok := run.Drive(); !ok || d != (trace.Drive{BlockSize: 16, Speedup: 2}) {
		t.Errorf("%+v", d)
	}
	if run.Workload.Trace.Load.BlockSize != trace.DefaultBlockSize {
		t.Errorf("%+v", run.Workload.Trace.Load)
	}
}
