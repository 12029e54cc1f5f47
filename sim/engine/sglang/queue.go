package sglang

import (
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/slab"
)

// request is one request of the rank. Its sequence is the prompt, then outputs.
type request struct {
	id        int32 // the run's slot
	prompt    kv.Prompt
	promptLen int32
	maxOut    int32
	out       int32 // outputs so far
	computed  int32 // tokens that own KV
	pages     int32 // pages of the lease, shared ones included
	cached    int32 // leading pages that are in the tree, locked at node
	node      int32 // deepest tree node held
	hashed    int32 // leading pages that were offered to KV events
	source    bool  // keeps its lease after the end, until released
	handoff   bool  // came by activation
}

func (r *request) len() int32       { return r.promptLen + r.out }
func (r *request) remaining() int32 { return max(0, r.maxOut-r.out) }

// requests holds the requests of a rank.
type requests struct{ slab.Slab[request] }

func (s *requests) add(r request) int32 {
	i := s.Allocate()
	*s.At(i) = r
	return i
}

func (s *requests) release(i int32) {
	s.At(i).prompt.Nodes = nil // not ours after the end of the request
	s.Release(i)
}

// deque is a ring of slab places.
type deque struct {
	ring []int32 // length a power of two
	head int
	n    int
}

func (q *deque) at(i int) int32 { return q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *deque) set(i int, v int32) { q.ring[(q.head+i)&(len(q.ring)-1)] = v }

func (q *deque) pushBack(v int32) {
	q.room()
	q.n++
	q.set(q.n-1, v)
}

func (q *deque) pushFront(v int32) {
	q.room()
	q.head = (q.head - 1) & (len(q.ring) - 1)
	q.n++
	q.set(0, v)
}

func (q *deque) popFront() int32 {
	v := q.at(0)
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return v
}

// cut keeps the first n entries.
func (q *deque) cut(n int) { q.n = n }

func (q *deque) room() {
	if q.n < len(q.ring) {
		return
	}
	ring := make([]int32, max(16, 2*len(q.ring)))
	for i := 0; i < q.n; i++ {
		ring[i] = q.at(i)
	}
	q.ring, q.head = ring, 0
}

// lengths sums a set of lengths so that its variance is exact up to the last
// rounding, whatever the order.
type lengths struct {
	n, sum int64
	square uint64
}

func (l *lengths) add(v int32) {
	l.n++
	l.sum += int64(v)
	l.square += uint64(v) * uint64(v)
}

func (l *lengths) remove(v int32) {
	l.n--
	l.sum -= int64(v)
	l.square -= uint64(v) * uint64(v)
}

// variance is the population variance, (n Σx² - (Σx)²) / n², 0 of nothing.
func (l *lengths) variance() float64 {
	if l.n == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(l.n), l.square)
	subHi, subLo := bits.Mul64(uint64(l.sum), uint64(l.sum))
	lo, borrow := bits.Sub64(lo, subLo, 0)
	hi, _ = bits.Sub64(hi, subHi, borrow)
	n := float64(l.n)
	return (float64(hi)*0x1p64 + float64(lo)) / float64(n*n)
}
