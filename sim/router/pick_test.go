package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// twins are two routers that are told the same: one looks at every candidate of
// every placement, the other only where it has to.
type twins struct {
	plain, quick *KV
	block        int32
	picked       int // placements that did not look at every candidate
	w            *world
	r            *rand.Rand
	at           map[int32]Rank
	waits        map[int32]bool
	cached       map[Rank]map[kv.BlockID]bool
	next         int32 // worker
	workers      []int32
	nowMs        float64
}

// randomConfig draws from every option that a cost or a busy test reads: short
// binary fractions, for which costs are exact, as often as others.
func randomConfig(r *rand.Rand) Config {
	c := DefaultConfig()
	of := func(values ...float64) float64 { return values[r.IntN(len(values))] }
	c.OverlapCredit = of(1, 1, 0, 0.5, 0.3, 0.7, 1.5, 8)
	c.PrefillScale = of(1, 1, 0, 0.25, 0.4, 3, 1<<58)
	c.ActiveRequestWeight = of(0, 0, 1, 0.1, 0x1p-10)
	c.CreditDecay = of(0, 0, 0.5, 0.3)
	c.TrackActiveBlocks = r.IntN(5) > 0
	c.AssumeKVReuse = r.IntN(5) > 0
	c.TrackPrefillTokens = r.IntN(5) > 0
	switch r.IntN(8) {
	case 0:
		c.Temperature = 0.5
	case 1:
		c.Estimator = linear(3)
	}
	switch r.IntN(4) {
	case 0:
		c.Profile = singleClass(of(0, 0.02, 0.2), QueuePolicy(r.IntN(3)))
	case 1:
		c.Profile = twoClasses()
	}
	return c
}

// twoClasses is a profile whose first class is for short prompts.
func twoClasses() Profile {
	p := singleClass(0.01, WSPT)
	p.Classes = append(p.Classes, p.Classes[0])
	p.Classes[1].Name, p.Classes[1].BusyTokens, p.Classes[1].Quantum = "long", 300, 50
	p.Families, p.MinTokens, p.Cells = []string{"all"}, []int64{0, 200}, [][]int{{0, 1}}
	return p
}

// TestPickingEqualsLookingAtEveryCandidate plays random requests, events and
// changes of the worker set against twins, over random configurations, sides, block
// sizes and ranks: every route, every refusal and every random draw is the same.
func TestPickingEqualsLookingAtEveryCandidate(t *testing.T) {
	picked := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		o := Options{Config: randomConfig(r), Side: Side(r.IntN(6) % 3), DPSize: 1 + r.IntN(4)/3*2, Seed: seed,
			BlockSize: []int{16, 16, 1, 24}[r.IntN(4)], MaxBatchedTokens: 4000, EventLagMs: float64(r.IntN(3) / 2)}
		d := &twins{plain: newKV(t, o), quick: newKV(t, o), block: int32(o.BlockSize), r: r,
			w: newWorld(r, 12, int32(1+r.IntN(9)), int32(o.BlockSize)), at: map[int32]Rank{}, waits: map[int32]bool{},
			cached: map[Rank]map[kv.BlockID]bool{}}
		d.plain.scanMost = math.MaxInt
		if d.quick.scanMost < math.MaxInt {
			d.quick.scanMost = 0
		}
		for range []int{3, 40, 70, 150}[seed%4] {
			d.ready()
		}
		for step := range 700 {
			if err := d.step(); err != nil {
				t.Fatalf("seed %d, step %d, %+v: %v", seed, step, o, err)
			}
		}
		picked += d.picked
	}
	if picked < 3000 {
		t.Errorf("only %d placements did not look at every candidate", picked)
	}
}

func (d *twins) both(do func(k *KV)) { do(d.plain); do(d.quick) }

