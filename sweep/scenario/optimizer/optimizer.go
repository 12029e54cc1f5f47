// Package optimizer reads the replay optimiser's document (spec sweeps-and-schema 4.1):
// a deployment of dense workers to be sized, one load, and what counts.
//
// Read or Parse gives a Spec; its Run makes the scenario of one State of the search.
// Is tells such a document from the others that recommend takes.
//
// Sizes are GPUs, bounds are in the unit of their report key.
package optimizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/internal/spelling"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Spec is one specification.
type Spec struct {
	Aggregated, Disaggregated bool // which searches the engine arguments allow
	TotalGPUs                 int
	PrefillTP, DecodeTP       []int // ascending
	RoundRobin, KV            bool  // router states
	Credits, Scales           []float64
	Objective                 string
	Bounds                    []Bound
	Jobs                      int
	Notices                   []string

	origin string
	files  *scenario.Files
	flags  scenario.ReplayFlags // the load
	router map[string]any
	base   [3]*document.Node // [role], nested engine arguments, nil: not given
	model  string
	system string
}

// Bound is an inclusive upper limit on a report key.
type Bound struct {
	Key   string
	Limit float64
	Name  string // dotted path in the document
}

// State is one deployment of the search.
type State struct {
	PrefillTP, PrefillWorkers int // 0: aggregated
	DecodeTP, DecodeWorkers   int
	KV                        bool
	Credit, Scale             float64
}

var (
	topKeys    = []string{"engine", "hardware", "workload", "sla", "router", "objective", "run", "maxParallelEvals"}
	engineKeys = []string{"model", "backend", "baseEngineArgs", "basePrefillEngineArgs", "baseDecodeEngineArgs"}
	sizeKeys   = []string{"gpuSku", "totalGpus", "tpCandidates", "prefillTpCandidates", "decodeTpCandidates"}
	loadKeys   = []string{"isl", "osl", "requestCount", "concurrency", "requestRate", "arrivalIntervalMs", "sharedPrefixRatio",
		"numPrefixGroups", "turnsPerSession", "interTurnDelayMs", "arrivalSeed"}
	traceKeys  = []string{"traceFile", "traceFormat", "arrivalSpeedupRatio", "traceReplayConcurrency", "traceSharedPrefixRatio", "traceNumPrefixGroups"}
	routerKeys = []string{"mode", "overlapCredits", "prefillLoadScales", "baseRouterConfig"}
	// slaBounds is what each bound limits: itl limits the mean TPOT.
	slaBounds = [][2]string{{"ttft", "mean_ttft_ms"}, {"itl", "mean_tpot_ms"}, {"e2eLatency", "mean_e2e_latency_ms"},
		{"p95Ttft", "p95_ttft_ms"}, {"p95Itl", "p95_tpot_ms"}, {"p95E2eLatency", "p95_e2e_latency_ms"}}
)

// Is reports whether a file is a replay optimiser's specification: no other
// document has hardware beside engine.
func Is(path string, files *scenario.Files) (bool, error) {
	text, err := files.Document("", path)
	if err != nil {
		return false, err
	}
	root, err := document.ParseYAML(path, text)
	if err != nil {
		return false, err
	}
	return root.Get("hardware") != nil && root.Get("engine") != nil, nil
}

// Read reads a specification, JSON or YAML.
func Read(path string, files *scenario.Files) (*Spec, error) {
	text, err := files.Document("", path)
	if err != nil {
		return nil, err
	}
	return Parse(path, filepath.Dir(path), text, files)
}

