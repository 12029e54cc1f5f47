package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/results/compare"
)

func compareCommand() *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "two sets of results: what differs by more than the noise",
		ArgsUsage: "A B",
		Description: `A and B are results directories, points.parquet files or report JSONs of replay.
Points are paired by id, or by equal values of all axes; the only point of each
side is paired with the other. Differences are B against A.

   dynosweep compare dynosweep-output/before dynosweep-output/after
   dynosweep compare round_robin.json kv_router.json
   dynosweep compare a b --format json`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "table or json", Value: "table"},
			&cli.IntFlag{Name: "pairs", Usage: "print at most `N` pairs; the totals count all", Value: 8},
		},
		OnUsageError: usageError,
		Action:       runCompare,
	}
}

func runCompare(_ context.Context, c *cli.Command) error {
	if c.NArg() != 2 {
		return badInput(fmt.Errorf("compare takes two sets of results, got %d arguments", c.NArg()))
	}
	if n := c.Int("pairs"); n < 0 {
		return badInput(fmt.Errorf("--pairs: must not be negative, got %d", n))
	}
	format := c.String("format")
	if format != "table" && format != "json" {
		return badInput(fmt.Errorf("--format: must be table or json, got %q", format))
	}
	var sides [2]*compare.Set
	for i := range sides {
		var err error
		if sides[i], err = compare.ReadSet(c.Args().Get(i)); err != nil {
			return reportError(err)
		}
	}
	cmp, err := compare.Match(sides[0], sides[1])
	if err != nil {
		return reportError(err)
	}
	if cmp.A == cmp.B { // one specification, run twice
		cmp.A, cmp.B = c.Args().Get(0), c.Args().Get(1)
	}
	if format == "json" {
		return writeJSON(c.Root().Writer, comparisonDoc(cmp))
	}
	return printComparison(c.Root().Writer, cmp, c.Int("pairs"))
}

// reportError marks what the user can mend as bad input.
func reportError(err error) error {
	if errors.Is(err, compare.ErrInput) {
		return badInput(err)
	}
	return err
}

func printComparison(w io.Writer, c *compare.Comparison, most int) error {
	fmt.Fprintf(w, "A  %s\nB  %s\n%s of points", c.A, c.B, compare.Count(len(c.Pairs), "pair"))
	if c.OnlyA+c.OnlyB > 0 {
		fmt.Fprintf(w, "; %d only in A, %d only in B", c.OnlyA, c.OnlyB)
	}
	fmt.Fprintln(w)
	for i := range c.Pairs {
		if i == most {
			fmt.Fprintf(w, "\n... and %d more pairs; --pairs N prints more\n", len(c.Pairs)-most)
			break
		}
		if err := printPair(w, &c.Pairs[i], len(c.Pairs) > 1); err != nil {
			return err
		}
	}
	if len(c.Pairs) > 1 {
		if err := printTotals(w, c); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	printText(w, "Method", c.Methods())
	return nil
}

func printPair(w io.Writer, p *compare.Pair, named bool) error {
	fmt.Fprintln(w)
	if named && p.A == p.B {
		fmt.Fprintln(w, p.A)
	} else if named {
		fmt.Fprintf(w, "%s -> %s\n", p.A, p.B)
	}
	width := widthOf(w)
	columns := pairColumns(p, spread)
	if totalWidth(columns) > width { // the intervals of the difference tell more than those of the sides
		columns = pairColumns(p, func(e compare.Estimate) string { return e.Plain(compare.Number) })
	}
	return printFitted(w, width, columns[len(columns)-1].width(), columns)
}

// pairColumns is the table of a pair, its sides shown by show.
func pairColumns(p *compare.Pair, show func(compare.Estimate) string) []fitted {
	columns := []fitted{{head: "metric"}, {head: "A"}, {head: "B"}, {head: "n", spare: 1}, {head: "B against A"}}
	for i := range p.Deltas {
		d := &p.Deltas[i]
		n := "single run"
		if d.Method != compare.SingleRun {
			n = fmt.Sprint(d.Abs.N)
		}
		for k, text := range [...]string{fmt.Sprintf("%s (%s)", d.Name, d.Unit), show(d.A), show(d.B), n, d.Mark()} {
			columns[k].cells = append(columns[k].cells, text)
		}
	}
	return columns
}

// spread is a mean with half its interval.
func spread(e compare.Estimate) string {
	if !e.Interval() || e.Half() == 0 {
		return e.Plain(compare.Number)
	}
	return compare.Number(e.Mean) + " ±" + compare.Number(e.Half())
}

func printTotals(w io.Writer, c *compare.Comparison) error {
	fmt.Fprintf(w, "\nall %d pairs\n", len(c.Pairs))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "metric\tB better\tB worse\t~ or =\tsingle run\tgeometric mean\t")
	for i := range c.Totals {
		x := &c.Totals[i]
		mean := "-"
		if !math.IsNaN(x.GeoMean) {
			mean = compare.Change(x.GeoMean - 1)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t\n", x.Name, x.Better, x.Worse, x.Same, x.Single, mean)
	}
	return t.Flush()
}

func writeJSON(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(doc)
}

// estimateDoc is an estimate in JSON; the interval only where there is one.
type estimateDoc struct {
	Mean float64  `json:"mean"`
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	N    int      `json:"n"`
}

func estimateOf(e compare.Estimate) *estimateDoc {
	if !e.OK() {
		return nil
	}
	d := &estimateDoc{Mean: e.Mean, N: e.N}
	if e.Interval() {
		d.Low, d.High = &e.Low, &e.High
	}
	return d
}

type deltaDoc struct {
	Metric     string       `json:"metric"`
	Unit       string       `json:"unit"`
	A          *estimateDoc `json:"a"`
	B          *estimateDoc `json:"b"`
	Difference *estimateDoc `json:"difference"`
	Method     string       `json:"method"`
	Noise      bool         `json:"within_noise"`
	Mark       string       `json:"mark"`
}

type pairDoc struct {
	A      string     `json:"a"`
	B      string     `json:"b"`
	PointA string     `json:"point_a,omitempty"`
	PointB string     `json:"point_b,omitempty"`
	Deltas []deltaDoc `json:"metrics"`
}

func comparisonDoc(c *compare.Comparison) any {
	doc := struct {
		A      string    `json:"a"`
		B      string    `json:"b"`
		OnlyA  int       `json:"only_in_a"`
		OnlyB  int       `json:"only_in_b"`
		Method string    `json:"method"`
		Pairs  []pairDoc `json:"pairs"`
	}{c.A, c.B, c.OnlyA, c.OnlyB, c.Methods(), nil}
	for i := range c.Pairs {
		p := &c.Pairs[i]
		out := pairDoc{A: p.A, B: p.B, PointA: p.IDA, PointB: p.IDB}
		for k := range p.Deltas {
			d := &p.Deltas[k]
			out.Deltas = append(out.Deltas, deltaDoc{d.Column, d.Unit, estimateOf(d.A), estimateOf(d.B), estimateOf(d.Abs), d.Method.String(), d.Noise(), d.Mark()})
		}
		doc.Pairs = append(doc.Pairs, out)
	}
	return doc
}
