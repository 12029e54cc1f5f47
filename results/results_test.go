package results

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// options of a small sweep; every call of Now is a second later.
func options(fs FS) Options {
	if fs == nil {
		fs = failingAfter(math.MaxInt)
	}
	clock := time.Unix(1_700_000_000, 0)
	return Options{
		Identity: Identity{Name: "small", SpecDigest: "abc123", Version: "1.2.3"},
		Axes:     []Axis{{"topology.workers", Int64}, {"router.mode", String}, {"workload.arrival_speedup", Float64}},
		Spec:     []byte("name: small\n"),
		Now:      func() time.Time { clock = clock.Add(time.Second); return clock },
		FS:       fs,
	}
}

// plan of the small sweep: the last point is skipped.
func plan() (plan []Planned) {
	for p := range 3 {
		for seed := range 2 {
			plan = append(plan, Planned{Key: Key{Point: fmt.Sprintf("p%d", p), Seed: int64(seed + 1), Seeded: true}})
		}
	}
	plan = append(plan, Planned{Key: Key{Point: "p3"}})
	skipped := Planned{Key: Key{Point: "p4"}}
	skipped.Row = &Point{Key: skipped.Key, Status: Skipped, Reason: "more GPUs than allowed", Axes: []Value{Int(64), Null, Null}}
	return append(plan, skipped)
}

// simulate is the summary and the records of a pretended run.
func simulate(n int) (*metrics.Summary, []metrics.Record) {
	c := metrics.NewCollector(metrics.Options{SLA: metrics.SLA{TTFTMs: 100}, Capture: true})
	for i := range n {
		var r metrics.Record
		r.Reset()
		d := metrics.NoDetail()
		r.Detail, r.Ordinal, r.Input, r.Output, r.Requested, r.Status = &d, int64(i), 128, 2, 2, metrics.Completed
		r.ArrivalMs, r.FirstAdmitMs, r.FirstTokenMs, r.SecondTokenMs, r.LastTokenMs, r.TerminalMs =
			float64(i), float64(i)+0.1, float64(i)+40, float64(i)+60, float64(i)+60, float64(i)+60
		c.Arrive()
		c.Gap(20, 1)
		c.Finish(&r)
	}
	return c.Summary(metrics.Totals{DecodeWorkerSeconds: 1.5, DecodeGPUs: 2, WallMs: float64(n)}), c.Records()
}

func tick(ordinal int) *Tick {
	nan := math.NaN()
	return &Tick{Record: &sim.TickRecord{
		Snapshot: &sim.Snapshot{Ordinal: ordinal, NowMs: 1000 * float64(ordinal+1), Decode: sim.PoolSnapshot{
			Active: []int32{0, 1}, Metrics: []sim.RankMetrics{{Worker: 0, WallS: 0.01}, {Worker: 1, WallS: 0.02}}}},
		Decision: sim.Decision{TargetPrefill: sim.Keep, TargetDecode: 3, NextTickMs: math.Inf(1)}},
		Diagnostics: Diagnostics{EstimatedTTFTMs: 12.5, EstimatedITLMs: nan, PredictedRequests: nan, PredictedISL: nan, PredictedOSL: nan,
			PredictedHitRate: nan, EngineRPSPrefill: nan, EngineRPSDecode: nan, LowerBoundPrefill: -1, LowerBoundDecode: 2, LoadReason: "no_change"}}
}

// rowOf is the row that a planned point leaves.
func rowOf(key Key) *Point {
	n := 3 + int(key.Seed) + int(key.Point[1])
	if key.Point == "p1" && key.Seed == 2 {
		return &Point{Key: key, Status: Failed, Reason: "timed out", Axes: []Value{Int(n), Text("kv_router"), Null}}
	}
	summary, _ := simulate(n)
	return &Point{Key: key, Status: Done, Axes: []Value{Int(n), Text("round_robin"), Float(0.5)},
		Config: `{"a":1}`, GPUs: 4, Summary: summary, CostUSD: Some(math.Nextafter(0.3, 1))}
}

// runPoint writes the part of one planned point, as a sweep does.
func runPoint(s *Store, key Key) error {
	p, err := s.Begin(key)
	if err != nil {
		return err
	}
	return fill(p, key)
}

