package vllm_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/engine/trtllm"
	"github.com/dynosweep/dynosweep/sim/engine/vllm"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// arrival is one request of a test; ids name its 64-token trace blocks.
type arrival struct {
	atMs        float64
	prompt, out int32
	ids         []int
}

// outcome is what became of it.
type outcome struct {
	atMs, admitMs, firstMs, lastMs float64
	tokens, reused, admissions     int32
	end                            engine.End
	reason                         engine.Reason
}

// cluster drives workers of ranks as the event loop does, in the smallest way:
// completions, then arrivals, then passes, at every instant. Placement is round
// robin over workers, then over each worker's ranks.
type cluster struct {
	t       testing.TB
	cfg     engine.Config
	workers []*worker
	prompts prompts
	results []outcome
	fast    bool // use decode runs
	runs    int  // passes taken in runs
}

type worker struct {
	cores  []engine.Core
	passes []*engine.Pass
	ran    []bool
	next   int
	step   int64
	busy   bool
	endMs  float64
}

// defaults is the engine of spec engine-args 2.2.
func defaults() engine.Config {
	return engine.Config{Blocks: 16384, BlockSize: 64, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192,
		PrefillScheduleInterval: 1, PrefixCaching: true, ChunkedPrefill: true,
		SpeedupRatio: 1, DecodeSpeedupRatio: 1, MTPSeed: 42, DPSize: 1, Timing: timing.Polynomial{}}
}

