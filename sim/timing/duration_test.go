package timing

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// reference is ns() and sec() of spec engine-timing 4 in exact arithmetic.
func reference(rawMs, ratio float64) float64 {
	ns := func(sec float64) *big.Int {
		r, _ := new(big.Rat).SetFloat64(sec).Float64()
		x := new(big.Rat).Mul(new(big.Rat).SetFloat64(r), big.NewRat(1e9, 1))
		twice := new(big.Int).Mul(x.Num(), big.NewInt(2))
		q, rest := new(big.Int).QuoRem(twice, new(big.Int).Mul(x.Denom(), big.NewInt(2)), new(big.Int))
		switch rest.Cmp(x.Denom()) {
		case 1:
			q.Add(q, big.NewInt(1))
		case 0:
			q.Add(q, new(big.Int).And(q, big.NewInt(1)))
		}
		return q
	}
	sec := func(a *big.Int) float64 {
		s, rest := new(big.Int).QuoRem(a, big.NewInt(1e9), new(big.Int))
		whole, _ := new(big.Float).SetInt(s).Float64()
		return whole + float64(rest.Int64())/1e9
	}
	a := ns(rawMs / 1000)
	if ratio > 0 && a.Sign() > 0 {
		a = ns(sec(a) / ratio)
	}
	m := sec(a) * 1000
	return sec(ns(m/1000)) * 1000
}

func TestDurationIsExactRounding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	raws := []float64{0, 1e-7, 4.9e-7, 5e-7, 5.1e-7, 5.74, 999.9999999, 1000, 999.9999995, 1000.0000005,
		1e15, 0.0000005, 2.5e-6, 0x1p-1074, 998.9999999999999, 999}
	for range 3000 {
		raws = append(raws, rng.Float64()*math.Pow(10, float64(rng.IntN(9))-3))
		// Near half a nanosecond.
		raws = append(raws, math.Nextafter((float64(rng.IntN(1e9))+0.5)/1e6, float64(rng.IntN(2))*1e9))
	}
	for _, ratio := range []float64{0, 1, 0.5, 1.5, 3, 1e-3, 7e4} {
		for _, raw := range raws {
			got, err := Duration(raw, ratio)
			if want := reference(raw, ratio); err != nil || got != want {
				t.Fatalf("Duration(%v, %v) = %v, %v, want %v", raw, ratio, got, err, want)
			}
		}
		bulk := append([]float64(nil), raws...)
		if err := Durations(bulk, ratio); err != nil {
			t.Fatal(err)
		}
		for i, raw := range raws {
			if one, _ := Duration(raw, ratio); one != bulk[i] {
				t.Fatalf("Durations gives %v for %v at %v, Duration %v", bulk[i], raw, ratio, one)
			}
		}
	}
}

func TestDurationsThatNoClockHolds(t *testing.T) {
	for _, c := range [][2]float64{{-1, 1}, {math.NaN(), 1}, {math.Inf(1), 0}, {1e30, 1}, {1000, 1e-30}} {
		if _, err := Duration(c[0], c[1]); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("Duration(%v, %v): error %v", c[0], c[1], err)
		}
		if err := Durations([]float64{1, c[0]}, c[1]); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("Durations of %v at %v: error %v", c[0], c[1], err)
		}
	}
}

func BenchmarkDurations(b *testing.B) {
	raw, ms := make([]float64, 64), make([]float64, 64)
	Polynomial{}.DecodeSeries(8, 8000, 1<<20, raw)
	for b.Loop() {
		copy(ms, raw)
		if err := Durations(ms, 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pass")
}
