package kv

import (
	"fmt"
	"iter"
	"math/bits"
)

// Table maps keys to positive numbers: block identities, or the pages of PageSize
// identities that share a key. Open addressing with linear probing, at most half
// full, and backward-shift deletion: no tombstones, and an allocation only when
// there are more keys than ever before. The zero Table is empty and ready.
type Table struct {
	cells []cell // a power of two of them
	shift int    // home of a key is hash(key) >> shift
	used  int
}

type cell struct {
	key   uint64
	value int32 // 0: empty
	away  int32 // cells from the key's home on
}

const (
	minCells = 64
	nearBits = 3 // aligned runs of so many bits of key are neighbours
)

// Len is the number of keys.
func (t *Table) Len() int { return t.used }

// home spreads strides of keys, and keeps runs side by side, so that those who go
// through a run of keys fetch few cache lines.
func (t *Table) home(key uint64) int {
	h := (key >> nearBits) * 0x9E3779B97F4A7C15
	h ^= h >> 29
	return int((h*0xBF58476D1CE4E5B9)>>t.shift)&^(1<<nearBits-1) | int(key&(1<<nearBits-1))
}

// Get returns the number of key, 0 if it has none.
func (t *Table) Get(key uint64) int32 {
	if t.used == 0 {
		return 0
	}
	mask := len(t.cells) - 1
	for i := t.home(key); ; i = (i + 1) & mask {
		if c := &t.cells[i]; c.value == 0 || c.key == key {
			return c.value
		}
	}
}

// Put sets the number of key, new or not.
func (t *Table) Put(key uint64, value int32) {
	*t.Ref(key) = value
}

// Ref returns where the number of key is kept, 0 if it is new: the caller then has to
// set it. It is valid until the next call.
func (t *Table) Ref(key uint64) *int32 {
	if 2*(t.used+1) > len(t.cells) {
		t.grow()
	}
	mask := len(t.cells) - 1
	i := t.home(key)
	for t.cells[i].value != 0 && t.cells[i].key != key {
		i = (i + 1) & mask
	}
	c := &t.cells[i]
	if c.value == 0 {
		t.used++
		c.key, c.away = key, int32((i-t.home(key))&mask)
	}
	return &c.value
}

// Drop forgets key, which is there. A later cell of the probe run moves into the
// gap unless it would pass its home.
func (t *Table) Drop(key uint64) {
	mask := len(t.cells) - 1
	gap := t.home(key)
	for t.cells[gap].key != key || t.cells[gap].value == 0 {
		if t.cells[gap].value == 0 {
			panic(fmt.Sprintf("kv: key %x to drop is not in the table", key))
		}
		gap = (gap + 1) & mask
	}
	from := int32(1) // cells from the gap on
	for i := (gap + 1) & mask; t.cells[i].value != 0; i = (i + 1) & mask {
		if c := &t.cells[i]; c.away >= from {
			t.cells[gap] = cell{c.key, c.value, c.away - from}
			gap, from = i, 0
		}
		from++
	}
	t.cells[gap].value = 0
	t.used--
}

// All goes through the keys and their numbers, in an order that means nothing. The
// table must not change on the way.
func (t *Table) All() iter.Seq2[uint64, int32] {
	return func(yield func(uint64, int32) bool) {
		for _, c := range t.cells {
			if c.value != 0 && !yield(c.key, c.value) {
				return
			}
		}
	}
}

func (t *Table) grow() {
	old := t.cells
	t.cells = make([]cell, max(minCells, 2*len(old)))
	t.shift, t.used = 64-bits.TrailingZeros(uint(len(t.cells))), 0
	for _, c := range old {
		if c.value != 0 {
			t.Put(c.key, c.value)
		}
	}
}
