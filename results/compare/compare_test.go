package compare

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/results/resultstest"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func analyse(t *testing.T, dir string, opt Options) *Analysis {
	t.Helper()
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Analyse(opt)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// t(0.975, 2) = 4.302652729911275, from tables.
func TestIntervalIsStudents(t *testing.T) {
	e := EstimateOf([]float64{1, 2, 3})
	near(t, "mean", e.Mean, 2)
	near(t, "half", e.Half(), 4.302652729911275/math.Sqrt(3))
	if one := EstimateOf([]float64{5}); one.Interval() || one.Mean != 5 {
		t.Errorf("one seed: %+v, want no interval", one)
	}
}

func TestDifferences(t *testing.T) {
	seq := func(n int, of func(i int) float64) (out []float64) {
		for i := range n {
			out = append(out, of(i))
		}
		return out
	}
	seeds := func(n int) (out []int64) {
		for i := range n {
			out = append(out, int64(i+1))
		}
		return out
	}
	wobble := func(i int) float64 { return 100 + 10*math.Sin(float64(i)) }
	for _, c := range []struct {
		name   string
		a, b   Sample
		method Method
		noise  bool
		mark   string
	}{
		{"one run a side", Sample{nil, []float64{100}}, Sample{nil, []float64{128}}, SingleRun, false, "+28 %"},
		{"one run against many", Sample{nil, []float64{100}}, Sample{seeds(3), []float64{110, 112, 114}}, SingleRun, false, "+12 %"},
		{"all equal", Sample{seeds(2), []float64{7, 7}}, Sample{nil, []float64{7}}, Equal, false, "="},
		{"a shift that every pair shows", Sample{seeds(4), seq(4, wobble)}, Sample{seeds(4), seq(4, func(i int) float64 { return wobble(i) + 5 + 0.01*float64(i) })}, Paired, false, "+4.8 % [+4.8, +4.8]"},
		{"pairs that disagree", Sample{seeds(3), []float64{1, 2, 3}}, Sample{seeds(3), []float64{2, 1, 3.1}}, Paired, true, "~"},
		{"many pairs", Sample{seeds(12), seq(12, wobble)}, Sample{seeds(12), seq(12, func(i int) float64 { return 2 * wobble(i) })}, Bootstrap, false, "+100 % [+96, +104]"},
		{"other seeds", Sample{[]int64{1, 2, 3}, []float64{10, 11, 12}}, Sample{[]int64{4, 5, 6}, []float64{20, 21, 22}}, Welch, false, "+91 % [+70, +112]"},
		{"other seeds, within the noise", Sample{[]int64{1, 2, 3}, []float64{10, 11, 12}}, Sample{[]int64{4, 5, 6}, []float64{10, 12, 11.5}}, Welch, true, "~"},
		{"nothing on a side", Sample{}, Sample{nil, []float64{1}}, SingleRun, false, "-"},
		{"from nothing", Sample{nil, []float64{0}}, Sample{nil, []float64{3}}, SingleRun, false, "3 (from 0)"},
	} {
		d := Compare(c.a, c.b)
		if d.Method != c.method || d.Noise() != c.noise || d.Mark() != c.mark {
			t.Errorf("%s: %v, noise %v, %q; want %v, %v, %q", c.name, d.Method, d.Noise(), d.Mark(), c.method, c.noise, c.mark)
		}
	}
}

