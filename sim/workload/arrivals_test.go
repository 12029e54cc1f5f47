package workload

import (
	"math"
	"math/big"
	"testing"

	"github.com/dynosweep/dynosweep/sim/rng"
)

func TestLogarithmIsCorrectlyRounded(t *testing.T) {
	table, c := lnTables(), rng.NewChaCha(7)
	for i := range 400 {
		x := 1 - c.Float64()
		if i%4 == 1 {
			x = 1 - x*0x1p-20
		} else if i%4 == 2 {
			x *= 0x1p-60
		}
		if got, want := table.ln(x), exactLn(x); got != want {
			t.Errorf("ln(%v) = %v, want %v", x, got, want)
		}
	}
	if table.ln(1) != 0 {
		t.Error("ln(1) is not 0")
	}
}

// exactLn sums the series of 2 atanh((m-1)/(m+1)) + e 2 atanh(1/3) in 200 bits.
func exactLn(x float64) float64 {
	float := func(v float64) *big.Float { return new(big.Float).SetPrec(200).SetFloat64(v) }
	atanh2 := func(z *big.Float) *big.Float {
		sum, term, z2 := float(0), float(2), float(0).Mul(z, z)
		term.Mul(term, z)
		for n := 1.0; n < 150; n += 2 {
			sum.Add(sum, float(0).Quo(term, float(n)))
			term.Mul(term, z2)
		}
		return sum
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	l := atanh2(float(0).Quo(float(1), float(3)))
	l.Mul(l, float(float64(e)))
	l.Add(l, atanh2(float(0).Quo(float(m-1), float(0).Add(float(m), float(1)))))
	v, _ := l.Float64()
	return v
}
