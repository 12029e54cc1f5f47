package kv

// Identities come in runs (the blocks of a trace block, or of one request's private
// range), so what is known of them is kept in pages of PageSize consecutive ones,
// and one probe of a Table serves a page.
const (
	pageBits = 3
	PageSize = 1 << pageBits
)

// PageKey is the key of the page of id.
func PageKey(id BlockID) uint64 { return uint64(id) >> pageBits }

// Place is where id stands in its page.
func Place(id BlockID) int32 { return int32(id & (PageSize - 1)) }

// pages maps identities to slots: slot s is place s%PageSize of page s/PageSize, so
// that slots of neighbours lie side by side. Room follows the pages used at once,
// never the number of identities that exist.
type pages struct {
	table Table  // number of a page by its key
	all   []page // [number]; [0] holds the sentinel of the LRU list
	spare int32  // first unused page, chained by links[0].next; 0: none
	last  int32  // the page found last; 0: none
}

// page is PageSize blocks whose identities have the same key, or, if loose, as many
// copies of any identities. Looking up and holding touch its first cache line,
// eviction the second as well.
type page struct {
	key    uint64         // of the identities
	cached uint8          // [place], as bits: this block is cached
	copied uint8          // as bits: its identity has copies in loose pages
	heads  uint8          // as bits: its block is the oldest of an LRU run
	loose  bool           //
	length [PageSize]int8 // of the LRU run at its head: so many places downwards
	refs   [PageSize]int32
	links  [PageSize]link // of the LRU run at its head, or of unused places
}

// link joins heads of LRU runs, oldest after the sentinel.
type link struct{ prev, next int32 }

// at returns the page and the place of slot s.
func (x *pages) at(s int32) (pg *page, place int32) {
	return &x.all[s>>pageBits], s & (PageSize - 1)
}

// id returns the identity of slot s, which is not loose.
func (x *pages) id(s int32) BlockID {
	pg, place := x.at(s)
	return BlockID(pg.key<<pageBits) | BlockID(place)
}

// find returns the page of key, 0 if there is none.
func (x *pages) find(key uint64) int32 {
	if x.last != 0 && x.all[x.last].key == key {
		return x.last
	}
	n := x.table.Get(key)
	if n != 0 {
		x.last = n
	}
	return n
}

// open returns a page for key, which has none.
func (x *pages) open(key uint64) int32 {
	n := x.allocate(page{key: key})
	x.table.Put(key, n)
	x.last = n
	return n
}

// allocate makes an unused page pg.
func (x *pages) allocate(pg page) int32 {
	n := x.spare
	if n == 0 {
		x.all = append(x.all, pg)
		return int32(len(x.all) - 1)
	}
	x.spare = x.all[n].links[0].next
	x.all[n] = pg
	return n
}

// close gives back page n, which holds nothing any more.
func (x *pages) close(n int32) {
	x.table.Drop(x.all[n].key)
	if x.last == n {
		x.last = 0
	}
	x.all[n].links[0].next = x.spare
	x.spare = n
}
