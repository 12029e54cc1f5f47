package recommend

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/results/compare"
)

// Answer is what a search came to.
type Answer struct {
	Top []*Candidate // recommended, best first; empty if nothing meets the SLA

	search *Search
	ranked []*Candidate // feasible, best first
	front  []*Candidate
}

// answer ranks the feasible candidates. With target pareto the front is the answer.
func (s *Search) answer() *Answer {
	a := &Answer{search: s}
	var points []Ranked
	var on []*Candidate // [points]
	for _, c := range s.candidates {
		if !c.evaluated || c.Status != statusFeasible {
			continue
		}
		a.ranked = append(a.ranked, c)
		if o, err := ByPareto.Objectives(c.metrics); err == nil {
			on = append(on, c)
			points = append(points, Ranked{Objectives: o, GPUs: c.config.GPUs, Config: string(c.config.Config)})
		}
	}
	for _, i := range Front(points) {
		on[i].pareto = true
		a.front = append(a.front, on[i])
	}
	slices.SortFunc(a.ranked, func(a, b *Candidate) int {
		return compare.Rank(a.rankKey(), b.rankKey())
	})
	switch {
	case !s.metSLA(): // an answer would be another SLA's
	case s.target == ByPareto:
		a.Top = a.front
	default:
		a.Top = a.ranked[:min(s.opt.TopN, len(a.ranked))]
	}
	for i, c := range a.Top {
		c.top = true
		c.Path = s.opt.ConfigPath(i)
	}
	return a
}

// metSLA reports whether some candidate meets the SLA: with a goodput target, for
// some request; else with its means. Without an SLA it is met.
func (s *Search) metSLA() bool {
	if !s.doc.SLA.Set() {
		return true
	}
	return slices.ContainsFunc(s.candidates, func(c *Candidate) bool {
		if !c.evaluated || c.metrics == nil || c.Status != statusFeasible {
			return false
		}
		return c.penalty == 0 || s.target.Goodput() && c.metrics["goodput_completed_requests"] > 0
	})
}

// Target is what the search maximised.
func (a *Answer) Target() Target { return a.search.target }

// Missed says by how much the first recommendation misses the SLA; "" if it meets it,
// or if the target counts the requests that do.
func (a *Answer) Missed() string {
	if len(a.Top) == 0 || a.Top[0].penalty == 0 || a.search.target.Goodput() {
		return ""
	}
	return a.Top[0].missText()
}

// counts are the numbers of candidates by what became of them.
func (s *Search) counts() map[string]int {
	n := map[string]int{"evaluated": len(s.candidates) + s.folded, statusFeasible: 0, statusInfeasible: 0, statusUnsupported: 0,
		statusTimedOut: 0, statusFailed: 0, "cache_hits": s.folded}
	if s.halving != nil {
		n[statusEliminated] = 0
	}
	for _, c := range s.candidates {
		n[c.Status]++
	}
	return n
}

// Effort says in one sentence how many candidates were looked at, what became of them
// and how much was simulated.
func (a *Answer) Effort() string {
	s := a.search
	n := s.counts()
	text := fmt.Sprintf("%d evaluated: %d feasible, %d infeasible, %d unsupported, %d failed, %d timed out; %d folded",
		n["evaluated"], n[statusFeasible], n[statusInfeasible], n[statusUnsupported], n[statusFailed], n[statusTimedOut], n["cache_hits"])
	if s.halving == nil {
		return text
	}
	text += fmt.Sprintf("; %d eliminated; %d requests simulated, %.1f%% of the grid's %d", n[statusEliminated], s.simulated,
		100*float64(s.simulated)/float64(max(s.wholeGrid, 1)), s.wholeGrid)
	if s.halving.Settled {
		text += "; no single decision improves the answer"
	}
	return text
}

// nearestShown is how many candidates are named when nothing meets the SLA.
const nearestShown = 3

// Err is nil if there is an answer, and else says why there is none: nothing ran, or
// nothing meets the SLA, which is never relaxed.
func (a *Answer) Err() error {
	s := a.search
	if s.metSLA() && len(a.ranked) > 0 {
		return nil
	}
	near := slices.DeleteFunc(slices.Clone(s.candidates), func(c *Candidate) bool { return c.metrics == nil || !c.evaluated })
	if len(near) == 0 {
		return s.nothingRan()
	}
	slices.SortStableFunc(near, compareNearest)
	text := "no candidate meets the SLA; the nearest are"
	if !s.doc.SLA.Set() {
		text = "no feasible candidate; the nearest are"
	}
	return errors.New(text + nearestText(near))
}

// nothingRan names the first reasons for which no candidate ran to its end.
func (s *Search) nothingRan() error {
	var list []string
	for _, c := range s.candidates {
		first, _, _ := strings.Cut(c.Reason, "\n")
		if r := c.category + ": " + first; !slices.Contains(list, r) && len(list) < nearestShown {
			list = append(list, r)
		}
	}
	return fmt.Errorf("no feasible candidate: none of %d ran to an end (%s)", len(s.candidates), strings.Join(list, "; "))
}

// nearestText lists the nearest candidates; those with the same figures on as many
// GPUs are named once.
func nearestText(near []*Candidate) string {
	var lines []string
	lineOf := map[string]int{} // by what is said of the figures
	counts := make([]int, nearestShown)
	for _, c := range near {
		says := fmt.Sprintf("on %d GPUs: %s", c.config.GPUs, c.missText())
		if at, ok := lineOf[says]; ok {
			counts[at]++
		} else if len(lines) < nearestShown {
			lineOf[says] = len(lines)
			lines = append(lines, fmt.Sprintf("%s %s (%s", c.ID, says, knobText(c.config.Knobs)))
		}
	}
	text := ""
	for i, line := range lines {
		text += "\n  " + line
		if counts[i] > 0 {
			text += fmt.Sprintf("; and %d alike", counts[i])
		}
		text += ")"
	}
	return text
}

// knobText is decisions for people: the last part of each path, and the role.
func knobText(knobs []byte) string {
	var values map[string]json.RawMessage
	if json.Unmarshal(knobs, &values) != nil {
		return ""
	}
	var parts []string
	for _, path := range slices.Sorted(maps.Keys(values)) {
		name := path[strings.LastIndexByte(path, '.')+1:]
		for _, role := range [...]string{"prefill", "decode"} {
			if strings.Contains(path, ".workers."+role+".") {
				name = role + " " + name
			}
		}
		parts = append(parts, name+" "+strings.Trim(string(values[path]), `"`))
	}
	return strings.Join(parts, ", ")
}
