package scenario

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// form says what a resolved part is made for.
type form bool

const (
	whole    form = true  // to run it again, and for people: files with their paths
	identity form = false // what tells configurations apart: files by content alone
)

// Resolved is the whole configuration: every default filled in, files with path and
// digest, and the seeds. FromResolved is the way back.
func (r *Run) Resolved() resolved.Config {
	c := r.head(whole)
	if r.Prefill != nil {
		c.PrefillEngine, c.DecodeEngine = ptrTo(r.Prefill.resolved(whole)), ptrTo(r.Decode.resolved(whole))
	} else {
		c.Engine = ptrTo(r.Decode.resolved(whole))
	}
	c.Workload, c.Router = r.Workload.resolved(whole), r.Router.resolved(whole)
	if r.Planner != nil {
		c.Planner = ptrTo(r.Planner.resolved(whole))
	}
	c.Seeds.Router = r.RouterSeed
	if r.Workload.Drawn() {
		c.Seeds.Arrival = ptrTo(r.ArrivalSeed)
	}
	for _, role := range r.roles() {
		if role.Rank.NextN > 0 && !role.MTPSeedGiven {
			c.Seeds.MTP = ptrTo(r.MTPSeed)
		}
	}
	return c
}

// ResolvedJSON is Resolved as compact JSON with sorted keys.
func (r *Run) ResolvedJSON() []byte { return jsonOf(r.Resolved()) }

func ptrTo[T any](v T) *T { return &v }

// head is what stands beside the parts.
func (r *Run) head(f form) resolved.Config {
	c := resolved.Config{Mode: resolved.Aggregated, Workers: r.DecodeWorkers, TelemetryIntervalMs: r.TelemetryMs}
	if r.Prefill != nil {
		c = resolved.Config{Mode: resolved.Disaggregated, PrefillWorkers: r.PrefillWorkers, DecodeWorkers: r.DecodeWorkers,
			KVTransfer: r.Transfer.resolved(f), TelemetryIntervalMs: r.TelemetryMs}
	}
	if r.SLA.Set() {
		c.SLA = &resolved.SLA{TTFTMs: r.SLA.TTFTMs, ITLMs: r.SLA.ITLMs, E2EMs: r.SLA.E2EMs}
	}
	return c
}

func (t *KVTransfer) resolved(f form) *resolved.KVTransfer {
	if t.free() {
		return &resolved.KVTransfer{}
	}
	out := &resolved.KVTransfer{BandwidthGBps: t.BandwidthGBps, TimingMode: transferModes[0], Contention: contentions[0],
		BytesPerToken: resolved.Bytes{Auto: t.BytesAuto, Value: t.BytesPerToken}}
	if t.BytesAuto && t.Model.Model != "" {
		out.Model = t.Model.Model
		if f == whole {
			out.Request = ptrTo(t.Model.resolved(t.files, whole))
		}
	}
	if t.DestinationMissing {
		out.TimingMode = transferModes[1]
	}
	if t.FairShare {
		out.Contention = contentions[1]
	}
	return out
}

var contentions = []string{"none", "fair_share"}

// resolved is the role in the nested shape of engine arguments. What the backend does
// not look at is left out.
func (r *Role) resolved(f form) resolved.Role {
	out := resolved.Role{Engine: r.engine(f), DPSize: r.DPSize, TensorParallelSize: r.TensorParallel, StartupTime: r.StartupMs / 1000}
	if r.ContextParallel > 1 {
		out.CPSize = r.ContextParallel
	}
	if c := r.Capacity; c != nil {
		out.Capacity = &resolved.Capacity{Model: c.Model.resolved(r.files, f), MemoryFraction: c.MemoryFraction,
			CUDAGraphReservedBytes: c.CUDAGraphReserved, MaxNumBatchedTokens: orNil(c.MaxBatchedTokens)}
	}
	if r.QueuePolicy != "" {
		out.Dynamo = &resolved.Dynamo{RouterQueuePolicy: r.QueuePolicy}
	}
	if f == whole {
		if r.request().System == "" {
			out.Hardware = r.Hardware
		}
		if out.StartupTime*1000 != r.StartupMs {
			out.StartupTimeMs = r.StartupMs
		}
	}
	return out
}

