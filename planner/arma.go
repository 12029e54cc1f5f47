package planner

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// order is the shape of an ARIMA model; constant gives it an intercept (a drift
// where d is 1).
type order struct {
	p, d, q  int
	constant bool
}

func (o order) params() int {
	n := o.p + o.q + 1
	if o.constant {
		n++
	}
	return n
}

// arma is a fitted ARIMA model. Its free parameters are the intercept, the AR and
// MA coefficients through partial autocorrelations x/sqrt(1+x²), which keep it
// stationary and invertible, and the root of the variance.
type arma struct {
	order
	free []float64
	aic  float64
}

// parts are the coefficients behind the free parameters.
type parts struct {
	c        float64
	ar, ma   []float64
	variance float64
}

func (m *arma) parts(free []float64) parts {
	var out parts
	if m.constant {
		out.c, free = free[0], free[1:]
	}
	out.ar = fromPartial(free[:m.p])
	out.ma = fromPartial(free[m.p : m.p+m.q])
	for i := range out.ma {
		out.ma[i] = -out.ma[i]
	}
	root := free[m.p+m.q]
	out.variance = float64(root * root)
	return out
}

// fromPartial turns unbounded values into coefficients of a stationary polynomial
// 1 - Σ a_i z^i (Monahan 1984). The sign of x is the reference's: forward
// differences see it.
func fromPartial(x []float64) []float64 {
	a := make([]float64, len(x))
	prev := make([]float64, len(x))
	for k, v := range x {
		r := -v / math.Sqrt(1+float64(v*v))
		copy(prev, a[:k])
		for i := range k {
			a[i] = prev[i] - float64(r*prev[k-1-i])
		}
		a[k] = r
	}
	return a
}

// toPartial undoes fromPartial; ok is false if the polynomial is not stationary.
func toPartial(a []float64) (x []float64, ok bool) {
	a = append([]float64(nil), a...)
	x = make([]float64, len(a))
	for k := len(a) - 1; k >= 0; k-- {
		r := a[k]
		if !(math.Abs(r) < 1-1e-10) {
			return nil, false
		}
		x[k] = -r / math.Sqrt(1-float64(r*r))
		prev := append([]float64(nil), a[:k]...)
		for i := range k {
			a[i] = (prev[i] + float64(r*prev[k-1-i])) / (1 - float64(r*r))
		}
	}
	return x, true
}

// fitArma estimates a model of y by exact maximum likelihood, in at most maxIter
// iterations from start (nil: from conditional least squares).
func fitArma(y []float64, o order, start []float64, maxIter int) *arma {
	m := &arma{order: o, free: append([]float64(nil), start...)}
	if start == nil {
		m.free = m.startParams(difference(y, o.d))
	}
	f := newFilter(o.d, max(o.p, o.q+1))
	best := minimise(func(free []float64) float64 {
		ll, _ := f.run(y, m.parts(free))
		if math.IsNaN(ll) {
			return math.Inf(1)
		}
		return -ll / float64(len(y))
	}, m.free, maxIter)
	m.aic = 2*best*float64(len(y)) + 2*float64(o.params())
	return m
}

// forecast is the next value of y.
func (m *arma) forecast(y []float64) float64 {
	_, next := newFilter(m.d, max(m.p, m.q+1)).run(y, m.parts(m.free))
	return next
}

func difference(y []float64, d int) []float64 {
	if d == 0 {
		return y
	}
	out := append([]float64(nil), y...)
	for range d {
		for i := range len(out) - 1 {
			out[i] = out[i+1] - out[i]
		}
		out = out[:len(out)-1]
	}
	return out
}

// nearUnit reports whether a root lies so near the unit circle that the model is
// not to be trusted: an inverse root above 0.99. Where there are MA roots only
// those count, as in the reference's search.
func (m *arma) nearUnit() bool {
	c := m.parts(m.free)
	if m.q == 0 {
		return !withinRadius(c.ar, 0.99)
	}
	for i := range c.ma {
		c.ma[i] = -c.ma[i]
	}
	return !withinRadius(c.ma, 0.99)
}

// withinRadius reports whether all inverse roots of 1 - Σ a_i z^i are at most r:
// scaling the roots by 1/r must leave the polynomial stationary.
func withinRadius(a []float64, r float64) bool {
	scaled := make([]float64, len(a))
	by := 1.0
	for i, v := range a {
		by *= r
		scaled[i] = v / by
	}
	_, ok := toPartial(scaled)
	return ok
}

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

