package aic

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// mlaContextSOL bounds compressed prefill attention; axes heads, sequence, batch
// (spec aic-perfmodel 5.7, A).
type mlaContextSOL struct{ kvb, flops, memBW float64 }

func (s *mlaContextSOL) sol(n, seq, b float64) float64 { return s.prefixed(n, seq, 0, b) }

func (s *mlaContextSOL) prefixed(n, full, prefix, b float64) float64 {
	ops := b * n * 320 * (float64(full*full) - float64(prefix*prefix))
	mem := b * n * (float64(s.kvb*full*320) + float64(2*(full-prefix)*320))
	return max(ops/s.flops*1000, mem/s.memBW*1000)
}

// mlaDecodeSOL bounds compressed decode attention; axes heads, batch, sequence (5.7,
// B, and C where the projections are part of the module).
type mlaDecodeSOL struct {
	kvb, flops, memBW    float64
	gemmFlops, gemmBytes float64 // 0 for the kernel alone
}

func (s *mlaDecodeSOL) sol(n, b, seq float64) float64 {
	math := 2 * b * n * 1088 * seq / s.flops * 1000
	mem := b * (float64(n*1088*2) + float64((seq-1)*576*s.kvb)) / s.memBW * 1000
	if s.gemmFlops > 0 {
		math += 2 * 2 * b * n * 128 * 512 / s.gemmFlops * 1000
		mem += 2 * n * (float64(b*640) + 128*512) * s.gemmBytes / s.memBW * 1000
	}
	return max(math, mem)
}

// mlaOp is multi-head latent attention from a kernel or module table.
type mlaOp struct {
	table   string
	n       float64
	context bool
	grid    *grid
	pre     *mlaContextSOL // prefill
	dec     *mlaDecodeSOL  // decode
	err     error
	field   func() (borrowed, error)
}

// missingMLA lists the slices that a table has instead of the one asked for.
func missingMLA(t *table, name, asked string, words ...int) error {
	return fmt.Errorf("%s: no rows for %s (measured: %s): %w", name, asked, t.describeSlices(func(k sliceKey) string {
		text := ""
		for i, at := range words {
			if i > 0 {
				text += "/"
			}
			text += t.words[k[at]]
		}
		return text
	}), ErrMissing)
}

// mlaModule binds a whole attention block measured as one: heads of this rank,
// native heads of the model.
func (b *binder) mlaModule(context bool, n, native int, fmha, kv, gemm string) op {
	o := &mlaOp{n: float64(n), context: context, table: "mla_generation_module_perf"}
	if context {
		o.table = "mla_context_module_perf"
	}
	q := gemmModes[gemm]
	b.mlaBounds(o, fmha, kv)
	if !context {
		flops, err := b.sys.flopsFor(q.flops)
		b.note(err)
		o.dec.gemmFlops, o.dec.gemmBytes = flops, q.bytes
	}
	if b.mode == SOL {
		return o
	}
	t, err := b.table(o.table)
	if err != nil {
		o.err = err
		return o
	}
	key := sliceKey{0, t.word(kv), t.word(gemm)}
	if context {
		key[3] = t.word(fmha)
	}
	var buckets []int32
	for i := range t.slices {
		k := t.slices[i].key
		if head := k[0]; key[1] >= 0 && key[2] >= 0 {
			k[0] = 0
			if k == key {
				buckets = append(buckets, head)
			}
		}
	}
	if len(buckets) == 0 {
		if context {
			o.err = missingMLA(t, o.table, "attention/KV/GEMM "+fmha+"/"+kv+"/"+gemm, 3, 1, 2)
		} else {
			o.err = missingMLA(t, o.table, "KV/GEMM "+kv+"/"+gemm, 1, 2)
		}
		return o
	}
	key[0] = nativeBucket(buckets, int32(native))
	b.lay(o, t.find(key))
	return o
}

// nativeBucket picks the head count that stands for a model: its own, the only one,
// the largest below, the smallest.
func nativeBucket(buckets []int32, native int32) int32 {
	slices.Sort(buckets)
	best := buckets[0]
	for _, h := range buckets {
		if h <= native {
			best = h
		}
	}
	return best
}

// mlaKernel binds the attention kernel alone.
func (b *binder) mlaKernel(context bool, n int, fmha, kv string) op {
	o := &mlaOp{n: float64(n), context: context, table: "generation_mla_perf"}
	if context {
		o.table = "context_mla_perf"
	}
	b.mlaBounds(o, fmha, kv)
	if b.mode == SOL {
		return o
	}
	t, err := b.table(o.table)
	if err != nil {
		o.err = err
		return o
	}
	key := sliceKey{t.word(kv)}
	if context {
		key[1] = t.word(fmha)
	}
	s := t.find(key)
	switch {
	case s != nil:
		b.lay(o, s)
	case context:
		o.err = missingMLA(t, o.table, "attention/KV "+fmha+"/"+kv, 1, 0)
	default:
		o.err = missingMLA(t, o.table, "KV "+kv, 0)
	}
	return o
}

