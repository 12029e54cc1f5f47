package calibrate

import (
	"context"
	"errors"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Constants of the objective (spec calibration 3.3).
const (
	noiseSigma = 0.08
	huberDelta = 0.25
	tpotWeight = 1.0
	ttftWeight = 0.5
	maxSteps   = 4
	maxHalving = 3
)

// fitter is one fit: the deployment of each run, and its measured figures.
type fitter struct {
	runs     []Run
	on       []scenario.Run // [run]
	simulate Simulate
	steady   bool
	active   int // parameters that are fitted, from the first
}

// figures simulates every (run, parameters) pair.
func (f *fitter) figures(ctx context.Context, run []int, at []vector) ([]Figures, error) {
	outcomes, err := f.outcomes(ctx, run, at)
	if err != nil {
		return nil, err
	}
	out := make([]Figures, len(run))
	for i, o := range outcomes {
		out[i] = summarize(o.Requests, f.steadyOf(run[i]))
	}
	return out, nil
}

func (f *fitter) outcomes(ctx context.Context, run []int, at []vector) ([]Outcome, error) {
	cases := make([]Case, len(run))
	for i, k := range run {
		cases[i] = Case{f.on[k].Corrected(at[i].corrections()), &f.runs[k].Load}
	}
	return f.simulate(ctx, cases)
}

func (f *fitter) steadyOf(run int) int {
	if !f.steady {
		return 0
	}
	return f.runs[run].Load.Concurrency
}

// everyRun asks for all runs at each of the points: [point][run].
func (f *fitter) everyRun(ctx context.Context, points ...vector) ([][]Figures, error) {
	var run []int
	var at []vector
	for _, p := range points {
		for k := range f.runs {
			run, at = append(run, k), append(at, p)
		}
	}
	flat, err := f.figures(ctx, run, at)
	if err != nil {
		return nil, err
	}
	out := make([][]Figures, len(points))
	for i := range points {
		out[i] = flat[i*len(f.runs) : (i+1)*len(f.runs)]
	}
	return out, nil
}

// residuals of one run at x: of TPOT and of TTFT, 0 where nothing was measured.
func residuals(measured, simulated Figures, x vector) [2]float64 {
	r := [2]float64{tpotWeight * math.Log(simulated.TPOTMs/measured.TPOTMs),
		ttftWeight * math.Log((simulated.TTFTMs+x[clientMs])/measured.TTFTMs)}
	for i, v := range r {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			r[i] = 0
		}
	}
	return r
}

// cost is the robust objective, priors included.
func (f *fitter) cost(x vector, sim []Figures) float64 {
	total := 0.0
	for k := range f.runs {
		for _, r := range residuals(f.runs[k].Measured, sim[k], x) {
			v := r * r
			if a := math.Abs(r); a > huberDelta {
				v = 2*huberDelta*a - huberDelta*huberDelta
			}
			total += v / (noiseSigma * noiseSigma)
		}
	}
	for p := range f.active {
		d := (x[p] - priorMean[p]) / priorSD[p]
		total += d * d
	}
	return total
}

// jacobian is the slope of every residual: [run][metric][parameter].
type jacobian [][2]vector

func (f *fitter) jacobian(ctx context.Context, x vector, sim []Figures) (jacobian, error) {
	var points []vector
	var moved []int
	for p := range f.active {
		if p != clientMs {
			y := x
			y[p] += steps[p]
			points, moved = append(points, y), append(moved, p)
		}
	}
	at, err := f.everyRun(ctx, points...)
	if err != nil {
		return nil, err
	}
	out := make(jacobian, len(f.runs))
	for k := range f.runs {
		base := residuals(f.runs[k].Measured, sim[k], x)
		for i, p := range moved {
			shifted := residuals(f.runs[k].Measured, at[i][k], points[i])
			for m := range base {
				out[k][m][p] = (shifted[m] - base[m]) / steps[p]
			}
		}
		if base[1] != 0 {
			out[k][1][clientMs] = ttftWeight / (sim[k].TTFTMs + x[clientMs])
		}
	}
	return out, nil
}

// normal is the matrix and the gradient of the linearised objective without one run; -1
// leaves none out.
func (f *fitter) normal(x vector, sim []Figures, j jacobian, without int) (*mat.SymDense, []float64) {
	a, g := mat.NewSymDense(f.active, nil), make([]float64, f.active)
	for p := range f.active {
		w := 1 / (priorSD[p] * priorSD[p])
		a.SetSym(p, p, w)
		g[p] = w * (x[p] - priorMean[p])
	}
	for k := range f.runs {
		if k == without {
			continue
		}
		for m, r := range residuals(f.runs[k].Measured, sim[k], x) {
			w := 1 / (noiseSigma * noiseSigma)
			if abs := math.Abs(r); abs > huberDelta {
				w *= huberDelta / abs
			}
			for p := range f.active {
				g[p] += w * j[k][m][p] * r
				for q := p; q < f.active; q++ {
					a.SetSym(p, q, a.At(p, q)+w*j[k][m][p]*j[k][m][q])
				}
			}
		}
	}
	return a, g
}

