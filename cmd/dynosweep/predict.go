package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

func predictCommand() *cli.Command {
	return &cli.Command{
		Name:  "predict",
		Usage: "run one AISimulate configuration",
		Description: `   dynosweep predict -c prediction.yaml
   dynosweep predict -c prediction.yaml --set traffic.load.concurrency=32 --format json`,
		Flags:        append(aisimulateFlags(), &cli.BoolFlag{Name: "capture-per-request", Usage: "write requests.jsonl too"}),
		OnUsageError: usageError,
		Action:       predict,

		DisableSliceFlagSeparator: true, // a value of --set may hold commas
	}
}

// aisimulateFlags are shared by predict and recommend (spec sweeps-and-schema 1).
func aisimulateFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Aliases: []string{"c"}, Usage: "the YAML `FILE`"},
		&cli.StringFlag{Name: "stack", Usage: "engine, or dynamo with router and planner sections", Value: "engine"},
		&cli.StringSliceFlag{Name: "set", Usage: "override as `PATH=VALUE`; repeatable, the last wins"},
		&cli.StringFlag{Name: "output-dir", Usage: "where files go", Value: "./aisimulate-output"},
		&cli.BoolFlag{Name: "overwrite", Usage: "permit a directory that is not empty; removes the files of an earlier run"},
		&cli.StringFlag{Name: "format", Usage: "table or json on standard output", Value: "table"},
	}
}

// aisimulateFormat checks --format and --config.
func aisimulateFormat(c *cli.Command) (asJSON bool, err error) {
	if c.String("config") == "" {
		return false, badInput(errors.New("-c FILE is required"))
	}
	if c.NArg() > 0 {
		return false, badInput(fmt.Errorf("unexpected argument %q", c.Args().First()))
	}
	switch f := c.String("format"); f {
	case "table", "json":
		return f == "json", nil
	default:
		return false, badInput(fmt.Errorf("--format must be table or json, got %q", f))
	}
}

// perRequest lists the records of a run that kept them, in order of arrival.
func perRequest(out *sweep.Outcome) (list []json.RawMessage) {
	records := out.Result.Collector.Records()
	slices.SortFunc(records, metrics.CompareRecords)
	for i := range records {
		list = append(list, records[i].AppendJSON(nil))
	}
	return list
}

func predict(ctx context.Context, c *cli.Command) error {
	asJSON, err := aisimulateFormat(c)
	if err != nil {
		return err
	}
	read := &scenario.Files{}
	run, err := scenario.ReadPredict(c.String("config"), scenario.PredictOptions{Stack: c.String("stack"), Set: c.StringSlice("set")}, read)
	if err != nil {
		return err
	}
	dir := c.String("output-dir")
	if err := errors.Join(checkOutputDir(dir, c.Bool("overwrite")), spareInputs(dir, read.Read())); err != nil {
		return badInput(err)
	}
	out := newConsole(c)
	for _, n := range run.Notices() {
		out.notice("%s", n)
	}
	files := &outputs{inputs: read.Read()}
	defer files.discard()
	w := sweep.RunOptions{Capture: c.Bool("capture-per-request")}
	if w.Capture {
		if files.jsonl, err = files.create(filepath.Join(dir, "requests.jsonl"), out.stdout); err != nil {
			return err
		}
	}
	files.echo, files.perRequest = asJSON, true
	r := reporting{out, files, w, filepath.Join(dir, "prediction.json"), refuse}
	if c.Bool("overwrite") {
		r.claim = replace
		files.before = func() error { return clearOutputDir(dir) }
	} else if files.jsonl != nil {
		files.jsonl.claim = refuse
	}
	_, err = r.run(ctx, &sweep.Inputs{}, &run)
	return err
}
