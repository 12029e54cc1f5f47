package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// asked is a resolver that keeps every question, as text, and answers by it.
type asked struct{ list []string }

func (a *asked) answer(q TimingQuery) (TimingAnswer, error) {
	text, err := json.Marshal(q)
	a.list = append(a.list, string(text))
	return TimingAnswer{Model: timing.Fixed{Prefill: float64(len(text)), Decode: 1}, Blocks: len(text), BytesPerToken: len(text)}, err
}

// simulated is what a run says to the simulator.
type simulated struct {
	Config    sim.Config
	Asked     []string
	Load      any
	Paths     []string
	Model     string // execution model
	Planner   any
	GPUs      int
	Systems   []string
	Resolved  string
	ID        string
	Telemetry float64
}

func simulate(t *testing.T, run *Run) simulated {
	t.Helper()
	var a asked
	cfg, err := run.Config(nil, a.answer)
	if err != nil {
		t.Fatal(err)
	}
	out := simulated{Config: cfg, Asked: a.list, GPUs: run.GPUs(), Resolved: string(run.ResolvedJSON()), ID: run.ID(),
		Model: run.Workload.ExecutionModel, Telemetry: run.TelemetryMs}
	for _, role := range run.roles() {
		out.Systems = append(out.Systems, role.System())
	}
	if s, ok := run.Synthetic(); ok {
		if !s.Drawn() {
			s.ArrivalSeed = 0 // nothing reads it
		}
		if run.Workload.Synthetic.Control == 0 {
			s.Speedup = 1 // a closed loop has no arrivals
		}
		out.Load = s
	} else {
		d, _ := run.Drive()
		if d.ClosedLoop {
			d.Speedup = 1
		}
		out.Load, out.Paths = []any{d, run.Workload.Trace.Load}, run.Workload.Trace.Paths
	}
	if p := run.Planner; p != nil {
		c := p.Config
		c.Recorder.ReportHours, c.Recorder.DashboardPort = 0, 0 // no figure reads them
		out.Planner = []any{c, p.Granularity}
	}
	return out
}

// checkRoundTrip holds the law: scenario, text, scenario, the same text, identity
// and simulation, with the files read again and with the recorded digests.
func checkRoundTrip(t *testing.T, run *Run, files *Files) {
	t.Helper()
	want := simulate(t, run)
	for _, f := range []*Files{nil, files} {
		again, err := ParseResolved([]byte(want.Resolved), f)
		if err != nil {
			t.Fatalf("%v\n%s", err, want.Resolved)
		}
		got := simulate(t, &again)
		a, b := reflect.ValueOf(want), reflect.ValueOf(got)
		for i := range a.NumField() {
			if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
				t.Errorf("%s\n got %+v\nwant %+v", a.Type().Field(i).Name, b.Field(i), a.Field(i))
			}
		}
	}
	checkSorted(t, []byte(want.Resolved))
}

// checkSorted holds that the text is compact JSON with sorted keys.
func checkSorted(t *testing.T, text []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	sorted, _ := json.Marshal(v)
	if !bytes.Equal(sorted, text) {
		t.Errorf("keys are not sorted\n got %s\nwant %s", text, sorted)
	}
}

// checkGrid checks one point in every few.
func checkGrid(t *testing.T, grid *Grid, files *Files, every int) {
	t.Helper()
	ran := 0
	for i := 0; i < len(grid.Points); i += every {
		p := &grid.Points[i]
		if p.Skip == "" {
			checkRoundTrip(t, &p.Run, files)
			ran++
		}
		if t.Failed() {
			t.Fatalf("point %d", i)
		}
	}
	if ran == 0 {
		t.Error("no point runs")
	}
}

