package sweep

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

const llama70 = `name: calibration
workload: {synthetic: {request_count: %d, input_tokens: %d, output_tokens: %d}, concurrency: %d}
engine: {backend: vllm, block_size: 16, max_num_seqs: 1024, max_num_batched_tokens: 8192, enable_prefix_caching: false}
topology: {mode: aggregated, workers: 1}
timing:
  type: aic
  model: nvidia/Llama-3.1-70B-Instruct-FP8
  system: h200_sxm
  tensor_parallel: 2
%s`

func loadRun(t *testing.T, text string) *scenario.Run {
	t.Helper()
	g, err := scenario.ParseSweep("sweep.yaml", t.TempDir(), []byte(text), &scenario.Files{})
	if err != nil {
		t.Fatal(err)
	}
	return &g.Points[0].Run
}

func execute(t *testing.T, run *scenario.Run) *Outcome {
	t.Helper()
	out, err := Execute(context.Background(), &Inputs{}, run, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The check values of spec calibration 2.
func TestCorrectionsGiveTheWorkedExamples(t *testing.T) {
	const corrections = "  corrections: {prefill_scale: 1.2, decode_scale: 1.02, pass_ms: 0.7, sequence_ms: 0.01}\n"
	for _, c := range []struct {
		input, output, concurrency int
		want                       [2][2]float64 // without and with: TTFT, TPOT, ms
	}{
		{922, 922, 4, [2][2]float64{{279.157141, 13.573645}, {335.688569, 14.585118}}},
		{922, 922, 64, [2][2]float64{{700.564448, 20.972207}, {838.487459, 23.360257}}},
		{7373, 922, 4, [2][2]float64{{634.041732, 15.830780}, {759.106290, 17.185351}}},
		{7373, 922, 32, [2][2]float64{{1491.707787, 39.243037}, {1784.085852, 44.107721}}},
	} {
		for i, text := range []string{"", corrections} {
			s := execute(t, loadRun(t, fmt.Sprintf(llama70, 10*c.concurrency, c.input, c.output, c.concurrency, text))).Summary
			if math.Abs(s.TTFT.Mean-c.want[i][0]) > 1e-6 || math.Abs(s.TPOT.Mean-c.want[i][1]) > 1e-6 {
				t.Errorf("%d/%d at %d, case %d: TTFT %.6f, TPOT %.6f, want %v", c.input, c.output, c.concurrency, i, s.TTFT.Mean, s.TPOT.Mean, c.want[i])
			}
		}
	}
}

func TestSuspectTablesAreNoticed(t *testing.T) {
	text := strings.NewReplacer("nvidia/Llama-3.1-70B-Instruct-FP8", "Qwen/Qwen3-32B-FP8", "h200_sxm", "b200_sxm").Replace(fmt.Sprintf(llama70, 40, 922, 92, 4, ""))
	run := loadRun(t, text)
	if n := SliceNotices([]scenario.Run{*run, *run}); len(n) == 0 || !strings.Contains(n[0], "decode of 4 x 2000 takes 52.72 ms") {
		t.Errorf("%q", n)
	}
	if n := SliceNotices([]scenario.Run{*loadRun(t, strings.Replace(text, "backend: vllm", "backend: trtllm", 1))}); len(n) > 0 {
		t.Errorf("the others are not suspect: %q", n)
	}
}

func TestNeutralCorrectionsAreNone(t *testing.T) {
	plain := loadRun(t, fmt.Sprintf(llama70, 40, 922, 92, 4, ""))
	neutral := loadRun(t, fmt.Sprintf(llama70, 40, 922, 92, 4, "  corrections: {prefill_scale: 1, pass_ms: 0}\n"))
	if plain.ID() != neutral.ID() {
		t.Error("neutral corrections change the identity")
	}
	other := loadRun(t, fmt.Sprintf(llama70, 40, 922, 92, 4, "  corrections: {decode_scale: 1.5}\n"))
	fitted := loadRun(t, fmt.Sprintf(llama70, 40, 922, 92, 4, "  corrections: {decode_scale: 1.5, fitted: {from: calibration.json, sha256: ab}}\n"))
	if plain.ID() == other.ID() || other.ID() != fitted.ID() {
		t.Error("corrections tell configurations apart, where they come from does not")
	}
	again, err := scenario.ParseResolved(fitted.ResolvedJSON(), &scenario.Files{})
	if err != nil || string(again.ResolvedJSON()) != string(fitted.ResolvedJSON()) {
		t.Errorf("the resolved form does not come back: %v", err)
	}
}

func TestClientTimeMovesTTFTAndLatencyAlone(t *testing.T) {
	plain := execute(t, loadRun(t, fmt.Sprintf(llama70, 40, 922, 92, 4, ""))).Summary
	moved := execute(t, loadRun(t, fmt.Sprintf(llama70, 40, 922, 92, 4, "  corrections: {client_ms: 5}\n"))).Summary
	for _, c := range []struct {
		name             string
		plain, moved, by float64
	}{{"TTFT", plain.TTFT.Mean, moved.TTFT.Mean, 5}, {"p99 TTFT", plain.TTFT.P99, moved.TTFT.P99, 5},
		{"latency", plain.E2E.Mean, moved.E2E.Mean, 5}} {
		if math.Abs(c.moved-c.plain-c.by) > 1e-9 {
			t.Errorf("%s moved by %v", c.name, c.moved-c.plain)
		}
	}
	if plain.TPOT != moved.TPOT || plain.ITL != moved.ITL || plain.DurationMs != moved.DurationMs || plain.TTST != moved.TTST {
		t.Error("client time moves more than TTFT and latency")
	}
}

func TestAllWaysOfSteppingGiveCorrectedTimes(t *testing.T) {
	text := fmt.Sprintf(llama70, 64, 2000, 60, 16, "  corrections: {prefill_scale: 1.3, decode_scale: 0.9, pass_ms: 0.4, sequence_ms: 0.02, client_ms: 1}\n")
	fixed := text[:strings.Index(text, "timing:")] +
		"timing: {type: fixed, prefill_ms: 10, decode_ms: 3, corrections: {pass_ms: 0.5, sequence_ms: 0.1}}\n"
	for _, document := range []string{text, fixed} {
		run := loadRun(t, document)
		fast := execute(t, run).Summary
		slow, err := Execute(context.Background(), &Inputs{}, run, RunOptions{SlowPath: true})
		if err != nil {
			t.Fatal(err)
		}
		if fast.TTFT != slow.Summary.TTFT || fast.TPOT != slow.Summary.TPOT || fast.E2E != slow.Summary.E2E {
			t.Error("decode runs and single passes differ")
		}
	}
}

func TestBadCorrectionsAreFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{prefill_scale: 0}":                        "prefill_scale must be finite and > 0",
		"{decode_scale: -1}":                        "decode_scale must be finite and > 0",
		"{pass_ms: -0.1}":                           "pass_ms must be finite and non-negative",
		"{client_ms: .inf}":                         "client_ms must be finite and non-negative",
		"{scale: 1}":                                "scale",
		"{fitted: {from: calibration.json, by: x}}": "by",
		"[1]": "corrections",
	} {
		_, err := scenario.ParseSweep("sweep.yaml", "", fmt.Appendf(nil, llama70, 40, 922, 92, 4, "  corrections: "+text+"\n"), &scenario.Files{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "sweep.yaml:10") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
