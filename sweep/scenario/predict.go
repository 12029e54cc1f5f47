package scenario

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// PredictOptions are what the command line adds to an AISimulate file.
type PredictOptions struct {
	Stack string   // engine, or dynamo: with the sections router and planner
	Set   []string // PATH=VALUE, applied in order
}

// Stacks that --stack takes.
var stacks = []string{"engine", "dynamo"}

// ReadPredict reads an AISimulate file that predict runs: exactly one
// configuration (spec sweeps-and-schema 1, 2). Files that it names are found from
// its folder, or else from the working directory.
func ReadPredict(path string, o PredictOptions, files *Files) (Run, error) {
	if !slices.Contains(stacks, o.Stack) {
		return Run{}, &Fault{Origin: "--stack", Msg: "unknown variant `" + o.Stack + "`, expected " + oneOf(stacks)}
	}
	text, err := files.document("", path)
	if err != nil {
		return Run{}, err
	}
	return ParsePredict(path, filepath.Dir(path), text, o, files)
}

// ParsePredict is ReadPredict on a text; origin names it in messages, dir is the
// folder that paths start from.
func ParsePredict(origin, dir string, text []byte, o PredictOptions, files *Files) (Run, error) {
	root, err := parseYAML(origin, text)
	if err != nil {
		return Run{}, err
	}
	if root == nil {
		root = emptyMap(1, "")
	}
	if root.kind != mapKind {
		return Run{}, &Fault{Origin: origin, Line: root.line, Msg: "the document must be a mapping"}
	}
	for _, assignment := range o.Set {
		if err := applySet(root, assignment, false); err != nil {
			return Run{}, err
		}
	}
	p := &predictor{f: &faults{origin: origin}, dir: dir, files: files, stack: o.Stack}
	p.read(root)
	if err := p.f.err(); err != nil {
		return Run{}, err
	}
	return p.run, p.run.seal(files)
}

// predictor reads one file.
type predictor struct {
	f             *faults
	dir, stack    string
	files         *Files
	run           Run
	disaggregated bool
	modelName     string     // engine.model
	estimated     AICRequest // the model of the role that prefills
}

var predictKeys = []string{"engine", "traffic", "router", "planner", "evaluation"}

func (p *predictor) read(root *node) {
	known := *root
	known.keys, known.items = nil, nil
	for i, key := range root.keys {
		switch v := root.items[i]; {
		case key == "optimization" || key == "optimizer":
			p.f.badType(v, key+" belongs to recommend, predict runs one configuration")
		case key == "execution":
			p.f.badType(v, "execution is not supported")
		case (key == "router" || key == "planner") && p.stack != "dynamo":
			p.f.badType(v, key+" is a section of the dynamo stack: use --stack dynamo")
		default:
			known.put(key, v)
		}
	}
	m := p.f.mapping(&known, "a mapping", predictKeys)
	if m.get("engine") == nil {
		m.missing("engine")
		return
	}
	p.run = Run{Router: &Router{}, MTPSeed: defaultMTPSeed, ArrivalSeed: defaultArrivalSeed}
	p.run.SLA = p.evaluation(m)
	p.engine(m.sub("engine", "a mapping", predictEngineKeys))
	p.traffic(m.get("traffic"))
	if !p.f.ok() {
		return
	}
	p.router(m.get("router"))
	p.planner(m.get("planner"))
	for _, msg := range p.run.roleFaults() {
		p.f.broken(m.get("engine"), msg)
	}
}

// evaluation reads the SLA.
func (p *predictor) evaluation(m mapping) metrics.SLA {
	e := m.sub("evaluation", "a mapping", []string{"sla"})
	s := e.sub("sla", "a mapping", slaKeys)
	var b slaBounds
	for i, key := range slaKeys {
		o := s.float(key, orNull)
		b[i] = given(o.set, o.v)
	}
	sla, faults := b.check()
	for _, k := range faults {
		p.f.brokenAt(s.node, k.key, k.msg)
	}
	return sla
}

