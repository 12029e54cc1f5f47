package calibrate

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

const llama70 = `engine: {backend: vllm, block_size: 16, max_num_seqs: 1024, max_num_batched_tokens: 8192, enable_prefix_caching: false}
topology: {mode: aggregated, workers: 1}
timing: {type: aic, model: nvidia/Llama-3.1-70B-Instruct-FP8, system: h200_sxm, tensor_parallel: %TP}
`

func deployments(t *testing.T, tp string) []scenario.Run {
	t.Helper()
	runs, err := scenario.ParseDeployments("spec.yaml", "", []byte(strings.Replace(llama70, "%TP", tp, 1)), &scenario.Files{})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func simulator() Simulate { return Simulator(&sweep.Inputs{}, 2, 0, nil) }

// Spec calibration 3.4 (iii).
func TestErrorsOfThreeRatios(t *testing.T) {
	e := Compare([]float64{0.9, 1.1, 1.3}, []float64{1, 1, 1})
	if math.Abs(e.MAPE-16.667) > 1e-3 || math.Abs(e.Bias-8.774) > 1e-3 || e.N != 3 {
		t.Errorf("MAPE %.3f, bias %.3f of %d", e.MAPE, e.Bias, e.N)
	}
	if e := Compare([]float64{1, 2, 2, 4}, []float64{10, 30, 20, 40}); math.Abs(e.Rho-0.9486833) > 1e-6 {
		t.Errorf("ties get their mean rank: rho %v", e.Rho)
	}
}

// Spec calibration 3.4 (i): what was put in comes out.
func TestFitFindsKnownCorrections(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates some hundred runs")
	}
	on := deployments(t, "2")
	var truth scenario.Corrections
	truth.PrefillScale, truth.DecodeScale, truth.PassMs, truth.SequenceMs, truth.ClientMs = 1.2, 1.05, 0.7, 0.012, 5
	var runs []Run
	var cases []Case
	for _, c := range []struct {
		input       float64
		concurrency []int
	}{{1024, []int{4, 16, 64}}, {8192, []int{4, 16, 32}}} {
		for _, n := range c.concurrency {
			load := drawn(c.input, 1024, 0.8, 1, 10*n)
			load.Concurrency = n
			runs = append(runs, Run{Name: "run", Load: load, Preemptions: nan})
		}
	}
	for i := range runs {
		cases = append(cases, Case{on[0].Corrected(truth), &runs[i].Load})
	}
	outcomes, err := simulator()(context.Background(), cases)
	if err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		runs[i].Requests = outcomes[i].Requests
		runs[i].Measured = summarize(outcomes[i].Requests, 0)
	}
	for _, host := range []bool{false, true} {
		c := Calibration{Deployments: on, Runs: runs, Simulate: simulator(), Host: host}
		r, err := c.Fit(context.Background(), false)
		if err != nil {
			t.Fatal(err)
		}
		if !host {
			near(t, "prefill_scale", r.Corrections.PrefillScale, 1.20, 0.02)
			near(t, "decode_scale", r.Corrections.DecodeScale, 1.11, 0.02)
			// The noise of TTFT and the prior leave little weight on client_ms; its interval
			// holds the truth.
			if p := r.Parameters[clientMs]; p.Low > truth.ClientMs || p.High < truth.ClientMs {
				t.Errorf("client_ms is between %.3g and %.3g, the truth is %g", p.Low, p.High, truth.ClientMs)
			}
			near(t, "MAPE of TPOT", r.Errors[0].After.MAPE, 0.5, 0.5)
			near(t, "MAPE of TTFT", r.Errors[1].After.MAPE, 0.5, 0.5)
			if !r.Better() {
				t.Error("runs that were left out did not come nearer")
			}
			continue
		}
		for _, k := range r.Runs {
			near(t, k.Metric+" with host times", k.After/k.Measured, 1, 0.025)
		}
		near(t, "pass_ms", r.Corrections.PassMs, 0.16, 0.85)
	}
}

func near(t *testing.T, name string, have, want, by float64) {
	t.Helper()
	if !(math.Abs(have-want) <= by) {
		t.Errorf("%s is %.4g, want %g +- %g", name, have, want, by)
	}
}

// Spec calibration 3.4 (ii): six published runs.
func TestFitOfPublishedRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates some hundred runs")
	}
	const text = `isl,osl,concurrency,lengths,mean_ttft_ms,mean_tpot_ms
1024,1024,4,uniform 0.8..1,121,13.91
1024,8192,16,uniform 0.8..1,197,17.18
1024,1024,64,uniform 0.8..1,417,22.71
8192,1024,4,uniform 0.8..1,732.723,16.3243
8192,1024,16,uniform 0.8..1,1248.93,27.4736
8192,1024,32,uniform 0.8..1,1820.79,46.0659
`
	runs := readText(t, "runs.csv", text)
	c := Calibration{Deployments: deployments(t, "2"), Runs: runs, Simulate: simulator()}
	r, err := c.Fit(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "prefill_scale", r.Corrections.PrefillScale, 1.23, 0.04)
	near(t, "decode_scale", r.Corrections.DecodeScale, 1.04, 0.03)
	if r.Corrections.ClientMs >= 6 {
		t.Errorf("client_ms is %v", r.Corrections.ClientMs)
	}
	if !r.Better() || len(r.Checks) > 0 {
		t.Errorf("left out: %+v, checks %v", r.Errors[0], r.Checks)
	}
	document := c.Document(r)
	block := string(c.TimingBlock(r, document))
	spec := llama70[:strings.Index(llama70, "timing:")] + block
	again, err := scenario.ParseDeployments("spec.yaml", "", []byte(spec), &scenario.Files{})
	if err != nil {
		t.Fatalf("%v\n%s", err, block)
	}
	near(t, "prefill_scale of the block", again[0].Decode.Timing.Corrections.PrefillScale, r.Corrections.PrefillScale, 1e-3)
	if why := again[0].Decode.Timing.Misused(); why != "" {
		t.Error(why)
	}
}

func readText(t *testing.T, name, text string) []Run {
	t.Helper()
	runs, err := ReadRuns(Source{Path: name}, func(string) ([]byte, error) { return []byte(text), nil })
	if err != nil {
		t.Fatal(err)
	}
	return runs
}
