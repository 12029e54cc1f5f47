package vllm

import "fmt"

// Check returns the first broken law: every block of the pool has its holders,
// every request its place, every counter its sum.
func (c *Core) Check() error {
	if err := c.pool.Check(); err != nil {
		return err
	}
	places := c.wait.n + len(c.running) + c.handoff.held.n + c.handoff.pending.n + c.handoff.reserved.n
	used, private, owed, tokenless := 0, 0, 0, 0
	holders := map[int32]int{}
	var prefill, decode sums
	for s := int32(1); s < c.reqs.Len(); s++ {
		r := c.reqs.At(s)
		if r.status == unused {
			continue
		}
		used++
		if r.total == r.prompt {
			tokenless++
		}
		if err := c.checkRequest(r); err != nil {
			return err
		}
		private += int(r.blocks) - len(r.cached)
		for _, slot := range r.cached {
			holders[slot]++
		}
		switch {
		case r.status == running:
			owed += c.blocksToComplete(r)
		case r.status == preempted || r.destination:
			decode.add(r.queued(), 1)
		case r.status == waiting:
			prefill.add(r.queued(), 1)
		}
	}
	if c.offload != nil && c.offload.holds {
		for _, slot := range c.offload.memory.Sources(c.offload.rank) {
			holders[slot]++
		}
	}
	switch {
	case used != places:
		return fmt.Errorf("vllm: %d requests, %d places taken", used, places)
	case owed != c.blocksOwed || tokenless != c.tokenless:
		return fmt.Errorf("vllm: owes %d blocks, want %d; tokenless %d, want %d", c.blocksOwed, owed, c.tokenless, tokenless)
	case prefill != c.queuedPrefill || decode != c.queuedDecode:
		return fmt.Errorf("vllm: queue sums %v and %v, want %v and %v", c.queuedPrefill, c.queuedDecode, prefill, decode)
	case c.pool.Active() != private+len(holders):
		return fmt.Errorf("vllm: %d blocks active, holders have %d private and %d cached", c.pool.Active(), private, len(holders))
	}
	for slot, n := range holders {
		if got := c.pool.Holders(slot); got != n {
			return fmt.Errorf("vllm: slot %d counts %d holders, has %d", slot, got, n)
		}
	}
	return nil
}

// checkRequest tests the laws of one request.
func (c *Core) checkRequest(r *request) error {
	switch {
	case r.length < r.prompt || r.length > r.total || r.computed > r.length:
		return fmt.Errorf("vllm: request %d computed %d of %d tokens, prompt %d, total %d", r.id, r.computed, r.length, r.prompt, r.total)
	case int(r.blocks) < len(r.cached) || r.computed > r.blocks*c.blockSize:
		return fmt.Errorf("vllm: request %d holds %d blocks, %d cached, for %d tokens", r.id, r.blocks, len(r.cached), r.computed)
	case (r.status == preempted && c.offload == nil || r.status == pending) && r.blocks != 0:
		return fmt.Errorf("vllm: request %d in the queue holds %d blocks", r.id, r.blocks)
	}
	return nil
}
