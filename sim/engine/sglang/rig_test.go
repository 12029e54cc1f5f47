package sglang

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// job is a trace row: arrival in ms, prompt and output tokens, and the ids of the
// prompt's trace blocks; without ids the prompt is unlike any other.
type job struct {
	at       float64
	isl, osl int32
	ids      []int
}

// outcome is what became of a job.
type outcome struct {
	admitted    []float64 // ms
	reused      []int32
	first, last float64 // ms of tokens, -1 without
	tokens      int32
	end         engine.End
	reason      engine.Reason
}

// rig is a tiny aggregated event loop around real cores (spec replay-runtime 3, 4):
// enough to replay the worked examples, with every core checked after every pass.
type rig struct {
	cfg         engine.Config
	tbs         int // trace block size
	concurrency int // 0: by arrival time
	runs        bool
	limit       int // passes of a run, 0: 64

	jobs         []job
	out          []outcome
	cores        []*Core // [rank]
	passes       []engine.Pass
	book         *book
	now, end     float64
	next         int // job to release
	inflight     int
	rank         int
	computed     int64
	retries      int
	steps        int // passes, those inside runs included
	inRuns       int
	ledgers      []ledger // [rank]
	storedBlocks int      // blocks in stored events
	withdrawn    int
}

// fix is the fixed timing of the spec's examples.
var fix = timing.Fixed{Prefill: 10, Decode: 2}

// defaults is the engine of spec engine-sglang 3 with one rank.
func defaults() engine.Config {
	return engine.Config{Backend: engine.SGLang, Blocks: 16384, BlockSize: 1, MaxNumSeqs: 256,
		MaxNumBatchedTokens: 8192, PrefillScheduleInterval: 1, PrefixCaching: true, ChunkedPrefill: true,
		SpeedupRatio: 1, DecodeSpeedupRatio: 1, DPSize: 1, Timing: timing.Polynomial{},
		SGLang: engine.SGLangConfig{MaxPrefillTokens: 16384, ChunkedPrefillSize: 8192,
			ClipMaxNewTokens: 4096, Conservativeness: 1}}
}

// book gives prompts the identities of their pages, as a trace reader would.
type book struct {
	page, tbs int
	known     map[string]uint32
	made      int64
}

func (b *book) node(parent int64, content string) uint32 {
	key := fmt.Sprint(parent, "/", content)
	n, ok := b.known[key]
	if !ok {
		n = uint32(len(b.known))
		b.known[key] = n
	}
	return n
}

// prompt chains trace blocks where the page divides them, else single pages.
func (b *book) prompt(j job) kv.Prompt {
	p := kv.Prompt{Ratio: 1, Base: kv.PrivateBase(b.made)}
	b.made++
	if len(j.ids) == 0 {
		return p
	}
	p.Shared = j.isl / int32(b.page)
	parent := int64(-1)
	if b.tbs%b.page == 0 {
		p.Ratio = int32(b.tbs / b.page)
		for i := 0; i*b.tbs < int(j.isl); i++ {
			n := b.node(parent, fmt.Sprint(j.ids[i]))
			p.Nodes, parent = append(p.Nodes, n), int64(n)
		}
		return p
	}
	for i := 0; i < int(p.Shared); i++ {
		content := ""
		for t := i * b.page; t < (i+1)*b.page; t++ {
			content += fmt.Sprint(j.ids[t/b.tbs], ",")
		}
		n := b.node(parent, content)
		p.Nodes, parent = append(p.Nodes, n), int64(n)
	}
	return p
}

// replay runs the jobs to their end and returns what became of them. The error is
// that of a dead end.
func (g *rig) replay(t testing.TB, jobs []job) ([]outcome, error) {
	t.Helper()
	if g.tbs == 0 {
		g.tbs = 64
	}
	*g = rig{cfg: g.cfg, tbs: g.tbs, concurrency: g.concurrency, runs: g.runs, jobs: jobs, end: math.Inf(1)}
	g.book = &book{page: g.cfg.BlockSize, tbs: g.tbs, known: map[string]uint32{}}
	g.cores, g.passes = make([]*Core, g.cfg.DPSize), make([]engine.Pass, g.cfg.DPSize)
	g.ledgers = make([]ledger, g.cfg.DPSize)
	for i := range g.cores {
		cfg := g.cfg
		cfg.MTPSeed += uint64(i)
		core, err := New(cfg)
		if err != nil {
			return nil, err
		}
		g.cores[i], g.ledgers[i] = core, ledger{}
	}
	g.out = make([]outcome, len(jobs))
	for i := range g.out {
		g.out[i].first, g.out[i].last = -1, -1
	}
	for {
		g.release()
		if err := g.drive(t); err != nil {
			return g.out, err
		}
		if g.release() {
			continue
		}
		next := g.end
		if g.concurrency == 0 && g.next < len(jobs) {
			next = min(next, jobs[g.next].at)
		}
		if math.IsInf(next, 1) {
			break
		}
		g.now = next
		if g.now == g.end {
			g.complete(t)
		}
	}
	if g.inflight > 0 || g.next < len(jobs) {
		return g.out, fmt.Errorf("dead end with %d in flight", g.inflight)
	}
	for _, c := range g.cores {
		if !c.Drained() || c.tree.locked != 0 || len(c.reqs.Free()) != int(c.reqs.Len()) {
			t.Fatalf("rank not empty at the end: %+v", c.Gauges())
		}
	}
	return g.out, nil
}

// release submits the jobs that are due and reports whether there were any.
func (g *rig) release() (any bool) {
	for ; g.next < len(g.jobs); any = true {
		j := g.jobs[g.next]
		if g.concurrency > 0 && g.inflight >= g.concurrency || g.concurrency == 0 && j.at > g.now {
			return any
		}
		g.cores[g.rank].Submit(engine.Request{ID: int32(g.next), PromptTokens: j.isl, OutputTokens: j.osl, Prompt: g.book.prompt(j)})
		g.rank = (g.rank + 1) % len(g.cores)
		g.next++
		g.inflight++
	}
	return any
}

