package aic

import "math"

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
	lo := firstFrom(keys, c)
	if lo == len(keys) {
		return 0, false, false
	}
	if keys[lo] == c {
		return lo, true, false
	}
	return lo - 1, false, lo > 0
}

// firstFrom returns the index of the first of ascending keys that is not below c.
func firstFrom(keys []float64, c float64) int {
	lo, hi := 0, len(keys)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if keys[mid] < c {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
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
	r.note(math.Abs(doublings(x) - doublings(c.keys[end])))
	return s.sol(0, 0, x) / (s.sol(0, 0, c.keys[end]) / c.ms[end])
}

// grid is a nested table with its speed of light (spec aic-perfmodel 4.2).
type grid struct {
	*tree
	sol     solver
	sqrtSeq bool   // blend level 1 on the square root
	out     *space // in powers of two, for the search outside the table; made at the first one
}

func newGrid(t *tree, s solver, sqrtSeq bool) *grid {
	return &grid{tree: t, sol: s, sqrtSeq: sqrtSeq}
}

// outside returns the space of the search outside the table.
func (g *grid) outside() *space {
	if g.out == nil {
		g.out = newSpace(g.tree, g.sol, doublings)
	}
	return g.out
}

// doublings is a key on the scale of the search outside a table.
func doublings(key float64) float64 { return math.Log2(max(key, 1e-12)) }

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

// hold estimates outside the table from the four nearest leaves, all axes in powers
// of two (spec aic-perfmodel 4.2, step 3). Ties fall in sorted-key order.
func (g *grid) hold(c0, c1, c2 float64, r *reach) (float64, bool) {
	s := search{want: 5}
	if s.run(g.outside(), doublings(c0), doublings(c1), doublings(c2)); s.n == 0 {
		return 0, false
	}
	return g.fromAnchors(s.best[:s.n], c0, c1, c2, r), true
}

// fromAnchors weighs at least one leaf, nearest first; a fifth only bounds the radius.
func (g *grid) fromAnchors(best []near, c0, c1, c2 float64, r *reach) float64 {
	r.note(math.Sqrt(best[0].d2))
	util := g.out.util
	radius := math.Inf(1)
	if len(best) == 5 {
		radius = math.Sqrt(best[4].d2)
		best = best[:4]
	}
	sum, total := 0.0, 0.0
	for _, a := range best {
		d := math.Sqrt(a.d2)
		w := 0.0
		if math.IsInf(radius, 1) {
			w = 1 / (float64(d*d) + 1e-12)
		} else {
			t := max(radius-d, 0) / (float64(radius*d) + 1e-12)
			w = t * t
		}
		sum += float64(w * util[a.leaf])
		total += w
	}
	if total <= 0 {
		sum, total = 0, float64(len(best))
		for _, a := range best {
			sum += util[a.leaf]
		}
	}
	return g.sol.sol(c0, c1, c2) / (sum / total)
}
