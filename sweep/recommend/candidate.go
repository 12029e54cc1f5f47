package recommend

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/results/compare"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Values of Candidate.Status (spec sweeps-and-schema 3).
const (
	statusFeasible    = "feasible"
	statusInfeasible  = "infeasible"
	statusUnsupported = "unsupported"
	statusFailed      = "failed"
	statusTimedOut    = "timed_out"
	statusEliminated  = "eliminated" // halving only
)

// Candidate is one configuration of a search and what became of it.
type Candidate struct {
	ID         string    // candidate-NNNNNN
	Status     string    // feasible, infeasible, unsupported, failed, timed_out, eliminated
	Reason     string    // of a status other than feasible
	Objectives []float64 // of the target, larger is better; nil without figures
	Path       string    // of its configuration file, of the recommended ones

	mode          string
	pick          Pick
	config        scenario.Candidate // without its run
	fixedFleet    bool               // no Planner scales it
	neighbourKeys []string           // halving only: see scenario.Candidate.Without
	load          Load
	evaluated     bool // its figures are those of a whole run

	category  string
	metrics   metricSubset // nil: it did not run to an end
	bounds    []Bound      // of the SLA
	penalty   float64      // how far beyond the SLA
	missesSLA bool         // strict SLA or least goodput is missed
	simulated int64        // requests
	seen      *Seen        // halving only
	top       bool
	pareto    bool
}

// GPUs is the number of GPUs that the candidate starts with.
func (c *Candidate) GPUs() int { return c.config.GPUs }

// metricSubset are those figures of a run that a candidate keeps, by report key.
type metricSubset map[string]float64

func (f metricSubset) Get(name string) (float64, bool) { v, ok := f[name]; return v, ok }

// subsetKeys are the report keys of a metricSubset (spec sweeps-and-schema 3).
var subsetKeys = []string{"num_requests", "completed_requests", "num_ttft_samples", "num_tpot_samples", "num_e2e_latency_samples",
	"output_throughput_tok_s", "request_throughput_rps", "mean_ttft_ms", "mean_tpot_ms", "mean_e2e_latency_ms",
	"mean_output_token_throughput_per_user", "goodput_completed_requests", "goodput_request_throughput_rps",
	"goodput_output_throughput_tok_s", "gpu_hours", "duration_ms"}

// evaluate reads what a run came to.
func (s *Search) evaluate(c *Candidate, r *RunResult) {
	c.simulated += r.Simulated
	s.simulated += r.Simulated
	c.metrics, c.Objectives, c.missesSLA, c.penalty = nil, nil, false, 0
	c.Status, c.category, c.Reason = statusFeasible, "", ""
	switch {
	case r.Stopped:
		c.Status, c.Reason = statusEliminated, "could no longer reach the score of others"
		return
	case r.Err != nil:
		words := failureWords[r.Failure]
		c.Status, c.category, c.Reason = words.status, words.category, r.Err.Error()
		return
	}
	c.metrics = s.metrics(c, r)
	var err error
	if c.Objectives, err = s.target.Objectives(c.metrics); err != nil {
		c.Objectives = nil
		c.Status, c.category, c.Reason = statusFailed, "invalid_metrics", err.Error()
		if errors.Is(err, ErrNoSamples) {
			c.category = "no_samples"
		}
		return
	}
	s.applyGates(c)
}

// metrics gathers the figures to keep, the deployment's size and, with prices, its cost.
func (s *Search) metrics(c *Candidate, r *RunResult) metricSubset {
	f := metricSubset{}
	for _, key := range subsetKeys {
		if v, ok := r.Summary.Get(key); ok {
			f[key] = v
		}
	}
	f[UsedGPUs] = float64(c.config.GPUs)
	if !c.fixedFleet {
		f["planner_total_ticks"] = float64(r.PlannerTicks)
		f[UsedGPUs] = AverageGPUs(f)
	}
	if !s.doc.Cost.Asked() {
		return f
	}
	usd, err := r.CostUSD(&s.doc.Cost)
	if err != nil {
		return f
	}
	f["cost_usd"] = usd
	if ms := f["duration_ms"]; ms > 0 {
		f[USDPerHour] = usd / (ms / 3.6e6)
	}
	if n := r.Summary.OutputTokens; n > 0 {
		f["usd_per_million_output_tokens"] = usd / float64(n) * 1e6
	}
	if n := f["goodput_completed_requests"]; n > 0 {
		f["usd_per_good_request"] = usd / n
	}
	return f
}

