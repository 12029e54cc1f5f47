package recommend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Runner runs the candidates of a search. How it does so is not the search's affair.
type Runner interface {
	// Load says how much the load of a run asks for.
	Load(run *scenario.Run) (Load, error)
	// Run runs requests, side by side if it can, and returns one result for each in
	// their order. After ctx ended the results are incomplete.
	Run(ctx context.Context, requests []RunRequest) []RunResult
}

// Load is how much the load of a run asks for.
type Load struct {
	Requests, OutputTokens int64
	InFlight               int // sessions of a closed loop, plays with lanes; else 0
}

// RunRequest asks for one run.
type RunRequest struct {
	Run      *scenario.Run
	Requests int           // released at most; 0: the whole load
	Timeout  time.Duration // of the wall clock; 0: none
	// ShouldStop is asked now and then, with the clock, whether the run may stop
	// early; nil: it may not.
	ShouldStop func(nowMs float64) bool
}

// RunResult is what a run came to.
type RunResult struct {
	Summary      *metrics.Summary // nil: the run did not come to its end
	PlannerTicks int
	CostUSD      func(*scenario.Cost) (float64, error) // of the run; set beside Summary
	Err          error                                 // why there is no summary
	Failure      Failure                               // class of Err
	Stopped      bool                                  // RunRequest.ShouldStop said so; there is neither summary nor error
	Simulated    int64                                 // requests that ended
}

// Failure is a class of errors that end a run.
type Failure uint8

// Classes of errors. Each has a status and a category in recommendation.json.
const (
	RunFailed        Failure = iota // the simulation failed
	TimedOut                        // the timeout of the request passed
	MemoryShort                     // this machine has too little memory for the run
	KVCapacityShort                 // the model leaves no room for KV blocks
	ConfigUnrunnable                // the configuration asks for what cannot be simulated
)

// failureWords are status and category of each class (spec sweeps-and-schema 3).
var failureWords = [...]struct{ status, category string }{
	RunFailed:        {statusFailed, "replay_runtime"},
	TimedOut:         {statusTimedOut, "runtime_timeout"},
	MemoryShort:      {statusUnsupported, "candidate_materialization"},
	KVCapacityShort:  {statusInfeasible, "kv_capacity"},
	ConfigUnrunnable: {statusUnsupported, "runner_contract"},
}

// Options say how a search reports.
type Options struct {
	TopN       int                   // configurations to recommend, at least 1
	ConfigPath func(rank int) string // where the configuration of that rank, from 0, will be written
	Stack      string                // engine or dynamo, for the provenance
	Version    string                // of the program, for the provenance
	// Progress is told in one sentence how far the search is; nil: nobody listens.
	Progress func(text string)
	// Evaluated is told of every run that ended, with its error; may be nil.
	Evaluated func(c *Candidate, err error)
}

// Search is one search over the candidates of an AISimulate file.
type Search struct {
	doc    *scenario.Recommend
	target Target
	runner Runner
	opt    Options

	candidates []*Candidate // in order of visit; those refused before a run are among them
	folded     int          // picks that came to the configuration of an earlier one
	simulated  int64        // requests
	wholeGrid  int64        // requests of every candidate's whole load
	halving    *Halved      // nil: another algorithm
}

// ErrSearchSpace is the class of errors about a search that cannot begin: the domains
// or the optimizer section of the document have to change.
var ErrSearchSpace = errors.New("search space")

// spaceError is an error of class ErrSearchSpace, in its own words.
type spaceError struct{ error }

func (e spaceError) Is(target error) bool { return target == ErrSearchSpace }
func (e spaceError) Unwrap() error        { return e.error }

