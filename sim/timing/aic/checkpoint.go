package aic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// parseObject reads a JSON object, bare Infinity and NaN as null. Errors name file and
// line.
func parseObject(file string, data []byte) (object, error) {
	data = bareNumber.ReplaceAll(data, []byte("${1}null"))
	var (
		o      object
		syntax *json.SyntaxError
	)
	switch err := json.Unmarshal(data, &o); {
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(data[:syntax.Offset], []byte("\n"))
		return nil, classed(ErrModel, "%s:%d: %w", file, line, err)
	case err != nil || o == nil:
		return nil, classed(ErrModel, "%s:1: must be a JSON object", file)
	}
	return o, nil
}

// parseCheckpoint reads config.json and, when not nil, hf_quant_config.json.
func parseCheckpoint(name string, config, hfQuant []byte) (*checkpoint, error) {
	root, err := parseObject(name+"/config.json", config)
	if err != nil {
		return nil, err
	}
	hf := object{}
	if hfQuant != nil {
		if hf, err = parseObject(name+"/hf_quant_config.json", hfQuant); err != nil {
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

// number returns the first non-null key as an integer, 0 if there is none.
func number(o object, keys ...string) (int, error) {
	for _, k := range keys {
		switch x := o[k].(type) {
		case nil:
		case float64:
			if x != math.Trunc(x) || x < 0 || x > maxShape {
				return 0, classed(ErrModel, "%s: not a size: %v", k, x)
			}
			return int(x), nil
		default:
			return 0, classed(ErrModel, "%s: not a number: %v", k, x)
		}
	}
	return 0, nil
}

// sizes reads the sizes of a configuration and keeps the first error.
type sizes struct {
	o   object
	err error
}

// need returns a size that must be there and not be 0.
func (r *sizes) need(key string) int {
	v := r.get(key)
	if v == 0 && r.err == nil {
		r.err = classed(ErrModel, "missing key %s", key)
	}
	return v
}

// get returns the first non-null of some keys, 0 if there is none.
func (r *sizes) get(keys ...string) int {
	v, err := number(r.o, keys...)
	if r.err == nil {
		r.err = err
	}
	return v
}

// nonZero returns the first of some keys that is not 0.
func (r *sizes) nonZero(keys ...string) int {
	for _, k := range keys {
		if v := r.get(k); v != 0 {
			return v
		}
	}
	return 0
}

// readShape reads the sizes (spec aic-perfmodel 2.2).
func (c *checkpoint) readShape(o object) error {
	r := &sizes{o: o}
	c.layers, c.hidden, c.heads = r.need("num_hidden_layers"), r.need("hidden_size"), r.need("num_attention_heads")
	c.kvHeads, c.vocab = r.get("num_key_value_heads"), r.need("vocab_size")
	c.headDim = r.nonZero("head_dim", "attention_head_dim")
	if c.headDim == 0 && c.heads > 0 {
		c.headDim = c.hidden / c.heads
	}
	c.inter = r.get("intermediate_size")
	c.topk = r.get("num_experts_per_tok", "top_k_experts", "moe_top_k")
	c.experts = r.nonZero("num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts")
	c.expertInter = r.nonZero("moe_intermediate_size", "intermediate_size")
	c.vHeadDim, c.kvRank, c.ropeDim = r.get("v_head_dim"), r.get("kv_lora_rank"), r.get("qk_rope_head_dim")
	c.qkNorm = slices.Contains(qkNormArchitectures, c.arch)
	switch {
	case r.err != nil:
	case c.family == llama && c.inter == 0:
		r.err = classed(ErrModel, "missing key intermediate_size")
	case c.family != llama && (c.experts == 0 || c.topk == 0 || c.expertInter == 0):
		r.err = classed(ErrModel, "missing expert keys (num_experts, num_experts_per_tok, moe_intermediate_size)")
	}
	if r.err != nil {
		return fmt.Errorf("model %s: %w", c.name, r.err)
	}
	return nil
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
	gemm, moe := c.weightModes()
	fmha, kv := c.attentionModes(backend)
	q := quant{
		gemm: cmp.Or(user.gemm, gemm), moe: cmp.Or(user.moe, moe),
		fmha: cmp.Or(user.fmha, fmha), kv: cmp.Or(user.kv, kv),
		comm: cmp.Or(user.comm, "half"), gemmSet: user.gemm != "",
	}
	experts := c.family != llama
	if q.gemm == "" || experts && q.moe == "" {
		return q, classed(ErrModel, "model %s: quantisation %q is not supported; name the gemm and moe modes", c.name, c.quantAlgo)
	}
	return q, q.check(experts)
}

// weightModes are the checkpoint's formats of dense layers and of experts, empty where
// they are not known.
func (c *checkpoint) weightModes() (gemm, moe string) {
	switch c.quantAlgo {
	case "":
		return "bfloat16", "bfloat16"
	case "fp8":
		if c.dynamic != nil && *c.dynamic {
			return "fp8", "fp8"
		}
		return "fp8_static", "fp8"
	case "fp8_block", "nvfp4":
		return c.quantAlgo, c.quantAlgo
	case "mxfp4":
		return "bfloat16", "w4a16_mxfp4"
	case "compressed-tensors":
		gemm, moe = c.baseAlgo, c.baseAlgo
		for _, p := range c.compress {
			if contains(p, "self_attn", "q_proj", "k_proj", "v_proj", "o_proj") {
				gemm = "bfloat16"
			}
			if contains(p, "expert") && !contains(p, "shared_expert") {
				moe = "bfloat16"
			}
		}
	}
	return gemm, moe
}

// attentionModes are the checkpoint's formats of attention and KV cache on a backend.
func (c *checkpoint) attentionModes(backend string) (fmha, kv string) {
	switch {
	case c.quantAlgo == "fp8", c.quantAlgo == "fp8_block", c.quantAlgo == "nvfp4", c.quantAlgo != "" && c.kvAlgo == "fp8":
		if backend == "vllm" {
			return "bfloat16", "fp8"
		}
		return "fp8", "fp8"
	}
	return "bfloat16", cmp.Or(c.kvAlgo, "bfloat16")
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
