package sglang

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// life is what a worked example states of one request; NaN and nil are not stated.
type life struct {
	adm         []float64 // ms
	reused      []int32
	first, last float64 // ms
}

var open = math.NaN()

// once is a request admitted once.
func once(adm float64, reused int32, first, last float64) life {
	return life{[]float64{adm}, []int32{reused}, first, last}
}

func same(n int, l life) []life { return slices.Repeat([]life{l}, n) }

// near compares with a figure that the spec prints with six digits.
func near(got, want float64) bool {
	return math.IsNaN(want) || math.Abs(got-want) <= 5.1e-6*math.Abs(want)
}

// alike is n equal requests without shared prompts.
func alike(n int, isl, osl int32) []job { return slices.Repeat([]job{{isl: isl, osl: osl}}, n) }

// example is a row of spec engine-sglang 15.
type example struct {
	name     string
	set      func(c *engine.Config)
	conc     int
	jobs     []job
	want     []life
	computed int64 // prompt tokens, 0: not stated
}

func fixed(c *engine.Config) { c.Timing = fix }

func pages(page, blocks int) func(c *engine.Config) {
	return func(c *engine.Config) {
		c.BlockSize, c.Blocks = page, blocks
		c.SGLang.ChunkedPrefillSize = 100 * page
	}
}