// fill writes what a planned point leaves.
func fill(p *Part, key Key) error {
	row := rowOf(key)
	if row.Status == Failed {
		return p.Commit(row)
	}
	_, records := simulate(3 + int(key.Seed) + int(key.Point[1]))
	var err error
	for i := range 3 {
		if err == nil {
			err = p.Tick(tick(i))
		}
	}
	if err == nil {
		err = p.Scaling(sim.ScalingEvent{AtS: 1, Component: "agg", From: 2, To: 3, Reason: "scale_up"})
	}
	if err == nil {
		err = p.Requests(records)
	}
	if err != nil {
		p.Abort()
		return err
	}
	return p.Commit(row)
}

// sweep runs what is not finished, in the order given, and finalizes.
func sweep(dir string, opt Options, order func([]Planned)) error {
	s, err := Open(dir, opt)
	if err != nil {
		return err
	}
	defer s.Close()
	have := map[Key]bool{}
	for _, f := range s.Finished() {
		have[f.Key] = true
	}
	todo := plan()
	order(todo)
	for _, p := range todo {
		if p.Row == nil && !have[p.Key] {
			if err := runPoint(s, p.Key); err != nil {
				return err
			}
		}
	}
	return s.Finalize(plan())
}

func asPlanned([]Planned) {}

func backwards(p []Planned) {
	for i, j := 0, len(p)-1; i < j; i, j = i+1, j-1 {
		p[i], p[j] = p[j], p[i]
	}
}

// tables reads the bytes of every table.
func tables(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for id := Points; id < tableCount; id++ {
		raw, err := os.ReadFile(filepath.Join(dir, id.File()))
		if err != nil {
			t.Fatal(err)
		}
		out[id.File()] = raw
	}
	return out
}

func mustSweep(t *testing.T, dir string, order func([]Planned)) map[string][]byte {
	t.Helper()
	if err := sweep(dir, options(nil), order); err != nil {
		t.Fatal(err)
	}
	return tables(t, dir)
}

func TestPointsReadBackAsWritten(t *testing.T) {
	dir := t.TempDir()
	mustSweep(t, dir, asPlanned)
	f, err := ReadPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f.Len() != 8 || f.Meta.SpecDigest != "abc123" || f.Meta.Version != "1.2.3" ||
		!reflect.DeepEqual(f.Meta.Axes, []string{"topology.workers", "router.mode", "workload.arrival_speedup"}) ||
		!reflect.DeepEqual(f.Meta.GridTTFTMs, metrics.GridTTFTMs[:]) || !reflect.DeepEqual(f.Meta.GridITLMs, metrics.GridITLMs[:]) {
		t.Fatalf("%d rows, %+v", f.Len(), f.Meta)
	}
	text := func(row int, names ...string) string {
		var cells []string
		for _, n := range names {
			c := f.Column(n)
			if c == nil {
				t.Fatalf("no column %s", n)
			}
			cells = append(cells, c.Text(row))
		}
		return strings.Join(cells, "|")
	}
	for row, want := range map[int]string{
		0: "p0|1|done||52|round_robin|0.5|4|52|0.30000000000000004||1",
		3: "p1|2|failed|timed out|54|kv_router||||||",
		6: "p3||done||54|round_robin|0.5|4|54|0.30000000000000004||1",
		7: "p4||skipped|more GPUs than allowed|64|||||||",
	} {
		if got := text(row, "point_id", "seed", "status", "reason", "topology.workers", "router.mode", "workload.arrival_speedup",
			"gpus", "num_requests", "cost_usd", "planner_gpu_hours", "sla_attainment"); got != want {
			t.Errorf("row %d is %s, want %s", row, got, want)
		}
	}
	summary, _ := simulate(52)
	for _, k := range metrics.Keys() {
		name := k.Name
		if k.Wall && !strings.HasPrefix(name, "wall_") {
			name = "wall_" + name
		}
		c := f.Column(name)
		if c == nil {
			t.Errorf("no column for %s", k.Name)
			continue
		}
		if want, ok := k.Value(summary); k.Kind != metrics.Text {
			if got, have := c.Float(0); got != want || have != ok {
				t.Errorf("%s is %v, %v; want %v, %v", name, got, have, want, ok)
			}
		}
	}
	if g, ok := f.Column("sla_grid").Grid(0); !ok || *g != summary.Grid {
		t.Errorf("grid %v", g)
	}
	if !f.Column("sla_grid").Null(3) || !f.Column("topology.workers").Axis || f.Column("duration_ms").Unit != "ms" {
		t.Error("nulls, axes or units are lost")
	}
}

