package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/recommend"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

func recommendCommand() *cli.Command {
	return &cli.Command{
		Name:  "recommend",
		Usage: "search the best configuration",
		Description: `Searches the domains of an AISimulate file and writes the best configurations as
files that predict takes unchanged. Takes the older Sweeper file and the replay
optimiser's specification too.

   dynosweep recommend -c search.yaml
   dynosweep recommend -c search.yaml --stack dynamo --set optimizer.algorithm=halving
   dynosweep recommend -c search.yaml --set optimization.target=goodput_per_gpu --format json`,
		Flags: append(aisimulateFlags(),
			&cli.IntFlag{Name: "top-n", Usage: "configurations to write", Value: 10},
			&cli.IntFlag{Name: "jobs", Usage: "candidates at a time", Value: runtime.GOMAXPROCS(0)}),
		OnUsageError:              usageError,
		Action:                    runRecommend,
		DisableSliceFlagSeparator: true, // a value of --set may hold commas
	}
}

// recommendJob is one search.
type recommendJob struct {
	c              *cli.Command
	in             *sweep.Inputs
	doc            *scenario.Recommend
	target         recommend.Target
	stdout, stderr io.Writer
	talk           console
	dir            string
	asJSON         bool
	jobs           int
	memory         int64

	entries   []*entry // candidates in order of visit, refused and folded ones included
	cacheHits int
	simulated int64 // requests
	whole     int64 // requests of every candidate's whole load
	plan      *recommend.Halved
}

// recommend reads the file, searches, and writes what came of it.
func runRecommend(ctx context.Context, c *cli.Command) error {
	j := &recommendJob{c: c, in: &sweep.Inputs{}, stdout: c.Root().Writer, stderr: c.Root().ErrWriter, talk: newConsole(c), dir: c.String("output-dir"),
		jobs: c.Int("jobs"), memory: sweep.AvailableMemory() * 8 / 10}
	if err := j.flags(); err != nil {
		return err
	}
	if optimizer, err := j.optimizerSpec(); err != nil || optimizer != nil {
		if err != nil {
			return err
		}
		return j.optimize(ctx, optimizer)
	}
	o := scenario.RecommendOptions{PredictOptions: scenario.PredictOptions{Stack: c.String("stack"), Set: c.StringSlice("set")},
		Resolve: j.in.Resolve, Experts: j.in.Experts, BestPredictor: j.in.BestPredictor}
	var err error
	read := &scenario.Files{}
	if j.doc, err = scenario.ReadRecommend(c.String("config"), o, read); err != nil {
		return err
	}
	if err := spareInputs(j.dir, read.Read()); err != nil {
		return badInput(err)
	}
	if j.target, err = recommend.ParseTarget(j.doc.Goal.Target); err != nil {
		return badInput(err)
	}
	for _, n := range j.doc.Notices {
		j.talk.notice("%s", n)
	}
	if err := j.search(ctx); err != nil {
		return err
	}
	return j.publish()
}

func (j *recommendJob) flags() (err error) {
	if j.asJSON, err = aisimulateFormat(j.c); err != nil {
		return err
	}
	for _, name := range [...]string{"jobs", "top-n"} {
		if n := j.c.Int(name); n < 1 {
			return badInput(fmt.Errorf("--%s: must be at least 1, got %d", name, n))
		}
	}
	if err := scenario.CheckStack(j.c.String("stack")); err != nil {
		return err
	}
	return badInput(checkOutputDir(j.dir, j.c.Bool("overwrite")))
}

// maxWhole is the most candidates that are written out.
const maxWhole = 1 << 17

// picks lists the candidates to look at.
func (j *recommendJob) picks() ([]recommend.Pick, error) {
	var branches []recommend.Branch
	total := int64(0)
	for _, b := range j.doc.Branches {
		branches = append(branches, recommend.Branch{Name: b.Mode, Size: b.Size})
		total += b.Size
	}
	o := &j.doc.Optimizer
	sampled := o.Algorithm == "random" || o.Algorithm == "halving" && o.TrialsGiven && total > int64(o.MaxTrials)
	switch {
	case sampled:
		p, err := recommend.Sample(branches, o.Seed, o.MaxTrials, o.Parallelism)
		if err != nil {
			err = fmt.Errorf("optimizer.%w", err)
		}
		return p, err
	case o.TrialsGiven && total > int64(o.MaxTrials):
		return nil, fmt.Errorf("optimizer.max_trials: the grid has %d candidates, max_trials is %d: raise it, leave it out, or use algorithm random or halving", total, o.MaxTrials)
	case total > maxWhole:
		return nil, fmt.Errorf("optimizer.algorithm: %s over %d candidates is too much (at most %d): narrow the domains, use algorithm random, or halving with max_trials", o.Algorithm, total, maxWhole)
	}
	return recommend.Whole(branches), nil
}

