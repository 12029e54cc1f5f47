package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/results/compare"
	"github.com/dynosweep/dynosweep/sim/timing/aic"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/recommend"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// entry is one candidate and what became of it.
type entry struct {
	id        string // candidate-NNNNNN
	mode      string
	pick      recommend.Pick
	candidate scenario.Candidate // slim
	fixed     bool               // no Planner
	without   []string           // halving only: see scenario.Candidate.Without
	load      sweep.Load
	evaluated bool // its figures are those of a whole run

	status, category, reason string
	metrics                  kept // nil: it did not run to an end
	objectives               []float64
	bounds                   []recommend.Bound // of the SLA
	penalty                  float64           // how far beyond the SLA
	beyond                   bool              // a gate: strict SLA or least goodput is missed
	simulated                int64
	seen                     *recommend.Seen // halving only
	path                     string          // of its file
	top, pareto              bool
}

// kept are a run's numbers by key.
type kept map[string]float64

func (f kept) Get(name string) (float64, bool) { v, ok := f[name]; return v, ok }

// keptMetrics are the report keys that a candidate keeps (spec sweeps-and-schema 3).
var keptMetrics = []string{"num_requests", "completed_requests", "num_ttft_samples", "num_tpot_samples", "num_e2e_latency_samples",
	"output_throughput_tok_s", "request_throughput_rps", "mean_ttft_ms", "mean_tpot_ms", "mean_e2e_latency_ms",
	"mean_output_token_throughput_per_user", "goodput_completed_requests", "goodput_request_throughput_rps",
	"goodput_output_throughput_tok_s", "gpu_hours", "duration_ms"}

// judge reads what a trial came to.
func (j *recommendJob) judge(e *entry, run *scenario.Run, t *sweep.Tried) {
	e.simulated += t.Simulated
	j.simulated += t.Simulated
	e.metrics, e.objectives, e.beyond, e.penalty = nil, nil, false, 0
	e.status, e.category, e.reason = "feasible", "", ""
	switch {
	case t.Stopped:
		e.status, e.reason = "eliminated", "could no longer reach the score of others"
		return
	case t.Err != nil:
		e.status, e.category, e.reason = failure(t)
		var bug *sweep.PanicError
		if errors.As(t.Err, &bug) {
			fmt.Fprintf(j.stderr, "%s: %v\n%s", e.id, bug, bug.Stack)
		}
		return
	}
	e.metrics = j.keep(e, run, t.Outcome)
	var err error
	if e.objectives, err = j.target.Objectives(e.metrics); err != nil {
		e.objectives = nil
		e.status, e.category, e.reason = "failed", "invalid_metrics", err.Error()
		if errors.Is(err, recommend.ErrNoSamples) {
			e.category = "no_samples"
		}
		return
	}
	j.gate(e)
}

// failure classes what stopped a run.
func failure(t *sweep.Tried) (status, category, reason string) {
	var memory *sweep.MemoryError
	switch reason = t.Err.Error(); {
	case t.TimedOut:
		return "timed_out", "runtime_timeout", reason
	case errors.As(t.Err, &memory):
		return "unsupported", "candidate_materialization", reason
	case errors.Is(t.Err, aic.ErrCapacity):
		return "infeasible", "kv_capacity", reason
	case errors.Is(t.Err, document.ErrInput):
		return "unsupported", "runner_contract", reason
	}
	return "failed", "replay_runtime", reason
}

// keep gathers the kept numbers, the deployment's size and, with prices, its cost.
func (j *recommendJob) keep(e *entry, run *scenario.Run, o *sweep.Outcome) kept {
	f := kept{}
	for _, key := range keptMetrics {
		if v, ok := o.Summary.Get(key); ok {
			f[key] = v
		}
	}
	f[recommend.UsedGPUs] = float64(e.candidate.GPUs)
	if !e.fixed {
		f["planner_total_ticks"] = float64(o.Result.Ticks)
		f[recommend.UsedGPUs] = recommend.AverageGPUs(f)
	}
	if !j.doc.Cost.Asked() {
		return f
	}
	usd, err := sweep.CostUSD(&j.doc.Cost, run, o)
	if err != nil {
		return f
	}
	f["cost_usd"] = usd
	if ms := f["duration_ms"]; ms > 0 {
		f[recommend.USDPerHour] = usd / (ms / 3.6e6)
	}
	if n := o.Summary.OutputTokens; n > 0 {
		f["usd_per_million_output_tokens"] = usd / float64(n) * 1e6
	}
	if n := f["goodput_completed_requests"]; n > 0 {
		f["usd_per_good_request"] = usd / n
	}
	return f
}

