package kv

import (
	"fmt"
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/invariant"
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
// Several blocks may have one identity (copies). Lookup finds the oldest; when it is
// evicted the next takes its place.
//
// Memory follows the most blocks ever cached at once, about 24 bytes each where
// identities come in runs, at most 180 where no two are neighbours, 300 if some
// have copies as well, never the number of identities that exist.
type Pool struct {
	capacity int
	free     int
	private  int
	inactive int
	pages    pages
	rings    []ring // [slot], made for the first copy
	unused   int32  // first unused loose slot, chained by next; 0: none
	gains    uint64
	tracks   bool    // keep the slots of evicted blocks
	evicted  []int32 // by the latest Acquire
}

// NewPool returns a pool of capacity free blocks.
func NewPool(capacity int) *Pool {
	return &Pool{capacity: capacity, free: capacity, pages: pages{all: make([]page, 1)}}
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
// identity, an inactive block taken, a copy that steps in for an evicted one. While
// it stands still, the held hits of a prompt can only become fewer.
func (p *Pool) Gains() uint64 { return p.gains }

// TrackEvicted makes Evicted answer.
func (p *Pool) TrackEvicted() { p.tracks = true }

// Evicted are the slots whose blocks the latest Acquire gave to its caller, in order,
// as its last new ones.
func (p *Pool) Evicted() []int32 { return p.evicted }

// Find appends to slots the oldest copies of the n identities from id on, up to
// the first that has none.
func (p *Pool) Find(slots []int32, id BlockID, n int) []int32 {
	for n > 0 {
		at := p.pages.find(PageKey(id))
		pg, place := &p.pages.all[at], Place(id) // page 0 is empty
		own := at<<pageBits | place
		k := min(n, bits.TrailingZeros8(^(pg.cached >> place)))
		switch {
		case k > 0:
			for s := own; s < own+int32(k); s++ {
				slots = append(slots, s)
			}
		case pg.copied>>place&1 != 0:
			slots = append(slots, p.rings[own].newer)
			k = 1
		default:
			return slots
		}
		id, n = id+BlockID(k), n-k
	}
	return slots
}

// Held reports whether somebody holds the cached block at slot.
func (p *Pool) Held(slot int32) bool { return p.Holders(slot) > 0 }

// Holders is the number of holders of the cached block at slot.
func (p *Pool) Holders(slot int32) int {
	pg, place := p.pages.at(slot)
	return int(pg.refs[place])
}

// Acquire takes the cached blocks at prefix, as Find named them, and fresh private
// ones, evicting the oldest inactive blocks when free ones run out. It takes all
// or, answering false, nothing. Identities lost to eviction are one removed
// event; ev may be nil.
func (p *Pool) Acquire(prefix []int32, fresh int, ev *Events) bool {
	cold := 0
	for _, s := range prefix {
		if !p.Held(s) {
			cold++
		}
	}
	evict := max(0, fresh-p.free)
	p.evicted = p.evicted[:0]
	if evict > p.inactive-cold {
		return false
	}
	for _, s := range prefix {
		pg, place := p.pages.at(s)
		if pg.refs[place] == 0 {
			p.unlink(s)
		}
		pg.refs[place]++
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

// CanAcquire reports whether Acquire would succeed.
func (p *Pool) CanAcquire(prefix []int32, fresh int) bool {
	cold := 0
	for _, s := range prefix {
		if !p.Held(s) {
			cold++
		}
	}
	return max(0, fresh-p.free) <= p.inactive-cold
}

// Cache gives n private blocks of the caller the identities from id on and appends
// their slots. Those that are no Copy became visible to lookup by it.
func (p *Pool) Cache(slots []int32, id BlockID, n int) []int32 {
	before := len(slots)
	slots = p.CacheOwn(slots, id, n)
	for _, s := range slots[before:] {
		if !p.Copy(s) {
			p.gains++
			break
		}
	}
	return slots
}

// CacheOwn is Cache for blocks of generated tokens, which no waiting prompt can
// contain: they are no gain.
func (p *Pool) CacheOwn(slots []int32, id BlockID, n int) []int32 {
	if invariant.On && p.private < n {
		panic(fmt.Sprintf("kv: caching %d blocks from %x with %d private ones", n, uint64(id), p.private))
	}
	p.private -= n
	for n > 0 {
		key, place := PageKey(id), Place(id)
		at := p.pages.find(key)
		if at == 0 {
			at = p.pages.open(key)
		}
		pg, own := &p.pages.all[at], at<<pageBits|place
		k := min(n, PageSize-int(place), bits.TrailingZeros8((pg.cached|pg.copied)>>place))
		if k == 0 {
			slots = append(slots, p.copy(own))
			id, n = id+1, n-1
			continue
		}
		pg.cached |= uint8(1<<k-1) << place
		for i := range int32(k) {
			pg.refs[place+i] = 1
			slots = append(slots, own+i)
		}
		id, n = id+BlockID(k), n-k
	}
	return slots
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
	for i := len(held) - 1; i >= 0; {
		slot := held[i]
		pg, place := p.pages.at(slot)
		if pg.refs[place] > 1 {
			pg.refs[place]--
			i--
			continue
		}
		n := int32(0) // blocks downwards in the page that nobody else holds
		for i >= 0 && n <= place && held[i] == slot-n && pg.refs[place-n] <= 1 {
			if invariant.On && pg.refs[place-n] < 1 {
				panic(fmt.Sprintf("kv: slot %d released %d times too often", held[i], 1-pg.refs[place-n]))
			}
			pg.refs[place-n] = 0
			n++
			i--
		}
		p.appendInactive(slot, n)
		p.inactive += int(n)
	}
}