func TestResolvedPointsOfConfigsReadBack(t *testing.T) {
	names, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(names) < 5 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			files := &Files{}
			if strings.Contains(name, "predict") {
				run, err := ReadPredict(name, PredictOptions{Stack: "engine"}, files)
				if err != nil {
					t.Fatal(err)
				}
				checkRoundTrip(t, &run, files)
				return
			}
			if strings.Contains(name, "recommend") {
				checkCandidates(t, name, files)
				return
			}
			grid, err := ReadSweep(name, files)
			if err != nil {
				t.Fatal(err)
			}
			checkGrid(t, grid, files, 1)
		})
	}
}

func checkCandidates(t *testing.T, name string, files *Files) {
	t.Helper()
	var a asked
	o := RecommendOptions{PredictOptions: PredictOptions{Stack: "engine"}, Resolve: a.answer}
	r, err := ReadRecommend(name, o, files)
	if err != nil {
		t.Fatal(err)
	}
	for branch := range r.Branches {
		for i := range r.Branches[branch].Size {
			if c := r.Candidate(branch, i); c.Refused == nil {
				checkRoundTrip(t, &c.Run, files)
			}
		}
	}
}

func TestResolvedPointsOfAllSectionsReadBack(t *testing.T) {
	dir := sweepFolder(t)
	product, err := os.ReadFile(filepath.Join("testdata", "product.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	trace := `{"timestamp": 0, "input_length": 100, "output_length": 4, "hash_ids": [1]}` + "\n"
	policy, err := os.ReadFile("../../sim/router/testdata/policy.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"trace.jsonl": trace, "policy.json": string(policy)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{string(product), commandSweep, small + `
engine: {aic_mtp_seed: 7, aic_nextn: [null, 3], startup_time: [0.1, 0.7, 33.3, 0.0123456789]}
topology: {mode: disaggregated, decode_engine: {aic_nextn: null}, prefill_engine: {preemption_mode: fifo}, kv_transfer: {bytes_per_token: auto, bandwidth_gb_per_second: [null, 50]}}
timing: {prefill: {type: aic, model: Qwen/Qwen3-32B, system: h200_sxm, tensor_parallel: 2, moe_tensor_parallel: 1, moe_expert_parallel: 2, decode_qk_norm: true, gemm_dtype: fp8_block}, decode: {type: fixed, prefill_ms: 0, decode_ms: 3}}
router: [{mode: kv_router, config: {router_prefill_load_model: [none, ais]}}, {mode: kv_router, config: {router_policy_config: policy.json}}, {mode: random}, {mode: least_loaded}, {mode: power_of_two}]
`} {
		files := &Files{}
		grid, err := ParseSweep("s.yaml", dir, []byte(text), files)
		if err != nil {
			t.Fatal(err)
		}
		checkGrid(t, grid, files, max(1, min(11, len(grid.Points)/100)))
	}
}

func TestResolvedPredictFilesReadBack(t *testing.T) {
	for _, set := range [][]string{nil, {"planner.policy=enabled"}, {"engine.workers.prefill.timing.type=polynomial"}} {
		files := &Files{}
		run, err := ParsePredict("p.yaml", sweepFolder(t), []byte(disaggregatedFile), PredictOptions{Stack: "dynamo", Set: set}, files)
		if err != nil {
			t.Fatal(set, err)
		}
		checkRoundTrip(t, &run, files)
	}
}

// What a configuration cannot be is refused with the path of each fault.
func TestParseResolvedRefuses(t *testing.T) {
	good := string(mustParse(t, small+"topology: {mode: disaggregated}\nrouter: {mode: kv_router}\nplanner: {mode: disagg, optimization_target: latency}\n").Points[0].Resolved())
	for _, c := range []struct{ old, new, want string }{
		{`"mode":"disaggregated"`, `"mode":"both"`, "mode: must be `aggregated` or `disaggregated`, got `both`"},
		{`"block_size":64`, `"block_size":"64"`, `decode_engine.engine.block_size: expected an integer, got "64"`},
		{`"block_size":64`, `"block_size":0`, "decode_engine.engine.block_size: block_size must be positive"},
		{`"block_size":64`, `"block_size":64,"page":1`, "decode_engine.engine.page: unknown key"},
		{`"block_size":64`, `"block_size":64,"block_size":64`, "decode_engine.engine.block_size: the key is given twice"},
		{`"dp_size":1,`, ``, "decode_engine.dp_size: the key is missing"},
		{`"preemption_mode":"lifo"`, `"preemption_mode":"random"`, "decode_engine.engine.preemption_mode: unknown variant"},
		{`"kv_transfer":null`, `"kv_transfer":{"bandwidth_gb_per_second":-1,"bytes_per_token":"much","contention":"none","timing_mode":"full_prompt"}`,
			`kv_transfer.bytes_per_token: must be auto or a number of bytes`},
		{`"concurrency":2`, `"concurrency":0`, "workload.concurrency: replay_concurrency must be at least 1"},
		{`"concurrency":2`, `"concurrency":2,"request_rate":1`, "workload: exactly one of concurrency"},
		{`"type":"synthetic"`, `"type":"guessed"`, "workload.input_tokens: unknown key"},
		{`"quantum":1`, `"quantum":0`, "router.config.router_policy.policy_classes: quantum of class default must be positive"},
		{`"prefill_workers":1`, `"prefill_workers":0`, "prefill_workers: must be from 1 to"},
		{`"benchmark_granularity":8`, `"benchmark_granularity":0`, "planner.benchmark_granularity: must be from 1 to 4096, got 0"},
		{`"worker_type":"prefill"`, `"worker_type":"decode"`, "mode: offline disaggregated replay requires"},
		{`"seeds":{"router":0}`, `"seeds":{"arrival":3,"router":0}`, "seeds.arrival: 3 does not fit the rest, which makes it null"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Errorf("%s is not in %s", c.old, good)
			continue
		}
		_, err := ParseResolved([]byte(text), nil)
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+c.want) || !errors.Is(err, document.ErrInput) {
			t.Errorf("%s\n got %v\nwant %s", c.new, err, c.want)
		}
	}
	for _, bad := range []string{"", "null", "{}", "[]", `{"mode":"aggregated"}`, good[:100], good + "x"} {
		if _, err := ParseResolved([]byte(bad), nil); !errors.Is(err, document.ErrInput) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A file that is not what it was, or is gone, is named.
func TestFromResolvedReadsTheFilesAgain(t *testing.T) {
	dir := sweepFolder(t)
	grid, err := ParseSweep("s.yaml", dir, []byte("workload: {trace: t.jsonl}\n"), &Files{})
	if err != nil {
		t.Fatal(err)
	}
	text := grid.Points[0].Resolved()
	path := filepath.Join(dir, "t.jsonl")
	if err := os.WriteFile(path, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseResolved(text, &Files{}); err == nil || !strings.HasPrefix(err.Error(), "workload.trace[0].sha256: the file has changed") {
		t.Errorf("changed: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseResolved(text, &Files{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("gone: %v", err)
	}
	if _, err := ParseResolved(text, nil); err != nil {
		t.Errorf("recorded digests: %v", err)
	}
}

func FuzzParseResolved(f *testing.F) {
	for _, text := range []string{small, small + "topology: {mode: disaggregated}\nrouter: {mode: kv_router}\nplanner: {mode: disagg}\ntiming: {type: aic, model: m, system: s}\n"} {
		g, err := parse(f, text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(g.Points[0].Resolved())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		run, err := ParseResolved(text, nil)
		if err != nil {
			if !errors.Is(err, document.ErrInput) {
				t.Errorf("%s: %v", text, err)
			}
			return
		}
		c, err := resolved.Parse(text)
		if err != nil || sameConfig(jsonOf(c), run.ResolvedJSON()) != nil {
			t.Errorf("%s does not come out again", text)
		}
		_ = fmt.Sprint(run.ID(), run.GPUs(), run.Drawn(), run.Notices(), run.Provenance())
	})
}
