package scenario

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/dynosweep/dynosweep/sim/engine"
)

// Default domains of recommend (spec sweeps-and-schema 2.6).
var (
	defaultBackends = []string{"vllm", "sglang"}
	batchedTokens   = map[string][]string{"aggregated": {"8192", "16384", "32768"}, "prefill": {"8192", "16384", "32768"}, "decode": {"8192"}}
	sequences       = map[string][]string{"aggregated": {"256", "512", "1024"}, "decode": {"256", "512", "1024"},
		"prefill": {"1", "2", "4", "8", "16", "32", "64", "128", "256"}}
	shapeKeys = []string{"replicas", "tensor", "pipeline", "attention_data", "moe_tensor", "moe_expert"}
)

// workersPath is where a role stands in the document.
func workersPath(role string) string { return "engine.workers." + role }

// branches makes one branch per deployment mode.
func (r *recommender) branches(m mapping) {
	e := m.sub("engine", "a mapping", predictEngineKeys)
	modes := r.domain(e.get("mode"), decimalRange, modeKinds...)
	w := e.sub("workers", "a mapping", roleNames)
	base := m.node.without("optimization", "optimizer", "cost")
	for _, v := range modes {
		i := slices.Index(modeKinds, v.text)
		if i < 0 {
			r.f.badType(v, "unknown variant `"+v.textOf()+"`, expected "+oneOf(modeKinds))
			continue
		}
		roles := [][]string{{"aggregated"}, {"prefill", "decode"}}[i]
		doc := base.with("engine.mode", v.placed("engine.mode"))
		var only []string
		for _, name := range roleNames {
			if !slices.Contains(roles, name) {
				only = append(only, name)
			}
		}
		if len(modes) > 1 { // what belongs to the other mode is no fault then
			doc = doc.with("engine.workers", w.node.without(only...))
			if i == 0 {
				doc = doc.with("engine", doc.get("engine").without("kv_transfer"))
			}
		}
		b := SearchBranch{Mode: v.text, base: doc}
		b.space = r.space(e, w, doc, roles)
		settle(b.space)
		if b.Size = product(b.space); b.Size == 0 && r.f.ok() {
			r.notice("mode %s has no candidate within %d GPUs", v.text, r.out.Goal.MaxGPUs)
			continue
		}
		r.out.Branches = append(r.out.Branches, b)
	}
	if len(r.out.Branches) == 0 && r.f.ok() {
		r.f.brokenAt(m.node, "optimization", fmt.Sprintf("no candidate fits %d to %d GPUs", r.out.Goal.MinGPUs, r.out.Goal.MaxGPUs))
	}
}

// space is the decisions of one mode, in document order.
func (r *recommender) space(e, w mapping, doc *node, roles []string) []decision {
	out := []decision{r.backends(e, w, roles)}
	for _, role := range roles {
		out = append(out, r.worker(w, role)...)
	}
	out = append(out, r.load(doc)...)
	out = append(out, r.router(doc.get("router"))...)
	return append(out, r.planner(doc.get("planner"))...)
}

// backends decides backend, hardware and, below them, the parallel shapes, which
// depend on both.
func (r *recommender) backends(e, w mapping, roles []string) decision {
	var d decision
	for _, backend := range r.domain(e.get("backend"), decimalRange, defaultBackends...) {
		hw := decision{}
		for _, system := range r.systems(e) {
			then := r.shapes(e, w, roles, backend.text, system.text)
			hw.options = append(hw.options, option{[]assign{{path: "engine.hardware", v: system.placed("engine.hardware")}}, then})
		}
		d.options = append(d.options, option{[]assign{{path: "engine.backend", v: backend.placed("engine.backend")}}, []decision{hw}})
	}
	return d
}

// systems lists the hardware: auto stands for optimization.hardware.
func (r *recommender) systems(e mapping) []*node {
	at := e.get("hardware")
	auto := at != nil && at.kind == stringKind && at.text == "auto"
	switch {
	case auto && r.hardware == nil:
		r.f.broken(at, "hardware auto needs optimization.hardware, a domain of systems")
		return nil
	case auto:
		return r.domain(r.hardware, decimalRange)
	case r.hardware != nil:
		r.f.broken(r.hardware, "optimization.hardware belongs to engine.hardware: auto")
	case at == nil:
		e.missing("hardware")
		return nil
	}
	return r.domain(at, decimalRange)
}

// worker decides the numbers of one role.
func (r *recommender) worker(w mapping, role string) []decision {
	at := workersPath(role)
	m := r.f.mapping(w.get(role), "a mapping", workerKeys)
	s := m.sub("scheduler", "a mapping", schedulerKeys)
	c := m.sub("kv_cache", "a mapping", kvCacheKeys)
	out := []decision{
		values(at+".scheduler.max_batched_tokens", r.domain(s.get("max_batched_tokens"), decimalRange, batchedTokens[role]...)),
		values(at+".scheduler.max_sequences", r.domain(s.get("max_sequences"), decimalRange, sequences[role]...)),
	}
	if v := c.get("block_size"); v.isDomain() {
		out = append(out, values(at+".kv_cache.block_size", r.domain(v, decimalRange)))
	}
	if v := c.get("capacity").get("memory_fraction"); v.isDomain() {
		out = append(out, values(at+".kv_cache.capacity.memory_fraction", r.domain(v, decimalRange)))
	}
	return out
}

