package kv

import (
	"fmt"
	"slices"
	"strings"
)

// String prints what later calls can depend on: the counts, the inactive blocks
// from the oldest, and the holders of every copy, oldest first, by identity.
func (p *Pool) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "capacity %d free %d private %d inactive %d\nlru", p.capacity, p.free, p.private, p.inactive)
	for s := p.blocks[0].next; s != 0; s = p.blocks[s].next {
		fmt.Fprintf(&b, " %x", uint64(p.blocks[s].id))
	}
	var lines []string
	for _, first := range p.index.slots() {
		line := fmt.Sprintf("\n%016x:", uint64(p.blocks[first].id))
		for s := first; ; {
			line += fmt.Sprint(" ", p.blocks[s].refs)
			if s = p.blocks[s].newer; s == first {
				break
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return b.String() + strings.Join(lines, "") + "\n"
}

// Check returns the first broken law of the pool.
func (p *Pool) Check() error {
	lru := 0
	for s, before := p.blocks[0].next, int32(0); s != 0; before, s = s, p.blocks[s].next {
		if b := &p.blocks[s]; b.refs != 0 || b.prev != before {
			return fmt.Errorf("kv: slot %d in the LRU list has %d holders, neighbour %d, want 0 and %d", s, b.refs, b.prev, before)
		}
		lru++
	}
	unused := make([]bool, len(p.blocks))
	unused[0] = true
	for s := p.spare; s != 0; s = p.blocks[s].next {
		unused[s] = true
	}
	cached, firsts := 0, 0
	for s := int32(1); int(s) < len(p.blocks); s++ {
		if unused[s] {
			continue
		}
		cached++
		b := &p.blocks[s]
		if p.blocks[b.newer].older != s || p.blocks[b.older].newer != s || p.blocks[b.newer].id != b.id {
			return fmt.Errorf("kv: ring of copies broken at slot %d (id %x)", s, uint64(b.id))
		}
		switch first := p.Find(b.id); {
		case first == 0 || p.blocks[first].id != b.id:
			return fmt.Errorf("kv: id %x of slot %d is not in the index (found slot %d)", uint64(b.id), s, first)
		case first == s:
			firsts++
		}
	}
	switch {
	case lru != p.inactive:
		return fmt.Errorf("kv: %d blocks in the LRU list, %d inactive", lru, p.inactive)
	case firsts != len(p.index.slots()):
		return fmt.Errorf("kv: %d identities, %d in the index", firsts, len(p.index.slots()))
	case p.free < 0 || p.private < 0 || p.free+p.private+cached != p.capacity:
		return fmt.Errorf("kv: %d free + %d private + %d cached blocks, capacity %d", p.free, p.private, cached, p.capacity)
	}
	return nil
}

// slots lists what the index holds, page by page.
func (x *index) slots() []int32 {
	var out []int32
	for _, c := range x.cells {
		if c.page == 0 {
			continue
		}
		for _, s := range x.pages[c.page].slots {
			if s != 0 {
				out = append(out, s)
			}
		}
	}
	return out
}
