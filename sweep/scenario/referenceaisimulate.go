package scenario

import (
	"strconv"
	"strings"
)

// AISimulateReference describes the AISimulate file that predict runs and recommend
// searches (spec sweeps-and-schema 2).
func AISimulateReference() []KeyTable {
	planner := []Key{
		{"planner.policy", "string", "disabled", "`disabled` or `enabled`."},
		{"planner.target", "string", "throughput", "`throughput`, `latency`, `load` or `sla`; recommend: follows the search's target."},
	}
	for _, k := range predictPlannerKeys[1:] {
		planner = append(planner, Key{"planner." + k[0], "", "", "`" + k[1] + "` of the Planner's configuration."})
	}
	return []KeyTable{
		{"traffic", "Without the section: 100 synthetic requests of 1024 and 128 tokens at concurrency 10. A section that is there is not completed from that.", trafficReference()},
		{"engine", "", aisEngineReference()},
		{"router", "`--stack dynamo`. The last four belong to `kv_router`.", []Key{
			{"router.policy", "string", "round_robin", RouterModes("`%`") + "."},
			{"router.prefill_load_model.type", "string", "none", "`none` or `ais` (also `aic`)."},
			{"router.overlap_score_credit", "number", "1.0", ">= 0."},
			{"router.prefill_load_scale", "number", "1.0", ">= 0."},
			{"router.temperature", "number", "0.0", ">= 0."},
		}},
		{"planner", "`--stack dynamo`. GPUs per worker come from the parallelism; target `load` scales at 1 and 0 waiting tokens, 90 and 70 percent of KV.", planner},
		{"evaluation", "", []Key{
			{"evaluation.sla.ttft_ms", "number or null", "null", "> 0."},
			{"evaluation.sla.itl_ms", "number or null", "null", "> 0."},
			{"evaluation.sla.e2e_ms", "number or null", "null", "> 0; excludes the other two."},
		}},
		{"Search", "recommend only. A domain, `{choices: [...]}` or `{range: {min, max, step, scale: linear|log}}`, may stand for mode, backend, hardware `auto`, parallelism, both scheduler numbers, block size, memory fraction, the number in `traffic.load`, and keys of router and planner.", searchReference()},
	}
}

func trafficReference() []Key {
	return []Key{
		{"traffic.source.type", "string", "required", "`synthetic`, `synthetic-session` or `trace`. Turns of a session grow, each prompt is the session so far, and groups are drawn from seed 0; with `--stack dynamo` turns stand alone, as those of `replay`."},
		{"traffic.source.input_tokens", "integer", strconv.Itoa(defaultInput), "synthetic: > 0."},
		{"traffic.source.output_tokens", "integer", strconv.Itoa(defaultOutput), "synthetic: > 0."},
		{"traffic.source.new_input_tokens_per_turn", "integer", strconv.Itoa(defaultInput), "synthetic-session: > 0."},
		{"traffic.source.output_tokens_per_turn", "integer", strconv.Itoa(defaultOutput), "synthetic-session: > 0."},
		{"traffic.source.session.turns", "integer", strconv.Itoa(defaultTurns), "synthetic-session: >= 2; the mapping `session` is required."},
		{"traffic.source.session.shared_prefix_ratio", "number", "0", "0..1."},
		{"traffic.source.session.prefix_groups", "integer", "0", "> 0 if the ratio is."},
		{"traffic.source.session.inter_turn_delay_ms", "number", "0", ">= 0."},
		{"traffic.source.paths", "list of paths", "required", "trace: one file; format dynamo: any number."},
		{"traffic.source.format", "string", "mooncake", "trace: as `workload.format` of a sweep."},
		{"traffic.source.block_size", "integer", "512", "trace: tokens per hash id, > 0."},
		{"traffic.source.nested_timestamp_basis", "string", "auto", "weka: `auto`, `absolute` or `relative`."},
		{"traffic.load.type", "string", "concurrency", "`concurrency`, `poisson`, `constant_rate`; traces: `concurrency` or `trace_timestamps`; recommend: `kv_capacity_fraction` too."},
		{"traffic.load.concurrency", "integer", strconv.Itoa(defaultConcurrency), "concurrency: > 0."},
		{"traffic.load.requests_per_second", "number", "required", "poisson, constant_rate, of synthetic: > 0."},
		{"traffic.load.sessions_per_second", "number", "required", "the same, of synthetic-session."},
		{"traffic.load.seed", "integer", strconv.Itoa(defaultArrivalSeed), "poisson."},
		{"traffic.load.speedup", "number", "1", "trace_timestamps: > 0."},
		{"traffic.load.agentic_lanes", "integer or null", "null", "trace_timestamps of agentic traces: >= 1."},
		{"traffic.load.fraction", "number", "required", "kv_capacity_fraction: > 0, the concurrency that fills so much of the KV cache."},
		{"traffic.stop.requests", "integer", "", "synthetic: this or the next."},
		{"traffic.stop.requests_per_load_unit", "number", "", "Times the concurrency or rate, rounded half to even, at least 1."},
		{"traffic.stop.sessions", "integer", "", "synthetic-session: this or the next."},
		{"traffic.stop.sessions_per_load_unit", "number", "", "The same."},
		{"traffic.stop.max_virtual_time_seconds", "number or null", "null", "trace: the time limit."},
	}
}

