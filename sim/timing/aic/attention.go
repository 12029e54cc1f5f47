package aic

import (
	"fmt"
	"strings"
)

// heads is the shape of one rank's attention; window 0 means unlimited.
type heads struct {
	n, kv, size, window int
}

func (h heads) sliceKV() int32 { return int32(localKV(int64(h.n), int64(h.kv))) }

func (h heads) resolvedKV() float64 {
	if h.kv == 0 {
		return float64(h.n)
	}
	return float64(h.kv)
}

// attentionBound is what the two bounds of attention go by.
type attentionBound struct {
	k, h, window float64 // k is 0 where every head has its own keys
	kvb          float64
	flops, memBW float64
}

func (h heads) bound(kv string, flops, memBW float64) attentionBound {
	return attentionBound{float64(h.sliceKV()), float64(h.size), float64(h.window), kvBytes[kv], flops, memBW}
}

// contextSOL bounds prefill attention; axes are heads, sequence, batch
// (spec aic-perfmodel 5.3).
type contextSOL struct{ attentionBound }

func (s *contextSOL) sol(n, seq, b float64) float64 { return s.prefixed(n, seq, 0, b) }

// prefixed is the exact form with a cached prefix, full = prefix + new tokens
// (spec aic-perfmodel 11).
func (s *contextSOL) prefixed(n, full, prefix, b float64) float64 {
	k := s.k
	if k == 0 {
		k = n
	}
	fresh := full - prefix
	ops := 2 * b * (float64(full*full) - float64(prefix*prefix)) * n * s.h * 2 / 2
	if s.window > 0 && full > s.window {
		ops = 2 * b * fresh * s.window * n * s.h * 2
	}
	mem := 2*b*(float64(n*fresh*s.h)+float64(n*fresh*s.h)) + float64(s.kvb*b*(2*k*full*s.h))
	return max(ops/s.flops*1000, mem/s.memBW*1000)
}

// decodeSOL bounds decode attention; axes are heads, batch, sequence.
type decodeSOL struct{ attentionBound }

func (s *decodeSOL) sol(n, b, seq float64) float64 {
	k := s.k
	if k == 0 {
		k = n
	}
	length := seq - 1
	if s.window > 0 {
		length = min(length, s.window)
	}
	ops := 2 * b * n * s.h * 2 * length
	mem := b * (float64(n*s.h*2) + float64(2*k*length*s.h*s.kvb) + float64(n*s.h*2))
	return max(ops/s.flops*1000, mem/s.memBW*1000)
}

// attentionRows is where an attention op looks in its table.
type attentionRows struct {
	t      *table
	order  []string // lanes in the order they are asked
	key    sliceKey // formats, K, head size and window, without the lane
	atSize int      // place of the head size in the key; the window's is the next
	slice  *slice   // first lane's rows of the key, nil if there are none
	err    error
}

// attention finds the rows of a head shape in given number formats (spec
// aic-perfmodel 5.3).
func (b *binder) attention(name string, h heads, formats ...string) attentionRows {
	t, err := b.table(name)
	if err != nil {
		return attentionRows{err: err}
	}
	order, err := b.laneOrder(t, b.attentionBackend)
	if err != nil {
		b.note(err)
		return attentionRows{err: err}
	}
	r := attentionRows{t: t, order: order, atSize: len(formats) + 2}
	for i, f := range formats {
		r.key[1+i] = t.word(f)
	}
	copy(r.key[1+len(formats):], []int32{h.sliceKV(), int32(h.size), int32(h.window)})
	if r.slice = t.laneSlice(order, r.key); r.slice == nil {
		have := t.describeSlices(func(k sliceKey) string {
			text := ""
			for i := range formats {
				text += t.words[k[1+i]] + "/"
			}
			return text + fmt.Sprintf("%d/%d/%d", k[r.atSize-1], k[r.atSize], k[r.atSize+1])
		})
		what := "attention/KV"
		if len(formats) == 1 {
			what = "KV"
		}
		r.err = fmt.Errorf("%s: no rows for %s %s, %d KV heads (0 = own), head size %d, window %d (measured: %s): %w",
			name, what, strings.Join(formats, "/"), h.sliceKV(), h.size, h.window, have, ErrMissing)
	}
	return r
}

// contextAttentionOp is prefill attention with its norm, rope and cache write.
type contextAttentionOp struct {
	bound contextSOL
	heads
	grid     *grid
	err      error
	extra    float64 // ms per call, whatever the tokens
	extraSOL float64
	field    func() (borrowed, error)
}

