package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/results"
)

// TestReportKeepsTheFirstTicksAndSaysWhereAllAre: 12,000 ticks, of which the report
// has 10,000; the file has every one, the first ones alike.
func TestReportKeepsTheFirstTicksAndSaysWhereAllAre(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ticks.jsonl")
	load := []string{"--input-tokens", "64", "--output-tokens", "4", "--request-count", "121", "--arrival-interval-ms", "100000",
		"--planner-config", `{"mode":"agg","load_adjustment_interval_seconds":1,"decode_engine_num_gpu":1}`}
	r := replayed(t, append(load, "--ticks-jsonl", file)...)
	p := r.Planner
	if p.TotalTicks != 12_000 || p.TicksKept != maxReportTicks || len(p.Ticks) != maxReportTicks || p.TicksFile == nil || *p.TicksFile != file {
		t.Errorf("%d ticks, %d said to be kept, %d in the report, file %v", p.TotalTicks, p.TicksKept, len(p.Ticks), p.TicksFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if len(lines) != p.TotalTicks {
		t.Fatalf("%d lines, want one per tick", len(lines))
	}
	for _, i := range []int{0, maxReportTicks - 1, p.TotalTicks - 1} {
		var tick tickSeen
		if err := json.Unmarshal(lines[i], &tick); err != nil {
			t.Fatal(err)
		}
		if want := float64(i+1) * 1000; tick.AtMs != want || i < maxReportTicks && p.Ticks[i].AtMs != want {
			t.Errorf("line %d is the tick at %v ms", i+1, tick.AtMs)
		}
	}

	report := filepath.Join(t.TempDir(), "report.json")
	_, stderr, code := runProgram(append([]string{"replay", "--report-json", report}, load...)...)
	if code != 0 || !strings.Contains(stderr, "the first 10000 of 12000 Planner ticks: --ticks-jsonl FILE") {
		t.Errorf("exit %d without a file: %s", code, stderr)
	}
	if _, stderr, code := runProgram("replay", "--input-tokens", "64", "--output-tokens", "4", "--request-count", "2", "--ticks-jsonl", file); code != 2 {
		t.Errorf("ticks without a Planner: exit %d, %s", code, stderr)
	}
}

// TestPlannerBlockHasTheKeysOfTheReference: what a report of 1.6.1 has, beside ours.
func TestPlannerBlockHasTheKeysOfTheReference(t *testing.T) {
	trace := burst(t, 64, []int{512}, phase{0, 20_000, 500})
	r := autoscale(t, trace, smallFixed(""), easyPlanner(""))
	m := r.Planner.Metadata
	for key, want := range map[string]any{"mode": "agg", "benchmark_granularity": 8.0, "pipeline_schema_version": "planner-plugin-pipeline.v1", "details_captured": true} {
		if m[key] != want {
			t.Errorf("metadata.%s is %v, want %v", key, m[key], want)
		}
	}
	if digest, _ := m["planner_config_digest"].(string); len(digest) != 64 {
		t.Errorf("planner_config_digest is %v", m["planner_config_digest"])
	}
}

// TestLifecycleOperationsAreThoseOfTheReference: every change of every worker in the
// recorded Planner runs of 1.6.1 (origin: their lifecycle_operations).
func TestLifecycleOperationsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	var recorded map[string][]any
	if err := json.Unmarshal(unzip(t, "testdata/planner/lifecycle.json.gz"), &recorded); err != nil {
		t.Fatal(err)
	}
	for name, want := range recorded {
		var g golden
		if err := json.Unmarshal(unzip(t, "testdata/goldens/planner/"+name+".json.gz"), &g); err != nil {
			t.Fatal(err)
		}
		report := filepath.Join(t.TempDir(), "report.json")
		args := []string{"replay", "--report-json", report}
		for _, a := range g.Args {
			args = append(args, local(t, a))
		}
		if _, stderr, code := runProgram(args...); code != 0 {
			t.Fatalf("%s: exit %d: %s", name, code, stderr)
		}
		text, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Planner struct {
				Operations []any `json:"lifecycle_operations"`
			}
		}
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(r.Planner.Operations, want) {
			t.Errorf("%s: operations\n%v\nthe reference has\n%v", name, r.Planner.Operations, want)
		}
	}
}

