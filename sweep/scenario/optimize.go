package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Optimize is a replay optimiser's specification (spec sweeps-and-schema 4.1): a
// deployment of dense workers to be sized, one load, and what counts.
type Optimize struct {
	Aggregated, Disaggregated bool // which searches the engine arguments allow
	TotalGPUs                 int
	PrefillTP, DecodeTP       []int // ascending
	RoundRobin, KV            bool  // router states
	Credits, Scales           []float64
	Objective                 string
	Bounds                    []OptimizeBound
	Jobs                      int
	Notices                   []string

	origin string
	files  *Files
	flags  ReplayFlags // the load
	router map[string]any
	base   [3]*node // [role], nested engine arguments, nil: not given
	model  string
	system string
}

// OptimizeBound is an inclusive upper limit on a report key.
type OptimizeBound struct {
	Key   string
	Limit float64
	Name  string // dotted path in the document
}

// Deployment is one state of the optimiser.
type Deployment struct {
	PrefillTP, PrefillWorkers int // 0: aggregated
	DecodeTP, DecodeWorkers   int
	KV                        bool
	Credit, Scale             float64
}

var (
	optimizeKeys       = []string{"engine", "hardware", "workload", "sla", "router", "objective", "run", "maxParallelEvals"}
	optimizeEngineKeys = []string{"model", "backend", "baseEngineArgs", "basePrefillEngineArgs", "baseDecodeEngineArgs"}
	optimizeSizeKeys   = []string{"gpuSku", "totalGpus", "tpCandidates", "prefillTpCandidates", "decodeTpCandidates"}
	optimizeLoadKeys   = []string{"isl", "osl", "requestCount", "concurrency", "requestRate", "arrivalIntervalMs", "sharedPrefixRatio",
		"numPrefixGroups", "turnsPerSession", "interTurnDelayMs", "arrivalSeed"}
	optimizeTraceKeys  = []string{"traceFile", "traceFormat", "arrivalSpeedupRatio", "traceReplayConcurrency", "traceSharedPrefixRatio", "traceNumPrefixGroups"}
	optimizeRouterKeys = []string{"mode", "overlapCredits", "prefillLoadScales", "baseRouterConfig"}
	// optimizeSLA is what each bound limits: itl limits the mean TPOT.
	optimizeSLA = [][2]string{{"ttft", "mean_ttft_ms"}, {"itl", "mean_tpot_ms"}, {"e2eLatency", "mean_e2e_latency_ms"},
		{"p95Ttft", "p95_ttft_ms"}, {"p95Itl", "p95_tpot_ms"}, {"p95E2eLatency", "p95_e2e_latency_ms"}}
)

// IsOptimize reports whether a file is a replay optimiser's specification: no other
// document has hardware beside engine.
func IsOptimize(path string, files *Files) (bool, error) {
	text, err := files.document("", path)
	if err != nil {
		return false, err
	}
	root, err := parseYAML(path, text)
	if err != nil {
		return false, err
	}
	return root.get("hardware") != nil && root.get("engine") != nil, nil
}

// ReadOptimize reads a specification, JSON or YAML.
func ReadOptimize(path string, files *Files) (*Optimize, error) {
	text, err := files.document("", path)
	if err != nil {
		return nil, err
	}
	return ParseOptimize(path, filepath.Dir(path), text, files)
}

