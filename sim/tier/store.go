package tier

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// Store is the blocks of one tier. A block is pending (room is reserved, its bytes
// are still under way) or resident; a resident block that no transfer reads has a
// place in the order of eviction: the oldest recency mark first, within one mark the
// lowest block hash (spec kv-offload 3).
//
// Like a kv.Pool it keeps blocks in pages of kv.PageSize neighbouring identities, so
// that the blocks of one trace block need one probe. Slots are positive numbers.
// A block takes 36 bytes where identities come in runs.
type Store struct {
	capacity       int
	used, resident int
	table          kv.Table
	pages          []page   // [0] holds the sentinel of the recency list
	spare          int32    // first unused page, chained by its first entry's next
	marks          int64    // recency marks given so far
	sorted         int64    // mark of the group at the list's head that is in order of hashes
	group          []member // scratch of room
	evictions      int64
	peak           int
	last           int32 // the page found last; 0: none
}

type page struct {
	key      uint64
	present  uint8 // [place], as bits: pending or resident
	resident uint8
	entry    [kv.PageSize]entry
}

// entry is one block. It is in the recency list iff it is resident without pins.
type entry struct {
	hash       uint64
	mark       int64
	prev, next int32
	pins       int32
	origin     int32 // the rank that brought it in
}

func newStore(capacity int) Store {
	return Store{capacity: capacity, pages: make([]page, 1), sorted: -1}
}

func (s *Store) at(slot int32) *entry { return &s.pages[slot>>3].entry[slot&7] }

// id returns the identity of the block at a slot.
func (s *Store) id(slot int32) kv.BlockID {
	return kv.BlockID(s.pages[slot>>3].key<<3) | kv.BlockID(slot&7)
}

// find returns the page of key, 0 if there is none.
func (s *Store) find(key uint64) int32 {
	if s.last != 0 && s.pages[s.last].key == key {
		return s.last
	}
	n := s.table.Get(key)
	if n != 0 {
		s.last = n
	}
	return n
}

// slot returns the slot of a block, 0 if the tier has no such block.
func (s *Store) slot(id kv.BlockID) int32 {
	n := s.find(kv.PageKey(id))
	if n == 0 || s.pages[n].present>>kv.Place(id)&1 == 0 {
		return 0
	}
	return n<<3 | kv.Place(id)
}

// isResident reports whether the block at a slot is complete.
func (s *Store) isResident(slot int32) bool { return s.pages[slot>>3].resident>>(slot&7)&1 != 0 }

// run counts blocks from id on, at most n: those resident in a row and, if there is
// none, those absent in a row. pending reports that the first block is neither.
func (s *Store) run(id kv.BlockID, n int) (resident, absent int, pending bool) {
	at := s.find(kv.PageKey(id))
	place := kv.Place(id)
	n = min(n, kv.PageSize-int(place))
	if at == 0 {
		return 0, n, false
	}
	p := &s.pages[at]
	if k := bits.TrailingZeros8(^(p.resident >> place)); k > 0 {
		return min(n, k), 0, false
	}
	if p.present>>place&1 != 0 {
		return 0, 0, true
	}
	return 0, min(n, bits.TrailingZeros8(p.present>>place)), false
}

// room makes room for n more blocks by evicting the oldest ones of the recency list,
// which has enough, and appends their identities to evicted. Blocks of one mark stand
// side by side in any order until some of them must go and others stay.
func (s *Store) room(n int, evicted *[]kv.BlockID) {
	need := s.used + n - s.capacity
	for need > 0 {
		head := s.at(0).next
		if s.sorted == s.at(head).mark {
			s.evict(head, evicted)
			need--
			continue
		}
		if s.gather(head, need) {
			for _, m := range s.group {
				s.evict(m.slot, evicted)
			}
			need -= len(s.group)
			continue
		}
		s.sortGroup()
	}
}

func (s *Store) evict(slot int32, evicted *[]kv.BlockID) {
	s.unlink(slot)
	*evicted = append(*evicted, s.id(slot))
	s.drop(slot)
	s.evictions++
}

// member is a block of the group of one mark.
type member struct {
	hash uint64
	slot int32
}

// gather fills s.group with the blocks that share the mark of head. It reports
// whether they are at most n.
func (s *Store) gather(head int32, n int) bool {
	mark := s.at(head).mark
	s.group = s.group[:0]
	for slot := head; slot != 0; {
		e := s.at(slot)
		if e.mark != mark {
			break
		}
		s.group = append(s.group, member{e.hash, slot})
		slot = e.next
	}
	return len(s.group) <= n
}

