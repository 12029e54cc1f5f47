package recommend

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// Rung is one step of a plan: so many candidates run so many requests each.
type Rung struct {
	Candidates int
	Requests   int // of the prefix; on the last rung the whole load
}

// Plan says what Halve simulates at most.
type Plan struct {
	Rungs  []Rung
	Share  float64 // of the requests of the grid, at most
	Budget int64   // the same in requests
}

// Planned is the number of requests of the rungs; the rest of the budget is for the
// local search.
func (p Plan) Planned() int64 {
	sum := int64(0)
	for _, r := range p.Rungs {
		sum += int64(r.Candidates) * int64(r.Requests)
	}
	return sum
}

// prefixParts are the prefixes of the rungs before the last, as parts of the load.
var prefixParts = [...]int{16, 4}

const (
	fewCandidates = 32   // a list so short is not worth halving
	rungsPart     = 0.55 // of the budget goes to the rungs
	finalsPart    = 0.2  // of the budget at least is left to them after the first
)

// NewPlan makes a plan for candidates that would run requests each, of which at most
// share (0..1) of the grid's requests are simulated; the better candidates of a rung
// are as many as the share allows. floor is the least prefix that says anything about
// a candidate, as twice the requests in flight; a prefix is never raised above an
// eighth and a quarter of the load for it. Lists of up to 32 candidates, and loads of
// fewer than sixteen requests, run whole: Share is 1 then.
func NewPlan(candidates, requests, floor int, share float64) Plan {
	grid := float64(candidates) * float64(requests)
	whole := Plan{Rungs: []Rung{{candidates, requests}}, Share: 1, Budget: int64(grid)}
	if candidates <= fewCandidates || requests < prefixParts[0] || !(share > 0 && share < 1) {
		return whole
	}
	var prefix []int
	for _, part := range prefixParts {
		least := (requests + part - 1) / part
		prefix = append(prefix, max(least, min(floor, requests/8)))
	}
	first := float64(prefix[0]) / float64(requests)
	most := min(max(rungsPart*share, first+finalsPart*share), share) * grid
	prefix = append(prefix, requests)
	plan := func(keep float64) Plan {
		p, n := Plan{Share: share, Budget: int64(share * grid)}, float64(candidates)
		for _, r := range prefix {
			p.Rungs = append(p.Rungs, Rung{max(int(n), 1), r})
			n *= keep
		}
		return p
	}
	if float64(plan(0).Planned()) > most {
		return whole
	}
	low, high := 0.0, 1.0 // the share kept on every rung: low fits, high does not
	for range 50 {
		if mid := (low + high) / 2; float64(plan(mid).Planned()) <= most {
			low = mid
		} else {
			high = mid
		}
	}
	return plan(low)
}

// Rating is how good a candidate looks.
type Rating struct {
	Class   Class
	Penalty float64 // how far beyond its bounds
	Ranked          // Objectives may be empty unless Class is Within
}

// Class orders candidates before their score does.
type Class uint8

const (
	Within  Class = iota // it ran, within every bound
	Beyond               // it ran and misses a bound
	Stopped              // it could no longer reach the score that was asked for
	Failed               // no figures
)

// Trial is one run that Halve asks for.
type Trial struct {
	Candidate   int
	Requests    int     // prefix of the load; 0: the whole
	ScoreToBeat float64 // the run may stop once it cannot score this much; -Inf: never
}

// Evaluation is what a trial came to.
type Evaluation struct {
	Rating
	Simulated int64 // requests that ended
}

// Field is what Halve knows of the candidates beside their runs.
type Field struct {
	Group []int                     // [candidate], as its size: prefixes compare well within a group; nil: one group
	Near  func(candidate int) []int // candidates that differ in one decision; nil: no local search
	Order func(a, b *Rating) int    // of standings with figures (Within, Beyond), best first
}

// Seen is what was seen of a candidate.
type Seen struct {
	Rung   int    // the last it ran on
	Rank   int    // among those of the rung, from 0
	First  Rating // on the first rung
	Before Rating // on the rung before the last it ran on
	Last   Rating
}

// Halved is what Halve came to.
type Halved struct {
	Plan      Plan
	Seen      []Seen // [candidate]
	Final     []int  // candidates that ran whole, best first
	Simulated int64  // requests
	Settled   bool   // every neighbour of the best ran whole, or was stopped

	field    Field
	evaluate func(context.Context, []Trial) []Evaluation
}

// batch is how many trials are asked for at once; between batches the score to beat
// rises. It is a constant so that the outcome does not depend on the machine.
const batch = 8

// Halve runs the plan. evaluate runs trials, in any order, and returns one answer for
// each, in theirs. The error is ctx's.
func Halve(ctx context.Context, plan Plan, field Field, evaluate func(context.Context, []Trial) []Evaluation) (*Halved, error) {
	n := plan.Rungs[0].Candidates
	h := &Halved{Plan: plan, Seen: make([]Seen, n), field: field, evaluate: evaluate}
	if h.field.Group == nil {
		h.field.Group = make([]int, n)
	}
	alive := make([]int, n)
	for i := range alive {
		alive[i] = i
	}
	for k, rung := range plan.Rungs {
		prefix, keep := rung.Requests, 1
		if k+1 == len(plan.Rungs) {
			prefix = 0
		} else {
			keep = plan.Rungs[k+1].Candidates
		}
		if err := h.climb(ctx, k, alive, prefix); err != nil {
			return h, err
		}
		alive = h.rank(alive)
		if prefix > 0 {
			alive = h.choose(alive, keep)
		}
	}
	h.Final = alive
	return h, h.descend(ctx)
}

