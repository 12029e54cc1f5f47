package aic

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// family groups architectures that share an op list (spec aic-perfmodel 2.2).
type family string

const (
	llama    family = "LLAMA"
	moe      family = "MOE"
	deepseek family = "DEEPSEEK"
	kimiK25  family = "KIMIK25"
)

var families = map[string]family{
	"LlamaForCausalLM": llama, "Qwen2ForCausalLM": llama, "Qwen3ForCausalLM": llama, "MiMoForCausalLM": llama,
	"MixtralForCausalLM": moe, "Qwen2MoeForCausalLM": moe, "Qwen3MoeForCausalLM": moe, "GptOssForCausalLM": moe, "MiniMaxM2ForCausalLM": moe,
	"DeepseekV3ForCausalLM": deepseek, "DeepSeekForCausalLM": deepseek,
	"KimiK25ForConditionalGeneration": kimiK25,
}

var qkNormArchitectures = []string{"Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "MiniMaxM2ForCausalLM"}

// checkpoint is what a model's configuration files say about its shape and formats.
type checkpoint struct {
	name                           string
	arch                           string
	family                         family
	layers, hidden, heads, kvHeads int
	headDim, inter, vocab          int
	topk, experts, expertInter     int
	vHeadDim, kvRank, ropeDim      int
	qkNorm                         bool

	quantAlgo string // lower case, empty when the checkpoint is not quantised
	kvAlgo    string // fp8, bfloat16 or empty
	dynamic   *bool
	block     int // rows of an fp8 block
	baseAlgo  string
	ignored   []string // module patterns left out of quantisation
	compress  []string // the ignore list of compressed-tensors
}

type object = map[string]any

var bareNumber = regexp.MustCompile(`(:\s*|\[\s*|,\s*)(-?Infinity|NaN)\b`)

// parseObject reads a JSON object, bare Infinity and NaN as null.
func parseObject(file string, data []byte) (object, error) {
	data = bareNumber.ReplaceAll(data, []byte("${1}null"))
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, classed(ErrModel, "%s: %w", file, err)
	}
	return o, nil
}

// parseCheckpoint reads config.json and, when not nil, hf_quant_config.json.
func parseCheckpoint(name string, config, hfQuant []byte) (*checkpoint, error) {
	root, err := parseObject(name, config)
	if err != nil {
		return nil, err
	}
	hf := object{}
	if hfQuant != nil {
		if hf, err = parseObject(name+" (quantisation)", hfQuant); err != nil {
			return nil, err
		}
	}
	archs, _ := root["architectures"].([]any)
	c := &checkpoint{name: name, block: 128}
	if len(archs) > 0 {
		c.arch, _ = archs[0].(string)
	}
	var known bool
	if c.family, known = families[c.arch]; !known {
		list := make([]string, 0, len(families))
		for a := range families {
			list = append(list, a)
		}
		return nil, classed(ErrModel, "model %s: architecture %q is not supported; supported: %s", name, c.arch, sortedWords(list))
	}
	if text, ok := root["text_config"].(object); ok {
		merged := object{}
		for k, v := range root {
			merged[k] = v
		}
		for k, v := range text {
			if k != "architectures" {
				merged[k] = v
			}
		}
		root = merged
	}
	if err := c.readShape(root); err != nil {
		return nil, err
	}
	quant, _ := root["quantization_config"].(object)
	return c, c.readQuant(quant, hf)
}

// maxShape bounds what a configuration may claim, so that products stay exact.
const maxShape = 1 << 31

// number returns the first non-null key as an integer; ok is false if none is there.
func number(o object, keys ...string) (v int, ok bool, err error) {
	for _, k := range keys {
		switch x := o[k].(type) {
		case nil:
		case float64:
			if x != float64(int64(x)) || x < 0 || x > maxShape {
				return 0, false, classed(ErrModel, "%s: not a size: %v", k, x)
			}
			return int(x), true, nil
		default:
			return 0, false, classed(ErrModel, "%s: not a number", k)
		}
	}
	return 0, false, nil
}