// ParseOptimize is ReadOptimize on a text; origin names it in messages, dir is the
// folder that paths start from.
func ParseOptimize(origin, dir string, text []byte, files *Files) (*Optimize, error) {
	root, err := parseYAML(origin, text)
	if err != nil {
		return nil, err
	}
	if root == nil {
		root = emptyMap(1, "")
	}
	r := &optimizer{f: &faults{origin: origin}, dir: dir, out: &Optimize{origin: origin, files: files}}
	m := r.f.mapping(root, "a mapping", optimizeKeys)
	for _, key := range [...]string{"engine", "hardware", "workload"} {
		if m.get(key) == nil {
			m.missing(key)
		}
	}
	r.engine(m.sub("engine", "a mapping", optimizeEngineKeys))
	r.hardware(m.sub("hardware", "a mapping", optimizeSizeKeys))
	r.workload(m.sub("workload", "a mapping", slices.Concat(optimizeLoadKeys, optimizeTraceKeys)))
	r.sla(m.sub("sla", "a mapping", append(slaOptimizeKeys(), "bounds")))
	r.router(m.sub("router", "a mapping", optimizeRouterKeys))
	o := m.enum("objective", "throughput", "mean_ttft", "mean_e2e_latency")
	r.out.Objective = [...]string{"throughput", "mean_ttft", "mean_e2e_latency"}[o.v]
	run := m.sub("run", "a mapping", []string{"maxParallelEvals"})
	jobs := m.uint("maxParallelEvals", 16, orNull)
	if j := run.uint("maxParallelEvals", 16, orNull); j.set {
		jobs = j
	}
	m.rule(!jobs.set || jobs.v > 0, "maxParallelEvals", "maxParallelEvals must be positive")
	r.out.Jobs = jobs.int(min(8, runtime.NumCPU()))
	if err := r.f.err(); err != nil {
		return nil, err
	}
	return r.out, r.out.try()
}

func slaOptimizeKeys() []string {
	var keys []string
	for _, k := range optimizeSLA {
		keys = append(keys, k[0])
	}
	return keys
}

// optimizer reads one specification.
type optimizer struct {
	f   *faults
	dir string
	out *Optimize
}

func (r *optimizer) engine(m mapping) {
	r.out.model = m.required("model")
	backend := m.enum("backend", "vllm", "sglang")
	if m.get("backend") == nil {
		m.missing("backend")
	}
	given := 0
	for i, key := range [...]string{"baseEngineArgs", "basePrefillEngineArgs", "baseDecodeEngineArgs"} {
		v := m.get(key)
		if v == nil || v.kind == nullKind {
			continue
		}
		if v.kind != mapKind {
			r.f.badType(v, "invalid type: "+v.describe()+", expected engine arguments")
			continue
		}
		given++
		n := r.f.nested(v)
		if !r.f.ok() {
			return
		}
		eng := emptyMap(v.line, v.path)
		if e := n.get("engine"); e != nil && e.kind == mapKind {
			eng = e.without("worker_type")
		}
		eng.put("backend", scalarAt(v, stringKind, [...]string{"vllm", "sglang"}[backend.v]))
		n = n.without("engine", "tensor_parallel_size")
		n.put("engine", eng)
		r.out.base[i] = n
	}
	r.out.Aggregated = r.out.base[0] != nil
	r.out.Disaggregated = r.out.base[1] != nil && r.out.base[2] != nil
	m.rule((r.out.base[1] == nil) == (r.out.base[2] == nil), "basePrefillEngineArgs", "basePrefillEngineArgs and baseDecodeEngineArgs belong together")
	m.rule(given > 0, "", "give baseEngineArgs, or basePrefillEngineArgs and baseDecodeEngineArgs")
}

func (r *optimizer) hardware(m mapping) {
	o := r.out
	o.system = m.required("gpuSku")
	if m.get("totalGpus") == nil {
		m.missing("totalGpus")
	}
	o.TotalGPUs = m.uint("totalGpus", 31, notNull).int(0)
	m.rule(m.get("totalGpus") == nil || o.TotalGPUs > 0, "totalGpus", "totalGpus must be positive")
	var def []int
	for tp := 1; tp <= min(o.TotalGPUs, 8); tp *= 2 {
		def = append(def, tp)
	}
	both := m.sizes("tpCandidates", def)
	o.PrefillTP, o.DecodeTP = m.sizes("prefillTpCandidates", both), m.sizes("decodeTpCandidates", both)
}