func (d *twins) step() error {
	d.nowMs += d.r.Float64()
	switch op := d.r.IntN(100); {
	case op < 50 && len(d.at)+len(d.waits) < 400:
		return d.place()
	case op < 65:
		return d.hook(func(k *KV, req int32) ([]Route, error) { return k.Terminal(req, d.nowMs, nil) }, true)
	case op < 75:
		return d.hook(func(k *KV, req int32) ([]Route, error) { return k.PrefillCompleted(req, d.nowMs, nil) }, false)
	case op < 92:
		d.store()
	case op < 94 && len(d.workers) > 2:
		return d.remove()
	case op < 97 && len(d.workers) < 200:
		d.ready()
		return d.released(func(k *KV) ([]Route, error) { return k.TopologySettled(d.nowMs, nil) })
	}
	return nil
}

func (d *twins) place() error {
	req := int32(0)
	for d.waits[req] || d.taken(req) {
		req++
	}
	i := d.r.IntN(len(d.w.prompts))
	ask := Request{ID: req, ISL: d.w.isl[i], Prompt: &d.w.prompts[i], Priority: int32(d.r.IntN(3))}
	want, wantQueued, wantErr := d.plain.Place(ask, d.nowMs)
	d.quick.loads = d.quick.loads[:0]
	got, queued, err := d.quick.Place(ask, d.nowMs)
	if got != want || queued != wantQueued || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		return fmt.Errorf("route %+v, %v, %v, want %+v, %v, %v", got, queued, err, want, wantQueued, wantErr)
	}
	switch {
	case queued:
		d.waits[req] = true
	case err == nil:
		d.at[req] = Rank{got.Worker, got.Rank}
		if len(d.quick.loads) == 0 {
			d.picked++
		}
	}
	return d.sameDraws()
}

func (d *twins) taken(req int32) bool { _, taken := d.at[req]; return taken }

func (d *twins) sameDraws() error {
	if d.plain.ties != d.quick.ties || d.plain.softmax != d.quick.softmax {
		return fmt.Errorf("the random streams stand apart")
	}
	return nil
}

// hook tells both of a signal of the live request with the lowest number.
func (d *twins) hook(do func(k *KV, req int32) ([]Route, error), ends bool) error {
	for req := range int32(400) {
		if d.taken(req) && d.r.IntN(4) == 0 {
			if ends {
				delete(d.at, req)
			}
			return d.released(func(k *KV) ([]Route, error) { return do(k, req) })
		}
	}
	return nil
}

// released compares what a hook lets go.
func (d *twins) released(do func(k *KV) ([]Route, error)) error {
	want, wantErr := do(d.plain)
	got, err := do(d.quick)
	if !slices.Equal(want, got) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		return fmt.Errorf("released %+v, %v, want %+v, %v", got, err, want, wantErr)
	}
	for _, route := range got {
		delete(d.waits, route.Req)
		d.at[route.Req] = Rank{route.Worker, route.Rank}
	}
	return d.sameDraws()
}

func (d *twins) ready() {
	worker := d.next
	d.next++
	d.workers = append(d.workers, worker)
	d.both(func(k *KV) { k.WorkerReady(worker, d.nowMs) })
	for rank := range d.plain.dpSize {
		d.cached[Rank{worker, rank}] = map[kv.BlockID]bool{}
	}
}

// remove takes away a worker; now and then only from the candidates.
func (d *twins) remove() error {
	i := d.r.IntN(len(d.workers))
	worker := d.workers[i]
	d.workers = slices.Delete(d.workers, i, i+1)
	d.both(func(k *KV) { k.WorkerDraining(worker, d.nowMs) })
	if d.r.IntN(3) > 0 {
		d.both(func(k *KV) { k.WorkerRemoved(worker, d.nowMs) })
		for req, at := range d.at {
			if at.Worker == worker {
				delete(d.at, req)
			}
		}
		for rank := range d.plain.dpSize {
			delete(d.cached, Rank{worker, rank})
		}
	}
	return d.released(func(k *KV) ([]Route, error) { return k.TopologySettled(d.nowMs, nil) })
}

