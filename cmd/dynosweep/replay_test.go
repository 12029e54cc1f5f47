package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var small = []string{"replay", "--input-tokens", "64", "--output-tokens", "2", "--request-count", "2", "--replay-concurrency", "1"}

func TestReplayWritesNoTwoOutputsToOnePlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	for _, c := range []struct{ json, jsonl, want string }{
		{file, file, file + ": two outputs go to this file"},
		{"-", "-", "two outputs go to standard output: give one of them a file"},
	} {
		_, talk, code := runProgram(append(small, "--report-json", c.json, "--report-jsonl", c.jsonl)...)
		if code != 2 || !strings.Contains(talk, c.want) {
			t.Errorf("%s: exit %d, %s", c.json, code, talk)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) > 0 {
		t.Errorf("%v lies there, %v", left, err)
	}
	if _, talk, code := runProgram(append(small, "--report-json", os.DevNull, "--report-jsonl", os.DevNull)...); code != 0 {
		t.Errorf("both dropped: exit %d, %s", code, talk)
	}
}

func TestReplayTellsOfFlagsWithoutEffect(t *testing.T) {
	_, talk, code := runProgram(append(small, "--report-json", os.DevNull, "--router-config", "{}", "--quiet")...)
	if code != 0 || talk != "notice: --router-config changes nothing here: only --router-mode kv_router reads it\n" {
		t.Errorf("exit %d, %q", code, talk)
	}
}

func TestReplayReplacesNoTraceByItsReport(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	row := `{"timestamp":0,"input_length":64,"output_length":2,"hash_ids":[1]}` + "\n"
	if err := os.WriteFile(trace, []byte(row), 0o644); err != nil {
		t.Fatal(err)
	}
	link := trace + ".link"
	if err := os.Symlink(trace, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{trace, link} {
		_, talk, code := runProgram("replay", trace, "--trace-block-size", "64", "--report-json", path)
		if code != 2 || !strings.Contains(talk, "the run reads this file: write to another") {
			t.Errorf("%s: exit %d, %s", path, code, talk)
		}
	}
	if text, err := os.ReadFile(trace); err != nil || string(text) != row {
		t.Errorf("the trace reads %q, %v", text, err)
	}
}
