package trace

import (
	"encoding/binary"
	"errors"

	"github.com/zeebo/xxh3"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// hashSeed is the seed of block hashes (spec workload 1.6).
const hashSeed = 1337

// Hasher names the blocks of a trace's prompts by the sequence hashes that engines
// give them, by which memory behind the KV pool evicts blocks of equal age
// (spec kv-offload 3).
type Hasher struct {
	trace     *Trace
	blockSize int
	tokens    []uint32 // [node], the token that its trace block repeats
	local     []byte   // scratch: the tokens of a block
	repeated  []uint64 // [token], the hash of a block of it alone; 0: not known
}

// Hasher returns the hasher of one run on engines with the given block size, nil for
// a trace whose blocks have no hash of their own. The trace was loaded with Contents.
func (t *Trace) Hasher(blockSize int) (*Hasher, error) {
	if t.delta() || t.graph != nil {
		return nil, nil
	}
	if len(t.ids) != int(t.nodeCount) {
		return nil, errors.New("trace: the trace was loaded without the contents of its blocks")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tokens == nil {
		t.tokens = numbered(t.ids)
	}
	return &Hasher{trace: t, blockSize: blockSize, tokens: t.tokens, local: make([]byte, 4*blockSize),
		repeated: make([]uint64, len(t.tokens))}, nil
}

// numbered counts distinct ids from 0 in order of their first appearance in the trace,
// which made a node each.
func numbered(ids []uint64) []uint32 {
	tokens := make([]uint32, len(ids))
	number := make(map[uint64]uint32, len(ids))
	for node, id := range ids {
		n, ok := number[id]
		if !ok {
			n = uint32(len(number))
			number[id] = n
		}
		tokens[node] = n
	}
	return tokens
}

// BlockHashes appends the sequence hashes of blocks from..to-1 of a prompt of the
// trace, of which parent is that of block from-1.
func (h *Hasher) BlockHashes(dst []uint64, p *kv.Prompt, from, to int, parent uint64) []uint64 {
	nodes := h.trace.nodes[h.trace.turns[p.Owner()].first:]
	for i := from; i < to; i++ {
		hash := h.localHash(nodes, i)
		if i > 0 {
			var pair [16]byte
			binary.LittleEndian.PutUint64(pair[:8], parent)
			binary.LittleEndian.PutUint64(pair[8:], hash)
			hash = xxh3.HashSeed(pair[:], hashSeed)
		}
		dst = append(dst, hash)
		parent = hash
	}
	return dst
}

// localHash is the hash of the tokens of block i alone.
func (h *Hasher) localHash(nodes []uint32, i int) uint64 {
	size := h.trace.blockSize
	first, last := i*h.blockSize/size, ((i+1)*h.blockSize-1)/size
	token := h.tokens[nodes[first]]
	if first == last {
		if hash := h.repeated[token]; hash != 0 {
			return hash
		}
	}
	for k := range h.blockSize {
		binary.LittleEndian.PutUint32(h.local[4*k:], h.tokens[nodes[(i*h.blockSize+k)/size]])
	}
	hash := xxh3.HashSeed(h.local, hashSeed)
	if first == last {
		h.repeated[token] = hash
	}
	return hash
}
