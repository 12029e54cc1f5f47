package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// The resolved configuration of every recorded command line reads back into a run with
// the same text, identity and simulation.
func TestGoldenConfigurationsReadBack(t *testing.T) {
	files, err := filepath.Glob("testdata/goldens/*/*.json.gz")
	if err != nil || len(files) < 130 {
		t.Fatalf("%d recorded cases: %v", len(files), err)
	}
	answer := func(q scenario.TimingQuery) (scenario.TimingAnswer, error) {
		text, err := json.Marshal(q)
		return scenario.TimingAnswer{Model: timing.Fixed{Prefill: float64(len(text))}, Blocks: len(text), BytesPerToken: len(text)}, err
	}
	read := 0
	for _, f := range files {
		var g golden
		if err := json.Unmarshal(unzip(t, f), &g); err != nil {
			t.Fatal(err)
		}
		inputs := &scenario.Files{}
		run, err := resolveArgs(t, inputs, g.Args)
		if err != nil {
			continue // a case that the reference refuses
		}
		text := run.ResolvedJSON()
		again, err := scenario.ParseResolved(text, inputs)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		if got := again.ResolvedJSON(); !bytes.Equal(got, text) || again.ID() != run.ID() {
			t.Errorf("%s:\n got %s %s\nwant %s %s", f, again.ID(), got, run.ID(), text)
		}
		a, err := run.Config(nil, answer)
		if err != nil {
			t.Fatal(err)
		}
		b, err := again.Config(nil, answer)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: sim.Config\n got %+v\nwant %+v", f, b, a)
		}
		read++
	}
	if read < 120 {
		t.Errorf("only %d configurations", read)
	}
}

// resolveArgs is the run of recorded arguments of replay.
func resolveArgs(t *testing.T, files *scenario.Files, recorded []string) (scenario.Run, error) {
	t.Helper()
	args := []string{"replay"}
	for _, a := range recorded {
		args = append(args, local(t, a))
	}
	var run scenario.Run
	c := &cli.Command{Name: "replay", Flags: replayFlags(), Action: func(_ context.Context, c *cli.Command) error {
		var err error
		run, err = readReplayFlags(c).Resolve(files)
		return err
	}}
	return run, c.Run(context.Background(), args)
}