// shape is the parallelism of one role with its replicas.
type shape struct {
	replicas, tensor, attentionData, moeTensor, moeExpert int
	moe                                                   bool
}

func (s shape) gpus() int { return s.replicas * s.tensor * s.attentionData }

// assign writes the shape as a parallelism mapping.
func (s shape) assign(role string) assign {
	path := workersPath(role) + ".parallelism"
	n := emptyMap(0, path)
	put := func(key string, v int) {
		n.put(key, &node{kind: intKind, text: strconv.Itoa(v), path: join(path, key)})
	}
	put("replicas", s.replicas)
	put("tensor", s.tensor)
	put("pipeline", 1)
	put("attention_data", s.attentionData)
	if s.moe {
		put("moe_tensor", s.moeTensor)
		put("moe_expert", s.moeExpert)
	}
	return assign{path: path, v: n}
}

// shapes decides the parallelism of all roles. Where every role takes the default
// pool, combinations beyond the GPU budget are no candidates.
func (r *recommender) shapes(e, w mapping, roles []string, backend, system string) []decision {
	var pools [][]shape
	var free []decision
	for _, role := range roles {
		m := r.f.mapping(w.get(role), "a mapping", workerKeys)
		p := r.f.mapping(m.get("parallelism"), "a mapping", append([]string{"preset"}, parallelismKeys...))
		preset := p.get("preset")
		leaves := slices.ContainsFunc(p.keys, func(k string) bool { return k != "preset" })
		switch {
		case preset != nil && leaves && !preset.empty() && !(preset.kind == boolKind && preset.text == "false"):
			r.f.broken(preset, "preset and leaf domains exclude each other: keep one")
		case leaves || preset.empty() || preset != nil && preset.text == "false" && preset.kind == boolKind:
			free = append(free, r.leaves(p, role)...)
		case preset == nil || preset.kind == stringKind && preset.text == "default":
			pools = append(pools, r.pool(e, m, role, backend, system))
		default:
			free = append(free, r.listed(preset, role))
		}
	}
	return append(r.pooled(e, roles, pools, free), free...)
}

// empty reports a mapping without keys.
func (n *node) empty() bool { return n != nil && n.kind == mapKind && len(n.keys) == 0 }

// leaves decides every written number of a parallelism mapping.
func (r *recommender) leaves(p mapping, role string) []decision {
	at := workersPath(role) + ".parallelism"
	out := []decision{one(assign{at, p.node.without("preset"), true})}
	for i, key := range p.keys {
		if key != "preset" && p.items[i].isDomain() {
			out = append(out, values(join(at, key), r.domain(p.items[i], decimalRange)))
		}
	}
	return out
}

// listed decides among complete mappings.
func (r *recommender) listed(n *node, role string) decision {
	var d decision
	if n.kind != listKind || len(n.items) == 0 {
		r.f.badType(n, "preset is default, false, or a non-empty list of complete mappings")
		return d
	}
	for _, v := range n.items {
		m := r.f.mapping(v, "a mapping", shapeKeys)
		for _, key := range shapeKeys {
			if m.get(key) == nil {
				m.missing(key)
			}
		}
		at := workersPath(role) + ".parallelism"
		d.options = append(d.options, option{set: []assign{{path: at, v: v.placed(at)}}})
	}
	return d
}

// pooled decides among the shapes of the default pools. With one pool beside other
// decisions the budget is checked per candidate.
func (r *recommender) pooled(e mapping, roles []string, pools [][]shape, free []decision) []decision {
	g := &r.out.Goal
	fits := func(gpus int) bool { return gpus <= g.MaxGPUs && gpus >= g.MinGPUs }
	var d decision
	switch {
	case len(pools) == 0:
		return nil
	case len(pools) == 1 && len(roles) == 1:
		for _, s := range pools[0] {
			if fits(s.gpus()) {
				d.options = append(d.options, option{set: []assign{s.assign(roles[0])}})
			}
		}
	case len(pools) == 1:
		role := roles[0]
		if len(free) > 0 && len(free[0].options) > 0 && free[0].options[0].set[0].path == workersPath(role)+".parallelism" {
			role = roles[1]
		}
		for _, s := range pools[0] {
			d.options = append(d.options, option{set: []assign{s.assign(role)}})
		}
	default:
		for _, a := range pools[0] {
			for _, b := range pools[1] {
				if len(d.options) > maxVariants {
					r.f.badType(e.node, fmt.Sprintf("more than %d combinations of parallel shapes: lower max_candidate_gpus, or list the shapes", maxVariants))
					return nil
				}
				if fits(a.gpus() + b.gpus()) {
					d.options = append(d.options, option{set: []assign{a.assign(roles[0]), b.assign(roles[1])}})
				}
			}
		}
	}
	return []decision{d}
}