// search evaluates the candidates.
func (j *recommendJob) search(ctx context.Context) error {
	picks, err := j.picks()
	if err != nil {
		return badInput(err)
	}
	live, err := j.materialise(ctx, picks)
	if err != nil {
		return err
	}
	if j.doc.Optimizer.Algorithm == "halving" && len(live) > 0 {
		return j.halve(ctx, live)
	}
	const chunk = 256
	for from := 0; from < len(live); from += chunk {
		part := live[from:min(from+chunk, len(live))]
		trials := make([]sweep.Trial, len(part))
		for i, e := range part {
			trials[i] = j.trial(e) // made again, so that only what runs is held
		}
		tried := j.in.Try(ctx, trials, j.jobs, j.memory)
		if err := ctx.Err(); err != nil {
			return err
		}
		for i, e := range part {
			j.judge(e, trials[i].Run, &tried[i])
			e.evaluated = true
			j.tell(e)
		}
		j.progress("%d of %d candidates evaluated", from+len(part), len(live))
	}
	return nil
}

// materialise turns picks into candidates; those that come to an earlier
// configuration are folded.
func (j *recommendJob) materialise(ctx context.Context, picks []recommend.Pick) ([]*entry, error) {
	seen, halving := map[string]bool{}, j.doc.Optimizer.Algorithm == "halving"
	var live []*entry
	for n, p := range picks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := j.doc.Candidate(p.Branch, p.Index)
		if c.Key != "" && seen[c.Key] {
			j.cacheHits++
			continue
		}
		e := &entry{id: fmt.Sprintf("candidate-%06d", n+1), pick: p, candidate: c.Slim(), mode: j.doc.Branches[p.Branch].Mode,
			fixed: c.Run.Planner == nil}
		j.entries = append(j.entries, e)
		if c.Key != "" {
			seen[c.Key] = true
		}
		if r := c.Refused; r != nil {
			e.status, e.category, e.reason = r.Status, r.Category, r.Reason
			continue
		}
		load, err := j.in.LoadOf(&c.Run)
		if err != nil {
			return nil, err
		}
		if load.Requests > j.doc.Optimizer.MaxRequests {
			e.status, e.category = "unsupported", "candidate_materialization"
			e.reason = fmt.Sprintf("%d requests: optimizer.max_candidate_requests is %d", load.Requests, j.doc.Optimizer.MaxRequests)
			continue
		}
		if e.load = load; halving {
			e.without = c.Without()
		}
		j.whole += load.Requests
		live = append(live, e)
	}
	return live, nil
}

func (j *recommendJob) trial(e *entry) sweep.Trial {
	c := j.doc.Candidate(e.pick.Branch, e.pick.Index)
	return sweep.Trial{Run: &c.Run, Timeout: time.Duration(j.doc.Optimizer.TimeoutS * float64(time.Second))}
}

func (j *recommendJob) progress(format string, args ...any) {
	if !j.talk.quiet {
		fmt.Fprintf(j.stderr, format+"\n", args...)
	}
}

// tell says what became of a run, for --verbose.
func (j *recommendJob) tell(e *entry) {
	j.talk.detail("%s: %s", e.id, strings.TrimSuffix(e.status+" "+firstLine(e.reason), " "))
}

// halvingShare is the share of the grid's requests that halving simulates at most.
const halvingShare = 0.24

// halve runs successive halving over the live candidates.
func (j *recommendJob) halve(ctx context.Context, live []*entry) error {
	requests, floor := int64(0), 0
	for _, e := range live {
		requests, floor = max(requests, e.load.Requests), max(floor, 2*e.load.InFlight)
	}
	plan := recommend.NewPlan(len(live), int(requests), floor, halvingShare)
	for _, r := range plan.Rungs {
		j.progress("rung: %d candidates, %d requests each", r.Candidates, r.Requests)
	}
	field := fieldOf(live)
	if o := plan.Rungs[0]; len(plan.Rungs) == 1 {
		j.progress("too few to halve: all %d run whole", o.Candidates)
	}
	out, err := recommend.Halve(ctx, plan, field, func(ctx context.Context, trials []recommend.Trial) []recommend.Judged {
		return j.rung(ctx, live, trials, requests)
	})
	if err != nil {
		return err
	}
	j.plan = out
	final := len(plan.Rungs) - 1
	for i, e := range live {
		e.seen = &out.Seen[i]
		if e.evaluated = e.seen.Rung == final && e.status != "eliminated"; e.evaluated || e.status != "feasible" && e.status != "infeasible" {
			continue
		}
		e.status, e.category = "eliminated", ""
		e.reason = fmt.Sprintf("rank %d of %d after %d requests", e.seen.Rank+1, plan.Rungs[e.seen.Rung].Candidates, plan.Rungs[e.seen.Rung].Requests)
	}
	return nil
}