func examples() []example {
	twice := []job{{0, 100, 4, []int{1, 2}}, {1000, 100, 4, []int{1, 2}}}
	tight := []job{{0, 20, 40, []int{1}}, {0, 20, 22, []int{2}}}
	tightPool := func(c *engine.Config) { c.Blocks, c.SGLang.ClipMaxNewTokens = 80, 1 }
	overlap := []job{{0, 100, 2, []int{1, 2}}, {500, 120, 2, []int{1, 2}}, {1000, 120, 2, []int{1, 3}}}
	lpmOne := []job{{0, 100, 4, []int{1, 2}}, {1, 101, 4, []int{3, 4}}, {2, 100, 4, []int{1, 2}}}
	lpmTwo := []job{{0, 100, 4, []int{1, 2}}, {0, 100, 5, []int{1, 2}}, {0, 100, 6, []int{5, 6}}}
	inTurn := []job{{0, 20, 6, []int{1}}, {1, 20, 6, []int{2}}}
	var groups []job
	for k := range 8 {
		groups = append(groups, job{isl: 1024, osl: 16, ids: []int{k % 2, 10 + k}})
	}
	return []example{
		{"single fixed", fixed, 1, alike(1, 10, 5), []life{once(0, 0, 10, 18)}, 10},
		{"single", nil, 1, alike(1, 100, 4), []life{once(0, 0, 18.023974, 36.2497)}, 0},
		{"single long", nil, 1, alike(1, 1000, 50), []life{once(0, 0, 32.1059, 473.996)}, 0},
		{"two speedups", func(c *engine.Config) { c.SpeedupRatio, c.DecodeSpeedupRatio = 2, 3 }, 1, alike(1, 100, 4),
			[]life{once(0, 0, 9.01199, 12.0496)}, 0},
		{"speedup 0 is none", func(c *engine.Config) { c.SpeedupRatio = 0 }, 1, alike(1, 100, 4),
			[]life{once(0, 0, 18.023974, 36.2497)}, 0},
		{"one token each", nil, 2, alike(2, 100, 1), same(2, once(0, 0, 19.5549, 19.5549)), 0},

		{"same prompt later", nil, 0, twice, []life{once(0, 0, 18.0240, 36.2497), once(1000, 99, 1016.52, 1034.74)}, 101},
		{"same prompt later, page 16", pages(16, 1024), 0, twice,
			[]life{once(0, 0, 18.0240, 36.2497), once(1000, 96, 1016.56, 1034.79)}, 104},
		{"same prompt at once", nil, 0, []job{twice[0], {0, 100, 4, []int{1, 2}}}, same(2, once(0, 0, 19.5549, 38.7804)), 200},

		{"chunks before groups", func(c *engine.Config) { c.SGLang.ChunkedPrefillSize = 2048 }, 8, groups, slices.Concat(
			same(2, once(0, 0, 49.3629, 527.515)), same(4, once(49.3629, 512, 98.7258, 527.515)),
			same(2, once(98.7258, 512, 131.217, 527.515))), 5120},

		{"chunks, fixed", func(c *engine.Config) { c.Timing, c.SGLang.ChunkedPrefillSize = fix, 256 }, 2, alike(2, 1000, 3),
			[]life{once(0, 0, 40, 84), once(30, 0, 80, 84)}, 2000},
		{"chunks", func(c *engine.Config) { c.SGLang.ChunkedPrefillSize = 256 }, 2, alike(2, 1000, 3),
			[]life{once(0, 0, 81.6639, 186.506), once(61.2479, 0, 162.590, 186.506)}, 0},
		{"chunks of three pages", func(c *engine.Config) { pages(16, 1024)(c); c.SGLang.ChunkedPrefillSize = 48 }, 1,
			alike(1, 100, 3), []life{once(0, 0, 51.0246, 63.1718)}, 0},

		{"retraction, fixed", func(c *engine.Config) { tightPool(c); fixed(c) }, 0, tight,
			[]life{{[]float64{0, 52}, []int32{0, 38}, 10, 100}, once(0, 0, 10, 52)}, 42},
		{"retraction", tightPool, 0, tight,
			[]life{{[]float64{0, 664.515}, []int32{0, 38}, 17.1094, 1238.14}, once(0, 0, 17.1094, 664.515)}, 42},
		{"retracted goes behind", func(c *engine.Config) { c.Timing, c.Blocks, c.SGLang.Conservativeness = fix, 120, .3 }, 4, alike(4, 20, 40),
			[]life{{[]float64{0, 118}, []int32{0, 0}, 10, 166}, once(10, 0, 20, 108), once(20, 0, 30, 108), once(108, 0, 118, 206)}, 120},
		{"no reserve", func(c *engine.Config) { c.Timing, c.Blocks, c.SGLang.Conservativeness = fix, 60, 0 }, 2, alike(2, 20, 20),
			[]life{once(0, 0, 10, 48), once(48, 0, 58, 96)}, 40},

		{"a burst's page is older than the next request's", func(c *engine.Config) {
			c.Timing, c.BlockSize, c.Blocks, c.NextN, c.AcceptRates = fix, 4, 16, 1, []float64{1}
		}, 0, []job{{0, 20, 5, []int{1}}, {0, 20, 7, []int{2}}, {1000, 32, 1, []int{3}}, {2000, 20, 1, []int{1}}},
			[]life{once(0, 0, 10, 14), once(0, 0, 10, 16), once(1000, 0, 1010, 1010), once(2000, 8, 2010, 2010)}, 0},

		{"page 1 in blocks of 64", pages(1, 16384), 0, overlap,
			[]life{once(0, 0, open, open), once(500, 100, 516.805, open), once(1000, 64, 1017.35, 1023.49)}, 176},
		{"page 16 in blocks of 64", pages(16, 1024), 0, overlap,
			[]life{once(0, 0, open, open), once(500, 96, 516.866, open), once(1000, 64, 1017.35, 1023.49)}, 180},
		{"page 48 across blocks of 64", pages(48, 341), 0, overlap,
			[]life{once(0, 0, open, open), once(500, 96, 516.866, open), once(1000, 48, 1017.60, 1023.73)}, 196},

		{"two ranks", func(c *engine.Config) { c.DPSize = 2 }, 4, alike(4, 100, 5), same(4, once(0, 0, 19.5549, 45.2020)), 0},
		{"two ranks share the chunk", func(c *engine.Config) { c.DPSize, c.Timing, c.SGLang.ChunkedPrefillSize = 2, fix, 200 }, 4,
			alike(4, 100, 5), []life{once(0, 0, 10, 28), once(0, 0, 10, 28), once(10, 0, 20, 28), once(10, 0, 20, 28)}, 0},
		{"two ranks in chunks of 128", func(c *engine.Config) { c.DPSize, c.SGLang.ChunkedPrefillSize = 2, 256 }, 2,
			alike(2, 1000, 3), same(2, once(0, 0, 147.248, 165.138)), 0},
		{"a rank waits for the other", func(c *engine.Config) { c.DPSize = 2 }, 0,
			[]job{{0, 200, 3, []int{1, 2, 3, 4}}, {0, 20, 5, []int{9}}, {5, 20, 2, []int{8}}},
			[]life{once(0, 0, 19.5549, 49.2293), once(0, 0, 19.5549, 55.0483), once(19.5549, 0, 36.3602, 42.8273)}, 0},

		{"interval 0", fixed, 0, inTurn, []life{once(0, 0, 10, 30), once(10, 0, 20, 30)}, 0},
		{"interval 3", func(c *engine.Config) { c.Timing, c.PrefillDecodeInterval = fix, 3 }, 0, inTurn,
			[]life{once(0, 0, 10, 30), once(16, 0, 26, 36)}, 0},
		{"an interval delays nobody alone", func(c *engine.Config) { c.Timing, c.PrefillDecodeInterval = fix, 3 }, 2, alike(4, 100, 5),
			[]life{once(0, 0, 10, 18), once(0, 0, 10, 18), once(18, 0, 28, 36), once(18, 0, 28, 36)}, 0},

		{"fifo, one slot", func(c *engine.Config) { c.Timing, c.MaxNumSeqs = fix, 1 }, 0, lpmOne,
			[]life{once(0, 0, open, open), once(16, 0, open, open), once(32, 99, open, open)}, 0},
		{"lpm, one slot", func(c *engine.Config) { c.Timing, c.MaxNumSeqs, c.SGLang.LPM = fix, 1, true }, 0, lpmOne,
			[]life{once(0, 0, open, open), once(32, 0, open, open), once(16, 99, open, open)}, 0},
		{"fifo, two slots", func(c *engine.Config) { c.Timing, c.MaxNumSeqs = fix, 2 }, 0, lpmTwo,
			[]life{once(0, 0, open, open), once(0, 0, open, open), once(16, 0, open, 36)}, 300},
		{"lpm, two slots", func(c *engine.Config) { c.Timing, c.MaxNumSeqs, c.SGLang.LPM = fix, 2, true }, 0, lpmTwo,
			[]life{once(0, 0, open, open), once(16, 99, open, 34), once(0, 0, open, open)}, 201},
		{"prefill budget", func(c *engine.Config) { c.Timing, c.SGLang.MaxPrefillTokens = fix, 1000 }, 3, alike(3, 400, 2),
			[]life{once(0, 0, 10, 22), once(0, 0, 10, 22), once(10, 0, 20, 22)}, 0},

		{"pool one token above", func(c *engine.Config) { c.Blocks = 106 }, 1, alike(1, 100, 5), []life{once(0, 0, open, 153.606)}, 0},
		{"chunk within the prefill budget", func(c *engine.Config) {
			c.Timing, c.SGLang.MaxPrefillTokens, c.SGLang.ChunkedPrefillSize = fix, 500, 250
		}, 1, alike(1, 1000, 2), []life{once(0, 0, 40, 42)}, 0},
		{"cut by the model length", func(c *engine.Config) { c.MaxModelLen = 103 }, 1, alike(1, 100, 5), []life{once(0, 0, open, 30.1712)}, 0},
	}
}

