package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/results/compare"
)

// Bounds of the tables on the terminal.
const (
	maxFront   = 12
	maxKnobs   = 6
	maxReasons = 8
	maxBoard   = 16

	leastLabel = 33 // room for an id and a label, before columns go for it
	leastNames = 52 // the same where labels name many settings, as of the Planner
)

// printReport prints the blocks of the page in their order.
func printReport(w io.Writer, a *compare.Analysis, page string) error {
	fmt.Fprintln(w, a.Head())
	if a.Done == 0 {
		fmt.Fprintln(w, "Nothing completed: there is nothing to judge.")
	}
	for _, c := range a.Caveats {
		printText(w, "Caveat", c)
	}
	if err := printVerdicts(w, a); err != nil {
		return err
	}
	for i := range a.Loads {
		if err := printLoad(w, a, &a.Loads[i]); err != nil {
			return err
		}
	}
	if err := printBoard(w, a); err != nil {
		return err
	}
	printLost(w, a)
	if page != "" {
		fmt.Fprintf(w, "\nPage    %s%s\n", page, pageSize(page))
	}
	return nil
}

// printVerdicts prints one line for every load, where there are several.
func printVerdicts(w io.Writer, a *compare.Analysis) error {
	if len(a.Loads) < 2 {
		return nil
	}
	fmt.Fprintln(w)
	columns := []fitted{{head: "load", left: true}, {head: "GPUs"}, {head: "SLA"}, {head: "$/hour", spare: 1}, {head: "deploy", left: true}}
	for i := range a.Loads {
		l := &a.Loads[i]
		cells := [...]string{l.Label, "-", "-", "-", "no point meets the SLA"}
		if c := l.Verdict.Winner; c != nil {
			cells = [...]string{l.Label, compare.Number(round1(c.GPUs)), c.Attainment.Plain(compare.Percent), c.USDPerHour.Plain(compare.Dollars), compare.ShortID(c.ID) + " " + c.Label}
		}
		for k, text := range cells {
			columns[k].cells = append(columns[k].cells, text)
		}
	}
	return printFitted(w, widthOf(w), leastLabel, columns)
}

func printLoad(w io.Writer, a *compare.Analysis, l *compare.Load) error {
	v := &l.Verdict
	fmt.Fprintln(w)
	if l.Label != "" {
		printText(w, "Load", l.Label)
	}
	if v.Winner == nil {
		printText(w, "Deploy", v.Sentence)
		for _, c := range v.Nearest {
			printText(w, "Near", fmt.Sprintf("%s %s on %s: %s", compare.ShortID(c.ID), c.Label, c.GPUText(), c.Why))
		}
		if v.Others != "" {
			printText(w, "Lost", v.Others)
		}
	} else {
		printText(w, "Deploy", v.Sentence+"  "+v.Winner.ID)
		for _, line := range [...]struct{ name, text string }{{"Cost", v.Money}, {"Next", v.Second}, {"Lost", v.Others}, {"Today", v.Today}} {
			if line.text != "" {
				printText(w, line.name, line.text)
			}
		}
	}
	if v.Autoscaling != "" {
		printText(w, "Scaling", v.Autoscaling)
	}
	for _, c := range v.Caveats {
		printText(w, "Caveat", c)
	}
	if best := a.BestPer(l); len(best) > 0 {
		head := "\nBest per objective"
		if l.SLA.Set() {
			head += ", within the SLA"
		}
		fmt.Fprintln(w, head)
		columns := []fitted{{left: true}, {left: true}, {left: true}}
		for _, b := range best {
			c := &a.Cases[b.Case]
			for k, text := range [...]string{b.Objective, b.Figure, compare.ShortID(c.ID) + " " + c.Label} {
				columns[k].cells = append(columns[k].cells, text)
			}
		}
		if err := printFitted(w, widthOf(w), leastLabel, columns); err != nil {
			return err
		}
	}
	if err := printFront(w, a, l); err != nil {
		return err
	}
	if err := printTiers(w, a, l); err != nil {
		return err
	}
	return printKnobs(w, l)
}

// textWidth is where sentences are broken: 80 columns with the name before them.
const textWidth = 72

