package trace

import (
	"math"
	"math/bits"
)

// lengths is a histogram of non-negative integers: one bin a value below 2^16, then
// 2^15 bins an octave.
type lengths struct {
	counts   []int64
	n, sum   int64
	min, max int64
}

func lengthBin(v int64) int {
	if v < 1<<16 {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - 16
	return 1<<16 + (shift-1)<<15 + int(v>>shift) - 1<<15
}

// lengthOf returns the smallest length of a bin.
func lengthOf(bin int) int64 {
	if bin < 1<<16 {
		return int64(bin)
	}
	bin -= 1 << 16
	return int64(bin&(1<<15-1)+1<<15) << (bin>>15 + 1)
}

func (d *lengths) add(v int64) {
	bin := lengthBin(v)
	if bin >= len(d.counts) {
		d.counts = append(d.counts, make([]int64, bin+1-len(d.counts))...)
	}
	d.counts[bin]++
	if d.n == 0 || v < d.min {
		d.min = v
	}
	d.max = max(d.max, v)
	d.n++
	d.sum += v
}

func (d *lengths) quantiles() Quantiles {
	if d.n == 0 {
		return Quantiles{}
	}
	q := Quantiles{Mean: float64(d.sum) / float64(d.n), Min: d.min, Max: d.max}
	for _, p := range [...]struct {
		percent int64
		to      *int64
	}{{50, &q.P50}, {75, &q.P75}, {90, &q.P90}, {95, &q.P95}, {99, &q.P99}} {
		rank := (d.n*p.percent + 99) / 100 // nearest rank, from 1
		seen := int64(0)
		for bin, count := range d.counts {
			if seen += count; seen >= rank {
				*p.to = min(max(lengthOf(bin), d.min), d.max)
				break
			}
		}
	}
	return q
}

// rateCurve counts arrivals in at most rateBins stretches of equal width, which
// doubles as the trace goes on. Bin k starts k widths after the first row's time.
type rateCurve struct {
	n           int64
	origin      float64 // ms, of the first row
	first, last float64 // ms, smallest and largest
	width       float64 // ms
	base        int64   // number of bins[0]
	bins        []int64
}

const rateBins = 60

func (c *rateCurve) add(atMs float64) {
	if c.n == 0 {
		c.width, c.origin, c.first, c.last = 1000, atMs, atMs, atMs
	}
	c.n++
	c.first, c.last = min(c.first, atMs), max(c.last, atMs)
	away := max(min(atMs-c.origin, math.MaxFloat64), -math.MaxFloat64)
	for math.Abs(away)/c.width > 1<<52 || !c.fits(int64(math.Floor(away/c.width))) {
		c.coarsen()
	}
	c.bins[int64(math.Floor(away/c.width))-c.base]++
}

// fits makes room for a bin, unless that took too many.
func (c *rateCurve) fits(bin int64) bool {
	if len(c.bins) == 0 {
		c.base = bin
	}
	lo, hi := min(c.base, bin), max(c.base+int64(len(c.bins)), bin+1)
	if hi-lo > rateBins {
		return false
	}
	if hi-lo > int64(len(c.bins)) {
		bins := make([]int64, hi-lo)
		copy(bins[c.base-lo:], c.bins)
		c.base, c.bins = lo, bins
	}
	return true
}

// coarsen doubles the width.
func (c *rateCurve) coarsen() {
	c.width *= 2
	base := c.base >> 1
	var bins []int64
	for i, n := range c.bins {
		k := int((c.base+int64(i))>>1 - base)
		for len(bins) <= k {
			bins = append(bins, 0)
		}
		bins[k] += n
	}
	c.base, c.bins = base, bins
}

// fill writes duration, rate and curve.
func (c *rateCurve) fill(st *Stats) {
	if c.n == 0 {
		return
	}
	st.DurationMs = min(c.last-c.first, math.MaxFloat64)
	if st.DurationMs > 0 {
		st.RatePerS = min(float64(c.n)/st.DurationMs*1000, math.MaxFloat64)
	}
	for i, n := range c.bins {
		startMs := float64(float64(c.base+int64(i))*c.width) + min(c.origin-c.first, math.MaxFloat64)
		st.Arrivals = append(st.Arrivals, RatePoint{StartMs: startMs, WidthMs: c.width, Requests: n, RatePerS: float64(n) / c.width * 1000})
	}
}
