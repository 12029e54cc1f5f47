package router

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynosweep/dynosweep/sim/invariant"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// chain returns a prompt of n shared blocks, node by node from first.
func chain(first uint32, nodes int, ratio int32) kv.Prompt {
	p := kv.Prompt{Ratio: ratio, Shared: int32(nodes) * ratio, Base: kv.PrivateBase(1)}
	for i := range nodes {
		p.Nodes = append(p.Nodes, first+uint32(i))
	}
	return p
}

func stored(p *kv.Prompt, blocks int) *kv.Events {
	var ev kv.Events
	ev.BeginStored(0, false)
	for i := range blocks {
		ev.Add(p.Block(i))
	}
	return &ev
}

// TestEveryWeightInOneDecision is the table of example 3: the costs of the rank
// that holds R3's prefix and still decodes R2, and of the idle one.
func TestEveryWeightInOneDecision(t *testing.T) {
	for _, c := range []struct {
		config    string
		hot, idle float64
	}{
		{`{}`, 28, 32},
		{`{"overlap_score_credit":0}`, 36, 32},
		{`{"overlap_score_credit":0.4}`, 32.8, 32},
		{`{"overlap_score_credit":0.6}`, 31.2, 32},
		{`{"overlap_score_credit":3}`, 20, 32},
		{`{"prefill_load_scale":0.4}`, 23.2, 22.4},
		{`{"overlap_score_weight":0.4}`, 23.2, 22.4},
		{`{"prefill_load_scale":0.6}`, 24.8, 25.6},
		{`{"overlap_score_weight":0}`, 20, 16},
		{`{"overlap_score_weight":2}`, 36, 48},
		{`{"decode_active_request_weight":3}`, 31, 32},
		{`{"decode_active_request_weight":5}`, 33, 32},
		{`{"router_track_active_blocks":false}`, 8, 16},
		{`{"router_track_prefill_tokens":false}`, 20, 16},
		{`{"router_assume_kv_reuse":false}`, 36, 32},
		{`{"use_kv_events":false,"router_ttl_secs":0}`, 28, 32},
	} {
		k := newKV(t, Options{Config: config(t, c.config)})
		k.WorkerReady(0, 0)
		k.WorkerReady(1, 0)
		p := chain(100, 16, 1)
		r2, _, err := k.Place(Request{ID: 2, ISL: 768, Prompt: &p}, 5)
		if err != nil {
			t.Fatal(err)
		}
		k.Observe(Rank{r2.Worker, 0}, stored(&p, 12), 33)
		k.PrefillCompleted(2, 33, nil)
		r3 := kv.Prompt{Nodes: append(slices.Clone(p.Nodes[:8]), chain(200, 8, 1).Nodes...), Ratio: 1, Shared: 16}
		got, _, err := k.Place(Request{ID: 3, ISL: 1024, Prompt: &r3}, 400)
		if err != nil {
			t.Fatal(err)
		}
		hot, idle := k.cost[r2.Worker], k.cost[1-r2.Worker]
		if math.Abs(hot-c.hot) > 1e-12 || math.Abs(idle-c.idle) > 1e-12 || (got.Worker == r2.Worker) != (hot < idle) {
			t.Errorf("%s: hot %v, idle %v, want %v and %v", c.config, hot, idle, c.hot, c.idle)
		}
	}
}

// spread counts choices among fixed costs.
func spread(t *testing.T, temperature float64, costs []float64, draws int) []float64 {
	cfg := DefaultConfig()
	cfg.Temperature = temperature
	k := newKV(t, Options{Config: cfg, Seed: 7})
	k.cost = costs
	share := make([]float64, len(costs))
	for range draws {
		share[k.choose()] += 1 / float64(draws)
	}
	return share
}

