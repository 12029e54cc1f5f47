// Package resolved is the JSON form of one complete configuration of a run: every
// default filled in, files with path and digest, and the seeds. It is what the config
// column of a results table holds and what travels to another machine.
//
// A Config is made by scenario.Run.Resolved, written by json.Marshal and read back by
// Parse; scenario.FromResolved makes the run of it again. This package holds types
// only, so that readers of results need not know the simulator.
//
// Fields stand in the order of their keys: the text has sorted keys, no spaces, and is
// the same for the same configuration. A key that the mode, the backend or the load
// does not use is left out. A null is "no limit", "from the checkpoint" or "none".
//
// Times are ms but for keys that say seconds and startup_time; counts are tokens,
// blocks or requests as the key says. Engine keys are spec engine-args 2, those of
// hardware models spec aic-perfmodel 1.4, those of the Planner spec planner 2.
package resolved

// Modes of a deployment.
const (
	Aggregated    = "aggregated"
	Disaggregated = "disaggregated"
)

// Config is one complete configuration. An aggregated one has Engine and Workers, a
// disaggregated one the keys of both roles and KVTransfer.
type Config struct {
	DecodeEngine        *Role       `json:"decode_engine,omitempty"`
	DecodeWorkers       int         `json:"decode_workers,omitempty"`
	Engine              *Role       `json:"engine,omitempty"`
	KVTransfer          *KVTransfer `json:"kv_transfer,omitempty"`
	Mode                string      `json:"mode"`
	Planner             *Planner    `json:"planner"` // nil: fixed pools
	PrefillEngine       *Role       `json:"prefill_engine,omitempty"`
	PrefillWorkers      int         `json:"prefill_workers,omitempty"`
	Router              Router      `json:"router"`
	Seeds               Seeds       `json:"seeds"`
	SLA                 *SLA        `json:"sla,omitempty"`
	TelemetryIntervalMs float64     `json:"telemetry_interval_ms,omitempty"`
	Workers             int         `json:"workers,omitempty"`
	Workload            Workload    `json:"workload"`
}

// Head is what of a Config stands beside its parts, of which the identity of a point
// is made.
type Head struct {
	DecodeWorkers       int         `json:"decode_workers,omitempty"`
	KVTransfer          *KVTransfer `json:"kv_transfer,omitempty"`
	Mode                string      `json:"mode"`
	PrefillWorkers      int         `json:"prefill_workers,omitempty"`
	SLA                 *SLA        `json:"sla,omitempty"`
	TelemetryIntervalMs float64     `json:"telemetry_interval_ms,omitempty"`
	Workers             int         `json:"workers,omitempty"`
}

// Roles are the engines of the deployment with their keys: the prefill role first.
func (c *Config) Roles() []*Role {
	if c.PrefillEngine != nil {
		return []*Role{c.PrefillEngine, c.DecodeEngine}
	}
	return []*Role{c.Engine}
}

// Seeds are those of the draws of a run; nil is a stream that nothing draws from, or
// whose seed a part of the configuration names.
type Seeds struct {
	MTP     *uint64 `json:"aic_mtp,omitempty"`
	Arrival *uint64 `json:"arrival,omitempty"`
	Router  uint64  `json:"router"`
}

// SLA is the bounds of a run, ms; 0 is not set.
type SLA struct {
	E2EMs  float64 `json:"e2e_ms,omitempty"`
	ITLMs  float64 `json:"itl_ms,omitempty"`
	TTFTMs float64 `json:"ttft_ms,omitempty"`
}

// Role is the engine arguments of one role.
type Role struct {
	Capacity           *Capacity `json:"capacity,omitempty"`
	CPSize             int       `json:"cp_size,omitempty"` // above 1 only
	DPSize             int       `json:"dp_size"`
	Dynamo             *Dynamo   `json:"dynamo,omitempty"`
	Engine             Engine    `json:"engine"`
	Hardware           string    `json:"hardware,omitempty"`        // where a document names it beside timing and capacity
	StartupTime        float64   `json:"startup_time"`              // seconds
	StartupTimeMs      float64   `json:"startup_time_ms,omitempty"` // where 1000 * StartupTime is not it
	TensorParallelSize int       `json:"tensor_parallel_size"`
}

// System is the hardware of the role's GPUs, "" where no document says it.
func (r *Role) System() string {
	if r.Capacity != nil && r.Capacity.Model.System != "" {
		return r.Capacity.Model.System
	}
	if m := r.Engine.TimingModel.Config.Hardware; m != nil && m.System != "" {
		return m.System
	}
	return r.Hardware
}

// Dynamo is the launch options of a role that act.
type Dynamo struct {
	RouterQueuePolicy string `json:"router_queue_policy"`
}

