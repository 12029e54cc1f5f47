package scenario

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/engine"
)

// Keys of the AISimulate engine section (spec sweeps-and-schema 2.3).
var (
	predictEngineKeys = []string{"mode", "model", "hardware", "backend", "backend_version", "forward_model",
		"systems_path", "context_length", "workers", "kv_transfer"}
	workerKeys      = []string{"parallelism", "scheduler", "kv_cache", "timing", "startup_seconds"}
	parallelismKeys = []string{"replicas", "tensor", "pipeline", "attention_data", "moe_tensor", "moe_expert", "context"}
	schedulerKeys   = []string{"max_batched_tokens", "max_sequences", "prefill_schedule_interval", "prefill_decode_interval"}
	kvCacheKeys     = []string{"block_size", "prefix_caching", "bytes_per_token", "capacity", "host_offload"}
	capacityKeys    = []string{"type", "memory_fraction", "blocks", "cuda_graph_reserved_bytes"}
)

// engine reads the engine section into the roles of the run.
func (p *predictor) engine(m mapping) {
	p.disaggregated = m.enum("mode", modeKinds...).v == 1
	p.modelName = m.required("model")
	if m.required("hardware") == "auto" {
		p.f.brokenAt(m.node, "hardware", "auto belongs to recommend: name a system")
	}
	if v := m.string("forward_model", notNull); v.set && v.v != "op_level" {
		m.rule(false, "forward_model", "only op_level is supported, got `"+v.v+"`")
	}
	roles := []engine.Role{engine.Aggregated}
	if p.disaggregated {
		roles = []engine.Role{engine.Prefill, engine.Decode}
	} else if v := m.get("kv_transfer"); v != nil {
		p.f.badType(v, "kv_transfer belongs to mode disaggregated")
	}
	var names []string
	for _, r := range roles {
		names = append(names, r.String())
	}
	if m.get("workers") == nil {
		m.missing("workers")
		return
	}
	workers := m.sub("workers", "a mapping", names)
	for i, r := range roles {
		if workers.get(names[i]) == nil {
			workers.missing(names[i])
			continue
		}
		role, replicas := p.worker(m, workers.sub(names[i], "a mapping", workerKeys), r)
		if r == engine.Prefill {
			p.run.Prefill, p.run.PrefillWorkers = role, replicas
		} else {
			p.run.Decode, p.run.DecodeWorkers = role, replicas
		}
	}
	if p.disaggregated {
		p.transfer(m)
	}
}

// transfer reads kv_transfer, whose defaults differ from engine arguments': auto,
// and destination_missing.
func (p *predictor) transfer(m mapping) {
	t := &transferDoc{}
	if v := m.get("kv_transfer"); v != nil {
		t = p.f.kvTransfer(v)
	}
	p.run.Transfer = t.price(KVTransfer{DestinationMissing: true})
	if r := p.run.Prefill; p.run.Transfer.BytesAuto && (r == nil || r.request() != p.estimated) {
		p.run.Transfer.Model = p.estimated // which the role itself does not name
	}
}

// worker lowers one role to engine arguments (spec sweeps-and-schema 2.3, the
// table) and reads those.
func (p *predictor) worker(m, w mapping, role engine.Role) (*Role, int) {
	par := w.sub("parallelism", "a mapping", parallelismKeys)
	replicas := par.workers("replicas")
	if v := par.get("pipeline"); v != nil {
		par.rule(par.uint("pipeline", 32, notNull).or(1) == 1, "pipeline", "pipeline must be 1: engines do not run in a pipeline")
	}
	out, eng := emptyMap(w.line, w.path), emptyMap(w.line, w.path)
	scheduler := w.sub("scheduler", "a mapping", schedulerKeys)
	cache := w.sub("kv_cache", "a mapping", kvCacheKeys)
	if scheduler.get("max_sequences") == nil && role == engine.Prefill {
		eng.put("max_num_seqs", scalarAt(w.node, intKind, "1"))
	}
	for _, k := range [...]struct {
		dst      *node
		src      mapping
		from, to string
	}{
		{eng, m, "backend", "backend"},
		{out, par, "tensor", "tensor_parallel_size"},
		{out, par, "attention_data", "dp_size"},
		{out, w, "startup_seconds", "startup_time"},
		{eng, scheduler, "max_batched_tokens", "max_num_batched_tokens"},
		{eng, scheduler, "max_sequences", "max_num_seqs"},
		{eng, scheduler, "prefill_schedule_interval", "prefill_schedule_interval"},
		{eng, scheduler, "prefill_decode_interval", "prefill_decode_interval"},
		{eng, cache, "block_size", "block_size"},
		{eng, cache, "prefix_caching", "enable_prefix_caching"},
	} {
		move(k.dst, k.src, k.from, k.to)
	}
	eng.put("worker_type", scalarAt(w.node, stringKind, role.String()))
	backend := max(slices.Index(backendNames, textAt(m.node, "backend", "vllm")), 0)
	p.contextLength(m, eng, engine.Backend(backend))
	estimate := p.cache(cache, out, eng, backend)
	p.timing(m, w, par, eng, role)
	out.put("engine", eng)

	f := &faults{origin: p.f.origin}
	r, _ := f.role(out)
	p.f.list = append(p.f.list, f.list...)
	if r == nil {
		return nil, replicas
	}
	p.model(m, par, r, role, estimate, out, backend)
	r.Hardware = textAt(m.node, "hardware", "")
	r.relocate(p.dir)
	return r, replicas
}