// sizes reads a list of positive counts and sorts it.
func (m mapping) sizes(key string, def []int) []int {
	n := m.get(key)
	if n == nil || n.kind == nullKind {
		return def
	}
	if n.kind != listKind || len(n.items) == 0 {
		m.f.badType(n, key+" must be a non-empty list of sizes")
		return nil
	}
	var out []int
	for _, v := range n.items {
		one := emptyMap(v.line, n.path)
		one.put(key, v)
		size := mapping{one, m.f}.uint(key, 16, notNull)
		if size.set && size.v == 0 {
			m.f.broken(v, "a size must be positive")
		}
		out = append(out, size.int(1))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *optimizer) workload(m mapping) {
	has := func(keys []string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return m.get(k) != nil && m.get(k).kind != nullKind })
	}
	synthetic, trace := has(optimizeLoadKeys), has(optimizeTraceKeys)
	if synthetic == trace {
		r.f.badType(m.node, "give either synthetic load (isl, osl, requestCount) or a trace (traceFile), not both")
		return
	}
	count := func(key string) *int64 {
		o := m.uint(key, 63, orNull)
		return given(o.set, int64(o.v))
	}
	number := func(key string) *float64 {
		o := m.float(key, orNull)
		return given(o.set, o.v)
	}
	f := &r.out.flags
	if trace {
		if m.get("traceFile") == nil {
			m.missing("traceFile")
			return
		}
		format := m.enum("traceFormat", "mooncake", "applied_compute_agentic")
		name := [...]string{"mooncake", "applied_compute_agentic"}[format.v]
		f.Traces, f.TraceFormat = []string{pathOf(r.dir, m.string("traceFile", notNull).v)}, &name
		f.ArrivalSpeedupRatio, f.ReplayConcurrency = number("arrivalSpeedupRatio"), count("traceReplayConcurrency")
		f.TraceSharedPrefixRatio, f.TraceNumPrefixGroups = number("traceSharedPrefixRatio"), count("traceNumPrefixGroups")
		m.rule(val(f.TraceSharedPrefixRatio, 0) <= 0 || val(f.TraceNumPrefixGroups, 0) >= 1, "traceNumPrefixGroups",
			"traceNumPrefixGroups must be at least 1 if traceSharedPrefixRatio is positive")
		return
	}
	for _, key := range [...]string{"isl", "osl", "requestCount"} {
		if m.get(key) == nil {
			m.missing(key)
		}
	}
	f.InputTokens, f.OutputTokens, f.RequestCount = count("isl"), count("osl"), count("requestCount")
	f.ReplayConcurrency, f.RequestRate, f.ArrivalIntervalMs = count("concurrency"), number("requestRate"), number("arrivalIntervalMs")
	f.SharedPrefixRatio, f.NumPrefixGroups = number("sharedPrefixRatio"), count("numPrefixGroups")
	f.TurnsPerSession, f.InterTurnDelayMs = count("turnsPerSession"), number("interTurnDelayMs")
	seed := m.u64("arrivalSeed", orNull)
	f.ArrivalSeed = given(seed.set, seed.v)
}

// sla reads the six bounds, of which null and what is not positive are inactive, and
// bounds: a limit for any key of the report.
func (r *optimizer) sla(m mapping) {
	for _, k := range optimizeSLA {
		if v := m.float(k[0], orNull); v.set && v.v > 0 {
			r.out.Bounds = append(r.out.Bounds, OptimizeBound{k[1], v.v, "sla." + k[0]})
		}
	}
	b := m.get("bounds")
	if b == nil || b.kind == nullKind {
		return
	}
	var keys []string
	for _, k := range metrics.Keys() {
		if k.When == metrics.Always && k.Kind != metrics.Text && !k.Wall {
			keys = append(keys, k.Name)
		}
	}
	s := m.f.mapping(b, "a mapping of report keys", b.keys)
	for i, key := range s.keys {
		if !slices.Contains(keys, key) {
			msg := "no figure of the report"
			if near := nearest(key, keys); near != "" {
				msg += " (did you mean `" + near + "`?)"
			}
			r.f.badType(s.items[i], msg)
		}
		v := s.float(key, notNull)
		s.rule(!v.set || v.v > 0, key, "a bound must be positive")
		r.out.Bounds = append(r.out.Bounds, OptimizeBound{key, v.v, "sla.bounds." + key})
	}
}

