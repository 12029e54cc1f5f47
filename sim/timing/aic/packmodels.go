package aic

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// modelKeys are the configuration keys that a model reads; the rest is not kept.
var modelKeys = []string{
	"architectures", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
	"head_dim", "attention_head_dim", "intermediate_size", "vocab_size", "max_position_embeddings",
	"num_experts_per_tok", "top_k_experts", "moe_top_k", "num_local_experts", "n_routed_experts",
	"moe_num_experts", "num_experts", "moe_intermediate_size", "v_head_dim", "kv_lora_rank", "qk_rope_head_dim",
	"quantization_config", "text_config", "quantization",
}

var quantKeys = []string{
	"quant_algo", "quant_method", "quantization_method", "weight_block_size", "kv_cache_quant_algo",
	"kv_cache_quant_method", "kv_cache_dtype", "kv_cache_scheme", "activation_scheme", "config_groups",
	"modules_to_not_convert", "exclude_modules", "ignore",
}

var layerNumber = regexp.MustCompile(`\.[0-9]+\.`)

// reduce keeps the keys that are read; module lists lose their layer numbers and
// repetitions, since only names matter.
func reduce(o object, keys []string) object {
	out := object{}
	for _, k := range keys {
		v, ok := o[k]
		if !ok || v == nil {
			continue
		}
		switch x := v.(type) {
		case object:
			switch k {
			case "quantization_config", "quantization":
				v = reduce(x, quantKeys)
			case "text_config":
				v = reduce(x, modelKeys)
			}
		case []any:
			if k == "modules_to_not_convert" || k == "exclude_modules" || k == "ignore" {
				v = shortPatterns(x)
			}
		}
		out[k] = v
	}
	return out
}

func shortPatterns(list []any) []any {
	var out []any
	seen := map[string]bool{}
	for _, e := range list {
		s, _ := e.(string)
		s = layerNumber.ReplaceAllString(s, ".*.")
		s = layerNumber.ReplaceAllString(s, ".*.")
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// packModels writes models.json from the model_configs beside the systems directory.
func packModels(src, dst string) error {
	fsys, err := openModelConfigs(src)
	if err != nil {
		return err
	}
	files, err := fs.Glob(fsys, "*_config.json")
	if err != nil {
		return err
	}
	out := map[string]map[string]object{}
	for _, f := range files {
		data, err := fs.ReadFile(fsys, f)
		if err != nil {
			return err
		}
		o, err := parseObject(f, data)
		if err != nil {
			return err
		}
		name, part := strings.TrimSuffix(f, "_config.json"), "config"
		if strings.HasSuffix(name, "_hf_quant") {
			name, part = strings.TrimSuffix(name, "_hf_quant"), "hf_quant"
		}
		name = strings.Replace(name, "--", "/", 1)
		if out[name] == nil {
			out[name] = map[string]object{}
		}
		out[name][part] = reduce(o, modelKeys)
	}
	for _, parts := range out {
		if archs, _ := parts["config"]["architectures"].([]any); len(archs) == 0 || families[fmt.Sprint(archs[0])] == "" {
			parts["config"] = object{"architectures": archs} // not supported: its name is enough for the message
			delete(parts, "hf_quant")
		}
	}
	data, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dst, "models.json"), append(data, '\n'))
}
