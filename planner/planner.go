// Package planner decides at every tick how many workers a deployment should have:
// reactively from forward-pass metrics (the load loop) and predictively from a
// traffic forecast (the throughput loop), within a budget of GPUs.
//
// A configuration is read from a document, completed and checked, and made into a
// Policy that a run calls back:
//
//	cfg, notices, err := planner.ReadJSON("planner.json", text)
//	policy, err := planner.New(cfg, engines)
//	run.Scaling = policy            // sim.ScalingPolicy; Decision.Detail is a *Tick
//
// The Planner does not know that time is simulated: it sees snapshots with a
// clock. A Policy belongs to one run and is not safe for two goroutines. Times of
// the Planner are float64 seconds, latencies ms, lengths tokens.
//
// Source: spec planner, 1 to 12.
package planner

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/sim"
)

// Engine is what the Planner knows of the engines of one role.
type Engine struct {
	GPUs             int // cost of a replica: max(tp,1) x pp x dp
	MaxBatchedTokens int // 0: not given
	MaxSeqs          int // 0: not given
	ContextLength    int // max_model_len, 0: not given
	KVTokens         int // of one rank: blocks x block size, 0: unknown
	Ranks            int // dp_size, 0 counts as 1
	NextN            int // draft tokens of speculative decoding
}

func (e Engine) workerKV() int { return e.KVTokens * max(e.Ranks, 1) }

// Engines is the deployment that the Planner scales. An aggregated one has only
// the decode side.
type Engines struct {
	Disaggregated   bool
	Prefill, Decode Engine
	// Hardware timing to learn from before the first tick with target sla; nil
	// where timing is not hardware-backed (spec planner 6.7).
	PrefillTiming, DecodeTiming PassTimes
	Granularity                 int // --benchmark-granularity, 0: 8
}

// Policy is a Planner in a run.
type Policy struct {
	cfg        Config
	engines    Engines
	cost       pair
	minimum    pair
	limits     band
	line       timeline
	traffic    window
	prefill    cache
	decode     cache
	last       lastSeen
	nextn      int
	models     struct{ prefill, decode *model } // aggregated: decode; nil unless target sla
	forecast   forecaster
	floor      pair // of the throughput loop
	hysteresis struct{ prefill, decode hysteresis }
	pending    pair // outstanding targets, Unset: none
	tick       Tick
	recorder   recorder
	boot       Bootstrap
}

var _ sim.ScalingPolicy = (*Policy)(nil)

