package scenario

import (
	"slices"
	"strings"
)

// Names of the engine-argument documents (spec engine-args 2, 3). The order is
// the one of upstream's messages.
var (
	launchKeys = []string{"engine", "dp_size", "tensor_parallel_size", "startup_time",
		"num_gpu_blocks_is_explicit", "gpu_memory_utilization", "mem_fraction_static",
		"free_gpu_memory_fraction", "cuda_graph_reserved_bytes", "dynamo"}
	engineKeys = []string{"backend", "num_gpu_blocks", "block_size", "max_model_len",
		"max_num_seqs", "max_num_batched_tokens", "prefill_schedule_interval",
		"prefill_decode_interval", "enable_prefix_caching", "enable_chunked_prefill",
		"speedup_ratio", "decode_speedup_ratio", "aic_nextn", "aic_nextn_accept_rates",
		"aic_mtp_seed", "worker_type", "preemption_mode", "emit_kv_events",
		"emit_kv_token_ids", "kv_bytes_per_token", "kv_transfer_bytes_per_token",
		"kv_cache_bytes_per_token", "kv_cache_groups", "kv_cache_capacity_bytes",
		"native_host_offload", "state_cache", "prefix_match_unit", "g3_offload",
		"kv_transfer_bandwidth", "kv_transfer_timing_mode", "timing_model", "sglang", "trtllm",
		"kv_transfer_contention"} // ours
	sglangKeys = []string{"schedule_policy", "max_prefill_tokens", "chunked_prefill_size",
		"clip_max_new_tokens", "schedule_conservativeness"}
	trtllmKeys = []string{"capacity_scheduler_policy"}
	dynamoKeys = []string{"enable_local_indexer", "bootstrap_port", "handoff_session_timeout_ms",
		"reasoning", "response_replay_trace_path", "zmq_kv_events_port", "zmq_replay_port",
		"router_queue_policy"}
	aicFlatKeys = []string{"aic_backend", "aic_system", "aic_backend_version", "aic_model_path",
		"aic_tp_size", "aic_moe_tp_size", "aic_moe_ep_size", "aic_attention_dp_size",
		"aic_gemm_dtype", "aic_moe_dtype", "aic_fmha_dtype", "aic_kv_cache_dtype", "aic_comm_dtype"}
	// offloadKeys are refused by name wherever they stand.
	offloadKeys = []string{"kv_cache_groups", "kv_cache_capacity_bytes", "native_host_offload",
		"state_cache", "prefix_match_unit", "g3_offload", "g1_backend", "num_g2_blocks",
		"num_g3_blocks", "enable_g4_storage", "offload_batch_size", "bandwidth_g1_to_g2_gbps",
		"bandwidth_g2_to_g1_gbps", "bandwidth_g2_to_g3_gbps", "bandwidth_g3_to_g2_gbps"}
)

// flatKeys are the keys of the flat form.
var flatKeys = slices.Concat([]string{"engine_type"}, engineKeys, launchKeys[1:9], dynamoKeys, aicFlatKeys,
	[]string{"is_prefill", "is_decode", "planner_profile_data", "has_perf_model"}, offloadKeys[6:])

const (
	engineWant = "struct EngineConfig"
	classArgs  = "invalid engine launch config"
)

// EngineArgs reads the engine arguments of one role from JSON text in the nested
// or the flat form (spec engine-args); empty text is all defaults. origin names
// the text in messages, for example the flag it came from. want is the role the
// text is used for: it must agree with worker_type, whose default is aggregated.
func EngineArgs(origin, text string) (*Role, error) {
	f := &faults{origin: origin, class: classArgs}
	n := emptyMap(0, "")
	if text != "" {
		var err error
		if n, err = parseJSON([]byte(text)); err != nil {
			return nil, &Fault{Origin: origin, Msg: err.Error()}
		}
		if n.kind != mapKind {
			return nil, &Fault{Origin: origin, Msg: "engine-args must be a JSON object"}
		}
	}
	return f.role(f.nested(n))
}

// role decodes nested engine arguments.
func (f *faults) role(n *node) (*Role, error) {
	d := f.launch(n)
	if !f.ok() {
		return nil, f.err()
	}
	r := d.complete()
	if !f.ok() {
		return nil, f.err()
	}
	return r, nil
}

// nested lowers either form of engine arguments to the nested one. Values keep
// the path under which the user wrote them.
func (f *faults) nested(n *node) *node {
	engineAt, dynamoAt := n.get("engine"), n.get("dynamo")
	if engineAt == nil && dynamoAt == nil {
		return f.fromFlat(n, flatKeys)
	}
	for i, key := range n.keys {
		if !slices.Contains(launchKeys, key) && slices.Contains(flatKeys, key) {
			f.badType(n.items[i], "unknown field `"+key+"`, expected "+oneOf(launchKeys)+
				": flat and nested keys cannot be mixed, put it into `engine`")
		}
	}
	if !f.ok() {
		return emptyMap(n.line, n.path)
	}
	return n
}

