package aic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// gemmSOL is the speed of light of an m x n x k product; m is axis 2
// (spec aic-perfmodel 5.2).
type gemmSOL struct {
	n, k, flops, bytes, memBW float64
}

func (s *gemmSOL) sol(_, _, m float64) float64 {
	math1 := 2 * m * s.n * s.k / s.flops * 1000
	mem := s.bytes * (float64(m*s.n) + float64(m*s.k) + float64(s.n*s.k)) / s.memBW * 1000
	return max(math1, mem)
}

// site is a measured (n, k) shape with its distance from the asked one in powers of two.
type site struct {
	*slice
	sol       gemmSOL
	d, dn, dk float64
}

// gemmOp multiplies x rows by an n x k weight (spec aic-perfmodel 4.3, 5.2).
type gemmOp struct {
	gemmSOL
	mode   string
	exact  *slice // the site of this very shape, nil if not measured
	near   []site // otherwise all sites of the type, nearest first, ties in site order
	inGate int    // how many of them are inside the gate
	err    error
	static *staticFix // corrections of fp8_static
	field  func() (borrowed, error)
}

// gemmTable names the data type whose rows a mode reads.
func gemmTable(mode string) string {
	if mode == "fp8_static" {
		return "fp8"
	}
	return mode
}

// gemmKey is what tells the GEMMs of a model apart.
type gemmKey struct {
	n, k         int
	mode         string
	lowPrecision bool
}

// gemm binds a GEMM. lowPrecision marks an input that arrives quantised.
func (b *binder) gemm(n, k int, mode string, lowPrecision bool) op {
	q := gemmModes[mode]
	flops, err := b.sys.flopsFor(q.flops)
	b.note(err)
	o := &gemmOp{gemmSOL: gemmSOL{float64(n), float64(k), flops, q.bytes, b.sys.memBW}, mode: mode}
	key := gemmKey{n, k, mode, lowPrecision}
	if same := b.gemms[key]; same != nil { // prefill and decode share most shapes
		return same
	}
	if b.gemms == nil {
		b.gemms = map[gemmKey]*gemmOp{}
	}
	b.gemms[key] = o
	if b.mode == SOL {
		return o
	}
	t, err := b.table("gemm_perf")
	if err != nil {
		o.err = err
		return o
	}
	o.bind(t)
	if mode == "fp8_static" {
		o.static = b.staticFix(k, lowPrecision)
	}
	o.field = b.gemmField(t, o)
	return o
}

func (o *gemmOp) bind(t *table) {
	dtype := t.word(gemmTable(o.mode))
	o.exact = t.find(sliceKey{dtype, int32(o.n), int32(o.k)})
	if dtype < 0 {
		o.exact = nil
	}
	if o.exact != nil {
		return
	}
	o.near = t.sites(dtype, o.gemmSOL)
	o.inGate = sort.Search(len(o.near), func(i int) bool { return o.near[i].d > gate })
	if len(o.near) == 0 {
		have := make([]string, 0, len(t.slices))
		for i := range t.slices {
			have = append(have, t.words[t.slices[i].key[0]])
		}
		o.err = fmt.Errorf("gemm_perf: data type %s is not measured (measured: %s): %w", gemmTable(o.mode), sortedWords(have), ErrMissing)
	}
}

// sites returns the sites of a type, nearest to a shape first, ties in site order.
func (t *table) sites(dtype int32, shape gemmSOL) []site {
	type rank struct {
		d  float64
		at int32
	}
	var order []rank
	all := make([]site, 0, len(t.slices))
	logN, logK := math.Log2(shape.n), math.Log2(shape.k)
	for i := range t.slices {
		s := &t.slices[i]
		if s.key[0] != dtype {
			continue
		}
		c := site{slice: s, sol: shape}
		c.sol.n, c.sol.k = float64(s.key[1]), float64(s.key[2])
		c.dn, c.dk = math.Log2(c.sol.n)-logN, math.Log2(c.sol.k)-logK
		c.d = math.Sqrt(float64(c.dn*c.dn) + float64(c.dk*c.dk))
		order = append(order, rank{c.d, int32(len(all))})
		all = append(all, c)
	}
	slices.SortFunc(order, func(x, y rank) int { return cmp.Or(cmp.Compare(x.d, y.d), cmp.Compare(x.at, y.at)) })
	sorted := make([]site, len(all))
	for i, r := range order {
		sorted[i] = all[r.at]
	}
	return sorted
}