func TestChildTablesFollowThePlan(t *testing.T) {
	dir := t.TempDir()
	mustSweep(t, dir, backwards)
	for id, want := range map[TableID]struct {
		rows  int
		first string
	}{
		Ticks:         {18, "p0|1|0|1000|0|2|3|12.5|2|no_change"},
		ForwardPasses: {36, "p0|1|0|decode|0|0.01"},
		ScalingEvents: {6, "p0|1|1|agg|2|3|scale_up"},
		Requests:      {52 + 53 + 53 + 54 + 55 + 54, "p0|1|0|completed|0|40|20|128"},
	} {
		names := map[TableID]string{
			Ticks:         "point_id seed tick at_ms num_req active_decode target_decode estimated_ttft_ms throughput_lower_bound_decode load_decision_reason",
			ForwardPasses: "point_id seed tick pool worker_id pass_s",
			ScalingEvents: "point_id seed at_s component from_count to_count reason",
			Requests:      "point_id seed ordinal status arrival_time_ms ttft_ms itl_ms input_length",
		}[id]
		rows, last := 0, ""
		err := Scan(dir, id, strings.Fields(names), func(f *Frame) error {
			for i := range f.Len() {
				var cells []string
				for _, n := range strings.Fields(names) {
					cells = append(cells, f.Column(n).Text(i))
				}
				if rows == 0 && strings.Join(cells, "|") != want.first {
					t.Errorf("%s starts with %s, want %s", id.File(), strings.Join(cells, "|"), want.first)
				}
				if key := cells[0] + cells[1]; key < last && key != "p3" {
					t.Errorf("%s: %s after %s", id.File(), key, last)
				} else {
					last = key
				}
				rows++
			}
			return nil
		})
		if err != nil || rows != want.rows {
			t.Errorf("%s has %d rows, want %d (%v)", id.File(), rows, want.rows, err)
		}
	}
}