// fromFlat lowers the flat form, of which keys are legal (spec engine-args 3).
func (f *faults) fromFlat(n *node, keys []string) *node {
	m := f.mapping(n, "a map", keys)
	out, eng, dyn := emptyMap(n.line, n.path), emptyMap(n.line, n.path), emptyMap(n.line, n.path)
	for i, key := range m.keys {
		v := m.items[i]
		switch {
		case slices.Contains(offloadKeys, key):
			f.broken(v, key+" is not supported: KV offload is not simulated")
		case key == "engine_type", key == "backend":
			if eng.get("backend") != nil {
				f.badType(v, "duplicate field `backend`: engine_type and backend are the same")
			}
			eng.put("backend", lowered(v))
		case key == "preemption_mode":
			eng.put(key, lowered(v))
		case key == "num_gpu_blocks" && v.kind == nullKind, key == "has_perf_model":
		case key == "block_size" && v.kind == intKind && v.text == "0":
		case key == "sglang":
			eng.put(key, f.flatSGLang(m, v))
		case slices.Contains(launchKeys, key):
			out.put(key, v)
		case slices.Contains(dynamoKeys, key):
			dyn.put(key, v)
		case slices.Contains(engineKeys, key):
			eng.put(key, v)
		}
	}
	f.flatRole(m, eng)
	f.flatPage(m, eng)
	f.flatTiming(m, out, eng)
	out.put("engine", eng)
	if len(dyn.keys) > 0 {
		out.put("dynamo", dyn)
	}
	return out
}

// lowered returns v with its text in lower case: the flat enums ignore case.
func lowered(v *node) *node {
	if v.kind != stringKind {
		return v
	}
	c := *v
	c.text = strings.ToLower(c.text)
	return &c
}

// flatSGLang drops page_size, which flatPage reads, and spells fcfs as fifo.
func (f *faults) flatSGLang(m mapping, v *node) *node {
	if v.kind != mapKind {
		return v
	}
	f.mapping(v, "struct SglangConfig", append([]string{"page_size"}, sglangKeys...))
	out := emptyMap(v.line, v.path)
	for i, key := range v.keys {
		item := v.items[i]
		if key == "schedule_policy" && item.kind == stringKind && item.text == "fcfs" {
			c := *item
			c.text, item = "fifo", &c
		}
		if slices.Contains(sglangKeys, key) {
			out.put(key, item)
		}
	}
	return out
}

// flatPage takes the block size of SGLang from sglang.page_size.
func (f *faults) flatPage(m mapping, eng *node) {
	page := m.get("sglang").get("page_size")
	backend := eng.get("backend")
	if page == nil || page.kind == nullKind {
		return
	}
	if page.kind == intKind && page.text == "0" || backend == nil || backend.text != "sglang" {
		return
	}
	block := eng.get("block_size")
	if block == nil {
		eng.put("block_size", page)
		return
	}
	if block.text != page.text {
		f.broken(page, "engine_type=sglang requires block_size and sglang.page_size to match when both are set, got block_size="+
			block.text+" and sglang.page_size="+page.text)
	}
}

// flatRole lowers worker_type, is_prefill and is_decode.
func (f *faults) flatRole(m mapping, eng *node) {
	if v := m.get("worker_type"); v != nil {
		if v.kind != stringKind || !slices.Contains(roleNames, v.text) {
			f.broken(v, "worker_type must be one of 'aggregated', 'prefill', or 'decode'")
		}
	}
	prefill, decode := m.bool("is_prefill"), m.bool("is_decode")
	if prefill.v && decode.v {
		f.brokenAt(m.node, "is_decode", "is_prefill and is_decode cannot both be true")
	}
	if (prefill.set || decode.set) && m.get("worker_type") != nil {
		f.brokenAt(m.node, "worker_type", "worker_type cannot be combined with is_prefill/is_decode")
	}
	for _, role := range [...]struct {
		on  bool
		key string
	}{{prefill.v, "is_prefill"}, {decode.v, "is_decode"}} {
		if role.on {
			at := m.get(role.key)
			eng.put("worker_type", &node{kind: stringKind, text: strings.TrimPrefix(role.key, "is_"), line: at.line, path: at.path})
		}
	}
}

var (
	roleNames    = []string{"aggregated", "prefill", "decode"}
	backendNames = []string{"vllm", "sglang", "trtllm"}
)

