package calibrate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Errors compare simulated with measured figures.
type Errors struct {
	N    int     `json:"n"`
	MAPE float64 `json:"mape_percent"` // mean of |ratio - 1|
	Bias float64 `json:"bias_percent"` // exp(mean of ln ratio) - 1
	Rho  float64 `json:"spearman"`     // 0 with fewer than three
}

// Compare is the errors of pairs; those of which either is not above 0 are left out.
func Compare(simulated, measured []float64) Errors {
	var sim, real []float64
	var mape, bias float64
	for i := range simulated {
		if !(simulated[i] > 0) || !(measured[i] > 0) {
			continue
		}
		ratio := simulated[i] / measured[i]
		mape += math.Abs(ratio - 1)
		bias += math.Log(ratio)
		sim, real = append(sim, simulated[i]), append(real, measured[i])
	}
	e := Errors{N: len(sim)}
	if e.N == 0 {
		return e
	}
	e.MAPE, e.Bias = 100*mape/float64(e.N), 100*(math.Exp(bias/float64(e.N))-1)
	if e.N >= 3 {
		if rho := stat.Correlation(ranks(sim), ranks(real), nil); !math.IsNaN(rho) {
			e.Rho = rho
		}
	}
	return e
}

// ranks from 1; ties get their mean rank.
func ranks(v []float64) []float64 {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case v[a] < v[b]:
			return -1
		case v[a] > v[b]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(v))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && v[order[j]] == v[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			out[k] = float64(i+j+1) / 2
		}
		i = j
	}
	return out
}
