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
	return blakeCompress(blakeIV, block, 0, 64, blakeParent|root)
}

func blakeChunk(data []byte, chunk uint64, root uint32) [8]uint32 {
	v, flag := blakeIV, uint32(blakeChunkStart)
	for {
		var raw [64]byte
		n := copy(raw[:], data)
		data = data[n:]
		if len(data) == 0 {
			flag |= blakeChunkEnd | root
		}
		var block [16]uint32
		for i := range block {
			block[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
		v = blakeCompress(v, block, chunk, uint32(n), flag)
		if len(data) == 0 {
			return v
		}
		flag = 0
	}
}

// blakeCompress is the compression function, cut to its first half.
func blakeCompress(v [8]uint32, m [16]uint32, counter uint64, size, flags uint32) [8]uint32 {
	s := [16]uint32{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7],
		blakeIV[0], blakeIV[1], blakeIV[2], blakeIV[3], uint32(counter), uint32(counter >> 32), size, flags}
	mix := func(a, b, c, d int, x, y uint32) {
		s[a] += s[b] + x
		s[d] = bits.RotateLeft32(s[d]^s[a], -16)
		s[c] += s[d]
		s[b] = bits.RotateLeft32(s[b]^s[c], -12)
		s[a] += s[b] + y
		s[d] = bits.RotateLeft32(s[d]^s[a], -8)
		s[c] += s[d]
		s[b] = bits.RotateLeft32(s[b]^s[c], -7)
	}
	for range 7 {
		mix(0, 4, 8, 12, m[0], m[1])
		mix(1, 5, 9, 13, m[2], m[3])
		mix(2, 6, 10, 14, m[4], m[5])
		mix(3, 7, 11, 15, m[6], m[7])
		mix(0, 5, 10, 15, m[8], m[9])
		mix(1, 6, 11, 12, m[10], m[11])
		mix(2, 7, 8, 13, m[12], m[13])
		mix(3, 4, 9, 14, m[14], m[15])
		m = [16]uint32{m[2], m[6], m[3], m[10], m[7], m[0], m[4], m[13], m[1], m[11], m[12], m[5], m[9], m[14], m[15], m[8]}
	}
	for i := range v {
		v[i] = s[i] ^ s[i+8]
	}
	return v
}
