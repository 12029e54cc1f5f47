package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strconv"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// ReplayArgs renders a resolved configuration (Run.ResolvedJSON) as the arguments of
// replay: trace files first, then flags. Values that are replay's defaults are left
// out. A transfer of bytes_per_token auto becomes the number that ask gives; ask may
// be nil. It fails for the few configurations that the flags cannot express; these
// run as a point of their sweep.
func ReplayArgs(text []byte, ask TimingResolver) ([]string, error) {
	conf, err := resolved.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("no resolved configuration: %w", err)
	}
	c := &argWriter{conf: conf, doc: objectOf(conf), ask: ask}
	for _, part := range [...]func(){c.workload, c.engines, c.router, c.planner, c.sla} {
		part()
	}
	if c.cannot != "" {
		return nil, errors.New("replay has no flags for " + c.cannot + ": run it with sweep SPEC --point ID")
	}
	return c.args, nil
}

// object is a JSON object; numbers are json.Number.
type object map[string]any

// objectOf is a struct by its JSON keys.
func objectOf(v any) object {
	dec := json.NewDecoder(bytes.NewReader(jsonOf(v)))
	dec.UseNumber()
	var out object
	if err := dec.Decode(&out); err != nil {
		panic("scenario: no JSON object: " + err.Error())
	}
	return out
}

// at is the object under a key, nil if there is none.
func (o object) at(key string) object {
	switch m := o[key].(type) {
	case map[string]any:
		return m
	case object:
		return m
	}
	return nil
}

