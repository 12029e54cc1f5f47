package aic

import (
	"math"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// entry is an op of a pass. Its value counts scale times.
type entry struct {
	name       string
	scale      float64
	op         op
	perRequest bool // in prefill its tokens are the requests, not their new tokens
	seq        bool // depends on more than x
}

// tokens returns the x of a prefill op.
func (e *entry) tokens(batch, newTokens int) int {
	if e.perRequest {
		return batch
	}
	return batch * newTokens
}

// binder turns shapes into ops over one database.
type binder struct {
	sys              *System
	db               *Database
	lanes            *document.Node
	backend, version string
	mode             Mode
	attentionBackend string
	decodeQKNorm     bool
	gemms            map[gemmKey]*gemmOp
	err              error // first error of a shape that no table can price
}

func (b *binder) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *binder) table(name string) (*table, error) { return b.db.table(name, b.mode == Empirical) }

// oplist collects the ops of a phase under its name prefix.
type oplist struct {
	prefix  string
	entries []entry
}

func (l *oplist) add(name string, scale float64, o op) {
	l.entries = append(l.entries, entry{name: l.prefix + name, scale: scale, op: o, seq: o.usesSeq()})
}

// parallel is the layout of one engine; unset expert sizes count as 1.
type parallel struct{ tp, pp, dp, moeTP, moeEP int }

