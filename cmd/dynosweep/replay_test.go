package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// Default names have one second of resolution: runs that end in the same second keep
// their reports all the same.
func TestDefaultReportNamesNeverCollide(t *testing.T) {
	dir := t.TempDir()
	var runs sync.WaitGroup
	for range 4 {
		runs.Go(func() {
			if out, talk, code := runProgram("replay", "--input-tokens", "8", "--output-tokens", "2", "--request-count", "1", "--replay-concurrency", "1", "--report-json", dir); code != 0 {
				t.Errorf("exit %d: %s%s", code, out, talk)
			}
		})
	}
	runs.Wait()
	found, err := filepath.Glob(filepath.Join(dir, "dynosweep_replay_report_*.json"))
	if entries, _ := os.ReadDir(dir); err != nil || len(found) != 4 || len(entries) != 4 {
		t.Errorf("reports %v (%v) of 4 runs, %d files", found, err, len(entries))
	}
}

// A run that found its directory vacant replaces no report that another one has put
// there meanwhile.
func TestALaterRunKeepsTheEarlierReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prediction.json")
	o := &outputs{}
	defer o.discard()
	out, err := o.create(path, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	out.claim = refuse
	if err := os.WriteFile(path, []byte("earlier"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := o.commit(); err == nil || !strings.Contains(err.Error(), "another run wrote this file") {
		t.Errorf("commit: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "earlier" {
		t.Errorf("the file holds %q", text)
	}
}