var errSingular = errors.New("the runs do not determine the corrections")

// step is where a Gauss-Newton step from x leads, within the bounds: a parameter that
// would leave them is held, and the others are solved again.
func step(a *mat.SymDense, g []float64, x vector) (vector, error) {
	held := make([]bool, len(g))
	for {
		var free []int
		for p := range g {
			if !held[p] {
				free = append(free, p)
			}
		}
		if len(free) == 0 {
			return x, nil
		}
		sub, rhs := mat.NewSymDense(len(free), nil), mat.NewVecDense(len(free), nil)
		for i, p := range free {
			rhs.SetVec(i, -g[p])
			for q := range g {
				if held[q] { // moved to its bound already
					rhs.SetVec(i, rhs.AtVec(i)-a.At(p, q)*(bound(q, x[q])-x[q]))
				}
			}
			for k, q := range free[i:] {
				sub.SetSym(i, i+k, a.At(p, q))
			}
		}
		var chol mat.Cholesky
		var d mat.VecDense
		if !chol.Factorize(sub) || chol.SolveVecTo(&d, rhs) != nil {
			return x, errSingular
		}
		out, left := x, false
		for p := range g {
			if held[p] {
				out[p] = bound(p, x[p])
			}
		}
		for i, p := range free {
			out[p] = x[p] + d.AtVec(i)
			if out[p] < lowest[p] || out[p] > highest[p] {
				held[p], left = true, true
			}
		}
		if !left {
			return out, nil
		}
	}
}

// bound is the bound nearest to a value.
func bound(p int, v float64) float64 {
	if highest[p]-v < v-lowest[p] {
		return highest[p]
	}
	return lowest[p]
}

// minimum is where a fit ended.
type minimum struct {
	x         vector
	sim       []Figures // [run]
	slope     jacobian
	deviation vector                                  // standard deviation of each parameter
	correlate [parameterCount][parameterCount]float64 // between parameters
}

// fit runs Gauss-Newton from the neutral corrections, of which start are the figures.
func (f *fitter) fit(ctx context.Context, start []Figures) (*minimum, error) {
	m := &minimum{x: priorMean, sim: start}
	cost := f.cost(m.x, m.sim)
	for range maxSteps {
		var err error
		if m.slope, err = f.jacobian(ctx, m.x, m.sim); err != nil {
			return nil, err
		}
		a, g := f.normal(m.x, m.sim, m.slope, -1)
		to, err := step(a, g, m.x)
		if err != nil {
			return nil, err
		}
		from := m.x
		for range maxHalving + 1 {
			sim, err := f.everyRun(ctx, to)
			if err != nil {
				return nil, err
			}
			if c := f.cost(to, sim[0]); c <= cost {
				m.x, m.sim, cost = to, sim[0], c
				break
			}
			for p := range to {
				to[p] = (to[p] + m.x[p]) / 2
			}
		}
		if m.x.near(from) {
			break
		}
	}
	var err error
	if m.slope, err = f.jacobian(ctx, m.x, m.sim); err != nil {
		return nil, err
	}
	return m, m.spread(f)
}

// near reports whether two points differ by less than a thousandth of the prior's width.
func (x vector) near(y vector) bool {
	for p := range x {
		if math.Abs(x[p]-y[p]) > 1e-3*priorSD[p] {
			return false
		}
	}
	return true
}

// spread fills in how well the parameters are known.
func (m *minimum) spread(f *fitter) error {
	a, _ := f.normal(m.x, m.sim, m.slope, -1)
	var chol mat.Cholesky
	var cov mat.SymDense
	if !chol.Factorize(a) || chol.InverseTo(&cov) != nil {
		return errSingular
	}
	for p := range f.active {
		m.deviation[p] = math.Sqrt(cov.At(p, p))
	}
	for p := range f.active {
		for q := range f.active {
			m.correlate[p][q] = cov.At(p, q) / (m.deviation[p] * m.deviation[q])
		}
	}
	return nil
}

// leaveOut is the figures of every run, simulated with what the other runs say: one
// step from the minimum of all, which lies near the minimum without the run.
func (f *fitter) leaveOut(ctx context.Context, m *minimum) ([]Figures, error) {
	run, at := make([]int, len(f.runs)), make([]vector, len(f.runs))
	for k := range f.runs {
		a, g := f.normal(m.x, m.sim, m.slope, k)
		to, err := step(a, g, m.x)
		if err != nil {
			return nil, err
		}
		run[k], at[k] = k, to
	}
	out, err := f.figures(ctx, run, at)
	if err != nil {
		return nil, err
	}
	for k := range out {
		out[k].TTFTMs += at[k][clientMs]
	}
	return out, nil
}
