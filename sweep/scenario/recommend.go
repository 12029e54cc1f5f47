package scenario

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Recommend is an AISimulate file with domains (spec sweeps-and-schema 2.6): the
// candidates that recommend searches, and what it looks for. Candidates are numbered
// within their branch, one branch per deployment mode, and made on demand.
type Recommend struct {
	Goal      Optimization
	Optimizer Optimizer
	Cost      Cost
	SLA       metrics.SLA
	Branches  []SearchBranch
	Notices   []string // what was understood in a way that a user should know

	origin, dir, stack string
	files              *Files
	resolve            TimingResolver
	fraction           bool // the load is relative to the KV capacity
	digest             string
}

// Optimization is the section of that name.
type Optimization struct {
	Target           string
	MinGPUs, MaxGPUs int     // of a candidate; MinGPUs 0: no bound
	MinGoodputRPS    float64 // 0: none
	StrictSLA        bool
}

// Optimizer is the section of that name.
type Optimizer struct {
	Algorithm   string // grid, random, halving or bayesian
	MaxTrials   int
	TrialsGiven bool // MaxTrials was written
	Parallelism int
	TimeoutS    float64 // per candidate
	Seed        uint64
	MaxRequests int64 // of one candidate: a larger one is refused
}

// SearchBranch is the space of one deployment mode.
type SearchBranch struct {
	Mode string // aggregated or disaggregated
	Size int64

	base  *document.Node
	space []decision
}

// RecommendOptions are the command line's and what the file itself cannot tell.
type RecommendOptions struct {
	PredictOptions
	// Resolve answers questions about hardware tables; nil: no tables.
	Resolve TimingResolver
	// Experts reports whether a model has experts; an error if it is not known.
	Experts func(q AICRequest) (bool, error)
	// BestPredictor ranks load predictors on a trace for one throughput interval
	// and returns the index of the best, with a remark; nil: the first is used.
	BestPredictor func(t *Trace, intervalS int, candidates []planner.PredictorConfig) (int, string, error)
}

// Names that the sections take.
var (
	targetNames = []string{"throughput", "throughput_per_gpu", "throughput_per_user", "goodput", "goodput_per_gpu",
		"ttft", "e2e_latency", "pareto", "min_gpus", "min_cost"}
	algorithmNames   = []string{"grid", "random", "halving", "bayesian"}
	optimizationKeys = []string{"target", "hardware", "constraints", "strict_sla"}
	constraintKeys   = []string{"min_candidate_gpus", "max_candidate_gpus", "min_goodput_rps"}
	optimizerKeys    = []string{"algorithm", "max_trials", "parallelism", "candidate_timeout_seconds", "seed", "max_candidate_requests"}
	recommendKeys    = slices.Concat(predictKeys, []string{"optimization", "optimizer", "cost"})
)

// Defaults of the sections (spec sweeps-and-schema 2.6). No published trace has a
// million requests: more than five are a mistake of a relative load.
const (
	defaultMaxGPUs     = 32
	maxSearchGPUs      = 1 << 14
	defaultMaxTrials   = 320
	defaultParallelism = 16
	defaultTimeoutS    = 600
	defaultSearchSeed  = 42
	defaultMaxRequests = 5_000_000
)

// ReadRecommend reads an AISimulate file with domains, or an older Sweeper file
// (spec sweeps-and-schema 6).
func ReadRecommend(path string, o RecommendOptions, files *Files) (*Recommend, error) {
	if err := CheckStack(o.Stack); err != nil {
		return nil, err
	}
	text, err := files.Document("", path)
	if err != nil {
		return nil, err
	}
	return ParseRecommend(path, filepath.Dir(path), text, o, files)
}

// CheckStack refuses a --stack that does not exist.
func CheckStack(name string) error {
	if !slices.Contains(stacks, name) {
		return &document.Fault{Origin: "--stack", Msg: "unknown variant `" + name + "`, expected " + document.OneOf(stacks)}
	}
	return nil
}

// ParseRecommend is ReadRecommend on a text; origin names it in messages, dir is the
// folder that paths start from.
func ParseRecommend(origin, dir string, text []byte, o RecommendOptions, files *Files) (*Recommend, error) {
	root, err := document.ParseYAML(origin, text)
	if err != nil {
		return nil, err
	}
	if root == nil || root.Kind != document.Map {
		return nil, &document.Fault{Origin: origin, Line: 1, Msg: "the document must be a mapping"}
	}
	r := &recommender{f: &document.Faults{Origin: origin}, o: o,
		out: &Recommend{origin: origin, dir: dir, stack: o.Stack, files: files, resolve: o.Resolve}}
	for _, assignment := range o.Set {
		if err := applySet(root, assignment, true); err != nil {
			return nil, err
		}
	}
	if isSweeper(root) {
		if root = r.sweeper(root); !r.f.OK() {
			return nil, r.f.Err()
		}
	}
	r.read(root)
	if err := r.f.Err(); err != nil {
		return nil, err
	}
	return r.out, r.out.try()
}

// recommender reads one file.
type recommender struct {
	f          *document.Faults
	o          RecommendOptions
	out        *Recommend
	hardware   *document.Node // optimization.hardware
	continuous []string       // ranges without a step
	chosen     map[int]int    // [throughput interval, s], the best predictor
	root       *document.Node
	lost       losses
}

