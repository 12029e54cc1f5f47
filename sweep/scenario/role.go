package scenario

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/sim/engine"
)

// Role is the engine arguments of one role, complete: nothing in it is defaulted
// later. Several runs may share one; it is never changed.
type Role struct {
	// Rank is what every rank is built from. Blocks is 0 while Capacity waits to
	// be answered; Timing is nil until Run.Config. MTPSeed is the base.
	Rank            engine.Config
	DPSize          int
	TensorParallel  int // GPU accounting only
	ContextParallel int // 1 but for measured timing
	StartupMs       float64
	Timing          Timing
	Capacity        *Capacity // asked when Rank.Blocks is 0
	Transfer        KVTransfer
	AcceptRates     string // normalised list, "" without speculative decoding
	QueuePolicy     string // dynamo.router_queue_policy, "" not set
	Hardware        string // system of the GPUs, where a document names it beside timing and capacity
	// BlocksGiven and MTPSeedGiven tell written values from defaults, for the
	// provenance and for the seeds of a sweep.
	BlocksGiven, MTPSeedGiven bool

	named                   named // where the document names model and system
	profile, model, systems fileRef
	id                      [32]byte
}

// GPUs is the number of GPUs of one worker.
func (r *Role) GPUs() int { return r.TensorParallel * r.DPSize * r.ContextParallel }

// KVTransfer prices the handoff of a prompt's KV (spec replay-runtime 8.4).
type KVTransfer struct {
	BytesPerToken      float64    // 0: no model
	BytesAuto          bool       // take the bytes from a model
	Model              AICRequest // BytesAuto: which; zero: the prefill role's
	BandwidthGBps      float64    // decimal GB/s; 0: no delay
	DestinationMissing bool
	FairShare          bool
}

// Defaults of engine arguments (spec engine-args 2.2).
const (
	defaultBlocks      = 16384
	defaultMaxSeqs     = 256
	defaultMaxBatch    = 8192
	defaultMTPSeed     = 42
	defaultRates       = "0.85,0.3,0,0,0"
	defaultMaxPrefill  = 16384
	defaultChunk       = 8192
	defaultClip        = 4096
	maxBlocks          = math.MaxInt32
	maxCount           = 1 << 40 // no run counts further: larger limits are the same
	maxBlockSize       = 1 << 30
	maxParallel        = 1 << 16
	maxDraftTokens     = 5
	maxStartupSeconds  = 1e12
	seedOffset         = 41 // seed s means 41 + s for arrival_seed and aic_mtp_seed
	defaultArrivalSeed = 42
)

var defaultBlockSize = [...]uint64{engine.VLLM: 64, engine.SGLang: 1, engine.TRTLLM: 32}

// count narrows a limit to int; see maxCount.
func count(v uint64) int { return int(min(v, maxCount)) }

// complete checks what the document says together, in the order of spec
// engine-args 2.2, and fills in what it leaves out.
func (d *launchDoc) complete() *Role {
	r := &Role{ContextParallel: 1, MTPSeedGiven: d.mtpSeed.set, BlocksGiven: d.blocks.set}
	c := &r.Rank
	c.Backend, c.Role = engine.Backend(d.backend.v), engine.Role(d.role.v)
	d.limits(c)
	d.features(c)
	d.speculation(r)
	d.handoff(r)
	d.sglangRules(c)
	d.parallelism(r)
	d.timingRules(r)
	if d.queuePolicy.set {
		r.QueuePolicy = queuePolicies[d.queuePolicy.v]
	}
	return r
}

// positive checks that a written count is not 0.
func (m mapping) positive(o opt[uint64], key string) {
	m.rule(!o.set || o.v > 0, key, key+" must be positive")
}

