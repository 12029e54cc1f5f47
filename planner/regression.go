package planner

import "math"

// sample is one observed pass: its features and how long it took.
type sample struct {
	x      [2]float64 // attention and feed-forward work, in tokens
	y      float64    // ms
	bucket int
}

// store keeps the samples of one kind of work, spread over a grid of buckets, and
// a non-negative least-squares fit of them (spec planner 6.3, 6.4).
type store struct {
	most, least int // samples kept at most, needed for a fit
	bins        int // per axis
	samples     []sample
	lo, hi      [2]float64 // of log1p(x), over every sample ever accepted
	seen        bool
	fullness    []int // [bucket], samples in it
	created     []int // [bucket], when it last became non-empty
	clock       int
	serving     fit
	ready       bool
}

func newStore(most, least, bins int) *store {
	return &store{most: most, least: least, bins: bins, samples: make([]sample, 0, most+1),
		fullness: make([]int, bins*bins), created: make([]int, bins*bins)}
}

// add accepts one sample, drops the oldest of the fullest bucket if there are too
// many, and fits again.
func (s *store) add(x [2]float64, y float64) {
	moved := !s.seen
	for i, v := range x {
		v = math.Log1p(v)
		if !s.seen || v < s.lo[i] {
			s.lo[i], moved = v, true
		}
		if !s.seen || v > s.hi[i] {
			s.hi[i], moved = v, true
		}
	}
	s.seen = true
	s.samples = append(s.samples, sample{x: x, y: y})
	if moved {
		clear(s.fullness)
		for i := range s.samples {
			s.place(&s.samples[i])
		}
	} else {
		s.place(&s.samples[len(s.samples)-1])
	}
	if len(s.samples) > s.most {
		s.evict()
	}
	s.refit()
}

func (s *store) place(p *sample) {
	p.bucket = 0
	for i, v := range p.x {
		bin := 0
		if width := s.hi[i] - s.lo[i]; width > 0 {
			bin = int((math.Log1p(v) - s.lo[i]) / width * float64(s.bins))
			bin = min(max(bin, 0), s.bins-1)
		}
		p.bucket = p.bucket*s.bins + bin
	}
	if s.fullness[p.bucket] == 0 {
		s.clock++
		s.created[p.bucket] = s.clock
	}
	s.fullness[p.bucket]++
}

// evict drops the oldest sample of the fullest bucket; of equally full ones, of
// the one that was created last.
func (s *store) evict() {
	full := 0
	for b, n := range s.fullness {
		if n > s.fullness[full] || n == s.fullness[full] && s.created[b] > s.created[full] {
			full = b
		}
	}
	for i := range s.samples {
		if s.samples[i].bucket == full {
			s.fullness[full]--
			s.samples = append(s.samples[:i], s.samples[i+1:]...)
			return
		}
	}
}

// predict returns ms for the given features, never below 1e-6. ok is false while
// nothing was fitted.
func (s *store) predict(x [2]float64) (ms float64, ok bool) {
	if !s.ready {
		return 0, false
	}
	return s.serving.at(x), true
}

// refit replaces the serving fit, keeps it when the new one is flat, and loses it
// when there is no candidate at all.
func (s *store) refit() {
	if len(s.samples) < s.least {
		return
	}
	f, axes, ok := fitSamples(s.samples)
	switch {
	case !ok:
		s.ready = false
	case f.slope != [2]float64{} || len(s.samples) <= axes:
		s.serving, s.ready = f, true
	}
}

// fit is ms = intercept + Σ slope·(x - mean)/std over the active axes.
type fit struct {
	mean, std, slope [2]float64
	active           [2]bool
	intercept        float64
}

func (f *fit) at(x [2]float64) float64 {
	ms := f.intercept
	for i := range x {
		if f.active[i] {
			ms += float64(f.slope[i] * f.z(i, x[i]))
		}
	}
	return math.Max(ms, 1e-6)
}

func (f *fit) z(axis int, v float64) float64 { return (v - f.mean[axis]) / f.std[axis] }

