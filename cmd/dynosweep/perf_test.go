package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

var qwen32 = []string{"--model", "Qwen/Qwen3-32B", "--tp-size", "2", "--ops", "--json"}

func perfJSON(t *testing.T, into any, args ...string) {
	t.Helper()
	out, talk, code := runProgram(append([]string{"perf"}, append(args, qwen32...)...)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, talk)
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// The ops of a step add up to its latency (spec aic-perfmodel 12.3).
func TestPerfStepShowsItsOps(t *testing.T) {
	var a struct {
		Phase                 string
		Batch, Length, Prefix int
		Latency               float64 `json:"latency_ms"`
		Outside               bool    `json:"outside_measured_grid"`
		Ops                   []struct {
			Name    string
			Latency float64 `json:"latency_ms"`
		}
	}
	perfJSON(t, &a, "step", "--length", "3000", "--prefix", "1000")
	sum := 0.0
	for _, op := range a.Ops {
		sum += op.Latency
	}
	if math.Abs(a.Latency-104.696275275533) > 1e-9 || math.Abs(sum-a.Latency) > 1e-9 || len(a.Ops) != 14 || a.Ops[2].Name != "context_qkv_gemm" {
		t.Errorf("%+v, sum %v", a, sum)
	}
}

// The parts of the memory add up to the share that may be used (spec aic-perfmodel
// 12.6).
func TestPerfCapacityShowsWhereMemoryGoes(t *testing.T) {
	var a struct {
		Blocks        int64 `json:"num_gpu_blocks"`
		Tokens        int64 `json:"kv_tokens"`
		BytesPerToken int64 `json:"kv_bytes_per_token"`
		Memory        []struct {
			Name  string
			Bytes float64
		}
		Ops []struct {
			Name  string
			Bytes float64 `json:"weight_bytes"`
		}
	}
	perfJSON(t, &a, "capacity", "--block-size", "16")
	sum, weights := 0.0, 0.0
	for _, p := range a.Memory {
		sum += p.Bytes
	}
	for _, op := range a.Ops {
		weights += op.Bytes
	}
	if a.Blocks != 46971 || a.Tokens != 751550 || weights != 32761446400 || a.Memory[0].Bytes != weights || math.Abs(sum-0.9*151397597184) > 1 {
		t.Errorf("%+v", a)
	}
}
