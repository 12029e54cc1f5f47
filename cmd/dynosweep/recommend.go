package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

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

// recommendJob is what the verb works on.
type recommendJob struct {
	console
	c      *cli.Command
	dir    string
	asJSON bool
	runner candidateRunner
}

// runRecommend reads the file, searches, and writes what came of it.
func runRecommend(ctx context.Context, c *cli.Command) error {
	j := &recommendJob{c: c, console: newConsole(c), dir: c.String("output-dir"),
		runner: candidateRunner{in: &sweep.Inputs{}, jobs: c.Int("jobs"), memory: sweep.AvailableMemory() * 8 / 10}}
	if err := j.flags(); err != nil {
		return err
	}
	if optimizer, err := j.optimizerSpec(); err != nil || optimizer != nil {
		if err != nil {
			return err
		}
		return j.optimize(ctx, optimizer)
	}
	in := j.runner.in
	o := scenario.RecommendOptions{PredictOptions: scenario.PredictOptions{Stack: c.String("stack"), Set: c.StringSlice("set")},
		Resolve: in.Resolve, Experts: in.Experts, BestPredictor: in.BestPredictor}
	read := &scenario.Files{}
	doc, err := scenario.ReadRecommend(c.String("config"), o, read)
	if err != nil {
		return err
	}
	if err := spareInputs(j.dir, read.Read()); err != nil {
		return badInput(err)
	}
	for _, n := range doc.Notices {
		j.notice("%s", n)
	}
	answer, err := recommend.Run(ctx, doc, j.runner, j.searchOptions())
	if errors.Is(err, recommend.ErrSearchSpace) {
		return badInput(err)
	}
	if err != nil {
		return err
	}
	for _, n := range in.Notices() {
		j.notice("%s", n)
	}
	return j.publish(answer)
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

// searchOptions say what the search reports, and where.
func (j *recommendJob) searchOptions() recommend.Options {
	return recommend.Options{
		TopN: j.c.Int("top-n"), Stack: j.c.String("stack"), Version: version(),
		ConfigPath: func(rank int) string { return filepath.Join(j.dir, candidatesDir, fmt.Sprintf("%04d.yaml", rank+1)) },
		Progress: func(text string) {
			if !j.quiet {
				fmt.Fprintln(j.stderr, text)
			}
		},
		Evaluated: func(c *recommend.Candidate, err error) {
			var bug *sweep.PanicError
			if errors.As(err, &bug) {
				fmt.Fprintf(j.stderr, "%s: %v\n%s", c.ID, bug, bug.Stack)
			}
			j.detail("%s: %s", c.ID, strings.TrimSuffix(c.Status+" "+firstLine(c.Reason), " "))
		},
	}
}

// publish writes the files, prints the answer and says whether there is one.
func (j *recommendJob) publish(a *recommend.Answer) error {
	unwritten := j.vacate()
	if unwritten == nil {
		unwritten = j.writeFiles(a)
	}
	if j.asJSON {
		if err := j.printRecommendationsJSON(a); err != nil {
			return err
		}
	} else {
		j.printRecommendations(a)
	}
	fmt.Fprintln(j.stderr, a.Effort())
	if text := a.Missed(); text != "" {
		j.notice("the first one misses the SLA: %s; optimization.strict_sla: true leaves such candidates out", text)
	}
	if unwritten != nil {
		return unwritten
	}
	return a.Err()
}

// vacate makes room for the files: what an earlier run left is removed if the user
// allows it, and what another run wrote during the search is an error.
func (j *recommendJob) vacate() error {
	if !j.c.Bool("overwrite") {
		return checkOutputDir(j.dir, false)
	}
	return clearOutputDir(j.dir)
}

// writeFiles writes everything that a recommend leaves.
func (j *recommendJob) writeFiles(a *recommend.Answer) error {
	if len(a.Top) > 0 {
		if err := os.MkdirAll(filepath.Join(j.dir, candidatesDir), 0o755); err != nil {
			return err
		}
	}
	files := &outputs{}
	defer files.discard()
	for i, c := range a.Top {
		out, err := files.create(c.Path, nil)
		if err != nil {
			return err
		}
		if err := a.WriteConfig(out, i); err != nil {
			return err
		}
		if err := files.commit(); err != nil { // one file open at a time
			return err
		}
	}
	out, err := files.create(filepath.Join(j.dir, "recommendation.json"), nil)
	if err != nil {
		return err
	}
	if err := a.WriteJSON(out); err != nil {
		return err
	}
	if out, err = files.create(filepath.Join(j.dir, "recommendation.csv"), nil); err != nil {
		return err
	}
	if err := a.WriteCSV(out); err != nil {
		return err
	}
	return files.commit()
}

// printRecommendations prints the recommendations (spec sweeps-and-schema 3).
func (j *recommendJob) printRecommendations(a *recommend.Answer) {
	w := bufio.NewWriter(j.stdout)
	defer w.Flush()
	fmt.Fprintln(w, "AISimulate recommendations")
	for i, c := range a.Top {
		fmt.Fprintf(w, "%d", i+1)
		for k, name := range a.Target().ObjectiveNames() {
			fmt.Fprintf(w, " %s=%.4g", name, a.Target().Shown(c.Objectives[k]))
		}
		fmt.Fprintf(w, " used_gpus=%d config=%s\n", c.GPUs(), c.Path)
	}
}

func (j *recommendJob) printRecommendationsJSON(a *recommend.Answer) error {
	type row struct {
		Rank       int                `json:"rank"`
		Score      float64            `json:"score"`
		Objectives map[string]float64 `json:"objectives"`
		UsedGPUs   int                `json:"used_gpus"`
		Path       string             `json:"config_path"`
	}
	rows := []row{}
	for i, c := range a.Top {
		rows = append(rows, row{i + 1, c.Objectives[0], a.ObjectivesOf(c), c.GPUs(), c.Path})
	}
	enc := json.NewEncoder(j.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}
