package vllm_test

import (
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// decodeRank is a destination core with helpers that fail the test.
type decodeRank struct {
	t    *testing.T
	core engine.Core
	hand engine.Handoff
	ev   kv.Events
	pass engine.Pass
	now  float64
}

func newDecodeRank(t *testing.T, set func(cfg *engine.Config)) *decodeRank {
	cfg := defaults()
	cfg.Role, cfg.BlockSize, cfg.WantEvents, cfg.WantMetrics = engine.Decode, 4, true, true
	set(&cfg)
	c := newCore(t, cfg)
	return &decodeRank{t: t, core: c, hand: c.Handoff()}
}

func (d *decodeRank) request(id, prompt, output int32, nodes ...uint32) engine.Request {
	return engine.Request{ID: id, PromptTokens: prompt, OutputTokens: output,
		Prompt: kv.Prompt{Nodes: nodes, Ratio: 1, Shared: int32(len(nodes)), Base: kv.PrivateBase(int64(id))}}
}

func (d *decodeRank) accept(id, prompt, output int32, nodes ...uint32) {
	d.t.Helper()
	if why := d.hand.Accept(d.request(id, prompt, output, nodes...)); why != engine.NoReason {
		d.t.Fatalf("destination %d: %v", id, why)
	}
}

// reserve expects the attempt to give want its blocks; want -1: to fail.
func (d *decodeRank) reserve(want, freshTokens int32) {
	d.t.Helper()
	got, ok := d.hand.TryReserve(&d.ev)
	if !ok {
		got = engine.Reservation{Req: -1}
	}
	if got.Req != want || got.FreshTokens != freshTokens {
		d.t.Fatalf("reserved %+v, want request %d with %d fresh tokens", got, want, freshTokens)
	}
}

// step does a pass and expects the requests admitted.
func (d *decodeRank) step(admitted ...int32) {
	d.t.Helper()
	d.core.Pass(d.now, 0, &d.pass)
	d.now = d.pass.EndMs
	ok := len(d.pass.Admissions) == len(admitted)
	for i := range admitted {
		ok = ok && d.pass.Admissions[i] == engine.Admission{Req: admitted[i]}
	}
	if err := d.core.Check(); err != nil || !ok {
		d.t.Fatalf("admitted %+v, want %v without reuse (%v)", d.pass.Admissions, admitted, err)
	}
}

func TestReservedBlocksAreVisibleOnceActivated(t *testing.T) {
	d := newDecodeRank(t, func(cfg *engine.Config) { cfg.Blocks = 20 })
	d.accept(1, 10, 3, 70, 71)
	d.accept(2, 10, 3, 70, 71)
	d.accept(3, 8, 3, 70, 71)
	d.reserve(1, 12)
	d.reserve(2, 12) // the blocks of 1 cannot be found yet
	if len(d.ev.Items) != 0 {
		t.Errorf("events before activation: %+v", d.ev.Items)
	}
	d.hand.Activate(1, &d.ev)
	if len(d.ev.Items) != 1 || !d.ev.Items[0].Stored || len(d.ev.Blocks) != 2 {
		t.Errorf("activation stored %+v", d.ev)
	}
	d.hand.Activate(2, &d.ev)
	if len(d.ev.Items) != 1 {
		t.Errorf("a copy was stored: %+v", d.ev.Items)
	}
	d.reserve(3, 0) // all of it is here
	d.hand.Activate(3, &d.ev)
	d.step(1, 2, 3)
	if n := d.pass.Metrics; n.DecodeRequests != 3 || n.PrefillTokens != 0 || n.DecodeKVTokens != 28 {
		t.Errorf("metrics %+v", n)
	}
	if len(d.pass.Signals) != 3 || d.pass.EndMs < 5 {
		t.Errorf("the first pass gives the first tokens: %+v", d.pass)
	}
}

func TestFailedHeadWaitsForCapacityToMove(t *testing.T) {
	d := newDecodeRank(t, func(cfg *engine.Config) { cfg.Blocks = 5 })
	d.accept(1, 8, 2)
	d.accept(2, 16, 2)
	d.accept(3, 4, 2)
	d.reserve(1, 8)
	d.reserve(-1, 0) // 2 needs four blocks; 3 would fit but is not the head
	d.hand.Activate(1, &d.ev)
	d.step(1)
	d.reserve(-1, 0)
	d.step() // ends 1
	if g := d.core.Gauges(); g.ActiveBlocks != 0 {
		t.Errorf("%+v", g)
	}
	d.reserve(2, 16)
	d.reserve(3, 4)
	d.hand.CancelDestination(2, &d.ev)
	d.hand.CancelDestination(3, &d.ev)
	if !d.core.Drained() {
		t.Error("not drained")
	}
}

func TestPendingDestinationKeepsOthersOut(t *testing.T) {
	// Two requests outgrow five blocks; the younger is preempted, and the destination
	// that then waits in vain keeps it out though it is first in the queue.
	d := newDecodeRank(t, func(cfg *engine.Config) { cfg.Blocks, cfg.PrefixCaching = 5, false })
	d.accept(1, 8, 9)
	d.accept(2, 8, 9)
	d.reserve(1, 8)
	d.reserve(2, 8)
	d.hand.Activate(2, &d.ev)
	d.hand.Activate(1, &d.ev)
	d.step(1, 2) // in order of acceptance
	d.accept(3, 12, 1)
	for len(d.pass.Preempted) == 0 {
		d.step()
	}
	if d.pass.Preempted[0] != 2 || d.pass.Metrics.QueuedDecode != 2 {
		t.Errorf("preempted %v, metrics %+v", d.pass.Preempted, d.pass.Metrics)
	}
	d.reserve(-1, 0)
	d.step()
	d.hand.CancelDestination(3, &d.ev)
	for range 20 {
		if len(d.pass.Admissions) > 0 {
			break
		}
		d.core.Pass(d.now, 0, &d.pass)
		d.now = d.pass.EndMs
	}
	if len(d.pass.Admissions) != 1 || d.pass.Admissions[0].Req != 2 {
		t.Errorf("admitted %+v, want request 2", d.pass.Admissions)
	}
}

func TestDestinationThatCanNeverFitIsAnswered(t *testing.T) {
	d := newDecodeRank(t, func(cfg *engine.Config) { cfg.Blocks, cfg.MaxModelLen = 4, 40 })
	for _, c := range []struct {
		prompt, output int32
		want           engine.Reason
	}{{40, 1, engine.OverModelLen}, {17, 1, engine.PromptOverPool}, {16, 2, engine.OutputOverPool}, {16, 1, engine.NoReason}} {
		if got := d.hand.Accept(d.request(1, c.prompt, c.output)); got != c.want {
			t.Errorf("%d + %d tokens: %q, want %q", c.prompt, c.output, got, c.want)
		}
	}
}

func TestSourceKeepsItsBlocksUntilReleased(t *testing.T) {
	cfg := defaults()
	cfg.Role, cfg.BlockSize, cfg.Blocks = engine.Prefill, 4, 8
	c := newCore(t, cfg)
	h := c.Handoff()
	d := &decodeRank{t: t}
	h.SubmitSource(d.request(1, 10, 1))
	h.SubmitSource(d.request(2, 10, 1))
	h.SubmitSource(d.request(3, 10, 1))
	var p engine.Pass
	c.Pass(0, 0, &p)
	if len(p.Held) != 2 || p.Held[0] != 1 || p.Held[1] != 2 || c.Gauges().Running != 0 || c.Gauges().ActiveBlocks != 6 {
		t.Fatalf("held %v, %+v", p.Held, c.Gauges())
	}
	if raw := cfg.Timing.PrefillMs(2, 10, 0); p.EndMs < raw-1e-6 || p.EndMs > raw+1e-6 {
		t.Errorf("a prefill rank takes %v for two prompts, the model %v: no decode time", p.EndMs, raw)
	}
	h.ReleaseSource(1, nil)
	if g := c.Gauges(); g.ActiveBlocks != 3 || g.InactiveBlocks != 2 {
		t.Errorf("after a release %+v", g)
	}
	h.CancelSource(2, nil)
	h.CancelSource(3, nil)
	if err := c.Check(); err != nil || !c.Drained() || c.Gauges().ActiveBlocks != 0 {
		t.Errorf("after the cancels %+v (%v)", c.Gauges(), err)
	}
}

func TestEndlessPreemptionEndsTheRun(t *testing.T) {
	// 2 keeps its blocks while it waits behind 1, which fits without its burst only.
	d := newDecodeRank(t, func(cfg *engine.Config) {
		cfg.Blocks, cfg.MaxNumSeqs, cfg.PrefixCaching = 5, 1, false
		cfg.NextN, cfg.AcceptRates = 2, []float64{1, 1}
	})
	d.accept(1, 8, 12)
	d.accept(2, 8, 4)
	d.reserve(1, 8)
	d.reserve(2, 8)
	d.hand.Activate(1, &d.ev)
	passes := 0
	for ; d.pass.Err == nil && passes < 20000; passes++ {
		d.core.Pass(d.now, 0, &d.pass)
		d.now = d.pass.EndMs
		if passes == 3 {
			d.hand.Activate(2, &d.ev)
		}
	}
	if d.pass.Err == nil || passes < 1000 {
		t.Errorf("after %d passes: %v", passes, d.pass.Err)
	}
}
