package trace

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// slowHits is the share of tokens that an LRU cache of so many blocks holds, by
// keeping the list of blocks.
func slowHits(prompts [][]uint64, size int) float64 {
	var lru []uint64 // most recent first
	hits, all := 0, 0
	for _, p := range prompts {
		for _, h := range p {
			all++
			if i := slices.Index(lru, h); i >= 0 && i < size {
				hits++
			}
		}
		for _, h := range slices.Backward(p) {
			if i := slices.Index(lru, h); i >= 0 {
				lru = slices.Delete(lru, i, i+1)
			}
			lru = slices.Insert(lru, 0, h)
		}
	}
	return float64(hits) / float64(all)
}

func TestReuseCurveIsThatOfAnLRUCacheOfEverySize(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var prompts [][]uint64
		for range 60 {
			var p []uint64
			family := rng.Uint64N(4)
			for i := range 1 + rng.Uint64N(30) {
				if rng.IntN(12) == 0 {
					family = 100 + rng.Uint64N(50)
				}
				p = append(p, mixHash(family<<32|i))
			}
			prompts = append(prompts, p)
		}
		c := newReuseCurve()
		for _, p := range prompts {
			c.request(p, int64(len(p))*16, 16)
		}
		points := c.points(16)
		if len(points) == 0 {
			t.Fatalf("seed %d: no point", seed)
		}
		for _, p := range points {
			if want := slowHits(prompts, int(p.Blocks)); p.HitRatio < want-1e-12 || p.HitRatio > want+1e-12 {
				t.Errorf("seed %d: %d blocks hit %v, want %v", seed, p.Blocks, p.HitRatio, want)
			}
		}
	}
}

func TestReuseCurveCompactsWithoutAChange(t *testing.T) {
	c, small := newReuseCurve(), newReuseCurve()
	small.tree = make([]int32, 64)
	rng := rand.New(rand.NewPCG(7, 7))
	for range 4000 {
		p := []uint64{mixHash(rng.Uint64N(300)), mixHash(1000 + rng.Uint64N(300))}
		c.request(p, 32, 16)
		small.request(p, 32, 16)
	}
	if !slices.Equal(c.points(16), small.points(16)) {
		t.Errorf("%v, compacted often %v", c.points(16), small.points(16))
	}
}