// gate compares means with the SLA, and the goodput with its least. Only a strict
// SLA and a least goodput make a candidate infeasible (spec sweeps-and-schema 5.4).
func (j *recommendJob) gate(e *entry) {
	g := &j.doc.Goal
	e.bounds = nil
	for _, b := range [...]recommend.Bound{{Key: "mean_ttft_ms", Limit: j.doc.SLA.TTFTMs, Name: "TTFT"},
		{Key: "mean_tpot_ms", Limit: j.doc.SLA.ITLMs, Name: "ITL"}, {Key: "mean_e2e_latency_ms", Limit: j.doc.SLA.E2EMs, Name: "E2E"}} {
		if b.Limit > 0 {
			e.bounds = append(e.bounds, b)
		}
	}
	e.penalty = recommend.Penalty(e.bounds, e.metrics)
	if e.metrics["completed_requests"] == 0 {
		e.penalty = math.Inf(1)
	}
	if g.StrictSLA && e.penalty > 0 {
		e.beyond = true
	}
	if least := g.MinGoodputRPS; least > 0 {
		if got := e.metrics["goodput_request_throughput_rps"]; got < least {
			e.beyond = true
			e.penalty += least/max(got, 1e-9) - 1
		}
	}
	if e.beyond {
		e.status, e.category, e.reason = "infeasible", "sla_constraint", e.missText()
	}
}

// missText says by how much and in which phase a candidate misses the SLA.
func (e *entry) missText() string {
	phase := map[string]string{"TTFT": "prefill", "ITL": "decode", "E2E": "whole request"}
	var parts []string
	for _, b := range e.bounds {
		v, ok := e.metrics.Get(b.Key)
		switch x := b.Excess(e.metrics); {
		case !ok:
			parts = append(parts, "no "+b.Name)
		case x > 0:
			parts = append(parts, fmt.Sprintf("mean %s %.4g ms misses %.4g ms by %.4g ms, %.0f%% (%s)", b.Name, v, b.Limit, v-b.Limit, 100*x, phase[b.Name]))
		default:
			parts = append(parts, fmt.Sprintf("mean %s %.4g ms meets %.4g ms", b.Name, v, b.Limit))
		}
	}
	if v, ok := e.metrics["goodput_request_throughput_rps"]; ok {
		parts = append(parts, fmt.Sprintf("goodput %.4g requests/s", v))
	}
	if len(parts) == 0 {
		return e.reason
	}
	return strings.Join(parts, ", ")
}

// standing is the candidate in the eyes of halving.
func (e *entry) standing() recommend.Standing {
	s := recommend.Standing{Class: recommend.Within, Penalty: 0,
		Ranked: recommend.Ranked{Objectives: e.objectives, GPUs: e.candidate.GPUs, Config: string(e.candidate.Config)}}
	switch {
	case e.status == "eliminated":
		s.Class = recommend.Stopped
	case e.metrics == nil || len(e.objectives) == 0:
		s.Class = recommend.Failed
	case e.beyond:
		s.Class, s.Penalty = recommend.Beyond, e.penalty
	}
	return s
}

// ceiling is a score that a candidate cannot exceed once the clock of its run shows
// nowMs, as long as one more request completes; +Inf if nothing is known. Every
// output token of the load over the time so far bounds a rate, GPUs at the start
// bound the average without a Planner.
func (j *recommendJob) ceiling(e *entry, nowMs float64) float64 {
	rate := math.Inf(1)
	if nowMs > 0 {
		rate = float64(e.load.OutputTokens) / (nowMs / 1000)
	}
	switch j.target {
	case recommend.ByThroughput, recommend.ByGoodput:
		return rate
	case recommend.ByThroughputPerGPU, recommend.ByGoodputPerGPU:
		if e.fixed {
			return rate / float64(e.candidate.GPUs)
		}
	case recommend.ByGPUs:
		if e.fixed {
			return -float64(e.candidate.GPUs)
		}
	}
	return math.Inf(1)
}