func (c *checkpoint) readShape(o object) error {
	var first error
	get := func(required bool, keys ...string) int {
		v, ok, err := number(o, keys...)
		if err == nil && (required && (!ok || v == 0)) {
			err = classed(ErrModel, "missing key %s", keys[0])
		}
		if err != nil && first == nil {
			first = fmt.Errorf("model %s: %w", c.name, err)
		}
		return v
	}
	nonZero := func(keys ...string) int {
		for _, k := range keys {
			if v := get(false, k); v != 0 {
				return v
			}
		}
		return 0
	}
	c.layers, c.hidden, c.heads = get(true, "num_hidden_layers"), get(true, "hidden_size"), get(true, "num_attention_heads")
	c.kvHeads, c.vocab = get(false, "num_key_value_heads"), get(true, "vocab_size")
	c.headDim = nonZero("head_dim", "attention_head_dim")
	if c.headDim == 0 && c.heads > 0 {
		c.headDim = c.hidden / c.heads
	}
	c.inter = get(false, "intermediate_size")
	c.topk = get(false, "num_experts_per_tok", "top_k_experts", "moe_top_k")
	c.experts = nonZero("num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts")
	c.expertInter = nonZero("moe_intermediate_size", "intermediate_size")
	c.vHeadDim, c.kvRank, c.ropeDim = get(false, "v_head_dim"), get(false, "kv_lora_rank"), get(false, "qk_rope_head_dim")
	c.qkNorm = slices.Contains(qkNormArchitectures, c.arch)
	if first == nil && c.family == llama && c.inter == 0 {
		first = classed(ErrModel, "model %s: missing key intermediate_size", c.name)
	}
	if first == nil && c.family != llama && (c.experts == 0 || c.topk == 0 || c.expertInter == 0) {
		first = classed(ErrModel, "model %s: missing expert keys (num_experts, num_experts_per_tok, moe_intermediate_size)", c.name)
	}
	return first
}

// text returns the first non-empty string under the keys, lower case.
func text(o object, keys ...string) string {
	for _, k := range keys {
		if s, ok := o[k].(string); ok && s != "" {
			return strings.ToLower(s)
		}
	}
	return ""
}

