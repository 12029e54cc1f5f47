package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// ReplayFlags is the command line of replay as written; nil is a flag that was not
// given (spec sweeps-and-schema 7). Output paths stay with the command.
type ReplayFlags struct {
	Traces []string // positional

	InputTokens, OutputTokens, RequestCount *int64
	ReplayConcurrency                       *int64
	RequestRate, ArrivalIntervalMs          *float64
	ArrivalSeed                             *uint64
	ArrivalSpeedupRatio                     *float64
	TurnsPerSession, NumPrefixGroups        *int64
	InterTurnDelayMs, SharedPrefixRatio     *float64

	TraceFormat            *string
	TraceBlockSize         *int64
	TraceSharedPrefixRatio *float64
	TraceNumPrefixGroups   *int64
	MaxSimTimeSeconds      *float64
	AgenticLanes           *int64
	ExecutionModel         *string

	ExtraEngineArgs, PrefillEngineArgs, DecodeEngineArgs *string
	NumWorkers, NumPrefillWorkers, NumDecodeWorkers      *int64

	SystemsPath *string // hardware tables of engine arguments and estimate that name none

	ReplayMode, RouterMode, RouterConfig, RouterPolicyConfig, ModelName *string
	KVEventLagMs                                                        *float64
	RouterSeed                                                          *uint64

	PlannerConfig        *string
	BenchmarkGranularity *int64

	AICBackend, AICSystem, AICModelPath, AICBackendVersion                 *string
	AICTPSize, AICMoETPSize, AICMoEEPSize, AICAttentionDPSize, AICNextN    *int64
	AICGEMMDType, AICMoEDType, AICFMHADType, AICKVCacheDType, AICCommDType *string
	AICNextNAcceptRates                                                    *string

	SLATTFTMs, SLAITLMs, SLAE2EMs *float64
	TelemetryIntervalMs           *float64
}

// val is the value of a flag, or def.
func val[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}

// flagFaults gathers what is wrong with a command line.
type flagFaults struct{ document.Faults }

// bad adds a fault; flag "" is for relations, whose text names the flags.
func (f *flagFaults) bad(flag, msg string) {
	f.List = append(f.List, &document.Fault{Origin: flag, Msg: msg})
}

func (f *flagFaults) rule(holds bool, flag, msg string) {
	if !holds {
		f.bad(flag, msg)
	}
}

// adopt adds an error of a part.
func (f *flagFaults) adopt(err error) {
	for _, e := range document.Split(err) {
		if one, ok := e.(*document.Fault); ok {
			f.List = append(f.List, one)
			continue
		}
		f.bad("", e.Error())
	}
}

// leastTelemetryMs is the least time between two telemetry samples.
const leastTelemetryMs = 0.001

// Resolve checks the flags together and returns the run they describe. Faults are
// of class ErrInput; files gives the content of the named files.
func (c *ReplayFlags) Resolve(files *Files) (Run, error) {
	f := &flagFaults{}
	f.rule(val(c.ReplayMode, "offline") == "offline", "--replay-mode", onlineRefusal(val(c.ReplayMode, "")))
	run := Run{RouterSeed: val(c.RouterSeed, 0), ArrivalSeed: val(c.ArrivalSeed, defaultArrivalSeed), MTPSeed: defaultMTPSeed}
	c.topology(f, &run)
	run.Workload = c.workload(f)
	run.SLA = c.sla(f)
	if p := c.TelemetryIntervalMs; p != nil {
		f.rule(document.FiniteFrom(*p, 0) && *p > 0, "--telemetry-interval-ms", "telemetry_sample_interval_ms must be a positive finite number")
		f.rule(!(*p > 0) || *p >= leastTelemetryMs, "--telemetry-interval-ms", fmt.Sprintf("must be at least %v, or a run is nothing but samples", leastTelemetryMs))
		run.TelemetryMs = *p
	}
	if run.Decode != nil {
		c.placement(f, &run, files)
	}
	c.scaling(f, &run, files)
	if err := f.Err(); err != nil {
		return Run{}, err
	}
	return run, run.fingerprint(files)
}

func onlineRefusal(mode string) string {
	if mode == "online" {
		return "--replay-mode online is not supported: dynosweep simulates offline"
	}
	return "--replay-mode must be 'offline', got '" + mode + "'"
}