// Engine is the scheduler's configuration. nil counts are unlimited, but for
// NumGPUBlocks, which is nil while the role's Capacity is to be estimated.
type Engine struct {
	MTPSeed                 *uint64      `json:"aic_mtp_seed,omitempty"`
	NextN                   int          `json:"aic_nextn,omitempty"`
	AcceptRates             string       `json:"aic_nextn_accept_rates,omitempty"`
	Backend                 string       `json:"backend"`
	BlockSize               int          `json:"block_size"`
	DecodeSpeedupRatio      float64      `json:"decode_speedup_ratio"`
	EnableChunkedPrefill    bool         `json:"enable_chunked_prefill"`
	EnablePrefixCaching     bool         `json:"enable_prefix_caching"`
	G3Offload               *G3Offload   `json:"g3_offload,omitempty"`
	KVCacheBytesPerToken    uint64       `json:"kv_cache_bytes_per_token,omitempty"` // with memory behind the KV pool
	KVTiers                 *KVTiers     `json:"kv_tiers,omitempty"`
	MaxModelLen             *int         `json:"max_model_len"`
	MaxNumBatchedTokens     *int         `json:"max_num_batched_tokens"`
	MaxNumSeqs              *int         `json:"max_num_seqs"`
	NativeHostOffload       *HostOffload `json:"native_host_offload,omitempty"`
	NumGPUBlocks            *int         `json:"num_gpu_blocks"`
	PreemptionMode          string       `json:"preemption_mode,omitempty"`           // vllm
	PrefillDecodeInterval   *int         `json:"prefill_decode_interval,omitempty"`   // sglang
	PrefillScheduleInterval int          `json:"prefill_schedule_interval,omitempty"` // vllm
	SGLang                  *SGLang      `json:"sglang,omitempty"`
	SpeedupRatio            float64      `json:"speedup_ratio"`
	TimingModel             Timing       `json:"timing_model"`
	WorkerType              string       `json:"worker_type"`
}

// KVTiers is the engine.kv_tiers object; nil tiers are absent.
type KVTiers struct {
	Disk   *KVTier `json:"disk,omitempty"`
	Host   *KVTier `json:"host,omitempty"`
	Remote *KVTier `json:"remote,omitempty"`
}

// KVTier is the size and speed of one tier; nil GBps is the default of the tier.
type KVTier struct {
	GBps      *float64 `json:"gb_per_second,omitempty"`
	Gigabytes float64  `json:"gigabytes"`
	LatencyMs float64  `json:"latency_ms"`
	Shared    bool     `json:"shared"`
}

// HostOffload is the engine.native_host_offload object (spec kv-offload 1). nil
// bandwidths are without a cap.
type HostOffload struct {
	WriteGBps       float64  `json:"d2h_bandwidth_gbps"`
	ReadGBps        float64  `json:"h2d_bandwidth_gbps"`
	Layout          string   `json:"kv_layout_id,omitempty"`
	LatencyMs       float64  `json:"latency_to_first_byte_ms"`
	NumHostBlocks   int      `json:"num_host_blocks"`
	Scope           string   `json:"scope"`
	SharedWriteGBps *float64 `json:"shared_d2h_bandwidth_gbps,omitempty"`
	SharedReadGBps  *float64 `json:"shared_h2d_bandwidth_gbps,omitempty"`
}

// G3Offload is the engine.g3_offload object.
type G3Offload struct {
	LatencyMs       float64  `json:"latency_to_first_byte_ms"`
	NumG3Blocks     int      `json:"num_g3_blocks"`
	ReadGBps        float64  `json:"read_bandwidth_gbps"`
	Scope           string   `json:"scope"`
	SharedReadGBps  *float64 `json:"shared_read_bandwidth_gbps,omitempty"`
	SharedWriteGBps *float64 `json:"shared_write_bandwidth_gbps,omitempty"`
	WriteGBps       float64  `json:"write_bandwidth_gbps"`
}

// SGLang is the engine.sglang object (spec engine-sglang 3).
type SGLang struct {
	ChunkedPrefillSize       int     `json:"chunked_prefill_size"`
	ClipMaxNewTokens         int     `json:"clip_max_new_tokens"`
	MaxPrefillTokens         int     `json:"max_prefill_tokens"`
	ScheduleConservativeness float64 `json:"schedule_conservativeness"`
	SchedulePolicy           string  `json:"schedule_policy"`
}

// Capacity is the estimate of a rank's KV blocks (spec aic-perfmodel 9.1).
type Capacity struct {
	CUDAGraphReservedBytes uint64        `json:"cuda_graph_reserved_bytes"`
	MaxNumBatchedTokens    *int          `json:"max_num_batched_tokens"`
	MemoryFraction         float64       `json:"memory_fraction"`
	Model                  HardwareModel `json:"model"`
}

// Timing says how long a pass takes (spec engine-timing): type polynomial, fixed with
// both times, or external with a provider.
type Timing struct {
	Config      TimingConfig `json:"config,omitzero"`
	Corrections *Corrections `json:"corrections,omitempty"`
	DecodeMs    *float64     `json:"decode_ms,omitempty"`
	PrefillMs   *float64     `json:"prefill_ms,omitempty"`
	Provider    string       `json:"provider,omitempty"`
	Type        string       `json:"type"`
}

