package scenario

import (
	"slices"
	"strconv"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/router"
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
func (p *predictor) engine(m document.Mapping) {
	p.disaggregated = m.Enum("mode", modeKinds...).Value == 1
	p.modelName = m.RequiredString("model")
	if m.RequiredString("hardware") == "auto" {
		p.f.InvalidAt(m.Node, "hardware", "auto belongs to recommend: name a system")
	}
	if v := m.String("forward_model", document.NotNull); v.Set && v.Value != "op_level" {
		m.Require(false, "forward_model", "only op_level is supported, got `"+v.Value+"`")
	}
	roles := []engine.Role{engine.Aggregated}
	if p.disaggregated {
		roles = []engine.Role{engine.Prefill, engine.Decode}
	} else if v := m.Get("kv_transfer"); v != nil {
		p.f.Malformed(v, "kv_transfer belongs to mode disaggregated")
	}
	var names []string
	for _, r := range roles {
		names = append(names, r.String())
	}
	if m.Get("workers") == nil {
		m.Missing("workers")
		return
	}
	workers := m.Sub("workers", "a mapping", names)
	for i, r := range roles {
		if workers.Get(names[i]) == nil {
			workers.Missing(names[i])
			continue
		}
		role, replicas := p.worker(m, workers.Sub(names[i], "a mapping", workerKeys), r)
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
func (p *predictor) transfer(m document.Mapping) {
	t := &transferDoc{}
	if v := m.Get("kv_transfer"); v != nil {
		t = readKVTransfer(p.f, v)
	}
	p.run.Transfer = t.price(KVTransfer{DestinationMissing: true})
	if r := p.run.Prefill; p.run.Transfer.BytesAuto && (r == nil || r.request() != p.estimated) {
		p.run.Transfer.Model = p.estimated // which the role itself does not name
	}
}

// worker lowers one role to engine arguments (spec sweeps-and-schema 2.3, the
// table) and reads those.
func (p *predictor) worker(m, w document.Mapping, role engine.Role) (*Role, int) {
	par := w.Sub("parallelism", "a mapping", parallelismKeys)
	replicas := readWorkers(par, "replicas")
	if v := par.Get("pipeline"); v != nil {
		par.Require(par.Uint("pipeline", 32, document.NotNull).Or(1) == 1, "pipeline", "pipeline must be 1: engines do not run in a pipeline")
	}
	out, eng := document.EmptyMap(w.Line, w.Path), document.EmptyMap(w.Line, w.Path)
	scheduler := w.Sub("scheduler", "a mapping", schedulerKeys)
	cache := w.Sub("kv_cache", "a mapping", kvCacheKeys)
	if scheduler.Get("max_sequences") == nil && role == engine.Prefill {
		eng.Put("max_num_seqs", w.Node.Scalar(document.Int, "1"))
	}
	for _, k := range [...]struct {
		dst      *document.Node
		src      document.Mapping
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
	eng.Put("worker_type", w.Node.Scalar(document.String, role.String()))
	backend := max(slices.Index(backendNames, textAt(m.Node, "backend", "vllm")), 0)
	p.contextLength(m, eng)
	estimate := p.cache(cache, out, eng, backend)
	p.timing(m, w, par, eng, role)
	out.Put("engine", eng)

	f := &document.Faults{Origin: p.f.Origin}
	r, _ := readRole(f, out, p.dir)
	p.f.List = append(p.f.List, f.List...)
	if r == nil {
		return nil, replicas
	}
	p.model(m, par, r, role, estimate, out, backend)
	r.Hardware = textAt(m.Node, "hardware", "")
	r.relocate(p.dir)
	return r, replicas
}

// move puts a value under its engine-argument name; false if it is not there.
func move(dst *document.Node, src document.Mapping, from, to string) bool {
	v := src.Get(from)
	if v == nil {
		return false
	}
	dst.Put(to, v)
	return true
}

func textAt(n *document.Node, key, def string) string {
	if v := n.Get(key); v != nil {
		return v.Text
	}
	return def
}

func (p *predictor) contextLength(m document.Mapping, eng *document.Node) {
	v := m.Get("context_length")
	if v == nil || v.Kind == document.String && v.Text == "max" {
		return
	}
	if v.Kind != document.Int {
		p.f.Malformed(v, "context_length must be max or a positive integer")
		return
	}
	eng.Put("max_model_len", v)
}

// cache lowers kv_cache; true if the number of blocks is to be estimated.
func (p *predictor) cache(m document.Mapping, out, eng *document.Node, backend int) bool {
	if v := m.Get("host_offload"); v != nil {
		eng.Put(hostKey, v)
	}
	if v := m.Get("bytes_per_token"); v != nil && v.Kind == document.Int {
		eng.Put(bytesKey, v)
	} else if v != nil && v.Text != "auto" {
		p.f.Invalid(v, "bytes_per_token must be auto or an integer")
	}
	c := m.Sub("capacity", "a mapping", capacityKeys)
	if c.Enum("type", "default", "fixed").Value == 1 {
		if !move(eng, c, "blocks", "num_gpu_blocks") {
			c.Missing("blocks")
		}
		for _, key := range [...]string{"memory_fraction", "cuda_graph_reserved_bytes"} {
			if v := c.Get(key); v != nil {
				p.f.Malformed(v, key+" belongs to capacity type default")
			}
		}
		return false
	}
	if v := c.Get("blocks"); v != nil {
		p.f.Malformed(v, "blocks belongs to capacity type fixed")
	}
	if v := c.Float("memory_fraction", document.NotNull); v.Set {
		c.Require(v.Value > 0 && v.Value <= 1, "memory_fraction", "memory_fraction must be in (0, 1]")
	}
	move(out, c, "memory_fraction", fractionKeys[backend])
	move(out, c, "cuda_graph_reserved_bytes", "cuda_graph_reserved_bytes")
	return true
}

// timing lowers a role's timing to a timing_model.
func (p *predictor) timing(m, w, par document.Mapping, eng *document.Node, role engine.Role) {
	t := w.Sub("timing", "a mapping", []string{"type", "prefill_ms", "decode_ms", "forward_model", "decode_qk_norm", "corrections"})
	if v := t.String("forward_model", document.NotNull); v.Set && v.Value != "op_level" {
		t.Require(false, "forward_model", "only op_level is supported, got `"+v.Value+"`")
	}
	kind := t.Enum("type", "default", "fixed", "polynomial").Value
	if kind != 1 {
		for _, key := range [...]string{"prefill_ms", "decode_ms"} {
			if v := t.Get(key); v != nil {
				p.f.Malformed(v, key+" belongs to timing type fixed")
			}
		}
	}
	if v := t.Get("decode_qk_norm"); v != nil && kind != 0 {
		p.f.Malformed(v, "decode_qk_norm belongs to timing type default")
	}
	switch kind {
	case 0:
		c := p.performance(m, w, par, role)
		if !move(c, t, "decode_qk_norm", "decode_qk_norm") {
			// AISimulate 0.13 prices these norms, the reference of replay does not (spec aic-perfmodel 14).
			c.Put("decode_qk_norm", t.Node.Scalar(document.Bool, "true"))
		}
		eng.Put("timing_model", withCorrections(t.Node, ExternalTiming(w.Node, "ais", c)))
	case 1:
		model := document.EmptyMap(t.Line, t.Path)
		for _, key := range [...]string{"type", "prefill_ms", "decode_ms", "corrections"} {
			move(model, t, key, key)
		}
		eng.Put("timing_model", model)
	case 2:
		if t.Get("corrections") != nil {
			model := document.EmptyMap(t.Line, t.Path)
			move(model, t, "type", "type")
			move(model, t, "corrections", "corrections")
			eng.Put("timing_model", model)
		}
	}
}

// performance gathers the configuration of the performance model of a role.
func (p *predictor) performance(m, w, par document.Mapping, role engine.Role) *document.Node {
	c := document.EmptyMap(w.Line, w.Path)
	for _, k := range [...][2]string{{"model", "model"}, {"hardware", "system"}, {"backend", "backend"},
		{"backend_version", "backend_version"}, {"systems_path", "systems_path"}} {
		move(c, m, k[0], k[1])
	}
	for _, k := range [...][2]string{{"tensor", "tp"}, {"attention_data", "attention_dp"}, {"context", "cp_size"}} {
		move(c, par, k[0], k[1])
	}
	if par.Get("moe_tensor") != nil || par.Get("moe_expert") != nil {
		for _, k := range [...][2]string{{"moe_tensor", "moe_tp_size"}, {"moe_expert", "moe_ep_size"}} {
			if !move(c, par, k[0], k[1]) {
				c.Put(k[1], par.Node.Scalar(document.Int, "1"))
			}
		}
	}
	return c
}

// model asks for the capacity of a role whose timing is not measured, and keeps the
// model of the role that prefills for the router and for kv_transfer.
func (p *predictor) model(m, par document.Mapping, r *Role, role engine.Role, estimate bool, out *document.Node, backend int) {
	q := r.request()
	if q.Model == "" {
		doc := readAICConfig(p.f, p.performance(m, document.Mapping{Node: out, Faults: p.f}, par, role), out)
		if !p.f.OK() {
			return
		}
		q, r.named = doc.complete(r, p.dir), doc.names()
	}
	if estimate && r.Capacity == nil {
		fraction := engine.Backend(backend).Descriptor().MemoryFraction
		if v := out.Get(fractionKeys[backend]); v != nil {
			fraction = v.Number()
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
func (p *predictor) router(n *document.Node) {
	d := &routerDoc{faults: document.Faults{Origin: p.f.Origin}, mode: router.DefaultMode()}
	if n != nil {
		m := p.f.Mapping(n, "a mapping", []string{"policy", "prefill_load_model", "overlap_score_credit", "prefill_load_scale", "temperature"})
		d.mode = readMode(m, "policy")
		model := m.Sub("prefill_load_model", "a mapping", []string{"type"}).Enum("type", "none", "ais", "aic")
		d.config = document.EmptyMap(n.Line, n.Path)
		for _, k := range [...][2]string{{"overlap_score_credit", "overlap_score_credit"}, {"prefill_load_scale", "prefill_load_scale"}, {"temperature", "router_temperature"}} {
			v := m.Float(k[0], document.NotNull)
			m.Require(document.FiniteFrom(v.Value, 0), k[0], k[0]+" must be finite and non-negative")
			m.Require(!v.Set || d.mode.Configured, k[0], k[0]+" belongs to policy kv_router")
			if v.Set {
				d.config.Put(k[1], m.Get(k[0]))
			}
		}
		m.Require(model.Value == 0 || d.mode.Configured, "prefill_load_model", "prefill_load_model belongs to policy kv_router")
		if model.Value != 0 {
			d.config.Put("router_prefill_load_model", n.Scalar(document.String, "ais"))
			d.estimator = &p.estimated
		}
		if !p.f.OK() {
			return
		}
	}
	r, err := d.complete("", p.files)
	if err != nil {
		p.f.List = append(p.f.List, asFaults(err)...)
		return
	}
	p.run.Router = r
}

// asFaults splits an error of a part into faults.
func asFaults(err error) []*document.Fault {
	var out []*document.Fault
	for _, e := range document.Split(err) {
		f, ok := e.(*document.Fault)
		if !ok {
			f = &document.Fault{Msg: e.Error()}
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
func (p *predictor) planner(n *document.Node) {
	if n == nil {
		return
	}
	keys := []string{"policy"}
	for _, k := range predictPlannerKeys {
		keys = append(keys, k[0])
	}
	m := p.f.Mapping(n, "a mapping", keys)
	enabled := m.Enum("policy", "disabled", "enabled").Value == 1
	target := textAt(n, "target", "throughput")
	if m.Bool("enable_throughput_scaling").Value {
		m.Require(target == "sla" && p.run.SLA.TTFTMs > 0 && p.run.SLA.ITLMs > 0, "enable_throughput_scaling",
			"throughput scaling needs target sla and evaluation.sla.ttft_ms and itl_ms")
	}
	if !enabled || !p.f.OK() {
		return
	}
	if p.run.Planner = readPlanner(p.f, p.plannerDocument(m, target), defaultGranularity); p.run.Planner == nil {
		return
	}
	if why := p.run.Planner.check(p.disaggregated, p.run.Workload); why != "" {
		p.f.Invalid(n, why)
	}
}

// plannerDocument is the Planner's own configuration; what the user wrote keeps its
// place.
func (p *predictor) plannerDocument(m document.Mapping, target string) *document.Node {
	doc := document.EmptyMap(m.Line, m.Path)
	for _, k := range predictPlannerKeys {
		move(doc, m, k[0], k[1])
	}
	set := func(key string, k document.Kind, text string) { doc.Put(key, m.Node.Scalar(k, text)) }
	mode := "agg"
	if p.disaggregated {
		mode = "disagg"
		set("prefill_engine_num_gpu", document.Int, strconv.Itoa(p.run.Prefill.GPUs()))
	}
	set("mode", document.String, mode)
	set("decode_engine_num_gpu", document.Int, strconv.Itoa(p.run.Decode.GPUs()))
	set("report_interval_hours", document.Null, "")
	set("live_dashboard_port", document.Int, "0")
	switch target {
	case "load":
		if p.disaggregated {
			set("prefill_scale_up_queue_tokens", document.Int, "1")
			set("prefill_scale_down_queue_tokens", document.Int, "0")
		}
		set("decode_scale_up_kv_rate", document.Int, "90")
		set("decode_scale_down_kv_rate", document.Int, "70")
	case "sla":
		for key, v := range map[string]float64{"ttft_ms": p.run.SLA.TTFTMs, "itl_ms": p.run.SLA.ITLMs} {
			if v > 0 {
				doc.Put(key, document.FloatNode(v))
			}
		}
	}
	return doc
}