// topology reads engine arguments and worker counts (spec replay-runtime 1).
func (c *ReplayFlags) topology(f *flagFaults, run *Run) {
	prefill, decode := c.PrefillEngineArgs != nil, c.DecodeEngineArgs != nil
	role := func(flag string, text *string) *Role {
		f.rule(text == nil || *text != "", flag, "the JSON text is empty: leave the flag out for all defaults")
		r, err := EngineArgs(flag, val(text, ""))
		f.adopt(err)
		return r
	}
	if prefill != decode {
		f.bad("", "prefill_engine_args and decode_engine_args must be provided together")
		return
	}
	if !prefill {
		f.rule(val(c.NumPrefillWorkers, 1) == 1 && val(c.NumDecodeWorkers, 1) == 1, "",
			"num_prefill_workers and num_decode_workers are only used for disagg replay; use num_workers for aggregated replay")
		run.Decode = role("--extra-engine-args", c.ExtraEngineArgs)
		run.DecodeWorkers = f.workers("--num-workers", c.NumWorkers, "aggregated")
	} else {
		f.rule(c.ExtraEngineArgs == nil, "", "extra_engine_args cannot be combined with prefill_engine_args/decode_engine_args")
		f.rule(val(c.NumWorkers, 1) == 1, "", "num_workers is only used for aggregated replay; use num_prefill_workers and num_decode_workers for disagg replay")
		run.Prefill, run.Decode = role("--prefill-engine-args", c.PrefillEngineArgs), role("--decode-engine-args", c.DecodeEngineArgs)
		run.PrefillWorkers = f.workers("--num-prefill-workers", c.NumPrefillWorkers, "prefill")
		run.DecodeWorkers = f.workers("--num-decode-workers", c.NumDecodeWorkers, "decode")
	}
	if run.Decode == nil || prefill && run.Prefill == nil {
		run.Decode = nil
		return
	}
	for _, msg := range run.roleFaults() {
		f.bad("", msg)
	}
	if prefill {
		run.Transfer = run.Prefill.Transfer
	}
	c.systems(f, run)
}

// systems gives the hardware tables of --systems-path to every role that reads
// tables and names none.
func (c *ReplayFlags) systems(f *flagFaults, run *Run) {
	path := val(c.SystemsPath, "")
	if c.SystemsPath == nil {
		return
	}
	used := c.AICModelPath != nil
	for _, r := range [...]*Role{run.Prefill, run.Decode} {
		if r == nil || r.Timing.Kind != Measured {
			continue
		}
		used = true
		if r.Timing.AIC.SystemsPath != "" {
			continue
		}
		r.Timing.AIC.SystemsPath = path
		if r.Capacity != nil {
			r.Capacity.Model.SystemsPath = path
		}
	}
	f.rule(path != "", "--systems-path", "must not be empty")
	f.rule(used, "--systems-path", "nothing here reads hardware tables: engine arguments select them with aic_backend")
}

const maxWorkers = sim.MaxWorkers

func (f *flagFaults) workers(flag string, n *int64, pool string) int {
	v := val(n, 1)
	f.rule(v >= 1, flag, "invalid replay spec: "+pool+" pool must start with at least one worker")
	f.rule(v <= maxWorkers, flag, fmt.Sprintf("at most %d workers, got %d", maxWorkers, v))
	return int(min(v, maxWorkers))
}

// roleFaults says which roles do not fit the topology or each other.
func (r *Run) roleFaults() []string {
	var out []string
	if r.Prefill == nil {
		if got := r.Decode.Rank.Role; got != engine.Aggregated {
			out = append(out, roleMismatch(engine.Aggregated, got))
		}
		return out
	}
	p, d := &r.Prefill.Rank, &r.Decode.Rank
	if p.Role != engine.Prefill {
		out = append(out, roleMismatch(engine.Prefill, p.Role))
	}
	if d.Role != engine.Decode {
		out = append(out, roleMismatch(engine.Decode, d.Role))
	}
	switch {
	case p.Backend != d.Backend:
		out = append(out, "replay invariant violated: offline disaggregated replay requires matching backend engine types")
	case p.BlockSize != d.BlockSize:
		out = append(out, fmt.Sprintf("offline disaggregated replay requires matching prefill/decode block_size, got %d and %d", p.BlockSize, d.BlockSize))
	}
	if !d.Backend.Descriptor().Disaggregated {
		out = append(out, trtllmRefusal)
	}
	return out
}

const trtllmRefusal = "TensorRT-LLM disaggregated serving is not supported: use backend vllm or sglang, or an aggregated topology"

