package planner

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// filter is the Kalman filter of an ARIMA process: d levels, y(t-1) and its
// differences, above the r states of Harvey's form of the ARMA part. Levels start
// nearly unknown, and the first d values do not count in the likelihood.
type filter struct {
	d, r, size int
	state, nx  []float64
	phi, load  []float64 // AR coefficients, loadings of the shock, [r]
	gain       []float64
	p, rot     []float64 // covariance, size x size
}

// levelVariance is what nearly unknown means.
const levelVariance = 1e6

func newFilter(d, r int) *filter {
	n := d + r
	return &filter{d: d, r: r, size: n, state: make([]float64, n), nx: make([]float64, n),
		phi: make([]float64, r), load: make([]float64, r), gain: make([]float64, n),
		p: make([]float64, n*n), rot: make([]float64, n*n)}
}

// run returns the exact log-likelihood of a series and the forecast of its next
// value. Once the covariance stops moving, the rest needs no matrices.
func (f *filter) run(h *history, c parts) (ll, next float64) {
	clear(f.phi)
	clear(f.load)
	copy(f.phi, c.ar)
	f.load[0] = 1
	copy(f.load[1:], c.ma)
	f.start(c)
	before := 0.0
	for t, v := range h.y {
		s := f.observe()
		if !(s > 0) {
			return math.NaN(), math.NaN()
		}
		e := v - f.seen()
		if t >= f.d {
			ll -= 0.5 * (math.Log(2*math.Pi*s) + float64(e*e)/s)
		}
		for i := range f.state {
			f.nx[i] = f.state[i] + float64(f.gain[i]*e)
		}
		f.move(f.nx, 1, f.state, 1)
		f.state[f.d] += c.c
		if at := t + 1 - f.d; math.Abs(s-before) <= 1e-15*s && at >= len(c.ar) {
			squares, ahead := f.rest(h, at, c)
			return ll - 0.5*(float64(float64(len(h.w)-at)*math.Log(2*math.Pi*s))+squares/s), h.undo(ahead)
		}
		f.propagate(c.variance, s)
		before = s
	}
	return ll, f.seen()
}

// rest returns the sum of the squared shocks of h.w[at:], and the difference that
// follows it, for a filter whose gains stay as they are. A level is then known from
// the values before, so that the differences are an ARMA process of their own.
func (f *filter) rest(h *history, at int, c parts) (squares, next float64) {
	if len(c.ma) == 0 {
		for t := len(c.ar); t < at; t++ {
			squares -= sq(h.w[t] - c.ahead(h.w[:t]))
		}
		return squares + h.sums.squares(c.c, c.ar), c.ahead(h.w)
	}
	x, gain := f.state[f.d:], f.gain[f.d:]
	if f.r == 2 {
		return f.restOfTwo(h.w[at:], c.c)
	}
	for _, v := range h.w[at:] {
		e := v - x[0]
		squares += float64(e * e)
		for i := range f.r - 1 {
			x[i] = x[i+1] + float64(f.phi[i]*v) + float64(gain[i+1]*e)
		}
		x[f.r-1] = float64(f.phi[f.r-1] * v)
		x[0] += c.c
	}
	return squares, x[0]
}

// restOfTwo is rest for two states, which short series lead to
// (BenchmarkLongForecast/terms=ma).
func (f *filter) restOfTwo(w []float64, constant float64) (squares, next float64) {
	a, b, gain := f.state[f.d], f.state[f.d+1], f.gain[f.d+1]
	phi, phi2 := f.phi[0], f.phi[1]
	for _, v := range w {
		e := v - a
		squares += float64(e * e)
		a = b + float64(phi*v) + constant + float64(gain*e)
		b = float64(phi2 * v)
	}
	return squares, a
}

// seen is the value that the state stands for: the sum of the levels and the first
// ARMA state.
func (f *filter) seen() float64 {
	sum := 0.0
	for _, v := range f.state[:f.d+1] {
		sum += v
	}
	return sum
}

// observe returns the variance of the next value and sets the gain.
func (f *filter) observe() float64 {
	s := 0.0
	for i := range f.gain {
		f.gain[i] = 0
		for _, v := range f.p[i*f.size : i*f.size+f.d+1] {
			f.gain[i] += v
		}
		if i <= f.d {
			s += f.gain[i]
		}
	}
	for i := range f.gain {
		f.gain[i] /= s
	}
	return s
}

// propagate updates the covariance with a value of variance s and moves it on.
func (f *filter) propagate(variance, s float64) {
	n := f.size
	for i := range n {
		for j := range n {
			f.p[i*n+j] -= float64(f.gain[i] * f.gain[j] * s)
		}
	}
	for j := range n {
		f.move(f.p[j:], n, f.rot[j:], n)
	}
	for i := range n {
		f.move(f.rot[i*n:], 1, f.p[i*n:], 1)
	}
	for i, a := range f.load {
		for j, b := range f.load {
			f.p[(f.d+i)*n+f.d+j] += float64(variance * a * b)
		}
	}
}

// move applies the transition to a vector of the given stride.
func (f *filter) move(from []float64, stride int, to []float64, step int) {
	first := from[f.d*stride]
	sum := first
	for i := f.d - 1; i >= 0; i-- {
		sum += from[i*stride]
		to[i*step] = sum
	}
	for i, phi := range f.phi {
		v := float64(phi * first)
		if i+1 < f.r {
			v += from[(f.d+i+1)*stride]
		}
		to[(f.d+i)*step] = v
	}
}

// start sets mean and covariance of the process in the long run.
func (f *filter) start(c parts) {
	clear(f.state)
	clear(f.p)
	for i := range f.d {
		f.p[i*f.size+i] = levelVariance
	}
	// The mean m solves m = T m + [c, 0, ...].
	sum := 1.0
	for _, v := range c.ar {
		sum -= v
	}
	arma := f.state[f.d:]
	arma[0] = c.c / sum
	tail := 0.0
	for i := f.r - 1; i > 0; i-- {
		tail += float64(f.phi[i] * arma[0])
		arma[i] = tail
	}
	if f.r == 1 {
		f.p[len(f.p)-1] = c.variance / (1 - float64(f.phi[0]*f.phi[0]))
		return
	}
	cov := f.longRun(c.variance)
	if cov == nil {
		f.p[len(f.p)-1-(f.r-1)*(f.size+1)] = math.NaN()
		return
	}
	for i := range f.r {
		copy(f.p[(f.d+i)*f.size+f.d:], cov[i*f.r:(i+1)*f.r])
	}
}

// longRun solves P = T P T' + R R' variance for the ARMA part, row by row; nil if
// there is no solution.
func (f *filter) longRun(variance float64) []float64 {
	r := f.r
	a := mat.NewDense(r*r, r*r, nil)
	b := mat.NewVecDense(r*r, nil)
	at := func(i, k int) float64 { // T[i][k] for k = 0 and k = i+1
		if k == 0 {
			return f.phi[i]
		}
		return 1
	}
	for i := range r {
		for j := range r {
			row := i*r + j
			a.Set(row, row, 1)
			b.SetVec(row, variance*f.load[i]*f.load[j])
			for _, k := range [2]int{0, i + 1} {
				for _, l := range [2]int{0, j + 1} {
					if k < r && l < r {
						a.Set(row, k*r+l, a.At(row, k*r+l)-float64(at(i, k)*at(j, l)))
					}
				}
			}
		}
	}
	var x mat.VecDense
	if x.SolveVec(a, b) != nil {
		return nil
	}
	return x.RawVector().Data
}
