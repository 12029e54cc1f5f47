package resolved

import "encoding/json"

// Router is the placement of requests (spec kv-router 3): only a mode that is
// configured, kv_router, has more than the mode.
type Router struct {
	Config           *RouterConfig  `json:"config,omitempty"`
	KVEventLagMs     *float64       `json:"kv_event_lag_ms,omitempty"`
	Mode             string         `json:"mode"`
	PrefillLoadModel *HardwareModel `json:"prefill_load_model,omitempty"`
}

// RouterConfig is the KV router's configuration.
type RouterConfig struct {
	DecodeActiveRequestWeight float64      `json:"decode_active_request_weight"`
	HostCacheHitWeight        *float64     `json:"host_cache_hit_weight,omitempty"` // nil: 0.75
	OverlapScoreCredit        float64      `json:"overlap_score_credit"`
	OverlapScoreCreditDecay   float64      `json:"overlap_score_credit_decay"`
	PrefillLoadScale          float64      `json:"prefill_load_scale"`
	AssumeKVReuse             bool         `json:"router_assume_kv_reuse"`
	Policy                    RouterPolicy `json:"router_policy"`
	Temperature               float64      `json:"router_temperature"`
	TrackActiveBlocks         bool         `json:"router_track_active_blocks"`
	TrackPrefillTokens        bool         `json:"router_track_prefill_tokens"`
}

// RouterPolicy is a set of policy classes (spec kv-router 8) and, with families, the
// rule that finds a request's class.
type RouterPolicy struct {
	Cells              [][]int       `json:"cells"` // [family][bucket] index of a class
	DefaultFamily      string        `json:"default_policy_family"`
	Explicit           []int         `json:"explicit"` // indices of classes that are asked for by name
	Classes            []PolicyClass `json:"policy_classes"`
	Families           []string      `json:"policy_families"`
	UncachedISLBuckets []int64       `json:"uncached_isl_buckets"` // smallest uncached length, ascending from 0
}

type (
	plainPolicy  RouterPolicy
	singlePolicy struct {
		Classes []PolicyClass `json:"policy_classes"`
	}
)

// MarshalJSON writes the classes alone where there are no families.
func (p RouterPolicy) MarshalJSON() ([]byte, error) {
	if len(p.Families) == 0 {
		return json.Marshal(singlePolicy{p.Classes})
	}
	return json.Marshal(plainPolicy(p))
}

// PolicyClass is one class; -1 stands for a limit that is not set.
type PolicyClass struct {
	MaxCached   int64   `json:"cached_token_queue_limit_per_worker"`
	Name        string  `json:"name"`
	BusyTokens  int64   `json:"prefill_busy_threshold"`
	BusyFrac    float64 `json:"prefill_busy_threshold_frac"`
	Quantum     int64   `json:"quantum"`
	Policy      string  `json:"queue_policy"`
	MaxISL      int64   `json:"raw_isl_token_queue_limit_per_worker"`
	MaxRequests int64   `json:"request_queue_limit_per_worker"`
}

// Planner is the Planner's configuration, in the groups of planner.Config. The keys of
// its diagnostics are left out: no figure depends on them.
type Planner struct {
	BenchmarkGranularity int        `json:"benchmark_granularity"`
	Budget               Budget     `json:"budget"`
	DecodeEngineNumGPU   int        `json:"decode_engine_num_gpu"` // 0: unset
	LoadScaling          bool       `json:"enable_load_scaling"`
	ThroughputScaling    bool       `json:"enable_throughput_scaling"`
	HysteresisTicks      int        `json:"hysteresis_ticks"`
	ITLMs                float64    `json:"itl_ms"`
	LoadIntervalS        int        `json:"load_adjustment_interval_seconds"`
	Mode                 string     `json:"mode"`
	Target               string     `json:"optimization_target"`
	Predictor            Predictor  `json:"predictor"`
	PrefillEngineNumGPU  int        `json:"prefill_engine_num_gpu"` // 0: unset
	Regression           Regression `json:"regression"`
	ScaleIntervalS       float64    `json:"scale_interval_seconds"`
	NextN                int        `json:"speculative_nextn"`
	Thresholds           Thresholds `json:"thresholds"`
	ThroughputIntervalS  int        `json:"throughput_adjustment_interval_seconds"`
	TTFTMs               float64    `json:"ttft_ms"`
}

// Budget bounds the size of a deployment; negative GPU budgets are off.
type Budget struct {
	MinDecode      int `json:"decode_min_endpoint"`
	MaxGPUs        int `json:"max_gpu_budget"`
	MaxReplicaStep int `json:"max_throughput_scaling_replicas"`
	MinGPUs        int `json:"min_gpu_budget"`
	MinPrefill     int `json:"prefill_min_endpoint"`
}

// Predictor is the traffic forecast of the throughput loop.
type Predictor struct {
	KalmanMinPoints int      `json:"kalman_min_points"`
	KalmanQLevel    float64  `json:"kalman_q_level"`
	KalmanQTrend    float64  `json:"kalman_q_trend"`
	KalmanR         float64  `json:"kalman_r"`
	Kind            string   `json:"load_predictor"`
	Log1p           bool     `json:"load_predictor_log1p"`
	WarmupTrace     *FileRef `json:"load_predictor_warmup_trace,omitempty"`
	ProphetWindow   int      `json:"prophet_window_size"`
}

// Regression shapes the performance model of target sla.
type Regression struct {
	BucketSize      int `json:"fpm_sample_bucket_size"`
	MinObservations int `json:"load_min_observations"`
	DownSensitivity int `json:"load_scaling_down_sensitivity"`
	MaxSamples      int `json:"max_num_fpm_samples"`
}

// Thresholds are those of target load: tokens, and percent of a worker's KV tokens.
type Thresholds struct {
	DecodeDownRate    float64 `json:"decode_scale_down_kv_rate"`
	DecodeUpRate      float64 `json:"decode_scale_up_kv_rate"`
	PrefillDownTokens int     `json:"prefill_scale_down_queue_tokens"`
	PrefillUpTokens   int     `json:"prefill_scale_up_queue_tokens"`
}
