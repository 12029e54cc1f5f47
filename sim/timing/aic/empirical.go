package aic

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

// utilField estimates how well hardware is used (speed of light over measured time)
// from samples, in min-max normalised logarithms (spec aic-perfmodel 11). It never
// changes after it is made.
type utilField struct {
	*space
	low, span [3]float64 // [axis], of the samples' logarithms
	samples   int
	shaped    bool // axes 1 and 2 are an op's own shape, which no question of a pass puts outside
}

// logarithm is a key on the scale of a field, before it is normalised.
func logarithm(key float64) float64 { return math.Log(max(key, 1e-9)) }

// newField samples the leaves of a tree; leaves without positive times are left out.
func newField(t *tree, s solver) *utilField {
	f := &utilField{space: newSpace(t, s, logarithm)}
	low, high := [3]float64{math.Inf(1), math.Inf(1), math.Inf(1)}, [3]float64{math.Inf(-1), math.Inf(-1), math.Inf(-1)}
	for i := range f.at0 {
		for j := f.off0[i]; j < f.off0[i+1]; j++ {
			for l := f.off1[j]; l < f.off1[j+1]; l++ {
				if f.util[l] == 0 {
					continue
				}
				f.samples++
				for axis, v := range [3]float64{f.at0[i], f.at1[j], f.at2[l]} {
					low[axis], high[axis] = min(low[axis], v), max(high[axis], v)
				}
			}
		}
	}
	for axis, at := range [3][]float64{f.at0, f.at1, f.at2} {
		f.low[axis], f.span[axis] = low[axis], high[axis]-low[axis]
		if f.span[axis] == 0 {
			f.span[axis] = 1
		}
		for i := range at {
			at[i] = (at[i] - f.low[axis]) / f.span[axis]
		}
	}
	return f
}

// curveField samples a one-axis table, its times scaled by factor.
func curveField(c curve, s solver, factor float64) *utilField {
	ms := make([]float64, len(c.ms))
	for i, v := range c.ms {
		ms[i] = v * factor
	}
	n := int32(len(ms))
	return newField(&tree{[]float64{0}, []int32{0, 1}, []float64{0}, []int32{0, n}, c.keys, ms, make([]bool, n)}, s)
}

// place is the coordinate of a key on an axis; one outside the samples is taken to
// their edge.
func (f *utilField) place(axis int, key float64, r *reach) float64 {
	v := (logarithm(key) - f.low[axis]) / f.span[axis]
	edge := min(max(v, 0), 1)
	if v != edge && (axis == 0 || !f.shaped) {
		r.note(math.Abs(v-edge) * f.span[axis] / math.Ln2)
	}
	return edge
}

// estimate returns sol over the utilisation at a point, scaled by k: that of a sample
// there, else the mean of the two nearest by nearness.
func (f *utilField) estimate(at [3]float64, sol, k float64, st *step) float64 {
	if f.samples == 0 {
		return st.fail(fmt.Errorf("no samples to estimate from: %w", ErrMissing))
	}
	s, r := search{want: 2}, &st.reach
	s.run(f.space, f.place(0, at[0], r), f.place(1, at[1], r), f.place(2, at[2], r))
	first, second := s.best[0], s.best[1]
	util := f.util[first.leaf]
	if first.d2 > 0 && s.n == 2 {
		w1, w2 := 1/math.Sqrt(first.d2), 1/math.Sqrt(second.d2)
		util = (float64(w1*util) + float64(w2*f.util[second.leaf])) / (w1 + w2)
	}
	return sol / (util * k)
}

// field returns the field of a table under a bound, made at the first estimate and
// shared like the table. The key is the table with the bound's value.
func (db *Database) field(key any, build func() *utilField) *utilField {
	f, _ := db.fields.LoadOrStore(key, sync.OnceValue(build))
	return f.(func() *utilField)()
}

// boundTree is the key of a field: a tree under the value of its bound.
type boundTree struct {
	t     *tree
	bound any
}

// borrowed is the field that an op is estimated from, and the factor k between the
// efficiency of the op and that of the samples.
type borrowed struct {
	*utilField
	k float64
}

