package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// golden is what DynoSim 1.6.1 reports on one command line of replay. Origin:
// recorded runs of the reference. Where it draws at random, Spread holds the range
// of each figure over many runs; Failure says that the reference fails or hangs.
type golden struct {
	Name      string
	Args      []string
	Tolerance *float64
	Summary   map[string]any
	Spread    map[string]struct{ Min, Mean, Max float64 }
	Failure   any                `json:"error"`
	Compare   map[string]float64 // figure -> its own tolerance
	Requests  []map[string]any
	Planner   *struct {
		Events []goldenEvent `json:"scaling_events"`
	}
}

type goldenEvent struct {
	AtS       float64 `json:"at_s"`
	Component string
	From      int `json:"from_count"`
	To        int `json:"to_count"`
}

// goldenReport is the part of our report that goldens look at.
type goldenReport struct {
	Planner *struct {
		Events []goldenEvent `json:"scaling_events"`
	}
}

// notCompared hang on real time, or are never known.
var notCompared = []string{"wall_time_ms", "processed_tokens_per_s", "processed_output_tokens_per_s", "power_w", "power_coverage"}

// TestReferenceGoldens runs every recorded case: deterministic ones equal to 1e-9
// relative and to the request, random ones with their mean over seeds inside the
// reference's own spread, Planner runs with the same scaling events.
func TestReferenceGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/goldens/*/*.json.gz")
	if err != nil || len(files) < 130 {
		t.Fatalf("%d recorded cases: %v", len(files), err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(f), "testdata/goldens/"), ".json.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var g golden
			if err := json.Unmarshal(unzip(t, f), &g); err != nil {
				t.Fatal(err)
			}
			g.check(t)
		})
	}
}

func unzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// local replaces a recorded trace by the file that the repository ships.
func local(t *testing.T, arg string) string {
	if !strings.HasPrefix(arg, "traces/") {
		return arg
	}
	if arg == "traces/conversation_trace.jsonl" {
		return "../../configs/traces/conversation.jsonl.gz"
	}
	path := filepath.Join("testdata", arg)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	plain := filepath.Join(t.TempDir(), filepath.Base(arg))
	if err := os.WriteFile(plain, unzip(t, path+".gz"), 0o600); err != nil {
		t.Fatal(err)
	}
	return plain
}

// replayed runs the case; rows are its per-request records.
func (g *golden) replayed(t *testing.T, extra ...string) (goldenReport, map[string]any, []map[string]any, error) {
	t.Helper()
	dir := t.TempDir()
	args := []string{"dynosweep", "replay"}
	for _, a := range g.Args {
		args = append(args, local(t, a))
	}
	out, jsonl := filepath.Join(dir, "report.json"), filepath.Join(dir, "requests.jsonl")
	args = append(args, extra...)
	args = append(args, "--report-json", out, "--report-jsonl", jsonl)
	if err := run(context.Background(), io.Discard, io.Discard, args); err != nil {
		return goldenReport{}, nil, nil, err
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var doc goldenReport
	figures := map[string]any{}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &figures); err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(jsonl)
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	for _, line := range bytes.Split(bytes.TrimSpace(lines), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		row := map[string]any{}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return doc, figures, rows, nil
}

func (g *golden) check(t *testing.T) {
	switch {
	case g.Failure != nil:
		// The reference fails or hangs here: ours ends with a result or a message.
		if _, _, _, err := g.replayed(t); err != nil && len(err.Error()) < 20 {
			t.Errorf("a failure that says nothing: %v", err)
		}
		return
	case g.Spread != nil:
		g.checkSpread(t)
		return
	}
	doc, figures, rows, err := g.replayed(t)
	if err != nil {
		t.Fatal(err)
	}
	if g.Compare != nil {
		for key, tol := range g.Compare {
			if !alike(figures[key], g.Summary[key], tol) {
				t.Errorf("%s: %v, reference %v, tolerance %v", key, figures[key], g.Summary[key], tol)
			}
		}
		return
	}
	tol := 1e-9
	if g.Tolerance != nil {
		tol = *g.Tolerance
	}
	if g.Planner != nil {
		tol = 0.01
		g.checkEvents(t, doc)
	}
	for key, want := range g.Summary {
		if _, nested := want.(map[string]any); nested && key != "agentic_graph" || slices.Contains(notCompared, key) {
			continue
		}
		if have, ok := figures[key]; !ok || !alike(have, want, tol) {
			t.Errorf("%s: %v, reference %v", key, have, want)
		}
	}
	if g.Requests != nil && g.Planner == nil {
		g.checkRows(t, rows)
	}
}

func (g *golden) checkEvents(t *testing.T, doc goldenReport) {
	t.Helper()
	if doc.Planner == nil {
		t.Fatal("no planner block in the report")
	}
	have, want := doc.Planner.Events, g.Planner.Events
	if len(have) != len(want) {
		t.Fatalf("%d scaling events, reference %d", len(have), len(want))
	}
	for i := range want {
		h := have[i]
		h.AtS = want[i].AtS
		if h != want[i] || math.Abs(have[i].AtS-want[i].AtS) > 5e-4 {
			t.Errorf("scaling event %d: %+v, reference %+v", i, have[i], want[i])
		}
	}
}

// checkSpread compares the mean over five seeds with what the reference does from
// run to run.
func (g *golden) checkSpread(t *testing.T) {
	const seeds = 5
	sums := map[string]float64{}
	for seed := 1; seed <= seeds; seed++ {
		_, figures, _, err := g.replayed(t, "--router-seed", strconv.Itoa(seed))
		if err != nil {
			t.Fatal(err)
		}
		for key := range g.Spread {
			if v, ok := figures[key].(float64); ok {
				sums[key] += v / seeds
			}
		}
	}
	for _, key := range []string{"mean_ttft_ms", "mean_itl_ms", "mean_e2e_latency_ms", "output_throughput_tok_s", "prefix_cache_reused_ratio", "duration_ms"} {
		s, ok := g.Spread[key]
		if !ok {
			continue
		}
		room := (s.Max-s.Min)*0.25 + math.Abs(s.Mean)*0.01
		if v := sums[key]; v < s.Min-room || v > s.Max+room {
			t.Errorf("%s: mean %g over %d seeds, outside the reference's %g..%g", key, v, seeds, s.Min, s.Max)
		}
	}
}

// rowFields are compared per request, as sorted lists: the reference's order among
// equal arrivals is random.
var rowFields = []string{"arrival_time_ms", "first_admit_ms", "first_token_ms", "last_token_ms", "terminal_time_ms",
	"input_length", "output_length", "reused_input_tokens", "prefill_worker_idx", "decode_worker_idx"}

func rowKeys(rows []map[string]any) [][]float64 {
	out := make([][]float64, len(rows))
	for i, r := range rows {
		for _, f := range rowFields {
			v, ok := r[f].(float64)
			if !ok {
				v = -1
			}
			out[i] = append(out[i], v)
		}
	}
	slices.SortFunc(out, slices.Compare)
	return out
}

func (g *golden) checkRows(t *testing.T, rows []map[string]any) {
	t.Helper()
	have, want := rowKeys(rows), rowKeys(g.Requests)
	if len(have) != len(want) {
		t.Fatalf("%d request records, reference %d", len(have), len(want))
	}
	for i := range want {
		for j, f := range rowFields {
			if !near(have[i][j], want[i][j], 1e-9, 1e-6) {
				t.Fatalf("request %d of %d, %s: %v, reference %v", i, len(want), f, have[i], want[i])
			}
		}
	}
}

func near(a, b, rel, abs float64) bool {
	return a == b || math.Abs(a-b) <= max(abs, rel*max(math.Abs(a), math.Abs(b)))
}

// alike compares two JSON values, numbers within rel.
func alike(a, b any, rel float64) bool {
	x, ok1 := a.(float64)
	y, ok2 := b.(float64)
	if ok1 && ok2 {
		return near(x, y, rel, 1e-9)
	}
	return reflect.DeepEqual(a, b)
}
