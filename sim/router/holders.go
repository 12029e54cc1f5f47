package router

import (
	"math/bits"
	"slices"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// holderSet is who holds which of kv.PageSize consecutive blocks: a set of
// (block, slot) pairs. Its contents are kept by a holderStore. A single holder
// stands in place, several stand in a list sorted by slot, and when a list would be
// larger, a bitset over all slots for each block takes over. So memory follows the
// pairs that exist, never blocks x slots.
type holderSet struct {
	pairs   int32     // (block, slot) pairs
	holders int32     // 1: at is the holder; more: length of the list at; dense: at is a row
	at      [1]holder // where that is, or the only holder itself
	room    uint8     // class of the list's room
}

// dense marks a set whose holders are bitsets.
const dense = -1

// holder is a slot and, as bits of the lowest byte, which blocks it holds.
type holder uint32

func newHolder(slot int32, blocks uint8) holder { return holder(slot)<<8 | holder(blocks) }

func (h holder) slot() int32   { return int32(h >> 8) }
func (h holder) blocks() uint8 { return uint8(h) }

// mostSlots is what a holder can name.
const mostSlots = 1 << 24

// holderStore keeps lists and bitsets of holder sets. Lists have rooms of powers of
// two inside one slice; rooms and rows that are given back are used again.
type holderStore struct {
	lists []holder
	free  [25][]holder // [class] starts of unused rooms of 1 << class holders
	words int          // uint64 words that hold a bit per slot
	bits  []uint64     // [row][block][word]
	spare []int32      // unused rows, all zero
}

// of returns the holders of a set that is not dense, by slot; they live until the
// store changes.
func (s *holderStore) of(p *holderSet) []holder {
	if p.holders <= 1 {
		return p.at[:p.holders]
	}
	return s.lists[p.at[0]:][:p.holders:p.holders]
}

// held returns which blocks a slot holds.
func (s *holderStore) held(p *holderSet, slot int32) (blocks uint8) {
	switch {
	case p.holders == 1:
		if h := p.at[0]; h.slot() == slot {
			return h.blocks()
		}
		return 0
	case p.holders == dense:
		at := s.row(p) + int(slot>>6)
		for b := range kv.PageSize {
			blocks |= uint8(s.bits[at]>>(slot&63)&1) << b
			at += s.words
		}
		return blocks
	}
	list := s.of(p)
	if i, found := search(list, slot); found {
		return list[i].blocks()
	}
	return 0
}

// list returns the holders of any set, by slot. It looks at every slot.
func (s *holderStore) list(p *holderSet) []holder {
	if p.holders != dense {
		return s.of(p)
	}
	var out []holder
	for slot := range int32(s.words * 64) {
		if blocks := s.held(p, slot); blocks != 0 {
			out = append(out, newHolder(slot, blocks))
		}
	}
	return out
}

// add inserts the pairs of a slot with blocks of which it holds none.
func (s *holderStore) add(p *holderSet, slot int32, blocks uint8) {
	p.pairs += int32(bits.OnesCount8(blocks))
	if p.holders == dense {
		s.setBits(p, slot, blocks)
		return
	}
	list := s.of(p)
	i, found := search(list, slot)
	switch {
	case found:
		list[i] |= holder(blocks)
	case int(p.holders) >= 2*s.words-1:
		s.widenSet(p)
		s.setBits(p, slot, blocks)
	default:
		s.insert(p, i, newHolder(slot, blocks))
	}
}

// remove deletes the pairs of a slot with blocks; false if one was not there.
func (s *holderStore) remove(p *holderSet, slot int32, blocks uint8) bool {
	if p.holders == dense {
		if !s.clearBits(p, slot, blocks) {
			return false
		}
		p.pairs -= int32(bits.OnesCount8(blocks))
		if int(p.pairs) <= s.words {
			s.narrowSet(p)
		}
		return true
	}
	list := s.of(p)
	i, found := search(list, slot)
	if !found || list[i].blocks()&blocks != blocks {
		return false
	}
	p.pairs -= int32(bits.OnesCount8(blocks))
	list[i] &^= holder(blocks)
	if list[i].blocks() == 0 {
		s.delete(p, i)
	}
	return true
}

// row returns where the bitsets of a dense set start in s.bits.
func (s *holderStore) row(p *holderSet) int { return int(p.at[0]) * kv.PageSize * s.words }

func (s *holderStore) setBits(p *holderSet, slot int32, blocks uint8) {
	at, bit := s.row(p)+int(slot>>6), uint64(1)<<(slot&63)
	for ; blocks != 0; blocks &= blocks - 1 {
		s.bits[at+bits.TrailingZeros8(blocks)*s.words] |= bit
	}
}

// clearBits deletes blocks of a slot from a dense set; false if one was not there.
func (s *holderStore) clearBits(p *holderSet, slot int32, blocks uint8) bool {
	at, bit := s.row(p)+int(slot>>6), uint64(1)<<(slot&63)
	for ; blocks != 0; blocks &= blocks - 1 {
		w := &s.bits[at+bits.TrailingZeros8(blocks)*s.words]
		if *w&bit == 0 {
			return false
		}
		*w &^= bit
	}
	return true
}

// widenSet turns a list into bitsets.
func (s *holderStore) widenSet(p *holderSet) {
	row := holder(0)
	if n := len(s.spare); n > 0 {
		row = holder(s.spare[n-1])
		s.spare = s.spare[:n-1]
	} else {
		row = holder(len(s.bits) / (kv.PageSize * s.words))
		for range kv.PageSize * s.words {
			s.bits = append(s.bits, 0)
		}
	}
	was := *p
	p.at[0], p.holders = row, dense
	for _, h := range s.of(&was) {
		s.setBits(p, h.slot(), h.blocks())
	}
	if was.holders > 1 {
		s.give(was.at[0], was.room)
	}
}

// narrowSet turns bitsets with few pairs into a list.
func (s *holderStore) narrowSet(p *holderSet) {
	was := *p
	row := s.bits[s.row(p):][:kv.PageSize*s.words]
	p.holders = 0
	for w := range s.words {
		any := uint64(0)
		for b := range kv.PageSize {
			any |= row[b*s.words+w]
		}
		for ; any != 0; any &= any - 1 {
			slot := int32(w<<6 + bits.TrailingZeros64(any))
			s.insert(p, int(p.holders), newHolder(slot, s.held(&was, slot)))
		}
	}
	clear(row)
	s.spare = append(s.spare, int32(was.at[0]))
}

// widen makes room for slots below n.
func (s *holderStore) widen(n int) {
	words := (n + 63) >> 6
	if words <= s.words {
		return
	}
	blocks := len(s.bits) / s.words
	wide := make([]uint64, blocks*words)
	for b := range blocks {
		copy(wide[b*words:], s.bits[b*s.words:(b+1)*s.words])
	}
	s.bits, s.words = wide, words
}

// search returns where a slot stands, or would stand, in a list.
func search(list []holder, slot int32) (at int, found bool) {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; list[mid].slot() < slot {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(list) && list[lo].slot() == slot
}

// insert makes h holder i of a set that is not dense.
func (s *holderStore) insert(p *holderSet, i int, h holder) {
	n := p.holders
	p.holders++
	switch {
	case n == 0:
		p.at[0] = h
		return
	case n == 1:
		only := p.at[0]
		p.at[0], p.room = s.take(1), 1
		s.lists[p.at[0]] = only
	case n == 1<<p.room:
		at := s.take(p.room + 1)
		copy(s.lists[at:], s.lists[p.at[0]:][:n])
		s.give(p.at[0], p.room)
		p.at[0], p.room = at, p.room+1
	}
	list := s.of(p)
	copy(list[i+1:], list[i:n])
	list[i] = h
}

// delete drops holder i of a set that is not dense. A list that fills a quarter of
// its room moves to half of it.
func (s *holderStore) delete(p *holderSet, i int) {
	list := s.of(p)
	copy(list[i:], list[i+1:])
	p.holders--
	switch n := p.holders; {
	case n == 0:
	case n == 1:
		only := list[0]
		s.give(p.at[0], p.room)
		p.at[0] = only
	case n == 1<<p.room/4:
		at := s.take(p.room - 1)
		copy(s.lists[at:], s.lists[p.at[0]:][:n])
		s.give(p.at[0], p.room)
		p.at[0], p.room = at, p.room-1
	}
}

func (s *holderStore) give(at holder, class uint8) { s.free[class] = append(s.free[class], at) }

// take returns the start of an unused room.
func (s *holderStore) take(class uint8) holder {
	if free := s.free[class]; len(free) > 0 {
		s.free[class] = free[:len(free)-1]
		return free[len(free)-1]
	}
	at := len(s.lists)
	s.lists = slices.Grow(s.lists, 1<<class)[:at+1<<class]
	return holder(at)
}
