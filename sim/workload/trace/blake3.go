package trace

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
)

// labelDigest returns the first 8 bytes of the BLAKE3 hash of a label, in hex: the
// part of weka request ids that stands for their source. Labels are hashed whole,
// in chunks of 1024 bytes joined by the tree of the BLAKE3 paper, section 2.
func labelDigest(label string) string {
	var out [8]byte
	v := blakeTree([]byte(label), 0, true)
	binary.LittleEndian.PutUint32(out[:4], v[0])
	binary.LittleEndian.PutUint32(out[4:], v[1])
	return hex.EncodeToString(out[:])
}

const (
	blakeChunkStart = 1 << iota
	blakeChunkEnd
	blakeParent
	blakeRoot
)

var blakeIV = [8]uint32{0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19}

// blakeTree returns the chaining value of data, whose first chunk has this number.
func blakeTree(data []byte, chunk uint64, root bool) [8]uint32 {
	flag := uint32(0)
	if root {
		flag = blakeRoot
	}
	if len(data) <= 1024 {
		return blakeChunk(data, chunk, flag)
	}
	left := 1024 << (bits.Len(uint((len(data)-1)/1024)) - 1)
	a := blakeTree(data[:left], chunk, false)
	b := blakeTree(data[left:], chunk+uint64(left/1024), false)
	var block [16]uint32
	copy(block[:8], a[:])
	copy(block[8:], b[:])
	return blakeCompress(blakeIV, block, 0, 64, blakeParent|flag)
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
