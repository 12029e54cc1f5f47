package metrics

import (
	"math"
	"slices"
)

// Stats are the nine figures of a distribution, in the unit of its values; all 0
// for an empty one. Std is the population deviation.
type Stats struct {
	Mean   float64 `json:"mean"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Median float64 `json:"median"`
	P75    float64 `json:"p75"`
	P90    float64 `json:"p90"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	Std    float64 `json:"std"`
}

// Exact keeps every value: 8 bytes each. The zero Exact is empty and ready.
type Exact struct {
	values []float64 // in collection order until Stats sorts them
	sum    float64   // in collection order
	stats  Stats
	fresh  bool // stats describe values, which are sorted
}

// Add collects one value.
func (d *Exact) Add(v float64) {
	d.values = append(d.values, v)
	d.sum += v
	d.fresh = false
}

// Len is the number of values.
func (d *Exact) Len() int { return len(d.values) }

// Stats returns the nine figures (spec report 3.1). It sorts the values in place,
// so that a deviation taken after further Adds sums them in another order.
func (d *Exact) Stats() Stats {
	n := len(d.values)
	if d.fresh || n == 0 {
		return d.stats
	}
	mean := d.sum / float64(n)
	squares := 0.0
	for _, v := range d.values {
		squares += float64((v - mean) * (v - mean))
	}
	slices.Sort(d.values)
	at := func(p float64) float64 { return d.values[nearestRank(n, p)] }
	d.stats = Stats{Mean: mean, Min: d.values[0], Max: d.values[n-1], Median: at(50),
		P75: at(75), P90: at(90), P95: at(95), P99: at(99), Std: math.Sqrt(squares / float64(n))}
	d.fresh = true
	return d.stats
}

// nearestRank is the 0-based index of percentile p among n ordered values:
// (n-1)*p/100 rounded half away from zero.
func nearestRank(n int, p float64) int {
	return min(int(math.Round(float64(n-1)*p/100)), n-1)
}
