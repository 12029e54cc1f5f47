package aic

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dynosweep/dynosweep/sim/timing"
)

var stepSetups = []struct {
	system, backend string
	c               ModelConfig
}{
	{"h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2}},
	{"b200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 4, DecodeQKNorm: true}},
	{"h200_sxm", "sglang", ModelConfig{Model: "openai/gpt-oss-120b"}},
	{"h100_sxm", "trtllm", ModelConfig{Model: "Qwen/Qwen3-30B-A3B", TP: 2, MoEEP: 2}},
	{"h200_sxm", "vllm", ModelConfig{Model: "deepseek-ai/DeepSeek-V3", TP: 8, MoEEP: 8}},
	{"h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2, NextN: 2}},
	{"h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2, Mode: SOL}},
	{"h100_sxm", "sglang", ModelConfig{Model: "Qwen/Qwen3-30B-A3B", TP: 2, MoEEP: 2, Mode: Empirical}},
	{"b200_sxm", "trtllm", ModelConfig{Model: "openai/gpt-oss-120b", TP: 2, MoETP: 2, Mode: Hybrid}},
}

func TestSeriesHasTheBitsOfSingleSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range stepSetups {
		walked := openModel(t, s.system, s.backend, s.c)
		dst, far := make([]float64, 300), make([]timing.Extrapolation, 300)
		for range 60 {
			batch, context := 1+r.IntN(400), 1+r.IntN(1<<(4+r.IntN(13)))
			n := 1 + r.IntN(len(dst))
			before := walked.Outside()
			walked.DecodeSeries(batch, context, dst[:n], far[:n])
			if walked.Outside() != before {
				t.Fatalf("%v: a series counts before its passes ran", s)
			}
			fresh := openModel(t, s.system, s.backend, s.c)
			for j, got := range dst[:n] {
				if want := fresh.DecodeMs(batch, context+j); got != want {
					t.Fatalf("%v: D(%d,%d): series %v, single %v", s, batch, context+j, got, want)
				}
			}
			walked.CountExtrapolation(batch, context, far[:n])
			after, single := walked.Outside(), fresh.Outside()
			if after.Passes-before.Passes != single.Passes || after.Queried-before.Queried != single.Queried {
				t.Fatalf("%v: counts differ: %+v, %+v, %+v", s, before, after, single)
			}
		}
	}
}

func TestSeriesCountsLikeSingleSteps(t *testing.T) {
	for _, s := range stepSetups {
		a, b := openModel(t, s.system, s.backend, s.c), openModel(t, s.system, s.backend, s.c)
		dst, far := make([]float64, 2000), make([]timing.Extrapolation, 2000)
		a.DecodeSeries(200, 7000, dst, far)
		a.CountExtrapolation(200, 7000, far)
		for j := range dst {
			b.DecodeMs(200, 7000+j)
		}
		if x, y := a.Outside(), b.Outside(); x != y {
			t.Errorf("%v: series %+v, single %+v", s, x, y)
		}
	}
}

// TestHoldFindsTheNearestLeaves compares the pruned search with a scan of all leaves.
func TestHoldFindsTheNearestLeaves(t *testing.T) {
	db, err := Open(Config{System: "b200_sxm", Backend: "vllm"})
	if err != nil {
		t.Fatal(err)
	}
	table, err := db.table("generation_attention_perf", false)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		s := &table.slices[r.IntN(len(table.slices))]
		g := newGrid(&s.tree, &decodeSOL{attentionBound{k: 1, h: 128, kvb: 2, flops: 1e15, memBW: 1e12}}, false)
		c := [3]float64{1 + float64(r.IntN(100)), 1 + float64(r.IntN(2000)), 1 + float64(r.IntN(1<<(2+r.IntN(18))))}
		fast, slow := search{want: 5}, search{}
		fast.run(g.outside(), math.Log2(c[0]), math.Log2(c[1]), math.Log2(c[2]))
		leaf := int32(0)
		s.walk(func(a0, a1, a2, _ float64, _ bool) {
			d2 := 0.0
			for i, a := range [3]float64{a0, a1, a2} {
				e := math.Log2(a) - math.Log2(c[i])
				d2 += float64(e * e)
			}
			at := slow.n
			if at < 5 {
				slow.n++
			} else if at = 4; d2 >= slow.best[4].d2 {
				leaf++
				return
			}
			for ; at > 0 && slow.best[at-1].d2 > d2; at-- {
				slow.best[at] = slow.best[at-1]
			}
			slow.best[at] = near{d2, leaf, leaf}
			leaf++
		})
		if fast.n != slow.n || fast.best != slow.best {
			t.Fatalf("at %v: %v, want %v", c, fast.best, slow.best)
		}
	}
}

func TestWarmStepsDoNotAllocate(t *testing.T) {
	for _, s := range stepSetups {
		m := openModel(t, s.system, s.backend, s.c)
		dst := make([]float64, 100)
		i := 0
		ask := func() {
			i++
			m.DecodeMs(30+i%4, 1000+i)
			m.DecodeMs(300, 50000+i)
			m.PrefillMs(3, 100+i, 64)
			m.PrefillMs(100, 20000+i, 64)
			m.DecodeSeries(40, 1000+i, dst, nil)
		}
		for range 8 {
			ask()
		}
		if n := testing.AllocsPerRun(100, ask); n != 0 {
			t.Errorf("%v: %v allocations", s, n)
		}
	}
}

func TestImpossibleQuestions(t *testing.T) {
	for _, s := range stepSetups {
		m := openModel(t, s.system, s.backend, s.c)
		if m.PrefillMs(0, 10, 0) != 0 || m.PrefillMs(4, 0, 10) != 0 || m.DecodeMs(0, 5) != 0 {
			t.Error("an empty pass takes time")
		}
		for _, v := range []float64{
			m.PrefillMs(1<<31, 1<<31, 0), m.PrefillMs(1, 1, -1), m.PrefillMs(1<<40, 1, 0), m.DecodeMs(1, 0), m.DecodeMs(1, -5), m.DecodeMs(1<<33, 7),
		} {
			if !math.IsNaN(v) {
				t.Errorf("%v: out of range priced %v", s, v)
			}
		}
		if v := m.PrefillMs(1<<16-1, 1<<16, 1<<30); math.IsNaN(v) || v <= 0 {
			t.Errorf("%v: largest question: %v", s, v)
		}
		m = openModel(t, s.system, s.backend, s.c)
		if v := m.DecodeMs(1<<30, 1<<31); !(v > 0) || m.Err() != nil {
			t.Errorf("%v: largest question: %v, %v", s, v, m.Err())
		}
	}
}

func TestModelsShareTables(t *testing.T) {
	a := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B"})
	b := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-8B", TP: 2})
	if a.db != b.db {
		t.Error("one configuration gave two databases")
	}
	done := make(chan float64)
	for range 4 {
		go func() {
			m := openModel(t, "h100_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2})
			done <- m.DecodeMs(16, 8192)
		}()
	}
	for range 4 {
		if v := <-done; !near6(v, 20.552392) {
			t.Errorf("%v", v)
		}
	}
}

func TestOutsideIsCounted(t *testing.T) {
	m := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2})
	m.DecodeMs(16, 8192)
	if o := m.Outside(); o.Queried != 1 || o.Passes != 0 {
		t.Errorf("inside: %+v", o)
	}
	m.DecodeMs(700, 40000)
	m.PrefillMs(1, 100, 0)
	o := m.Outside()
	if o.Queried != 3 || o.Passes != 1 || o.Op != "generation_attention" || o.Batch != 700 || o.Length != 40000 || o.Doublings < 1 {
		t.Errorf("outside: %+v", o)
	}
}

// TestWalkHasTheBitsOfTheGrid compares the walked attention with five fresh queries.
func TestWalkHasTheBitsOfTheGrid(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, s := range stepSetups[:4] {
		m := openModel(t, s.system, s.backend, s.c)
		for i := range m.generate {
			o, ok := m.generate[i].op.(*decodeAttentionOp)
			if !ok {
				continue
			}
			for range 200 {
				batch, from := 1+r.IntN(600), 1+r.IntN(1<<(4+r.IntN(14)))
				for context := from; context < from+200; context += 1 + r.IntN(20) {
					st := step{batch: batch, seq: context}
					got := o.silicon(&st)
					lo, hi := sampleSpan(context)
					sum, want := 0.0, step{}
					for i := range 5 {
						v, _ := o.grid.at(float64(o.n), float64(batch), float64(lo+(hi-lo)*i/4), &want.reach)
						sum += v
					}
					if want := sum/5 + o.qkNorm; got != want {
						t.Fatalf("%v: batch %d, context %d: walked %v, asked %v", s, batch, context, got, want)
					}
					if st.reach != want.reach {
						t.Fatalf("%v: batch %d, context %d: walked %+v, asked %+v", s, batch, context, st.reach, want.reach)
					}
				}
			}
		}
	}
}