// move puts a value under its engine-argument name; false if it is not there.
func move(dst *node, src mapping, from, to string) bool {
	v := src.get(from)
	if v == nil {
		return false
	}
	dst.put(to, v)
	return true
}

// scalarAt makes a value that no document wrote, at the place of its mapping.
func scalarAt(at *node, k kind, text string) *node {
	return &node{kind: k, text: text, line: at.line, path: at.path}
}

func textAt(n *node, key, def string) string {
	if v := n.get(key); v != nil {
		return v.text
	}
	return def
}

func (p *predictor) contextLength(m mapping, eng *node, backend engine.Backend) {
	v := m.get("context_length")
	if v == nil || v.kind == stringKind && v.text == "max" {
		return
	}
	if v.kind != intKind {
		p.f.badType(v, "context_length must be max or a positive integer")
		return
	}
	m.rule(backend == engine.VLLM, "context_length", "a number is supported for backend vllm only: use max")
	eng.put("max_model_len", v)
}

// cache lowers kv_cache; true if the number of blocks is to be estimated.
func (p *predictor) cache(m mapping, out, eng *node, backend int) bool {
	if v := m.get("host_offload"); v != nil {
		p.f.broken(v, "host_offload is not supported: KV offload is not simulated")
	}
	if v := m.get("bytes_per_token"); v != nil && v.text != "auto" {
		p.f.broken(v, "bytes_per_token must be auto")
	}
	c := m.sub("capacity", "a mapping", capacityKeys)
	if c.enum("type", "default", "fixed").v == 1 {
		if !move(eng, c, "blocks", "num_gpu_blocks") {
			c.missing("blocks")
		}
		for _, key := range [...]string{"memory_fraction", "cuda_graph_reserved_bytes"} {
			if v := c.get(key); v != nil {
				p.f.badType(v, key+" belongs to capacity type default")
			}
		}
		return false
	}
	if v := c.get("blocks"); v != nil {
		p.f.badType(v, "blocks belongs to capacity type fixed")
	}
	if v := c.float("memory_fraction", notNull); v.set {
		c.rule(v.v > 0 && v.v <= 1, "memory_fraction", "memory_fraction must be in (0, 1]")
	}
	move(out, c, "memory_fraction", fractionKeys[backend])
	move(out, c, "cuda_graph_reserved_bytes", "cuda_graph_reserved_bytes")
	return true
}

// timing lowers a role's timing to a timing_model.
func (p *predictor) timing(m, w, par mapping, eng *node, role engine.Role) {
	t := w.sub("timing", "a mapping", []string{"type", "prefill_ms", "decode_ms", "forward_model"})
	if v := t.string("forward_model", notNull); v.set && v.v != "op_level" {
		t.rule(false, "forward_model", "only op_level is supported, got `"+v.v+"`")
	}
	kind := t.enum("type", "default", "fixed", "polynomial").v
	if kind != 1 {
		for _, key := range [...]string{"prefill_ms", "decode_ms"} {
			if v := t.get(key); v != nil {
				p.f.badType(v, key+" belongs to timing type fixed")
			}
		}
	}
	switch kind {
	case 0:
		eng.put("timing_model", external(w.node, "ais", p.performance(m, w, par, role)))
	case 1:
		model := emptyMap(t.line, t.path)
		for _, key := range [...]string{"type", "prefill_ms", "decode_ms"} {
			move(model, t, key, key)
		}
		eng.put("timing_model", model)
	}
}

