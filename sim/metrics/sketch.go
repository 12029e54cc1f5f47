package metrics

import (
	"math"
	"math/big"
)

// Constants of the sketch (spec report 3.2): bin k holds the values v with
// gamma^(k-1) < v <= gamma^k, which its representative misses by at most 0.1 %.
const (
	smallest    = 2.2250738585072014e-308 // values below count as zero
	boundMargin = 1e-12                   // far above the rounding of log and exp
)

// Variables, not constants: every step is to round to a float64.
var (
	accuracy    = 0.001
	gammaMinus1 = 2 * accuracy / (1 - accuracy)
	gamma       = 1 + gammaMinus1
	lnGamma     = math.Log1p(gammaMinus1)
	invLnGamma  = 1 / lnGamma
)

// Sketch is a distribution in constant memory: mean, deviation, minimum and
// maximum are exact streaming values, percentiles come from logarithmic bins of
// relative accuracy 0.001. The zero Sketch is empty and ready. Values must be
// finite and >= 0.
type Sketch struct {
	n        int64
	mean, m2 float64 // running mean, sum of squared distances to it
	min, max float64
	zeros    int64
	bins     []int64 // [bin - base], counts
	base     int
	last     int     // index in bins of the latest value
	lo, hi   float64 // values strictly between surely fall in bin last
}

// Count is the number of values.
func (s *Sketch) Count() int64 { return s.n }

// Add collects n equal values; n <= 0 is nothing.
func (s *Sketch) Add(v float64, n int64) {
	if n <= 0 {
		return
	}
	s.moments(v, n)
	if v > s.lo && v < s.hi {
		s.bins[s.last] += n
		return
	}
	s.place(v, n)
}

// moments is Welford's update for one value, and for more the merge of a group of
// n equal values (spec replay-runtime 13, note 5).
func (s *Sketch) moments(v float64, n int64) {
	if s.n == 0 {
		s.n, s.mean, s.min, s.max = n, v, v, v
		return
	}
	s.min, s.max = min(s.min, v), max(s.max, v)
	before := float64(s.n)
	s.n += n
	d := v - s.mean
	if n == 1 {
		s.mean += d / float64(s.n)
		s.m2 += float64(d * (v - s.mean))
		return
	}
	share := float64(n) / float64(s.n)
	s.m2 += float64(float64(d*d) * float64(before*share))
	s.mean += float64(d * share)
}

// place counts v by its logarithm and moves the fast bounds to its bin.
func (s *Sketch) place(v float64, n int64) {
	if v < smallest {
		s.zeros += n
		return
	}
	k := int(math.Ceil(math.Log(v) * invLnGamma))
	s.last = s.index(k)
	s.bins[s.last] += n
	s.lo = math.Exp(float64(k-1)*lnGamma) * (1 + boundMargin)
	s.hi = math.Exp(float64(k)*lnGamma) * (1 - boundMargin)
}

// index returns where bin k is kept, making room with slack on the side it grows.
func (s *Sketch) index(k int) int {
	const slack = 64
	switch {
	case s.bins == nil:
		s.base = k - slack
		s.bins = make([]int64, 2*slack)
	case k < s.base:
		grown := s.base - k + slack + len(s.bins)/4
		bins := make([]int64, grown+len(s.bins))
		copy(bins[grown:], s.bins)
		s.bins, s.base = bins, s.base-grown
	case k >= s.base+len(s.bins):
		bins := make([]int64, k-s.base+1+slack+len(s.bins)/4)
		copy(bins, s.bins)
		s.bins = bins
	}
	return k - s.base
}

// Stats returns the nine figures. Percentiles are representatives of bins and may
// pass the exact minimum and maximum by 0.1 %.
func (s *Sketch) Stats() Stats {
	if s.n == 0 {
		return Stats{}
	}
	return Stats{Mean: s.mean, Min: s.min, Max: s.max, Median: s.percentile(50),
		P75: s.percentile(75), P90: s.percentile(90), P95: s.percentile(95),
		P99: s.percentile(99), Std: math.Sqrt(max(s.m2, 0) / float64(s.n))}
}

// percentile is spec report 3.2: nearest rank, turned into a quantile and back.
func (s *Sketch) percentile(p float64) float64 {
	if s.n == 1 {
		return s.max
	}
	span := float64(s.n - 1)
	q := 1.0
	if r := math.Round(span * p / 100); r < span {
		q = (r + 0.5) / span
	}
	rank := int64(math.Floor(q * span))
	seen := s.zeros
	if rank < seen {
		return 0
	}
	for i, c := range s.bins {
		if seen += c; rank < seen {
			return binValue(s.base + i)
		}
	}
	panic("metrics: sketch holds fewer values than it counted")
}

// binValue is the representative of bin k.
func binValue(k int) float64 {
	return exp(float64(k)*(1/invLnGamma)) * (2 / (1 + gamma))
}

// exp is e^x rounded once, on every platform: the library's last bit varies. The
// argument is halved 20 times, the series summed, the sum squared 20 times; 200
// bits leave far more than the 53 that are kept.
func exp(x float64) float64 {
	const prec, halvings, terms = 200, 20, 16
	y := new(big.Float).SetPrec(prec).SetFloat64(x)
	y.SetMantExp(y, -halvings)
	sum := new(big.Float).SetPrec(prec).SetInt64(1)
	for i := int64(terms); i > 0; i-- { // Horner: 1 + y/1 (1 + y/2 (1 + ...))
		sum.Mul(sum, y)
		sum.Quo(sum, new(big.Float).SetPrec(prec).SetInt64(i))
		sum.Add(sum, big.NewFloat(1))
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	v, _ := sum.Float64()
	return v
}
