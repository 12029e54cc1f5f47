package recommend

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Bayes searches candidates for the best with a budget of runs. It begins with a random
// design, then runs what promises the largest expected improvement under a Gaussian
// process over the decisions. The process sees ranks, not scores: what misses a bound or
// fails stands behind, and a score's scale does not matter.
type Bayes struct {
	Decisions [][]byte // [candidate], JSON object of path to value
	Budget    int      // runs at most
	Batch     int      // runs asked for at once, whatever the machine
	Seed      uint64
	Order     func(a, b *Rating) int // of ratings with figures, best first
}

const (
	fewestRandom = 8    // runs of the random design at least,
	randomPart   = 6    // and this part of the budget,
	mostRandom   = 24   // up to so many
	relearnAfter = 1.25 // growth of the runs after which length scales are chosen again
)

// Search runs candidates through evaluate, which returns one rating for each in their
// order, and returns those that ran, in the order of their runs. The error is ctx's.
func (b *Bayes) Search(ctx context.Context, evaluate func(context.Context, []int) []Rating) ([]int, error) {
	space, err := newSpace(b.Decisions)
	if err != nil {
		return nil, err
	}
	n, budget := len(b.Decisions), min(b.Budget, len(b.Decisions))
	p := &process{space: space, noise: noiseChoices[1], scale: slices.Repeat([]float64{1}, len(space.knobs))}
	ratings := make([]*Rating, n)
	run := func(batch []int) error {
		answers := evaluate(ctx, batch)
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(answers) != len(batch) {
			panic(fmt.Sprintf("recommend: %d answers for %d candidates", len(answers), len(batch)))
		}
		for i, c := range batch {
			ratings[c] = &answers[i]
		}
		p.seen = append(p.seen, batch...)
		return nil
	}
	var first []int
	for _, c := range draw(b.Seed, int64(n), min(budget, max(fewestRandom, min(budget/randomPart, mostRandom)))) {
		first = append(first, int(c))
	}
	if err := run(first); err != nil {
		return p.seen, err
	}
	learned := 0
	for len(p.seen) < budget {
		p.value = b.normalScores(p.seen, ratings)
		ok := false
		if float64(len(p.seen)) >= relearnAfter*float64(learned) {
			learned, ok = len(p.seen), p.learn()
		} else {
			_, ok = p.condition()
		}
		if err := run(b.next(p, ratings, min(b.Batch, budget-len(p.seen)), ok)); err != nil {
			return p.seen, err
		}
	}
	return p.seen, nil
}

// normalScores are the values of candidates by their rank: the quantiles of a normal
// distribution, the best highest. Equals get their mean rank.
func (b *Bayes) normalScores(seen []int, ratings []*Rating) []float64 {
	field := Field{Order: b.Order}
	order := make([]int, len(seen))
	for i := range order {
		order[i] = i
	}
	compare := func(i, j int) int { return field.order(ratings[seen[i]], ratings[seen[j]]) }
	slices.SortStableFunc(order, compare)
	out := make([]float64, len(seen))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && compare(order[from], order[to]) == 0 {
			to++
		}
		rank := float64(from+to) / 2 // of the middle, from 0 to len
		for _, i := range order[from:to] {
			out[i] = distuv.UnitNormal.Quantile(1 - rank/float64(len(seen)+1))
		}
		from = to
	}
	return out
}

// next chooses the candidates to run: the largest expected improvement first, discounted
// by its likeness to what the batch has already. Where the process could not be fitted
// it takes the first that have not run.
func (b *Bayes) next(p *process, ratings []*Rating, count int, fitted bool) []int {
	var open []int
	for c, r := range ratings {
		if r == nil {
			open = append(open, c)
		}
	}
	gain := make([]float64, len(open))
	if fitted {
		best, work := slices.Max(p.value), new(mat.VecDense)
		for i, c := range open {
			mean, sd := p.predict(c, work)
			gain[i] = improvement(mean, sd, best)
		}
	}
	var batch []int
	for len(batch) < count {
		at := 0
		for i := range gain {
			if gain[i] > gain[at] {
				at = i
			}
		}
		chosen := open[at]
		batch, gain[at] = append(batch, chosen), math.Inf(-1)
		for i, c := range open {
			if likeness := p.kernel(c, chosen); gain[i] > 0 {
				gain[i] *= 1 - likeness*likeness
			}
		}
	}
	return batch
}

// bayesPool is the most candidates that a bayesian search chooses among; of a larger
// space it takes so many at random, without replacement.
const bayesPool = 4096

// bayesBatches is the least number of batches after the random design of a bayesian
// search: a batch is smaller than optimizer.parallelism where the budget is small.
const bayesBatches = 12

// bayes runs max_trials of the live candidates, each whole, chosen by what those before
// came to. Candidates that it leaves out are no part of the answer.
func (s *Search) bayes(ctx context.Context, live []*Candidate) error {
	o := &s.doc.Optimizer
	b := &Bayes{Budget: o.MaxTrials, Batch: max(1, min(o.Parallelism, o.MaxTrials/bayesBatches)), Seed: o.Seed, Order: fieldOf(live).Order}
	batches := 0
	if s.target == ByPareto {
		b.Order = alternating(b.Order, &batches)
	}
	for _, c := range live {
		b.Decisions = append(b.Decisions, c.config.Knobs)
	}
	ended := 0
	_, err := b.Search(ctx, func(ctx context.Context, batch []int) []Rating {
		part := make([]*Candidate, len(batch))
		for i, c := range batch {
			part[i] = live[c]
		}
		out := make([]Rating, len(part))
		if s.runBatch(ctx, part) != nil {
			return out
		}
		for i, c := range part {
			out[i] = c.rating()
		}
		ended += len(part)
		batches++
		s.progress("%d of %d candidates evaluated, chosen among %d", ended, min(o.MaxTrials, len(live)), len(live))
		return out
	})
	s.candidates = slices.DeleteFunc(s.candidates, func(c *Candidate) bool { return c.Status == "" })
	return err
}

// alternating orders ratings with two objectives by a mean of their logarithms whose
// weights change from batch to batch, so that the runs spread along the front (after
// Knowles, ParEGO, 2006, with a weighted product for the Chebyshev norm).
func alternating(plain func(a, b *Rating) int, batches *int) func(a, b *Rating) int {
	weights := [...]float64{0.5, 1, 0, 0.75, 0.25}
	return func(a, b *Rating) int {
		if a.Class != Within || b.Class != Within {
			return plain(a, b)
		}
		w := weights[*batches%len(weights)]
		score := func(r *Rating) float64 {
			return w*math.Log(max(r.Objectives[0], 1e-300)) + (1-w)*math.Log(max(r.Objectives[1], 1e-300))
		}
		return cmp.Or(cmp.Compare(score(b), score(a)), plain(a, b))
	}
}
