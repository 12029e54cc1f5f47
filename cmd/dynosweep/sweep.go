package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/fleet"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

func sweepCommand() *cli.Command {
	return &cli.Command{
		Name:      "sweep",
		Usage:     "run a grid of configurations; results in Parquet, resumable",
		ArgsUsage: "SPEC",
		Description: `Runs every point of a sweep specification and writes points.parquet. Run the same
command again to continue after an interruption.

   dynosweep sweep configs/agg-workers.yaml
   dynosweep sweep configs/agg-workers.yaml --dry-run
   dynosweep sweep configs/agg-workers.yaml --jobs 8 --assert 'mean_ttft_ms<2000'`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "results `DIR` (default dynosweep-output/NAME)"},
			&cli.IntFlag{Name: "jobs", Usage: "points at a time", Value: runtime.GOMAXPROCS(0)},
			&cli.BoolFlag{Name: "dry-run", Usage: "open every trace and profile, print axes, points, GPUs and what is skipped; run nothing"},
			&cli.BoolFlag{Name: "list", Usage: "with --dry-run: print every point"},
			&cli.IntFlag{Name: "limit", Usage: "run at most `N` points now; 0 is all of them"},
			&cli.StringFlag{Name: "point", Usage: "run the point `ID` again with full capture, into DIR/point-ID"},
			&cli.BoolFlag{Name: "retry-failed", Usage: "run points again that failed"},
			&cli.BoolFlag{Name: "status", Usage: "print how far the results are; run nothing"},
			&cli.BoolFlag{Name: "capture-requests", Usage: "write requests.parquet, one row per request"},
			&cli.DurationFlag{Name: "point-timeout", Usage: "fail a point that takes longer, as 10m"},
			&cli.StringSliceFlag{Name: "assert", Usage: "exit 1 unless every finished point holds, as 'mean_ttft_ms<500'; repeatable"},
			&cli.StringFlag{Name: "on", Usage: "let runners compute the points (dynosweep join): embed, or embed://`HOST:PORT` for other machines"},
			&cli.DurationFlag{Name: "ack-wait", Usage: "with --on: work of a runner silent so long goes to another", Value: 30 * time.Second},
			&cli.BoolFlag{Name: "require-complete", Usage: "exit 1 unless every request of every point completed"},
		},
		OnUsageError: usageError,
		Action:       runSweep,
	}
}

// sweepJob is what the verb works on.
type sweepJob struct {
	c    *cli.Command
	grid *scenario.Grid
	in   sweep.Inputs
	dir  string
	console
}

func runSweep(ctx context.Context, c *cli.Command) error {
	j := &sweepJob{c: c, console: newConsole(c)}
	if err := j.read(); err != nil {
		return err
	}
	for _, n := range j.grid.Notices {
		j.notice("%s", n)
	}
	asserts, err := assertions(c.StringSlice("assert"), results.NumericColumns()...)
	if err != nil {
		return badInput(err)
	}
	if c.Bool("status") {
		return j.status()
	}
	if err := j.in.Preload(j.grid); err != nil {
		return err
	}
	for _, n := range j.in.Notices() {
		j.notice("%s", n)
	}
	if c.Bool("dry-run") {
		for _, n := range sweep.SliceNotices(runnable(j.grid)) {
			j.notice("%s", n)
		}
		return dryRun(j.stdout, j.grid, c.Bool("list"))
	}
	if c.IsSet("point") {
		return j.onePoint(ctx, c.String("point"))
	}
	tally, err := j.run(ctx)
	if err != nil {
		return err
	}
	return j.finish(tally, asserts)
}