// Run searches the document's domains with its algorithm. The error is of class
// ErrSearchSpace, of the runner's Load, or ctx's. That nothing feasible was found is no
// error here: Answer.Err says so.
func Run(ctx context.Context, doc *scenario.Recommend, runner Runner, opt Options) (*Answer, error) {
	target, err := ParseTarget(doc.Goal.Target)
	if err != nil {
		return nil, spaceError{err}
	}
	s := &Search{doc: doc, target: target, runner: runner, opt: opt}
	picks, err := s.picks()
	if err != nil {
		return nil, spaceError{err}
	}
	live, err := s.materialise(ctx, picks)
	if err != nil {
		return nil, err
	}
	switch algorithm := doc.Optimizer.Algorithm; {
	case algorithm == "halving" && len(live) > 0:
		err = s.halve(ctx, live)
	case algorithm == "bayesian":
		err = s.bayes(ctx, live)
	default:
		err = s.runAll(ctx, live)
	}
	if err != nil {
		return nil, err
	}
	return s.answer(), nil
}

// maxWhole is the most candidates that are written out.
const maxWhole = 1 << 17

// picks lists the candidates to look at.
func (s *Search) picks() ([]Pick, error) {
	var branches []Branch
	total := int64(0)
	for _, b := range s.doc.Branches {
		branches = append(branches, Branch{Name: b.Mode, Size: b.Size})
		total += b.Size
	}
	o := &s.doc.Optimizer
	trials := o.MaxTrials
	if o.Algorithm == "bayesian" {
		trials = max(trials, bayesPool)
	}
	sampled := o.Algorithm == "random" || o.Algorithm == "bayesian" && total > int64(trials) || o.Algorithm == "halving" && o.TrialsGiven && total > int64(o.MaxTrials)
	switch {
	case sampled:
		p, err := Sample(branches, o.Seed, trials, o.Parallelism)
		if err != nil {
			err = fmt.Errorf("optimizer.%w", err)
		}
		return p, err
	case o.Algorithm != "bayesian" && o.TrialsGiven && total > int64(o.MaxTrials):
		return nil, fmt.Errorf("optimizer.max_trials: the grid has %d candidates, max_trials is %d: raise it, leave it out, or use algorithm random or halving", total, o.MaxTrials)
	case total > maxWhole:
		return nil, fmt.Errorf("optimizer.algorithm: %s over %d candidates is too much (at most %d): narrow the domains, use algorithm random, or halving with max_trials", o.Algorithm, total, maxWhole)
	}
	return Whole(branches), nil
}

// materialise turns picks into candidates and returns those that can run; picks that
// come to an earlier configuration are folded.
func (s *Search) materialise(ctx context.Context, picks []Pick) ([]*Candidate, error) {
	seen, halving := map[string]bool{}, s.doc.Optimizer.Algorithm == "halving"
	var live []*Candidate
	for n, p := range picks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		made := s.doc.Candidate(p.Branch, p.Index)
		if made.Key != "" && seen[made.Key] {
			s.folded++
			continue
		}
		c := &Candidate{ID: fmt.Sprintf("candidate-%06d", n+1), pick: p, config: made.Summary(), mode: s.doc.Branches[p.Branch].Mode,
			fixedFleet: made.Run.Planner == nil}
		s.candidates = append(s.candidates, c)
		if made.Key != "" {
			seen[made.Key] = true
		}
		if r := made.Refused; r != nil {
			c.Status, c.category, c.Reason = r.Status, r.Category, r.Reason
			continue
		}
		load, err := s.runner.Load(&made.Run)
		if err != nil {
			return nil, err
		}
		if load.Requests > s.doc.Optimizer.MaxRequests {
			c.Status, c.category = statusUnsupported, "candidate_materialization"
			c.Reason = fmt.Sprintf("%d requests: optimizer.max_candidate_requests is %d", load.Requests, s.doc.Optimizer.MaxRequests)
			continue
		}
		if c.load = load; halving {
			c.neighbourKeys = made.Without()
		}
		s.wholeGrid += load.Requests
		live = append(live, c)
	}
	return live, nil
}

// request asks for a whole run of a candidate. Its configuration is made again, so
// that only what runs is held in memory.
func (s *Search) request(c *Candidate) RunRequest {
	made := s.doc.Candidate(c.pick.Branch, c.pick.Index)
	return RunRequest{Run: &made.Run, Timeout: time.Duration(s.doc.Optimizer.TimeoutS * float64(time.Second))}
}