// flatTiming lowers planner_profile_data and the aic_ keys to a timing_model.
func (f *faults) flatTiming(m mapping, out, eng *node) {
	profile, aic := m.string("planner_profile_data", orNull), m.get("aic_backend")
	if aic != nil && aic.kind == nullKind {
		aic = nil
	}
	given := 0
	for _, on := range [...]bool{profile.set, aic != nil, eng.get("timing_model") != nil} {
		if on {
			given++
		}
	}
	if given > 1 {
		f.broken(m.node, "give one of timing_model, planner_profile_data and aic_backend")
		return
	}
	if aic == nil {
		for i, key := range m.keys {
			if slices.Contains(aicFlatKeys, key) && m.items[i].kind != nullKind {
				f.broken(m.items[i], key+" needs aic_backend, which selects measured timing")
			}
		}
	}
	switch {
	case profile.set:
		at := m.get("planner_profile_data")
		config := emptyMap(at.line, at.path)
		config.put("path", at)
		eng.put("timing_model", external(at, "dynamo_profile", config))
	case aic != nil:
		eng.put("timing_model", external(aic, "ais", f.flatAIC(m, out)))
	}
}

// external makes a timing_model of measured or profiled data.
func external(at *node, provider string, config *node) *node {
	n := emptyMap(at.line, at.path)
	n.put("type", &node{kind: stringKind, text: "external", line: at.line, path: at.path})
	n.put("provider", &node{kind: stringKind, text: provider, line: at.line, path: at.path})
	n.put("config", config)
	return n
}

// flatAIC gathers the aic_ keys into the configuration of the ais provider;
// nulls count as absent.
func (f *faults) flatAIC(m mapping, out *node) *node {
	at := m.get("aic_backend")
	config := emptyMap(at.line, at.path)
	for i, key := range m.keys {
		v := m.items[i]
		if !slices.Contains(aicFlatKeys, key) || v.kind == nullKind {
			continue
		}
		name := strings.TrimPrefix(key, "aic_")
		switch name {
		case "model_path":
			name = "model"
		case "tp_size":
			name = "tp"
		case "attention_dp_size":
			name = "attention_dp"
		}
		config.put(name, v)
	}
	if config.get("model") == nil {
		m.missing("aic_model_path")
		config.put("model", at) // told once
	}
	if config.get("system") == nil {
		config.put("system", &node{kind: stringKind, text: "h200_sxm", line: at.line, path: at.path})
	}
	// An attention width above 1 sets dp_size, of which 1 is the default; any other
	// dp_size must equal it.
	dp, attention := out.get("dp_size"), config.get("attention_dp")
	switch {
	case dp == nil:
	case attention == nil:
		config.put("attention_dp", &node{kind: intKind, text: "1", line: at.line, path: at.path})
	case dp.text == "1" && attention.kind == intKind:
		out.put("dp_size", attention)
	}
	return config
}

// launchDoc is the engine-argument document: what was written, nothing more.
type launchDoc struct {
	mapping
	dp, tp                         opt[uint64]
	startup                        opt[float64]
	fractions                      [3]opt[float64] // [backend]
	cudaGraph                      opt[uint64]
	engine, sglang                 mapping
	backend                        opt[int]
	blocks, blockSize              opt[uint64]
	maxModelLen, maxSeqs, maxBatch opt[uint64]
	scheduleInterval               opt[uint64]
	decodeInterval                 opt[uint64]
	prefixCaching, chunked         opt[bool]
	speedup, decodeSpeedup         opt[float64]
	nextN, mtpSeed                 opt[uint64]
	rates                          opt[string]
	role, preemption               opt[int]
	transferBytes                  opt[uint64]
	bandwidth                      opt[float64]
	transferAuto                   bool
	transferMode, contention       opt[int]
	policy                         opt[int]
	maxPrefill, chunk, clip        opt[uint64]
	conservativeness               opt[float64]
	queuePolicy                    opt[int]
	timing                         timingDoc
}

var fractionKeys = [...]string{"gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction"}

// launch reads nested engine arguments; wrong types become faults.
func (f *faults) launch(n *node) *launchDoc {
	m := f.mapping(n, "struct EngineLaunchConfig", launchKeys)
	d := &launchDoc{mapping: m}
	d.dp, d.tp = m.uint("dp_size", 32, notNull), m.uint("tensor_parallel_size", 64, notNull)
	d.startup = m.float("startup_time", orNull)
	m.bool("num_gpu_blocks_is_explicit")
	for i, key := range fractionKeys {
		d.fractions[i] = m.float(key, orNull)
	}
	d.cudaGraph = m.u64("cuda_graph_reserved_bytes", orNull)
	d.engineFields(m.sub("engine", engineWant, engineKeys))
	d.dynamoFields(m.sub("dynamo", "struct DynamoRuntimeConfig", dynamoKeys))
	return d
}

