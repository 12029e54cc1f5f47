package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

const reportGrid = `name: choices
workload: {synthetic: {input_tokens: 512, output_tokens: 32, requests: 80, shared_prefix_ratio: 0.5, num_prefix_groups: 4}, request_rate: 40}
engine: {block_size: 16, num_gpu_blocks: 2048}
topology:
  - {mode: aggregated, workers: [1, 2, 4]}
  - {mode: disaggregated, prefill_workers: [1, 2], decode_workers: 2, kv_transfer: {bytes_per_token: 131072, bandwidth_gb_per_second: 40}}
router:
  - {mode: round_robin}
  - {mode: kv_router, config: {overlap_score_credit: [0, 1]}}
planner:
  - null
  - {mode: agg, optimization_target: load, decode_scale_up_kv_rate: 50, decode_scale_down_kv_rate: 10, max_gpu_budget: 4, load_adjustment_interval_seconds: 1, startup_seconds: 0.5}
constraints: {max_gpus: 3}
sla: {ttft_ms: 200, itl_ms: 20}
cost: {usd_per_gpu_hour: 2.0}
seeds: [1, 2]
`

// swept runs a specification and returns its results directory and what was printed.
func swept(t *testing.T, text string) (dir, printed string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	printed, _, err := try(t, context.Background(), "sweep", gridFile(t, text), "--out", dir, "--quiet")
	if err != nil {
		t.Fatal(err)
	}
	return dir, printed
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := try(t, context.Background(), args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out
}

// Every finished row can be run again by the replay command rendered from it, and
// gives the same figures to the last bit.
func TestReplayCommandsReproduceTheirRows(t *testing.T) {
	dir, _ := swept(t, reportGrid)
	f, err := results.ReadPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	ran := 0
	for i := 0; i < f.Len() && ran < 24; i++ {
		if f.Column("status").Text(i) != string(results.Done) {
			continue
		}
		ran++
		args, err := newReplayer().Args(f.Column("config").Text(i))
		if err != nil {
			t.Fatal(err)
		}
		must(t, append([]string{"replay", "--report-json", report}, args...)...)
		raw, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		for _, k := range metrics.Keys() {
			want, ok := f.Column(columnOf(k)).Float(i)
			if v, have := got[k.Name].(float64); !k.Wall && (have != ok || v != want) {
				t.Errorf("replay %q: %s is %v, the row says %v", args, k.Name, got[k.Name], want)
			}
		}
	}
	if ran < 15 {
		t.Errorf("only %d rows ran", ran)
	}
}

// columnOf is the column of a report key.
func columnOf(k metrics.Key) string {
	if k.Wall && !strings.HasPrefix(k.Name, "wall_") {
		return "wall_" + k.Name
	}
	return k.Name
}

func TestReportSaysTheSameInEveryFormat(t *testing.T) {
	dir, printed := swept(t, reportGrid)
	for _, want := range []string{"seeds", " ±", " ~", "paired by seed"} {
		if !strings.Contains(printed, want) {
			t.Errorf("the sweep's table over seeds lacks %q:\n%s", want, printed)
		}
	}
	var doc reportDoc
	if err := json.Unmarshal([]byte(must(t, "report", dir, "--format", "json")), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Loads) != 1 || doc.Loads[0].Deploy == nil || doc.Skipped == 0 || len(doc.Planner) == 0 {
		t.Fatalf("report: %+v", doc)
	}
	id := *doc.Loads[0].Deploy
	words := strings.Join(strings.Fields(must(t, "report", dir)), " ")
	markdown := must(t, "report", dir, "--format", "markdown")
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"table": words, "markdown": markdown, "page": string(page)} {
		if !strings.Contains(text, id) {
			t.Errorf("%s does not name the choice %s", name, id)
		}
	}
	if !strings.Contains(words, doc.Loads[0].Sentence) || !strings.Contains(words, "Planner No Planner point meets the SLA; the nearest, ") {
		t.Errorf("the table lacks the verdict or the Planner:\n%s", words)
	}
	if n := strings.Count(markdown, "\n"); n > 60 {
		t.Errorf("markdown has %d lines, want at most 60", n)
	}
	for _, line := range strings.Split(must(t, "report", dir, "--page", "none"), "\n") {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(must(t, "report", dir, "--format", "csv"))).ReadAll()
	if err != nil || len(rows) != doc.Points+1 {
		t.Errorf("csv: %d rows, %v; want %d points", len(rows), err, doc.Points)
	}
}

