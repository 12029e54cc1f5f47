package router

import (
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// lead is a number of leading blocks, at least 1, that a slot holds.
type lead struct{ slot, blocks int32 }

// leads says how many leading blocks of a prompt each slot holds: the answer to a
// query of an index. Where many slots end at the same block they are not told one
// by one: a level is a number of blocks and the set of all slots that hold at least
// so many, so that each level's set contains the next one's. A slot's number is its
// own entry, else that of the last level that has it, else 0.
type leads struct {
	entries []lead   // each slot at most once
	depths  []int32  // [level] blocks, ascending
	words   int      // of a set
	sets    []uint64 // [level][word]
	own     []int32  // [slot] blocks of entries, else 0
}

// crowd is how many slots have to end at a block to make a level of it: a level
// costs a pass over its words, an entry one evaluation.
const crowd = 16

// reset forgets the answer and makes room for slots of so many words.
func (l *leads) reset(words int) {
	for _, e := range l.entries {
		l.own[e.slot] = 0
	}
	l.entries, l.depths, l.sets, l.words = l.entries[:0], l.depths[:0], l.sets[:0], words
	for len(l.own) < words*64 {
		l.own = append(l.own, 0)
	}
}

// put tells the number of one slot.
func (l *leads) put(slot, blocks int32) {
	l.entries = append(l.entries, lead{slot, blocks})
	l.own[slot] = blocks
}

// putAll tells that of every slot of a word.
func (l *leads) putAll(set uint64, word int, blocks int32) {
	for ; set != 0; set &= set - 1 {
		l.put(int32(word<<6+bits.TrailingZeros64(set)), blocks)
	}
}

// level adds a level.
func (l *leads) level(set []uint64, blocks int32) {
	l.depths = append(l.depths, blocks)
	l.sets = append(l.sets, set...)
}

// set returns the slots of a level.
func (l *leads) set(level int) []uint64 { return l.sets[level*l.words:][:l.words] }

// of returns how many leading blocks a slot holds.
func (l *leads) of(slot int32) int32 {
	if own := l.own[slot]; own > 0 || len(l.depths) == 0 {
		return own
	}
	for i := len(l.depths) - 1; i >= 0; i-- {
		if l.sets[i*l.words+int(slot>>6)]>>(slot&63)&1 != 0 {
			return l.depths[i]
		}
	}
	return 0
}

// most is the largest number among the slots of a set.
func (l *leads) most(among []uint64) int32 {
	best := int32(0)
	for _, e := range l.entries {
		if e.blocks > best && among[e.slot>>6]>>(e.slot&63)&1 != 0 {
			best = e.blocks
		}
	}
	for i := len(l.depths) - 1; i >= 0 && l.depths[i] > best; i-- {
		for w, set := range l.set(i) {
			if set&among[w] != 0 {
				return l.depths[i]
			}
		}
	}
	return best
}

// frozen is an answer that is kept.
type frozen struct {
	entries []lead
	depths  []int32
	words   int
	sets    []uint64
}

// freeze copies the answer to where f has room.
func (l *leads) freeze(f *frozen) {
	f.entries, f.depths = append(f.entries[:0], l.entries...), append(f.depths[:0], l.depths...)
	f.sets, f.words = append(f.sets[:0], l.sets...), l.words
}

// thaw makes the answer what it was, for slots of so many words, no fewer than then.
func (l *leads) thaw(f *frozen, words int) {
	l.reset(words)
	for _, e := range f.entries {
		l.put(e.slot, e.blocks)
	}
	l.depths = append(l.depths, f.depths...)
	for at := 0; at < len(f.sets); at += f.words {
		l.sets = append(l.sets, f.sets[at:at+f.words]...)
		for range words - f.words {
			l.sets = append(l.sets, 0)
		}
	}
}

// forget strips a slot, so that a rank that gets it later does not inherit.
func (f *frozen) forget(slot int32) {
	kept := f.entries[:0]
	for _, e := range f.entries {
		if e.slot != slot {
			kept = append(kept, e)
		}
	}
	f.entries = kept
	for at := int(slot >> 6); at < len(f.sets); at += f.words {
		f.sets[at] &^= 1 << (slot & 63)
	}
}

// match answers two questions: how many leading blocks of a prompt each slot
// announced as cached, without a gap, and how many are live on it. A question whose
// answer is nil is not asked.
func (x *index) match(prompt *kv.Prompt, blocks int32, cached, live *query) {
	if x.table.Len() == 0 {
		blocks = 0
	}
	walksCached, walksLive := cached.begin(x), live.begin(x)
	runs := pageRuns{prompt: prompt, end: blocks}
	for first, n := runs.next(); n > 0; first, n = runs.next() {
		number := x.table.Get(kv.PageKey(first))
		if number == 0 {
			break
		}
		p, place := &x.pages[number], kv.Place(first)
		walksCached = walksCached && cached.page(&p.cached, place, n)
		walksLive = walksLive && live.page(&p.live, place, n)
		if !walksCached && !walksLive {
			break
		}
	}
	cached.end()
	live.end()
}

// query walks a prompt and drops slots at their first gap. While many slots are
// left they are a bitset, then a list.
type query struct {
	leads
	index *index
	at    int32    // blocks walked; 0 also once all slots are told
	alive []uint64 // slots that hold all of them, unless few
	count int      // of alive
	few   bool     // list holds the slots instead
	list  []int32  // ascending
}

// begin starts a walk; false for nil.
func (q *query) begin(x *index) bool {
	if q == nil {
		return false
	}
	q.reset(x.words)
	q.index, q.at, q.few = x, 0, false
	return true
}

// page walks n blocks of a page from a place on; false if no slot is left.
func (q *query) page(p *holderSet, place, n int32) bool {
	switch {
	case p.holders == 0:
		return false
	case q.at == 0 && p.holders == dense:
		row := q.index.row(p) + int(place)*q.index.words
		q.alive = append(q.alive[:0], q.index.bits[row:row+q.index.words]...)
		q.count = 0
		for _, set := range q.alive {
			q.count += bits.OnesCount64(set)
		}
		if q.count == 0 {
			return false
		}
		q.at++
		return q.rows(p, place+1, n-1)
	case q.at == 0:
		q.list, q.few = q.list[:0], true
		for _, h := range q.index.of(p) {
			if h.blocks()>>place&1 != 0 {
				q.list = append(q.list, h.slot())
			}
		}
		return q.listed(p, place, n)
	case q.few:
		return q.listed(p, place, n)
	case p.holders == dense:
		return q.rows(p, place, n)
	}
	q.narrow(q.index.of(p), place)
	return q.listed(p, place, n)
}

// rows walks blocks of a dense page with a bitset.
func (q *query) rows(p *holderSet, place, n int32) bool {
	words := q.index.words
	at := q.index.row(p) + int(place)*words
	for ; n > 0; n-- {
		row, gone := q.index.bits[at:at+words], 0
		for w, alive := range q.alive {
			gone += bits.OnesCount64(alive &^ row[w])
		}
		if gone > 0 {
			q.leave(row, gone)
			if q.count == 0 {
				q.at = 0 // all are told
				return false
			}
		}
		q.at++
		at += words
	}
	if q.count < words { // a list of them costs less from here on
		q.few, q.list = true, q.list[:0]
		for w, set := range q.alive {
			for ; set != 0; set &= set - 1 {
				q.list = append(q.list, int32(w<<6+bits.TrailingZeros64(set)))
			}
		}
	}
	return true
}

// leave tells the slots that are not in a row, so many, and drops them.
func (q *query) leave(row []uint64, gone int) {
	if gone > crowd {
		q.level(q.alive, q.at)
	}
	for w, alive := range q.alive {
		if gone <= crowd {
			q.putAll(alive&^row[w], w, q.at)
		}
		q.alive[w] = alive & row[w]
	}
	q.count -= gone
}

// narrow goes from a bitset to the list of those slots that also hold the block of
// a place; the others end before it.
func (q *query) narrow(holders []holder, place int32) {
	q.few, q.list = true, q.list[:0]
	for _, h := range holders {
		if slot := h.slot(); h.blocks()>>place&1 != 0 && q.alive[slot>>6]>>(slot&63)&1 != 0 {
			q.list = append(q.list, slot)
		}
	}
	gone := q.count - len(q.list)
	if gone > crowd {
		q.level(q.alive, q.at)
		return
	}
	for _, slot := range q.list {
		q.alive[slot>>6] &^= 1 << (slot & 63)
	}
	for w, set := range q.alive {
		q.putAll(set, w, q.at)
	}
}

// listed walks blocks of a page with a list.
func (q *query) listed(p *holderSet, place, n int32) bool {
	if p.holders > 1 {
		return q.merged(q.index.of(p), place, n)
	}
	left := q.list[:0]
	for _, slot := range q.list {
		if q.lasts(slot, q.index.held(p, slot)>>place, n) {
			left = append(left, slot)
		}
	}
	q.list = left
	q.at += n
	return len(left) > 0
}

// merged is listed beside a list of holders: both go up by slot.
func (q *query) merged(holders []holder, place, n int32) bool {
	left, i := q.list[:0], 0
	for _, slot := range q.list {
		if len(holders) > 8*len(q.list) {
			at, _ := search(holders[i:], slot)
			i += at
		}
		for i < len(holders) && holders[i].slot() < slot {
			i++
		}
		blocks := uint8(0)
		if i < len(holders) && holders[i].slot() == slot {
			blocks = holders[i].blocks()
		}
		if q.lasts(slot, blocks>>place, n) {
			left = append(left, slot)
		}
	}
	q.list = left
	q.at += n
	return len(left) > 0
}

// lasts reports whether a slot that holds blocks, as bits from the one in turn on,
// holds the next n; else it is told.
func (q *query) lasts(slot int32, blocks uint8, n int32) bool {
	lead := int32(bits.TrailingZeros8(^blocks))
	if lead < n && q.at+lead > 0 {
		q.put(slot, q.at+lead)
	}
	return lead >= n
}

// end tells the slots that are left.
func (q *query) end() {
	switch {
	case q == nil || q.at == 0:
	case q.few:
		for _, slot := range q.list {
			q.put(slot, q.at)
		}
	case q.count > crowd:
		q.level(q.alive, q.at)
	default:
		for w, set := range q.alive {
			q.putAll(set, w, q.at)
		}
	}
}
