package aic

import (
	"cmp"
	"slices"
	"sort"
)

// sliceKey identifies a slice of a table: words as ids into table.words, numbers
// as they are, in the order that the table's loader gives them; unused places are 0.
type sliceKey [9]int32

// table holds one measured table, sources merged, the first row of a key winning
// (spec aic-perfmodel 3.3). It never changes after loading.
type table struct {
	words  []string
	slices []slice // first-seen order; for GEMM the site order of spec aic-perfmodel 4.3
	index  map[sliceKey]int32
}

// slice is a tree of measured points that share a key.
type slice struct {
	key sliceKey
	tree
}

// tree has three levels of ascending keys, outermost first; a table with fewer axes
// has the single key 0 on the outer ones. Node i of a level owns the keys
// off[i]..off[i+1] of the next.
type tree struct {
	k0   []float64
	off0 []int32 // [node of level 0 + 1]
	k1   []float64
	off1 []int32 // [node of level 1 + 1]
	k2   []float64
	ms   []float64 // [leaf], ms
	own  []bool    // [leaf], measured at the requested version rather than filled in
}

// word returns the id of a word, -1 if the table does not have it.
func (t *table) word(w string) int32 {
	return int32(slices.Index(t.words, w))
}

// find returns the slice with a key, nil if there is none.
func (t *table) find(key sliceKey) *slice {
	if i, ok := t.index[key]; ok {
		return &t.slices[i]
	}
	return nil
}

func (t *table) reindex() {
	t.index = make(map[sliceKey]int32, len(t.slices))
	for i := range t.slices {
		t.index[t.slices[i].key] = int32(i)
	}
}

// ownOnly returns the table reduced to rows of the requested version.
func (t *table) ownOnly() *table {
	b := newBuilder()
	b.words = slices.Clone(t.words)
	for i := range t.slices {
		s := &t.slices[i]
		s.walk(func(a0, a1, a2, ms float64, own bool) {
			if own {
				b.add(s.key, a0, a1, a2, ms, true)
			}
		})
	}
	return b.finish()
}

// walk calls f for every leaf in sorted-key order.
func (t *tree) walk(f func(a0, a1, a2, ms float64, own bool)) {
	for i, a0 := range t.k0 {
		for j := t.off0[i]; j < t.off0[i+1]; j++ {
			for l := t.off1[j]; l < t.off1[j+1]; l++ {
				f(a0, t.k1[j], t.k2[l], t.ms[l], t.own[l])
			}
		}
	}
}

type point struct {
	a   [3]float64
	ms  float64
	own bool
}

// builder collects rows in source order.
type builder struct {
	words  []string
	ids    map[string]int32
	index  map[sliceKey]int32
	keys   []sliceKey
	points [][]point // [slice][row]
}

func newBuilder() *builder {
	return &builder{ids: map[string]int32{}, index: map[sliceKey]int32{}}
}

// word interns a word.
func (b *builder) word(w string) int32 {
	if id, ok := b.ids[w]; ok {
		return id
	}
	id := int32(len(b.words))
	b.words = append(b.words, w)
	b.ids[w] = id
	return id
}

func (b *builder) add(key sliceKey, a0, a1, a2, ms float64, own bool) {
	i, ok := b.index[key]
	if !ok {
		i = int32(len(b.keys))
		b.index[key] = i
		b.keys = append(b.keys, key)
		b.points = append(b.points, nil)
	}
	b.points[i] = append(b.points[i], point{[3]float64{a0, a1, a2}, ms, own})
}

// finish sorts the points of every slice, keeps the first row of each key and
// returns the table.
func (b *builder) finish() *table {
	t := &table{words: b.words, slices: make([]slice, len(b.keys))}
	for i, key := range b.keys {
		t.slices[i] = slice{key, buildTree(b.points[i])}
	}
	t.reindex()
	return t
}

func buildTree(ps []point) tree {
	slices.SortStableFunc(ps, func(x, y point) int {
		for i := range x.a {
			if c := cmp.Compare(x.a[i], y.a[i]); c != 0 {
				return c
			}
		}
		return 0
	})
	var t tree
	var last [3]float64
	for i, p := range ps {
		if i > 0 && p.a == last {
			continue
		}
		new0 := i == 0 || p.a[0] != last[0]
		if new0 {
			t.k0 = append(t.k0, p.a[0])
			t.off0 = append(t.off0, int32(len(t.k1)))
		}
		if new0 || p.a[1] != last[1] {
			t.k1 = append(t.k1, p.a[1])
			t.off1 = append(t.off1, int32(len(t.k2)))
		}
		t.k2 = append(t.k2, p.a[2])
		t.ms = append(t.ms, p.ms)
		t.own = append(t.own, p.own)
		last = p.a
	}
	t.off0 = append(t.off0, int32(len(t.k1)))
	t.off1 = append(t.off1, int32(len(t.k2)))
	return t
}

// siteOrder sorts the slices of a GEMM table by the first-seen order of the nested
// insertion m, n, k inside each data type, which decides ties between mirrored
// shapes (spec aic-perfmodel 4.3). rows are in source order.
func (t *table) siteOrder(rows []gemmRow) {
	type pair struct{ dtype, m, n int64 }
	firstM, firstMN := map[[2]int64]int{}, map[pair]int{}
	rank := make(map[sliceKey][3]int, len(t.slices))
	for i, r := range rows {
		m, mn := [2]int64{int64(r.key[0]), r.m}, pair{int64(r.key[0]), r.m, int64(r.key[1])}
		if _, ok := firstM[m]; !ok {
			firstM[m] = i
		}
		if _, ok := firstMN[mn]; !ok {
			firstMN[mn] = i
		}
		at := [3]int{firstM[m], firstMN[mn], i}
		if old, ok := rank[r.key]; !ok || less3(at, old) {
			rank[r.key] = at
		}
	}
	sort.SliceStable(t.slices, func(i, j int) bool {
		a, b := &t.slices[i], &t.slices[j]
		if a.key[0] != b.key[0] {
			return a.key[0] < b.key[0]
		}
		return less3(rank[a.key], rank[b.key])
	})
	t.reindex()
}

func less3(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

type gemmRow struct {
	key sliceKey
	m   int64
}
