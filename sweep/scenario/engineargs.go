package scenario

import (
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
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
		"kv_transfer_contention", kvTiersKey} // ours
	sglangKeys = []string{"schedule_policy", "max_prefill_tokens", "chunked_prefill_size",
		"clip_max_new_tokens", "schedule_conservativeness"}
	trtllmKeys = []string{"capacity_scheduler_policy"}
	dynamoKeys = []string{"enable_local_indexer", "bootstrap_port", "handoff_session_timeout_ms",
		"reasoning", "response_replay_trace_path", "zmq_kv_events_port", "zmq_replay_port",
		"router_queue_policy"}
	// liveKeys are those of dynamoKeys that only live serving reads.
	liveKeys = []string{"bootstrap_port", "reasoning", "response_replay_trace_path",
		"zmq_kv_events_port", "zmq_replay_port"}
	aicFlatKeys = []string{"aic_backend", "aic_system", "aic_backend_version", "aic_model_path",
		"aic_tp_size", "aic_moe_tp_size", "aic_moe_ep_size", "aic_attention_dp_size",
		"aic_gemm_dtype", "aic_moe_dtype", "aic_fmha_dtype", "aic_kv_cache_dtype", "aic_comm_dtype"}
	// offloadKeys are refused by name wherever they stand.
	offloadKeys = []string{"kv_cache_groups", "kv_cache_capacity_bytes",
		"state_cache", "prefix_match_unit", "g1_backend", "num_g2_blocks",
		"num_g3_blocks", "enable_g4_storage", "offload_batch_size", "bandwidth_g1_to_g2_gbps",
		"bandwidth_g2_to_g1_gbps", "bandwidth_g2_to_g3_gbps", "bandwidth_g3_to_g2_gbps"}
)

// flatKeys are the keys of the flat form.
var flatKeys = slices.Concat([]string{"engine_type"}, engineKeys, launchKeys[1:9], dynamoKeys, aicFlatKeys,
	[]string{"is_prefill", "is_decode", "planner_profile_data", "has_perf_model"}, offloadKeys[4:])

const (
	engineWant = "struct EngineConfig"
	classArgs  = "invalid engine launch config"
)

// EngineArgs reads the engine arguments of one role from JSON text in the nested
// or the flat form (spec engine-args); empty text is all defaults. origin names
// the text in messages, for example the flag it came from. want is the role the
// text is used for: it must agree with worker_type, whose default is aggregated.
func EngineArgs(origin, text string) (*Role, error) {
	f := &document.Faults{Origin: origin, Class: classArgs, UpstreamWords: true}
	n := document.EmptyMap(0, "")
	if text != "" {
		var err error
		if n, err = document.ParseInlineJSON(origin, []byte(text)); err != nil {
			return nil, err
		}
		n.ClearPlaces() // the text is one argument, and its messages are upstream's
		if n.Kind != document.Map {
			return nil, &document.Fault{Origin: origin, Msg: "engine-args must be a JSON object"}
		}
	}
	return readRole(f, NestedArgs(f, n), "")
}

// readRole decodes nested engine arguments. The folder of a local model starts from dir.
func readRole(f *document.Faults, n *document.Node, dir string) (*Role, error) {
	d := readLaunch(f, n)
	d.dir = dir
	if !f.OK() {
		return nil, f.Err()
	}
	r := d.complete()
	if !f.OK() {
		return nil, f.Err()
	}
	return r, nil
}

// NestedArgs lowers either form of engine arguments to the nested one. Values keep
// the path under which the user wrote them.
func NestedArgs(f *document.Faults, n *document.Node) *document.Node {
	engineAt, dynamoAt := n.Get("engine"), n.Get("dynamo")
	if engineAt == nil && dynamoAt == nil {
		return nestedFromFlat(f, n, flatKeys)
	}
	for i, key := range n.Keys {
		if !slices.Contains(launchKeys, key) && slices.Contains(flatKeys, key) {
			f.Malformed(n.Items[i], "unknown field `"+key+"`, expected "+document.OneOf(launchKeys)+
				": flat and nested keys cannot be mixed, put it into `engine`")
		}
	}
	if !f.OK() {
		return document.EmptyMap(n.Line, n.Path)
	}
	return n
}

