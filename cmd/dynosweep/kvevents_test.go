package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestKVEventsTellWhatRanksHold: replayed by a reader, the events never remove what
// was not stored, and every parent is held when a child is stored.
func TestKVEventsTellWhatRanksHold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	outputOf(t, "replay", local(t, "traces/conversation_500.jsonl"), "--num-workers", "2", "--router-mode", "kv_router",
		"--extra-engine-args", `{"num_gpu_blocks":2500}`, "--kv-events-jsonl", path, "--report-json", filepath.Join(t.TempDir(), "r.json"))
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	held := map[int32]map[string]bool{0: {}, 1: {}}
	stored, removed, lastMs := 0, 0, 0.0
	for _, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		var e kvEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.AtMs < lastMs {
			t.Fatalf("time goes back at %s", line)
		}
		lastMs = e.AtMs
		have := held[e.Worker]
		if e.Parent != nil && !have[*e.Parent] {
			t.Fatalf("a parent that worker %d does not hold: %s", e.Worker, line)
		}
		for _, b := range e.Blocks {
			if e.Event == "stored" {
				have[b] = true
				stored++
				continue
			}
			if !have[b] {
				t.Fatalf("worker %d removes %s, which it does not hold", e.Worker, b)
			}
			delete(have, b)
			removed++
		}
	}
	if stored < 10_000 || removed < 1000 || len(held[0]) > 2500 {
		t.Errorf("%d stored, %d removed, %d held: the run shows too little", stored, removed, len(held[0]))
	}
}
