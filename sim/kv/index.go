package kv

// index maps an identity to the slot of its oldest copy: open addressing with
// linear probing and backward-shift deletion. An entry holds 32 bits of the
// identity's hash above the slot, so that a probe touches a block only when they
// agree and growing touches none. Its size follows the identities in it.
type index struct {
	entries []uint64 // hash tag << 32 | slot; 0 is empty, slots are positive
	shift   uint     // home of a tag is tag >> shift
	used    int
}

// smallest is log2 of the first table.
const smallest = 6

// tagOf spreads an identity over 32 bits.
func tagOf(id BlockID) uint32 {
	h := uint64(id) * 0x9E3779B97F4A7C15
	h ^= h >> 29
	return uint32((h * 0xBF58476D1CE4E5B9) >> 32)
}

// find returns the slot of id, 0 if it is absent.
func (x *index) find(id BlockID, blocks []block) int32 {
	if x.used == 0 {
		return 0
	}
	tag := tagOf(id)
	mask := uint32(len(x.entries) - 1)
	for i := tag >> x.shift; ; i = (i + 1) & mask {
		e := x.entries[i]
		if e == 0 {
			return 0
		}
		if uint32(e>>32) == tag && blocks[uint32(e)].id == id {
			return int32(uint32(e))
		}
	}
}

// insert enters slot for id unless id is there, and returns the slot now found.
func (x *index) insert(id BlockID, slot int32, blocks []block) int32 {
	if x.used*4 >= len(x.entries)*3 {
		x.grow()
	}
	tag := tagOf(id)
	mask := uint32(len(x.entries) - 1)
	for i := tag >> x.shift; ; i = (i + 1) & mask {
		e := x.entries[i]
		if e == 0 {
			x.entries[i] = uint64(tag)<<32 | uint64(uint32(slot))
			x.used++
			return slot
		}
		if uint32(e>>32) == tag && blocks[uint32(e)].id == id {
			return int32(uint32(e))
		}
	}
}

// replace makes next the slot of id if slot is; it reports whether it was.
func (x *index) replace(id BlockID, slot, next int32) bool {
	i, ok := x.at(tagOf(id), slot)
	if ok {
		x.entries[i] = x.entries[i]&^0xFFFFFFFF | uint64(uint32(next))
	}
	return ok
}

// at finds the entry that holds slot under tag.
func (x *index) at(tag uint32, slot int32) (uint32, bool) {
	want := uint64(tag)<<32 | uint64(uint32(slot))
	mask := uint32(len(x.entries) - 1)
	for i := tag >> x.shift; ; i = (i + 1) & mask {
		switch x.entries[i] {
		case want:
			return i, true
		case 0:
			return 0, false
		}
	}
}

// remove drops id, whose slot is slot, and closes the gap: a later entry of the
// probe run moves up unless it would pass its home.
func (x *index) remove(id BlockID, slot int32) {
	gap, ok := x.at(tagOf(id), slot)
	if !ok {
		panic("kv: evicted block is not in the index")
	}
	mask := uint32(len(x.entries) - 1)
	for i := (gap + 1) & mask; x.entries[i] != 0; i = (i + 1) & mask {
		home := uint32(x.entries[i]>>32) >> x.shift
		if (i-home)&mask >= (i-gap)&mask {
			x.entries[gap] = x.entries[i]
			gap = i
		}
	}
	x.entries[gap] = 0
	x.used--
}

// grow doubles the table.
func (x *index) grow() {
	old := x.entries
	size := max(1<<smallest, 2*len(old))
	if len(old) == 0 {
		x.shift = 32 - smallest
	} else {
		x.shift--
	}
	x.entries = make([]uint64, size)
	mask := uint32(size - 1)
	for _, e := range old {
		if e == 0 {
			continue
		}
		i := uint32(e>>32) >> x.shift
		for x.entries[i] != 0 {
			i = (i + 1) & mask
		}
		x.entries[i] = e
	}
}
