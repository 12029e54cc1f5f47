package router

import (
	"math"
	"math/bits"
)

// picker chooses the candidate of lowest cost without a look at each.
//
// A slot's cost never grows with its overlaps, so for any level of the cached
// blocks and any level of the live ones the cost of a slot of both sets, worked out
// as if it held no more than these levels, is at least its own, and equal for the
// pair of levels at which it ends. The lowest cost over all pairs of levels and over
// the slots that are told one by one is therefore the lowest of all, and what
// attains it is exactly what is tied. Within a pair the cost follows the load
// alone, by which order sorts slots.
//
// Which configurations go this way, and which look at every candidate:
//
//   - A temperature above 0 weighs every candidate, and an estimator changes every
//     load with the clock: all candidates are looked at. So they are in pools of at
//     most scanMost ranks, where it costs less, pools with host memory, whose overlaps
//     are another sum for every rank, and with weights so large that a cost
//     could overflow, which has to be reported for the first candidate in question.
//   - If the weights and the block size are short binary fractions, costs
//     are exact sums, and the order of loads is the order of costs: the slots of a
//     pair of levels that are tied come out as bitsets.
//   - Otherwise, and where a credit that decays, exceeds 1 or is no short fraction
//     meets cached blocks, loads bound costs from below up to rounding: the slots
//     whose bound does not exceed the best cost so far are worked out one by one.
type picker struct {
	load    order // blocks of cost that a slot has without the request
	prefill order // active prefill tokens, kept if needed by busy tests or the decay
	plain   grain // of costs without credit
	credit  grain // of costs with credit; zero if loads do not order these
	best    float64
	tied    []uint64 // [word] slots of cost best
	touched []int    // words of tied that are not 0, each once or more
	found   []some   // scratch
}

// Bounds of the fast way.
const (
	scanMost   = 32    // ranks
	tameWeight = 1e100 // costs made of smaller weights stay finite
	mostPairs  = 24    // pairs of levels; prompts that cut a pool into more are rare
	roundings  = 1e-12 // far above what the operations of a cost can lose
)

// grain says of which powers of two a cost and the part of it that is scaled are
// multiples; zero if of none.
type grain struct{ pre, cost float64 }

// exactBits is the number of bits in which sums of multiples are exact, with room
// to tell apart what is larger.
const exactBits = 51

// fraction returns the largest power of two of which v is a multiple, +Inf for 0.
func fraction(v float64) float64 {
	if v == 0 {
		return math.Inf(1)
	}
	mantissa, exponent := math.Frexp(v)
	return math.Ldexp(1, exponent-53+bits.TrailingZeros64(uint64(mantissa*(1<<53))))
}

// preparePick settles what of a configuration the choice depends on.
func (k *KV) preparePick() {
	c, size := &k.cfg, float64(k.blockSize)
	k.scanMost = scanMost
	if c.Temperature > 0 || c.Estimator != nil ||
		max(c.OverlapCredit, c.CreditDecay, c.PrefillScale, c.ActiveRequestWeight) > tameWeight {
		k.scanMost = math.MaxInt
	}
	if scale, credit := fraction(c.PrefillScale), fraction(c.OverlapCredit); k.blockSize&(k.blockSize-1) == 0 {
		k.pick.plain = grain{pre: 1 / size, cost: min(scale/size, fraction(c.ActiveRequestWeight), 1)}
		if c.CreditDecay == 0 && c.OverlapCredit <= 1 {
			k.pick.credit = grain{pre: min(1/size, credit), cost: min(k.pick.plain.cost, scale*credit)}
		}
	}
	k.needsPrefill = c.CreditDecay > 0
	for i := range c.Profile.Classes {
		k.needsPrefill = k.needsPrefill || c.Profile.Classes[i].queues()
	}
	k.needsPrefill = k.needsPrefill && c.Estimator == nil
}

// loaded tells the picker that the load of a slot changed.
func (k *KV) loaded(slot int32) {
	r := &k.book.ranks[slot]
	if !r.eligible {
		k.pick.load.set(slot, math.Inf(1))
		k.pick.prefill.set(slot, math.Inf(1))
		return
	}
	key := float64(r.blocks) + k.cfg.ActiveRequestWeight*float64(r.requests)
	if k.cfg.TrackPrefillTokens {
		key += k.cfg.PrefillScale * float64(r.prefill.sum) / float64(k.blockSize)
	}
	k.pick.load.set(slot, key)
	if k.needsPrefill {
		k.pick.prefill.set(slot, float64(r.prefill.sum))
	}
}

// pickLoad returns the load of the candidate of lowest cost, ties uniform; false
// if the request's overlaps make so many levels that each candidate has to be
// looked at.
func (k *KV) pickLoad(a *ask) (load, bool) {
	cachedLevels, liveLevels := len(k.cached.depths), len(k.live.depths)
	if (cachedLevels+1)*(liveLevels+1) > mostPairs {
		return load{}, false
	}
	if k.cfg.CreditDecay > 0 {
		a.least = int64(k.pick.prefill.min())
	}
	p := &k.pick
	p.best = math.Inf(1)
	p.clear()
	k.prepareBounds(a)
	for _, e := range k.cached.entries {
		k.consider(e.slot, e.blocks, k.live.of(e.slot), a)
	}
	for _, e := range k.live.entries {
		if k.cached.own[e.slot] == 0 {
			k.consider(e.slot, k.cached.of(e.slot), e.blocks, a)
		}
	}
	for i := cachedLevels - 1; i >= -1; i-- {
		for j := liveLevels - 1; j >= -1; j-- {
			k.considerLevels(i, j, a)
		}
	}
	slot := k.drawTied()
	return k.loadOf(slot, k.cached.of(slot), k.live.of(slot), a), true
}