func list(o object, keys ...string) []string {
	var out []string
	for _, k := range keys {
		items, _ := o[k].([]any)
		for _, i := range items {
			if s, ok := i.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// readQuant reads the labels of step A (spec aic-perfmodel 2.3).
func (c *checkpoint) readQuant(q, hf object) error {
	hfq, _ := hf["quantization"].(object)
	c.quantAlgo = text(hfq, "quant_algo")
	if c.quantAlgo == "" {
		c.quantAlgo = text(q, "quant_algo", "quant_method", "quantization_method")
	}
	switch c.quantAlgo {
	case "w4a16_mxfp4":
		c.quantAlgo = "mxfp4"
	case "mixed-precision", "mixedprecision", "mixed precision":
		c.quantAlgo = "mixed_precision"
	case "fp8":
		if block, ok := q["weight_block_size"].([]any); ok && len(block) > 0 {
			c.quantAlgo = "fp8_block"
		}
	}
	if block, ok := q["weight_block_size"].([]any); ok && len(block) > 0 {
		if v, ok := block[0].(float64); ok && v >= 1 && v <= maxShape {
			c.block = int(v)
		}
	}
	c.readKV(q, hfq)
	c.readDynamic(q)
	if c.quantAlgo == "compressed-tensors" {
		c.compress = list(q, "ignore")
		c.baseAlgo = compressedBase(q)
	}
	c.ignored = append(list(q, "modules_to_not_convert", "exclude_modules", "ignore"), list(hfq, "modules_to_not_convert", "exclude_modules", "ignore")...)
	return nil
}

func (c *checkpoint) readKV(q, hfq object) {
	algo := text(hfq, "kv_cache_quant_algo")
	if algo == "" {
		algo = text(q, "kv_cache_quant_algo", "kv_cache_quant_method", "kv_cache_dtype")
	}
	switch algo {
	case "fp8", "e4m3", "e5m2":
		c.kvAlgo = "fp8"
		return
	case "fp16", "float16", "bf16", "bfloat16":
		c.kvAlgo = "bfloat16"
		return
	}
	switch s := q["kv_cache_scheme"].(type) {
	case string:
		if strings.Contains(strings.ToLower(s), "fp8") {
			c.kvAlgo = "fp8"
		}
	case object:
		kind, bits := text(s, "type"), 0.0
		if v, ok := s["num_bits"].(float64); ok {
			bits = v
		}
		switch {
		case strings.Contains(kind, "fp8"), kind == "float" && bits > 0 && bits <= 8:
			c.kvAlgo = "fp8"
		case kind == "float" && bits >= 16:
			c.kvAlgo = "bfloat16"
		}
	}
}

func (c *checkpoint) readDynamic(q object) {
	yes, no := true, false
	switch text(q, "activation_scheme") {
	case "dynamic":
		c.dynamic = &yes
		return
	case "static":
		c.dynamic = &no
		return
	}
	for _, g := range sortedGroups(q) {
		for _, part := range []string{"input_activations", "weights"} {
			if p, ok := g[part].(object); ok {
				if d, ok := p["dynamic"].(bool); ok {
					c.dynamic = &d
					return
				}
			}
		}
	}
}

// sortedGroups returns config_groups in key order.
func sortedGroups(q object) []object {
	groups, _ := q["config_groups"].(object)
	names := make([]string, 0, len(groups))
	for n := range groups {
		names = append(names, n)
	}
	sort.Strings(names)
	var out []object
	for _, n := range names {
		if g, ok := groups[n].(object); ok {
			out = append(out, g)
		}
	}
	return out
}

// compressedBase names the format of a compressed-tensors checkpoint, from its first
// group with a bit width; empty when there is none.
func compressedBase(q object) string {
	for _, g := range sortedGroups(q) {
		w, _ := g["weights"].(object)
		bits, ok := w["num_bits"].(float64)
		if !ok {
			continue
		}
		switch kind := text(w, "type"); {
		case kind == "int" && bits == 4:
			return "int4_wo"
		case kind == "int" && bits == 8:
			return "int8_wo"
		case kind == "float" && bits == 8 && text(w, "strategy") == "block":
			return "fp8_block"
		case kind == "float" && bits == 8:
			return "fp8"
		case kind == "float" && bits == 4:
			return "w4a16_mxfp4"
		}
	}
	return ""
}

// contains reports whether a pattern holds any of the words.
func contains(pattern string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(pattern, w) })
}

// quantModes chooses the formats (spec aic-perfmodel 2.3, step B); the user's win.
func (c *checkpoint) quantModes(user quant, backend string) (quant, error) {
	q := quant{comm: "half", gemmSet: user.gemm != ""}
	switch c.quantAlgo {
	case "":
		q.gemm, q.moe = "bfloat16", "bfloat16"
	case "fp8":
		q.gemm, q.moe = "fp8_static", "fp8"
		if c.dynamic != nil && *c.dynamic {
			q.gemm = "fp8"
		}
	case "fp8_block", "nvfp4":
		q.gemm, q.moe = c.quantAlgo, c.quantAlgo
	case "mxfp4":
		q.gemm, q.moe = "bfloat16", "w4a16_mxfp4"
	case "compressed-tensors":
		q.gemm, q.moe = c.baseAlgo, c.baseAlgo
		for _, p := range c.compress {
			if contains(p, "self_attn", "q_proj", "k_proj", "v_proj", "o_proj") {
				q.gemm = "bfloat16"
			}
			if contains(p, "expert") && !contains(p, "shared_expert") {
				q.moe = "bfloat16"
			}
		}
	}
	if c.quantAlgo != "" && (q.gemm == "" || q.moe == "") && (user.gemm == "" || user.moe == "") {
		return q, classed(ErrModel, "model %s: quantisation %q is not supported; name the gemm and moe modes", c.name, c.quantAlgo)
	}
	q.kv, q.fmha = "bfloat16", "bfloat16"
	if c.kvAlgo != "" {
		q.kv = c.kvAlgo
	}
	low := c.quantAlgo == "fp8" || c.quantAlgo == "fp8_block" || c.quantAlgo == "nvfp4"
	if c.quantAlgo != "" && (low || c.kvAlgo == "fp8") {
		q.fmha, q.kv = "fp8", "fp8"
		if backend == "vllm" {
			q.fmha = "bfloat16"
		}
	}
	for _, o := range []struct{ from, to *string }{{&user.gemm, &q.gemm}, {&user.moe, &q.moe}, {&user.fmha, &q.fmha}, {&user.kv, &q.kv}, {&user.comm, &q.comm}} {
		if *o.from != "" {
			*o.to = *o.from
		}
	}
	return q, q.check(c.family != llama)
}

func (q quant) check(experts bool) error {
	if err := checkMode("gemm", q.gemm, gemmModes); err != nil {
		return err
	}
	if experts {
		if err := checkMode("moe", q.moe, moeModes); err != nil {
			return err
		}
	}
	if err := checkMode("fmha", q.fmha, fmhaModes); err != nil {
		return err
	}
	if err := checkMode("kv cache", q.kv, kvBytes); err != nil {
		return err
	}
	return checkMode("comm", q.comm, commModes)
}