func (r *optimizer) router(m mapping) {
	o := r.out
	mode := m.enum("mode", "kv_router", "round_robin", "both").v
	o.KV, o.RoundRobin = mode != 1, mode != 0
	o.Credits = m.floats("overlapCredits", []float64{1})
	o.Scales = m.floats("prefillLoadScales", []float64{0, 0.25, 0.5, 1, 2, 4})
	o.router = map[string]any{}
	if v := m.get("baseRouterConfig"); v != nil && v.kind != nullKind {
		if v.kind != mapKind {
			r.f.badType(v, "invalid type: "+v.describe()+", expected the router's configuration")
			return
		}
		o.router = v.plain().(map[string]any)
	}
}

// floats reads a list of finite numbers from 0.
func (m mapping) floats(key string, def []float64) []float64 {
	n := m.get(key)
	if n == nil || n.kind == nullKind {
		return def
	}
	if n.kind != listKind || len(n.items) == 0 {
		m.f.badType(n, key+" must be a non-empty list of numbers")
		return nil
	}
	var out []float64
	for _, v := range n.items {
		if v.kind != intKind && v.kind != floatKind || !finite(v.float(), 0) {
			m.f.badType(v, key+" must be finite numbers from 0")
			continue
		}
		out = append(out, v.float())
	}
	return out
}

// args is the engine arguments of one role at a size. Measured timing, which is the
// one of arguments that name none, gets the model and the hardware.
func (o *Optimize) args(role, tp int) string {
	n := o.base[role]
	size := scalarAt(n, intKind, fmt.Sprint(tp))
	out := n.with("tensor_parallel_size", size).with("engine.worker_type", scalarAt(n, stringKind, roleNames[role]))
	timing := n.find("engine.timing_model")
	provider := timing.get("provider")
	if timing == nil || provider != nil && (provider.text == "ais" || provider.text == "aic") {
		config := emptyMap(n.line, n.path)
		if c := timing.get("config"); c != nil && c.kind == mapKind {
			config = c.without("tp", "worker_type")
		}
		for _, kv := range [][2]string{{"model", o.model}, {"system", o.system}, {"worker_type", roleNames[role]}, {"backend_version", "current"},
			{"backend", n.find("engine.backend").text}} {
			config.put(kv[0], scalarAt(n, stringKind, kv[1]))
		}
		config.put("tp", size)
		out = out.with("engine.timing_model", external(n, "ais", config))
	}
	return string(out.json())
}

// Run is the configuration of one state. The SLA is no part of it: bounds are
// checked on the report.
func (o *Optimize) Run(d Deployment) (Run, error) {
	f := o.flags
	if d.PrefillTP == 0 {
		args, workers := o.args(0, d.DecodeTP), int64(d.DecodeWorkers)
		f.ExtraEngineArgs, f.NumWorkers = &args, &workers
	} else {
		prefill, decode := o.args(1, d.PrefillTP), o.args(2, d.DecodeTP)
		pw, dw := int64(d.PrefillWorkers), int64(d.DecodeWorkers)
		f.PrefillEngineArgs, f.DecodeEngineArgs, f.NumPrefillWorkers, f.NumDecodeWorkers = &prefill, &decode, &pw, &dw
	}
	mode := "round_robin"
	if d.KV {
		mode = "kv_router"
		config := map[string]any{}
		for k, v := range o.router {
			config[k] = v
		}
		config["overlap_score_credit"], config["prefill_load_scale"] = d.Credit, d.Scale
		text, err := json.Marshal(config)
		if err != nil {
			return Run{}, err
		}
		doc := string(text)
		f.RouterConfig = &doc
	}
	f.RouterMode = &mode
	return f.Resolve(o.files)
}

// try reads the first state, so that what is wrong with every one is told at once.
func (o *Optimize) try() error {
	d := Deployment{DecodeTP: o.DecodeTP[0], DecodeWorkers: 1, KV: o.KV, Credit: 1, Scale: 1}
	if o.Disaggregated {
		d.PrefillTP, d.PrefillWorkers = o.PrefillTP[0], 1
	}
	_, err := o.Run(d)
	if err == nil {
		return nil
	}
	var list []error
	for _, e := range unjoin(err) {
		list = append(list, &Fault{Origin: o.origin, Msg: strings.ReplaceAll(e.Error(), "\n", "; ")})
	}
	return joinFaults(list)
}

func joinFaults(list []error) error {
	if len(list) == 1 {
		return list[0]
	}
	return errors.Join(list...)
}
