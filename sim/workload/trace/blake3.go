package trace

import (
	"encoding/binary"
	"math/bits"
)

// blake3 is the BLAKE3 hash of what is written to it: chunks of 1024 bytes that are
// joined by the tree of the BLAKE3 paper, section 2. Its zero value is ready, and a
// copy goes its own way.
type blake3 struct {
	chunk [1024]byte // the present chunk
	n     int        // bytes in it
	done  uint64     // chunks before it
	trees [54][8]uint32
	depth int // trees[:depth] are the whole subtrees of the chunks before, largest first
}

// Write never fails.
func (h *blake3) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if h.n == len(h.chunk) {
			h.join(blakeChunk(h.chunk[:], h.done, 0))
			h.n = 0
		}
		k := copy(h.chunk[h.n:], rest)
		h.n += k
		rest = rest[k:]
	}
	return len(p), nil
}

// join adds the value of a chunk that is not the last one.
func (h *blake3) join(v [8]uint32) {
	h.done++
	for n := h.done; n&1 == 0; n >>= 1 {
		h.depth--
		v = blakeJoin(h.trees[h.depth], v, 0)
	}
	h.trees[h.depth] = v
	h.depth++
}

// Sum returns the hash of what was written so far.
func (h *blake3) Sum() (out [32]byte) {
	flag := uint32(0)
	if h.depth == 0 {
		flag = blakeRoot
	}
	v := blakeChunk(h.chunk[:h.n], h.done, flag)
	for d := h.depth - 1; d >= 0; d-- {
		if d == 0 {
			flag = blakeRoot
		}
		v = blakeJoin(h.trees[d], v, flag)
	}
	for i, x := range v {
		binary.LittleEndian.PutUint32(out[4*i:], x)
	}
	return out
}

// blakeText returns the hash of a text.
func blakeText(text string) [32]byte {
	var h blake3
	h.Write([]byte(text))
	return h.Sum()
}

const (
	blakeChunkStart = 1 << iota
	blakeChunkEnd
	blakeParent
	blakeRoot
)

var blakeIV = [8]uint32{0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19}

// blakeJoin returns the value of a node of the tree.
func blakeJoin(left, right [8]uint32, root uint32) [8]uint32 {
	var block [16]uint32
	copy(block[:8], left[:])
	copy(block[8:], right[:])
	return blakeCompress(&blakeIV, &block, 0, 64, blakeParent|root)
}

// blakeChunk returns the value of one chunk, the number of which is chunk.
func blakeChunk(data []byte, chunk uint64, root uint32) [8]uint32 {
	v, flag := blakeIV, uint32(blakeChunkStart)
	var block [16]uint32
	for ; len(data) > 64; data = data[64:] {
		blakeWords(&block, (*[64]byte)(data))
		v = blakeCompress(&v, &block, chunk, 64, flag)
		flag = 0
	}
	var raw [64]byte
	n := copy(raw[:], data)
	blakeWords(&block, &raw)
	return blakeCompress(&v, &block, chunk, uint32(n), flag|blakeChunkEnd|root)
}

func blakeWords(block *[16]uint32, raw *[64]byte) {
	for i := range block {
		block[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
}

// blakeOrder is the order of the words of a block in each round: that of the round
// before, permuted.
var blakeOrder = func() (order [7][16]uint8) {
	permuted := [16]uint8{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}
	for i := range 16 {
		order[0][i] = uint8(i)
	}
	for r := 1; r < len(order); r++ {
		for i, from := range permuted {
			order[r][i] = order[r-1][from]
		}
	}
	return order
}()

// blakeCompress is the compression function, cut to its first half. Its state stands in
// variables, not in an array, so that the compiler can keep it in registers.
func blakeCompress(v *[8]uint32, m *[16]uint32, counter uint64, size, flags uint32) [8]uint32 {
	a0, a1, a2, a3 := v[0], v[1], v[2], v[3]
	b0, b1, b2, b3 := v[4], v[5], v[6], v[7]
	c0, c1, c2, c3 := blakeIV[0], blakeIV[1], blakeIV[2], blakeIV[3]
	d0, d1, d2, d3 := uint32(counter), uint32(counter>>32), size, flags
	for r := range blakeOrder {
		o := &blakeOrder[r]
		a0, b0, c0, d0 = blakeMix(a0, b0, c0, d0, m[o[0]&15], m[o[1]&15])
		a1, b1, c1, d1 = blakeMix(a1, b1, c1, d1, m[o[2]&15], m[o[3]&15])
		a2, b2, c2, d2 = blakeMix(a2, b2, c2, d2, m[o[4]&15], m[o[5]&15])
		a3, b3, c3, d3 = blakeMix(a3, b3, c3, d3, m[o[6]&15], m[o[7]&15])
		a0, b1, c2, d3 = blakeMix(a0, b1, c2, d3, m[o[8]&15], m[o[9]&15])
		a1, b2, c3, d0 = blakeMix(a1, b2, c3, d0, m[o[10]&15], m[o[11]&15])
		a2, b3, c0, d1 = blakeMix(a2, b3, c0, d1, m[o[12]&15], m[o[13]&15])
		a3, b0, c1, d2 = blakeMix(a3, b0, c1, d2, m[o[14]&15], m[o[15]&15])
	}
	return [8]uint32{a0 ^ c0, a1 ^ c1, a2 ^ c2, a3 ^ c3, b0 ^ d0, b1 ^ d1, b2 ^ d2, b3 ^ d3}
}

// blakeMix is the quarter round of the compression function.
func blakeMix(a, b, c, d, x, y uint32) (uint32, uint32, uint32, uint32) {
	a += b + x
	d = bits.RotateLeft32(d^a, -16)
	c += d
	b = bits.RotateLeft32(b^c, -12)
	a += b + y
	d = bits.RotateLeft32(d^a, -8)
	c += d
	b = bits.RotateLeft32(b^c, -7)
	return a, b, c, d
}
