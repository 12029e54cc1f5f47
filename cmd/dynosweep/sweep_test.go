package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

const smallGrid = `name: small
workload: {synthetic: {input_tokens: 512, output_tokens: 32, requests: 60, concurrency: [4, 16]}}
engine: {block_size: [16, 64]}
topology:
  - {mode: aggregated, workers: [1, 2]}
  - {mode: disaggregated, prefill_workers: 1, decode_workers: 2}
constraints: {max_gpus: 2}
sla: {ttft_ms: 200}
cost: {usd_per_gpu_hour: 2.0}
`

// gridFile writes a specification and returns its path.
func gridFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grid.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// try runs the program; its standard error and error come back too.
func try(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(ctx, &out, &errs, append([]string{"dynosweep"}, args...))
	return out.String(), errs.String(), err
}

// table is points.parquet as text, wall-clock columns left out.
func table(t *testing.T, dir string) string {
	t.Helper()
	f, err := results.ReadPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := 0; i < f.Len(); i++ {
		for _, c := range f.Columns {
			if !c.Wall() {
				b.WriteString(c.Name + "=" + f.Column(c.Name).Text(i) + " ")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestSweepResumesToTheSameTable(t *testing.T) {
	grid, whole, parts := gridFile(t, smallGrid), filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	bg := context.Background()
	if _, _, err := try(t, bg, "sweep", grid, "--out", whole, "--jobs", "1", "-q"); err != nil {
		t.Fatal(err)
	}
	for range 4 { // three points at a time, the last run finds nothing to do
		out, _, err := try(t, bg, "sweep", grid, "--out", parts, "--jobs", "3", "--limit", "3", "-q")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "of 12 points") {
			t.Fatalf("the summary does not count 12 points:\n%s", out)
		}
	}
	if a, b := table(t, whole), table(t, parts); a != b {
		t.Errorf("tables differ:\n%s\n%s", a, b)
	}
	if a := table(t, whole); strings.Count(a, "status=skipped") != 4 || strings.Count(a, "status=done") != 8 {
		t.Errorf("want 8 points done and 4 skipped over the GPU limit:\n%s", a)
	}
	status, _, err := try(t, bg, "sweep", grid, "--out", parts, "--status")
	if err != nil || !strings.Contains(status, "8 done, 0 failed, 4 skipped, 0 open of 12 points") {
		t.Errorf("status: %q, %v", status, err)
	}
}

func TestSweepAgainstAnotherSpecificationIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	bg := context.Background()
	if _, _, err := try(t, bg, "sweep", gridFile(t, smallGrid), "--out", dir, "-q"); err != nil {
		t.Fatal(err)
	}
	other := gridFile(t, strings.Replace(smallGrid, "output_tokens: 32", "output_tokens: 33", 1))
	_, _, err := try(t, bg, "sweep", other, "--out", dir, "-q")
	if exitCode(err) != exitBadInput || !strings.Contains(err.Error(), "belongs to specification") {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
}

func TestInterruptedSweepExits130AndContinues(t *testing.T) {
	grid, dir := gridFile(t, smallGrid), filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := try(t, ctx, "sweep", grid, "--out", dir, "-q")
	if exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), "run the same command again") {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
	out, _, err := try(t, context.Background(), "sweep", grid, "--out", dir, "-q")
	if err != nil || !strings.Contains(out, "8 done, 0 failed, 4 skipped, 0 open") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSweepAssertsNameMetricBoundAndValue(t *testing.T) {
	grid, dir := gridFile(t, smallGrid), filepath.Join(t.TempDir(), "out")
	_, _, err := try(t, context.Background(), "sweep", grid, "--out", dir, "-q", "--assert", "mean_ttft_ms<1")
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "mean_ttft_ms") || !strings.Contains(err.Error(), "< 1") && !strings.Contains(err.Error(), "<1") {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
	_, _, err = try(t, context.Background(), "sweep", grid, "--out", dir, "-q", "--assert", "mean_ttft_msec<1")
	if exitCode(err) != exitBadInput || !strings.Contains(err.Error(), "mean_ttft_ms") {
		t.Errorf("an unknown metric: exit %d: %v", exitCode(err), err)
	}
}

func TestFailedPointIsARowAndCanBeRetried(t *testing.T) {
	// With chunked prefill off, a prompt over the token budget can never start.
	grid := gridFile(t, `name: failing
workload: {synthetic: {input_tokens: 700, output_tokens: 4, requests: 3, concurrency: 1}}
engine: {enable_chunked_prefill: false, max_num_batched_tokens: [512, 1024]}
`)
	dir := filepath.Join(t.TempDir(), "out")
	out, errs, err := try(t, context.Background(), "sweep", grid, "--out", dir)
	if exitCode(err) != exitFailed || !strings.Contains(out, "1 done, 1 failed") || !strings.Contains(errs, "700 prompt tokens") {
		t.Fatalf("exit %d, %v\n%s%s", exitCode(err), err, out, errs)
	}
	before := table(t, dir)
	if _, errs, _ = try(t, context.Background(), "sweep", grid, "--out", dir); strings.Contains(errs, "failed ") {
		t.Errorf("a failed point ran again without --retry-failed:\n%s", errs)
	}
	if _, errs, _ = try(t, context.Background(), "sweep", grid, "--out", dir, "--retry-failed"); !strings.Contains(errs, "failed ") {
		t.Errorf("--retry-failed ran nothing:\n%s", errs)
	}
	if after := table(t, dir); after != before {
		t.Errorf("the same failure made another table:\n%s\n%s", before, after)
	}
}

func TestOnePointAgainWithFullCapture(t *testing.T) {
	grid, dir := gridFile(t, smallGrid), filepath.Join(t.TempDir(), "out")
	bg := context.Background()
	if _, _, err := try(t, bg, "sweep", grid, "--out", dir, "-q"); err != nil {
		t.Fatal(err)
	}
	f, err := results.ReadPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	id := f.Column("point_id").Text(0)
	if _, _, err := try(t, bg, "sweep", grid, "--out", dir, "--point", id); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"report.json", "requests.jsonl", "telemetry.jsonl"} {
		if st, err := os.Stat(filepath.Join(dir, "point-"+id, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := try(t, bg, "sweep", grid, "--out", dir, "--point", "feed"); exitCode(err) != exitBadInput {
		t.Errorf("an unknown point: exit %d: %v", exitCode(err), err)
	}
}

func TestSweepTablesFitEightyColumns(t *testing.T) {
	const few = `workload: {synthetic: {input_tokens: 256, output_tokens: 8, requests: 6, concurrency: [1, 2]}}
topology: {mode: aggregated, workers: [1, 2]}
engine: {block_size: 16}
`
	const many = `workload: {synthetic: {input_tokens: [256, 300], output_tokens: 8, requests: 6}, request_rate: 20}
topology:
  - {mode: aggregated, workers: 2}
  - {mode: disaggregated, prefill_workers: 1, decode_workers: 1, decode_engine: {max_num_batched_tokens: 4096}}
router: {mode: kv_router, config: {overlap_score_credit: [0.5, 1]}}
engine: {max_num_batched_tokens: 2048, num_gpu_blocks: 8192}
planner: [null, {mode: agg, optimization_target: load, decode_scale_up_kv_rate: 90, decode_scale_down_kv_rate: 70, max_gpu_budget: 4, startup_seconds: [0, 60]}]
sla: {ttft_ms: 500, itl_ms: 50}
`
	for name, c := range map[string]struct {
		text, head string // how the table begins
		rows       int
	}{
		"an axis each":        {few, "  concurrency  workers  GPUs  ", 4},
		"an axis each, seeds": {few + "router: {mode: kv_router, config: {router_temperature: 0.5}}\nseeds: [1, 2]\n", "  concurrency  workers  ", 4},
		"names":               {many, "  GPUs  ", 16},
		"names, seeds":        {many + "seeds: [1, 2]\n", "  GPUs  ", 16},
	} {
		out, errs, err := try(t, context.Background(), "sweep", gridFile(t, "name: fits\n"+c.text), "--out", filepath.Join(t.TempDir(), "out"), "-q")
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, errs)
		}
		table, _, _ := strings.Cut(out, "  skipped: ")
		seen := map[string]bool{}
		for line := range strings.Lines(table) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > leastWidth && strings.HasPrefix(line, "  ") {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
			if strings.HasPrefix(line, "  ") {
				seen[line] = true
			}
		}
		if !strings.HasPrefix(out, c.head) || len(seen) != 1+c.rows {
			t.Errorf("%s: %d different lines, want %d and the start %q:\n%s", name, len(seen), 1+c.rows, c.head, out)
		}
	}
}

// What a point leaves before the sweep runs does not keep the sweep from its
// directory.
func TestOnePointFirstThenTheSweep(t *testing.T) {
	grid, dir := gridFile(t, smallGrid), filepath.Join(t.TempDir(), "out")
	bg := context.Background()
	g, err := scenario.ReadSweep(grid, &scenario.Files{})
	if err != nil {
		t.Fatal(err)
	}
	id := g.Points[0].ID
	for _, text := range []string{id[:12], id} {
		if _, _, err := try(t, bg, "sweep", grid, "--out", dir, "--point", text); err != nil {
			t.Fatalf("--point %s: %v", text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "point-"+id, "report.json")); err != nil {
		t.Error(err)
	}
	if _, _, err := try(t, bg, "sweep", grid, "--out", dir, "-q"); err != nil {
		t.Errorf("after --point: %v", err)
	}
	if _, _, err := try(t, bg, "sweep", grid, "--out", dir, "--point", ""); exitCode(err) != exitBadInput {
		t.Errorf("an empty --point: %v", err)
	}
	// Finished points have no rows of requests: that is told.
	_, errs, err := try(t, bg, "sweep", grid, "--out", dir, "-q", "--capture-requests")
	if err != nil || !strings.Contains(errs, "8 points had finished without it") {
		t.Errorf("capture of finished points: %v, %q", err, errs)
	}
}

func TestSweepFlagsWithoutEffectAreRefused(t *testing.T) {
	grid, dir := gridFile(t, smallGrid), filepath.Join(t.TempDir(), "out")
	for want, args := range map[string][]string{
		"--dry-run and --status exclude each other":      {"--dry-run", "--status"},
		"--status and --point exclude each other":        {"--status", "--point", "ab"},
		"--assert has no effect with --point":            {"--point", "ab", "--assert", "mean_ttft_ms<1"},
		"--require-complete has no effect with --status": {"--status", "--require-complete"},
		"--assert: ":          {"--dry-run", "--assert", "mean_ttft_msec<1"},
		"cannot hold results": {"--out", filepath.Join(grid, "below")},
		"--point: the specification has no point \"feedbeef\"": {"--point", "feedbeef"},
	} {
		_, _, err := try(t, context.Background(), append([]string{"sweep", grid, "--out", dir, "-q"}, args...)...)
		if exitCode(err) != exitBadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: exit %d, %v, want %q", args, exitCode(err), err, want)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("something was written")
	}
}

// A specification that can be read only once is kept all the same.
func TestSpecificationFromAPipeIsKept(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString(smallGrid); err != nil {
		t.Fatal(err)
	}
	w.Close()
	pipe := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if _, err := os.Stat(pipe); err != nil {
		t.Skip("no /dev/fd")
	}
	dir := filepath.Join(t.TempDir(), "out")
	if _, _, err := try(t, context.Background(), "sweep", pipe, "--out", dir, "-q", "--limit", "1"); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "spec.yaml")); string(raw) != smallGrid {
		t.Errorf("spec.yaml: %q, %v", raw, err)
	}
}

func TestAssertsNameTheSeed(t *testing.T) {
	grid := gridFile(t, "name: drawn\nworkload: {synthetic: {input_tokens: 64, output_tokens: 4, requests: 9}, request_rate: 20}\ntopology: {mode: aggregated}\nseeds: [1, 2]\n")
	_, _, err := try(t, context.Background(), "sweep", grid, "--out", filepath.Join(t.TempDir(), "out"), "-q", "--assert", "mean_ttft_ms<0")
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "-seed1: ") || !strings.Contains(err.Error(), "-seed2: ") {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
}

func TestTimeLeftIsOfTheRunNotOfTheGrid(t *testing.T) {
	at := time.Unix(0, 0)
	p := newProgress(console{stderr: io.Discard}, func() time.Time { return at })
	at = at.Add(10 * time.Second)
	if text := p.text(sweep.Update{Total: 100, Done: 5, Todo: 6, Ran: 5}); !strings.HasSuffix(text, "0.50 points/s, ETA 2s") {
		t.Errorf("one of six points is left at a point in two seconds: %s", text)
	}
}

func TestBadInputWritesNothing(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(trace, []byte(`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1]}`+"\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"trace line":  {[]string{"sweep", gridFile(t, "workload: {trace: "+trace+"}\n")}, "bad.jsonl:2"},
		"spec key":    {[]string{"sweep", gridFile(t, "workload: {trace: "+trace+"}\nengine:\n  block_sise: 16\n")}, "grid.yaml:3: "},
		"engine args": {[]string{"replay", trace, "--extra-engine-args", `{"engine":{"foo":1}}`}, "engine.foo"},
		"replay line": {[]string{"replay", trace}, "bad.jsonl:2"},
		"no such":     {[]string{"sweep", filepath.Join(dir, "none.yaml")}, "none.yaml"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		flag := "--out"
		if c.args[0] == "replay" {
			flag = "--report-json"
		}
		_, _, err := try(t, context.Background(), append(c.args, flag, out)...)
		if exitCode(err) != exitBadInput || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: exit %d, %v, want %q", name, exitCode(err), err, c.want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
}

func TestReplayChecksForContinuousIntegration(t *testing.T) {
	load := strings.Fields("replay --input-tokens 64 --output-tokens 2 --request-count 4 --replay-concurrency 2 --report-json -")
	if _, _, err := try(t, context.Background(), append(load, "--require-complete", "--assert", "completed_requests==4")...); err != nil {
		t.Error(err)
	}
	small := append(load, "--require-complete", "--extra-engine-args", `{"num_gpu_blocks":1,"block_size":16}`)
	if err := run(context.Background(), io.Discard, io.Discard, append([]string{"dynosweep"}, small...)); exitCode(err) != exitFailed || !strings.Contains(err.Error(), "0 of 4") {
		t.Errorf("rejected requests: %v", err)
	}
}
