package scenario

import (
	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// RouterReference describes the KV router's configuration: router.config in a
// sweep, --router-config of replay (spec kv-router 3).
func RouterReference() []KeyTable { return keyTables(router.DocumentTables()) }

// ShapeReference describes a load shape: --shape of trace synth.
func ShapeReference() []KeyTable { return keyTables(trace.ShapeTables()) }

// keyTables are the tables by which a document is read, as the reference page prints
// them.
func keyTables(tables []document.Table) []KeyTable {
	var out []KeyTable
	for _, t := range tables {
		page := KeyTable{Title: t.Title, Note: t.Note}
		for i := range t.Keys {
			k := &t.Keys[i]
			page.Keys = append(page.Keys, Key{k.Name, k.Type(), k.Default, k.Meaning})
		}
		out = append(out, page)
	}
	return out
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