// estimateWith runs a field source, which is nil where no table was found.
func estimateWith(source func() (borrowed, error), missing error, at [3]float64, sol float64, st *step) float64 {
	if source == nil {
		return st.fail(missing)
	}
	f, err := source()
	if err != nil {
		return st.fail(err)
	}
	return f.estimate(at, sol, f.k, st)
}

// profile is what makes two number formats comparable.
type profile struct{ bytes, class float64 }

func (q quantMode) profile() profile { return profile{q.bytes, q.class} }

var gemmEfficiency = map[profile]float64{
	{2, 1}: .70, {1, 1}: .55, {.5625, 1}: .45, {.5, 1}: .45, {1, 2}: .45, {.5, 2}: .35, {1, 4}: .30, {.5, 4}: .30, {.5625, 4}: .30,
}

var moeEfficiency = map[profile]float64{
	{2, 1}: .53, {1, 1}: .45, {.5625, 1}: .07, {.5, 1}: .07, {1, 2}: .40, {.5, 2}: .15, {1, 4}: .30, {.5, 4}: .23, {.5625, 4}: .23,
}

func efficiency(m map[profile]float64, q quantMode, other float64) float64 {
	if v, ok := m[q.profile()]; ok {
		return v
	}
	return other
}

// gemmField borrows from the op's own type, then one of the same profile, then the
// nearest profile.
func (b *binder) gemmField(t *table, o *gemmOp) func() (borrowed, error) {
	return sync.OnceValues(func() (borrowed, error) {
		own, ref := gemmModes[o.mode], b.gemmReference(t, o.mode)
		if ref == "" {
			return borrowed{}, fmt.Errorf("gemm_perf: no data type to estimate %s from: %w", o.mode, ErrMissing)
		}
		q := gemmModes[ref]
		bound := gemmShapeSOL{b.sys.flops[q.flops], q.bytes, b.sys.memBW}
		type key struct {
			t   *table
			ref string
		}
		f := b.db.field(key{t, ref}, func() *utilField {
			shapes, rank := t.shapes(t.word(ref))
			f := newField(&shapes, &bound)
			f.rank, f.shaped = rank, true // mirrored shapes can be as near
			return f
		})
		return borrowed{f, efficiency(gemmEfficiency, own, .45) / efficiency(gemmEfficiency, q, .45)}, nil
	})
}

// gemmReference names the measured type nearest to a mode, the first in the table of
// several; empty when there is none.
func (b *binder) gemmReference(t *table, mode string) string {
	if slices.ContainsFunc(t.slices, func(s slice) bool { return t.words[s.key[0]] == gemmTable(mode) }) {
		return gemmTable(mode)
	}
	own, ref := gemmModes[mode], ""
	best := [2]float64{math.Inf(1), math.Inf(1)}
	for i := range t.slices {
		w := t.words[t.slices[i].key[0]]
		q, ok := gemmModes[w]
		_, known := b.sys.flops[q.flops]
		d := [2]float64{math.Abs(q.class - own.class), math.Abs(q.bytes - own.bytes)}
		if ok && known && slices.Compare(d[:], best[:]) < 0 {
			ref, best = w, d
		}
	}
	return ref
}

// gemmShapeSOL is gemmSOL with the shape among the axes: m, n, k.
type gemmShapeSOL struct{ flops, bytes, memBW float64 }

func (s *gemmShapeSOL) sol(m, n, k float64) float64 {
	shape := gemmSOL{n, k, s.flops, s.bytes, s.memBW}
	return shape.sol(0, 0, m)
}

