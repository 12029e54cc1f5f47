package aic

import (
	"fmt"
	"math"
	"strings"
)

// tableNames lists the tables that the model layer reads, in the order of the
// embedded files. nccl_perf and oneccl_perf belong to a system, the others to a
// system and backend.
var tableNames = []string{
	"gemm_perf", "computescale_perf", "scale_matrix_perf",
	"context_attention_perf", "generation_attention_perf",
	"custom_allreduce_perf", "moe_perf",
	"mla_context_module_perf", "mla_generation_module_perf",
	"context_mla_perf", "generation_mla_perf", "mla_bmm_perf",
}

// source is one file of a table. own tells whether it is of the requested version;
// keep names the kernel sources that may be read, all when nil.
type source struct {
	rows *rows
	own  bool
	keep map[string]bool
}

// buildTable merges sources, best first; the first row of a key wins.
func buildTable(name, system string, sources []source) (*table, error) {
	b := newBuilder()
	var sites []gemmRow
	for _, src := range sources {
		r := &rowReader{rows: src.rows, b: b}
		accept := func(i int) bool { return src.keep == nil || src.keep[r.text("kernel_source", i)] }
		switch name {
		case "gemm_perf":
			sites = append(sites, loadGEMM(r, src.own, accept)...)
		case "computescale_perf", "scale_matrix_perf":
			loadScale(r, src.own, accept)
		case "context_attention_perf":
			loadContextAttention(r, src.own, accept)
		case "generation_attention_perf":
			loadGenerationAttention(r, src.own, accept)
		case "custom_allreduce_perf":
			loadAllReduce(r, src.own, system == "b60")
		case "nccl_perf", "oneccl_perf":
			loadNCCL(r, src.own)
		case "moe_perf":
			loadMoE(r, src.own, accept)
		case "mla_context_module_perf", "mla_generation_module_perf":
			loadMLAModule(r, src.own, accept, name == "mla_context_module_perf")
		case "context_mla_perf", "generation_mla_perf":
			loadMLA(r, src.own, accept, name == "context_mla_perf")
		case "mla_bmm_perf":
			loadBMM(r, src.own, accept)
		default:
			return nil, fmt.Errorf("no loader for table %q", name)
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	t := b.finish()
	if name == "gemm_perf" {
		t.siteOrder(sites)
	}
	return t, nil
}

// narrow turns a column value into a key part; values beyond int32 are no shapes.
func narrow(r *rowReader, v int64) int32 {
	if v < math.MinInt32 || v > math.MaxInt32 {
		if r.err == nil {
			r.err = fmt.Errorf("%s: value %d is too large for a shape", r.path, v)
		}
		return 0
	}
	return int32(v)
}

// Key: data type, n, k. Axis: m.
func loadGEMM(r *rowReader, own bool, accept func(int) bool) []gemmRow {
	dtype, m, n, k, ms := r.words("gemm_dtype", "", true), r.ints("m"), r.ints("n"), r.ints("k"), r.latency()
	out := make([]gemmRow, 0, r.n)
	for i := range r.n {
		if w := r.b.words[dtype[i]]; w == "awq" || w == "gptq" || !accept(i) {
			continue
		}
		key := sliceKey{dtype[i], narrow(r, n[i]), narrow(r, k[i])}
		r.b.add(key, 0, 0, float64(m[i]), ms[i], own)
		out = append(out, gemmRow{key, m[i]})
	}
	return out
}

// Key: data type. Axes: m, k.
func loadScale(r *rowReader, own bool, accept func(int) bool) {
	dtype, m, k, ms := r.words("quant_dtype", "", true), r.ints("m"), r.ints("k"), r.latency()
	for i := range r.n {
		if accept(i) {
			r.b.add(sliceKey{dtype[i]}, 0, float64(m[i]), float64(k[i]), ms[i], own)
		}
	}
}

// localKV is the key-value head count of a slice key: 0 where every head has its own.
func localKV(heads, kv int64) int64 {
	if heads == kv {
		return 0
	}
	return kv
}

// Key: lane, attention type, KV type, K, head size, window. Axes: heads, sequence, batch.
func loadContextAttention(r *rowReader, own bool, accept func(int) bool) {
	lane, attn, kv := r.words("kernel_source", "default", false), r.words("attn_dtype", "", true), r.words("kv_cache_dtype", "", true)
	b, s, n := r.ints("batch_size"), r.ints("isl"), r.ints("num_heads")
	k, h, w, ms := r.ints("num_key_value_heads"), r.ints("head_dim"), r.optInts("window_size"), r.latency()
	for i := range r.n {
		if accept(i) {
			key := sliceKey{lane[i], attn[i], kv[i], narrow(r, localKV(n[i], k[i])), narrow(r, h[i]), narrow(r, w[i])}
			r.b.add(key, float64(n[i]), float64(s[i]), float64(b[i]), ms[i], own)
		}
	}
}

// Key: lane, KV type, K, head size, window. Axes: heads, batch, sequence = isl + step.
func loadGenerationAttention(r *rowReader, own bool, accept func(int) bool) {
	lane, kv := r.words("kernel_source", "default", false), r.words("kv_cache_dtype", "", true)
	b, s, step, n := r.ints("batch_size"), r.ints("isl"), r.ints("step"), r.ints("num_heads")
	k, h, w, ms := r.ints("num_key_value_heads"), r.ints("head_dim"), r.optInts("window_size"), r.latency()
	for i := range r.n {
		if accept(i) {
			key := sliceKey{lane[i], kv[i], narrow(r, localKV(n[i], k[i])), narrow(r, h[i]), narrow(r, w[i])}
			r.b.add(key, float64(n[i]), float64(b[i]), float64(s[i]+step[i]), ms[i], own)
		}
	}
}

// Key: GPUs. Axis: message size in elements. Rows of the eager implementation count
// on XPU systems only (spec aic-perfmodel 5.4).
func loadAllReduce(r *rowReader, own, eager bool) {
	g, size, ms := r.ints("num_gpus"), r.ints("message_size"), r.latency()
	for i := range r.n {
		if !eager && (strings.HasSuffix(r.text("kernel_source", i), "_eager") || strings.HasSuffix(r.text("backend", i), "_eager")) {
			continue
		}
		r.b.add(sliceKey{narrow(r, g[i])}, 0, 0, float64(size[i]), ms[i], own)
	}
}

// Key: data type, operation, GPUs. Axis: message size in elements.
func loadNCCL(r *rowReader, own bool) {
	dtype, op := r.words("nccl_dtype", "", true), r.words("op_name", "", true)
	g, size, ms := r.ints("num_gpus"), r.ints("message_size"), r.latency()
	for i := range r.n {
		r.b.add(sliceKey{dtype[i], op[i], narrow(r, g[i])}, 0, 0, float64(size[i]), ms[i], own)
	}
}

// Key: 1 for the low-latency table, data type, distribution, topk, experts, hidden
// size, inter size, MoE tensor and expert parallelism. Axis: tokens.
func loadMoE(r *rowReader, own bool, accept func(int) bool) {
	dtype, dist := r.words("moe_dtype", "", true), r.words("distribution", "", true)
	t, h, f := r.ints("num_tokens"), r.ints("hidden_size"), r.ints("inter_size")
	topk, e, tp, ep := r.ints("topk"), r.ints("num_experts"), r.ints("moe_tp_size"), r.ints("moe_ep_size")
	ms := r.latency()
	for i := range r.n {
		if !accept(i) {
			continue
		}
		kernel, low := r.text("kernel_source", i), int32(0)
		switch w := r.b.words[dtype[i]]; {
		case kernel == "moe_torch_flow_min_latency":
			low = 1
		case w == "w4a8_mxfp4_mxfp8" && kernel == "sglang_mxfp4_flashinfer_trtllm_moe":
			dtype[i] = r.b.word("w4a8_mxfp4_mxfp8_trtllm")
		case w == "w4a16_mxfp4" && kernel == "sglang_flashinfer_cutlass_moe":
			dtype[i] = r.b.word("w4a16_mxfp4_cutlass")
		}
		key := sliceKey{low, dtype[i], dist[i], narrow(r, topk[i]), narrow(r, e[i]), narrow(r, h[i]), narrow(r, f[i]), narrow(r, tp[i]), narrow(r, ep[i])}
		r.b.add(key, 0, 0, float64(t[i]), ms[i], own)
	}
}

// nativeHeads maps the measured model to its head count (spec aic-perfmodel 5.7).
var nativeHeads = map[string]int64{
	"deepseek-ai/DeepSeek-V3":    128,
	"deepseek-ai/DeepSeek-R1":    128,
	"nvidia/DeepSeek-V3.1-NVFP4": 128,
	"moonshotai/Kimi-K3":         96,
}

// Context key: native heads, KV type, GEMM type, attention type; axes: heads,
// sequence, batch. Generation key: the same without the attention type; axes:
// heads, batch, sequence.
func loadMLAModule(r *rowReader, own bool, accept func(int) bool, context bool) {
	kv, gemm, mla := r.words("kv_cache_dtype", "", true), r.words("gemm_type", "", true), r.words("mla_dtype", "", true)
	n, b, s, step, tp := r.ints("num_heads"), r.ints("batch_size"), r.ints("isl"), r.ints("step"), r.ints("tp_size")
	ms := r.latency()
	for i := range r.n {
		if !accept(i) {
			continue
		}
		model := r.text("model", i)
		native, ok := nativeHeads[model]
		if r.err == nil && !ok {
			r.err = fmt.Errorf("%s: row %d: head count of model %q is not known", r.path, i, model)
		}
		if r.err == nil && tp[i] > 1 && n[i]*tp[i] != native {
			r.err = fmt.Errorf("%s: row %d: %d heads on %d GPUs are not the %d of %s", r.path, i, n[i], tp[i], native, model)
		}
		key := sliceKey{int32(native), kv[i], gemm[i]}
		if context {
			key[3] = mla[i]
			r.b.add(key, float64(n[i]), float64(s[i]), float64(b[i]), ms[i], own)
		} else {
			r.b.add(key, float64(n[i]), float64(b[i]), float64(s[i]+step[i]), ms[i], own)
		}
	}
}

// Context key: KV type, attention type; axes: heads, sequence, batch. Generation
// key: KV type; axes: heads, batch, sequence.
func loadMLA(r *rowReader, own bool, accept func(int) bool, context bool) {
	kv, mla := r.words("kv_cache_dtype", "", true), r.words("mla_dtype", "", true)
	n, b, s, step, ms := r.ints("num_heads"), r.ints("batch_size"), r.ints("isl"), r.ints("step"), r.latency()
	for i := range r.n {
		switch {
		case !accept(i):
		case context:
			r.b.add(sliceKey{kv[i], mla[i]}, float64(n[i]), float64(s[i]), float64(b[i]), ms[i], own)
		default:
			r.b.add(sliceKey{kv[i]}, float64(n[i]), float64(b[i]), float64(s[i]+step[i]), ms[i], own)
		}
	}
}

// Key: data type, operation, heads. Axis: tokens.
func loadBMM(r *rowReader, own bool, accept func(int) bool) {
	dtype, op := r.words("bmm_dtype", "", true), r.words("op_name", "", true)
	t, n, ms := r.ints("num_tokens"), r.ints("num_heads"), r.latency()
	for i := range r.n {
		if accept(i) {
			r.b.add(sliceKey{dtype[i], op[i], narrow(r, n[i])}, 0, 0, float64(t[i]), ms[i], own)
		}
	}
}
