package scenario

import "github.com/dynosweep/dynosweep/internal/document"

import "slices"

// engineSectionKeys are the keys of engine in a sweep: those of spec engine-args
// 2.2 and the launch keys of 2.1 side by side.
var engineSectionKeys = slices.Concat(engineKeys, launchKeys[1:])

// mergedEngine lays the engine keys of one role over those of all roles; sglang is
// merged key by key.
func mergedEngine(base, over *document.Node) *document.Node {
	if over == nil {
		return base
	}
	out := document.EmptyMap(base.Line, base.Path)
	out.Keys, out.Items = slices.Clone(base.Keys), slices.Clone(base.Items)
	for i, key := range over.Keys {
		v := over.Items[i]
		if key == "sglang" && v.Kind == document.Map && base.Get(key) != nil && base.Get(key).Kind == document.Map {
			v = mergedEngine(base.Get(key), v)
		}
		out.Put(key, v)
	}
	return out
}

// nestEngine lowers the engine section to nested engine arguments.
func nestEngine(n *document.Node) *document.Node {
	out, eng := document.EmptyMap(n.Line, n.Path), document.EmptyMap(n.Line, n.Path)
	for i, key := range n.Keys {
		if slices.Contains(launchKeys, key) {
			out.Put(key, n.Items[i])
		} else {
			eng.Put(key, n.Items[i])
		}
	}
	out.Put("engine", eng)
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
		keys := []string{"type", "corrections"}
		for _, k := range aicTimingOf {
			keys = append(keys, k[0])
		}
		return keys
	}()
)

// readTiming lowers one timing mapping of a sweep to a timing_model, nil for
// null.
func readTiming(f *document.Faults, n *document.Node) *document.Node {
	if n == nil || n.Kind == document.Null {
		return nil
	}
	if n.Kind != document.Map {
		f.Malformed(n, "invalid type: "+n.Describe()+", expected a mapping with a type: "+document.OneOf(timingTypes))
		return nil
	}
	kind := n.Get("type")
	if kind == nil {
		f.Malformed(n, "missing field `type`, "+document.OneOf(timingTypes))
		return nil
	}
	before := len(f.List)
	model := lowerTiming(f, n, kind.Text)
	if model != nil && len(f.List) > before { // unknown keys hide no faults of the others
		readTimingModel(f, model)
	}
	if model == nil {
		f.Malformed(kind, "unknown variant `"+kind.Text+"`, expected "+document.OneOf(timingTypes))
	}
	return model
}

// lowerTiming returns the timing_model of a timing mapping of a type, with the keys
// that belong to it; nil if there is no such type.
func lowerTiming(f *document.Faults, n *document.Node, kind string) *document.Node {
	config := document.EmptyMap(n.Line, n.Path)
	switch kind {
	case "polynomial", "fixed":
		keys := []string{"type", "corrections"}
		if kind == "fixed" {
			keys = append(keys, "prefill_ms", "decode_ms")
		}
		f.Mapping(n, "", keys)
		return n.Only(keys...)
	case "profile", "dynamo_profile":
		f.Mapping(n, "", []string{"type", "path", "corrections"})
		if p := n.Get("path"); p != nil {
			config.Put("path", p)
		}
		return withCorrections(n, ExternalTiming(n, "dynamo_profile", config))
	case "aic", "ais":
		f.Mapping(n, "", aicTimingKeys)
		for _, k := range aicTimingOf {
			if v := n.Get(k[0]); v != nil {
				config.Put(k[1], v)
			}
		}
		return withCorrections(n, ExternalTiming(n, "ais", config))
	}
	return nil
}

// withCorrections copies the corrections of a timing mapping to its timing_model.
func withCorrections(n, model *document.Node) *document.Node {
	if c := n.Get("corrections"); c != nil {
		model.Put("corrections", c)
	}
	return model
}

// roleTiming is one variant of the timing section: one for all roles, or one each.
type roleTiming struct {
	perRole bool
	models  [2]*document.Node // prefill, decode; timing_model, nil: the engine's own
}

func readRoleTiming(f *document.Faults, n *document.Node) *roleTiming {
	t := &roleTiming{perRole: n.Get("prefill") != nil || n.Get("decode") != nil}
	if !t.perRole {
		one := readTiming(f, n)
		t.models = [2]*document.Node{one, one}
		return t
	}
	m := f.Mapping(n, "a mapping", []string{"prefill", "decode"})
	for i, key := range m.Keys {
		if key == "prefill" || key == "decode" {
			t.models[slices.Index([]string{"prefill", "decode"}, key)] = readTiming(f, m.Items[i])
		}
	}
	return t
}
