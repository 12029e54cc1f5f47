package recommend

import (
	"cmp"
	"slices"
)

// Ranked is all that a front looks at.
type Ranked struct {
	Objectives []float64 // larger is better; the score is the first
	GPUs       int
	Config     string // canonical JSON: the last word between equals
}

// compareFront orders a front: the last objective ascending, the others descending,
// then GPUs and configuration.
func compareFront(a, b Ranked) int {
	last := len(a.Objectives) - 1
	order := cmp.Compare(a.Objectives[last], b.Objectives[last])
	for i := 0; i < last && order == 0; i++ {
		order = cmp.Compare(b.Objectives[i], a.Objectives[i])
	}
	return cmp.Or(order, cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Config, b.Config))
}

// dominates reports that a is nowhere worse than b and somewhere better.
func dominates(a, b []float64) bool {
	better := false
	for i := range a {
		if a[i] < b[i] {
			return false
		}
		better = better || a[i] > b[i]
	}
	return better
}

// Front returns the indices of what nothing dominates, in the order of spec
// sweeps-and-schema 5.5. All have the same number of objectives, at least one.
func Front(all []Ranked) []int {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	// What dominates an entry stands before it when all objectives descend.
	slices.SortStableFunc(order, func(i, j int) int { return -slices.Compare(all[i].Objectives, all[j].Objectives) })
	var front []int
	for _, i := range order {
		if !slices.ContainsFunc(front, func(f int) bool { return dominates(all[f].Objectives, all[i].Objectives) }) {
			front = append(front, i)
		}
	}
	slices.SortFunc(front, func(i, j int) int { return cmp.Or(compareFront(all[i], all[j]), cmp.Compare(i, j)) })
	return front
}