// TestChoice: ties are uniform, a softmax draw depends on the ratio of gaps alone
// (probabilities of spec kv-router 6.4).
func TestChoice(t *testing.T) {
	for _, c := range []struct {
		temperature float64
		costs, want []float64
	}{
		{0, []float64{3, 1, 2}, []float64{0, 1, 0}},
		{0, []float64{1, 2, 1, 1, 1}, []float64{0.25, 0, 0.25, 0.25, 0.25}},
		{1, []float64{8, 8}, []float64{0.5, 0.5}},
		{1, []float64{5, 5.01}, []float64{0.731059, 0.268941}},
		{0.5, []float64{100, 0}, []float64{1 - 0.880797, 0.880797}},
		{0.25, []float64{0, 1}, []float64{0.982014, 1 - 0.982014}},
		{1, []float64{2, 1.5, 1}, []float64{0.186, 0.307, 0.507}},
		{1, []float64{9}, []float64{1}},
	} {
		for i, got := range spread(t, c.temperature, c.costs, 20000) {
			if math.Abs(got-c.want[i]) > 0.012 || c.want[i] == 0 && got != 0 {
				t.Errorf("T=%v costs %v: candidate %d got %v, want %v", c.temperature, c.costs, i, got, c.want[i])
			}
		}
	}
}

func TestSeedAndSideNameTheDraws(t *testing.T) {
	picks := func(seed uint64, side Side) string {
		k := newKV(t, Options{Config: DefaultConfig(), Side: side, Seed: seed})
		for w := range int32(16) {
			k.WorkerReady(w, 0)
		}
		p, s := chain(0, 4, 1), ""
		for i := range int32(12) {
			r, _, err := k.Place(Request{ID: i, ISL: 256, Prompt: &p}, 0)
			if err != nil {
				t.Fatal(err)
			}
			k.Terminal(i, 0, nil)
			s += fmt.Sprint(r.Worker, " ")
		}
		return s
	}
	base := picks(1, Aggregated)
	if picks(1, Aggregated) != base {
		t.Error("one seed, two histories")
	}
	if picks(2, Aggregated) == base || picks(1, Decode) == base || picks(1, Prefill) == picks(1, Decode) {
		t.Error("streams of different seeds or sides agree")
	}
}

// TestQueueLimitsCountPerEligibleRank: the request that crosses a limit is accepted,
// the next one ends the replay.
func TestQueueLimitsCountPerEligibleRank(t *testing.T) {
	for _, c := range []struct {
		set  func(*Class)
		fits int // queued before the refusal
		want string
	}{
		{func(c *Class) { c.MaxRequests = 1 }, 2, `router policy class "c" queue requests limit reached (current=2, limit=2)`},
		{func(c *Class) { c.MaxISL = 65 }, 3, `router policy class "c" queue raw_isl_tokens limit reached (current=192, limit=130)`},
		{func(c *Class) { c.MaxCached = 0 }, 0, `router policy class "c" queue cached_tokens limit reached (current=0, limit=0)`},
	} {
		cfg := DefaultConfig()
		cfg.Profile = singleClass(none, FCFS)
		cfg.Profile.Classes[0].Name, cfg.Profile.Classes[0].BusyTokens = "c", 0
		c.set(&cfg.Profile.Classes[0])
		k := newKV(t, Options{Config: cfg, DPSize: 2})
		k.WorkerReady(0, 0)
		p := chain(0, 2, 1)
		var err error
		queued := 0
		for id := int32(0); id < 20 && err == nil; id++ {
			var waits bool
			if _, waits, err = k.Place(Request{ID: id, ISL: 64, Prompt: &p}, 0); waits && err == nil {
				queued++
			}
		}
		if err == nil || err.Error() != c.want || queued != c.fits || k.Queued() != c.fits {
			t.Errorf("%d queued (%d), %v; want %d, %s", queued, k.Queued(), err, c.fits, c.want)
		}
	}
}