func (o *gemmOp) silicon(st *step) float64 {
	if o.err != nil {
		return st.fail(o.err)
	}
	m := float64(st.x)
	var v float64
	if o.exact != nil {
		v = siteMs(o.exact, &o.gemmSOL, m, &st.reach)
	} else {
		var taken [4]*site
		n := o.neighbours(m, &taken)
		if n == 0 {
			return st.fail(fmt.Errorf("gemm_perf: no measured shape near n=%v k=%v at m=%v (%s): %w", o.n, o.k, m, o.mode, ErrMissing))
		}
		util, total := 0.0, 0.0
		for _, s := range taken[:n] {
			w := 1 / (float64(s.d*s.d) + 1e-12)
			util += float64(w*s.sol.sol(0, 0, m)) / siteMs(s.slice, &s.sol, m, &st.reach)
			total += w
		}
		v = o.gemmSOL.sol(0, 0, m) / (util / total)
	}
	if o.static != nil {
		v = o.static.apply(v, m, o.gemmSOL.sol(0, 0, m), st)
	}
	return v
}

// siteMs reads a site's curve; outside it follows the median utilisation of the
// three points at that end (spec aic-perfmodel 4.3, step 1).
func siteMs(s *slice, sol *gemmSOL, m float64, r *reach) float64 {
	i, exact, inside := bracket(s.k2, m)
	if exact {
		return s.ms[i]
	}
	if inside {
		return lerp(s.ms[i], s.ms[i+1], (m-s.k2[i])/(s.k2[i+1]-s.k2[i]))
	}
	n := len(s.k2)
	from, to, edge := 0, min(3, n), s.k2[0]
	if m > s.k2[0] {
		from, to, edge = max(0, n-3), n, s.k2[n-1]
	}
	r.note(math.Abs(doublings(m) - doublings(edge)))
	var u [3]float64
	for i := from; i < to; i++ {
		u[i-from] = sol.sol(0, 0, s.k2[i]) / s.ms[i]
	}
	return sol.sol(0, 0, m) / median(u, to-from)
}

// median of the first n of three values.
func median(u [3]float64, n int) float64 {
	switch n {
	case 1:
		return u[0]
	case 2:
		return (u[0] + u[1]) / 2
	}
	lo, hi := min(u[0], u[1]), max(u[0], u[1])
	return max(lo, min(hi, u[2]))
}

// gate is how far a site may be to stand in, in powers of two.
const gate = 2.0

// neighbours picks at most four sites for an unmeasured shape (spec aic-perfmodel
// 4.3, steps 2 and 3), 0 when none may stand in. Candidates are the sites that cover
// m, all when none does.
func (o *gemmOp) neighbours(m float64, taken *[4]*site) int {
	some := o.covered(m)
	if n := pick(o.near[:o.inGate], m, some, (*site).away, taken); n > 0 {
		return n
	}
	minN, minK, maxN, maxK := math.Inf(1), math.Inf(1), 0.0, 0.0
	for i := range o.near {
		if s := &o.near[i]; !some || s.covers(m) {
			minN, maxN = min(minN, s.sol.n), max(maxN, s.sol.n)
			minK, maxK = min(minK, s.sol.k), max(maxK, s.sol.k)
		}
	}
	aboveN, aboveK := o.n > maxN, o.k > maxK
	switch {
	case o.n < minN, o.k < minK, aboveN == aboveK:
		return 0
	case aboveN:
		return pick(o.near, m, some, (*site).awayInK, taken)
	}
	return pick(o.near, m, some, (*site).awayInN, taken)
}