// rung runs the trials of halving. Candidates whose load differs in size run the
// same part of it.
func (j *recommendJob) rung(ctx context.Context, live []*entry, trials []recommend.Trial, longest int64) []recommend.Judged {
	out := make([]recommend.Judged, len(trials))
	var runs []sweep.Trial
	var at []int
	for i, t := range trials {
		e := live[t.Candidate]
		if j.ceiling(e, 0) < t.Beat {
			e.status, e.reason = "eliminated", "cannot reach the score of others"
			out[i].Class = recommend.Stopped
			continue
		}
		run := j.trial(e)
		if t.Requests > 0 {
			run.Requests = int((int64(t.Requests)*e.load.Requests + longest - 1) / longest)
		}
		run.Hopeless = func(nowMs float64) bool { return j.ceiling(e, nowMs) < t.Beat }
		runs, at = append(runs, run), append(at, i)
	}
	tried := j.in.Try(ctx, runs, j.jobs, j.memory)
	if ctx.Err() != nil {
		return out
	}
	for k, i := range at {
		e := live[trials[i].Candidate]
		j.judge(e, runs[k].Run, &tried[k])
		j.tell(e)
		out[i].Simulated, out[i].Standing = tried[k].Simulated, e.standing()
	}
	return out
}

// publish writes the files, prints the answer and says whether there is one.
func (j *recommendJob) publish() error {
	v := j.rank()
	if err := clearOutputDir(j.dir); err != nil {
		return err
	}
	if err := j.writeFiles(v); err != nil {
		return err
	}
	if j.asJSON {
		if err := j.printJSON(v); err != nil {
			return err
		}
	} else {
		j.printTable(v)
	}
	j.printTally()
	if len(v.top) > 0 && v.top[0].penalty > 0 && !j.target.Goodput() {
		j.talk.notice("the first one misses the SLA: %s; optimization.strict_sla: true leaves such candidates out", v.top[0].missText())
	}
	return j.verdict(v)
}

// printTally says what the search cost, on standard error.
func (j *recommendJob) printTally() {
	n := j.counts()
	text := fmt.Sprintf("%d evaluated: %d feasible, %d infeasible, %d unsupported, %d failed, %d timed out; %d folded",
		n["evaluated"], n["feasible"], n["infeasible"], n["unsupported"], n["failed"], n["timed_out"], n["cache_hits"])
	if j.plan != nil {
		text += fmt.Sprintf("; %d eliminated; %d requests simulated, %.1f%% of the grid's %d", n["eliminated"], j.simulated, 100*float64(j.simulated)/float64(max(j.whole, 1)), j.whole)
		if j.plan.Settled {
			text += "; no single decision improves the answer"
		}
	}
	fmt.Fprintln(j.stderr, text)
}

// nearestShown is how many candidates are told when nothing meets the SLA.
const nearestShown = 3

// verdict is the error of a search without an answer: nothing ran, or nothing meets
// the SLA. The SLA is never relaxed.
func (j *recommendJob) verdict(v *views) error {
	if j.metSLA() && len(v.ranked) > 0 {
		return nil
	}
	near := slices.Clone(j.entries)
	near = slices.DeleteFunc(near, func(e *entry) bool { return e.metrics == nil || !e.evaluated })
	if len(near) == 0 {
		reasons := map[string]bool{}
		var list []string
		for _, e := range j.entries {
			if r := e.category + ": " + firstLine(e.reason); !reasons[r] && len(list) < nearestShown {
				reasons[r] = true
				list = append(list, r)
			}
		}
		return fmt.Errorf("no feasible candidate: none of %d ran to an end (%s)", len(j.entries), strings.Join(list, "; "))
	}
	slices.SortStableFunc(near, func(a, b *entry) int { return compareNearest(a, b) })
	text := "no candidate meets the SLA; the nearest are"
	if !j.doc.SLA.Set() {
		text = "no feasible candidate; the nearest are"
	}
	return errors.New(text + nearestText(near))
}

// nearestText lists the nearest candidates; those with the same figures on as many
// GPUs are told once.
func nearestText(near []*entry) string {
	var lines []string
	alike := map[string]int{} // line, by what is said of the figures
	counts := make([]int, nearestShown)
	for _, e := range near {
		says := fmt.Sprintf("on %d GPUs: %s", e.candidate.GPUs, e.missText())
		if at, ok := alike[says]; ok {
			counts[at]++
		} else if len(lines) < nearestShown {
			alike[says] = len(lines)
			lines = append(lines, fmt.Sprintf("%s %s (%s", e.id, says, knobText(e.candidate.Knobs)))
		}
	}
	text := ""
	for i, line := range lines {
		text += "\n  " + line
		if counts[i] > 0 {
			text += fmt.Sprintf("; and %d alike", counts[i])
		}
		text += ")"
	}
	return text
}

// knobText is decisions for people: the last part of each path, and the role.
func knobText(knobs []byte) string {
	var values map[string]json.RawMessage
	if json.Unmarshal(knobs, &values) != nil {
		return ""
	}
	var parts []string
	for _, path := range slices.Sorted(maps.Keys(values)) {
		name := path[strings.LastIndexByte(path, '.')+1:]
		for _, role := range [...]string{"prefill", "decode"} {
			if strings.Contains(path, ".workers."+role+".") {
				name = role + " " + name
			}
		}
		parts = append(parts, name+" "+strings.Trim(string(values[path]), `"`))
	}
	return strings.Join(parts, ", ")
}