// printText prints a named sentence, broken between words.
func printText(w io.Writer, name, text string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > textWidth {
			fmt.Fprintf(w, "%-8s%s\n", name, line)
			name, line = "", ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	fmt.Fprintf(w, "%-8s%s\n", name, line)
}

func printFront(w io.Writer, a *compare.Analysis, l *compare.Load) error {
	if len(l.Front) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	printText(w, "Front", l.Verdict.FrontNote)
	columns := []fitted{{head: "tok/s/user"}, {head: "tok/s/GPU"}, {head: "TTFT p95", spare: 2}, {head: "SLA"}, {head: "$/Mtok", spare: 1}, {head: "GPUs"}, {head: "point", left: true}}
	for _, i := range a.FrontShown(l, maxFront) {
		c := &a.Cases[i]
		for k, text := range [...]string{c.TokensPerUser.Plain(compare.Number), c.TokensPerGPU.Plain(compare.Number), c.TTFTMs.Plain(compare.Millis),
			c.Attainment.Plain(compare.Percent), c.USDPerMillion.Plain(compare.Dollars), compare.Number(round1(c.GPUs)), compare.ShortID(c.ID) + " " + c.Label} {
			columns[k].cells = append(columns[k].cells, text)
		}
	}
	if err := printFitted(w, widthOf(w), leastLabel, columns); err != nil {
		return err
	}
	if len(l.Front) > maxFront {
		fmt.Fprintf(w, "... and %d more\n", len(l.Front)-maxFront)
	}
	return nil
}

func round1(v float64) float64 { return math.Round(10*v) / 10 }

func printKnobs(w io.Writer, l *compare.Load) error {
	if len(l.Knobs) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	printText(w, "Knobs", l.KnobNote())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for n, k := range l.Knobs {
		if n == maxKnobs {
			break
		}
		fmt.Fprintf(t, "  %s\t%s\t%.2f\n", k.Axis.Name, strings.Repeat("#", int(math.Round(k.Share*20))), k.Share)
	}
	return t.Flush()
}

func printBoard(w io.Writer, a *compare.Analysis) error {
	b := a.Board
	if b == nil {
		return nil
	}
	fmt.Fprintln(w)
	printText(w, "Planner", b.Sentence)
	columns := []fitted{{head: "SLA"}, {head: "GPU-h"}, {head: "vs fixed", spare: 1}, {head: "vs bound", spare: 2}, {head: "events", spare: 3}, {head: "reversals", spare: 5},
		{head: "short s", spare: 6}, {head: "spare s", spare: 7}, {head: "reaction s", spare: 8}, {head: "misses starting", spare: 4}, {head: "point", left: true}}
	shown := a.BoardShown(maxBoard)
	for _, r := range shown {
		c := &a.Cases[r.Case]
		for k, text := range [...]string{c.Attainment.Plain(compare.Percent), compare.Number(r.GPUHours), change(a.VsFixed(r)), change(r.VsBound()),
			compare.Number(round1(r.Events)), compare.Number(round1(r.Reversals)), compare.Number(math.Round(r.UnderS)), compare.Number(math.Round(r.OverS)),
			compare.Number(round1(r.ReactionS)), compare.Percent(r.StartMisses), compare.ShortID(c.ID) + " " + a.Sweep.LabelUnderLoad(c.Point)} {
			columns[k].cells = append(columns[k].cells, text)
		}
	}
	err := printFitted(w, widthOf(w), leastNames, columns)
	if n := len(b.Rows) - len(shown); n > 0 {
		fmt.Fprintf(w, "... and %d more\n", n)
	}
	return err
}

func change(rel float64) string {
	if math.IsNaN(rel) {
		return "-"
	}
	return compare.Change(rel)
}

func printLost(w io.Writer, a *compare.Analysis) {
	last := results.Status("")
	for n := range a.Lost {
		r := &a.Lost[n]
		if n == 0 {
			fmt.Fprintln(w)
		}
		if n == maxReasons {
			fmt.Fprintf(w, "        ... and %d more reasons\n", len(a.Lost)-n)
			return
		}
		name := ""
		if r.Status != last {
			name, last = strings.ToUpper(string(r.Status[:1]))+string(r.Status[1:]), r.Status
		}
		printText(w, name, r.String())
	}
}
