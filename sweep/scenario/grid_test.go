package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
)

// sweepFolder holds the trace that examples name.
func sweepFolder(t testing.TB) string {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "traces"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"traces/conversation.jsonl.gz", "t.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(`{"timestamp":0,"output_length":1,"hash_ids":[1]}`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func parse(t testing.TB, text string) (*Grid, error) {
	t.Helper()
	return ParseSweep("s.yaml", sweepFolder(t), []byte(text), &Files{})
}

func mustParse(t testing.TB, text string) *Grid {
	t.Helper()
	g, err := parse(t, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return g
}

const small = "workload: {synthetic: {input_tokens: 64, output_tokens: 2, requests: 3}, concurrency: 2}\n"

func TestProductExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "product.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	g := mustParse(t, string(text))
	var axes []string
	for _, a := range g.Axes {
		axes = append(axes, a.Path+" "+a.Type.String())
	}
	want := []string{"workload.arrival_speedup int",
		"topology.mode string", "topology.workers int", "topology.prefill_workers int", "topology.decode_workers int",
		"topology.decode_engine.max_num_seqs int", "router.mode string", "router.config.overlap_score_credit float",
		"timing.type string", "timing.model string", "timing.system string", "timing.tensor_parallel int",
		"planner.mode string", "planner.optimization_target string", "planner.decode_scale_up_kv_rate int",
		"planner.decode_scale_down_kv_rate int", "planner.max_gpu_budget int", "planner.startup_seconds int"}
	if !slices.Equal(axes, want) {
		t.Errorf("axes\n got  %q\n want %q", axes, want)
	}
	// 3 speed-ups x (3 + 9 topologies) x (1 + 3 routers) x (1 + 4 timings) x (1 + 3 planners)
	configs := map[string]bool{}
	skips := map[string]int{}
	for i := range g.Points {
		p := &g.Points[i]
		configs[p.ID] = true
		if p.Skip != "" {
			skips[p.Skip]++
			if p.Seed != nil {
				t.Fatalf("a skipped point has a seed: %+v", p)
			}
			continue
		}
		if p.Seed != nil && !p.Run.Router.Mode.Configured || p.Seed == nil && p.Run.Router.Mode.Configured && p.Run.DecodeWorkers > 1 {
			t.Fatalf("kv_router %v, %d workers, seed %v", p.Run.Router.Mode.Configured, p.Run.DecodeWorkers, p.Seed)
		}
		if p.GPUs > 16 || p.Run.RouterSeed != 0 && *p.Seed != p.Run.RouterSeed {
			t.Fatalf("%+v", p)
		}
	}
	if len(configs)+g.Folded != 3*12*4*5*4 || g.Folded != 0 {
		t.Errorf("%d configurations, %d folded", len(configs), g.Folded)
	}
	if skips["the Planner's mode agg does not fit a disaggregated topology"] == 0 || skips["needs 32 GPUs, constraints.max_gpus is 16"] == 0 {
		t.Errorf("skips %v", skips)
	}
	if v, ok := g.Cost.Price("h200_sxm"); !ok || v != 3.5 {
		t.Errorf("price %v %v", v, ok)
	}
	if v, ok := g.Cost.Price(""); !ok || v != 2 {
		t.Errorf("default price %v %v", v, ok)
	}
	last := g.Points[len(g.Points)-1]
	if last.Values[0] != int64(4) || last.Run.SLA.TTFTMs != 2000 {
		t.Errorf("last point %+v", last)
	}
}

func TestGridIsProductInDocumentOrder(t *testing.T) {
	g := mustParse(t, small+`
topology:
  - {mode: aggregated, workers: [1, 2]}
  - {mode: disaggregated, prefill_workers: 3, decode_workers: [4, 5], decode_engine: {max_num_seqs: 8}}
engine: {block_size: [16, 32]}
`)
	var got []string
	for _, p := range g.Points {
		got = append(got, fmt.Sprint(p.Values))
	}
	want := []string{"[aggregated 1 <nil> <nil> <nil> 16]", "[aggregated 1 <nil> <nil> <nil> 32]",
		"[aggregated 2 <nil> <nil> <nil> 16]", "[aggregated 2 <nil> <nil> <nil> 32]",
		"[disaggregated <nil> 3 4 8 16]", "[disaggregated <nil> 3 4 8 32]",
		"[disaggregated <nil> 3 5 8 16]", "[disaggregated <nil> 3 5 8 32]"}
	if !slices.Equal(got, want) {
		t.Errorf("%v\n got  %q\n want %q", g.Axes, got, want)
	}
	last := g.Points[7].Run
	if last.Prefill.Rank.MaxNumSeqs != 256 || last.Decode.Rank.MaxNumSeqs != 8 || last.Decode.Rank.BlockSize != 32 || last.GPUs() != 8 {
		t.Errorf("%+v", last)
	}
}