// drive starts passes until one takes time or nothing is left to do.
func (g *rig) drive(t testing.TB) error {
	for math.IsInf(g.end, 1) {
		work := false
		for _, c := range g.cores {
			work = work || c.Runnable()
		}
		if !work {
			return nil
		}
		if g.runs && g.decodeRun(t) {
			return nil
		}
		stall, err := g.pass(t)
		if err != nil {
			return err
		}
		switch {
		case g.end > g.now:
			g.retries = 0
			return nil
		case stall == engine.Progress:
			g.retries = 0
			g.complete(t) // arrivals it allows join after the next pass has started
		case stall == engine.Nothing:
			return fmt.Errorf("effect-free pass with %d in flight", g.inflight)
		case stall == engine.Countdown:
			g.end, g.retries = math.Inf(1), 0
		default:
			g.end = math.Inf(1)
			if g.retries++; g.retries == 1024 {
				return fmt.Errorf("effect-free pass with %d in flight, retried", g.inflight)
			}
		}
	}
	return nil
}

// pass lets every rank with work do one pass from now.
func (g *rig) pass(t testing.TB) (engine.Stall, error) {
	g.steps++
	g.end = g.now
	var group engine.GroupPass
	stall := engine.Nothing
	for i, c := range g.cores {
		p := &g.passes[i]
		if p.Reset(); !c.Runnable() {
			continue
		}
		c.Pass(g.now, 0, p)
		if p.Err != nil {
			return stall, p.Err
		}
		g.check(t, i, &p.Events)
		g.end = max(g.end, p.EndMs)
		group.Prefilled = group.Prefilled || p.Metrics.PrefillTokens > 0
		group.ModelWork = group.ModelWork || p.ModelWork
		if p.Stall == engine.Progress || stall != engine.Progress && p.Stall == engine.Countdown ||
			stall == engine.Nothing {
			stall = p.Stall
		}
		g.computed += p.Metrics.PrefillTokens
		for _, a := range p.Admissions {
			o := &g.out[a.Req]
			o.admitted, o.reused = append(o.admitted, g.now), append(o.reused, a.Reused)
		}
	}
	for _, c := range g.cores {
		c.EndGroup(group)
	}
	return stall, nil
}

// complete applies the outputs of the group pass that ends now.
func (g *rig) complete(t testing.TB) {
	g.end = math.Inf(1)
	for i := range g.passes {
		for _, s := range g.passes[i].Signals {
			o := &g.out[s.Req]
			if o.end != engine.Running {
				t.Fatalf("request %d: signal %+v after its end", s.Req, s)
			}
			g.token(o, s.Tokens)
			if o.end, o.reason = s.End, s.Reason; s.End != engine.Running {
				g.inflight--
			}
		}
		g.passes[i].Signals = g.passes[i].Signals[:0]
	}
}

func (g *rig) token(o *outcome, n int32) {
	if n == 0 {
		return
	}
	if o.tokens == 0 {
		o.first = g.now
	}
	o.last = g.now
	o.tokens += n
}

// decodeRun advances a decode run of all ranks with work to its end or the next
// arrival, whichever is first.
func (g *rig) decodeRun(t testing.TB) bool {
	passes := cmp.Or(g.limit, 64)
	if g.concurrency > g.inflight && g.next < len(g.jobs) {
		passes = 1 // a job is released during the next pass
	}
	var runs []engine.Run
	var ran []*Core
	for _, c := range g.cores {
		if !c.Runnable() {
			continue
		}
		r := c.Run(passes)
		if r.Passes == 0 {
			return false
		}
		passes = min(passes, r.Passes)
		runs, ran = append(runs, r), append(ran, c)
	}
	ratio := g.cfg.SpeedupRatio * g.cfg.DecodeSpeedupRatio
	total := int64(g.cfg.Blocks * g.cfg.BlockSize)
	n, now := 0, g.now
	for ; n < passes; n++ {
		if g.concurrency == 0 && g.next < len(g.jobs) && g.jobs[g.next].at <= now && n > 0 {
			break
		}
		end := now
		for _, r := range runs {
			d, err := timing.Duration(g.cfg.Timing.DecodeMs(r.Members, r.Context+int64(n)*r.Members, total), ratio)
			if err != nil {
				t.Fatal(err)
			}
			end = max(end, now+d)
		}
		now = end
	}
	var ev kv.Events
	for i, c := range g.cores {
		if !slices.Contains(ran, c) {
			continue
		}
		members := append([]int32(nil), c.Members()...)
		c.Advance((n+1)/2, &ev)
		c.Advance(n/2, &ev)
		g.check(t, i, &ev)
		for _, id := range members {
			g.out[id].tokens += int32(n)
			g.out[id].last = now
		}
	}
	g.steps, g.inRuns = g.steps+n, g.inRuns+n
	g.end = now // nobody ends: a boundary without signals
	return true
}

// check checks rank i and its events after a pass.
func (g *rig) check(t testing.TB, i int, ev *kv.Events) {
	t.Helper()
	if err := g.cores[i].Check(); err != nil {
		t.Fatalf("at %v ms: %v", g.now, err)
	}
	for _, v := range ev.Items {
		if n := len(ev.BlocksOf(v)); v.Stored {
			g.storedBlocks += n
		} else {
			g.withdrawn += n
		}
	}
	g.ledgers[i].apply(t, ev)
	if g.steps%8 == 0 {
		g.ledgers[i].compare(t, g.cores[i])
	}
}
