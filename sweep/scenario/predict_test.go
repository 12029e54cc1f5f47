package scenario

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// minimal is the aggregated example of spec sweeps-and-schema 2.7.
func minimal(t testing.TB) string {
	text, err := os.ReadFile(filepath.Join("testdata", "predict.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func predict(t testing.TB, text, stack string, set ...string) (Run, error) {
	t.Helper()
	return ParsePredict("p.yaml", sweepFolder(t), []byte(text), PredictOptions{Stack: stack, Set: set}, &Files{})
}

func mustPredict(t testing.TB, text, stack string, set ...string) Run {
	t.Helper()
	run, err := predict(t, text, stack, set...)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func TestPredictEqualsReplayFlags(t *testing.T) {
	run := mustPredict(t, minimal(t), "engine")
	c := ReplayFlags{InputTokens: ptr[int64](1024), OutputTokens: ptr[int64](32), RequestCount: ptr[int64](64),
		ReplayConcurrency: ptr[int64](8), NumWorkers: ptr[int64](2),
		ExtraEngineArgs: ptr(`{"num_gpu_blocks":4096,"timing_model":{"type":"fixed","prefill_ms":10,"decode_ms":2}}`)}
	flags := mustResolve(t, c)
	yaml := strings.Replace(string(run.ResolvedJSON()), `"hardware":"h200_sxm",`, "", 1) // flags name none beside fixed timing
	if b := string(flags.ResolvedJSON()); yaml != b || run.ID() != flags.ID() {
		t.Errorf("\nyaml  %s\nflags %s", yaml, b)
	}
}

const disaggregatedFile = `
engine:
  mode: disaggregated
  model: Qwen/Qwen3-32B
  hardware: h200_sxm
  workers:
    prefill: {parallelism: {replicas: 2, tensor: 4}, startup_seconds: 30}
    decode: {parallelism: {attention_data: 2}, scheduler: {max_sequences: 512}, kv_cache: {capacity: {memory_fraction: 0.8}}, timing: {type: polynomial}}
  kv_transfer: {bandwidth_gb_per_second: 50}
traffic:
  source: {type: trace, paths: [t.jsonl]}
  load: {type: trace_timestamps, speedup: 2}
  stop: {max_virtual_time_seconds: 3}
router: {policy: kv_router, overlap_score_credit: 0.5, temperature: 0.2, prefill_load_model: {type: aic}}
planner: {policy: enabled, target: sla, max_num_gpus: 16, enable_throughput_scaling: true, enable_load_scaling: true}
evaluation: {sla: {ttft_ms: 2000, itl_ms: 50}}
`

func TestPredictDisaggregatedWithRouterAndPlanner(t *testing.T) {
	run := mustPredict(t, disaggregatedFile, "dynamo")
	asked := 0
	cfg, err := run.Config(nil, func(q TimingQuery) (TimingAnswer, error) {
		asked++
		return TimingAnswer{Model: timing.Fixed{}, Blocks: 1000, BytesPerToken: 64}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p, d := cfg.Prefill, cfg.Decode
	if p.Workers != 2 || p.GPUsPerWorker != 4 || p.StartupMs != 30000 || p.Rank.MaxNumSeqs != 1 || p.Rank.Blocks != 1000 ||
		p.Transfer.BytesPerToken != 64 || !p.Transfer.DestinationMissing || p.Transfer.BandwidthGBps != 50 {
		t.Errorf("prefill %+v", p)
	}
	if d.DPSize != 2 || d.Rank.MaxNumSeqs != 512 || d.Rank.Blocks != 1000 || d.Rank.Timing != (timing.Polynomial{}) ||
		run.Decode.Capacity.MemoryFraction != 0.8 || run.Decode.Capacity.Model.AttentionDP != 2 {
		t.Errorf("decode %+v", d)
	}
	if c := cfg.Router.Config; !cfg.Router.Mode.Configured || c.OverlapCredit != 0.5 || c.Temperature != 0.2 || c.Estimator == nil || run.Router.Estimator.TP != 4 {
		t.Errorf("router %+v", cfg.Router)
	}
	if c := run.Planner.Config; c.Mode != planner.Disagg || c.Budget.MaxGPUs != 16 || c.TTFTMs != 2000 || !c.ThroughputScaling ||
		c.Recorder.PrefillEngineGPUs != 4 || c.Recorder.DecodeEngineGPUs != 2 || c.Recorder.On() {
		t.Errorf("planner %+v", c)
	}
	if cfg.MaxSimTimeMs != 3000 || cfg.SLA.ITLMs != 50 || asked != 4 || run.Workload.Trace.Drive.Speedup != 2 {
		t.Errorf("%d questions, %+v", asked, cfg)
	}
}

func TestPredictDefaultTrafficAndRelativeStop(t *testing.T) {
	head, _, _ := strings.Cut(minimal(t), "traffic:")
	run := mustPredict(t, head, "engine")
	s, _ := run.Synthetic()
	if s.InputTokens != 1024 || s.OutputTokens != 128 || s.Requests != 100 || s.Concurrency != 10 || !math.IsInf(run.Workload.MaxSimTimeMs, 1) {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct {
		load, ratio string
		want        int
	}{{"{type: concurrency, concurrency: 5}", "0.5", 2}, {"{type: concurrency, concurrency: 7}", "0.5", 4},
		{"{type: poisson, requests_per_second: 2.5, seed: 3}", "3", 8}, {"{type: constant_rate, requests_per_second: 0.1}", "1", 1}} {
		run := mustPredict(t, head+"traffic: {source: {type: synthetic}, load: "+c.load+", stop: {requests_per_load_unit: "+c.ratio+"}}\n", "engine")
		if s, _ := run.Synthetic(); s.Requests != c.want {
			t.Errorf("%s x %s: %d requests, want %d", c.load, c.ratio, s.Requests, c.want)
		}
	}
}

func TestPredictSessions(t *testing.T) {
	head, _, _ := strings.Cut(minimal(t), "traffic:")
	text := head + `traffic:
  source: {type: synthetic-session, new_input_tokens_per_turn: 100, session: {turns: 3, shared_prefix_ratio: 0.5, prefix_groups: 2, inter_turn_delay_ms: 5}}
  load: {type: poisson, sessions_per_second: 4}
  stop: {sessions: 6}
`
	run := mustPredict(t, text, "dynamo")
	s, _ := run.Synthetic()
	want := workload.DefaultSynthetic()
	want.InputTokens, want.OutputTokens, want.Requests, want.TurnsPerSession = 100, 128, 6, 3
	want.SharedPrefixRatio, want.PrefixGroups, want.InterTurnDelayMs = 0.5, 2, 5
	want.Control, want.RatePerS = workload.Poisson, 4
	if s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	alone := mustPredict(t, text, "engine")
	want.Cumulative, want.GroupSeed = true, 0
	if s, _ := alone.Synthetic(); s != want {
		t.Errorf("engine stack: got %+v, want %+v", s, want)
	}
	if alone.ID() == run.ID() {
		t.Error("turns that grow and turns that do not are one point")
	}
	if args, err := ReplayArgs(alone.ResolvedJSON(), nil); err == nil || !strings.Contains(err.Error(), "turns that grow") {
		t.Errorf("as flags of replay: %v, %v", args, err)
	}
}

func TestSetOverridesAndCreates(t *testing.T) {
	run := mustPredict(t, minimal(t), "engine", "engine.workers.aggregated.parallelism.replicas=3",
		"engine.workers.aggregated.scheduler.max_batched_tokens=1024", "engine.backend=sglang", "engine.backend=vllm",
		"evaluation.sla={ttft_ms: 9}")
	if run.DecodeWorkers != 3 || run.Decode.Rank.MaxNumBatchedTokens != 1024 || run.Decode.Rank.Backend != engine.VLLM || run.SLA.TTFTMs != 9 {
		t.Errorf("%+v", run)
	}
}

func TestPredictRefusals(t *testing.T) {
	for _, c := range []struct {
		set, want string
	}{
		{"zz=1", "p.yaml: zz: unknown field `zz`"},
		{"optimization.target=pareto", "optimization belongs to recommend"},
		{"optimizer={}", "optimizer belongs to recommend"},
		{"engine", "expected PATH=VALUE"},
		{"traffic.source.paths.0=a", "path segments are keys of mappings, `0` is an index"},
		{"engine.model.x=1", "`engine.model` is no mapping"},
		{"engine..x=1", "an empty path segment"},
		{"engine.model=[", "--set engine.model=["},
		{"engine.workers.aggregated.foo=1", "p.yaml: engine.workers.aggregated.foo: unknown field `foo`"},
		{"engine.workers.prefill={}", "engine.workers.prefill: unknown field `prefill`, expected `aggregated`"},
		{"engine.mode=disaggregated", "missing field `prefill`"},
		{"engine.kv_transfer={}", "kv_transfer belongs to mode disaggregated"},
		{"engine.model=", "engine.model: invalid type: null"},
		{"engine.hardware=auto", "auto belongs to recommend"},
		{"engine.forward_model=fpm", "only op_level is supported"},
		{"engine.backend=vLLM", "unknown variant `vLLM`, expected one of `vllm`, `sglang`, `trtllm`"},
		{"engine.context_length=0", "max_model_len must be positive"},
		{"engine.workers.aggregated.kv_cache.block_size=1", "vLLM/TRT-LLM block_size must be at least two"},
		{"engine.workers.aggregated.kv_cache.capacity.memory_fraction=0.5", "memory_fraction belongs to capacity type default"},
		{"engine.workers.aggregated.kv_cache.capacity={type: fixed}", "missing field `blocks`"},
		{"engine.workers.aggregated.kv_cache.capacity={blocks: 5}", "blocks belongs to capacity type fixed"},
		{"engine.workers.aggregated.kv_cache.host_offload={}", "kv_cache.host_offload: missing field `num_host_blocks`"},
		{"engine.workers.aggregated.timing={type: fixed, prefill_ms: 1}", "missing field `decode_ms`"},
		{"engine.workers.aggregated.timing={type: polynomial, prefill_ms: 1}", "prefill_ms belongs to timing type fixed"},
		{"engine.workers.aggregated.parallelism.pipeline=2", "pipeline must be 1"},
		{"engine.workers.aggregated.parallelism.replicas={choices: [1, 2]}", "parallelism.replicas: invalid type: map"},
		{"engine.workers.aggregated.startup_seconds=-1", "startup_time must be finite and non-negative"},
		{"traffic.source.images=1", "images are not supported"},
		{"traffic.source.type=video", "unknown variant `video`"},
		{"traffic.load.speedup=2", "unknown field `speedup`, expected `type` or `concurrency`"},
		{"traffic.load.type=kv_capacity_fraction", "unknown variant `kv_capacity_fraction`"},
		{"traffic.load={type: poisson}", "missing field `requests_per_second`"},
		{"traffic.load={type: poisson, sessions_per_second: 1}", "unknown field `sessions_per_second`"},
		{"traffic.stop.sessions=2", "unknown field `sessions`"},
		{"traffic.stop.requests_per_load_unit=2", "traffic.stop needs exactly one of"},
		{"traffic.source={type: trace, paths: []}", "paths must be a non-empty list"},
		{"traffic={source: {type: trace, paths: [t.jsonl]}, load: {type: concurrency, speedup: 2}}", "unknown field `speedup`"},
		{"traffic={source: {type: trace, paths: [a, b]}}", "requires exactly one trace file, got 2"},
		{"traffic.source.input_tokens=4294967296", "p.yaml: traffic.source.input_tokens: input_tokens must be at most 2147483647"},
		{"traffic.stop.requests=1099511627776", "p.yaml: traffic.stop.requests: request_count times turns_per_session must be at most"},
		{"traffic.load={type: poisson, requests_per_second: 1e-320}", "traffic.load.requests_per_second: request_rate 1e-320 puts"},
		{"traffic={source: {type: synthetic-session, session: {shared_prefix_ratio: 2, prefix_groups: 1}}, stop: {sessions: 1}}", "traffic.source.session.shared_prefix_ratio: shared_prefix_ratio must be between"},
		{"traffic={source: {type: trace, paths: [t.jsonl]}, load: {type: trace_timestamps, speedup: 0}}", "traffic.load.speedup: ratio must be a finite positive number, got 0"},
		{"traffic={source: {type: trace, paths: [t.jsonl], format: weka}, load: {concurrency: 2}}", "traffic.load.concurrency: agentic Dynamo"},
		{"evaluation.sla={ttft_ms: 1, e2e_ms: 1}", "sla.e2e_ms is mutually exclusive"},
		{"router={}", "router is a section of the dynamo stack"},
	} {
		_, err := predict(t, minimal(t), "engine", c.set)
		wantError(t, err, c.set, c.want)
	}
	for _, c := range []struct{ set, want string }{
		{"router={policy: round_robin, temperature: 1}", "temperature belongs to policy kv_router"},
		{"router={policy: kv_router, temperature: null}", "router.temperature: invalid type: null"},
		{"router={queue: 1}", "unknown field `queue`"},
		{"planner={policy: enabled, targt: sla}", "unknown field `targt`"},
		{"planner={policy: enabled, enable_throughput_scaling: true}", "throughput scaling needs target sla"},
		{"planner={policy: enabled, max_num_gpus: many}", "max_num_gpus"},
	} {
		_, err := predict(t, minimal(t), "dynamo", c.set)
		wantError(t, err, c.set, c.want)
	}
	if _, err := predict(t, minimal(t), "mars"); err == nil {
		t.Log("ParsePredict leaves the stack's name to ReadPredict")
	}
}

func FuzzSet(f *testing.F) {
	text := minimal(f)
	for _, s := range []string{"a=1", "engine.model=x", "engine.workers.aggregated.timing={type: polynomial}", "a.b.c=[1, {d: 2}]", "=", "a.=1", "engine=null", "traffic.source.type=trace"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, set string) {
		run, err := ParsePredict("p.yaml", "", []byte(text), PredictOptions{Stack: "dynamo", Set: []string{set}}, &Files{})
		if err != nil {
			if !errors.Is(err, document.ErrInput) {
				t.Errorf("%q: %v is not ErrInput", set, err)
			}
			return
		}
		if run.Decode == nil || run.Workload == nil || run.GPUs() < 1 {
			t.Errorf("%q gives %+v", set, run)
		}
	})
}
