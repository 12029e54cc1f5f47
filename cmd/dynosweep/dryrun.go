package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"dynosweep/sweep/spec"
)

// maxAxisValues bounds the values of an axis that are spelled out.
const maxAxisValues = 12

// dryRun prints what a sweep would do: axes, points, GPUs, and what is skipped.
func dryRun(w io.Writer, g *spec.Grid) error {
	fmt.Fprintf(w, "%s: %d points\n", g.Name, len(g.Points))
	for _, a := range g.Axes {
		var vs []string
		for i, v := range a.Values {
			if i == maxAxisValues {
				vs = append(vs, fmt.Sprintf("... %d in all", len(a.Values)))
				break
			}
			vs = append(vs, fmt.Sprint(orNull(v)))
		}
		fmt.Fprintf(w, "  axis %s (%s): %s\n", a.Path, a.Type, strings.Join(vs, ", "))
	}
	reasons, gpus := map[string]int{}, []int{}
	for i := range g.Points {
		p := &g.Points[i]
		if p.Skip != "" {
			reasons[p.Skip]++
			continue
		}
		gpus = append(gpus, p.GPUs)
	}
	if len(gpus) > 0 {
		fmt.Fprintf(w, "  run: %d points of %d to %d GPUs\n", len(gpus), slices.Min(gpus), slices.Max(gpus))
	}
	if g.Folded > 0 {
		fmt.Fprintf(w, "  folded: %d combinations come to the configuration of another point\n", g.Folded)
	}
	var sorted []string
	for r := range reasons {
		sorted = append(sorted, r)
	}
	slices.Sort(sorted)
	for _, r := range sorted {
		fmt.Fprintf(w, "  skipped: %d points: %s\n", reasons[r], r)
	}
	return nil
}

func orNull(v any) any {
	if v == nil {
		return "null"
	}
	return v
}
