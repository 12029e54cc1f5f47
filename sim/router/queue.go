package router

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// pending is a request that waits in the router. Everything in it was fixed at
// arrival (spec kv-router 4.2, 8.2).
type pending struct {
	strict  uint32
	pos     int32 // in the heap of its class, -1: not waiting
	class   int32
	isl     int32
	score   float64
	seq     uint64
	cost    int64 // uncached tokens at the best rank, at least 1
	cached  int64 // cached tokens at the best rank
	prompt  kv.Prompt
	overlap frozen
	hosts   []int32 // [slot], blocks that host memory adds
}

// classQueue is one class's queue: a heap of request slots, and what deficit round
// robin and the limits count.
type classQueue struct {
	heap    []int32
	deficit int64 // tokens
	isl     int64 // prompt tokens waiting
	cached  int64
}

// queue holds the waiting requests of all classes (spec kv-router 8).
type queue struct {
	classes []Class
	queues  []classQueue // [class]
	waiting []pending    // [request], grown when one waits
	ready   []bool       // [class] scratch of pop: the head is dispatchable
	size    int
	seq     uint64
	cursor  int // class where the ring starts
	carry   int // class that goes on with its deficit, -1 none
}

func newQueue(classes []Class) queue {
	return queue{classes: classes, queues: make([]classQueue, len(classes)),
		ready: make([]bool, len(classes)), carry: -1}
}

// score is the key of a request inside its class, larger first; t is the enqueue
// time in seconds (spec kv-router 8.3).
func score(policy QueuePolicy, priority int32, tS float64, cost int64) float64 {
	jump := float64(max(priority, 0))
	switch policy {
	case FCFS:
		return jump - tS
	case LCFS:
		return jump + tS
	default:
		return (1 + jump) / float64(cost)
	}
}

// limit returns the error of the first limit of a class that is reached; ranks is
// the number of eligible ranks. The request that crosses a limit is still accepted.
func (q *queue) limit(class, ranks int) error {
	c, cq := &q.classes[class], &q.queues[class]
	for _, l := range [...]struct {
		kind             string
		current, perRank int64
	}{
		{"requests", int64(len(cq.heap)), c.MaxRequests},
		{"raw_isl_tokens", cq.isl, c.MaxISL},
		{"cached_tokens", cq.cached, c.MaxCached},
	} {
		if l.perRank >= 0 && l.current >= mulSaturated(l.perRank, int64(ranks)) {
			return fmt.Errorf("router policy class %q queue %s limit reached (current=%d, limit=%d)",
				c.Name, l.kind, l.current, mulSaturated(l.perRank, int64(ranks)))
		}
	}
	return nil
}

// mulSaturated returns a*b for a, b >= 0, at most 2^63-1.
func mulSaturated(a, b int64) int64 {
	const most = 1<<63 - 1
	if b > 0 && a > most/b {
		return most
	}
	return a * b
}

// slot returns the place of a request among the waiting, with its buffers kept.
func (q *queue) slot(req int32) *pending {
	for int(req) >= len(q.waiting) {
		q.waiting = append(q.waiting, pending{pos: -1})
	}
	return &q.waiting[req]
}

// push queues a request whose pending is filled in but for seq and pos.
func (q *queue) push(req int32) {
	p := &q.waiting[req]
	cq := &q.queues[p.class]
	p.seq = q.seq
	q.seq++
	q.size++
	cq.isl += int64(p.isl)
	cq.cached += p.cached
	p.pos = int32(len(cq.heap))
	cq.heap = append(cq.heap, req)
	q.up(cq.heap, len(cq.heap)-1)
}

// remove takes a waiting request out of its heap.
func (q *queue) remove(req int32) {
	p := &q.waiting[req]
	cq := &q.queues[p.class]
	i, last := int(p.pos), len(cq.heap)-1
	moved := cq.heap[last]
	cq.heap = cq.heap[:last]
	if i < last {
		cq.heap[i] = moved
		q.waiting[moved].pos = int32(i)
		q.up(cq.heap, i)
		q.down(cq.heap, int(q.waiting[moved].pos))
	}
	p.pos = -1
	q.size--
	cq.isl -= int64(p.isl)
	cq.cached -= p.cached
}