// performance gathers the configuration of the performance model of a role.
func (p *predictor) performance(m, w, par mapping, role engine.Role) *node {
	c := emptyMap(w.line, w.path)
	for _, k := range [...][2]string{{"model", "model"}, {"hardware", "system"}, {"backend", "backend"},
		{"backend_version", "backend_version"}, {"systems_path", "systems_path"}} {
		move(c, m, k[0], k[1])
	}
	for _, k := range [...][2]string{{"tensor", "tp"}, {"attention_data", "attention_dp"}, {"context", "cp_size"}} {
		move(c, par, k[0], k[1])
	}
	if par.get("moe_tensor") != nil || par.get("moe_expert") != nil {
		for _, k := range [...][2]string{{"moe_tensor", "moe_tp_size"}, {"moe_expert", "moe_ep_size"}} {
			if !move(c, par, k[0], k[1]) {
				c.put(k[1], scalarAt(par.node, intKind, "1"))
			}
		}
	}
	return c
}

// model asks for the capacity of a role whose timing is not measured, and keeps the
// model of the role that prefills for the router and for kv_transfer.
func (p *predictor) model(m, par mapping, r *Role, role engine.Role, estimate bool, out *node, backend int) {
	q := r.request()
	if q.Model == "" {
		doc := p.f.aicConfig(p.performance(m, mapping{out, p.f}, par, role), out)
		if !p.f.ok() {
			return
		}
		q, r.named = doc.complete(r), doc.names()
	}
	if estimate && r.Capacity == nil {
		fraction := defaultFraction[backend]
		if v := out.get(fractionKeys[backend]); v != nil {
			fraction = v.float()
		}
		reserved, _ := strconv.ParseUint(textAt(out, "cuda_graph_reserved_bytes", "0"), 10, 64)
		r.Rank.Blocks = 0
		r.Capacity = &Capacity{Model: q, BlockSize: r.Rank.BlockSize, MaxBatchedTokens: r.Rank.MaxNumBatchedTokens,
			MaxSeqs: r.Rank.MaxNumSeqs, MemoryFraction: fraction, CUDAGraphReserved: reserved}
	}
	if role != engine.Decode {
		p.estimated = q
	}
}

// router reads the router section (spec sweeps-and-schema 2.4).
func (p *predictor) router(n *node) {
	d := &routerDoc{origin: p.f.origin, at: n}
	if n != nil {
		m := p.f.mapping(n, "a mapping", []string{"policy", "prefill_load_model", "overlap_score_credit", "prefill_load_scale", "temperature"})
		d.kv = m.enum("policy", routerModes...).v == 1
		model := m.sub("prefill_load_model", "a mapping", []string{"type"}).enum("type", "none", "ais", "aic")
		config := map[string]any{}
		for _, k := range [...][2]string{{"overlap_score_credit", "overlap_score_credit"}, {"prefill_load_scale", "prefill_load_scale"}, {"temperature", "router_temperature"}} {
			v := m.float(k[0], notNull)
			m.rule(finite(v.v, 0), k[0], k[0]+" must be finite and non-negative")
			m.rule(!v.set || d.kv, k[0], k[0]+" belongs to policy kv_router")
			if v.set {
				config[k[1]] = v.v
			}
		}
		m.rule(model.v == 0 || d.kv, "prefill_load_model", "prefill_load_model belongs to policy kv_router")
		if model.v != 0 {
			config["router_prefill_load_model"], d.estimator = "ais", &p.estimated
		}
		if !p.f.ok() {
			return
		}
		d.config, _ = json.Marshal(config)
	}
	r, err := d.complete("", p.files)
	if err != nil {
		p.f.list = append(p.f.list, asFaults(err)...)
		return
	}
	p.run.Router = r
}

// asFaults splits an error of a part into faults.
func asFaults(err error) []*Fault {
	var out []*Fault
	for _, e := range unjoin(err) {
		f, ok := e.(*Fault)
		if !ok {
			f = &Fault{Msg: e.Error()}
		}
		out = append(out, f)
	}
	return out
}

