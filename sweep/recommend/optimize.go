// Package recommend chooses among deployments. It knows no simulator: it is handed a
// function that runs candidates, and reads their figures by report key.
//
// Two searches stand here:
//
//	sweep, err := Optimize(ctx, space, goal, run)    greedy over dense topologies
//	out, err := Halve(ctx, plan, field, evaluate)       any list of candidates
//
// Optimize is the replay optimiser (spec sweeps-and-schema 4), step by step equal to
// the reference's: given the same figures it visits the same states in the same
// order and keeps the same tables.
//
// Halve is successive halving over a growing prefix of the load, then a local search
// with whole runs. A Plan fixes beforehand how many candidates run how many requests:
// a sixteenth of the load for all, a quarter for the better ones, the whole for the
// finalists. What is left of the budget runs the neighbours of the best, those that
// differ from it in one decision, until none is better. It guarantees, for a plan
// with a share s of the grid's requests:
//
//   - the requests simulated are at most s times those of the grid, always;
//   - the figures of the answer are those of whole runs, the same as the grid's;
//   - if the local search came to its end (Settled), no candidate that differs from
//     the answer in one decision is better;
//   - if on each rung every score differs by at most a fraction e from that of the
//     whole run, and bounds are met or missed as there, each of the two prefixes costs
//     at most a factor (1-e)/(1+e) of the grid's best score: a better candidate is only
//     dropped for one that looks as good;
//   - a candidate that is stopped early could not have been kept: the bound that stops
//     it holds for every way in which the run could have gone on.
//
// Prefixes mislead most between deployments of different size: a small one looks good
// until its queue has grown. So half of the places on a rung are given to the groups of
// the field in turn, each time to the best candidate of the group.
//
// Front depends on objectives, GPUs and configuration alone; the caller decides which of
// two candidates is better (Field.Order). A higher score is better; times are ms, rates
// per second. Only Sample draws at random, from a named stream of its seed.
package recommend

import (
	"context"
	"fmt"
	"math"
)

// Figures are the numbers of one run by report key; ok is false where there is none.
type Figures interface {
	Get(name string) (value float64, ok bool)
}

// RouterState is a placement policy of the optimiser.
type RouterState struct {
	KV            bool
	Credit, Scale float64 // overlap_score_credit, prefill_load_scale
}

// RoundRobin is the only state of that mode.
var RoundRobin = RouterState{Credit: 0, Scale: 1}

// KVStates are the kv_router states: credits outermost.
func KVStates(credits, scales []float64) []RouterState {
	out := make([]RouterState, 0, len(credits)*len(scales))
	for _, c := range credits {
		for _, s := range scales {
			out = append(out, RouterState{true, c, s})
		}
	}
	return out
}

// State is one candidate of the optimiser, comparable: the key of its cache.
type State struct {
	PrefillTP, PrefillWorkers int // 0: aggregated
	DecodeTP, DecodeWorkers   int // of the only pool of an aggregated state
	Router                    RouterState
}

// Aggregated reports whether the state has one pool.
func (s State) Aggregated() bool { return s.PrefillTP == 0 }

// GPUs is the number of GPUs of all workers.
func (s State) GPUs() int { return s.PrefillTP*s.PrefillWorkers + s.DecodeTP*s.DecodeWorkers }

// Space is what Optimize searches.
type Space struct {
	Aggregated bool
	TotalGPUs  int
	PrefillTP  []int // ascending; disaggregated only
	DecodeTP   []int // ascending; the only list of an aggregated space
	Routers    []RouterState
}

// MaxGPUs bounds TotalGPUs, so that a step stays enumerable.
const MaxGPUs = 1 << 14

// check returns why the space has no state, nil if it has one.
func (p *Space) check() error {
	least := 2
	if p.Aggregated {
		least = 1
	}
	if p.TotalGPUs < least || p.TotalGPUs > MaxGPUs {
		return fmt.Errorf("max_total_gpus must be from %d to %d, got %d", least, MaxGPUs, p.TotalGPUs)
	}
	if len(p.Routers) == 0 {
		return fmt.Errorf("the router has no state")
	}
	return nil
}

// first is the state that the search starts from.
func (p *Space) first() (State, error) {
	for _, s := range p.topologies() {
		for _, r := range p.Routers {
			if s.Router = r; p.allowed(s) {
				return s, nil
			}
		}
	}
	if p.Aggregated {
		return State{}, fmt.Errorf("no worker fits: max_total_gpus is %d, tensor parallel sizes are %v (kv_router needs two workers)", p.TotalGPUs, p.DecodeTP)
	}
	return State{}, fmt.Errorf("no tensor parallel pair fits with one worker each: max_total_gpus is %d, sizes are %v and %v", p.TotalGPUs, p.PrefillTP, p.DecodeTP)
}

// allowed keeps kv_router away from a single aggregated worker.
func (p *Space) allowed(s State) bool {
	return !p.Aggregated || !s.Router.KV || s.DecodeWorkers > 1
}

// topologies is the first step without a router: every size, or pair of sizes, with
// as many (equally many) workers as fit.
func (p *Space) topologies() []State {
	var out []State
	if p.Aggregated {
		for _, tp := range p.DecodeTP {
			if w := p.TotalGPUs / tp; w >= 1 {
				out = append(out, State{DecodeTP: tp, DecodeWorkers: w})
			}
		}
		return out
	}
	for _, ptp := range p.PrefillTP {
		for _, dtp := range p.DecodeTP {
			if w := p.TotalGPUs / (ptp + dtp); w >= 1 {
				out = append(out, State{PrefillTP: ptp, PrefillWorkers: w, DecodeTP: dtp, DecodeWorkers: w})
			}
		}
	}
	return out
}

