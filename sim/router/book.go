package router

import (
	"fmt"
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// rank is what the router knows of one rank, at its slot in book.ranks.
type rank struct {
	Rank
	eligible bool
	blocks   int64 // prompt blocks of live requests, equal ones once if sharing counts
	requests int32 // live requests
	prefill  prefillFIFO
}

// entry is the booking of one request slot of the run.
type entry struct {
	slot       int32 // of the rank that serves it; -1: not booked
	blocks     int32 // full prompt blocks it booked
	prev, next int32 // prefill FIFO
	tokens     int64 // prefill load still booked
	durNs      int64 // predicted prefill time, or unmodeled
	prompt     kv.Prompt
}

// tracking says how a request's prompt blocks are booked.
type tracking uint8

const (
	untracked tracking = iota // no block load at all
	unshared                  // every prompt counts in full
	shared                    // blocks of several live requests count once
)

// book holds, for each rank, the requests assigned there that have not ended
// (spec kv-router 7). It knows nothing of engines: load appears at admission and
// leaves at prefill completion and at the terminal signal.
type book struct {
	tracking  tracking
	prefill   bool    // whether prefill load is booked at all
	ranks     []rank  // [slot]
	index     *index  // of the router: which ranks serve a live request with a block
	entries   []entry // [request]
	estimator Estimator
}

// admission is what a request takes to the rank that was chosen for it.
type admission struct {
	req, slot int32
	isl       int32 // prompt tokens
	blocks    int32 // full prompt blocks
	cached    int64 // prompt tokens announced as cached on the rank at its arrival
}

// admit books a request with prompt p.
func (b *book) admit(a admission, p *kv.Prompt, nowNs int64) {
	for int(a.req) >= len(b.entries) {
		b.entries = append(b.entries, entry{slot: -1})
	}
	e, r := &b.entries[a.req], &b.ranks[a.slot]
	if e.slot >= 0 {
		panic(fmt.Sprintf("router: request %d is booked twice", a.req))
	}
	*e = entry{slot: a.slot, blocks: a.blocks, durNs: unmodeled}
	switch b.tracking {
	case shared:
		e.prompt = *p
		r.blocks += b.index.retain(p, a.blocks, a.slot)
	case unshared:
		r.blocks += int64(a.blocks)
	}
	r.requests++
	cached := min(a.cached, int64(a.isl))
	if !b.prefill || int64(a.isl) == cached {
		return
	}
	e.tokens = int64(a.isl) - cached
	e.durNs = b.predict(e.tokens, cached)
	b.pushPrefill(&r.prefill, a.req, nowNs)
}

// predict is the time of a prefill of so many tokens behind cached ones, unmodeled
// if nobody can tell.
func (b *book) predict(uncached, cached int64) (ns int64) {
	if b.estimator == nil {
		return unmodeled
	}
	ms, err := b.estimator.PrefillMs(1, int(uncached), int(cached))
	if err != nil || !(ms >= 0 && ms < maxPredictedMs) {
		return unmodeled
	}
	return nanos(ms)
}

// maxPredictedMs bounds a prediction to what sums of whole nanoseconds can hold.
const maxPredictedMs = 4e12

// booked reports whether a request is on some rank.
func (b *book) booked(req int32) bool {
	return int(req) < len(b.entries) && b.entries[req].slot >= 0
}

// prefillCompleted drops a booked request's prefill load.
func (b *book) prefillCompleted(req int32, nowNs int64) {
	b.dropPrefill(&b.ranks[b.entries[req].slot].prefill, req, nowNs)
}

// terminal ends a booked request.
func (b *book) terminal(req int32, nowNs int64) {
	e := &b.entries[req]
	r := &b.ranks[e.slot]
	b.dropPrefill(&r.prefill, req, nowNs)
	switch b.tracking {
	case shared:
		r.blocks -= b.index.release(&e.prompt, e.blocks, e.slot)
	case unshared:
		r.blocks -= int64(e.blocks)
	}
	r.requests--
	e.slot, e.prompt = -1, kv.Prompt{}
}

// evict ends every request of a slot.
func (b *book) evict(slot int32, nowNs int64) {
	for req := range b.entries {
		if b.entries[req].slot == slot {
			b.terminal(int32(req), nowNs)
		}
	}
}

// check returns the first law that the book breaks: counts per rank equal what its
// entries say, and the index holds exactly the live blocks, as often as they are.
func (b *book) check() error {
	type sums struct {
		requests   int32
		tokens     int64
		unmodeled  int32
		blockTouch int64
	}
	want := make([]sums, len(b.ranks))
	for i := range b.entries {
		e := &b.entries[i]
		if e.slot < 0 {
			continue
		}
		s := &want[e.slot]
		s.requests++
		s.tokens += e.tokens
		if e.tokens > 0 && e.durNs == unmodeled {
			s.unmodeled++
		}
		s.blockTouch += int64(e.blocks)
	}
	pairs, holders := b.liveBlocks()
	for slot := range b.ranks {
		r, s := &b.ranks[slot], want[slot]
		if r.requests != s.requests || r.prefill.sum != s.tokens || r.prefill.unmodeled != s.unmodeled {
			return fmt.Errorf("router: rank %v books %d requests, %d tokens, %d unmodeled; its entries say %+v",
				r.Rank, r.requests, r.prefill.sum, r.prefill.unmodeled, s)
		}
		if b.tracking == shared && (r.blocks != pairs[slot] || holders[slot] != s.blockTouch) {
			return fmt.Errorf("router: rank %v books %d blocks, the index has %d, held %d times; its entries %d",
				r.Rank, r.blocks, pairs[slot], holders[slot], s.blockTouch)
		}
		if b.tracking == unshared && r.blocks != s.blockTouch {
			return fmt.Errorf("router: rank %v books %d blocks, its entries %d", r.Rank, r.blocks, s.blockTouch)
		}
	}
	return nil
}

// liveBlocks counts, for every slot, the live blocks in the index and the requests
// that hold them.
func (b *book) liveBlocks() (pairs, holders []int64) {
	pairs, holders = make([]int64, len(b.ranks)), make([]int64, len(b.ranks))
	x := b.index
	for _, number := range x.table.All() {
		for _, h := range x.list(&x.pages[number].live) {
			n := int64(bits.OnesCount8(h.blocks()))
			pairs[h.slot()] += n
			holders[h.slot()] += n
			for _, more := range x.counts[x.repeats.Get(repeatKey(number, h.slot()))] {
				holders[h.slot()] += int64(more)
			}
		}
	}
	return pairs, holders
}