// shapes returns all points of a type of a GEMM table as one tree over m, n, k, and
// for each leaf its place in the order of sites.
func (t *table) shapes(dtype int32) (tree, []int32) {
	type sample struct {
		point
		rank int32
	}
	rows := map[float64][]sample{} // by m
	rank := int32(0)
	for i := range t.slices {
		s := &t.slices[i]
		if s.key[0] != dtype {
			continue
		}
		for j, m := range s.k2 {
			rows[m] = append(rows[m], sample{point{[3]float64{m, float64(s.key[1]), float64(s.key[2])}, s.ms[j], s.own[j]}, rank})
			rank++
		}
	}
	points, ranks := make([]point, 0, rank), make([]int32, 0, rank)
	for _, m := range slices.Sorted(maps.Keys(rows)) {
		slices.SortFunc(rows[m], func(x, y sample) int { return slices.Compare(x.a[:], y.a[:]) })
		for _, s := range rows[m] {
			points, ranks = append(points, s.point), append(ranks, s.rank)
		}
	}
	return buildTree(points), ranks
}

func (o *gemmOp) empirical(st *step) float64 {
	return estimateWith(o.field, o.err, [3]float64{float64(st.x), o.n, o.k}, o.sol(st), st)
}

// headSizeRatio is the relative cost of a prefill head size, against 128.
var headSizeRatio = map[string][5]float64{
	"trtllm": {.58, 1, 1.10, 1.17, 1.20},
	"sglang": {.60, 1, 1.18, 1.32, 1.38},
	"vllm":   {.60, 1, 1.27, 1.51, 1.60},
}

func headRatio(backend string, size int) float64 {
	sizes := [5]float64{64, 128, 192, 256, 512}
	ratio, h := headSizeRatio[backend], float64(size)
	if h <= sizes[0] {
		return ratio[0]
	}
	for i := 1; i < len(sizes); i++ {
		if h <= sizes[i] {
			w := (math.Log2(h) - math.Log2(sizes[i-1])) / (math.Log2(sizes[i]) - math.Log2(sizes[i-1]))
			return lerp(ratio[i-1], ratio[i], w)
		}
	}
	return ratio[4]
}

// nearest returns the slice to estimate from, with its head size and window: the
// exact window, then none; inside each the own head size, then 128, then the nearest.
// Nil when nothing is measured.
func (r attentionRows) nearest() (s *slice, size, window int) {
	if r.t == nil {
		return nil, 0, 0
	}
	own, exact := r.key[r.atSize], r.key[r.atSize+1]
	for _, w := range []int32{exact, 0} {
		key := r.key
		key[r.atSize+1] = w
		for _, h := range append([]int32{own}, r.sizes(key)...) {
			key[r.atSize] = h
			if s := r.t.laneSlice(r.order, key); s != nil {
				return s, int(h), int(w)
			}
		}
	}
	return nil, 0, 0
}

// sizes lists the head sizes that a key is measured at in any lane, best first.
func (r attentionRows) sizes(key sliceKey) []int32 {
	var sizes []int32
	own := key[r.atSize]
	for i := range r.t.slices {
		k := r.t.slices[i].key
		h := k[r.atSize]
		if k[0], k[r.atSize] = 0, own; k == key {
			sizes = append(sizes, h)
		}
	}
	far := func(h int32) float64 {
		if h == 128 {
			return -1
		}
		return math.Abs(math.Log(float64(h)) - math.Log(float64(own)))
	}
	slices.SortStableFunc(sizes, func(x, y int32) int { return cmp.Compare(far(x), far(y)) })
	return sizes
}

// attentionField borrows from the nearest slice, whose bound is the op's with the
// head size and window of the slice; k is the factor for a head size.
func (b *binder) attentionField(r attentionRows, bound attentionBound, sol func(attentionBound) solver, k func(size int) float64) func() (borrowed, error) {
	return sync.OnceValues(func() (borrowed, error) {
		s, size, window := r.nearest()
		if s == nil {
			return borrowed{}, r.err
		}
		bound.h, bound.window = float64(size), float64(window)
		f := b.db.field(boundTree{&s.tree, bound}, func() *utilField { return newField(&s.tree, sol(bound)) })
		return borrowed{f, k(size)}, nil
	})
}

func (o *contextAttentionOp) empirical(st *step) float64 {
	full := float64(st.seq + st.prefix)
	bound := o.bound.prefixed(float64(o.n), full, float64(st.prefix), float64(st.batch))
	return estimateWith(o.field, o.err, [3]float64{float64(o.n), full, float64(st.batch)}, bound, st) + float64(1.1*o.extra)
}

