package scenario

// RouterReference describes the KV router's configuration: router.config in a
// sweep, --router-config of replay (spec kv-router 3).
func RouterReference() []KeyTable {
	return []KeyTable{
		{"Keys that change results", "", []Key{
			{"overlap_score_credit", "number", "1.0", "Blocks of prefill cost forgiven per cached block, >= 0; 0 ignores what is cached."},
			{"overlap_score_credit_decay", "number", "0.0", "Lowers the credit of ranks with more prefill backlog than the least loaded one, >= 0."},
			{"prefill_load_scale", "number", "1.0", "Factor of the prefill part of the cost, >= 0."},
			{"overlap_score_weight", "number or null", "null", "Old name: replaces `prefill_load_scale`; exactly 0 sets `overlap_score_credit` to 0 too."},
			{"decode_active_request_weight", "number", "0.0", "Cost in blocks per active request of the rank, >= 0."},
			{"router_temperature", "number", "0.0", "0: lowest cost, equal costs drawn; > 0: softmax over range-normalised costs."},
			{"router_track_active_blocks", "boolean", "true", "`false`: the decode part of the cost is 0."},
			{"router_assume_kv_reuse", "boolean", "true", "`false`: prompts never share blocks in the router's book."},
			{"router_track_prefill_tokens", "boolean", "true", "`false`: the prefill part of the cost is 0, and nothing is ever busy."},
			{"router_prefill_load_model", "string", "none", "`none`, or `ais` (also `aic`): booked prefill load melts with predicted time. replay: with the `--aic-*` flags; in a sweep: with timing aic."},
			{"router_queue_threshold", "number or null", "null", "Queue while every rank is above this fraction of `max_num_batched_tokens` in prefill load, >= 0."},
			{"router_queue_policy", "string", "fcfs", "`fcfs`, `lcfs` or `wspt`."},
			{"router_policy_config", "path or null", "null", "Policy classes, YAML (router.md)."},
		}},
		{"Keys without effect in a simulation", "Accepted and checked.", []Key{
			{"host_cache_hit_weight", "number", "0.75", "0..1. No engine here caches on the host."},
			{"disk_cache_hit_weight", "number", "0.25", "0..1. Nor on disk."},
			{"use_kv_events", "boolean", "true", "Events are always used."},
			{"durable_kv_events", "boolean", "false", "`true` is refused."},
			{"router_ttl_secs", "number", "120.0", ">= 0."},
			{"router_predicted_ttl_secs", "number or null", "null", ">= 0; needs `use_kv_events`."},
			{"router_replica_sync", "boolean", "false", ""},
			{"router_track_output_blocks", "boolean", "false", "Needs `router_track_active_blocks`."},
			{"router_event_threads", "integer", "4", ">= 1."},
			{"skip_initial_worker_wait", "boolean", "false", ""},
			{"use_remote_indexer", "boolean", "false", "Excludes `serve_indexer`."},
			{"serve_indexer", "boolean", "false", ""},
			{"enable_session_prefix_index", "boolean", "false", "Needs `use_kv_events`, excludes `use_remote_indexer`."},
			{"shared_cache_multiplier", "number or null", "null", "0..1."},
			{"shared_cache_type", "string", "none", "`none` or `hicache`."},
			{"router_tracking_hash", "string", "public-xxh3-v1", "`keyed-xxh3-v1` needs the next two."},
			{"router_tracking_key_file", "path or null", "null", ""},
			{"router_tracking_key_id", "string or null", "null", ""},
			{"router_snapshot_threshold", "integer or null", "null", ""},
			{"router_reset_states", "boolean", "false", ""},
			{"conditional_disagg_enabled", "boolean", "false", "A simulation never bypasses remote prefill."},
			{"conditional_disagg_policy", "string", "isl_bounding", "`isl_bounding`, `prefill_load` or `isl_or_load`; the last two need a busy threshold."},
			{"conditional_disagg_eff_isl_threshold", "integer", "2048", ""},
			{"conditional_disagg_eff_isl_ratio_threshold", "number", "0.7", "0..1."},
			{"conditional_disagg_prefill_busy_threshold", "number or null", "null", ">= 0."},
			{"conditional_disagg_decode_busy_threshold", "number or null", "null", ">= 0."},
		}},
	}
}

