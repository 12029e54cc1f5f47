package router

import (
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// index is a set of (block, slot) pairs: which ranks hold a block. A slot is the
// router's dense number of a rank. The prefix index holds what engines announced
// as cached, the book's what prompts of live requests contain.
//
// All ranks share one table from block to bitset, so that a query costs the blocks
// of the longest match, not workers x blocks. Block identity includes the prefix:
// the leading blocks a rank holds are found by walking the prompt from block 0 and
// dropping ranks at their first gap (spec kv-router 4.1).
type index struct {
	pages pageMap
	words int      // uint64 words of one block's bitset
	bits  []uint64 // [page][block in page][word]
	held  []int32  // [page] pairs
	alive []uint64 // [word], scratch of a query

	emptied []uint64 // page keys, scratch of drop
}

func newIndex() index {
	x := index{words: 1, alive: make([]uint64, 1)}
	x.bits, x.held = make([]uint64, kv.PageSize), make([]int32, 1)
	return x
}

// row returns where the bitset of a block starts in x.bits.
func (x *index) row(page int32, id kv.BlockID) int {
	return (int(page)*kv.PageSize + int(kv.Place(id))) * x.words
}

// open returns the page of a key. Freed pages are all zero, so nothing is cleared.
func (x *index) open(key uint64) int32 {
	page := x.pages.open(key)
	for int(page) >= len(x.held) {
		x.held = append(x.held, 0)
		for range kv.PageSize * x.words {
			x.bits = append(x.bits, 0)
		}
	}
	return page
}

// addRun inserts the pairs of a slot with n consecutive blocks of one page; pairs
// that are there stay.
func (x *index) addRun(first kv.BlockID, n int32, slot int32) {
	page := x.open(kv.PageKey(first))
	at, bit := x.row(page, first)+int(slot>>6), uint64(1)<<(slot&63)
	for range n {
		if w := &x.bits[at]; *w&bit == 0 {
			*w |= bit
			x.held[page]++
		}
		at += x.words
	}
}

// removeRun deletes the pairs of a slot with n consecutive blocks of one page; false
// if one was not there.
func (x *index) removeRun(first kv.BlockID, n int32, slot int32) bool {
	page := x.pages.find(kv.PageKey(first))
	if page == 0 {
		return false
	}
	at, bit := x.row(page, first)+int(slot>>6), uint64(1)<<(slot&63)
	for range n {
		w := &x.bits[at]
		if *w&bit == 0 {
			return false
		}
		*w &^= bit
		at += x.words
	}
	if x.held[page] -= n; x.held[page] == 0 {
		x.pages.close(kv.PageKey(first))
	}
	return true
}

// pageRun returns how many blocks from the front of ids, ascending one by one and
// within one page, can be added or removed together.
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

// has reports whether a pair is there.
func (x *index) has(id kv.BlockID, slot int32) bool {
	page := x.pages.find(kv.PageKey(id))
	return page != 0 && x.bits[x.row(page, id)+int(slot>>6)]>>(slot&63)&1 != 0
}

// match sets lead[slot] to the number of leading blocks of the prompt that the slot
// holds, without a gap, for every slot of lead. The prompt counts for its first
// blocks full blocks.
func (x *index) match(p *kv.Prompt, blocks int32, lead []int32) {
	clear(lead)
	if x.pages.table.Len() == 0 {
		return
	}
	for w := range x.alive {
		x.alive[w] = ^uint64(0)
	}
	at := int32(0)
	runs := pageRuns{prompt: p, end: blocks}
	for first, n := runs.next(); n > 0; first, n = runs.next() {
		page := x.pages.find(kv.PageKey(first))
		if page == 0 {
			x.leave(at, lead)
			return
		}
		row := x.row(page, first)
		for range n {
			if !x.step(row, at, lead) {
				return
			}
			row += x.words
			at++
		}
	}
	x.leave(at, lead)
}

// step drops the slots that lack the block of a row; false if none is left.
func (x *index) step(row int, at int32, lead []int32) bool {
	left := uint64(0)
	for w, alive := range x.alive {
		keep := alive & x.bits[row+w]
		if gone := alive &^ keep; gone != 0 && at > 0 {
			mark(gone, w, at, lead)
		}
		x.alive[w] = keep
		left |= keep
	}
	return left != 0
}

// leave gives the slots still alive their result.
func (x *index) leave(at int32, lead []int32) {
	if at == 0 {
		return
	}
	for w, alive := range x.alive {
		mark(alive, w, at, lead)
	}
}

func mark(set uint64, word int, at int32, lead []int32) {
	for ; set != 0; set &= set - 1 {
		lead[word<<6+bits.TrailingZeros64(set)] = at
	}
}

// drop deletes every pair of a slot. It looks at every page.
func (x *index) drop(slot int32) {
	bit := uint64(1) << (slot & 63)
	x.emptied = x.emptied[:0]
	for key, page := range x.pages.table.All() {
		row := x.row(page, 0) + int(slot>>6)
		for range kv.PageSize {
			if x.bits[row]&bit != 0 {
				x.bits[row] &^= bit
				x.held[page]--
			}
			row += x.words
		}
		if x.held[page] == 0 {
			x.emptied = append(x.emptied, key)
		}
	}
	for _, key := range x.emptied {
		x.pages.close(key)
	}
}

// widen makes room for slots below n.
func (x *index) widen(n int) {
	words := (n + 63) >> 6
	if words <= x.words {
		return
	}
	wide := make([]uint64, len(x.held)*kv.PageSize*words)
	for b := range len(x.held) * kv.PageSize {
		copy(wide[b*words:], x.bits[b*x.words:(b+1)*x.words])
	}
	x.bits, x.words, x.alive = wide, words, make([]uint64, words)
}
