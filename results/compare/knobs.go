package compare

import (
	"math"
	"slices"
)

// Knob is an axis with the share of the objective's variance that its main effect
// explains.
type Knob struct {
	Axis  *Axis
	Share float64
}

// knobs ranks the axes by the main effects of the objective over the cases of a
// load: eta squared, sum over values of n x (mean of the value - mean)^2, divided by
// the sum over cases of (figure - mean)^2. In a full grid these are the exact
// variance components of the main effects, and what is missing to 1 is interaction;
// with holes they overlap and are approximate.
func (a *Analysis) knobs(l *Load) {
	var cases []*Case
	for _, i := range l.Cases {
		if !math.IsNaN(a.Cases[i].objectiveMean) {
			cases = append(cases, &a.Cases[i])
		}
	}
	total, mean := 0.0, 0.0
	for _, c := range cases {
		mean += c.objectiveMean
	}
	mean /= float64(len(cases))
	for _, c := range cases {
		d := c.objectiveMean - mean
		total += d * d
	}
	if len(cases) < 2 || total == 0 {
		return
	}
	size := 1
	seen := map[string]bool{}
	for k := range a.s.Axes {
		x := &a.s.Axes[k]
		levels := levelsOf(x, cases)
		if x.load || len(levels) < 2 || seen[partition(x, cases)] {
			continue
		}
		seen[partition(x, cases)] = true
		size *= len(levels)
		between := 0.0
		for _, lv := range levels {
			d := lv.mean - mean
			between += float64(float64(lv.n)*d) * d
		}
		l.Knobs = append(l.Knobs, Knob{x, between / total})
	}
	l.Exact = size == len(cases) && a.Failed == 0
	slices.SortStableFunc(l.Knobs, func(x, y Knob) int { return cmpFloat(y.Share, x.Share) })
}

type level struct {
	value string
	n     int
	mean  float64
}

// levelsOf is the mean objective per value of an axis, null too, in order of
// appearance.
func levelsOf(x *Axis, cases []*Case) (out []level) {
	for _, c := range cases {
		v := c.values[x.at]
		k := slices.IndexFunc(out, func(l level) bool { return l.value == v })
		if k < 0 {
			k = len(out)
			out = append(out, level{value: v})
		}
		out[k].n++
		out[k].mean += c.objectiveMean
	}
	for i := range out {
		out[i].mean /= float64(out[i].n)
	}
	return out
}

// partition tells how an axis divides the cases: axes that divide them alike (the keys
// of one alternative) are one knob, told by the first.
func partition(x *Axis, cases []*Case) string {
	numbers := map[string]rune{}
	out := make([]rune, len(cases))
	for i, c := range cases {
		v := c.values[x.at]
		n, ok := numbers[v]
		if !ok {
			n = rune(len(numbers))
			numbers[v] = n
		}
		out[i] = n
	}
	return string(out)
}

// Slice is the shape of one knob: the objective along an axis, every other axis as
// in the choice.
type Slice struct {
	Axis  *Axis
	Cases []int // in Analysis.Cases, by value; -1: no such point
}

// Heat is the objective over two knobs, every other axis as in the choice.
type Heat struct {
	X, Y  *Axis
	Cells []int // [y value][x value] in Analysis.Cases; -1: no such point
}

// shapes cuts the grid through the winner (or the nearest point).
func (a *Analysis) shapes(l *Load) {
	at := l.Verdict.Winner
	if at == nil && len(l.Verdict.Nearest) > 0 {
		at = l.Verdict.Nearest[0]
	}
	if at == nil {
		return
	}
	var long []*Axis
	for _, k := range l.Knobs {
		if len(k.Axis.Values) < 2 || at.values[k.Axis.at] == "" {
			continue
		}
		s := Slice{Axis: k.Axis}
		found := 0
		for _, v := range k.Axis.Values {
			i := a.cross(l, at, k.Axis, v, nil, "")
			if i >= 0 {
				found++
			}
			s.Cases = append(s.Cases, i)
		}
		if found >= 2 {
			l.Slices = append(l.Slices, s)
			long = append(long, k.Axis)
		}
	}
	if len(long) < 2 {
		return
	}
	h := &Heat{X: long[0], Y: long[1]}
	for _, y := range h.Y.Values {
		for _, x := range h.X.Values {
			h.Cells = append(h.Cells, a.cross(l, at, h.X, x, h.Y, y))
		}
	}
	l.Heat = h
}

// cross finds the case that equals at but for one or two axes; -1 if none ran.
func (a *Analysis) cross(l *Load, at *Case, x *Axis, vx string, y *Axis, vy string) int {
	for _, i := range l.Cases {
		c := &a.Cases[i]
		same := true
		for k := range a.s.Axes {
			n := &a.s.Axes[k]
			want := at.values[n.at]
			switch n {
			case x:
				want = vx
			case y:
				want = vy
			}
			if !n.load && c.values[n.at] != want {
				same = false
				break
			}
		}
		if same {
			return i
		}
	}
	return -1
}
