// Package page writes the report as one HTML file that needs no network and no server.
// Verdicts, caveats, front, knobs, the Planner board, the first rows and the reasons of
// failures are static text and tables. A script adds charts, a table with filters, and
// judging by other limits and prices.
//
//	err := Write(w, &Input{Analysis: a, Replay: render, Invocation: line})
//
// Every sentence and every figure of the static part comes from package compare, at
// full precision. The script gets gzipped columns of six significant digits, and the
// counts of the SLA grid, from which it judges exactly. The same input gives the
// same bytes. What the user wrote (names, reasons, paths) is escaped by
// html/template; the data travels as base64. The content security policy allows the
// two embedded scripts by their hashes and nothing else.
package page

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/results/compare"
)

// Input is what a page is made of.
type Input struct {
	Analysis   *compare.Analysis
	Replay     func(config string) string // the command that runs a resolved configuration; nil: none shown
	Invocation string                     // the command that makes this page
}

//go:embed assets/echarts.min.js
var echarts string

//go:embed assets/VERSION
var chartVersion string

//go:embed page.js
var script string

//go:embed style.css
var style string

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": compare.Number, "millis": compare.Millis, "percent": compare.Percent, "dollars": compare.Dollars,
	"change": change, "bar": bar, "round1": round1, "sub": func(a, b int) int { return a - b },
	"figure": func(e compare.Estimate, kind string) string { return e.Plain(formats[kind]) },
	"spread": func(e compare.Estimate, kind string) string { return e.Show(formats[kind]) },
}).Parse(pageText))

var formats = map[string]func(float64) string{
	"number": compare.Number, "ms": compare.Millis, "share": compare.Percent, "usd": compare.Dollars,
}

func change(rel float64) string {
	if math.IsNaN(rel) {
		return "-"
	}
	return compare.Change(rel)
}

func round1(v float64) string { return compare.Number(math.Round(10*v) / 10) }

// bar is the width of a bar in percent, as CSS.
func bar(share float64) template.CSS {
	return template.CSS(fmt.Sprintf("width:%.1f%%", 100*math.Max(0, math.Min(1, share))))
}

// Bounds of the static part.
const (
	maxStaticFront = 40
	maxStaticRows  = 50
	maxStaticBoard = 60
	maxStaticLoads = 24
	maxIDs         = 12
)

// view is what the template shows.
type view struct {
	*Input
	*compare.Analysis
	Policy, Style any
	Manifest      *results.Manifest
	Loads         []loadView
	MoreLoads     int
	Rows          []rowView // the first of the points table
	Board         *boardView
	Lost          []compare.Reason
	Phases        []phaseView
	Charts        string // version of the chart library
	Totals        string
}

type loadView struct {
	*compare.Load
	Index  int
	Best   []bestView
	Front  []*compare.Case
	More   int // of the front
	Knobs  []compare.Knob
	Slices []sliceView
	Heat   *heatView
	Figure template.HTML
	Cut    string // what the chart leaves out, "" nothing
	Commands
}

// Commands run the point of a verdict again.
type Commands struct{ Replay, Point string }

type bestView struct {
	*compare.Point
	Objective, Figure string
	GPUs              float64
}

type rowView struct {
	*compare.Case
	Load string
}

type sliceView struct {
	Axis  string
	Cells []cellView
}

type cellView struct {
	Value string
	*compare.Case
	Text string // objective, "-" if no such point ran
}

type heatView struct {
	X, Y string
	Head []string
	Rows []heatRow
}

type heatRow struct {
	Value string
	Cells []cellView
}

type boardView struct {
	*compare.Board
	Rows []boardRow
	More int
}

type boardRow struct {
	*compare.BoardRow
	*compare.Case
	VsFixed, VsBound float64
	Named            string // with its load
	FixedLabel       string
}

type phaseView struct {
	*compare.Case
	Load                                string
	Queue, Prefill, Decode              float64 // ms
	QueueBar, PrefillBar, DecodeBar     template.CSS
	KVMean, KVPeak, Preempted, Rejected compare.Estimate
}

// Write writes the page.
func Write(w io.Writer, in *Input) error {
	v := newView(in)
	blocks, err := v.blocks()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<16)
	v.Policy = fmt.Sprintf("default-src 'none'; script-src '%s' '%s'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'", hashOf(echarts), hashOf(script))
	v.Style = template.CSS(style)
	if err := pageTemplate.ExecuteTemplate(out, "head", v); err != nil {
		return err
	}
	for _, b := range blocks {
		fmt.Fprintf(out, "<script type=\"application/gzip\" id=\"data-%s\">%s</script>\n", b.name, b.text)
	}
	for _, s := range [...]string{echarts, script} { // the bytes that the policy names
		out.WriteString("<script>")
		out.WriteString(s)
		out.WriteString("</script>\n")
	}
	if err := pageTemplate.ExecuteTemplate(out, "tail", v); err != nil {
		return err
	}
	return out.Flush()
}

// hashOf is the source expression of a script.
func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func newView(in *Input) *view {
	a := in.Analysis
	v := &view{Input: in, Analysis: a, Manifest: a.Sweep.Manifest, Lost: a.Lost}
	v.Charts, _, _ = strings.Cut(chartVersion, "\n")
	for i := range a.Loads {
		if i == maxStaticLoads {
			v.MoreLoads = len(a.Loads) - i
			break
		}
		v.Loads = append(v.Loads, v.load(i))
	}
	v.rows()
	v.board()
	v.phases()
	v.Totals = v.totals()
	return v
}

