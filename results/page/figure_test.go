package page

import (
	"math"
	"testing"

	"github.com/dynosweep/dynosweep/results/compare"
)

// Figures that are equal but for rounding, denormal, huge, negative or alone still give
// an axis with a few marks inside it, each a pixel inside the figure.
func TestEveryAxisHasFewTicksInside(t *testing.T) {
	for _, figures := range [][]float64{
		{1000, 999.9999999999999}, {1, math.Nextafter(1, 2)}, {0}, {0, 0}, {-5, 7}, {3},
		{5e-324, 1}, {5e-324, 1e-323}, {1e-300, 1e300}, {-1e308, 1e308}, {1.7e308, 1.7e308}, {0, 1e-320},
		{1, 29}, {1, 31}, {-1e-320, -1e-321}, {math.MaxFloat64, 1},
	} {
		cases := make([]*compare.Case, len(figures))
		for i := range figures {
			cases[i] = &compare.Case{}
			cases[i].TokensPerGPU.Mean = figures[i]
		}
		a := newAxis(cases, func(c *compare.Case) float64 { return c.TokensPerGPU.Mean }, 0, 100)
		ticks := a.ticks()
		if len(ticks) < 1 || len(ticks) >= maxTicks {
			t.Errorf("%v: %d ticks on %v..%v", figures, len(ticks), a.low, a.high)
		}
		for _, v := range append(ticks, figures...) {
			if x := a.at(v); !(x >= -1e-6 && x <= 100+1e-6) {
				t.Errorf("%v: %v stands at pixel %v of 0..100", figures, v, x)
			}
		}
	}
}