// predictPlannerKeys are the keys of the planner section with their names in the
// Planner's configuration (spec sweeps-and-schema 2.5).
var predictPlannerKeys = [][2]string{{"target", "optimization_target"}, {"max_num_gpus", "max_gpu_budget"},
	{"min_num_gpus", "min_gpu_budget"}, {"min_workers", "min_endpoint"}, {"prefill_min_workers", "prefill_min_endpoint"},
	{"decode_min_workers", "decode_min_endpoint"}, {"enable_throughput_scaling", "enable_throughput_scaling"},
	{"enable_load_scaling", "enable_load_scaling"},
	{"throughput_adjustment_interval_seconds", "throughput_adjustment_interval_seconds"},
	{"load_adjustment_interval_seconds", "load_adjustment_interval_seconds"},
	{"max_throughput_scaling_replicas", "max_throughput_scaling_replicas"}, {"max_num_fpm_samples", "max_num_fpm_samples"},
	{"fpm_sample_bucket_size", "fpm_sample_bucket_size"}, {"load_scaling_down_sensitivity", "load_scaling_down_sensitivity"},
	{"load_min_observations", "load_min_observations"}, {"load_predictor", "load_predictor"},
	{"load_predictor_log1p", "load_predictor_log1p"}, {"prophet_window_size", "prophet_window_size"},
	{"kalman_q_level", "kalman_q_level"}, {"kalman_q_trend", "kalman_q_trend"}, {"kalman_r", "kalman_r"},
	{"kalman_min_points", "kalman_min_points"}}

// planner reads the planner section.
func (p *predictor) planner(n *node) {
	if n == nil {
		return
	}
	keys := []string{"policy"}
	for _, k := range predictPlannerKeys {
		keys = append(keys, k[0])
	}
	m := p.f.mapping(n, "a mapping", keys)
	enabled := m.enum("policy", "disabled", "enabled").v == 1
	target := textAt(n, "target", "throughput")
	if m.bool("enable_throughput_scaling").v {
		m.rule(target == "sla" && p.run.SLA.TTFTMs > 0 && p.run.SLA.ITLMs > 0, "enable_throughput_scaling",
			"throughput scaling needs target sla and evaluation.sla.ttft_ms and itl_ms")
	}
	if !enabled || !p.f.ok() {
		return
	}
	doc, origin := p.plannerDocument(m, target)
	cfg, notices, err := planner.Document{Root: doc.plain().(map[string]any), At: func(path string) string { return origin(path) }}.Config()
	if err != nil {
		p.f.list = append(p.f.list, &Fault{Msg: err.Error()})
		return
	}
	p.run.Planner = &Planner{Config: cfg, Notices: notices, Granularity: defaultGranularity}
	if why := p.run.Planner.check(p.disaggregated, p.run.Workload); why != "" {
		p.f.broken(n, why)
	}
}

// plannerDocument is the Planner's own configuration, and a function from its paths
// to the user's.
func (p *predictor) plannerDocument(m mapping, target string) (*node, func(string) string) {
	doc := emptyMap(m.line, "")
	names := map[string]string{}
	for _, k := range predictPlannerKeys {
		if move(doc, m, k[0], k[1]) {
			names[k[1]] = k[0]
		}
	}
	set := func(key string, k kind, text string) { doc.put(key, scalarAt(m.node, k, text)) }
	mode := "agg"
	if p.disaggregated {
		mode = "disagg"
		set("prefill_engine_num_gpu", intKind, strconv.Itoa(p.run.Prefill.GPUs()))
	}
	set("mode", stringKind, mode)
	set("decode_engine_num_gpu", intKind, strconv.Itoa(p.run.Decode.GPUs()))
	set("report_interval_hours", nullKind, "")
	set("live_dashboard_port", intKind, "0")
	switch target {
	case "load":
		if p.disaggregated {
			set("prefill_scale_up_queue_tokens", intKind, "1")
			set("prefill_scale_down_queue_tokens", intKind, "0")
		}
		set("decode_scale_up_kv_rate", intKind, "90")
		set("decode_scale_down_kv_rate", intKind, "70")
	case "sla":
		for key, v := range map[string]float64{"ttft_ms": p.run.SLA.TTFTMs, "itl_ms": p.run.SLA.ITLMs} {
			if v > 0 {
				doc.put(key, floatNode(v))
			}
		}
	}
	return doc, func(path string) string {
		name := orText(names[path], path)
		at := p.f.origin
		if v := m.get(name); v != nil && v.line > 0 {
			at += ":" + strconv.Itoa(v.line)
		}
		return at + ": " + join(m.path, name)
	}
}
