package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/results"
)

func sortReasons(rs []Reason) {
	slices.SortStableFunc(rs, func(a, b Reason) int {
		if a.Status != b.Status { // failures first: they ask for something to be done
			return strings.Compare(rankOf(a.Status), rankOf(b.Status))
		}
		return len(b.Points) - len(a.Points)
	})
}

func rankOf(s results.Status) string {
	if s == results.Failed {
		return "0"
	}
	return "1" + string(s)
}

// front marks the Pareto front of tokens per user and tokens per GPU, both larger
// better, by the means, among the points that meet the SLA, or among all if none does.
// Points of equal figures stand on it together.
func (a *Analysis) front(l *Load) {
	order := make([]int, 0, len(l.Cases))
	for _, i := range l.Cases {
		if c := &a.Cases[i]; c.TokensPerUser.OK() && c.TokensPerGPU.OK() && (c.Meets || l.Verdict.Winner == nil) {
			order = append(order, i)
		}
	}
	x := func(i int) float64 { return a.Cases[i].TokensPerUser.Mean }
	y := func(i int) float64 { return a.Cases[i].TokensPerGPU.Mean }
	slices.SortStableFunc(order, func(i, j int) int {
		if c := cmpFloat(x(j), x(i)); c != 0 {
			return c
		}
		return cmpFloat(y(j), y(i))
	})
	best, at := math.Inf(-1), math.NaN()
	for _, i := range order {
		if y(i) > best || y(i) == best && x(i) == at {
			best, at = y(i), x(i)
			a.Cases[i].Front = true
			l.Front = append(l.Front, i)
		}
	}
	slices.Reverse(l.Front)
	near := 0
	for _, i := range order {
		c := &a.Cases[i]
		within := false
		if !slices.Contains(l.Front, i) && c.TokensPerGPU.Interval() {
			for _, k := range l.Front {
				f := &a.Cases[k]
				if f.TokensPerUser.Low <= c.TokensPerUser.High && c.TokensPerGPU.High >= f.TokensPerGPU.Low {
					within = true
				}
			}
		}
		if within {
			c.NearFront = true
			near++
		}
	}
	l.Verdict.FrontNote = fmt.Sprintf("Pareto front of tokens per user and tokens per GPU: %s of %d", Count(len(l.Front), "point"), len(l.Cases))
	if n := len(l.Cases) - len(order); n > 0 && l.SLA.Set() && l.Verdict.Winner != nil {
		l.Verdict.FrontNote = fmt.Sprintf("Pareto front of tokens per user and tokens per GPU within the SLA: %s of %d; %d outside it", Count(len(l.Front), "point"), len(order), n)
	}
	if near > 0 {
		l.Verdict.FrontNote += fmt.Sprintf("; %d more within the noise of it", near)
	}
	if n := a.Failed + a.Skipped; n > 0 {
		l.Verdict.FrontNote += fmt.Sprintf("; %d failed and %d skipped are not shown", a.Failed, a.Skipped)
	}
	l.Verdict.FrontNote += "."
	if l.Verdict.Winner != nil {
		l.Verdict.FrontNote += a.offFront(l)
	}
}

// offFront says why the choice does not stand on the front, "" if it does.
func (a *Analysis) offFront(l *Load) string {
	w := l.Verdict.Winner
	if !w.TokensPerUser.OK() || !w.TokensPerGPU.OK() {
		return ""
	}
	for _, i := range l.Front {
		f := &a.Cases[i]
		if f == w {
			return ""
		}
		if f.TokensPerUser.Mean < w.TokensPerUser.Mean || f.TokensPerGPU.Mean < w.TokensPerGPU.Mean {
			continue
		}
		why := "at an equal objective it has fewer GPUs"
		switch {
		case w.objectiveMean != f.objectiveMean:
			why = fmt.Sprintf("it is better in %s (%s against %s)", a.ObjectiveName(), a.ObjectiveText(w.objectiveMean), a.ObjectiveText(f.objectiveMean))
		case w.GPUs == f.GPUs:
			why = "at an equal objective and as many GPUs the first by id is taken"
		}
		return fmt.Sprintf(" The choice is not on the front: %s gives as many tokens per user and per GPU or more. It is chosen because %s.", f.Label, why)
	}
	return ""
}

// FrontShown is at most n points of the front by tokens per user ascending: the
// best in the order of verdicts.
func (a *Analysis) FrontShown(l *Load, n int) []int {
	if len(l.Front) <= n {
		return l.Front
	}
	order := slices.Clone(l.Front)
	slices.SortStableFunc(order, a.order)
	order = order[:n]
	slices.SortFunc(order, func(i, j int) int { return slices.Index(l.Front, i) - slices.Index(l.Front, j) })
	return order
}
