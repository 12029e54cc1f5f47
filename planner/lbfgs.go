package planner

import "math"

// lbfgs minimises a function of a few variables by the limited-memory BFGS method
// (Nocedal 1980) with the line search of Moré and Thuente (1994), on forward
// differences. Constants are those of L-BFGS-B 3.0, so that a search that is cut
// after a few iterations stops near where that one would.
type lbfgs struct {
	f       func(x []float64) float64
	maxIter int
	x, g    []float64
	fx      float64
	s, y    [][]float64 // the last steps and gradient changes, oldest first
	theta   float64
}

const (
	lbfgsMemory    = 10
	lbfgsGradTol   = 1e-5
	lbfgsReduceTol = 1e7 * 2.220446049250313e-16
	diffStep       = 1e-5
	maxLineEvals   = 20
)

// minimise moves x toward a minimum and returns the value there. x is kept.
func minimise(f func([]float64) float64, x []float64, maxIter int) float64 {
	o := lbfgs{f: f, maxIter: maxIter, x: x, g: make([]float64, len(x)), theta: 1}
	o.run()
	return o.fx
}

func (o *lbfgs) eval(x, g []float64) float64 {
	fx := o.f(x)
	for i, v := range x {
		x[i] = v + diffStep
		g[i] = (o.f(x) - fx) / (x[i] - v)
		x[i] = v
	}
	return fx
}

func (o *lbfgs) run() {
	n := len(o.x)
	o.fx = o.eval(o.x, o.g)
	d, x0, g0 := make([]float64, n), make([]float64, n), make([]float64, n)
	for iter := 0; iter < o.maxIter && largest(o.g) > lbfgsGradTol; {
		o.direction(d)
		slope0 := dot(d, o.g)
		step := 1.0
		if iter == 0 {
			step = math.Min(1/math.Sqrt(dot(d, d)), 1e10)
		}
		copy(x0, o.x)
		copy(g0, o.g)
		f0 := o.fx
		if !(slope0 < 0) || !o.search(x0, d, f0, slope0, &step) {
			copy(o.x, x0)
			copy(o.g, g0)
			o.fx = f0
			if len(o.s) == 0 {
				return
			}
			o.s, o.y, o.theta = nil, nil, 1
			continue
		}
		iter++
		if f0-o.fx <= lbfgsReduceTol*math.Max(math.Max(math.Abs(f0), math.Abs(o.fx)), 1) {
			return
		}
		o.remember(x0, g0, slope0*step)
	}
}

// remember keeps the step just taken, unless the curvature along it is not positive.
func (o *lbfgs) remember(x0, g0 []float64, descent float64) {
	s, y := make([]float64, len(x0)), make([]float64, len(x0))
	for i := range s {
		s[i], y[i] = o.x[i]-x0[i], o.g[i]-g0[i]
	}
	sy := dot(s, y)
	if sy <= 2.220446049250313e-16*-descent {
		return
	}
	if len(o.s) == lbfgsMemory {
		o.s, o.y = o.s[1:], o.y[1:]
	}
	o.s, o.y = append(o.s, s), append(o.y, y)
	o.theta = dot(y, y) / sy
}

// direction fills d with -H g, by the two-loop recursion.
func (o *lbfgs) direction(d []float64) {
	for i, v := range o.g {
		d[i] = -v
	}
	alpha := make([]float64, len(o.s))
	for k := len(o.s) - 1; k >= 0; k-- {
		alpha[k] = dot(o.s[k], d) / dot(o.s[k], o.y[k])
		axpy(-alpha[k], o.y[k], d)
	}
	for i := range d {
		d[i] /= o.theta
	}
	for k := range o.s {
		beta := dot(o.y[k], d) / dot(o.s[k], o.y[k])
		axpy(alpha[k]-beta, o.s[k], d)
	}
}

// search finds a step along d that decreases enough and flattens the slope; x, g
// and fx end there. False if none was found.
func (o *lbfgs) search(x0, d []float64, f0, slope0 float64, step *float64) bool {
	const ftol, gtol = 1e-3, 0.9
	b := bracket{lo: edge{0, f0, slope0}, hi: edge{0, f0, slope0}, max: *step + 4**step,
		width: longestStep, before: 2 * longestStep}
	test := ftol * slope0
	descending := true // no point was low enough and past the minimum yet
	for range maxLineEvals {
		for i := range o.x {
			o.x[i] = x0[i] + float64(*step*d[i])
		}
		o.fx = o.eval(o.x, o.g)
		at := edge{*step, o.fx, dot(o.g, d)}
		if !finite(at.f) || math.IsNaN(at.slope) {
			return false
		}
		low := at.f <= f0+*step*test
		if low && at.slope >= 0 {
			descending = false
		}
		stuck := b.spent(*step) || *step == longestStep && low && at.slope <= test || *step == 0
		if stuck || low && math.Abs(at.slope) <= gtol*-slope0 {
			return true
		}
		if descending && at.f <= b.lo.f && !low {
			b.tilt(-test)
			at.f, at.slope = at.f-*step*test, at.slope-test
			*step = b.next(at)
			b.tilt(test)
		} else {
			*step = b.next(at)
		}
		*step = b.bound(*step)
	}
	return false
}

// longestStep bounds a step along a direction.
const longestStep = 1e10

