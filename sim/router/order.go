package router

import (
	"math"
	"math/bits"
)

// order keeps a key per slot, the lower the better, so that the least key of any
// set of slots is found without a look at each: slots stand in groups of 64, and
// of each group the least key and the slots that have it are known.
type order struct {
	keys  []float64 // [slot], +Inf: no candidate
	least []float64 // [group]
	at    []uint64  // [group] slots with the least key
}

// widen makes room for slots below n.
func (o *order) widen(n int) {
	for 64*len(o.least) < n {
		for range 64 {
			o.keys = append(o.keys, math.Inf(1))
		}
		o.least, o.at = append(o.least, math.Inf(1)), append(o.at, ^uint64(0))
	}
}

// set changes the key of a slot.
func (o *order) set(slot int32, key float64) {
	group, bit := slot>>6, uint64(1)<<(slot&63)
	o.keys[slot] = key
	switch least := o.least[group]; {
	case key < least:
		o.least[group], o.at[group] = key, bit
	case key == least:
		o.at[group] |= bit
	case o.at[group] == bit:
		o.renew(group)
	default:
		o.at[group] &^= bit
	}
}

// renew looks at every key of a group.
func (o *order) renew(group int32) {
	least, at := math.Inf(1), uint64(0)
	for i, key := range o.keys[group<<6:][:64] {
		switch {
		case key < least:
			least, at = key, 1<<i
		case key == least:
			at |= 1 << i
		}
	}
	o.least[group], o.at[group] = least, at
}

// min is the least key of all, +Inf without candidates.
func (o *order) min() float64 {
	least := math.Inf(1)
	for _, key := range o.least {
		least = min(least, key)
	}
	return least
}

// some is a set of slots of one word.
type some struct {
	word int
	set  uint64
}

// lowest returns the least key, at most limit, among the slots of two sets, and in
// out the slots that have it; without such a slot out is empty. A nil set is all
// slots.
func (o *order) lowest(a, b []uint64, limit float64, out []some) (float64, []some) {
	out = out[:0]
	for w, least := range o.least {
		if least > limit {
			continue
		}
		set := both(a, b, w)
		if set == 0 {
			continue
		}
		hit := o.at[w] & set
		if hit == 0 {
			least, hit = o.among(w, set, limit)
		}
		if hit == 0 {
			continue
		}
		if least < limit {
			limit, out = least, out[:0]
		}
		out = append(out, some{w, hit})
	}
	return limit, out
}

// among is lowest for one word.
func (o *order) among(word int, set uint64, limit float64) (float64, uint64) {
	hit := uint64(0)
	keys := o.keys[word<<6:][:64]
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		switch key := keys[i]; {
		case key < limit:
			limit, hit = key, 1<<i
		case key == limit:
			hit |= 1 << i
		}
	}
	return limit, hit
}

// both is a word of the intersection of two sets.
func both(a, b []uint64, w int) uint64 {
	set := ^uint64(0)
	if a != nil {
		set = a[w]
	}
	if b != nil {
		set &= b[w]
	}
	return set
}