// traffic reads the load; an absent section is 100 requests of 1024 and 128 tokens
// at concurrency 10, a present one is not completed from it.
func (p *predictor) traffic(n *node) {
	if n == nil {
		s := workload.DefaultSynthetic()
		s.InputTokens, s.OutputTokens, s.Requests, s.Concurrency = defaultInput, defaultOutput, 100, defaultConcurrency
		p.run.Workload = &Workload{Synthetic: &s, MaxSimTimeMs: math.Inf(1)}
		return
	}
	m := p.f.mapping(n, "a mapping", []string{"source", "load", "stop"})
	source := m.get("source")
	if source == nil {
		m.missing("source")
		return
	}
	kind := mapping{source, p.f}.enum("type", "synthetic", "synthetic-session", "trace")
	if source.get("type") == nil {
		mapping{source, p.f}.missing("type")
	}
	if !kind.set {
		return
	}
	var w *Workload
	switch kind.v {
	case 0:
		w = p.synthetic(m)
	case 1:
		w = p.sessions(m)
	default:
		w = p.trace(m)
	}
	if w != nil && w.Synthetic != nil && p.f.ok() {
		for _, k := range syntheticFaults(w.Synthetic) {
			p.f.broken(nearestOf(n, trafficPaths[k.key]...), k.msg)
		}
		p.run.ArrivalSeed = w.Synthetic.ArrivalSeed
	}
	p.run.Workload = w
}

// trafficPaths is where the values of API names may stand below traffic.
var trafficPaths = map[string][]string{
	"input_tokens":          {"source.input_tokens", "source.new_input_tokens_per_turn"},
	"output_tokens":         {"source.output_tokens", "source.output_tokens_per_turn"},
	"request_count":         {"stop.requests", "stop.sessions", "stop.requests_per_load_unit", "stop.sessions_per_load_unit"},
	"turns_per_session":     {"source.session.turns"},
	"inter_turn_delay_ms":   {"source.session.inter_turn_delay_ms"},
	"shared_prefix_ratio":   {"source.session.shared_prefix_ratio"},
	"num_prefix_groups":     {"source.session.prefix_groups"},
	"replay_concurrency":    {"load.concurrency", "load.type"},
	"request_rate":          {"load.requests_per_second", "load.sessions_per_second"},
	"arrival_interval_ms":   {"load.requests_per_second", "load.sessions_per_second"},
	"arrival_speedup_ratio": {"load.speedup"},
	"agentic_lanes":         {"load.agentic_lanes"},
	"trace":                 {"source.paths"},
}

// nearestOf is the first of the dotted paths below n that was written, or n.
func nearestOf(n *node, paths ...string) *node {
	for _, path := range paths {
		if v := n.find(path); v != nil {
			return v
		}
	}
	return n
}

const (
	defaultInput       = 1024
	defaultOutput      = 128
	defaultConcurrency = 10
	defaultTurns       = 4
)

// countOf reads a positive count.
func (m mapping) countOf(key string, def int) int {
	o := m.uint(key, 64, notNull)
	m.rule(!o.set || o.v > 0, key, key+" must be positive")
	return o.int(def)
}

func (p *predictor) synthetic(m mapping) *Workload {
	s := m.sub("source", "a mapping", []string{"type", "input_tokens", "output_tokens", "images"})
	if v := s.get("images"); v != nil {
		p.f.broken(v, "images are not supported: text tokens only")
	}
	w := workload.DefaultSynthetic()
	w.InputTokens, w.OutputTokens = s.countOf("input_tokens", defaultInput), s.countOf("output_tokens", defaultOutput)
	return p.generated(m, &w, "requests")
}

