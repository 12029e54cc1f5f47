package workload

import "math"

// sessions is the session driver (spec workload 3.2, 3.3): at most one turn of a
// session is in flight, the next one becomes ready its delay after the end of the
// one before. In closed loop so many sessions are active at once, think times
// included, and first turns ignore the clock of the trace.
type sessions struct {
	feed        feed
	concurrency int // closed loop; 0: open
	slots       slots
	ready       turnHeap   // turns whose time is known, but for the head
	head        sessionRef // open loop: the first session not yet started, if more
	headMs      float64
	more        bool
	unready     int64 // turns in flight that another turn will follow
}

var _ Source = (*sessions)(nil)

func newSessions(f feed, concurrency int) *sessions {
	d := &sessions{feed: f, concurrency: concurrency}
	d.advance()
	for range concurrency {
		if !d.more {
			break
		}
		d.activate(0)
	}
	return d
}

func (d *sessions) advance() { d.head, d.headMs, d.more = d.feed.next() }

// activate makes the first turn of the next pending session ready, if there is one.
func (d *sessions) activate(atMs float64) {
	if d.more {
		d.ready.push(turnEntry{readyMs: atMs, ref: d.head})
		d.advance()
	}
}

// headFirst reports whether the next session starts before every ready turn.
func (d *sessions) headFirst() bool {
	if !d.more || d.concurrency > 0 {
		return false
	}
	return len(d.ready) == 0 || turnEntry{readyMs: d.headMs, ref: d.head}.before(d.ready[0])
}

func (d *sessions) NextMs() float64 {
	switch {
	case d.headFirst():
		return d.headMs
	case len(d.ready) > 0:
		return d.ready[0].readyMs
	}
	return math.Inf(1)
}

func (d *sessions) BeginRelease(float64, int) {}

func (d *sessions) Next(nowMs float64) *Request {
	if d.NextMs() > nowMs {
		return nil
	}
	var e turnEntry
	if d.headFirst() {
		e = turnEntry{readyMs: d.headMs, ref: d.head}
		d.advance()
	} else {
		e = d.ready.pop()
	}
	s := d.slots.take(e.ref, e.turn, e.readyMs)
	d.feed.fill(&s.Request, e.ref, e.turn)
	if e.turn+1 < d.feed.turns(e.ref) {
		d.unready++
	}
	return &s.Request
}

func (d *sessions) Done(handle int32, nowMs float64, emitted int32, how Outcome) {
	s := d.slots.put(handle)
	d.feed.ended(s.ref, s.turn, emitted, how)
	next := s.turn + 1
	last := next == d.feed.turns(s.ref)
	if !last {
		d.unready--
	}
	if !last && how != Failed {
		d.ready.push(turnEntry{readyMs: nowMs + d.feed.delayMs(s.ref, next), ref: s.ref, turn: next})
		return
	}
	if d.concurrency > 0 {
		d.activate(nowMs)
	}
}

func (d *sessions) Names(handle int32) Names {
	s := d.slots.At(handle)
	return d.feed.names(s.ref, s.turn)
}

func (d *sessions) Flush(float64)    {}
func (d *sessions) Drained() bool    { return !d.more && len(d.ready) == 0 && d.unready == 0 }
func (d *sessions) ClosedLoop() bool { return d.concurrency > 0 }

// turnEntry is a turn that becomes ready. Ties go by session, then turn.
type turnEntry struct {
	readyMs float64
	ref     sessionRef
	turn    int32
}

func (a turnEntry) before(b turnEntry) bool {
	if a.readyMs != b.readyMs {
		return a.readyMs < b.readyMs
	}
	if a.ref.index != b.ref.index {
		return a.ref.index < b.ref.index
	}
	return a.turn < b.turn
}

// turnHeap is a binary heap, earliest first.
type turnHeap []turnEntry

func (h *turnHeap) push(e turnEntry) {
	s := append(*h, e)
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = e
	*h = s
}

func (h *turnHeap) pop() turnEntry {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) > 0 {
		s.sift(0, last)
	}
	return top
}

// sift puts e at i or below.
func (h turnHeap) sift(i int, e turnEntry) {
	for {
		low := 2*i + 1
		if low >= len(h) {
			break
		}
		if low+1 < len(h) && h[low+1].before(h[low]) {
			low++
		}
		if !h[low].before(e) {
			break
		}
		h[i] = h[low]
		i = low
	}
	h[i] = e
}
