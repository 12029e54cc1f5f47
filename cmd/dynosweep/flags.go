package main

import (
	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Categories of replay's flags in its help.
const (
	catLoad     = "Synthetic load"
	catTrace    = "Trace"
	catEngine   = "Deployment"
	catRouter   = "Router"
	catPlanner  = "Planner"
	catEstimate = "Prefill-load estimate of the KV router (hardware tables)"
	catSLA      = "SLA and checks"
	catOutput   = "Output"
)

func intFlag(category, name, usage string) cli.Flag {
	return &cli.Int64Flag{Name: name, Usage: usage, Category: category, HideDefault: true}
}

func floatFlag(category, name, usage string) cli.Flag {
	return &cli.Float64Flag{Name: name, Usage: usage, Category: category, HideDefault: true}
}

func seedFlag(category, name, usage string) cli.Flag {
	return &cli.Uint64Flag{Name: name, Usage: usage, Category: category, HideDefault: true}
}

func textFlag(category, name, usage string, env ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Usage: usage, Category: category, HideDefault: true, Sources: cli.EnvVars(env...)}
}

// replayFlags are the flags of spec sweeps-and-schema 7, and our own.
func replayFlags() []cli.Flag {
	return append(inputFlags(), outputFlags()...)
}

func inputFlags() []cli.Flag {
	return []cli.Flag{
		intFlag(catLoad, "input-tokens", "prompt length of every request, `TOKENS`"),
		intFlag(catLoad, "output-tokens", "output length of every request, `TOKENS`"),
		intFlag(catLoad, "request-count", "number of requests; of sessions with several turns"),
		intFlag(catLoad, "replay-concurrency", "closed loop: `N` requests (sessions) in flight; traces too"),
		floatFlag(catLoad, "request-rate", "Poisson arrivals, `R` requests per second"),
		floatFlag(catLoad, "arrival-interval-ms", "fixed gap between arrivals, `MS`"),
		seedFlag(catLoad, "arrival-seed", "`SEED` of Poisson arrivals (default 42)"),
		floatFlag(catLoad, "arrival-speedup-ratio", "divide arrival times and delays by `X`, open loop (default 1)"),
		intFlag(catLoad, "turns-per-session", "turns of every session (default 1)"),
		floatFlag(catLoad, "inter-turn-delay-ms", "think time between turns, `MS` (default 0)"),
		floatFlag(catLoad, "shared-prefix-ratio", "share of every prompt that its group shares, 0..1 (default 0)"),
		intFlag(catLoad, "num-prefix-groups", "number of prefix groups (default 0)"),

		textFlag(catTrace, "trace-format", "mooncake, mooncake-delta, agentic_mooncake, applied_compute_agentic, dynamo or weka (default mooncake)"),
		intFlag(catTrace, "trace-block-size", "`TOKENS` per hash id (default 512)"),
		floatFlag(catTrace, "trace-shared-prefix-ratio", "applied_compute_agentic: shared share of first prompts"),
		intFlag(catTrace, "trace-num-prefix-groups", "applied_compute_agentic: number of prefix groups"),
		floatFlag(catTrace, "max-sim-time-seconds", "stop before the first event later than `S` seconds"),
		intFlag(catTrace, "agentic-lanes", "agentic traces: at most `N` plays at a time"),
		textFlag(catTrace, "execution-model", "model name of agentic traces, echoed in the report"),

		textFlag(catEngine, "extra-engine-args", "engine arguments of aggregated workers, `JSON`"),
		textFlag(catEngine, "prefill-engine-args", "engine arguments of prefill workers, `JSON`"),
		textFlag(catEngine, "decode-engine-args", "engine arguments of decode workers, `JSON`"),
		intFlag(catEngine, "num-workers", "aggregated workers (default 1)"),
		intFlag(catEngine, "num-prefill-workers", "prefill workers (default 1)"),
		intFlag(catEngine, "num-decode-workers", "decode workers (default 1)"),
		textFlag(catEngine, "systems-path", "hardware tables to read instead of the built-in ones: the package's systems `DIR` or wheel"),
		textFlag(catEngine, "replay-mode", "offline (default)"),

		textFlag(catRouter, "router-mode", scenario.RouterModes("%")),
		textFlag(catRouter, "router-config", "KV router configuration, `JSON`"),
		textFlag(catRouter, "router-policy-config", "policy classes, YAML `FILE`", "DYN_ROUTER_POLICY_CONFIG"),
		textFlag(catRouter, "model-name", "model `NAME` that picks the policy profile"),
		floatFlag(catRouter, "kv-event-lag-ms", "delay of KV events on their way to the router, `MS`"),
		seedFlag(catRouter, "router-seed", "`SEED` of the router's ties and draws (default 0)"),

		textFlag(catPlanner, "planner-config", "Planner in the loop: `FILE`, or JSON or YAML text"),
		intFlag(catPlanner, "benchmark-granularity", "points per axis of the Planner's bootstrap with hardware timing (default 8)"),

		textFlag(catEstimate, "aic-backend", "vllm, sglang or trtllm"),
		textFlag(catEstimate, "aic-system", "hardware system, as h200_sxm"),
		textFlag(catEstimate, "aic-model-path", "model name or directory"),
		textFlag(catEstimate, "aic-backend-version", "version of the tables"),
		intFlag(catEstimate, "aic-tp-size", "tensor parallelism (default 1)"),
		intFlag(catEstimate, "aic-moe-tp-size", "expert tensor parallelism"),
		intFlag(catEstimate, "aic-moe-ep-size", "expert parallelism"),
		intFlag(catEstimate, "aic-attention-dp-size", "attention data parallelism"),
		textFlag(catEstimate, "aic-gemm-dtype", "number format of matrix products"),
		textFlag(catEstimate, "aic-moe-dtype", "number format of experts"),
		textFlag(catEstimate, "aic-fmha-dtype", "number format of attention"),
		textFlag(catEstimate, "aic-kv-cache-dtype", "number format of the KV cache"),
		textFlag(catEstimate, "aic-comm-dtype", "number format of communication"),
		intFlag(catEstimate, "aic-nextn", "draft tokens of speculative decoding"),
		textFlag(catEstimate, "aic-nextn-accept-rates", "their acceptance rates, \"r1,r2,...\""),

		floatFlag(catSLA, "sla-ttft-ms", "goodput bound on TTFT, `MS`"),
		floatFlag(catSLA, "sla-itl-ms", "goodput bound on the mean ITL of a request, `MS`"),
		floatFlag(catSLA, "sla-e2e-ms", "goodput bound on the request latency, `MS`; excludes the other two"),
	}
}

func outputFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "assert", Usage: "exit 1 unless the report holds, as 'mean_ttft_ms<500'; repeatable", Category: catSLA},
		&cli.BoolFlag{Name: "require-complete", Usage: "exit 1 unless every request completed", Category: catSLA},
		textFlag(catOutput, "report-json", "report `FILE` or directory; - is standard output"),
		textFlag(catOutput, "report-jsonl", "`FILE` with one object per request"),
		textFlag(catOutput, "telemetry-jsonl", "`FILE` with one telemetry sample per line"),
		floatFlag(catOutput, "telemetry-interval-ms", "simulated time between samples, `MS` (default 1000)"),
		textFlag(catOutput, "ticks-jsonl", "`FILE` with every Planner tick; the report keeps the first 10,000"),
		textFlag(catOutput, "kv-events-jsonl", "`FILE` with every stored and removed KV event"),
	}
}

// given returns the value of a flag, nil if it was not set.
func given[T any](c *cli.Command, name string) *T {
	if !c.IsSet(name) {
		return nil
	}
	v, ok := c.Value(name).(T)
	if !ok {
		panic("flag " + name + " has another type")
	}
	return &v
}

func readReplayFlags(c *cli.Command) *scenario.ReplayFlags {
	i := func(name string) *int64 { return given[int64](c, name) }
	f := func(name string) *float64 { return given[float64](c, name) }
	s := func(name string) *string { return given[string](c, name) }
	u := func(name string) *uint64 { return given[uint64](c, name) }
	return &scenario.ReplayFlags{
		Traces:      c.Args().Slice(),
		InputTokens: i("input-tokens"), OutputTokens: i("output-tokens"), RequestCount: i("request-count"),
		ReplayConcurrency: i("replay-concurrency"), RequestRate: f("request-rate"), ArrivalIntervalMs: f("arrival-interval-ms"),
		ArrivalSeed: u("arrival-seed"), ArrivalSpeedupRatio: f("arrival-speedup-ratio"),
		TurnsPerSession: i("turns-per-session"), NumPrefixGroups: i("num-prefix-groups"),
		InterTurnDelayMs: f("inter-turn-delay-ms"), SharedPrefixRatio: f("shared-prefix-ratio"),
		TraceFormat: s("trace-format"), TraceBlockSize: i("trace-block-size"),
		TraceSharedPrefixRatio: f("trace-shared-prefix-ratio"), TraceNumPrefixGroups: i("trace-num-prefix-groups"),
		MaxSimTimeSeconds: f("max-sim-time-seconds"), AgenticLanes: i("agentic-lanes"), ExecutionModel: s("execution-model"),
		ExtraEngineArgs: s("extra-engine-args"), PrefillEngineArgs: s("prefill-engine-args"), DecodeEngineArgs: s("decode-engine-args"),
		NumWorkers: i("num-workers"), NumPrefillWorkers: i("num-prefill-workers"), NumDecodeWorkers: i("num-decode-workers"),
		SystemsPath: s("systems-path"), ReplayMode: s("replay-mode"), RouterMode: s("router-mode"), RouterConfig: s("router-config"),
		RouterPolicyConfig: s("router-policy-config"), ModelName: s("model-name"),
		KVEventLagMs: f("kv-event-lag-ms"), RouterSeed: u("router-seed"),
		PlannerConfig: s("planner-config"), BenchmarkGranularity: i("benchmark-granularity"),
		AICBackend: s("aic-backend"), AICSystem: s("aic-system"), AICModelPath: s("aic-model-path"), AICBackendVersion: s("aic-backend-version"),
		AICTPSize: i("aic-tp-size"), AICMoETPSize: i("aic-moe-tp-size"), AICMoEEPSize: i("aic-moe-ep-size"),
		AICAttentionDPSize: i("aic-attention-dp-size"), AICNextN: i("aic-nextn"),
		AICGEMMDType: s("aic-gemm-dtype"), AICMoEDType: s("aic-moe-dtype"), AICFMHADType: s("aic-fmha-dtype"),
		AICKVCacheDType: s("aic-kv-cache-dtype"), AICCommDType: s("aic-comm-dtype"), AICNextNAcceptRates: s("aic-nextn-accept-rates"),
		SLATTFTMs: f("sla-ttft-ms"), SLAITLMs: f("sla-itl-ms"), SLAE2EMs: f("sla-e2e-ms"),
		TelemetryIntervalMs: f("telemetry-interval-ms"),
	}
}