// sessions reads synthetic-session. With the engine stack a prompt is the whole
// session so far and groups are drawn from seed 0 (spec workload 3.9); with the
// dynamo stack turns are made as replay makes them (1.3).
func (p *predictor) sessions(m mapping) *Workload {
	s := m.sub("source", "a mapping", []string{"type", "new_input_tokens_per_turn", "output_tokens_per_turn", "session"})
	if s.get("session") == nil {
		s.missing("session")
		return nil
	}
	k := s.sub("session", "a mapping", []string{"turns", "shared_prefix_ratio", "prefix_groups", "inter_turn_delay_ms"})
	w := workload.DefaultSynthetic()
	if p.stack != "dynamo" {
		w.Cumulative, w.GroupSeed = true, 0
	}
	w.InputTokens, w.OutputTokens = s.countOf("new_input_tokens_per_turn", defaultInput), s.countOf("output_tokens_per_turn", defaultOutput)
	w.TurnsPerSession = k.uint("turns", 64, notNull).int(defaultTurns)
	k.rule(w.TurnsPerSession >= 2, "turns", "turns must be at least 2")
	w.SharedPrefixRatio, w.InterTurnDelayMs = k.float("shared_prefix_ratio", notNull).v, k.float("inter_turn_delay_ms", notNull).v
	w.PrefixGroups = k.uint("prefix_groups", 64, notNull).int(0)
	k.rule(w.SharedPrefixRatio <= 0 || w.PrefixGroups > 0, "prefix_groups", "prefix_groups must be positive if shared_prefix_ratio is")
	return p.generated(m, &w, "sessions")
}

// generated reads load and stop of a synthetic source; unit is what it counts.
func (p *predictor) generated(m mapping, w *workload.Synthetic, unit string) *Workload {
	rate := unit + "_per_second"
	kind, l := p.load(m, []string{"concurrency", "poisson", "constant_rate"}, map[string][]string{
		"concurrency": {"concurrency"}, "poisson": {rate, "seed"}, "constant_rate": {rate}})
	out := &Workload{Synthetic: w, MaxSimTimeMs: math.Inf(1)}
	var size float64
	switch kind {
	case "concurrency":
		w.Control, w.Concurrency = workload.Closed, l.countOf("concurrency", defaultConcurrency)
		size = float64(w.Concurrency)
	case "poisson", "constant_rate":
		if l.get(rate) == nil {
			l.missing(rate)
		}
		size = l.float(rate, notNull).v
		l.rule(l.get(rate) == nil || finite(size, 0) && size > 0, rate, rate+" must be finite and positive")
		if kind == "poisson" {
			seed := l.u64("seed", notNull)
			w.Control, w.RatePerS, w.ArrivalSeed = workload.Poisson, size, seed.or(defaultArrivalSeed)
			out.ArrivalSeedGiven = seed.set
		} else {
			w.Control, w.IntervalMs = workload.Fixed, 1000/size
		}
	default:
		return nil
	}
	relative := unit + "_per_load_unit"
	s := m.sub("stop", "a mapping", []string{unit, relative})
	if (s.get(unit) == nil) == (s.get(relative) == nil) {
		at := m.node
		if v := m.get("stop"); v != nil {
			at = v
		}
		p.f.badType(at, "traffic.stop needs exactly one of `"+unit+"` and `"+relative+"`")
		return nil
	}
	w.Requests = s.countOf(unit, 0)
	if ratio := s.float(relative, notNull); ratio.set {
		s.rule(finite(ratio.v, 0) && ratio.v > 0, relative, relative+" must be finite and positive")
		w.Requests = int(min(max(1, math.RoundToEven(ratio.v*size)), 1<<40))
	}
	return out
}

