package router

import "slices"

// lists keeps the holders of pages that have several, in rooms of powers of two
// inside one slice. Rooms that are given back are used again.
type lists struct {
	all  []holder
	free [25][]holder // [class] starts of unused rooms of 1 << class holders
}

// of is the list of a page with at least two holders.
func (l *lists) of(p *page) []holder { return l.all[p.at[0]:][:p.holders:p.holders] }

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

// insert makes h holder i of a page that is not dense.
func (l *lists) insert(p *page, i int, h holder) {
	n := p.holders
	p.holders++
	switch {
	case n == 0:
		p.at[0] = h
		return
	case n == 1:
		only := p.at[0]
		p.at[0], p.room = l.take(1), 1
		l.all[p.at[0]] = only
	case n == 1<<p.room:
		at := l.take(p.room + 1)
		copy(l.all[at:], l.all[p.at[0]:][:n])
		l.give(p.at[0], p.room)
		p.at[0], p.room = at, p.room+1
	}
	list := l.of(p)
	copy(list[i+1:], list[i:n])
	list[i] = h
}

// remove drops holder i of a page with at least two. A list that fills a quarter of
// its room moves to half of it.
func (l *lists) remove(p *page, i int) {
	list := l.of(p)
	copy(list[i:], list[i+1:])
	p.holders--
	switch n := p.holders; {
	case n == 1:
		only := list[0]
		l.give(p.at[0], p.room)
		p.at[0] = only
	case n == 1<<p.room/4:
		at := l.take(p.room - 1)
		copy(l.all[at:], l.all[p.at[0]:][:n])
		l.give(p.at[0], p.room)
		p.at[0], p.room = at, p.room-1
	}
}

// release gives back the room of a page's list.
func (l *lists) release(p *page) { l.give(p.at[0], p.room) }

func (l *lists) give(at holder, class uint8) { l.free[class] = append(l.free[class], at) }

// take returns the start of an unused room.
func (l *lists) take(class uint8) holder {
	if free := l.free[class]; len(free) > 0 {
		l.free[class] = free[:len(free)-1]
		return free[len(free)-1]
	}
	at := len(l.all)
	l.all = slices.Grow(l.all, 1<<class)[:at+1<<class]
	return holder(at)
}
