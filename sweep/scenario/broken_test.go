package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// listed is the part of a message that lists what is allowed.
var listed = regexp.MustCompile("expected one of (`[a-z0-9_]+`, )+`[a-z0-9_]+`")

// Every fault of a sweep file has its own line and path, wherever it stands, and a
// mistyped key is told which one may be meant.
func TestEveryFaultOfASweepFileIsTold(t *testing.T) {
	const load = "workload: {synthetic: {input_tokens: 64, output_tokens: 2, requests: 3}, concurrency: 2}\n"
	t.Chdir(t.TempDir())
	policy := "default_policy_family: chat\nuncached_isl_buckets:\n  - {min_tokens: 0, bucket: all}\npolicy_classes:\n" +
		"  - name: a\n    policy_family: chat\n    cache_bucket: all\n    quantom: 1\n    quantum: 1\n  - name: b\n    quantum: 0\n"
	if err := os.WriteFile("policy.yaml", []byte(policy), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"engine", load + "engine:\n  max_num_seq: 4\n  block_size: sixteen\n",
			"s.yaml:3: engine.max_num_seq: unknown field `max_num_seq`, expected one of ... (did you mean `max_num_seqs`?)\n" +
				"s.yaml:4: engine.block_size: invalid type: string \"sixteen\", expected a whole number from 0"},
		{"router.config", load + "router:\n  mode: kv_router\n  config:\n    overlap_score_credt: 1\n    router_queue_policy: fcfs\n    router_temperature: -1\n",
			"s.yaml:5: router.config.overlap_score_credt: unknown field `overlap_score_credt`, expected one of ... (did you mean `overlap_score_credit`?)\n" +
				"s.yaml:7: router.config.router_temperature: router_temperature must be finite and non-negative"},
		{"policy file", load + "router:\n  mode: kv_router\n  policy_config: policy.yaml\n",
			"policy.yaml:8: policy_classes[0].quantom: unknown field `quantom`, expected one of ... (did you mean `quantum`?)\n" +
				"policy.yaml:11: policy_classes[1].quantum: root policy class \"b\" quantum must be greater than zero"},
		{"planner", load + "planner:\n  mode: agg\n  optimization_targt: sla\n  max_gpu_budget: many\n",
			"s.yaml:4: planner.optimization_targt: unknown key (did you mean `optimization_target`?)\n" +
				"s.yaml:5: planner.max_gpu_budget: must be a number, got \"many\""},
		{"timing", load + "timing:\n  type: fixed\n  prefil_ms: 3\n  prefill_ms: 3\n  decode_ms: -1\n",
			"s.yaml:4: timing.prefil_ms: unknown field `prefil_ms`, expected one of ... (did you mean `prefill_ms`?)\n" +
				"s.yaml:6: timing.decode_ms: fixed decode latency must be finite and non-negative"},
		{"workload", "workload:\n  synthetic:\n    input_token: 64\n    input_tokens: 64\n    output_tokens: 2\n    requests: 0\n  concurrency: 2\n",
			"s.yaml:3: workload.synthetic.input_token: unknown field `input_token`, expected one of ... (did you mean `input_tokens`?)\n" +
				"s.yaml:6: workload.synthetic.requests: request_count must be at least 1"},
	} {
		_, err := ParseSweep("s.yaml", filepath.Dir("s.yaml"), []byte(c.text), &Files{})
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		if got := listed.ReplaceAllString(err.Error(), "expected one of ..."); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}
