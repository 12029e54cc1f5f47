package scenario

import "slices"

// engineSectionKeys are the keys of engine in a sweep: those of spec engine-args
// 2.2 and the launch keys of 2.1 side by side.
var engineSectionKeys = slices.Concat(engineKeys, launchKeys[1:])

// mergedEngine lays the engine keys of one role over those of all roles; sglang is
// merged key by key.
func mergedEngine(base, over *node) *node {
	if over == nil {
		return base
	}
	out := emptyMap(base.line, base.path)
	out.keys, out.items = slices.Clone(base.keys), slices.Clone(base.items)
	for i, key := range over.keys {
		v := over.items[i]
		if key == "sglang" && v.kind == mapKind && base.get(key) != nil && base.get(key).kind == mapKind {
			v = mergedEngine(base.get(key), v)
		}
		out.put(key, v)
	}
	return out
}

// nestEngine lowers the engine section to nested engine arguments.
func nestEngine(n *node) *node {
	out, eng := emptyMap(n.line, n.path), emptyMap(n.line, n.path)
	for i, key := range n.keys {
		if slices.Contains(launchKeys, key) {
			out.put(key, n.items[i])
		} else {
			eng.put(key, n.items[i])
		}
	}
	out.put("engine", eng)
	return out
}

// timingKeys are the keys of a timing mapping per type; aic keys have an upstream
// name.
var (
	timingTypes = []string{"polynomial", "fixed", "profile", "aic"}
	aicTimingOf = [][2]string{{"model", "model"}, {"system", "system"}, {"backend", "backend"},
		{"backend_version", "backend_version"}, {"tensor_parallel", "tp"}, {"attention_data_parallel", "attention_dp"},
		{"context_parallel", "cp_size"}, {"moe_tensor_parallel", "moe_tp_size"}, {"moe_expert_parallel", "moe_ep_size"},
		{"gemm_dtype", "gemm_dtype"}, {"moe_dtype", "moe_dtype"}, {"fmha_dtype", "fmha_dtype"},
		{"kv_cache_dtype", "kv_cache_dtype"}, {"comm_dtype", "comm_dtype"}, {"database_mode", "database_mode"},
		{"attention_backend", "attention_backend"}, {"systems_path", "systems_path"}, {"decode_qk_norm", "decode_qk_norm"}}
	aicTimingKeys = func() []string {
		keys := []string{"type"}
		for _, k := range aicTimingOf {
			keys = append(keys, k[0])
		}
		return keys
	}()
)

// timingSection lowers one timing mapping of a sweep to a timing_model, nil for
// null.
func (f *faults) timingSection(n *node) *node {
	if n == nil || n.kind == nullKind {
		return nil
	}
	if n.kind != mapKind {
		f.badType(n, "invalid type: "+n.describe()+", expected a mapping with a type: "+oneOf(timingTypes))
		return nil
	}
	kind := n.get("type")
	if kind == nil {
		f.badType(n, "missing field `type`, "+oneOf(timingTypes))
		return nil
	}
	switch kind.text {
	case "polynomial", "fixed":
		keys := []string{"type"}
		if kind.text == "fixed" {
			keys = append(keys, "prefill_ms", "decode_ms")
		}
		f.mapping(n, "", keys)
		return n
	case "profile", "dynamo_profile":
		f.mapping(n, "", []string{"type", "path"})
		config := emptyMap(n.line, n.path)
		if p := n.get("path"); p != nil {
			config.put("path", p)
		}
		return external(n, "dynamo_profile", config)
	case "aic", "ais":
		f.mapping(n, "", aicTimingKeys)
		config := emptyMap(n.line, n.path)
		for _, k := range aicTimingOf {
			if v := n.get(k[0]); v != nil {
				config.put(k[1], v)
			}
		}
		return external(n, "ais", config)
	}
	f.badType(kind, "unknown variant `"+kind.text+"`, expected "+oneOf(timingTypes))
	return nil
}

// roleTiming is one variant of the timing section: one for all roles, or one each.
type roleTiming struct {
	perRole bool
	models  [2]*node // prefill, decode; timing_model, nil: the engine's own
}

func (f *faults) timingVariant(n *node) *roleTiming {
	t := &roleTiming{perRole: n.get("prefill") != nil || n.get("decode") != nil}
	if !t.perRole {
		one := f.timingSection(n)
		t.models = [2]*node{one, one}
		return t
	}
	m := f.mapping(n, "a mapping", []string{"prefill", "decode"})
	for i, key := range m.keys {
		if key == "prefill" || key == "decode" {
			t.models[slices.Index([]string{"prefill", "decode"}, key)] = f.timingSection(m.items[i])
		}
	}
	return t
}