// load opens traffic.load with the keys of its type, one of kinds.
func (p *predictor) load(m mapping, kinds []string, keys map[string][]string) (string, mapping) {
	n := m.get("load")
	if n == nil {
		return "concurrency", mapping{emptyMap(m.line, join(m.path, "load")), p.f}
	}
	kind := mapping{n, p.f}.enum("type", kinds...)
	if n.kind == mapKind && n.get("type") != nil && !kind.set {
		return "", mapping{}
	}
	name := kinds[kind.v]
	if !kind.set {
		name = "concurrency"
	}
	return name, p.f.mapping(n, "a mapping", append([]string{"type"}, keys[name]...))
}

func (p *predictor) trace(m mapping) *Workload {
	s := m.sub("source", "a mapping", []string{"type", "paths", "format", "block_size", "nested_timestamp_basis"})
	format := workload.Mooncake
	if v := s.string("format", notNull); v.set {
		var err error
		if format, err = workload.ParseFormat(v.v); err != nil {
			p.f.brokenAt(s.node, "format", err.Error())
			return nil
		}
	}
	t := &Trace{Load: workload.DefaultLoadOptions(format)}
	if b := s.countOf("block_size", 0); b > 0 {
		s.rule(b <= maxBlockSize, "block_size", fmt.Sprintf("block_size must be at most %d, got %d", maxBlockSize, b))
		t.Load.BlockSize = b
	}
	if v := s.string("nested_timestamp_basis", notNull); v.set {
		i := slices.Index(timestampBases, v.v)
		s.rule(i >= 0 && format == workload.Weka, "nested_timestamp_basis", "nested_timestamp_basis is "+oneOf(timestampBases)+", for format weka only")
		t.Load.WekaTimestamps = workload.WekaTimestamps(max(i, 0))
	}
	kind, l := p.load(m, []string{"concurrency", "trace_timestamps"}, map[string][]string{
		"concurrency": {"concurrency"}, "trace_timestamps": {"speedup", "agentic_lanes"}})
	t.Drive.Speedup = 1
	switch kind {
	case "concurrency":
		t.Drive.ClosedLoop, t.Drive.Concurrency = true, l.countOf("concurrency", defaultConcurrency)
	case "trace_timestamps":
		t.Drive.Speedup = l.float("speedup", notNull).or(1)
		lanes := l.uint("agentic_lanes", 64, orNull)
		t.Drive.Laned, t.Drive.Lanes = lanes.set, lanes.int(0)
	}
	t.Paths = p.paths(s)
	for _, k := range t.check() {
		p.f.broken(nearestOf(m.node, trafficPaths[k.key]...), k.msg)
	}
	if format == workload.MooncakeDelta || format == workload.AgenticMooncake {
		s.rule(!p.disaggregated, "format", format.String()+" runs in aggregated mode only")
	}
	w := &Workload{Trace: t, MaxSimTimeMs: math.Inf(1)}
	if format == workload.AgenticMooncake || format == workload.Weka || format == workload.Dynamo {
		w.ExecutionModel = p.modelName
	}
	stop := m.sub("stop", "a mapping", []string{"max_virtual_time_seconds"})
	if v := stop.float("max_virtual_time_seconds", orNull); v.set {
		w.MaxSimTimeMs = v.v * 1000
		stop.rule(finite(w.MaxSimTimeMs, 0), "max_virtual_time_seconds", "max_virtual_time_seconds must be finite and non-negative")
		stop.rule(format != workload.AgenticMooncake && format != workload.Weka, "max_virtual_time_seconds", "max_virtual_time_seconds is not supported for "+format.String())
	}
	return w
}

// paths reads the list of trace files.
func (p *predictor) paths(s mapping) []string {
	list := s.get("paths")
	if list == nil {
		s.missing("paths")
		return nil
	}
	if list.kind != listKind || len(list.items) == 0 {
		p.f.badType(list, "paths must be a non-empty list of trace files")
		return nil
	}
	var out []string
	for _, v := range list.items {
		if v.kind != stringKind {
			p.f.badType(v, "invalid type: "+v.describe()+", expected the path of a trace")
			continue
		}
		out = append(out, pathOf(p.dir, v.text))
	}
	return out
}
