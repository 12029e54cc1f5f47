package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// outputs are the files of one run. They are written under temporary names and
// take their place when the run is done, so that a failed run leaves nothing.
type outputs struct {
	open   []*output
	inputs []string // files that the run reads: no output may replace one
	jsonl  *output  // per-request records
	ticks  *output  // Planner ticks
	// before is called when the run is done, before its files take their place; echo
	// prints the report itself in place of the table; perRequest puts kept records into
	// the report, as predict does.
	before           func() error
	echo, perRequest bool
}

// output is one file, or standard output (path "").
type output struct {
	*bufio.Writer
	path  string
	file  *os.File
	claim claim
}

// claim is what an output does about a file that stands at its path when it takes its
// place.
type claim uint8

const (
	replace    claim = iota // the user named the file
	takeNumber              // the name is a default: a free one beside it, NAME_2
	refuse                  // the place was vacant when the run began: an error
)

// take makes the path the output's own, so that the rename which follows replaces no
// file of another run.
func (o *output) take() error {
	if o.claim == replace {
		return nil
	}
	ext := filepath.Ext(o.path)
	stem := strings.TrimSuffix(o.path, ext)
	for n := 2; ; n++ {
		f, err := os.OpenFile(o.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		switch {
		case err == nil:
			return f.Close()
		case !errors.Is(err, os.ErrExist):
			return err
		case o.claim == refuse:
			return fmt.Errorf("%s: another run wrote this file meanwhile: choose another place, or --overwrite", o.path)
		}
		o.path = fmt.Sprintf("%s_%d%s", stem, n, ext)
	}
}

// create opens path; "-" is stdout. Missing parent directories are made. No two
// outputs may go to one file, or both to stdout.
func (o *outputs) create(path string, stdout io.Writer) (*output, error) {
	if path == "-" {
		if slices.ContainsFunc(o.open, func(out *output) bool { return out.path == "" }) {
			return nil, errors.New("two outputs go to standard output: give one of them a file")
		}
		out := &output{Writer: bufio.NewWriter(stdout)}
		o.open = append(o.open, out)
		return out, nil
	}
	path = filepath.Clean(path)
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSymlink != 0 {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real // a link stays one
		}
	}
	if o.reads(path) {
		return nil, fmt.Errorf("%s: the run reads this file: write to another", path)
	}
	if dir := filepath.Dir(path); dir != "." {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // a device or pipe is written as it is
		if err != nil {
			return nil, err
		}
		out := &output{Writer: bufio.NewWriter(f), path: path, file: f}
		o.open = append(o.open, out)
		return out, nil
	}
	if slices.ContainsFunc(o.open, func(out *output) bool { return out.path == path }) {
		return nil, fmt.Errorf("%s: two outputs go to this file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return nil, err
	}
	out := &output{Writer: bufio.NewWriterSize(f, 1<<16), path: path, file: f}
	o.open = append(o.open, out)
	return out, nil
}

// reads reports that path is one of the inputs.
func (o *outputs) reads(path string) bool {
	st, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(o.inputs, func(input string) bool {
		in, err := os.Stat(input)
		return err == nil && os.SameFile(in, st)
	})
}

// commit puts every file in its place.
func (o *outputs) commit() error {
	if o.before != nil {
		if err := o.before(); err != nil {
			return err
		}
	}
	for _, out := range o.open {
		if err := out.Flush(); err != nil {
			return err
		}
		if out.file == nil {
			continue
		}
		if err := out.file.Close(); err != nil {
			return err
		}
		if out.file.Name() != out.path {
			if err := out.take(); err != nil {
				return err
			}
			if err := os.Rename(out.file.Name(), out.path); err != nil {
				return err
			}
		}
	}
	o.open = nil
	return nil
}

// discard drops what was not committed.
func (o *outputs) discard() {
	for _, out := range o.open {
		if out.file != nil && out.file.Name() != out.path {
			out.file.Close()
			os.Remove(out.file.Name())
		}
	}
}

// observe opens the streams that a run writes while it goes on.
func (o *outputs) observe(c *cli.Command, run *scenario.Run, w *sweep.RunOptions) error {
	stdout := c.Root().Writer
	if path := c.String("report-jsonl"); path != "" {
		out, err := o.create(path, stdout)
		if err != nil {
			return badInput(err)
		}
		o.jsonl = out
	}
	if path := c.String("ticks-jsonl"); path != "" {
		if run.Planner == nil {
			return badInput(errors.New("--ticks-jsonl needs --planner-config"))
		}
		out, err := o.create(path, stdout)
		if err != nil {
			return badInput(err)
		}
		o.ticks = out
	}
	if path := c.String("telemetry-jsonl"); path != "" {
		if err := o.telemetry(path, stdout, run, w); err != nil {
			return badInput(err)
		}
	} else if c.IsSet("telemetry-interval-ms") {
		return badInput(errors.New("--telemetry-interval-ms needs --telemetry-jsonl FILE"))
	}
	if path := c.String("kv-events-jsonl"); path != "" {
		out, err := o.create(path, stdout)
		if err != nil {
			return badInput(err)
		}
		w.Observers.KVEvents = kvEventWriter(out)
	}
	return nil
}

const defaultTelemetryMs = 1000

// telemetry streams samples to path, every second of simulated time unless the run
// says otherwise.
func (o *outputs) telemetry(path string, stdout io.Writer, run *scenario.Run, w *sweep.RunOptions) error {
	out, err := o.create(path, stdout)
	if err != nil {
		return err
	}
	if run.TelemetryMs == 0 {
		run.TelemetryMs = defaultTelemetryMs
	}
	var line []byte
	w.Telemetry = func(s *metrics.Sample) error {
		line = append(s.AppendJSON(line[:0]), '\n')
		_, err := out.Write(line)
		return err
	}
	return nil
}

// records writes the per-request records, if they were asked for.
func (o *outputs) records(out *sweep.Outcome) error {
	if o.jsonl == nil {
		return nil
	}
	return metrics.WriteRecords(o.jsonl, out.Result.Collector.Records())
}
