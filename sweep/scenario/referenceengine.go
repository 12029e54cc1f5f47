package scenario

import "strconv"

// EngineReference describes the engine arguments: what the --*-engine-args flags of
// replay take as JSON, and engine in a sweep (spec engine-args).
func EngineReference() []KeyTable {
	return []KeyTable{
		{"engine", "Nested form: these keys stand inside `engine`. In a sweep and in the flat form they stand beside the launch keys.", engineReference()},
		{"engine.sglang, engine.trtllm", "", []Key{
			{"sglang.schedule_policy", "string", "fifo", "`fifo` or `lpm` (longest cached prefix first). Flat form: `fcfs` is fifo."},
			{"sglang.max_prefill_tokens", "integer", strconv.Itoa(defaultMaxPrefill), "Prefill tokens admitted per pass, > 0."},
			{"sglang.chunked_prefill_size", "integer", strconv.Itoa(defaultChunk), "Prefill tokens of one pass, > 0, a multiple of `block_size`; divided by `dp_size`."},
			{"sglang.clip_max_new_tokens", "integer", strconv.Itoa(defaultClip), "Output tokens that admission reserves at most."},
			{"sglang.schedule_conservativeness", "number", "1.0", "Scales the share of the outputs that admission reserves, >= 0."},
			{"trtllm.capacity_scheduler_policy", "string", "guaranteed_no_evict", "The only one."},
		}},
		{"timing_model", "An object with a `type`.", []Key{
			{"timing_model.type", "string", "polynomial", "`polynomial`, `fixed` or `external`."},
			{"timing_model.prefill_ms", "number", "required", "fixed: time of a pass with prefill work, ms, >= 0."},
			{"timing_model.decode_ms", "number", "required", "fixed: time of a pass with decode work, ms, >= 0."},
			{"timing_model.provider", "string", "required", "external: `dynamo_profile`, or `ais` (also `aic`): measured hardware tables."},
			{"timing_model.config", "object", "", "external: `{path}` of a profile, or the performance model: `model`, `system`, `backend_version`, `tp`, `attention_dp`, `cp_size`, `moe_tp_size`, `moe_ep_size`, `*_dtype`, `database_mode`, `systems_path`, `decode_qk_norm`."},
			{"timing_model.corrections", "object", "", "Any type: `prefill_scale`, `decode_scale`, `pass_ms`, `sequence_ms`, `client_ms` and `fitted`, as in a sweep's `timing.corrections`."},
		}},
		{"Launch", "Beside `engine`.", []Key{
			{"dp_size", "integer", "1", "Data-parallel ranks of a worker, > 0; with measured timing its `attention_dp`."},
			{"tensor_parallel_size", "integer", "1", "GPUs per rank, > 0: accounting, no effect on scheduling; with measured timing its `tp`."},
			{"startup_time", "number or null", "null", "Seconds before a worker that was scaled up serves, >= 0. Initial workers are ready at once."},
			{"num_gpu_blocks_is_explicit", "boolean", "", "Accepted, without effect."},
			{"gpu_memory_utilization", "number or null", "null", "vllm: memory share for the KV capacity estimate, 0..1; null: 0.9."},
			{"mem_fraction_static", "number or null", "null", "sglang: the same; null: 0.88."},
			{"free_gpu_memory_fraction", "number or null", "null", "trtllm: the same; null: 0.9."},
			{"cuda_graph_reserved_bytes", "integer or null", "null", "Memory that the estimate sets aside."},
		}},
		{"dynamo", "Options of a live worker. Accepted and checked; only the queue policy acts. Not in a sweep.", []Key{
			{"dynamo.router_queue_policy", "string or null", "null", "`fcfs`, `lcfs` or `wspt`: wins over the router's for this pool."},
			{"dynamo.enable_local_indexer", "boolean", "false", "No effect."},
			{"dynamo.bootstrap_port", "integer or null", "null", "No effect."},
			{"dynamo.handoff_session_timeout_ms", "integer", "300000", "> 0. No effect."},
			{"dynamo.reasoning", "object or null", "null", "No effect."},
			{"dynamo.response_replay_trace_path", "string or null", "null", "No effect."},
			{"dynamo.zmq_kv_events_port", "integer or null", "null", "No effect."},
			{"dynamo.zmq_replay_port", "integer or null", "null", "No effect."},
		}},
		{"Flat form", "The older shape: all keys above side by side (`timing_model`, `sglang` and `trtllm` stay objects), and these.", flatReference()},
	}
}