// Parse is Read on a text; origin names it in messages, dir is the
// folder that paths start from.
func Parse(origin, dir string, text []byte, files *scenario.Files) (*Spec, error) {
	root, err := document.ParseYAML(origin, text)
	if err != nil {
		return nil, err
	}
	if root == nil {
		root = document.EmptyMap(1, "")
	}
	r := &reader{f: &document.Faults{Origin: origin}, dir: dir, out: &Spec{origin: origin, files: files}}
	m := r.f.Mapping(root, "a mapping", topKeys)
	for _, key := range [...]string{"engine", "hardware", "workload"} {
		if m.Get(key) == nil {
			m.Missing(key)
		}
	}
	r.engine(m.Sub("engine", "a mapping", engineKeys))
	r.hardware(m.Sub("hardware", "a mapping", sizeKeys))
	r.workload(m.Sub("workload", "a mapping", slices.Concat(loadKeys, traceKeys)))
	r.sla(m.Sub("sla", "a mapping", append(slaKeys(), "bounds")))
	r.router(m.Sub("router", "a mapping", routerKeys))
	o := m.Enum("objective", "throughput", "mean_ttft", "mean_e2e_latency")
	r.out.Objective = [...]string{"throughput", "mean_ttft", "mean_e2e_latency"}[o.Value]
	run := m.Sub("run", "a mapping", []string{"maxParallelEvals"})
	jobs := m.Uint("maxParallelEvals", 16, document.OrNull)
	if j := run.Uint("maxParallelEvals", 16, document.OrNull); j.Set {
		jobs = j
	}
	m.Require(!jobs.Set || jobs.Value > 0, "maxParallelEvals", "maxParallelEvals must be positive")
	r.out.Jobs = jobs.Int(min(8, runtime.NumCPU()))
	if err := r.f.Err(); err != nil {
		return nil, err
	}
	return r.out, r.out.try()
}

func slaKeys() []string {
	var keys []string
	for _, k := range slaBounds {
		keys = append(keys, k[0])
	}
	return keys
}

// reader reads one specification.
type reader struct {
	f   *document.Faults
	dir string
	out *Spec
}

func (r *reader) engine(m document.Mapping) {
	r.out.model = m.RequiredString("model")
	backend := m.Enum("backend", "vllm", "sglang")
	if m.Get("backend") == nil {
		m.Missing("backend")
	}
	given := 0
	for i, key := range [...]string{"baseEngineArgs", "basePrefillEngineArgs", "baseDecodeEngineArgs"} {
		v := m.Get(key)
		if v == nil || v.Kind == document.Null {
			continue
		}
		if v.Kind != document.Map {
			r.f.Malformed(v, "invalid type: "+v.Describe()+", expected engine arguments")
			continue
		}
		given++
		n := scenario.NestedArgs(r.f, v)
		if !r.f.OK() {
			return
		}
		eng := document.EmptyMap(v.Line, v.Path)
		if e := n.Get("engine"); e != nil && e.Kind == document.Map {
			eng = e.Without("worker_type")
		}
		eng.Put("backend", v.Scalar(document.String, [...]string{"vllm", "sglang"}[backend.Value]))
		n = n.Without("engine", "tensor_parallel_size")
		n.Put("engine", eng)
		r.out.base[i] = n
	}
	r.out.Aggregated = r.out.base[0] != nil
	r.out.Disaggregated = r.out.base[1] != nil && r.out.base[2] != nil
	m.Require((r.out.base[1] == nil) == (r.out.base[2] == nil), "basePrefillEngineArgs", "basePrefillEngineArgs and baseDecodeEngineArgs belong together")
	m.Require(given > 0, "", "give baseEngineArgs, or basePrefillEngineArgs and baseDecodeEngineArgs")
}

func (r *reader) hardware(m document.Mapping) {
	o := r.out
	o.system = m.RequiredString("gpuSku")
	if m.Get("totalGpus") == nil {
		m.Missing("totalGpus")
	}
	o.TotalGPUs = m.Uint("totalGpus", 31, document.NotNull).Int(0)
	m.Require(m.Get("totalGpus") == nil || o.TotalGPUs > 0, "totalGpus", "totalGpus must be positive")
	var def []int
	for tp := 1; tp <= min(o.TotalGPUs, 8); tp *= 2 {
		def = append(def, tp)
	}
	both := readSizes(m, "tpCandidates", def)
	o.PrefillTP, o.DecodeTP = readSizes(m, "prefillTpCandidates", both), readSizes(m, "decodeTpCandidates", both)
}