func (b *binder) contextAttention(h heads, fmha, kv string, qkNorm bool) op {
	mode := fmhaModes[fmha]
	flops, err := b.sys.flopsFor(mode.flops)
	b.note(err)
	o := &contextAttentionOp{heads: h}
	o.bound = contextSOL{h.bound(kv, flops, b.sys.memBW)}
	extras := func(mem func(float64) float64) float64 {
		q, kk := float64(h.n*h.size), h.resolvedKV()*float64(h.size)
		extra := 0.0
		if qkNorm {
			extra += (mem(2*q)*2 + mem(2*kk)*2) * 2
		}
		return extra + (mem(2*q+2*kk)*2 + (mem(kk*mode.bytes) + mem(kk*mode.bytes)))
	}
	o.extra, o.extraSOL = extras(b.sys.memMs), extras(b.sys.memSOLMs)
	if b.mode == SOL {
		return o
	}
	rows := b.attention("context_attention_perf", h, fmha, kv)
	if o.err = rows.err; rows.slice != nil {
		o.grid = newGrid(&rows.slice.tree, &o.bound, true)
	}
	own := headRatio(b.backend, h.size)
	o.field = b.attentionField(rows, o.bound.attentionBound,
		func(a attentionBound) solver { return &contextSOL{a} },
		func(size int) float64 { return own / headRatio(b.backend, size) })
	return o
}

func (o *contextAttentionOp) silicon(st *step) float64 {
	if o.err != nil {
		return st.fail(o.err)
	}
	full, prefix := float64(st.seq+st.prefix), float64(st.prefix)
	v, ok := o.grid.at(float64(o.n), full, float64(st.batch), &st.reach)
	if !ok {
		return st.fail(fmt.Errorf("context_attention_perf: non-positive SOL at batch %d, length %v: %w", st.batch, full, ErrMissing))
	}
	base := v * ((float64(full*full) - float64(prefix*prefix)) / float64(full*full))
	return base + float64(1.1*o.extra)
}

func (o *contextAttentionOp) sol(st *step) float64 {
	full := float64(st.seq + st.prefix)
	return o.bound.prefixed(float64(o.n), full, float64(st.prefix), float64(st.batch)) + float64(1.1*o.extraSOL)
}

func (o *contextAttentionOp) weights() float64 { return 0 }
func (o *contextAttentionOp) usesSeq() bool    { return true }

// decodeAttentionOp is decode attention, the mean of five lengths around the
// asked one (spec aic-perfmodel 5.3).
type decodeAttentionOp struct {
	bound decodeSOL
	heads
	grid   *grid
	walk   *walker         // of the last batch
	walks  map[int]*walker // by batch
	err    error
	qkNorm float64 // ms added per call where the switch is on (spec aic-perfmodel 14)
	field  func() (borrowed, error)
}

func (b *binder) decodeAttention(h heads, kv string, qkNorm bool) op {
	flops, err := b.sys.flopsFor(decodeClass(b.sys, kv))
	b.note(err)
	o := &decodeAttentionOp{heads: h}
	o.bound = decodeSOL{h.bound(kv, flops, b.sys.memBW)}
	if qkNorm && b.decodeQKNorm {
		mem := b.sys.memMs
		if b.mode == SOL {
			mem = b.sys.memSOLMs
		}
		q, kk := float64(h.n*h.size), h.resolvedKV()*float64(h.size)
		o.qkNorm = 2.2 * (2*mem(2*q) + 2*mem(2*kk))
	}
	if b.mode == SOL {
		return o
	}
	rows := b.attention("generation_attention_perf", h, kv)
	if o.err = rows.err; rows.slice != nil {
		o.grid = newGrid(&rows.slice.tree, &o.bound, false)
	}
	o.field = b.attentionField(rows, o.bound.attentionBound,
		func(a attentionBound) solver { return &decodeSOL{a} },
		func(int) float64 { return 1 })
	return o
}

// sampleSpan returns the outer two of the five lengths around s; the product is
// truncated, so 0.9 s is not 9 s / 10 (spec aic-perfmodel 15).
func sampleSpan(s int) (lo, hi int) {
	lo = max(1, int(float64(s)*0.9))
	return lo, max(lo, int(float64(s)*1.1))
}

func (o *decodeAttentionOp) silicon(st *step) float64 {
	if o.err != nil {
		return st.fail(o.err)
	}
	b := float64(st.batch)
	if o.walk == nil || b != o.walk.batch {
		o.aim(st.batch)
	}
	lo, hi := sampleSpan(st.seq)
	sum := 0.0
	for i := range 5 {
		c := float64(lo + (hi-lo)*i/4)
		v, ok := o.walk.at(o.grid, i, c)
		if !ok {
			if v, ok = o.walk.outside(o.grid, i, c, &st.reach); !ok {
				return st.fail(fmt.Errorf("generation_attention_perf: nothing measured near batch %d, length %d: %w", st.batch, st.seq, ErrMissing))
			}
		}
		sum += v
	}
	return sum/5 + o.qkNorm
}

// aim turns to the walker of a batch.
func (o *decodeAttentionOp) aim(batch int) {
	if o.walk = o.walks[batch]; o.walk != nil {
		return
	}
	if o.walks == nil {
		o.walks = map[int]*walker{}
	}
	o.walk = newWalker(o.grid, float64(o.n), float64(batch))
	o.walks[batch] = o.walk
}

func (o *decodeAttentionOp) sol(st *step) float64 {
	return o.bound.sol(float64(o.n), float64(st.batch), float64(st.seq)) + o.qkNorm
}

func (o *decodeAttentionOp) weights() float64 { return 0 }
func (o *decodeAttentionOp) usesSeq() bool    { return true }