// store announces the first blocks of a prompt on one rank, on some, or on all: the
// last makes levels.
func (d *twins) store() {
	if d.plain.side == Decode {
		return
	}
	ids := d.w.ids[d.r.IntN(len(d.w.ids))]
	if len(ids) == 0 {
		return
	}
	share, to := []float64{0.02, 0.3, 0.97}[d.r.IntN(3)], 1+d.r.IntN(len(ids))
	for _, worker := range d.workers {
		for rank := range d.plain.dpSize {
			at := Rank{worker, rank}
			held := int(leading(d.cached[at], ids))
			var ev kv.Events
			switch {
			case d.r.Float64() > share || held == to:
				continue
			case held < to:
				ev.BeginStored(0, false)
				for _, id := range ids[:to] {
					ev.Add(id)
					d.cached[at][id] = true
				}
			default:
				if ev = d.drop(at, ids, to, held); len(ev.Items) == 0 {
					continue
				}
			}
			d.both(func(k *KV) { k.Observe(at, &ev, d.nowMs) })
		}
	}
}

// drop is the event that takes blocks from one on away from a rank.
func (d *twins) drop(at Rank, ids []kv.BlockID, from, held int) (ev kv.Events) {
	ev.BeginRemoved()
	for i := held - 1; i >= from; i-- {
		ev.Add(ids[i])
		delete(d.cached[at], ids[i])
	}
	return ev
}

// TestIndexMemoryFollowsPairs: whoever holds what, no (block, slot) pair takes more
// than 64 bytes once there are a few thousand, over pools from small to large.
func TestIndexMemoryFollowsPairs(t *testing.T) {
	for _, slots := range []int{4, 64, 256, 1024, 4096} {
		for name, holders := range map[string]func(page int) int{
			"one each":  func(int) int { return 1 },
			"few":       func(page int) int { return 1 + page%7 },
			"up to all": func(page int) int { return 1 + slots/(1+page%97) },
		} {
			x := newIndex()
			x.widen(slots)
			pairs := 0
			for page := range 4000 {
				for h := range min(holders(page), slots) {
					x.store(kv.BlockID(page*kv.PageSize), kv.PageSize, int32((h*31+page)%slots))
					pairs += kv.PageSize
				}
			}
			cells := 64
			for cells < 2*x.table.Len() {
				cells *= 2
			}
			bytes := 16*cells + 36*cap(x.pages) + 4*cap(x.lists) + 8*cap(x.bits)
			for class := range x.free {
				bytes += 4 * cap(x.free[class])
			}
			if each := float64(bytes) / float64(pairs); each > 64 {
				t.Errorf("%d slots, %s: %.1f bytes a pair", slots, name, each)
			}
		}
	}
}

// TestIndexKeepsASetOfPairs compares the index with a map through random runs of
// every size, so that pages go from one holder to a list, to bitsets and back.
func TestIndexKeepsASetOfPairs(t *testing.T) {
	type pair struct {
		id   kv.BlockID
		slot int32
	}
	for _, slots := range []int{3, 200, 1000} {
		r := rand.New(rand.NewPCG(uint64(slots), 4))
		x, want := newIndex(), map[pair]bool{}
		x.widen(slots)
		for step := range 40000 {
			grows := step/4000%2 == 0
			first, slot := kv.BlockID(r.IntN(40)), int32(r.IntN(slots))
			n := 1 + r.Int32N(kv.PageSize-kv.Place(first))
			all := true
			for i := range kv.BlockID(n) {
				all = all && want[pair{first + i, slot}]
			}
			switch {
			case step%9001 == 9000:
				x.drop(slot)
				for p := range want {
					if p.slot == slot {
						delete(want, p)
					}
				}
			case grows:
				x.store(first, n, slot)
				for i := range kv.BlockID(n) {
					want[pair{first + i, slot}] = true
				}
			case all:
				if !x.evict(first, n, slot) {
					t.Fatalf("step %d: %d blocks from %d of slot %d were there", step, n, first, slot)
				}
				for i := range kv.BlockID(n) {
					delete(want, pair{first + i, slot})
				}
			}
			if x.caches(first, slot) != want[pair{first, slot}] {
				t.Fatalf("step %d: block %d, slot %d: %v", step, first, slot, x.caches(first, slot))
			}
		}
		pairs := 0
		for _, number := range x.table.All() {
			pairs += int(x.pages[number].cached.pairs)
		}
		if pairs != len(want) {
			t.Errorf("%d slots: %d pairs, want %d", slots, pairs, len(want))
		}
	}
}