// runAll evaluates every candidate whole.
func (s *Search) runAll(ctx context.Context, live []*Candidate) error {
	const chunk = 256
	for from := 0; from < len(live); from += chunk {
		part := live[from:min(from+chunk, len(live))]
		if err := s.runBatch(ctx, part); err != nil {
			return err
		}
		s.progress("%d of %d candidates evaluated", from+len(part), len(live))
	}
	return nil
}

// runBatch evaluates candidates whole. The error is ctx's.
func (s *Search) runBatch(ctx context.Context, part []*Candidate) error {
	requests := make([]RunRequest, len(part))
	for i, c := range part {
		requests[i] = s.request(c)
	}
	ran := s.runner.Run(ctx, requests)
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, c := range part {
		s.evaluate(c, &ran[i])
		c.evaluated = true
		s.ended(c, &ran[i])
	}
	return nil
}

func (s *Search) progress(format string, args ...any) {
	if s.opt.Progress != nil {
		s.opt.Progress(fmt.Sprintf(format, args...))
	}
}

func (s *Search) ended(c *Candidate, r *RunResult) {
	if s.opt.Evaluated != nil {
		s.opt.Evaluated(c, r.Err)
	}
}

// halvingShare is the share of the grid's requests that halving simulates at most.
const halvingShare = 0.24

// halve runs successive halving over the live candidates.
func (s *Search) halve(ctx context.Context, live []*Candidate) error {
	requests, floor := int64(0), 0
	for _, c := range live {
		requests, floor = max(requests, c.load.Requests), max(floor, 2*c.load.InFlight)
	}
	plan := NewPlan(len(live), int(requests), floor, halvingShare)
	for _, r := range plan.Rungs {
		s.progress("rung: %d candidates, %d requests each", r.Candidates, r.Requests)
	}
	field := fieldOf(live)
	if o := plan.Rungs[0]; len(plan.Rungs) == 1 {
		s.progress("too few to halve: all %d run whole", o.Candidates)
	}
	out, err := Halve(ctx, plan, field, func(ctx context.Context, trials []Trial) []Evaluation {
		return s.rung(ctx, live, trials, requests)
	})
	if err != nil {
		return err
	}
	s.halving = out
	final := len(plan.Rungs) - 1
	for i, c := range live {
		c.seen = &out.Seen[i]
		if c.evaluated = c.seen.Rung == final && c.Status != statusEliminated; c.evaluated || c.Status != statusFeasible && c.Status != statusInfeasible {
			continue
		}
		c.Status, c.category = statusEliminated, ""
		c.Reason = fmt.Sprintf("rank %d of %d after %d requests", c.seen.Rank+1, plan.Rungs[c.seen.Rung].Candidates, plan.Rungs[c.seen.Rung].Requests)
	}
	return nil
}

// rung runs the trials of halving. Candidates whose load differs in size run the
// same part of it.
func (s *Search) rung(ctx context.Context, live []*Candidate, trials []Trial, longest int64) []Evaluation {
	out := make([]Evaluation, len(trials))
	var requests []RunRequest
	var trialOf []int // [request]
	for i, t := range trials {
		c := live[t.Candidate]
		if s.ceiling(c, 0) < t.ScoreToBeat {
			c.Status, c.Reason = statusEliminated, "cannot reach the score of others"
			out[i].Class = Stopped
			continue
		}
		request := s.request(c)
		if t.Requests > 0 {
			request.Requests = int((int64(t.Requests)*c.load.Requests + longest - 1) / longest)
		}
		request.ShouldStop = func(nowMs float64) bool { return s.ceiling(c, nowMs) < t.ScoreToBeat }
		requests, trialOf = append(requests, request), append(trialOf, i)
	}
	ran := s.runner.Run(ctx, requests)
	if ctx.Err() != nil {
		return out
	}
	for k, i := range trialOf {
		c := live[trials[i].Candidate]
		s.evaluate(c, &ran[k])
		s.ended(c, &ran[k])
		out[i].Simulated, out[i].Rating = ran[k].Simulated, c.rating()
	}
	return out
}
