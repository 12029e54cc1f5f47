package recommend

import (
	"encoding/json"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// space is the mixed domain of a list of candidates: for every decision of any of them
// the value that each took. Distances in it feed a Gaussian process.
type space struct {
	knobs  []knob
	length int // candidates
}

// knob is one decision: a number, or a choice between names. A candidate may lack it.
type knob struct {
	number []float64 // [candidate], scaled to 0..1; NaN where it is no number
	name   []int     // [candidate], number of the name; -1 where the decision is absent
}

// logarithmicFrom is the ratio of the largest to the smallest value from which a number
// counts by its logarithm.
const logarithmicFrom = 8

// newSpace reads the decisions of candidates, JSON objects of path to value. Decisions
// that all candidates share are left out.
func newSpace(decisions [][]byte) (*space, error) {
	s := &space{length: len(decisions)}
	values := make([]map[string]any, len(decisions))
	var paths []string
	for i, text := range decisions {
		if err := json.Unmarshal(text, &values[i]); err != nil {
			return nil, err
		}
		for path := range values[i] {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		if k, differs := newKnob(values, path); differs {
			s.knobs = append(s.knobs, k)
		}
	}
	return s, nil
}

func newKnob(values []map[string]any, path string) (k knob, differs bool) {
	names := map[string]int{}
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		number, name := math.NaN(), -1
		if value, ok := v[path]; ok {
			text, _ := json.Marshal(value) // it came from JSON
			if _, known := names[string(text)]; !known {
				names[string(text)] = len(names)
			}
			name = names[string(text)]
			if f, ok := value.(float64); ok {
				number, low, high = f, min(low, f), max(high, f)
			}
		}
		k.number, k.name = append(k.number, number), append(k.name, name)
	}
	scale := func(v float64) float64 { return v }
	if low > 0 && high >= logarithmicFrom*low {
		scale = math.Log
	}
	for i, v := range k.number {
		if high > low {
			k.number[i] = (scale(v) - scale(low)) / (scale(high) - scale(low))
		}
		differs = differs || k.name[i] != k.name[0]
	}
	return k, differs
}

// apart is how far two candidates are from each other in one decision, 0..1.
func (k *knob) apart(a, b int) float64 {
	if d := math.Abs(k.number[a] - k.number[b]); d == d {
		return d
	}
	if k.name[a] == k.name[b] {
		return 0
	}
	return 1
}

// process is a Gaussian process over a space with the Matérn kernel of smoothness 5/2 and
// a length scale for every decision (Rasmussen and Williams, Gaussian Processes for
// Machine Learning, 2006, eq. 4.17 and 2.25 to 2.26). Its values have mean 0 and
// variance 1.
type process struct {
	space *space
	scale []float64 // [knob]
	noise float64   // variance
	seen  []int     // candidates with a value
	value []float64 // [seen]
	chol  mat.Cholesky
	alpha mat.VecDense // K^-1 value
}

// kernel is the correlation of two candidates.
func (p *process) kernel(a, b int) float64 {
	sum := 0.0
	for d := range p.space.knobs {
		x := p.space.knobs[d].apart(a, b) / p.scale[d]
		sum += x * x
	}
	r := math.Sqrt(5 * sum)
	return (1 + r + 5*sum/3) * math.Exp(-r)
}

// condition fits the process to its values and returns the logarithm of their
// probability; false where the matrix is singular.
func (p *process) condition() (float64, bool) {
	n := len(p.seen)
	k := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			k.SetSym(i, j, p.kernel(p.seen[i], p.seen[j]))
		}
		k.SetSym(i, i, 1+p.noise)
	}
	if !p.chol.Factorize(k) {
		return 0, false
	}
	p.alpha.Reset()
	y := mat.NewVecDense(n, p.value)
	if p.chol.SolveVecTo(&p.alpha, y) != nil {
		return 0, false
	}
	return -0.5*mat.Dot(y, &p.alpha) - 0.5*p.chol.LogDet(), true
}

// Values that length scales and noise are chosen from.
var (
	scaleChoices = [...]float64{0.15, 0.4, 1, 2.5, 6}
	noiseChoices = [...]float64{1e-4, 1e-2, 1e-1}
)

// learn chooses length scales and noise by the probability of the values, one at a time,
// beginning with those of the last time, and conditions the process on them.
func (p *process) learn() bool {
	best, ok := p.condition()
	if !ok {
		best = math.Inf(-1)
	}
	try := func(at *float64, choices []float64) {
		kept := *at
		for _, c := range choices {
			*at = c
			// A weak preference for long scales: with few values short ones explain anything.
			if score, ok := p.condition(); ok && score-0.05*math.Abs(math.Log(c)) > best {
				best, kept = score-0.05*math.Abs(math.Log(c)), c
			}
		}
		*at = kept
	}
	for range 2 {
		for d := range p.scale {
			try(&p.scale[d], scaleChoices[:])
		}
		try(&p.noise, noiseChoices[:])
	}
	_, ok = p.condition()
	return ok
}

// predict is mean and standard deviation of a candidate's value.
func (p *process) predict(c int, work *mat.VecDense) (mean, sd float64) {
	n := len(p.seen)
	k := mat.NewVecDense(n, nil)
	for i, s := range p.seen {
		k.SetVec(i, p.kernel(c, s))
	}
	mean = mat.Dot(k, &p.alpha)
	if p.chol.SolveVecTo(work, k) != nil {
		return mean, 1
	}
	return mean, math.Sqrt(max(1+p.noise-mat.Dot(k, work), 1e-12))
}

// improvement is the expected improvement over best (Jones, Schonlau and Welch,
// Efficient Global Optimization of Expensive Black-Box Functions, 1998, eq. 15).
func improvement(mean, sd, best float64) float64 {
	z := (mean - best) / sd
	return (mean-best)*0.5*math.Erfc(-z/math.Sqrt2) + sd*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)
}
