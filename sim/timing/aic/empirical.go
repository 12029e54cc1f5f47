package aic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// utilField estimates how well hardware is used (speed of light over measured time)
// from samples, in min-max normalised logarithms (spec aic-perfmodel 11).
type utilField struct {
	axes int
	at   [][3]float64 // [sample][axis], normalised by finish
	util []float64    // [sample]
	low  [3]float64
	span [3]float64
}

func newUtilField(axes int) *utilField { return &utilField{axes: axes} }

// add records a sample; samples without positive times are left out.
func (f *utilField) add(at [3]float64, sol, ms float64) {
	if !(sol > 0) || !(ms > 0) {
		return
	}
	for i := range f.axes {
		at[i] = math.Log(max(at[i], 1e-9))
	}
	f.at = append(f.at, at)
	f.util = append(f.util, sol/ms)
}

func (f *utilField) finish() {
	for i := range f.axes {
		low, high := math.Inf(1), math.Inf(-1)
		for _, a := range f.at {
			low, high = min(low, a[i]), max(high, a[i])
		}
		f.low[i], f.span[i] = low, high-low
		if f.span[i] == 0 {
			f.span[i] = 1
		}
		for j := range f.at {
			f.at[j][i] = (f.at[j][i] - low) / f.span[i]
		}
	}
}

// estimate returns sol over the utilisation at a point, scaled by k.
func (f *utilField) estimate(at [3]float64, sol, k float64, st *step) float64 {
	if f == nil || len(f.at) == 0 {
		return st.fail(fmt.Errorf("no samples to estimate from: %w", ErrMissing))
	}
	for i := range f.axes {
		at[i] = min(max((math.Log(max(at[i], 1e-9))-f.low[i])/f.span[i], 0), 1)
	}
	first, second := -1, -1
	d1, d2 := math.Inf(1), math.Inf(1)
	for j, a := range f.at {
		d := 0.0
		for i := range f.axes {
			e := a[i] - at[i]
			d += float64(e * e)
		}
		switch {
		case d < d1:
			second, d2 = first, d1
			first, d1 = j, d
		case d < d2:
			second, d2 = j, d
		}
	}
	util := f.util[first]
	if d1 > 0 && second >= 0 {
		w1, w2 := 1/math.Sqrt(d1), 1/math.Sqrt(d2)
		util = (float64(w1*f.util[first]) + float64(w2*f.util[second])) / (w1 + w2)
	}
	return sol / (util * k)
}

// gridField samples all leaves of a tree.
func gridField(t *tree, s solver) *utilField {
	f := newUtilField(3)
	t.walk(func(a0, a1, a2, ms float64, _ bool) {
		f.add([3]float64{a0, a1, a2}, s.sol(a0, a1, a2), ms)
	})
	f.finish()
	return f
}

// lazyField computes a field once, at the first estimate.
func lazyField(build func() (*utilField, float64, error)) func() (*utilField, float64, error) {
	var (
		f    *utilField
		k    float64
		err  error
		done bool
	)
	return func() (*utilField, float64, error) {
		if !done {
			f, k, err = build()
			done = true
		}
		return f, k, err
	}
}

