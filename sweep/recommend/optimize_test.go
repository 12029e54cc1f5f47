package recommend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// figures are a run's numbers by report key.
type figures map[string]float64

func (f figures) Get(name string) (float64, bool) { v, ok := f[name]; return v, ok }

// formula are the figures of spec sweeps-and-schema 4.7 A.
func formula(s State) figures {
	f, ptp, dtp := 0.9, float64(s.PrefillTP), float64(s.DecodeTP)
	if s.Router.KV {
		f = 1
	}
	return figures{
		"output_throughput_tok_s": min(float64(s.PrefillWorkers)*math.Pow(ptp, 0.8)*100, float64(s.DecodeWorkers)*math.Pow(dtp, 0.7)*120) * f,
		"mean_ttft_ms":            (1000 / ptp) * (1 + math.Abs(s.Router.Scale-1)),
		"mean_tpot_ms":            40 / dtp,
		"mean_e2e_latency_ms":     1000/ptp + 4000/dtp,
	}
}

func byFormula(_ context.Context, states []State) []Result {
	out := make([]Result, len(states))
	for i, s := range states {
		out[i].Figures = formula(s)
	}
	return out
}

func disagg(routers []RouterState) Space {
	return Space{TotalGPUs: 8, PrefillTP: []int{1, 2, 4}, DecodeTP: []int{1, 2, 4}, Routers: routers}
}

func kv(ptp, dtp, pw, dw int, credit, scale float64) State {
	return State{ptp, pw, dtp, dw, RouterState{true, credit, scale}}
}

func optimize(t *testing.T, space Space, goal Goal, run func(context.Context, []State) []Result) *Sweep {
	t.Helper()
	w, err := Optimize(context.Background(), space, goal, run)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Spec sweeps-and-schema 4.7 A.
func TestSearchVisitsTheReferencesStatesInItsOrder(t *testing.T) {
	w := optimize(t, disagg(KVStates([]float64{1}, []float64{0, 0.25, 0.5, 1, 2, 4})), Goal{}, byFormula)
	var want []State
	for _, p := range [][4]int{{1, 1, 4, 4}, {1, 2, 2, 2}, {1, 4, 1, 1}, {2, 1, 2, 2}, {2, 2, 2, 2}, {2, 4, 1, 1}, {4, 1, 1, 1}, {4, 2, 1, 1}, {4, 4, 1, 1},
		{1, 1, 1, 7}, {1, 1, 2, 6}, {1, 1, 3, 5}, {1, 1, 5, 3}, {1, 1, 6, 2}, {1, 1, 7, 1}} {
		want = append(want, kv(p[0], p[1], p[2], p[3], 1, 0))
	}
	for _, scale := range []float64{0.25, 0.5, 1, 2, 4} {
		want = append(want, kv(1, 1, 4, 4, 1, scale))
	}
	var got []State
	for _, r := range w.Rows {
		got = append(got, r.State)
	}
	if !slices.Equal(got, want) {
		t.Errorf("visited\n%v\nwant\n%v", got, want)
	}
	if best, ok := w.Best(); !ok || best.State != kv(1, 1, 4, 4, 1, 0) || best.Score != 400 {
		t.Errorf("winner %+v", best)
	}
}

// Spec sweeps-and-schema 4.7 B.
func TestSearchUnderAnSLAWithBothRouters(t *testing.T) {
	routers := append([]RouterState{RoundRobin}, KVStates([]float64{0, 1}, []float64{1})...)
	goal := Goal{Objective: MeanTTFT, Bounds: []Bound{{Key: "mean_ttft_ms", Limit: 600}, {Key: "mean_tpot_ms", Limit: 25}}}
	w := optimize(t, disagg(routers), goal, byFormula)
	var got []string
	for _, r := range w.Rows {
		s := r.State
		got = append(got, fmt.Sprint(s.PrefillTP, s.DecodeTP, s.PrefillWorkers, s.DecodeWorkers, s.Router.KV, s.Router.Credit))
	}
	var want []string
	pairs := []string{"1 1 4 4", "1 2 2 2", "1 4 1 1", "2 1 2 2", "2 2 2 2", "2 4 1 1", "4 1 1 1", "4 2 1 1", "4 4 1 1"}
	for _, p := range pairs {
		want = append(want, p+" false 0")
	}
	want = append(want, "4 4 1 1 true 0", "4 4 1 1 true 1")
	for _, p := range pairs[:8] {
		want = append(want, p+" true 0")
	}
	if !slices.Equal(got, want) {
		t.Errorf("visited %q, want %q", got, want)
	}
	if n := len(w.Feasible()); n != 9 {
		t.Errorf("%d feasible, want 9", n)
	}
	best, _ := w.Best()
	if thr, _ := best.Figures.Get("output_throughput_tok_s"); best.State != kv(4, 4, 1, 1, 0, 1) || best.Score != -250 || thr != 303.14331330207966 {
		t.Errorf("best %+v, throughput %v", best, thr)
	}
	if worst, ok := w.BestInfeasible(); !ok || worst.State != kv(2, 1, 2, 2, 0, 1) || worst.Penalty != 0.6000000000000001 {
		t.Errorf("best infeasible %+v", worst)
	}
}

// Spec sweeps-and-schema 4.3: pairs that use the most GPUs, not pairs that are full.
func TestWorkerStepTakesPairsOfTheLargestUse(t *testing.T) {
	for _, c := range []struct {
		ptp, dtp, gpus int
		want           [][2]int
	}{
		{2, 4, 9, [][2]int{{2, 1}}},
		{2, 1, 4, [][2]int{{1, 2}}},
		{4, 2, 9, [][2]int{{1, 2}}},
		{2, 2, 7, [][2]int{{1, 2}, {2, 1}}},
	} {
		p := Space{TotalGPUs: c.gpus}
		var got [][2]int
		for _, s := range p.workers(State{PrefillTP: c.ptp, DecodeTP: c.dtp}) {
			got = append(got, [2]int{s.PrefillWorkers, s.DecodeWorkers})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("tp (%d,%d) on %d GPUs: %v, want %v", c.ptp, c.dtp, c.gpus, got, c.want)
		}
	}
}

func TestAFailedStateIsARowAndNeverChosen(t *testing.T) {
	broken := errors.New("no data")
	run := func(ctx context.Context, states []State) []Result {
		out := byFormula(ctx, states)
		for i, s := range states {
			if s.PrefillTP == 1 && s.DecodeTP == 1 {
				out[i] = Result{Err: broken}
			}
		}
		return out
	}
	w := optimize(t, disagg([]RouterState{RoundRobin}), Goal{}, run)
	if !errors.Is(w.Rows[0].Err, broken) {
		t.Errorf("first row %+v", w.Rows[0])
	}
	if best, ok := w.Best(); !ok || best.State.PrefillTP == 1 && best.State.DecodeTP == 1 {
		t.Errorf("best %+v", best)
	}
}

func TestAggregatedKVRouterNeedsTwoWorkers(t *testing.T) {
	space := Space{Aggregated: true, TotalGPUs: 1, DecodeTP: []int{1}, Routers: KVStates([]float64{1}, []float64{1})}
	if _, err := Optimize(context.Background(), space, Goal{}, byFormula); err == nil {
		t.Error("one GPU and kv_router alone have a state")
	}
	space.TotalGPUs, space.DecodeTP = 4, []int{1, 2, 4}
	for _, r := range optimize(t, space, Goal{}, byFormula).Rows {
		if r.State.DecodeWorkers < 2 {
			t.Errorf("visited %+v", r.State)
		}
	}
}