func (v *view) totals() string {
	parts := []string{v.Head()}
	if v.Seeds > 1 {
		parts = append(parts, compare.Count(v.Seeds, "seed")+" a point where something is drawn")
	}
	if v.SLA.Set() {
		parts = append(parts, "SLA "+v.SLA.String()+" for "+compare.Percent(v.Options.Attainment)+" of requests")
	}
	return strings.Join(parts, "; ") + "."
}

func (v *view) load(i int) loadView {
	l := &v.Analysis.Loads[i]
	out := loadView{Load: l, Index: i, Knobs: l.Knobs[:min(len(l.Knobs), 12)]}
	for _, b := range v.BestPer(l) {
		c := &v.Cases[b.Case]
		out.Best = append(out.Best, bestView{c.Point, b.Objective, b.Figure, c.GPUs})
	}
	for _, k := range v.FrontShown(l, maxStaticFront) {
		out.Front = append(out.Front, &v.Cases[k])
	}
	out.More = len(l.Front) - len(out.Front)
	for _, s := range l.Slices[:min(len(l.Slices), 6)] {
		x := sliceView{Axis: s.Axis.Name}
		for n, k := range s.Cases {
			x.Cells = append(x.Cells, v.cell(s.Axis.Values[n], k))
		}
		out.Slices = append(out.Slices, x)
	}
	if h := l.Heat; h != nil && len(h.X.Values) <= 24 && len(h.Y.Values) <= 24 {
		out.Heat = &heatView{X: h.X.Name, Y: h.Y.Name, Head: h.X.Values}
		for y, value := range h.Y.Values {
			row := heatRow{Value: value}
			for x := range h.X.Values {
				row.Cells = append(row.Cells, v.cell(h.X.Values[x], h.Cells[y*len(h.X.Values)+x]))
			}
			out.Heat.Rows = append(out.Heat.Rows, row)
		}
	}
	out.Figure = v.scatter(l)
	if n := len(v.Cases); n > maxPoints {
		out.Cut = fmt.Sprintf("The chart carries the fronts and the best points of every load, %s of %s in all.", compare.Number(maxPoints), compare.Number(float64(n)))
	}
	if w := l.Verdict.Winner; w != nil {
		out.Commands = v.commands(w)
	}
	return out
}

func (v *view) cell(value string, k int) cellView {
	if k < 0 {
		return cellView{Value: value, Text: "-"}
	}
	c := &v.Cases[k]
	return cellView{value, c, v.ObjectiveText(c.ObjectiveMean())}
}

func (v *view) commands(c *compare.Case) (out Commands) {
	row := c.Rows[0]
	if v.Input.Replay != nil {
		out.Replay = v.Input.Replay(v.Sweep.Frame.Column(results.ColConfig).Text(row))
	}
	out.Point = "dynosweep sweep SPEC --out " + v.Sweep.Dir + " --point " + c.ID
	return out
}

// rows are the best points of every load in turn.
func (v *view) rows() {
	for depth := 0; len(v.Rows) < maxStaticRows; depth++ {
		more := false
		for i := range v.Analysis.Loads {
			l := &v.Analysis.Loads[i]
			if depth < len(l.Ranked) && len(v.Rows) < maxStaticRows {
				v.Rows = append(v.Rows, rowView{&v.Cases[l.Ranked[depth]], l.Label})
				more = true
			}
		}
		if !more {
			return
		}
	}
}

func (v *view) board() {
	b := v.Analysis.Board
	if b == nil {
		return
	}
	v.Board = &boardView{Board: b}
	shown := v.Analysis.BoardShown(maxStaticBoard)
	v.Board.More = len(b.Rows) - len(shown)
	for _, r := range shown {
		c := &v.Cases[r.Case]
		row := boardRow{BoardRow: r, Case: c, Named: v.Sweep.LabelUnderLoad(c.Point), VsFixed: v.VsFixed(r), VsBound: r.VsBound()}
		if r.Fixed >= 0 {
			row.FixedLabel = v.Cases[r.Fixed].Label
		}
		v.Board.Rows = append(v.Board.Rows, row)
	}
}

// phases show where the time of the chosen points went.
func (v *view) phases() {
	for i := range v.Analysis.Loads {
		l := &v.Analysis.Loads[i]
		shown := []*compare.Case{l.Verdict.Winner, l.Verdict.Next}
		if l.Verdict.Winner == nil {
			shown = l.Verdict.Nearest
		}
		for _, c := range shown {
			if c == nil || len(v.Phases) == 12 {
				continue
			}
			p := phaseView{Case: c, Load: l.Label}
			p.Queue, p.Prefill, p.Decode = v.PhaseMs(c)
			total := p.Queue + p.Prefill + p.Decode
			p.QueueBar, p.PrefillBar, p.DecodeBar = bar(p.Queue/total), bar(p.Prefill/total), bar(p.Decode/total)
			p.KVMean, p.KVPeak = v.Sweep.Over(c.Point, "decode_kv_occupancy"), v.Sweep.Over(c.Point, "decode_kv_occupancy_peak")
			p.Preempted, p.Rejected = v.Sweep.Over(c.Point, "preemptions"), v.Sweep.Over(c.Point, "rejected_requests")
			v.Phases = append(v.Phases, p)
		}
	}
}

// IDs are a few of the points behind a reason.
func (v *view) IDs(r compare.Reason) string {
	ids := r.Points
	if len(ids) > maxIDs {
		return strings.Join(ids[:maxIDs], " ") + fmt.Sprintf(" and %d more", len(ids)-maxIDs)
	}
	return strings.Join(ids, " ")
}
