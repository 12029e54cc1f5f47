package page

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"

	"github.com/dynosweep/dynosweep/results/compare"
)

// The static figure, pixels.
const (
	figWidth, figHeight = 1000, 380
	figLeft, figRight   = 70, 20
	figTop, figBottom   = 16, 46
	maxDots             = 600 // dominated points drawn; the front always is
)

// scatter draws the trade-off of a load: tokens per user to the right, tokens per GPU
// up. It is what a reader without scripts sees, and a printer.
func (v *view) scatter(l *compare.Load) template.HTML {
	var dots, front []*compare.Case
	for _, i := range l.Cases {
		c := &v.Cases[i]
		if c.TokensPerUser.OK() && c.TokensPerGPU.OK() && !c.Front {
			dots = append(dots, c)
		}
	}
	for _, i := range l.Front {
		front = append(front, &v.Cases[i])
	}
	if len(front) == 0 {
		return ""
	}
	every := (len(dots) + maxDots - 1) / maxDots
	x, y := newAxis(append(dots, front...), func(c *compare.Case) float64 { return c.TokensPerUser.Mean }, figLeft, figWidth-figRight),
		newAxis(append(dots, front...), func(c *compare.Case) float64 { return c.TokensPerGPU.Mean }, figHeight-figBottom, figTop)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s" class="static">`, figWidth, figHeight, html.EscapeString(l.Verdict.FrontNote))
	for _, t := range x.ticks() {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x.at(t), x.at(t), figTop, figHeight-figBottom, x.at(t), figHeight-figBottom+16, compare.Number(t))
	}
	for _, t := range y.ticks() {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			figLeft, figWidth-figRight, y.at(t), y.at(t), figLeft-6, y.at(t)+4, compare.Number(t))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">output tokens per second for a user</text>`, (figLeft+figWidth-figRight)/2, figHeight-8)
	fmt.Fprintf(&b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">output tokens per second and GPU</text>`, (figTop+figHeight-figBottom)/2)
	for i := 0; i < len(dots); i += every {
		dot(&b, &x, &y, dots[i], 3, "dot")
	}
	b.WriteString(`<polyline class="front" points="`)
	for _, c := range front {
		fmt.Fprintf(&b, "%.1f,%.1f ", x.at(c.TokensPerUser.Mean), y.at(c.TokensPerGPU.Mean))
	}
	b.WriteString(`"/>`)
	for _, c := range front {
		whisker(&b, &x, &y, c)
		dot(&b, &x, &y, c, 5, "dot on")
	}
	if w := l.Verdict.Winner; w != nil && w.TokensPerUser.OK() {
		dot(&b, &x, &y, w, 8, "dot choice")
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

func dot(b *strings.Builder, x, y *axis, c *compare.Case, r int, class string) {
	if !c.Meets {
		class += " missed"
	}
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%d" class="%s"><title>%s</title></circle>`,
		x.at(c.TokensPerUser.Mean), y.at(c.TokensPerGPU.Mean), r, class, html.EscapeString(c.Label+" "+c.Why))
}

func whisker(b *strings.Builder, x, y *axis, c *compare.Case) {
	if !c.TokensPerGPU.Interval() {
		return
	}
	fmt.Fprintf(b, `<line class="whisker" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x.at(c.TokensPerUser.Mean), x.at(c.TokensPerUser.Mean), y.at(c.TokensPerGPU.Low), y.at(c.TokensPerGPU.High))
	fmt.Fprintf(b, `<line class="whisker" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x.at(c.TokensPerUser.Low), x.at(c.TokensPerUser.High), y.at(c.TokensPerGPU.Mean), y.at(c.TokensPerGPU.Mean))
}

// axis maps values to pixels; it is logarithmic where the spread is above 30.
type axis struct {
	low, high  float64
	from, to   float64
	logarithms bool
}

// drawn is a figure as the axis shows it: within what float64 can divide into ticks.
func drawn(v float64) float64 {
	if math.Abs(v) < 1e-300 {
		return 0
	}
	return math.Max(-1e300, math.Min(v, 1e300))
}

// sameSpread is the spread of an axis, relative to its largest figure, under which its
// figures count as one: they differ by rounding alone.
const sameSpread = 1e-9

func newAxis(cases []*compare.Case, figure func(*compare.Case) float64, from, to float64) axis {
	a := axis{low: math.Inf(1), high: math.Inf(-1), from: from, to: to}
	for _, c := range cases {
		v := drawn(figure(c))
		a.low, a.high = math.Min(a.low, v), math.Max(a.high, v)
	}
	a.logarithms = a.low > 0 && a.high/a.low > 30
	if a.logarithms {
		a.low, a.high = a.low/1.1, a.high*1.1
		return a
	}
	largest := math.Max(math.Abs(a.low), math.Abs(a.high))
	pad := 0.05 * (a.high - a.low)
	if !(a.high-a.low > sameSpread*largest) {
		pad = math.Max(largest*0.1, 1e-9)
	}
	low := a.low
	a.low, a.high = a.low-pad, a.high+pad
	if a.low < 0 && low >= 0 {
		a.low = 0
	}
	return a
}

func (a *axis) at(v float64) float64 {
	v = drawn(v)
	low, high := a.low, a.high
	if a.logarithms {
		v, low, high = math.Log(math.Max(v, low)), math.Log(low), math.Log(high)
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// maxTicks bounds the marks of an axis: a logarithmic one over all of float64 has
// three in each of 631 decades.
const maxTicks = 2000

// ticks are round values inside the axis, four to eight of them, or the powers of ten
// with their doubles and halves.
func (a *axis) ticks() (out []float64) {
	if a.logarithms {
		for e := int(math.Floor(math.Log10(a.low))); e <= int(math.Ceil(math.Log10(a.high))); e++ {
			for _, m := range [...]float64{1, 2, 5} {
				if v := m * math.Pow10(e); v >= a.low && v <= a.high {
					out = append(out, v)
				}
			}
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10((a.high-a.low)/4)))
	for _, m := range [...]float64{5, 2} {
		if (a.high-a.low)/(step*m) >= 4 {
			step *= m
			break
		}
	}
	first := math.Ceil(a.low / step)
	for i := range maxTicks {
		v := (first + float64(i)) * step
		if !(v <= a.high) {
			break
		}
		out = append(out, v)
	}
	return out
}
