package scenario

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// resolvedKeys are the keys of a resolved workload by their API names.
var resolvedKeys = map[string]string{"request_count": "requests", "replay_concurrency": "concurrency",
	"arrival_speedup_ratio": "arrival_speedup", "shared_prefix_ratio": "shared_prefix_ratio"}

// workloadKey is the path of an API name in a resolved workload.
func workloadKey(key string) string {
	if name, ok := resolvedKeys[key]; ok {
		key = name
	}
	return document.JoinPath("workload", key)
}

func (r *resolvedReader) workload(w *resolved.Workload) *Workload {
	if w.Synthetic != nil {
		return r.synthetic(w.Synthetic)
	}
	if w.Trace != nil {
		return r.trace(w.Trace)
	}
	r.fault("workload", "the key is missing")
	return nil
}

func (r *resolvedReader) synthetic(w *resolved.Synthetic) *Workload {
	s := workload.DefaultSynthetic()
	s.InputTokens, s.OutputTokens, s.Requests = w.InputTokens, w.OutputTokens, w.Requests
	s.TurnsPerSession, s.InterTurnDelayMs = w.TurnsPerSession, w.InterTurnDelayMs
	s.SharedPrefixRatio, s.PrefixGroups = w.SharedPrefixRatio, w.NumPrefixGroups
	s.Concurrency, s.RatePerS, s.IntervalMs = val(w.Concurrency, 0), val(w.RequestRate, 0), val(w.ArrivalIntervalMs, 0)
	s.Speedup, s.Cumulative, s.GroupSeed = val(w.ArrivalSpeedup, 1), w.CumulativeTurns, val(w.GroupSeed, s.GroupSeed)
	s.ArrivalSeed = val(w.ArrivalSeed, s.ArrivalSeed)
	var err error
	if s.Control, err = workload.ChooseControl(w.Concurrency, w.RequestRate, w.ArrivalIntervalMs); err != nil {
		r.fault("workload", "exactly one of concurrency, request_rate and arrival_interval_ms is needed")
		return nil
	}
	for _, k := range syntheticFaults(&s) {
		r.fault(workloadKey(k.key), k.msg)
	}
	return &Workload{Synthetic: &s, ArrivalSeedGiven: w.ArrivalSeed != nil, MaxSimTimeMs: math.Inf(1)}
}

func (r *resolvedReader) trace(w *resolved.Trace) *Workload {
	format, err := trace.ParseFormat(w.Format)
	if err != nil {
		r.fault("workload.format", err.Error())
		return nil
	}
	t := &Trace{refs: slices.Clone(w.Trace), Load: trace.DefaultLoadOptions(format), Drive: trace.Drive{
		ClosedLoop: w.Concurrency != nil, Concurrency: val(w.Concurrency, 0), Speedup: val(w.ArrivalSpeedup, 1),
		Laned: w.AgenticLanes != nil, Lanes: val(w.AgenticLanes, 0)}}
	for _, ref := range w.Trace {
		t.Paths = append(t.Paths, ref.Path)
	}
	t.Load.BlockSize = val(w.TraceBlockSize, 0)
	least := 1
	if trace.DefaultLoadOptions(format).BlockSize == 0 {
		least = 0 // such files may say it themselves
	}
	r.within("workload.trace_block_size", t.Load.BlockSize, least, maxBlockSize)
	t.Load.SharedPrefixRatio, t.Load.PrefixGroups = val(w.TraceSharedPrefixRatio, 0), val(w.TraceNumPrefixGroups, 0)
	r.rule(t.Load.PrefixGroups <= math.MaxInt32, "workload.trace_num_prefix_groups", "too many groups")
	if w.NestedTimestampBasis != "" {
		t.Load.WekaTimestamps = trace.WekaTimestamps(r.choice("workload.nested_timestamp_basis", w.NestedTimestampBasis, timestampBases))
	}
	for _, k := range t.check() {
		r.fault(workloadKey(k.key), k.msg)
	}
	r.rule(len(t.Paths) > 0, "workload.trace", "at least one trace file is needed")
	r.rule(document.FiniteFrom(val(w.MaxSimTimeMs, 0), 0), "workload.max_sim_time_ms", "must be finite and non-negative")
	return &Workload{Trace: t, MaxSimTimeMs: val(w.MaxSimTimeMs, math.Inf(1)), ExecutionModel: w.ExecutionModel}
}

