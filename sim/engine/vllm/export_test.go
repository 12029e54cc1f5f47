package vllm

import (
	"fmt"
	"strings"
)

// Dump prints all state that later passes can depend on.
func (c *Core) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "owed %d tokenless %d queued %v %v preemptions %d passes %d step %d admission blocked %v generation %d failed %d\n",
		c.blocksOwed, c.tokenless, c.queuedPrefill, c.queuedDecode, c.preemptions, c.passes, c.step, c.admissionBlocked, c.handoff.generation, c.handoff.failed)
	one := func(s int32) {
		r := c.reqs.At(s)
		fmt.Fprintf(&b, "  %d: id %d prompt %d length %d total %d computed %d blocks %d status %d order %d cached", s, r.id,
			r.prompt, r.length, r.total, r.computed, r.blocks, r.status, r.order)
		for i := range r.cached {
			fmt.Fprintf(&b, " %x", uint64(r.content.Block(i)))
		}
		b.WriteByte('\n')
	}
	b.WriteString("running\n")
	for _, s := range c.running {
		one(s)
	}
	for i, q := range []queue{c.wait, c.handoff.held, c.handoff.pending, c.handoff.reserved} {
		fmt.Fprintf(&b, "queue %d\n", i)
		for s := q.head; s != 0; s = c.reqs.At(s).next {
			one(s)
		}
	}
	b.WriteString(c.pool.String())
	return b.String()
}
