package sglang

import (
	"slices"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// decodeRun is the run that Run found last, as Advance has moved it on.
type decodeRun struct {
	members  []int32 // run slots, running order
	lens     lengths // of the sequences before the first pass
	advanced int64   // passes committed
	minLeft  int32   // fewest tokens that a member still wants
	maxLeft  int32
	left     int64   // tokens that all members still want
	slack    []int32 // [tokens free in the last page], members; shorter than a page if the run must be
	order    []int32 // scratch: running list by last insert
}

// Run looks for a decode run of at most limit passes. In it the queue is blocked,
// nobody finishes and the pages of every step can be taken or evicted without a
// retraction (spec replay-runtime 13, notes 1 and 3).
//
// Evictions may happen inside a run where the passes could not tell: they must not
// shorten the match of a request that is tested or sorted each pass, and the
// members must extend leaves of their own, so that a vanished sibling does not
// change where their next page goes.
func (c *Core) Run(limit int) engine.Run {
	d := &c.plan
	d.members = d.members[:0]
	n := len(c.running)
	if n == 0 || c.sampler != nil || c.cfg.Role == engine.Prefill || c.deferredPasses > 0 || c.overlong > 0 ||
		len(c.handoff.ready) > 0 && n < c.maxRun || !c.gatherRun(limit) {
		return engine.Run{}
	}
	passes := min(limit, int(d.minLeft)-1)
	if passes < 1 {
		return engine.Run{}
	}
	head, ok := c.planHead()
	if !ok {
		return engine.Run{}
	}
	if passes = c.boundRun(passes, head); passes == 0 {
		return engine.Run{}
	}
	for _, i := range c.running {
		d.members = append(d.members, c.reqs.At(i).id)
	}
	return engine.Run{Passes: passes, Members: int64(n), Context: d.lens.sum,
		Events: c.cfg.WantEvents && c.cfg.PrefixCaching}
}

// gatherRun sums up the running list for at most limit passes. It reports false if
// some member has no token yet or is about to end.
func (c *Core) gatherRun(limit int) bool {
	d := &c.plan
	d.lens, d.advanced = lengths{}, 0
	d.minLeft, d.maxLeft, d.left = unlimited, 0, 0
	if c.page > 1 {
		d.slack = slices.Grow(d.slack[:0], min(int(c.page), limit))[:min(int(c.page), limit)]
		clear(d.slack)
	}
	for _, i := range c.running {
		r := c.reqs.At(i)
		left := r.remaining()
		if left < 2 || r.out == 0 {
			return false
		}
		d.minLeft, d.maxLeft = min(d.minLeft, left), max(d.maxLeft, left)
		d.left += int64(left)
		d.lens.add(r.len())
		if free := int(r.pages*c.page - r.len()); c.page > 1 && free < len(d.slack) {
			d.slack[free]++
		}
	}
	return true
}

// blockedHead is the head of the queue as a run tests it.
type blockedHead struct {
	tested bool    // only the token budget refuses it, so each pass must ask again
	want   float64 // its cost and reserve
	fixed  bool    // no eviction can change what it or the queue order finds
}

// planHead looks at the queue before a run; false if its head would be admitted.
func (c *Core) planHead() (blockedHead, bool) {
	if c.waiting.n == 0 {
		return blockedHead{fixed: true}, true
	}
	h := blockedHead{fixed: true}
	if c.sorts() {
		c.orderQueue()
		h.fixed = false
	}
	if len(c.running) >= c.maxRun || len(c.handoff.ready)+len(c.handoff.pending) > 0 {
		return h, true
	}
	b := c.newBudget()
	r := c.reqs.At(c.waiting.at(0))
	s, no := c.planStep(r, &b)
	if no == fits {
		return h, false
	}
	if s.match > 0 {
		_, deepest := c.tree.find(&r.prompt, s.match/c.page)
		h.fixed = h.fixed && c.tree.nodes[deepest].lock > 0
	}
	h.tested, h.want = no == noTokens, float64(s.cost+s.reserve)
	return h, true
}

// boundRun cuts a run before the pass that would admit the head, or whose pages
// would cost a retraction or an eviction that a run may not do.
func (c *Core) boundRun(passes int, h blockedHead) int {
	d := &c.plan
	spare := c.free
	if h.fixed && c.tree.evictable() > 0 && c.exclusiveRun() {
		spare += c.tree.evictable()
	}
	room, ratio := c.room(), c.ratio
	n := int32(len(c.running))
	for j := 0; j < passes; j++ {
		if h.tested && !c.refusedAt(int32(j), room, ratio, h.want) {
			return j
		}
		need := n
		if c.page > 1 {
			need = d.slack[int32(j)%c.page]
		}
		if spare -= need; spare < 0 {
			return j
		}
		room -= need
		ratio = max(ratio-c.ratioStep, c.ratioMin)
	}
	return passes
}

// exclusiveRun reports whether every member extends a leaf of its own.
func (c *Core) exclusiveRun() bool {
	for _, i := range c.running {
		if !c.tree.exclusive(c.reqs.At(i).node) {
			return false
		}
	}
	return true
}

// refusedAt is the admission test of spec engine-sglang 6.2 step 5 at pass j of a run, when room
// pages are left and the ratio is as given. An estimate decides unless it is too
// close; then the sum is taken as newBudget takes it.
func (c *Core) refusedAt(j, room int32, ratio, want float64) bool {
	tokens := float64(int64(room) * int64(c.page))
	if d := &c.plan; d.maxLeft-j <= c.clip {
		sum := float64(d.left-d.lens.n*int64(j)) * ratio
		// n roundings of terms that add up to sum
		slack := 1e-6 + float64(1e-9*(sum+tokens))
		if over := want - (tokens - sum); over > slack || over < -slack {
			return over > 0
		}
	}
	sum := 0.0
	for _, i := range c.running {
		sum += float64(float64(min(c.reqs.At(i).remaining()-j, c.clip)) * ratio)
	}
	return want >= tokens-sum
}

// Advance commits n passes of the run. One insert per request with all its new
// pages, in the order of the last insert that the passes would do, leaves the same
// tree and the same order of ticks.
func (c *Core) Advance(n int, ev *kv.Events) {
	c.directEvents(ev)
	for range n {
		if c.ratio == c.ratioMin {
			break
		}
		c.ratio = max(c.ratio-c.ratioStep, c.ratioMin)
	}
	k := int32(n)
	var need int32
	for _, i := range c.running {
		r := c.reqs.At(i)
		need += c.pagesFor(r.len()+k) - r.pages
	}
	c.evict(need - c.free)
	c.free -= need
	for _, i := range c.running {
		r := c.reqs.At(i)
		r.out += k
		r.computed += k
		r.pages = c.pagesFor(r.computed)
	}
	for _, i := range c.insertOrder() {
		c.cache(i, c.reqs.At(i).computed)
	}
	c.plan.advanced += int64(n)
	c.ev = nil
}

// insertOrder lists the running requests by (pass, running order) of their last
// completed page: the more tokens since, the earlier. Those that completed none in
// the run insert nothing and stand anywhere.
func (c *Core) insertOrder() []int32 {
	if c.page == 1 || !c.cfg.PrefixCaching {
		return c.running
	}
	d := &c.plan
	clear(d.slack) // [tokens since the last full page], then where its members go
	since := func(i int32) int32 { return min(c.reqs.At(i).computed%c.page, int32(len(d.slack)-1)) }
	for _, i := range c.running {
		d.slack[since(i)]++
	}
	var at int32
	for k := len(d.slack) - 1; k >= 0; k-- {
		at, d.slack[k] = at+d.slack[k], at
	}
	if cap(d.order) < len(c.running) {
		d.order = make([]int32, 2*len(c.running))
	}
	d.order = d.order[:len(c.running)]
	for _, i := range c.running {
		k := since(i)
		d.order[d.slack[k]] = i
		d.slack[k]++
	}
	return d.order
}

// RunBlocks adds the pages that the members take to those in use now. What is
// evicted for them stays in use.
func (c *Core) RunBlocks(dst []int64) {
	clear(dst)
	for _, i := range c.running {
		r := c.reqs.At(i)
		for j := int(r.pages*c.page - r.len()); c.page > 1 && j < len(dst); j += int(c.page) {
			dst[j]++
		}
	}
	used := int64(c.total - c.free)
	for j := range dst {
		used += dst[j]
		if c.page == 1 {
			used += int64(len(c.running))
		}
		used = min(used, int64(c.total))
		dst[j] = used
	}
}

// Members lists the requests of the run in running order.
func (c *Core) Members() []int32 { return c.plan.members }

// RunMetrics is the metric row of the latest committed pass of the run. All
// lengths grow alike, so their variance is that of the first.
func (c *Core) RunMetrics() engine.ForwardPass {
	d := &c.plan
	m := engine.ForwardPass{DecodeRequests: d.lens.n, DecodeVar: d.lens.variance(),
		DecodeKVTokens: d.lens.sum + (d.advanced-1)*d.lens.n}
	c.fillQueued(&m)
	return m
}