func TestReportRefusals(t *testing.T) {
	dir, _ := swept(t, smallGrid)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"report"}, "report takes one results directory, got 0 arguments"},
		{[]string{"report", t.TempDir()}, "holds no points.parquet: give the results directory of a sweep"},
		{[]string{"report", dir, "--format", "xml"}, `--format: must be table, csv, json or markdown, got "xml"`},
		{[]string{"report", dir, "--sla", "ttft_ms=150,itl_ms=50"}, "--sla: ttft_ms=150 was not counted while the points ran"},
		{[]string{"report", dir, "--sla", "ttft=150"}, `--sla: unknown limit "ttft": use ttft_ms and itl_ms`},
		{[]string{"report", dir, "--sla", "ttft_ms"}, `--sla: want key=number, got "ttft_ms"`},
		{[]string{"report", dir, "--price", "default=-1"}, `--price: want key=number, got "default=-1"`},
		{[]string{"report", dir, "--attainment", "0"}, "--attainment: must be above 0 and at most 1, got 0"},
		{[]string{"report", filepath.Join(dir, "manifest.json")}, "is no directory: give the results directory of a sweep"},
		{[]string{"report", dir, "--page", filepath.Join(dir, "manifest.json", "x.html")}, "give another --page FILE, or none"},
		{[]string{"compare", dir, dir, "--pairs", "-1"}, "--pairs: must not be negative, got -1"},
		{[]string{"report", dir, "--baseline", "zz"}, `--baseline: no point "zz"`},
		{[]string{"report", dir, "--point", "zz"}, "--point needs --deploy DIR"},
		{[]string{"report", dir, "--deploy", t.TempDir(), "--point", "zz"}, `--point: 0 finished points begin with "zz"`},
		{[]string{"compare", dir}, "compare takes two sets of results, got 1 arguments"},
		{[]string{"compare", dir, "/nowhere"}, "/nowhere: no such results"},
		{[]string{"compare", dir, dir, "--format", "csv"}, `--format: must be table or json, got "csv"`},
	} {
		_, _, err := try(t, context.Background(), c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) || exitCode(err) != exitBadInput {
			t.Errorf("%q: %v (exit %d), want %s", c.args, err, exitCode(err), c.want)
		}
	}
}

func TestCompareRoundRobinWithKVRouter(t *testing.T) {
	dir := t.TempDir()
	load := []string{"--input-tokens", "512", "--output-tokens", "16", "--request-count", "60", "--shared-prefix-ratio", "0.5", "--num-prefix-groups", "4",
		"--replay-concurrency", "8", "--num-workers", "2", "--extra-engine-args", `{"block_size":16}`}
	a, b := filepath.Join(dir, "rr.json"), filepath.Join(dir, "kv.json")
	must(t, append([]string{"replay", "--report-json", a}, load...)...)
	must(t, append([]string{"replay", "--report-json", b, "--router-mode", "kv_router"}, load...)...)
	out := must(t, "compare", a, b)
	for _, want := range []string{"A  rr.json", "B  kv.json", "output throughput (tok/s)", "TTFT mean (ms)", "ITL mean (ms)", "prefix reuse (0..1)", "single run"} {
		if !strings.Contains(out, want) {
			t.Errorf("compare lacks %q:\n%s", want, out)
		}
	}
	if first := strings.Index(out, "output throughput"); first > strings.Index(out, "TTFT") || first > strings.Index(out, "prefix reuse") {
		t.Error("throughput is not first")
	}
	var doc struct{ Pairs []pairDoc }
	if err := json.Unmarshal([]byte(must(t, "compare", a, b, "--format", "json")), &doc); err != nil || len(doc.Pairs) != 1 || doc.Pairs[0].Deltas[0].Method != "single run" {
		t.Errorf("json: %v, %+v", err, doc)
	}
}

// manifest is what a test reads of a DynamoGraphDeployment.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Spec       struct {
		Services map[string]struct {
			Replicas     int
			SubComponent string `yaml:"subComponentType"`
			Resources    struct{ Limits struct{ GPU string } }
			Pod          struct {
				Main struct{ Command, Args []string } `yaml:"mainContainer"`
			} `yaml:"extraPodSpec"`
		}
	}
}

