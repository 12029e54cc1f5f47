// Package slab keeps values that come and go, such as the state of requests, in slots
// with dense numbers.
//
//	i := s.Allocate()   a slot, new or given back
//	v := s.At(i)        its value; the address never changes
//	s.Release(i)        gives it back
//
// A slab grows by chunks and never moves a value, so growing needs no second copy in
// memory. A new slot holds the zero value; a reused one holds what Release left in it.
package slab

const (
	bits = 6
	size = 1 << bits // slots of a chunk
)

// Slab is a set of slots numbered from 0. The zero Slab is empty and ready.
type Slab[T any] struct {
	chunks []*[size]T
	free   []int32
	made   int32
}

// At returns the value of a slot that Allocate returned at some time.
func (s *Slab[T]) At(i int32) *T { return &s.chunks[i>>bits][i&(size-1)] }

// Allocate returns a slot that nobody has, the one given back last if there is one.
func (s *Slab[T]) Allocate() int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	if int(s.made) == len(s.chunks)*size {
		s.chunks = append(s.chunks, new([size]T))
	}
	s.made++
	return s.made - 1
}

// Release gives slot i back, whose value nobody uses any more.
func (s *Slab[T]) Release(i int32) { s.free = append(s.free, i) }

// Free lists the slots that were given back, for checks; the list is the slab's.
func (s *Slab[T]) Free() []int32 { return s.free }

// Len is the number of slots ever made: they are those below it, in use or not.
func (s *Slab[T]) Len() int32 { return s.made }
