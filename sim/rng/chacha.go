// Package rng holds the random numbers of a run: the reference's generator, bit
// for bit, and named streams of our own for draws that the reference leaves
// unseeded.
//
//	c := rng.NewChaCha(42)        // arrivals, prefix groups, accepted draft tokens
//	s := rng.Stream(seed, "ties") // router ties, softmax
//
// Each generator is a value with one owner, needs no lock, and draws without
// allocating. Sources: spec workload 1.5, engine-timing 7.
package rng

import "math/bits"

// ChaCha is the reference's StdRng: the ChaCha keystream of 12 rounds with a
// 64-bit block counter from 0 and stream 0, read word by word. Copying it forks
// the sequence. Use NewChaCha; the zero value has a zero key.
type ChaCha struct {
	key   [8]uint32
	block [16]uint32 // keystream block at - 1
	next  uint64     // index of the block to make next
	used  int        // words of block already drawn
}

// NewChaCha returns the generator of a 64-bit seed. The key comes from PCG-XSH-RR.
func NewChaCha(seed uint64) ChaCha {
	c := ChaCha{used: 16}
	for i := range c.key {
		seed = seed*6364136223846793005 + 11634580027462260723
		x := uint32(((seed >> 18) ^ seed) >> 27)
		c.key[i] = bits.RotateLeft32(x, -int(seed>>59))
	}
	return c
}

// Uint32 returns the next keystream word.
func (c *ChaCha) Uint32() uint32 {
	if c.used == 16 {
		c.refill()
	}
	w := c.block[c.used]
	c.used++
	return w
}

// Uint64 returns the next two words, low one first.
func (c *ChaCha) Uint64() uint64 {
	lo := uint64(c.Uint32())
	return lo | uint64(c.Uint32())<<32
}

// Float64 returns a multiple of 2^-53 in [0, 1).
func (c *ChaCha) Float64() float64 { return float64(c.Uint64()>>11) * 0x1p-53 }

// IntN returns an integer in [0, n), 1 <= n <= 2^32, by a widening multiply with
// one step of bias correction: one word, now and then two.
func (c *ChaCha) IntN(n uint64) uint64 {
	m := uint64(c.Uint32()) * n
	hi, lo := m>>32, uint32(m)
	if lo > -uint32(n) {
		m = uint64(c.Uint32()) * n
		if uint64(lo)+m>>32 > 0xFFFFFFFF {
			hi++
		}
	}
	return hi
}

// Seek makes word n of the keystream (from 0) the next one to be drawn.
func (c *ChaCha) Seek(n uint64) {
	c.next = n / 16
	c.used = 16
	if skip := int(n % 16); skip > 0 {
		c.refill()
		c.used = skip
	}
}

// refill makes keystream block c.next.
func (c *ChaCha) refill() {
	s := [16]uint32{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574,
		c.key[0], c.key[1], c.key[2], c.key[3], c.key[4], c.key[5], c.key[6], c.key[7],
		uint32(c.next), uint32(c.next >> 32), 0, 0}
	x := s
	for range 6 { // a column round and a diagonal round
		quarter(&x, 0, 4, 8, 12)
		quarter(&x, 1, 5, 9, 13)
		quarter(&x, 2, 6, 10, 14)
		quarter(&x, 3, 7, 11, 15)
		quarter(&x, 0, 5, 10, 15)
		quarter(&x, 1, 6, 11, 12)
		quarter(&x, 2, 7, 8, 13)
		quarter(&x, 3, 4, 9, 14)
	}
	for i := range x {
		c.block[i] = x[i] + s[i]
	}
	c.next++
	c.used = 0
}

func quarter(x *[16]uint32, a, b, c, d int) {
	x[a] += x[b]
	x[d] = bits.RotateLeft32(x[d]^x[a], 16)
	x[c] += x[d]
	x[b] = bits.RotateLeft32(x[b]^x[c], 12)
	x[a] += x[b]
	x[d] = bits.RotateLeft32(x[d]^x[a], 8)
	x[c] += x[d]
	x[b] = bits.RotateLeft32(x[b]^x[c], 7)
}
