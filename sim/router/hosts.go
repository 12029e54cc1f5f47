package router

import (
	"math"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// hosts is what the router knows of the memory behind the KV pools: which blocks the
// host memory of a rank holds, and how many of a request's blocks extend what the
// rank's pool has (spec kv-router 11).
type hosts struct {
	index  *index  // blocks in host memory, by slot
	weight float64 // credit per block
	extend []int32 // [slot], of the request looked at
}

// ObserveHost applies the events of a rank's host memory.
func (k *KV) ObserveHost(from Rank, ev *kv.Events, _ float64) {
	slot := k.slot(from.Worker, from.Rank)
	if slot < 0 || k.side == Decode {
		return
	}
	if k.hosts.index == nil {
		k.hosts.index = newIndex()
	}
	k.hosts.index.widen(len(k.book.ranks))
	for _, v := range ev.Items {
		for _, id := range ev.BlocksOf(v) {
			if v.Stored {
				k.hosts.index.store(id, 1, slot)
			} else {
				k.hosts.index.evict(id, 1, slot)
			}
		}
	}
}

// match fills extend for a request of so many blocks, whose overlaps with the pools
// are in cached.
func (h *hosts) match(k *KV, p *kv.Prompt, blocks int32) {
	if h.index == nil {
		return
	}
	for len(h.extend) < len(k.book.ranks) {
		h.extend = append(h.extend, 0)
	}
	clear(h.extend)
	for _, slot := range k.eligible {
		from := k.cached.of(slot)
		i := from
		for i < blocks && h.index.caches(p.Block(int(i)), slot) {
			i++
		}
		h.extend[slot] = i - from
	}
}

// of returns the blocks that host memory adds at a slot.
func (h *hosts) of(slot int32) int32 {
	if h.index == nil || int(slot) >= len(h.extend) {
		return 0
	}
	return h.extend[slot]
}

// effective is the overlap of a candidate in blocks, host memory at its weight.
func (h *hosts) effective(cached, host int32) float64 {
	return float64(cached) + float64(h.weight*float64(host))
}

// cachedTokens is the same in tokens, rounded half away from zero.
func (k *KV) cachedTokens(cached, host int32) int64 {
	if host == 0 {
		return int64(cached) * int64(k.blockSize)
	}
	return int64(math.Round(k.hosts.effective(cached, host) * float64(k.blockSize)))
}

// bestOverlap is the largest overlap of a candidate: tokens, and whole blocks.
func (k *KV) bestOverlap() (tokens int64, blocks int32) {
	if k.hosts.index == nil {
		blocks = k.cached.most(k.eligibleSet)
		return int64(blocks) * int64(k.blockSize), blocks
	}
	for _, slot := range k.eligible {
		cached, host := k.cached.of(slot), k.hosts.of(slot)
		tokens = max(tokens, k.cachedTokens(cached, host))
		blocks = max(blocks, int32(k.hosts.effective(cached, host)))
	}
	return tokens, blocks
}