// merit is what the verdict sees of a candidate.
func (e *entry) merit() compare.Merit { return meritOf(e.standing()) }

func meritOf(s recommend.Standing) compare.Merit {
	m := compare.Merit{Meets: s.Class == recommend.Within, Miss: s.Penalty, Score: math.NaN(), GPUs: float64(s.GPUs), Name: s.Config}
	if len(s.Objectives) > 0 {
		m.Score = s.Objectives[0]
	}
	return m
}

// compareNearest orders candidates none of which meets the SLA by how little they miss.
func compareNearest(a, b *entry) int {
	x, y := a.merit(), b.merit()
	x.Meets, x.Miss = false, a.penalty
	y.Meets, y.Miss = false, b.penalty
	return compare.Rank(x, y)
}

// views are the answers: ranked candidates and the front.
type views struct {
	ranked []*entry // feasible, best first
	top    []*entry
	front  []*entry
}

// rank orders the feasible candidates. With target pareto the front is the answer.
func (j *recommendJob) rank() *views {
	v := &views{}
	var pairs []recommend.Ranked
	var on []*entry
	for _, e := range j.entries {
		if !e.evaluated || e.status != "feasible" {
			continue
		}
		v.ranked = append(v.ranked, e)
		if o, err := recommend.ByPareto.Objectives(e.metrics); err == nil {
			on = append(on, e)
			pairs = append(pairs, recommend.Ranked{Objectives: o, GPUs: e.candidate.GPUs, Config: string(e.candidate.Config)})
		}
	}
	for _, i := range recommend.Front(pairs) {
		on[i].pareto = true
		v.front = append(v.front, on[i])
	}
	slices.SortFunc(v.ranked, func(a, b *entry) int {
		return compare.Rank(a.merit(), b.merit())
	})
	switch {
	case !j.metSLA(): // an answer would be another SLA's
	case j.target == recommend.ByPareto:
		v.top = v.front
	default:
		v.top = v.ranked[:min(j.c.Int("top-n"), len(v.ranked))]
	}
	for i, e := range v.top {
		e.top = true
		e.path = recommendationPath(j.dir, i)
	}
	return v
}

// metSLA reports whether some candidate meets the SLA: with a goodput target, for
// some request; else with its means. Without an SLA it is met.
func (j *recommendJob) metSLA() bool {
	if !j.doc.SLA.Set() {
		return true
	}
	return slices.ContainsFunc(j.entries, func(e *entry) bool {
		if !e.evaluated || e.metrics == nil || e.status != "feasible" {
			return false
		}
		return e.penalty == 0 || j.target.Goodput() && e.metrics["goodput_completed_requests"] > 0
	})
}

// counts are the numbers of candidates by what became of them.
func (j *recommendJob) counts() map[string]int {
	n := map[string]int{"evaluated": len(j.entries) + j.cacheHits, "feasible": 0, "infeasible": 0, "unsupported": 0, "timed_out": 0, "failed": 0, "cache_hits": j.cacheHits}
	if j.plan != nil {
		n["eliminated"] = 0
	}
	for _, e := range j.entries {
		n[e.status]++
	}
	return n
}

// fieldOf groups candidates by mode, GPUs and size of the load, and finds those that
// differ in one decision; the decisions of an adapter section count as one too.
func fieldOf(live []*entry) recommend.Field {
	f := recommend.Field{Group: make([]int, len(live)), Order: func(a, b *recommend.Standing) int { return compare.Rank(meritOf(*a), meritOf(*b)) }}
	groups, alike := map[string]int{}, map[string][]int{}
	slots := make([][]string, len(live)) // [candidate], the sets it is in
	for i, e := range live {
		g := fmt.Sprint(e.mode, e.candidate.GPUs, e.load.Requests, e.load.InFlight)
		if _, ok := groups[g]; !ok {
			groups[g] = len(groups)
		}
		f.Group[i] = groups[g]
		for _, rest := range e.without {
			alike[rest] = append(alike[rest], i)
			slots[i] = append(slots[i], rest)
		}
	}
	f.Near = func(c int) []int {
		var out []int
		for _, s := range slots[c] {
			for _, other := range alike[s] {
				if other != c && !slices.Contains(out, other) {
					out = append(out, other)
				}
			}
		}
		return out
	}
	return f
}
