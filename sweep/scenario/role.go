package scenario

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/tier"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
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
	Offload         *tier.Config // memory behind the KV pool in blocks; nil: none
	Tiers           *KVTiers     // the same in gigabytes; nil: none
	tierBytes       float64      // of a token, for Tiers; 0: from the model
	AcceptRates     string       // normalised list, "" without speculative decoding
	QueuePolicy     string       // dynamo.router_queue_policy, "" not set
	Hardware        string       // system of the GPUs, where a document names it beside timing and capacity
	// BlocksGiven and MTPSeedGiven tell written values from defaults, for the
	// provenance and for the seeds of a sweep.
	BlocksGiven, MTPSeedGiven bool

	live    []string // written keys that only live serving reads
	named   named    // where the document names model and system
	profile resolved.FileRef
	files   modelFiles // of the model that timing and capacity ask about
	id      [32]byte
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

	files modelFiles // of Model
}

// free reports whether transfers take no time, whatever the rest says.
func (t *KVTransfer) free() bool {
	return t.BandwidthGBps == 0 || t.BytesPerToken == 0 && !t.BytesAuto
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

// count narrows a limit to int; see maxCount.
func count(v uint64) int { return int(min(v, maxCount)) }

// complete checks what the document says together, in the order of spec
// engine-args 2.2, and fills in what it leaves out.
func (d *launchDoc) complete() *Role {
	r := &Role{ContextParallel: 1, MTPSeedGiven: d.mtpSeed.Set, BlocksGiven: d.blocks.Set, live: d.live}
	c := &r.Rank
	c.Backend, c.Role = engine.Backend(d.backend.Value), engine.Role(d.role.Value)
	d.limits(c)
	d.features(c)
	d.speculation(r)
	d.handoff(r)
	d.sglangRules(c)
	d.parallelism(r)
	d.timingRules(r)
	d.offloading(r)
	if d.queuePolicy.Set {
		r.QueuePolicy = queuePolicies[d.queuePolicy.Value]
	}
	r.dropUnread()
	return r
}

// dropUnread gives checked values that the backend does not look at their defaults, so
// that equal configurations are equal values.
func (r *Role) dropUnread() {
	c := &r.Rank
	backend := c.Backend.Descriptor()
	if !backend.SGLangObject {
		c.SGLang = engine.SGLangConfig{MaxPrefillTokens: defaultMaxPrefill, ChunkedPrefillSize: defaultChunk,
			ClipMaxNewTokens: defaultClip, Conservativeness: 1}
	}
	if !backend.PreemptionMode {
		c.PreemptFIFO = false
	}
	if c.NextN == 0 {
		c.MTPSeed, r.MTPSeedGiven = defaultMTPSeed, false
	}
}

func (d *launchDoc) limits(c *engine.Config) {
	e := d.engine
	e.RequirePositive(d.blocks, "num_gpu_blocks")
	e.Require(d.blocks.Value <= maxBlocks, "num_gpu_blocks", fmt.Sprintf("num_gpu_blocks must be at most %d, got %d", maxBlocks, d.blocks.Value))
	e.RequirePositive(d.blockSize, "block_size")
	backend := c.Backend.Descriptor()
	if backend.MinBlockSize == 2 {
		e.RequireCompatible(!d.blockSize.Set || d.blockSize.Value != 1, "block_size", "vLLM/TRT-LLM block_size must be at least two")
	}
	e.Require(d.blockSize.Value <= maxBlockSize, "block_size", fmt.Sprintf("block_size must be at most %d, got %d", maxBlockSize, d.blockSize.Value))
	e.RequirePositive(d.maxModelLen, "max_model_len")
	e.RequirePositive(d.maxSeqs, "max_num_seqs")
	e.RequirePositive(d.maxBatch, "max_num_batched_tokens")
	c.Blocks, c.BlockSize = int(min(d.blocks.Value, maxBlocks)), int(min(d.blockSize.Or(uint64(backend.BlockSize)), maxBlockSize))
	c.MaxModelLen = count(d.maxModelLen.Value)
	c.MaxNumSeqs = count(d.maxSeqs.OrUnlimited(defaultMaxSeqs))
	c.MaxNumBatchedTokens = count(d.maxBatch.OrUnlimited(defaultMaxBatch))
}

func (d *launchDoc) features(c *engine.Config) {
	e, backend := d.engine, c.Backend.Descriptor()
	e.RequirePositive(d.scheduleInterval, "prefill_schedule_interval")
	e.RequireCompatible(d.scheduleInterval.Or(1) == 1 || backend.ScheduleInterval, "prefill_schedule_interval",
		"prefill_schedule_interval is supported only for backend=vllm; use prefill_decode_interval for backend=sglang")
	e.RequireCompatible(d.decodeInterval.Value == 0 || backend.DecodeInterval, "prefill_decode_interval",
		"prefill_decode_interval is supported only for backend=sglang")
	e.RequireCompatible(d.chunked.Or(true) || backend.WholePrompts, "enable_chunked_prefill",
		"enable_chunked_prefill=false is not supported for backend=sglang")
	for _, ratio := range [...]struct {
		o   document.Opt[float64]
		key string
	}{{d.speedup, "speedup_ratio"}, {d.decodeSpeedup, "decode_speedup_ratio"}} {
		e.Require(document.FiniteFrom(ratio.o.Value, 0), ratio.key, ratio.key+" must be finite and non-negative")
	}
	c.PrefillScheduleInterval = count(d.scheduleInterval.Or(1))
	c.PrefillDecodeInterval = count(d.decodeInterval.Value)
	c.PrefixCaching, c.ChunkedPrefill = d.prefixCaching.Or(true), d.chunked.Or(true)
	c.PreemptFIFO = d.preemption.Value == 1
	c.SpeedupRatio, c.DecodeSpeedupRatio = d.speedup.Or(1), d.decodeSpeedup.Or(1)
}

func (d *launchDoc) speculation(r *Role) {
	e, c := d.engine, &r.Rank
	c.MTPSeed = d.mtpSeed.Or(defaultMTPSeed)
	if aic := d.timing.aic.nextN; !d.nextN.Set && aic.Value > 0 {
		d.nextN = aic
	}
	if !d.nextN.Set {
		e.Require(!d.rates.Set, "aic_nextn_accept_rates", "aic_nextn_accept_rates requires aic_nextn")
		return
	}
	if d.nextN.Value < 1 || d.nextN.Value > maxDraftTokens {
		e.Require(false, "aic_nextn", fmt.Sprintf("aic_nextn must be in 1..=5, got %d", d.nextN.Value))
		return
	}
	e.RequireCompatible(c.DecodeSpeedupRatio == 1, "aic_nextn",
		"aic_nextn requires decode_speedup_ratio=1.0 because MTP output acceleration is modeled by burst sampling")
	rates, text, err := acceptRates(d.rates.Value, int(d.nextN.Value))
	if err != nil {
		e.Require(false, "aic_nextn_accept_rates", err.Error())
		return
	}
	c.NextN, c.AcceptRates, r.AcceptRates = int(d.nextN.Value), rates, text
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
		if !document.IsFraction(v) {
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
	e.Require(!d.transferBytes.Set || d.transferBytes.Value > 0, "kv_transfer_bytes_per_token", "kv_transfer_bytes_per_token must be positive")
	e.Require(document.FiniteFrom(d.bandwidth.Value, 0), "kv_transfer_bandwidth", "kv_transfer_bandwidth must be finite and non-negative")
	r.Transfer = KVTransfer{BytesPerToken: float64(d.transferBytes.Value), BandwidthGBps: d.bandwidth.Value,
		BytesAuto: d.transferAuto, DestinationMissing: d.transferMode.Value == 1, FairShare: d.contention.Value == 1}
}

func (d *launchDoc) sglangRules(c *engine.Config) {
	s := d.sglang
	c.SGLang = engine.SGLangConfig{LPM: d.policy.Value == 1,
		MaxPrefillTokens:   count(d.maxPrefill.Or(defaultMaxPrefill)),
		ChunkedPrefillSize: count(d.chunk.Or(defaultChunk)),
		ClipMaxNewTokens:   count(d.clip.Or(defaultClip)),
		Conservativeness:   d.conservativeness.Or(1)}
	s.Require(d.maxPrefill.Or(1) > 0, "max_prefill_tokens", "sglang.max_prefill_tokens must be positive")
	s.Require(d.chunk.Or(1) > 0, "chunked_prefill_size", "sglang.chunked_prefill_size must be positive")
	s.Require(document.FiniteFrom(d.conservativeness.Value, 0), "schedule_conservativeness", "sglang.schedule_conservativeness must be finite and non-negative")
	if c.Backend.Descriptor().SGLangObject && c.BlockSize > 0 {
		s.RequireCompatible(c.SGLang.ChunkedPrefillSize%c.BlockSize == 0, "chunked_prefill_size", "sglang.chunked_prefill_size must be divisible by block_size")
	}
}

// parallelism fills in what measured timing says where the launch keys are silent.
func (d *launchDoc) parallelism(r *Role) {
	d.RequirePositive(d.dp, "dp_size")
	d.RequirePositive(d.tp, "tensor_parallel_size")
	d.Mapping.Require(d.tp.Value <= math.MaxUint32, "tensor_parallel_size", "tensor_parallel_size exceeds the engine contract")
	for _, p := range [...]struct {
		o   document.Opt[uint64]
		key string
	}{{d.dp, "dp_size"}, {d.tp, "tensor_parallel_size"}} {
		d.Mapping.Require(p.o.Value <= maxParallel || p.o.Value > math.MaxUint32, p.key, fmt.Sprintf("%s must be at most %d, got %d", p.key, maxParallel, p.o.Value))
	}
	d.Mapping.Require(document.FiniteFrom(d.startup.Value, 0), "startup_time", "startup_time must be finite and non-negative")
	d.Mapping.Require(d.startup.Value <= maxStartupSeconds || math.IsInf(d.startup.Value, 1), "startup_time", "startup_time must be at most 1e12 seconds")
	for i, key := range fractionKeys {
		d.Mapping.Require(document.IsFraction(d.fractions[i].Value), key, key+" must be finite and in [0, 1]")
	}
	aic := &d.timing.aic
	r.DPSize = int(min(d.dp.Or(aic.attentionDP.Or(1)), maxParallel))
	r.TensorParallel = int(min(d.tp.Or(aic.tp.Or(1)), maxParallel))
	if aic.cp.Set {
		r.ContextParallel = int(min(aic.cp.Value, maxParallel))
	}
	r.StartupMs = d.startup.Value * 1000
	r.Rank.DPSize = r.DPSize
	c := &r.Rank
	if c.Backend.Descriptor().SGLangObject && c.SGLang.ChunkedPrefillSize > 0 && r.DPSize > 0 && c.SGLang.ChunkedPrefillSize/r.DPSize == 0 {
		d.Mapping.RequireCompatible(false, "dp_size", fmt.Sprintf("SGLang attention DP size %d reduces chunked_prefill_size=%d to zero", r.DPSize, c.SGLang.ChunkedPrefillSize))
	}
}