// TestQueueOrderSurvivesCancels compares the heap with a sorted list.
func TestQueueOrderSurvivesCancels(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	q := newQueue(singleClass(0, WSPT).Classes)
	q.ready[0] = true
	var waiting []int32
	for step := range 5000 {
		switch {
		case r.IntN(2) == 0 && len(waiting) < 40:
			req := int32(step)
			*q.slot(req) = pending{pos: -1, strict: uint32(r.IntN(2)), score: float64(r.IntN(5)), cost: int64(1 + r.IntN(9))}
			q.push(req)
			waiting = append(waiting, req)
		case len(waiting) > 0 && r.IntN(2) == 0:
			i := r.IntN(len(waiting))
			q.remove(waiting[i])
			waiting = slices.Delete(waiting, i, i+1)
		case len(waiting) > 0:
			want := slices.MinFunc(waiting, func(a, b int32) int {
				x, y := q.waiting[a], q.waiting[b]
				return cmp.Or(cmp.Compare(y.strict, x.strict), cmp.Compare(y.score, x.score), cmp.Compare(x.seq, y.seq))
			})
			if got := q.pop(); got != want {
				t.Fatalf("step %d: popped %d, want %d", step, got, want)
			}
			waiting = slices.Delete(waiting, slices.Index(waiting, want), slices.Index(waiting, want)+1)
			q.ready[0] = true
		}
		if q.size != len(waiting) {
			t.Fatalf("step %d: %d wait, want %d", step, q.size, len(waiting))
		}
	}
}

func TestNonFiniteCostIsAnErrorAlsoWhenReleased(t *testing.T) {
	const want = "scorer 0 produced a non-finite cost for candidate row 0"
	k := newKV(t, Options{Config: config(t, `{"prefill_load_scale":1e308,"router_queue_threshold":0}`)})
	p := chain(0, 8, 1)
	if _, queued, err := k.Place(Request{ID: 1, ISL: 512, Prompt: &p}, 0); !queued || err != nil {
		t.Fatalf("queued %v, %v", queued, err)
	}
	k.WorkerReady(0, 0)
	if out, err := k.TopologySettled(0, nil); len(out) != 0 || err == nil || err.Error() != want {
		t.Errorf("%v, %v", out, err)
	}
	if _, _, err := k.Place(Request{ID: 2, ISL: 512, Prompt: &p}, 0); err == nil || err.Error() != want {
		t.Errorf("place: %v", err)
	}
}

func TestEventsThatNoEngineCanSendPanic(t *testing.T) {
	p := chain(0, 4, 1)
	var orphan, absent kv.Events
	orphan.BeginStored(p.Block(0), true)
	orphan.Add(p.Block(1))
	absent.BeginRemoved()
	absent.Add(p.Block(0))
	for _, ev := range []*kv.Events{&orphan, &absent} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was applied", ev)
				}
			}()
			k := newKV(t, Options{Config: DefaultConfig()})
			k.WorkerReady(0, 0)
			k.Observe(Rank{}, ev, 0)
		}()
	}
}

// cycle is the life of one request with a prompt of its own: placed, cached,
// prefilled, ended, and the blocks of an earlier one evicted.
type cycle struct {
	k       *KV
	prompts []kv.Prompt
	stored  []*kv.Events
	removed []*kv.Events
	at      []int32
	n       int
	held    int
	routes  []Route
}

func newCycle(tb testing.TB, workers int, lagMs float64) *cycle {
	c := &cycle{k: newKV(tb, Options{Config: DefaultConfig(), EventLagMs: lagMs}), held: 128 * workers}
	for w := range workers {
		c.k.WorkerReady(int32(w), 0)
	}
	for i := range c.held + 1 { // 188 blocks: 20 nodes of 8 shared, then the request's own
		p := chain(0, 4, 8)
		p.Nodes = append(p.Nodes, chain(uint32(100+20*i), 20, 8).Nodes...)
		p.Shared = 188
		c.prompts = append(c.prompts, p)
		c.stored = append(c.stored, stored(&p, 188))
		var gone kv.Events
		gone.BeginRemoved()
		for b := 187; b >= 32; b-- {
			gone.Add(p.Block(b))
		}
		c.removed = append(c.removed, &gone)
		c.at = append(c.at, -1)
	}
	return c
}