// edge is a point of the line search.
type edge struct{ x, f, slope float64 }

// bracket holds the best point, the other end, and the bounds of the next step.
type bracket struct {
	lo, hi        edge
	min, max      float64
	found         bool    // a minimum lies between lo and hi
	width, before float64 // of the last two brackets
}

// spent reports whether no step between the bounds is worth a trial.
func (b *bracket) spent(step float64) bool {
	const xtol = 0.1
	return b.found && (step <= b.min || step >= b.max || b.max-b.min <= xtol*b.max)
}

// bound sets the bounds of the step after this one and keeps this one inside its own:
// halfway where the bracket shrinks too slowly, the best point where it is spent.
func (b *bracket) bound(step float64) float64 {
	if b.found {
		if math.Abs(b.hi.x-b.lo.x) >= 0.66*b.before {
			step = b.lo.x + 0.5*(b.hi.x-b.lo.x)
		}
		b.before, b.width = b.width, math.Abs(b.hi.x-b.lo.x)
		b.min, b.max = math.Min(b.lo.x, b.hi.x), math.Max(b.lo.x, b.hi.x)
	} else {
		b.min, b.max = step+1.1*(step-b.lo.x), step+4*(step-b.lo.x)
	}
	step = math.Min(math.Max(step, 0), longestStep)
	if b.spent(step) {
		return b.lo.x
	}
	return step
}

// tilt adds a linear function to both ends.
func (b *bracket) tilt(by float64) {
	b.lo.f += b.lo.x * by
	b.lo.slope += by
	b.hi.f += b.hi.x * by
	b.hi.slope += by
}

// next takes a point in and proposes the following step by cubic and secant
// interpolation (Moré and Thuente 1994, section 4).
func (b *bracket) next(at edge) float64 {
	sign := at.slope * (b.lo.slope / math.Abs(b.lo.slope))
	var to float64
	switch {
	case at.f > b.lo.f:
		c := cubic(b.lo, at)
		q := b.lo.x + (b.lo.slope/((b.lo.f-at.f)/(at.x-b.lo.x)+b.lo.slope))/2*(at.x-b.lo.x)
		to = c
		if math.Abs(c-b.lo.x) >= math.Abs(q-b.lo.x) {
			to = c + (q-c)/2
		}
		b.found = true
	case sign < 0:
		c, q := cubic(at, b.lo), at.x+at.slope/(at.slope-b.lo.slope)*(b.lo.x-at.x)
		to = q
		if math.Abs(c-at.x) > math.Abs(q-at.x) {
			to = c
		}
		b.found = true
	case math.Abs(at.slope) < math.Abs(b.lo.slope):
		to = b.flatter(at)
	case b.found:
		to = cubic(at, b.hi)
	case at.x > b.lo.x:
		to = b.max
	default:
		to = b.min
	}
	if at.f > b.lo.f {
		b.hi = at
		return to
	}
	if sign < 0 {
		b.hi = b.lo
	}
	b.lo = at
	return to
}

// flatter proposes a step where the slope fell without changing its sign.
func (b *bracket) flatter(at edge) float64 {
	th, scale := theta(b.lo, at)
	gamma := scale * math.Sqrt(math.Max(0, sq(th/scale)-b.lo.slope/scale*(at.slope/scale)))
	if at.x > b.lo.x {
		gamma = -gamma
	}
	r := (gamma - at.slope + th) / (gamma + (b.lo.slope - at.slope) + gamma)
	c := b.min
	switch {
	case r < 0 && gamma != 0:
		c = at.x + r*(b.lo.x-at.x)
	case at.x > b.lo.x:
		c = b.max
	}
	q := at.x + at.slope/(at.slope-b.lo.slope)*(b.lo.x-at.x)
	if !b.found {
		to := q
		if math.Abs(c-at.x) > math.Abs(q-at.x) {
			to = c
		}
		return math.Max(b.min, math.Min(b.max, to))
	}
	to := q
	if math.Abs(c-at.x) < math.Abs(q-at.x) {
		to = c
	}
	if limit := at.x + 0.66*(b.hi.x-at.x); at.x > b.lo.x {
		return math.Min(limit, to)
	} else {
		return math.Max(limit, to)
	}
}

func theta(a, b edge) (th, scale float64) {
	th = 3*(a.f-b.f)/(b.x-a.x) + a.slope + b.slope
	return th, math.Max(math.Abs(th), math.Max(math.Abs(a.slope), math.Abs(b.slope)))
}

// cubic is the minimum of the cubic through both points, seen from the first.
func cubic(from, to edge) float64 {
	th, scale := theta(from, to)
	gamma := scale * math.Sqrt(math.Max(0, sq(th/scale)-from.slope/scale*(to.slope/scale)))
	if to.x < from.x {
		gamma = -gamma
	}
	r := (gamma - from.slope + th) / (gamma - from.slope + gamma + to.slope)
	return from.x + r*(to.x-from.x)
}

func sq(v float64) float64 { return v * v }

func dot(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += float64(v * b[i])
	}
	return sum
}

func axpy(k float64, x, y []float64) {
	for i, v := range x {
		y[i] += float64(k * v)
	}
}

func largest(g []float64) float64 {
	most := 0.0
	for _, v := range g {
		most = math.Max(most, math.Abs(v))
	}
	return most
}