// PlannerReference describes the Planner's configuration: planner in a sweep,
// --planner-config of replay (spec planner 2).
func PlannerReference() []KeyTable {
	return []KeyTable{
		{"Keys that change results", "", []Key{
			{"mode", "string", "disagg", "`agg` or `disagg`: must fit the topology."},
			{"optimization_target", "string", "throughput", "`throughput`, `latency`, `load` or `sla`."},
			{"enable_throughput_scaling", "boolean", "true", "The predictive loop; only with target `sla`, else off."},
			{"enable_load_scaling", "boolean", "false", "The reactive loop; always on unless the target is `sla`."},
			{"throughput_adjustment_interval_seconds", "integer", "180", "> 0. Also `throughput_adjustment_interval`."},
			{"load_adjustment_interval_seconds", "integer", "5", "> 0, shorter than the throughput interval. Also `load_adjustment_interval`."},
			{"scheduling.scale_interval_seconds", "number or null", "null", "Time between ticks; must divide both intervals. Default their greatest common divisor."},
			{"ttft_ms", "number", "500", "> 0. Target sla. Also `ttft`."},
			{"itl_ms", "number", "50", "> 0. Target sla. Also `itl`."},
			{"hysteresis_ticks", "integer", "0", "Load ticks in a row that must ask before a scale-down; 0: none, as upstream."},
			{"max_throughput_scaling_replicas", "integer", "8", "Largest change per throughput tick, > 0."},
			{"max_gpu_budget", "integer", "8", "Most GPUs; negative: off."},
			{"min_gpu_budget", "integer", "-1", "Fewest GPUs; negative: off."},
			{"min_endpoint", "integer", "1", "Fewest workers of a pool, >= 0."},
			{"prefill_min_endpoint", "integer or null", "null", ">= 1, disagg only: overrides `min_endpoint`."},
			{"decode_min_endpoint", "integer or null", "null", ">= 1, disagg only."},
			{"prefill_scale_up_queue_tokens", "integer or null", "null", "Target load, disagg: tokens waiting in a worker that ask for one more; required there."},
			{"prefill_scale_down_queue_tokens", "integer or null", "null", "And for one less; below the former."},
			{"decode_scale_up_kv_rate", "number or null", "null", "Target load: percent of KV in use that asks for one more; required there."},
			{"decode_scale_down_kv_rate", "number or null", "null", "And for one less; below the former."},
			{"load_predictor", "string", "arima", "`constant`, `arima`, `prophet` or `kalman`."},
			{"load_predictor_log1p", "boolean", "false", "Predict in log space; not constant."},
			{"load_predictor_warmup_trace", "path or null", "null", "Traffic before the run: `.jsonl` or `.jsonl.gz`, file, glob or folder."},
			{"prophet_window_size", "integer", "50", "> 0."},
			{"kalman_q_level", "number", "1.0", ""},
			{"kalman_q_trend", "number", "0.1", ""},
			{"kalman_r", "number", "10.0", ""},
			{"kalman_min_points", "integer", "5", ""},
			{"max_num_fpm_samples", "integer", "64", "> 0. Samples that the performance model keeps."},
			{"fpm_sample_bucket_size", "integer", "16", "A perfect square."},
			{"load_min_observations", "integer", "5", "Samples before the model answers; <= `max_num_fpm_samples`."},
			{"load_scaling_down_sensitivity", "integer", "80", "0..100."},
			{"speculative_nextn", "integer", "0", ">= 0: draft tokens, where the engine has none."},
		}},
		{"Keys that concern records only", "", []Key{
			{"prefill_engine_num_gpu", "integer or null", "null", "GPUs per worker in the Planner's own GPU-hours, not in its budget."},
			{"decode_engine_num_gpu", "integer or null", "null", "The same; also of aggregated workers."},
			{"report_interval_hours", "number or null", "24.0", "> 0; null and port 0: no diagnostics upstream."},
			{"live_dashboard_port", "integer", "8080", "0..65535."},
		}},
		{"Keys without effect in a simulation", "Accepted and checked, with a notice: `advisory`, `aic_interpolation`, `backend`, `control_api_port`, `enable_power_awareness`, " +
			"`environment`, `global_planner_namespace`, `log_dir`, `metric_*prometheus*`, `model_name`, `namespace`, `no_correction`, `plugin_registration`, " +
			"`pre_deployment_sweeping_mode`, `profile_results_dir`, `report_filename`, `report_output_dir`, `report_write_gzip_log`, `scheduling.gateway`, " +
			"`scheduling.tick_max_duration_seconds`, `throughput_metrics_source`, `total_gpu_power_limit`. Refused: `ais_perf_model`, `aic_perf_model` and a non-empty `scheduling.external_plugins`.", nil},
	}
}