// sortGroup brings s.group, which stands at the head of the list, into the order of
// hashes.
func (s *Store) sortGroup() {
	last := s.group[len(s.group)-1].slot
	mark, end := s.at(last).mark, s.at(last).next
	slices.SortFunc(s.group, func(a, b member) int { return cmp.Compare(a.hash, b.hash) })
	before := int32(0)
	for _, m := range s.group {
		s.at(before).next, s.at(m.slot).prev = m.slot, before
		before = m.slot
	}
	s.at(before).next, s.at(end).prev = end, before
	s.sorted = mark
}

// idle is the number of blocks in the recency list.
func (s *Store) idle() int { return int(s.pages[0].entry[0].mark) }

// link makes a block the youngest with the given mark.
func (s *Store) link(slot int32, mark int64) {
	sentinel, e := s.at(0), s.at(slot)
	e.mark, e.prev, e.next = mark, sentinel.prev, 0
	s.at(sentinel.prev).next, sentinel.prev = slot, slot
	sentinel.mark++
}

func (s *Store) unlink(slot int32) {
	e := s.at(slot)
	s.at(e.prev).next, s.at(e.next).prev = e.next, e.prev
	s.at(0).mark--
}

// touch makes a resident block without pins the youngest.
func (s *Store) touch(slot int32) {
	if !s.isResident(slot) || s.at(slot).pins > 0 {
		return
	}
	s.unlink(slot)
	s.marks++
	s.link(slot, s.marks)
}

// reserve adds a pending block. There is room for it.
func (s *Store) reserve(id kv.BlockID, hash uint64, origin int32) int32 {
	n := s.find(kv.PageKey(id))
	if n == 0 {
		n = s.open(kv.PageKey(id))
	}
	slot := n<<3 | kv.Place(id)
	s.pages[n].present |= 1 << (slot & 7)
	*s.at(slot) = entry{hash: hash, origin: origin}
	s.used++
	s.peak = max(s.peak, s.used)
	return slot
}

func (s *Store) open(key uint64) int32 {
	n := s.spare
	if n == 0 {
		s.pages = append(s.pages, page{})
		n = int32(len(s.pages) - 1)
	} else {
		s.spare = s.pages[n].entry[0].next
	}
	s.pages[n] = page{key: key}
	s.table.Put(key, n)
	return n
}

// drop forgets a block that is not in the recency list.
func (s *Store) drop(slot int32) {
	p := &s.pages[slot>>3]
	bit := uint8(1) << (slot & 7)
	if p.resident&bit != 0 {
		s.resident--
	}
	p.present &^= bit
	p.resident &^= bit
	s.used--
	if p.present == 0 {
		s.table.Drop(p.key)
		if s.last == slot>>3 {
			s.last = 0
		}
		p.entry[0].next, s.spare = s.spare, slot>>3
	}
}

// complete makes pending blocks resident, all with one recency mark.
func (s *Store) complete(slots []int32) {
	s.marks++
	for _, slot := range slots {
		s.pages[slot>>3].resident |= 1 << (slot & 7)
		s.resident++
		s.link(slot, s.marks)
	}
}

// pin keeps resident blocks while a transfer reads them.
func (s *Store) pin(slots []int32) {
	for _, slot := range slots {
		e := s.at(slot)
		if e.pins == 0 {
			s.unlink(slot)
		}
		e.pins++
	}
}

// unpin ends a transfer's hold; blocks that nobody else reads get one new mark.
func (s *Store) unpin(slots []int32) {
	s.marks++
	for _, slot := range slots {
		e := s.at(slot)
		if e.pins--; e.pins == 0 {
			s.link(slot, s.marks)
		}
	}
}

// check returns the first broken law of the store.
func (s *Store) check() error {
	used, resident, listed := 0, 0, 0
	for n := 1; n < len(s.pages); n++ {
		p := &s.pages[n]
		if p.present != 0 && s.table.Get(p.key) != int32(n) {
			return fmt.Errorf("tier: page %d of key %x is not in the index", n, p.key)
		}
		if p.resident&^p.present != 0 {
			return fmt.Errorf("tier: page %d has resident blocks %b that are not present %b", n, p.resident, p.present)
		}
		used += bits.OnesCount8(p.present)
		resident += bits.OnesCount8(p.resident)
	}
	mark := int64(0)
	for slot, before := s.at(0).next, int32(0); slot != 0; before, slot = slot, s.at(slot).next {
		e := s.at(slot)
		if e.prev != before || e.pins != 0 || !s.isResident(slot) || e.mark < mark {
			return fmt.Errorf("tier: block %x in the recency list: pins %d, resident %v, mark %d after %d", uint64(s.id(slot)), e.pins, s.isResident(slot), e.mark, mark)
		}
		mark = e.mark
		listed++
	}
	if used != s.used || resident != s.resident || used > s.capacity || listed != s.idle() {
		return fmt.Errorf("tier: %d blocks of %d used (counted %d), %d resident (counted %d), %d in the list (counted %d)",
			used, s.capacity, s.used, resident, s.resident, listed, s.idle())
	}
	return nil
}
