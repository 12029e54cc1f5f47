package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/calibrate"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

func calibrateCommand() *cli.Command {
	return &cli.Command{
		Name:      "calibrate",
		Usage:     "fit the timing of a deployment to benchmark runs of your own",
		ArgsUsage: "SPEC",
		Description: `SPEC is a sweep specification or an AISimulate file of one deployment; several tensor
sizes are allowed, and the workload may be missing. Each --measured names one file: an AIPerf
profile_export.jsonl, the JSON of vllm bench serve, the JSONL of SGLang's bench_serving, two
scrapes of Prometheus text, or CSV with isl,osl,concurrency,mean_ttft_ms,mean_tpot_ms. After
the name may stand @tp=N, @concurrency=N, @lengths=LOW..HIGH and @after=FILE.

Writes DIR/timing.yaml, the block for a sweep, and DIR/calibration.json. Exits with 1 if runs
that were left out of the fit did not come nearer.

   dynosweep calibrate deployment.yaml --measured runs.csv --out calibrated
   dynosweep calibrate deployment.yaml --measured a/profile_export.jsonl --measured b.json@tp=4 --assert 'loo_tpot_mape<5'`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "measured", Usage: "`FILE` of a measured run; may be given several times", Required: true},
			&cli.StringFlag{Name: "out", Usage: "`DIR` for timing.yaml and calibration.json", Value: "calibrated"},
			&cli.BoolFlag{Name: "host", Usage: "fit pass_ms and sequence_ms too"},
			&cli.BoolFlag{Name: "steady", Usage: "leave out the start and the end of closed loops, measured and simulated"},
			&cli.IntFlag{Name: "kv-tokens", Usage: "KV cache of a rank in tokens, from the engine's start-up log; default: the specification's"},
			&cli.BoolFlag{Name: "force", Usage: "fit although a check speaks against the measurements"},
			&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "simulations at once", Value: runtime.GOMAXPROCS(0)},
			&cli.StringSliceFlag{Name: "assert", Usage: "exit with 1 unless a figure meets `BOUND`, as loo_tpot_mape<5"},
		},
		Action: runCalibrate,
	}
}

func runCalibrate(ctx context.Context, c *cli.Command) error {
	out := newConsole(c)
	fit, err := readCalibration(c)
	if err != nil {
		return err
	}
	asserts, err := assertions(c.StringSlice("assert"), calibrate.FigureNames()...)
	if err != nil {
		return badInput(err)
	}
	for _, n := range sweep.SliceNotices(fit.Deployments) {
		out.notice("%s", n)
	}
	simulated := 0
	fit.Simulate = calibrate.Simulator(&sweep.Inputs{}, max(c.Int("jobs"), 1), 0, func(cases int) {
		simulated += cases
		if !out.quiet {
			fmt.Fprintf(out.stderr, "%d simulations of %d runs\n", simulated, len(fit.Runs))
		}
	})
	result, err := fit.Fit(ctx, c.Bool("force"))
	if result != nil {
		for _, check := range result.Checks {
			if err == nil || !check.Refuses {
				out.notice("%s", calibrationNotice(check))
			}
		}
	}
	var refused *calibrate.RefusedError
	if errors.As(err, &refused) || err != nil && ctx.Err() == nil {
		return badInput(err)
	} else if err != nil {
		return err
	}
	if err := printCalibration(out.stdout, result); err != nil {
		return err
	}
	if err := writeCalibration(out.stdout, c.String("out"), fit, result); err != nil {
		return err
	}
	var errs []error
	for _, a := range asserts {
		if err := a.Check(result.Figure); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func calibrationNotice(c calibrate.Check) string {
	if c.Run == "" {
		return c.Message
	}
	return c.Run + ": " + c.Message
}

// readCalibration reads the deployment and the measured runs.
func readCalibration(c *cli.Command) (*calibrate.Calibration, error) {
	if c.NArg() != 1 {
		return nil, badInput(fmt.Errorf("%s takes one SPEC, got %d", c.FullName(), c.NArg()))
	}
	fit := &calibrate.Calibration{Host: c.Bool("host"), Steady: c.Bool("steady")}
	files := &scenario.Files{}
	var err error
	if fit.Deployments, err = scenario.ReadDeployments(c.Args().First(), files); err != nil {
		return nil, err
	}
	for i, d := range fit.Deployments {
		if !d.Decode.Timing.Corrections.None() || d.Prefill != nil && !d.Prefill.Timing.Corrections.None() {
			return nil, badInput(fmt.Errorf("%s: timing.corrections: leave them out, they are what is fitted", c.Args().First()))
		}
		if n := c.Int("kv-tokens"); n > 0 {
			fit.Deployments[i] = d.WithKVTokens(n)
		}
	}
	if c.Int("kv-tokens") < 0 {
		return nil, badInput(errors.New("--kv-tokens: must be positive"))
	}
	for _, text := range c.StringSlice("measured") {
		source, err := calibrate.ParseSource(text)
		if err != nil {
			return nil, badInput(fmt.Errorf("--measured: %w", err))
		}
		runs, err := calibrate.ReadRuns(source, func(path string) ([]byte, error) { return files.Document("--measured", path) })
		if err != nil {
			return nil, err
		}
		fit.Runs = append(fit.Runs, runs...)
	}
	return fit, nil
}

// writeCalibration writes the files of a calibration; without gain there is no block.
func writeCalibration(w io.Writer, dir string, fit *calibrate.Calibration, result *calibrate.Result) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return badInput(err)
	}
	text := fit.Document(result)
	if err := os.WriteFile(filepath.Join(dir, "calibration.json"), text, 0o666); err != nil {
		return err
	}
	block := filepath.Join(dir, "timing.yaml")
	if !result.Better() {
		if err := os.Remove(block); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return errors.New("TPOT of runs that were left out of the fit did not come nearer: no corrections were written")
	}
	if err := os.WriteFile(block, fit.TimingBlock(result, text), 0o666); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Corrections for timing: %s\n", block)
	return err
}

// printCalibration prints runs, errors and parameters.
func printCalibration(w io.Writer, r *calibrate.Result) error {
	b := bufio.NewWriter(w)
	columns := []fitted{{head: "metric", left: true}, {head: "measured"}, {head: "before"}, {head: "after"}, {head: "left out"}, {head: "run", left: true}}
	for i := range r.Runs {
		k := &r.Runs[i]
		for j, cell := range []string{k.Metric, shortFigure(k.Measured), shortFigure(k.Before), shortFigure(k.After), shortFigure(k.LeftOut), k.Run} {
			columns[j].cells = append(columns[j].cells, cell)
		}
	}
	if err := printFitted(b, widthOf(w), 20, columns); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n  %-13s %-26s %-26s %s\n", "", "before", "after", "runs left out of the fit")
	for _, e := range r.Errors {
		fmt.Fprintf(b, "  %-13s %-26s %-26s %s\n", e.Metric, errorText(e.Before), errorText(e.After), errorText(e.LeftOut))
	}
	fmt.Fprintln(b)
	for _, p := range r.Parameters {
		fmt.Fprintf(b, "  %-13s %8.4g   95%% %.4g to %.4g\n", p.Name, p.Value, p.Low, p.High)
	}
	for _, c := range r.Correlations {
		fmt.Fprintf(b, "  %s and %s: only their combination is known (correlation %.2f)\n", c.A, c.B, c.Value)
	}
	return b.Flush()
}

func shortFigure(v float64) string { return fmt.Sprintf("%.4g", v) }

func errorText(e calibrate.Errors) string {
	if e.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%% (bias %+.1f%%)", e.MAPE, e.Bias)
}