// readSizes reads a list of positive counts and sorts it.
func readSizes(m document.Mapping, key string, def []int) []int {
	n := m.Get(key)
	if n == nil || n.Kind == document.Null {
		return def
	}
	if n.Kind != document.List || len(n.Items) == 0 {
		m.Faults.Malformed(n, key+" must be a non-empty list of sizes")
		return nil
	}
	var out []int
	for _, v := range n.Items {
		one := document.EmptyMap(v.Line, n.Path)
		one.Put(key, v)
		size := document.Mapping{Node: one, Faults: m.Faults}.Uint(key, 16, document.NotNull)
		if size.Set && size.Value == 0 {
			m.Faults.Invalid(v, "a size must be positive")
		}
		out = append(out, size.Int(1))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *reader) workload(m document.Mapping) {
	has := func(keys []string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return m.Get(k) != nil && m.Get(k).Kind != document.Null })
	}
	synthetic, trace := has(loadKeys), has(traceKeys)
	if synthetic == trace {
		r.f.Malformed(m.Node, "give either synthetic load (isl, osl, requestCount) or a trace (traceFile), not both")
		return
	}
	count := func(key string) *int64 {
		o := m.Uint(key, 63, document.OrNull)
		if !o.Set {
			return nil
		}
		n := int64(o.Value)
		return &n
	}
	number := func(key string) *float64 {
		return m.Float(key, document.OrNull).Pointer()
	}
	f := &r.out.flags
	if trace {
		if m.Get("traceFile") == nil {
			m.Missing("traceFile")
			return
		}
		format := m.Enum("traceFormat", "mooncake", "applied_compute_agentic")
		name := [...]string{"mooncake", "applied_compute_agentic"}[format.Value]
		f.Traces, f.TraceFormat = []string{scenario.PathFrom(r.dir, m.String("traceFile", document.NotNull).Value)}, &name
		f.ArrivalSpeedupRatio, f.ReplayConcurrency = number("arrivalSpeedupRatio"), count("traceReplayConcurrency")
		f.TraceSharedPrefixRatio, f.TraceNumPrefixGroups = number("traceSharedPrefixRatio"), count("traceNumPrefixGroups")
		shares := f.TraceSharedPrefixRatio != nil && *f.TraceSharedPrefixRatio > 0
		m.Require(!shares || f.TraceNumPrefixGroups != nil && *f.TraceNumPrefixGroups >= 1, "traceNumPrefixGroups",
			"traceNumPrefixGroups must be at least 1 if traceSharedPrefixRatio is positive")
		return
	}
	for _, key := range [...]string{"isl", "osl", "requestCount"} {
		if m.Get(key) == nil {
			m.Missing(key)
		}
	}
	f.InputTokens, f.OutputTokens, f.RequestCount = count("isl"), count("osl"), count("requestCount")
	f.ReplayConcurrency, f.RequestRate, f.ArrivalIntervalMs = count("concurrency"), number("requestRate"), number("arrivalIntervalMs")
	f.SharedPrefixRatio, f.NumPrefixGroups = number("sharedPrefixRatio"), count("numPrefixGroups")
	f.TurnsPerSession, f.InterTurnDelayMs = count("turnsPerSession"), number("interTurnDelayMs")
	f.ArrivalSeed = m.Uint64("arrivalSeed", document.OrNull).Pointer()
}

// sla reads the six bounds, of which null and what is not positive are inactive, and
// bounds: a limit for any key of the report.
func (r *reader) sla(m document.Mapping) {
	for _, k := range slaBounds {
		if v := m.Float(k[0], document.OrNull); v.Set && v.Value > 0 {
			r.out.Bounds = append(r.out.Bounds, Bound{k[1], v.Value, "sla." + k[0]})
		}
	}
	b := m.Get("bounds")
	if b == nil || b.Kind == document.Null {
		return
	}
	var keys []string
	for _, k := range metrics.Keys() {
		if k.When == metrics.Always && k.Kind != metrics.Text && !k.Wall {
			keys = append(keys, k.Name)
		}
	}
	s := m.Faults.Mapping(b, "a mapping of report keys", b.Keys)
	for i, key := range s.Keys {
		if !slices.Contains(keys, key) {
			msg := "no figure of the report"
			if near := spelling.Nearest(key, keys); near != "" {
				msg += " (did you mean `" + near + "`?)"
			}
			r.f.Malformed(s.Items[i], msg)
		}
		v := s.Float(key, document.NotNull)
		s.Require(!v.Set || v.Value > 0, key, "a bound must be positive")
		r.out.Bounds = append(r.out.Bounds, Bound{key, v.Value, "sla.bounds." + key})
	}
}

