package sglang

import (
	"fmt"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// warmCore is a rank that decodes batch requests of 1,000 prompt tokens without an
// end in sight, its pool big enough.
func warmCore(t testing.TB, batch, page int) (*Core, *engine.Pass) {
	cfg := defaults()
	cfg.BlockSize, cfg.Blocks, cfg.MaxNumSeqs = page, 1<<30/page, 0
	cfg.SGLang.ChunkedPrefillSize, cfg.SGLang.MaxPrefillTokens = 1<<28, 1<<28
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range batch {
		c.Submit(engine.Request{ID: int32(i), PromptTokens: 1000, OutputTokens: 1 << 28, Prompt: kv.Prompt{Ratio: 1, Base: kv.PrivateBase(int64(i))}})
	}
	p := &engine.Pass{}
	for range 20 {
		c.Pass(0, 0, p)
	}
	if len(c.running) != batch || p.ModelWork != true {
		t.Fatalf("%d of %d requests decode", len(c.running), batch)
	}
	return c, p
}

func TestWarmDecodePassesAllocateNothing(t *testing.T) {
	for _, page := range []int{1, 16} {
		c, p := warmCore(t, 32, page)
		if n := testing.AllocsPerRun(200, func() { c.Pass(0, 0, p) }); n != 0 {
			t.Errorf("page %d: %v allocations per pass", page, n)
		}
		if n := testing.AllocsPerRun(200, func() { c.Advance(c.Run(64).Passes, &p.Events) }); n != 0 {
			t.Errorf("page %d: %v allocations per run", page, n)
		}
	}
}

// A page of 268 million tokens costs a run no more than one of 16.
func TestRunsOfHugePagesStaySmall(t *testing.T) {
	c, p := warmCore(t, 1, 1<<28)
	if n := c.Run(64).Passes; n != 64 {
		t.Fatalf("a run of %d passes, want 64", n)
	}
	c.Advance(64, &p.Events)
	if n := len(c.plan.slack); n > 64 {
		t.Errorf("a run of 64 passes looks at %d places of a page", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, batch := range []int{16, 256} {
		b.Run(fmt.Sprintf("way=passes/batch=%d", batch), func(b *testing.B) {
			c, p := warmCore(b, batch, 1)
			b.ReportAllocs()
			for b.Loop() {
				c.Pass(0, 0, p)
			}
		})
		b.Run(fmt.Sprintf("way=runs/batch=%d", batch), func(b *testing.B) {
			c, p := warmCore(b, batch, 1)
			b.ReportAllocs()
			passes := 0
			for b.Loop() {
				n := c.Run(64).Passes
				c.Advance(n, &p.Events)
				if passes += n; n == 0 { // the pool is used up
					c, p = warmCore(b, batch, 1)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(passes), "ns/pass")
		})
	}
}

// A prompt of 2,048 tokens, half of it shared, from submission to its end, in a
// full pool of 16,384 tokens: match, split, eviction, insert.
func BenchmarkAdmission(b *testing.B) {
	cfg := defaults()
	c, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	var p engine.Pass
	owner := int64(0)
	submit := func() {
		owner++
		shared := kv.Prompt{Nodes: []uint32{uint32(owner % 3)}, Ratio: 1024, Shared: 1024, Base: kv.PrivateBase(owner)}
		c.Submit(engine.Request{PromptTokens: 2048, OutputTokens: 1, Prompt: shared})
		c.Pass(0, 0, &p)
	}
	for range 50 {
		submit()
	}
	b.ReportAllocs()
	for b.Loop() {
		submit()
	}
}
