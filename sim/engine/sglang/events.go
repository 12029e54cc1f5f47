package sglang

import (
	"slices"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// KV events (spec engine-sglang 17). An identity is announced when its first
// physical page is hashed and withdrawn when its last one is freed. Its pages are
// the tree's, at most one, and the private pages that requests computed before
// they met the tree (a held source; for a moment, a prompt just admitted).
//
// An id names its prefix, and whoever has a page has all pages before it. So the
// pages of a prompt that others have are a prefix of it, and events are suffixes.

// emitStored offers the pages of r up to page upTo: those beyond r.hashed get their
// hash, and one event announces them from the first that nobody else has.
func (c *Core) emitStored(i, upTo int32) {
	r := c.reqs.At(i)
	if upTo <= r.hashed {
		c.notePrivate(i)
		return
	}
	from := max(r.hashed, c.pagesOfOthers(i, upTo))
	r.hashed = upTo
	c.notePrivate(i)
	if from >= upTo {
		return
	}
	var parent kv.BlockID
	if from > 0 {
		parent = r.prompt.Block(int(from - 1))
	}
	c.ev.BeginStored(parent, from > 0)
	for pos := from; pos < upTo; pos++ {
		c.ev.Add(r.prompt.Block(int(pos)))
	}
}

// emitDropped withdraws the private pages of r that nobody else has.
func (c *Core) emitDropped(i int32) {
	r := c.reqs.At(i)
	upTo := r.hashed
	if from := max(r.cached, c.pagesOfOthers(i, upTo)); from < upTo {
		c.ev.BeginRemoved()
		for pos := from; pos < upTo; pos++ {
			c.ev.Add(r.prompt.Block(int(pos)))
		}
	}
	r.hashed = r.cached
	c.notePrivate(i)
}

// emitTrimmed withdraws the last k pages of the oldest leaf that no request has.
func (c *Core) emitTrimmed(k int32) {
	n := &c.tree.nodes[c.tree.leaves[0]]
	first := n.end - k
	from := first
	for _, i := range c.private {
		h := c.reqs.At(i)
		upTo := min(h.hashed, n.end)
		for from < upTo && first >= h.cached && h.prompt.Block(int(from)) == n.key(from) {
			from++
		}
	}
	if from == n.end {
		return
	}
	c.ev.BeginRemoved()
	for pos := from; pos < n.end; pos++ {
		c.ev.Add(n.key(pos))
	}
}

// pagesOfOthers is how many of the first limit pages of r's prompt have a hashed page
// that is not a private one of r, and not one it has just put into the tree.
func (c *Core) pagesOfOthers(i, limit int32) int32 {
	r := c.reqs.At(i)
	have := r.hashed
	if r.cached < limit { // private pages: the tree may hold the same
		have, _ = c.tree.find(&r.prompt, limit)
	}
	for _, j := range c.private {
		if j == i {
			continue
		}
		h := c.reqs.At(j)
		upTo := min(h.hashed, limit)
		for have < upTo && h.prompt.Block(int(have)) == r.prompt.Block(int(have)) {
			have++
		}
	}
	return have
}

// notePrivate keeps c.private, the requests with hashed > cached.
func (c *Core) notePrivate(i int32) {
	private := c.reqs.At(i).hashed > c.reqs.At(i).cached
	k := slices.Index(c.private, i)
	if private && k < 0 {
		c.private = append(c.private, i)
	} else if !private && k >= 0 {
		c.private = slices.Delete(c.private, k, k+1)
	}
}
