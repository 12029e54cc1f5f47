package aic

import (
	"math"
	"strings"
	"testing"
)

// The check values of spec calibration 5.
func TestSliceCheckFindsLaunchCosts(t *testing.T) {
	probes, err := CheckSlices("b200_sxm", "", ModelConfig{Model: "Qwen/Qwen3-32B-FP8", TP: 2, PP: 1, AttentionDP: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := probes[0]
	for i, want := range []float64{52.72, 7.07, 6.69} {
		if math.Abs(p.Prices[i].Ms-want) > 0.01 {
			t.Errorf("%s takes %.3f ms, want %.2f", p.Prices[i].Backend, p.Prices[i].Ms, want)
		}
	}
	if n := p.Notice("vllm"); p.Suspect != "vllm" || p.Key != "gemm_dtype" || !strings.Contains(n, "gemm_dtype") {
		t.Errorf("%+v: %q", p, n)
	}
	if n := p.Notice("sglang"); n != "" {
		t.Errorf("sglang: %q", n)
	}
	if _, err := CheckSlices("b200_sxm", "", ModelConfig{Model: "no/such-model", TP: 1, PP: 1, AttentionDP: 1}); err == nil {
		t.Error("an unknown model has prices")
	}
}