// rank orders candidates that ran on one rung, best first, and returns those that
// have figures: a longer run would not help the others.
func (h *Halved) rank(ran []int) []int {
	slices.SortFunc(ran, h.better)
	good := 0
	for rank, c := range ran {
		h.Seen[c].Rank = rank
		if h.Seen[c].Last.Class <= Beyond {
			good = rank + 1
		}
	}
	return ran[:good]
}

// better orders candidates by what was seen last.
func (h *Halved) better(i, j int) int {
	return cmp.Or(h.field.order(&h.Seen[i].Last, &h.Seen[j].Last), cmp.Compare(i, j))
}

// order puts what has no figures last.
func (f *Field) order(a, b *Rating) int {
	if a.Class > Beyond || b.Class > Beyond {
		return cmp.Compare(a.Class, b.Class)
	}
	return f.Order(a, b)
}

// choose keeps candidates for the next rung: the best half of the places whatever
// their group, then the best of each group in turn. The order given is kept.
func (h *Halved) choose(ranked []int, keep int) []int {
	if len(ranked) <= keep {
		return ranked
	}
	kept := map[int]bool{}
	for _, c := range ranked[:(keep+1)/2] {
		kept[c] = true
	}
	var groups [][]int // members, best first; groups by their best
	slot := map[int]int{}
	for _, c := range ranked {
		g := h.field.Group[c]
		if _, ok := slot[g]; !ok {
			slot[g] = len(groups)
			groups = append(groups, nil)
		}
		groups[slot[g]] = append(groups[slot[g]], c)
	}
	for depth := 0; len(kept) < keep; depth++ {
		for _, members := range groups {
			if depth < len(members) && len(kept) < keep {
				kept[members[depth]] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(ranked), func(c int) bool { return !kept[c] })
}

// climb runs one rung in batches. On the last one a candidate that cannot become the
// best any more may stop.
func (h *Halved) climb(ctx context.Context, k int, alive []int, prefix int) error {
	beat := math.Inf(-1)
	for from := 0; from < len(alive); from += batch {
		part := alive[from:min(from+batch, len(alive))]
		best, err := h.run(ctx, k, part, prefix, beat)
		if err != nil {
			return err
		}
		if prefix == 0 {
			beat = max(beat, best)
		}
	}
	return nil
}

// run asks for one batch and returns the best score within bounds.
func (h *Halved) run(ctx context.Context, k int, part []int, prefix int, beat float64) (best float64, err error) {
	trials := make([]Trial, len(part))
	for i, c := range part {
		trials[i] = Trial{c, prefix, beat}
	}
	evaluations := h.evaluate(ctx, trials)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if len(evaluations) != len(trials) {
		panic(fmt.Sprintf("search: %d answers for %d trials", len(evaluations), len(trials)))
	}
	best = math.Inf(-1)
	for i, c := range part {
		at := &h.Seen[c]
		at.Before, at.Rung, at.Last = at.Last, k, evaluations[i].Rating
		if k == 0 {
			at.Before, at.First = Rating{}, evaluations[i].Rating
		}
		h.Simulated += evaluations[i].Simulated
		if evaluations[i].Class == Within {
			best = max(best, evaluations[i].Objectives[0])
		}
	}
	return best, nil
}

// descend runs the neighbours of the best candidates whole, those of the best first,
// while the budget lasts.
func (h *Halved) descend(ctx context.Context) error {
	last := len(h.Plan.Rungs) - 1
	if last == 0 || h.field.Near == nil {
		h.Settled = last == 0
		return nil
	}
	opened := map[int]bool{}
	for {
		i := slices.IndexFunc(h.Final, func(c int) bool { return !opened[c] })
		if i < 0 {
			return nil
		}
		open := h.Final[i]
		near := slices.DeleteFunc(slices.Clone(h.field.Near(open)), func(c int) bool { return h.Seen[c].Rung == last })
		slices.SortFunc(near, func(a, b int) int {
			return cmp.Or(h.field.order(&h.Seen[a].First, &h.Seen[b].First), cmp.Compare(a, b))
		})
		for len(near) > 0 {
			n := min(int((h.Plan.Budget-h.Simulated)/int64(h.Plan.Rungs[last].Requests)), batch, len(near))
			if n <= 0 {
				return nil
			}
			beat := math.Inf(-1)
			if s := &h.Seen[h.Final[0]].Last; s.Class == Within {
				beat = s.Objectives[0]
			}
			if _, err := h.run(ctx, last, near[:n], 0, beat); err != nil {
				return err
			}
			h.Final = h.rank(append(h.Final, near[:n]...))
			near = near[n:]
		}
		opened[open] = true
		h.Settled = opened[h.Final[0]]
	}
}
