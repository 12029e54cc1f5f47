package aic

import (
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The goldens were recorded from aiconfigurator-core 0.12.0: every row of
// testdata/steps.csv is one call of its engine in database mode SILICON, every row of
// testdata/capacity.csv one call of its capacity estimate.

func runBatch(t *testing.T, name string, f func(context.Context, io.Writer, io.Reader, string, ModelConfig) error) (in, out [][]string) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := f(t.Context(), &got, bytes.NewReader(data), "", ModelConfig{}); err != nil {
		t.Fatal(err)
	}
	if in, err = csv.NewReader(bytes.NewReader(data)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	if out, err = csv.NewReader(&got).ReadAll(); err != nil {
		t.Fatal(err)
	}
	if len(in) != len(out) || len(in) < 2 {
		t.Fatalf("%d rows in, %d out", len(in), len(out))
	}
	return in, out
}

func TestStepsEqualTheReference(t *testing.T) {
	in, out := runBatch(t, "steps.csv", BatchSteps)
	worst, bad := 0.0, 0
	for i := range in {
		if i == 0 {
			continue
		}
		ms, fault := len(in[i])-2, len(in[i])-1
		if (in[i][fault] != "") != (out[i][fault] != "") {
			if bad++; bad < 20 {
				t.Errorf("row %d: error %q, want %q: %v", i+1, out[i][fault], in[i][fault], in[i][:9])
			}
			continue
		}
		if in[i][fault] != "" {
			continue
		}
		want, _ := strconv.ParseFloat(in[i][ms], 64)
		got, _ := strconv.ParseFloat(out[i][ms], 64)
		rel := math.Abs(got-want) / want
		worst = max(worst, rel)
		if !(rel <= 1e-9) {
			if bad++; bad < 20 {
				t.Errorf("row %d: %v, want %v (%.2g): %v", i+1, got, want, rel, in[i][:9])
			}
		}
	}
	t.Logf("%d rows, %d bad, worst relative difference %.2g", len(in)-1, bad, worst)
}

func TestCapacityEqualsTheReference(t *testing.T) {
	in, out := runBatch(t, "capacity.csv", BatchCapacity)
	for i := range in {
		for j := range in[i] {
			if in[i][j] != out[i][j] {
				t.Errorf("row %d, column %s: %q, want %q", i+1, in[0][j], out[i][j], in[i][j])
			}
		}
	}
}

func TestBatchRowsNameTheirFault(t *testing.T) {
	const head = "model,system,backend,parallel,phase,batch,length,prefix\n"
	for row, want := range map[string]string{
		"Qwen/Qwen3-32B,h200_sxm,vllm,tp_size=2;tp_size=4,decode,1,9,": "tp_size stands there twice",
		"Qwen/Qwen3-32B,h200_sxm,vllm,,decode,1,9,3":                   "a decode step has none",
		"Qwen/Qwen3-32B,h200_sxm,vllm,,prefill,1,9,9":                  "isl must be greater than 0",
		"Qwen/Qwen3-32B,h200_sxm,vllm,,prefill,1.5,9,":                 "batch: not a whole number",
	} {
		var out bytes.Buffer
		if err := BatchSteps(t.Context(), &out, strings.NewReader(head+row+"\n"), "", ModelConfig{}); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, %s, want %q", row, err, out.String(), want)
		}
	}
}
