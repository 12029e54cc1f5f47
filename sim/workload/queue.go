package workload

import "math"

// queue is the flat request queue (spec workload 3.2, 3.3): requests that stand
// alone, in open loop each at its time, in closed loop so many at once.
type queue struct {
	feed        Feed
	concurrency int // closed loop; 0: open
	slots       InFlight
	head        SessionRef // the next one, if more
	headMs      float64
	more        bool
	room        int // closed loop: releases left in this phase
}

var _ Source = (*queue)(nil)

func NewQueue(f Feed, concurrency int) *queue {
	q := &queue{feed: f, concurrency: concurrency}
	q.advance()
	return q
}

func (q *queue) advance() { q.head, q.headMs, q.more = q.feed.Next() }

func (q *queue) NextMs() float64 {
	if !q.more || q.concurrency > 0 {
		return math.Inf(1)
	}
	return q.headMs
}

func (q *queue) BeginRelease(_ float64, inflight int) { q.room = q.concurrency - inflight }

func (q *queue) Next(nowMs float64) *Request {
	if !q.more {
		return nil
	}
	arrivalMs := q.headMs
	if q.concurrency > 0 {
		if q.room <= 0 {
			return nil
		}
		q.room--
		arrivalMs = nowMs
	} else if arrivalMs > nowMs {
		return nil
	}
	s := q.slots.Start(q.head, 0, arrivalMs)
	q.feed.Fill(&s.Request, q.head, 0)
	q.advance()
	return &s.Request
}

func (q *queue) Done(handle int32, _ float64, emitted int32, how Outcome) {
	s := q.slots.End(handle)
	q.feed.Ended(s.Ref, 0, emitted, how)
}

func (q *queue) Names(handle int32) Names { return q.feed.Names(q.slots.At(handle).Ref, 0) }

func (q *queue) Flush(float64)              {}
func (q *queue) Quiescent(int64, float64)   {}
func (q *queue) Lifecycle() (int64, string) { return 0, "" }
func (q *queue) Drained() bool              { return !q.more }
func (q *queue) ClosedLoop() bool           { return q.concurrency > 0 }
func (q *queue) Total() int64               { return q.feed.Total() }
func (q *queue) Plays() []PlayOutcome       { return nil }
