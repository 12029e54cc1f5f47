package workload

// interner gives every prefix chain a dense number: node = number of (parent node,
// next id), 0, 1, 2, ... in order of first appearance. Two chains have the same
// node iff all their ids are equal. Open addressing, linear probing, load <= 1/2.
type interner struct {
	slots []internSlot // power of two
	n     uint32       // nodes given out
}

type internSlot struct {
	id     uint64
	parent uint32
	node   uint32 // + 1; 0 is an empty slot
}

// root is the parent of a chain's first id.
const root = ^uint32(0)

func newInterner() *interner { return &interner{slots: make([]internSlot, 1<<12)} }

// next returns the node of id after parent.
func (t *interner) next(parent uint32, id uint64) uint32 {
	mask := uint64(len(t.slots) - 1)
	for i := slotHash(parent, id) & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.node == 0 {
			s.id, s.parent, s.node = id, parent, t.n+1
			t.n++
			if int(t.n) > len(t.slots)/2 {
				t.grow()
			}
			return t.n - 1
		}
		if s.id == id && s.parent == parent {
			return s.node - 1
		}
	}
}

func slotHash(parent uint32, id uint64) uint64 {
	h := (id ^ uint64(parent)<<32 ^ uint64(parent)) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}

func (t *interner) grow() {
	old := t.slots
	t.slots = make([]internSlot, 2*len(old))
	mask := uint64(len(t.slots) - 1)
	for _, s := range old {
		if s.node == 0 {
			continue
		}
		i := slotHash(s.parent, s.id) & mask
		for t.slots[i].node != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = s
	}
}

// fresh returns a node that no chain leads to.
func (t *interner) fresh() uint32 {
	t.n++
	return t.n - 1
}