func TestWorkedExamples(t *testing.T) {
	for _, e := range examples() {
		for _, runs := range []bool{false, true} {
			g := &rig{cfg: defaults(), tbs: 64, concurrency: e.conc, runs: runs}
			if strings.HasPrefix(e.name, "chunks before groups") {
				g.tbs = 512
			}
			if e.set != nil {
				e.set(&g.cfg)
			}
			out, err := g.replay(t, e.jobs)
			if err != nil {
				t.Errorf("%s: %v", e.name, err)
				continue
			}
			for i, w := range e.want {
				o := out[i]
				if !slices.EqualFunc(o.admitted, w.adm, near) || !slices.Equal(o.reused, w.reused) || !near(o.first, w.first) || !near(o.last, w.last) {
					t.Errorf("%s (runs %v), request %d: %+v, want %+v", e.name, runs, i+1, o, w)
				}
			}
			if e.computed > 0 && g.computed != e.computed {
				t.Errorf("%s: %d prompt tokens computed, want %d", e.name, g.computed, e.computed)
			}
		}
	}
}

// The reference ends its run at each of these; the request itself is refused.
func TestRequestsThatCanNeverEndAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(c *engine.Config)
		jobs []job
		want []engine.Reason
	}{
		{"prompt over pool", func(c *engine.Config) { c.Blocks = 50 }, alike(1, 100, 5), []engine.Reason{engine.PromptOverPool}},
		{"output reaches the pool", func(c *engine.Config) { c.Blocks = 105 }, alike(1, 100, 5), []engine.Reason{engine.OutputOverPool}},
		{"output outgrows the pool", func(c *engine.Config) { c.Blocks, c.SGLang.ClipMaxNewTokens = 110, 1 }, alike(1, 100, 50),
			[]engine.Reason{engine.OutputOverPool}},
		{"chunk over the prefill budget", func(c *engine.Config) { c.SGLang.MaxPrefillTokens = 500 }, alike(1, 1000, 2),
			[]engine.Reason{engine.OverPrefillBudget}},
		{"prompt at the model length", func(c *engine.Config) { c.MaxModelLen = 100 }, alike(1, 100, 5), []engine.Reason{engine.OverModelLen}},
		{"the queue goes on behind it", func(c *engine.Config) { c.Blocks = 200 },
			[]job{{isl: 300, osl: 2}, {isl: 20, osl: 2}, {isl: 150, osl: 90}}, []engine.Reason{engine.PromptOverPool, 0, engine.OutputOverPool}},
		{"a prompt in chunks lets go of the pool", func(c *engine.Config) { c.Blocks, c.SGLang.ChunkedPrefillSize, c.SGLang.ClipMaxNewTokens = 100, 64, 0 },
			[]job{{isl: 20, osl: 60}, {isl: 200, osl: 2}}, []engine.Reason{0, engine.PromptOverPool}},
	} {
		g := &rig{cfg: defaults()}
		c.set(&g.cfg)
		out, err := g.replay(t, c.jobs)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for i, o := range out {
			want := engine.Completed
			if c.want[i] != engine.NoReason {
				want = engine.Rejected
			}
			if o.end != want || o.reason != c.want[i] {
				t.Errorf("%s, request %d: end %d %q, want %d %q", c.name, i+1, o.end, o.reason, want, c.want[i])
			}
		}
	}
}

func TestDataParallelChunkOfNothingIsAnError(t *testing.T) {
	cfg := defaults()
	cfg.DPSize, cfg.SGLang.ChunkedPrefillSize = 3, 2
	const want = "SGLang attention DP size 3 reduces chunked_prefill_size=2 to zero"
	if _, err := New(cfg); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A prompt in chunks holds what the only running request needs; the reference
// repeats an empty pass forever.
func TestKnownHangIsAStall(t *testing.T) {
	g := &rig{cfg: defaults()}
	g.cfg.Timing, g.cfg.Blocks = timing.Fixed{Prefill: 10, Decode: 2}, 100
	g.cfg.SGLang.ChunkedPrefillSize, g.cfg.SGLang.ClipMaxNewTokens = 64, 0
	_, err := g.replay(t, []job{{isl: 30, osl: 60}, {isl: 90, osl: 2}})
	if err == nil || !strings.Contains(err.Error(), "effect-free pass with 2 in flight") {
		t.Errorf("got %v", err)
	}
}