// Corrections bring a timing nearer to measured runs (spec calibration 2).
type Corrections struct {
	ClientMs     float64 `json:"client_ms"`
	DecodeScale  float64 `json:"decode_scale"`
	Fitted       *Fit    `json:"fitted,omitempty"`
	PassMs       float64 `json:"pass_ms"`
	PrefillScale float64 `json:"prefill_scale"`
	SequenceMs   float64 `json:"sequence_ms"`
}

// Fit says which calibration made corrections, and for what.
type Fit struct {
	Backend string `json:"backend,omitempty"`
	DTypes  string `json:"dtypes,omitempty"`
	From    string `json:"from,omitempty"`
	Model   string `json:"model,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	System  string `json:"system,omitempty"`
}

// Types and providers of timing.
const (
	Polynomial      = "polynomial"
	Fixed           = "fixed"
	External        = "external"
	ProfileProvider = "dynamo_profile"
	AICProvider     = "ais"
)

// HardwareModel is one model on one system of the hardware tables.
type HardwareModel struct {
	AttentionBackend string   `json:"attention_backend,omitempty"`
	AttentionDP      int      `json:"attention_dp"`
	Backend          string   `json:"backend"`
	BackendVersion   string   `json:"backend_version"`
	CommDType        *string  `json:"comm_dtype"`
	CPSize           int      `json:"cp_size"`
	DatabaseMode     string   `json:"database_mode"`
	DecodeQKNorm     bool     `json:"decode_qk_norm,omitempty"`
	FMHADType        *string  `json:"fmha_dtype"`
	GEMMDType        *string  `json:"gemm_dtype"`
	KVCacheDType     *string  `json:"kv_cache_dtype"`
	Model            ModelRef `json:"model"`
	MoEDType         *string  `json:"moe_dtype"`
	MoEEPSize        *int     `json:"moe_ep_size"`
	MoETPSize        *int     `json:"moe_tp_size"`
	NextN            int      `json:"nextn"`
	PP               int      `json:"pp"`
	System           string   `json:"system"`
	SystemsPath      *FileRef `json:"systems_path,omitempty"`
	TP               int      `json:"tp"`
	WorkerType       string   `json:"worker_type"`
}

// CurrentVersion is the backend version of a request that names none.
const CurrentVersion = "current"

// KVTransfer prices the handoff of a prompt's KV (spec replay-runtime 8.4). The zero
// value is written as null: transfers take no time.
type KVTransfer struct {
	BandwidthGBps float64 `json:"bandwidth_gb_per_second"`
	BytesPerToken Bytes   `json:"bytes_per_token"`
	Contention    string  `json:"contention"`
	Model         string  `json:"model,omitempty"` // of bytes_per_token auto, where the prefill role names none
	// Request is the whole question that Model abbreviates.
	Request    *HardwareModel `json:"request,omitempty"`
	TimingMode string         `json:"timing_mode"`
}

// Workload is the load of a run: one of its parts is not nil.
type Workload struct {
	Synthetic *Synthetic
	Trace     *Trace
}

// Synthetic is generated load (spec workload 1); of concurrency, rate and interval one
// is not nil.
type Synthetic struct {
	ArrivalIntervalMs *float64 `json:"arrival_interval_ms,omitempty"`
	ArrivalSeed       *uint64  `json:"arrival_seed,omitempty"` // as written; else it stands with the seeds
	ArrivalSpeedup    *float64 `json:"arrival_speedup,omitempty"`
	Concurrency       *int     `json:"concurrency,omitempty"`
	CumulativeTurns   bool     `json:"cumulative_turns,omitempty"`
	GroupSeed         *uint64  `json:"group_seed,omitempty"`
	InputTokens       int      `json:"input_tokens"`
	InterTurnDelayMs  float64  `json:"inter_turn_delay_ms"`
	NumPrefixGroups   int      `json:"num_prefix_groups"`
	OutputTokens      int      `json:"output_tokens"`
	RequestRate       *float64 `json:"request_rate,omitempty"`
	Requests          int      `json:"requests"`
	SharedPrefixRatio float64  `json:"shared_prefix_ratio"`
	TurnsPerSession   int      `json:"turns_per_session"`
	Type              string   `json:"type"`
}

// Trace is recorded load (spec workload 2).
type Trace struct {
	AgenticLanes           *int      `json:"agentic_lanes,omitempty"`
	ArrivalSpeedup         *float64  `json:"arrival_speedup,omitempty"`
	Concurrency            *int      `json:"concurrency,omitempty"`
	ExecutionModel         string    `json:"execution_model,omitempty"`
	Format                 string    `json:"format"`
	MaxSimTimeMs           *float64  `json:"max_sim_time_ms,omitempty"`
	NestedTimestampBasis   string    `json:"nested_timestamp_basis,omitempty"`
	Trace                  []FileRef `json:"trace"`
	TraceBlockSize         *int      `json:"trace_block_size"`
	TraceNumPrefixGroups   *int      `json:"trace_num_prefix_groups,omitempty"`
	TraceSharedPrefixRatio *float64  `json:"trace_shared_prefix_ratio,omitempty"`
	Type                   string    `json:"type"`
}

// Types of a workload.
const (
	SyntheticType = "synthetic"
	TraceType     = "trace"
)
