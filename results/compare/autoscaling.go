package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/results"
)

// autoscaling says under every load whether a Planner pays, and, where start-up times
// vary, from which one on it does not.
func (a *Analysis) autoscaling() {
	pays := map[int]map[float64]scalingVerdict{} // by traffic, by start-up time in seconds
	for i := range a.Loads {
		l := &a.Loads[i]
		verdict := a.scalingPays(l)
		if s, ok := l.startupOnly(); ok && verdict != unknownPay {
			if pays[l.traffic] == nil {
				pays[l.traffic] = map[float64]scalingVerdict{}
			}
			pays[l.traffic][s] = verdict
		}
	}
	for i := range a.Loads {
		l := &a.Loads[i]
		if text := stopsPaying(pays[l.traffic]); text != "" && l.Verdict.Autoscaling != "" {
			l.Verdict.Autoscaling += " " + text
		}
	}
}

// scalingVerdict is what a comparison of a Planner with a fixed fleet came to.
type scalingVerdict int

const (
	unknownPay scalingVerdict = iota // nothing to compare
	doesPay
	doesNotPay
	withinNoise
)

// startupOnly is the start-up time of a load, in seconds, if nothing else of its environment varies.
func (l *Load) startupOnly() (float64, bool) {
	if len(l.environment) != 1 || l.environment[0].axis.Name != startupAxis {
		return 0, false
	}
	v, err := strconv.ParseFloat(l.environment[0].value, 64)
	return v, err == nil
}

// scalingPays writes the sentence about autoscaling under one load: the cheapest Planner
// point that meets the SLA against the cheapest fixed fleet that meets it, in money if
// there are prices, else in GPU-hours.
func (a *Analysis) scalingPays(l *Load) scalingVerdict {
	scaled, fixed, planners, fleets := a.cheapest(l)
	if planners == 0 {
		return unknownPay
	}
	text := &l.Verdict.Autoscaling
	switch {
	case fleets == 0:
		*text = "Whether autoscaling pays is not known: the sweep has no fleet of a fixed size to compare with."
		return unknownPay
	case scaled == nil && fixed == nil:
		*text = "Whether autoscaling pays is not known: neither a Planner point nor a fixed fleet meets the SLA."
		return unknownPay
	case scaled == nil:
		*text = fmt.Sprintf("Autoscaling does not pay: no Planner point meets the SLA, and the fixed fleet %s does with %s.", fixed.Label, a.spent(fixed))
		return doesNotPay
	case fixed == nil:
		*text = fmt.Sprintf("Whether autoscaling pays is not known: the Planner point %s meets the SLA with %s, and no fixed fleet of the sweep does; try a larger one.", scaled.Label, a.spent(scaled))
		return unknownPay
	}
	d := Compare(a.bill(fixed), a.bill(scaled))
	verdict, says := doesPay, "pays"
	switch {
	case d.Noise() || d.Method == Equal || d.Abs.Mean == 0:
		verdict, says = withinNoise, "makes no difference beyond the noise"
	case d.Abs.Mean > 0:
		verdict, says = doesNotPay, "does not pay"
	}
	*text = fmt.Sprintf("Autoscaling %s", says)
	if verdict != withinNoise {
		*text += " (" + d.Mark()
		if d.Method == SingleRun {
			*text += ", one run, no interval"
		}
		*text += ")"
	}
	both := "the cheapest of each"
	if l.SLA.Set() {
		both += " that meets the SLA"
	}
	*text += fmt.Sprintf(": %s is the Planner point %s with %s and %s, and the fixed fleet %s with %s.", both, scaled.Label, a.spent(scaled),
		plural(a.s.Over(scaled.Point, results.ColScalingEvents).Mean, "scaling event"), fixed.Label, a.spent(fixed))
	return verdict
}

// cheapest finds the Planner point and the fixed fleet that meet the SLA for least, nil
// where none does, and counts both kinds.
func (a *Analysis) cheapest(l *Load) (scaled, fixed *Case, planners, fleets int) {
	for _, i := range l.Cases {
		c := &a.Cases[i]
		best := &fixed
		if c.Setup.Planner {
			best = &scaled
			planners++
		} else {
			fleets++
		}
		bill := EstimateOf(a.bill(c).Values)
		if c.Meets && bill.OK() && (*best == nil || bill.Mean < EstimateOf(a.bill(*best).Values).Mean) {
			*best = c
		}
	}
	return scaled, fixed, planners, fleets
}

// bill is what a run of a case cost: USD if every case has a price, else GPU-hours.
func (a *Analysis) bill(c *Case) Sample {
	if a.ByCost {
		return c.spentUSD
	}
	return a.s.Values(c.Point, results.ColGPUHours)
}

// spent says what a case cost and what came of it.
func (a *Analysis) spent(c *Case) string {
	parts := []string{Number(a.hours(c)) + " GPU-hours"}
	if a.ByCost {
		parts = append(parts, Dollars(EstimateOf(c.spentUSD.Values).Mean))
	}
	if c.Attainment.OK() {
		parts = append(parts, Percent(c.Attainment.Mean)+" of requests within the SLA")
	}
	return strings.Join(parts, ", ")
}

// stopsPaying says from which start-up time on autoscaling does not pay, "" if fewer than
// two were tried.
func stopsPaying(at map[float64]scalingVerdict) string {
	if len(at) < 2 {
		return ""
	}
	var times []float64
	for t := range at {
		times = append(times, t)
	}
	slices.Sort(times)
	last := -1 // the longest start-up time at which it pays
	for k, t := range times {
		if at[t] == doesPay {
			last = k
		}
	}
	switch {
	case last < 0:
		return fmt.Sprintf("It pays at none of the start-up times that could be compared (%s to %s s).", trim(times[0], 3), trim(times[len(times)-1], 3))
	case last == len(times)-1 && at[times[0]] == doesPay:
		return fmt.Sprintf("It pays up to the longest start-up time tried, %s s.", trim(times[last], 3))
	}
	for _, t := range times[:last+1] {
		if at[t] != doesPay {
			return fmt.Sprintf("It pays at some start-up times and not at shorter ones, so that no time from which on it stops can be named (tried %s to %s s).", trim(times[0], 3), trim(times[len(times)-1], 3))
		}
	}
	return fmt.Sprintf("It pays up to a start-up time of %s s, and no longer at %s s.", trim(times[last], 3), trim(times[last+1], 3))
}