// TestPlannerGPUHoursAreNeverASilentZero: unset is null with a notice, another count
// than the engine's is a notice, and a bound on what is unset fails.
func TestPlannerGPUHoursAreNeverASilentZero(t *testing.T) {
	trace := burst(t, 64, []int{512}, phase{0, 20_000, 500})
	report := filepath.Join(t.TempDir(), "report.json")
	replay := func(config string, more ...string) (string, int) {
		_, stderr, code := runProgram(append([]string{"replay", trace, "--trace-block-size", "64", "--report-json", report,
			"--extra-engine-args", smallFixed(`,"tensor_parallel_size":2`), "--planner-config", config}, more...)...)
		return stderr, code
	}
	stderr, code := replay(`{"mode":"agg"}`)
	if code != 0 || !strings.Contains(stderr, "notice: decode_engine_num_gpu: is unset") {
		t.Errorf("unset: exit %d, %s", code, stderr)
	}
	var r scaled
	text, _ := os.ReadFile(report)
	if err := json.Unmarshal(text, &r); err != nil || r.Planner.GPUHours != nil || !bytes.Contains(text, []byte(`"planner_gpu_hours": null`)) {
		t.Errorf("unset: planner_gpu_hours is not null (%v)", err)
	}
	if r.GPUHours != r.DecodeWorkS*2/3600 {
		t.Errorf("gpu_hours %v, want %v worker-seconds at 2 GPUs", r.GPUHours, r.DecodeWorkS)
	}
	if stderr, code := replay(`{"mode":"agg"}`, "--assert", "planner_gpu_hours<1"); code != 1 || !strings.Contains(stderr, "planner_gpu_hours has no value") {
		t.Errorf("a bound on unset GPU-hours: exit %d, %s", code, stderr)
	}
	if stderr, code := replay(`{"mode":"agg","decode_engine_num_gpu":2}`, "--assert", "planner_gpu_hours>0"); code != 0 || strings.Contains(stderr, "notice") {
		t.Errorf("GPUs as the engine's: exit %d, %s", code, stderr)
	}
	if stderr, code := replay(`{"mode":"agg","decode_engine_num_gpu":2,"max_gpu_budget":1}`); code != 1 ||
		!strings.Contains(stderr, "max_gpu_budget: 1 GPUs do not hold the least workers, which take 2") ||
		!strings.Contains(stderr, "no active workers for round-robin placement") {
		t.Errorf("a budget below one worker: exit %d, %s", code, stderr)
	}
	if stderr, code := replay(`{"mode":"agg","decode_engine_num_gpu":3}`); code != 0 || !strings.Contains(stderr, "is 3, but the engine takes 2 GPUs") {
		t.Errorf("GPUs other than the engine's: exit %d, %s", code, stderr)
	}
}

// TestSweepTellsEachPlannerNoticeOnce: over all points, with the path of the variant.
func TestSweepTellsEachPlannerNoticeOnce(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "s.yaml")
	text := `workload: {synthetic: {input_tokens: 256, output_tokens: 16, requests: 50, arrival_interval_ms: 300}}
engine: {num_gpu_blocks: 512}
topology: {mode: aggregated, workers: [1, 2]}
planner:
  - null
  - {mode: agg, optimization_target: latency, namespace: prod, ttft_ms: 100, startup_seconds: [0, 20]}
cost: {usd_per_gpu_hour: 2}
`
	if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	_, stderr, code := runProgram("sweep", spec, "--out", out, "--quiet")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{"namespace: ", "ttft_ms: is read with", "decode_engine_num_gpu: is unset"} {
		if n := strings.Count(stderr, want); n != 1 || !strings.Contains(stderr, "planner[1]."+want) {
			t.Errorf("%d notices of %q in:\n%s", n, want, stderr)
		}
	}
	f, err := results.ReadPoints(out)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Len() {
		planned := f.Column("planner.mode").Text(i) == "agg"
		if !f.Column("planner_gpu_hours").Null(i) || f.Column("scaling_events").Null(i) == planned || f.Column("cost_usd").Null(i) {
			t.Errorf("row %d: planner_gpu_hours must be null, scaling_events defined with a Planner alone, and cost_usd known", i)
		}
	}
}