// nestedFromFlat lowers the flat form, of which keys are legal (spec engine-args 3).
func nestedFromFlat(f *document.Faults, n *document.Node, keys []string) *document.Node {
	m := f.Mapping(n, "a map", keys)
	out, eng, dyn := document.EmptyMap(n.Line, n.Path), document.EmptyMap(n.Line, n.Path), document.EmptyMap(n.Line, n.Path)
	for i, key := range m.Keys {
		v := m.Items[i]
		switch {
		case slices.Contains(offloadKeys, key):
			f.Invalid(v, key+" is not supported: KV offload takes native_host_offload and g3_offload")
		case key == "engine_type", key == "backend":
			if eng.Get("backend") != nil {
				f.Malformed(v, "duplicate field `backend`: engine_type and backend are the same")
			}
			eng.Put("backend", lowered(v))
		case key == "preemption_mode":
			eng.Put(key, lowered(v))
		case key == "num_gpu_blocks" && v.Kind == document.Null, key == "has_perf_model":
		case key == "block_size" && v.Kind == document.Int && v.Text == "0":
		case key == "sglang":
			eng.Put(key, flatSGLang(f, m, v))
		case slices.Contains(launchKeys, key):
			out.Put(key, v)
		case slices.Contains(dynamoKeys, key):
			dyn.Put(key, v)
		case slices.Contains(engineKeys, key):
			eng.Put(key, v)
		}
	}
	flatRole(f, m, eng)
	flatPage(f, m, eng)
	flatTiming(f, m, out, eng)
	out.Put("engine", eng)
	if len(dyn.Keys) > 0 {
		out.Put("dynamo", dyn)
	}
	return out
}

// lowered returns v with its text in lower case: the flat enums ignore case.
func lowered(v *document.Node) *document.Node {
	if v.Kind != document.String {
		return v
	}
	c := *v
	c.Text = strings.ToLower(c.Text)
	return &c
}

// flatSGLang drops page_size, which flatPage reads, and spells fcfs as fifo.
func flatSGLang(f *document.Faults, m document.Mapping, v *document.Node) *document.Node {
	if v.Kind != document.Map {
		return v
	}
	f.Mapping(v, "struct SglangConfig", append([]string{"page_size"}, sglangKeys...))
	out := document.EmptyMap(v.Line, v.Path)
	for i, key := range v.Keys {
		item := v.Items[i]
		if key == "schedule_policy" && item.Kind == document.String && item.Text == "fcfs" {
			c := *item
			c.Text, item = "fifo", &c
		}
		if slices.Contains(sglangKeys, key) {
			out.Put(key, item)
		}
	}
	return out
}

// flatPage takes the block size of SGLang from sglang.page_size.
func flatPage(f *document.Faults, m document.Mapping, eng *document.Node) {
	page := m.Get("sglang").Get("page_size")
	backend := eng.Get("backend")
	if page == nil || page.Kind == document.Null {
		return
	}
	if page.Kind == document.Int && page.Text == "0" || backend == nil || backend.Text != "sglang" {
		return
	}
	block := eng.Get("block_size")
	if block == nil {
		eng.Put("block_size", page)
		return
	}
	if block.Text != page.Text {
		f.Invalid(page, "engine_type=sglang requires block_size and sglang.page_size to match when both are set, got block_size="+
			block.Text+" and sglang.page_size="+page.Text)
	}
}

// flatRole lowers worker_type, is_prefill and is_decode.
func flatRole(f *document.Faults, m document.Mapping, eng *document.Node) {
	if v := m.Get("worker_type"); v != nil {
		if v.Kind != document.String || !slices.Contains(roleNames, v.Text) {
			f.Invalid(v, "worker_type must be one of 'aggregated', 'prefill', or 'decode'")
		}
	}
	prefill, decode := m.Bool("is_prefill"), m.Bool("is_decode")
	if prefill.Value && decode.Value {
		f.InvalidAt(m.Node, "is_decode", "is_prefill and is_decode cannot both be true")
	}
	if (prefill.Set || decode.Set) && m.Get("worker_type") != nil {
		f.InvalidAt(m.Node, "worker_type", "worker_type cannot be combined with is_prefill/is_decode")
	}
	for _, role := range [...]struct {
		on  bool
		key string
	}{{prefill.Value, "is_prefill"}, {decode.Value, "is_decode"}} {
		if role.on {
			at := m.Get(role.key)
			eng.Put("worker_type", &document.Node{Kind: document.String, Text: strings.TrimPrefix(role.key, "is_"), Line: at.Line, Path: at.Path})
		}
	}
}

var (
	roleNames    = []string{"aggregated", "prefill", "decode"}
	backendNames = engine.BackendNames()
)

// flatTiming lowers planner_profile_data and the aic_ keys to a timing_model.
func flatTiming(f *document.Faults, m document.Mapping, out, eng *document.Node) {
	profile, aic := m.String("planner_profile_data", document.OrNull), m.Get("aic_backend")
	if aic != nil && aic.Kind == document.Null {
		aic = nil
	}
	given := 0
	for _, on := range [...]bool{profile.Set, aic != nil, eng.Get("timing_model") != nil} {
		if on {
			given++
		}
	}
	if given > 1 {
		f.Invalid(m.Node, "give one of timing_model, planner_profile_data and aic_backend")
		return
	}
	if aic == nil {
		for i, key := range m.Keys {
			if slices.Contains(aicFlatKeys, key) && m.Items[i].Kind != document.Null {
				f.Invalid(m.Items[i], key+" needs aic_backend, which selects measured timing")
			}
		}
	}
	switch {
	case profile.Set:
		at := m.Get("planner_profile_data")
		config := document.EmptyMap(at.Line, at.Path)
		config.Put("path", at)
		eng.Put("timing_model", ExternalTiming(at, "dynamo_profile", config))
	case aic != nil:
		eng.Put("timing_model", ExternalTiming(aic, "ais", flatAIC(f, m, out)))
	}
}

