package recommend

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/dynosweep/dynosweep/sim/rng"
)

// landscape is a made-up search space with known scores.
type landscape struct {
	decisions [][]byte
	score     []float64
}

// serving is a space like those of deployments: GPUs are split into replicas and tensor
// parallelism, engines differ by a factor, batch sizes saturate, and a router gains with
// prefix reuse.
func serving(seed uint64) *landscape {
	l := &landscape{}
	s := rng.Stream(seed, "landscape")
	engines := map[string]float64{"vllm": 1, "sglang": 0.9 + 0.2*s.Float64(), "trtllm": 0.8 + 0.4*s.Float64()}
	bestTP, bestSeqs, credit := 1+3*s.Float64(), 5+3*s.Float64(), s.Float64()
	for _, engine := range []string{"vllm", "sglang", "trtllm"} {
		for _, tp := range []int{1, 2, 4, 8} {
			for _, replicas := range []int{1, 2, 4, 8} {
				for _, seqs := range []int{16, 32, 64, 128, 256, 512} {
					for _, router := range []string{"round_robin", "kv_router"} {
						for _, overlap := range []float64{0, 0.5, 1} {
							if router == "round_robin" && overlap > 0 {
								continue
							}
							text := fmt.Sprintf(`{"engine.backend":%q,"tensor":%d,"replicas":%d,"max_num_seqs":%d,"router":%q`, engine, tp, replicas, seqs, router)
							gain := 1.0
							if router == "kv_router" {
								text += fmt.Sprintf(`,"router.credit":%v`, overlap)
								gain = 1.15 - 0.2*math.Abs(overlap-credit)
							}
							l.decisions = append(l.decisions, []byte(text+"}"))
							l.score = append(l.score, engines[engine]*gain*
								math.Exp(-0.15*math.Pow(math.Log2(float64(tp))-bestTP+1, 2))*
								math.Exp(-0.05*math.Pow(math.Log2(float64(seqs))-bestSeqs, 2))*
								math.Pow(float64(replicas), -0.08))
						}
					}
				}
			}
		}
	}
	return l
}

// ratings answers for candidates.
func (l *landscape) ratings(_ context.Context, batch []int) []Rating {
	out := make([]Rating, len(batch))
	for i, c := range batch {
		out[i] = Rating{Ranked: Ranked{Objectives: []float64{l.score[c]}, GPUs: 1, Config: fmt.Sprintf("%06d", c)}}
	}
	return out
}

// reached is the number of runs until one is within 1 % of the best; the length and one
// if none is.
func (l *landscape) reached(order []int) int {
	best := slices.Max(l.score)
	for n, c := range order {
		if l.score[c] >= 0.99*best {
			return n + 1
		}
	}
	return len(order) + 1
}

func (l *landscape) search(t *testing.T, seed uint64, budget int) []int {
	t.Helper()
	b := &Bayes{Decisions: l.decisions, Budget: budget, Batch: 4, Seed: seed, Order: order}
	ran, err := b.Search(context.Background(), l.ratings)
	if err != nil {
		t.Fatal(err)
	}
	return ran
}

// Half of random search's evaluations reach within 1 % of the optimum, in the median over
// 20 seeds.
func TestBayesNeedsHalfOfRandomsRuns(t *testing.T) {
	t.Parallel()
	var random, bayes []int
	for seed := uint64(1); seed <= 20; seed++ {
		l := serving(seed)
		var all []int
		for _, c := range draw(seed, int64(len(l.decisions)), len(l.decisions)) {
			all = append(all, int(c))
		}
		random = append(random, l.reached(all))
		bayes = append(bayes, l.reached(l.search(t, seed, 40)))
	}
	slices.Sort(random)
	slices.Sort(bayes)
	t.Logf("runs to within 1 %%, medians of 20 seeds over %d candidates: random %d, bayesian %d", len(serving(1).decisions), random[10], bayes[10])
	if 2*bayes[10] > random[10] {
		t.Errorf("bayesian needs %d runs, random %d", bayes[10], random[10])
	}
}

// Every candidate runs at most once, the budget is kept, the same seed gives the same
// runs, and candidates that fail do not stop the search.
func TestBayesKeepsItsBudgetAndItsSeed(t *testing.T) {
	l := serving(3)
	a, b := l.search(t, 7, 40), l.search(t, 7, 40)
	if !slices.Equal(a, b) || len(a) != 40 {
		t.Errorf("%v and %v", a, b)
	}
	sorted := slices.Sorted(slices.Values(a))
	if len(slices.Compact(sorted)) != len(a) {
		t.Errorf("a candidate ran twice: %v", a)
	}
	if slices.Equal(a, l.search(t, 8, 40)) {
		t.Error("another seed runs the same candidates")
	}
	few := &Bayes{Decisions: l.decisions[:5], Budget: 100, Batch: 4, Seed: 1, Order: order}
	if ran, err := few.Search(context.Background(), l.ratings); err != nil || len(ran) != 5 {
		t.Errorf("%v, %v", ran, err)
	}
	failing := &Bayes{Decisions: l.decisions, Budget: 30, Batch: 4, Seed: 1, Order: order}
	ran, err := failing.Search(context.Background(), func(_ context.Context, batch []int) []Rating {
		return slices.Repeat([]Rating{{Class: Failed}}, len(batch))
	})
	if err != nil || len(ran) != 30 {
		t.Errorf("%v, %v", ran, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := failing.Search(ctx, l.ratings); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// The process goes through its values and doubts what is far from them.
func TestProcessInterpolates(t *testing.T) {
	var decisions [][]byte
	for i := range 11 {
		decisions = append(decisions, fmt.Appendf(nil, `{"x":%d}`, i))
	}
	s, err := newSpace(decisions)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{space: s, scale: []float64{0.4}, noise: 1e-4, seen: []int{0, 4}, value: []float64{-1, 1}}
	if _, ok := p.condition(); !ok {
		t.Fatal("singular")
	}
	// By hand: k(0,4) is the Matérn kernel at distance 0.4/0.4 = 1: (1+√5+5/3)e^-√5.
	if got, want := p.kernel(0, 4), (1+math.Sqrt(5)+5.0/3)*math.Exp(-math.Sqrt(5)); math.Abs(got-want) > 1e-12 {
		t.Errorf("kernel %v, want %v", got, want)
	}
	mean, near := p.predict(4, new(mat.VecDense))
	_, far := p.predict(10, new(mat.VecDense))
	if math.Abs(mean-1) > 0.01 || near > 0.05 || far < 0.9 {
		t.Errorf("mean %v, deviations %v at a value and %v far from all", mean, near, far)
	}
	if v := improvement(0, 1, 0); math.Abs(v-1/math.Sqrt(2*math.Pi)) > 1e-12 {
		t.Errorf("expected improvement %v", v)
	}
}
