package scenario

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/dynosweep/dynosweep/internal/document"
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
func (r *recommender) branches(m document.Mapping) {
	e := m.Sub("engine", "a mapping", predictEngineKeys)
	modes := r.domain(e.Get("mode"), decimalRange, modeKinds...)
	w := e.Sub("workers", "a mapping", roleNames)
	base := m.Node.Without("optimization", "optimizer", "cost")
	for _, v := range modes {
		i := slices.Index(modeKinds, v.Text)
		if i < 0 {
			r.f.Malformed(v, "unknown variant `"+v.String()+"`, expected "+document.OneOf(modeKinds))
			continue
		}
		roles := [][]string{{"aggregated"}, {"prefill", "decode"}}[i]
		doc := base.With("engine.mode", v.At("engine.mode"))
		var only []string
		for _, name := range roleNames {
			if !slices.Contains(roles, name) {
				only = append(only, name)
			}
		}
		if len(modes) > 1 { // what belongs to the other mode is no fault then
			doc = doc.With("engine.workers", w.Node.Without(only...))
			if i == 0 {
				doc = doc.With("engine", doc.Get("engine").Without("kv_transfer"))
			}
		}
		b := SearchBranch{Mode: v.Text, base: doc}
		r.lost.mode = v.Text
		b.space = r.space(e, w, doc, roles)
		settle(b.space)
		if b.Size = product(b.space); b.Size == 0 && r.f.OK() {
			r.notice("mode %s has no candidate: %s", v.Text, r.lost.reasons(v.Text))
			continue
		}
		r.out.Branches = append(r.out.Branches, b)
	}
	if len(r.out.Branches) == 0 && r.f.OK() {
		at, why := r.lost.verdict(m.Node)
		r.f.Invalid(at, why)
	}
}

// space is the decisions of one mode, in document order.
func (r *recommender) space(e, w document.Mapping, doc *document.Node, roles []string) []decision {
	out := []decision{r.backends(e, w, roles)}
	for _, role := range roles {
		out = append(out, r.worker(w, role)...)
	}
	out = append(out, r.load(doc)...)
	out = append(out, r.router(doc.Get("router"))...)
	return append(out, r.planner(doc.Get("planner"))...)
}

// backends decides backend, hardware and, below them, the parallel shapes, which
// depend on both.
func (r *recommender) backends(e, w document.Mapping, roles []string) decision {
	var d decision
	for _, backend := range r.domain(e.Get("backend"), decimalRange, defaultBackends...) {
		hw := decision{}
		for _, system := range r.systems(e) {
			then := r.shapes(e, w, roles, backend.Text, system.Text)
			hw.options = append(hw.options, option{[]assign{{path: "engine.hardware", v: system.At("engine.hardware")}}, then})
		}
		d.options = append(d.options, option{[]assign{{path: "engine.backend", v: backend.At("engine.backend")}}, []decision{hw}})
	}
	return d
}

// systems lists the hardware: auto stands for optimization.hardware.
func (r *recommender) systems(e document.Mapping) []*document.Node {
	at := e.Get("hardware")
	auto := at != nil && at.Kind == document.String && at.Text == "auto"
	switch {
	case auto && r.hardware == nil:
		r.f.Invalid(at, "hardware auto needs optimization.hardware, a domain of systems")
		return nil
	case auto:
		return r.domain(r.hardware, decimalRange)
	case r.hardware != nil:
		r.f.Invalid(r.hardware, "optimization.hardware belongs to engine.hardware: auto")
	case at == nil:
		e.Missing("hardware")
		return nil
	}
	return r.domain(at, decimalRange)
}

