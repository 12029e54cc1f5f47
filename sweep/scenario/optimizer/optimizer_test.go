package optimizer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// exampleText is a replay optimiser's specification; pairs replace parts of it.
func exampleText(replace ...string) string {
	return strings.NewReplacer(replace...).Replace(`{
 "engine": {"model": "Qwen/Qwen3-32B", "backend": "vllm", "basePrefillEngineArgs": {"block_size": 512}, "baseDecodeEngineArgs": {"block_size": 512}},
 "hardware": {"gpuSku": "h200_sxm", "totalGpus": 16},
 "workload": {"isl": 32768, "osl": 256, "requestCount": 5000, "concurrency": 200, "sharedPrefixRatio": 0.5, "numPrefixGroups": 50},
 "sla": {"ttft": 50000, "itl": 100, "e2eLatency": 60000, "p95Ttft": 0, "p95Itl": null},
 "router": {"overlapCredits": [0.5, 1]},
 "objective": "throughput"
}`)
}

func parseText(text string) (*Spec, error) {
	return Parse("o.json", "", []byte(text), &scenario.Files{})
}

// Spec sweeps-and-schema 4.6, the example driver.
func TestOptimizeExample(t *testing.T) {
	o, err := parseText(exampleText())
	if err != nil {
		t.Fatal(err)
	}
	if o.Aggregated || !o.Disaggregated || o.TotalGPUs != 16 || !slices.Equal(o.PrefillTP, []int{1, 2, 4, 8}) || o.RoundRobin || !o.KV || len(o.Scales) != 6 {
		t.Errorf("%+v", o)
	}
	want := []Bound{{"mean_ttft_ms", 50000, "sla.ttft"}, {"mean_tpot_ms", 100, "sla.itl"}, {"mean_e2e_latency_ms", 60000, "sla.e2eLatency"}}
	if !slices.Equal(o.Bounds, want) {
		t.Errorf("bounds %+v", o.Bounds)
	}
	run, err := o.Run(State{PrefillTP: 4, PrefillWorkers: 3, DecodeTP: 1, DecodeWorkers: 4, KV: true, Credit: 0.5, Scale: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := run.Prefill
	if run.GPUs() != 16 || p.Timing.Kind != scenario.Measured || p.Timing.AIC.TP != 4 || p.Timing.AIC.System != "h200_sxm" || p.Timing.AIC.Version != "current" ||
		run.Router.Config.OverlapCredit != 0.5 || run.SLA.Set() || run.Decode.Timing.AIC.TP != 1 {
		t.Errorf("run %+v", run)
	}
}

func TestOptimizeRefusals(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", exampleText(`"osl"`, `"oslo"`), "o.json:4: workload.oslo: unknown field `oslo`"},
		{"two loads", exampleText(`"isl": 32768`, `"isl": 32768, "traceFile": "t.jsonl"`), "give either synthetic load"},
		{"no engine arguments", exampleText(`, "basePrefillEngineArgs": {"block_size": 512}, "baseDecodeEngineArgs": {"block_size": 512}`, ""), "give baseEngineArgs"},
		{"one role", exampleText(`, "baseDecodeEngineArgs": {"block_size": 512}`, ""), "belong together"},
		{"backend", exampleText(`"vllm"`, `"trtllm"`), "engine.backend: unknown variant `trtllm`, expected `vllm` or `sglang`"},
		{"no GPUs", exampleText(`"totalGpus": 16`, `"totalGpus": 0`), "hardware.totalGpus: totalGpus must be positive"},
		{"two controls", exampleText(`"concurrency": 200`, `"concurrency": 200, "requestRate": 3`), "exactly one"},
		{"credit", exampleText(`[0.5, 1]`, `[-1]`), "overlapCredits must be finite numbers from 0"},
		{"objective", exampleText(`"objective": "throughput"`, `"objective": "goodput"`), "objective: unknown variant `goodput`"},
		{"bound", exampleText(`"p95Itl": null`, `"bounds": {"p98_itl_ms": 3}`), "sla.bounds.p98_itl_ms: no figure of the report (did you mean `p90_itl_ms`?)"},
		{"base arguments", exampleText(`"block_size": 512`, `"blocksize": 512`), "unknown field `blocksize`"},
	} {
		if _, err := parseText(c.text); err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, document.ErrInput) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzOptimize(f *testing.F) {
	f.Add(exampleText())
	f.Add(exampleText(`"basePrefillEngineArgs": {"block_size": 512}, "baseDecodeEngineArgs"`, `"baseEngineArgs"`))
	f.Fuzz(func(t *testing.T, text string) {
		if o, err := parseText(text); err == nil && o.Aggregated {
			if _, err := o.Run(State{DecodeTP: 1, DecodeWorkers: 2, KV: true, Credit: 1, Scale: 1}); err != nil && err.Error() == "" {
				t.Error("an error without words")
			}
		}
	})
}
