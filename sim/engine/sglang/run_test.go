package sglang

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// pick returns one of the values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomRig is a small rank with a tight pool and every knob turned at random.
func randomRig(r *rand.Rand) *rig {
	cfg := defaults()
	cfg.BlockSize = pick(r, 1, 1, 4, 16)
	cfg.Blocks = pick(r, 200, 300, 500, 900, 4000) / cfg.BlockSize
	cfg.MaxNumSeqs = pick(r, 0, 2, 4, 256)
	cfg.PrefixCaching = r.IntN(6) > 0
	cfg.PrefillDecodeInterval = pick(r, 0, 0, 0, 1, 3)
	cfg.DPSize = pick(r, 1, 1, 1, 2)
	cfg.MaxModelLen = pick(r, 0, 0, 0, 200)
	cfg.SpeedupRatio = pick(r, 1, 1, 2.5)
	cfg.WantEvents, cfg.WantMetrics = r.IntN(4) == 0, true
	cfg.SGLang = engine.SGLangConfig{LPM: r.IntN(2) == 0, MaxPrefillTokens: pick(r, 16384, 16384, 16384, 100),
		ChunkedPrefillSize: pick(r, 32, 64, 128, 8192), ClipMaxNewTokens: pick(r, 0, 10, 4096),
		Conservativeness: pick(r, 0, .1, .3, 1)}
	if r.IntN(2) == 0 {
		cfg.Timing = timing.Fixed{Prefill: pick(r, 10, 0, 12.5), Decode: pick(r, 2, 1, 3.25)}
	}
	return &rig{cfg: cfg, tbs: pick(r, 7, 16, 50, 64), concurrency: pick(r, 0, 0, 2, 5, 20)}
}

// randomJobs shares prefixes between some of the prompts.
func randomJobs(r *rand.Rand, tbs int) []job {
	prefixes := [][]int{{0}, {1}, {2}}
	maxIn, maxOut := pick(r, 30, 100, 260), pick(r, 3, 20, 90)
	at := 0.0
	var jobs []job
	for k := range 2 + r.IntN(20) {
		j := job{at: at, isl: int32(1 + r.IntN(maxIn)), osl: int32(pick(r, 0, 1, 2, r.IntN(maxOut), r.IntN(maxOut)))}
		blocks := (int(j.isl) + tbs - 1) / tbs
		ids := slices.Clone(pick(r, prefixes...))
		for len(ids) < blocks {
			ids = append(ids, pick(r, r.IntN(4), 1000+100*k+len(ids)))
		}
		j.ids = ids[:blocks]
		if r.IntN(3) == 0 {
			prefixes = append(prefixes, j.ids)
		}
		jobs = append(jobs, j)
		at += pick(r, 0, 0, .5, 3, 20, 100)
	}
	return jobs
}

// dump is the tree in a form that does not depend on node numbers: every edge with
// its locks and the rank of its tick among all.
func (t *tree) dump() string {
	var live []*node
	for i := range t.nodes {
		if n := &t.nodes[i]; n.end > n.start {
			live = append(live, n)
		}
	}
	slices.SortFunc(live, func(a, b *node) int { return cmp.Compare(a.key(a.start), b.key(b.start)) })
	ticks := make([]int64, 0, len(live))
	for _, n := range live {
		ticks = append(ticks, n.tick)
	}
	slices.Sort(ticks)
	ticks = slices.Compact(ticks)
	var b strings.Builder
	for _, n := range live {
		rank, _ := slices.BinarySearch(ticks, n.tick)
		fmt.Fprintf(&b, "%x..%x [%d,%d) lock %d children %d tick %d\n", n.key(n.start), n.key(n.end-1), n.start, n.end, n.lock, n.children, rank)
	}
	return b.String()
}

func TestRunsEqualPassesBitForBit(t *testing.T) {
	inRuns := 0
	for seed := range uint64(1000) {
		replay := func(runs bool) (*rig, []outcome, error) {
			r := rand.New(rand.NewPCG(seed, 1))
			g := randomRig(r)
			g.runs, g.limit = runs, int(5+60*(seed%2)) // shorter and longer than a page
			out, err := g.replay(t, randomJobs(r, g.tbs))
			return g, out, err
		}
		slow, want, wantErr := replay(false)
		fast, got, gotErr := replay(true)
		inRuns += fast.inRuns
		if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) || !reflect.DeepEqual(want, got) || slow.steps != fast.steps {
			t.Fatalf("seed %d: pass by pass %d passes, %v, %+v\nruns %d passes, %v, %+v",
				seed, slow.steps, wantErr, want, fast.steps, gotErr, got)
		}
		for i, c := range slow.cores {
			f := fast.cores[i]
			if c.ratio != f.ratio || c.free != f.free || c.retracts != f.retracts {
				t.Fatalf("seed %d rank %d: ratio %v free %d, runs %v %d", seed, i, c.ratio, c.free, f.ratio, f.free)
			}
			if a, b := c.tree.dump(), f.tree.dump(); a != b {
				t.Fatalf("seed %d rank %d: tree pass by pass\n%s\nruns\n%s", seed, i, a, b)
			}
		}
	}
	if inRuns < 5000 {
		t.Errorf("only %d passes were in runs", inRuns)
	}
}

// Whatever the pool, every replay ends: each request completes or is refused, or a
// standstill is reported. Where it is not, nobody is lost.
func TestTinyPoolsAlwaysEnd(t *testing.T) {
	stalls, refused := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		g := randomRig(r)
		g.cfg.Blocks, g.cfg.WantEvents = 1+r.IntN(60), false
		g.cfg.SGLang.ChunkedPrefillSize = pick(r, 1, 2, 7, 100) * g.cfg.BlockSize
		g.cfg.NextN = pick(r, 0, 0, 3)
		g.cfg.AcceptRates = []float64{.7, .5, .2}[:g.cfg.NextN]
		g.runs = true
		out, err := g.replay(t, randomJobs(r, g.tbs))
		if err != nil {
			stalls++
			continue
		}
		for i, o := range out {
			if o.end == engine.Rejected {
				refused++
			}
			if o.end == engine.Running || o.end == engine.Completed && o.tokens > g.jobs[i].osl || (o.end == engine.Rejected) != (o.reason != 0) {
				t.Fatalf("seed %d request %d of %+v: %+v", seed, i, g.jobs[i], o)
			}
		}
	}
	if stalls == 0 || refused == 0 {
		t.Errorf("%d stalls, %d refusals: the pools are not tiny", stalls, refused)
	}
}
