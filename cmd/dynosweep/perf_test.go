package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
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

// What perf cannot use it refuses, and a file names its line.
func TestPerfRefuses(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "ask.csv")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "model,system,backend,parallel,phase,batch,length\n"
	ask := []string{"step", "--model", "Qwen/Qwen3-32B", "--length", "100"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{append(ask, "--tp-size", "0"), "--tp-size must be at least 1, got 0"},
		{append(ask, "--moe-ep-size", "-1"), "--moe-ep-size must be at least 1, got -1"},
		{append(ask, "--attention-backend", "fa9"), `"fa9" is unknown to vllm`},
		{append(ask, "more"), `unexpected argument "more"`},
		{append(ask, "--phase", "decode", "--prefix", "5"), "--prefix is of prefill"},
		{append(ask, "--batch", file(head)), "has no effect with --batch"},
		{[]string{"capacity", "--batch", file(head), "--block-size", "16"}, "--block-size has no effect with --batch"},
		{[]string{"capacity", "more"}, `unexpected argument "more"`},
		{[]string{"step", "--batch", file("")}, "ask.csv:1: the file is empty"},
		{[]string{"step", "--batch", file("model,system\n")}, `ask.csv:1: no column "backend"`},
		{[]string{"step", "--batch", file("model,model\n")}, `ask.csv:1: column "model" stands there twice`},
		{[]string{"step", "--batch", file(head + "a,h200_sxm,vllm,,decode,1,1\nb\n")}, "ask.csv:3: wrong number of fields"},
	} {
		_, talk, code := runProgram(append([]string{"perf"}, c.args...)...)
		if code != exitBadInput || !strings.Contains(talk, c.want) {
			t.Errorf("perf %v: exit %d, %q, want %q", c.args, code, talk, c.want)
		}
	}
}

// full is a device without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A failed write is no fault of the input, and an interruption ends a batch between rows.
func TestPerfOutputFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ask.csv")
	row := "Qwen/Qwen3-32B,h200_sxm,vllm,,decode,1,100\n"
	if err := os.WriteFile(path, []byte("\ufeffmodel,system,backend,parallel,phase,batch,length\n"+row+row), 0o644); err != nil {
		t.Fatal(err)
	}
	one := []string{"--model", "Qwen/Qwen3-32B"}
	for _, args := range [][]string{
		append([]string{"step", "--length", "100"}, one...), append([]string{"step", "--json", "--length", "100"}, one...),
		append([]string{"capacity"}, one...), {"step", "--batch", path},
	} {
		if err := run(t.Context(), full{}, io.Discard, append([]string{"dynosweep", "perf"}, args...)); exitCode(err) != exitFailed {
			t.Errorf("perf %v to a full device: %v", args, err)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	err := run(stopped, io.Discard, io.Discard, []string{"dynosweep", "perf", "step", "--batch", path})
	if exitCode(err) != exitInterrupted {
		t.Errorf("interrupted: %v", err)
	}
	out, talk, code := runProgram("perf", "step", "--batch", path)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); code != 0 || len(lines) != 3 || lines[1] != lines[2] || !strings.HasSuffix(lines[1], ",") {
		t.Errorf("exit %d, %s\n%s", code, talk, out)
	}
}

// Flags reach the layouts that a batch row reaches (spec aic-perfmodel 12.6).
func TestPerfPipelineParallel(t *testing.T) {
	out, talk, code := runProgram("perf", "capacity", "--model", "meta-llama/Meta-Llama-3.1-70B", "--system", "h100_sxm",
		"--tp-size", "2", "--pp-size", "2", "--block-size", "16")
	if code != 0 || !strings.HasPrefix(out, "14131 KV blocks") {
		t.Errorf("exit %d, %s%s", code, talk, out)
	}
}

func TestPerfTellsEstimates(t *testing.T) {
	out, talk, code := runProgram("perf", "step", "--model", "openai/gpt-oss-120b", "--system", "b200_sxm", "--backend", "trtllm",
		"--tp-size", "2", "--moe-tp-size", "2", "--mode", "HYBRID", "--length", "2048")
	if code != 0 || !strings.Contains(out, "2048, prefix 0: 62.412495 ms\n  estimated, not measured: context_moe\n") {
		t.Errorf("exit %d, %s%s", code, talk, out)
	}
}
