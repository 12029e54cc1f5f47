package trace

import (
	"math"
	"math/bits"
	"slices"
)

// SizePoint is the share of input tokens that a cache of so many blocks would hold
// already when their request comes, if it evicted the least recently used block.
type SizePoint struct {
	Blocks   int64   `json:"blocks"`
	Tokens   int64   `json:"tokens"`
	HitRatio float64 `json:"hit_ratio"`
}

// reuseCurve finds the hit share of an LRU cache of every size in one pass: a block
// is a hit in all caches of at least its stack distance, the number of different
// blocks used since it was used last, itself included (Mattson et al., 1970). A
// Fenwick tree over the times of last use counts them in logarithmic time.
//
// The blocks of a request are looked up before any of them counts as used, and then
// used from the last to the first, so that a prefix is always as recent as what
// follows it. Past sampleLimit blocks it keeps every other one by its hash and counts
// what is left twice.
type reuseCurve struct {
	lastUse map[uint64]int32 // time of last use, from 1
	tree    []int32          // Fenwick: blocks whose last use is that time
	now     int32
	drop    int
	hits    [64]float64 // tokens, by the logarithm of the distance, rounded up
	all     float64
	hashes  []uint64
}

func newReuseCurve() *reuseCurve {
	return &reuseCurve{lastUse: make(map[uint64]int32), tree: make([]int32, 1<<12)}
}

// request books the blocks of one prompt, whose last one may hold fewer tokens.
func (c *reuseCurve) request(hashes []uint64, input, blockSize int64) {
	weight := math.Ldexp(1, c.drop)
	for i, h := range hashes {
		if bits.LeadingZeros64(h) < c.drop {
			continue
		}
		tokens := float64(min(input-int64(i)*blockSize, blockSize)) * weight
		c.all += tokens
		if at := c.lastUse[h]; at > 0 {
			distance := float64(len(c.lastUse)-int(c.before(at))) * weight
			c.hits[bits.Len64(uint64(distance)-1)] += tokens
		}
	}
	for _, h := range slices.Backward(hashes) {
		if bits.LeadingZeros64(h) >= c.drop {
			c.use(h)
		}
	}
}

// use makes a block the most recent one.
func (c *reuseCurve) use(h uint64) {
	if int(c.now)+1 == len(c.tree) {
		c.compact()
		if bits.LeadingZeros64(h) < c.drop {
			return
		}
	}
	if at := c.lastUse[h]; at > 0 {
		c.count(at, -1)
	}
	c.now++
	c.lastUse[h] = c.now
	c.count(c.now, 1)
}

// compact numbers the times of last use anew, in a larger tree if most are in use,
// and halves the sample at its limit.
func (c *reuseCurve) compact() {
	if len(c.lastUse) >= sampleLimit {
		c.drop++
	}
	type used struct {
		hash uint64
		at   int32
	}
	kept := make([]used, 0, len(c.lastUse))
	for h, at := range c.lastUse {
		if bits.LeadingZeros64(h) < c.drop {
			delete(c.lastUse, h)
			continue
		}
		kept = append(kept, used{h, at})
	}
	slices.SortFunc(kept, func(a, b used) int { return int(a.at - b.at) })
	size := len(c.tree)
	for 2*len(kept) > size {
		size *= 2
	}
	c.tree, c.now = make([]int32, size), 0
	for _, u := range kept {
		c.now++
		c.lastUse[u.hash] = c.now
		c.count(c.now, 1)
	}
}

func (c *reuseCurve) count(at, n int32) {
	for ; int(at) < len(c.tree); at += at & -at {
		c.tree[at] += n
	}
}

// before counts the blocks used last before a time.
func (c *reuseCurve) before(at int32) (n int32) {
	for at--; at > 0; at -= at & -at {
		n += c.tree[at]
	}
	return n
}

// points is the curve at powers of two, up to the size from which it is flat.
func (c *reuseCurve) points(blockSize int) []SizePoint {
	out := []SizePoint{}
	last := 0
	for i, tokens := range c.hits {
		if tokens > 0 {
			last = i
		}
	}
	sum := 0.0
	for i := range last + 1 {
		if sum += c.hits[i]; sum > 0 {
			out = append(out, SizePoint{Blocks: 1 << i, Tokens: int64(blockSize) << i, HitRatio: sum / max(c.all, 1)})
		}
	}
	return out
}
