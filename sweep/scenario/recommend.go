package scenario

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

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
	Algorithm   string // grid, random or halving
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

	base  *node
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
	text, err := files.document("", path)
	if err != nil {
		return nil, err
	}
	return ParseRecommend(path, filepath.Dir(path), text, o, files)
}

// CheckStack refuses a --stack that does not exist.
func CheckStack(name string) error {
	if !slices.Contains(stacks, name) {
		return &Fault{Origin: "--stack", Msg: "unknown variant `" + name + "`, expected " + oneOf(stacks)}
	}
	return nil
}

// ParseRecommend is ReadRecommend on a text; origin names it in messages, dir is the
// folder that paths start from.
func ParseRecommend(origin, dir string, text []byte, o RecommendOptions, files *Files) (*Recommend, error) {
	root, err := parseYAML(origin, text)
	if err != nil {
		return nil, err
	}
	if root == nil || root.kind != mapKind {
		return nil, &Fault{Origin: origin, Line: 1, Msg: "the document must be a mapping"}
	}
	r := &recommender{f: &faults{origin: origin}, o: o,
		out: &Recommend{origin: origin, dir: dir, stack: o.Stack, files: files, resolve: o.Resolve}}
	for _, assignment := range o.Set {
		if err := applySet(root, assignment, true); err != nil {
			return nil, err
		}
	}
	if isSweeper(root) {
		if root = r.sweeper(root); !r.f.ok() {
			return nil, r.f.err()
		}
	}
	r.read(root)
	if err := r.f.err(); err != nil {
		return nil, err
	}
	return r.out, r.out.try()
}

// recommender reads one file.
type recommender struct {
	f          *faults
	o          RecommendOptions
	out        *Recommend
	hardware   *node       // optimization.hardware
	continuous []string    // ranges without a step
	chosen     map[int]int // [throughput interval, s], the best predictor
	root       *node
}

func (r *recommender) notice(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(r.out.Notices, text) {
		r.out.Notices = append(r.out.Notices, text)
	}
}

func (r *recommender) read(root *node) {
	r.root = root
	r.out.digest = fmt.Sprintf("%x", sha256.Sum256(root.json()))
	m := r.f.mapping(root, "a mapping", recommendKeys)
	for _, key := range [...]string{"engine", "optimization"} {
		if m.get(key) == nil {
			m.missing(key)
		}
	}
	for _, key := range [...]string{"router", "planner"} {
		if v := m.get(key); v != nil && r.o.Stack != "dynamo" {
			r.f.badType(v, key+" is a section of the dynamo stack: use --stack dynamo")
		}
	}
	p := &predictor{f: r.f}
	r.out.SLA = p.evaluation(m)
	r.optimization(m.sub("optimization", "a mapping", optimizationKeys))
	r.optimizer(m.sub("optimizer", "a mapping", optimizerKeys))
	r.out.Cost = r.f.cost(m.get("cost"))
	r.rules(m)
	if m.get("engine") == nil || !r.f.ok() {
		return
	}
	r.branches(m)
	if len(r.continuous) > 0 && r.out.Optimizer.Algorithm != "random" && r.f.ok() {
		for _, path := range r.continuous {
			r.f.list = append(r.f.list, &Fault{Origin: r.f.origin, Path: path,
				Msg: "a continuous range has no grid: give a step, or use optimizer.algorithm random"})
		}
	}
}

func (r *recommender) optimization(m mapping) {
	g := &r.out.Goal
	g.Target = targetNames[m.enum("target", targetNames...).v]
	r.hardware = m.get("hardware")
	c := m.sub("constraints", "a mapping", constraintKeys)
	least, most := c.uint("min_candidate_gpus", 32, orNull), c.uint("max_candidate_gpus", 32, notNull)
	g.MinGPUs, g.MaxGPUs = least.int(0), most.int(defaultMaxGPUs)
	c.rule(g.MaxGPUs > 0, "max_candidate_gpus", "max_candidate_gpus must be positive")
	c.rule(g.MaxGPUs <= maxSearchGPUs, "max_candidate_gpus", fmt.Sprintf("max_candidate_gpus must be at most %d, got %d", maxSearchGPUs, g.MaxGPUs))
	c.rule(g.MinGPUs <= g.MaxGPUs, "min_candidate_gpus", "min_candidate_gpus must not exceed max_candidate_gpus")
	goodput := c.float("min_goodput_rps", orNull)
	g.MinGoodputRPS = goodput.v
	c.rule(!goodput.set || finite(goodput.v, 0) && goodput.v > 0, "min_goodput_rps", "min_goodput_rps must be finite and positive")
	g.StrictSLA = m.bool("strict_sla").v
}

func (r *recommender) optimizer(m mapping) {
	o := &r.out.Optimizer
	algorithm := m.enum("algorithm", algorithmNames...)
	o.Algorithm = algorithmNames[algorithm.or(1)]
	switch {
	case !algorithm.set:
		r.notice("optimizer.algorithm is not given: random search, seeded and without replacement")
	case o.Algorithm == "bayesian":
		o.Algorithm = "random"
		r.notice("optimizer.algorithm bayesian is treated as random: seeded, without replacement")
	}
	trials := m.uint("max_trials", 31, notNull)
	o.MaxTrials, o.TrialsGiven = trials.int(defaultMaxTrials), trials.set
	m.positive(trials, "max_trials")
	parallel := m.uint("parallelism", 16, notNull)
	o.Parallelism = parallel.int(defaultParallelism)
	m.positive(parallel, "parallelism")
	o.TimeoutS = m.float("candidate_timeout_seconds", notNull).or(defaultTimeoutS)
	m.rule(finite(o.TimeoutS, 0) && o.TimeoutS > 0 && o.TimeoutS < 1e9, "candidate_timeout_seconds", "candidate_timeout_seconds must be positive and below 1e9")
	o.Seed = m.u64("seed", notNull).or(defaultSearchSeed)
	limit := m.u64("max_candidate_requests", notNull)
	o.MaxRequests = int64(limit.int(defaultMaxRequests))
	m.positive(limit, "max_candidate_requests")
}

// rules are the relations between the sections.
func (r *recommender) rules(m mapping) {
	g := &r.out.Goal
	goal := mapping{m.get("optimization"), r.f}
	if goal.node == nil {
		return
	}
	least := g.Target == "min_gpus" || g.Target == "min_cost"
	needs := least || strings.HasPrefix(g.Target, "goodput") || g.MinGoodputRPS > 0 || g.StrictSLA
	goal.rule(!needs || r.out.SLA.Set(), "target", "needs evaluation.sla: ttft_ms, itl_ms or e2e_ms")
	goal.rule(!least || g.MinGoodputRPS > 0, "target", g.Target+" needs optimization.constraints.min_goodput_rps")
	goal.rule(g.Target != "min_cost" || r.out.Cost.Asked(), "target", "min_cost needs cost.usd_per_gpu_hour")
}

// Digest identifies the document as read, overrides included.
func (r *Recommend) Digest() string { return r.digest }
