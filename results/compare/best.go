package compare

import (
	"fmt"
	"math"
)

// Best is the best point under one objective, among those that meet the SLA.
type Best struct {
	Objective, Figure string
	Case              int // in Analysis.Cases
}

// BestPer lists the best points of a load, one per objective; ties go to the better
// one in the order of verdicts. It is empty if no point meets the SLA.
func (a *Analysis) BestPer(l *Load) (out []Best) {
	if l.Verdict.Winner == nil {
		return nil
	}
	pick := func(name string, of func(*Case) float64, text func(*Case) string, higher bool) {
		best := -1
		for _, i := range l.Ranked {
			c := &a.Cases[i]
			v := of(c)
			if !c.Meets || math.IsNaN(v) {
				continue
			}
			if best < 0 || higher && v > of(&a.Cases[best]) || !higher && v < of(&a.Cases[best]) {
				best = i
			}
		}
		if best >= 0 {
			out = append(out, Best{name, text(&a.Cases[best]), best})
		}
	}
	mean := func(of func(*Case) *Estimate) func(*Case) float64 {
		return func(c *Case) float64 {
			if e := of(c); e.OK() {
				return e.Mean
			}
			return math.NaN()
		}
	}
	show := func(of func(*Case) *Estimate, f func(float64) string, unit string) func(*Case) string {
		return func(c *Case) string { return of(c).Show(f) + unit }
	}
	cost, perGPU := func(c *Case) *Estimate { return &c.USDPerMillion }, func(c *Case) *Estimate { return &c.TokensPerGPU }
	ttft, itl := func(c *Case) *Estimate { return &c.TTFTMs }, func(c *Case) *Estimate { return &c.ITLMs }
	tokens, user := func(c *Case) *Estimate { return &c.Throughput }, func(c *Case) *Estimate { return &c.TokensPerUser }
	pick("lowest cost", mean(cost), show(cost, Dollars, "/Mtok"), false)
	pick("most tokens per GPU", mean(perGPU), show(perGPU, Number, " tok/s/GPU"), true)
	pick("fewest GPUs", func(c *Case) float64 { return c.GPUs }, (*Case).GPUText, false)
	pick("lowest TTFT p95", mean(ttft), show(ttft, Millis, ""), false)
	pick("lowest mean ITL of a request p95", mean(itl), show(itl, Millis, ""), false)
	pick("fastest for a user", mean(user), show(user, Number, " tok/s"), true)
	pick("most throughput", mean(tokens), show(tokens, Number, " tok/s"), true)
	return out
}

// KnobNote says how the shares of Load.Knobs are to be read.
func (l *Load) KnobNote() string {
	if len(l.Knobs) == 0 {
		return "Every point has the same objective, or only one ran: no knob can be told to matter."
	}
	how := "exact: the grid is full"
	if !l.Exact {
		how = "approximate: the grid has holes"
	}
	k := &l.Knobs[0]
	return fmt.Sprintf("%s explains %s of the variance of the objective by itself (%s).", k.Axis.Name, Percent(k.Share), how)
}

// PhaseMs splits the mean latency of a request: waiting for the first admission, from
// there to the first token (prefill, and the transfer of a disaggregated run), and
// decoding; ms, NaN where a column is missing.
func (a *Analysis) PhaseMs(c *Case) (queue, prefill, decode float64) {
	mean := func(name string) float64 {
		if e := a.s.Over(c.Point, name); e.OK() {
			return e.Mean
		}
		return math.NaN()
	}
	queue = mean("mean_queue_ms")
	ttft := mean("mean_ttft_ms")
	return queue, max(ttft-queue, 0), max(mean("mean_e2e_latency_ms")-ttft, 0)
}

// Quantiles are the shares at which LatencyMs is known.
var Quantiles = [...]float64{0, 0.5, 0.75, 0.9, 0.95, 0.99, 1}

// LatencyMs is a latency (ttft, tpot, itl or e2e_latency) at Quantiles, means over the
// seeds; nil where the columns are missing.
func (a *Analysis) LatencyMs(c *Case, which string) []float64 {
	var out []float64
	for _, q := range [...]string{"min", "median", "p75", "p90", "p95", "p99", "max"} {
		e := a.s.Over(c.Point, q+"_"+which+"_ms")
		if !e.OK() {
			return nil
		}
		out = append(out, e.Mean)
	}
	return out
}
