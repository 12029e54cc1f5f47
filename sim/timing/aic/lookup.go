package aic

import (
	"math"
	"sort"
)

// solver gives the speed-of-light time in ms at coordinates of a table's axes; axes
// that the table does not have are 0.
type solver interface {
	sol(c0, c1, c2 float64) float64
}

// reach records how far outside the measured points a query was.
type reach struct {
	outside   bool
	doublings float64 // distance to the nearest measured point, in powers of two
}

func (r *reach) note(doublings float64) {
	r.outside = true
	if doublings > r.doublings {
		r.doublings = doublings
	}
}

// bracket finds c among ascending keys. exact: keys[i] == c. inside: keys[i] < c <
// keys[i+1]. Neither: c is outside.
func bracket(keys []float64, c float64) (i int, exact, inside bool) {
	lo, hi := 0, len(keys)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if keys[mid] < c {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(keys) {
		return 0, false, false
	}
	if keys[lo] == c {
		return lo, true, false
	}
	return lo - 1, false, lo > 0
}

// lerp blends a and b by w in the reference's order of operations.
func lerp(a, b, w float64) float64 { return a + float64((b-a)*w) }

// sqrtLerp blends on the square root, for sequence axes of prefill tables.
func sqrtLerp(a, b, w float64) float64 {
	ra, rb := math.Sqrt(a), math.Sqrt(b)
	r := ra + float64((rb-ra)*w)
	return r * r
}

// curve is a one-axis table: ascending keys and their ms. Outside it follows the
// speed of light from the nearest end (spec aic-perfmodel 4.1).
type curve struct {
	keys, ms []float64
}

func (s *slice) curve() curve { return curve{s.k2, s.ms} }

// at returns ms; s is asked with the axis as c2. A curve has at least one point.
func (c curve) at(x float64, s solver, r *reach) float64 {
	i, exact, inside := bracket(c.keys, x)
	switch {
	case exact:
		return c.ms[i]
	case inside:
		return lerp(c.ms[i], c.ms[i+1], (x-c.keys[i])/(c.keys[i+1]-c.keys[i]))
	}
	end := len(c.keys) - 1
	if x < c.keys[0] {
		end = 0
	}
	r.note(math.Abs(math.Log2(max(x, 1e-12)) - math.Log2(max(c.keys[end], 1e-12))))
	return s.sol(0, 0, x) / (s.sol(0, 0, c.keys[end]) / c.ms[end])
}

// grid is a nested table with its speed of light (spec aic-perfmodel 4.2).
type grid struct {
	*tree
	sol     solver
	sqrtSeq bool // blend level 1 on the square root
	// logs of the keys, for the search outside the table
	log0, log1, log2 []float64
}

func newGrid(t *tree, s solver, sqrtSeq bool) *grid {
	g := &grid{tree: t, sol: s, sqrtSeq: sqrtSeq, log0: logs(t.k0), log1: logs(t.k1), log2: logs(t.k2)}
	return g
}

func logs(keys []float64) []float64 {
	out := make([]float64, len(keys))
	for i, k := range keys {
		out[i] = math.Log2(max(k, 1e-12))
	}
	return out
}

// at returns ms and false when there is nothing to hold on to.
func (g *grid) at(c0, c1, c2 float64, r *reach) (float64, bool) {
	if v, ok := g.level0(c0, c1, c2); ok {
		return v, true
	}
	return g.hold(c0, c1, c2, r)
}

func (g *grid) level0(c0, c1, c2 float64) (float64, bool) {
	i, exact, inside := bracket(g.k0, c0)
	if exact {
		return g.level1(i, c0, c1, c2)
	}
	if !inside {
		return 0, false
	}
	a, okA := g.level1(i, c0, c1, c2)
	b, okB := g.level1(i+1, c0, c1, c2)
	lo, hi := g.k0[i], g.k0[i+1]
	switch {
	case okA && okB:
		return lerp(a, b, (c0-lo)/(hi-lo)), true
	case okA:
		return rescale(a, g.sol.sol(c0, c1, c2), g.sol.sol(lo, c1, c2)), true
	case okB:
		return rescale(b, g.sol.sol(c0, c1, c2), g.sol.sol(hi, c1, c2)), true
	}
	return 0, false
}

func (g *grid) level1(i int, c0, c1, c2 float64) (float64, bool) {
	from, to := g.off0[i], g.off0[i+1]
	j, exact, inside := bracket(g.k1[from:to], c1)
	j += int(from)
	if exact {
		return g.level2(j, c2)
	}
	if !inside {
		return 0, false
	}
	a, okA := g.level2(j, c2)
	b, okB := g.level2(j+1, c2)
	lo, hi := g.k1[j], g.k1[j+1]
	switch {
	case okA && okB && g.sqrtSeq:
		return sqrtLerp(a, b, (c1-lo)/(hi-lo)), true
	case okA && okB:
		return lerp(a, b, (c1-lo)/(hi-lo)), true
	case okA:
		return rescale(a, g.sol.sol(c0, c1, c2), g.sol.sol(c0, lo, c2)), true
	case okB:
		return rescale(b, g.sol.sol(c0, c1, c2), g.sol.sol(c0, hi, c2)), true
	}
	return 0, false
}

func (g *grid) level2(j int, c2 float64) (float64, bool) {
	from, to := g.off1[j], g.off1[j+1]
	l, exact, inside := bracket(g.k2[from:to], c2)
	l += int(from)
	if exact {
		return g.ms[l], true
	}
	if !inside {
		return 0, false
	}
	return lerp(g.ms[l], g.ms[l+1], (c2-g.k2[l])/(g.k2[l+1]-g.k2[l])), true
}

// rescale carries the one surviving branch along its axis by the speed of light.
func rescale(v, here, there float64) float64 {
	if here > 0 && there > 0 {
		return v * here / there
	}
	return v
}

// near is a leaf with its squared distance in powers of two.
type near struct {
	d2      float64
	i, j, l int32 // nodes of the three levels
}

// hold estimates outside the table from the four nearest leaves, all axes in powers
// of two (spec aic-perfmodel 4.2, step 3). Ties fall in sorted-key order.
func (g *grid) hold(c0, c1, c2 float64, r *reach) (float64, bool) {
	var best [5]near
	n := g.nearest(c0, c1, c2, &best)
	if n == 0 {
		return 0, false
	}
	r.note(math.Sqrt(best[0].d2))
	anchors, radius := n, math.Inf(1)
	if n == 5 {
		anchors, radius = 4, math.Sqrt(best[4].d2)
	}
	var weights [4]float64
	total := 0.0
	for i := range anchors {
		d := math.Sqrt(best[i].d2)
		if math.IsInf(radius, 1) {
			weights[i] = 1 / (float64(d*d) + 1e-12)
		} else {
			t := max(radius-d, 0) / (float64(radius*d) + 1e-12)
			weights[i] = t * t
		}
		total += weights[i]
	}
	if total <= 0 {
		total = 0
		for i := range anchors {
			weights[i] = 1
			total++
		}
	}
	sum := 0.0
	for i := range anchors {
		a := best[i]
		u := g.sol.sol(g.k0[a.i], g.k1[a.j], g.k2[a.l]) / g.ms[a.l]
		sum += float64(weights[i] * u)
	}
	return g.sol.sol(c0, c1, c2) / (sum / total), true
}

// nearest fills best with the nearest leaves that can anchor, nearest first, and
// returns how many. It looks at whole rows only while they can still contain one.
func (g *grid) nearest(c0, c1, c2 float64, best *[5]near) int {
	q0, q1, q2 := math.Log2(max(c0, 1e-12)), math.Log2(max(c1, 1e-12)), math.Log2(max(c2, 1e-12))
	n := 0
	for i := range g.k0 {
		e0 := g.log0[i] - q0
		e0 *= e0
		if n == 5 && e0 > best[4].d2 {
			continue
		}
		for j := g.off0[i]; j < g.off0[i+1]; j++ {
			e1 := g.log1[j] - q1
			e1 = e0 + float64(e1*e1)
			if n == 5 && e1 > best[4].d2 {
				continue
			}
			n = g.nearestInRow(int32(i), j, e1, c2, q2, best, n)
		}
	}
	return n
}

// nearestInRow offers the leaves of one row, walking away from the query on both
// sides until they are farther than the worst kept one.
func (g *grid) nearestInRow(i, j int32, e1, c2, q2 float64, best *[5]near, n int) int {
	from, to := int(g.off1[j]), int(g.off1[j+1])
	at := from + sort.SearchFloat64s(g.k2[from:to], c2)
	for l := at - 1; l >= from; l-- {
		var more bool
		if n, more = g.offer(i, j, l, e1, q2, best, n); !more {
			break
		}
	}
	for l := at; l < to; l++ {
		var more bool
		if n, more = g.offer(i, j, l, e1, q2, best, n); !more {
			break
		}
	}
	return n
}

// offer inserts a leaf in order of distance, then of leaf position; more is false
// when every leaf beyond it is too far.
func (g *grid) offer(i, j int32, l int, e1, q2 float64, best *[5]near, n int) (int, bool) {
	e := g.log2[l] - q2
	d2 := e1 + float64(e*e)
	if n == 5 && d2 > best[4].d2 {
		return n, false
	}
	if !(g.ms[l] > 0) || !(g.sol.sol(g.k0[i], g.k1[j], g.k2[l]) > 0) {
		return n, true
	}
	leaf := near{d2, i, j, int32(l)}
	at := n
	if n == 5 {
		if d2 == best[4].d2 && leaf.l > best[4].l {
			return n, true
		}
		at = 4
	} else {
		n++
	}
	for at > 0 && (best[at-1].d2 > d2 || best[at-1].d2 == d2 && best[at-1].l > leaf.l) {
		best[at] = best[at-1]
		at--
	}
	best[at] = leaf
	return n, true
}