func (r *resolvedReader) router(w *resolved.Router) *Router {
	out := &Router{Mode: router.Modes()[r.choice("router.mode", w.Mode, router.ModeNames())]}
	if !out.Mode.Configured {
		return out
	}
	if w.Config == nil {
		r.fault("router.config", "the key is missing")
		return out
	}
	out.EventLagMs = val(w.KVEventLagMs, 0)
	r.rule(document.FiniteFrom(out.EventLagMs, 0), "router.kv_event_lag_ms", "must be finite and non-negative")
	c := w.Config
	weight := router.DefaultConfig().HostWeight
	if c.HostCacheHitWeight != nil {
		weight = *c.HostCacheHitWeight
	}
	out.Config = router.Config{OverlapCredit: c.OverlapScoreCredit, HostWeight: weight, CreditDecay: c.OverlapScoreCreditDecay,
		PrefillScale: c.PrefillLoadScale, ActiveRequestWeight: c.DecodeActiveRequestWeight, Temperature: c.Temperature,
		TrackActiveBlocks: c.TrackActiveBlocks, AssumeKVReuse: c.AssumeKVReuse, TrackPrefillTokens: c.TrackPrefillTokens,
		Profile: r.profile(&c.Policy)}
	for _, err := range document.Split(out.Config.Validate()) {
		r.fault("router.config", err.Error())
	}
	if w.PrefillLoadModel != nil {
		q := r.request("router.prefill_load_model", w.PrefillLoadModel)
		out.Estimator, out.files = &q, recordedFiles(w.PrefillLoadModel)
	}
	return out
}

// profile reads policy classes and the rule that finds a request's class.
func (r *resolvedReader) profile(w *resolved.RouterPolicy) router.Profile {
	const at = "router.config.router_policy."
	var p router.Profile
	for i := range w.Classes {
		c := &w.Classes[i]
		policy, err := router.ParseQueuePolicy(c.Policy)
		r.rule(err == nil, at+"policy_classes", "queue_policy of class "+c.Name+" must be "+document.OneOf(queuePolicies)+", got `"+c.Policy+"`")
		r.rule(c.Quantum >= 1, at+"policy_classes", "quantum of class "+c.Name+" must be positive")
		r.rule(document.FiniteFrom(c.BusyFrac, -1), at+"policy_classes", "prefill_busy_threshold_frac of class "+c.Name+" must be finite, or -1")
		p.Classes = append(p.Classes, router.Class{Name: c.Name, Policy: policy, Quantum: c.Quantum, BusyTokens: c.BusyTokens,
			BusyFrac: c.BusyFrac, MaxRequests: c.MaxRequests, MaxISL: c.MaxISL, MaxCached: c.MaxCached})
	}
	if len(w.Families) == 0 {
		return p
	}
	p.Families, p.MinTokens, p.Cells, p.Explicit = w.Families, w.UncachedISLBuckets, w.Cells, w.Explicit
	p.DefaultFamily = r.choice(at+"default_policy_family", w.DefaultFamily, w.Families)
	r.rule(len(p.MinTokens) > 0 && p.MinTokens[0] == 0 && slices.IsSorted(p.MinTokens), at+"uncached_isl_buckets", "must ascend from 0")
	class := func(i int) bool { return i >= 0 && i < len(p.Classes) }
	good := len(p.Cells) == len(p.Families)
	for _, row := range p.Cells {
		good = good && len(row) == len(p.MinTokens)
		for _, i := range row {
			good = good && class(i)
		}
	}
	r.rule(good, at+"cells", "must have a row per family with the index of a class per bucket")
	for _, i := range p.Explicit {
		r.rule(class(i), at+"explicit", "must be indices of classes")
	}
	return p
}

// planner reads the Planner's configuration: the keys of planner.Config, and what
// stands beside its JSON.
func (r *resolvedReader) planner(w *resolved.Planner) *Planner {
	p := &Planner{Granularity: w.BenchmarkGranularity}
	plain := *w
	plain.Predictor.WarmupTrace = nil
	if err := json.Unmarshal(jsonOf(plain), &p.Config); err != nil {
		r.fault("planner", err.Error())
		return nil
	}
	if t := w.Predictor.WarmupTrace; t != nil {
		p.Config.Predictor.WarmupTrace, p.warmup = t.Path, *t
	}
	p.Config.Recorder = planner.DefaultConfig().Recorder
	p.Config.Recorder.PrefillEngineGPUs, p.Config.Recorder.DecodeEngineGPUs = w.PrefillEngineNumGPU, w.DecodeEngineNumGPU
	r.within("planner.benchmark_granularity", w.BenchmarkGranularity, 1, maxGranularity)
	for _, err := range document.Split(p.Config.Validate()) {
		r.fault("planner", err.Error())
	}
	return p
}
