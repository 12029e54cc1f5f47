package planner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
)

// Mode is the topology that the Planner scales.
type Mode string

const (
	Agg    Mode = "agg"
	Disagg Mode = "disagg"
)

// Target is what the load loop optimises for.
type Target string

const (
	Throughput Target = "throughput"
	Latency    Target = "latency"
	Load       Target = "load"
	SLA        Target = "sla"
)

// Config is everything the Planner decides by, complete (spec planner 2). JSON
// tags are the upstream keys; a default has its home in DefaultConfig.
type Config struct {
	Mode                Mode             `json:"mode"`
	Target              Target           `json:"optimization_target"`
	ThroughputScaling   bool             `json:"enable_throughput_scaling"`
	LoadScaling         bool             `json:"enable_load_scaling"`
	ThroughputIntervalS int              `json:"throughput_adjustment_interval_seconds"`
	LoadIntervalS       int              `json:"load_adjustment_interval_seconds"`
	ScaleIntervalS      float64          `json:"scale_interval_seconds"` // of ticks
	TTFTMs              float64          `json:"ttft_ms"`
	ITLMs               float64          `json:"itl_ms"`
	NextN               int              `json:"speculative_nextn"` // used when the engine has none
	HysteresisTicks     int              `json:"hysteresis_ticks"`  // load ticks in a row that must ask before a scale-down; 0: none
	Budget              BudgetConfig     `json:"budget"`
	Thresholds          ThresholdConfig  `json:"thresholds"`
	Regression          RegressionConfig `json:"regression"`
	Predictor           PredictorConfig  `json:"predictor"`
	Recorder            RecorderConfig   `json:"-"`
}

// BudgetConfig bounds the size of a deployment.
type BudgetConfig struct {
	MaxGPUs        int `json:"max_gpu_budget"`                  // negative: off
	MinGPUs        int `json:"min_gpu_budget"`                  // negative: off
	MaxReplicaStep int `json:"max_throughput_scaling_replicas"` // change per throughput tick
	MinPrefill     int `json:"prefill_min_endpoint"`            // resolved from min_endpoint
	MinDecode      int `json:"decode_min_endpoint"`             // the only one of an aggregated run
}

// ThresholdConfig is read with target load only. Queue sizes are tokens, rates are
// percent of the KV tokens of a worker.
type ThresholdConfig struct {
	PrefillUpTokens   int     `json:"prefill_scale_up_queue_tokens"`
	PrefillDownTokens int     `json:"prefill_scale_down_queue_tokens"`
	DecodeUpRate      float64 `json:"decode_scale_up_kv_rate"`
	DecodeDownRate    float64 `json:"decode_scale_down_kv_rate"`
}

// RegressionConfig shapes the performance model of target sla.
type RegressionConfig struct {
	MaxSamples      int `json:"max_num_fpm_samples"`    // per store
	BucketSize      int `json:"fpm_sample_bucket_size"` // buckets per store, a perfect square
	MinObservations int `json:"load_min_observations"`  // before a fit
	DownSensitivity int `json:"load_scaling_down_sensitivity"`
}

// PredictorConfig chooses the traffic forecast of the throughput loop.
type PredictorConfig struct {
	Kind            string  `json:"load_predictor"` // constant, arima, prophet or kalman
	Log1p           bool    `json:"load_predictor_log1p"`
	ProphetWindow   int     `json:"prophet_window_size"`
	KalmanQLevel    float64 `json:"kalman_q_level"`
	KalmanQTrend    float64 `json:"kalman_q_trend"`
	KalmanR         float64 `json:"kalman_r"`
	KalmanMinPoints int     `json:"kalman_min_points"`
	WarmupTrace     string  `json:"load_predictor_warmup_trace"` // "": none
}

// RecorderConfig only concerns diagnostics.
type RecorderConfig struct {
	PrefillEngineGPUs int     // 0: unset
	DecodeEngineGPUs  int     // 0: unset
	ReportHours       float64 // 0: null
	DashboardPort     int
}

// On reports whether the reference would record diagnostics snapshots.
func (r RecorderConfig) On() bool { return r.ReportHours > 0 || r.DashboardPort != 0 }

// DefaultConfig is the configuration of an empty document. Its loops and its scale
// interval are not resolved yet: a Config to run comes from Read.
func DefaultConfig() Config {
	return Config{
		Mode:                Disagg,
		Target:              Throughput,
		ThroughputScaling:   true,
		ThroughputIntervalS: 180,
		LoadIntervalS:       5,
		TTFTMs:              500,
		ITLMs:               50,
		Budget:              BudgetConfig{MaxGPUs: 8, MinGPUs: -1, MaxReplicaStep: 8},
		Regression:          RegressionConfig{MaxSamples: 64, BucketSize: 16, MinObservations: 5, DownSensitivity: 80},
		Predictor: PredictorConfig{Kind: "arima", ProphetWindow: 50,
			KalmanQLevel: 1, KalmanQTrend: 0.1, KalmanR: 10, KalmanMinPoints: 5},
		Recorder: RecorderConfig{ReportHours: 24, DashboardPort: 8080},
	}
}

// Digest is the SHA-256 of the configuration as compact JSON with sorted keys,
// without the keys that only concern reports, ports and dashboards.
func (c Config) Digest() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("planner: configuration is not JSON: %v", err))
	}
	var sorted map[string]any
	if err := json.Unmarshal(text, &sorted); err != nil {
		panic(fmt.Sprintf("planner: configuration does not read back: %v", err))
	}
	text, err = json.Marshal(sorted)
	if err != nil {
		panic(fmt.Sprintf("planner: configuration is not JSON: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// gridSide returns the bins per axis; ok is false if the bucket size is no square.
func (r RegressionConfig) gridSide() (side int, ok bool) {
	side = int(math.Round(math.Sqrt(float64(r.BucketSize))))
	return side, side*side == r.BucketSize
}

// scaleInterval is the greatest common divisor of the intervals that pace ticks,
// in whole milliseconds (spec planner 2.4).
func scaleInterval(loadS, throughputS int, throughput bool) float64 {
	ms := loadS * 1000
	if throughput {
		for a := throughputS * 1000; a != 0; {
			ms, a = a, ms%a
		}
	}
	return float64(ms) / 1000
}

func divides(base, x float64) bool {
	q := x / base
	return math.Abs(q-math.Round(q)) <= 1e-9
}
