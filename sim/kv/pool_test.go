package kv

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// slowPool is the pool of spec engine-vllm 4 written with maps and scans.
type slowPool struct {
	capacity, free, private int
	copies                  map[BlockID][]*slowBlock
	lru                     []*slowBlock
	removed                 []BlockID
}

type slowBlock struct {
	id   BlockID
	refs int
}

func (p *slowPool) acquire(prefix []*slowBlock, fresh int) bool {
	evict := max(0, fresh-p.free)
	cold := 0
	for _, b := range prefix {
		if b.refs == 0 {
			cold++
		}
	}
	if evict > len(p.lru)-cold {
		return false
	}
	for _, b := range prefix {
		b.refs++
		p.lru = slices.DeleteFunc(p.lru, func(o *slowBlock) bool { return o == b })
	}
	p.free -= fresh - evict
	for range evict {
		b := p.lru[0]
		p.lru = p.lru[1:]
		left := slices.DeleteFunc(p.copies[b.id], func(o *slowBlock) bool { return o == b })
		if p.copies[b.id] = left; len(left) == 0 {
			delete(p.copies, b.id)
			p.removed = append(p.removed, b.id)
		}
	}
	p.private += fresh
	return true
}

func (p *slowPool) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "capacity %d free %d private %d inactive %d\nlru", p.capacity, p.free, p.private, len(p.lru))
	for _, k := range p.lru {
		fmt.Fprintf(&b, " %x", uint64(k.id))
	}
	var ids []BlockID
	for id := range p.copies {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		fmt.Fprintf(&b, "\n%016x:", uint64(id))
		for _, k := range p.copies[id] {
			fmt.Fprint(&b, " ", k.refs)
		}
	}
	return b.String() + "\n"
}

// lease is the same holding in both pools.
type lease struct {
	slots   []int32
	blocks  []*slowBlock
	private int
}

func TestPoolEqualsItsDefinition(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		capacity := 1 + rng.IntN(80)
		fast := NewPool(capacity)
		slow := &slowPool{capacity: capacity, free: capacity, copies: map[BlockID][]*slowBlock{}}
		var ev Events
		var leases []*lease
		ids := 1 + rng.IntN(100)
		for step := range 400 {
			switch op := rng.IntN(4); {
			case op < 2:
				l := new(lease)
				for range rng.IntN(3) {
					id := BlockID(rng.IntN(ids)) << (rng.IntN(2) * 40)
					for i, s := range fast.Find(nil, id, 1+rng.IntN(20)) {
						if !slices.Contains(l.slots, s) {
							l.slots, l.blocks = append(l.slots, s), append(l.blocks, slow.copies[id+BlockID(i)][0])
						}
					}
				}
				l.private = rng.IntN(8)
				got, want := fast.Acquire(l.slots, l.private, &ev), slow.acquire(l.blocks, l.private)
				if got != want {
					t.Fatalf("seed %d step %d: acquire %v, want %v", seed, step, got, want)
				}
				if got {
					leases = append(leases, l)
				}
			case len(leases) == 0:
			case op == 2:
				l := leases[rng.IntN(len(leases))]
				if l.private == 0 {
					break
				}
				n := 1 + rng.IntN(l.private)
				l.private -= n
				first := BlockID(rng.IntN(ids)) << (rng.IntN(2) * 40)
				l.slots = fast.Cache(l.slots, first, n)
				for i, slot := range l.slots[len(l.slots)-n:] {
					id, b := first+BlockID(i), &slowBlock{first + BlockID(i), 1}
					if fast.Copy(slot) != (len(slow.copies[id]) > 0) {
						t.Fatalf("seed %d step %d: a copy: %v", seed, step, fast.Copy(slot))
					}
					slow.copies[id] = append(slow.copies[id], b)
					l.blocks = append(l.blocks, b)
				}
				slow.private -= n
			default:
				i := rng.IntN(len(leases))
				l := leases[i]
				leases = slices.Delete(leases, i, i+1)
				fast.Release(l.slots, l.private)
				slow.free += l.private
				slow.private -= l.private
				for _, b := range slices.Backward(l.blocks) {
					if b.refs--; b.refs == 0 {
						slow.lru = append(slow.lru, b)
					}
				}
			}
			if got, want := fast.String(), slow.String(); got != want {
				t.Fatalf("seed %d step %d:\n%s\nwant\n%s", seed, step, got, want)
			}
			if err := fast.Check(); err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
		}
		if !slices.Equal(ev.Blocks, slow.removed) {
			t.Fatalf("seed %d: removed %x, want %x", seed, ev.Blocks, slow.removed)
		}
	}
}

func TestAnAcquireIsOneRemovedEvent(t *testing.T) {
	p := NewPool(4)
	p.Acquire(nil, 4, nil)
	p.Release(p.Cache(nil, 0, 4), 0)
	var ev Events
	p.Acquire(nil, 3, &ev)
	if len(ev.Items) != 1 || ev.Items[0].Stored || !slices.Equal(ev.BlocksOf(ev.Items[0]), []BlockID{3, 2, 1}) {
		t.Errorf("events %+v, want one that removes 3, 2, 1", ev)
	}
}

func TestGainsStandStillWhileHitsCanOnlyBeLost(t *testing.T) {
	p := NewPool(4)
	p.Acquire(nil, 4, nil)
	p.Release(p.CacheOwn(nil, 7, 1), 2)
	before := p.Gains()
	p.Acquire(nil, 2, nil)
	p.CacheOwn(nil, 8, 1)
	p.Acquire(nil, 1, nil) // evicts 7
	if found := p.Find(nil, 7, 1); len(found) > 0 || p.Gains() != before {
		t.Errorf("7 at slots %v, gains %d, want none and %d", found, p.Gains(), before)
	}
	p.Cache(nil, 9, 1)
	if p.Gains() == before {
		t.Error("a new identity is no gain")
	}
}

func TestFullPoolOfDefaultSizeTakesLittleMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  int
		copies int // of the last identity
		id     func(i int) BlockID
	}{
		{"trace blocks of 8", 400_000, 0, func(i int) BlockID { return BlockID(i) }},
		{"no two blocks of one owner", 3_000_000, 0, func(i int) BlockID { return PrivateBase(int64(i)) }},
		{"the same and a copy", 4_900_000, 1, func(i int) BlockID { return PrivateBase(int64(i)) }},
		{"one block and its copies", 600_000, 16383, func(int) BlockID { return 0 }},
	} {
		p := NewPool(16384)
		p.Acquire(nil, 16384, nil)
		for i := range 16384 {
			p.Cache(nil, c.id(min(i, 16383-c.copies)), 1)
		}
		size := cap(p.pages.all)*int(unsafe.Sizeof(page{})) + len(p.pages.table.cells)*int(unsafe.Sizeof(cell{})) +
			cap(p.rings)*int(unsafe.Sizeof(ring{}))
		if size > c.limit {
			t.Errorf("%s: %d bytes, want at most %d", c.name, size, c.limit)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	p := NewPool(16384)
	p.Acquire(nil, 16384, nil)
	p.Cache(nil, 0, 16384)
	slots := make([]int32, 0, 8)
	for i := range b.N {
		slots = p.Find(slots[:0], BlockID(i*8&16383), 8)
	}
}
