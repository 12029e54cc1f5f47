package workload

import (
	"math"
	"sync"

	"github.com/dynosweep/dynosweep/sim/rng"
)

// schedule makes arrival times on the fly, one gap added after the other (spec
// workload 1.4).
type schedule struct {
	kind    Control
	gapMs   float64 // Fixed
	meanMs  float64 // Poisson
	draws   rng.ChaCha
	log     *lnTable
	started bool
	atMs    float64
}

// newSchedule returns the arrivals of open-loop load.
func newSchedule(s *Synthetic) schedule {
	a := schedule{kind: s.Control}
	switch {
	case a.kind == Fixed && s.IntervalMs > 0:
		qps := 1000.0 / s.IntervalMs
		a.gapMs = 1000.0 / qps
	case a.kind == Poisson:
		a.meanMs = 1000.0 / s.RatePerS
		a.draws = rng.NewChaCha(s.ArrivalSeed)
		a.log = lnTables()
	}
	return a
}

// next returns the next arrival; the first is 0. Times never go back.
func (a *schedule) next() float64 {
	if !a.started {
		a.started = true
		return 0
	}
	gap := a.gapMs
	if a.kind == Poisson {
		u := min(max(1.0-a.draws.Float64(), 0x1p-1022), 1.0)
		gap = float64(-a.meanMs * a.log.ln(u))
	}
	a.atMs += gap
	return a.atMs
}

// lnTable is what a correctly rounded logarithm needs: -ln(i/128) for the factors
// i/128 that bring a mantissa in [sqrt(1/2), sqrt(2)) close to 1.
type lnTable [183]dd // [i], i from 90

var lnTables = sync.OnceValue(func() *lnTable {
	t := new(lnTable)
	for i := 90; i < len(t); i++ {
		// -ln(c) = 2 atanh(z), z = (1-c)/(1+c), |z| < 0.18
		z := dd{hi: float64(128 - i)}.over(dd{hi: float64(128 + i)})
		z2 := z.times(z)
		sum := dd{}
		for n := 47; n >= 1; n -= 2 {
			sum = sum.times(z2).plus(dd{hi: 1}.over(dd{hi: float64(n)}))
		}
		sum = sum.times(z)
		t[i] = dd{2 * sum.hi, 2 * sum.lo}
	}
	return t
})

// ln returns the natural logarithm of a positive normal x, correctly rounded but
// for about one input in a million. The reference takes the C library's, which is
// itself correctly rounded nearly always; math.Log is not for one input in 14.
//
// x = m 2^e, m in [sqrt(1/2), sqrt(2)); with c = i/128 near 1/m and r = m c - 1:
// ln x = e ln 2 - ln c + ln(1+r), |r| < 2^-7, all in double-double.
func (t *lnTable) ln(x float64) float64 {
	m, e := math.Frexp(x) // m in [1/2, 1)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	i := int(math.Floor(128/m + 0.5))
	c := float64(i) / 128
	p := float64(m * c)
	r := sum2(p-1, math.FMA(m, c, -p))
	// ln(1+r) = r - r^2/2 + r^3/3 - tail; the tail is below 2^-21 of the result.
	r2 := r.times(r)
	r3 := r2.times(r)
	h := r.hi
	tail := math.FMA(h, 1.0/9, -1.0/8)
	for _, k := range [...]float64{1.0 / 7, -1.0 / 6, 1.0 / 5, -1.0 / 4} {
		tail = math.FMA(h, tail, k)
	}
	tail *= h * h * h * h
	y := r3.times(dd{0x1.5555555555555p-2, 0x1.5555555555555p-56}).plus(dd{hi: float64(tail)})
	y = y.plus(dd{-r2.hi / 2, -r2.lo / 2}).plus(r)
	if i != 128 {
		y = y.plus(t[i])
	}
	if e != 0 {
		ln2 := dd{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}
		y = ln2.times(dd{hi: float64(e)}).plus(y)
	}
	return y.hi + y.lo
}

// dd is an unevaluated sum of two float64, |lo| <= ulp(hi)/2: about 106 bits.
type dd struct{ hi, lo float64 }

// sum2 returns a + b exactly.
func sum2(a, b float64) dd {
	s := a + b
	v := s - a
	return dd{s, (a - (s - v)) + (b - v)}
}

func (a dd) plus(b dd) dd {
	s, t := sum2(a.hi, b.hi), sum2(a.lo, b.lo)
	s = sum2(s.hi, s.lo+t.hi)
	return sum2(s.hi, s.lo+t.lo)
}

func (a dd) times(b dd) dd {
	p := float64(a.hi * b.hi)
	low := math.FMA(a.hi, b.hi, -p)
	low += float64(a.hi*b.lo) + float64(a.lo*b.hi)
	return sum2(p, low)
}

func (a dd) over(b dd) dd {
	q := a.hi / b.hi
	r := a.plus(b.times(dd{hi: -q}))
	return sum2(q, r.hi/b.hi)
}
