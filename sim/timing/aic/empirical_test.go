package aic

import (
	"math"
	"math/rand/v2"
	"testing"
)

// scanned is estimate by its definition: the two nearest of all samples, the earlier
// of two as near.
func (f *utilField) scanned(at [3]float64, sol, k float64) float64 {
	r := &reach{}
	q := [3]float64{f.place(0, at[0], r), f.place(1, at[1], r), f.place(2, at[2], r)}
	first, second := -1, -1
	d1, d2 := math.Inf(1), math.Inf(1)
	before := func(l, than int) bool { return f.rank != nil && f.rank[l] < f.rank[than] }
	for i := range f.at0 {
		for j := f.off0[i]; j < f.off0[i+1]; j++ {
			for l := f.off1[j]; l < f.off1[j+1]; l++ {
				d := 0.0
				for axis, v := range [3]float64{f.at0[i], f.at1[j], f.at2[l]} {
					e := v - q[axis]
					d += float64(e * e)
				}
				switch {
				case f.util[l] == 0:
				case d < d1, d == d1 && before(int(l), first):
					second, d2 = first, d1
					first, d1 = int(l), d
				case d < d2, d == d2 && second >= 0 && before(int(l), second):
					second, d2 = int(l), d
				}
			}
		}
	}
	util := f.util[first]
	if d1 > 0 && second >= 0 {
		w1, w2 := 1/math.Sqrt(d1), 1/math.Sqrt(d2)
		util = (float64(w1*util) + float64(w2*f.util[second])) / (w1 + w2)
	}
	return sol / (util * k)
}

// TestEstimateHasTheBitsOfAScan compares the search with a scan of all samples, at
// measured keys, between them and outside.
func TestEstimateHasTheBitsOfAScan(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, s := range stepSetups {
		s.c.Mode = Empirical
		m := openModel(t, s.system, s.backend, s.c)
		for _, e := range append(m.context, m.generate...) {
			var source func() (borrowed, error)
			switch o := e.op.(type) {
			case *gemmOp:
				source = o.field
			case *contextAttentionOp:
				source = o.field
			case *decodeAttentionOp:
				source = o.field
			case *moeOp:
				source = o.field
			default:
				continue
			}
			f, err := source()
			if err != nil {
				t.Fatal(e.name, err)
			}
			for range 40 {
				var at [3]float64
				for i, keys := range [3][]float64{f.at0, f.at1, f.at2} {
					n := keys[r.IntN(len(keys))]
					at[i] = math.Round(math.Exp(n*f.span[i] + f.low[i]))
					if i != 0 && r.IntN(2) == 0 {
						at[i] = float64(1 + r.IntN(1<<(1+r.IntN(18))))
					}
				}
				st := step{}
				if got, want := f.estimate(at, 1, f.k, &st), f.scanned(at, 1, f.k); got != want || st.err != nil {
					t.Fatalf("%v, %s at %v: %v, scanned %v (%v)", s, e.name, at, got, want, st.err)
				}
			}
		}
	}
}

// What HYBRID estimates it says, and an estimate beyond the samples is outside.
func TestEstimatesAreTold(t *testing.T) {
	m := openModel(t, "b200_sxm", "trtllm", ModelConfig{Model: "openai/gpt-oss-120b", TP: 2, MoETP: 2, Mode: Hybrid})
	costs, err := m.DecodeOps(16, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range costs {
		if c.Estimated != (c.Name == "generation_moe") {
			t.Errorf("%+v", c)
		}
	}
	m = openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2, Mode: Empirical})
	if m.DecodeMs(16, 2048); m.Outside().Passes != 0 {
		t.Errorf("inside: %+v", m.Outside())
	}
	m.DecodeMs(16, 2048*1024)
	if o := m.Outside(); o.Passes != 1 || o.Op != "generation_attention" || o.Length != 2048*1024 || o.Doublings < 1 {
		t.Errorf("outside: %+v", o)
	}
}

// TestMoEBoundHasNoEdge asks for work around the largest integer.
func TestMoEBoundHasNoEdge(t *testing.T) {
	s := moeSOL{expertShape{h: 1 << 15, inter: 1 << 15, topk: 8, experts: 64, tp: 1, ep: 1}, 3, 1e15, 2, 1e12}
	for tokens := 1 << 20; tokens <= 1<<36; tokens *= 2 {
		if a, b := s.sol(0, 0, float64(tokens)), s.sol(0, 0, float64(2*tokens)); !(b > 1.99*a && b < 2.01*a) {
			t.Errorf("%d tokens: %v, twice as many: %v", tokens, a, b)
		}
	}
}
