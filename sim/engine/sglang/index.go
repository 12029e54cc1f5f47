package sglang

import (
	"math/bits"

	"dynosweep/sim/kv"
)

// index maps the first page id of every edge to its node. An id names its whole
// prefix, so it stands at one place of the tree at most and needs no parent.
// Open addressing with linear probing; node 0 is the root, which has no edge, so
// 0 marks an empty place.
type index struct {
	ids   []kv.BlockID
	nodes []int32
	used  int
	shift int // 64 - log2(len(ids))
}

const minIndex = 64 // places, a power of two

func (x *index) home(id kv.BlockID) int {
	return int(uint64(id) * 0x9E3779B97F4A7C15 >> x.shift)
}

// get returns the node whose edge begins with id, 0 if there is none.
func (x *index) get(id kv.BlockID) int32 {
	if x.used == 0 {
		return 0
	}
	for i := x.home(id); ; i = (i + 1) & (len(x.ids) - 1) {
		if n := x.nodes[i]; n == 0 || x.ids[i] == id {
			return n
		}
	}
}

// put sets the node of id, new or not.
func (x *index) put(id kv.BlockID, node int32) {
	if 2*(x.used+1) > len(x.ids) {
		x.grow()
	}
	i := x.home(id)
	for x.nodes[i] != 0 && x.ids[i] != id {
		i = (i + 1) & (len(x.ids) - 1)
	}
	if x.nodes[i] == 0 {
		x.used++
	}
	x.ids[i], x.nodes[i] = id, node
}

// drop forgets id, which is present, and closes the gap.
func (x *index) drop(id kv.BlockID) {
	mask := len(x.ids) - 1
	i := x.home(id)
	for x.ids[i] != id {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; x.nodes[j] != 0; j = (j + 1) & mask {
		// j may move to i unless its home lies after i, cyclically up to j.
		if home := x.home(x.ids[j]); (j-home)&mask >= (j-i)&mask {
			x.ids[i], x.nodes[i] = x.ids[j], x.nodes[j]
			i = j
		}
	}
	x.nodes[i], x.ids[i] = 0, 0
	x.used--
}

func (x *index) grow() {
	ids, nodes := x.ids, x.nodes
	n := max(minIndex, 2*len(ids))
	x.ids, x.nodes, x.used = make([]kv.BlockID, n), make([]int32, n), 0
	x.shift = 64 - bits.TrailingZeros(uint(n))
	for i, node := range nodes {
		if node != 0 {
			x.put(ids[i], node)
		}
	}
}