// New checks the configuration against the engines and builds a Planner; it reads
// the warm-up trace.
func New(cfg Config, e Engines) (*Policy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := checkEngines(cfg, e); err != nil {
		return nil, err
	}
	p := &Policy{cfg: cfg, engines: e, limits: band{cfg.Budget.MinGPUs, cfg.Budget.MaxGPUs},
		cost:    pair{e.Prefill.GPUs, e.Decode.GPUs},
		minimum: pair{cfg.Budget.MinPrefill, cfg.Budget.MinDecode},
		last:    lastSeen{hitRate: math.NaN(), accept: 1},
		floor:   pair{1, 1},
		pending: pair{Unset, Unset},
		nextn:   cfg.NextN,
	}
	if e.Decode.NextN > 0 {
		p.nextn = e.Decode.NextN
	}
	if cfg.Mode == Agg {
		p.cost.p, p.minimum.p = 0, 0
	}
	p.line.cfg = &p.cfg
	p.tick.Next = p.line.at(cfg.ScaleIntervalS)
	p.hysteresis.prefill.needs, p.hysteresis.decode.needs = cfg.HysteresisTicks, cfg.HysteresisTicks
	p.recorder = newRecorder(&p.cfg)
	if cfg.Target == SLA {
		if err := p.buildModels(); err != nil {
			return nil, err
		}
	}
	p.boot = p.bootstrap()
	if cfg.ThroughputScaling {
		if err := p.forecast.init(cfg.Predictor, cfg.ThroughputIntervalS); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func checkEngines(cfg Config, e Engines) error {
	var errs []error
	if e.Disaggregated != (cfg.Mode == Disagg) {
		topology := "aggregated"
		if e.Disaggregated {
			topology = "disaggregated"
		}
		errs = append(errs, fmt.Errorf("mode: %s does not fit the topology, which is %s", cfg.Mode, topology))
	}
	if e.Decode.GPUs <= 0 || e.Disaggregated && e.Prefill.GPUs <= 0 {
		errs = append(errs, errors.New("engine: GPUs per replica must be > 0: set tensor_parallel_size and dp_size"))
	}
	return errors.Join(errs...)
}

// Warnings names what the configuration says about GPUs that the engines do not
// bear out: budgets use the engines' parallelism, planner GPU-hours the configured
// counts. Of the engines it reads the GPUs alone.
func (c Config) Warnings(e Engines) (out []string) {
	check := func(key string, configured, engine int) {
		switch {
		case configured == 0:
			out = append(out, key+": is unset, so there are no planner GPU-hours")
		case configured != engine:
			out = append(out, fmt.Sprintf("%s: is %d, but the engine takes %d GPUs; budgets and gpu_hours use the engine's",
				key, configured, engine))
		}
	}
	if c.Mode == Disagg {
		check("prefill_engine_num_gpu", c.Recorder.PrefillEngineGPUs, e.Prefill.GPUs)
	}
	check("decode_engine_num_gpu", c.Recorder.DecodeEngineGPUs, e.Decode.GPUs)
	least := max(c.Budget.MinDecode, 1) * e.Decode.GPUs
	if c.Mode == Disagg {
		least += max(c.Budget.MinPrefill, 1) * e.Prefill.GPUs
	}
	if most := c.Budget.MaxGPUs; most >= 0 && most < least {
		out = append(out, fmt.Sprintf("max_gpu_budget: %d GPUs do not hold the least workers, which take %d: the Planner will remove every worker",
			most, least))
	}
	if b := c.Budget; b.MaxGPUs >= 0 && b.MinGPUs > b.MaxGPUs {
		out = append(out, fmt.Sprintf("min_gpu_budget: %d GPUs are more than max_gpu_budget, %d: no deployment has both",
			b.MinGPUs, b.MaxGPUs))
	}
	return out
}

func (p *Policy) buildModels() error {
	build := func(r role, e Engine) *model {
		l := limits{batchedTokens: e.MaxBatchedTokens, seqs: e.MaxSeqs, kvTokens: e.workerKV()}
		if l.batchedTokens == 0 {
			l.batchedTokens = 8192
		}
		if l.seqs == 0 {
			l.seqs = 512
		}
		if l.kvTokens == 0 {
			l.kvTokens = 2_000_000
		}
		return newModel(r, l, p.cfg.Regression)
	}
	for _, e := range []Engine{p.engines.Prefill, p.engines.Decode} {
		if e.MaxBatchedTokens < 0 || e.MaxSeqs < 0 || e.KVTokens < 0 {
			return fmt.Errorf("engine: limits must be > 0 for a performance model, got %d batched tokens, %d sequences, %d KV tokens",
				e.MaxBatchedTokens, e.MaxSeqs, e.KVTokens)
		}
	}
	if p.cfg.Mode == Agg {
		p.models.decode = build(aggregatedRole, p.engines.Decode)
		return nil
	}
	p.models.prefill = build(prefillRole, p.engines.Prefill)
	p.models.decode = build(decodeRole, p.engines.Decode)
	return nil
}

// FirstTickMs is one scale interval after the start.
func (p *Policy) FirstTickMs() float64 { return p.cfg.ScaleIntervalS * 1000 }

// Tick decides from one snapshot. Decision.Detail is a *Tick of the Policy's own.
func (p *Policy) Tick(s *sim.Snapshot) (sim.Decision, error) {
	schedule := p.tick.Next
	p.begin(s, schedule)
	merged := p.decide(schedule)
	p.tick.LowerBoundPrefill, p.tick.LowerBoundDecode = p.floor.p, p.floor.d
	to, change := p.project(merged)

	p.line.ran(schedule)
	p.tick.Next = p.line.at(schedule.AtS + p.cfg.ScaleIntervalS)
	d := sim.Decision{TargetPrefill: sim.Keep, TargetDecode: sim.Keep,
		NextTickMs: p.tick.Next.AtS * 1000, Detail: &p.tick}
	p.settlePending(s)
	if change {
		p.tick.ScaleToPrefill, p.tick.ScaleToDecode = to.p, to.d
		p.answer(s, to, &d)
	}
	p.recorder.record(&p.tick, change)
	return d, nil
}

// begin takes the snapshot in and clears the diagnostics of the previous tick.
func (p *Policy) begin(s *sim.Snapshot, schedule Schedule) {
	nan := math.NaN()
	p.tick = Tick{Ordinal: s.Ordinal, Schedule: schedule, Counts: p.counts(s),
		EstimatedTTFTMs: nan, EstimatedITLMs: nan, PredictedNumReq: nan, PredictedISL: nan,
		PredictedOSL: nan, PredictedHitRate: nan, EngineRPSPrefill: nan, EngineRPSDecode: nan,
		ScaleToPrefill: Unset, ScaleToDecode: Unset}
	p.traffic.add(&s.Traffic)
	if p.cfg.Mode == Disagg {
		p.prefill.merge(s.Prefill.Metrics, s.Prefill.Active)
	}
	p.decode.merge(s.Decode.Metrics, s.Decode.Active)
	if schedule.NeedTraffic {
		o, raw, ok := p.traffic.take()
		p.tick.Traffic, p.tick.HasTraffic = o, ok
		p.recorder.observe(&raw)
	}
	if schedule.NeedFPM {
		p.tick.PrefillFPM, p.tick.DecodeFPM = p.prefill.rows, p.decode.rows
	}
}

func (p *Policy) counts(s *sim.Snapshot) Counts {
	c := Counts{ReadyPrefill: Unset, ExpectedPrefill: Unset, ReadyDecode: len(s.Decode.Active)}
	expect := func(pool *sim.PoolSnapshot, target int) (expected int, moving bool) {
		current := nonDraining(pool)
		if target == Unset {
			return current, false
		}
		return target, target != current
	}
	c.ExpectedDecode, c.DecodeInProgress = expect(&s.Decode, p.pending.d)
	if p.cfg.Mode == Disagg {
		c.ReadyPrefill = len(s.Prefill.Active)
		c.ExpectedPrefill, c.PrefillInProgress = expect(&s.Prefill, p.pending.p)
	}
	return c
}

func nonDraining(pool *sim.PoolSnapshot) int { return len(pool.Active) + len(pool.Starting) }

// settlePending forgets targets that were reached (spec planner 4.3).
func (p *Policy) settlePending(s *sim.Snapshot) {
	if p.pending.p == nonDraining(&s.Prefill) {
		p.pending.p = Unset
	}
	if p.pending.d == nonDraining(&s.Decode) {
		p.pending.d = Unset
	}
}

// answer turns targets into a decision; targets that are met already are none.
func (p *Policy) answer(s *sim.Snapshot, to pair, d *sim.Decision) {
	current := pair{nonDraining(&s.Prefill), nonDraining(&s.Decode)}
	if to.p == Unset {
		to.p = current.p
	}
	if to.d == Unset {
		to.d = current.d
	}
	if p.cfg.Mode == Agg {
		to.p = current.p
	}
	if to == current {
		return
	}
	d.TargetDecode, p.pending.d = to.d, to.d
	if p.cfg.Mode == Disagg {
		d.TargetPrefill, p.pending.p = to.p, to.p
	}
}

// proposal is what a loop wants; a side without a decision keeps its ready count.
type proposal struct {
	n    pair
	p, d bool // the side was named
}

// decide runs the loops that are due and merges what they propose
// (spec planner 5).
func (p *Policy) decide(s Schedule) proposal {
	if p.cfg.Target == SLA && s.RunLoad {
		p.feed()
	}
	ready := p.tick.Counts.ready()
	merged := proposal{n: ready}
	if s.RunThroughput && p.predict() {
		merged = p.proposeThroughput()
	}
	if !s.RunLoad {
		return merged
	}
	if !p.cfg.LoadScaling {
		p.tick.LoadReason = Disabled
		return merged
	}
	if p.cfg.Target == SLA && !p.cfg.ThroughputScaling && p.tick.HasTraffic {
		p.last.observe(&p.tick.Traffic, p.nextn)
	}
	load := p.proposeLoad()
	if load.p {
		merged.n.p, merged.p = load.n.p, true
	}
	if load.d {
		merged.n.d, merged.d = load.n.d, true
	}
	return merged
}

// feed teaches the models from the passes of the tick.
func (p *Policy) feed() {
	if p.cfg.Mode == Disagg && len(p.tick.PrefillFPM) > 0 {
		p.models.prefill.feed(p.tick.PrefillFPM)
	}
	if len(p.tick.DecodeFPM) > 0 {
		p.models.decode.feed(p.tick.DecodeFPM)
	}
}

// project repairs minimums and the budget on every tick and drops what changes
// nothing (spec planner 7.7). A side that is not named is Unset.
func (p *Policy) project(m proposal) (to pair, change bool) {
	c, ready, n := p.tick.Counts, p.tick.Counts.ready(), m.n
	settled := !c.decodeMoving() && (p.cfg.Mode == Agg || !c.prefillMoving())
	var repair proposal
	if settled {
		repair = p.repair(ready)
		n = n.max(repair.n)
	}
	reconcile := settled && !p.limits.holds(ready.gpus(p.cost), p.limits.slack(max(p.cost.p, p.cost.d)))
	if n == ready && !reconcile {
		return pair{}, false
	}
	if p.cfg.Mode == Agg {
		d := clampSingle(max(n.d, p.minimum.d), p.cost.d, p.limits, p.minimum.d)
		return pair{Unset, d}, d != ready.d
	}
	to = clampPair(n.max(p.minimum), p.cost, p.limits, p.minimum)
	if to == ready {
		return pair{}, false
	}
	if to.p == ready.p && !m.p && !repair.p {
		to.p = Unset
	}
	if to.d == ready.d && !m.d && !repair.d {
		to.d = Unset
	}
	return to, true
}

// repair names the sides that are below their minimum; an aggregated deployment has
// none on the prefill side.
func (p *Policy) repair(ready pair) (r proposal) {
	if ready.p < p.minimum.p {
		r.n.p, r.p = p.minimum.p, true
	}
	if ready.d < p.minimum.d {
		r.n.d, r.d = p.minimum.d, true
	}
	return r
}
