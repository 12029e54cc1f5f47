package aic

import "fmt"

// expertShape is the routed-expert layer of a model.
type expertShape struct {
	h, inter, topk, experts, tp, ep int
}

// moeSOL bounds the experts for t tokens, axis 2 (spec aic-perfmodel 5.5). Integer
// divisions, left to right.
type moeSOL struct {
	expertShape
	gates               int // matrices of an expert: 3 gated, 2 not
	flops, bytes, memBW float64
}

func (s *moeSOL) sol(_, _, t float64) float64 {
	tt := int(t) * s.topk
	if work := float64(tt) * float64(s.h) * float64(s.inter) * float64(s.gates) * 2; work >= 1<<62 {
		return work / float64(s.ep*s.tp) / s.flops * 1000 // beyond int64; the floors below no longer matter
	}
	each := tt / s.ep
	ops := tt * s.h * s.inter * s.gates * 2 / s.ep / s.tp
	mem := each*s.h*2 + each*s.inter*s.gates/s.tp + s.h*s.inter*s.gates/s.tp*min(s.experts/s.ep, each)
	return max(float64(ops)/s.flops*1000, float64(mem)*s.bytes/s.memBW*1000)
}

// lowLatencyTokens is the most tokens that the low-latency kernel serves.
const lowLatencyTokens = 128

// moeOp is the routed experts of one rank group.
type moeOp struct {
	moeSOL
	mode      string
	dp        int
	main, low *slice // low is the low-latency curve, nil where it does not apply
	err       error
	field     func() (borrowed, error)
}

func (b *binder) moe(shape expertShape, mode, distribution string, dp int) op {
	q := moeModes[mode]
	flops, err := b.sys.flopsFor(q.flops)
	b.note(err)
	o := &moeOp{moeSOL: moeSOL{shape, 3, flops, q.bytes, b.sys.memBW}, mode: mode, dp: max(dp, 1)}
	if b.mode == SOL {
		return o
	}
	t, err := b.table("moe_perf")
	if err != nil {
		o.err = err
		return o
	}
	dist := o.bind(t, distribution)
	o.field = b.moeField(t, o, dist)
	return o
}

// bind finds the curves and returns the distribution in use.
func (o *moeOp) bind(t *table, distribution string) string {
	dtype := t.word(o.mode)
	dist, have := "", []string{}
	for i := range t.slices {
		k := t.slices[i].key
		if k[0] != 0 {
			continue
		}
		have = append(have, t.words[k[1]])
		if k[1] == dtype {
			if w := t.words[k[2]]; w == distribution || (w == "uniform" && dist == "") {
				dist = w
			}
		}
	}
	key := sliceKey{0, dtype, t.word(dist), int32(o.topk), int32(o.experts), int32(o.h), int32(o.inter), int32(o.tp), int32(o.ep)}
	if dist != "" {
		o.main = t.find(key)
		if o.mode == "nvfp4" && o.gates == 3 {
			key[0] = 1
			o.low = t.find(key)
		}
	}
	if o.main == nil {
		o.err = fmt.Errorf("moe_perf: not measured: mode %s, distribution %s, topk %d, %d experts, hidden %d, inter %d, moe_tp %d, moe_ep %d (measured modes: %s): %w",
			o.mode, distribution, o.topk, o.experts, o.h, o.inter, o.tp, o.ep, sortedWords(have), ErrMissing)
	}
	if dist == "" {
		return distribution
	}
	return dist
}

func (o *moeOp) tokens(st *step) float64 { return float64(st.x * o.dp) }

func (o *moeOp) silicon(st *step) float64 {
	t, s := o.tokens(st), o.main
	if o.low != nil && t <= lowLatencyTokens {
		s = o.low
	}
	if s == nil {
		return st.fail(o.err)
	}
	if len(s.k2) == 1 && t < s.k2[0] {
		return st.fail(fmt.Errorf("moe_perf: one measured point, at %v tokens, above the %v asked: %w", s.k2[0], t, ErrMissing))
	}
	return s.curve().at(t, &o.moeSOL, &st.reach)
}

func (o *moeOp) sol(st *step) float64 { return o.moeSOL.sol(0, 0, o.tokens(st)) }

// weights follows floor(floor(h*I*E*bytes*G/ep)/tp).
func (o *moeOp) weights() float64 {
	all := float64(o.h) * float64(o.inter) * float64(o.experts) * o.bytes * float64(o.gates)
	perEP := float64(int64(all / float64(o.ep)))
	return float64(int64(perEP / float64(o.tp)))
}

func (o *moeOp) usesSeq() bool { return false }