func aisEngineReference() []Key {
	worker := func(path, kind, def, meaning string) Key {
		return Key{"engine.workers.<role>." + path, kind, def, meaning}
	}
	return []Key{
		{"engine.mode", "string", "aggregated", "`aggregated` or `disaggregated`; recommend: both by default."},
		{"engine.model", "string", "required", "Model name or folder."},
		{"engine.hardware", "string", "required", "System; recommend: `auto` with `optimization.hardware`."},
		{"engine.backend", "string", "vllm", "`vllm`, `sglang` or `trtllm`."},
		{"engine.backend_version", "string or null", "null", "Version of the tables."},
		{"engine.forward_model", "string", "op_level", "The only one."},
		{"engine.systems_path", "path or null", "null", "Tables to read instead of the built-in ones."},
		{"engine.context_length", "integer or `max`", "max", "vllm: longest prompt and output together."},
		{"engine.workers", "mapping", "required", "`aggregated`, or `prefill` and `decode`."},
		worker("parallelism.replicas", "integer", "1", "Workers."),
		worker("parallelism.tensor", "integer", "1", ""),
		worker("parallelism.pipeline", "integer", "1", "Must be 1."),
		worker("parallelism.attention_data", "integer", "1", "Ranks of a worker."),
		worker("parallelism.moe_tensor", "integer", "1", ""),
		worker("parallelism.moe_expert", "integer", "1", ""),
		worker("parallelism.context", "integer", "1", ""),
		worker("scheduler.max_batched_tokens", "integer", strconv.Itoa(defaultMaxBatch), "> 0."),
		worker("scheduler.max_sequences", "integer", "", "Default 256, prefill 1."),
		worker("scheduler.prefill_schedule_interval", "integer", "1", "vllm."),
		worker("scheduler.prefill_decode_interval", "integer", "0", "sglang."),
		worker("kv_cache.block_size", "integer or null", "", "Default vllm 64, sglang 1, trtllm 32."),
		worker("kv_cache.prefix_caching", "boolean", "true", ""),
		worker("kv_cache.bytes_per_token", "string", "auto", "The only one."),
		worker("kv_cache.host_offload", "", "", "Host memory behind the KV pool, as `native_host_offload`; needs `kv_cache.bytes_per_token`."),
		worker("kv_cache.capacity.type", "string", "default", "`default`: estimated from model and memory; `fixed`."),
		worker("kv_cache.capacity.memory_fraction", "number", "", "default: 0..1, default 0.9, sglang 0.88."),
		worker("kv_cache.capacity.blocks", "integer", "required", "fixed: KV blocks per rank."),
		worker("kv_cache.capacity.cuda_graph_reserved_bytes", "integer", "0", "default."),
		worker("timing.type", "string", "default", "`default` (measured tables), `fixed` or `polynomial`."),
		worker("timing.decode_qk_norm", "boolean", "true", "default: price query and key norms in decode, as AISimulate 0.13 does; `replay` and `sweep` do so only if they are told."),
		worker("timing.prefill_ms", "number", "required", "fixed: >= 0."),
		worker("timing.decode_ms", "number", "required", "fixed: >= 0."),
		worker("timing.corrections", "mapping", "", "`prefill_scale`, `decode_scale`, `pass_ms`, `sequence_ms`, `client_ms` and `fitted`, as in a sweep's `timing.corrections`; an addition to the format."),
		worker("startup_seconds", "number", "0", ">= 0."),
		{"engine.kv_transfer.bytes_per_token", "integer or `auto`", "auto", "Disaggregated: from the model, or > 0."},
		{"engine.kv_transfer.bandwidth_gb_per_second", "number or null", "null", "null: no delay."},
		{"engine.kv_transfer.timing_mode", "string", "destination_missing", "Or `full_prompt`. The engine arguments' default is the other one."},
		{"engine.kv_transfer.contention", "string", contentions[0], "Or `fair_share`: concurrent transfers share their links (kv-transfer.md)."},
	}
}

func searchReference() []Key {
	return []Key{
		{"optimization.target", "string", "throughput", "`" + strings.Join(targetNames, "`, `") + "`."},
		{"optimization.hardware", "domain", "", "Systems for `engine.hardware: auto`."},
		{"optimization.constraints.min_candidate_gpus", "integer or null", "null", ""},
		{"optimization.constraints.max_candidate_gpus", "integer", strconv.Itoa(defaultMaxGPUs), "> 0."},
		{"optimization.constraints.min_goodput_rps", "number or null", "null", "> 0; required by `min_gpus` and `min_cost`."},
		{"optimization.strict_sla", "boolean", "false", "Candidates that miss the SLA are infeasible."},
		{"optimizer.algorithm", "string", "random", "`grid`, `random` (seeded, without replacement), `halving`, or `bayesian` (a Gaussian process with expected improvement)."},
		{"optimizer.max_trials", "integer", strconv.Itoa(defaultMaxTrials), "> 0."},
		{"optimizer.parallelism", "integer", strconv.Itoa(defaultParallelism), "> 0; `--jobs` bounds it."},
		{"optimizer.candidate_timeout_seconds", "number", strconv.Itoa(defaultTimeoutS), "> 0."},
		{"optimizer.seed", "integer", strconv.Itoa(defaultSearchSeed), ""},
		{"optimizer.max_candidate_requests", "integer", strconv.Itoa(defaultMaxRequests), "Candidates with a larger load are refused."},
		{"cost.usd_per_gpu_hour", "mapping or number", "", "As in a sweep; required by `min_cost`."},
	}
}
