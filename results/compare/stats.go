package compare

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence is the level of every interval.
const Confidence = 0.95

// Estimate is a figure over seeds: its mean, and Student's interval of the mean,
// which assumes that seeds are independent and their figures about normal. With one
// seed there is no interval. The zero Estimate is no figure.
type Estimate struct {
	Mean, Low, High float64
	N               int
}

// EstimateOf is the estimate of a mean.
func EstimateOf(vs []float64) Estimate {
	switch len(vs) {
	case 0:
		return Estimate{}
	case 1:
		return Estimate{Mean: vs[0], N: 1}
	}
	mean, std := stat.MeanStdDev(vs, nil)
	half := student(float64(len(vs)-1)) * std / math.Sqrt(float64(len(vs)))
	return Estimate{mean, mean - half, mean + half, len(vs)}
}

// OK reports whether there is a figure.
func (e Estimate) OK() bool { return e.N > 0 }

// Interval reports whether Low and High mean anything.
func (e Estimate) Interval() bool { return e.N > 1 }

// Half is half the width of the interval, 0 without one.
func (e Estimate) Half() float64 {
	if !e.Interval() {
		return 0
	}
	return e.High - e.Mean
}

// student is the quantile of the t distribution for a two-sided interval.
func student(freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile((1 + Confidence) / 2)
}

// Sample is a figure by seed. Seeds is empty where nothing is drawn, else as long as
// Values.
type Sample struct {
	Seeds  []int64
	Values []float64
}

// Method says how the interval of a difference was made.
type Method uint8

const (
	SingleRun Method = iota // one run on a side: no test is possible
	Equal                   // every run of both sides has the same figure, or every pair
	Paired                  // Student's interval of the differences seed by seed
	Bootstrap               // percentiles of the resampled mean of these differences
	Welch                   // different seeds: Student's interval with Welch's freedom
)

// minBootstrap is the number of pairs from which the bootstrap is used: with fewer
// there are too few distinct resamples, and its interval is too narrow.
const minBootstrap = 10

// resamples of a bootstrap, drawn from a fixed stream.
const resamples = 10000

func (m Method) String() string {
	return [...]string{"single run", "equal", "paired by seed, Student", "paired by seed, bootstrap", "Welch"}[m]
}

// Difference is B - A.
type Difference struct {
	A, B, Abs Estimate // Abs: mean of the difference and its interval
	Method    Method
}

// Compare is the difference of two figures. Runs of the same seed share what is
// drawn, so that pairs tell more than the two means: with two common seeds or more
// the differences are taken seed by seed, by Student's interval up to nine pairs and
// by the bootstrap from ten; otherwise Welch's interval is used.
func Compare(a, b Sample) Difference {
	d := Difference{A: EstimateOf(a.Values), B: EstimateOf(b.Values)}
	if !d.A.OK() || !d.B.OK() {
		return d
	}
	if same(a.Values, b.Values) {
		d.Abs, d.Method = Estimate{N: min(d.A.N, d.B.N)}, Equal
		return d
	}
	if pairs := paired(a, b); len(pairs) >= 2 {
		if same(pairs, []float64{0}) {
			d.Abs, d.Method = Estimate{N: len(pairs)}, Equal
			return d
		}
		d.Abs, d.Method = EstimateOf(pairs), Paired
		if len(pairs) >= minBootstrap {
			d.Abs.Low, d.Abs.High, d.Method = bootstrap(pairs)
		}
		return d
	}
	d.Abs = Estimate{Mean: d.B.Mean - d.A.Mean, N: 1}
	if d.A.N < 2 || d.B.N < 2 {
		return d
	}
	va, vb := stat.Variance(a.Values, nil)/float64(d.A.N), stat.Variance(b.Values, nil)/float64(d.B.N)
	if va+vb == 0 {
		d.Abs.Low, d.Abs.High = d.Abs.Mean, d.Abs.Mean
	} else {
		freedom := (va + vb) * (va + vb) / (va*va/float64(d.A.N-1) + vb*vb/float64(d.B.N-1))
		half := student(freedom) * math.Sqrt(va+vb)
		d.Abs.Low, d.Abs.High = d.Abs.Mean-half, d.Abs.Mean+half
	}
	d.Abs.N, d.Method = min(d.A.N, d.B.N), Welch
	return d
}

func same(a, b []float64) bool {
	for _, v := range append(slices.Clone(a), b...) {
		if v != a[0] {
			return false
		}
	}
	return true
}

// paired is the differences of the common seeds, in the order of a.
func paired(a, b Sample) (out []float64) {
	for i, s := range a.Seeds {
		if j := slices.Index(b.Seeds, s); j >= 0 {
			out = append(out, b.Values[j]-a.Values[i])
		}
	}
	return out
}

func bootstrap(vs []float64) (low, high float64, m Method) {
	r := rand.New(rand.NewPCG(0x5eed, uint64(len(vs))))
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range vs {
			sum += vs[r.IntN(len(vs))]
		}
		means[i] = sum / float64(len(vs))
	}
	slices.Sort(means)
	const tail = (1 - Confidence) / 2
	return stat.Quantile(tail, stat.Empirical, means, nil), stat.Quantile(1-tail, stat.Empirical, means, nil), Bootstrap
}

// Noise reports whether the difference is within the noise: its interval holds 0.
func (d *Difference) Noise() bool {
	return d.Method >= Paired && d.Abs.Low <= 0 && 0 <= d.Abs.High
}

// Relative is the difference as a share of A; NaN if A is 0 or missing.
func (d *Difference) Relative() float64 {
	if !d.A.OK() || !d.B.OK() || d.A.Mean == 0 {
		return math.NaN()
	}
	return d.Abs.Mean / math.Abs(d.A.Mean)
}

// Mark is the difference as people read it: "~" within the noise, "=" without a
// difference, else signed percent, with the interval where there is one.
func (d *Difference) Mark() string {
	rel := d.Relative()
	switch {
	case !d.A.OK() || !d.B.OK():
		return "-"
	case d.Method == Equal:
		return "="
	case d.Noise():
		return "~"
	case math.IsNaN(rel):
		return Number(d.Abs.Mean) + " (from 0)"
	case d.Method == SingleRun:
		return Change(rel)
	}
	base := math.Abs(d.A.Mean)
	return Change(rel) + " [" + signed(d.Abs.Low/base) + ", " + signed(d.Abs.High/base) + "]"
}