// pool is the default pool of one role (spec sweeps-and-schema 5.2): shapes in order
// of GPUs per worker, then tensor, attention_data, moe_tensor, moe_expert, replicas.
func (r *recommender) pool(e, m mapping, role, backend, system string) []shape {
	moe := r.experts(e, backend, system)
	var out []shape
	for g := 1; g <= 16 && g <= r.out.Goal.MaxGPUs; g *= 2 {
		for _, s := range widths(g, moe, backend) {
			if !r.roomy(e, m, s, role, backend, system) {
				continue
			}
			for s.replicas = 1; s.gpus() <= r.out.Goal.MaxGPUs; s.replicas++ {
				out = append(out, s)
			}
		}
	}
	return out
}

// widths lists the shapes of one worker of g GPUs.
func widths(g int, moe bool, backend string) []shape {
	if !moe {
		return []shape{{replicas: 1, tensor: g, attentionData: 1}}
	}
	s := func(tensor, data, moeTensor, moeExpert int) shape {
		return shape{1, tensor, data, moeTensor, moeExpert, true}
	}
	if g == 1 {
		return []shape{s(1, 1, 1, 1)}
	}
	// DP attention with EP, pure MoE-TP, TP attention with EP.
	return []shape{s(1, g, 1, g), s(g, 1, g, 1), s(g, 1, 1, g)}
}

// request is the performance-model question of a shape.
func (s shape) request(e mapping, role, backend, system string) AICRequest {
	text := func(key string) string {
		if v := e.get(key); v != nil && v.kind == stringKind {
			return v.text
		}
		return ""
	}
	q := AICRequest{Model: text("model"), System: system, Backend: backend, Version: text("backend_version"),
		SystemsPath: text("systems_path"), TP: s.tensor, PP: 1, AttentionDP: s.attentionData, CP: 1, Mode: modeNames[0],
		Role: engine.Role(slices.Index(roleNames, role))}
	if s.moe {
		q.MoETP, q.MoEEP = s.moeTensor, s.moeExpert
	}
	return q
}

// experts reports whether the model has experts. An unknown model counts as dense,
// with a notice.
func (r *recommender) experts(e mapping, backend, system string) bool {
	if r.o.Experts == nil || !r.f.ok() {
		return false
	}
	one := shape{replicas: 1, tensor: 1, attentionData: 1}
	moe, err := r.o.Experts(one.request(e, "aggregated", backend, system))
	if err != nil {
		r.notice("parallelism.preset default takes the model for dense: %v", err)
		return false
	}
	return moe
}

// roomy reports whether the weights of a shape leave room for the KV of one context;
// without tables, or with a fixed capacity, every shape does.
func (r *recommender) roomy(e, m mapping, s shape, role, backend, system string) bool {
	capacity := m.get("kv_cache").get("capacity")
	if r.o.Resolve == nil || !r.f.ok() || capacity.get("type") != nil && capacity.get("type").text == "fixed" {
		return true
	}
	b := slices.Index(backendNames, backend)
	if b < 0 {
		return true
	}
	block := int(defaultBlockSize[b])
	a, err := r.o.Resolve(TimingQuery{Capacity: &Capacity{Model: s.request(e, role, backend, system), BlockSize: block,
		MaxBatchedTokens: defaultMaxBatch, MaxSeqs: defaultMaxSeqs, MemoryFraction: defaultFraction[b]}})
	if err != nil {
		r.notice("%s on %s, %s: tensor %d, attention_data %d is no candidate: %v", e.get("model").textOf(), system, backend, s.tensor, s.attentionData, err)
		return false
	}
	if v := e.get("context_length"); v != nil && v.kind == intKind {
		return float64(a.Blocks)*float64(block) >= v.float()
	}
	return a.Blocks > 0
}

// load decides the number inside traffic.load.
func (r *recommender) load(doc *node) []decision {
	at := doc.get("traffic").get("load")
	if at == nil || at.kind != mapKind {
		return nil
	}
	if t := at.get("type"); t != nil && t.text == "kv_capacity_fraction" {
		r.out.fraction = true
		m := r.f.mapping(at, "a mapping", []string{"type", "fraction"})
		if m.get("fraction") == nil {
			m.missing("fraction")
			return nil
		}
		if source := doc.get("traffic").get("source"); source.get("type") != nil && source.get("type").text == "trace" {
			r.f.broken(t, "kv_capacity_fraction fits synthetic sources: a trace takes concurrency or trace_timestamps")
		}
		for _, v := range r.domain(m.get("fraction"), decimalRange) {
			if v.kind != intKind && v.kind != floatKind || !(finite(v.float(), 0) && v.float() > 0) {
				r.f.badType(v, "fraction must be a positive number")
			}
		}
	}
	var out []decision
	for i, key := range at.keys {
		if v := at.items[i]; v.isDomain() && key != "type" {
			out = append(out, values("traffic.load."+key, r.domain(v, decimalRange)))
		}
	}
	return out
}
