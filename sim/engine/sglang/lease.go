package sglang

// evict frees need pages of cached data, fewer if there is not as much.
func (c *Core) evict(need int32) {
	for need > 0 && len(c.tree.leaves) > 0 {
		k := c.tree.tail(need)
		if c.ev != nil {
			c.emitTrimmed(k)
		}
		c.tree.trim(k)
		c.free += k
		need -= k
	}
}

// lease gives r its first pages, up to token end, after locking what the tree
// holds of its first limit pages. It reports false, with nothing taken, when the
// pages do not fit; ticks and splits of the match then stay.
func (c *Core) lease(i, limit, end int32) bool {
	r := c.reqs.At(i)
	var prefix, node int32
	if c.cfg.PrefixCaching {
		prefix, node = c.tree.lockMatch(&r.prompt, limit)
	}
	r.pages, r.cached, r.hashed, r.node = prefix, prefix, prefix, node
	if !c.grow(r, end) {
		c.tree.unlock(node)
		r.pages, r.cached, r.hashed, r.node = 0, 0, 0, root
		return false
	}
	return true
}

// grow adds the pages that r needs to own tokens up to end, evicting if it must.
func (c *Core) grow(r *request, end int32) bool {
	need := c.pagesFor(end) - r.pages
	if need > c.room() {
		return false
	}
	c.evict(need - c.free)
	c.free -= need
	r.pages += need
	return true
}

// cache puts the complete pages among the first tokens of a live request, at most
// mat, into the tree and moves its lock there. Pages that were in the tree before
// are freed: r uses the tree's (spec engine-sglang 7.4, 7.5). It returns how many.
func (c *Core) cache(i, tokens int32) (duplicates int32) {
	r := c.reqs.At(i)
	upTo := c.full(tokens)
	if !c.cfg.PrefixCaching || upTo <= r.cached {
		return 0
	}
	node, added := c.tree.insert(r.node, &r.prompt, r.cached, upTo)
	if node != r.node {
		c.tree.lock(node)
		c.tree.unlock(r.node)
		r.node = node
	}
	duplicates = upTo - r.cached - added
	c.free += duplicates
	r.cached = upTo
	if c.ev != nil {
		r.hashed = max(r.hashed, upTo-added)
		c.emitStored(i, upTo)
	}
	return duplicates
}

// endLease ends the lease of a completed request; its complete pages stay in the
// tree (spec engine-sglang 7.6). Without prefix caching nothing stays.
func (c *Core) endLease(i int32) {
	r := c.reqs.At(i)
	keep := c.full(r.computed)
	if !c.cfg.PrefixCaching {
		keep = 0
	}
	c.free += r.pages - max(keep, r.cached)
	if keep > r.cached {
		_, added := c.tree.insert(r.node, &r.prompt, r.cached, keep)
		c.free += keep - r.cached - added
		r.cached = keep
		r.hashed = max(r.hashed, keep-added)
	}
	if c.ev != nil {
		c.emitStored(i, r.cached)
	}
	c.tree.unlock(r.node)
	r.computed, r.pages, r.cached, r.hashed, r.node = 0, 0, 0, 0, root
}

// dropLease ends the lease of a retracted or cancelled request: its private pages
// are freed, the cached ones stay as ordinary evictable data (spec engine-sglang 7.7).
func (c *Core) dropLease(i int32) {
	r := c.reqs.At(i)
	if c.ev != nil {
		c.emitDropped(i)
	}
	c.free += r.pages - r.cached
	c.tree.unlock(r.node)
	r.computed, r.pages, r.cached, r.hashed, r.node = 0, 0, 0, 0, root
}