func TestSeedsRunOnlyWhereTheyDecide(t *testing.T) {
	g := mustParse(t, `
workload: {synthetic: {input_tokens: 64, output_tokens: 2, requests: 3}, request_rate: 5, arrival_seed: [null, 7]}
topology: {workers: [1, 2]}
router: [{mode: round_robin}, {mode: kv_router}]
engine: {aic_nextn: [null, 2]}
seeds: [1, 5]
`)
	for _, p := range g.Points {
		open, workers, kv, mtp := p.Values[0] == nil, p.Run.DecodeWorkers, p.Run.Router.Mode.Configured, p.Run.Decode.Rank.NextN > 0
		if want := open || kv && workers > 1 || mtp; want != (p.Seed != nil) {
			t.Errorf("%v: seed %v", p.Values, p.Seed)
		}
		if p.Seed == nil {
			continue
		}
		s, _ := p.Run.Synthetic()
		cfg, err := p.Run.Config(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		arrival := uint64(7)
		if open {
			arrival = 41 + *p.Seed
		}
		if s.ArrivalSeed != arrival || cfg.Router.Seed != *p.Seed || mtp && cfg.Decode.Rank.MTPSeed != 41+*p.Seed {
			t.Errorf("%v seed %d: arrival %d, router %d, mtp %d", p.Values, *p.Seed, s.ArrivalSeed, cfg.Router.Seed, cfg.Decode.Rank.MTPSeed)
		}
	}
	if len(g.Points) != 8*2+5*2+3 {
		t.Errorf("%d rows", len(g.Points))
	}
}

func TestEqualConfigurationsFold(t *testing.T) {
	g := mustParse(t, small+"router: [{mode: round_robin, config: {overlap_score_credit: [0, 1]}}, {mode: kv_router, config: {overlap_score_credit: [1, 1.0]}}]\nengine: {max_num_seqs: [256], speedup_ratio: [1, 1.0]}\n")
	if len(g.Points) != 2 || g.Folded != 6 {
		t.Errorf("%d points, %d folded", len(g.Points), g.Folded)
	}
}

func TestMisfitsAreSkippedWithAReason(t *testing.T) {
	g := mustParse(t, small+`
topology: [{mode: aggregated}, {mode: disaggregated, kv_transfer: {bandwidth_gb_per_second: [null, 5]}}]
engine: {backend: [vllm, sglang, trtllm], block_size: [1, 64]}
timing: [null, {prefill: {type: fixed, prefill_ms: 1, decode_ms: 1}, decode: {type: polynomial}}]
planner: [null, {mode: disagg}]
`)
	reasons := map[string]int{}
	for _, p := range g.Points {
		reasons[p.Skip]++
	}
	for _, want := range []string{"", "engine.block_size: vLLM/TRT-LLM block_size must be at least two", trtllmRefusal,
		"a timing per role does not fit an aggregated topology", "the Planner's mode disagg does not fit an aggregated topology",
		"kv_transfer.bytes_per_token auto needs a model, which only aic timing names: give an integer"} {
		if reasons[want] == 0 {
			t.Errorf("no point with reason %q in %v", want, reasons)
		}
	}
}

func TestTimingPerRoleAndTransfer(t *testing.T) {
	g := mustParse(t, small+`
topology: {mode: disaggregated, kv_transfer: {bytes_per_token: 1000, bandwidth_gb_per_second: 5, contention: [none, fair_share], timing_mode: destination_missing}}
timing: {prefill: {type: fixed, prefill_ms: 1, decode_ms: 2}, decode: {type: aic, model: m, system: s, tensor_parallel: [2, 4], moe_tensor_parallel: 2, moe_expert_parallel: 1}}
router: {mode: kv_router}
planner: {mode: disagg, startup_seconds: 60}
cost: {usd_per_gpu_hour: {s: 3, default: 1}}
`)
	p := g.Points[2]
	if len(g.Points) != 4 || p.Run.Transfer != (KVTransfer{BytesPerToken: 1000, BandwidthGBps: 5, DestinationMissing: true, FairShare: true}) {
		t.Errorf("%d %+v", len(g.Points), p.Run.Transfer)
	}
	if p.Run.Prefill.Timing.Kind != Fixed || p.Run.Decode.Timing.AIC.TP != 2 || p.Run.Decode.StartupMs != 60000 || p.GPUs != 3 || p.Run.Decode.System() != "s" {
		t.Errorf("%+v %+v", p.Run.Prefill, p.Run.Decode)
	}
	if p.Run.Planner.Config.Mode != planner.Disagg {
		t.Errorf("%+v", p.Run.Planner)
	}
	if q := g.Points[3]; q.Skip != "" || !strings.Contains(q.Run.Decode.Timing.AIC.Model, "m") {
		t.Logf("%+v", q)
	}
}

// TestSweepRefusals: file, line, dotted path, what to do.
func TestSweepRefusals(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "s.yaml:1: an empty specification"},
		{"name: x\n", "s.yaml:1: missing field `workload`"},
		{small + "rooter: {}\n", "s.yaml:2: rooter: unknown field `rooter`, expected one of `name`, `cost`, `constraints`, `seeds`, `workload`, `engine`, `topology`, `router`, `timing`, `planner`, `sla` (did you mean `router`?)"},
		{small + "engine:\n  max_num_seq: 4\n", "s.yaml:3: engine.max_num_seq: unknown field `max_num_seq`"},
		{small + "engine:\n  max_num_seq: 4\n", "(did you mean `max_num_seqs`?)"},
		{small + "engine:\n  max_num_seqs: [4, 0]\n", "s.yaml:3: engine.max_num_seqs[1]: max_num_seqs must be positive"},
		{small + "engine:\n  max_num_seqs: [4, four]\n", "s.yaml:3: engine.max_num_seqs[1]: invalid type: string \"four\", expected a whole number from 0"},
		{small + "engine: {timing_model: {type: polynomial}}\ntiming: {type: polynomial}\n", "engine.timing_model: timing and timing_model are given"},
		{small + "engine: {block_size: 1}\n", "vLLM/TRT-LLM block_size must be at least two"},
		{small + "engine: {native_host_offload: {}}\n", "engine.native_host_offload: missing field `num_host_blocks`"},
		{small + "topology: {mode: aggregated, decode_workers: 2}\n", "topology.decode_workers: unknown field `decode_workers`, expected `mode` or `workers`"},
		{small + "---\nname: other\n", "s.yaml:3: a second YAML document: a file holds one"},
		{small + "seeds: []\n", "s.yaml:2: seeds: an empty list: give at least one value"},
		{small + "topology: {workers: 0}\n", "a pool must start with at least one worker"},
		{small + "topology: {workers: []}\n", "topology.workers: an empty list"},
		{small + "topology: [{workers: 1}, 2]\n", "topology: a list holds either values of one axis or mappings"},
		{small + "topology: {mode: disaggregated, kv_transfer: {contention: maybe}}\n", "topology.kv_transfer.contention: unknown variant `maybe`, expected `none` or `fair_share`"},
		{small + "router: {mode: kv}\n", "router.mode: unknown variant `kv`, expected one of `round_robin`, `kv_router`, `random`, `least_loaded`, `power_of_two`"},
		{small + "router:\n  mode: kv_router\n  config: {zz: 1}\n", "s.yaml:4: router.config.zz: unknown field `zz`, expected one of `overlap_score_credit`"},
		{small + "router: {mode: kv_router, policy_config: nope.yaml}\n", "s.yaml: cannot read"},
		{small + "timing: {type: magic}\n", "timing.type: unknown variant `magic`, expected one of `polynomial`, `fixed`, `profile`, `aic`"},
		{small + "timing: {type: aic, system: s}\n", "missing field `model`"},
		{small + "timing: {type: profile, path: nope.npz}\n", "cannot read"},
		{small + "planner:\n  mode: agg\n  zz: 1\n", "s.yaml:4: planner.zz: "},
		{small + "planner: {mode: agg, startup_seconds: -1}\n", "planner.startup_seconds: startup_seconds must be finite and non-negative"},
		{small + "sla: {ttft_ms: 0}\n", "sla.ttft_ms: invalid replay spec: sla.ttft_ms must be finite and positive, got 0"},
		{small + "cost: {usd_per_gpu_hour: {h100_sxm: 2}}\n", "cost: no price for GPUs whose system is not named and no default"},
		{small + "constraints: {max_gpus: 0}\n", "constraints.max_gpus: max_gpus must be positive"},
		{small + "seeds: [1, 1]\n", "seeds[1]: seed 1 is given twice"},
		{small + "seeds: [a]\n", "seeds[0]: a seed is a whole number from 0"},
		{small + "name: a/b\n", "name: a name is letters"},
		{small + "a: &x [1]\nb: [*x\n", "s.yaml:"},
		{small + "name: a\nname: b\n", "s.yaml:"},
		{"workload: {trace: t.jsonl, synthetic: {}}\n", "workload: give either trace or synthetic"},
		{"workload:\n  trace: .\n", "s.yaml:2: workload.trace: "},
		{"workload: {trace: nope.jsonl}\n", "workload.trace: failed to open trace file"},
		{"workload: {trace: t.jsonl, format: zz}\n", "workload.format: trace_format must be 'mooncake'"},
		{"workload: {trace: t.jsonl, request_rate: 2}\n", "workload.request_rate: "},
		{"workload: {trace: t.jsonl, arrival_speedup: [1, 0]}\n", "s.yaml:1: workload.arrival_speedup[1]: ratio must be a finite positive number, got 0"},
		{"workload: {trace: t.jsonl, format: applied_compute_agentic}\n", "requires replay_concurrency because source traces do not contain first-turn timestamps"},
		{"workload: {synthetic: {input_tokens: 1, output_tokens: 1, requests: 1}}\n", "synthetic replay requires exactly one of replay_concurrency, request_rate, or arrival_interval_ms"},
		{"workload: {synthetic: {input_tokens: 0, output_tokens: 1, requests: 1, concurrency: 1}}\n", "workload.synthetic.input_tokens: input_tokens must be at least 1"},
		{"workload: {synthetic: {input_tokens: 1, output_tokens: 1, requests: 1, concurrency: 0}}\n", "workload.synthetic.concurrency: replay_concurrency must be at least 1"},
	} {
		_, err := parse(t, c.text)
		wantError(t, err, c.text, c.want)
	}
}

