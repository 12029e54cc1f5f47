package scenario

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
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
		return Run{}, &document.Fault{Origin: "--stack", Msg: "unknown variant `" + o.Stack + "`, expected " + document.OneOf(stacks)}
	}
	text, err := files.Document("", path)
	if err != nil {
		return Run{}, err
	}
	return ParsePredict(path, filepath.Dir(path), text, o, files)
}

// ParsePredict is ReadPredict on a text; origin names it in messages, dir is the
// folder that paths start from.
func ParsePredict(origin, dir string, text []byte, o PredictOptions, files *Files) (Run, error) {
	root, err := document.ParseYAML(origin, text)
	if err != nil {
		return Run{}, err
	}
	return readConfiguration(origin, dir, root, o, files)
}

func readConfiguration(origin, dir string, root *document.Node, o PredictOptions, files *Files) (Run, error) {
	if root == nil {
		root = document.EmptyMap(1, "")
	}
	if root.Kind != document.Map {
		return Run{}, &document.Fault{Origin: origin, Line: root.Line, Msg: "the document must be a mapping"}
	}
	for _, assignment := range o.Set {
		if err := applySet(root, assignment, false); err != nil {
			return Run{}, err
		}
	}
	p := &predictor{f: &document.Faults{Origin: origin}, dir: dir, files: files, stack: o.Stack}
	p.read(root)
	if err := p.f.Err(); err != nil {
		return Run{}, err
	}
	return p.run, placed(origin, p.run.fingerprint(files))
}

// placed puts an error about a file that a document names at the document.
func placed(origin string, err error) error {
	f, ok := err.(*document.Fault)
	switch {
	case err == nil || ok && f.Origin != "":
		return err
	case ok:
		at := *f
		at.Origin = origin
		return &at
	}
	return &document.Fault{Origin: origin, Msg: err.Error()}
}

// predictor reads one file.
type predictor struct {
	f             *document.Faults
	dir, stack    string
	files         *Files
	run           Run
	disaggregated bool
	modelName     string     // engine.model
	estimated     AICRequest // the model of the role that prefills
}

var predictKeys = []string{"engine", "traffic", "router", "planner", "evaluation"}

func (p *predictor) read(root *document.Node) {
	known := *root
	known.Keys, known.Items = nil, nil
	for i, key := range root.Keys {
		switch v := root.Items[i]; {
		case key == "optimization" || key == "optimizer":
			p.f.Malformed(v, key+" belongs to recommend, predict runs one configuration")
		case key == "execution":
			p.f.Malformed(v, "execution is not supported")
		case (key == "router" || key == "planner") && p.stack != "dynamo":
			p.f.Malformed(v, key+" is a section of the dynamo stack: use --stack dynamo")
		default:
			known.Put(key, v)
		}
	}
	m := p.f.Mapping(&known, "a mapping", predictKeys)
	if m.Get("engine") == nil {
		m.Missing("engine")
		return
	}
	p.run = Run{Router: &Router{}, MTPSeed: defaultMTPSeed, ArrivalSeed: defaultArrivalSeed}
	p.run.SLA = p.evaluation(m)
	p.engine(m.Sub("engine", "a mapping", predictEngineKeys))
	p.traffic(m.Get("traffic"))
	if !p.f.OK() {
		return
	}
	p.router(m.Get("router"))
	p.planner(m.Get("planner"))
	for _, msg := range p.run.roleFaults() {
		p.f.Invalid(m.Get("engine"), msg)
	}
}

// evaluation reads the SLA.
func (p *predictor) evaluation(m document.Mapping) metrics.SLA {
	e := m.Sub("evaluation", "a mapping", []string{"sla"})
	s := e.Sub("sla", "a mapping", slaKeys)
	var b slaBounds
	for i, key := range slaKeys {
		o := s.Float(key, document.OrNull)
		b[i] = given(o.Set, o.Value)
	}
	sla, faults := b.check()
	for _, k := range faults {
		p.f.InvalidAt(s.Node, k.key, k.msg)
	}
	return sla
}

