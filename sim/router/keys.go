package router

import (
	"slices"

	"github.com/dynosweep/dynosweep/internal/document"
)

// DocumentTables are the keys of a router configuration (spec kv-router 3): those
// that change results and those that are accepted, checked and without effect.
func DocumentTables() []document.Table {
	return []document.Table{
		{Title: "Keys that change results", Keys: activeKeys},
		{Title: "Keys without effect in a simulation", Note: "Accepted and checked.", Keys: inertKeys},
	}
}

// documentKeys are all keys of a router configuration.
var documentKeys = slices.Concat(activeKeys, inertKeys)

// activeKeys change results.
var activeKeys = []document.Key{
	{Name: "overlap_score_credit", Kind: document.Float, Range: credit, Default: "1.0", Meaning: "Blocks of prefill cost forgiven per cached block, >= 0; 0 ignores what is cached."},
	{Name: "overlap_score_credit_decay", Kind: document.Float, Range: nonNegative, Default: "0.0", Meaning: "Lowers the credit of ranks with more prefill backlog than the least loaded one, >= 0."},
	{Name: "prefill_load_scale", Kind: document.Float, Default: "1.0", Meaning: "Factor of the prefill part of the cost, >= 0."},
	{Name: "overlap_score_weight", Kind: document.Float, Null: true, Default: "null", Meaning: "Old name: replaces `prefill_load_scale`; exactly 0 sets `overlap_score_credit` to 0 too."},
	{Name: "decode_active_request_weight", Kind: document.Float, Range: nonNegative, Default: "0.0", Meaning: "Cost in blocks per active request of the rank, >= 0."},
	{Name: "router_temperature", Kind: document.Float, Range: nonNegative, Default: "0.0", Meaning: "0: lowest cost, equal costs drawn; > 0: softmax over range-normalised costs."},
	{Name: "router_track_active_blocks", Kind: document.Bool, Default: "true", Meaning: "`false`: the decode part of the cost is 0."},
	{Name: "router_assume_kv_reuse", Kind: document.Bool, Default: "true", Meaning: "`false`: prompts never share blocks in the router's book."},
	{Name: "router_track_prefill_tokens", Kind: document.Bool, Default: "true", Meaning: "`false`: the prefill part of the cost is 0, and nothing is ever busy."},
	{Name: "router_prefill_load_model", Kind: document.String, Choices: []string{"none", "aic", "ais"}, Default: "none", Meaning: "`none`, or `ais` (also `aic`): booked prefill load melts with predicted time. replay: with the `--aic-*` flags; in a sweep: with timing aic."},
	{Name: "router_queue_threshold", Kind: document.Float, Null: true, Range: fromZero, Default: "null", Meaning: "Queue while every rank is above this fraction of `max_num_batched_tokens` in prefill load, >= 0."},
	{Name: "router_queue_policy", Kind: document.String, Choices: []string{"fcfs", "lcfs", "wspt"}, Default: "fcfs", Meaning: "`fcfs`, `lcfs` or `wspt`."},
	{Name: "router_policy_config", Kind: document.String, Null: true, Path: true, Default: "null", Meaning: "Policy classes, YAML (router.md)."},
}

// inertKeys have no effect on an offline replay (spec kv-router 3.2).
var inertKeys = []document.Key{
	{Name: "host_cache_hit_weight", Kind: document.Float, Range: share, Default: "0.75", Meaning: "0..1. Credit per block of a prompt that only host memory behind the KV pool has (native_host_offload)."},
	{Name: "disk_cache_hit_weight", Kind: document.Float, Range: share, Default: "0.25", Meaning: "0..1. Nor on disk."},
	{Name: "use_kv_events", Kind: document.Bool, Default: "true", Meaning: "Events are always used."},
	{Name: "durable_kv_events", Kind: document.Bool, Default: "false", Meaning: "`true` is refused."},
	{Name: "router_ttl_secs", Kind: document.Float, Range: fromZero, Default: "120.0", Meaning: ">= 0."},
	{Name: "router_predicted_ttl_secs", Kind: document.Float, Null: true, Range: fromZero, Default: "null", Meaning: ">= 0; needs `use_kv_events`."},
	{Name: "router_replica_sync", Kind: document.Bool, Default: "false"},
	{Name: "router_track_output_blocks", Kind: document.Bool, Default: "false", Meaning: "Needs `router_track_active_blocks`."},
	{Name: "router_event_threads", Kind: document.Int, Bits: 32, Default: "4", Meaning: ">= 1."},
	{Name: "skip_initial_worker_wait", Kind: document.Bool, Default: "false"},
	{Name: "use_remote_indexer", Kind: document.Bool, Default: "false", Meaning: "Excludes `serve_indexer`."},
	{Name: "serve_indexer", Kind: document.Bool, Default: "false"},
	{Name: "enable_session_prefix_index", Kind: document.Bool, Default: "false", Meaning: "Needs `use_kv_events`, excludes `use_remote_indexer`."},
	{Name: "shared_cache_multiplier", Kind: document.Float, Null: true, Range: share, Default: "null", Meaning: "0..1."},
	{Name: "shared_cache_type", Kind: document.String, Choices: []string{"none", "hicache"}, Default: "none", Meaning: "`none` or `hicache`."},
	{Name: "router_tracking_hash", Kind: document.String, Choices: []string{"public-xxh3-v1", "keyed-xxh3-v1"}, Default: "public-xxh3-v1", Meaning: "`keyed-xxh3-v1` needs the next two."},
	{Name: "router_tracking_key_file", Kind: document.String, Null: true, Path: true, Default: "null"},
	{Name: "router_tracking_key_id", Kind: document.String, Null: true, Default: "null"},
	{Name: "router_snapshot_threshold", Kind: document.Int, Null: true, Bits: 32, Default: "null"},
	{Name: "router_reset_states", Kind: document.Bool, Default: "false"},
	{Name: "conditional_disagg_enabled", Kind: document.Bool, Default: "false", Meaning: "A simulation never bypasses remote prefill."},
	{Name: "conditional_disagg_policy", Kind: document.String, Choices: []string{"isl_bounding", "prefill_load", "isl_or_load"}, Default: "isl_bounding", Meaning: "`isl_bounding`, `prefill_load` or `isl_or_load`; the last two need a busy threshold."},
	{Name: "conditional_disagg_eff_isl_threshold", Kind: document.Int, Default: "2048"},
	{Name: "conditional_disagg_eff_isl_ratio_threshold", Kind: document.Float, Range: share, Default: "0.7", Meaning: "0..1."},
	{Name: "conditional_disagg_prefill_busy_threshold", Kind: document.Float, Null: true, Range: fromZero, Default: "null", Meaning: ">= 0."},
	{Name: "conditional_disagg_decode_busy_threshold", Kind: document.Float, Null: true, Range: fromZero, Default: "null", Meaning: ">= 0."},
}
