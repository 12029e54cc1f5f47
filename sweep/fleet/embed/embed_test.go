//go:build !noembed

package embed

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/fleet"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

const spec = `
name: fleet
workload: [{synthetic: {input_tokens: 256, output_tokens: 4, requests: 12}, request_rate: 40}, {trace: t.jsonl, format: mooncake, trace_block_size: 16}]
engine: {backend: vllm, block_size: 16, num_gpu_blocks: [256, 512]}
topology: [{mode: aggregated, workers: [1, 2]}]
router: [{mode: round_robin}]
timing: [{type: polynomial}]
cost: {usd_per_gpu_hour: 2.5}
seeds: [1, 2]
`

func run(t *testing.T, src, dir string, f sweep.Fleet) sweep.Tally {
	t.Helper()
	g, err := scenario.ParseSweep("s.yaml", src, []byte(spec), &scenario.Files{})
	if err != nil {
		t.Fatal(err)
	}
	tally, err := sweep.Run(context.Background(), g, &sweep.Inputs{}, sweep.Options{Dir: dir, Spec: g.Text, Version: "v", Jobs: 1, Fleet: f, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

func TestRunnersGiveTheRowsOfALocalSweep(t *testing.T) {
	src := t.TempDir()
	line := `{"timestamp":0,"input_length":64,"output_length":4,"hash_ids":[1,2,3,4]}` + "\n"
	if err := os.WriteFile(filepath.Join(src, "t.jsonl"), []byte(strings.Repeat(line, 5)), 0o644); err != nil {
		t.Fatal(err)
	}
	local, dir, folder := t.TempDir(), t.TempDir(), t.TempDir()
	want := run(t, src, local, nil)
	s, err := Start("127.0.0.1:0", folder)
	if err != nil {
		t.Fatal(err)
	}
	link, err := fleet.ReadLink(filepath.Join(folder, "join"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			ended <- fleet.Join(ctx, link, fleet.RunnerOptions{Version: "v", Slots: 1, Cache: t.TempDir(), Notice: t.Logf})
		}()
	}
	got := run(t, src, dir, &fleet.Submitter{Link: s.Link, Version: "v", AckWait: 5 * time.Second, Notice: t.Logf})
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(true); err != nil {
		t.Error(err)
	}
	if got.Done != want.Done || got.Open() != 0 || got.Failed != 0 {
		t.Fatalf("%+v, local %+v", got, want)
	}
	x, err := results.ReadPoints(local)
	if err != nil {
		t.Fatal(err)
	}
	y, err := results.ReadPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range results.Tables()[0].Columns {
		for i := range x.Len() {
			if p, q := x.Column(c.Name).Text(i), y.Column(c.Name).Text(i); p != q && !c.Wall() {
				t.Fatalf("row %d: %s is %s and %s", i, c.Name, p, q)
			}
		}
	}
}

func TestTheJoinFileIsTheOwnersAndStaysTheSame(t *testing.T) {
	folder := t.TempDir()
	var first fleet.Link
	for again := range 2 {
		s, err := Start("127.0.0.1:0", folder)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(folder, "join"))
		if err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
			t.Errorf("mode %o, %v", st.Mode().Perm(), err)
		}
		if again == 0 {
			first = *s.Link
		} else if *s.Link != first {
			t.Error("a server that starts again is another one")
		}
		if err := s.Close(false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAWrongTokenIsRefused(t *testing.T) {
	s, err := Start("127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(true)
	l := *s.Link
	l.Token += "x"
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	err = fleet.Join(ctx, &l, fleet.RunnerOptions{Version: "v", Slots: 1, Cache: t.TempDir(), Notice: t.Logf})
	if err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("%v", err)
	}
}