// read checks the command line and expands the specification.
func (j *sweepJob) read() error {
	if j.c.NArg() != 1 {
		return badInput(fmt.Errorf("sweep takes one specification file, got %d arguments", j.c.NArg()))
	}
	if n := j.c.Int("jobs"); n < 1 {
		return badInput(fmt.Errorf("--jobs: must be at least 1, got %d", n))
	}
	if n := j.c.Int("limit"); n < 0 {
		return badInput(fmt.Errorf("--limit: must not be negative, got %d", n))
	}
	if d := j.c.Duration("point-timeout"); d < 0 {
		return badInput(fmt.Errorf("--point-timeout: must not be negative, got %s", d))
	}
	if err := errors.Join(j.checkFleet(), j.checkModes()); err != nil {
		return badInput(err)
	}
	path := j.c.Args().First()
	var err error
	if j.grid, err = scenario.ReadSweep(path, &scenario.Files{}); err != nil {
		return err
	}
	if j.dir = j.c.String("out"); j.dir == "" {
		j.dir = filepath.Join("dynosweep-output", j.grid.Name)
	}
	return nil
}

// checkModes refuses flags of a run beside one that asks for something else: a check
// that is not made must not look as if it held.
func (j *sweepJob) checkModes() error {
	mode := ""
	for _, name := range [...]string{"dry-run", "status", "point"} {
		switch {
		case !j.c.IsSet(name):
		case mode != "":
			return fmt.Errorf("--%s and --%s exclude each other", mode, name)
		default:
			mode = name
		}
	}
	if j.c.Bool("list") && !j.c.Bool("dry-run") {
		return errors.New("--list has an effect only with --dry-run")
	}
	if mode != "status" && mode != "point" {
		return nil
	}
	for _, name := range [...]string{"assert", "require-complete", "limit", "retry-failed", "point-timeout"} {
		if j.c.IsSet(name) {
			return fmt.Errorf("--%s has no effect with --%s: leave one of them out", name, mode)
		}
	}
	return nil
}

func (j *sweepJob) run(ctx context.Context) (sweep.Tally, error) {
	bar := newProgress(j.console, time.Now)
	tally, err := sweep.Run(ctx, j.grid, &j.in, sweep.Options{
		Dir: j.dir, Spec: j.grid.Text, Version: version(), Jobs: j.c.Int("jobs"), Limit: j.c.Int("limit"),
		RetryFailed: j.c.Bool("retry-failed"), Capture: j.c.Bool("capture-requests"), PointTimeout: j.c.Duration("point-timeout"),
		MemoryBytes: sweep.AvailableMemory() * 8 / 10, Now: time.Now, Progress: bar.update, Fleet: j.fleet(),
	})
	bar.finish()
	if err == nil && tally.Open() == 0 { // a submitter that was killed at its end left it
		err = os.RemoveAll(filepath.Join(j.dir, fleetFolder))
	}
	switch {
	case errors.Is(err, context.Canceled):
		text := fmt.Sprintf("interrupted: %d of %d points are finished in %s; run the same command again to continue",
			tally.Done+tally.Failed, tally.Total-tally.Skipped, j.dir)
		if err != context.Canceled { // something else went wrong too
			text += "\n" + err.Error()
		}
		return tally, &interrupted{text}
	case isUserFixable(err):
		return tally, badInput(err)
	}
	return tally, err
}

// isUserFixable reports whether the user can help the error by choosing another results
// directory or by repairing this one.
func isUserFixable(err error) bool {
	return errors.Is(err, results.ErrForeignResults) || errors.Is(err, results.ErrLocked) ||
		errors.Is(err, results.ErrDamaged) || errors.Is(err, results.ErrUnusable) || errors.Is(err, fleet.ErrInput)
}

// finish prints the table and says what became of the sweep.
func (j *sweepJob) finish(t sweep.Tally, asserts []metrics.Assertion) error {
	frame, err := results.ReadPoints(j.dir)
	if err != nil {
		return err
	}
	if err := printPoints(j.stdout, frame, j.grid); err != nil {
		return err
	}
	printSkipped(j.stdout, j.grid)
	if t.Uncaptured > 0 {
		j.notice("--capture-requests: %d points had finished without it, and %s has no rows of them: take another --out, or --point ID for one", t.Uncaptured, results.Requests.File())
	}
	fmt.Fprintf(j.stdout, "%d done, %d failed, %d skipped, %d open of %d points; results in %s\n",
		t.Done, t.Failed, t.Skipped, t.Open(), t.Total, j.dir)
	errs := checkPoints(frame, asserts, j.c.Bool("require-complete"))
	if t.Failed > 0 {
		errs = append(errs, fmt.Errorf("%d points failed; their reasons are in %s; --retry-failed runs them again", t.Failed, filepath.Join(j.dir, results.Points.File())))
	}
	return errors.Join(errs...)
}

