package vllm

import (
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// handoff is the disaggregated side of a rank (spec replay-runtime 8.3, 8.5):
// finished sources that keep their blocks, destinations without blocks, and
// destinations whose blocks wait for the transfer.
type handoff struct {
	held, pending, reserved queue
	generation              int64 // of capacity: moves when room may have appeared
	failed                  int64 // generation + 1 at which the pending head found no room
}

func (h *handoff) empty() bool { return h.held.n+h.pending.n+h.reserved.n == 0 }

// Handoff returns the core itself.
func (c *Core) Handoff() engine.Handoff { return c }

// SubmitSource is Submit of a request whose blocks outlive it.
func (c *Core) SubmitSource(r engine.Request) {
	c.Submit(r)
	c.reqs.At(c.wait.tail).source = true
}

// ReleaseSource gives back the blocks of a held source.
func (c *Core) ReleaseSource(id int32, _ *kv.Events) {
	if s := c.handoff.held.find(&c.reqs, id); s != 0 {
		c.handoff.held.remove(&c.reqs, s)
		c.drop(s)
	}
}

// CancelSource drops a source, held or not.
func (c *Core) CancelSource(id int32, ev *kv.Events) {
	if c.handoff.held.find(&c.reqs, id) != 0 {
		c.ReleaseSource(id, ev)
		return
	}
	c.cancel(id)
}

// cancel drops a waiting or running request.
func (c *Core) cancel(id int32) {
	if s := c.wait.find(&c.reqs, id); s != 0 {
		c.dequeue(s)
		c.drop(s)
		return
	}
	for _, s := range c.running {
		if c.reqs.At(s).id == id {
			c.leaveRunning(s)
			c.drop(s)
			return
		}
	}
}

// drop releases what a request holds and forgets it.
func (c *Core) drop(s int32) {
	c.release(c.reqs.At(s))
	c.handoff.generation++
	c.free(s)
}

// Accept queues a destination, or says why it can never fit.
func (c *Core) Accept(q engine.Request) engine.Reason {
	s := c.newRequest(q)
	r := c.reqs.At(s)
	if reason := c.refuse(r); reason != engine.NoReason {
		c.free(s)
		return reason
	}
	r.status, r.destination = pending, true
	c.handoff.pending.insert(&c.reqs, s, 0)
	c.queuedDecode.add(r.queued(), 1)
	return engine.NoReason
}

// mayReserve reports that TryReserve would look at the pending head.
func (c *Core) mayReserve() bool {
	h := &c.handoff
	return h.pending.n > 0 && len(c.running) < c.maxSeqs && h.failed != h.generation+1
}

// TryReserve gives the oldest pending destination its blocks: those of its
// complete prompt blocks that are cached, and fresh ones.
func (c *Core) TryReserve(ev *kv.Events) (engine.Reservation, bool) {
	h := &c.handoff
	if !c.mayReserve() {
		return engine.Reservation{}, false
	}
	s := h.pending.head
	r := c.reqs.At(s)
	hits := c.find(r, int(r.prompt/c.blockSize))
	need := ceil(r.prompt, c.blockSize)
	fresh := need - int32(len(hits))
	if !c.pool.Acquire(hits, int(fresh), c.events(ev)) {
		h.failed = h.generation + 1
		return engine.Reservation{}, false
	}
	if len(hits) > 0 {
		c.openList(r)
		r.cached = append(r.cached, hits...)
	}
	r.blocks = need
	h.pending.remove(&c.reqs, s)
	r.status = reserved
	h.reserved.insert(&c.reqs, s, 0)
	return engine.Reservation{Req: r.id, FreshTokens: fresh * c.blockSize}, true
}

// Activate makes the prompt of a reserved destination computed and visible, and
// queues it where its order of acceptance puts it.
func (c *Core) Activate(id int32, ev *kv.Events) {
	h := &c.handoff
	s := h.reserved.find(&c.reqs, id)
	if s == 0 {
		return
	}
	h.reserved.remove(&c.reqs, s)
	r := c.reqs.At(s)
	c.queuedDecode.add(r.queued(), -1)
	r.status, r.computed = waiting, r.prompt
	c.finalize(r, r.computed, c.events(ev))
	at := c.wait.head
	for at != 0 && c.reqs.At(at).order < r.order {
		at = c.reqs.At(at).next
	}
	c.enqueue(s, at)
}

// CancelDestination drops a destination wherever it is.
func (c *Core) CancelDestination(id int32, _ *kv.Events) {
	for _, q := range [...]*queue{&c.handoff.pending, &c.handoff.reserved} {
		if s := q.find(&c.reqs, id); s != 0 {
			q.remove(&c.reqs, s)
			c.queuedDecode.add(c.reqs.At(s).queued(), -1)
			c.drop(s)
			return
		}
	}
	c.cancel(id)
}
