package kv

import (
	"fmt"

	"dynosweep/sim/invariant"
)

// Pool is the block supply of one rank of a paged engine (spec engine-vllm 4). A
// block is free, private (owned, without identity) or cached (it has an identity);
// a cached block that nobody holds is inactive and waits in LRU order to be found
// again or evicted. At all times
//
//	capacity = free + private + cached held + inactive
//
// Only cached blocks have a slot, named by a positive int32; private ones are
// counted. A holder keeps the slots of its cached blocks and the number of its
// private ones, and gives them back with Release.
//
// Several blocks may have one identity (copies). Lookup finds the oldest; when it
// is evicted the next takes its place. Memory follows the most blocks ever cached
// at once, about 50 bytes each where identities come in runs, at most 120 where no
// two are neighbours, never the number of identities that exist.
type Pool struct {
	capacity int
	free     int
	private  int
	inactive int
	blocks   []block // [slot]; slot 0 is the sentinel of the LRU list
	spare    int32   // first unused slot, chained by next; 0: none
	index    index
	gains    uint64
}

// block is a cached block. Held blocks are in no LRU list.
type block struct {
	id           BlockID
	refs         int32
	prev, next   int32 // LRU neighbours, oldest after the sentinel; next also chains spares
	older, newer int32 // copies in a ring, the oldest one's older is the newest
}

// NewPool returns a pool of capacity free blocks.
func NewPool(capacity int) *Pool {
	return &Pool{capacity: capacity, free: capacity, blocks: make([]block, 1), index: index{pages: make([]page, 1)}}
}

// Capacity is the number of blocks, whatever their state.
func (p *Pool) Capacity() int { return p.capacity }

// Active is the number of blocks that somebody holds.
func (p *Pool) Active() int { return p.capacity - p.free - p.inactive }

// Inactive is the number of cached blocks that nobody holds.
func (p *Pool) Inactive() int { return p.inactive }

// Free is the number of blocks without content.
func (p *Pool) Free() int { return p.free }

// Gains counts the changes that can let a lookup find more held blocks: a new
// identity, an inactive block taken, a copy that steps in for an evicted one. While it stands
// still, the held hits of a prompt can only become fewer.
func (p *Pool) Gains() uint64 { return p.gains }

// Find returns the slot of the oldest copy of id, 0 if there is none.
func (p *Pool) Find(id BlockID) int32 { return p.index.find(id) }

// Held reports whether somebody holds the cached block at slot.
func (p *Pool) Held(slot int32) bool { return p.blocks[slot].refs > 0 }

// Holders is the number of holders of the cached block at slot.
func (p *Pool) Holders(slot int32) int { return int(p.blocks[slot].refs) }

// Acquire takes the cached blocks at prefix, as Find named them, and fresh private
// ones, evicting the oldest inactive blocks when free ones run out. It takes all
// or, answering false, nothing. Identities lost to eviction are one removed
// event; ev may be nil.
func (p *Pool) Acquire(prefix []int32, fresh int, ev *Events) bool {
	cold := 0
	for _, s := range prefix {
		if p.blocks[s].refs == 0 {
			cold++
		}
	}
	evict := max(0, fresh-p.free)
	if evict > p.inactive-cold {
		return false
	}
	for _, s := range prefix {
		if p.blocks[s].refs == 0 {
			p.unlink(s)
		}
		p.blocks[s].refs++
	}
	if cold > 0 {
		p.gains++
		p.inactive -= cold
	}
	p.free -= fresh - evict
	p.private += fresh
	if evict > 0 {
		p.evict(evict, ev)
	}
	return true
}

// Cache gives a private block of the caller the identity id and returns its slot,
// and whether id became visible to lookup by it.
func (p *Pool) Cache(id BlockID) (slot int32, visible bool) {
	slot, visible = p.CacheOwn(id)
	if visible {
		p.gains++
	}
	return slot, visible
}

// CacheOwn is Cache for a block of generated tokens, which no waiting prompt can
// contain: it is no gain.
func (p *Pool) CacheOwn(id BlockID) (slot int32, visible bool) {
	if invariant.On && p.private <= 0 {
		panic(fmt.Sprintf("kv: caching %x without a private block", uint64(id)))
	}
	p.private--
	slot = p.spare
	if slot != 0 {
		p.spare = p.blocks[slot].next
	} else {
		slot = int32(len(p.blocks))
		if len(p.blocks) == cap(p.blocks) {
			// Doubled, but never beyond what the pool can hold.
			more := make([]block, len(p.blocks), min(max(16, 2*len(p.blocks)), p.capacity+1))
			copy(more, p.blocks)
			p.blocks = more
		}
		p.blocks = append(p.blocks, block{})
	}
	b := &p.blocks[slot]
	*b = block{id: id, refs: 1, older: slot, newer: slot}
	first := p.index.insert(id, slot)
	if first == slot {
		return slot, true
	}
	last := p.blocks[first].older
	b.older, b.newer = last, first
	p.blocks[last].newer, p.blocks[first].older = slot, slot
	return slot, false
}

// Release gives back private blocks, which become free, and the cached blocks
// held, from the last to the first; those that nobody else holds become the
// youngest inactive ones in that order.
func (p *Pool) Release(held []int32, private int) {
	if invariant.On && private > p.private {
		panic(fmt.Sprintf("kv: releasing %d private blocks of %d", private, p.private))
	}
	p.private -= private
	p.free += private
	for i := len(held) - 1; i >= 0; i-- {
		s := held[i]
		b := &p.blocks[s]
		if b.refs--; b.refs > 0 {
			continue
		}
		if invariant.On && b.refs < 0 {
			panic(fmt.Sprintf("kv: block %x released %d times too often", uint64(b.id), -b.refs))
		}
		newest := p.blocks[0].prev
		b.prev, b.next = newest, 0
		p.blocks[newest].next, p.blocks[0].prev = s, s
		p.inactive++
	}
}

// evict takes the n oldest inactive blocks away.
func (p *Pool) evict(n int, ev *Events) {
	opened := false
	s := p.blocks[0].next
	for range n {
		b := &p.blocks[s]
		next := b.next
		switch {
		case b.older == s:
			p.index.remove(b.id, s)
			if ev != nil {
				if !opened {
					ev.BeginRemoved()
					opened = true
				}
				ev.Add(b.id)
			}
		default:
			if p.index.replace(b.id, s, b.newer) {
				p.gains++
			}
			p.blocks[b.older].newer, p.blocks[b.newer].older = b.newer, b.older
		}
		b.next = p.spare
		p.spare, s = s, next
	}
	p.blocks[0].next, p.blocks[s].prev = s, 0
	p.inactive -= n
}

// unlink takes slot s out of the LRU list.
func (p *Pool) unlink(s int32) {
	b := &p.blocks[s]
	p.blocks[b.prev].next = b.next
	p.blocks[b.next].prev = b.prev
}
