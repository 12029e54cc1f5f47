package router

import (
	"math/bits"

	"dynosweep/sim/kv"
)

// Blocks are kept in pages of eight consecutive ids: ids of one prompt follow each
// other, so that one probe serves eight blocks.
const (
	pageBits   = 3
	pageBlocks = 1 << pageBits
)

// pageMap maps page keys (block id >> pageBits) to dense page numbers from 1, which
// index the payload arrays of its owner. Freed numbers are used again. Open
// addressing, linear probing, at most half full; an allocation happens only when
// the number of pages held reaches a new maximum.
type pageMap struct {
	cells []pageCell // power of two
	shift uint8
	held  int
	free  []int32
	last  int32 // highest page number given out
}

// pageCell is empty iff page is 0.
type pageCell struct {
	key  uint64
	page int32
}

const minCells = 64

func newPageMap() pageMap {
	return pageMap{cells: make([]pageCell, minCells), shift: uint8(64 - bits.TrailingZeros(minCells))}
}

func pageKey(id kv.BlockID) uint64 { return uint64(id) >> pageBits }

func (m *pageMap) home(key uint64) int {
	return int(key * 0x9E3779B97F4A7C15 >> m.shift)
}

// find returns the page of key, 0 if there is none.
func (m *pageMap) find(key uint64) int32 {
	mask := len(m.cells) - 1
	for i := m.home(key); ; i = (i + 1) & mask {
		if c := &m.cells[i]; c.page == 0 || c.key == key {
			return c.page
		}
	}
}

// open returns the page of key, a new one if there is none. The payload of a new
// page is the caller's to clear if it ever held something.
func (m *pageMap) open(key uint64) int32 {
	mask := len(m.cells) - 1
	i := m.home(key)
	for ; m.cells[i].page != 0; i = (i + 1) & mask {
		if m.cells[i].key == key {
			return m.cells[i].page
		}
	}
	page := m.take()
	if m.held++; 2*m.held > len(m.cells) {
		m.grow()
		m.put(pageCell{key, page})
		return page
	}
	m.cells[i] = pageCell{key, page}
	return page
}

func (m *pageMap) take() int32 {
	if n := len(m.free); n > 0 {
		page := m.free[n-1]
		m.free = m.free[:n-1]
		return page
	}
	m.last++
	return m.last
}

func (m *pageMap) put(c pageCell) {
	mask := len(m.cells) - 1
	i := m.home(c.key)
	for m.cells[i].page != 0 {
		i = (i + 1) & mask
	}
	m.cells[i] = c
}

func (m *pageMap) grow() {
	old := m.cells
	m.cells = make([]pageCell, 2*len(old))
	m.shift--
	for _, c := range old {
		if c.page != 0 {
			m.put(c)
		}
	}
}

// close frees the page of key, which must exist, and closes the gap it leaves in
// its probe sequence.
func (m *pageMap) close(key uint64) {
	mask := len(m.cells) - 1
	i := m.home(key)
	for m.cells[i].key != key || m.cells[i].page == 0 {
		i = (i + 1) & mask
	}
	m.free = append(m.free, m.cells[i].page)
	m.held--
	for j := (i + 1) & mask; m.cells[j].page != 0; j = (j + 1) & mask {
		// A cell may move back to i iff its home is not cyclically in (i, j].
		if (j-m.home(m.cells[j].key))&mask >= (j-i)&mask {
			m.cells[i] = m.cells[j]
			i = j
		}
	}
	m.cells[i] = pageCell{}
}

// blockRuns walks the leading blocks of a prompt as runs of consecutive ids.
type blockRuns struct {
	prompt  *kv.Prompt
	at, end int32 // blocks
}

// next returns the first id and the length of the next run; length 0 at the end.
func (r *blockRuns) next() (kv.BlockID, int32) {
	if r.at >= r.end {
		return 0, 0
	}
	p := r.prompt
	if r.at >= p.Shared {
		first, n := p.Base+kv.BlockID(r.at), r.end-r.at
		r.at = r.end
		return first, n
	}
	start, end := r.at, min(r.end, p.Shared)
	k := start / p.Ratio
	first := p.Block(int(start))
	r.at = (k + 1) * p.Ratio
	for r.at < end && p.Nodes[k+1] == p.Nodes[k]+1 {
		k++
		r.at += p.Ratio
	}
	r.at = min(r.at, end)
	return first, r.at - start
}
