package slab

import "testing"

func TestSlotsStayWhereTheyAre(t *testing.T) {
	var s Slab[int]
	var at []*int
	for i := range int32(1000) {
		if got := s.Allocate(); got != i {
			t.Fatalf("slot %d after %d were taken", got, i)
		}
		*s.At(i) = int(i)
		at = append(at, s.At(i))
	}
	for i, p := range at {
		if s.At(int32(i)) != p || *p != i {
			t.Fatalf("slot %d moved or lost its value", i)
		}
	}
	s.Release(7)
	s.Release(900)
	if a, b := s.Allocate(), s.Allocate(); a != 900 || b != 7 || *s.At(7) != 7 || s.Len() != 1000 {
		t.Errorf("slots %d and %d, value %d, %d slots", a, b, *s.At(7), s.Len())
	}
	if n := testing.AllocsPerRun(100, func() { s.Release(3); s.Allocate() }); n > 0 {
		t.Errorf("%v allocations for a slot that comes back", n)
	}
}
