package vllm

import "github.com/dynosweep/dynosweep/sim/kv"

// blocksToComplete is the number of blocks that r still needs to complete.
func (c *Core) blocksToComplete(r *request) int { return int(ceil(r.total, c.blockSize) - r.blocks) }

// grow gives r the blocks of its first target tokens, the first ones from reuse.
// False, with nothing changed, if the pool cannot.
func (c *Core) grow(s int32, target int32, reuse []int32) bool {
	r := c.reqs.At(s)
	to := ceil(target, c.blockSize)
	if to <= r.blocks {
		return true
	}
	if !c.pool.Acquire(reuse, int(to-r.blocks)-len(reuse), c.p.ev) {
		return false
	}
	if c.offload != nil && len(c.pool.Evicted()) > 0 {
		c.gaveOut(s, int(r.blocks)+len(reuse))
	}
	if len(reuse) > 0 {
		c.openList(r)
		r.cached = append(r.cached, reuse...)
	}
	if r.status == running {
		c.blocksOwed -= int(to - r.blocks)
	}
	r.blocks = to
	return true
}

// find leaves the cached blocks that r would begin with in c.p.hits, of its first n.
func (c *Core) find(r *request, n int) []int32 {
	hits := c.p.hits[:0]
	for i := 0; c.cfg.PrefixCaching && i < n; {
		id, run := r.content.Run(i, n)
		hits = c.pool.Find(hits, id, run)
		if i += run; len(hits) < i {
			break
		}
	}
	c.p.hits = hits
	return hits
}

// openList gives r a list for its cached blocks.
func (c *Core) openList(r *request) {
	if r.cached != nil {
		return
	}
	if n := len(c.buffers); n > 0 {
		r.cached, c.buffers = c.buffers[n-1], c.buffers[:n-1]
	} else {
		r.cached = make([]int32, 0, 16)
	}
}

// finalize caches the blocks of r that its first computed tokens fill. Each run
// of consecutive blocks that became visible is one stored event.
func (c *Core) finalize(r *request, computed int32, ev *kv.Events) {
	full := int(computed / c.blockSize)
	if !c.cfg.PrefixCaching || full <= len(r.cached) {
		return
	}
	c.openList(r)
	from, prompt := len(r.cached), int(r.prompt/c.blockSize)
	for i := from; i < min(prompt, full); i = len(r.cached) {
		id, n := r.content.Run(i, min(prompt, full))
		r.cached = c.pool.Cache(r.cached, id, n)
	}
	for i := len(r.cached); i < full; i = len(r.cached) {
		id, n := r.content.Run(i, full)
		r.cached = c.pool.CacheOwn(r.cached, id, n)
	}
	if ev != nil {
		c.emitStored(r, from, ev)
	}
}

// emitStored announces the blocks of r from index from on that became visible.
func (c *Core) emitStored(r *request, from int, ev *kv.Events) {
	open := false
	for i := from; i < len(r.cached); {
		id, n := r.content.Run(i, len(r.cached))
		for ; n > 0; i, id, n = i+1, id+1, n-1 {
			visible := !c.pool.Copy(r.cached[i])
			if visible && !open {
				c.beginStored(r, i, ev)
			}
			if visible {
				ev.Add(id)
			}
			open = visible
		}
	}
}

// beginStored opens a stored event at block i of r.
func (c *Core) beginStored(r *request, i int, ev *kv.Events) {
	if i == 0 {
		ev.BeginStored(0, false)
		return
	}
	ev.BeginStored(r.content.Block(i-1), true)
}

// victim is the running request to preempt, 0 if there is none.
func (c *Core) victim() int32 {
	switch n := len(c.running); {
	case c.variant.NoPreemption || n == 0:
		return 0
	case c.cfg.PreemptFIFO:
		return c.running[0]
	default:
		return c.running[n-1]
	}
}

// unschedule takes back what the pass gave to s, if it did.
func (c *Core) unschedule(s int32) {
	r := c.reqs.At(s)
	if r.pass != c.passes {
		return
	}
	c.p.budget += int(r.tokens)
	c.p.scheduled--
	c.countPrefill(r, -1)
	r.pass = 0
}

// preempt sends a running request to the front of the queue, behind those that wait
// for a transfer. It keeps what it
// generated and loses its blocks.
func (c *Core) preempt(s int32) {
	r := c.reqs.At(s)
	c.leaveRunning(s)
	c.release(r)
	if c.offload != nil {
		c.offload.preempt(s)
	}
	r.status, r.computed = preempted, 0
	c.enqueue(s, c.queuePreempted())
	c.preemptions++
	c.handoff.generation++
	c.blocked.order = 0
	c.p.out.Preempted = append(c.p.out.Preempted, r.id)
}

// leaveRunning takes s out of the running ones.
func (c *Core) leaveRunning(s int32) {
	c.blocksOwed -= c.blocksToComplete(c.reqs.At(s))
	for i, t := range c.running {
		if t == s {
			c.running = append(c.running[:i], c.running[i+1:]...)
			return
		}
	}
}

// release gives the blocks of r back.
func (c *Core) release(r *request) {
	c.pool.Release(r.cached, int(r.blocks)-len(r.cached))
	if r.cached != nil {
		c.buffers = append(c.buffers, r.cached[:0])
		r.cached = nil
	}
	r.blocks = 0
}