func (o *decodeAttentionOp) empirical(st *step) float64 {
	bound := o.bound.sol(float64(o.n), float64(st.batch), float64(st.seq))
	return estimateWith(o.field, o.err, [3]float64{float64(o.n), float64(st.batch), float64(st.seq)}, bound, st) + o.qkNorm
}

// moeField borrows from the own shape, the nearest shape of the type, types of the
// same profile, then the other types.
func (b *binder) moeField(t *table, o *moeOp, dist string) func() (borrowed, error) {
	return sync.OnceValues(func() (borrowed, error) {
		own := moeModes[o.mode]
		sample := func(s *slice, q quantMode) *utilField {
			shape := expertShape{int(s.key[5]), int(s.key[6]), int(s.key[3]), int(s.key[4]), int(s.key[7]), int(s.key[8])}
			bound := moeSOL{shape, o.gates, b.sys.flops[q.flops], q.bytes, b.sys.memBW}
			return curveField(s.curve(), &bound, 1)
		}
		if o.main != nil {
			return borrowed{sample(o.main, own), 1}, nil
		}
		if s := o.nearestShape(t, dist, func(w string) bool { return w == o.mode }); s != nil {
			return borrowed{sample(s, own), 1}, nil
		}
		same := func(w string) bool { return w != o.mode && moeModes[w].profile() == own.profile() }
		if s := o.nearestShape(t, dist, same); s != nil {
			return borrowed{sample(s, own), 1}, nil
		}
		for _, w := range b.otherMoETypes(t, own) {
			if s := o.nearestShape(t, dist, func(x string) bool { return x == w }); s != nil {
				q := moeModes[w]
				return borrowed{sample(s, q), efficiency(moeEfficiency, own, .30) / efficiency(moeEfficiency, q, .30)}, nil
			}
		}
		return borrowed{}, o.err
	})
}

// otherMoETypes lists the measured types of another profile, nearest first.
func (b *binder) otherMoETypes(t *table, own quantMode) []string {
	var out []string
	for i := range t.slices {
		w := t.words[t.slices[i].key[1]]
		q, ok := moeModes[w]
		_, known := b.sys.flops[q.flops]
		if ok && known && t.slices[i].key[0] == 0 && q.profile() != own.profile() && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	far := func(w string) float64 {
		q := moeModes[w]
		return math.Abs(q.bytes-own.bytes) + math.Abs(q.class-own.class)
	}
	slices.SortStableFunc(out, func(x, y string) int { return cmp.Compare(far(x), far(y)) })
	return out
}

// nearestShape finds the measured shape nearest to the op's in normalised logarithms
// of topk, experts, hidden and inter size; the first in sorted order wins a tie.
func (o *moeOp) nearestShape(t *table, dist string, accept func(string) bool) *slice {
	var list []*slice
	for i := range t.slices {
		s := &t.slices[i]
		if s.key[0] == 0 && accept(t.words[s.key[1]]) && t.words[s.key[2]] == dist && int(s.key[7]) == o.tp && int(s.key[8]) == o.ep {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(x, y *slice) int { return slices.Compare(x.key[3:7], y.key[3:7]) })
	query := [4]float64{float64(o.topk), float64(o.experts), float64(o.h), float64(o.inter)}
	d := make([]float64, len(list))
	for axis := range query {
		low, high := math.Inf(1), math.Inf(-1)
		for _, s := range list {
			v := math.Log(float64(s.key[3+axis]))
			low, high = min(low, v), max(high, v)
		}
		span := high - low
		if span == 0 {
			span = 1
		}
		for i, s := range list {
			e := (math.Log(float64(s.key[3+axis])) - math.Log(query[axis])) / span
			d[i] += float64(e * e)
		}
	}
	best := -1
	for i := range list {
		if best < 0 || d[i] < d[best] {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return list[best]
}

func (o *moeOp) empirical(st *step) float64 {
	return estimateWith(o.field, o.err, [3]float64{2: o.tokens(st)}, o.sol(st), st)
}