func TestAFileThatCannotBeReadIsNamedWithItsPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"#0\nworkload:\n  trace: traces", "s.yaml:3: workload.trace: "},
		{small + "engine:\n  timing_model: {type: external, provider: dynamo_profile, config: {path: nowhere.npz}}\n", "s.yaml:2: engine: cannot read "},
	} {
		_, err := parse(t, c.text)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s:\n got  %v\n want %s", c.text, err, c.want)
		}
	}
	const source = "traffic={source: {type: trace, paths: [.]}, load: {type: concurrency}}"
	_, err := predict(t, minimal(t), "engine", source)
	wantError(t, err, source, "is a directory: name a trace file; only format weka reads a directory of traces")
	wantError(t, err, source, "p.yaml: traffic.source.paths: ")
}

func TestPointIDsSurviveKeyOrderAndFolder(t *testing.T) {
	a := mustParse(t, "workload: {trace: t.jsonl, arrival_speedup: [1, 2]}\nengine: {max_num_seqs: 4, block_size: 16}\nseeds: [1]\nrouter: {mode: kv_router}\n")
	b := mustParse(t, "router: {mode: kv_router}\nengine: {block_size: 16, max_num_seqs: 4}\nworkload: {arrival_speedup: [1, 2], trace: ./t.jsonl}\nseeds: [1]\n")
	for i := range a.Points {
		if a.Points[i].ID != b.Points[i].ID {
			t.Errorf("point %d: %s, %s", i, a.Points[i].ID, b.Points[i].ID)
		}
	}
	c := closed()
	c.ExtraEngineArgs = ptr(`{"max_num_seqs":4}`)
	run := mustResolve(t, c)
	g := mustParse(t, strings.Replace(small, "concurrency: 2", "concurrency: 1", 1)+"engine: {max_num_seqs: 4}\n")
	if g.Points[0].ID != run.ID() {
		t.Error("a sweep's point and the same replay have different ids")
	}
}