// TestPlannerProfileDataInItsThreeForms: an .npz stands in package timing's tests; a
// profiler's folder and either of its raw-data files come to one and the same run.
func TestPlannerProfileDataInItsThreeForms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	decode := func(ms float64) string {
		var kv, context, itl []string
		for _, u := range []float64{0.1, 0.3, 0.6, 0.9} {
			for _, c := range []float64{500, 1000, 4000} {
				kv, context = append(kv, fmt.Sprint(u)), append(context, fmt.Sprint(c))
				itl = append(itl, fmt.Sprint(ms+1e-4*u*100_000+0.05*u*100_000/c))
			}
		}
		return fmt.Sprintf(`{"x_kv_usage":[%s],"y_context_length":[%s],"z_itl":[%s],"max_kv_tokens":100000}`,
			strings.Join(kv, ","), strings.Join(context, ","), strings.Join(itl, ","))
	}
	prefill := write("prefill_raw_data.json", `{"prefill_isl":[100,200,400,800,1600,3200],"prefill_ttft":[6,7,9,13,21,37]}`)
	write("decode_raw_data.json", decode(4))
	type outcome struct {
		TTFT       float64 `json:"mean_ttft_ms"`
		Provenance struct {
			Point string `json:"point_id"`
		}
	}
	replay := func(path string) (o outcome) {
		report := filepath.Join(t.TempDir(), "report.json")
		args, _ := json.Marshal(map[string]any{"planner_profile_data": path, "block_size": 64, "num_gpu_blocks": 1024})
		_, stderr, code := runProgram("replay", "--input-tokens", "1600", "--output-tokens", "20", "--request-count", "5", "--arrival-interval-ms", "1000",
			"--extra-engine-args", string(args), "--report-json", report)
		if code != 0 {
			t.Fatalf("%s: exit %d: %s", path, code, stderr)
		}
		text, _ := os.ReadFile(report)
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	folder := replay(dir)
	if folder.TTFT < 20 || folder.TTFT > 22 {
		t.Errorf("TTFT of 1600 tokens is %v ms, measured were 21", folder.TTFT)
	}
	if file := replay(prefill); file != folder {
		t.Errorf("raw-data file %+v, its folder %+v", file, folder)
	}
	write("decode_raw_data.json", decode(9))
	if file := replay(prefill); file.Provenance.Point == folder.Provenance.Point {
		t.Error("other decode points beside the named file, and the same identity")
	}
	_, stderr, code := runProgram("replay", "--input-tokens", "16", "--output-tokens", "2", "--request-count", "1", "--arrival-interval-ms", "1",
		"--extra-engine-args", fmt.Sprintf(`{"planner_profile_data":%q}`, t.TempDir()), "--report-json", filepath.Join(t.TempDir(), "r.json"))
	if code != 2 || !strings.Contains(stderr, "neither") {
		t.Errorf("an empty folder: exit %d, %s", code, stderr)
	}
}

// TestPointCaptureHasItsTicks: sweep --point leaves every tick beside the report.
func TestPointCaptureHasItsTicks(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "s.yaml")
	text := `workload: {synthetic: {input_tokens: 256, output_tokens: 16, requests: 50, arrival_interval_ms: 300}}
engine: {num_gpu_blocks: 512}
planner: {mode: agg, decode_engine_num_gpu: 1}
`
	if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if _, stderr, code := runProgram("sweep", spec, "--out", out, "--quiet"); code != 0 {
		t.Fatal(stderr)
	}
	f, err := results.ReadPoints(out)
	if err != nil {
		t.Fatal(err)
	}
	id := f.Column("point_id").Text(0)
	if _, stderr, code := runProgram("sweep", spec, "--out", out, "--point", id); code != 0 {
		t.Fatal(stderr)
	}
	files, err := filepath.Glob(filepath.Join(out, "point-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if want := []string{"report.json", "requests.jsonl", "telemetry.jsonl", "ticks.jsonl"}; !slices.Equal(files, want) {
		t.Errorf("capture leaves %v, want %v", files, want)
	}
}