// workers is the second step around at: every aggregated count that fits, or the
// pairs that use the largest number of GPUs that any pair can (spec
// sweeps-and-schema 4.3).
func (p *Space) workers(at State) []State {
	var out []State
	add := func(pw, dw int) {
		at.PrefillWorkers, at.DecodeWorkers = pw, dw
		out = append(out, at)
	}
	if p.Aggregated {
		for w := 1; w <= p.TotalGPUs/at.DecodeTP; w++ {
			add(0, w)
		}
		return out
	}
	most := 0
	for pw := 1; pw*at.PrefillTP+at.DecodeTP <= p.TotalGPUs; pw++ {
		rest := p.TotalGPUs - pw*at.PrefillTP
		most = max(most, p.TotalGPUs-rest%at.DecodeTP)
	}
	for pw := 1; pw*at.PrefillTP+at.DecodeTP <= most; pw++ {
		if rest := most - pw*at.PrefillTP; rest%at.DecodeTP == 0 {
			add(pw, rest/at.DecodeTP)
		}
	}
	return out
}

// steps are the three steps of a round.
var steps = [...]func(p *Space, at State) []State{
	func(p *Space, at State) []State {
		out := p.topologies()
		for i := range out {
			out[i].Router = at.Router
		}
		return out
	},
	(*Space).workers,
	func(p *Space, at State) []State {
		out := make([]State, len(p.Routers))
		for i, r := range p.Routers {
			at.Router = r
			out[i] = at
		}
		return out
	},
}

// Result is what one candidate came to: figures, or why there are none.
type Result struct {
	Figures Figures
	Err     error
}

// Row is an evaluated state.
type Row struct {
	State     State
	Figures   Figures // nil: failed
	Err       error   // why it failed
	GPUs      int
	Score     float64 // -Inf without the figure
	Penalty   float64 // 0: every bound is met
	Feasible  bool
	outputTPS float64
	meanE2EMs float64
}

// Sweep is what a search visited.
type Sweep struct {
	Space Space
	Goal  Goal
	Rows  []Row // in order of visit
	index map[State]int
}

// maxRounds bounds the rounds of the search.
const maxRounds = 3

// Optimize searches the space greedily: a round chooses a topology, then worker
// counts, then a router, each from the states of its step; up to three rounds, until
// one changes nothing. run evaluates states that were not seen before and returns
// one result for each, in their order. A state that fails is a row and is never
// chosen. The error is the space's, or ctx's; with the latter the rows so far are
// returned.
func Optimize(ctx context.Context, space Space, goal Goal, run func(context.Context, []State) []Result) (*Sweep, error) {
	if err := space.check(); err != nil {
		return nil, err
	}
	at, err := space.first()
	if err != nil {
		return nil, err
	}
	w := &Sweep{Space: space, Goal: goal, index: map[State]int{}}
	for round := 0; round < maxRounds; round++ {
		before := at
		for _, step := range steps {
			states := step(&space, at)
			if err := w.evaluate(ctx, states, run); err != nil {
				return w, err
			}
			if best, ok := w.pick(states); ok {
				at = best
			}
		}
		if at == before {
			break
		}
	}
	return w, nil
}

// evaluate runs the states that have no row yet.
func (w *Sweep) evaluate(ctx context.Context, states []State, run func(context.Context, []State) []Result) error {
	var fresh []State
	for _, s := range states {
		if _, seen := w.index[s]; !seen && w.Space.allowed(s) {
			fresh = append(fresh, s)
		}
	}
	if len(fresh) == 0 {
		return ctx.Err()
	}
	results := run(ctx, fresh)
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(results) != len(fresh) {
		panic(fmt.Sprintf("search: %d results for %d states", len(results), len(fresh)))
	}
	for i, s := range fresh {
		w.index[s] = len(w.Rows)
		w.Rows = append(w.Rows, w.row(s, results[i]))
	}
	return nil
}

func (w *Sweep) row(s State, r Result) Row {
	out := Row{State: s, GPUs: s.GPUs(), Err: r.Err, Score: math.Inf(-1), Penalty: math.Inf(1),
		outputTPS: math.Inf(-1), meanE2EMs: math.Inf(1)}
	if r.Err != nil {
		return out
	}
	out.Figures, out.Score = r.Figures, w.Goal.Objective.Score(r.Figures)
	sla := Penalty(w.Goal.Bounds, r.Figures)
	out.Penalty, out.Feasible = sla, sla == 0 && out.GPUs <= w.Space.TotalGPUs
	if out.GPUs > w.Space.TotalGPUs {
		out.Penalty++
	}
	if v, ok := r.Figures.Get("output_throughput_tok_s"); ok {
		out.outputTPS = v
	}
	if v, ok := r.Figures.Get("mean_e2e_latency_ms"); ok {
		out.meanE2EMs = v
	}
	return out
}

// pick returns the best of a step's states; the first of equals. Without a state
// that ran, ok is false.
func (w *Sweep) pick(states []State) (best State, ok bool) {
	var at *Row
	for _, s := range states {
		i, seen := w.index[s]
		if !seen || w.Rows[i].Err != nil {
			continue
		}
		r := &w.Rows[i]
		switch {
		case at == nil, r.Feasible && !at.Feasible:
			at = r
		case r.Feasible && betterFeasible(r, at) < 0, !r.Feasible && !at.Feasible && nearer(r, at) < 0:
			at = r
		}
	}
	if at == nil {
		return State{}, false
	}
	return at.State, true
}
