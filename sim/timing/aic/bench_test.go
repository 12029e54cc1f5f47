package aic

import "testing"

func openModel(tb testing.TB, system, backend string, c ModelConfig) *Model {
	tb.Helper()
	db, err := Open(Config{System: system, Backend: backend})
	if err != nil {
		tb.Fatal(err)
	}
	m, err := NewModel(db, c)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func benchSetups(b *testing.B, f func(b *testing.B, m *Model)) {
	for _, s := range []struct {
		name, system, backend string
		c                     ModelConfig
	}{
		{"model=dense", "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2}},
		{"model=moe", "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-30B-A3B", TP: 2, MoETP: 1, MoEEP: 2}},
		{"model=gptoss", "h200_sxm", "sglang", ModelConfig{Model: "openai/gpt-oss-120b"}},
		{"model=mla", "h200_sxm", "vllm", ModelConfig{Model: "deepseek-ai/DeepSeek-V3", TP: 8, MoEEP: 8}},
	} {
		b.Run(s.name, func(b *testing.B) { f(b, openModel(b, s.system, s.backend, s.c)) })
	}
}

func BenchmarkDecode(b *testing.B) {
	benchSetups(b, func(b *testing.B, m *Model) {
		m.DecodeMs(48, 1000)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			m.DecodeMs(48, 1000+i%5000)
		}
	})
}

func BenchmarkDecodeOutside(b *testing.B) {
	benchSetups(b, func(b *testing.B, m *Model) {
		m.DecodeMs(300, 1000)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			m.DecodeMs(300, 40000+i%5000)
		}
	})
}

func BenchmarkPrefill(b *testing.B) {
	benchSetups(b, func(b *testing.B, m *Model) {
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			m.PrefillMs(2, 1000+i%3000, 512)
		}
	})
}

func BenchmarkDecodeSeries(b *testing.B) {
	benchSetups(b, func(b *testing.B, m *Model) {
		dst := make([]float64, 256)
		m.DecodeSeries(48, 1000, dst, nil)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			m.DecodeSeries(48, 1000+i%4000, dst, nil)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(dst)), "ns/pass")
	})
}

// BenchmarkEstimate prices a prefill and a decode pass in database mode EMPIRICAL.
func BenchmarkEstimate(b *testing.B) {
	benchSetups(b, func(b *testing.B, m *Model) {
		c := ModelConfig{Model: m.ckpt.name, TP: m.par.tp, MoETP: m.par.moeTP, MoEEP: m.par.moeEP, Mode: Empirical}
		m, err := NewModel(m.db, c)
		if err != nil {
			b.Fatal(err)
		}
		m.PrefillMs(2, 1000, 512)
		m.DecodeMs(48, 1000)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			m.PrefillMs(2, 1000+i%3000, 512)
			m.DecodeMs(48, 1000+i%5000)
		}
	})
}

// BenchmarkOpen loads all tables that a model needs from the embedded data.
func BenchmarkOpen(b *testing.B) {
	for _, s := range []struct {
		name, backend string
		c             ModelConfig
	}{
		{"model=dense", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2}},
		{"model=moe", "trtllm", ModelConfig{Model: "Qwen/Qwen3-30B-A3B", TP: 2, MoETP: 1, MoEEP: 2}},
	} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				r, err := embeddedRoot()
				if err != nil {
					b.Fatal(err)
				}
				sys, err := r.system("b200_sxm")
				if err != nil {
					b.Fatal(err)
				}
				slots, err := r.slots("b200_sxm", s.backend)
				if err != nil {
					b.Fatal(err)
				}
				db := &Database{System: sys, Backend: s.backend, Version: slots.current, root: r, tables: map[string]*lazyTable{}}
				if _, err := NewModel(db, s.c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNewModel binds a model to tables that are loaded.
func BenchmarkNewModel(b *testing.B) {
	benchSetups(b, func(b *testing.B, m *Model) {
		c := ModelConfig{Model: m.ckpt.name, TP: m.par.tp, MoETP: m.par.moeTP, MoEEP: m.par.moeEP}
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			if _, err := NewModel(m.db, c); err != nil {
				b.Fatal(err)
			}
		}
	})
}