// run returns the exact log-likelihood of y and the forecast of its next value.
// Once the covariance stops moving only the state does.
func (f *filter) run(y []float64, c parts) (ll, next float64) {
	clear(f.phi)
	clear(f.load)
	copy(f.phi, c.ar)
	f.load[0] = 1
	copy(f.load[1:], c.ma)
	f.start(c)
	steady := false
	s, logS := 0.0, 0.0
	for t, v := range y {
		if !steady {
			before := s
			if s = f.observe(); !(s > 0) {
				return math.NaN(), math.NaN()
			}
			steady = math.Abs(s-before) <= 1e-15*s
			logS = math.Log(2 * math.Pi * s)
		}
		e := v - f.seen()
		if t >= f.d {
			ll -= 0.5 * (logS + float64(e*e)/s)
		}
		for i := range f.state {
			f.nx[i] = f.state[i] + float64(f.gain[i]*e)
		}
		f.move(f.nx, 1, f.state, 1)
		f.state[f.d] += c.c
		if !steady {
			f.propagate(c.variance, s)
		}
	}
	return ll, f.seen()
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

// startParams estimates by conditional least squares: residuals of a long
// autoregression stand for the shocks. Parts that are not stationary or not
// invertible start at zero.
func (m *arma) startParams(w []float64) []float64 {
	c, ar, ma, variance := m.leastSquares(w)
	free := make([]float64, 0, m.params())
	if m.constant {
		free = append(free, c)
	}
	x, ok := toPartial(ar)
	if !ok {
		x = make([]float64, m.p)
	}
	free = append(free, x...)
	for i := range ma {
		ma[i] = -ma[i]
	}
	if x, ok = toPartial(ma); !ok {
		x = make([]float64, m.q)
	}
	free = append(free, x...)
	return append(free, math.Sqrt(math.Max(variance, 1e-10)))
}

func (m *arma) leastSquares(w []float64) (c float64, ar, ma []float64, variance float64) {
	ar, ma = make([]float64, m.p), make([]float64, m.q)
	k := 2 * m.q
	skip := max(k+m.q, m.p)
	if len(w) <= k || len(w) <= skip {
		return 0, ar, ma, meanSquare(w, true)
	}
	var shocks []float64 // of w[k:]
	if m.q > 0 {
		lags := make([][]float64, len(w)-k)
		for i := range lags {
			for j := 1; j <= k; j++ {
				lags[i] = append(lags[i], w[k+i-j])
			}
		}
		_, shocks = solveLeast(lags, w[k:])
	}
	rows := make([][]float64, len(w)-skip)
	for i := range rows {
		t := skip + i
		if m.constant {
			rows[i] = append(rows[i], 1)
		}
		for j := 1; j <= m.p; j++ {
			rows[i] = append(rows[i], w[t-j])
		}
		for j := 1; j <= m.q; j++ {
			rows[i] = append(rows[i], shocks[t-j-k])
		}
	}
	beta, rest := solveLeast(rows, w[skip:])
	if m.constant {
		c, beta = beta[0], beta[1:]
	}
	copy(ar, beta[:m.p])
	copy(ma, beta[m.p:])
	if len(rest) > max(1, m.q) {
		return c, ar, ma, meanSquare(rest[m.q:], false)
	}
	return c, ar, ma, meanSquare(w, true)
}

func meanSquare(v []float64, centred bool) float64 {
	mean := 0.0
	if centred {
		for _, x := range v {
			mean += x / float64(len(v))
		}
	}
	sum := 0.0
	for _, x := range v {
		sum += sq(x - mean)
	}
	return sum / float64(len(v))
}

// solveLeast returns the shortest least-squares solution and its residuals.
func solveLeast(rows [][]float64, y []float64) (beta, rest []float64) {
	cols := len(rows[0])
	rest = append([]float64(nil), y...)
	beta = make([]float64, cols)
	if cols == 0 {
		return beta, rest
	}
	a := mat.NewDense(len(rows), cols, nil)
	for i, row := range rows {
		a.SetRow(i, row)
	}
	var svd mat.SVD
	if !svd.Factorize(a, mat.SVDThin) {
		return beta, rest
	}
	rank := 0
	for _, v := range svd.Values(nil) {
		if v > 1e-15*svd.Values(nil)[0] {
			rank++
		}
	}
	if rank == 0 {
		return beta, rest
	}
	var x mat.VecDense
	svd.SolveVecTo(&x, mat.NewVecDense(len(y), append([]float64(nil), y...)), rank)
	copy(beta, x.RawVector().Data)
	for i, row := range rows {
		rest[i] -= dot(row, beta)
	}
	return beta, rest
}
