package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// naive is the router's memory written down as the specification says it, with a
// set of blocks per rank and no sharing of anything.
type naive struct {
	k       *KV
	w       *world
	workers int32
	at      map[int32]Rank  // live requests
	booked  map[int32]int64 // prefill tokens of a live request
	cached  map[Rank]map[kv.BlockID]bool
	live    map[Rank]map[int32]int // request -> prompt
	load    map[Rank]int64         // booked prefill tokens
}

func leading(set map[kv.BlockID]bool, ids []kv.BlockID) int32 {
	n := int32(0)
	for _, id := range ids {
		if !set[id] {
			break
		}
		n++
	}
	return n
}

// world is a fixed set of prompts that share prefixes, private tails included.
type world struct {
	prompts []kv.Prompt
	isl     []int32
	ids     [][]kv.BlockID // full blocks
}

func newWorld(r *rand.Rand, n int, ratio int32, block int32) *world {
	w := &world{}
	chain := map[[2]uint32]uint32{}
	for i := range n {
		p := kv.Prompt{Ratio: ratio, Base: kv.PrivateBase(int64(i / 2))} // two turns of one session
		parent := uint32(0)
		for range r.IntN(7) {
			key := [2]uint32{parent, uint32(r.IntN(2))}
			if chain[key] == 0 {
				chain[key] = uint32(len(chain) + 1)
			}
			parent = chain[key]
			p.Nodes = append(p.Nodes, parent)
		}
		p.Shared = int32(len(p.Nodes)) * ratio
		isl := max(1, (p.Shared+int32(r.IntN(30))-int32(r.IntN(12)))*block+int32(r.IntN(int(block))))
		var ids []kv.BlockID
		for b := range isl / block {
			ids = append(ids, p.Block(int(b)))
		}
		w.prompts, w.isl, w.ids = append(w.prompts, p), append(w.isl, isl), append(w.ids, ids)
	}
	return w
}

// TestRouterRemembersWhatANaiveModelDoes checks overlap, live blocks and loads of
// every candidate of every placement on random sequences of placements, events,
// ends and changes of the worker set, with one and with several words of ranks.
func TestRouterRemembersWhatANaiveModelDoes(t *testing.T) {
	for _, c := range []struct {
		seed    uint64
		workers int
		dp      int
		ratio   int32
	}{{1, 4, 1, 8}, {2, 3, 2, 1}, {3, 30, 5, 3}, {4, 2, 1, 5}} {
		t.Run(fmt.Sprintf("seed=%d", c.seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(c.seed, 0))
			const block = 16
			k := newKV(t, Options{Config: DefaultConfig(), BlockSize: block, DPSize: c.dp})
			m := &naive{cached: map[Rank]map[kv.BlockID]bool{}, live: map[Rank]map[int32]int{},
				load: map[Rank]int64{}, booked: map[int32]int64{}}
			w := newWorld(r, 40, c.ratio, block)
			m.play(t, k, w, r, c.workers)
		})
	}
}

