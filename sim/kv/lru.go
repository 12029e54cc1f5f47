package kv

import "math/bits"

// What is used together becomes inactive together, so the LRU list of a pool joins
// runs instead of blocks: places of one page, downwards, that became inactive one
// after the other. A run is named by its head, its oldest block.

// evict takes the n oldest inactive blocks away, run by run.
func (p *Pool) evict(n int, ev *Events) {
	p.inactive -= n
	if ev != nil {
		ev.BeginRemoved()
	}
	for n > 0 {
		head := p.link(0).next
		pg, top := p.pages.at(head)
		k := min(int32(n), int32(pg.length[top]))
		n -= int(k)
		p.shorten(head, k)
		if p.tracks {
			for s := head; s > head-k; s-- {
				p.evicted = append(p.evicted, s)
			}
		}
		places := uint8(1<<(top+1) - 1<<(top+1-k))
		if pg.loose || pg.copied&places != 0 {
			for s := head; s > head-k; s-- {
				if id, last := p.dropBlock(s); last && ev != nil {
					ev.Add(id)
				}
			}
			continue
		}
		if ev != nil {
			for s := head; s > head-k; s-- {
				ev.Add(p.pages.id(s))
			}
		}
		if pg.cached &^= places; pg.cached|pg.copied == 0 {
			p.pages.close(head >> pageBits)
		}
	}
	if ev != nil {
		ev.dropEmpty()
	}
}

// appendInactive makes the n blocks of a page from s downwards the youngest inactive
// ones, s the oldest of them.
func (p *Pool) appendInactive(s, n int32) {
	sentinel := p.link(0)
	head := sentinel.prev
	if pg, top := p.pages.at(head); head>>pageBits == s>>pageBits && s == head-int32(pg.length[top]) {
		pg.length[top] += int8(n)
		return
	}
	pg, place := p.pages.at(s)
	pg.heads |= 1 << place
	pg.length[place] = int8(n)
	pg.links[place] = link{prev: head}
	p.link(head).next, sentinel.prev = s, s
}

// unlink takes slot s out of the LRU list.
func (p *Pool) unlink(s int32) {
	pg, place := p.pages.at(s)
	above := int32(bits.TrailingZeros8(pg.heads >> place))
	if above == 0 {
		p.shorten(s, 1)
		return
	}
	top := place + above
	below := pg.length[top] - int8(above) - 1
	pg.length[top] = int8(above)
	if below == 0 {
		return
	}
	l := &pg.links[top]
	pg.heads |= 1 << (place - 1)
	pg.length[place-1] = below
	pg.links[place-1] = link{prev: s + above, next: l.next}
	p.link(l.next).prev, l.next = s-1, s-1
}

// shorten takes the n oldest blocks from the LRU run at head.
func (p *Pool) shorten(head, n int32) {
	pg, top := p.pages.at(head)
	l := pg.links[top]
	pg.heads &^= 1 << top
	rest := pg.length[top] - int8(n)
	if rest == 0 {
		p.link(l.prev).next, p.link(l.next).prev = l.next, l.prev
		return
	}
	pg.heads |= 1 << (top - n)
	pg.length[top-n], pg.links[top-n] = rest, l
	p.link(l.prev).next, p.link(l.next).prev = head-n, head-n
}

// link returns the neighbours of the LRU run whose head is slot s.
func (p *Pool) link(s int32) *link {
	pg, place := p.pages.at(s)
	return &pg.links[place]
}