func engineReference() []Key {
	blocks, seqs, batch := strconv.Itoa(defaultBlocks), strconv.Itoa(defaultMaxSeqs), strconv.Itoa(defaultMaxBatch)
	const offload = "Refused: KV offload takes `native_host_offload`, `g3_offload` or `kv_tiers`."
	return []Key{
		{"backend", "string", "vllm", "`vllm`, `sglang` or `trtllm`."},
		{"num_gpu_blocks", "integer", "", "KV blocks per rank, > 0. Default " + blocks + "; with measured timing an estimate from model, system and memory share. The report's provenance says which."},
		{"block_size", "integer or null", "", "Tokens per KV block: > 0, vllm and trtllm >= 2. Default vllm 64, trtllm 32, sglang 1."},
		{"max_model_len", "integer or null", "null", "Longest prompt and output together, tokens, > 0; null: no limit."},
		{"max_num_seqs", "integer or null", seqs, "Running requests per rank, > 0; null: unlimited."},
		{"max_num_batched_tokens", "integer or null", batch, "Token budget of a pass, > 0; null: unlimited."},
		{"prefill_schedule_interval", "integer", "1", "vllm: > 0. No effect at `dp_size` 1."},
		{"prefill_decode_interval", "integer", "0", "sglang: decode passes between prefill passes."},
		{"enable_prefix_caching", "boolean", "true", ""},
		{"enable_chunked_prefill", "boolean", "true", "`false` is refused for sglang."},
		{"speedup_ratio", "number", "1.0", "Divides prefill and decode times, >= 0; 0: no scaling."},
		{"decode_speedup_ratio", "number", "1.0", "Divides decode times once more, >= 0; 0: no scaling."},
		{"aic_nextn", "integer or null", "null", "Draft tokens of speculative decoding, 1..5; needs `decode_speedup_ratio` 1."},
		{"aic_nextn_accept_rates", "string or null", "null", "Comma list, each 0..1: entry i is the chance that draft i is accepted if those before it were. Default `" + defaultRates + "`, cut to `aic_nextn`."},
		{"aic_mtp_seed", "integer", strconv.Itoa(defaultMTPSeed), "Seed of the acceptance draws."},
		{"worker_type", "string", "", "`aggregated`, `prefill` or `decode`: must match the flag, or the role in a sweep. Default that role in a sweep, else `aggregated`."},
		{"preemption_mode", "string", "lifo", "vllm: `lifo` or `fifo`."},
		{"emit_kv_events", "boolean", "false", "No effect: events flow if the router needs them."},
		{"emit_kv_token_ids", "boolean", "false", "Needs `emit_kv_events`. No effect."},
		{"kv_transfer_bytes_per_token", "integer, `auto` or null", "null", "Handoff: bytes of KV per token, > 0; `auto`: from the prefill role's model (measured timing). Also `kv_bytes_per_token`."},
		{"kv_transfer_bandwidth", "number or null", "null", "Handoff: decimal GB/s, >= 0; null and 0: no delay."},
		{"kv_transfer_timing_mode", "string", "full_prompt", "Handoff: `full_prompt` or `destination_missing`."},
		{"kv_transfer_contention", "string", contentions[0], "Handoff: `none`, or `fair_share`: concurrent transfers share their links (kv-transfer.md)."},
		{"timing_model", "object", "{\"type\":\"polynomial\"}", "How long a pass takes, below. In a sweep: give `timing` instead."},
		{"sglang", "object", "{}", "Below."},
		{"trtllm", "object", "{}", "Below."},
		{"kv_cache_bytes_per_token", "integer or null", "null", "> 0. Size of the blocks of `native_host_offload` and `kv_tiers`."},
		{"kv_cache_groups", "", "", offload}, {"kv_cache_capacity_bytes", "", "", offload}, {"native_host_offload", "object or null", "null", "Host memory behind the KV pool (vllm): kv-tiers.md."},
		{"state_cache", "", "", offload}, {"prefix_match_unit", "", "", offload}, {"g3_offload", "object or null", "null", "A tier behind the host memory: kv-tiers.md."},
		{kvTiersKey, "object or null", "null", "The same in gigabytes, `host`, `disk` or `remote`: kv-tiers.md."},
	}
}

func flatReference() []Key {
	keys := []Key{
		{"engine_type", "string", "vllm", "`backend`, in any case."},
		{"is_prefill", "boolean", "false", "`worker_type` prefill."},
		{"is_decode", "boolean", "false", "`worker_type` decode."},
		{"sglang.page_size", "integer", "", "`block_size` of sglang; both given must agree."},
		{"planner_profile_data", "path or null", "null", "Profile timing: `.npz` file or profiler folder."},
		{"has_perf_model", "boolean", "", "Accepted, without effect."},
		{"aic_backend", "string or null", "null", "Selects measured timing; must equal the engine's backend."},
		{"aic_system", "string", "h200_sxm", "Hardware system."},
		{"aic_model_path", "string", "required", "Model name or folder."},
		{"aic_backend_version", "string or null", "null", "Version of the tables."},
		{"aic_tp_size", "integer", "1", "Tensor parallelism."},
		{"aic_attention_dp_size", "integer", "1", "Attention data parallelism: sets `dp_size`."},
		{"aic_moe_tp_size", "integer or null", "null", "Expert tensor parallelism."},
		{"aic_moe_ep_size", "integer or null", "null", "Expert parallelism."},
	}
	for _, d := range []string{"gemm", "moe", "fmha", "kv_cache", "comm"} {
		keys = append(keys, Key{"aic_" + d + "_dtype", "string or null", "null", "Number format; null: the checkpoint's."})
	}
	for _, k := range offloadKeys[4:] {
		keys = append(keys, Key{k, "", "", "Refused: KV offload takes `native_host_offload`, `g3_offload` or `kv_tiers`."})
	}
	return keys
}
