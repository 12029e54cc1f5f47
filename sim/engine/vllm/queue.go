package vllm

import "github.com/dynosweep/dynosweep/sim/slab"

// queue is a doubly linked list through request slots; 0 is none.
type queue struct {
	head, tail int32
	n          int
}

// insert puts s before at; at 0 is the back. A slot is in one queue at most.
func (q *queue) insert(reqs *slab.Slab[request], s, at int32) {
	r := reqs.At(s)
	before := q.tail
	if at != 0 {
		before = reqs.At(at).prev
		reqs.At(at).prev = s
	} else {
		q.tail = s
	}
	r.prev, r.next = before, at
	if before != 0 {
		reqs.At(before).next = s
	} else {
		q.head = s
	}
	q.n++
}

// remove takes s out.
func (q *queue) remove(reqs *slab.Slab[request], s int32) {
	r := reqs.At(s)
	if r.prev != 0 {
		reqs.At(r.prev).next = r.next
	} else {
		q.head = r.next
	}
	if r.next != 0 {
		reqs.At(r.next).prev = r.prev
	} else {
		q.tail = r.prev
	}
	r.prev, r.next = 0, 0
	q.n--
}

// find returns the slot of the request called id, 0 if it is not here.
func (q *queue) find(reqs *slab.Slab[request], id int32) int32 {
	s := q.head
	for s != 0 && reqs.At(s).id != id {
		s = reqs.At(s).next
	}
	return s
}

// enqueue puts s into the waiting queue before at, 0 for the back.
func (c *Core) enqueue(s, at int32) {
	c.wait.insert(&c.reqs, s, at)
	c.queuedSums(s).add(c.reqs.At(s).queued(), 1)
}

// dequeue takes s out of the waiting queue.
func (c *Core) dequeue(s int32) {
	c.wait.remove(&c.reqs, s)
	c.queuedSums(s).add(c.reqs.At(s).queued(), -1)
}

// queuedSums is the metric that a queued request belongs to.
func (c *Core) queuedSums(s int32) *sums {
	if r := c.reqs.At(s); r.status == preempted || r.destination {
		return &c.queuedDecode
	}
	return &c.queuedPrefill
}