// ExternalTiming makes a timing_model of measured or profiled data.
func ExternalTiming(at *document.Node, provider string, config *document.Node) *document.Node {
	n := document.EmptyMap(at.Line, at.Path)
	n.Put("type", &document.Node{Kind: document.String, Text: "external", Line: at.Line, Path: at.Path})
	n.Put("provider", &document.Node{Kind: document.String, Text: provider, Line: at.Line, Path: at.Path})
	n.Put("config", config)
	return n
}

// flatAIC gathers the aic_ keys into the configuration of the ais provider;
// nulls count as absent.
func flatAIC(f *document.Faults, m document.Mapping, out *document.Node) *document.Node {
	at := m.Get("aic_backend")
	config := document.EmptyMap(at.Line, at.Path)
	for i, key := range m.Keys {
		v := m.Items[i]
		if !slices.Contains(aicFlatKeys, key) || v.Kind == document.Null {
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
		config.Put(name, v)
	}
	if config.Get("model") == nil {
		m.Missing("aic_model_path")
		config.Put("model", at) // told once
	}
	if config.Get("system") == nil {
		config.Put("system", &document.Node{Kind: document.String, Text: "h200_sxm", Line: at.Line, Path: at.Path})
	}
	// An attention width above 1 sets dp_size, of which 1 is the default; any other
	// dp_size must equal it.
	dp, attention := out.Get("dp_size"), config.Get("attention_dp")
	switch {
	case dp == nil:
	case attention == nil:
		config.Put("attention_dp", &document.Node{Kind: document.Int, Text: "1", Line: at.Line, Path: at.Path})
	case dp.Text == "1" && attention.Kind == document.Int:
		out.Put("dp_size", attention)
	}
	return config
}

// launchDoc is the engine-argument document: what was written, nothing more.
type launchDoc struct {
	document.Mapping
	dir                            string   // that a local model starts from
	live                           []string // keys that only live serving reads
	dp, tp                         document.Opt[uint64]
	startup                        document.Opt[float64]
	fractions                      [3]document.Opt[float64] // [backend]
	cudaGraph                      document.Opt[uint64]
	engine, sglang                 document.Mapping
	backend                        document.Opt[int]
	blocks, blockSize              document.Opt[uint64]
	maxModelLen, maxSeqs, maxBatch document.Opt[uint64]
	scheduleInterval               document.Opt[uint64]
	decodeInterval                 document.Opt[uint64]
	prefixCaching, chunked         document.Opt[bool]
	speedup, decodeSpeedup         document.Opt[float64]
	nextN, mtpSeed                 document.Opt[uint64]
	rates                          document.Opt[string]
	role, preemption               document.Opt[int]
	transferBytes                  document.Opt[uint64]
	bandwidth                      document.Opt[float64]
	transferAuto                   bool
	transferMode, contention       document.Opt[int]
	policy                         document.Opt[int]
	maxPrefill, chunk, clip        document.Opt[uint64]
	conservativeness               document.Opt[float64]
	queuePolicy                    document.Opt[int]
	timing                         timingDoc
	offload                        offloadDoc
}

var fractionKeys = engine.FractionKeys()

// readLaunch reads nested engine arguments; wrong types become faults.
func readLaunch(f *document.Faults, n *document.Node) *launchDoc {
	m := f.Mapping(n, "struct EngineLaunchConfig", launchKeys)
	d := &launchDoc{Mapping: m}
	d.dp, d.tp = m.Uint("dp_size", 32, document.NotNull), m.Uint("tensor_parallel_size", 64, document.NotNull)
	d.startup = m.Float("startup_time", document.OrNull)
	m.Bool("num_gpu_blocks_is_explicit")
	for i, key := range fractionKeys {
		d.fractions[i] = m.Float(key, document.OrNull)
	}
	d.cudaGraph = m.Uint64("cuda_graph_reserved_bytes", document.OrNull)
	d.engineFields(m.Sub("engine", engineWant, engineKeys))
	d.dynamoFields(m.Sub("dynamo", "struct DynamoRuntimeConfig", dynamoKeys))
	return d
}

func (d *launchDoc) engineFields(e document.Mapping) {
	d.engine = e
	d.backend = e.Enum("backend", backendNames...)
	d.blocks, d.blockSize = e.Uint("num_gpu_blocks", 64, document.NotNull), e.Uint("block_size", 64, document.OrNull)
	d.maxModelLen, d.maxSeqs = e.Uint("max_model_len", 64, document.OrNull), e.Uint("max_num_seqs", 64, document.OrNull)
	d.maxBatch = e.Uint("max_num_batched_tokens", 64, document.OrNull)
	d.scheduleInterval = e.Uint("prefill_schedule_interval", 64, document.NotNull)
	d.decodeInterval = e.Uint("prefill_decode_interval", 64, document.NotNull)
	d.prefixCaching, d.chunked = e.Bool("enable_prefix_caching"), e.Bool("enable_chunked_prefill")
	d.speedup, d.decodeSpeedup = e.Float("speedup_ratio", document.NotNull), e.Float("decode_speedup_ratio", document.NotNull)
	d.nextN, d.rates = e.Uint("aic_nextn", 64, document.OrNull), e.String("aic_nextn_accept_rates", document.OrNull)
	d.mtpSeed = e.Uint64("aic_mtp_seed", document.NotNull)
	d.role, d.preemption = e.Enum("worker_type", roleNames...), e.Enum("preemption_mode", "lifo", "fifo")
	d.transfer(e)
	events, ids := e.Bool("emit_kv_events"), e.Bool("emit_kv_token_ids")
	e.Require(!ids.Value || events.Value, "emit_kv_token_ids", "emit_kv_token_ids requires emit_kv_events")
	d.offload = readOffload(e)
	for i, key := range e.Keys {
		if slices.Contains(offloadKeys, key) {
			e.Faults.Invalid(e.Items[i], key+" is not supported: KV offload takes native_host_offload and g3_offload")
		}
	}
	d.timing = readTimingModel(e.Faults, e.Get("timing_model"))
	d.sglang = e.Sub("sglang", "struct SglangConfig", sglangKeys)
	d.policy = d.sglang.Enum("schedule_policy", "fifo", "lpm")
	d.maxPrefill, d.chunk = d.sglang.Uint("max_prefill_tokens", 64, document.NotNull), d.sglang.Uint("chunked_prefill_size", 64, document.NotNull)
	d.clip = d.sglang.Uint("clip_max_new_tokens", 64, document.NotNull)
	d.conservativeness = d.sglang.Float("schedule_conservativeness", document.NotNull)
	e.Sub("trtllm", "struct TrtllmConfig", trtllmKeys).Enum("capacity_scheduler_policy", "guaranteed_no_evict")
}

// transfer reads the handoff fields; kv_bytes_per_token is an alias. The contention
// and auto are ours.
func (d *launchDoc) transfer(e document.Mapping) {
	key := "kv_transfer_bytes_per_token"
	if e.Get("kv_bytes_per_token") != nil {
		if e.Get(key) != nil {
			e.Faults.Malformed(e.Node, "duplicate field `"+key+"`")
		}
		key = "kv_bytes_per_token"
	}
	if v := e.Get(key); v != nil && v.Kind == document.String && v.Text == "auto" {
		d.transferAuto = true
	} else {
		d.transferBytes = e.Uint(key, 64, document.OrNull)
	}
	d.bandwidth = e.Float("kv_transfer_bandwidth", document.OrNull)
	d.transferMode = e.Enum("kv_transfer_timing_mode", transferModes...)
	d.contention = e.Enum("kv_transfer_contention", contentions...)
}

var transferModes = []string{"full_prompt", "destination_missing"}

// dynamoFields checks the live options, of which only the queue policy acts.
func (d *launchDoc) dynamoFields(m document.Mapping) {
	for _, key := range liveKeys {
		if v := m.Get(key); v != nil && v.Kind != document.Null {
			d.live = append(d.live, key)
		}
	}
	m.Bool("enable_local_indexer")
	for _, key := range [...]string{"bootstrap_port", "zmq_kv_events_port", "zmq_replay_port"} {
		m.Uint(key, 16, document.OrNull)
	}
	timeout := m.Uint64("handoff_session_timeout_ms", document.NotNull)
	m.Require(timeout.Or(1) > 0, "handoff_session_timeout_ms", "handoff_session_timeout_ms must be positive")
	m.String("response_replay_trace_path", document.OrNull)
	if v := m.Get("router_queue_policy"); v != nil && v.Kind != document.Null {
		d.queuePolicy = m.Enum("router_queue_policy", queuePolicies...)
	}
	if v := m.Get("reasoning"); v != nil && v.Kind != document.Map && v.Kind != document.Null {
		m.Faults.Malformed(v, "invalid type: "+v.Describe()+", expected struct ReasoningConfig")
	}
}

var queuePolicies = []string{"fcfs", "lcfs", "wspt"}
