package rng

import "math/bits"

// PCG is one named stream: PCG XSL-RR 128/64 (O'Neill 2014). Use Stream.
type PCG struct{ hi, lo uint64 }

// Multiplier and increment of the 128-bit LCG.
const (
	mulHi, mulLo = 2549297995355413924, 4865540595714422341
	incHi, incLo = 6364136223846793005, 1442695040888963407
)

// Stream returns the stream of a name under a seed. Streams of different names, or
// of different seeds, are independent of each other and of the order of use.
func Stream(seed uint64, name string) PCG {
	h := uint64(14695981039346656037) // FNV-1a
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	p := PCG{hi: mix(seed), lo: mix(h ^ mix(^seed))}
	p.Uint64()
	return p
}

// mix is the finalizer of SplitMix64: a bijection that spreads every input bit.
func mix(v uint64) uint64 {
	v += 0x9E3779B97F4A7C15
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	return v ^ v>>31
}

// Uint64 returns 64 random bits.
func (p *PCG) Uint64() uint64 {
	hi, lo := bits.Mul64(p.lo, mulLo)
	hi += p.hi*mulLo + p.lo*mulHi
	var carry uint64
	p.lo, carry = bits.Add64(lo, incLo, 0)
	p.hi, _ = bits.Add64(hi, incHi, carry)
	return bits.RotateLeft64(p.hi^p.lo, -int(p.hi>>58))
}

// Float64 returns a multiple of 2^-53 in [0, 1).
func (p *PCG) Float64() float64 { return float64(p.Uint64()>>11) * 0x1p-53 }

// IntN returns an unbiased integer in [0, n); n must be positive.
func (p *PCG) IntN(n int) int {
	if n <= 0 {
		panic("rng: IntN of a non-positive bound")
	}
	hi, lo := bits.Mul64(p.Uint64(), uint64(n))
	if lo < uint64(n) {
		for floor := -uint64(n) % uint64(n); lo < floor; {
			hi, lo = bits.Mul64(p.Uint64(), uint64(n))
		}
	}
	return int(hi)
}