// workload reads the load (spec workload 1.1, 2.1, 4); nil with faults.
func (c *ReplayFlags) workload(f *flagFaults) *Workload {
	sizes := c.InputTokens != nil || c.OutputTokens != nil || c.RequestCount != nil
	synthetic := sizes || val(c.TurnsPerSession, 1) != 1 || val(c.SharedPrefixRatio, 0) != 0 ||
		val(c.NumPrefixGroups, 0) != 0 || val(c.InterTurnDelayMs, 0) != 0
	switch {
	case len(c.Traces) > 0 && synthetic:
		f.bad("", bothLoads)
	case len(c.Traces) > 0:
		return c.trace(f)
	case synthetic:
		if c.InputTokens == nil || c.OutputTokens == nil || c.RequestCount == nil {
			f.bad("", "synthetic replay requires --input-tokens, --output-tokens, and --request-count")
			break
		}
		return c.synthetic(f)
	case val(c.TraceFormat, "") == "dynamo":
		f.bad("", "--trace-format=dynamo requires at least one trace file")
	default:
		f.bad("", bothLoads)
	}
	return nil
}

const bothLoads = "provide either trace_file or all of --input-tokens/--output-tokens/--request-count"

// bounded narrows a count for a check that refuses what is out of range anyway.
func bounded(v int64) int { return int(max(min(v, math.MaxInt), math.MinInt)) }

func (c *ReplayFlags) synthetic(f *flagFaults) *Workload {
	s := workload.DefaultSynthetic()
	var concurrency *int
	if c.ReplayConcurrency != nil {
		v := bounded(*c.ReplayConcurrency)
		concurrency = &v
	}
	var err error
	if s.Control, err = workload.ChooseControl(concurrency, c.RequestRate, c.ArrivalIntervalMs); err != nil {
		f.bad("", "synthetic replay requires exactly one of --replay-concurrency, --request-rate, or --arrival-interval-ms")
		return nil
	}
	s.InputTokens, s.OutputTokens, s.Requests = bounded(*c.InputTokens), bounded(*c.OutputTokens), bounded(*c.RequestCount)
	s.Concurrency, s.RatePerS, s.IntervalMs = val(concurrency, 0), val(c.RequestRate, 0), val(c.ArrivalIntervalMs, 0)
	s.ArrivalSeed, s.Speedup = val(c.ArrivalSeed, s.ArrivalSeed), val(c.ArrivalSpeedupRatio, 1)
	s.TurnsPerSession, s.PrefixGroups = bounded(val(c.TurnsPerSession, 1)), bounded(val(c.NumPrefixGroups, 0))
	s.InterTurnDelayMs, s.SharedPrefixRatio = val(c.InterTurnDelayMs, 0), val(c.SharedPrefixRatio, 0)
	for _, k := range syntheticFaults(&s) {
		f.bad(flagOf(k.key), k.msg)
	}
	f.rule(c.MaxSimTimeSeconds == nil, "", "--max-sim-time-seconds currently only supports trace-file replay")
	f.rule(c.AgenticLanes == nil, "", "agentic_lanes requires trace_format='agentic_mooncake', 'weka', or 'dynamo'")
	if _, err := trace.ParseFormat(val(c.TraceFormat, "mooncake")); err != nil {
		f.bad("--trace-format", err.Error())
	}
	return &Workload{Synthetic: &s, ArrivalSeedGiven: c.ArrivalSeed != nil, MaxSimTimeMs: math.Inf(1)}
}

// flagOf is the flag of an API name.
func flagOf(key string) string {
	if key == "" || key == "trace" {
		return ""
	}
	return "--" + strings.ReplaceAll(key, "_", "-")
}

