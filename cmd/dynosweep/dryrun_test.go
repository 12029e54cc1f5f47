package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDryRunOpensTraces: a dry run refuses a trace that a run refuses, with the same
// words and exit code.
func TestDryRunOpensTraces(t *testing.T) {
	for name, text := range map[string]string{"csv": "a,b\n1,2\n", "empty": ""} {
		dir := t.TempDir()
		path, spec := filepath.Join(dir, "t.jsonl"), filepath.Join(dir, "s.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(spec, []byte("name: t\nworkload: {trace: t.jsonl}\ntopology: {workers: 1}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, dry, code := runProgram("sweep", spec, "--dry-run")
		_, real, realCode := runProgram("sweep", spec, "--out", filepath.Join(dir, "out"))
		if code != 2 || realCode != 2 || dry != real || !strings.Contains(dry, "t.jsonl") {
			t.Errorf("%s: dry run %d %q, run %d %q", name, code, dry, realCode, real)
		}
	}
}

// TestDryRunList: one line a point with its values, its GPUs or why it is skipped, and
// only with --dry-run.
func TestDryRunList(t *testing.T) {
	spec := filepath.Join(t.TempDir(), "s.yaml")
	text := "name: l\nworkload: {synthetic: {input_tokens: 64, output_tokens: 2, requests: 3}, concurrency: 2}\n" +
		"topology: {workers: [1, 2, 3]}\nconstraints: {max_gpus: 2}\n"
	if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := outputOf(t, "sweep", spec, "--dry-run", "--list")
	for _, want := range []string{"workers=1 gpus=1\n", "workers=2 gpus=2\n", "workers=3 skipped: "} {
		if strings.Count(out, want) != 1 {
			t.Errorf("not one %q in:\n%s", want, out)
		}
	}
	if _, talk, code := runProgram("sweep", spec, "--list"); code != 2 || !strings.Contains(talk, "only with --dry-run") {
		t.Errorf("code %d: %s", code, talk)
	}
}
