package engine

import (
	"github.com/dynosweep/dynosweep/sim/tier"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// Config is everything one rank is built from, complete: the core never asks
// whether a value was set (spec engine-args). Unlimited counts are 0.
type Config struct {
	Backend                 Backend
	Role                    Role
	Blocks                  int // num_gpu_blocks, per rank
	BlockSize               int
	MaxModelLen             int // 0: no limit
	MaxNumSeqs              int // 0: unlimited
	MaxNumBatchedTokens     int // 0: unlimited
	PrefillScheduleInterval int // vLLM, >= 1
	PrefillDecodeInterval   int // SGLang, >= 0
	PrefixCaching           bool
	ChunkedPrefill          bool
	PreemptFIFO             bool
	SpeedupRatio            float64 // 0: unscaled
	DecodeSpeedupRatio      float64 // 0: unscaled
	NextN                   int     // draft tokens of speculative decoding, 0: off
	AcceptRates             []float64
	MTPSeed                 uint64 // of this rank: aic_mtp_seed + worker*dp_size + rank
	SGLang                  SGLangConfig
	DPSize                  int // ranks of the worker this rank belongs to
	Timing                  timing.Model
	Memory                  *tier.Memory // behind the KV pools of the role; nil: none
	Worker                  int32        // whose rank it is
	WantEvents              bool         // somebody listens to KV events
	WantMetrics             bool         // somebody reads forward-pass metrics
}

// SGLangConfig is the engine.sglang object (spec engine-sglang 3), complete.
type SGLangConfig struct {
	LPM                bool // schedule_policy lpm; else fifo
	MaxPrefillTokens   int
	ChunkedPrefillSize int
	ClipMaxNewTokens   int
	Conservativeness   float64
}
