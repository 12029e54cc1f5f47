package sglang

import (
	"slices"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// handoff is the disaggregated side of a rank (spec engine-sglang 12). All lists
// are in order of arrival.
type handoff struct {
	held     []int32 // sources that completed and keep their lease
	pending  []int32 // destinations that have no pages yet
	reserved []int32 // destinations that have
	ready    []int32 // activated destinations that do not run yet
	// generation counts what may have made room; failed is its value at the last
	// refused try of the pending head, -1 if that head was not tried.
	generation, failed int64
}

func (h *handoff) empty() bool {
	return len(h.held)+len(h.pending)+len(h.reserved)+len(h.ready) == 0
}

// promote moves activated handoffs to the running list while there is a slot. It
// reports whether this pass may admit from the waiting queue: not while a handoff
// is left, or a destination has no pages yet.
func (c *Core) promote(p *engine.Pass) bool {
	n := 0
	for n < len(c.handoff.ready) && len(c.running) < c.maxRun {
		i := c.handoff.ready[n]
		c.running = append(c.running, i)
		p.Admissions = append(p.Admissions, engine.Admission{Req: c.reqs.At(i).id})
		n++
	}
	c.handoff.ready = slices.Delete(c.handoff.ready, 0, n)
	return len(c.handoff.ready)+len(c.handoff.pending) == 0
}

// directEvents sends events of a command to ev, if anybody listens.
func (c *Core) directEvents(ev *kv.Events) {
	if c.cfg.WantEvents && c.cfg.PrefixCaching {
		c.ev = ev
	}
}

// SubmitSource is Submit of a request of which the pages stay held after the
// request's only output.
func (c *Core) SubmitSource(r engine.Request) {
	q := c.newRequest(r)
	q.source = true
	c.queueBack(c.reqs.add(q))
}

// ReleaseSource ends the lease of a held source; its prompt becomes reusable.
func (c *Core) ReleaseSource(req int32, ev *kv.Events) {
	k := c.indexOf(c.handoff.held, req)
	if k < 0 {
		return
	}
	i := c.handoff.held[k]
	c.handoff.held = slices.Delete(c.handoff.held, k, k+1)
	c.directEvents(ev)
	c.endLease(i)
	c.ev = nil
	c.reqs.release(i)
	c.handoff.generation++
}

// CancelSource drops a source wherever it is: waiting, running or held.
func (c *Core) CancelSource(req int32, ev *kv.Events) {
	i := c.removeFrom(&c.handoff.held, req)
	if i < 0 {
		i = c.removeFrom(&c.running, req)
	}
	if i < 0 {
		i = c.removeWaitingByID(req)
	}
	c.cancel(i, ev)
}

// Accept queues a destination, unless its prompt can never fit.
func (c *Core) Accept(r engine.Request) engine.Reason {
	q := c.newRequest(r)
	if c.overLimit(&q) {
		return engine.OverModelLen
	}
	if c.pagesFor(q.promptLen) > c.total {
		return engine.PromptOverPool
	}
	q.handoff = true
	if len(c.handoff.pending) == 0 {
		c.handoff.failed = -1
	}
	c.handoff.pending = append(c.handoff.pending, c.reqs.add(q))
	return engine.NoReason
}

// TryReserve attempts the head of the pending destinations: its whole prompt, the
// cached prefix locked and the rest private until activation.
func (c *Core) TryReserve(ev *kv.Events) (engine.Reservation, bool) {
	h := &c.handoff
	if len(h.pending) == 0 || h.failed == h.generation {
		return engine.Reservation{}, false
	}
	i := h.pending[0]
	r := c.reqs.At(i)
	c.directEvents(ev)
	ok := c.lease(i, c.full(r.promptLen), r.promptLen)
	c.ev = nil
	if !ok {
		h.failed = h.generation
		return engine.Reservation{}, false
	}
	h.pending = slices.Delete(h.pending, 0, 1)
	h.failed = -1
	h.reserved = append(h.reserved, i)
	return engine.Reservation{Req: r.id, FreshTokens: (r.pages - r.cached) * c.page}, true
}

// Activate turns a reserved destination into a request whose prompt is computed;
// it enters at the next pass.
func (c *Core) Activate(req int32, ev *kv.Events) {
	i := c.removeFrom(&c.handoff.reserved, req)
	if i < 0 {
		return
	}
	r := c.reqs.At(i)
	r.computed = r.promptLen
	c.directEvents(ev)
	if c.cache(i, r.computed) > 0 {
		c.handoff.generation++
	}
	c.ev = nil
	c.handoff.ready = append(c.handoff.ready, i)
}

// CancelDestination drops a destination wherever it is.
func (c *Core) CancelDestination(req int32, ev *kv.Events) {
	if len(c.handoff.pending) > 0 && c.reqs.At(c.handoff.pending[0]).id == req {
		c.handoff.failed = -1
	}
	for _, list := range [...]*[]int32{&c.handoff.pending, &c.handoff.reserved, &c.handoff.ready, &c.running} {
		if i := c.removeFrom(list, req); i >= 0 {
			c.cancel(i, ev)
			return
		}
	}
	c.cancel(c.removeWaitingByID(req), ev)
}

// cancel ends request i without a signal; -1 is nobody.
func (c *Core) cancel(i int32, ev *kv.Events) {
	if i < 0 {
		return
	}
	c.directEvents(ev)
	c.dropLease(i)
	c.ev = nil
	c.reqs.release(i)
	c.handoff.generation++
}

// indexOf returns the place in list of the request with run slot req, or -1.
func (c *Core) indexOf(list []int32, req int32) int {
	return slices.IndexFunc(list, func(i int32) bool { return c.reqs.At(i).id == req })
}

// removeFrom takes the request with run slot req out of list; -1 if it is not there.
func (c *Core) removeFrom(list *[]int32, req int32) int32 {
	k := c.indexOf(*list, req)
	if k < 0 {
		return -1
	}
	i := (*list)[k]
	*list = slices.Delete(*list, k, k+1)
	return i
}

func (c *Core) removeWaitingByID(req int32) int32 {
	for k := 0; k < c.waiting.n; k++ {
		if i := c.waiting.at(k); c.reqs.At(i).id == req {
			c.removeWaiting(k)
			return i
		}
	}
	return -1
}
