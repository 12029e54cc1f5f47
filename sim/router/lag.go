package router

import "github.com/dynosweep/dynosweep/sim/kv"

// lagged is a batch of one rank's events on its way to the index.
type lagged struct {
	visibleMs float64
	slot      int32 // -1: its worker was removed
	events    kv.Events
}

// lagQueue holds the events that engines announced and the index does not see yet,
// in order of announcement. Cells and their buffers are used in rotation.
type lagQueue struct {
	ring []lagged // power of two
	head int
	size int
}

// push copies the events.
func (l *lagQueue) push(visibleMs float64, slot int32, ev *kv.Events) {
	if l.size == len(l.ring) {
		ring := make([]lagged, max(16, 2*len(l.ring)))
		for i := range l.size {
			ring[i] = *l.at(i)
		}
		l.ring, l.head = ring, 0
	}
	l.size++
	b := l.at(l.size - 1)
	b.visibleMs, b.slot = visibleMs, slot
	b.events.Items = append(b.events.Items[:0], ev.Items...)
	b.events.Blocks = append(b.events.Blocks[:0], ev.Blocks...)
}

func (l *lagQueue) at(i int) *lagged { return &l.ring[(l.head+i)&(len(l.ring)-1)] }

// due takes out the oldest batch if it is visible at nowMs, else returns nil. The
// batch lives until the next push.
func (l *lagQueue) due(nowMs float64) *lagged {
	if l.size == 0 || l.at(0).visibleMs > nowMs {
		return nil
	}
	b := l.at(0)
	l.head = (l.head + 1) & (len(l.ring) - 1)
	l.size--
	return b
}

// forget drops the batches of a slot.
func (l *lagQueue) forget(slot int32) {
	for i := range l.size {
		if b := l.at(i); b.slot == slot {
			b.slot = -1
		}
	}
}
