package results

// Names of columns of the points that are read by name: to judge points, to compare them
// and to draw them. The meaning of each stands in the schema.
const (
	ColPointID              = "point_id"
	ColSeed                 = "seed"
	ColStatus               = "status"
	ColReason               = "reason"
	ColConfig               = "config"
	ColGPUs                 = "gpus"
	ColRequests             = "num_requests"
	ColThroughput           = "output_throughput_tok_s"
	ColTokensPerUser        = "mean_output_token_throughput_per_user"
	ColOutputTokens         = "total_output_tokens"
	ColP95TTFT              = "p95_ttft_ms"
	ColP95TPOT              = "p95_tpot_ms"
	ColGPUHours             = "gpu_hours"
	ColPrefillWorkerSeconds = "prefill_worker_seconds"
	ColPrefillGPUsPerWorker = "prefill_gpus_per_worker"
	ColDecodeWorkerSeconds  = "decode_worker_seconds"
	ColDecodeGPUsPerWorker  = "decode_gpus_per_worker"
	ColGoodputRequests      = "goodput_completed_requests"
	ColGoodputRPS           = "goodput_request_throughput_rps"
	ColCostUSD              = "cost_usd"
	ColScalingEvents        = "scaling_events"
	ColSLAAttainment        = "sla_attainment"
	ColSLAGrid              = "sla_grid"
)