func (j *sweepJob) status() error {
	m, finished, err := results.Inspect(j.dir)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(j.stdout, "%s: nothing has run yet; %d points\n", j.dir, len(j.grid.Points))
		return nil
	}
	if isUserFixable(err) {
		return badInput(err)
	}
	if err != nil {
		return err
	}
	if m.SpecDigest != j.grid.Digest {
		return badInput(fmt.Errorf("%s belongs to specification %s (%s), not to %s (%s)", j.dir, m.SpecDigest, m.Name, j.grid.Digest, j.grid.Name))
	}
	var t sweep.Tally
	ended := map[string]results.Finished{}
	for _, f := range finished {
		ended[f.Key.String()] = f
	}
	for i := range j.grid.Points {
		p := &j.grid.Points[i]
		f, ok := ended[sweep.Key(p).String()]
		t.Total++
		switch {
		case p.Skip != "":
			t.Skipped++
		case ok && f.Status == results.Done:
			t.Done++
		case ok:
			t.Failed++
			fmt.Fprintf(j.stdout, "failed %s: %s\n", f.Key, firstLine(f.Reason))
		}
	}
	fmt.Fprintf(j.stdout, "%d done, %d failed, %d skipped, %d open of %d points in %s\n", t.Done, t.Failed, t.Skipped, t.Open(), t.Total, j.dir)
	return nil
}

// onePoint runs one point again and writes everything there is to see of it.
func (j *sweepJob) onePoint(ctx context.Context, id string) error {
	points, err := j.named(id)
	if err != nil {
		return badInput(err)
	}
	for _, p := range points {
		if p.Skip != "" {
			return fmt.Errorf("point %s is skipped: %s", p.ID, p.Skip)
		}
		if err := j.capture(ctx, p); err != nil {
			return fmt.Errorf("point %s: %w", sweep.Key(p), err)
		}
	}
	return nil
}

// named are the seeds of the point with that id or beginning of one, or the seed alone
// that is named with it.
func (j *sweepJob) named(id string) (out []*scenario.Point, err error) {
	ids := map[string]bool{}
	for i := range j.grid.Points {
		p := &j.grid.Points[i]
		if sweep.Key(p).String() == id {
			return []*scenario.Point{p}, nil
		}
		if id != "" && strings.HasPrefix(p.ID, id) {
			out = append(out, p)
			ids[p.ID] = true
		}
	}
	switch len(ids) {
	case 0:
		return nil, fmt.Errorf("--point: the specification has no point %q; see the point_id column of points.parquet", id)
	case 1:
		return out, nil
	}
	return nil, fmt.Errorf("--point: %q begins the id of %d points: give more of it", id, len(ids))
}

func (j *sweepJob) capture(ctx context.Context, p *scenario.Point) error {
	dir := results.PointDir(j.dir, sweep.Key(p))
	files := &outputs{}
	defer files.discard()
	run := p.Run
	w := sweep.RunOptions{Capture: true}
	var err error
	if files.jsonl, err = files.create(filepath.Join(dir, "requests.jsonl"), j.stdout); err != nil {
		return err
	}
	if err := files.telemetry(filepath.Join(dir, "telemetry.jsonl"), j.stdout, &run, &w); err != nil {
		return err
	}
	if run.Planner != nil {
		if files.ticks, err = files.create(filepath.Join(dir, "ticks.jsonl"), j.stdout); err != nil {
			return err
		}
	}
	r := reporting{j.console, files, w, filepath.Join(dir, "report.json"), replace}
	_, err = r.run(ctx, &j.in, &run)
	return err
}
