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
