package recommend

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/dynosweep/dynosweep/sweep/scenario"
	"github.com/dynosweep/dynosweep/sweep/scenario/optimizer"
)

// ModeSweep is the search of one deployment mode of a replay optimiser's
// specification.
type ModeSweep struct {
	*Sweep
	Mode string // agg or disagg
}

// OptimizeSpec runs the replay optimiser in each mode that the engine arguments of the
// specification allow. The error is of class ErrSearchSpace, or ctx's.
func OptimizeSpec(ctx context.Context, o *optimizer.Spec, runner Runner) ([]ModeSweep, error) {
	objective, err := ParseObjective(o.Objective)
	if err != nil {
		return nil, spaceError{err}
	}
	goal := Goal{Objective: objective}
	for _, b := range o.Bounds {
		goal.Bounds = append(goal.Bounds, Bound(b))
	}
	var done []ModeSweep
	for _, m := range [...]struct {
		name       string
		allowed    bool
		aggregated bool
	}{{"disagg", o.Disaggregated, false}, {"agg", o.Aggregated, true}} {
		if !m.allowed {
			continue
		}
		w, err := Optimize(ctx, spaceOf(o, m.aggregated), goal, StateRunner(o, runner))
		if err != nil {
			if ctx.Err() == nil {
				err = spaceError{fmt.Errorf("hardware.totalGpus: %w", err)}
			}
			return nil, err
		}
		done = append(done, ModeSweep{w, m.name})
	}
	return done, nil
}

func spaceOf(o *optimizer.Spec, aggregated bool) Space {
	p := Space{Aggregated: aggregated, TotalGPUs: o.TotalGPUs, PrefillTP: o.PrefillTP, DecodeTP: o.DecodeTP}
	if o.RoundRobin {
		p.Routers = append(p.Routers, RoundRobin)
	}
	if o.KV {
		p.Routers = append(p.Routers, KVStates(o.Credits, o.Scales)...)
	}
	return p
}

// StateRunner evaluates states with the specification's engine arguments and load. A
// state that cannot run is a result with its reason.
func StateRunner(o *optimizer.Spec, runner Runner) func(context.Context, []State) []Result {
	return func(ctx context.Context, states []State) []Result {
		out := make([]Result, len(states))
		runs := make([]scenario.Run, len(states))
		var requests []RunRequest
		var stateOf []int // [request]
		for i, s := range states {
			runs[i], out[i].Err = o.Run(optimizer.State{PrefillTP: s.PrefillTP, PrefillWorkers: s.PrefillWorkers, DecodeTP: s.DecodeTP,
				DecodeWorkers: s.DecodeWorkers, KV: s.Router.KV, Credit: s.Router.Credit, Scale: s.Router.Scale})
			if out[i].Err == nil {
				requests, stateOf = append(requests, RunRequest{Run: &runs[i]}), append(stateOf, i)
			}
		}
		for k, r := range runner.Run(ctx, requests) {
			if out[stateOf[k]].Err = r.Err; r.Err == nil && r.Summary != nil {
				out[stateOf[k]].Figures = r.Summary
			}
		}
		return out
	}
}

// BestMode is the sweep whose best row beats those of the others, the first on a tie;
// ok is false if no row is feasible.
func BestMode(done []ModeSweep) (best ModeSweep, ok bool) {
	for _, w := range done {
		row, feasible := w.Best()
		if !feasible {
			continue
		}
		if ok {
			if first, _ := best.Best(); betterFeasible(&row, &first) >= 0 {
				continue
			}
		}
		best, ok = w, true
	}
	return best, ok
}

// NoFeasibleError says why no row is feasible: the bounds that the nearest row of each
// mode misses, or why nothing ran.
func NoFeasibleError(done []ModeSweep) error {
	var near error
	for _, w := range done {
		if r, ok := w.BestInfeasible(); ok {
			near = errors.Join(near, fmt.Errorf("%s: no state meets the bounds; the nearest is %s, penalty %s%s", w.Mode, r.State, shortest(r.Penalty), missed(w.Goal.Bounds, r)))
		}
	}
	if near == nil {
		near = fmt.Errorf("no state ran: %w", done[0].Rows[0].Err)
	}
	return near
}

// missed says by how much a row misses each bound.
func missed(bounds []Bound, r Row) string {
	text := ""
	for _, b := range bounds {
		if x := b.Excess(r.Figures); x > 0 {
			v, _ := r.Figures.Get(b.Key)
			text += fmt.Sprintf("; %s: %s %.6g is %.3g%% above %.6g", b.Name, b.Key, v, 100*x, b.Limit)
		}
	}
	return text
}

// String names the sizes, the workers and the router of a state.
func (s State) String() string {
	router := "round_robin"
	if s.Router.KV {
		router = fmt.Sprintf("kv_router credit %v scale %v", s.Router.Credit, s.Router.Scale)
	}
	if s.Aggregated() {
		return fmt.Sprintf("tp %d workers %d %s", s.DecodeTP, s.DecodeWorkers, router)
	}
	return fmt.Sprintf("prefill_tp %d decode_tp %d prefill_workers %d decode_workers %d %s", s.PrefillTP, s.DecodeTP, s.PrefillWorkers, s.DecodeWorkers, router)
}

func shortest(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
