package search

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
	Rungs []Rung
	Share float64 // of the requests of the grid, at most
}

// Planned is the number of requests that a plan simulates at most.
func (p Plan) Planned() int64 {
	sum := int64(0)
	for _, r := range p.Rungs {
		sum += int64(r.Candidates) * int64(r.Requests)
	}
	return sum
}

// prefixParts are the prefixes of the rungs before the last, as parts of the load.
var prefixParts = [...]int{16, 4}

// fewCandidates is the length of a list that is not worth halving.
const fewCandidates = 32

// NewPlan makes a plan for candidates that would run requests each, of which at most
// share (0..1) of the grid's requests are simulated: a sixteenth of the load for
// all, a quarter for the better ones, the whole for the best, as many of them as the
// share allows. floor is the least prefix that says anything about a candidate, as
// twice the requests in flight; a prefix is never raised above an eighth and a
// quarter of the load for it. Lists of up to 32 candidates, and loads of fewer
// than sixteen requests, run whole: Share is 1 then.
func NewPlan(candidates, requests, floor int, share float64) Plan {
	whole := Plan{Rungs: []Rung{{candidates, requests}}, Share: 1}
	if candidates <= fewCandidates || requests < prefixParts[0] || !(share > 0 && share < 1) {
		return whole
	}
	var prefix []int
	for _, part := range prefixParts {
		least := (requests + part - 1) / part
		prefix = append(prefix, max(least, min(floor, requests/8)))
	}
	prefix = append(prefix, requests)
	budget := share * float64(candidates) * float64(requests)
	plan := func(keep float64) Plan {
		p, n := Plan{Share: share}, float64(candidates)
		for _, r := range prefix {
			p.Rungs = append(p.Rungs, Rung{max(int(n), 1), r})
			n *= keep
		}
		return p
	}
	if float64(plan(0).Planned()) > budget {
		return whole
	}
	low, high := 0.0, 1.0 // the share kept on every rung: low fits, high does not
	for range 50 {
		if mid := (low + high) / 2; float64(plan(mid).Planned()) <= budget {
			low = mid
		} else {
			high = mid
		}
	}
	return plan(low)
}

// Standing is how good a candidate looks.
type Standing struct {
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

// compareStanding orders best first: class, then score or penalty, GPUs and
// configuration.
func compareStanding(a, b *Standing) int {
	if a.Class != b.Class {
		return cmp.Compare(a.Class, b.Class)
	}
	order := cmp.Compare(a.Penalty, b.Penalty)
	if len(a.Objectives) > 0 && len(b.Objectives) > 0 {
		order = cmp.Or(order, cmp.Compare(b.Objectives[0], a.Objectives[0]))
	}
	return cmp.Or(order, cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Config, b.Config))
}

// Trial is one run that Halve asks for.
type Trial struct {
	Candidate int
	Requests  int     // prefix of the load; 0: the whole
	Beat      float64 // the run may stop once it cannot score this much; -Inf: never
}

// Judged is what a trial came to.
type Judged struct {
	Standing
	Simulated int64 // requests that ended
}

// Last is the last that was seen of a candidate.
type Last struct {
	Rung     int // the last it ran on
	Rank     int // among those of the rung, from 0
	Standing Standing
	Before   Standing // on the rung before, zero on the first
}

// Halved is what Halve came to.
type Halved struct {
	Plan      Plan
	Last      []Last // [candidate]
	Final     []int  // candidates of the last rung, best first
	Simulated int64  // requests
}

// batch is how many trials are asked for at once; between batches the score to beat
// rises. It is a constant so that the outcome does not depend on the machine.
const batch = 16

// Halve runs the plan. judge runs trials, in any order, and returns one answer for
// each, in theirs. The error is ctx's.
func Halve(ctx context.Context, plan Plan, judge func(context.Context, []Trial) []Judged) (*Halved, error) {
	out := &Halved{Plan: plan, Last: make([]Last, plan.Rungs[0].Candidates)}
	alive := make([]int, plan.Rungs[0].Candidates)
	for i := range alive {
		alive[i] = i
	}
	for k, rung := range plan.Rungs {
		keep := 1
		if k+1 < len(plan.Rungs) {
			keep = plan.Rungs[k+1].Candidates
		}
		alive = alive[:min(rung.Candidates, len(alive))]
		prefix := rung.Requests
		if k+1 == len(plan.Rungs) {
			prefix = 0
		}
		if err := out.climb(ctx, k, alive, prefix, keep, judge); err != nil {
			return out, err
		}
		slices.SortFunc(alive, func(i, j int) int {
			return cmp.Or(compareStanding(&out.Last[i].Standing, &out.Last[j].Standing), cmp.Compare(i, j))
		})
		for rank, c := range alive {
			out.Last[c].Rank = rank
		}
		alive = dropFailed(alive, out.Last)
	}
	out.Final = alive
	return out, nil
}

// dropFailed cuts the tail of candidates that gave no figures or were stopped: a
// longer run would not help them.
func dropFailed(alive []int, last []Last) []int {
	n := slices.IndexFunc(alive, func(c int) bool { return last[c].Standing.Class > Beyond })
	if n < 0 {
		return alive
	}
	return alive[:n]
}

// climb runs one rung in batches; a candidate that cannot be among the keep best any
// more may stop.
func (h *Halved) climb(ctx context.Context, k int, alive []int, prefix, keep int, judge func(context.Context, []Trial) []Judged) error {
	var scores []float64 // of candidates within their bounds
	for from := 0; from < len(alive); from += batch {
		part := alive[from:min(from+batch, len(alive))]
		beat := math.Inf(-1)
		if len(scores) >= keep {
			slices.Sort(scores)
			beat = scores[len(scores)-keep]
		}
		trials := make([]Trial, len(part))
		for i, c := range part {
			trials[i] = Trial{c, prefix, beat}
		}
		judged := judge(ctx, trials)
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(judged) != len(trials) {
			panic(fmt.Sprintf("search: %d answers for %d trials", len(judged), len(trials)))
		}
		for i, c := range part {
			at := &h.Last[c]
			at.Before, at.Rung, at.Standing = at.Standing, k, judged[i].Standing
			h.Simulated += judged[i].Simulated
			if judged[i].Class == Within {
				scores = append(scores, judged[i].Objectives[0])
			}
		}
	}
	return nil
}
