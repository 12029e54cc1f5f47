package sglang

import (
	"cmp"
	"slices"

	"github.com/dynosweep/dynosweep/sim/engine"
)

// admitted is one member of a prefill batch.
type admitted struct {
	place    int32
	prefix   int32 // tokens there before: the locked match, or earlier chunks
	computed int32 // tokens of this pass
}

// budget is what a prefill pass may still take (spec engine-sglang 6.1).
type budget struct {
	tokens  float64 // of the pool, after what running requests may still need
	prefill int64   // max_prefill_tokens
	chunk   int64   // chunked_prefill_size
}

// refusal says why the head of the queue was not admitted.
type refusal uint8

const (
	fits     refusal = iota
	noTokens         // cost and reserve reach the budget of the pool
	noPages          // the pages do not fit once the match is locked
	noChunk          // the prefill budget has no room for its next chunk
)

// step is what admission would do with the head of the queue.
type step struct {
	match   int32 // tokens found in the tree (first chunk only)
	end     int32 // tokens that own KV afterwards
	cost    int64 // page-rounded tokens to compute
	reserve int64 // tokens of output to keep free
}

// newBudget sums over the running list in its order, since ratios are not exact.
func (c *Core) newBudget() budget {
	sum := 0.0
	for _, i := range c.running {
		sum += float64(float64(min(c.reqs.At(i).remaining(), c.clip)) * c.ratio)
	}
	room := float64(int64(c.room()) * int64(c.page))
	return budget{tokens: room - sum, prefill: c.prefill, chunk: c.chunk}
}

// planStep works out the next chunk of r under b (spec engine-sglang 6.2, steps 1
// to 5), touching nothing.
func (c *Core) planStep(r *request, b *budget) (step, refusal) {
	var s step
	start := r.computed
	if r.computed == 0 && c.cfg.PrefixCaching {
		limit := r.len() - 1
		if r.maxOut == 0 {
			limit = r.len()
		}
		pages, _ := c.tree.find(&r.prompt, c.full(limit))
		s.match = pages * c.page
		start = s.match
	}
	ext := r.len() - start
	if ext == 0 && r.computed > 0 {
		return s, noChunk
	}
	n := ext
	if page := int64(c.page); c.ceil(ext) > b.chunk {
		whole := b.chunk / page * page
		if whole == 0 {
			return s, noChunk
		}
		n = int32(min(whole, int64(ext)))
	}
	s.end, s.cost = start+n, c.ceil(n)
	if n == ext {
		s.reserve = int64(min(r.remaining(), c.clip))
	}
	switch {
	case s.cost > b.prefill || s.cost > b.chunk:
		return s, noChunk
	case float64(s.cost+s.reserve) >= b.tokens:
		return s, noTokens
	}
	return s, fits
}

// ceil rounds tokens up to pages.
func (c *Core) ceil(n int32) int64 { return int64(c.pagesFor(n)) * int64(c.page) }

// admit takes a prefill batch from the head of the queue into c.batch. A head that
// does not fit ends it, and is returned with the reason.
func (c *Core) admit(p *engine.Pass) refusal {
	slots := c.maxRun - len(c.running)
	if slots <= 0 || c.waiting.n == 0 {
		return fits
	}
	b := c.newBudget()
	for len(c.batch) < slots && c.waiting.n > 0 {
		i := c.waiting.at(0)
		r := c.reqs.At(i)
		s, no := c.planStep(r, &b)
		if no != fits {
			return no
		}
		before := r.computed
		if before == 0 {
			if !c.lease(i, c.full(s.match), s.end) {
				return noPages
			}
			before = r.cached * c.page
			p.Admissions = append(p.Admissions, engine.Admission{Req: r.id, Reused: before})
			p.CacheHit += int64(before)
		} else if !c.grow(r, s.end) {
			return noPages
		}
		c.waiting.popFront()
		c.countDequeued(i)
		r.computed = s.end
		if c.ev != nil {
			c.emitStored(i, c.full(r.computed))
		}
		c.batch = append(c.batch, admitted{place: i, prefix: before, computed: s.end - before})
		b.tokens -= float64(s.cost + s.reserve)
		b.prefill -= s.cost
		if b.chunk -= s.cost; b.chunk <= 0 {
			break
		}
	}
	return fits
}

// ranked is a waiting request under the longest-prefix policy.
type ranked struct {
	place int32
	match int32 // tokens
	dup   bool
}

// sorts reports whether the queue policy may reorder the queue at all.
func (c *Core) sorts() bool {
	return c.cfg.SGLang.LPM && c.cfg.PrefixCaching && c.waiting.n > 0 && c.waiting.n <= lpmMaxQueue
}

// orderQueue applies the longest-prefix policy (spec engine-sglang 5): longer
// matches first; of cold requests that begin alike, all but the first go last.
// Doing it twice is doing it once.
func (c *Core) orderQueue() {
	c.order, c.keys = c.order[:0], c.keys[:0]
	head := c.pagesFor(lpmDupTokens)
	for k := 0; k < c.waiting.n; k++ {
		i := c.waiting.at(k)
		r := c.reqs.At(i)
		pages, _ := c.tree.find(&r.prompt, c.full(r.len()))
		e := ranked{place: i, match: pages * c.page}
		if e.match <= lpmDupTokens && r.len() >= head*c.page {
			key := r.prompt.Block(int(head - 1)) // names all pages before it too
			if e.dup = slices.Contains(c.keys, key); !e.dup {
				c.keys = append(c.keys, key)
			}
		}
		c.order = append(c.order, e)
	}
	slices.SortStableFunc(c.order, func(a, b ranked) int {
		if a.dup != b.dup {
			if b.dup {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.match, a.match)
	})
	for k := range c.order {
		c.waiting.set(k, c.order[k].place)
	}
}

// dropOverlong takes prompts that max_model_len refuses out of the queue into
// c.refused; the others keep their order (spec engine-sglang 4.3).
func (c *Core) dropOverlong() {
	if c.overlong == 0 {
		return
	}
	kept := 0
	for k := 0; k < c.waiting.n; k++ {
		i := c.waiting.at(k)
		if r := c.reqs.At(i); c.overLimit(r) {
			c.countDequeued(i)
			c.refused = append(c.refused, i)
			continue
		}
		c.waiting.set(kept, i)
		kept++
	}
	c.waiting.cut(kept)
}
