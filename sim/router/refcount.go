package router

import "github.com/dynosweep/dynosweep/sim/kv"

// refcount counts, for one rank, how many live requests contain each block, and
// keeps the shared index of live blocks in step: a pair enters it with the first
// holder and leaves it with the last.
type refcount struct {
	pages    pageMap
	count    []uint32 // [page][block in page] holders
	held     []int32  // [page] blocks with holders
	distinct int64    // blocks with holders
}

func newRefcount() refcount {
	return refcount{count: make([]uint32, kv.PageSize), held: make([]int32, 1)}
}

// retain adds one holder to the leading blocks of a prompt.
func (c *refcount) retain(p *kv.Prompt, blocks int32, live *index, slot int32) {
	runs := pageRuns{prompt: p, end: blocks}
	for first, n := runs.next(); n > 0; first, n = runs.next() {
		c.retainPage(first, n, live, slot)
	}
}

// retainPage is retain for n blocks within one page.
func (c *refcount) retainPage(first kv.BlockID, n int32, live *index, slot int32) {
	page := c.pages.open(kv.PageKey(first))
	for int(page) >= len(c.held) {
		c.held = append(c.held, 0)
		c.count = append(c.count, make([]uint32, kv.PageSize)...)
	}
	at := int(page)*kv.PageSize + int(kv.Place(first))
	fresh := int32(0)
	for i, holders := range c.count[at : at+int(n)] {
		if holders == 0 {
			fresh++
		}
		c.count[at+i] = holders + 1
	}
	if fresh > 0 {
		c.held[page] += fresh
		c.distinct += int64(fresh)
		live.addRun(first, n, slot)
	}
}

// release takes one holder from the leading blocks of a prompt that was retained.
func (c *refcount) release(p *kv.Prompt, blocks int32, live *index, slot int32) {
	runs := pageRuns{prompt: p, end: blocks}
	for first, n := runs.next(); n > 0; first, n = runs.next() {
		c.releasePage(first, n, live, slot)
	}
}

// releasePage is release for n blocks within one page.
func (c *refcount) releasePage(first kv.BlockID, n int32, live *index, slot int32) {
	page := c.pages.find(kv.PageKey(first))
	at := int(page)*kv.PageSize + int(kv.Place(first))
	gone := int32(0)
	for i, holders := range c.count[at : at+int(n)] {
		if holders == 0 || page == 0 {
			panic("router: released a prompt block that nobody holds")
		}
		if holders == 1 {
			gone++
		}
		c.count[at+i] = holders - 1
	}
	if gone == 0 {
		return
	}
	if gone == n {
		live.removeRun(first, n, slot)
	} else {
		for i, holders := range c.count[at : at+int(n)] {
			if holders == 0 {
				live.removeRun(first+kv.BlockID(i), 1, slot)
			}
		}
	}
	c.distinct -= int64(gone)
	if c.held[page] -= gone; c.held[page] == 0 {
		c.pages.close(kv.PageKey(first))
	}
}
