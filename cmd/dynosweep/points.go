package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"dynosweep/results"
	"dynosweep/sim/metrics"
	"dynosweep/sweep/spec"
)

// shownColumns are the figures of the table that sweep prints; report shows more.
var shownColumns = []struct{ name, head string }{
	{"gpus", "GPUs"}, {"completed_requests", "completed"}, {"output_throughput_tok_s", "out tok/s"},
	{"mean_ttft_ms", "TTFT mean"}, {"p99_ttft_ms", "TTFT p99"}, {"mean_itl_ms", "ITL mean"},
	{"prefix_cache_reused_ratio", "reuse"}, {"sla_attainment", "SLA"}, {"scaling_events", "events"}, {"gpu_hours", "GPU-h"}, {"cost_usd", "USD"},
}

// maxShownPoints bounds the table on the terminal.
const maxShownPoints = 60

// printPoints prints the finished points with their axes and main figures.
func printPoints(w io.Writer, f *results.Frame, g *spec.Grid) error {
	if anySeed(f) {
		return printSeeded(w, f, g)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := axisLabels(g.Axes)
	var shown []*results.Series
	for _, c := range shownColumns {
		if s := f.Column(c.name); s != nil && anyValue(s, f.Len()) {
			shown = append(shown, s)
			head = append(head, c.head)
		}
	}
	fmt.Fprintln(t, strings.Join(head, "\t")+"\t")
	rows := 0
	for i := 0; i < f.Len(); i++ {
		if f.Column("status").Text(i) != string(results.Done) {
			continue
		}
		if rows++; rows > maxShownPoints {
			continue
		}
		var cells []string
		for _, a := range g.Axes {
			cells = append(cells, f.Column(a.Path).Text(i))
		}
		for _, s := range shown {
			cells = append(cells, short(s, i))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if rows > maxShownPoints {
		fmt.Fprintf(w, "... and %d more rows\n", rows-maxShownPoints)
	}
	return nil
}

func anySeed(f *results.Frame) bool {
	s := f.Column("seed")
	return s != nil && anyValue(s, f.Len())
}

func anyValue(s *results.Series, n int) bool {
	for i := 0; i < n; i++ {
		if !s.Null(i) {
			return true
		}
	}
	return false
}

// short is a figure with four significant digits; whole numbers in full.
func short(s *results.Series, i int) string {
	v, ok := s.Float(i)
	switch {
	case !ok:
		return "-"
	case v == float64(int64(v)):
		return strconv.FormatInt(int64(v), 10)
	case v >= 1000 || v <= -1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// checkPoints checks what the user demanded of every finished point.
func checkPoints(f *results.Frame, asserts []metrics.Assertion, complete bool) []error {
	var errs []error
	for i := 0; i < f.Len(); i++ {
		if f.Column("status").Text(i) != string(results.Done) {
			continue
		}
		id := f.Column("point_id").Text(i)
		get := func(name string) (float64, bool) {
			s := f.Column(name)
			if s == nil {
				return 0, false
			}
			return s.Float(i)
		}
		for _, a := range asserts {
			if err := a.Check(get); err != nil {
				errs = append(errs, fmt.Errorf("point %s: %w", id, err))
			}
		}
		if !complete {
			continue
		}
		have, _ := get("completed_requests")
		want, _ := get("num_requests")
		if have != want {
			errs = append(errs, fmt.Errorf("point %s: --require-complete: %.0f of %.0f requests completed", id, have, want))
		}
	}
	return errs
}

// axisLabels are the shortest endings of the axes' dotted paths that tell them
// apart.
func axisLabels(axes []spec.Axis) []string {
	out := make([]string, len(axes))
	for i, a := range axes {
		parts := strings.Split(a.Path, ".")
		for n := 1; n <= len(parts); n++ {
			out[i] = strings.Join(parts[len(parts)-n:], ".")
			alone := true
			for j, b := range axes {
				if i != j && (b.Path == out[i] || strings.HasSuffix(b.Path, "."+out[i])) {
					alone = false
				}
			}
			if alone {
				break
			}
		}
	}
	return out
}
