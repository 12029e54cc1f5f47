package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// TestRouterModesRun: every mode runs aggregated and disaggregated, repeats itself to
// the byte under one seed, and where it draws every choice another seed gives another
// report.
func TestRouterModesRun(t *testing.T) {
	load := []string{"--input-tokens", "900", "--output-tokens", "20", "--request-count", "60", "--request-rate", "40"}
	for topology, flags := range map[string][]string{
		"aggregated": {"--num-workers", "4"},
		"disaggregated": {"--num-prefill-workers", "3", "--num-decode-workers", "3",
			"--prefill-engine-args", `{"worker_type":"prefill"}`, "--decode-engine-args", `{"worker_type":"decode"}`},
	} {
		for _, mode := range scenario.RouterModeNames() {
			report := func(seed string) []byte {
				path := filepath.Join(t.TempDir(), "r.jsonl")
				args := append([]string{"replay", "--router-mode", mode, "--report-jsonl", path, "--report-json", filepath.Join(t.TempDir(), "r.json")}, load...)
				if mode != "round_robin" {
					args = append(args, "--router-seed", seed)
				}
				outputOf(t, append(args, flags...)...)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			a := report("1")
			if !bytes.Equal(a, report("1")) {
				t.Errorf("%s, %s: the same seed gives other bytes", topology, mode)
			}
			if differs := !bytes.Equal(a, report("2")); (mode == "random" || mode == "power_of_two") && !differs {
				t.Errorf("%s, %s: another seed changes nothing", topology, mode)
			}
		}
	}
}

// TestRouterModesInDocuments: sweep and predict files take the modes, refuse a lag of
// events that nobody reads, and the completion offers the modes.
func TestRouterModesInDocuments(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "s.yaml")
	write := func(router string) {
		text := "name: modes\nworkload: {synthetic: {input_tokens: 64, output_tokens: 2, requests: 3}, concurrency: 2}\n" +
			"topology: {workers: 2}\nrouter: " + router + "\nseeds: [1, 2]\n"
		if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{mode: [round_robin, kv_router, random, least_loaded, power-of-two]}")
	out := outputOf(t, "sweep", spec, "--dry-run")
	for _, name := range scenario.RouterModeNames()[:4] {
		if !strings.Contains(out, name) {
			t.Errorf("the dry run does not name %s:\n%s", name, out)
		}
	}
	if !strings.Contains(out, "9 points") { // round robin once, the others per seed
		t.Errorf("not nine rows:\n%s", out)
	}
	write("{mode: least_loaded, kv_event_lag_ms: 3}")
	if _, talk, code := runProgram("sweep", spec, "--dry-run"); code != 2 || !strings.Contains(talk, "kv_event_lag_ms only supports router_mode='kv_router'") {
		t.Errorf("code %d: %s", code, talk)
	}
	if got, want := outputOf(t, "replay", "--router-mode", "--generate-shell-completion"), strings.Join(scenario.RouterModeNames(), "\n")+"\n"; got != want {
		t.Errorf("completion: %q, want %q", got, want)
	}
}
