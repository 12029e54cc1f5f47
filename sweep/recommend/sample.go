package recommend

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sim/rng"
)

// Branch is one deployment mode's space.
type Branch struct {
	Name string
	Size int64 // candidates
}

// Pick is one candidate of a branch.
type Pick struct {
	Branch int
	Index  int64
}

// Sample draws up to trials candidates without replacement. Trials are divided
// evenly among the branches, the first ones get the remainder; a branch draws from
// seed + its number, and branches take turns with one batch each (spec
// sweeps-and-schema 5.1). A branch that runs out gives its turns to no other.
func Sample(branches []Branch, seed uint64, trials, batch int) ([]Pick, error) {
	if trials < len(branches) {
		return nil, fmt.Errorf("max_trials must be at least the number of deployment modes, %d, got %d", len(branches), trials)
	}
	drawn := make([][]int64, len(branches))
	total := 0
	for b, branch := range branches {
		n := trials / len(branches)
		if b < trials%len(branches) {
			n++
		}
		drawn[b] = draw(seed+uint64(b), branch.Size, n)
		total += len(drawn[b])
	}
	out := make([]Pick, 0, total)
	for len(out) < total {
		for b := range branches {
			n := min(batch, len(drawn[b]))
			for _, i := range drawn[b][:n] {
				out = append(out, Pick{b, i})
			}
			drawn[b] = drawn[b][n:]
		}
	}
	return out, nil
}

// Whole lists every candidate of every branch in order.
func Whole(branches []Branch) []Pick {
	var out []Pick
	for b, branch := range branches {
		for i := range branch.Size {
			out = append(out, Pick{b, i})
		}
	}
	return out
}

// draw is the head of a random permutation of 0..size-1.
func draw(seed uint64, size int64, n int) []int64 {
	n = int(min(int64(n), size))
	stream := rng.Stream(seed, "recommend")
	moved := map[int64]int64{} // the places of a permutation that differ from their index
	at := func(i int64) int64 {
		if v, ok := moved[i]; ok {
			return v
		}
		return i
	}
	out := make([]int64, n)
	for i := range out {
		from := int64(i)
		to := from + int64(below(&stream, uint64(size-from)))
		out[i] = at(to)
		moved[to] = at(from)
	}
	return out
}

// below is an unbiased integer in [0, n).
func below(s *rng.PCG, n uint64) uint64 {
	for limit := -n % n; ; {
		if v := s.Uint64(); v >= limit {
			return v % n
		}
	}
}