// TestWarmupTraceIsAFileAFolderOrAPattern: each is read beside the specification and
// counts by its content.
func TestWarmupTraceIsAFileAFolderOrAPattern(t *testing.T) {
	const planner = small + "planner: {mode: agg, optimization_target: sla, load_predictor_warmup_trace: %s}\n"
	ids := map[string]bool{}
	for _, path := range []string{"traces", "t.jsonl", "'traces/*.gz'", "null"} {
		ids[mustParse(t, fmt.Sprintf(planner, path)).Points[0].ID] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d ids of four warm-up traces", len(ids))
	}
	if one := mustParse(t, fmt.Sprintf(planner, "'t*.jsonl'")).Points[0].ID; one != mustParse(t, fmt.Sprintf(planner, "'?.jsonl'")).Points[0].ID {
		t.Error("two patterns of the same files differ")
	}
	for path, want := range map[string]string{
		"none.jsonl": "cannot read ", "'none*'": "no .jsonl or .jsonl.gz file there", "'[.jsonl'": "syntax error in pattern"} {
		_, err := parse(t, fmt.Sprintf(planner, path))
		if err == nil || !strings.HasPrefix(err.Error(), "s.yaml:2: planner.load_predictor_warmup_trace: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// BenchmarkExpand: axes that share engines, and an engine of its own for every point.
func BenchmarkExpand(b *testing.B) {
	list := func(n int) string {
		var t strings.Builder
		for i := range n {
			fmt.Fprintf(&t, "%d, ", i+1)
		}
		return "[" + strings.TrimSuffix(t.String(), ", ") + "]"
	}
	dir := b.TempDir()
	for name, text := range map[string]string{
		"engines=100": strings.Replace(small, "concurrency: 2", "concurrency: "+list(10), 1) +
			"engine: {max_num_seqs: " + list(10) + ", max_num_batched_tokens: " + list(10) + "}\ntopology: {workers: " + list(100) + "}\n",
		"engines=100000": small + "engine: {max_num_seqs: " + list(100) + ", max_num_batched_tokens: " + list(1000) + "}\n",
	} {
		b.Run("points=100000/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g, err := ParseSweep("s.yaml", dir, []byte(text), &Files{})
				if err != nil || len(g.Points) != 100_000 {
					b.Fatal(err)
				}
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB-held")
				runtime.KeepAlive(g)
			}
		})
	}
}

func FuzzSweep(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "product.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	for _, s := range []string{small, small + "seeds: [1]\nrouter: {mode: kv_router}\n", "a: &a {b: *a}\n", "workload: [null, {trace: []}]\n",
		small + "timing: [{type: fixed, prefill_ms: 1, decode_ms: 1}, null]\nplanner: [null, {mode: agg}]\n", small + "cost: {usd_per_gpu_hour: 1}\n"} {
		f.Add(s)
	}
	dir := sweepFolder(f)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, ",")+strings.Count(text, "\n-") > 60 {
			t.Skip("a large grid")
		}
		g, err := ParseSweep("s.yaml", dir, []byte(text), &Files{})
		if err != nil {
			if !errors.Is(err, document.ErrInput) {
				t.Errorf("%v is not ErrInput", err)
			}
			if !strings.Contains(err.Error(), "s.yaml") {
				t.Errorf("%v names no file", err)
			}
			return
		}
		for i := range g.Points {
			p := &g.Points[i]
			if len(p.Values) != len(g.Axes) || len(p.ID) != 16 || p.Skip == "" && p.GPUs < 1 {
				t.Fatalf("%+v", p)
			}
			p.Resolved()
		}
	})
}
