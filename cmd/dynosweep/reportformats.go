package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/safetext"
	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/results/compare"
)

// judgedColumns are the columns of CSV and JSON rows beside axes and report keys.
var judgedColumns = []struct {
	name string
	of   func(*compare.Case) compare.Estimate
}{
	{"sla_attainment", func(c *compare.Case) compare.Estimate { return c.Attainment }},
	{"tokens_per_gpu_second", func(c *compare.Case) compare.Estimate { return c.TokensPerGPU }},
	{"tokens_per_second_per_user", func(c *compare.Case) compare.Estimate { return c.TokensPerUser }},
	{"output_throughput_tok_s", func(c *compare.Case) compare.Estimate { return c.Throughput }},
	{"p95_ttft_ms", func(c *compare.Case) compare.Estimate { return c.TTFTMs }},
	{"p95_tpot_ms", func(c *compare.Case) compare.Estimate { return c.ITLMs }},
	{"usd_per_million_output_tokens", func(c *compare.Case) compare.Estimate { return c.USDPerMillion }},
	{"usd_per_hour", func(c *compare.Case) compare.Estimate { return c.USDPerHour }},
	{"usd_per_request_within_sla", func(c *compare.Case) compare.Estimate { return c.USDPerGood }},
}

// writeReportCSV writes every point, the ones without figures too: means over seeds
// with the bounds of their intervals.
func writeReportCSV(w io.Writer, a *compare.Analysis, _ string) error {
	out := csv.NewWriter(w)
	head := []string{"point_id", "label", "status", "reason"}
	head = append(head, a.Sweep.Frame.Meta.Axes...)
	head = append(head, "seeds", "gpus", "load", "meets_sla", "pareto_front", "verdict")
	for _, c := range judgedColumns {
		head = append(head, c.name, c.name+"_low", c.name+"_high")
	}
	if err := out.Write(safetext.Cells(head)); err != nil {
		return err
	}
	cases := map[int]*compare.Case{}
	for i := range a.Cases {
		cases[a.Cases[i].Index] = &a.Cases[i]
	}
	for i := range a.Sweep.Points {
		p := &a.Sweep.Points[i]
		reason := ""
		if p.Status != results.Done {
			reason = p.Reason
		}
		row := append([]string{p.ID, p.Label, string(p.Status), reason}, p.AxisValues()...)
		row = append(row, strconv.Itoa(len(p.Rows)))
		if c := cases[i]; c != nil {
			row = append(row, plainNumber(c.GPUs), a.LoadLabels(c), strconv.FormatBool(c.Meets), strconv.FormatBool(c.Front), c.Why)
			for _, col := range judgedColumns {
				row = append(row, estimateCells(col.of(c))...)
			}
		}
		for len(row) < len(head) {
			row = append(row, "")
		}
		if err := out.Write(safetext.Cells(row)); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func plainNumber(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func estimateCells(e compare.Estimate) []string {
	switch {
	case !e.OK():
		return []string{"", "", ""}
	case !e.Interval():
		return []string{plainNumber(e.Mean), "", ""}
	}
	return []string{plainNumber(e.Mean), plainNumber(e.Low), plainNumber(e.High)}
}

type caseDoc struct {
	Point   string                  `json:"point_id"`
	Label   string                  `json:"label"`
	Load    string                  `json:"load"`
	GPUs    float64                 `json:"gpus"`
	Seeds   int                     `json:"seeds"`
	Meets   bool                    `json:"meets_sla"`
	Front   bool                    `json:"pareto_front"`
	Verdict string                  `json:"verdict"`
	Figures map[string]*estimateDoc `json:"figures"`
}

type loadDoc struct {
	Label       string             `json:"label"`
	SLA         *compare.SLA       `json:"sla"`
	Deploy      *string            `json:"deploy"`
	Next        *string            `json:"next"`
	Sentence    string             `json:"sentence"`
	Money       string             `json:"money,omitempty"`
	Autoscaling string             `json:"autoscaling,omitempty"`
	Second      string             `json:"next_sentence,omitempty"`
	Others      string             `json:"others_sentence,omitempty"`
	Today       string             `json:"baseline_sentence,omitempty"`
	Caveats     []string           `json:"caveats"`
	Front       []string           `json:"pareto_front"`
	Nearest     []string           `json:"nearest,omitempty"`
	Knobs       map[string]float64 `json:"variance_shares"`
	KnobNote    string             `json:"variance_note"`
	Objective   string             `json:"objective"`
}

type boardDoc struct {
	Point       string       `json:"point_id"`
	Events      float64      `json:"scaling_events"`
	Reversals   float64      `json:"reversals"`
	UnderS      float64      `json:"under_provisioned_s"`
	OverS       float64      `json:"over_provisioned_s"`
	ReactionS   *float64     `json:"reaction_s"`
	StartMisses *float64     `json:"misses_while_starting"`
	GPUHours    float64      `json:"gpu_hours"`
	Bound       *float64     `json:"clairvoyant_gpu_hours"`
	Fixed       *string      `json:"best_fixed_point"`
	VsBound     *float64     `json:"regret_vs_clairvoyant"`
	VsFixed     *float64     `json:"regret_vs_best_fixed"`
	TTFTOK      *float64     `json:"ttft_attainment"`
	ITLOK       *float64     `json:"itl_attainment"`
	Goodput     *estimateDoc `json:"goodput_rps"`
}

type lostDoc struct {
	Status results.Status `json:"status"`
	Reason string         `json:"reason"`
	Points []string       `json:"points"`
}

type reportDoc struct {
	Name    string     `json:"name"`
	Points  int        `json:"points"`
	Done    int        `json:"completed"`
	Failed  int        `json:"failed"`
	Skipped int        `json:"skipped"`
	Caveats []string   `json:"caveats"`
	Loads   []loadDoc  `json:"loads"`
	Cases   []caseDoc  `json:"cases"`
	Planner []boardDoc `json:"planner,omitempty"`
	Lost    []lostDoc  `json:"lost"`
	Page    string     `json:"page,omitempty"`
}

// defined is a pointer to v, nil for NaN.
func defined(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func writeReportJSON(w io.Writer, a *compare.Analysis, page string) error {
	doc := reportDoc{Name: a.Sweep.Name, Points: len(a.Sweep.Points), Done: a.Done, Failed: a.Failed, Skipped: a.Skipped,
		Page: page, Caveats: append([]string{}, a.Caveats...), Loads: []loadDoc{}, Cases: []caseDoc{}, Lost: []lostDoc{}}
	for i := range a.Loads {
		doc.Loads = append(doc.Loads, loadOf(a, &a.Loads[i]))
	}
	for i := range a.Cases {
		c := &a.Cases[i]
		d := caseDoc{Point: c.ID, Label: c.Label, Load: a.LoadLabels(c), GPUs: c.GPUs, Seeds: len(c.Rows), Meets: c.Meets, Front: c.Front, Verdict: c.Why, Figures: map[string]*estimateDoc{}}
		for _, col := range judgedColumns {
			if e := estimateOf(col.of(c)); e != nil {
				d.Figures[col.name] = e
			}
		}
		doc.Cases = append(doc.Cases, d)
	}
	if a.Board != nil {
		for i := range a.Board.Rows {
			doc.Planner = append(doc.Planner, boardOf(a, &a.Board.Rows[i]))
		}
	}
	for i := range a.Lost {
		doc.Lost = append(doc.Lost, lostDoc{a.Lost[i].Status, a.Lost[i].Text, a.Lost[i].Points})
	}
	return writeJSON(w, doc)
}

func loadOf(a *compare.Analysis, l *compare.Load) loadDoc {
	v := &l.Verdict
	d := loadDoc{Label: l.Label, Sentence: v.Sentence, Money: v.Money, Autoscaling: v.Autoscaling, Second: v.Second, Others: v.Others, Today: v.Today, Caveats: v.Caveats,
		Knobs: map[string]float64{}, KnobNote: l.KnobNote(), Objective: a.ObjectiveName(), Front: []string{}}
	if d.Caveats == nil {
		d.Caveats = []string{}
	}
	if l.SLA.Set() {
		d.SLA = &l.SLA
	}
	if v.Winner != nil {
		d.Deploy = &v.Winner.ID
	}
	if v.Next != nil {
		d.Next = &v.Next.ID
	}
	for _, c := range v.Nearest {
		d.Nearest = append(d.Nearest, c.ID)
	}
	for _, i := range l.Front {
		d.Front = append(d.Front, a.Cases[i].ID)
	}
	for _, k := range l.Knobs {
		d.Knobs[k.Axis.Name] = k.Share
	}
	return d
}

func boardOf(a *compare.Analysis, r *compare.BoardRow) boardDoc {
	d := boardDoc{Point: a.Cases[r.Case].ID, Events: r.Events, Reversals: r.Reversals, UnderS: r.UnderS, OverS: r.OverS,
		ReactionS: defined(r.ReactionS), StartMisses: defined(r.StartMisses), GPUHours: r.GPUHours, Bound: defined(r.Bound),
		VsBound: defined(r.VsBound()), VsFixed: defined(a.VsFixed(r)), TTFTOK: defined(r.TTFTOK), ITLOK: defined(r.ITLOK), Goodput: estimateOf(r.Goodput)}
	if r.Fixed >= 0 {
		d.Fixed = &a.Cases[r.Fixed].ID
	}
	return d
}

// Bounds of the markdown report, which is to fit a pull request.
const (
	maxMarkdownFront = 10
	maxMarkdownLoads = 4
)

// writeReportMarkdown writes verdict, front and failures in at most 60 lines.
func writeReportMarkdown(w io.Writer, a *compare.Analysis, _ string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", markdown(a.Head()))
	for _, c := range a.Caveats {
		fmt.Fprintf(&b, "- %s\n", markdown(c))
	}
	b.WriteByte('\n')
	markdownVerdicts(&b, a)
	for i := range a.Loads {
		if i == maxMarkdownLoads {
			fmt.Fprintf(&b, "... and %d more loads.\n\n", len(a.Loads)-i)
			break
		}
		markdownLoad(&b, a, &a.Loads[i], i == 0)
	}
	if a.Board != nil {
		fmt.Fprintf(&b, "%s\n\n", markdown(a.Board.Sentence))
	}
	for n := range a.Lost {
		if n == 5 {
			fmt.Fprintf(&b, "- ... and %d more reasons\n", len(a.Lost)-n)
			break
		}
		fmt.Fprintf(&b, "- %s\n", markdown(a.Lost[n].String()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxMarkdownVerdicts bounds the table of verdicts.
const maxMarkdownVerdicts = 12

// markdownVerdicts is one line for every load, where there are several.
func markdownVerdicts(b *strings.Builder, a *compare.Analysis) {
	if len(a.Loads) < 2 {
		return
	}
	b.WriteString("| load | deploy | GPUs | SLA | $/hour |\n|---|---|--:|--:|--:|\n")
	for i := range a.Loads {
		if i == maxMarkdownVerdicts {
			fmt.Fprintf(b, "| ... and %d more | | | | |\n", len(a.Loads)-i)
			break
		}
		l := &a.Loads[i]
		if c := l.Verdict.Winner; c != nil {
			fmt.Fprintf(b, "| %s | %s `%s` | %s | %s | %s |\n", markdown(l.Label), markdown(c.Label), compare.ShortID(c.ID), compare.Number(round1(c.GPUs)), c.Attainment.Plain(compare.Percent), c.USDPerHour.Plain(compare.Dollars))
		} else {
			fmt.Fprintf(b, "| %s | no point meets the SLA | | | |\n", markdown(l.Label))
		}
	}
	b.WriteByte('\n')
}

func markdownLoad(b *strings.Builder, a *compare.Analysis, l *compare.Load, front bool) {
	v := &l.Verdict
	if l.Label != "" {
		fmt.Fprintf(b, "### %s\n\n", markdown(l.Label))
	}
	id := ""
	if v.Winner != nil {
		id = " `" + v.Winner.ID + "`"
	}
	fmt.Fprintf(b, "**Deploy** %s%s\n", markdown(v.Sentence), id)
	for _, c := range v.Nearest {
		fmt.Fprintf(b, "- %s `%s`: %s\n", markdown(c.Label), compare.ShortID(c.ID), markdown(c.Why))
	}
	for _, text := range slices.Concat([]string{v.Money, v.Autoscaling, v.Second, v.Others, v.Today}, v.Caveats) {
		if text != "" {
			fmt.Fprintf(b, "- %s\n", markdown(text))
		}
	}
	b.WriteByte('\n')
	if !front || len(l.Front) == 0 {
		return
	}
	fmt.Fprintf(b, "%s\n\n| point | GPUs | tok/s/user | tok/s/GPU | TTFT p95 | mean ITL of a request p95 | SLA | $/Mtok | verdict |\n|---|--:|--:|--:|--:|--:|--:|--:|---|\n", markdown(v.FrontNote))
	for _, i := range a.FrontShown(l, maxMarkdownFront) {
		c := &a.Cases[i]
		fmt.Fprintf(b, "| %s `%s` | %s | %s | %s | %s | %s | %s | %s | %s |\n", markdown(c.Label), compare.ShortID(c.ID), compare.Number(round1(c.GPUs)),
			c.TokensPerUser.Plain(compare.Number), c.TokensPerGPU.Plain(compare.Number), c.TTFTMs.Plain(compare.Millis), c.ITLMs.Plain(compare.Millis),
			c.Attainment.Plain(compare.Percent), c.USDPerMillion.Plain(compare.Dollars), markdown(c.Why))
	}
	if n := len(l.Front) - maxMarkdownFront; n > 0 {
		fmt.Fprintf(b, "| ... and %d more | | | | | | | | |\n", n)
	}
	b.WriteByte('\n')
}

// markdown escapes what a name or reason could be taken for.
func markdown(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "`", "'", "\n", " ", "[", `\[`, "~", `\~`).Replace(s)
}
