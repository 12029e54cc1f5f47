package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
)

func recommend(t testing.TB, text, stack string, set ...string) (*Recommend, error) {
	t.Helper()
	dir := sweepFolder(t)
	if err := os.WriteFile(filepath.Join(dir, "toolagent.jsonl"), []byte(`{"timestamp":0,"input_length":512,"output_length":4,"hash_ids":[1]}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := RecommendOptions{PredictOptions: PredictOptions{Stack: stack, Set: set}}
	return ParseRecommend("r.yaml", dir, []byte(text), o, &Files{})
}

func mustRecommend(t testing.TB, text, stack string, set ...string) *Recommend {
	t.Helper()
	r, err := recommend(t, text, stack, set...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func example(t testing.TB, name string) string {
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// searched is the aggregated example of spec sweeps-and-schema 2.7 with a search over
// it; $X is replaced.
func searched(t testing.TB, replace ...string) string {
	text := strings.Replace(minimal(t), "{replicas: 2, tensor: 1}", "$PAR", 1) +
		"optimization: {target: throughput}\noptimizer: {algorithm: grid}\n"
	text = strings.NewReplacer(append(replace, "$PAR", "{replicas: {choices: [1, 2]}, tensor: 1}")...).Replace(text)
	return text
}

// Spec sweeps-and-schema 2.7, with the pools of 5.2: dense, so that a role has
// 32+16+8+4+2 shapes, of which pairs within 32 GPUs are kept.
func TestRecommendExampleCountsItsSpace(t *testing.T) {
	r := mustRecommend(t, example(t, "recommend.yaml"), "dynamo")
	pairs := 0
	for g := 1; g <= 16; g *= 2 {
		for h := 1; h <= 16; h *= 2 {
			for a := g; a <= 32; a += g {
				for b := h; a+b <= 32; b += h {
					pairs++
				}
			}
		}
	}
	// Backends, prefill batch and sequences, decode batch and sequences; load model,
	// credit, scale, temperature.
	want := int64(2*pairs) * (3 * 9) * (1 * 2) * (2 * 3 * 9 * 4)
	if len(r.Branches) != 1 || r.Branches[0].Mode != "disaggregated" || r.Branches[0].Size != want {
		t.Errorf("%+v, want %d candidates", r.Branches, want)
	}
	first, last := r.Candidate(0, 0), r.Candidate(0, want-1)
	if first.Refused != nil || last.Refused != nil || first.GPUs != 2 || last.GPUs > 32 {
		t.Errorf("first %+v %v, last %+v %v", first.GPUs, first.Refused, last.GPUs, last.Refused)
	}
	if !last.Run.Router.Mode.Configured || last.Run.Router.Config.Temperature != 1 || last.Run.Router.Config.PrefillScale != 32 {
		t.Errorf("the last knob does not change fastest: %s", last.Knobs)
	}
}

func TestCandidatesAreFilesThatPredictTakes(t *testing.T) {
	for name, stack := range map[string]string{"recommend.yaml": "dynamo", "sweeper.yaml": "engine"} {
		r := mustRecommend(t, example(t, name), stack)
		for b := range r.Branches {
			for _, i := range []int64{0, r.Branches[b].Size / 2, r.Branches[b].Size - 1} {
				c := r.Candidate(b, i)
				if c.Refused != nil {
					t.Fatalf("%s %d/%d: %v", name, b, i, c.Refused)
				}
				folder := filepath.Join(r.dir, "recommendations")
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				text, err := r.YAML(&c, folder)
				if err != nil {
					t.Fatal(err)
				}
				run, err := ParsePredict("0001.yaml", folder, text, PredictOptions{Stack: stack}, &Files{})
				if err != nil {
					t.Fatalf("%s %d/%d: %v\n%s", name, b, i, err, text)
				}
				if run.ID() != c.ID || run.GPUs() != c.GPUs {
					t.Errorf("%s: the file of %d/%d is another configuration:\n%s", name, b, i, text)
				}
			}
		}
	}
}

func TestSweeperFilesTellHowTurnsRun(t *testing.T) {
	text := strings.Replace(example(t, "sweeper.yaml"), "isl:", "turns_per_session: 3, isl:", 1)
	for stack, want := range map[string]bool{"engine": true, "dynamo": false} {
		r := mustRecommend(t, text, stack)
		c := r.Candidate(0, 0)
		load, _ := c.Run.Synthetic()
		told := slices.ContainsFunc(r.Notices, func(n string) bool { return strings.HasPrefix(n, "workload.turns_per_session: ") })
		if told != want || load.Cumulative != want {
			t.Errorf("%s: turns grow %v, notices %q", stack, load.Cumulative, r.Notices)
		}
	}
}

func TestDomains(t *testing.T) {
	for _, c := range []struct {
		domain string
		style  rangeStyle
		want   string
	}{
		{"5", decimalRange, "5"},
		{"{choices: [a, b]}", decimalRange, "a b"},
		{"{range: {min: 0, max: 0.3, step: 0.1}}", decimalRange, "0.0 0.1 0.2 0.3"},
		{"{range: {min: 0.0, max: 0.3, step: 0.1}}", floatRange, "0.0 0.1 0.2"}, // 0.1+0.1+0.1 is above 0.3
		{"{range: {min: 1, max: 10, step: 4}}", decimalRange, "1 5 9"},
		{"{range: {min: 2, max: 5, scale: log}}", decimalRange, "2 3 4 5"},
		{"{range: {min: 0.5, max: 8.0, scale: log}}", floatRange, "0.5 8.0"},
		{"{range: {min: 3, max: 3}}", decimalRange, "3"},
	} {
		n, err := document.ParseYAML("d", []byte("v: "+c.domain))
		if err != nil {
			t.Fatal(err)
		}
		r := &recommender{f: &document.Faults{}, out: &Recommend{}}
		var got []string
		for _, v := range r.domain(n.Get("v"), c.style) {
			got = append(got, v.Text)
		}
		if err := r.f.Err(); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v (%v), want %s", c.domain, got, err, c.want)
		}
	}
}

func TestRecommendRefusals(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", searched(t, "prefill_ms: 10", "prefil_ms: 10"),
			"r.yaml:10: engine.workers.aggregated.timing.prefil_ms: unknown field `prefil_ms`"},
		{"unknown section key", searched(t, "{target: throughput}", "{targt: throughput}"), "r.yaml:15: optimization.targt: unknown field `targt`"},
		{"empty choices", searched(t, "$PAR", "{replicas: {choices: []}}"), "engine.workers.aggregated.parallelism.replicas.choices: choices must be a non-empty list"},
		{"twice", searched(t, "$PAR", "{replicas: {choices: [1, 1]}}"), "choices must be unique: 1 is given twice"},
		{"integer range", searched(t, "$PAR", "{replicas: {range: {min: 1, max: 4}}}"), "an integer range needs a step"},
		{"log step", searched(t, "$PAR", "{replicas: {range: {min: 1, max: 4, step: 1, scale: log}}}"), "a log range takes no step"},
		{"log zero", searched(t, "$PAR", "{replicas: {range: {min: 0, max: 4, scale: log}}}"), "a log range needs min > 0"},
		{"endless float steps", searched(t) + "planner: {kalman_r: {range: {min: 1.0e+17, max: 1.00000000000000016e+17, step: 1.0}}}\n", "step is lost in rounding"},
		{"endless integers", searched(t, "$PAR", "{replicas: {range: {min: 9007199254740992, max: 9007199254740994, scale: log}}}"), "integers of a range must be below 2^53"},
		{"too many values", searched(t, "$PAR", "{replicas: {range: {min: 0.0, max: 1.0, step: 1.0e-9}}}"), "the range has more than 65536 values"},
		{"continuous grid", searched(t, "concurrency: 8", "concurrency: {range: {min: 0.5, max: 2.5}}"), "a continuous range has no grid"},
		{"preset and leaves", searched(t, "$PAR", "{preset: default, tensor: 2}"), "preset and leaf domains exclude each other"},
		{"preset true and leaves", searched(t, "$PAR", "{preset: true, tensor: 2}"), "preset and leaf domains exclude each other"},
		{"goodput without SLA", searched(t, "target: throughput", "target: goodput"), "optimization.target: needs evaluation.sla"},
		{"cost without price", searched(t, "target: throughput", "target: min_cost"), "needs cost.usd_per_gpu_hour"},
		{"router on engine stack", searched(t) + "router: {policy: kv_router}\n", "router is a section of the dynamo stack"},
		{"domain where none is", searched(t, "prefill_ms: 10", "prefill_ms: {choices: [1, 2]}"), "engine.workers.aggregated.timing.prefill_ms: invalid type: map"},
		{"no optimization", minimal(t), "missing field `optimization`"},
	} {
		stack := "engine"
		if strings.Contains(c.text, "planner:") {
			stack = "dynamo"
		}
		_, err := recommend(t, c.text, stack)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, document.ErrInput) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Spec sweeps-and-schema 5.6: 4096 blocks of 64, average occupancy 1024 + 16.
func TestLoadRelativeToCapacity(t *testing.T) {
	text := searched(t, "{type: concurrency, concurrency: 8}", "{type: kv_capacity_fraction, fraction: {choices: [0.5, 0.00001, 900000]}}",
		"{requests: 64}", "{requests_per_load_unit: 2}")
	r := mustRecommend(t, text, "engine")
	var got []int
	for i := range r.Branches[0].Size {
		c := r.Candidate(0, i)
		if c.Refused != nil {
			if c.Refused.Category != "candidate_materialization" || !strings.Contains(c.Refused.Reason, "453752308 requests at concurrency 226876154") &&
				!strings.Contains(c.Refused.Reason, "max_candidate_requests is 5000000") {
				t.Errorf("refused %v", c.Refused)
			}
			got = append(got, 0)
			continue
		}
		s := c.Run.Workload.Synthetic
		if s.Requests != 2*s.Concurrency {
			t.Errorf("%d requests at %d", s.Requests, s.Concurrency)
		}
		got = append(got, s.Concurrency)
	}
	for i, v := range []int{126, 1, 0} { // floor(0.5 * floor(262144/1040)); twice that with two replicas
		if !slices.Contains(got, v) {
			t.Errorf("value %d: %d is not among %v", i, v, got)
		}
	}
}

func TestPlannerPresetsFollowTheTarget(t *testing.T) {
	base := strings.Replace(searched(t, "$PAR", "{replicas: 2}"), "optimization: {target: throughput}", "$GOAL", 1)
	count := func(goal, section string) int64 {
		r := mustRecommend(t, strings.Replace(base, "$GOAL", goal, 1)+section, "dynamo")
		return r.Branches[0].Size / 9 // batched tokens, sequences
	}
	const slaGoal = "optimization: {target: goodput}\nevaluation: {sla: {ttft_ms: 1500, itl_ms: 50}}"
	// Disabled, two load policies; fpm 4, sensitivity 3; the predictor is settled.
	if n := count("optimization: {target: throughput}", "planner: {}\n"); n != 1+2*4*3 {
		t.Errorf("target throughput: %d", n)
	}
	if n := count(slaGoal, "planner: {}\n"); n != 1+6*4*3 {
		t.Errorf("target goodput: %d", n)
	}
	if n := count(slaGoal, "planner: {scaling_policy: {preset: [load_180_5]}, fpm_sampling: {preset: false}, load_sensitivity: {preset: [default]}}\n"); n != 9 {
		t.Errorf("knobs: %d", n)
	}
	text := strings.Replace(base, "$GOAL", "optimization: {target: throughput}", 1) + "planner: {scaling_policy: {preset: [hybrid_180_5]}}\n"
	if _, err := recommend(t, text, "dynamo"); err == nil || !strings.Contains(err.Error(), "planner.scaling_policy: throughput scaling needs target sla") {
		t.Errorf("listed without an SLA: %v", err)
	}
}

func TestPredictorsAreRankedOncePerInterval(t *testing.T) {
	asked := map[int]int{}
	o := RecommendOptions{PredictOptions: PredictOptions{Stack: "dynamo"},
		BestPredictor: func(_ *Trace, intervalS int, candidates []planner.PredictorConfig) (int, string, error) {
			asked[intervalS]++
			return slices.IndexFunc(candidates, func(c planner.PredictorConfig) bool { return c.Kind == "kalman" && c.Log1p }), "kalman", nil
		}}
	dir := sweepFolder(t)
	text := strings.Replace(example(t, "recommend.yaml"), "toolagent.jsonl", "trace.jsonl", 1) + "planner: {scaling_policy: {preset: [throughput_180_5, hybrid_180_5, throughput_600_5]}}\n"
	if err := os.WriteFile(filepath.Join(dir, "trace.jsonl"), []byte(`{"timestamp":0,"input_length":512,"output_length":4,"hash_ids":[1]}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := ParseRecommend("r.yaml", dir, []byte(text), o, &Files{})
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 || asked[180] != 1 || asked[600] != 1 {
		t.Errorf("asked %v", asked)
	}
	if c := r.Candidate(0, 0); c.Refused != nil || c.Run.Planner.Config.Predictor.Kind != "kalman" {
		t.Errorf("%v %+v", c.Refused, c.Run.Planner)
	}
}

func TestDefaultsLeaveOutWhatNoTableKnows(t *testing.T) {
	o := RecommendOptions{PredictOptions: PredictOptions{Stack: "dynamo"}}
	size := func() int64 {
		r, err := ParseRecommend("r.yaml", "", []byte(searched(t)+"router: {policy: kv_router}\n"), o, &Files{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Branches[0].Size
	}
	both := size()
	o.Experts = func(AICRequest) (bool, error) { return false, errors.New("unknown model") }
	if none := size(); both != 2*none {
		t.Errorf("%d candidates, without the estimate %d", both, none)
	}
}

func TestSetReachesTheSearch(t *testing.T) {
	r := mustRecommend(t, searched(t), "engine", "optimizer.algorithm=random", "optimizer.seed=7", "optimization.target=ttft", "engine.workers.aggregated.parallelism.tensor=2")
	if r.Optimizer.Algorithm != "random" || r.Optimizer.Seed != 7 || r.Goal.Target != "ttft" || r.Candidate(0, 0).GPUs != 2 {
		t.Errorf("%+v %+v", r.Optimizer, r.Goal)
	}
	if _, err := recommend(t, searched(t), "engine", "optimizer.sed=7"); err == nil || !strings.Contains(err.Error(), "optimizer.sed") {
		t.Errorf("unknown key by --set: %v", err)
	}
}

func FuzzRecommend(f *testing.F) {
	f.Add(example(f, "recommend.yaml"))
	f.Add(example(f, "sweeper.yaml"))
	f.Add(searched(f))
	dir := sweepFolder(f)
	f.Fuzz(func(t *testing.T, text string) {
		o := RecommendOptions{PredictOptions: PredictOptions{Stack: "dynamo"}}
		r, err := ParseRecommend("r.yaml", dir, []byte(text), o, &Files{})
		if err == nil && len(r.Branches) > 0 && r.Branches[0].Size > 0 {
			r.Candidate(0, r.Branches[0].Size-1)
		}
	})
}

func BenchmarkCandidate(b *testing.B) {
	r, err := recommend(b, example(b, "recommend.yaml"), "dynamo")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Candidate(0, int64(i)*7919%r.Branches[0].Size)
	}
}
