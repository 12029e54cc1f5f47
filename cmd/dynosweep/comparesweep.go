package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"dynosweep/results"
	"dynosweep/results/compare"
	"dynosweep/sweep/spec"
)

// judgedAlike are the columns of the sweep's table that a load decides, or that are no
// figure of a point's quality: they get no comparison.
var judgedAlike = map[string]bool{"gpus": true, "completed_requests": true}

// printSeeded prints the points of a sweep with seeds: the mean over seeds with half
// its interval, and ~ where the figure differs from the first point's by less than
// the noise.
func printSeeded(w io.Writer, f *results.Frame, g *spec.Grid) error {
	s, err := compare.OfFrame(g.Name, f)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := append(axisLabels(g.Axes), "seeds")
	var shown []string
	for _, c := range shownColumns {
		if col := f.Column(c.name); col != nil && anyValue(col, f.Len()) {
			shown = append(shown, c.name)
			head = append(head, c.head)
		}
	}
	fmt.Fprintln(t, strings.Join(head, "\t")+"\t")
	var first *compare.Point
	rows := 0
	for i := range s.Points {
		p := &s.Points[i]
		if len(p.Rows) == 0 {
			continue
		}
		if first == nil {
			first = p
		}
		if rows++; rows > maxShownPoints {
			continue
		}
		cells := append(append([]string{}, p.AxisValues()...), fmt.Sprint(len(p.Rows)))
		for _, name := range shown {
			cells = append(cells, seededCell(s, first, p, name))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if rows > maxShownPoints {
		fmt.Fprintf(w, "... and %d more points\n", rows-maxShownPoints)
	}
	_, err = fmt.Fprintf(w, "mean over seeds ± half of the %.0f %% interval; ~: differs from the first point by less than the noise, paired by seed\n", 100*compare.Confidence)
	return err
}

func seededCell(s *compare.Sweep, first, p *compare.Point, name string) string {
	v := s.Values(p, name)
	text := spread(compare.EstimateOf(v.Values))
	if p == first || judgedAlike[name] {
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