func (c *ReplayFlags) trace(f *flagFaults) *Workload {
	format, err := trace.ParseFormat(val(c.TraceFormat, "mooncake"))
	if err != nil {
		f.bad("--trace-format", err.Error())
		return nil
	}
	f.rule(c.RequestRate == nil && c.ArrivalIntervalMs == nil, "", "--request-rate and --arrival-interval-ms only apply to synthetic replay")
	load := trace.DefaultLoadOptions(format)
	load.SharedPrefixRatio, load.PrefixGroups = val(c.TraceSharedPrefixRatio, 0), bounded(val(c.TraceNumPrefixGroups, 0))
	f.rule(load.PrefixGroups <= math.MaxInt32, "--trace-num-prefix-groups", fmt.Sprintf("at most %d groups", math.MaxInt32))
	if p := c.TraceBlockSize; p != nil {
		f.rule(*p > 0, "--trace-block-size", "trace_block_size must be greater than 0")
		f.rule(*p <= maxBlockSize, "--trace-block-size", fmt.Sprintf("trace_block_size must be at most %d, got %d", maxBlockSize, *p))
		load.BlockSize = bounded(*p)
	}
	t := &Trace{Paths: c.Traces, Load: load, Drive: trace.Drive{
		ClosedLoop: c.ReplayConcurrency != nil, Concurrency: bounded(val(c.ReplayConcurrency, 0)), Speedup: val(c.ArrivalSpeedupRatio, 1),
		Laned: c.AgenticLanes != nil, Lanes: bounded(val(c.AgenticLanes, 0))}}
	if len(t.Paths) != 1 && format != trace.Dynamo {
		f.bad("", "--trace-format="+format.String()+" requires exactly one trace file")
		t.Paths = t.Paths[:1]
	}
	for _, k := range t.check() {
		if format == trace.AppliedCompute && k.key == "replay_concurrency" && !t.Drive.ClosedLoop {
			k = keyed{"", "--trace-format=applied_compute_agentic requires --replay-concurrency because the source traces do not include first-turn timestamps"}
		}
		if slices.Contains([]string{"shared_prefix_ratio", "num_prefix_groups"}, k.key) {
			k.key = "trace_" + k.key
		}
		f.bad(flagOf(k.key), k.msg)
	}
	w := &Workload{Trace: t, MaxSimTimeMs: math.Inf(1), ExecutionModel: val(c.ExecutionModel, "")}
	if p := c.MaxSimTimeSeconds; p != nil {
		w.MaxSimTimeMs = *p * 1000
		f.rule(document.FiniteFrom(w.MaxSimTimeMs, 0), "--max-sim-time-seconds", "max_sim_time_ms must be a finite, non-negative value")
	}
	return w
}

// slaBounds are the goodput bounds as written, by key (spec report 5).
type slaBounds [3]*float64 // ttft, itl, e2e

var slaNames = [...]string{"ttft", "itl", "e2e"}

// check returns the bounds, and what is wrong with them.
func (b slaBounds) check() (metrics.SLA, []keyed) {
	var out []keyed
	for i, p := range b {
		key := slaNames[i] + "_ms"
		switch {
		case p == nil:
		case !document.FiniteFrom(*p, 0):
			out = append(out, keyed{key, "sla_" + key + " must be a finite, non-negative value, got " + plainFloat(*p)})
		case *p == 0:
			out = append(out, keyed{key, "invalid replay spec: sla." + key + " must be finite and positive, got 0"})
		}
	}
	if b[2] != nil && (b[0] != nil || b[1] != nil) {
		out = append(out, keyed{"", "invalid replay spec: sla.e2e_ms is mutually exclusive with sla.ttft_ms/itl_ms"})
	}
	return metrics.SLA{TTFTMs: val(b[0], 0), ITLMs: val(b[1], 0), E2EMs: val(b[2], 0)}, out
}

func (c *ReplayFlags) sla(f *flagFaults) metrics.SLA {
	sla, faults := slaBounds{c.SLATTFTMs, c.SLAITLMs, c.SLAE2EMs}.check()
	for _, k := range faults {
		flag := flagOf(k.key)
		if flag != "" {
			flag = "--sla-" + flag[2:]
		}
		f.bad(flag, k.msg)
	}
	return sla
}

// placement reads the router's flags (spec kv-router 3).
func (c *ReplayFlags) placement(f *flagFaults, run *Run, files *Files) {
	name, lag := val(c.RouterMode, router.DefaultMode().Name), val(c.KVEventLagMs, 0)
	mode := router.FindMode(name)
	if mode == nil {
		f.bad("--router-mode", "router_mode must be one of '"+strings.Join(router.ModeNames(), "', '")+"', got '"+name+"'")
		return
	}
	f.rule(document.FiniteFrom(lag, 0), "--kv-event-lag-ms", "kv_event_lag_ms must be finite and non-negative, got "+plainFloat(lag))
	f.rule(lag == 0 || mode.Events, "--kv-event-lag-ms", "kv_event_lag_ms only supports router_mode='kv_router'")
	d := routerDoc{faults: document.Faults{Origin: "--router-config: " + router.InlineClass, Inline: true}, mode: mode, policy: val(c.RouterPolicyConfig, ""),
		policyAt: "--router-policy-config", modelName: val(c.ModelName, ""), lagMs: lag, estimator: c.estimator(f), estimatorAt: "--aic-backend"}
	var err error
	if c.RouterConfig != nil {
		if d.config, err = document.ParseInlineJSON(d.faults.Origin, []byte(*c.RouterConfig)); err != nil {
			f.adopt(err)
			return
		}
	}
	queues := run.Decode
	if run.Prefill != nil {
		queues = run.Prefill
	}
	run.Router, err = d.complete(queues.QueuePolicy, files)
	f.adopt(err)
}

