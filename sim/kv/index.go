package kv

// index maps an identity to the slot of its oldest copy. Identities come in runs
// (the blocks of a trace block, or of one request's private range), so the table
// holds pages of pageSize consecutive identities: open addressing with linear
// probing and backward-shift deletion over pages, and the page used last is
// remembered. Its size follows the pages in it, never the number of identities
// that exist.
type index struct {
	cells []cell // a power of two of them; page 0 is empty, pages are positive
	shift uint   // home of a key is hash(key) >> shift
	used  int
	pages []page // [0] is never used
	spare int32  // first unused page, chained by slots[0]; 0: none
	last  cell   // the page used last; page 0: none
}

const (
	pageBits = 3
	pageSize = 1 << pageBits
)

type cell struct {
	key  uint64 // identity >> pageBits
	page int32
}

// page holds the slots of pageSize identities, 0 where there is none.
type page struct {
	slots [pageSize]int32
	count int32
}

// smallest is log2 of the first table.
const smallest = 6

func (x *index) home(key uint64) int {
	h := key * 0x9E3779B97F4A7C15
	h ^= h >> 29
	return int((h * 0xBF58476D1CE4E5B9) >> x.shift)
}

// locate returns the page of key, 0 if there is none.
func (x *index) locate(key uint64) int32 {
	if x.last.key == key && x.last.page != 0 {
		return x.last.page
	}
	if x.used == 0 {
		return 0
	}
	mask := len(x.cells) - 1
	for i := x.home(key); ; i = (i + 1) & mask {
		c := x.cells[i]
		if c.page == 0 {
			return 0
		}
		if c.key == key {
			x.last = c
			return c.page
		}
	}
}

// find returns the slot of id, 0 if it is absent.
func (x *index) find(id BlockID) int32 {
	p := x.locate(uint64(id) >> pageBits)
	return x.pages[p].slots[id%pageSize] // page 0 is empty
}

// insert enters slot for id unless id is there, and returns the slot now found.
func (x *index) insert(id BlockID, slot int32) int32 {
	key := uint64(id) >> pageBits
	p := x.locate(key)
	if p == 0 {
		p = x.open(key)
	}
	at := &x.pages[p].slots[id%pageSize]
	if *at == 0 {
		*at = slot
		x.pages[p].count++
	}
	return *at
}

// open adds a page for key, which has none.
func (x *index) open(key uint64) int32 {
	if x.used*4 >= len(x.cells)*3 {
		x.grow()
	}
	p := x.spare
	if p != 0 {
		x.spare = x.pages[p].slots[0]
		x.pages[p] = page{}
	} else {
		p = int32(len(x.pages))
		x.pages = append(x.pages, page{})
	}
	x.last = cell{key, p}
	x.put(x.last)
	x.used++
	return p
}

func (x *index) put(c cell) {
	mask := len(x.cells) - 1
	i := x.home(c.key)
	for x.cells[i].page != 0 {
		i = (i + 1) & mask
	}
	x.cells[i] = c
}

// replace makes next the slot of id if slot is; it reports whether it was.
func (x *index) replace(id BlockID, slot, next int32) bool {
	at := &x.pages[x.locate(uint64(id)>>pageBits)].slots[id%pageSize]
	if *at != slot {
		return false
	}
	*at = next
	return true
}

// remove drops id, whose slot is slot, and its page with the last of them.
func (x *index) remove(id BlockID, slot int32) {
	key := uint64(id) >> pageBits
	p := x.locate(key)
	at := &x.pages[p].slots[id%pageSize]
	if *at != slot || slot == 0 {
		panic("kv: evicted block is not in the index")
	}
	*at = 0
	if x.pages[p].count--; x.pages[p].count > 0 {
		return
	}
	x.pages[p].slots[0] = x.spare
	x.spare = p
	x.close(key)
}

// close takes the cell of key out of the table: a later cell of the probe run moves
// up unless it would pass its home.
func (x *index) close(key uint64) {
	x.last = cell{}
	x.used--
	mask := len(x.cells) - 1
	gap := x.home(key)
	for x.cells[gap].key != key || x.cells[gap].page == 0 {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; x.cells[i].page != 0; i = (i + 1) & mask {
		home := x.home(x.cells[i].key)
		if (i-home)&mask >= (i-gap)&mask {
			x.cells[gap] = x.cells[i]
			gap = i
		}
	}
	x.cells[gap] = cell{}
}

// grow doubles the table.
func (x *index) grow() {
	old := x.cells
	if len(old) == 0 {
		x.shift = 64 - smallest
	} else {
		x.shift--
	}
	x.cells = make([]cell, max(1<<smallest, 2*len(old)))
	for _, c := range old {
		if c.page != 0 {
			x.put(c)
		}
	}
}
