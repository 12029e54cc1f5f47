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
	for h := p.link(0).next; h != 0; h = p.link(h).next {
		pg, top := p.pages.at(h)
		for s := h; s > h-int32(pg.length[top]); s-- {
			fmt.Fprintf(&b, " %x", uint64(p.identity(s)))
		}
	}
	var lines []string
	for s := int32(PageSize); int(s) < len(p.pages.all)*PageSize; s++ {
		copies := p.copies(s)
		if len(copies) == 0 {
			continue
		}
		line := fmt.Sprintf("\n%016x:", uint64(p.pages.id(s)))
		for _, c := range copies {
			line += fmt.Sprint(" ", p.Holders(c))
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return b.String() + strings.Join(lines, "") + "\n"
}

// identity returns the identity of the block at slot s, loose or not.
func (p *Pool) identity(s int32) BlockID {
	if pg, _ := p.pages.at(s); pg.loose {
		s = p.rings[s].anchor
	}
	return p.pages.id(s)
}

// copies returns the slots of the identity whose own slot is s, the oldest first;
// none for a loose slot.
func (p *Pool) copies(s int32) (out []int32) {
	pg, place := p.pages.at(s)
	if pg.loose {
		return nil
	}
	if pg.cached>>place&1 != 0 {
		out = append(out, s)
	}
	if pg.copied>>place&1 != 0 {
		for c := p.rings[s].newer; c != s; c = p.rings[c].newer {
			out = append(out, c)
		}
	}
	return out
}

// Check returns the first broken law of the pool.
func (p *Pool) Check() error {
	cached := 0
	for n := range p.pages.all {
		for place := range int32(PageSize) {
			s := int32(n)<<pageBits | place
			for _, c := range p.copies(s) {
				if pg, _ := p.pages.at(c); c != s && (!pg.loose || p.rings[c].anchor != s) {
					return fmt.Errorf("kv: slot %d is among the copies of slot %d (id %x), anchor %d", c, s, uint64(p.pages.id(s)), p.rings[c].anchor)
				}
				cached++
			}
		}
		if err := p.checkPage(int32(n)); err != nil {
			return err
		}
	}
	inactive := 0
	for h, before := p.link(0).next, int32(0); h != 0; before, h = h, p.link(h).next {
		pg, top := p.pages.at(h)
		if pg.heads>>top&1 == 0 || pg.links[top].prev != before {
			return fmt.Errorf("kv: slot %d in the LRU list: head %v, neighbour %d, want %d", h, pg.heads>>top&1 != 0, pg.links[top].prev, before)
		}
		inactive += int(pg.length[top])
	}
	switch {
	case inactive != p.inactive:
		return fmt.Errorf("kv: %d blocks in the LRU list, %d inactive", inactive, p.inactive)
	case p.free < 0 || p.private < 0 || p.free+p.private+cached != p.capacity:
		return fmt.Errorf("kv: %d free + %d private + %d cached blocks, capacity %d", p.free, p.private, cached, p.capacity)
	}
	return nil
}

// checkPage checks what page n says of itself.
func (p *Pool) checkPage(n int32) error {
	pg := &p.pages.all[n]
	if n == 0 || pg.cached|pg.copied == 0 {
		return nil
	}
	if found := p.pages.find(pg.key); !pg.loose && found != n {
		return fmt.Errorf("kv: page %d of key %x is not in the index (found %d)", n, pg.key, found)
	}
	var idle uint8 // places in LRU runs
	for top := range PageSize {
		if pg.heads>>top&1 == 0 {
			continue
		}
		for place := top; place > top-int(pg.length[top]); place-- {
			if place < 0 || idle>>place&1 != 0 || pg.cached>>place&1 == 0 {
				return fmt.Errorf("kv: page %d: run of %d at %d, cached %b, in other runs %b", n, pg.length[top], top, pg.cached, idle)
			}
			idle |= 1 << place
		}
	}
	for place, refs := range pg.refs {
		if held := refs > 0; pg.cached>>place&1 != 0 && held == (idle>>place&1 != 0) {
			return fmt.Errorf("kv: page %d place %d has %d holders, in an LRU run: %v", n, place, refs, !held)
		}
	}
	return nil
}
