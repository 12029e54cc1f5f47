package trtllm

import (
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/engine/vllm"
	"github.com/dynosweep/dynosweep/sim/timing"
)

func TestOutputIsCutToModelThenPool(t *testing.T) {
	a := admission{blockSize: 32, blocks: 8, modelLen: 120}
	for _, c := range []struct{ modelLen, prompt, output, want int64 }{
		{0, 100, 400, 156}, {0, 100, 40, 40}, {120, 100, 40, 20}, {120, 130, 40, 0},
		{0, 256, 5, 5}, {0, 300, 5, 5}, // no room at all: refused later
	} {
		a.modelLen = c.modelLen
		if got := a.Output(c.prompt, c.output); got != c.want {
			t.Errorf("%d + %d tokens, model length %d: output %d, want %d", c.prompt, c.output, c.modelLen, got, c.want)
		}
	}
}

func TestRefusalCountsBlocksToCompletion(t *testing.T) {
	a := admission{blockSize: 32, blocks: 8}
	for _, c := range []struct {
		prompt, total int64
		want          engine.Reason
	}{{257, 258, engine.PromptOverPool}, {256, 257, engine.OutputOverPool}, {200, 256, engine.NoReason}} {
		if got := a.Refuse(c.prompt, c.total); got != c.want {
			t.Errorf("prompt %d, total %d: %q, want %q", c.prompt, c.total, got, c.want)
		}
	}
}

func TestPromisedBlocksAreNotGivenAway(t *testing.T) {
	for _, c := range []struct {
		d    vllm.Demand
		want bool
	}{
		{vllm.Demand{Total: 5, Room: 8, Promised: 3}, true}, {vllm.Demand{Total: 5, Room: 8, Promised: 4}, false},
		{vllm.Demand{Total: 5, HeldHits: 1, Room: 8, Promised: 4}, true}, {vllm.Demand{Total: 2, HeldHits: 3, Room: 1, Promised: 4}, true},
	} {
		if got := (admission{}).Fits(c.d); got != c.want {
			t.Errorf("%+v: %v", c.d, got)
		}
	}
}

func TestNobodyIsPreemptedAndThereIsNoHandoff(t *testing.T) {
	core, err := New(engine.Config{Backend: engine.TRTLLM, Blocks: 12, BlockSize: 4, MaxNumSeqs: 16, MaxNumBatchedTokens: 20,
		PrefixCaching: true, ChunkedPrefill: true, PrefillScheduleInterval: 1, DPSize: 1, Timing: timing.Fixed{Prefill: 1, Decode: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if core.Handoff() != nil {
		t.Error("a TensorRT-LLM rank has no disaggregated side")
	}
	for id := range int32(20) {
		core.Submit(engine.Request{ID: id, PromptTokens: 3 + id%7, OutputTokens: 5 + id%11})
	}
	var p engine.Pass
	for now := 0.0; core.Runnable(); now = p.EndMs {
		core.Pass(now, 0, &p)
		if len(p.Preempted) > 0 || p.Stall != engine.Progress {
			t.Fatalf("at %v: %+v", now, p)
		}
		if err := core.Check(); err != nil {
			t.Fatal(err)
		}
	}
}