func newKV(t testing.TB, o Options) *KV {
	t.Helper()
	if o.BlockSize == 0 {
		o.BlockSize = 64
	}
	o.DPSize = max(o.DPSize, 1)
	k, err := NewKV(o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// play does random operations on both.
func (m *naive) play(t *testing.T, k *KV, w *world, r *rand.Rand, workers int) {
	m.k, m.w, m.at = k, w, map[int32]Rank{}
	k.scanMost = math.MaxInt // compare wants the loads of all candidates
	for range workers {
		m.ready()
	}
	for step := range 4000 {
		rank := k.book.ranks[k.eligible[r.IntN(len(k.eligible))]].Rank
		prompt := r.IntN(len(w.prompts))
		switch op := r.IntN(100); {
		case op < 35 && len(m.at) < 30:
			m.place(t, prompt, r.IntN(2) == 0)
		case op < 60:
			m.end()
		case op < 80:
			m.store(rank, prompt, r)
		case op < 97:
			m.evict(rank, prompt, r)
		case op == 97 && len(k.eligible) > int(2*k.dpSize):
			m.remove(rank.Worker)
		case op == 98 && len(k.eligible) < 200:
			m.ready()
		}
		if err := k.book.check(); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
}

// ready adds a worker.
func (m *naive) ready() {
	m.k.WorkerReady(m.workers, 0)
	for d := range m.k.dpSize {
		m.cached[Rank{m.workers, d}], m.live[Rank{m.workers, d}] = map[kv.BlockID]bool{}, map[int32]int{}
	}
	m.workers++
}

// remove takes a worker away with whatever it serves.
func (m *naive) remove(worker int32) {
	m.k.WorkerDraining(worker, 0)
	m.k.WorkerRemoved(worker, 0)
	for d := range m.k.dpSize {
		at := Rank{worker, d}
		for req := range m.live[at] {
			delete(m.at, req)
			m.booked[req] = 0
		}
		delete(m.cached, at)
		delete(m.live, at)
		delete(m.load, at)
	}
}

// place routes a request, whose prefill then completes at once or stays booked.
func (m *naive) place(t *testing.T, prompt int, completes bool) {
	req := int32(0)
	for _, taken := m.at[req]; taken; _, taken = m.at[req] {
		req++
	}
	isl := m.w.isl[prompt]
	route, _, err := m.k.Place(Request{ID: req, ISL: isl, Prompt: &m.w.prompts[prompt]}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.compare(t, prompt)
	at := Rank{route.Worker, route.Rank}
	m.at[req], m.live[at][req] = at, prompt
	if completes {
		m.k.PrefillCompleted(req, 0, nil)
		return
	}
	m.booked[req] = int64(isl) - int64(leading(m.cached[at], m.w.ids[prompt]))*int64(m.k.blockSize)
	m.load[at] += m.booked[req]
}

// end ends the live request with the lowest number.
func (m *naive) end() {
	for req := range int32(30) {
		if at, live := m.at[req]; live {
			m.k.Terminal(req, 0, nil)
			m.load[at] -= m.booked[req]
			delete(m.live[at], req)
			delete(m.at, req)
			m.booked[req] = 0
			return
		}
	}
}

// store announces the first blocks of a prompt, from some block on.
func (m *naive) store(at Rank, prompt int, r *rand.Rand) {
	ids := m.w.ids[prompt]
	from := int(leading(m.cached[at], ids))
	if from > 0 {
		from -= r.IntN(2) // storing a block again is a no-op
	}
	to := from + r.IntN(len(ids)-from+1)
	if from == to {
		return
	}
	var ev kv.Events
	if from > 0 {
		ev.BeginStored(ids[from-1], true)
	} else {
		ev.BeginStored(0, false)
	}
	for _, id := range ids[from:to] {
		ev.Add(id)
		m.cached[at][id] = true
	}
	m.k.Observe(at, &ev, 0)
}

// evict gives up the last blocks of a prompt that no other cached block follows.
func (m *naive) evict(at Rank, prompt int, r *rand.Rand) {
	ids := m.w.ids[prompt]
	held := int(leading(m.cached[at], ids))
	keep := 0
	for _, other := range m.w.ids { // blocks with a cached child of another prompt stay
		common := 0
		for common < min(len(ids), len(other)) && ids[common] == other[common] {
			common++
		}
		if common < len(other) && common < held && m.cached[at][other[common]] {
			keep = max(keep, common)
		}
	}
	keep = min(held, keep+r.IntN(3))
	if keep == held {
		return
	}
	var ev kv.Events
	ev.BeginRemoved()
	for i := held - 1; i >= keep; i-- {
		ev.Add(ids[i])
		delete(m.cached[at], ids[i])
	}
	if r.IntN(3) == 0 { // SGLang frees pages in ascending order
		slices.Reverse(ev.Blocks)
	}
	m.k.Observe(at, &ev, 0)
}

// compare checks the loads of the placement that just happened.
func (m *naive) compare(t *testing.T, prompt int) {
	t.Helper()
	k, w := m.k, m.w
	for i := range k.loads {
		l := &k.loads[i]
		at := k.book.ranks[l.slot].Rank
		live := map[kv.BlockID]bool{}
		for _, p := range m.live[at] {
			for _, id := range w.ids[p] {
				live[id] = true
			}
		}
		ids := w.ids[prompt]
		want := load{slot: l.slot, prefill: m.load[at],
			blocks: int64(len(live)) + int64(len(ids)) - int64(leading(live, ids)),
			live:   int32(len(m.live[at])), cached: leading(m.cached[at], ids)}
		if *l != want {
			t.Fatalf("rank %v, prompt %d: load %+v, want %+v", at, prompt, *l, want)
		}
	}
	if len(k.loads) != len(m.cached) {
		t.Fatalf("%d candidates, want %d", len(k.loads), len(m.cached))
	}
}

// TestPrefillLoadMeltsAsExactArithmeticSays compares active tokens with formulas
// of spec kv-router 7.3 worked by hand.
func TestPrefillLoadMeltsAsExactArithmeticSays(t *testing.T) {
	type entry struct {
		tokens int64
		durNs  int64
		atNs   int64
	}
	for _, c := range []struct {
		name    string
		entries []entry
		drop    int32 // entry completed at dropNs, -1 none
		dropNs  int64
		nowNs   int64
		want    int64
	}{
		{"no estimator", []entry{{1000, unmodeled, 0}, {24, unmodeled, 0}}, -1, 0, 1e9, 1024},
		{"floor of done", []entry{{1000, 3e6, 0}}, -1, 0, 1e6, 667},
		{"spills to later entries", []entry{{100, 1e6, 0}, {100, 1e6, 0}}, -1, 0, 15e5, 50},
		{"never below zero", []entry{{100, 1e6, 0}}, -1, 0, 9e6, 0},
		{"beyond 64 bits", []entry{{1 << 40, 1, 0}}, -1, 0, 1 << 62, 0},
		{"zero duration", []entry{{100, 0, 0}, {7, 5e6, 0}}, -1, 0, 0, 7},
		{"new front starts its clock", []entry{{100, 1e6, 0}, {100, 1e6, 0}}, 0, 5e5, 1e6, 50},
		{"later entry completes early", []entry{{100, 1e6, 0}, {50, 2e5, 0}}, 1, 4e5, 5e5, 70},
		{"mixed: only the front melts, rounded up", []entry{{100, 3e6, 0}, {50, unmodeled, 0}}, -1, 0, 1e6, 117},
		{"mixed: front unmodeled", []entry{{100, unmodeled, 0}, {50, 1e6, 0}}, -1, 0, 1e6, 150},
		{"clock before the front", []entry{{100, 1e6, 5e5}}, -1, 0, 0, 100},
	} {
		b := book{ranks: []rank{{prefill: prefillFIFO{front: -1, back: -1}}}}
		f := &b.ranks[0].prefill
		for i, e := range c.entries {
			b.entries = append(b.entries, entryOf(e.tokens, e.durNs))
			b.pushPrefill(f, int32(i), e.atNs)
		}
		if c.drop >= 0 {
			b.dropPrefill(f, c.drop, c.dropNs)
			b.dropPrefill(f, c.drop, c.dropNs) // a second time is a no-op
		}
		if got := b.active(f, c.nowNs); got != c.want {
			t.Errorf("%s: active %d, want %d", c.name, got, c.want)
		}
	}
}

func entryOf(tokens, durNs int64) entry { return entry{tokens: tokens, durNs: durNs} }