func (r *reader) router(m document.Mapping) {
	o := r.out
	mode := m.Enum("mode", "kv_router", "round_robin", "both").Value
	o.KV, o.RoundRobin = mode != 1, mode != 0
	o.Credits = readFloats(m, "overlapCredits", []float64{1})
	o.Scales = readFloats(m, "prefillLoadScales", []float64{0, 0.25, 0.5, 1, 2, 4})
	o.router = map[string]any{}
	if v := m.Get("baseRouterConfig"); v != nil && v.Kind != document.Null {
		if v.Kind != document.Map {
			r.f.Malformed(v, "invalid type: "+v.Describe()+", expected the router's configuration")
			return
		}
		o.router = v.Plain().(map[string]any)
	}
}

// readFloats reads a list of finite numbers from 0.
func readFloats(m document.Mapping, key string, def []float64) []float64 {
	n := m.Get(key)
	if n == nil || n.Kind == document.Null {
		return def
	}
	if n.Kind != document.List || len(n.Items) == 0 {
		m.Faults.Malformed(n, key+" must be a non-empty list of numbers")
		return nil
	}
	var out []float64
	for _, v := range n.Items {
		if v.Kind != document.Int && v.Kind != document.Float || !document.FiniteFrom(v.Number(), 0) {
			m.Faults.Malformed(v, key+" must be finite numbers from 0")
			continue
		}
		out = append(out, v.Number())
	}
	return out
}

// args is the engine arguments of one role at a size. Measured timing, which is the
// one of arguments that name none, gets the model and the hardware.
func (o *Spec) args(role, tp int) string {
	n := o.base[role]
	size := n.Scalar(document.Int, fmt.Sprint(tp))
	out := n.With("tensor_parallel_size", size).With("engine.worker_type", n.Scalar(document.String, engine.Role(role).String()))
	timing := n.Find("engine.timing_model")
	provider := timing.Get("provider")
	if timing == nil || provider != nil && (provider.Text == "ais" || provider.Text == "aic") {
		config := document.EmptyMap(n.Line, n.Path)
		if c := timing.Get("config"); c != nil && c.Kind == document.Map {
			config = c.Without("tp", "worker_type")
		}
		for _, kv := range [][2]string{{"model", o.model}, {"system", o.system}, {"worker_type", engine.Role(role).String()}, {"backend_version", "current"},
			{"backend", n.Find("engine.backend").Text}} {
			config.Put(kv[0], n.Scalar(document.String, kv[1]))
		}
		config.Put("tp", size)
		out = out.With("engine.timing_model", scenario.ExternalTiming(n, "ais", config))
	}
	return string(out.JSON())
}

// Run is the configuration of one state. The SLA is no part of it: bounds are
// checked on the report.
func (o *Spec) Run(d State) (scenario.Run, error) {
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
			return scenario.Run{}, err
		}
		doc := string(text)
		f.RouterConfig = &doc
	}
	f.RouterMode = &mode
	return f.Resolve(o.files)
}

// try reads the first state, so that what is wrong with every one is told at once.
func (o *Spec) try() error {
	d := State{DecodeTP: o.DecodeTP[0], DecodeWorkers: 1, KV: o.KV, Credit: 1, Scale: 1}
	if o.Disaggregated {
		d.PrefillTP, d.PrefillWorkers = o.PrefillTP[0], 1
	}
	_, err := o.Run(d)
	if err == nil {
		return nil
	}
	var list []error
	for _, e := range document.Split(err) {
		list = append(list, &document.Fault{Origin: o.origin, Msg: strings.ReplaceAll(e.Error(), "\n", "; ")})
	}
	return joinFaults(list)
}

func joinFaults(list []error) error {
	if len(list) == 1 {
		return list[0]
	}
	return errors.Join(list...)
}