func (d *launchDoc) engineFields(e mapping) {
	d.engine = e
	d.backend = e.enum("backend", backendNames...)
	d.blocks, d.blockSize = e.uint("num_gpu_blocks", 64, notNull), e.uint("block_size", 64, orNull)
	d.maxModelLen, d.maxSeqs = e.uint("max_model_len", 64, orNull), e.uint("max_num_seqs", 64, orNull)
	d.maxBatch = e.uint("max_num_batched_tokens", 64, orNull)
	d.scheduleInterval = e.uint("prefill_schedule_interval", 64, notNull)
	d.decodeInterval = e.uint("prefill_decode_interval", 64, notNull)
	d.prefixCaching, d.chunked = e.bool("enable_prefix_caching"), e.bool("enable_chunked_prefill")
	d.speedup, d.decodeSpeedup = e.float("speedup_ratio", notNull), e.float("decode_speedup_ratio", notNull)
	d.nextN, d.rates = e.uint("aic_nextn", 64, orNull), e.string("aic_nextn_accept_rates", orNull)
	d.mtpSeed = e.u64("aic_mtp_seed", notNull)
	d.role, d.preemption = e.enum("worker_type", roleNames...), e.enum("preemption_mode", "lifo", "fifo")
	d.transfer(e)
	events, ids := e.bool("emit_kv_events"), e.bool("emit_kv_token_ids")
	e.rule(!ids.v || events.v, "emit_kv_token_ids", "emit_kv_token_ids requires emit_kv_events")
	if c := e.u64("kv_cache_bytes_per_token", orNull); c.set {
		e.rule(c.v > 0, "kv_cache_bytes_per_token", "kv_cache_bytes_per_token must be positive")
	}
	for i, key := range e.keys {
		if slices.Contains(offloadKeys, key) {
			e.f.broken(e.items[i], key+" is not supported: KV offload is not simulated")
		}
	}
	d.timing = e.f.timingModel(e.get("timing_model"))
	d.sglang = e.sub("sglang", "struct SglangConfig", sglangKeys)
	d.policy = d.sglang.enum("schedule_policy", "fifo", "lpm")
	d.maxPrefill, d.chunk = d.sglang.uint("max_prefill_tokens", 64, notNull), d.sglang.uint("chunked_prefill_size", 64, notNull)
	d.clip = d.sglang.uint("clip_max_new_tokens", 64, notNull)
	d.conservativeness = d.sglang.float("schedule_conservativeness", notNull)
	e.sub("trtllm", "struct TrtllmConfig", trtllmKeys).enum("capacity_scheduler_policy", "guaranteed_no_evict")
}

// transfer reads the handoff fields; kv_bytes_per_token is an alias. The contention
// and auto are ours.
func (d *launchDoc) transfer(e mapping) {
	key := "kv_transfer_bytes_per_token"
	if e.get("kv_bytes_per_token") != nil {
		if e.get(key) != nil {
			e.f.badType(e.node, "duplicate field `"+key+"`")
		}
		key = "kv_bytes_per_token"
	}
	if v := e.get(key); v != nil && v.kind == stringKind && v.text == "auto" {
		d.transferAuto = true
	} else {
		d.transferBytes = e.uint(key, 64, orNull)
	}
	d.bandwidth = e.float("kv_transfer_bandwidth", orNull)
	d.transferMode = e.enum("kv_transfer_timing_mode", transferModes...)
	d.contention = e.enum("kv_transfer_contention", contentions...)
}

var transferModes = []string{"full_prompt", "destination_missing"}

// dynamoFields checks the live options, of which only the queue policy acts.
func (d *launchDoc) dynamoFields(m mapping) {
	m.bool("enable_local_indexer")
	for _, key := range [...]string{"bootstrap_port", "zmq_kv_events_port", "zmq_replay_port"} {
		m.uint(key, 16, orNull)
	}
	timeout := m.u64("handoff_session_timeout_ms", notNull)
	m.rule(timeout.or(1) > 0, "handoff_session_timeout_ms", "handoff_session_timeout_ms must be positive")
	m.string("response_replay_trace_path", orNull)
	if v := m.get("router_queue_policy"); v != nil && v.kind != nullKind {
		d.queuePolicy = m.enum("router_queue_policy", queuePolicies...)
	}
	if v := m.get("reasoning"); v != nil && v.kind != mapKind && v.kind != nullKind {
		m.f.badType(v, "invalid type: "+v.describe()+", expected struct ReasoningConfig")
	}
}

var queuePolicies = []string{"fcfs", "lcfs", "wspt"}
