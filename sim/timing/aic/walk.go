package aic

import "math"

// walker reads a decode table at five lengths that move slowly, for one batch. Each
// length keeps its segment of each row, and outside the table its nearest leaves, so
// a run of passes does not search. It gives the bits of grid.at, whose arithmetic it
// repeats.
type walker struct {
	heads, batch float64
	rows         [2]rowCursor
	n            int     // rows in use; 0 when the grid has to be asked
	w            float64 // weight of the second row
	last         float64 // beyond this length the table ends; +Inf where that is not known
	rings        [5]ring
}

// rowCursor is a row of leaves with the current segment of each length.
type rowCursor struct {
	from, to int32
	seg      [5]segment
}

// segment is linear between two keys: low <= c < high.
type segment struct {
	low, high, ms, rise, span float64
}

// newWalker picks the rows for a batch: one measured row, or the two around it.
func newWalker(g *grid, heads, batch float64) *walker {
	w := &walker{heads: heads, batch: batch, last: math.Inf(1)}
	i, exact, _ := bracket(g.k0, heads)
	if !exact {
		return w
	}
	from, to := g.off0[i], g.off0[i+1]
	j, exact, inside := bracket(g.k1[from:to], batch)
	j += int(from)
	switch {
	case exact:
		w.n = 1
	case inside:
		w.n = 2
		w.w = (batch - g.k1[j]) / (g.k1[j+1] - g.k1[j])
	default:
		w.last = 0
		return w
	}
	w.last = 0
	for r := range w.n {
		w.rows[r].from, w.rows[r].to = g.off1[j+r], g.off1[j+r+1]
		w.last = max(w.last, g.k2[w.rows[r].to-1])
	}
	return w
}

// at returns ms at length c, which is the i-th of the five; false when a row does not
// reach there.
func (w *walker) at(g *grid, i int, c float64) (float64, bool) {
	if w.n == 0 {
		return 0, false
	}
	s := &w.rows[0].seg[i]
	if !(s.low <= c && c < s.high) && !w.rows[0].seek(g, i, c) {
		return 0, false
	}
	a := s.ms + float64(s.rise*((c-s.low)/s.span))
	if w.n == 1 {
		return a, true
	}
	s = &w.rows[1].seg[i]
	if !(s.low <= c && c < s.high) && !w.rows[1].seek(g, i, c) {
		return 0, false
	}
	b := s.ms + float64(s.rise*((c-s.low)/s.span))
	return lerp(a, b, w.w), true
}

// seek finds the segment of a length; false outside the row.
func (r *rowCursor) seek(g *grid, i int, c float64) bool {
	keys := g.k2[r.from:r.to]
	l, exact, inside := bracket(keys, c)
	ms := g.ms[r.from:r.to]
	switch {
	case inside, exact && l+1 < len(keys):
		r.seg[i] = segment{keys[l], keys[l+1], ms[l], ms[l+1] - ms[l], keys[l+1] - keys[l]}
	case exact: // the last key; lengths are whole
		r.seg[i] = segment{c, c + 1, ms[l], 0, 1}
	default:
		return false
	}
	return true
}

// ring is the set of the five leaves nearest to a length, and the lengths, as powers
// of two, over which no other leaf comes nearer than any of them.
type ring struct {
	low, high float64 // low <= log2 of the length <= high
	best      [5]near
	rowD2     [5]float64 // squared distance of the leaf on the outer two axes
}

// ringSpan bounds how far a ring is followed, in powers of two. Distances change at
// most by it, so only leaves within twice of it can come into question.
const ringSpan = 0.08

// outside returns ms where a row does not reach.
func (w *walker) outside(g *grid, i int, c float64, r *reach) (float64, bool) {
	if !(c > w.last) {
		return g.at(w.heads, w.batch, c, r)
	}
	q := math.Log2(c)
	k := &w.rings[i]
	if !(k.low <= q && q <= k.high) || k.high == 0 {
		if !k.survey(g, w.heads, w.batch, c) {
			return g.hold(w.heads, w.batch, c, r)
		}
	}
	var best [5]near
	for n, a := range k.best {
		e := g.out.at2[a.leaf] - q
		a.d2 = k.rowD2[n] + float64(e*e)
		at := n
		for at > 0 && (best[at-1].d2 > a.d2 || best[at-1].d2 == a.d2 && best[at-1].rank > a.rank) {
			best[at] = best[at-1]
			at--
		}
		best[at] = a
	}
	return g.fromAnchors(best[:], w.heads, w.batch, c, r), true
}

// survey finds the nearest leaves and how long they stay so; false when there are
// fewer than five or others are as near.
func (k *ring) survey(g *grid, heads, batch, c float64) bool {
	p := g.outside()
	k.high = 0
	q0, q1, q := math.Log2(heads), math.Log2(batch), math.Log2(c)
	s := search{want: 5}
	if s.run(p, q0, q1, q); s.n < s.want {
		return false
	}
	k.best = s.best
	bound := math.Sqrt(s.best[4].d2) + 2*ringSpan
	bound *= bound
	low, high := q-ringSpan, q+ringSpan
	for i := range p.at0 {
		e0 := p.at0[i] - q0
		e0 *= e0
		if e0 > bound {
			continue
		}
		for j := p.off0[i]; j < p.off0[i+1]; j++ {
			e1 := p.at1[j] - q1
			e1 = e0 + float64(e1*e1)
			if e1 <= bound {
				low, high = k.narrow(p, int(j), e1, q, bound, low, high)
			}
		}
	}
	if !(low <= q && q <= high) {
		return false
	}
	k.low, k.high = low, high
	return true
}

// narrow cuts the span where a leaf of a row comes as near as a member of the ring.
// The difference of two squared distances is linear in the length's power of two.
func (k *ring) narrow(p *space, j int, e1, q, bound, low, high float64) (float64, float64) {
	const margin = 1e-7 // far above the rounding of either distance
	for l := int(p.off1[j]); l < int(p.off1[j+1]); l++ {
		x := p.at2[l]
		if e1+float64((x-q)*(x-q)) > bound || p.util[l] == 0 {
			continue
		}
		if n := k.member(l); n >= 0 {
			k.rowD2[n] = e1
			continue
		}
		for _, m := range k.best {
			y := p.at2[m.leaf]
			ahead := e1 + float64((x-q)*(x-q)) - m.d2 // how much farther than the member
			slope := 2 * (x - y)                      // by which that shrinks per power of two
			switch {
			case ahead < margin:
				return 1, 0
			case slope > 0:
				high = min(high, q+ahead/slope-margin)
			case slope < 0:
				low = max(low, q+ahead/slope+margin)
			}
		}
	}
	return low, high
}

func (k *ring) member(leaf int) int {
	for n, m := range k.best {
		if int(m.leaf) == leaf {
			return n
		}
	}
	return -1
}