// fitSamples returns the best non-negative fit over all subsets of active axes, and
// how many axes are active. Among fits that differ by rounding alone the one with
// the fewest and lowest axes wins, so that collinear samples have one answer.
func fitSamples(samples []sample) (best fit, axes int, ok bool) {
	base := scaleOf(samples)
	for _, on := range base.active {
		if on {
			axes++
		}
	}
	if axes == 0 {
		return base, 0, false
	}
	m := momentsOf(samples, &base)
	bestErr := math.Inf(1)
	for _, subset := range [4][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		if subset[0] && !base.active[0] || subset[1] && !base.active[1] {
			continue
		}
		f := base
		if !f.solve(&m, subset) {
			continue
		}
		if sse := f.squares(samples); !ok || sse < float64(bestErr*(1-1e-9))-1e-12 {
			best, bestErr, ok = f, sse, true
		}
	}
	return best, axes, ok
}

// scaleOf returns a flat fit with the mean and population deviation of each axis.
func scaleOf(samples []sample) fit {
	var f fit
	var m2 [2]float64
	for n, s := range samples {
		for i, v := range s.x {
			d := v - f.mean[i]
			f.mean[i] += d / float64(n+1)
			m2[i] += float64(d * (v - f.mean[i]))
		}
	}
	for i := range m2 {
		f.std[i] = math.Sqrt(m2[i] / float64(len(samples)))
		f.active[i] = f.std[i] > 1e-12*math.Max(math.Abs(f.mean[i]), 1)
	}
	return f
}

// moments are the sums of the normal equations over [1, z0, z1], and against y.
type moments struct {
	a [3][3]float64
	b [3]float64
}

func momentsOf(samples []sample, f *fit) moments {
	var m moments
	for _, s := range samples {
		row := [3]float64{1, 0, 0}
		for i := range s.x {
			if f.active[i] {
				row[i+1] = f.z(i, s.x[i])
			}
		}
		for i := range row {
			for j := range row {
				m.a[i][j] += float64(row[i] * row[j])
			}
			m.b[i] += float64(row[i] * s.y)
		}
	}
	return m
}

// solve fits intercept and the slopes of a subset of axes; false if a slope is
// negative or a value is not finite.
func (f *fit) solve(m *moments, subset [2]bool) bool {
	var rows [3]int // rows[0] is the intercept
	n := 1
	for i, on := range subset {
		if on {
			rows[n] = i + 1
			n++
		}
	}
	coef, ok := gaussJordan(m, rows[:n], 0)
	if !ok {
		trace := 0.0
		for _, r := range rows[:n] {
			trace += m.a[r][r]
		}
		if coef, ok = gaussJordan(m, rows[:n], 1e-9*math.Max(1, trace)); !ok {
			return false
		}
	}
	f.intercept = coef[0]
	f.slope = [2]float64{}
	for i, r := range rows[1:n] {
		f.slope[r-1] = coef[i+1]
	}
	for _, v := range coef[:n] {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return f.slope[0] >= 0 && f.slope[1] >= 0
}

// gaussJordan solves the chosen rows of the normal equations with partial
// pivoting; ridge is added to the slope diagonals. False if singular.
func gaussJordan(m *moments, rows []int, ridge float64) (coef [3]float64, ok bool) {
	var a [3][4]float64
	n := len(rows)
	for i, ri := range rows {
		for j, rj := range rows {
			a[i][j] = m.a[ri][rj]
		}
		if i > 0 {
			a[i][i] += ridge
		}
		a[i][n] = m.b[ri]
	}
	for c := range n {
		pivot := c
		for r := c + 1; r < n; r++ {
			if math.Abs(a[r][c]) > math.Abs(a[pivot][c]) {
				pivot = r
			}
		}
		if math.Abs(a[pivot][c]) < 1e-12 {
			return coef, false
		}
		a[c], a[pivot] = a[pivot], a[c]
		by := a[c][c]
		for j := c; j <= n; j++ {
			a[c][j] /= by
		}
		for r := range n {
			if r == c {
				continue
			}
			k := a[r][c]
			for j := c; j <= n; j++ {
				a[r][j] -= float64(k * a[c][j])
			}
		}
	}
	for i := range n {
		coef[i] = a[i][n]
	}
	return coef, true
}

func (f *fit) squares(samples []sample) float64 {
	sum := 0.0
	for i := range samples {
		guess := f.intercept
		for axis, v := range samples[i].x {
			if f.slope[axis] != 0 {
				guess += float64(f.slope[axis] * f.z(axis, v))
			}
		}
		e := samples[i].y - guess
		sum += float64(e * e)
	}
	return sum
}
