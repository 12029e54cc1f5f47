package vllm_test

import (
	"fmt"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/engine/vllm"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// loop is a closed loop on one rank: a finished request comes back as a new one
// with another prompt of the same length, half of it shared by all.
type loop struct {
	core   *vllm.Core
	pass   engine.Pass
	nodes  []uint32
	prompt int32
	output int32
	now    float64
	step   int64
	next   int64
}

func newLoop(tb testing.TB, cfg engine.Config, prompt, output int32, requests int) *loop {
	core, err := vllm.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	l := &loop{core: core, prompt: prompt, output: output}
	for i := range prompt / int32(cfg.BlockSize) / 2 {
		l.nodes = append(l.nodes, uint32(i))
	}
	for range requests {
		l.submit()
	}
	return l
}

func (l *loop) submit() {
	l.core.Submit(engine.Request{ID: int32(l.next), PromptTokens: l.prompt, OutputTokens: l.output,
		Prompt: kv.Prompt{Nodes: l.nodes, Ratio: 1, Shared: int32(len(l.nodes)), Base: kv.PrivateBase(l.next)}})
	l.next++
}

func (l *loop) runPass() {
	l.core.Pass(l.now, l.step, &l.pass)
	l.now = l.pass.EndMs
	l.step++
	for _, s := range l.pass.Signals {
		if s.End != engine.Running {
			l.submit()
		}
	}
}

// TestWarmPassDoesNotAllocate covers admission, eviction, preemption, completion.
func TestWarmPassDoesNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(cfg *engine.Config)
	}{
		{"plain", func(*engine.Config) {}},
		{"pressure", func(cfg *engine.Config) { cfg.Blocks = 400 }},
		{"observed", func(cfg *engine.Config) { cfg.WantEvents, cfg.WantMetrics, cfg.Blocks = true, true, 400 }},
		{"speculative", func(cfg *engine.Config) { cfg.NextN, cfg.AcceptRates, cfg.Blocks = 2, []float64{0.8, 0.4}, 400 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := defaults()
			c.set(&cfg)
			l := newLoop(t, cfg, 1000, 100, 40)
			for range 5000 {
				l.runPass()
			}
			if n := testing.AllocsPerRun(1000, l.runPass); n != 0 {
				t.Errorf("%v allocations per pass", n)
			}
			if cfg.Blocks == 400 && l.core.Gauges().Preemptions == 0 {
				t.Error("nobody was preempted")
			}
		})
	}
}

// BenchmarkBacklog is a pass behind a head that has no room: a backlog of 30,000
// requests costs no more than one of 60.
func BenchmarkBacklog(b *testing.B) {
	for _, requests := range []int{60, 30_000} {
		b.Run(fmt.Sprintf("requests=%d", requests), func(b *testing.B) {
			cfg := defaults()
			cfg.Blocks, cfg.WantMetrics = 700, true
			l := newLoop(b, cfg, 1000, 20000, requests)
			for range 100 {
				l.runPass()
			}
			b.ReportAllocs()
			b.ResetTimer()
			runPasses(b, l)
		})
	}
}

func runPasses(b *testing.B, l *loop) {
	for range b.N {
		l.runPass()
	}
}

func BenchmarkDecodePass(b *testing.B) {
	for _, batch := range []int{4, 64, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			cfg := defaults()
			cfg.Blocks = 1 << 20
			l := newLoop(b, cfg, 1000, 4000, batch)
			for range 100 {
				l.runPass()
			}
			b.ReportAllocs()
			b.ResetTimer()
			runPasses(b, l)
		})
	}
}

func BenchmarkRun(b *testing.B) {
	for _, batch := range []int{4, 64, 256} {
		b.Run(fmt.Sprintf("batch=%d/passes=64", batch), func(b *testing.B) {
			cfg := defaults()
			cfg.Blocks = 1 << 20
			l := newLoop(b, cfg, 1000, 4000, batch)
			for range 100 {
				l.runPass()
			}
			b.ReportAllocs()
			var ev kv.Events
			var passes int64
			for b.Loop() {
				r := l.core.Run(64)
				if r.Passes == 0 {
					l.runPass()
					passes++
					continue
				}
				l.core.Advance(r.Passes, &ev)
				passes += int64(r.Passes)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(passes), "ns/pass")
		})
	}
}

// BenchmarkAdmission is one request of 200 blocks from arrival to its only token:
// half of them cached, all of them evicting.
func BenchmarkAdmission(b *testing.B) {
	cfg := defaults()
	cfg.MaxNumBatchedTokens = 1 << 20
	l := newLoop(b, cfg, 200*64, 1, 1)
	for range 1000 {
		l.runPass()
	}
	b.ReportAllocs()
	b.ResetTimer()
	runPasses(b, l)
}
