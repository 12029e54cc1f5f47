package scenario

// Key is one key of an input document, for the reference page.
type Key struct {
	Path    string // dotted, from the document's or the table's root
	Type    string
	Default string // "" where there is none
	Meaning string // with its constraint
}

// KeyTable is a group of keys that stand together.
type KeyTable struct {
	Title, Note string
	Keys        []Key
}

// Keys of a document are described here and read elsewhere; a test holds the two
// together: the same names, and a default that is written out changes nothing.

// SweepReference describes the sweep specification, what is upstream's inside
// `engine`, `router.config` and `planner` aside.
func SweepReference() []KeyTable {
	return []KeyTable{
		{"Top level", "", []Key{
			{"name", "string", "", "Letters, digits, `.`, `_`, `-`. Names the results directory. Default: the file's name without its extension."},
			{"workload", "mapping", "required", "The load. A list of mappings is a list of alternatives."},
			{"engine", "mapping", "{}", "Engine arguments of every role, below."},
			{"topology", "mapping", "{}", "Pools and their sizes."},
			{"router", "mapping", "{}", "Placement."},
			{"timing", "mapping", "{type: polynomial}", "How long a pass takes; or `prefill` and `decode`, one mapping per role of a disaggregated topology."},
			{"planner", "mapping or null", "null", "Planner in the loop: its keys are below, and `startup_seconds`."},
			{"sla", "mapping", "{}", "Bounds of goodput and attainment."},
			{"cost", "mapping", "", "Prices. Without it no cost columns are filled."},
			{"constraints", "mapping", "{}", "Points outside are skipped with a reason."},
			{"seeds", "list of integers", "", "Each point in which something is drawn runs once per seed; seed s sets the router's seed to s, and `arrival_seed` and `aic_mtp_seed` to 41 + s where they are not written."},
		}},
		{"workload", "Either `trace` or `synthetic`.", []Key{
			{"workload.trace", "path", "", "Trace file, `.gz` too, from the specification's folder or else the working directory. A list is an axis; inside an axis, a list of shards is one value (format dynamo)."},
			{"workload.format", "string", "mooncake", "`mooncake`, `mooncake-delta`, `agentic_mooncake`, `applied_compute_agentic`, `dynamo` or `weka`."},
			{"workload.trace_block_size", "integer", "512", "Tokens per hash id, > 0. Formats that embed it take a value as an equality check."},
			{"workload.trace_shared_prefix_ratio", "number", "0", "applied_compute_agentic: shared share of first prompts, 0..1."},
			{"workload.trace_num_prefix_groups", "integer", "0", "applied_compute_agentic: number of prefix groups."},
			{"workload.max_sim_time_seconds", "number or null", "null", "Stop before the first event later than this, >= 0. Traces."},
			{"workload.agentic_lanes", "integer or null", "null", "Agentic traces: at most so many plays at a time, >= 1."},
			{"workload.execution_model", "string or null", "null", "Model name of agentic traces, echoed in the report."},
			{"workload.nested_timestamp_basis", "string", "auto", "weka: `auto`, `absolute` or `relative`."},
			{"workload.synthetic", "mapping", "", "Generated load."},
			{"workload.synthetic.input_tokens", "integer", "required", "Prompt length of every request; of the new text of every turn."},
			{"workload.synthetic.output_tokens", "integer", "required", "Output length of every request."},
			{"workload.synthetic.requests", "integer", "required", "Number of requests; of sessions with several turns. Also `request_count`."},
			{"workload.synthetic.turns_per_session", "integer", "1", "Turns of every session, >= 1."},
			{"workload.synthetic.inter_turn_delay_ms", "number", "0", "Think time between turns, ms, >= 0."},
			{"workload.synthetic.shared_prefix_ratio", "number", "0", "Share of every first prompt that its group shares, 0..1."},
			{"workload.synthetic.num_prefix_groups", "integer", "0", "Number of prefix groups; 0 shares nothing."},
		}},
		{"Load", "These keys stand in `workload`, or in `workload.synthetic`. Synthetic load takes exactly one of the first three; a trace takes `concurrency`, or is released at its own times.", []Key{
			{"workload.concurrency", "integer or null", "null", "Closed loop: requests (sessions) in flight, >= 1. Also `replay_concurrency`."},
			{"workload.request_rate", "number or null", "null", "Poisson arrivals, requests per second, > 0. Synthetic."},
			{"workload.arrival_interval_ms", "number or null", "null", "Fixed gap between arrivals, ms, >= 0. Synthetic."},
			{"workload.arrival_seed", "integer or null", "42", "Seed of Poisson arrivals. Synthetic."},
			{"workload.arrival_speedup", "number", "1", "Divides arrival times and delays, open loop, > 0. Also `arrival_speedup_ratio`."},
		}},
		{"topology", "", []Key{
			{"topology.mode", "string", "aggregated", "`aggregated` or `disaggregated`."},
			{"topology.workers", "integer", "1", "Aggregated workers, >= 1."},
			{"topology.prefill_workers", "integer", "1", "Disaggregated: prefill workers, >= 1."},
			{"topology.decode_workers", "integer", "1", "Disaggregated: decode workers, >= 1."},
			{"topology.prefill_engine", "mapping or null", "null", "Disaggregated: engine keys of prefill workers, laid over `engine`."},
			{"topology.decode_engine", "mapping or null", "null", "Disaggregated: engine keys of decode workers, laid over `engine`."},
			{"topology.kv_transfer", "mapping or null", "null", "Disaggregated: price of the handoff. What it leaves out comes from the prefill role's `kv_transfer_*` keys."},
			{"topology.kv_transfer.bytes_per_token", "integer or `auto`", "", "Bytes of KV per token, > 0; `auto`: from the prefill role's model (aic timing)."},
			{"topology.kv_transfer.bandwidth_gb_per_second", "number or null", "null", "Decimal GB/s of a link, > 0; null: no delay."},
			{"topology.kv_transfer.timing_mode", "string", "full_prompt", "`full_prompt`, or `destination_missing`: only what the destination has not cached."},
			{"topology.kv_transfer.contention", "string", "none", "`none`, or `fair_share`: concurrent transfers share their links (kv-transfer.md)."},
		}},
		{"router", "", []Key{
			{"router.mode", "string", "round_robin", RouterModes("`%`") + "."},
			{"router.config", "mapping or null", "null", "KV router configuration, below."},
			{"router.policy_config", "path or null", "null", "Policy classes, YAML (router.md). Wins over `router.config.router_policy_config`."},
			{"router.model_name", "string or null", "null", "Picks the profile of the policy file."},
			{"router.kv_event_lag_ms", "number", "0", "Delay of KV events on their way to the router, ms, >= 0; kv_router only."},
		}},
		{"timing", "One mapping for all roles, or `prefill` and `decode`. `type` decides which keys may stand beside it.", []Key{
			{"timing.type", "string", "polynomial", "`polynomial` (built-in), `fixed`, `profile` or `aic` (measured hardware tables)."},
			{"timing.prefill_ms", "number", "required", "fixed: time of a pass with prefill work, ms, >= 0."},
			{"timing.decode_ms", "number", "required", "fixed: time of a pass with decode work, ms, >= 0."},
			{"timing.path", "path", "required", "profile: `.npz` file, raw-data JSON or profiler folder."},
			{"timing.model", "string", "required", "aic: bundled model name, or a folder with a Hugging Face `config.json`."},
			{"timing.system", "string", "required", "aic: hardware system, as `h200_sxm`."},
			{"timing.backend", "string or null", "", "aic: must equal `engine.backend`; default that."},
			{"timing.backend_version", "string or null", "", "aic: `current`, `previous`, `next` or a number; default `current`."},
			{"timing.tensor_parallel", "integer", "1", "aic: tensor parallelism. With `tensor_parallel_size` written too, the two must agree."},
			{"timing.attention_data_parallel", "integer", "1", "aic: attention data parallelism: ranks of a worker. With `dp_size` written too, the two must agree."},
			{"timing.context_parallel", "integer or null", "1", "aic: must be 1: context parallelism is not priced."},
			{"timing.moe_tensor_parallel", "integer or null", "null", "aic: expert tensor parallelism; together with the next key, and their product is tensor x attention data x context."},
			{"timing.moe_expert_parallel", "integer or null", "null", "aic: expert parallelism."},
			{"timing.gemm_dtype", "string or null", "null", "aic: number format of matrix products; null: the checkpoint's."},
			{"timing.moe_dtype", "string or null", "null", "aic: number format of experts."},
			{"timing.fmha_dtype", "string or null", "null", "aic: number format of attention."},
			{"timing.kv_cache_dtype", "string or null", "null", "aic: number format of the KV cache."},
			{"timing.comm_dtype", "string or null", "null", "aic: number format of communication."},
			{"timing.database_mode", "string or null", "SILICON", "aic: `SILICON` (measured), `HYBRID`, `EMPIRICAL` or `SOL`."},
			{"timing.attention_backend", "string or null", "null", "aic: attention kernels, where the tables have several."},
			{"timing.decode_qk_norm", "boolean", "false", "aic: price query and key norms in decode too, as AISimulate core 0.13 does."},
			{"timing.corrections", "mapping", "", "Every type: what measured runs of your own say about the model, from `dynosweep calibrate`; figures are then no longer the reference's."},
			{"timing.corrections.prefill_scale", "number", "1", "Factor on the prefill part of a pass, > 0."},
			{"timing.corrections.decode_scale", "number", "1", "Factor on the decode part of a pass, > 0."},
			{"timing.corrections.pass_ms", "number", "0", "Host time of every pass, ms, >= 0."},
			{"timing.corrections.sequence_ms", "number", "0", "Host time per decoding sequence of a pass, ms, >= 0."},
			{"timing.corrections.client_ms", "number", "0", "Added to every reported TTFT and latency, ms, >= 0; the larger of two roles counts."},
			{"timing.corrections.fitted", "mapping", "", "Where they come from: `from`, `sha256`, `model`, `system`, `backend`, `dtypes`; echoed, with a notice when used for something else."},
			{"timing.systems_path", "path or null", "null", "aic: tables to read instead of the built-in ones."},
		}},
		{"sla, cost, constraints", "`ttft_ms` and `itl_ms` together or alone, or `e2e_ms` alone.", []Key{
			{"sla.ttft_ms", "number or null", "null", "Bound on the time to first token, ms, > 0."},
			{"sla.itl_ms", "number or null", "null", "Bound on the mean inter-token latency of a request, ms, > 0."},
			{"sla.e2e_ms", "number or null", "null", "Bound on the request latency, ms, > 0."},
			{"cost.usd_per_gpu_hour", "mapping or number", "required", "Price per system of `timing.system`, and `default` for every other; a number is the default alone. >= 0."},
			{"cost.usd_per_gigabyte_hour", "mapping", "", "Price of the memory of `engine.kv_tiers`: `host`, `disk`, `remote`. What is left out costs nothing."},
			{"constraints.max_gpus", "integer or null", "null", "Most GPUs of the initial workers, > 0."},
		}},
		{"planner", "Beside the Planner's own keys:", []Key{
			{"planner.startup_seconds", "number", "0", "Seconds before a worker that was scaled up serves: `startup_time` of every role. >= 0."},
		}},
	}
}
