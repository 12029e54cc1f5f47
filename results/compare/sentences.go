package compare

import (
	"fmt"
	"math"
	"strings"

	"github.com/dynosweep/dynosweep/results"
)

// writeSentences writes the sentences of a verdict.
func (a *Analysis) writeSentences(l *Load) {
	v := &l.Verdict
	v.Others = a.others(l)
	if v.Winner == nil {
		v.Sentence = a.noWinner(l)
		return
	}
	w := v.Winner
	parts := []string{fmt.Sprintf("%s on %s", w.Label, w.hardware())}
	if l.SLA.Set() {
		parts = append(parts, fmt.Sprintf("meets the SLA (%s) for %s of requests", l.SLA, w.Attainment.Show(Percent)))
	}
	parts = append(parts, fmt.Sprintf("TTFT p95 %s, mean ITL of a request p95 %s, %s tok/s/GPU", w.TTFTMs.Plain(Millis), w.ITLMs.Plain(Millis), w.TokensPerGPU.Plain(Number)))
	v.Sentence = strings.Join(parts, "; ") + "."
	v.Money = a.money(w)
	v.Second = a.second(l)
	if a.Baseline != nil {
		v.Today = a.today(l)
	}
	v.Caveats = a.caveats(l)
}

// hardware names the GPUs of a case.
func (c *Case) hardware() string {
	s := c.GPUText()
	switch p, d := c.Setup.PrefillSystem, c.Setup.DecodeSystem; {
	case p != "" && d != "" && p != d:
		s += " (prefill " + p + ", decode " + d + ")"
	case d != "":
		s += " " + d
	}
	return s
}

func (a *Analysis) noWinner(l *Load) string {
	s := "No point meets the SLA"
	if l.SLA.Set() {
		s += " (" + l.SLA.String() + ")"
	}
	s += fmt.Sprintf(" for %s of requests", Percent(a.Options.Attainment))
	if len(l.Verdict.Nearest) == 0 {
		return s + "."
	}
	c := l.Verdict.Nearest[0]
	return s + fmt.Sprintf("; the nearest, %s on %s, reaches %s%s.", c.Label, c.hardware(), c.Attainment.Plain(Percent), a.fault(c))
}

func (a *Analysis) money(c *Case) string {
	if !c.USDPerHour.OK() {
		return ""
	}
	s := fmt.Sprintf("%s an hour, %s a day at this rate; %s per million output tokens", c.USDPerHour.Plain(Dollars),
		Dollars(24*c.USDPerHour.Mean), c.USDPerMillion.Show(Dollars))
	if c.USDPerGood.OK() {
		s += fmt.Sprintf("; %s per thousand requests within the SLA", Dollars(1000*c.USDPerGood.Mean))
	}
	return s + "."
}

// second compares the next best with the winner.
func (a *Analysis) second(l *Load) string {
	v := &l.Verdict
	if v.Next == nil {
		return ""
	}
	var how string
	rel := v.NextBy.Relative()
	switch {
	case v.NextBy.Method == Equal:
		how = "is equal"
	case v.NextBy.Noise():
		how = "is within the noise (~)"
	case a.ByCost:
		how = "costs " + v.NextBy.Mark() + " per output token"
	default:
		how = "gives " + v.NextBy.Mark() + " tokens per GPU"
	}
	if v.NextBy.Method == SingleRun && !math.IsNaN(rel) {
		how += " (single run)"
	}
	which := "The next best"
	if l.SLA.Set() {
		which += " that meets the SLA"
	}
	return fmt.Sprintf("%s, %s on %s, %s.", which, v.Next.Label, v.Next.hardware(), how)
}

// others says why the points that are not the choice lost, "" if there is none.
func (a *Analysis) others(l *Load) string {
	var meeting []*Case
	missing, phases := 0, map[string]int{}
	for _, i := range l.Ranked {
		switch c := &a.Cases[i]; {
		case c == l.Verdict.Winner:
		case c.Meets:
			meeting = append(meeting, c)
		default:
			missing++
			name, _ := a.phase(c)
			phases[name]++
		}
	}
	switch {
	case missing == 0 && len(meeting) == 0:
		return ""
	case missing == 0:
		return fmt.Sprintf("%s%s.", Count(len(meeting), "other"), a.span(l, meeting))
	}
	var by []string
	for _, name := range [...]string{"TTFT", "ITL", "E2E", bothPhases, rejection} {
		if n := phases[name]; n > 0 {
			by = append(by, fmt.Sprintf("%d by %s", n, name))
		}
	}
	s := fmt.Sprintf("%d of %s miss the SLA", missing, Count(missing+len(meeting), "other point"))
	if l.Verdict.Winner == nil {
		s = fmt.Sprintf("%s missed the SLA", Count(missing, "point"))
	}
	if len(by) > 0 {
		s += " (" + strings.Join(by, ", ") + ")"
	}
	if n := len(meeting); n > 0 {
		s += fmt.Sprintf("; %d within it%s", n, a.span(l, meeting))
	}
	return s + "."
}

