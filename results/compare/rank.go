package compare

import (
	"cmp"
	"math"
)

// Merit is all that a verdict looks at.
type Merit struct {
	Meets bool    // it ran, and is within the SLA and every other bound
	Miss  float64 // how far it is from that, in any unit; +Inf unknown; not looked at if Meets
	Score float64 // the stated objective, larger is better; NaN: none, which comes last
	GPUs  float64
	Name  string // the last word between equals
}

// Rank is the one order of verdicts, of the points of a report and of the candidates
// of a search alike: what meets its bounds before what misses them by less before
// what misses them by more, then the better score, fewer GPUs, and the name.
func Rank(x, y Merit) int {
	if x.Meets != y.Meets {
		if x.Meets {
			return -1
		}
		return 1
	}
	order := 0
	if !x.Meets {
		order = cmp.Compare(x.Miss, y.Miss)
	}
	return cmp.Or(order, cmp.Compare(y.Score, x.Score), cmp.Compare(x.GPUs, y.GPUs), cmp.Compare(x.Name, y.Name))
}

// merit is what the verdict sees of a case.
func (a *Analysis) merit(c *Case) Merit {
	m := Merit{Meets: c.Meets, Miss: 1 - c.attainmentMean, Score: c.objectiveMean, GPUs: c.GPUs, Name: c.ID}
	if math.IsNaN(m.Miss) {
		m.Miss = math.Inf(1)
	}
	if a.ByCost {
		m.Score = -m.Score
	}
	return m
}

// order ranks two cases, given by their index.
func (a *Analysis) order(i, j int) int { return Rank(a.merit(&a.Cases[i]), a.merit(&a.Cases[j])) }
