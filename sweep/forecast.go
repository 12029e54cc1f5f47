package sweep

import (
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// BestPredictor ranks load predictors one step ahead on the windows of a trace and
// returns the index of the best, the first of equals (spec sweeps-and-schema 2.5).
func (in *Inputs) BestPredictor(t *scenario.Trace, intervalS int, candidates []planner.PredictorConfig) (int, string, error) {
	trace, err := in.Trace(t)
	if err != nil {
		return 0, "", &InputError{err}
	}
	windows, err := trafficWindows(trace, float64(intervalS)*1000)
	if err != nil {
		return 0, "", &InputError{err}
	}
	warmup := 0
	for i := range candidates {
		warmup = max(warmup, candidates[i].MinPoints())
	}
	best, least := 0, math.Inf(1)
	for i := range candidates {
		if loss := forecastLoss(candidates[i], windows, warmup); loss < least {
			best, least = i, loss
		}
	}
	if math.IsInf(least, 1) {
		return 0, fmt.Sprintf("no predictor can be ranked on %d windows of %d s: the first candidate is used", len(windows), intervalS), nil
	}
	return best, fmt.Sprintf("candidate %d of %d has the least loss (%.4g) on %d windows of %d s; it was chosen on the trace that the search evaluates",
		best+1, len(candidates), least, len(windows), intervalS), nil
}

// trafficWindow is one bucket of a trace: requests and their mean lengths.
type trafficWindow struct{ n, input, output float64 }

// trafficWindows cuts a trace into buckets of equal time from its first request.
func trafficWindows(t *trace.Trace, lengthMs float64) ([]trafficWindow, error) {
	src, err := t.NewSource(trace.Drive{BlockSize: max(t.BlockSize(), 1), Speedup: 1})
	if err != nil {
		return nil, err
	}
	var out []trafficWindow
	origin := math.NaN()
	for now := src.NextMs(); !math.IsInf(now, 1); now = src.NextMs() {
		src.BeginRelease(now, 0)
		for r := src.Next(now); r != nil; r = src.Next(now) {
			if math.IsNaN(origin) {
				origin = r.ArrivalMs
			}
			k := int((r.ArrivalMs - origin) / lengthMs)
			if k >= maxWindows {
				return nil, fmt.Errorf("the trace has more than %d windows of %v s", maxWindows, lengthMs/1000)
			}
			for len(out) <= k {
				out = append(out, trafficWindow{})
			}
			w := &out[k]
			w.n++
			w.input += float64(r.PromptTokens)
			w.output += float64(r.OutputTokens)
			src.Done(r.Handle, now, r.OutputTokens, workload.Completed)
			src.Quiescent(r.Ordinal, now)
		}
		src.Flush(now)
	}
	for i := range out {
		if w := &out[i]; w.n > 0 {
			w.input, w.output = w.input/w.n, w.output/w.n
		}
	}
	return out, nil
}

const maxWindows = 1 << 20

// forecastLoss is the mean loss of a predictor over the windows after the warm-up;
// +Inf if there is none, or if the predictor fails.
func forecastLoss(c planner.PredictorConfig, windows []trafficWindow, warmup int) float64 {
	var p [3]planner.Predictor // requests, input, output
	for i := range p {
		var err error
		if p[i], err = planner.NewPredictor(c); err != nil {
			return math.Inf(1)
		}
	}
	sum, count := 0.0, 0
	for k, w := range windows {
		if k >= warmup {
			n, i, o := max(p[0].Next(), 0), max(p[1].Next(), 0), max(p[2].Next(), 0)
			gap := func(a, b float64) float64 { return math.Abs(math.Log1p(a) - math.Log1p(b)) }
			loss := 0.4*gap(n*i, w.n*w.input) + 0.4*gap(n*o, w.n*w.output) + 0.1*gap(i, w.input) + 0.1*gap(o, w.output)
			if math.IsNaN(loss) {
				return math.Inf(1)
			}
			sum += loss
			count++
		}
		p[0].Add(w.n)
		p[1].Add(w.input)
		p[2].Add(w.output)
	}
	if count == 0 {
		return math.Inf(1)
	}
	return sum / float64(count)
}