// span says how far points that meet the SLA, best first, lie from the choice.
func (a *Analysis) span(l *Load, meeting []*Case) string {
	to := func(c *Case) float64 {
		d := Compare(l.Verdict.Winner.Objective, c.Objective)
		return d.Relative()
	}
	near, far := to(meeting[0]), to(meeting[len(meeting)-1])
	if math.IsNaN(near) || math.IsNaN(far) {
		return ", none of them better"
	}
	text := Change(near)
	if to := Change(far); to != text {
		text += " to " + to
	}
	if a.ByCost {
		return " at " + text + " cost per output token"
	}
	return " at " + text + " tokens per GPU"
}

// daysPerMonth is the mean month of a year.
const daysPerMonth = 365.0 / 12

// today compares the winner with what is deployed: the baseline under this load.
func (a *Analysis) today(l *Load) string {
	w, b := l.Verdict.Winner, a.underLoad(a.Baseline, l)
	if b == nil {
		return fmt.Sprintf("The baseline %s has no point under this load.", a.Baseline.ID)
	}
	if b == w {
		return "The baseline is the choice."
	}
	l.Verdict.BaselineBy = Compare(b.Objective, w.Objective)
	d := &l.Verdict.BaselineBy
	s := fmt.Sprintf("Against the baseline %s (%s", b.Label, b.GPUText())
	if b.Attainment.OK() {
		s += ", SLA " + b.Attainment.Plain(Percent)
	}
	s += fmt.Sprintf("): %s in %s", d.Mark(), a.ObjectiveName())
	if b.USDPerHour.OK() && w.USDPerHour.OK() {
		month := (w.USDPerHour.Mean - b.USDPerHour.Mean) * 24 * daysPerMonth
		switch {
		case month < 0:
			s += ", saves " + Dollars(-month) + " a month"
		case month > 0:
			s += ", costs " + Dollars(month) + " more a month"
		}
	}
	return s + "."
}

// underLoad is the same deployment under a load, nil if there is none.
func (a *Analysis) underLoad(c *Case, l *Load) *Case {
	for _, i := range l.Cases {
		other := &a.Cases[i]
		same := true
		for k := range a.s.Axes {
			x := &a.s.Axes[k]
			same = same && (x.load || other.values[x.at] == c.values[x.at])
		}
		if same {
			return other
		}
	}
	return nil
}

// outsideWarning is the share of passes outside the measured grid that is told.
const outsideWarning = 0.01

// caveats are the doubts about a verdict.
func (a *Analysis) caveats(l *Load) (out []string) {
	v := &l.Verdict
	w := v.Winner
	for i := range a.s.Axes {
		if text := a.s.Axes[i].edge(w.values[a.s.Axes[i].at]); text != "" {
			out = append(out, text)
		}
	}
	if v.Tied > 0 {
		out = append(out, fmt.Sprintf("%d of the %d best differ from the choice by less than the noise.", v.Tied, min(5, a.meeting(l))))
	}
	if len(w.Rows) == 1 {
		if _, seeded := a.s.Frame.Column(results.ColSeed).Int(w.Rows[0]); seeded {
			out = append(out, "One seed, no interval: ties of the router, arrivals or draft tokens are drawn, so run more seeds.")
		}
	}
	if share := a.s.Over(w.Point, "timing_outside_share"); share.OK() && share.Mean > outsideWarning {
		out = append(out, fmt.Sprintf("%s of the passes of the choice were priced outside the measured grid of the hardware tables.", Percent(share.Mean)))
	}
	if w.Setup.Planner && w.Setup.StartupS == 0 {
		out = append(out, "The choice scales with workers that start in 0 s, which no real worker does: set "+startupAxis+" to what yours need before you deploy it.")
	}
	if w.Incomplete > 0 {
		out = append(out, fmt.Sprintf("%s of the requests did not complete.", Percent(w.Incomplete)))
	}
	return out
}

