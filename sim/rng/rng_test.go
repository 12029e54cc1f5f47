package rng

import (
	"slices"
	"testing"
)

// take draws n values.
func take[T any](n int, draw func() T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = draw()
	}
	return out
}

func TestChaChaGivesTheReferenceKeystream(t *testing.T) {
	c := NewChaCha(42)
	key := [8]uint32{0x7ba18fa4, 0x0a3d3258, 0xcca1b8ea, 0xb8140169, 0x75c88c2b, 0x54f7b418, 0xa16e448d, 0xf220dfe4}
	if c.key != key {
		t.Errorf("key %x, want %x", c.key, key)
	}
	u32 := c
	if got, want := take(4, u32.Uint32), []uint32{572990626, 2261546851, 1068323197, 2330987027}; !slices.Equal(got, want) {
		t.Errorf("u32 %v, want %v", got, want)
	}
	u64 := c
	want := []uint64{0x86cc7763222724a2, 0x8af00a133fad517d, 0xa2ef6071de5134d1, 0x67e92d78fd7630b2}
	if got := take(4, u64.Uint64); !slices.Equal(got, want) {
		t.Errorf("u64 %x, want %x", got, want)
	}
	f64 := c
	if got, want := take(4, f64.Float64), []float64{0.5265574090027738, 0.5427252099031439, 0.6364650991438949, 0.4059017582307767}; !slices.Equal(got, want) {
		t.Errorf("f64 %v, want %v", got, want)
	}
	plan := NewChaCha(0xD37A0A7E5EED)
	if got, want := take(3, plan.Uint32), []uint32{952584220, 694593853, 2967053780}; !slices.Equal(got, want) {
		t.Errorf("output plan %v, want %v", got, want)
	}
}

func TestIntNGivesTheReferenceGroups(t *testing.T) {
	for _, row := range []struct {
		n    uint64
		want []uint64
	}{
		{2, []uint64{0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0}},
		{3, []uint64{0, 1, 0, 1, 2, 1, 2, 1, 2, 0, 1, 1, 1, 2, 0, 2, 1, 0, 1, 0}},
		{5, []uint64{0, 2, 1, 2, 4, 3, 4, 2, 4, 0, 3, 2, 1, 3, 0, 4, 3, 0, 2, 0}},
		{8, []uint64{1, 4, 1, 4, 6, 5, 7, 3, 7, 0, 4, 3, 2, 5, 1, 6, 5, 1, 3, 0}},
		{1000, []uint64{133, 526, 248, 542, 868, 636, 990, 405, 969, 34, 617, 414, 347, 737, 185, 849, 629, 131, 479, 3}},
	} {
		c := NewChaCha(42)
		if got := take(len(row.want), func() uint64 { return c.IntN(row.n) }); !slices.Equal(got, row.want) {
			t.Errorf("%d groups: %v, want %v", row.n, got, row.want)
		}
	}
	c := NewChaCha(42)
	if got := c.IntN(1 << 32); got != 572990626 {
		t.Errorf("IntN(2^32) = %d, want the word itself", got)
	}
}

func TestAcceptedDraftTokensFollowTheReference(t *testing.T) {
	sample := func(c *ChaCha, rates ...float64) byte {
		accepted := byte('1')
		for _, p := range rates {
			if c.Uint64() >= uint64(p*0x1p64) {
				break
			}
			accepted++
		}
		return accepted
	}
	for _, row := range []struct {
		seed  uint64
		rates []float64
		want  string
	}{
		{42, []float64{.8, .5}, "233231323322323311133313"},
		{43, []float64{.8, .5}, "332333213132"},
		{42, []float64{.85, .3}, "222231223322"},
	} {
		c := NewChaCha(row.seed)
		got := string(take(len(row.want), func() byte { return sample(&c, row.rates...) }))
		if got != row.want {
			t.Errorf("seed %d rates %v: %s, want %s", row.seed, row.rates, got, row.want)
		}
	}
}

func TestSeekLandsOnTheSameWord(t *testing.T) {
	c := NewChaCha(7)
	words := take(100, c.Uint32)
	for _, n := range []uint64{0, 1, 15, 16, 17, 63, 99, 3} {
		c.Seek(n)
		if got := c.Uint32(); got != words[n] {
			t.Errorf("word %d after Seek: %d, want %d", n, got, words[n])
		}
	}
	c.Seek(1<<36 - 1) // block counter about to need its second word
	last, first := c.Uint32(), c.Uint32()
	c.Seek(1 << 36)
	if got := c.Uint32(); got != first || last == first {
		t.Errorf("counter carry: %d then %d, Seek gives %d", last, first, got)
	}
}

// The values are our own, frozen: a results directory must replay the same ties.
func TestStreamsAreFixedAndApart(t *testing.T) {
	a, again, other, seeded := Stream(1, "ties"), Stream(1, "ties"), Stream(1, "softmax"), Stream(2, "ties")
	x := take(8, a.Uint64)
	if !slices.Equal(x, take(8, again.Uint64)) {
		t.Error("same name and seed differ")
	}
	for _, p := range []*PCG{&other, &seeded} {
		for i, v := range take(8, p.Uint64) {
			if v == x[i] {
				t.Errorf("streams meet at draw %d", i)
			}
		}
	}
	if x[0] != 6802922401492616229 {
		t.Errorf("first draw of (1, ties) is %d", x[0])
	}
	counts := make([]int, 7)
	for range 70000 {
		counts[other.IntN(7)]++
	}
	if slices.Min(counts) < 9700 || slices.Max(counts) > 10300 {
		t.Errorf("IntN(7) is uneven: %v", counts)
	}
}

func TestDrawsDoNotAllocate(t *testing.T) {
	c, p := NewChaCha(1), Stream(1, "x")
	if n := testing.AllocsPerRun(100, func() { c.Seek(5); c.Float64(); c.IntN(9); p.Float64(); p.IntN(9) }); n != 0 {
		t.Errorf("%v allocations per draw", n)
	}
}

func BenchmarkChaCha(b *testing.B) {
	c := NewChaCha(1)
	b.ReportAllocs()
	for b.Loop() {
		c.Uint64()
	}
}
