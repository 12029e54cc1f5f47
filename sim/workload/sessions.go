package workload

import "math"

// sessions is the session driver (spec workload 3.2, 3.3): at most one turn of a
// session is in flight, the next one becomes ready its delay after the end of the
// one before. In closed loop so many sessions are active at once, think times
// included, and first turns ignore the clock of the trace.
type sessions struct {
	feed        Feed
	concurrency int // closed loop; 0: open
	slots       InFlight
	ready       TurnHeap   // turns whose time is known, but for the head
	head        SessionRef // open loop: the first session not yet started, if more
	headMs      float64
	more        bool
	unready     int64 // turns in flight that another turn will follow
}

var _ Source = (*sessions)(nil)

func NewSessions(f Feed, concurrency int) *sessions {
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

func (d *sessions) advance() { d.head, d.headMs, d.more = d.feed.Next() }

// activate makes the first turn of the next pending session ready, if there is one.
func (d *sessions) activate(atMs float64) {
	if d.more {
		d.ready.Push(Turn{ReadyMs: atMs, Ref: d.head})
		d.advance()
	}
}

// headFirst reports whether the next session starts before every ready turn.
func (d *sessions) headFirst() bool {
	if !d.more || d.concurrency > 0 {
		return false
	}
	return len(d.ready) == 0 || Turn{ReadyMs: d.headMs, Ref: d.head}.before(d.ready[0])
}

func (d *sessions) NextMs() float64 {
	switch {
	case d.headFirst():
		return d.headMs
	case len(d.ready) > 0:
		return d.ready[0].ReadyMs
	}
	return math.Inf(1)
}

func (d *sessions) BeginRelease(float64, int) {}

func (d *sessions) Next(nowMs float64) *Request {
	if d.NextMs() > nowMs {
		return nil
	}
	var e Turn
	if d.headFirst() {
		e = Turn{ReadyMs: d.headMs, Ref: d.head}
		d.advance()
	} else {
		e = d.ready.Pop()
	}
	s := d.slots.Start(e.Ref, e.Number, e.ReadyMs)
	d.feed.Fill(&s.Request, e.Ref, e.Number)
	if e.Number+1 < d.feed.Turns(e.Ref) {
		d.unready++
	}
	return &s.Request
}

func (d *sessions) Done(handle int32, nowMs float64, emitted int32, how Outcome) {
	s := d.slots.End(handle)
	d.feed.Ended(s.Ref, s.Turn, emitted, how)
	next := s.Turn + 1
	last := next == d.feed.Turns(s.Ref)
	if !last {
		d.unready--
	}
	if !last && how != Failed {
		d.ready.Push(Turn{ReadyMs: nowMs + d.feed.DelayMs(s.Ref, next), Ref: s.Ref, Number: next})
		return
	}
	if d.concurrency > 0 {
		d.activate(nowMs)
	}
}

func (d *sessions) Names(handle int32) Names {
	s := d.slots.At(handle)
	return d.feed.Names(s.Ref, s.Turn)
}

func (d *sessions) Flush(float64)              {}
func (d *sessions) Quiescent(int64, float64)   {}
func (d *sessions) Lifecycle() (int64, string) { return 0, "" }
func (d *sessions) Drained() bool              { return !d.more && len(d.ready) == 0 && d.unready == 0 }
func (d *sessions) ClosedLoop() bool           { return d.concurrency > 0 }
func (d *sessions) Total() int64               { return d.feed.Total() }
func (d *sessions) Plays() []PlayOutcome       { return nil }

// Turn is a turn that becomes ready. Ties go by session, then turn.
type Turn struct {
	ReadyMs float64
	Ref     SessionRef
	Number  int32
}

func (a Turn) before(b Turn) bool {
	if a.ReadyMs != b.ReadyMs {
		return a.ReadyMs < b.ReadyMs
	}
	if a.Ref.Index != b.Ref.Index {
		return a.Ref.Index < b.Ref.Index
	}
	return a.Number < b.Number
}

// TurnHeap is a binary heap, earliest first.
type TurnHeap []Turn

func (h *TurnHeap) Push(e Turn) {
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

func (h *TurnHeap) Pop() Turn {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) > 0 {
		s.sift(0, last)
	}
	return top
}

// Init orders a heap whose turns stand in any order.
func (h TurnHeap) Init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sift(i, h[i])
	}
}

// sift puts e at i or below.
func (h TurnHeap) sift(i int, e Turn) {
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