func (r *Role) engine(f form) resolved.Engine {
	c := &r.Rank
	e := resolved.Engine{Backend: c.Backend.String(), WorkerType: c.Role.String(),
		NumGPUBlocks: orNil(c.Blocks), BlockSize: c.BlockSize, MaxModelLen: orNil(c.MaxModelLen),
		MaxNumSeqs: orNil(c.MaxNumSeqs), MaxNumBatchedTokens: orNil(c.MaxNumBatchedTokens),
		EnablePrefixCaching: c.PrefixCaching, EnableChunkedPrefill: c.ChunkedPrefill,
		SpeedupRatio: c.SpeedupRatio, DecodeSpeedupRatio: c.DecodeSpeedupRatio, TimingModel: r.timing(f)}
	switch c.Backend {
	case engine.VLLM:
		e.PrefillScheduleInterval, e.PreemptionMode = c.PrefillScheduleInterval, preemptionModes[0]
		if c.PreemptFIFO {
			e.PreemptionMode = preemptionModes[1]
		}
	case engine.SGLang:
		e.PrefillDecodeInterval = &c.PrefillDecodeInterval
		e.SGLang = &resolved.SGLang{SchedulePolicy: schedulePolicies[0], MaxPrefillTokens: c.SGLang.MaxPrefillTokens,
			ChunkedPrefillSize: c.SGLang.ChunkedPrefillSize, ClipMaxNewTokens: c.SGLang.ClipMaxNewTokens,
			ScheduleConservativeness: c.SGLang.Conservativeness}
		if c.SGLang.LPM {
			e.SGLang.SchedulePolicy = schedulePolicies[1]
		}
	}
	r.resolveOffload(&e)
	if c.NextN > 0 {
		e.NextN, e.AcceptRates = c.NextN, r.AcceptRates
		if r.MTPSeedGiven {
			e.MTPSeed = &c.MTPSeed
		}
	}
	return e
}

var (
	preemptionModes  = []string{"lifo", "fifo"}
	schedulePolicies = []string{"fifo", "lpm"}
)

func (r *Role) timing(f form) resolved.Timing {
	t := &r.Timing
	out := resolved.Timing{Type: resolved.Polynomial, Corrections: t.Corrections.resolved(f)}
	switch t.Kind {
	case Fixed:
		out.Type, out.PrefillMs, out.DecodeMs = resolved.Fixed, &t.PrefillMs, &t.DecodeMs
	case Profile:
		out.Type, out.Provider, out.Config.Profile = resolved.External, resolved.ProfileProvider, shown(r.profile, f)
	case Measured:
		out.Type, out.Provider, out.Config.Hardware = resolved.External, resolved.AICProvider, ptrTo(t.AIC.resolved(r.files, f))
	}
	return out
}

// shown is a reference as the form has it.
func shown(ref resolved.FileRef, f form) resolved.FileRef {
	if f == identity {
		return ref.Content()
	}
	return ref
}

// resolved is the request with the words of spec aic-perfmodel 1.4; null stands for
// "from the checkpoint" and "not given".
func (q *AICRequest) resolved(files modelFiles, f form) resolved.HardwareModel {
	if f == identity {
		files = files.content()
	}
	m := resolved.HardwareModel{Model: resolved.ModelRef{Name: q.Model, Config: files.model}, System: q.System, Backend: q.Backend,
		WorkerType: q.Role.String(), BackendVersion: orText(q.Version, resolved.CurrentVersion),
		TP: q.TP, PP: q.PP, AttentionDP: q.AttentionDP, CPSize: q.CP, MoETPSize: orNil(q.MoETP), MoEEPSize: orNil(q.MoEEP),
		NextN: q.NextN, DatabaseMode: q.Mode, AttentionBackend: q.AttentionBackend, DecodeQKNorm: q.DecodeQKNorm,
		GEMMDType: orNil(q.GEMM), MoEDType: orNil(q.MoE), FMHADType: orNil(q.FMHA), KVCacheDType: orNil(q.KVCache), CommDType: orNil(q.Comm)}
	if q.SystemsPath != "" {
		m.SystemsPath = &files.systems
	}
	return m
}

// orNil is v, or nil for the zero value.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// resolved is the workload; its arrival seed stands with the other seeds of the run
// unless it was written.
func (w *Workload) resolved(f form) resolved.Workload {
	if s := w.Synthetic; s != nil {
		return resolved.Workload{Synthetic: w.synthetic(s)}
	}
	t := w.Trace
	format := t.Load.Format
	out := &resolved.Trace{Type: resolved.TraceType, Format: format.String(), TraceBlockSize: orNil(t.Load.BlockSize),
		ExecutionModel: w.ExecutionModel}
	for _, r := range t.refs {
		out.Trace = append(out.Trace, shown(r, f))
	}
	if t.Drive.ClosedLoop {
		out.Concurrency = &t.Drive.Concurrency
	} else {
		out.ArrivalSpeedup = &t.Drive.Speedup
	}
	if t.Drive.Laned {
		out.AgenticLanes = &t.Drive.Lanes
	}
	switch format {
	case trace.AppliedCompute:
		out.TraceSharedPrefixRatio, out.TraceNumPrefixGroups = &t.Load.SharedPrefixRatio, &t.Load.PrefixGroups
	case trace.Weka:
		out.NestedTimestampBasis = timestampBases[t.Load.WekaTimestamps]
	}
	if !math.IsInf(w.MaxSimTimeMs, 1) {
		out.MaxSimTimeMs = &w.MaxSimTimeMs
	}
	return resolved.Workload{Trace: out}
}