// The winner is the cheapest point that meets the SLA, found here by looking at every
// row, and the next is the second.
func TestVerdictIsTheCheapestThatMeetsTheSLA(t *testing.T) {
	a := analyse(t, resultstest.Grid(t, resultstest.Options{Points: 60, Seeds: 3}), Options{})
	type one struct {
		id   string
		cost float64
	}
	var all []one
	for i := range a.Sweep.Points {
		p := &a.Sweep.Points[i]
		if a.Sweep.Over(p, "sla_attainment").Mean >= DefaultAttainment {
			all = append(all, one{p.ID, a.Sweep.Over(p, "usd_per_million_output_tokens").Mean})
		}
	}
	slices.SortFunc(all, func(x, y one) int { return cmpFloat(x.cost, y.cost) })
	v := &a.Loads[0].Verdict
	if !a.ByCost || v.Winner.ID != all[0].id || v.Next.ID != all[1].id {
		t.Errorf("winner %s, next %s; want %v", v.Winner.ID, v.Next.ID, all[:2])
	}
	if !strings.Contains(v.Sentence, v.Winner.Label) || !strings.Contains(v.Second, v.Next.Label) {
		t.Errorf("sentences %q, %q do not name the points", v.Sentence, v.Second)
	}
}

// What meets comes first, then what misses less; then score, GPUs and name (spec
// sweeps-and-schema 5.5).
func TestRankIsTheOrderOfVerdicts(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	want := []Merit{
		{true, 0, 3, 4, "a"}, {true, 9, 2, 1, "d"}, {true, 0, 2, 2, "e"}, {true, 0, 2, 2, "f"}, {true, 0, 2, 4, "b"}, {true, 0, nan, 1, "c"},
		{false, 0.1, 1, 1, "g"}, {false, 0.2, 9, 1, "h"}, {false, inf, 9, 1, "i"}, {false, inf, nan, 1, "j"},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Rank)
	for i := range want {
		if got[i].Name != want[i].Name {
			t.Errorf("place %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestNoPointMeetsTheSLA(t *testing.T) {
	a := analyse(t, resultstest.Grid(t, resultstest.Options{Points: 16}), Options{SLA: SLA{TTFTMs: 50, ITLMs: 5}})
	v := &a.Loads[0].Verdict
	if v.Winner != nil || len(v.Nearest) != 3 || !strings.HasPrefix(v.Sentence, "No point meets the SLA (TTFT 50 ms, ITL 5 ms)") {
		t.Fatalf("winner %v, nearest %d, %q", v.Winner, len(v.Nearest), v.Sentence)
	}
	for i := 1; i < 3; i++ {
		if v.Nearest[i].Attainment.Mean > v.Nearest[i-1].Attainment.Mean {
			t.Errorf("nearest are not in order of attainment")
		}
	}
}

// Judging by limits that were counted is exact: with the sweep's own SLA it changes
// nothing; limits in between are refused, never interpolated.
func TestRejudgeAtCountedLimitsOnly(t *testing.T) {
	dir := resultstest.Grid(t, resultstest.Options{Points: 40})
	own, again := analyse(t, dir, Options{}), analyse(t, dir, Options{SLA: SLA{TTFTMs: 2000, ITLMs: 50}})
	for i := range own.Cases {
		near(t, own.Cases[i].ID, again.Cases[i].Attainment.Mean, own.Cases[i].Attainment.Mean)
	}
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opt  Options
		want string
	}{
		{Options{SLA: SLA{TTFTMs: 1234, ITLMs: 50}}, "--sla: ttft_ms=1234 was not counted while the points ran; counted limits are 50, 100, 200,"},
		{Options{SLA: SLA{TTFTMs: 1000}}, "--sla: give ttft_ms and itl_ms"},
		{Options{SLA: SLA{E2EMs: 1000}}, "--sla: give ttft_ms and itl_ms"},
		{Options{Prices: []Price{{"h200_sxm", 3}}}, "--price: the sweep does not say which GPUs it runs on: add default=USD"},
		{Options{Baseline: "nope"}, `--baseline: no point "nope"`},
		{Options{Attainment: 2}, "--attainment: must be above 0 and at most 1, got 2"},
	} {
		_, err := s.Analyse(c.opt)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || !errors.Is(err, ErrInput) {
			t.Errorf("%+v: got %v, want %s", c.opt, err, c.want)
		}
	}
}

func TestPricesRerankByGPUHours(t *testing.T) {
	dir := resultstest.Grid(t, resultstest.Options{Points: 16})
	a, b := analyse(t, dir, Options{}), analyse(t, dir, Options{Prices: []Price{{"default", 6}}}) // recorded: 2
	for i := range a.Cases {
		near(t, a.Cases[i].ID, b.Cases[i].USDPerMillion.Mean, 3*a.Cases[i].USDPerMillion.Mean)
	}
}

func TestFrontIsWhatNothingWithinTheSLADominates(t *testing.T) {
	a := analyse(t, resultstest.Grid(t, resultstest.Options{Points: 120, Seeds: 2, Loads: 2}), Options{})
	for i := range a.Cases {
		x := &a.Cases[i]
		within := func(c *Case) bool { return c.Meets || a.Loads[c.Load].Verdict.Winner == nil }
		dominated := !within(x)
		for k := range a.Cases {
			y := &a.Cases[k]
			if !within(y) {
				continue
			}
			dx, dy := y.TokensPerUser.Mean-x.TokensPerUser.Mean, y.TokensPerGPU.Mean-x.TokensPerGPU.Mean
			dominated = dominated || y.Load == x.Load && dx >= 0 && dy >= 0 && dx+dy > 0
		}
		if dominated == x.Front {
			t.Errorf("%s: front %v, dominated %v", x.ID, x.Front, dominated)
		}
	}
}

// y = f(row) + g(column) over a full grid: the shares of the main effects are those of
// the variances of f and g, and come to 1.
func TestKnobSharesOfAnAdditiveGrid(t *testing.T) {
	s := &Sweep{Axes: []Axis{{Name: "topology.workers", at: 0}, {Name: "router.mode", at: 1}, {Name: "router.twin", at: 2}}}
	a := &Analysis{s: s}
	l := Load{}
	f, g := []float64{0, 6, 0}, []float64{0, 2}
	for i := range f {
		for j := range g {
			row, col := string(rune('a'+i)), string(rune('x'+j))
			a.Cases = append(a.Cases, Case{Point: &Point{values: []string{row, col, "same as " + col}}, objectiveMean: f[i] + g[j]})
			l.Cases = append(l.Cases, len(l.Cases))
		}
	}
	a.knobs(&l)
	if len(l.Knobs) != 2 || !l.Exact {
		t.Fatalf("knobs %v, exact %v; want two: an axis that divides the points like another is the same knob", l.Knobs, l.Exact)
	}
	near(t, "workers", l.Knobs[0].Share, 8.0/9) // variances 8 and 1
	near(t, "router", l.Knobs[1].Share, 1.0/9)
	l.Cases, l.Knobs = l.Cases[1:], nil
	if a.knobs(&l); l.Exact {
		t.Error("a grid with a hole counts as full")
	}
}

func TestEdgesOfAxes(t *testing.T) {
	x := Axis{Name: "topology.workers", Values: []string{"2", "4", "8"}, Numbers: []float64{2, 4, 8}}
	one := Axis{Name: "topology.workers", Values: []string{"1", "2"}, Numbers: []float64{1, 2}}
	for _, c := range []struct {
		axis  *Axis
		value string
		edge  bool
	}{{&x, "8", true}, {&x, "4", false}, {&x, "2", true}, {&one, "1", false}, {&one, "2", true}, {&x, "", false}} {
		if got := c.axis.edge(c.value) != ""; got != c.edge {
			t.Errorf("%s of %v: edge %v, want %v", c.value, c.axis.Values, got, c.edge)
		}
	}
}

func TestReasonsThatDifferInNumbersAreOne(t *testing.T) {
	a := analyse(t, resultstest.Grid(t, resultstest.Options{Points: 4, Failed: 5}), Options{})
	var got []string
	for i := range a.Lost {
		got = append(got, a.Lost[i].String())
	}
	want := []string{"5 failed: request larger than the cache: needs 904 blocks, has 640 (and alike)", "5 skipped: needs 20 GPUs, constraints.max_gpus is 16"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if a.Done != 4 || a.Failed != 5 || a.Skipped != 5 {
		t.Errorf("counts %d, %d, %d", a.Done, a.Failed, a.Skipped)
	}
}

func TestBaselineIsFoundUnderEveryLoad(t *testing.T) {
	dir := resultstest.Grid(t, resultstest.Options{Points: 32, Loads: 2})
	a := analyse(t, dir, Options{})
	b := analyse(t, dir, Options{Baseline: a.Cases[30].ID[:9]}) // workers 8, load 1
	for i := range b.Loads {
		if text := b.Loads[i].Verdict.Today; !strings.HasPrefix(text, "Against the baseline x8") {
			t.Errorf("load %s: %q", b.Loads[i].Label, text)
		}
	}
}

// One surge of an hour: from 1200 s, for 800 s, to 6 requests a second; a worker
// completes 1.2. Four workers come at 1240 s and are ready at 1270; the scale-down
// goes against it.
func TestPlannerBoard(t *testing.T) {
	a := analyse(t, resultstest.Grid(t, resultstest.Options{Points: 2, Planner: true}), Options{})
	b := a.Board
	if b == nil || len(b.Rows) != 1 || len(b.Timelines) != 1 {
		t.Fatalf("board %+v", b)
	}
	r := &b.Rows[0]
	near(t, "events", r.Events, 2)
	near(t, "reversals", r.Reversals, 1)
	near(t, "short", r.UnderS, 120) // the minutes from 1200 and 1260 s miss in the mean, or lack workers
	near(t, "reaction", r.ReactionS, 40)
	near(t, "misses while starting", r.StartMisses, 0.5) // ticks 120..125 miss with two workers; three of them starting
	// Best minute: the one from 1260 s, 360 completions by 340 worker-seconds.
	near(t, "bound", r.Bound, (2800*2+800*6)*340.0/360/3600)
	if tl := &b.Timelines[0]; len(tl.AtS) != 360 || tl.Demand[121] != 6 || tl.Ready[1][124] != 2 || tl.Starting[1][124] != 4 || tl.TTFTHigh[121] != 5000 {
		t.Errorf("timeline %+v", tl)
	}
}

// Points under different loads do not compete, on the board as elsewhere, and their
// names need not tell the loads apart.
func TestBoardAndLabelsUnderSeveralLoads(t *testing.T) {
	a := analyse(t, resultstest.Grid(t, resultstest.Options{Points: 12, Planner: true, Loads: 3}), Options{})
	last := 0
	for _, r := range a.Board.Rows {
		c := &a.Cases[r.Case]
		if c.Load < last {
			t.Fatalf("%s of load %d comes after load %d", c.Label, c.Load, last)
		}
		last = c.Load
		if strings.Contains(c.Label, "block_size") || strings.Contains(c.Label, "speedup") {
			t.Errorf("label %q tells what is the same for every point, or the load", c.Label)
		}
		if want := c.Label + ", " + a.Loads[c.Load].Label; a.Sweep.LabelUnderLoad(c.Point) != want {
			t.Errorf("%q, want %q", a.Sweep.LabelUnderLoad(c.Point), want)
		}
	}
	if len(a.Board.Rows) != 6 || last != 2 {
		t.Fatalf("%d rows, last load %d", len(a.Board.Rows), last)
	}
	for k := range a.Loads {
		if !strings.Contains(a.Board.Sentence, a.Loads[k].Label+": ") {
			t.Errorf("load %s is not told of: %s", a.Loads[k].Label, a.Board.Sentence)
		}
	}
	for n, want := range map[int][]int{2: {0, 1}, 4: {0, 0, 1, 2}, 5: {0, 0, 1, 1, 2}, 99: {0, 0, 1, 1, 2, 2}} {
		var loads []int
		for _, r := range a.BoardShown(n) {
			loads = append(loads, a.Cases[r.Case].Load)
		}
		if !slices.Equal(loads, want) {
			t.Errorf("%d rows are of loads %v, want %v", n, loads, want)
		}
	}
}

// Of the keys of one alternative, a load's name tells those that tell it from others.
func TestLoadsAreNamedByWhatTellsThemApart(t *testing.T) {
	s := &Sweep{Frame: frameOf(t, []string{"workload.synthetic.input_tokens", "workload.synthetic.requests", "workload.trace", "workload.trace_block_size", "workload.arrival_speedup"},
		[][]string{{"512", "100", "", "", ""}, {"", "", "/a/one.jsonl", "512", "1"}, {"", "", "/a/one.jsonl", "512", "2"}, {"", "", "/a/two.jsonl", "512", "1"}})}
	if err := s.join(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"input_tokens 512", "trace one.jsonl, arrival_speedup 1", "trace one.jsonl, arrival_speedup 2", "trace two.jsonl, arrival_speedup 1"} {
		if got := s.loadOf(&s.Points[i]); got != want {
			t.Errorf("load %d: %q, want %q", i, got, want)
		}
	}
	x := Axis{Name: "workload.trace", Values: []string{"/a/t.jsonl", "/b/t.jsonl"}}
	if got := x.word("/a/t.jsonl"); got != "/a/t.jsonl" {
		t.Errorf("of two paths that end alike: %q", got)
	}
}

// frameOf is a table of finished points with those values of text axes, "" for null.
func frameOf(t *testing.T, names []string, rows [][]string) *results.Frame {
	t.Helper()
	opt := results.Options{Identity: results.Identity{Name: "loads", SpecDigest: "feed"}, Now: func() time.Time { return time.Unix(0, 0) }}
	for _, n := range names {
		opt.Axes = append(opt.Axes, results.Axis{Name: n, Type: results.String})
	}
	dir := t.TempDir()
	store, err := results.Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var plan []results.Planned
	for i, values := range rows {
		p := &results.Point{Key: results.Key{Point: fmt.Sprint("p", i)}, Status: results.Done}
		for _, v := range values {
			if v == "" {
				p.Axes = append(p.Axes, results.Null)
				continue
			}
			p.Axes = append(p.Axes, results.Text(v))
		}
		plan = append(plan, results.Planned{Key: p.Key, Row: p})
	}
	if err := store.Finalize(plan); err != nil {
		t.Fatal(err)
	}
	f, err := results.ReadPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestUnfinishedSweepSaysSo(t *testing.T) {
	dir := resultstest.Grid(t, resultstest.Options{Points: 4, Planner: true})
	caveats := func() string {
		s, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.Analyse(Options{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(a.Caveats, "\n")
	}
	if c := caveats(); strings.Contains(c, "run it again") {
		t.Errorf("a finished sweep: %s", c)
	}
	ticks := filepath.Join(dir, "ticks.parquet")
	whole, err := os.ReadFile(ticks)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(ticks, whole[:len(whole)/2], 0o644)
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Analyse(Options{}); !errors.Is(err, ErrInput) {
		t.Errorf("damaged ticks: %v", err)
	}
	os.WriteFile(ticks, whole, 0o644)
	name := filepath.Join(dir, "manifest.json")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(name, bytes.Replace(raw, []byte(`"open": 0`), []byte(`"open": 3`), 1), 0o644)
	if c := caveats(); !strings.Contains(c, "The sweep is not finished: 3 rows without a result") {
		t.Errorf("three rows are open: %s", c)
	}
	maker, err := results.NewMaker(results.Identity{SpecDigest: s.Frame.Meta.SpecDigest}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 { // more parts than rows
		var part bytes.Buffer
		key := results.Key{Point: fmt.Sprint("more", i)}
		if err := maker.Begin(key, &part).Commit(&results.Point{Key: key, Status: results.Done}); err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(dir, "parts", fmt.Sprint(i)+".part"), part.Bytes(), 0o644)
	}
	if c := caveats(); !strings.Contains(c, "points with a result and no row in the table yet") {
		t.Errorf("parts without rows: %s", c)
	}
	os.WriteFile(name, []byte("{"), 0o644)
	if _, err := Read(dir); !errors.Is(err, ErrInput) {
		t.Errorf("damaged manifest: %v", err)
	}
	os.WriteFile(name, raw, 0o644)
	os.WriteFile(filepath.Join(dir, "points.parquet"), []byte("PAR1"), 0o644)
	if _, err := Read(dir); !errors.Is(err, ErrInput) {
		t.Errorf("damaged table: %v", err)
	}
	os.Remove(filepath.Join(dir, "points.parquet"))
	if _, err := Read(dir); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "yet") {
		t.Errorf("no table yet: %v", err)
	}
}

func TestCompareSweepWithItself(t *testing.T) {
	dir := resultstest.Grid(t, resultstest.Options{Points: 16, Seeds: 2})
	a, err := ReadSet(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadSet(filepath.Join(dir, results.Points.File()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Match(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Pairs) != 16 || c.OnlyA+c.OnlyB != 0 || c.Methods() != "every figure is equal" {
		t.Errorf("%d pairs, %d and %d alone, %s", len(c.Pairs), c.OnlyA, c.OnlyB, c.Methods())
	}
	for i := range c.Totals {
		if x := &c.Totals[i]; x.Better+x.Worse != 0 || x.Same != 16 {
			t.Errorf("%s: %+v", x.Name, x)
		}
	}
}

func TestCompareReports(t *testing.T) {
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "r.json")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	a, err := ReadSet(write(`{"completed_requests": 10, "num_requests": 10, "mean_ttft_ms": 100, "power_w": null, "output_throughput_tok_s": 50, "kv_eviction_policy": "lru"}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadSet(write(`{"summary": {"completed_requests": 10, "num_requests": 10, "mean_ttft_ms": 80, "output_throughput_tok_s": 50}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Match(a, b)
	if err != nil {
		t.Fatal(err)
	}
	d := c.Pairs[0].Deltas
	if len(d) != 3 || d[0].Mark() != "=" || d[1].Mark() != "-20 %" || d[1].Method != SingleRun || d[1].Better() != 1 {
		t.Errorf("%+v", d)
	}
	for _, bad := range []string{"", "[]", `{"a": 1}`, "{"} {
		if _, err := ReadSet(write(bad)); !errors.Is(err, ErrInput) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add([]byte(`{"completed_requests": 1, "num_requests": 0, "goodput_completed_requests": 1, "provenance": {"point_id": "x"}}`))
	f.Add([]byte(`{"completed_requests": null, "provenance": []}`))
	name := filepath.Join(f.TempDir(), "r.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := ReadSet(name)
		if err != nil {
			return
		}
		if _, err := Match(s, s); err != nil {
			t.Errorf("a report that reads does not compare: %v", err)
		}
	})
}

func TestNumbersForPeople(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Number(1234567), "1,234,567"}, {Number(-1234.5), "-1,234"}, {Number(0.00012345), "0.000123"}, {Number(12.3456), "12.35"},
		{Number(math.NaN()), "-"}, {Millis(1410), "1.41 s"}, {Millis(38.04), "38 ms"}, {Millis(750000), "12.5 min"},
		{Percent(0.99999), "99.99 %"}, {Percent(1), "100 %"}, {Percent(0.9921), "99.2 %"}, {Percent(1e-9), "0.01 %"}, {Percent(0), "0 %"},
		{Dollars(1176), "$1,176"}, {Dollars(0.004321), "$0.0043"}, {Dollars(49), "$49.00"}, {Change(0.281), "+28 %"}, {Change(-0.05), "-5.0 %"}, {Change(11), "x12"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