func (c *cycle) step() {
	i, now := c.n%len(c.prompts), float64(c.n)
	c.n++
	next := (i + 1) % len(c.prompts)
	if w := c.at[next]; w >= 0 {
		c.k.Observe(Rank{Worker: w}, c.removed[next], now)
		c.at[next] = -1
	}
	route, _, _ := c.k.Place(Request{ID: int32(i % 64), ISL: 188*64 + 5, Prompt: &c.prompts[i]}, now)
	c.at[i] = route.Worker
	c.k.Observe(Rank{Worker: route.Worker}, c.stored[i], now)
	c.k.PrefillCompleted(int32(i%64), now, c.routes[:0])
	done := int32((i + 32) % 64) // 32 requests are live
	c.k.Terminal(done, now, c.routes[:0])
	if i == len(c.prompts)-1 {
		for id := range int32(64) {
			c.k.Terminal(id, now, c.routes[:0])
		}
	}
}

func TestWarmCycleAllocatesNothing(t *testing.T) {
	if invariant.On {
		t.Skip("checks allocate")
	}
	for _, lag := range []float64{0, 10} {
		c := newCycle(t, 4, lag)
		for range 3 * len(c.prompts) {
			c.step()
		}
		if n := testing.AllocsPerRun(2*len(c.prompts), c.step); n != 0 {
			t.Errorf("lag %v: %v allocations per request", lag, n)
		}
	}
}

func TestWarmQueueAllocatesNothing(t *testing.T) {
	if invariant.On {
		t.Skip("checks allocate")
	}
	k := newKV(t, Options{Config: config(t, `{"router_queue_threshold":0}`)})
	k.WorkerReady(0, 0)
	p := chain(0, 16, 8)
	k.Observe(Rank{}, stored(&p, 100), 0)
	out := make([]Route, 0, 8)
	run := func() {
		for id := range int32(8) {
			if _, _, err := k.Place(Request{ID: id, ISL: 128 * 64, Prompt: &p}, 0); err != nil {
				t.Fatal(err)
			}
		}
		for id := range int32(8) {
			out, _ = k.Terminal(id, 0, out[:0])
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations per round", n)
	}
}

// BenchmarkPlace is a request's whole life in the router, prompts of 188 blocks of
// which 32 are shared by all: place, stored, removed, prefilled, terminal.
func BenchmarkPlace(b *testing.B) {
	for _, workers := range []int{4, 16, 64} {
		b.Run(fmt.Sprintf("workers=%d/blocks=188", workers), func(b *testing.B) {
			c := newCycle(b, workers, 0)
			for range len(c.prompts) {
				c.step()
			}
			b.ReportAllocs()
			for b.Loop() {
				c.step()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

func TestRoundRobinRotation(t *testing.T) {
	take := func(rr *RoundRobin, n int) (got []int32) {
		for range n {
			r, queued, err := rr.Place(Request{}, 0)
			if queued || err != nil || r.OverlapBlocks != -1 {
				t.Fatalf("%+v %v %v", r, queued, err)
			}
			got = append(got, r.Worker*int32(rr.dpSize)+r.Rank)
		}
		return got
	}
	for _, c := range []struct {
		rotation Rotation
		want     []int32
	}{{WorkersFirst, []int32{0, 2, 1, 3, 0}}, {Flattened, []int32{0, 1, 2, 3, 0}}} {
		rr := NewRoundRobin(c.rotation, 2)
		if _, _, err := rr.Place(Request{}, 0); err == nil || err.Error() != "no active workers for round-robin placement" {
			t.Errorf("empty pool: %v", err)
		}
		rr.WorkerReady(0, 0)
		rr.WorkerReady(1, 0)
		if got := take(rr, 5); !slices.Equal(got, c.want) {
			t.Errorf("rotation %d: %v, want %v", c.rotation, got, c.want)
		}
	}
	rr := NewRoundRobin(WorkersFirst, 1)
	for w := range int32(3) {
		rr.WorkerReady(w, 0)
	}
	got := take(rr, 2) // 0 1, counter 2
	rr.WorkerDraining(2, 0)
	got = append(got, take(rr, 1)...) // 2 mod 2: 0, counter 1
	rr.WorkerReady(3, 0)
	rr.WorkerRemoved(2, 0)
	got = append(got, take(rr, 3)...) // 1, 3, 0
	if want := []int32{0, 1, 0, 1, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("changing pool: %v, want %v", got, want)
	}
}