func (w *Workload) synthetic(s *workload.Synthetic) *resolved.Synthetic {
	out := &resolved.Synthetic{Type: resolved.SyntheticType, InputTokens: s.InputTokens, OutputTokens: s.OutputTokens, Requests: s.Requests,
		TurnsPerSession: s.TurnsPerSession, InterTurnDelayMs: s.InterTurnDelayMs,
		SharedPrefixRatio: s.SharedPrefixRatio, NumPrefixGroups: s.PrefixGroups}
	switch s.Control {
	case workload.Closed:
		out.Concurrency = &s.Concurrency
	case workload.Poisson:
		out.RequestRate = &s.RatePerS
		if w.ArrivalSeedGiven {
			out.ArrivalSeed = &s.ArrivalSeed
		}
	case workload.Fixed:
		out.ArrivalIntervalMs = &s.IntervalMs
	}
	if s.Control != workload.Closed {
		out.ArrivalSpeedup = &s.Speedup
	}
	if s.Cumulative {
		out.CumulativeTurns, out.GroupSeed = true, &s.GroupSeed
	}
	return out
}

// resolved is the router with upstream's keys.
func (r *Router) resolved(f form) resolved.Router {
	if !r.Mode.Configured {
		return resolved.Router{Mode: r.Mode.Name}
	}
	c := &r.Config
	out := resolved.Router{Mode: r.Mode.Name, KVEventLagMs: &r.EventLagMs, Config: &resolved.RouterConfig{
		HostCacheHitWeight: hostWeight(c.HostWeight), OverlapScoreCredit: c.OverlapCredit, OverlapScoreCreditDecay: c.CreditDecay,
		PrefillLoadScale: c.PrefillScale, DecodeActiveRequestWeight: c.ActiveRequestWeight,
		Temperature: c.Temperature, TrackActiveBlocks: c.TrackActiveBlocks,
		AssumeKVReuse: c.AssumeKVReuse, TrackPrefillTokens: c.TrackPrefillTokens,
		Policy: resolvedProfile(&c.Profile)}}
	if r.Estimator != nil {
		out.PrefillLoadModel = ptrTo(r.Estimator.resolved(r.files, f))
	}
	return out
}

// resolvedProfile is a profile with the keys of a policy file.
func resolvedProfile(p *router.Profile) resolved.RouterPolicy {
	var out resolved.RouterPolicy
	for i := range p.Classes {
		c := &p.Classes[i]
		out.Classes = append(out.Classes, resolved.PolicyClass{Name: c.Name, Policy: c.Policy.String(), Quantum: c.Quantum,
			BusyTokens: c.BusyTokens, BusyFrac: c.BusyFrac, MaxRequests: c.MaxRequests, MaxISL: c.MaxISL, MaxCached: c.MaxCached})
	}
	if len(p.Families) > 0 {
		out.Families, out.DefaultFamily = p.Families, p.Families[p.DefaultFamily]
		out.UncachedISLBuckets, out.Cells, out.Explicit = p.MinTokens, p.Cells, p.Explicit
	}
	return out
}

// resolved is the Planner's configuration with upstream's keys: those of
// planner.Config, and what stands beside its JSON.
func (p *Planner) resolved(f form) resolved.Planner {
	c := p.Config
	c.Predictor.WarmupTrace = ""
	out := resolved.Planner{BenchmarkGranularity: p.Granularity,
		PrefillEngineNumGPU: c.Recorder.PrefillEngineGPUs, DecodeEngineNumGPU: c.Recorder.DecodeEngineGPUs}
	copyJSON(&out, struct {
		planner.Config
		Predictor predictorWithoutTrace `json:"predictor"`
	}{c, predictorWithoutTrace{c.Predictor, nil}})
	if p.warmup != (resolved.FileRef{}) {
		out.Predictor.WarmupTrace = ptrTo(shown(p.warmup, f))
	}
	return out
}

// predictorWithoutTrace hides the path of the warm-up trace.
type predictorWithoutTrace struct {
	planner.PredictorConfig
	WarmupTrace *string `json:"load_predictor_warmup_trace,omitempty"`
}

// copyJSON fills the fields of to from those of from that have the same keys; a key
// that to does not have is our bug.
func copyJSON(to, from any) {
	dec := json.NewDecoder(bytes.NewReader(jsonOf(from)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		panic("scenario: a resolved configuration lacks a key: " + err.Error())
	}
}
