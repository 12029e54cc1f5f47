// Package kv holds what the backends share about the KV cache: the identity of a
// block, the block pool of a paged engine with its prefix index and LRU eviction, and
// the events by which an engine tells a router which blocks it has.
//
// Two blocks are the same if and only if their tokens are equal from position 0 of
// the prompt through the end of the block (spec engine-vllm 3). No token is stored. A prompt is a list of dense prefix-chain nodes plus a
// private range, and a BlockID is computed from it by arithmetic.
package kv

// BlockID identifies the content of one full engine block including its whole
// prefix. Ids below Private are shared prompt content; ids with the Private bit
// belong to one request (or one growing session) and match nothing else.
type BlockID uint64

// Private marks ids that only one request, or one mooncake-delta session, can have.
const Private BlockID = 1 << 63

// privateBits is the room for block indices inside one private range.
const privateBits = 24

// PrivateBase returns the id of block 0 of the private range of owner (a request
// or session ordinal, below 2^38); block i of the range is base + i, i < 2^24.
func PrivateBase(owner int64) BlockID {
	return Private | BlockID(owner)<<privateBits
}

// Prompt says where the block identities of a request come from. Block i of the
// request (prompt, then generated tokens) is
//
//	Nodes[i/Ratio]*Ratio + i%Ratio   for i <  Shared
//	Base + i                         for i >= Shared
//
// Nodes are prefix-chained: equal nodes imply equal content of everything before
// them, so ids need no parent to be compared. The slice is shared and read-only.
type Prompt struct {
	Nodes  []uint32 // [node], prefix-chained, Ratio engine blocks each
	Ratio  int32    // engine blocks per node, >= 1
	Shared int32    // leading engine blocks named by Nodes
	Base   BlockID  // PrivateBase of the owner
}

// Owner is the owner of the prompt's private range.
func (p *Prompt) Owner() int64 { return int64(p.Base&^Private) >> privateBits }

// Block returns the identity of full block i.
func (p *Prompt) Block(i int) BlockID {
	if i < int(p.Shared) {
		r := int(p.Ratio)
		return BlockID(p.Nodes[i/r])*BlockID(r) + BlockID(i%r)
	}
	return p.Base + BlockID(i)
}

// Run returns the identity of full block i and the number n >= 1 of blocks from it
// on, before block end, whose identities follow each other.
func (p *Prompt) Run(i, end int) (first BlockID, n int) {
	if i >= int(p.Shared) {
		return p.Base + BlockID(i), end - i
	}
	end = min(end, int(p.Shared))
	r := int(p.Ratio)
	k := i / r
	first = BlockID(p.Nodes[k])*BlockID(r) + BlockID(i%r)
	upTo := (k + 1) * r
	for upTo < end && p.Nodes[k+1] == p.Nodes[k]+1 {
		k++
		upTo += r
	}
	return first, min(upTo, end) - i
}
