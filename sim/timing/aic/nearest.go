package aic

// space is a tree whose leaves lie on the axes of a search, and how well each leaf
// uses the hardware.
type space struct {
	off0, off1    []int32   // as in the tree
	at0, at1, at2 []float64 // coordinates of the keys of each level, ascending like them
	util          []float64 // [leaf], speed of light over measured time; 0 where the leaf does not count
	rank          []int32   // [leaf], which of two leaves as near comes first; nil: the first in the tree
}

// newSpace places a tree by a scale that rises with the keys.
func newSpace(t *tree, s solver, scale func(key float64) float64) *space {
	along := func(keys []float64) []float64 {
		out := make([]float64, len(keys))
		for i, k := range keys {
			out[i] = scale(k)
		}
		return out
	}
	p := &space{t.off0, t.off1, along(t.k0), along(t.k1), along(t.k2), make([]float64, 0, len(t.k2)), nil}
	t.walk(func(a0, a1, a2, ms float64, _ bool) {
		u := 0.0
		if bound := s.sol(a0, a1, a2); bound > 0 && ms > 0 {
			u = bound / ms
		}
		p.util = append(p.util, u)
	})
	return p
}

// near is a leaf with its squared distance and its rank among leaves as near.
type near struct {
	d2         float64
	leaf, rank int32
}

// search collects the leaves nearest to a point, nearest first, ties by rank.
type search struct {
	best       [5]near
	n          int // found
	want       int // at most 5
	p          *space
	q0, q1, q2 float64
}

// run visits the nodes of each level outwards from the point, so that the bound is
// tight early and whole rows fall away.
func (s *search) run(p *space, q0, q1, q2 float64) {
	s.p, s.q0, s.q1, s.q2 = p, q0, q1, q2
	at := firstFrom(p.at0, q0)
	for i := at; i < len(p.at0) && s.node(i); i++ {
	}
	for i := at - 1; i >= 0 && s.node(i); i-- {
	}
}

// node searches below an outer node; false when it and all beyond are too far.
func (s *search) node(i int) bool {
	p := s.p
	e := p.at0[i] - s.q0
	e *= e
	if s.tooFar(e) {
		return false
	}
	from, to := int(p.off0[i]), int(p.off0[i+1])
	at := from + firstFrom(p.at1[from:to], s.q1)
	for j := at; j < to && s.row(j, e); j++ {
	}
	for j := at - 1; j >= from && s.row(j, e); j-- {
	}
	return true
}

// row searches one row of leaves; false when it and all beyond are too far.
func (s *search) row(j int, e0 float64) bool {
	p := s.p
	e := p.at1[j] - s.q1
	e = e0 + float64(e*e)
	if s.tooFar(e) {
		return false
	}
	from, to := int(p.off1[j]), int(p.off1[j+1])
	at := to // outside a table the point mostly lies beyond the longest length
	if p.at2[to-1] >= s.q2 {
		at = from + firstFrom(p.at2[from:to], s.q2)
	}
	for l := at - 1; l >= from && s.offer(l, e); l-- {
	}
	for l := at; l < to && s.offer(l, e); l++ {
	}
	return true
}

func (s *search) tooFar(d2 float64) bool { return s.n == s.want && d2 > s.best[s.want-1].d2 }

// offer inserts a leaf in order of distance, then of rank; false when it and all
// beyond are too far.
func (s *search) offer(l int, e1 float64) bool {
	e := s.p.at2[l] - s.q2
	d2 := e1 + float64(e*e)
	if s.tooFar(d2) {
		return false
	}
	if s.p.util[l] == 0 {
		return true
	}
	rank := int32(l)
	if s.p.rank != nil {
		rank = s.p.rank[l]
	}
	at := s.n
	if s.n == s.want {
		at = s.want - 1
		if d2 == s.best[at].d2 && rank > s.best[at].rank {
			return true
		}
	} else {
		s.n++
	}
	for at > 0 && (s.best[at-1].d2 > d2 || s.best[at-1].d2 == d2 && s.best[at-1].rank > rank) {
		s.best[at] = s.best[at-1]
		at--
	}
	s.best[at] = near{d2, int32(l), rank}
	return true
}