// The --aic-* flags, in the order in which estimator looks at them.
var (
	aicCountFlags = [...]string{"--aic-tp-size", "--aic-moe-tp-size", "--aic-moe-ep-size", "--aic-attention-dp-size", "--aic-nextn"}
	aicTextFlags  = [...]string{"--aic-backend", "--aic-system", "--aic-model-path", "--aic-backend-version", "--aic-gemm-dtype",
		"--aic-moe-dtype", "--aic-fmha-dtype", "--aic-kv-cache-dtype", "--aic-comm-dtype", "--aic-nextn-accept-rates"}
)

// estimator reads the --aic-* flags: the router's prefill-load estimate, nil if
// none was given.
func (c *ReplayFlags) estimator(f *flagFaults) *AICRequest {
	counts := []*int64{c.AICTPSize, c.AICMoETPSize, c.AICMoEEPSize, c.AICAttentionDPSize, c.AICNextN}
	texts := []*string{c.AICBackend, c.AICSystem, c.AICModelPath, c.AICBackendVersion, c.AICGEMMDType, c.AICMoEDType,
		c.AICFMHADType, c.AICKVCacheDType, c.AICCommDType, c.AICNextNAcceptRates}
	typed := ""
	for i, p := range texts {
		if p != nil && typed == "" {
			typed = aicTextFlags[i]
		}
	}
	for i, p := range counts {
		if p != nil && typed == "" {
			typed = aicCountFlags[i]
		}
	}
	if typed == "" {
		return nil
	}
	if c.AICBackend == nil || c.AICSystem == nil || c.AICModelPath == nil {
		f.bad(typed, "--aic-backend, --aic-system and --aic-model-path are required once any --aic-* flag is given")
		return nil
	}
	f.rule(slices.Contains(backendNames, *c.AICBackend), "--aic-backend", "must be "+document.OneOf(backendNames)+", got `"+*c.AICBackend+"`")
	for i, name := range aicCountFlags[:4] {
		f.rule(val(counts[i], 1) >= 1 && val(counts[i], 1) <= maxParallel, name, fmt.Sprintf("must be from 1 to %d", maxParallel))
	}
	f.rule((c.AICMoETPSize == nil) == (c.AICMoEEPSize == nil), "--aic-moe-tp-size", "moe_tp_size and moe_ep_size must be given together")
	q := &AICRequest{Model: *c.AICModelPath, System: *c.AICSystem, Backend: *c.AICBackend, Version: val(c.AICBackendVersion, ""),
		TP: bounded(val(c.AICTPSize, 1)), PP: 1, AttentionDP: bounded(val(c.AICAttentionDPSize, 1)), CP: 1,
		MoETP: bounded(val(c.AICMoETPSize, 0)), MoEEP: bounded(val(c.AICMoEEPSize, 0)), NextN: bounded(val(c.AICNextN, 0)), Mode: modeNames[0], SystemsPath: val(c.SystemsPath, "")}
	for i, dst := range [...]*string{&q.GEMM, &q.MoE, &q.FMHA, &q.KVCache, &q.Comm} {
		*dst = dtypeName(val(texts[4+i], ""))
	}
	if c.AICNextN != nil {
		f.rule(q.NextN >= 1 && q.NextN <= maxDraftTokens, "--aic-nextn", fmt.Sprintf("aic_nextn must be in 1..=5, got %d", *c.AICNextN))
	}
	if p := c.AICNextNAcceptRates; p != nil {
		f.rule(c.AICNextN != nil, "--aic-nextn-accept-rates", "aic_nextn_accept_rates requires aic_nextn")
		if _, _, err := acceptRates(*p, max(q.NextN, 0)%(maxDraftTokens+1)); err != nil {
			f.bad("--aic-nextn-accept-rates", err.Error())
		}
	}
	return q
}

// scaling reads the Planner's flags.
func (c *ReplayFlags) scaling(f *flagFaults, run *Run, files *Files) {
	granularity := val(c.BenchmarkGranularity, defaultGranularity)
	f.rule(granularity >= 1 && granularity <= maxGranularity, "--benchmark-granularity", fmt.Sprintf("must be from 1 to %d, got %d", maxGranularity, granularity))
	if c.PlannerConfig == nil {
		return
	}
	p, err := plannerArgument("--planner-config", *c.PlannerConfig, files, int(granularity))
	if err != nil {
		f.adopt(err)
		return
	}
	run.Planner = p
	if run.Workload != nil {
		if why := p.check(c.PrefillEngineArgs != nil, run.Workload); why != "" {
			f.bad("--planner-config", why)
		}
	}
}

const maxGranularity = 1 << 12