// worker decides the numbers of one role.
func (r *recommender) worker(w document.Mapping, role string) []decision {
	at := workersPath(role)
	m := r.f.Mapping(w.Get(role), "a mapping", workerKeys)
	s := m.Sub("scheduler", "a mapping", schedulerKeys)
	c := m.Sub("kv_cache", "a mapping", kvCacheKeys)
	out := []decision{
		values(at+".scheduler.max_batched_tokens", r.domain(s.Get("max_batched_tokens"), decimalRange, batchedTokens[role]...)),
		values(at+".scheduler.max_sequences", r.domain(s.Get("max_sequences"), decimalRange, sequences[role]...)),
	}
	if v := c.Get("block_size"); isDomain(v) {
		out = append(out, values(at+".kv_cache.block_size", r.domain(v, decimalRange)))
	}
	if v := c.Get("capacity").Get("memory_fraction"); isDomain(v) {
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
	n := document.EmptyMap(0, path)
	put := func(key string, v int) {
		n.Put(key, &document.Node{Kind: document.Int, Text: strconv.Itoa(v), Path: document.JoinPath(path, key)})
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
func (r *recommender) shapes(e, w document.Mapping, roles []string, backend, system string) []decision {
	var pools [][]shape
	var free []decision
	for _, role := range roles {
		m := r.f.Mapping(w.Get(role), "a mapping", workerKeys)
		p := r.f.Mapping(m.Get("parallelism"), "a mapping", append([]string{"preset"}, parallelismKeys...))
		preset := p.Get("preset")
		leaves := slices.ContainsFunc(p.Keys, func(k string) bool { return k != "preset" })
		switch {
		case preset != nil && leaves && !preset.Empty() && !(preset.Kind == document.Bool && preset.Text == "false"):
			r.f.Invalid(preset, "preset and leaf domains exclude each other: keep one")
		case leaves || preset.Empty() || preset != nil && preset.Text == "false" && preset.Kind == document.Bool:
			free = append(free, r.leaves(p, role)...)
		case preset == nil || preset.Kind == document.String && preset.Text == "default":
			pools = append(pools, r.pool(e, m, role, backend, system))
		default:
			free = append(free, r.listed(preset, role))
		}
	}
	return append(r.pooled(e, roles, pools, free), free...)
}

// leaves decides every written number of a parallelism mapping.
func (r *recommender) leaves(p document.Mapping, role string) []decision {
	at := workersPath(role) + ".parallelism"
	out := []decision{one(assign{at, p.Node.Without("preset"), true})}
	for i, key := range p.Keys {
		if key != "preset" && isDomain(p.Items[i]) {
			out = append(out, values(document.JoinPath(at, key), r.domain(p.Items[i], decimalRange)))
		}
	}
	return out
}

// listed decides among complete mappings.
func (r *recommender) listed(n *document.Node, role string) decision {
	var d decision
	if n.Kind != document.List || len(n.Items) == 0 {
		r.f.Malformed(n, "preset is default, false, or a non-empty list of complete mappings")
		return d
	}
	for _, v := range n.Items {
		m := r.f.Mapping(v, "a mapping", shapeKeys)
		for _, key := range shapeKeys {
			if m.Get(key) == nil {
				m.Missing(key)
			}
		}
		at := workersPath(role) + ".parallelism"
		d.options = append(d.options, option{set: []assign{{path: at, v: v.At(at)}}})
	}
	return d
}

// pooled decides among the shapes of the default pools. With one pool beside other
// decisions the budget is checked per candidate.
func (r *recommender) pooled(e document.Mapping, roles []string, pools [][]shape, free []decision) []decision {
	g := &r.out.Goal
	fits := func(gpus int) bool {
		if gpus > g.MaxGPUs || gpus < g.MinGPUs {
			r.lost.budget(len(roles), g)
			return false
		}
		return true
	}
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
					r.f.Malformed(e.Node, fmt.Sprintf("more than %d combinations of parallel shapes: lower max_candidate_gpus, or list the shapes", maxVariants))
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
func (r *recommender) pool(e, m document.Mapping, role, backend, system string) []shape {
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
func (r *recommender) request(s shape, e document.Mapping, role, backend, system string) AICRequest {
	text := func(key string) string {
		if v := e.Get(key); v != nil && v.Kind == document.String {
			return v.Text
		}
		return ""
	}
	q := AICRequest{Model: text("model"), System: system, Backend: backend, Version: text("backend_version"),
		SystemsPath: text("systems_path"), TP: s.tensor, PP: 1, AttentionDP: s.attentionData, CP: 1, Mode: modeNames[0],
		Role: engine.Role(slices.Index(roleNames, role))}
	if s.moe {
		q.MoETP, q.MoEEP = s.moeTensor, s.moeExpert
	}
	if q.Model != "" {
		q.Model = q.localModel(r.out.dir)
	}
	if q.SystemsPath != "" {
		q.SystemsPath = PathFrom(r.out.dir, q.SystemsPath)
	}
	return q
}

// experts reports whether the model has experts. An unknown model counts as dense,
// with a notice.
func (r *recommender) experts(e document.Mapping, backend, system string) bool {
	if r.o.Experts == nil || !r.f.OK() {
		return false
	}
	one := shape{replicas: 1, tensor: 1, attentionData: 1}
	moe, err := r.o.Experts(r.request(one, e, "aggregated", backend, system))
	if err != nil {
		r.notice("parallelism.preset default takes the model for dense: %v", err)
		return false
	}
	return moe
}

// roomy reports whether the weights of a shape leave room for the KV of one context;
// without tables, or with a fixed capacity, every shape does.
func (r *recommender) roomy(e, m document.Mapping, s shape, role, backend, system string) bool {
	capacity := m.Get("kv_cache").Get("capacity")
	if r.o.Resolve == nil || !r.f.OK() || capacity.Get("type") != nil && capacity.Get("type").Text == "fixed" {
		return true
	}
	b := slices.Index(backendNames, backend)
	if b < 0 {
		return true
	}
	known := engine.Backend(b).Descriptor()
	a, err := r.o.Resolve(TimingQuery{Capacity: &Capacity{Model: r.request(s, e, role, backend, system), BlockSize: known.BlockSize,
		MaxBatchedTokens: defaultMaxBatch, MaxSeqs: defaultMaxSeqs, MemoryFraction: known.MemoryFraction}})
	if err != nil {
		r.notice("%s on %s, %s: tensor %d, attention_data %d is no candidate: %v", e.Get("model").String(), system, backend, s.tensor, s.attentionData, err)
		r.lost.shape(e, err)
		return false
	}
	if v := e.Get("context_length"); v != nil && v.Kind == document.Int && float64(a.Blocks)*float64(known.BlockSize) < v.Number() {
		r.lost.add(v, "the KV blocks beside the weights hold less than one context of "+v.Text+" tokens")
		return false
	}
	if a.Blocks <= 0 {
		r.lost.add(e.Get("model"), "the weights leave no room for KV blocks")
		return false
	}
	return true
}

// load decides the number inside traffic.load.
func (r *recommender) load(doc *document.Node) []decision {
	at := doc.Get("traffic").Get("load")
	if at == nil || at.Kind != document.Map {
		return nil
	}
	if t := at.Get("type"); t != nil && t.Text == "kv_capacity_fraction" {
		r.out.fraction = true
		m := r.f.Mapping(at, "a mapping", []string{"type", "fraction"})
		if m.Get("fraction") == nil {
			m.Missing("fraction")
			return nil
		}
		if source := doc.Get("traffic").Get("source"); source.Get("type") != nil && source.Get("type").Text == "trace" {
			r.f.Invalid(t, "kv_capacity_fraction fits synthetic sources: a trace takes concurrency or trace_timestamps")
		}
		for _, v := range r.domain(m.Get("fraction"), decimalRange) {
			if v.Kind != document.Int && v.Kind != document.Float || !(document.FiniteFrom(v.Number(), 0) && v.Number() > 0) {
				r.f.Malformed(v, "fraction must be a positive number")
			}
		}
	}
	var out []decision
	for i, key := range at.Keys {
		if v := at.Items[i]; isDomain(v) && key != "type" {
			out = append(out, values("traffic.load."+key, r.domain(v, decimalRange)))
		}
	}
	return out
}