// estimateWith runs a field source, which is nil where no table was found.
func estimateWith(source func() (*utilField, float64, error), missing error, at [3]float64, sol float64, st *step) float64 {
	if source == nil {
		return st.fail(missing)
	}
	f, k, err := source()
	if err != nil {
		return st.fail(err)
	}
	return f.estimate(at, sol, k, st)
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
func (b *binder) gemmField(t *table, o *gemmOp) func() (*utilField, float64, error) {
	return lazyField(func() (*utilField, float64, error) {
		own := gemmModes[o.mode]
		ref := gemmTable(o.mode)
		if !slices.ContainsFunc(t.slices, func(s slice) bool { return t.words[s.key[0]] == ref }) {
			ref = ""
			best := [2]float64{math.Inf(1), math.Inf(1)}
			for i := range t.slices {
				w := t.words[t.slices[i].key[0]]
				q, ok := gemmModes[w]
				_, known := b.sys.flops[q.flops]
				d := [2]float64{math.Abs(q.class - own.class), math.Abs(q.bytes - own.bytes)}
				if ok && known && (d[0] < best[0] || d[0] == best[0] && d[1] < best[1]) {
					ref, best = w, d
				}
			}
		}
		if ref == "" {
			return nil, 0, fmt.Errorf("gemm_perf: no data type to estimate %s from: %w", o.mode, ErrMissing)
		}
		q := gemmModes[ref]
		f := newUtilField(3)
		for i := range t.slices {
			s := &t.slices[i]
			if t.words[s.key[0]] != ref {
				continue
			}
			bound := gemmSOL{float64(s.key[1]), float64(s.key[2]), b.sys.flops[q.flops], q.bytes, b.sys.memBW}
			for j, m := range s.k2 {
				f.add([3]float64{m, bound.n, bound.k}, bound.sol(0, 0, m), s.ms[j])
			}
		}
		f.finish()
		return f, efficiency(gemmEfficiency, own, .45) / efficiency(gemmEfficiency, q, .45), nil
	})
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

// attentionSlice tries the exact window, then none; inside each the own head size,
// then 128, then the nearest. at are the places of head size and window in the key.
func attentionSlice(t *table, order []string, key sliceKey, atSize, atWindow int) *slice {
	size, window := key[atSize], key[atWindow]
	for _, w := range []int32{window, 0} {
		key[atSize], key[atWindow] = size, w
		if s := t.laneSlice(order, key); s != nil {
			return s
		}
		var sizes []int32
		for i := range t.slices {
			k := t.slices[i].key
			h := k[atSize]
			if k[0], k[atSize] = key[0], key[atSize]; k == key {
				sizes = append(sizes, h)
			}
		}
		if len(sizes) == 0 {
			continue
		}
		slices.SortStableFunc(sizes, func(x, y int32) int {
			far := func(h int32) float64 {
				if h == 128 {
					return -1
				}
				return math.Abs(math.Log(float64(h)) - math.Log(float64(size)))
			}
			return cmp.Compare(far(x), far(y))
		})
		key[atSize] = sizes[0]
		if s := t.laneSlice(order, key); s != nil {
			return s
		}
	}
	return nil
}

func (b *binder) contextField(t *table, order []string, o *contextAttentionOp, fmha, kv string) func() (*utilField, float64, error) {
	return lazyField(func() (*utilField, float64, error) {
		s := attentionSlice(t, order, sliceKey{0, t.word(fmha), t.word(kv), o.sliceKV(), int32(o.size), int32(o.window)}, 4, 5)
		if s == nil {
			return nil, 0, o.err
		}
		bound := o.bound
		bound.h, bound.window = float64(s.key[4]), float64(s.key[5])
		k := headRatio(b.backend, o.size) / headRatio(b.backend, int(s.key[4]))
		return gridField(&s.tree, &bound), k, nil
	})
}

func (o *contextAttentionOp) empirical(st *step) float64 {
	full := float64(st.seq + st.prefix)
	bound := o.bound.prefixed(float64(o.n), full, float64(st.prefix), float64(st.batch))
	return estimateWith(o.field, o.err, [3]float64{float64(o.n), full, float64(st.batch)}, bound, st) + float64(1.1*o.extra)
}

func (b *binder) decodeField(t *table, order []string, o *decodeAttentionOp, kv string) func() (*utilField, float64, error) {
	return lazyField(func() (*utilField, float64, error) {
		s := attentionSlice(t, order, sliceKey{0, t.word(kv), o.sliceKV(), int32(o.size), int32(o.window)}, 3, 4)
		if s == nil {
			return nil, 0, o.err
		}
		bound := o.bound
		bound.h, bound.window = float64(s.key[3]), float64(s.key[4])
		return gridField(&s.tree, &bound), 1, nil
	})
}

func (o *decodeAttentionOp) empirical(st *step) float64 {
	bound := o.bound.sol(float64(o.n), float64(st.batch), float64(st.seq))
	return estimateWith(o.field, o.err, [3]float64{float64(o.n), float64(st.batch), float64(st.seq)}, bound, st) + o.qkNorm
}

// moeField borrows from the own shape, the nearest shape of the type, types of the
// same profile, then the other types.
func (b *binder) moeField(t *table, o *moeOp, dist string) func() (*utilField, float64, error) {
	return lazyField(func() (*utilField, float64, error) {
		own := moeModes[o.mode]
		sample := func(s *slice, q quantMode) *utilField {
			shape := expertShape{int(s.key[5]), int(s.key[6]), int(s.key[3]), int(s.key[4]), int(s.key[7]), int(s.key[8])}
			bound := moeSOL{shape, o.gates, b.sys.flops[q.flops], q.bytes, b.sys.memBW}
			f := newUtilField(1)
			for i, tokens := range s.k2 {
				f.add([3]float64{tokens}, bound.sol(0, 0, tokens), s.ms[i])
			}
			f.finish()
			return f
		}
		if o.main != nil {
			return sample(o.main, own), 1, nil
		}
		if s := o.nearestShape(t, dist, func(w string) bool { return w == o.mode }); s != nil {
			return sample(s, own), 1, nil
		}
		same := func(w string) bool { return w != o.mode && moeModes[w].profile() == own.profile() }
		if s := o.nearestShape(t, dist, same); s != nil {
			return sample(s, own), 1, nil
		}
		for _, w := range b.otherMoETypes(t, own) {
			if s := o.nearestShape(t, dist, func(x string) bool { return x == w }); s != nil {
				q := moeModes[w]
				return sample(s, q), efficiency(moeEfficiency, own, .30) / efficiency(moeEfficiency, q, .30), nil
			}
		}
		return nil, 0, o.err
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
	return estimateWith(o.field, o.err, [3]float64{o.tokens(st)}, o.sol(st), st)
}