// Two runs of one specification bear one name: their folders tell them apart. What a
// Planner did is compared too.
func TestCompareTellsTwoRunsOfOneSpecificationApart(t *testing.T) {
	before, _ := swept(t, reportGrid)
	after, _ := swept(t, reportGrid)
	out := must(t, "compare", before, after)
	for _, want := range []string{"A  " + before + "\n", "B  " + after + "\n", "scaling events (events)"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// The last request ends before the time limit, until which the workers are paid for:
// the price of an hour is that of the fleet all the same.
func TestAFixedFleetCostsItsPriceAnHour(t *testing.T) {
	dir, _ := swept(t, `workload: {trace: testdata/traces/conversation_500.jsonl.gz, max_sim_time_seconds: 5}
topology: {workers: 4}
sla: {ttft_ms: 60000, itl_ms: 1000}
cost: {usd_per_gpu_hour: 2}
`)
	if out := must(t, "report", dir, "--page", "none", "--attainment", "0.01"); !strings.Contains(out, "$8.00 an hour, $192.00 a day") {
		t.Errorf("4 GPUs at $2:\n%s", out)
	}
}

func TestCompareFitsEightyColumns(t *testing.T) {
	text := "name: %s\nworkload: {synthetic: {input_tokens: 300, output_tokens: 8, requests: 20}, request_rate: [9, 20]}\ntopology: {mode: aggregated}\nengine: {max_num_batched_tokens: %d}\nsla: {ttft_ms: 50, itl_ms: 20}\nseeds: [1, 2, 3]\n"
	a, _ := swept(t, fmt.Sprintf(text, "a", 2048))
	b, _ := swept(t, fmt.Sprintf(text, "b", 128))
	out, _, err := try(t, context.Background(), "compare", a, b)
	if err != nil || !strings.Contains(out, " [+") {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > leastWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestDeployWritesWhatThePointRan(t *testing.T) {
	dir, _ := swept(t, strings.NewReplacer("constraints: {max_gpus: 3}", "constraints: {max_gpus: 4}", "num_gpu_blocks: 2048", "num_gpu_blocks: 2048, tensor_parallel_size: 1").Replace(reportGrid))
	f, err := results.ReadPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := 0; i < f.Len(); i++ {
		if f.Column("status").Text(i) != string(results.Done) {
			continue
		}
		mode, router, planner := f.Column("topology.mode").Text(i), f.Column("router.mode").Text(i), f.Column("planner.mode").Text(i)
		if kind := mode + router + planner; seen[kind] {
			continue
		} else {
			seen[kind] = true
		}
		into := t.TempDir()
		must(t, "report", dir, "--deploy", into, "--point", f.Column("point_id").Text(i))
		var m manifest
		raw, err := os.ReadFile(filepath.Join(into, "graph.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(raw, &m); err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		services := m.Spec.Services
		if m.Kind != "DynamoGraphDeployment" || m.APIVersion != "nvidia.com/v1alpha1" {
			t.Errorf("%s %s", m.APIVersion, m.Kind)
		}
		if want := map[string]string{"round_robin": "round-robin", "kv_router": "kv"}[router]; strings.Join(services["Frontend"].Pod.Main.Args, " ") != "--router-mode "+want {
			t.Errorf("%s: frontend %q", router, services["Frontend"].Pod.Main.Args)
		}
		if _, ok := services["Planner"]; ok != (planner != "") {
			t.Errorf("Planner in the graph: %v, in the point: %q", ok, planner)
		}
		count := func(name, axis string) {
			n, _ := f.Column(axis).Int(i)
			if s := services[name]; int64(s.Replicas) != n || s.Resources.Limits.GPU != "1" || !strings.Contains(strings.Join(s.Pod.Main.Args, " "), "--block-size 16 ") {
				t.Errorf("%s: %+v, want %d replicas", name, s, n)
			}
		}
		if mode == "aggregated" {
			count("VllmWorker", "topology.workers")
		} else {
			count("VllmPrefillWorker", "topology.prefill_workers")
			count("VllmDecodeWorker", "topology.decode_workers")
		}
		for _, name := range []string{"launch.sh", "aiperf.sh"} {
			if out, err := exec.Command("sh", "-n", filepath.Join(into, name)).CombinedOutput(); err != nil {
				t.Errorf("%s: %v %s", name, err, out)
			}
		}
	}
	if len(seen) < 5 {
		t.Errorf("only %d kinds of points", len(seen))
	}
}