// common are the doubts about every verdict.
func (a *Analysis) common() (out []string) {
	estimated, polynomial := 0, 0
	for i := range a.Cases {
		if a.Cases[i].Setup.Estimated {
			estimated++
		}
		if a.Cases[i].Setup.Polynomial {
			polynomial++
		}
	}
	if estimated > 0 {
		out = append(out, fmt.Sprintf("KV capacity is estimated, not measured, for %s.", Count(estimated, "point")))
	}
	if polynomial > 0 {
		out = append(out, "Timing is the built-in polynomial, fitted to no particular model or GPU: compare points, do not read the milliseconds as a forecast.")
	}
	if a.Failed > 0 {
		out = append(out, fmt.Sprintf("%s failed and could not be judged.", Count(a.Failed, "point")))
	}
	if n := a.s.PendingParts; n > 0 {
		out = append(out, fmt.Sprintf("%s with a result and no row in the table yet: the sweep is running, or was killed; run it again.", Count(n, "point")))
	} else if m := a.s.Manifest; m != nil && m.Open > 0 {
		out = append(out, fmt.Sprintf("The sweep is not finished: %s without a result; run it again to continue.", Count(m.Open, "row")))
	}
	if a.Rejudge {
		was := map[SLA]bool{}
		text := "several"
		for i := range a.Cases {
			was[a.Cases[i].Setup.SLA] = true
		}
		if len(was) == 1 {
			text = orNone(a.Cases[0].Setup.SLA.String())
		}
		out = append(out, fmt.Sprintf("Judged by the SLA %s from counts taken at these very limits; the sweep was run with %s.", a.SLA, text))
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// meeting counts the cases that meet the SLA.
func (a *Analysis) meeting(l *Load) (n int) {
	for _, i := range l.Cases {
		if a.Cases[i].Meets {
			n++
		}
	}
	return n
}

// edge says that a value is the largest or smallest tried of a numeric axis, where
// more could be tried; "" if it is not.
func (x *Axis) edge(value string) string {
	n := len(x.Numbers)
	if n < 2 || x.load || value == "" {
		return ""
	}
	low, high := x.Values[0], x.Values[n-1]
	natural := x.Numbers[0] <= 0 || x.Numbers[0] == 1
	switch {
	case value == high:
		return fmt.Sprintf("The choice is at the edge of axis %s (%s, the largest of %s): the optimum may lie outside.", x.Name, value, x.tried())
	case value == low && !natural:
		return fmt.Sprintf("The choice is at the edge of axis %s (%s, the smallest of %s): the optimum may lie outside.", x.Name, value, x.tried())
	}
	return ""
}

func (x *Axis) tried() string {
	const most = 6
	if len(x.Values) <= most {
		return strings.Join(x.Values, ", ")
	}
	return strings.Join(x.Values[:2], ", ") + ", ..., " + x.Values[len(x.Values)-1]
}

// Reason is a group of points that failed or were skipped for like reasons: texts
// that differ in their numbers only.
type Reason struct {
	Status results.Status
	Text   string // of the first one
	Points []string
	Many   bool // the texts differ in their numbers
}

// lost groups the points without figures by why, most first.
func lost(points []Point) (out []Reason) {
	at := map[string]int{}
	for i := range points {
		p := &points[i]
		if len(p.Rows) > 0 {
			continue
		}
		text, _, _ := strings.Cut(p.Reason, "\n")
		key := string(p.Status) + pattern(text)
		k, ok := at[key]
		if !ok {
			k = len(out)
			at[key] = k
			out = append(out, Reason{Status: p.Status, Text: text})
		}
		out[k].Points = append(out[k].Points, p.ID)
		out[k].Many = out[k].Many || text != out[k].Text
	}
	sortReasons(out)
	return out
}

// pattern is a text with every number replaced.
func pattern(text string) string {
	var b strings.Builder
	digits := false
	for _, c := range text {
		if c >= '0' && c <= '9' || digits && c == '.' {
			if !digits {
				b.WriteByte('#')
			}
			digits = true
			continue
		}
		digits = false
		b.WriteRune(c)
	}
	return b.String()
}

// String is the group in one line.
func (r *Reason) String() string {
	s := fmt.Sprintf("%d %s: %s", len(r.Points), r.Status, r.Text)
	if r.Many {
		s += " (and alike)"
	}
	return s
}