// applyGates compares means with the SLA, and the goodput with its least. Only a strict
// SLA and a least goodput make a candidate infeasible (spec sweeps-and-schema 5.4).
func (s *Search) applyGates(c *Candidate) {
	g := &s.doc.Goal
	c.bounds = nil
	for _, b := range [...]Bound{{Key: "mean_ttft_ms", Limit: s.doc.SLA.TTFTMs, Name: "TTFT"},
		{Key: "mean_tpot_ms", Limit: s.doc.SLA.ITLMs, Name: "ITL"}, {Key: "mean_e2e_latency_ms", Limit: s.doc.SLA.E2EMs, Name: "E2E"}} {
		if b.Limit > 0 {
			c.bounds = append(c.bounds, b)
		}
	}
	c.penalty = Penalty(c.bounds, c.metrics)
	if c.metrics["completed_requests"] == 0 {
		c.penalty = math.Inf(1)
	}
	if g.StrictSLA && c.penalty > 0 {
		c.missesSLA = true
	}
	if least := g.MinGoodputRPS; least > 0 {
		if got := c.metrics["goodput_request_throughput_rps"]; got < least {
			c.missesSLA = true
			c.penalty += least/max(got, 1e-9) - 1
		}
	}
	if c.missesSLA {
		c.Status, c.category, c.Reason = statusInfeasible, "sla_constraint", c.missText()
	}
}

// missText says by how much and in which phase a candidate misses the SLA.
func (c *Candidate) missText() string {
	phase := map[string]string{"TTFT": "prefill", "ITL": "decode", "E2E": "whole request"}
	var parts []string
	for _, b := range c.bounds {
		v, ok := c.metrics.Get(b.Key)
		switch x := b.Excess(c.metrics); {
		case !ok:
			parts = append(parts, "no "+b.Name)
		case x > 0:
			parts = append(parts, fmt.Sprintf("mean %s %.4g ms misses %.4g ms by %.4g ms, %.0f%% (%s)", b.Name, v, b.Limit, v-b.Limit, 100*x, phase[b.Name]))
		default:
			parts = append(parts, fmt.Sprintf("mean %s %.4g ms meets %.4g ms", b.Name, v, b.Limit))
		}
	}
	if v, ok := c.metrics["goodput_request_throughput_rps"]; ok {
		parts = append(parts, fmt.Sprintf("goodput %.4g requests/s", v))
	}
	if len(parts) == 0 {
		return c.Reason
	}
	return strings.Join(parts, ", ")
}

// rating is the candidate in the eyes of halving.
func (c *Candidate) rating() Rating {
	r := Rating{Class: Within, Penalty: 0,
		Ranked: Ranked{Objectives: c.Objectives, GPUs: c.config.GPUs, Config: string(c.config.Config)}}
	switch {
	case c.Status == statusEliminated:
		r.Class = Stopped
	case c.metrics == nil || len(c.Objectives) == 0:
		r.Class = Failed
	case c.missesSLA:
		r.Class, r.Penalty = Beyond, c.penalty
	}
	return r
}

// ceiling is a score that a candidate cannot exceed once the clock of its run shows
// nowMs, as long as one more request completes; +Inf if nothing is known. Every
// output token of the load over the time so far bounds a rate, GPUs at the start
// bound the average without a Planner.
func (s *Search) ceiling(c *Candidate, nowMs float64) float64 {
	rate := math.Inf(1)
	if nowMs > 0 {
		rate = float64(c.load.OutputTokens) / (nowMs / 1000)
	}
	switch s.target {
	case ByThroughput, ByGoodput:
		return rate
	case ByThroughputPerGPU, ByGoodputPerGPU:
		if c.fixedFleet {
			return rate / float64(c.config.GPUs)
		}
	case ByGPUs:
		if c.fixedFleet {
			return -float64(c.config.GPUs)
		}
	}
	return math.Inf(1)
}

// rankKey is by what a candidate is ranked.
func (c *Candidate) rankKey() compare.Merit { return rankKeyOf(c.rating()) }

func rankKeyOf(s Rating) compare.Merit {
	m := compare.Merit{Meets: s.Class == Within, Miss: s.Penalty, Score: math.NaN(), GPUs: float64(s.GPUs), Name: s.Config}
	if len(s.Objectives) > 0 {
		m.Score = s.Objectives[0]
	}
	return m
}

// compareNearest orders candidates none of which meets the SLA by how little they miss.
func compareNearest(a, b *Candidate) int {
	x, y := a.rankKey(), b.rankKey()
	x.Meets, x.Miss = false, a.penalty
	y.Meets, y.Miss = false, b.penalty
	return compare.Rank(x, y)
}

// fieldOf groups candidates by mode, GPUs and size of the load, and finds those that
// differ in one decision; the decisions of an adapter section count as one too.
func fieldOf(live []*Candidate) Field {
	f := Field{Group: make([]int, len(live)), Order: func(a, b *Rating) int { return compare.Rank(rankKeyOf(*a), rankKeyOf(*b)) }}
	groups := map[string]int{}
	sharing := map[string][]int{} // candidates that have all decisions but one in common
	for i, c := range live {
		g := fmt.Sprint(c.mode, c.config.GPUs, c.load.Requests, c.load.InFlight)
		if _, ok := groups[g]; !ok {
			groups[g] = len(groups)
		}
		f.Group[i] = groups[g]
		for _, rest := range c.neighbourKeys {
			sharing[rest] = append(sharing[rest], i)
		}
	}
	f.Near = func(c int) []int {
		var out []int
		for _, rest := range live[c].neighbourKeys {
			for _, other := range sharing[rest] {
				if other != c && !slices.Contains(out, other) {
					out = append(out, other)
				}
			}
		}
		return out
	}
	return f
}
