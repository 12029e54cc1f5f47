package planner

import "math"

// Window is what arrived in one throughput interval: requests and their mean
// lengths in tokens, 0 where there were none.
type Window struct{ Requests, ISL, OSL float64 }

// RankPredictors forecasts every window one step ahead with each candidate and
// returns the candidates' mean losses and the index of the best, the earliest of
// equals (spec planner 12.4). Windows before the largest minimum of the candidates
// are not scored; a candidate without a finite loss is +Inf, and if all are, the
// first is the best. Candidates do not read their warm-up trace.
func RankPredictors(candidates []PredictorConfig, windows []Window) (best int, losses []float64) {
	skip := 0
	for _, c := range candidates {
		skip = max(skip, c.MinPoints())
	}
	losses = make([]float64, len(candidates))
	for i, c := range candidates {
		losses[i] = predictorLoss(c, windows, skip)
		if losses[i] < losses[best] {
			best = i
		}
	}
	return best, losses
}

func predictorLoss(c PredictorConfig, windows []Window, skip int) float64 {
	c.WarmupTrace = ""
	var f forecaster
	if f.init(c, 0) != nil || len(windows) <= skip {
		return math.Inf(1)
	}
	sum := 0.0
	for i, w := range windows {
		if i >= skip {
			n, isl, osl := f.predict()
			sum += windowLoss(Window{math.Max(n, 0), math.Max(isl, 0), math.Max(osl, 0)}, w)
		}
		f.observe(w.Requests, w.ISL, w.OSL)
	}
	if loss := sum / float64(len(windows)-skip); finite(loss) {
		return loss
	}
	return math.Inf(1)
}

// windowLoss weighs the error in tokens per interval four times that in lengths.
func windowLoss(guess, w Window) float64 {
	e := func(a, b float64) float64 {
		return math.Abs(math.Log1p(math.Max(a, 0)) - math.Log1p(math.Max(b, 0)))
	}
	return 0.4*e(guess.Requests*guess.ISL, w.Requests*w.ISL) + 0.4*e(guess.Requests*guess.OSL, w.Requests*w.OSL) +
		0.1*e(guess.ISL, w.ISL) + 0.1*e(guess.OSL, w.OSL)
}