func newCore(t testing.TB, cfg engine.Config) engine.Core {
	t.Helper()
	var core engine.Core
	var err error
	if cfg.Backend == engine.TRTLLM {
		core, err = trtllm.New(cfg)
	} else {
		core, err = vllm.New(cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	return core
}

func newCluster(t testing.TB, cfg engine.Config, workers int) *cluster {
	c := &cluster{t: t, cfg: cfg, prompts: prompts{blockSize: cfg.BlockSize, nodes: map[string]uint32{}}}
	for w := range workers {
		wk := &worker{}
		for r := range cfg.DPSize {
			of := cfg
			of.MTPSeed += uint64(w*cfg.DPSize + r)
			wk.cores = append(wk.cores, newCore(t, of))
			wk.passes = append(wk.passes, new(engine.Pass))
			wk.ran = append(wk.ran, false)
		}
		c.workers = append(c.workers, wk)
	}
	return c
}

// prompts interns prefixes of trace blocks.
type prompts struct {
	blockSize int
	nodes     map[string]uint32
}

func (p *prompts) of(req int, prompt int32, ids []int) kv.Prompt {
	out := kv.Prompt{Ratio: 1, Base: kv.PrivateBase(int64(req))}
	if ids == nil {
		return out
	}
	out.Ratio = int32(64 / p.blockSize)
	out.Shared = prompt / int32(p.blockSize)
	chain := ""
	for _, id := range ids {
		chain += fmt.Sprint(id, " ")
		if _, ok := p.nodes[chain]; !ok {
			p.nodes[chain] = uint32(len(p.nodes))
		}
		out.Nodes = append(out.Nodes, p.nodes[chain])
	}
	return out
}

// run replays the arrivals, which are sorted by time.
func (c *cluster) run(arrivals []arrival) []outcome {
	c.results = make([]outcome, len(arrivals))
	for i, a := range arrivals {
		c.results[i] = outcome{atMs: a.atMs, admitMs: -1, firstMs: -1, lastMs: -1}
	}
	next := 0
	for now := 0.0; ; {
		for _, w := range c.workers {
			if w.busy && w.endMs <= now {
				w.busy = false
				c.complete(w)
			}
		}
		for ; next < len(arrivals) && arrivals[next].atMs <= now; next++ {
			a := arrivals[next]
			w := c.workers[next%len(c.workers)]
			w.cores[w.next%len(w.cores)].Submit(engine.Request{ID: int32(next), PromptTokens: a.prompt,
				OutputTokens: a.out, Prompt: c.prompts.of(next, a.prompt, a.ids)})
			w.next++
		}
		bound := math.Inf(1)
		if next < len(arrivals) {
			bound = arrivals[next].atMs
		}
		then := bound
		for _, w := range c.workers {
			for !w.busy && w.runnable() {
				if !c.start(w, now, bound) {
					break
				}
			}
			if w.busy {
				then = min(then, w.endMs)
			}
		}
		if math.IsInf(then, 1) {
			return c.results
		}
		now = then
	}
}

func (w *worker) runnable() bool {
	for _, core := range w.cores {
		if core.Runnable() {
			return true
		}
	}
	w.step = 0
	return false
}

// start does one group pass or run; false if it had no effect.
func (c *cluster) start(w *worker, now, bound float64) bool {
	if c.fast && c.startRun(w, now, bound) {
		return true
	}
	effect := false
	end := now
	for i, core := range w.cores {
		if w.ran[i] = core.Runnable(); !w.ran[i] {
			continue
		}
		p := w.passes[i]
		core.Pass(now, w.step, p)
		if p.Err != nil {
			c.t.Fatal(p.Err)
		}
		effect = effect || p.Stall == engine.Progress
		end = max(end, p.EndMs)
		for _, a := range p.Admissions {
			r := &c.results[a.Req]
			if r.admitMs < 0 {
				r.admitMs = now
			}
			r.reused = max(r.reused, a.Reused)
			r.admissions++
		}
	}
	w.step++
	w.endMs = end
	if end == now {
		c.complete(w)
		return effect
	}
	w.busy = true
	return true
}

// startRun takes the passes of a decode run that start before bound.
func (c *cluster) startRun(w *worker, now, bound float64) bool {
	passes := 64
	runs := make([]engine.Run, len(w.cores))
	for i, core := range w.cores {
		if w.ran[i] = core.Runnable(); !w.ran[i] {
			continue
		}
		if runs[i] = core.Run(passes); runs[i].Passes == 0 {
			return false
		}
		passes = runs[i].Passes
	}
	series := c.price(w, runs, passes)
	n := 0
	for ; n < passes && now < bound; n++ {
		end := now
		for i := range series {
			if w.ran[i] {
				end = max(end, now+series[i][n])
			}
		}
		if end == now {
			return n > 0
		}
		now = end
		for i, core := range w.cores {
			if w.ran[i] {
				for _, id := range core.Members() {
					c.token(id, 1, now)
				}
			}
		}
	}
	c.runs += n
	for i, core := range w.cores {
		p := w.passes[i]
		p.Reset()
		if !w.ran[i] {
			continue
		}
		core.Advance(n, &p.Events)
		p.Metrics = core.RunMetrics()
	}
	w.step += int64(n)
	w.endMs, w.busy = now, true
	return true
}

// price returns the durations of the passes of a run, by rank.
func (c *cluster) price(w *worker, runs []engine.Run, passes int) [][]float64 {
	ratio := c.cfg.SpeedupRatio * c.cfg.DecodeSpeedupRatio
	series := make([][]float64, len(w.cores))
	for i, r := range runs {
		if !w.ran[i] {
			continue
		}
		series[i] = make([]float64, passes)
		c.cfg.Timing.DecodeSeries(r.Members, r.Context, int64(c.cfg.Blocks*c.cfg.BlockSize), series[i])
		if err := timing.Durations(series[i], ratio); err != nil {
			c.t.Fatal(err)
		}
	}
	return series
}

func (c *cluster) token(id, n int32, now float64) {
	r := &c.results[id]
	if r.firstMs < 0 {
		r.firstMs = now
	}
	r.lastMs = now
	r.tokens += n
}

// complete makes the signals of a pass visible. Tokens of a run were counted as
// it was planned.
func (c *cluster) complete(w *worker) {
	for i := range w.cores {
		if !w.ran[i] {
			continue
		}
		p := w.passes[i]
		for _, s := range p.Signals {
			r := &c.results[s.Req]
			if s.Tokens > 0 {
				c.token(s.Req, s.Tokens, w.endMs)
			}
			if s.End != engine.Running {
				r.end, r.reason, r.lastMs = s.End, s.Reason, w.endMs
			}
		}
		p.Signals = p.Signals[:0]
	}
}