func TestBytesDoNotDependOnOrderOfCompletion(t *testing.T) {
	want := mustSweep(t, t.TempDir(), asPlanned)
	for name, got := range mustSweep(t, t.TempDir(), backwards) {
		if !bytes.Equal(got, want[name]) {
			t.Errorf("%s differs", name)
		}
	}
	dir := t.TempDir()
	s, err := Open(dir, options(nil))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, p := range plan() {
		if p.Row == nil {
			wg.Go(func() {
				if err := runPoint(s, p.Key); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if err := s.Finalize(plan()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for name, got := range tables(t, dir) {
		if !bytes.Equal(got, want[name]) {
			t.Errorf("in parallel %s differs", name)
		}
	}
}

// faulty fails the n-th operation on disk and, as after a crash, all later ones.
type faulty struct {
	Disk
	left atomic.Int64
}

func failingAfter(n int) *faulty {
	f := new(faulty)
	f.left.Store(int64(n))
	return f
}

var errFault = errors.New("no space left on device")

func (f *faulty) fail() error {
	if f.left.Add(-1) < 0 {
		return errFault
	}
	return nil
}

type faultyFile struct {
	File
	fs *faulty
}

func (f *faulty) Create(name string) (File, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	file, err := f.Disk.Create(name)
	return faultyFile{file, f}, err
}

func (f *faulty) Rename(from, to string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.Disk.Rename(from, to)
}

func (f *faulty) SyncDir(string) error { return f.fail() } // a test needs no platter

func (f *faulty) Remove(name string) error {
	if f.left.Load() < 0 {
		return errFault
	}
	return f.Disk.Remove(name)
}

func (f faultyFile) Write(b []byte) (int, error) {
	if err := f.fs.fail(); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f faultyFile) Sync() error { return f.fs.fail() }

// Whichever write, sync or rename fails, the same command run again gives the table
// of an undisturbed run.
func TestAnyFaultThenRerunGivesTheSameTable(t *testing.T) {
	want := mustSweep(t, t.TempDir(), asPlanned)
	root := t.TempDir()
	for n := 0; ; n++ {
		dir := filepath.Join(root, fmt.Sprint(n))
		fs := failingAfter(n)
		err := sweep(dir, options(fs), asPlanned)
		if err == nil {
			if n < 50 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
		if !errors.Is(err, errFault) || !strings.Contains(err.Error(), dir) && n > 0 && !strings.Contains(err.Error(), "no space") {
			t.Fatalf("fault %d: %v", n, err)
		}
		for name, got := range mustSweep(t, dir, backwards) {
			if !bytes.Equal(got, want[name]) {
				t.Fatalf("after fault %d %s differs", n, name)
			}
		}
	}
}

// Torn entries of a pack, and torn files of large parts, are ignored and run again.
func TestTornPartsAreIgnoredAndRunAgain(t *testing.T) {
	whole, large := func() []byte {
		dir := t.TempDir()
		mustSweep(t, dir, asPlanned)
		raw, err := os.ReadFile(filepath.Join(dir, partsDir, "000000.pack"))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}(), makePart(t, Key{Point: "p3"})
	want := mustSweep(t, t.TempDir(), asPlanned)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	first := bytes.Clone(whole) // the length of the first entry
	first[len(packMagic)] ^= 1
	for name, c := range map[string]struct {
		pack, file []byte
		finished   int
	}{
		"empty":       {[]byte{}, nil, 0},
		"magic":       {whole[:5], nil, 0},
		"last byte":   {whole[:len(whole)-1], nil, 6},
		"flipped bit": {flipped, nil, 6},
		"length":      {first, nil, 0},
		"more":        {append(bytes.Clone(whole), 0, 1, 2, 3, 4, 5, 6, 7, 8), nil, 7},
		"large":       {whole[:len(whole)-1], large, 7},
		"large, torn": {whole[:len(whole)-1], large[:len(large)-1], 6},
	} {
		dir := t.TempDir()
		mustSweep(t, dir, asPlanned)
		if err := os.WriteFile(filepath.Join(dir, partsDir, "000000.pack"), c.pack, 0o644); err != nil {
			t.Fatal(err)
		}
		if c.file != nil {
			os.WriteFile(filepath.Join(dir, partsDir, "whatever.part"), c.file, 0o644)
		}
		os.WriteFile(filepath.Join(dir, partsDir, "p9.part.tmp"), large, 0o644)
		_, finished, err := Inspect(dir)
		if err != nil || len(finished) != c.finished {
			t.Errorf("%s: %d finished, want %d, %v", name, len(finished), c.finished, err)
		}
		if got := mustSweep(t, dir, asPlanned); !bytes.Equal(got["points.parquet"], want["points.parquet"]) {
			t.Errorf("%s: another table", name)
		}
	}
}

// makePart is the part of a point as a Maker makes it.
func makePart(t *testing.T, key Key) []byte {
	t.Helper()
	opt := options(nil)
	m, err := NewMaker(opt.Identity, opt.Axes)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := fill(m.Begin(key, &out), key); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// The key inside a part decides whose it is: a part copied over another's file is no
// result of that point, which runs again.
func TestPartUnderAnotherNameRunsAgain(t *testing.T) {
	want := mustSweep(t, t.TempDir(), asPlanned)
	dir := t.TempDir()
	s, err := Open(dir, options(nil))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	for _, name := range []string{"p0-seed1.part", "p0-seed2.part"} {
		os.WriteFile(filepath.Join(dir, partsDir, name), makePart(t, Key{"p0", 1, true}), 0o644)
	}
	if _, finished, err := Inspect(dir); err != nil || len(finished) != 1 {
		t.Fatalf("%d finished, %v", len(finished), err)
	}
	for name, got := range mustSweep(t, dir, asPlanned) {
		if !bytes.Equal(got, want[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// Ten thousand small points leave a few files.
func TestSmallPointsShareFiles(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, options(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var plan []Planned
	for i := range 10000 {
		key := Key{Point: fmt.Sprint("p", i)}
		plan = append(plan, Planned{Key: key})
		if err := s.Write(&Point{Key: key, Status: Done, Axes: []Value{Int(i), Null, Null}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Finalize(plan); err != nil {
		t.Fatal(err)
	}
	files := 0
	filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			files++
		}
		return err
	})
	if files > 10 {
		t.Errorf("%d files", files)
	}
	if f, err := ReadPoints(dir); err != nil || f.Len() != 10000 {
		t.Errorf("%v", err)
	}
}

// A part made elsewhere gives the tables of a local run, whatever the order, and however
// often it comes; what was not asked for, or is not as planned, is refused, and another
// figure is a conflict.
func TestAdoptedPartsGiveTheSameTables(t *testing.T) {
	want := mustSweep(t, t.TempDir(), asPlanned)
	dir := t.TempDir()
	s, err := Open(dir, options(nil))
	if err != nil {
		t.Fatal(err)
	}
	asked := func(k Key) *Point {
		row := rowOf(k)
		if strings.HasPrefix(k.Point, "x") {
			return nil
		}
		return &Point{Key: k, Axes: row.Axes, Config: row.Config, GPUs: row.GPUs}
	}
	points := plan()
	backwards(points)
	for _, p := range append(points, points...) {
		if p.Row == nil {
			if _, _, err := s.Adopt(makePart(t, p.Key), asked); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, fresh, err := s.Adopt(makePart(t, Key{Point: "p3"}), asked); fresh || err != nil {
		t.Errorf("a known point is fresh: %v", err)
	}
	if _, _, err := s.Adopt(makePart(t, Key{Point: "x3"}), asked); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "was not asked for") {
		t.Error(err)
	}
	torn := makePart(t, Key{Point: "p3"})
	if _, _, err := s.Adopt(torn[:len(torn)-1], asked); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	other := func(k Key) *Point { p := asked(k); p.GPUs++; return p }
	if _, _, err := s.Adopt(makePart(t, Key{"p0", 1, true}), other); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "another gpus than planned") {
		t.Error(err)
	}
	var out bytes.Buffer
	part := s.Maker.Begin(Key{Point: "p3"}, &out)
	changed := rowOf(Key{Point: "p3"})
	changed.CostUSD = Some(7)
	if err := part.Commit(changed); err != nil {
		t.Fatal(err)
	}
	var conflict *ConflictError
	if _, _, err := s.Adopt(out.Bytes(), asked); !errors.As(err, &conflict) || conflict.Column != "cost_usd" || conflict.Answer != "7" {
		t.Error(err)
	}
	if err := s.Finalize(plan()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for name, got := range tables(t, dir) {
		if !bytes.Equal(got, want[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// A directory that is removed, or replaced by another sweep's, gets nothing more.
func TestDirectoryLostDuringTheRun(t *testing.T) {
	for name, replaced := range map[string]bool{"removed": false, "replaced": true} {
		dir := filepath.Join(t.TempDir(), "out")
		s, err := Open(dir, options(nil))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := runPoint(s, Key{Point: "p3"}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir, dir+"-away"); err != nil {
			t.Fatal(err)
		}
		if replaced {
			other, err := Open(dir, options(nil))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
		}
		for what, err := range map[string]error{"Finalize": s.Finalize(plan()), "a point": runPoint(s, Key{"p0", 1, true})} {
			if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "another --out") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, Points.File())); err == nil {
			t.Errorf("%s: a table was written", name)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(t.TempDir(), "nowhere"), link); err != nil {
		t.Skip(err)
	}
	if _, err := Open(link, options(nil)); !errors.Is(err, ErrUnusable) {
		t.Errorf("a link that leads nowhere: %v", err)
	}
}

func TestAnotherSweepsDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, options(nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, options(nil))
	if want := fmt.Sprintf("locked by process %d on ", os.Getpid()); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	s.Close()
	other := options(nil)
	other.Identity.SpecDigest, other.Identity.Name = "fff", "big"
	_, err = Open(dir, other)
	if want := "belongs to specification abc123 (small), not to fff (big)"; !errors.Is(err, ErrForeignResults) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	manifest := filepath.Join(dir, manifestFile)
	raw, _ := os.ReadFile(manifest)
	os.WriteFile(manifest, bytes.Replace(raw, []byte(`"schema_version": 3`), []byte(`"schema_version": 99`), 1), 0o644)
	_, err = Open(dir, options(nil))
	if want := "has schema version 99, this program writes 3"; !errors.Is(err, ErrForeignResults) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	home := t.TempDir()
	os.WriteFile(filepath.Join(home, "thesis.txt"), nil, 0o644)
	_, err = Open(home, options(nil))
	if want := "holds thesis.txt and no manifest.json"; !errors.Is(err, ErrForeignResults) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A directory that lost its manifest keeps its finished points; what belongs to
// another sweep is not replaced.
func TestLostAndDamagedFilesAreMadeAnew(t *testing.T) {
	dir := t.TempDir()
	want := mustSweep(t, dir, asPlanned)
	manifest := filepath.Join(dir, manifestFile)
	os.MkdirAll(PointDir(dir, Key{Point: "p0"}), 0o755)
	for name, text := range map[string]string{"garbage": "{x", "empty": "", "half": `{"name": "sm`} {
		os.WriteFile(manifest, []byte(text), 0o644)
		if _, err := Open(dir, options(nil)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "remove it and run the sweep again") {
			t.Errorf("%s manifest: %v", name, err)
		}
	}
	os.Remove(manifest)
	other := options(nil)
	other.Identity.SpecDigest = "fff"
	if _, err := Open(dir, other); !errors.Is(err, ErrForeignResults) {
		t.Errorf("without a manifest another sweep takes the directory: %v", err)
	}
	os.Remove(filepath.Join(dir, specFile))
	os.WriteFile(filepath.Join(dir, Points.File()), []byte("PAR1 PAR1 PAR1"), 0o644)
	if _, err := ReadPoints(dir); !errors.Is(err, ErrDamaged) {
		t.Errorf("damaged table: %v", err)
	}
	s, err := Open(dir, options(nil))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Finished()); n != 7 {
		t.Errorf("%d points are kept, want 7", n)
	}
	s.Close()
	for name, got := range mustSweep(t, dir, asPlanned) {
		if !bytes.Equal(got, want[name]) {
			t.Errorf("%s differs", name)
		}
	}
	os.Remove(filepath.Join(dir, specFile))
	mustSweep(t, dir, asPlanned)
	if raw, err := os.ReadFile(filepath.Join(dir, specFile)); string(raw) != "name: small\n" {
		t.Errorf("%s was not written again: %q, %v", specFile, raw, err)
	}
	for name, text := range map[string]string{Points.File(): "PAR1", specFile: "name: mine\n"} {
		foreign := t.TempDir()
		os.WriteFile(filepath.Join(foreign, name), []byte(text), 0o644)
		if _, err := Open(foreign, options(nil)); !errors.Is(err, ErrForeignResults) {
			t.Errorf("a folder with %s of something else: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(manifest, "below"), options(Disk{})); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "choose another --out") {
		t.Errorf("below a file: %v", err)
	}
}

// Whatever byte of a table is wrong, reading it ends with a table or an error.
func TestDamagedTablesDoNotPanic(t *testing.T) {
	dir := t.TempDir()
	mustSweep(t, dir, asPlanned)
	for id := range tableCount {
		whole, err := os.ReadFile(filepath.Join(dir, id.File()))
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), id.File())
		for i := 0; i < len(whole); i += 1 + len(whole)/40 {
			torn := bytes.Clone(whole)
			torn[i] ^= 0x55
			os.WriteFile(name, torn, 0o644)
			_, _ = ReadFile(name)
			os.WriteFile(name, whole[:i], 0o644)
			if _, err := ReadFile(name); err == nil {
				t.Errorf("%s cut at %d reads", id.File(), i)
			}
		}
	}
}

func TestAxisMayNotShadowAColumn(t *testing.T) {
	opt := options(nil)
	opt.Axes = append(opt.Axes, Axis{"status", String})
	if _, err := Open(t.TempDir(), opt); err == nil || err.Error() != "axis status: there is a column of that name" {
		t.Error(err)
	}
}

func TestEveryColumnIsDescribedOnce(t *testing.T) {
	for _, table := range Tables() {
		seen := map[string]bool{}
		for _, c := range table.Columns {
			if c.Name == "" || c.Meaning == "" || seen[c.Name] {
				t.Errorf("%s: column %+v", table.ID.File(), c)
			}
			seen[c.Name] = true
		}
	}
}

// A long Planner run streams: what a part holds in memory does not grow with it.
func TestTicksStreamToDisk(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, options(Disk{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := Key{Point: "long"}
	p, err := s.Begin(key)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * batchRows {
		if err := p.Tick(tick(i)); err != nil {
			t.Fatal(err)
		}
	}
	if p.ticks.rows != 0 || p.passes.rows != 0 {
		t.Errorf("%d ticks and %d passes wait in memory", p.ticks.rows, p.passes.rows)
	}
	if p.out.size() == 0 {
		t.Error("nothing has left the row builders")
	}
	if err := writeFrame(p.out, Requests, make([]byte, spillBytes)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(s.partName(key) + tmpSuffix); err != nil || info.Size() == 0 || p.out.(*storeSink).small.Cap() > 0 {
		t.Errorf("a large part waits in memory: %v", err)
	}
	if err := p.Commit(&Point{Key: key, Status: Done}); err != nil {
		t.Fatal(err)
	}
	if err := s.Finalize([]Planned{{Key: key}}); err != nil {
		t.Fatal(err)
	}
	rows := 0
	if err := Scan(dir, Ticks, []string{"tick"}, func(f *Frame) error { rows += f.Len(); return nil }); err != nil || rows != 3*batchRows {
		t.Errorf("%d ticks, %v", rows, err)
	}
}

// Whatever bytes a part has, it is read whole or it is torn.
func FuzzPart(f *testing.F) {
	opt := options(nil)
	m, err := NewMaker(opt.Identity, opt.Axes)
	if err != nil {
		f.Fatal(err)
	}
	for _, point := range []string{"p1", "p2"} {
		var out bytes.Buffer
		key := Key{point, 2, true}
		if err := fill(m.Begin(key, &out), key); err != nil {
			f.Fatal(err)
		}
		f.Add(out.Bytes())
	}
	f.Add([]byte(partMagic))
	f.Fuzz(func(t *testing.T, content []byte) {
		where := location{size: int64(len(content))}
		head, set, _, err := newFrames(bytes.NewReader(content), where).row()
		if err != nil {
			if !errors.Is(err, errTorn) {
				t.Errorf("%v is not torn", err)
			}
			return
		}
		m.decodeRow(head)
		for id := Ticks; id < tableCount; id++ {
			if set[id] {
				eachBatch(bytes.NewReader(content), where, id, func(arrow.RecordBatch) error { return nil })
			}
		}
	})
}

func BenchmarkRequests(b *testing.B) {
	_, records := simulate(12000)
	for b.Loop() {
		s, err := Open(b.TempDir(), options(nil))
		if err != nil {
			b.Fatal(err)
		}
		key := Key{Point: "x"}
		p, _ := s.Begin(key)
		if err := p.Requests(records); err != nil {
			b.Fatal(err)
		}
		if err := p.Commit(&Point{Key: key, Status: Done}); err != nil {
			b.Fatal(err)
		}
		if err := s.Finalize([]Planned{{Key: key}}); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
	b.ReportMetric(float64(len(records))*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportAllocs()
}

// TestColumnsBelongToTheirSchemaVersion: a changed column, or its order, is another
// schema: give SchemaVersion a new number and put its digest here.
func TestColumnsBelongToTheirSchemaVersion(t *testing.T) {
	h := sha256.New()
	for _, table := range Tables() {
		fmt.Fprintln(h, table.ID.File())
		for _, c := range table.Columns {
			fmt.Fprintln(h, c.Name, c.Type, c.Required)
		}
	}
	const version, digest = 3, "dafe0207f7df8dec"
	if have := hex.EncodeToString(h.Sum(nil))[:16]; SchemaVersion != version || have != digest {
		t.Errorf("schema version %d has columns %s; version %d had %s", SchemaVersion, have, version, digest)
	}
}
