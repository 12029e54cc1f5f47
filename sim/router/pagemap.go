package router

import "github.com/dynosweep/dynosweep/sim/kv"

// pageMap numbers the pages of kv.PageSize blocks that its owner keeps something of,
// densely from 1: the numbers index the owner's payload arrays. Freed numbers are
// used again.
type pageMap struct {
	table kv.Table // number by kv.PageKey
	free  []int32
	last  int32 // highest number given out
}

// find returns the page of key, 0 if there is none.
func (m *pageMap) find(key uint64) int32 { return m.table.Get(key) }

// open returns the page of key, a new one if there is none. The payload of a new
// page is the caller's to clear if it ever held something.
func (m *pageMap) open(key uint64) int32 {
	page := m.table.Get(key)
	if page == 0 {
		page = m.allocate()
		m.table.Put(key, page)
	}
	return page
}

func (m *pageMap) allocate() int32 {
	if n := len(m.free); n > 0 {
		page := m.free[n-1]
		m.free = m.free[:n-1]
		return page
	}
	m.last++
	return m.last
}

// close frees the page of key, which must exist.
func (m *pageMap) close(key uint64) {
	m.free = append(m.free, m.table.Get(key))
	m.table.Drop(key)
}

// pageRuns goes through the leading blocks of a prompt, cut where a page ends or an
// id does not follow the one before it.
type pageRuns struct {
	prompt  *kv.Prompt
	at, end int32 // blocks
	id      kv.BlockID
	n       int32 // left of the present run of ids
}

// next returns the first id and the length of the next piece; length 0 at the end.
func (r *pageRuns) next() (first kv.BlockID, n int32) {
	if r.n == 0 {
		if r.at >= r.end {
			return 0, 0
		}
		id, run := r.prompt.Run(int(r.at), int(r.end))
		r.id, r.n = id, int32(run)
		r.at += r.n
	}
	first, n = r.id, min(r.n, kv.PageSize-kv.Place(r.id))
	r.id += kv.BlockID(n)
	r.n -= n
	return first, n
}
