package sweep

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

const fleetSpec = `
name: shuffled
workload: {synthetic: {input_tokens: 256, output_tokens: 4, requests: 12}, request_rate: 40}
engine: {backend: vllm, block_size: 16, num_gpu_blocks: [256, 512]}
topology: [{mode: aggregated, workers: [1, 2]}]
router: [{mode: round_robin}]
timing: [{type: polynomial}]
cost: {usd_per_gpu_hour: 2.5}
seeds: [1, 2, 3]
`

// shuffled is a fleet in this process: it makes the parts of points whose configuration
// travelled as text, and delivers them shuffled, often twice, and some not at all.
type shuffled struct {
	rnd  *rand.Rand
	lose int // of ten
}

func (f *shuffled) Run(ctx context.Context, w *Work) error {
	shop, err := NewShop(w.Recipe, &Inputs{})
	if err != nil {
		return err
	}
	var parts [][]byte
	for _, task := range w.Todo {
		if f.rnd.IntN(10) < f.lose {
			continue
		}
		p := *task.Point
		if p.Run, err = scenario.ParseResolved(task.Resolved(), nil); err != nil {
			return err
		}
		var out bytes.Buffer
		if err := shop.Make(ctx, &p, nil, &out); err != nil {
			return err
		}
		for range 1 + f.rnd.IntN(2) {
			parts = append(parts, out.Bytes())
		}
	}
	f.rnd.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for some := range slices.Chunk(parts, 7) {
		answers, err := w.Adopt(some)
		if err != nil {
			return err
		}
		for _, a := range answers {
			if a.Refused != nil {
				return a.Refused
			}
		}
	}
	return nil
}

func fleetGrid(t *testing.T) *scenario.Grid {
	t.Helper()
	g, err := scenario.ParseSweep("s.yaml", "", []byte(fleetSpec), &scenario.Files{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func runGrid(t *testing.T, dir string, fleet Fleet) Tally {
	t.Helper()
	g := fleetGrid(t)
	tally, err := Run(context.Background(), g, &Inputs{}, Options{Dir: dir, Spec: g.Text, Version: "v", Jobs: 1, Capture: true, Fleet: fleet, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

// sameTables compares every cell of every table outside wall_* columns.
func sameTables(t *testing.T, a, b string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(a, "*.parquet"))
	if err != nil || len(names) == 0 {
		t.Fatal("no tables", err)
	}
	for _, name := range names {
		x, err1 := results.ReadFile(name)
		y, err2 := results.ReadFile(filepath.Join(b, filepath.Base(name)))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if x.Len() != y.Len() {
			t.Fatalf("%s: %d and %d rows", filepath.Base(name), x.Len(), y.Len())
		}
		columns := slices.Clone(x.Meta.Axes)
		for _, table := range results.Tables() {
			for _, c := range table.Columns {
				if table.ID.File() == filepath.Base(name) && !c.Wall() {
					columns = append(columns, c.Name)
				}
			}
		}
		for _, c := range columns {
			for i := range x.Len() {
				if p, q := x.Column(c).Text(i), y.Column(c).Text(i); p != q {
					t.Fatalf("%s: row %d: %s is %s and %s", filepath.Base(name), i, c, p, q)
				}
			}
		}
	}
}

func TestRowsFromElsewhereGiveTheTablesOfALocalSweep(t *testing.T) {
	local := t.TempDir()
	want := runGrid(t, local, nil)
	if want.Done == 0 || want.Failed > 0 {
		t.Fatalf("local: %+v", want)
	}
	for seed := range uint64(3) {
		dir := t.TempDir()
		f := &shuffled{rand.New(rand.NewPCG(seed, 0)), 4}
		if first := runGrid(t, dir, f); first.Open() == 0 {
			t.Fatal("nothing was lost, so nothing is continued")
		}
		f.lose = 0
		got := runGrid(t, dir, f)
		if got.Done != want.Done || got.Open() != 0 {
			t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
		}
		sameTables(t, local, dir)
	}
}

// adopting is a fleet that hands over given parts.
type adopting struct {
	change func(w *Work, p *scenario.Point)
}

func (f *adopting) Run(ctx context.Context, w *Work) error {
	shop, err := NewShop(w.Recipe, &Inputs{})
	if err != nil {
		return err
	}
	p := *w.Todo[0].Point
	for _, changed := range []bool{false, true} {
		if changed {
			f.change(w, &p)
		}
		var out bytes.Buffer
		if err := shop.Make(ctx, &p, nil, &out); err != nil {
			return err
		}
		answers, err := w.Adopt([][]byte{out.Bytes(), out.Bytes()[:out.Len()/2]})
		if err != nil {
			return err
		}
		if answers[1].Refused == nil {
			return errors.New("half a part was kept")
		}
		if changed != (answers[0].Refused != nil) {
			return errors.New("kept what was not planned, or refused what was")
		}
	}
	return nil
}

func TestAPartThatWasNotAskedForIsRefused(t *testing.T) {
	dir := t.TempDir()
	tally := runGrid(t, dir, &adopting{func(_ *Work, p *scenario.Point) { p.GPUs++ }})
	if tally.Done != 1 {
		t.Errorf("%+v", tally)
	}
}