// check refuses layouts that the model cannot have (spec aic-perfmodel 2.5).
func (c *checkpoint) check(p parallel, q quant) error {
	for _, v := range []int{p.tp, p.pp, p.dp, p.moeTP, p.moeEP} {
		if v < 1 || v > 1<<16 {
			return classed(ErrConfig, "parallel sizes must be between 1 and 65536")
		}
	}
	if c.heads%p.tp != 0 {
		return classed(ErrConfig, "num_heads %d should be divisible by tp_size %d", c.heads, p.tp)
	}
	if c.family == llama {
		return nil
	}
	if p.tp*p.dp != p.moeTP*p.moeEP {
		return classed(ErrConfig, "Parallelism width mismatch: tp_size %d * attention_dp_size %d = %d, moe_tp_size %d * moe_ep_size %d = %d",
			p.tp, p.dp, p.tp*p.dp, p.moeTP, p.moeEP, p.moeTP*p.moeEP)
	}
	if c.experts < p.moeEP {
		return classed(ErrConfig, "num_experts %d is less than moe_ep_size %d", c.experts, p.moeEP)
	}
	if q.moe == "fp8_block" && (c.expertInter/p.moeTP)%c.block != 0 {
		return classed(ErrConfig, "moe_intermediate_size %d / moe_tp_size %d is not a multiple of the fp8 block of %d", c.expertInter, p.moeTP, c.block)
	}
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// ops returns the op lists of prefill and decode (spec aic-perfmodel 6 to 8).
func (b *binder) ops(c *checkpoint, p parallel, q quant, nextN int) (prefill, decode []entry) {
	mtp := float64(c.layers+nextN) / float64(c.layers)
	build := b.dense
	if c.family == moe {
		build = b.sparse
	} else if c.family != llama {
		build = b.latent
	}
	return build(c, p, q, true, 1), build(c, p, q, false, mtp)
}

func newOplist(prefill bool) *oplist {
	if prefill {
		return &oplist{prefix: "context_"}
	}
	return &oplist{prefix: "generation_"}
}

// head adds embedding to the second norm: what LLAMA and MOE share.
func (b *binder) head(l *oplist, c *checkpoint, p parallel, q quant, prefill bool, mtp float64) {
	t, s := p.tp, float64(c.layers)*mtp
	kv := ceilDiv(c.kvHeads, t)
	shape := heads{c.heads / t, kv, c.headDim, 0}
	attention := func(h heads) op {
		if prefill {
			return b.contextAttention(h, q.fmha, q.kv, c.qkNorm)
		}
		return b.decodeAttention(h, q.kv, c.qkNorm)
	}
	scale := s
	if c.arch == "GptOssForCausalLM" {
		scale = s / 2
		windowed := shape
		windowed.window = gptOssWindow
		l.add("attention", scale, attention(windowed))
	}
	l.add("embedding", mtp, embedding(b.sys, c.vocab/t, c.hidden))
	l.add("add_norm_1", s, elementWise(b.sys, 2*c.hidden, 2*c.hidden))
	l.add("qkv_gemm", s, b.gemm(c.heads*c.headDim/t+2*c.headDim*kv, c.hidden, q.gemm, false))
	l.add("attention", scale, attention(shape))
	l.add("proj_gemm", s, b.gemm(c.hidden, c.heads*c.headDim/t, q.gemm, true))
	l.add("add_norm_2", s, elementWise(b.sys, 2*c.hidden, 2*c.hidden))
}

// gptOssWindow is the sliding window of every other layer.
const gptOssWindow = 128

func (b *binder) logits(l *oplist, c *checkpoint, t int, mtp float64) {
	l.add("logits_gemm", mtp, b.gemm(c.vocab/t, c.hidden, "bfloat16", false))
	l.entries[len(l.entries)-1].perRequest = true
}

func (b *binder) hop(l *oplist, c *checkpoint, p parallel, mtp float64) {
	l.add("p2p", float64(p.pp-1)*mtp, &p2pOp{b.sys, c.hidden, p.pp})
}

// dense is the LLAMA family.
func (b *binder) dense(c *checkpoint, p parallel, q quant, prefill bool, mtp float64) []entry {
	l, t, s := newOplist(prefill), p.tp, float64(c.layers)*mtp
	b.head(l, c, p, q, prefill, mtp)
	l.add("gate_ffn1_gemm", s, b.gemm(2*c.inter/t, c.hidden, q.gemm, false))
	l.add("act_gate", s, elementWise(b.sys, 2*c.inter/t, c.inter/t))
	l.add("ffn2_gemm", s, b.gemm(c.hidden, c.inter/t, q.gemm, true))
	b.logits(l, c, t, mtp)
	reduce := func() op { return b.collective("all_reduce", true, t, float64(c.hidden)) }
	l.add("embedding_ar", mtp, reduce())
	l.add("ar_1", s, reduce())
	l.add("ar_2", s, reduce())
	b.hop(l, c, p, mtp)
	return l.entries
}

// experts adds router, dispatch and routed experts.
func (b *binder) experts(c *checkpoint, p parallel, q quant, distribution string) (names []string, ops []op) {
	g := p.moeTP * p.moeEP
	shape := expertShape{c.hidden, c.expertInter, c.topk, c.experts, p.moeTP, p.moeEP}
	return []string{"router_gemm", "moe_pre_dispatch", "moe", "moe_post_dispatch"}, []op{
		b.gemm(c.experts, c.hidden, "bfloat16", false),
		b.dispatch(true, c.hidden, g, p.dp, q.moe),
		b.moe(shape, q.moe, distribution, p.dp),
		b.dispatch(false, c.hidden, g, p.dp, q.moe),
	}
}

// sparse is the MOE family.
func (b *binder) sparse(c *checkpoint, p parallel, q quant, prefill bool, mtp float64) []entry {
	l, s := newOplist(prefill), float64(c.layers)*mtp
	b.head(l, c, p, q, prefill, mtp)
	names, ops := b.experts(c, p, q, "power_law_1.2")
	for i, o := range ops {
		l.add(names[i], s, o)
	}
	if !prefill {
		b.logits(l, c, p.tp, mtp)
	}
	l.add("embedding_ar", mtp, b.collective("all_reduce", true, p.tp, float64(c.hidden)))
	b.hop(l, c, p, mtp)
	return l.entries
}

// latent is the DEEPSEEK and KIMIK25 families.
func (b *binder) latent(c *checkpoint, p parallel, q quant, prefill bool, mtp float64) []entry {
	l, t, s := newOplist(prefill), p.tp, float64(c.layers)*mtp
	l.add("embedding", mtp, embedding(b.sys, c.vocab, c.hidden))
	l.add("add_norm_1", s, elementWise(b.sys, 2*c.hidden, 2*c.hidden))
	l.add("mla_block", s, b.mlaBlock(c, p, q, prefill))
	l.add("add_norm_2", s, elementWise(b.sys, 2*c.hidden, 2*c.hidden))
	sharedMode := q.gemm
	if !q.gemmSet && slices.ContainsFunc(c.ignored, func(s string) bool { return strings.Contains(s, "shared_expert") }) {
		sharedMode = "bfloat16"
	}
	shared := []op{
		b.gemm(2*c.expertInter/t, c.hidden, sharedMode, false),
		elementWise(b.sys, 2*c.expertInter/t, c.expertInter/t),
		b.gemm(c.hidden, c.expertInter/t, sharedMode, false),
	}
	names, routed := b.experts(c, p, q, "power_law_1.01")
	if prefill {
		for i, name := range []string{"shared_gate_up_gemm", "shared_act_gate", "shared_ffn2_gemm"} {
			l.add(name, s, shared[i])
		}
		for i, o := range routed {
			l.add(names[i], s, o)
		}
	} else {
		l.add("moe_overlap", s, &overlapOp{routed, shared})
	}
	b.logits(l, c, t, mtp)
	if b.backend == "vllm" {
		l.add("tp_allreduce", 2*s, b.collective("all_reduce", true, t, float64(c.hidden)))
	}
	b.hop(l, c, p, mtp)
	return l.entries
}

// projections are the formats of the attention projections, by group.
type projections struct{ q, kv, o, down, bmm string }

// projectionModes lets an NVFP4 checkpoint keep attention projections in bfloat16
// (spec aic-perfmodel 8).
func (c *checkpoint) projectionModes(gemm string) projections {
	m := projections{gemm, gemm, gemm, gemm, "fp8"}
	if c.quantAlgo == "nvfp4" {
		for _, s := range c.ignored {
			q, kv, o := contains(s, "q_a_proj", "q_b_proj", "q_proj"), contains(s, "kv_a_proj", "kv_b_proj", "kv_proj", "k_proj", "v_proj"), contains(s, "o_proj")
			if !q && !kv && !o && strings.Contains(s, "self_attn") && !strings.Contains(s, "_proj") {
				q, kv, o = true, true, true
			}
			for _, e := range []struct {
				hit  bool
				mode *string
			}{{q, &m.q}, {kv, &m.kv}, {o, &m.o}} {
				if e.hit {
					*e.mode = "bfloat16"
				}
			}
		}
	}
	if m.q == "bfloat16" && m.kv == "bfloat16" {
		m.down = "bfloat16"
	}
	if m.kv == "bfloat16" || gemm == "bfloat16" {
		m.bmm = "bfloat16"
	}
	return m
}

// mlaBlock is the measured attention module, or its parts where the module is not
// measured or the projections differ.
func (b *binder) mlaBlock(c *checkpoint, p parallel, q quant, prefill bool) op {
	t, m := p.tp, c.projectionModes(q.gemm)
	a, kernelHeads := c.heads/t, 128/t
	parts := []op{b.gemm(2112, c.hidden, m.down, false), b.gemm(c.heads*192/t, 1536, m.q, false)}
	if prefill {
		parts = append(parts, b.gemm(c.heads*256/t, 512, m.kv, false))
	}
	shape := heads{a, c.kvHeads / t, c.vHeadDim, 0}
	switch {
	case b.backend == "vllm" && prefill:
		parts = append(parts, b.contextAttention(shape, q.fmha, q.kv, false))
	case b.backend == "vllm":
		parts = append(parts, b.decodeAttention(shape, q.kv, false))
	case prefill:
		parts = append(parts, b.mlaKernel(true, kernelHeads, q.fmha, q.kv))
	default:
		parts = append(parts, b.bmm("mla_gen_pre", m.bmm, a), b.mlaKernel(false, kernelHeads, q.fmha, q.kv), b.bmm("mla_gen_post", m.bmm, a))
	}
	parts = append(parts, b.gemm(c.hidden, c.heads*128/t, m.o, false))
	if m.q != m.kv || m.q != m.o {
		return &fallbackOp{primary: absentOp{}, list: parts}
	}
	return &fallbackOp{primary: b.mlaModule(prefill, a, c.heads, q.fmha, q.kv, m.q), list: parts}
}

// absentOp has no data in any mode.
type absentOp struct{}

func (absentOp) silicon(st *step) float64   { return st.fail(ErrMissing) }
func (absentOp) sol(st *step) float64       { return st.fail(ErrMissing) }
func (absentOp) empirical(st *step) float64 { return st.fail(ErrMissing) }
func (absentOp) weights() float64           { return 0 }
func (absentOp) usesSeq() bool              { return true }

// kvBytesPerToken is the cache of one token on one rank, all layers; for gpt-oss
// inside the window (spec aic-perfmodel 9.2).
func (c *checkpoint) kvBytesPerToken(tp int, kv string) float64 {
	if c.family == deepseek || c.family == kimiK25 {
		rank, rope := c.kvRank, c.ropeDim
		if rank == 0 {
			rank = 512
		}
		if rope == 0 {
			rope = 64
		}
		return float64(c.layers*(rank+rope)) * kvBytes[kv]
	}
	return float64(ceilDiv(c.kvHeads, tp)*c.headDim*c.layers*2) * kvBytes[kv]
}

// floorBytes truncates a byte count.
func floorBytes(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(v)
}
