package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// outputOf runs the program and returns what it prints.
func outputOf(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(context.Background(), &out, io.Discard, append([]string{"dynosweep"}, args...)); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out.String()
}

// figuresOf replays args and returns every figure of the report but wall time.
func figuresOf(t *testing.T, args ...string) map[string]any {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	outputOf(t, append(append([]string{"replay"}, args...), "--report-json", path)...)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]any{}
	if err := json.Unmarshal(raw, &figures); err != nil {
		t.Fatal(err)
	}
	for _, key := range append([]string{"provenance"}, notCompared...) {
		delete(figures, key)
	}
	return figures
}

func TestSynthesizedTraceReplaysLikeTheLoad(t *testing.T) {
	for _, load := range []string{
		"--input-tokens 2048 --output-tokens 32 --request-count 40 --request-rate 9.5",
		"--input-tokens 700 --output-tokens 17 --request-count 20 --arrival-interval-ms 33.3 --turns-per-session 3 --inter-turn-delay-ms 13.5 --shared-prefix-ratio 0.5 --num-prefix-groups 3",
		"--input-tokens 640 --output-tokens 9 --request-count 30 --replay-concurrency 4 --shared-prefix-ratio 0.9 --num-prefix-groups 2",
	} {
		flags := strings.Fields(load)
		path := filepath.Join(t.TempDir(), "load.jsonl")
		outputOf(t, append(append([]string{"trace", "synth"}, flags...), "--block-size", "64", "--out", path)...)
		again := []string{path, "--trace-block-size", "64", "--num-workers", "2"}
		if i := strings.Index(load, "--replay-concurrency"); i >= 0 {
			again = append(again, "--replay-concurrency", strings.Fields(load[i:])[1])
		}
		want, have := figuresOf(t, append(flags, "--num-workers", "2")...), figuresOf(t, again...)
		for key, v := range want {
			if !alike(have[key], v, 1e-12) {
				t.Errorf("%s: %s is %v, replayed %v", load, key, v, have[key])
			}
		}
	}
}

func TestTraceRefusesAWrongNumberOfGroups(t *testing.T) {
	_, talk, code := runProgram("trace", "stats", "--num-prefix-groups", "-1", local(t, "traces/conversation_500.jsonl"))
	if code != 2 || !strings.Contains(talk, "--num-prefix-groups: must be from 0 to 2147483647, got -1") {
		t.Errorf("exit %d, %s", code, talk)
	}
}

func TestConvertCutsAndSpeedsUp(t *testing.T) {
	trace := local(t, "traces/conversation_500.jsonl")
	cut := filepath.Join(t.TempDir(), "cut.jsonl")
	outputOf(t, "trace", "convert", trace, "--until-seconds", "60", "--speedup", "2", "--out", cut)
	var s struct {
		Requests   int64
		DurationMs float64 `json:"duration_ms"`
	}
	if err := json.Unmarshal([]byte(outputOf(t, "trace", "stats", cut, "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Requests < 50 || s.DurationMs > 30_000 {
		t.Errorf("%d requests over %v ms: want those of the first minute in half the time", s.Requests, s.DurationMs)
	}
	if !strings.Contains(outputOf(t, "trace", "stats", trace), "500 in 500 sessions") {
		t.Error("the table does not count 500 requests")
	}
}
