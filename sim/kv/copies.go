package kv

// ring joins the blocks of one identity. The first has the identity's own slot, later
// ones a loose slot each. The own slot is the anchor even when its block is gone, and
// gets none again before the last copy is: the oldest copy is the anchor's newer,
// the newest its older.
type ring struct {
	older, newer int32
	anchor       int32
}

// Copy reports that the block at slot was cached when its identity had one already.
func (p *Pool) Copy(slot int32) bool { return p.pages.all[slot>>pageBits].loose }

// copy returns a loose slot for one more block of the identity whose own slot is
// anchor, with one holder.
func (p *Pool) copy(anchor int32) int32 {
	if p.unused == 0 {
		n := p.pages.allocate(page{loose: true})
		pg := &p.pages.all[n]
		for place := range int32(PageSize) {
			pg.links[place].next, p.unused = p.unused, n<<pageBits|place
		}
	}
	s := p.unused
	pg, place := p.pages.at(s)
	p.unused = pg.links[place].next
	pg.cached |= 1 << place
	pg.refs[place] = 1
	if need := len(p.pages.all) * PageSize; len(p.rings) < need {
		p.rings = append(p.rings, make([]ring, max(need, cap(p.pages.all)*PageSize)-len(p.rings))...)
	}
	home, at := p.pages.at(anchor)
	if home.copied>>at&1 == 0 {
		home.copied |= 1 << at
		p.rings[anchor] = ring{older: anchor, newer: anchor}
	}
	newest := p.rings[anchor].older
	p.rings[s] = ring{older: newest, newer: anchor, anchor: anchor}
	p.rings[newest].newer, p.rings[anchor].older = s, s
	return s
}

// dropBlock takes the block of slot s away, which is in no LRU run, one copy among
// others perhaps. It returns its identity and whether that has no block any more.
func (p *Pool) dropBlock(s int32) (id BlockID, last bool) {
	pg, place := p.pages.at(s)
	own, found := s, true
	if pg.loose {
		r := p.rings[s]
		own, found = r.anchor, p.rings[r.anchor].newer == s
		p.rings[r.older].newer, p.rings[r.newer].older = r.newer, r.older
		pg.cached &^= 1 << place
		pg.links[place].next, p.unused = p.unused, s
		pg, place = p.pages.at(own)
		if p.rings[own].newer == own {
			pg.copied &^= 1 << place
		}
		found = found && pg.cached>>place&1 == 0
	} else {
		pg.cached &^= 1 << place
	}
	id = p.pages.id(own)
	switch {
	case (pg.cached|pg.copied)>>place&1 == 0:
		if pg.cached|pg.copied == 0 {
			p.pages.close(own >> pageBits)
		}
		return id, true
	case found:
		p.gains++ // the next copy steps in
	}
	return id, false
}
