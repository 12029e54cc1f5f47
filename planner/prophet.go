package planner

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// prophet fits a piecewise linear trend to the last values and extends it by one
// step (spec planner 11.5). The fit is the maximum a posteriori of
//
//	y = (k + Σ δ_j [t >= c_j]) t + (m - Σ c_j δ_j [t >= c_j]) + e,  e ~ N(0, σ)
//	k, m ~ N(0, 5)   δ ~ Laplace(0, 0.05)   σ ~ HalfNormal(0.5)
//
// on values scaled by their largest magnitude and times scaled to 0..1. For a given
// σ the rest is convex and solved exactly; σ then follows in closed form, and the
// two take turns. The reference stops a general optimiser somewhat before that
// point, hence figures about 1 % apart. Seasonal terms, which the reference adds to
// histories of two days and more, are left out.
type prophet struct {
	log1p  bool
	window int
	values []float64 // oldest first, in log space if log1p
	last   float64   // as given
}

const prophetMinPoints = 5

func newProphet(c PredictorConfig) *prophet {
	return &prophet{log1p: c.Log1p, window: c.ProphetWindow}
}

func (p *prophet) Add(v float64) {
	p.last = v
	if p.log1p {
		v = math.Log1p(math.Max(0, v))
	}
	if len(p.values) == p.window {
		copy(p.values, p.values[1:])
		p.values = p.values[:p.window-1]
	}
	p.values = append(p.values, v)
}

func (p *prophet) Next() float64 {
	if len(p.values) < prophetMinPoints {
		return p.last
	}
	v := trendAhead(p.values)
	if p.log1p {
		v = math.Expm1(v)
	}
	return math.Max(0, v)
}

// trendAhead returns the fitted trend one step after the last of evenly spaced
// values.
func trendAhead(y []float64) float64 {
	n := len(y)
	scale, lo, hi := 0.0, y[0], y[0]
	for _, v := range y {
		scale = math.Max(scale, math.Abs(v))
		lo, hi = math.Min(lo, v), math.Max(hi, v)
	}
	if lo == hi {
		return lo
	}
	knots := changepoints(n)
	x := mat.NewDense(n, 2+len(knots), nil)
	target := mat.NewVecDense(n, nil)
	for i := range n {
		t := float64(i) / float64(n-1)
		target.SetVec(i, y[i]/scale)
		trendRow(t, knots, x.RawRowView(i))
	}
	theta := mapTrend(x, target)
	ahead := make([]float64, len(theta))
	trendRow(float64(n)/float64(n-1), knots, ahead)
	sum := 0.0
	for j, v := range ahead {
		sum += float64(v * theta[j])
	}
	return sum * scale
}

// changepoints are spread over the first 80 % of the times of n values.
func changepoints(n int) []float64 {
	h := int(math.Floor(0.8 * float64(n)))
	c := min(25, h-1)
	out := make([]float64, c)
	for j := range out {
		at := math.RoundToEven(float64(j+1) * float64(h-1) / float64(c))
		out[j] = at / float64(n-1)
	}
	return out
}

// trendRow fills the regressors of one time: t, 1, and a ramp per changepoint.
func trendRow(t float64, knots, row []float64) {
	row[0], row[1] = t, 1
	for j, c := range knots {
		row[2+j] = math.Max(0, t-c)
	}
}

// mapTrend returns k, m and the deltas of the posterior's mode, reached from σ = 1.
func mapTrend(x *mat.Dense, y *mat.VecDense) []float64 {
	n, cols := x.Dims()
	var gram mat.SymDense
	gram.SymOuterK(1, x.T())
	var xy mat.VecDense
	xy.MulVec(x.T(), y)
	lasso := newLasso(&gram, &xy)
	theta := make([]float64, cols)
	variance := 1.0
	var fitted, rest mat.VecDense
	for range 200 {
		lasso.solve(theta, variance)
		fitted.MulVec(x, mat.NewVecDense(cols, theta))
		rest.SubVec(y, &fitted)
		s := mat.Dot(&rest, &rest)
		// minimise n log σ + s/(2σ²) + 2σ² over σ²
		next := (math.Sqrt(float64(n)*float64(n)+16*s) - float64(n)) / 8
		if done := math.Abs(next-variance) <= 1e-9*variance; done || next < 1e-12 {
			break
		}
		variance = next
	}
	return theta
}

// lasso minimises |y - Xθ|²/2 + σ²(θ0² + θ1²)/50 + σ² Σ|δ|/0.05 by an active set
// with signs (Lee et al. 2007, Efficient sparse coding algorithms).
type lasso struct {
	gram *mat.SymDense
	xy   *mat.VecDense
	sign []float64 // [column], 0: δ fixed at zero; columns 0 and 1 are always free
}

func newLasso(gram *mat.SymDense, xy *mat.VecDense) *lasso {
	return &lasso{gram: gram, xy: xy, sign: make([]float64, xy.Len())}
}

const (
	slopePrior = 1 / 25.0 // 1/5²
	deltaPrior = 1 / 0.05
)

func (l *lasso) solve(theta []float64, variance float64) {
	penalty := variance * deltaPrior
	for range 20 * len(theta) {
		l.settle(theta, variance)
		// Free the δ whose gradient exceeds its penalty the most.
		worst, at := penalty*(1+1e-10)+1e-14, -1
		for j := 2; j < len(theta); j++ {
			if l.sign[j] != 0 {
				continue
			}
			if g := l.gradient(theta, j); math.Abs(g) > worst {
				worst, at = math.Abs(g), j
			}
		}
		if at < 0 {
			return
		}
		l.sign[at] = -math.Copysign(1, l.gradient(theta, at))
	}
}

func (l *lasso) gradient(theta []float64, j int) float64 {
	g := -l.xy.AtVec(j)
	for i, v := range theta {
		g += float64(l.gram.At(j, i) * v)
	}
	return g
}

// settle moves to the minimum of the present signs, and where a δ would change its
// sign on the way, only to there, fixing it at zero.
func (l *lasso) settle(theta []float64, variance float64) {
	for range len(theta) {
		free := []int{0, 1}
		for j := 2; j < len(theta); j++ {
			if l.sign[j] != 0 {
				free = append(free, j)
			}
		}
		goal := l.newton(free, variance)
		if goal == nil {
			return
		}
		step, hit := 1.0, -1
		for a, j := range free {
			if j < 2 || goal[a]*l.sign[j] > 0 {
				continue
			}
			if s := theta[j] / (theta[j] - goal[a]); hit < 0 || s < step {
				step, hit = s, j
			}
		}
		for a, j := range free {
			theta[j] += float64(step * (goal[a] - theta[j]))
		}
		if hit < 0 {
			return
		}
		theta[hit], l.sign[hit] = 0, 0
	}
}

// newton solves the normal equations of the free columns; nil if they are singular.
func (l *lasso) newton(free []int, variance float64) []float64 {
	a := mat.NewSymDense(len(free), nil)
	b := mat.NewVecDense(len(free), nil)
	for r, i := range free {
		for c := r; c < len(free); c++ {
			a.SetSym(r, c, l.gram.At(i, free[c]))
		}
		rhs := l.xy.AtVec(i)
		if i < 2 {
			a.SetSym(r, r, a.At(r, r)+variance*slopePrior)
		} else {
			rhs -= variance * deltaPrior * l.sign[i]
		}
		b.SetVec(r, rhs)
	}
	var chol mat.Cholesky
	if !chol.Factorize(a) {
		return nil
	}
	var out mat.VecDense
	if chol.SolveVecTo(&out, b) != nil {
		return nil
	}
	return out.RawVector().Data
}
