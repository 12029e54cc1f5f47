package planner

import "math"

// history is a series as models of one order see it. It grows with the series, so
// that an update costs no pass over the past unless the order has MA terms.
type history struct {
	order order
	y     []float64
	w     []float64 // y differenced order.d times
	sums  lagSums   // of w; only without MA terms
}

func newHistory(y []float64, o order) *history {
	h := &history{order: o}
	if o.q == 0 {
		h.sums = newLagSums(o.p)
	}
	h.extend(y)
	return h
}

// extend takes the values behind those that it has, which y begins with.
func (h *history) extend(y []float64) {
	h.y = y
	for t := len(h.w) + h.order.d; t < len(y); t++ {
		h.w = append(h.w, differenceAt(y, t, h.order.d))
		if h.order.q == 0 {
			h.sums.add(h.w)
		}
	}
}

// undo turns the next difference into the next value.
func (h *history) undo(next float64) float64 {
	for d := h.order.d - 1; d >= 0; d-- {
		next += differenceAt(h.y, len(h.y)-1, d)
	}
	return next
}

func differenceAt(y []float64, t, d int) float64 {
	if d == 0 {
		return y[t]
	}
	return differenceAt(y, t, d-1) - differenceAt(y, t-1, d-1)
}

func difference(y []float64, d int) []float64 {
	out := make([]float64, 0, len(y))
	for t := d; t < len(y); t++ {
		out = append(out, differenceAt(y, t, d))
	}
	return out
}

// lagSums are the sums of w(t-i) and of w(t-i)·w(t-j), i and j from 0 to p, over all
// t with p values before it. What is left of them as squared residuals may be a
// small part, hence sums of twice the precision.
type lagSums struct {
	n        float64
	one, two []wide // [i], [i(i+1)/2 + j] for j <= i
}

func newLagSums(p int) lagSums {
	return lagSums{one: make([]wide, p+1), two: make([]wide, (p+1)*(p+2)/2)}
}

// add counts the last value of w in.
func (s *lagSums) add(w []float64) {
	last := len(w) - 1
	if last < len(s.one)-1 {
		return
	}
	s.n++
	k := 0
	for i := range s.one {
		s.one[i] = s.one[i].plus(wide{hi: w[last-i]})
		for j := range i + 1 {
			s.two[k] = s.two[k].plus(wide{hi: w[last-i]}.times(w[last-j]))
			k++
		}
	}
}

// squares is the sum of (w(t) - c - Σ ar[i-1] w(t-i))².
func (s *lagSums) squares(c float64, ar []float64) float64 {
	weight := func(i int) float64 {
		if i == 0 {
			return 1
		}
		return -ar[i-1]
	}
	sum := wide{hi: s.n}.times(c).times(c)
	k := 0
	for i := range s.one {
		sum = sum.plus(s.one[i].times(weight(i)).times(-2 * c))
		for j := range i + 1 {
			both := s.two[k].times(weight(i)).times(weight(j))
			if j < i {
				both = both.times(2)
			}
			sum = sum.plus(both)
			k++
		}
	}
	return sum.hi
}

// wide is an unevaluated sum of two floats (Dekker 1971).
type wide struct{ hi, lo float64 }

func (a wide) plus(b wide) wide {
	s := a.hi + b.hi
	t := s - a.hi
	e := (a.hi - (s - t)) + (b.hi - t) + (a.lo + b.lo)
	hi := s + e
	return wide{hi, e - (hi - s)}
}

func (a wide) times(b float64) wide {
	p := float64(a.hi * b)
	e := math.FMA(a.hi, b, -p) + float64(a.lo*b)
	hi := p + e
	return wide{hi, e - (hi - p)}
}
