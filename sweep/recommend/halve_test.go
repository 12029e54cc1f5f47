package recommend

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/dynosweep/dynosweep/sim/rng"

	"github.com/dynosweep/dynosweep/results/compare"
)

// noisy makes scores whose prefix differs from the whole run's by at most e.
type noisy struct {
	score []float64 // of whole runs
	e     float64
	seed  uint64
}

func (n *noisy) on(c, requests int) float64 {
	if requests == 0 {
		return n.score[c]
	}
	s := rng.Stream(n.seed, fmt.Sprint(c, " ", requests))
	return n.score[c] * (1 + n.e*(2*s.Float64()-1))
}

// evaluate answers trials; stop says whether one that cannot reach the score to beat is
// stopped halfway.
func (n *noisy) evaluate(whole int64, stop bool) func(context.Context, []Trial) []Evaluation {
	return func(_ context.Context, trials []Trial) []Evaluation {
		out := make([]Evaluation, len(trials))
		for i, t := range trials {
			score := n.on(t.Candidate, t.Requests)
			cost := int64(t.Requests)
			if cost == 0 {
				cost = whole
			}
			out[i] = Evaluation{Rating: Rating{Ranked: Ranked{Objectives: []float64{score}, GPUs: 1, Config: fmt.Sprintf("%06d", t.Candidate)}}, Simulated: cost}
			if stop && score < t.ScoreToBeat {
				out[i] = Evaluation{Rating: Rating{Class: Stopped}, Simulated: cost / 2}
			}
		}
		return out
	}
}

func TestHalvingKeepsItsPromise(t *testing.T) {
	const candidates, requests = 500, 2000
	saved := int64(0)
	for seed := uint64(1); seed <= 50; seed++ {
		n := &noisy{e: 0.04, seed: seed}
		s := rng.Stream(seed, "scores")
		for range candidates {
			n.score = append(n.score, 100+100*s.Float64())
		}
		plan := NewPlan(candidates, requests, 16, 0.4)
		full, err := Halve(context.Background(), plan, Field{Order: order}, n.evaluate(requests, false))
		if err != nil {
			t.Fatal(err)
		}
		if most := int64(0.4 * candidates * requests); full.Simulated > most || full.Simulated != plan.Planned() {
			t.Errorf("seed %d: simulated %d, planned %d, allowed %d", seed, full.Simulated, plan.Planned(), most)
		}
		best := slices.Max(n.score)
		won := n.score[full.Final[0]]
		if factor := (1 - n.e) / (1 + n.e); won < best*factor*factor {
			t.Errorf("seed %d: %v of %v", seed, won, best)
		}
		early, err := Halve(context.Background(), plan, Field{Order: order}, n.evaluate(requests, true))
		if err != nil {
			t.Fatal(err)
		}
		if early.Final[0] != full.Final[0] || early.Simulated > full.Simulated {
			t.Errorf("seed %d: stopping early finds %d with %d requests, else %d with %d", seed, early.Final[0], early.Simulated, full.Final[0], full.Simulated)
		}
		saved += full.Simulated - early.Simulated
	}
	if saved == 0 {
		t.Error("stopping early saves nothing")
	}
}

func TestPlansFitTheirShare(t *testing.T) {
	for _, candidates := range []int{33, 100, 500, 12345} {
		for _, requests := range []int{16, 17, 100, 23608} {
			for _, floor := range []int{0, 8, 1 << 20} {
				p := NewPlan(candidates, requests, floor, 0.2)
				last := p.Rungs[len(p.Rungs)-1]
				if p.Share < 1 && (float64(p.Planned()) > 0.2*float64(candidates)*float64(requests) || p.Budget < p.Planned()) || last.Requests != requests || p.Rungs[0].Candidates != candidates {
					t.Errorf("%d candidates, %d requests, floor %d: %+v", candidates, requests, floor, p)
				}
			}
		}
	}
	if p := NewPlan(8, 1000, 0, 0.2); len(p.Rungs) != 1 {
		t.Errorf("a short list does not run whole: %+v", p)
	}
}

func TestHalvingDropsCandidatesWithoutFigures(t *testing.T) {
	plan := NewPlan(64, 160, 0, 0.2)
	out, err := Halve(context.Background(), plan, Field{Order: order}, func(_ context.Context, trials []Trial) []Evaluation {
		evaluations := make([]Evaluation, len(trials))
		for i := range trials {
			evaluations[i].Class = Failed
		}
		return evaluations
	})
	if err != nil || len(out.Final) != 0 {
		t.Errorf("final %v, %v", out.Final, err)
	}
}

// order is that of verdicts.
func order(a, b *Rating) int {
	merit := func(s *Rating) compare.Merit {
		return compare.Merit{Meets: s.Class == Within, Miss: s.Penalty, Score: s.Objectives[0], GPUs: float64(s.GPUs), Name: s.Config}
	}
	return compare.Rank(merit(a), merit(b))
}

