package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/results/compare"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// shownColumns are the figures of the table that sweep prints; report shows more.
// Where the terminal is narrow, the highest spare goes first.
var shownColumns = []struct {
	name, head string
	spare      int
}{
	{"gpus", "GPUs", 0}, {"completed_requests", "completed", 7}, {"output_throughput_tok_s", "out tok/s", 0},
	{"mean_ttft_ms", "TTFT mean", 0}, {"p99_ttft_ms", "TTFT p99", 4}, {"mean_itl_ms", "ITL mean", 1},
	{"prefix_cache_reused_ratio", "reuse", 8}, {"sla_attainment", "SLA", 2}, {"scaling_events", "events", 5},
	{"gpu_hours", "GPU-h", 9}, {"cost_usd", "USD", 3},
}

const (
	seedsSpare = 6
	mostSpare  = 9
)

// judgedAlike are the columns of the sweep's table that a load decides, or that are no
// figure of a point's quality: they get no comparison.
var judgedAlike = map[string]bool{"gpus": true, "completed_requests": true}

// maxShownPoints bounds the table on the terminal.
const maxShownPoints = 60

// printPoints prints the finished points with their axes and main figures. With seeds
// a figure is the mean over them with half its interval, and ~ where it differs from
// the first point's by less than the noise.
func printPoints(w io.Writer, f *results.Frame, g *scenario.Grid) error {
	s, err := compare.OfFrame(g.Name, f)
	if err != nil {
		return err
	}
	var points []*compare.Point
	for i := range s.Points {
		if p := &s.Points[i]; len(p.Rows) > 0 {
			points = append(points, p)
		}
	}
	if len(points) == 0 {
		return nil
	}
	shown := points[:min(len(points), maxShownPoints)]
	if err := printTable(w, widthOf(w), axisColumns(g, shown), figureColumns(s, f, shown), s, shown); err != nil {
		return err
	}
	if n := len(points) - len(shown); n > 0 {
		fmt.Fprintf(w, "... and %d more points\n", n)
	}
	if anySeed(f) {
		fmt.Fprintf(w, "mean over seeds ± half of the %.0f %% interval; ~: differs from the first point\nby less than the noise, paired by seed\n", 100*compare.Confidence)
	}
	return nil
}

// printTable prints a column for each axis, and the figures that have room beside them;
// if not even those that are no spare have, the figures and then the points' names.
func printTable(w io.Writer, width int, axes, figures []fitted, s *compare.Sweep, shown []*compare.Point) error {
	wide := slices.Concat(axes, figures)
	for last := mostSpare; totalWidth(wide) > width && last > 0; last-- {
		wide = slices.DeleteFunc(wide, func(c fitted) bool { return c.spare == last })
	}
	if totalWidth(wide) <= width {
		return printFitted(w, width, width, wide)
	}
	label := fitted{head: "point", left: true}
	for _, p := range shown {
		label.cells = append(label.cells, compare.ShortID(p.ID)+" "+s.LabelUnderLoad(p))
	}
	return printFitted(w, width, leastNames, append(figures, label))
}

// axisColumns are the axes on which the points differ.
func axisColumns(g *scenario.Grid, points []*compare.Point) (out []fitted) {
	for i, head := range axisLabels(g.Axes) {
		c := fitted{head: head}
		varied := false
		for _, p := range points {
			v := p.AxisValues()[i]
			varied = varied || v != points[0].AxisValues()[i]
			c.cells = append(c.cells, cmp.Or(v, "-"))
		}
		if varied {
			out = append(out, c)
		}
	}
	return out
}

// figureColumns are the figures that a point has.
func figureColumns(s *compare.Sweep, f *results.Frame, points []*compare.Point) (out []fitted) {
	if anySeed(f) {
		c := fitted{head: "seeds", spare: seedsSpare}
		for _, p := range points {
			c.cells = append(c.cells, strconv.Itoa(len(p.Rows)))
		}
		out = append(out, c)
	}
	for _, k := range shownColumns {
		c := fitted{head: k.head, spare: k.spare}
		for _, p := range points {
			c.cells = append(c.cells, seededCell(s, points[0], p, k.name))
		}
		if !c.empty() {
			out = append(out, c)
		}
	}
	return out
}

func seededCell(s *compare.Sweep, first, p *compare.Point, name string) string {
	v := s.Values(p, name)
	text := spread(compare.EstimateOf(v.Values))
	if p == first || judgedAlike[name] || len(v.Seeds) == 0 {
		return text
	}
	d := compare.Compare(s.Values(first, name), v)
	switch {
	case d.Noise():
		return text + " ~"
	case d.Method == compare.Equal:
		return text + " ="
	}
	return text
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

// checkPoints checks what the user demanded of every finished point.
func checkPoints(f *results.Frame, asserts []metrics.Assertion, complete bool) []error {
	var errs []error
	for i := 0; i < f.Len(); i++ {
		if f.Column("status").Text(i) != string(results.Done) {
			continue
		}
		key := results.Key{Point: f.Column("point_id").Text(i)}
		key.Seed, key.Seeded = f.Column("seed").Int(i)
		get := func(name string) (float64, bool) {
			s := f.Column(name)
			if s == nil {
				return 0, false
			}
			return s.Float(i)
		}
		for _, a := range asserts {
			if err := a.Check(get); err != nil {
				errs = append(errs, fmt.Errorf("point %s: %w", key, err))
			}
		}
		if !complete {
			continue
		}
		have, _ := get("completed_requests")
		want, _ := get("num_requests")
		if have != want {
			errs = append(errs, fmt.Errorf("point %s: --require-complete: %.0f of %.0f requests completed", key, have, want))
		}
	}
	return errs
}

// axisLabels are the shortest endings of the axes' dotted paths that tell them
// apart.
func axisLabels(axes []scenario.Axis) []string {
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
