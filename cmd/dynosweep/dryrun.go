package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// maxAxisValues bounds the values of an axis that are spelled out.
const maxAxisValues = 12

// dryRun prints what a sweep would do: axes, points, GPUs, and what is skipped,
// and with list every point.
func dryRun(w io.Writer, g *scenario.Grid, list bool) error {
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
	var gpus []int
	for i := range g.Points {
		if p := &g.Points[i]; p.Skip == "" {
			gpus = append(gpus, p.GPUs)
		}
	}
	if len(gpus) > 0 {
		fmt.Fprintf(w, "  run: %d points of %d to %d GPUs\n", len(gpus), slices.Min(gpus), slices.Max(gpus))
	}
	if g.Folded > 0 {
		fmt.Fprintf(w, "  folded: %d combinations come to the configuration of another point\n", g.Folded)
	}
	printSkipped(w, g)
	if list {
		for i := range g.Points {
			listPoint(w, g, &g.Points[i])
		}
	}
	return nil
}

// runnable is the configurations of the points that would run.
func runnable(g *scenario.Grid) []scenario.Run {
	var out []scenario.Run
	for i := range g.Points {
		if p := &g.Points[i]; p.Skip == "" {
			out = append(out, p.Run)
		}
	}
	return out
}

// listPoint prints a line with the id of a point, its value on every axis, and its
// GPUs or why it is skipped.
func listPoint(w io.Writer, g *scenario.Grid, p *scenario.Point) {
	fmt.Fprintf(w, "  point %s:", sweep.Key(p))
	for i, v := range p.Values {
		fmt.Fprintf(w, " %s=%v", g.Axes[i].Path, orNull(v))
	}
	if p.Skip != "" {
		fmt.Fprintf(w, " skipped: %s\n", p.Skip)
		return
	}
	fmt.Fprintf(w, " gpus=%d\n", p.GPUs)
}

// printSkipped says how many points are skipped for each reason.
func printSkipped(w io.Writer, g *scenario.Grid) {
	reasons := map[string]int{}
	for i := range g.Points {
		if p := &g.Points[i]; p.Skip != "" {
			reasons[p.Skip]++
		}
	}
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(w, "  skipped: %d points: %s\n", reasons[r], r)
	}
}

func orNull(v any) any {
	if v == nil {
		return "null"
	}
	return v
}
