package router

import (
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// index is a set of (block, slot) pairs: which ranks hold a block. A slot is the
// router's dense number of a rank. The prefix index holds what engines announced
// as cached, the book's what prompts of live requests contain.
//
// All ranks share one table from page to holders. A page with a single holder keeps
// it in place, a page with several has a list sorted by slot, and a page that so
// many hold that a list would be larger has a bitset over all slots for each block.
// So memory follows the pairs that exist, at most 64 bytes each, never blocks x
// ranks. Block identity includes the prefix: the leading blocks a rank holds are
// found by walking the prompt from block 0 and dropping ranks at their first gap
// (spec kv-router 4.1).
type index struct {
	table   kv.Table // number of a page by its kv.PageKey
	pages   []page   // [number]; [0] is no page
	unused  []int32  // numbers of pages that were closed
	lists   lists
	words   int      // uint64 words that hold a bit per slot
	bits    []uint64 // [row][block in page][word]
	spare   []int32  // unused rows, all zero
	emptied []uint64 // page keys, scratch of drop
}

// page is who holds some of kv.PageSize consecutive blocks.
type page struct {
	pairs   int32     // (block, slot) pairs
	holders int32     // 1: at is the holder; more: length of the list at; dense: at is a row
	at      [1]holder // where that is, or the only holder itself
	room    uint8     // class of the list's room
}

// dense marks a page whose holders are bitsets.
const dense = -1

// holder is a slot and, as bits of the lowest byte, which blocks of a page it holds.
type holder uint32

func newHolder(slot int32, blocks uint8) holder { return holder(slot)<<8 | holder(blocks) }

func (h holder) slot() int32   { return int32(h >> 8) }
func (h holder) blocks() uint8 { return uint8(h) }

// mostSlots is what a holder can name.
const mostSlots = 1 << 24

func newIndex() index { return index{words: 1, pages: make([]page, 1)} }

// run is n blocks of a page from the place of first on, as bits.
func run(first kv.BlockID, n int32) uint8 { return uint8((1<<n - 1) << kv.Place(first)) }

// addRun inserts the pairs of a slot with n consecutive blocks of one page; pairs
// that are there stay.
func (x *index) addRun(first kv.BlockID, n int32, slot int32) {
	blocks := run(first, n)
	number := x.table.Get(kv.PageKey(first))
	if number == 0 {
		x.table.Put(kv.PageKey(first), x.open(page{pairs: n, holders: 1, at: [1]holder{newHolder(slot, blocks)}}))
		return
	}
	p := &x.pages[number]
	if p.holders == dense {
		p.pairs += x.setBits(p, slot, blocks)
		return
	}
	list := x.holders(p)
	i, found := search(list, slot)
	if found {
		p.pairs += int32(bits.OnesCount8(blocks &^ list[i].blocks()))
		list[i] |= holder(blocks)
		return
	}
	p.pairs += n
	if int(p.holders) >= 2*x.words-1 {
		x.widenPage(p)
		x.setBits(p, slot, blocks)
		return
	}
	x.lists.insert(p, i, newHolder(slot, blocks))
}

// removeRun deletes the pairs of a slot with n consecutive blocks of one page; false
// if one was not there.
func (x *index) removeRun(first kv.BlockID, n int32, slot int32) bool {
	key := kv.PageKey(first)
	number := x.table.Get(key)
	if number == 0 {
		return false
	}
	p, blocks := &x.pages[number], run(first, n)
	if !x.removeBlocks(p, slot, blocks) {
		return false
	}
	if p.pairs == 0 {
		x.close(key, number)
	}
	return true
}

// removeBlocks deletes blocks of a slot from a page; false if one was not there.
func (x *index) removeBlocks(p *page, slot int32, blocks uint8) bool {
	if p.holders == dense {
		if !x.clearBits(p, slot, blocks) {
			return false
		}
		p.pairs -= int32(bits.OnesCount8(blocks))
		if int(p.pairs) <= x.words {
			x.narrowPage(p)
		}
		return true
	}
	list := x.holders(p)
	i, found := search(list, slot)
	if !found || list[i].blocks()&blocks != blocks {
		return false
	}
	p.pairs -= int32(bits.OnesCount8(blocks))
	list[i] &^= holder(blocks)
	if list[i].blocks() == 0 && p.holders > 1 {
		x.lists.remove(p, i)
	}
	return true
}

// holders returns the holders of a page that is not dense, by slot. The list lives
// until the page changes.
func (x *index) holders(p *page) []holder {
	if p.holders == 1 {
		return p.at[:]
	}
	return x.lists.of(p)
}

// open returns the number of a new page.
func (x *index) open(p page) int32 {
	if n := len(x.unused); n > 0 {
		number := x.unused[n-1]
		x.unused = x.unused[:n-1]
		x.pages[number] = p
		return number
	}
	x.pages = append(x.pages, p)
	return int32(len(x.pages) - 1)
}

// close forgets a page without pairs.
func (x *index) close(key uint64, number int32) {
	p := &x.pages[number]
	switch {
	case p.holders == dense:
		x.spare = append(x.spare, int32(p.at[0]))
	case p.holders > 1:
		x.lists.release(p)
	}
	x.table.Drop(key)
	x.unused = append(x.unused, number)
}

// row returns where the bitsets of a dense page start in x.bits.
func (x *index) row(p *page) int { return int(p.at[0]) * kv.PageSize * x.words }

// setBits inserts blocks of a slot into a dense page and returns how many are new.
func (x *index) setBits(p *page, slot int32, blocks uint8) (fresh int32) {
	at, bit := x.row(p)+int(slot>>6), uint64(1)<<(slot&63)
	for ; blocks != 0; blocks &= blocks - 1 {
		if w := &x.bits[at+bits.TrailingZeros8(blocks)*x.words]; *w&bit == 0 {
			*w |= bit
			fresh++
		}
	}
	return fresh
}

// clearBits deletes blocks of a slot from a dense page; false if one was not there.
func (x *index) clearBits(p *page, slot int32, blocks uint8) bool {
	at, bit := x.row(p)+int(slot>>6), uint64(1)<<(slot&63)
	for ; blocks != 0; blocks &= blocks - 1 {
		w := &x.bits[at+bits.TrailingZeros8(blocks)*x.words]
		if *w&bit == 0 {
			return false
		}
		*w &^= bit
	}
	return true
}

// blocksOf returns which blocks of a dense page a slot holds.
func (x *index) blocksOf(p *page, slot int32) (blocks uint8) {
	at := x.row(p) + int(slot>>6)
	for b := range kv.PageSize {
		blocks |= uint8(x.bits[at]>>(slot&63)&1) << b
		at += x.words
	}
	return blocks
}

// widenPage turns the list of a page into bitsets.
func (x *index) widenPage(p *page) {
	row := int32(0)
	if n := len(x.spare); n > 0 {
		row = x.spare[n-1]
		x.spare = x.spare[:n-1]
	} else {
		row = int32(len(x.bits) / (kv.PageSize * x.words))
		for range kv.PageSize * x.words {
			x.bits = append(x.bits, 0)
		}
	}
	was := *p
	p.at[0], p.holders = holder(row), dense
	for _, h := range x.holders(&was) {
		x.setBits(p, h.slot(), h.blocks())
	}
	if was.holders > 1 {
		x.lists.release(&was)
	}
}

// narrowPage turns the bitsets of a page with few pairs into a list.
func (x *index) narrowPage(p *page) {
	was := *p
	row := x.bits[x.row(p):][:kv.PageSize*x.words]
	p.holders = 0
	for w := range x.words {
		any := uint64(0)
		for b := range kv.PageSize {
			any |= row[b*x.words+w]
		}
		for ; any != 0; any &= any - 1 {
			slot := int32(w<<6 + bits.TrailingZeros64(any))
			x.lists.insert(p, int(p.holders), newHolder(slot, x.blocksOf(&was, slot)))
		}
	}
	clear(row)
	x.spare = append(x.spare, int32(was.at[0]))
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
	number := x.table.Get(kv.PageKey(id))
	return number != 0 && x.held(&x.pages[number], slot)>>kv.Place(id)&1 != 0
}

// held returns which blocks of a page a slot holds.
func (x *index) held(p *page, slot int32) uint8 {
	if p.holders == dense {
		return x.blocksOf(p, slot)
	}
	list := x.holders(p)
	if i, found := search(list, slot); found {
		return list[i].blocks()
	}
	return 0
}

// drop deletes every pair of a slot. It looks at every page.
func (x *index) drop(slot int32) {
	x.emptied = x.emptied[:0]
	for key, number := range x.table.All() {
		p := &x.pages[number]
		if blocks := x.held(p, slot); blocks != 0 {
			x.removeBlocks(p, slot, blocks)
			if p.pairs == 0 {
				x.emptied = append(x.emptied, key)
			}
		}
	}
	for _, key := range x.emptied {
		x.close(key, x.table.Get(key))
	}
}

// widen makes room for slots below n.
func (x *index) widen(n int) {
	words := (n + 63) >> 6
	if words <= x.words {
		return
	}
	blocks := len(x.bits) / x.words
	wide := make([]uint64, blocks*words)
	for b := range blocks {
		copy(wide[b*words:], x.bits[b*x.words:(b+1)*x.words])
	}
	x.bits, x.words = wide, words
}