func TestFront(t *testing.T) {
	all := []Ranked{
		{[]float64{3, 1}, 4, "a"}, {[]float64{2, 2}, 4, "b"}, {[]float64{1, 3}, 2, "c"},
		{[]float64{2, 1}, 1, "d"}, {[]float64{2, 2}, 2, "e"}, {[]float64{2, 2}, 2, "f"},
	}
	if got := Front(all); !slices.Equal(got, []int{0, 4, 5, 1, 2}) {
		t.Errorf("front %v", got)
	}
}

func TestTargetValues(t *testing.T) {
	f := figures{"output_throughput_tok_s": 100, "goodput_output_throughput_tok_s": 60, "gpu_hours": 0.5, "duration_ms": 3.6e6 / 4,
		"mean_output_token_throughput_per_user": 7, "mean_ttft_ms": 12, "num_ttft_samples": 3, UsedGPUs: 4, UsedGPUs + "x": 0}
	for target, want := range map[Target][]float64{ByThroughput: {100}, ByThroughputPerGPU: {50}, ByGoodputPerGPU: {30}, ByTTFT: {-12},
		ByPareto: {50, 7}, ByGPUs: {-4}} {
		if got, err := target.Objectives(f); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v, want %v", target, got, err, want)
		}
	}
	for _, target := range []Target{ByE2ELatency, ByCost} {
		if got, err := target.Objectives(f); err == nil {
			t.Errorf("%s of nothing: %v", target, got)
		}
	}
	f["gpu_hours"] = 0
	if got, err := ByThroughputPerGPU.Objectives(f); err != nil || got[0] != 0 {
		t.Errorf("without GPU-hours: %v %v", got, err)
	}
	f["output_throughput_tok_s"] = math.Inf(1)
	if _, err := ByThroughput.Objectives(f); err == nil {
		t.Error("an infinite figure counts")
	}
}

func TestSampleDrawsWithoutReplacementInTurns(t *testing.T) {
	branches := []Branch{{"aggregated", 1 << 40}, {"disaggregated", 5}}
	picks, err := Sample(branches, 42, 21, 4)
	if err != nil {
		t.Fatal(err)
	}
	seen, each := map[Pick]bool{}, [2]int{}
	for i, p := range picks {
		if seen[p] || p.Index < 0 || p.Index >= branches[p.Branch].Size {
			t.Errorf("pick %d is %+v", i, p)
		}
		if want := [...]int{0, 0, 0, 0, 1, 1, 1, 1}; i < len(want) && p.Branch != want[i] {
			t.Errorf("pick %d is of branch %d", i, p.Branch)
		}
		seen[p] = true
		each[p.Branch]++
	}
	if each != [2]int{11, 5} { // the remainder goes to the first; the second is exhausted
		t.Errorf("trials %v", each)
	}
	again, _ := Sample(branches, 42, 21, 4)
	other, _ := Sample(branches, 43, 21, 4)
	if !slices.Equal(picks, again) || slices.Equal(picks, other) {
		t.Error("the seed does not decide the draw")
	}
	if _, err := Sample(branches, 42, 1, 4); err == nil {
		t.Error("fewer trials than branches")
	}
}

// A prefix that says nothing, or the opposite: the local search finds the top of a
// hill all the same, and stays within the budget.
func TestLocalSearchClimbsWhatPrefixesHide(t *testing.T) {
	const side, requests = 25, 1600 // candidates are the points of a square
	score := func(c int) float64 {
		x, y := float64(c%side-20), float64(c/side-17)
		return 1000 - x*x - y*y
	}
	near := func(c int) []int {
		var out []int
		for i := range side * side {
			if i != c && (i%side == c%side || i/side == c/side) {
				out = append(out, i)
			}
		}
		return out
	}
	group := make([]int, side*side)
	evaluate := func(_ context.Context, trials []Trial) []Evaluation {
		out := make([]Evaluation, len(trials))
		for i, tr := range trials {
			s, cost := score(tr.Candidate), int64(requests)
			if tr.Requests > 0 {
				s, cost = -s, int64(tr.Requests)
			}
			out[i] = Evaluation{Rating{Ranked: Ranked{Objectives: []float64{s}, Config: fmt.Sprintf("%06d", tr.Candidate)}}, cost}
		}
		return out
	}
	plan := NewPlan(side*side, requests, 0, 0.24)
	out, err := Halve(context.Background(), plan, Field{group, near, order}, evaluate)
	if err != nil || score(out.Final[0]) != 1000 || !out.Settled && out.Simulated+requests <= plan.Budget || out.Simulated > plan.Budget {
		t.Errorf("best %v, settled %v, %d of %d requests, %v", score(out.Final[0]), out.Settled, out.Simulated, plan.Budget, err)
	}
}

func TestPlacesGoRoundTheGroups(t *testing.T) {
	h := &Halved{field: Field{Group: []int{0, 0, 0, 0, 0, 0, 1, 1, 2, 2}}}
	if got := h.choose([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 6); !slices.Equal(got, []int{0, 1, 2, 6, 7, 8}) {
		t.Errorf("kept %v", got)
	}
}
