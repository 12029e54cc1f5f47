package trace

import "slices"

// interner gives every prefix chain a dense number: node = number of (parent node,
// next id), 0, 1, 2, ... in order of first appearance. Two chains have the same
// node iff all their ids are equal.
//
// Most nodes have one child: it stands beside its parent, so that following a chain
// walks through memory in order (BenchmarkLoad: twice as fast as one hash table).
// The children after the first, and those of the root, are in a table with open
// addressing, linear probing and load <= 1/2.
type interner struct {
	first []internSlot // [node], its first child; parent is not used
	table []internSlot // power of two
	used  int          // slots of the table
}

type internSlot struct {
	id     uint64
	parent uint32
	node   uint32 // + 1; 0 is an empty slot
}

// root is the parent of a chain's first id.
const root = ^uint32(0)

// newInterner returns an interner with room for so many nodes before it grows.
func newInterner(nodes int64) *interner {
	return &interner{first: make([]internSlot, 0, max(nodes, 0)), table: make([]internSlot, 1<<12)}
}

// len is the number of nodes.
func (t *interner) len() uint32 { return uint32(len(t.first)) }

// fresh returns a node that no chain leads to.
func (t *interner) fresh() uint32 {
	t.first = append(doubled(t.first), internSlot{})
	return uint32(len(t.first) - 1)
}

// doubled returns s with room for one more, twice the room if there was none: append
// grows long slices by a quarter, and what is copied on the way is fresh memory.
func doubled[E any](s []E) []E {
	if len(s) < cap(s) {
		return s
	}
	return slices.Grow(s, max(len(s), 1))
}

// next returns the node of id after parent.
func (t *interner) next(parent uint32, id uint64) uint32 {
	if parent != root {
		child := t.first[parent]
		if child.node == 0 {
			node := t.fresh()
			t.first[parent] = internSlot{id: id, node: node + 1}
			return node
		}
		if child.id == id {
			return child.node - 1
		}
	}
	slot := t.find(parent, id)
	if slot.node != 0 {
		return slot.node - 1
	}
	node := t.fresh()
	*slot = internSlot{id: id, parent: parent, node: node + 1}
	if t.used++; t.used > len(t.table)/2 {
		t.grow()
	}
	return node
}

// find returns the slot of a child in the table, or the empty one where it belongs.
func (t *interner) find(parent uint32, id uint64) *internSlot {
	mask := uint64(len(t.table) - 1)
	h := (id ^ uint64(parent)<<32 ^ uint64(parent)) * 0x9E3779B97F4A7C15
	for i := (h ^ h>>29) & mask; ; i = (i + 1) & mask {
		if s := &t.table[i]; s.node == 0 || s.id == id && s.parent == parent {
			return s
		}
	}
}

func (t *interner) grow() {
	old := t.table
	t.table = make([]internSlot, 2*len(old))
	for _, s := range old {
		if s.node != 0 {
			*t.find(s.parent, s.id) = s
		}
	}
}
