package recommend

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Objective is what Optimize maximises.
type Objective uint8

const (
	Throughput Objective = iota
	MeanTTFT
	MeanE2ELatency
)

// Objectives are their names in documents, in order.
var Objectives = []string{"throughput", "mean_ttft", "mean_e2e_latency"}

func (o Objective) String() string { return Objectives[o] }

// ParseObjective reads a name.
func ParseObjective(name string) (Objective, error) {
	i := slices.Index(Objectives, name)
	if i < 0 {
		return 0, fmt.Errorf("objective must be one of %s, got %q", strings.Join(Objectives, ", "), name)
	}
	return Objective(i), nil
}

// Score is the value of the objective, larger is better; -Inf without the figure.
func (o Objective) Score(f Figures) float64 {
	key := [...]string{"output_throughput_tok_s", "mean_ttft_ms", "mean_e2e_latency_ms"}[o]
	v, ok := f.Get(key)
	switch {
	case !ok:
		return math.Inf(-1)
	case o == Throughput:
		return v
	}
	return -v
}

// Bound is an inclusive upper limit on one figure of the report.
type Bound struct {
	Key   string // of the report
	Limit float64
	Name  string // in the user's document
}

// Goal is what Optimize looks for.
type Goal struct {
	Objective Objective
	Bounds    []Bound
}

// Excess is how far the figure lies beyond the bound, as a share of the limit; 0 if
// it is met, +Inf without the figure.
func (b Bound) Excess(f Figures) float64 {
	v, ok := f.Get(b.Key)
	if !ok {
		return math.Inf(1)
	}
	return max(v/b.Limit-1, 0)
}

// Penalty is the sum of the excesses, in the order of the bounds.
func Penalty(bounds []Bound, f Figures) float64 {
	sum := 0.0
	for _, b := range bounds {
		sum += b.Excess(f)
	}
	return sum
}
