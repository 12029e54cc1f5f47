package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/results/compare"
	"github.com/dynosweep/dynosweep/results/page"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/launch"
)

func reportCommand() *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "what to deploy, what it costs, and why: tables here, and one HTML page",
		ArgsUsage: "DIR",
		Description: `Judges the points of a results directory and writes DIR/report.html.

   dynosweep report dynosweep-output/agg-workers
   dynosweep report DIR --sla ttft_ms=1000,itl_ms=50 --price h200_sxm=3.5
   dynosweep report DIR --format markdown > pull-request.md
   dynosweep report DIR --deploy manifests --point ID`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "table, csv, json or markdown, on standard output", Value: "table"},
			&cli.StringFlag{Name: "baseline", Usage: "`ID` of the point that is deployed today"},
			&cli.StringSliceFlag{Name: "sla", Usage: "judge by `LIMITS`, as ttft_ms=1000,itl_ms=50, of those that the sweep counted"},
			&cli.StringSliceFlag{Name: "price", Usage: "USD per GPU-hour, as h200_sxm=3.5 or default=2; repeatable"},
			&cli.FloatFlag{Name: "attainment", Usage: "share of requests that must meet the SLA", Value: compare.DefaultAttainment},
			&cli.StringFlag{Name: "page", Usage: "write the page to `FILE` (default DIR/report.html); none writes no page"},
			&cli.StringFlag{Name: "deploy", Usage: "write manifest and launch commands of --point into `DIR`"},
			&cli.StringFlag{Name: "point", Usage: "`ID` for --deploy (default: the point to deploy)"},
		},
		OnUsageError: usageError,
		Action:       runReport,
	}
}

func runReport(_ context.Context, c *cli.Command) error {
	if c.NArg() != 1 {
		return badInput(fmt.Errorf("report takes one results directory, got %d arguments", c.NArg()))
	}
	write, ok := reportFormats[c.String("format")]
	if !ok {
		return badInput(fmt.Errorf("--format: must be table, csv, json or markdown, got %q", c.String("format")))
	}
	opt, err := reportOptions(c)
	if err != nil {
		return badInput(err)
	}
	dir := c.Args().First()
	s, err := compare.Read(dir)
	if err != nil {
		return reportError(err)
	}
	a, err := s.Analyse(opt)
	if err != nil {
		return reportError(err)
	}
	if into := c.String("deploy"); into != "" {
		return deploy(c.Root().Writer, a, into, c.String("point"))
	}
	if c.String("point") != "" {
		return badInput(errors.New("--point needs --deploy DIR"))
	}
	where, err := writePage(c, a, dir)
	if err != nil {
		return err
	}
	return write(c.Root().Writer, a, where)
}

// reportFormats write an analysis; page says where the page lies, "" without one.
var reportFormats = map[string]func(w io.Writer, a *compare.Analysis, page string) error{
	"table": printReport, "csv": writeReportCSV, "json": writeReportJSON, "markdown": writeReportMarkdown,
}

// reportOptions reads how points are to be judged.
func reportOptions(c *cli.Command) (compare.Options, error) {
	opt := compare.Options{Attainment: c.Float("attainment"), Baseline: c.String("baseline")}
	if opt.Attainment == 0 {
		return opt, errors.New("--attainment: must be above 0 and at most 1, got 0")
	}
	for _, text := range c.StringSlice("sla") {
		key, v, err := keyValue("--sla", text)
		if err != nil {
			return opt, err
		}
		switch key {
		case "ttft_ms":
			opt.SLA.TTFTMs = v
		case "itl_ms":
			opt.SLA.ITLMs = v
		case "e2e_ms":
			opt.SLA.E2EMs = v
		default:
			return opt, fmt.Errorf("--sla: unknown limit %q: use ttft_ms and itl_ms", key)
		}
		if v <= 0 {
			return opt, fmt.Errorf("--sla: %s must be positive, got %v", key, v)
		}
	}
	for _, text := range c.StringSlice("price") {
		system, v, err := keyValue("--price", text)
		if err != nil {
			return opt, err
		}
		opt.Prices = append(opt.Prices, compare.Price{System: system, USD: v})
	}
	return opt, nil
}

// keyValue reads key=number.
func keyValue(flag, text string) (string, float64, error) {
	key, value, ok := strings.Cut(text, "=")
	v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if !ok || err != nil || !(v >= 0 && v < 1e18) {
		return "", 0, fmt.Errorf("%s: want key=number, got %q", flag, text)
	}
	return strings.TrimSpace(key), v, nil
}

// writePage writes the HTML page under a temporary name and puts it in its place.
func writePage(c *cli.Command, a *compare.Analysis, dir string) (string, error) {
	name := c.String("page")
	switch name {
	case "none":
		return "", nil
	case "":
		name = filepath.Join(dir, results.PageFile)
	}
	files := &outputs{}
	for _, t := range results.Tables() {
		files.inputs = append(files.inputs, filepath.Join(dir, t.ID.File()))
	}
	defer files.discard()
	out, err := files.create(name, c.Root().Writer)
	if err != nil {
		return "", badInput(fmt.Errorf("%w: give another --page FILE, or none", err))
	}
	in := page.Input{Analysis: a, Replay: newReplayer().Line, Invocation: invocation(c, dir)}
	if err := page.Write(out, &in); err != nil {
		return "", err
	}
	return out.path, files.commit()
}

// newReplayer renders replay commands with the built-in hardware tables.
func newReplayer() *launch.Replayer {
	return &launch.Replayer{Resolve: (&sweep.Inputs{}).Resolve}
}

// invocation is the command that makes this report again.
func invocation(c *cli.Command, dir string) string {
	args := []string{"dynosweep", "report", dir}
	for _, name := range [...]string{"sla", "price"} {
		for _, v := range c.StringSlice(name) {
			args = append(args, "--"+name, v)
		}
	}
	if v := c.String("baseline"); v != "" {
		args = append(args, "--baseline", v)
	}
	if c.IsSet("attainment") {
		args = append(args, "--attainment", strconv.FormatFloat(c.Float("attainment"), 'g', -1, 64))
	}
	return launch.ShellJoin(args)
}

// pageSize is the size of a file for people, "" if it cannot be told.
func pageSize(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (%.1f MB)", float64(st.Size())/1e6)
}
