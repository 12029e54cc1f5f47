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
// iterations from start (nil: from conditional least squares). y is in levels.
func fitArma(y []float64, o order, start []float64, maxIter int) *arma {
	w := difference(y, o.d)
	m := &arma{order: o, free: append([]float64(nil), start...)}
	if start == nil {
		m.free = m.startParams(w)
	}
	f := newFilter(max(o.p, o.q+1))
	best := minimise(func(free []float64) float64 {
		ll, _ := f.run(w, m.parts(free))
		if math.IsNaN(ll) {
			return math.Inf(1)
		}
		return -ll / float64(len(y))
	}, m.free, maxIter)
	m.aic = 2*best*float64(len(y)) + 2*float64(o.params())
	return m
}

// forecast is the next level.
func (m *arma) forecast(y []float64) float64 {
	f := newFilter(max(m.p, m.q+1))
	_, next := f.run(difference(y, m.d), m.parts(m.free))
	for d := m.d - 1; d >= 0; d-- {
		w := difference(y, d)
		next += w[len(w)-1]
	}
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

// filter is the Kalman filter of an ARMA process in Harvey's form; r states.
type filter struct {
	r          int
	state, nx  []float64
	phi, load  []float64 // AR coefficients, loadings of the shock
	gain       []float64
	p, np, rot []float64 // r x r
}

func newFilter(r int) *filter {
	vector := func() []float64 { return make([]float64, r) }
	square := func() []float64 { return make([]float64, r*r) }
	return &filter{r: r, state: vector(), nx: vector(), phi: vector(), load: vector(), gain: vector(),
		p: square(), np: square(), rot: square()}
}

// run returns the exact log-likelihood of w and the forecast of its next value.
// Once the covariance stops moving only the state does.
func (f *filter) run(w []float64, c parts) (ll, next float64) {
	r, phi := f.r, f.phi
	clear(phi)
	clear(f.load)
	copy(phi, c.ar)
	f.load[0] = 1
	copy(f.load[1:], c.ma)
	f.stationary(c)
	steady := false
	s, logS := math.NaN(), 0.0
	for _, v := range w {
		if !steady {
			if s = f.p[0]; !(s > 0) {
				return math.NaN(), math.NaN()
			}
			logS = math.Log(2 * math.Pi * s)
			for i := range r {
				f.gain[i] = f.p[i*r] / s
			}
		}
		e := v - f.state[0]
		ll -= 0.5 * (logS + float64(e*e)/s)
		// state += K e, then T state + c
		for i := range r {
			f.nx[i] = f.state[i] + float64(f.gain[i]*e)
		}
		for i := range r {
			f.state[i] = float64(phi[i] * f.nx[0])
			if i+1 < r {
				f.state[i] += f.nx[i+1]
			}
		}
		f.state[0] += c.c
		if !steady {
			f.propagate(c.variance, s)
			steady = math.Abs(f.p[0]-s) <= 1e-15*s
		}
	}
	return ll, f.state[0]
}

// propagate updates the covariance with a value of variance s and moves it on.
func (f *filter) propagate(variance, s float64) {
	r := f.r
	for i := range r {
		for j := range r {
			f.np[i*r+j] = f.p[i*r+j] - float64(f.p[i*r]*f.p[j*r])/s
		}
	}
	rotate(f.np, f.rot, f.phi, r)
	for i := range r {
		for j := range r {
			f.p[i*r+j] = f.np[i*r+j] + float64(variance*f.load[i]*f.load[j])
		}
	}
}

// rotate replaces p by T p T' for T = [phi | shifted identity].
func rotate(p, tmp, phi []float64, r int) {
	for i := range r {
		for j := range r {
			tmp[i*r+j] = float64(phi[i] * p[j])
			if i+1 < r {
				tmp[i*r+j] += p[(i+1)*r+j]
			}
		}
	}
	for i := range r {
		for j := range r {
			p[i*r+j] = float64(phi[j] * tmp[i*r])
			if j+1 < r {
				p[i*r+j] += tmp[i*r+j+1]
			}
		}
	}
}

// stationary sets mean and covariance of the process in the long run: the solution
// of P = T P T' + R R' variance.
func (f *filter) stationary(c parts) {
	r, phi, load := f.r, f.phi, f.load
	if r == 1 {
		f.p[0] = c.variance / (1 - float64(phi[0]*phi[0]))
		f.state[0] = c.c / (1 - phi[0])
		return
	}
	size := r * r
	a := mat.NewDense(size, size, nil)
	b := mat.NewVecDense(size, nil)
	for i := range r {
		for j := range r {
			row := i*r + j
			a.Set(row, row, 1)
			b.SetVec(row, c.variance*load[i]*load[j])
			// (T p T')[i][j] = Σ T[i][k] p[k][l] T[j][l]
			for _, k := range [2]int{0, i + 1} {
				for _, l := range [2]int{0, j + 1} {
					tk, tl := 1.0, 1.0
					if k == 0 {
						tk = phi[i]
					}
					if l == 0 {
						tl = phi[j]
					}
					if k < r && l < r {
						a.Set(row, k*r+l, a.At(row, k*r+l)-float64(tk*tl))
					}
				}
			}
		}
	}
	var x mat.VecDense
	if err := x.SolveVec(a, b); err != nil {
		f.p[0] = math.NaN()
		return
	}
	copy(f.p, x.RawVector().Data)
	// The mean m solves m = T m + [c, 0, ...].
	sum := 1.0
	for _, v := range c.ar {
		sum -= v
	}
	f.state[0] = c.c / sum
	tail := 0.0
	for i := r - 1; i > 0; i-- {
		tail += float64(phi[i] * f.state[0])
		f.state[i] = tail
	}
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