func (d *launchDoc) limits(c *engine.Config) {
	e := d.engine
	e.positive(d.blocks, "num_gpu_blocks")
	e.rule(d.blocks.v <= maxBlocks, "num_gpu_blocks", fmt.Sprintf("num_gpu_blocks must be at most %d, got %d", maxBlocks, d.blocks.v))
	e.positive(d.blockSize, "block_size")
	if c.Backend != engine.SGLang {
		e.fits(!d.blockSize.set || d.blockSize.v != 1, "block_size", "vLLM/TRT-LLM block_size must be at least two")
	}
	e.rule(d.blockSize.v <= maxBlockSize, "block_size", fmt.Sprintf("block_size must be at most %d, got %d", maxBlockSize, d.blockSize.v))
	e.positive(d.maxModelLen, "max_model_len")
	e.positive(d.maxSeqs, "max_num_seqs")
	e.positive(d.maxBatch, "max_num_batched_tokens")
	c.Blocks, c.BlockSize = int(min(d.blocks.v, maxBlocks)), int(min(d.blockSize.or(defaultBlockSize[c.Backend]), maxBlockSize))
	c.MaxModelLen = count(d.maxModelLen.v)
	c.MaxNumSeqs = count(d.maxSeqs.orUnlimited(defaultMaxSeqs))
	c.MaxNumBatchedTokens = count(d.maxBatch.orUnlimited(defaultMaxBatch))
}

// orUnlimited is the value, 0 for null, def when nothing was written.
func (o opt[T]) orUnlimited(def T) T {
	if o.null {
		return o.v
	}
	return o.or(def)
}

func (d *launchDoc) features(c *engine.Config) {
	e := d.engine
	e.positive(d.scheduleInterval, "prefill_schedule_interval")
	e.fits(d.scheduleInterval.or(1) == 1 || c.Backend == engine.VLLM, "prefill_schedule_interval",
		"prefill_schedule_interval is supported only for backend=vllm; use prefill_decode_interval for backend=sglang")
	e.fits(d.decodeInterval.v == 0 || c.Backend == engine.SGLang, "prefill_decode_interval",
		"prefill_decode_interval is supported only for backend=sglang")
	e.fits(d.chunked.or(true) || c.Backend != engine.SGLang, "enable_chunked_prefill",
		"enable_chunked_prefill=false is not supported for backend=sglang")
	for _, ratio := range [...]struct {
		o   opt[float64]
		key string
	}{{d.speedup, "speedup_ratio"}, {d.decodeSpeedup, "decode_speedup_ratio"}} {
		e.rule(finite(ratio.o.v, 0), ratio.key, ratio.key+" must be finite and non-negative")
	}
	c.PrefillScheduleInterval = count(d.scheduleInterval.or(1))
	c.PrefillDecodeInterval = count(d.decodeInterval.v)
	c.PrefixCaching, c.ChunkedPrefill = d.prefixCaching.or(true), d.chunked.or(true)
	c.PreemptFIFO = d.preemption.v == 1
	c.SpeedupRatio, c.DecodeSpeedupRatio = d.speedup.or(1), d.decodeSpeedup.or(1)
}

func (d *launchDoc) speculation(r *Role) {
	e, c := d.engine, &r.Rank
	c.MTPSeed = d.mtpSeed.or(defaultMTPSeed)
	if aic := d.timing.aic.nextN; !d.nextN.set && aic.v > 0 {
		d.nextN = aic
	}
	if !d.nextN.set {
		e.rule(!d.rates.set, "aic_nextn_accept_rates", "aic_nextn_accept_rates requires aic_nextn")
		return
	}
	if d.nextN.v < 1 || d.nextN.v > maxDraftTokens {
		e.rule(false, "aic_nextn", fmt.Sprintf("aic_nextn must be in 1..=5, got %d", d.nextN.v))
		return
	}
	e.fits(c.DecodeSpeedupRatio == 1, "aic_nextn",
		"aic_nextn requires decode_speedup_ratio=1.0 because MTP output acceleration is modeled by burst sampling")
	rates, text, err := acceptRates(d.rates.v, int(d.nextN.v))
	if err != nil {
		e.rule(false, "aic_nextn_accept_rates", err.Error())
		return
	}
	c.NextN, c.AcceptRates, r.AcceptRates = int(d.nextN.v), rates, text
}

// acceptRates normalises a list of conditional acceptance rates to n entries:
// empty means the default, all entries are checked, then the list is cut or
// padded with zeros (spec engine-args 2.2).
func acceptRates(text string, n int) ([]float64, string, error) {
	if strings.TrimSpace(text) == "" {
		text = defaultRates
	}
	parts := strings.Split(text, ",")
	rates := make([]float64, 0, len(parts))
	for i, part := range parts {
		part = strings.TrimSpace(part)
		v, err := strconv.ParseFloat(part, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, "", fmt.Errorf("invalid aic_nextn_accept_rates value %q: invalid float literal", part)
		}
		if !fraction(v) {
			return nil, "", fmt.Errorf("aic_nextn_accept_rates[%d] must be finite and in [0, 1], got %s", i, plainFloat(v))
		}
		rates = append(rates, v)
	}
	for len(rates) < n {
		rates = append(rates, 0)
	}
	rates = rates[:n]
	names := make([]string, n)
	for i, v := range rates {
		names[i] = plainFloat(v)
	}
	return rates, strings.Join(names, ","), nil
}