func (o *gemmOp) covered(m float64) bool {
	for i := range o.near {
		if o.near[i].covers(m) {
			return true
		}
	}
	return false
}

// pick takes the first four candidates inside the gate by a distance.
func pick(sites []site, m float64, some bool, far func(*site) float64, taken *[4]*site) int {
	n := 0
	for i := range sites {
		if s := &sites[i]; (!some || s.covers(m)) && far(s) <= gate {
			taken[n] = s
			if n++; n == len(taken) {
				break
			}
		}
	}
	return n
}

func (s *site) away() float64    { return s.d }
func (s *site) awayInN() float64 { return math.Abs(s.dn) }
func (s *site) awayInK() float64 { return math.Abs(s.dk) }

func (s *site) covers(m float64) bool { return s.k2[0] <= m && m <= s.k2[len(s.k2)-1] }

func (o *gemmOp) sol(st *step) float64 { return o.gemmSOL.sol(0, 0, float64(st.x)) }
func (o *gemmOp) weights() float64     { return o.n * o.k * o.bytes }
func (o *gemmOp) usesSeq() bool        { return false }

// staticFix takes the scale kernels out of an fp8 GEMM whose scales are static.
type staticFix struct {
	compute, matrix *scaleTable // matrix is nil unless the input arrives quantised
	k               float64
	err             error
}

// scaleSOL is the time of a pass over m x k values; m and k are axes 1 and 2.
type scaleSOL struct{ passes, memBW float64 }

func (s *scaleSOL) sol(_, m, k float64) float64 { return s.passes * m * k / s.memBW * 1000 }

type scaleTable struct {
	*grid
	minM, maxM, minK, maxK float64
	rescale                bool // follow the speed of light outside instead of staying flat
}

func (b *binder) staticFix(k int, lowPrecision bool) *staticFix {
	f := &staticFix{k: float64(k)}
	f.compute, f.err = b.scaleTable("computescale_perf", 2)
	if lowPrecision && f.err == nil {
		f.matrix, f.err = b.scaleTable("scale_matrix_perf", 3)
	}
	return f
}

func (b *binder) scaleTable(name string, passes float64) (*scaleTable, error) {
	t, err := b.table(name)
	if err != nil {
		return nil, err
	}
	s := t.find(sliceKey{t.word("fp8")})
	if s == nil || t.word("fp8") < 0 {
		return nil, fmt.Errorf("%s: data type fp8 is not measured: %w", name, ErrMissing)
	}
	out := &scaleTable{grid: newGrid(&s.tree, &scaleSOL{passes, b.sys.memBW}, false), rescale: name == "scale_matrix_perf"}
	out.minM, out.maxM = s.k1[0], s.k1[len(s.k1)-1]
	out.minK, out.maxK = slices.Min(s.k2), slices.Max(s.k2)
	return out, nil
}

func (t *scaleTable) ms(m, k float64, r *reach) (float64, bool) {
	cm, ck := min(max(m, t.minM), t.maxM), min(max(k, t.minK), t.maxK)
	v, ok := t.at(0, cm, ck, r)
	if t.rescale && (cm != m || ck != k) {
		v *= t.grid.sol.sol(0, m, k) / t.grid.sol.sol(0, cm, ck)
	}
	return v, ok
}

func (f *staticFix) apply(v, m, floor float64, st *step) float64 {
	if f.err != nil {
		return st.fail(f.err)
	}
	c, ok := f.compute.ms(m, f.k, &st.reach)
	v -= c
	if f.matrix != nil && ok {
		c, ok = f.matrix.ms(m, f.k, &st.reach)
		v -= c
	}
	if !ok {
		return st.fail(fmt.Errorf("scale tables: nothing measured near m=%v k=%v: %w", m, f.k, ErrMissing))
	}
	return max(v, floor)
}
