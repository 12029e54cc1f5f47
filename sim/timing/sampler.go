package timing

// Bits is a source of uniform 64-bit words.
type Bits interface{ Uint64() uint64 }

// Sampler draws how many tokens a speculative decode step yields
// (spec engine-timing 7). It belongs to one rank.
type Sampler struct {
	bits  Bits
	below []uint64 // [draft], accept iff the word drawn is below; certain: no draw
}

// certain marks a rate of exactly 1.
const certain = ^uint64(0)

// NewSampler takes conditional accept rates in [0, 1], one per draft token.
func NewSampler(rates []float64, bits Bits) *Sampler {
	s := &Sampler{bits: bits}
	for _, r := range rates {
		limit := certain
		if r < 1 {
			// p * 2^64 of the largest p below 1 is 2^64 - 2^11: never certain.
			limit = uint64(r * 0x1p64)
		}
		s.below = append(s.below, limit)
	}
	return s
}

// Accepted returns the tokens of one step, 1 to len(rates)+1, before they are cut
// to what remains of the request.
func (s *Sampler) Accepted() int32 {
	n := int32(1)
	for _, limit := range s.below {
		if limit != certain && s.bits.Uint64() >= limit {
			break
		}
		n++
	}
	return n
}
