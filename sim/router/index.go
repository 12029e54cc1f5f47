package router

import (
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// index knows for every block which ranks announced it as cached and which serve
// live requests with it, by the slots of the ranks (a slot is the router's dense
// number of a rank). All ranks share one table from page to holders, so that a
// query costs the blocks of the longest match, not workers x blocks. Block identity
// includes the prefix: the leading blocks a rank holds are found by walking the
// prompt from block 0 and dropping ranks at their first gap (spec kv-router 4.1).
type index struct {
	table  kv.Table // number of a page by its kv.PageKey
	pages  []page   // [number]; [0] is no page
	unused []int32  // numbers of pages that were closed
	holderStore
	repeats kv.Table // row of counts by repeatKey
	counts  [][kv.PageSize]uint32
	spares  []int32 // unused rows of counts, all zero
	emptied []uint64
}

// page is who holds some of kv.PageSize consecutive blocks.
type page struct {
	cached holderSet
	live   holderSet
	// Slots that have blocks with more than one live request: how many requests
	// beyond the first stands in a row of counts.
	repeated int32
}

func newIndex() *index {
	return &index{holderStore: holderStore{words: 1}, pages: make([]page, 1), counts: make([][kv.PageSize]uint32, 1)}
}

// run is n blocks of a page from the place of first on, as bits.
func run(first kv.BlockID, n int32) uint8 { return uint8((1<<n - 1) << kv.Place(first)) }

// open returns the page of a block and its number, a new page if there is none. It
// lives until the next call.
func (x *index) open(id kv.BlockID) (*page, int32) {
	number := x.table.Ref(kv.PageKey(id))
	if *number == 0 {
		if n := len(x.unused); n > 0 {
			*number = x.unused[n-1]
			x.unused = x.unused[:n-1]
		} else {
			x.pages = append(x.pages, page{})
			*number = int32(len(x.pages) - 1)
		}
	}
	return &x.pages[*number], *number
}

// closeIfEmpty forgets a page that nobody holds anything of.
func (x *index) closeIfEmpty(id kv.BlockID, p *page, number int32) {
	if p.cached.pairs == 0 && p.live.pairs == 0 {
		x.table.Drop(kv.PageKey(id))
		x.unused = append(x.unused, number)
	}
}

// store makes n consecutive blocks of one page cached on a slot; those that are
// stay.
func (x *index) store(first kv.BlockID, n int32, slot int32) {
	p, _ := x.open(first)
	blocks := run(first, n)
	if p.cached.holders != 0 {
		blocks &^= x.held(&p.cached, slot)
	}
	if blocks != 0 {
		x.add(&p.cached, slot, blocks)
	}
}

// evict is the opposite; false if a block was not there.
func (x *index) evict(first kv.BlockID, n int32, slot int32) bool {
	number := x.table.Get(kv.PageKey(first))
	p := &x.pages[number]
	if number == 0 || !x.remove(&p.cached, slot, run(first, n)) {
		return false
	}
	x.closeIfEmpty(first, p, number)
	return true
}

// caches reports whether a slot announced a block.
func (x *index) caches(id kv.BlockID, slot int32) bool {
	number := x.table.Get(kv.PageKey(id))
	return number != 0 && x.held(&x.pages[number].cached, slot)>>kv.Place(id)&1 != 0
}

// retain makes the leading blocks of a prompt live on a slot, once more if they are
// already, and returns how many were not.
func (x *index) retain(prompt *kv.Prompt, blocks, slot int32) (fresh int64) {
	runs := pageRuns{prompt: prompt, end: blocks}
	for first, n := runs.next(); n > 0; first, n = runs.next() {
		p, number := x.open(first)
		enters := run(first, n)
		if p.live.holders != 0 {
			if again := enters & x.held(&p.live, slot); again != 0 {
				x.repeat(p, number, slot, again)
				enters &^= again
			}
		}
		if enters != 0 {
			x.add(&p.live, slot, enters)
			fresh += int64(bits.OnesCount8(enters))
		}
	}
	return fresh
}

// release takes one live request's leading blocks back from a slot, and returns how
// many are live there no more.
func (x *index) release(prompt *kv.Prompt, blocks, slot int32) (gone int64) {
	runs := pageRuns{prompt: prompt, end: blocks}
	for first, n := runs.next(); n > 0; first, n = runs.next() {
		number := x.table.Get(kv.PageKey(first))
		p := &x.pages[number]
		leaves := run(first, n)
		if p.repeated > 0 {
			leaves = x.unrepeat(p, number, slot, leaves)
		}
		if leaves == 0 {
			continue
		}
		if number == 0 || !x.remove(&p.live, slot, leaves) {
			panic("router: released a prompt block that nobody holds")
		}
		gone += int64(bits.OnesCount8(leaves))
		x.closeIfEmpty(first, p, number)
	}
	return gone
}

// repeatKey is the key of a row of counts.
func repeatKey(number, slot int32) uint64 { return uint64(number)<<24 | uint64(slot) }

// repeat counts one more live request for blocks of a slot that have one.
func (x *index) repeat(p *page, number, slot int32, blocks uint8) {
	row := x.repeats.Ref(repeatKey(number, slot))
	if *row == 0 {
		p.repeated++
		if n := len(x.spares); n > 0 {
			*row = x.spares[n-1]
			x.spares = x.spares[:n-1]
		} else {
			x.counts = append(x.counts, [kv.PageSize]uint32{})
			*row = int32(len(x.counts) - 1)
		}
	}
	counts := &x.counts[*row]
	for ; blocks != 0; blocks &= blocks - 1 {
		counts[bits.TrailingZeros8(blocks)]++
	}
}

// unrepeat counts one live request less for blocks of a slot, and returns those that
// have no other.
func (x *index) unrepeat(p *page, number, slot int32, blocks uint8) (last uint8) {
	row := x.repeats.Get(repeatKey(number, slot))
	if row == 0 {
		return blocks
	}
	counts := &x.counts[row]
	for left := blocks; left != 0; left &= left - 1 {
		if i := bits.TrailingZeros8(left); counts[i] > 0 {
			counts[i]--
			blocks &^= 1 << i
		}
	}
	if *counts == [kv.PageSize]uint32{} {
		x.repeats.Drop(repeatKey(number, slot))
		x.spares = append(x.spares, row)
		p.repeated--
	}
	return blocks
}

// drop makes nothing cached on a slot. It looks at every page.
func (x *index) drop(slot int32) {
	x.emptied = x.emptied[:0]
	for key, number := range x.table.All() {
		p := &x.pages[number]
		if blocks := x.held(&p.cached, slot); blocks != 0 {
			x.remove(&p.cached, slot, blocks)
			if p.cached.pairs == 0 && p.live.pairs == 0 {
				x.emptied = append(x.emptied, key)
			}
		}
	}
	for _, key := range x.emptied {
		x.unused = append(x.unused, x.table.Get(key))
		x.table.Drop(key)
	}
}

// pageRun returns how many blocks from the front of ids, ascending one by one and
// within one page, can be stored or evicted together.
func pageRun(ids []kv.BlockID) int32 {
	most := min(len(ids), kv.PageSize-int(kv.Place(ids[0])))
	n := 1
	for n < most && ids[n] == ids[0]+kv.BlockID(n) {
		n++
	}
	return int32(n)
}

// pageRunDown is the same for descending ids: blocks are evicted children first.
func pageRunDown(ids []kv.BlockID) int32 {
	most := min(len(ids), 1+int(kv.Place(ids[0])))
	n := 1
	for n < most && ids[n] == ids[0]-kv.BlockID(n) {
		n++
	}
	return int32(n)
}

// pageRuns goes through the leading blocks of a prompt, cut where a page ends or an
// id does not follow the one before it.
type pageRuns struct {
	prompt  *kv.Prompt
	at, end int32 // blocks
	id      kv.BlockID
	n       int32 // left of the present run of ids
}

// next returns the first id and the length of the next piece; length 0 at the end.
func (r *pageRuns) next() (first kv.BlockID, n int32) {
	if r.n == 0 {
		if r.at >= r.end {
			return 0, 0
		}
		id, run := r.prompt.Run(int(r.at), int(r.end))
		r.id, r.n = id, int32(run)
		r.at += r.n
	}
	first, n = r.id, min(r.n, kv.PageSize-kv.Place(r.id))
	r.id += kv.BlockID(n)
	r.n -= n
	return first, n
}
