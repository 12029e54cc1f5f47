package planner

import "math"

// arima chooses the order of a non-seasonal ARIMA model on the first five or more
// values, then only takes a few steps of the estimate as values come (spec planner
// 11.4). When it repeats the last value is exact, and so is the mean of a (0,0,0)
// model, as far as those few steps reach it. Other forecasts depend on where an
// optimiser stops: nearly all lie within 1e-5 of the reference's, a few within 1e-3;
// an order may differ where two fit alike.
type arima struct {
	log1p  bool // as configured, or since a raw order had neither AR nor MA
	values []float64
	logs   []float64 // of the values, as far as needed
	model  *arma
	fitted *history // what the model has seen
}

const (
	arimaMinPoints = 5
	arimaIter      = 50 // of the first estimate
	arimaUpdate    = 5  // of one with new values
	arimaMaxP      = 5
	arimaMaxQ      = 5
	arimaMaxOrder  = 5
	arimaMaxD      = 2
	arimaMaxModels = 100
)

func newArima(c PredictorConfig) *arima { return &arima{log1p: c.Log1p} }

func (a *arima) Add(v float64) { a.values = append(a.values, math.Max(0, v)) }

func (a *arima) Next() float64 {
	n := len(a.values)
	if n == 0 {
		return 0
	}
	last := a.values[n-1]
	if n < arimaMinPoints || allEqual(a.values) {
		return last
	}
	f := a.forecast()
	if a.log1p {
		f = math.Expm1(f)
	}
	if !finite(f) {
		return last
	}
	return math.Max(0, f)
}

func allEqual(v []float64) bool {
	for _, x := range v {
		if x != v[0] {
			return false
		}
	}
	return true
}

// forecast is one step ahead, in the model's space.
func (a *arima) forecast() float64 {
	y := a.space()
	switch {
	case a.model == nil:
		a.model = searchOrder(y)
		if !a.log1p && a.model != nil && a.model.p == 0 && a.model.q == 0 {
			a.log1p = true
			y = a.space()
			a.model = searchOrder(y)
		}
		if a.model == nil {
			return math.NaN()
		}
		a.fitted = newHistory(y, a.model.order)
	case len(a.fitted.y) < len(y):
		a.fitted.extend(y)
		a.model = fitArma(a.fitted, a.model.order, a.model.free, arimaUpdate)
	}
	return a.model.forecast(a.fitted)
}

// space returns the values in the model's space.
func (a *arima) space() []float64 {
	if !a.log1p {
		return a.values
	}
	for _, v := range a.values[len(a.logs):] {
		a.logs = append(a.logs, math.Log1p(v))
	}
	return a.logs
}

func meanOf(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// search is the stepwise search for the order with the smallest AIC (Hyndman and
// Khandakar 2008).
type search struct {
	y          []float64
	d          int
	maxP, maxQ int
	constant   bool
	tried      map[order]bool
	best       *arma
}

// searchOrder returns the best model of y, nil if none can be estimated.
func searchOrder(y []float64) *arma {
	d := differences(y)
	s := search{y: y, d: d, maxP: min(arimaMaxP, len(y)/3), maxQ: min(arimaMaxQ, len(y)/3),
		constant: d < 2, tried: map[order]bool{}}
	if w := difference(y, d); allEqual(w) {
		o := order{d: d, constant: s.constant}
		return fitArma(newHistory(y, o), o, nil, arimaIter)
	}
	p, q := min(2, s.maxP), min(2, s.maxQ)
	s.try(p, q, s.constant)
	for _, o := range [][2]int{{0, 0}, {min(1, s.maxP), 0}, {0, min(1, s.maxQ)}} {
		if s.try(o[0], o[1], s.constant) {
			p, q = o[0], o[1]
		}
	}
	if s.constant && s.try(0, 0, false) {
		p, q = 0, 0
	}
	for s.step(&p, &q) && len(s.tried) < arimaMaxModels {
	}
	return s.best
}

// step moves to the first better neighbour.
func (s *search) step(p, q *int) bool {
	for _, by := range [][2]int{{-1, 0}, {0, -1}, {1, 0}, {0, 1}, {-1, -1}, {1, -1}, {-1, 1}, {1, 1}} {
		if s.try(*p+by[0], *q+by[1], s.constant) {
			*p, *q = *p+by[0], *q+by[1]
			return true
		}
	}
	if s.try(*p, *q, !s.constant) {
		s.constant = !s.constant
		return true
	}
	return false
}

// try estimates one order and reports whether it is the best so far.
func (s *search) try(p, q int, constant bool) bool {
	o := order{p: p, d: s.d, q: q, constant: constant}
	if p < 0 || q < 0 || p > s.maxP || q > s.maxQ || p+q > arimaMaxOrder || s.tried[o] {
		return false
	}
	s.tried[o] = true
	m := fitArma(newHistory(s.y, o), o, nil, arimaIter)
	if !finite(m.aic) || m.nearUnit() || s.best != nil && m.aic >= s.best.aic {
		return false
	}
	s.best = m
	return true
}

// differences is how often y must be differenced until the KPSS test no longer
// rejects a level at 5 %, at most twice.
func differences(y []float64) int {
	for d := 0; ; d++ {
		if d == arimaMaxD || d > 0 && allEqual(y) {
			return d
		}
		stat := kpss(y)
		if math.IsNaN(stat) {
			return max(0, d-1)
		}
		if stat <= 0.463 {
			return d
		}
		y = difference(y, 1)
	}
}

// kpss is the statistic of Kwiatkowski et al. (1992) for a level, with
// 4·(n/100)^(1/4) lags.
func kpss(y []float64) float64 {
	n := float64(len(y))
	mean := meanOf(y)
	partial, eta, s2 := 0.0, 0.0, 0.0
	for _, v := range y {
		partial += v - mean
		eta += float64(partial * partial)
		s2 += sq(v - mean)
	}
	lags := int(4 * math.Pow(n/100, 0.25))
	tail := 0.0
	for l := 1; l <= lags; l++ {
		sum := 0.0
		for i := l; i < len(y); i++ {
			sum += float64((y[i] - mean) * (y[i-l] - mean))
		}
		tail += sum * (1 - float64(l)/float64(lags+1))
	}
	return eta / (n * n) / (s2/n + 2*tail/n)
}