func (b *binder) mlaBounds(o *mlaOp, fmha, kv string) {
	if o.context {
		flops, err := b.sys.flopsFor(fmhaModes[fmha].flops)
		b.note(err)
		o.pre = &mlaContextSOL{kvBytes[kv], flops, b.sys.memBW}
		return
	}
	flops, err := b.sys.flopsFor(decodeClass(b.sys, kv))
	b.note(err)
	o.dec = &mlaDecodeSOL{kvb: kvBytes[kv], flops: flops, memBW: b.sys.memBW}
}

// lay gives an op its measured points.
func (b *binder) lay(o *mlaOp, s *slice) {
	key, bound := boundTree{t: &s.tree}, solver(o.dec)
	if o.context {
		bound, key.bound = o.pre, *o.pre
	} else {
		key.bound = *o.dec
	}
	o.grid = newGrid(&s.tree, bound, o.context)
	o.field = sync.OnceValues(func() (borrowed, error) {
		return borrowed{b.db.field(key, func() *utilField { return newField(key.t, bound) }), 1}, nil
	})
}

func (o *mlaOp) silicon(st *step) float64 {
	if o.err != nil {
		return st.fail(o.err)
	}
	var v float64
	var ok bool
	if o.context {
		full, prefix := float64(st.seq+st.prefix), float64(st.prefix)
		v, ok = o.grid.at(o.n, full, float64(st.batch), &st.reach)
		v *= (float64(full*full) - float64(prefix*prefix)) / float64(full*full)
	} else {
		v, ok = o.grid.at(o.n, float64(st.batch), float64(st.seq), &st.reach)
	}
	if !ok {
		return st.fail(fmt.Errorf("%s: nothing measured near batch %d, length %d: %w", o.table, st.batch, st.seq, ErrMissing))
	}
	return v
}

func (o *mlaOp) sol(st *step) float64 {
	if o.context {
		return o.pre.prefixed(o.n, float64(st.seq+st.prefix), float64(st.prefix), float64(st.batch))
	}
	return o.dec.sol(o.n, float64(st.batch), float64(st.seq))
}

func (o *mlaOp) empirical(st *step) float64 {
	at := [3]float64{o.n, float64(st.batch), float64(st.seq)}
	if o.context {
		at[1], at[2] = float64(st.seq+st.prefix), float64(st.batch)
	}
	return estimateWith(o.field, o.err, at, o.sol(st), st)
}

func (o *mlaOp) weights() float64 { return 0 }
func (o *mlaOp) usesSeq() bool    { return true }

// bmmSOL bounds the batched product before or after decode attention; axis 2 is tokens.
type bmmSOL struct{ n, flops, bytes, memBW float64 }

func (s *bmmSOL) sol(_, _, t float64) float64 {
	ops := 2 * t * s.n * 128 * 512
	mem := s.n * (float64(t*640) + 128*512) * s.bytes
	return max(ops/s.flops*1000, mem/s.memBW*1000)
}

// bmmOp reads t = batch, not x.
type bmmOp struct {
	bmmSOL
	curve   curve
	factor  float64 // from a head count padded to a power of two
	err     error
	samples *utilField
}

func (b *binder) bmm(name, mode string, n int) op {
	q := gemmModes[mode]
	flops, err := b.sys.flopsFor(q.flops)
	b.note(err)
	o := &bmmOp{bmmSOL: bmmSOL{float64(n), flops, q.bytes, b.sys.memBW}, factor: 1}
	if b.mode == SOL {
		return o
	}
	t, err := b.table("mla_bmm_perf")
	if err != nil {
		o.err = err
		return o
	}
	dtype, opID := t.word(mode), t.word(name)
	if !slices.ContainsFunc(t.slices, func(s slice) bool { return s.key[0] == dtype && s.key[1] == opID }) {
		dtype = t.word("bfloat16")
	}
	s := t.find(sliceKey{dtype, opID, int32(n)})
	if s == nil && n > 0 && n&(n-1) != 0 {
		pow := 1 << bits.Len(uint(n))
		s = t.find(sliceKey{dtype, opID, int32(pow)})
		o.factor = float64(n) / float64(pow)
	}
	if s == nil {
		o.err = fmt.Errorf("mla_bmm_perf: %s of %d heads in %s is not measured (measured: %s): %w", name, n, mode,
			t.describeSlices(func(k sliceKey) string {
				return fmt.Sprintf("%s %s %d", t.words[k[0]], t.words[k[1]], k[2])
			}), ErrMissing)
		return o
	}
	o.curve = s.curve()
	return o
}

func (o *bmmOp) silicon(st *step) float64 {
	if o.err != nil {
		return st.fail(o.err)
	}
	return o.curve.at(float64(st.batch), &o.bmmSOL, &st.reach) * o.factor
}

func (o *bmmOp) sol(st *step) float64 { return o.bmmSOL.sol(0, 0, float64(st.batch)) }

func (o *bmmOp) empirical(st *step) float64 {
	if o.err != nil {
		return st.fail(o.err)
	}
	if o.samples == nil {
		o.samples = curveField(o.curve, &o.bmmSOL, o.factor)
	}
	return o.samples.estimate([3]float64{2: float64(st.batch)}, o.sol(st), 1, st)
}

func (o *bmmOp) weights() float64 { return 0 }
func (o *bmmOp) usesSeq() bool    { return false }