// text is a scalar as a flag value, "" for null and absent.
func (o object) text(key string) string {
	switch v := o[key].(type) {
	case json.Number:
		return v.String()
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// argWriter gathers arguments; cannot names what has no flag.
type argWriter struct {
	conf   *resolved.Config
	doc    object // conf by its keys
	ask    TimingResolver
	args   []string
	cannot string
}

func (c *argWriter) flag(name, value string) { c.args = append(c.args, "--"+name, value) }

// flags adds a flag for every key that has a value other than the default.
func (c *argWriter) flags(o object, list ...[3]string) {
	for _, f := range list {
		if v := o.text(f[0]); v != "" && v != f[2] {
			c.flag(f[1], v)
		}
	}
}

func (c *argWriter) refuse(what string) {
	if c.cannot == "" {
		c.cannot = what
	}
}

func (c *argWriter) workload() {
	w := c.doc.at("workload")
	if s := c.conf.Workload.Synthetic; s != nil {
		if s.CumulativeTurns {
			c.refuse("turns that grow, those of a synthetic-session on the engine stack")
		}
		c.flags(w, [3]string{"input_tokens", "input-tokens"}, [3]string{"output_tokens", "output-tokens"}, [3]string{"requests", "request-count"},
			[3]string{"turns_per_session", "turns-per-session", "1"}, [3]string{"inter_turn_delay_ms", "inter-turn-delay-ms", "0"},
			[3]string{"shared_prefix_ratio", "shared-prefix-ratio", "0"}, [3]string{"num_prefix_groups", "num-prefix-groups", "0"},
			[3]string{"concurrency", "replay-concurrency"}, [3]string{"request_rate", "request-rate"}, [3]string{"arrival_interval_ms", "arrival-interval-ms"},
			[3]string{"arrival_speedup", "arrival-speedup-ratio", "1"})
		if seed := c.conf.Seeds.Arrival; seed != nil && *seed != defaultArrivalSeed {
			c.flag("arrival-seed", strconv.FormatUint(*seed, 10))
		}
		return
	}
	t := c.conf.Workload.Trace
	for _, f := range t.Trace {
		c.args = append(c.args, f.Path)
	}
	c.flags(w, [3]string{"format", "trace-format", "mooncake"}, [3]string{"trace_block_size", "trace-block-size"},
		[3]string{"concurrency", "replay-concurrency"}, [3]string{"arrival_speedup", "arrival-speedup-ratio", "1"},
		[3]string{"agentic_lanes", "agentic-lanes"}, [3]string{"trace_shared_prefix_ratio", "trace-shared-prefix-ratio", "0"},
		[3]string{"trace_num_prefix_groups", "trace-num-prefix-groups", "0"}, [3]string{"execution_model", "execution-model"})
	if basis := t.NestedTimestampBasis; basis != "" && basis != timestampBases[0] {
		c.refuse("nested_timestamp_basis " + basis)
	}
	if t.MaxSimTimeMs != nil {
		c.flag("max-sim-time-seconds", secondsOf(*t.MaxSimTimeMs))
	}
}

// secondsOf finds the seconds that come to ms when multiplied by 1000.
func secondsOf(ms float64) string {
	s := ms / 1000
	for _, v := range [...]float64{s, math.Nextafter(s, 0), math.Nextafter(s, math.Inf(1))} {
		if v*1000 == ms {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
	}
	return strconv.FormatFloat(s, 'g', -1, 64)
}

// pathIn is the path of a file reference.
func pathIn(v any) string {
	switch m := v.(type) {
	case map[string]any:
		return object(m).text("path")
	case string:
		return m
	}
	return ""
}

func (c *argWriter) engines() {
	if pre := c.doc.at("prefill_engine"); pre != nil {
		c.flag("prefill-engine-args", c.engine(pre, true))
		c.flag("decode-engine-args", c.engine(c.doc.at("decode_engine"), false))
		c.flags(c.doc, [3]string{"prefill_workers", "num-prefill-workers", "1"}, [3]string{"decode_workers", "num-decode-workers", "1"})
		return
	}
	if text := c.engine(c.doc.at("engine"), false); text != "{}" {
		c.flag("extra-engine-args", text)
	}
	c.flags(c.doc, [3]string{"workers", "num-workers", "1"})
}

// engine is the engine arguments of a role in nested form, without defaults.
func (c *argWriter) engine(role object, transfers bool) string {
	e := role.at("engine")
	if e == nil {
		c.refuse("a configuration without an engine")
		return "{}"
	}
	measured := unpackTiming(e.at("timing_model"))
	base := engineDefaults(e.text("backend"), e.text("worker_type"))
	dropDefaults(e, base.at("engine"), measured)
	if seed := c.conf.Seeds.MTP; seed != nil && e["aic_nextn"] != nil && e["aic_mtp_seed"] == nil && *seed != defaultMTPSeed {
		e["aic_mtp_seed"] = *seed
	}
	out := object{}
	for _, key := range [...]string{"dp_size", "tensor_parallel_size", "startup_time"} {
		if v := role[key]; !reflect.DeepEqual(plainOf(v), base[key]) {
			out[key] = v
		}
	}
	if capacity := role.at("capacity"); capacity != nil {
		c.capacity(out, capacity, role, measured)
	}
	if d := role.at("dynamo"); d != nil {
		out["dynamo"] = d
	}
	if t := c.doc.at("kv_transfer"); transfers && t != nil {
		c.transfer(e, out, t)
	}
	if len(e) > 0 || len(out) > 0 {
		out["engine"] = e // its presence makes the form nested
	}
	return compact(out)
}

// unpackTiming turns the file references of external timing to paths; true if it is
// that of the hardware tables.
func unpackTiming(t object) (measured bool) {
	config := t.at("config")
	if t.text("type") != "external" || config == nil {
		return false
	}
	if measured = t.text("provider") == "ais"; measured {
		unpack(config)
	} else {
		config["path"] = pathIn(config["path"])
	}
	return measured
}

// dropDefaults removes from engine keys what base, those of a role of which only
// backend and worker type are written, says too. With hardware tables no number of
// blocks is a default.
func dropDefaults(e, base object, measured bool) {
	for key, v := range e {
		switch {
		case key == "backend":
			if v == backendNames[0] {
				delete(e, key)
			}
		case key == "worker_type":
			if v == roleNames[0] {
				delete(e, key)
			}
		case v == nil && (base[key] == nil || key == "num_gpu_blocks"):
			delete(e, key)
		case key == "num_gpu_blocks" && measured:
		case reflect.DeepEqual(plainOf(v), base[key]):
			delete(e, key)
		}
	}
}

// unpack drops the nulls of a hardware request and turns file references to paths.
func unpack(config object) {
	for key, v := range config {
		if v == nil {
			delete(config, key)
		}
	}
	if _, ok := config["model"].(map[string]any); ok {
		config["model"] = filepath.Dir(pathIn(config["model"]))
	}
	if config["systems_path"] != nil {
		config["systems_path"] = pathIn(config["systems_path"])
	}
}

func (c *argWriter) capacity(out, capacity, role object, measured bool) {
	if !measured {
		c.refuse("a capacity estimate beside timing that is not measured")
		return
	}
	for i, name := range backendNames {
		if backend := role.at("engine").text("backend"); backend == name || backend == "" && i == 0 {
			fraction, _ := strconv.ParseFloat(capacity.text("memory_fraction"), 64)
			if fraction != engine.Backend(i).Descriptor().MemoryFraction {
				out[fractionKeys[i]] = capacity["memory_fraction"]
			}
		}
	}
	if v := capacity.text("cuda_graph_reserved_bytes"); v != "" && v != "0" {
		out["cuda_graph_reserved_bytes"] = capacity["cuda_graph_reserved_bytes"]
	}
}

// transfer writes the handoff's price into the prefill role, whose engine is e and
// launch keys are in out.
func (c *argWriter) transfer(e, out, t object) {
	e["kv_transfer_bytes_per_token"], e["kv_transfer_bandwidth"] = t["bytes_per_token"], t["bandwidth_gb_per_second"]
	if mode := t.text("timing_mode"); mode != transferModes[0] {
		e["kv_transfer_timing_mode"] = mode
	}
	if v := t.text("contention"); v != "" && v != contentions[0] {
		e["kv_transfer_contention"] = v
	}
	if t.text("bytes_per_token") != "auto" {
		return
	}
	delete(e, "kv_transfer_bytes_per_token")
	out["engine"] = e
	if n := c.autoBytes(compact(out), t); n > 0 {
		e["kv_transfer_bytes_per_token"] = n
		return
	}
	c.refuse("kv_transfer.bytes_per_token auto")
}

// autoBytes asks for the bytes per token of a prefill role; 0 if nobody knows.
func (c *argWriter) autoBytes(role string, t object) int {
	r, err := EngineArgs("", role)
	if err != nil || c.ask == nil || t["model"] != nil || r.request().Model == "" {
		return 0
	}
	q := r.request()
	a, err := c.ask(TimingQuery{TransferBytes: &q})
	if err != nil {
		return 0
	}
	return a.BytesPerToken
}

// engineDefaults is a role of which only backend and worker type are written,
// resolved, as plain values.
func engineDefaults(backend, workerType string) object {
	r, err := EngineArgs("", compact(object{"engine": object{"backend": backend, "worker_type": workerType}}))
	if err != nil {
		return object{}
	}
	m, _ := plainOf(r.resolved(identity)).(map[string]any)
	return m
}

// plainOf is v as JSON reads it back: maps, lists and float64.
func plainOf(v any) any {
	var out any
	_ = json.Unmarshal([]byte(compact(v)), &out) // made of JSON
	return out
}

// compact is v as JSON without escapes that a shell reader would stumble over.
func compact(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("scenario: a resolved configuration does not marshal: " + err.Error())
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

func (c *argWriter) router() {
	r := c.doc.at("router")
	mode := router.FindMode(r.text("mode"))
	if mode == nil || mode == router.DefaultMode() {
		return
	}
	c.flag("router-mode", mode.Name)
	if mode.Configured {
		c.routerConfig(r)
	}
	if mode.Draws {
		c.flags(c.doc.at("seeds"), [3]string{"router", "router-seed", "0"})
	}
	if m := r.at("prefill_load_model"); m != nil {
		c.prefillLoadModel(m)
	}
}

// routerConfig adds the configuration of the router and the lag of its events.
func (c *argWriter) routerConfig(r object) {
	queue := c.doc.at("engine")
	if queue == nil {
		queue = c.doc.at("prefill_engine")
	}
	if config, ok := routerConfig(r.at("config"), queue.at("dynamo").text("router_queue_policy")); !ok {
		c.refuse("a router policy that a file set up")
	} else if len(config) > 0 {
		c.flag("router-config", compact(config))
	}
	c.flags(r, [3]string{"kv_event_lag_ms", "kv-event-lag-ms", "0"})
}

// prefillLoadModel adds the flags of the router's estimate.
func (c *argWriter) prefillLoadModel(m object) {
	unpack(m)
	if m["systems_path"] != nil || m["attention_backend"] != nil || m.text("database_mode") != modeNames[0] || m.text("cp_size") != "1" {
		c.refuse("the hardware tables of the router's prefill-load estimate")
	}
	c.flags(m, [3]string{"backend", "aic-backend"}, [3]string{"system", "aic-system"}, [3]string{"model", "aic-model-path"},
		[3]string{"backend_version", "aic-backend-version", "current"}, [3]string{"tp", "aic-tp-size", "1"}, [3]string{"attention_dp", "aic-attention-dp-size", "1"},
		[3]string{"moe_tp_size", "aic-moe-tp-size"}, [3]string{"moe_ep_size", "aic-moe-ep-size"}, [3]string{"nextn", "aic-nextn", "0"},
		[3]string{"gemm_dtype", "aic-gemm-dtype"}, [3]string{"moe_dtype", "aic-moe-dtype"}, [3]string{"fmha_dtype", "aic-fmha-dtype"},
		[3]string{"kv_cache_dtype", "aic-kv-cache-dtype"}, [3]string{"comm_dtype", "aic-comm-dtype"})
}

// routerConfig is the document that resolves to config, without defaults; false if
// none does. Of the queue it can set one class' policy and threshold.
func routerConfig(config object, queuePolicy string) (object, bool) {
	resolve := func(doc object) (object, bool) {
		n, err := document.ParseJSON("", []byte(compact(doc)))
		if err != nil {
			return nil, false
		}
		d := routerDoc{mode: router.KVMode(), config: n}
		r, err := d.complete(queuePolicy, &Files{})
		if err != nil {
			return nil, false
		}
		m, ok := plainOf(r.resolved(identity).Config).(map[string]any)
		return m, ok
	}
	base, ok := resolve(object{})
	if !ok {
		return nil, false
	}
	want, _ := plainOf(map[string]any(config)).(map[string]any)
	doc := object{}
	for key, v := range want {
		if key != "router_policy" && !reflect.DeepEqual(v, base[key]) {
			doc[key] = v
		}
	}
	policy := object(want).at("router_policy")
	if classes, _ := policy["policy_classes"].([]any); len(classes) == 1 && !reflect.DeepEqual(map[string]any(policy), base["router_policy"]) {
		one, _ := classes[0].(map[string]any)
		if name, ok := one["queue_policy"].(string); ok && name != queuePolicy && name != router.FCFS.String() {
			doc["router_queue_policy"] = name
		}
		doc["router_queue_threshold"] = nil
		if frac, ok := one["prefill_busy_threshold_frac"].(float64); ok && frac >= 0 {
			doc["router_queue_threshold"] = frac
		}
	}
	got, ok := resolve(doc)
	return doc, ok && reflect.DeepEqual(map[string]any(got), want)
}

// planner renders the Planner's configuration as the flat document it is read from.
func (c *argWriter) planner() {
	p := c.doc.at("planner")
	if p == nil {
		return
	}
	doc := flat(map[string]any(p))
	if doc.text("optimization_target") != string(planner.Load) {
		for _, key := range [...]string{"prefill_scale_up_queue_tokens", "prefill_scale_down_queue_tokens", "decode_scale_up_kv_rate", "decode_scale_down_kv_rate"} {
			delete(doc, key)
		}
	}
	plannerMinimum(doc)
	if v := doc["scale_interval_seconds"]; v != nil {
		doc["scheduling"] = object{"scale_interval_seconds": v}
		delete(doc, "scale_interval_seconds")
	}
	if warmup := p.at("predictor").at("load_predictor_warmup_trace"); warmup != nil {
		doc["load_predictor_warmup_trace"] = pathIn(map[string]any(warmup))
	} else {
		delete(doc, "load_predictor_warmup_trace")
	}
	for _, key := range [...]string{"prefill_engine_num_gpu", "decode_engine_num_gpu"} {
		if v := doc.text(key); v == "" || v == "0" {
			delete(doc, key)
		}
	}
	granularity := doc.text("benchmark_granularity")
	delete(doc, "benchmark_granularity")
	for key, v := range flat(plainOf(planner.DefaultConfig())) {
		if key != "mode" && key != "optimization_target" && reflect.DeepEqual(plainOf(doc[key]), v) {
			delete(doc, key)
		}
	}
	c.flag("planner-config", compact(doc))
	if granularity != "" && granularity != strconv.Itoa(defaultGranularity) {
		c.flag("benchmark-granularity", granularity)
	}
}

// flat lifts the values of inner objects to the top.
func flat(v any) object {
	out := object{}
	m, _ := v.(map[string]any)
	for key, v := range m {
		if inner, ok := v.(map[string]any); ok {
			for key, v := range inner {
				out[key] = v
			}
			continue
		}
		out[key] = v
	}
	return out
}

// plannerMinimum turns the resolved floors into the keys that may be written: an
// aggregated deployment has one, and none may be 0 but the common one.
func plannerMinimum(doc object) {
	prefill, decode := doc["prefill_min_endpoint"], doc["decode_min_endpoint"]
	if doc.text("mode") == string(planner.Agg) || doc.text("decode_min_endpoint") == "0" || doc.text("prefill_min_endpoint") == "0" {
		doc["min_endpoint"] = decode
		if doc.text("mode") != string(planner.Agg) && doc.text("prefill_min_endpoint") == "0" {
			doc["min_endpoint"] = prefill
		}
		for _, key := range [...]string{"prefill_min_endpoint", "decode_min_endpoint"} {
			if doc.text(key) == doc.text("min_endpoint") || doc.text("mode") == string(planner.Agg) {
				delete(doc, key)
			}
		}
	}
	if doc.text("min_endpoint") == "1" {
		delete(doc, "min_endpoint")
	}
}

func (c *argWriter) sla() {
	c.flags(c.doc.at("sla"), [3]string{"ttft_ms", "sla-ttft-ms"}, [3]string{"itl_ms", "sla-itl-ms"}, [3]string{"e2e_ms", "sla-e2e-ms"})
}
