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

// ahead is what the AR part expects after w.
func (c *parts) ahead(w []float64) float64 {
	sum := c.c
	for i, a := range c.ar {
		sum += float64(a * w[len(w)-1-i])
	}
	return sum
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

// fitArma estimates a model of h by exact maximum likelihood, in at most maxIter
// iterations from start (nil: from conditional least squares).
func fitArma(h *history, o order, start []float64, maxIter int) *arma {
	m := &arma{order: o, free: append([]float64(nil), start...)}
	if start == nil {
		m.free = m.startParams(h.w)
	}
	n := float64(len(h.y))
	f := newFilter(o.d, max(o.p, o.q+1))
	best := minimise(func(free []float64) float64 {
		ll, _ := f.run(h, m.parts(free))
		if math.IsNaN(ll) {
			return math.Inf(1)
		}
		return -ll / n
	}, m.free, maxIter)
	m.aic = 2*best*n + 2*float64(o.params())
	return m
}

// forecast is the next value of h.
func (m *arma) forecast(h *history) float64 {
	_, next := newFilter(m.d, max(m.p, m.q+1)).run(h, m.parts(m.free))
	return next
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