// waits reports whether a request waits.
func (q *queue) waits(req int32) bool { return int(req) < len(q.waiting) && q.waiting[req].pos >= 0 }

// before is the order inside a class.
func (q *queue) before(a, b int32) bool {
	x, y := &q.waiting[a], &q.waiting[b]
	if x.strict != y.strict {
		return x.strict > y.strict
	}
	if x.score != y.score {
		return x.score > y.score
	}
	return x.seq < y.seq
}

func (q *queue) swap(heap []int32, i, j int) {
	heap[i], heap[j] = heap[j], heap[i]
	q.waiting[heap[i]].pos, q.waiting[heap[j]].pos = int32(i), int32(j)
}

func (q *queue) up(heap []int32, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !q.before(heap[i], heap[parent]) {
			return
		}
		q.swap(heap, i, parent)
		i = parent
	}
}

func (q *queue) down(heap []int32, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if right := child + 1; right < len(heap) && q.before(heap[right], heap[child]) {
			child = right
		}
		if !q.before(heap[child], heap[i]) {
			return
		}
		q.swap(heap, i, child)
		i = child
	}
}

// headCost is the cost of the first request of a class.
func (q *queue) headCost(class int) int64 { return q.waiting[q.queues[class].heap[0]].cost }

// pop removes and returns the next request by deficit round robin over the classes
// with q.ready set (head dispatchable); -1 if there is none (spec kv-router 8.4).
func (q *queue) pop() int32 {
	if k := q.carry; k >= 0 {
		q.carry = -1
		if q.ready[k] && q.headCost(k) <= q.queues[k].deficit {
			return q.popClass(k)
		}
	}
	n := len(q.classes)
	for i := range n {
		k := (q.cursor + i) % n
		cq := &q.queues[k]
		if !q.ready[k] {
			if len(cq.heap) == 0 {
				cq.deficit = 0
			}
			continue
		}
		if q.headCost(k) > cq.deficit {
			cq.deficit = addSaturated(cq.deficit, q.classes[k].Quantum)
		}
		if q.headCost(k) <= cq.deficit {
			return q.popClass(k)
		}
	}
	return q.fastForward()
}

// fastForward grants as many rounds as the first head needs to be paid, and pops
// the first class in ring order whose head is.
func (q *queue) fastForward() int32 {
	rounds := int64(-1)
	for k, ready := range q.ready {
		if !ready {
			continue
		}
		missing, quantum := q.headCost(k)-q.queues[k].deficit, q.classes[k].Quantum
		need := missing / quantum
		if missing%quantum > 0 {
			need++
		}
		if rounds < 0 || need < rounds {
			rounds = need
		}
	}
	if rounds < 0 {
		return -1
	}
	for k, ready := range q.ready {
		if ready {
			q.queues[k].deficit = addSaturated(q.queues[k].deficit, mulSaturated(q.classes[k].Quantum, rounds))
		}
	}
	n := len(q.classes)
	for i := range n {
		if k := (q.cursor + i) % n; q.ready[k] && q.headCost(k) <= q.queues[k].deficit {
			return q.popClass(k)
		}
	}
	panic("router: no class can pay for its head after the rounds that one needs")
}

// addSaturated returns a+b for a, b >= 0, at most 2^63-1.
func addSaturated(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return 1<<63 - 1
}

// popClass pops the head of a class and pays for it.
func (q *queue) popClass(k int) int32 {
	cq := &q.queues[k]
	req := cq.heap[0]
	q.cursor = (k + 1) % len(q.classes)
	cq.deficit = max(cq.deficit-q.waiting[req].cost, 0)
	q.remove(req)
	if len(cq.heap) == 0 {
		cq.deficit = 0
	} else if cq.deficit > 0 {
		q.carry = k
	}
	return req
}

// forget strips a slot from every frozen overlap, so that a rank that gets the slot
// later does not inherit it.
func (q *queue) forget(slot int32) {
	for i := range q.waiting {
		p := &q.waiting[i]
		if p.pos < 0 {
			continue
		}
		p.overlap.forget(slot)
	}
}
