package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:      "replay",
		Usage:     "simulate one configuration and print its report",
		ArgsUsage: "[TRACE...]",
		Description: `Runs a trace, or synthetic load, against one deployment. Takes the flags of the
reference's replay command.

   dynosweep replay --input-tokens 2048 --output-tokens 128 --request-count 100 --replay-concurrency 16
   dynosweep replay configs/traces/conversation.jsonl.gz --num-workers 4 --extra-engine-args '{"block_size":64}'
   dynosweep replay trace.jsonl --assert 'mean_ttft_ms<500' --report-json -`,
		Flags:         replayFlags(),
		OnUsageError:  usageError,
		ShellComplete: completeReplay,
		Action:        replay,
	}
}

// completeReplay suggests the values of a flag that has a fixed set of them, else the
// flags.
func completeReplay(ctx context.Context, c *cli.Command) {
	if args := c.Args().Slice(); len(args) > 0 && args[len(args)-1] == "--router-mode" {
		for _, name := range scenario.RouterModeNames() {
			fmt.Fprintln(c.Root().Writer, name)
		}
		return
	}
	cli.DefaultCompleteWithFlags(ctx, c)
}

// replay reads the flags, runs the configuration and prints what came of it.
func replay(ctx context.Context, c *cli.Command) error {
	flags := readReplayFlags(c)
	read := &scenario.Files{}
	run, err := flags.Resolve(read)
	if err != nil {
		return err
	}
	asserts, err := assertions(c.StringSlice("assert"), plannerGPUHours)
	if err != nil {
		return badInput(err)
	}
	out := newConsole(c)
	for _, n := range append(flags.Ineffective(&run), run.Notices()...) {
		out.notice("%s", n)
	}
	files := &outputs{inputs: read.Read()}
	defer files.discard()
	w := sweep.RunOptions{Capture: c.String("report-jsonl") != ""}
	if err := files.observe(c, &run, &w); err != nil {
		return err
	}
	path, claim := reportPath(c.String("report-json"), time.Now())
	r := reporting{out, files, w, path, claim}
	outcome, err := r.run(ctx, &sweep.Inputs{}, &run)
	if err != nil {
		return err
	}
	return verdict(c, outcome, asserts)
}

// assertions reads bounds on figures: report keys and more.
func assertions(texts []string, more ...string) ([]metrics.Assertion, error) {
	var out []metrics.Assertion
	for _, t := range texts {
		a, err := metrics.ParseAssertion(t, more...)
		if err != nil {
			return nil, fmt.Errorf("--assert: %w", err)
		}
		out = append(out, a)
	}
	return out, nil
}

// reporting is how one configuration is run for its report.
type reporting struct {
	out   console
	files *outputs
	watch sweep.RunOptions
	path  string // of the report; - is standard output
	claim claim  // of that path
}

// run runs the configuration, writes the files that were asked for and prints the
// table. Output files open before the run, so that a bad path costs no simulation;
// none appears if the run fails.
func (r *reporting) run(ctx context.Context, in *sweep.Inputs, run *scenario.Run) (*sweep.Outcome, error) {
	report, err := r.files.create(r.path, r.out.stdout)
	if err != nil {
		return nil, badInput(err)
	}
	report.claim = r.claim
	ticks := tickLog{sink: r.files.ticks}
	if run.Planner != nil {
		ticks.watch(&r.watch.Observers)
	}
	for _, d := range run.Provenance() {
		r.out.detail("default %s = %v (%s)", d.Key, d.Value, d.Source)
	}
	out, err := sweep.Execute(ctx, in, run, r.watch)
	if err != nil {
		return nil, err
	}
	for _, n := range in.Notices() {
		r.out.notice("%s", n)
	}
	if err := r.files.records(out); err != nil {
		return nil, err
	}
	write := r.document(run, out, &ticks)
	if err := write(report); err != nil {
		return nil, err
	}
	if err := r.files.commit(); err != nil {
		return nil, err
	}
	switch {
	case r.files.echo:
		return out, write(r.out.stdout)
	case report.path == "": // the report has standard output for itself
		return out, printOutcome(r.out.stderr, run, out, "")
	}
	return out, printOutcome(r.out.stdout, run, out, report.path)
}

// document is a writer of the report.
func (r *reporting) document(run *scenario.Run, out *sweep.Outcome, ticks *tickLog) func(io.Writer) error {
	doc := metrics.Report{Summary: out.Summary, Provenance: provenance(run, out)}
	if run.Planner != nil {
		doc.Planner = ticks.block(out)
		if cut := ticks.cut(out.Result.Ticks); cut != "" {
			r.out.notice("%s", cut)
		}
	}
	if list := perRequest(out); r.files.perRequest && len(list) > 0 {
		doc.PerRequest = list
	}
	return doc.WriteJSON
}

// figures is what assertions of one run may ask.
func figures(out *sweep.Outcome) func(string) (float64, bool) {
	return func(name string) (float64, bool) {
		if name == plannerGPUHours {
			if out.Policy == nil {
				return 0, false
			}
			return out.Policy.GPUHours()
		}
		return out.Summary.Get(name)
	}
}

// plannerGPUHours is the one figure of a run that is no key of its summary.
const plannerGPUHours = "planner_gpu_hours"

// verdict checks what the user demanded of the figures.
func verdict(c *cli.Command, out *sweep.Outcome, asserts []metrics.Assertion) error {
	var errs []error
	for _, a := range asserts {
		if err := a.Check(figures(out)); err != nil {
			errs = append(errs, err)
		}
	}
	if c.Bool("require-complete") && out.Summary.Completed != out.Summary.Requests {
		errs = append(errs, fmt.Errorf("--require-complete: %d of %d requests completed", out.Summary.Completed, out.Summary.Requests))
	}
	return errors.Join(errs...)
}

// printOutcome prints the table, what became of every request, and where the
// report lies.
func printOutcome(w io.Writer, run *scenario.Run, out *sweep.Outcome, path string) error {
	b := bufio.NewWriter(w)
	if run.Planner != nil {
		printScaling(b, out.Result.ScalingEvents)
	}
	if err := metrics.WriteTable(b, out.Summary); err != nil {
		return err
	}
	if err := metrics.WriteOutcomes(b, out.Summary); err != nil {
		return err
	}
	for _, o := range out.Outside {
		if o.Share() > outsideWarning {
			fmt.Fprintf(b, "warning: %.1f%% of the %s passes were priced outside the measured grid (farthest 2^%.1f, %s)\n",
				100*o.Share(), o.Role, o.Doublings, o.Op)
		}
	}
	if path != "" {
		fmt.Fprintf(b, "Saved full report to: %s\n", path)
	}
	if run.Planner != nil {
		fmt.Fprintf(b, "Planner ticks: %d\n", out.Result.Ticks)
	}
	return b.Flush()
}

// outsideWarning is the share of passes outside the measured grid above which the
// terminal warns.
const outsideWarning = 0.01

func printScaling(w io.Writer, events []sim.ScalingEvent) {
	fmt.Fprintln(w, "Scaling events:")
	for _, e := range events {
		fmt.Fprintf(w, "  t=%.1fs [%s]: %d -> %d workers (%s)\n", e.AtS, e.Component, e.From, e.To, e.Reason)
	}
}

// reportPath is where the report goes: without a path into the working directory,
// a directory gets the default name inside. A default name replaces no file.
func reportPath(path string, now time.Time) (string, claim) {
	name := "dynosweep_replay_report_" + now.Format("20060102_150405") + ".json"
	if path == "" {
		return name, takeNumber
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return filepath.Join(path, name), takeNumber
	}
	return path, replace
}