func (r *recommender) notice(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(r.out.Notices, text) {
		r.out.Notices = append(r.out.Notices, text)
	}
}

func (r *recommender) read(root *document.Node) {
	r.root = root
	r.out.digest = fmt.Sprintf("%x", sha256.Sum256(root.JSON()))
	m := r.f.Mapping(root, "a mapping", recommendKeys)
	for _, key := range [...]string{"engine", "optimization"} {
		if m.Get(key) == nil {
			m.Missing(key)
		}
	}
	for _, key := range [...]string{"router", "planner"} {
		if v := m.Get(key); v != nil && r.o.Stack != "dynamo" {
			r.f.Malformed(v, key+" is a section of the dynamo stack: use --stack dynamo")
		}
	}
	p := &predictor{f: r.f}
	r.out.SLA = p.evaluation(m)
	r.optimization(m.Sub("optimization", "a mapping", optimizationKeys))
	r.optimizer(m.Sub("optimizer", "a mapping", optimizerKeys))
	r.out.Cost = readCost(r.f, m.Get("cost"))
	r.rules(m)
	if m.Get("engine") == nil || !r.f.OK() {
		return
	}
	r.branches(m)
	sampled := r.out.Optimizer.Algorithm == "random" || r.out.Optimizer.Algorithm == "bayesian"
	if len(r.continuous) > 0 && !sampled && r.f.OK() {
		for _, path := range r.continuous {
			r.f.List = append(r.f.List, &document.Fault{Origin: r.f.Origin, Path: path,
				Msg: "a continuous range has no grid: give a step, or use optimizer.algorithm random or bayesian"})
		}
	}
}

func (r *recommender) optimization(m document.Mapping) {
	g := &r.out.Goal
	g.Target = targetNames[m.Enum("target", targetNames...).Value]
	r.hardware = m.Get("hardware")
	c := m.Sub("constraints", "a mapping", constraintKeys)
	least, most := c.Uint("min_candidate_gpus", 32, document.OrNull), c.Uint("max_candidate_gpus", 32, document.NotNull)
	g.MinGPUs, g.MaxGPUs = least.Int(0), most.Int(defaultMaxGPUs)
	c.Require(g.MaxGPUs > 0, "max_candidate_gpus", "max_candidate_gpus must be positive")
	c.Require(g.MaxGPUs <= maxSearchGPUs, "max_candidate_gpus", fmt.Sprintf("max_candidate_gpus must be at most %d, got %d", maxSearchGPUs, g.MaxGPUs))
	c.Require(g.MinGPUs <= g.MaxGPUs, "min_candidate_gpus", "min_candidate_gpus must not exceed max_candidate_gpus")
	goodput := c.Float("min_goodput_rps", document.OrNull)
	g.MinGoodputRPS = goodput.Value
	c.Require(!goodput.Set || document.FiniteFrom(goodput.Value, 0) && goodput.Value > 0, "min_goodput_rps", "min_goodput_rps must be finite and positive")
	g.StrictSLA = m.Bool("strict_sla").Value
}

func (r *recommender) optimizer(m document.Mapping) {
	o := &r.out.Optimizer
	algorithm := m.Enum("algorithm", algorithmNames...)
	o.Algorithm = algorithmNames[algorithm.Or(1)]
	if !algorithm.Set {
		r.notice("optimizer.algorithm is not given: random search, seeded and without replacement")
	}
	trials := m.Uint("max_trials", 31, document.NotNull)
	o.MaxTrials, o.TrialsGiven = trials.Int(defaultMaxTrials), trials.Set
	m.RequirePositive(trials, "max_trials")
	parallel := m.Uint("parallelism", 16, document.NotNull)
	o.Parallelism = parallel.Int(defaultParallelism)
	m.RequirePositive(parallel, "parallelism")
	o.TimeoutS = m.Float("candidate_timeout_seconds", document.NotNull).Or(defaultTimeoutS)
	m.Require(document.FiniteFrom(o.TimeoutS, 0) && o.TimeoutS > 0 && o.TimeoutS < 1e9, "candidate_timeout_seconds", "candidate_timeout_seconds must be positive and below 1e9")
	o.Seed = m.Uint64("seed", document.NotNull).Or(defaultSearchSeed)
	limit := m.Uint64("max_candidate_requests", document.NotNull)
	o.MaxRequests = int64(limit.Int(defaultMaxRequests))
	m.RequirePositive(limit, "max_candidate_requests")
}

// rules are the relations between the sections.
func (r *recommender) rules(m document.Mapping) {
	g := &r.out.Goal
	goal := document.Mapping{Node: m.Get("optimization"), Faults: r.f}
	if goal.Node == nil {
		return
	}
	least := g.Target == "min_gpus" || g.Target == "min_cost"
	needs := least || strings.HasPrefix(g.Target, "goodput") || g.MinGoodputRPS > 0 || g.StrictSLA
	goal.Require(!needs || r.out.SLA.Set(), "target", "needs evaluation.sla: ttft_ms, itl_ms or e2e_ms")
	goal.Require(!least || g.MinGoodputRPS > 0, "target", g.Target+" needs optimization.constraints.min_goodput_rps")
	goal.Require(g.Target != "min_cost" || r.out.Cost.Asked(), "target", "min_cost needs cost.usd_per_gpu_hour")
}

// Digest identifies the document as read, overrides included.
func (r *Recommend) Digest() string { return r.digest }