// plainFloat prints v as upstream's messages do: shortest, no exponent.
func plainFloat(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func (d *launchDoc) handoff(r *Role) {
	e := d.engine
	e.rule(!d.transferBytes.set || d.transferBytes.v > 0, "kv_transfer_bytes_per_token", "kv_transfer_bytes_per_token must be positive")
	e.rule(finite(d.bandwidth.v, 0), "kv_transfer_bandwidth", "kv_transfer_bandwidth must be finite and non-negative")
	r.Transfer = KVTransfer{BytesPerToken: float64(d.transferBytes.v), BandwidthGBps: d.bandwidth.v,
		BytesAuto: d.transferAuto, DestinationMissing: d.transferMode.v == 1, FairShare: d.contention.v == 1}
}

func (d *launchDoc) sglangRules(c *engine.Config) {
	s := d.sglang
	c.SGLang = engine.SGLangConfig{LPM: d.policy.v == 1,
		MaxPrefillTokens:   count(d.maxPrefill.or(defaultMaxPrefill)),
		ChunkedPrefillSize: count(d.chunk.or(defaultChunk)),
		ClipMaxNewTokens:   count(d.clip.or(defaultClip)),
		Conservativeness:   d.conservativeness.or(1)}
	s.rule(d.maxPrefill.or(1) > 0, "max_prefill_tokens", "sglang.max_prefill_tokens must be positive")
	s.rule(d.chunk.or(1) > 0, "chunked_prefill_size", "sglang.chunked_prefill_size must be positive")
	s.rule(finite(d.conservativeness.v, 0), "schedule_conservativeness", "sglang.schedule_conservativeness must be finite and non-negative")
	if c.Backend == engine.SGLang && c.BlockSize > 0 {
		s.fits(c.SGLang.ChunkedPrefillSize%c.BlockSize == 0, "chunked_prefill_size", "sglang.chunked_prefill_size must be divisible by block_size")
	}
}

// parallelism fills in what measured timing says where the launch keys are silent.
func (d *launchDoc) parallelism(r *Role) {
	d.positive(d.dp, "dp_size")
	d.positive(d.tp, "tensor_parallel_size")
	d.mapping.rule(d.tp.v <= math.MaxUint32, "tensor_parallel_size", "tensor_parallel_size exceeds the engine contract")
	for _, p := range [...]struct {
		o   opt[uint64]
		key string
	}{{d.dp, "dp_size"}, {d.tp, "tensor_parallel_size"}} {
		d.mapping.rule(p.o.v <= maxParallel || p.o.v > math.MaxUint32, p.key, fmt.Sprintf("%s must be at most %d, got %d", p.key, maxParallel, p.o.v))
	}
	d.mapping.rule(finite(d.startup.v, 0), "startup_time", "startup_time must be finite and non-negative")
	d.mapping.rule(d.startup.v <= maxStartupSeconds || math.IsInf(d.startup.v, 1), "startup_time", "startup_time must be at most 1e12 seconds")
	for i, key := range fractionKeys {
		d.mapping.rule(fraction(d.fractions[i].v), key, key+" must be finite and in [0, 1]")
	}
	aic := &d.timing.aic
	r.DPSize = int(min(d.dp.or(aic.attentionDP.or(1)), maxParallel))
	r.TensorParallel = int(min(d.tp.or(aic.tp.or(1)), maxParallel))
	if aic.cp.set {
		r.ContextParallel = int(min(aic.cp.v, maxParallel))
	}
	r.StartupMs = d.startup.v * 1000
	r.Rank.DPSize = r.DPSize
	c := &r.Rank
	if c.Backend == engine.SGLang && c.SGLang.ChunkedPrefillSize > 0 && r.DPSize > 0 && c.SGLang.ChunkedPrefillSize/r.DPSize == 0 {
		d.mapping.fits(false, "dp_size", fmt.Sprintf("SGLang attention DP size %d reduces chunked_prefill_size=%d to zero", r.DPSize, c.SGLang.ChunkedPrefillSize))
	}
}
