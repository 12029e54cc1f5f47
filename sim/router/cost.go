package router

import (
	"fmt"
	"math"
)

// load is what the cost of a candidate is made of (spec kv-router 6.2).
type load struct {
	slot    int32
	prefill int64 // A, active prefill tokens
	blocks  int64 // D, active blocks and those that the request would add
	live    int32 // Q, active requests
	cached  int32 // leading cached blocks of the request
	host    int32 // blocks after those in the host memory of the rank
}

// ask is what the cost takes from the request, and what all candidates share.
type ask struct {
	isl           int32
	blocks        int32   // that the request would add where nothing is shared
	requestBlocks float64 // at least 1
	least         int64   // of the candidates' active prefill tokens; only if the credit decays
	whole         float64 // blocks of cost that the request adds where nothing is cached or shared
	margin        float64 // share of a cost by which it may differ from key and bound by rounding
}

// costOf is the cost of one candidate (spec kv-router 6.3). The order of operations
// decides ties.
func (k *KV) costOf(l *load, a *ask) float64 {
	c := &k.cfg
	size := float64(k.blockSize)
	decay, raw := 1.0, int64(0)
	if c.TrackPrefillTokens {
		if c.CreditDecay > 0 {
			excess := float64(l.prefill-a.least) / size
			decay = 1 / (1 + float64(c.CreditDecay*(excess/a.requestBlocks)))
		}
		cached := k.cachedTokens(l.cached, l.host)
		raw = l.prefill + max(int64(a.isl)-cached, 0) + cached
	}
	credit := float64(float64(c.OverlapCredit*decay) * float64(l.cached))
	if l.host > 0 {
		credit += float64(k.hosts.weight * float64(l.host))
	}
	pre := max(float64(raw)/size-credit, 0)
	cost := float64(c.PrefillScale*pre) + float64(l.blocks)
	return cost + float64(c.ActiveRequestWeight*float64(l.live))
}

// costs fills k.cost for the candidates of k.loads.
func (k *KV) costs(a *ask) error {
	a.least = math.MaxInt64
	for i := range k.loads {
		a.least = min(a.least, k.loads[i].prefill)
	}
	k.cost = k.cost[:0]
	for i := range k.loads {
		cost := k.costOf(&k.loads[i], a)
		if math.IsInf(cost, 0) || math.IsNaN(cost) {
			return fmt.Errorf("scorer 0 produced a non-finite cost for candidate row %d", i)
		}
		k.cost = append(k.cost, cost)
	}
	return nil
}

func ceilDiv(a, b int32) int32 {
	q := a / b
	if a%b != 0 {
		q++
	}
	return q
}

// choose returns the index of a candidate of k.cost: the lowest cost, ties uniform,
// or a softmax draw over range-normalised costs (spec kv-router 6.4).
func (k *KV) choose() int {
	lo, hi := math.Inf(1), math.Inf(-1)
	ties, first := 0, 0
	for i, cost := range k.cost {
		switch {
		case cost < lo:
			lo, ties, first = cost, 1, i
		case cost == lo:
			ties++
		}
		hi = max(hi, cost)
	}
	if k.cfg.Temperature > 0 {
		return k.sampleSoftmax(lo, hi)
	}
	if ties == 1 {
		return first
	}
	for nth := k.ties.IntN(ties); ; first++ {
		if k.cost[first] != lo {
			continue
		}
		if nth == 0 {
			return first
		}
		nth--
	}
}

// sampleSoftmax is the choice at a positive temperature, given the range of k.cost.
func (k *KV) sampleSoftmax(lo, hi float64) int {
	if len(k.cost) == 1 {
		return 0
	}
	k.weight = k.weight[:0]
	sum := 0.0
	for _, cost := range k.cost {
		w := 1.0
		if hi > lo {
			w = math.Exp(-(cost - lo) / float64((hi-lo)*k.cfg.Temperature))
		}
		k.weight = append(k.weight, w)
		sum += w
	}
	u, cumulative := k.softmax.Float64(), 0.0
	for i, w := range k.weight {
		cumulative += w / sum
		if u <= cumulative {
			return i
		}
	}
	return len(k.weight) - 1
}