// traffic reads the load; an absent section is 100 requests of 1024 and 128 tokens
// at concurrency 10, a present one is not completed from it.
func (p *predictor) traffic(n *document.Node) {
	if n == nil {
		s := workload.DefaultSynthetic()
		s.InputTokens, s.OutputTokens, s.Requests, s.Concurrency = defaultInput, defaultOutput, 100, defaultConcurrency
		p.run.Workload = &Workload{Synthetic: &s, MaxSimTimeMs: math.Inf(1)}
		return
	}
	m := p.f.Mapping(n, "a mapping", []string{"source", "load", "stop"})
	source := m.Get("source")
	if source == nil {
		m.Missing("source")
		return
	}
	kind := document.Mapping{Node: source, Faults: p.f}.Enum("type", "synthetic", "synthetic-session", "trace")
	if source.Get("type") == nil {
		document.Mapping{Node: source, Faults: p.f}.Missing("type")
	}
	if !kind.Set {
		return
	}
	var w *Workload
	switch kind.Value {
	case 0:
		w = p.synthetic(m)
	case 1:
		w = p.sessions(m)
	default:
		w = p.trace(m)
	}
	if w != nil && w.Synthetic != nil && p.f.OK() {
		for _, k := range syntheticFaults(w.Synthetic) {
			p.f.Invalid(nearestOf(n, trafficPaths[k.key]...), k.msg)
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
func nearestOf(n *document.Node, paths ...string) *document.Node {
	for _, path := range paths {
		if v := n.Find(path); v != nil {
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

func (p *predictor) synthetic(m document.Mapping) *Workload {
	s := m.Sub("source", "a mapping", []string{"type", "input_tokens", "output_tokens", "images"})
	if v := s.Get("images"); v != nil {
		p.f.Invalid(v, "images are not supported: text tokens only")
	}
	w := workload.DefaultSynthetic()
	w.InputTokens, w.OutputTokens = s.Count("input_tokens", defaultInput), s.Count("output_tokens", defaultOutput)
	return p.generated(m, &w, "requests")
}

// sessions reads synthetic-session. With the engine stack a prompt is the whole
// session so far and groups are drawn from seed 0 (spec workload 3.9); with the
// dynamo stack turns are made as replay makes them (1.3).
func (p *predictor) sessions(m document.Mapping) *Workload {
	s := m.Sub("source", "a mapping", []string{"type", "new_input_tokens_per_turn", "output_tokens_per_turn", "session"})
	if s.Get("session") == nil {
		s.Missing("session")
		return nil
	}
	k := s.Sub("session", "a mapping", []string{"turns", "shared_prefix_ratio", "prefix_groups", "inter_turn_delay_ms"})
	w := workload.DefaultSynthetic()
	if p.stack != "dynamo" {
		w.Cumulative, w.GroupSeed = true, 0
	}
	w.InputTokens, w.OutputTokens = s.Count("new_input_tokens_per_turn", defaultInput), s.Count("output_tokens_per_turn", defaultOutput)
	w.TurnsPerSession = k.Uint("turns", 64, document.NotNull).Int(defaultTurns)
	k.Require(w.TurnsPerSession >= 2, "turns", "turns must be at least 2")
	w.SharedPrefixRatio, w.InterTurnDelayMs = k.Float("shared_prefix_ratio", document.NotNull).Value, k.Float("inter_turn_delay_ms", document.NotNull).Value
	w.PrefixGroups = k.Uint("prefix_groups", 64, document.NotNull).Int(0)
	k.Require(w.SharedPrefixRatio <= 0 || w.PrefixGroups > 0, "prefix_groups", "prefix_groups must be positive if shared_prefix_ratio is")
	return p.generated(m, &w, "sessions")
}

// generated reads load and stop of a synthetic source; unit is what it counts.
func (p *predictor) generated(m document.Mapping, w *workload.Synthetic, unit string) *Workload {
	rate := unit + "_per_second"
	kind, l := p.load(m, []string{"concurrency", "poisson", "constant_rate"}, map[string][]string{
		"concurrency": {"concurrency"}, "poisson": {rate, "seed"}, "constant_rate": {rate}})
	out := &Workload{Synthetic: w, MaxSimTimeMs: math.Inf(1)}
	var size float64
	switch kind {
	case "concurrency":
		w.Control, w.Concurrency = workload.Closed, l.Count("concurrency", defaultConcurrency)
		size = float64(w.Concurrency)
	case "poisson", "constant_rate":
		if l.Get(rate) == nil {
			l.Missing(rate)
		}
		size = l.Float(rate, document.NotNull).Value
		l.Require(l.Get(rate) == nil || document.FiniteFrom(size, 0) && size > 0, rate, rate+" must be finite and positive")
		if kind == "poisson" {
			seed := l.Uint64("seed", document.NotNull)
			w.Control, w.RatePerS, w.ArrivalSeed = workload.Poisson, size, seed.Or(defaultArrivalSeed)
			out.ArrivalSeedGiven = seed.Set
		} else {
			w.Control, w.IntervalMs = workload.Fixed, 1000/size
		}
	default:
		return nil
	}
	relative := unit + "_per_load_unit"
	s := m.Sub("stop", "a mapping", []string{unit, relative})
	if (s.Get(unit) == nil) == (s.Get(relative) == nil) {
		at := m.Node
		if v := m.Get("stop"); v != nil {
			at = v
		}
		p.f.Malformed(at, "traffic.stop needs exactly one of `"+unit+"` and `"+relative+"`")
		return nil
	}
	w.Requests = s.Count(unit, 0)
	if ratio := s.Float(relative, document.NotNull); ratio.Set {
		s.Require(document.FiniteFrom(ratio.Value, 0) && ratio.Value > 0, relative, relative+" must be finite and positive")
		w.Requests = int(min(max(1, math.RoundToEven(ratio.Value*size)), 1<<40))
	}
	return out
}

// load opens traffic.load with the keys of its type, one of kinds.
func (p *predictor) load(m document.Mapping, kinds []string, keys map[string][]string) (string, document.Mapping) {
	n := m.Get("load")
	if n == nil {
		return "concurrency", document.Mapping{Node: document.EmptyMap(m.Line, document.JoinPath(m.Path, "load")), Faults: p.f}
	}
	kind := document.Mapping{Node: n, Faults: p.f}.Enum("type", kinds...)
	if n.Kind == document.Map && n.Get("type") != nil && !kind.Set {
		return "", document.Mapping{}
	}
	name := kinds[kind.Value]
	if !kind.Set {
		name = "concurrency"
	}
	return name, p.f.Mapping(n, "a mapping", append([]string{"type"}, keys[name]...))
}

func (p *predictor) trace(m document.Mapping) *Workload {
	s := m.Sub("source", "a mapping", []string{"type", "paths", "format", "block_size", "nested_timestamp_basis"})
	format := trace.Mooncake
	if v := s.String("format", document.NotNull); v.Set {
		var err error
		if format, err = trace.ParseFormat(v.Value); err != nil {
			p.f.InvalidAt(s.Node, "format", err.Error())
			return nil
		}
	}
	t := &Trace{Load: trace.DefaultLoadOptions(format)}
	if b := s.Count("block_size", 0); b > 0 {
		s.Require(b <= maxBlockSize, "block_size", fmt.Sprintf("block_size must be at most %d, got %d", maxBlockSize, b))
		t.Load.BlockSize = b
	}
	if v := s.String("nested_timestamp_basis", document.NotNull); v.Set {
		i := slices.Index(timestampBases, v.Value)
		s.Require(i >= 0 && format == trace.Weka, "nested_timestamp_basis", "nested_timestamp_basis is "+document.OneOf(timestampBases)+", for format weka only")
		t.Load.WekaTimestamps = trace.WekaTimestamps(max(i, 0))
	}
	kind, l := p.load(m, []string{"concurrency", "trace_timestamps"}, map[string][]string{
		"concurrency": {"concurrency"}, "trace_timestamps": {"speedup", "agentic_lanes"}})
	t.Drive.Speedup = 1
	switch kind {
	case "concurrency":
		t.Drive.ClosedLoop, t.Drive.Concurrency = true, l.Count("concurrency", defaultConcurrency)
	case "trace_timestamps":
		t.Drive.Speedup = l.Float("speedup", document.NotNull).Or(1)
		lanes := l.Uint("agentic_lanes", 64, document.OrNull)
		t.Drive.Laned, t.Drive.Lanes = lanes.Set, lanes.Int(0)
	}
	p.paths(s, t)
	for _, k := range t.check() {
		p.f.Invalid(nearestOf(m.Node, trafficPaths[k.key]...), k.msg)
	}
	if format == trace.MooncakeDelta || format == trace.AgenticMooncake {
		s.Require(!p.disaggregated, "format", format.String()+" runs in aggregated mode only")
	}
	w := &Workload{Trace: t, MaxSimTimeMs: math.Inf(1)}
	if format == trace.AgenticMooncake || format == trace.Weka || format == trace.Dynamo {
		w.ExecutionModel = p.modelName
	}
	stop := m.Sub("stop", "a mapping", []string{"max_virtual_time_seconds"})
	if v := stop.Float("max_virtual_time_seconds", document.OrNull); v.Set {
		w.MaxSimTimeMs = v.Value * 1000
		stop.Require(document.FiniteFrom(w.MaxSimTimeMs, 0), "max_virtual_time_seconds", "max_virtual_time_seconds must be finite and non-negative")
		stop.Require(format != trace.AgenticMooncake && format != trace.Weka, "max_virtual_time_seconds", "max_virtual_time_seconds is not supported for "+format.String())
	}
	return w
}

// paths reads the list of trace files.
func (p *predictor) paths(s document.Mapping, t *Trace) {
	list := s.Get("paths")
	if list == nil {
		s.Missing("paths")
		return
	}
	if list.Kind != document.List || len(list.Items) == 0 {
		p.f.Malformed(list, "paths must be a non-empty list of trace files")
		return
	}
	for _, v := range list.Items {
		if v.Kind != document.String {
			p.f.Malformed(v, "invalid type: "+v.Describe()+", expected the path of a trace")
			continue
		}
		t.Paths = append(t.Paths, PathFrom(p.dir, v.Text))
		t.place(p.f.Origin, v)
	}
}