// loadOf is the load of a slot for a request of which it caches so many leading
// blocks and shares so many live ones.
func (k *KV) loadOf(slot, cached, live int32, a *ask) load {
	r := &k.book.ranks[slot]
	return load{slot: slot, prefill: r.prefill.sum, blocks: r.blocks + int64(a.blocks-live),
		live: r.requests, cached: cached}
}

// consider works out the cost of one slot, if it is a candidate and may be the best.
func (k *KV) consider(slot, cached, live int32, a *ask) {
	if k.pick.load.keys[slot] > k.limit(cached, live, a) {
		return
	}
	l := k.loadOf(slot, cached, live, a)
	k.pick.offer(k.costOf(&l, a), int(slot>>6), 1<<(slot&63))
}

// prepareBounds fills in what of a bound all candidates share.
func (k *KV) prepareBounds(a *ask) {
	a.whole = float64(a.blocks)
	most := a.whole
	if k.cfg.TrackPrefillTokens {
		prompt := k.cfg.PrefillScale * float64(a.isl) / float64(k.blockSize)
		a.whole += prompt
		most += prompt + k.credit(a.isl/k.blockSize)
	}
	a.margin = roundings * (1 + most)
}

// credit is what so many cached blocks take off a cost, at most.
func (k *KV) credit(cached int32) float64 {
	if !k.cfg.TrackPrefillTokens {
		return 0
	}
	return k.cfg.PrefillScale * k.cfg.OverlapCredit * float64(cached)
}

// limit is the largest key with which a slot that caches and shares so many blocks
// may cost no more than the best so far. A cost is the key and what the request
// adds, or more if the credit is capped or decays.
func (k *KV) limit(cached, live int32, a *ask) float64 {
	best := k.pick.best
	return min(best-(a.whole-float64(live)-k.credit(cached))+a.margin*(1+best), math.MaxFloat64)
}

// considerLevels works out the lowest cost among the slots of two levels, -1 being
// the one of all slots and no blocks.
func (k *KV) considerLevels(i, j int, a *ask) {
	var cached, live int32
	var inCached, inLive []uint64
	if i >= 0 {
		cached, inCached = k.cached.depths[i], k.cached.set(i)
	}
	if j >= 0 {
		live, inLive = k.live.depths[j], k.live.set(j)
	}
	p := &k.pick
	var key float64
	if key, p.found = p.load.lowest(inCached, inLive, k.limit(cached, live, a), p.found); len(p.found) == 0 {
		return
	}
	if k.exactAt(key, cached, a) {
		l := k.loadOf(int32(p.found[0].word<<6+bits.TrailingZeros64(p.found[0].set)), cached, live, a)
		cost := k.costOf(&l, a)
		for _, s := range p.found {
			p.offer(cost, s.word, s.set)
		}
		return
	}
	for w, least := range p.load.least {
		if least > k.limit(cached, live, a) {
			continue
		}
		for set := both(inCached, inLive, w); set != 0; set &= set - 1 {
			k.consider(int32(w<<6+bits.TrailingZeros64(set)), cached, live, a)
		}
	}
}

// exactAt reports whether costs of slots with a key, and of those with less, that
// are given so many cached blocks are exact sums.
func (k *KV) exactAt(key float64, cached int32, a *ask) bool {
	g, c := k.pick.plain, &k.cfg
	if cached > 0 {
		g = k.pick.credit
	}
	pre := float64(a.isl)/float64(k.blockSize) + c.OverlapCredit*float64(cached)
	most := math.Ldexp(1, exactBits)
	return key+float64(a.blocks)+c.PrefillScale*pre < most*g.cost &&
		(c.PrefillScale == 0 || key/c.PrefillScale+pre < most*g.pre)
}

// clear empties the tied slots.
func (p *picker) clear() {
	for _, w := range p.touched {
		p.tied[w] = 0
	}
	p.touched = p.touched[:0]
}

// offer counts slots of one word, all of one cost, among the tied if none costs
// less.
func (p *picker) offer(cost float64, word int, set uint64) {
	if cost > p.best {
		return
	}
	if cost < p.best {
		p.clear()
		p.best = cost
	}
	if p.tied[word] == 0 {
		p.touched = append(p.touched, word)
	}
	p.tied[word] |= set
}

// drawTied returns one of the tied slots, all alike; the draw goes by the order of
// candidates.
func (k *KV) drawTied() int32 {
	p, ties := &k.pick, 0
	for _, w := range p.touched {
		ties += bits.OnesCount64(p.tied[w])
	}
	nth := 0
	if ties > 1 {
		nth = k.ties.IntN(ties)
	}
	if !k.slotsInOrder {
		for _, slot := range k.eligible {
			if p.tied[slot>>6]>>(slot&63)&1 == 0 {
				continue
			}
			if nth == 0 {
				return slot
			}
			nth--
		}
	}
	for w, set := range p.tied {
		if n := bits.OnesCount64(set); nth >= n {
			nth -= n
			continue
		}
		for ; nth > 0; nth-- {
			set &= set - 1
		}
		return int32(w<<6 + bits.TrailingZeros64(set))
	}
	panic("router: no candidate has the lowest cost")
}
