package compare

import (
	"math"

	"github.com/dynosweep/dynosweep/results"
)

// windows is the ticks of one run. Slices are reused for the next one.
type windows struct {
	point, key         string    // key: the seed as text
	end, length        []float64 // s
	arrived, completed []float64
	ttft, itl          []float64 // means of the tick, ms
	ttftN, itlN        []float64 // completions behind these means, 0: none
	active, starting   [2][]float64
	queued             []float64
}

// lists are the columns in one place.
func (w *windows) lists() []*[]float64 {
	return []*[]float64{&w.end, &w.length, &w.arrived, &w.completed, &w.ttft, &w.itl, &w.ttftN, &w.itlN,
		&w.active[0], &w.active[1], &w.starting[0], &w.starting[1], &w.queued}
}

var tickColumns = []string{"point_id", "seed", "at_ms", "window_s", "num_req", "completed_requests", "avg_ttft_ms", "avg_itl_ms",
	"active_prefill", "active_decode", "starting_prefill", "starting_decode", "queued_prefill", "queued_decode"}

// eachRun hands on the ticks of every run, one after the other.
func (a *Analysis) eachRun(fn func(*windows)) error {
	var w windows
	flush := func() {
		if len(w.end) > 0 {
			fn(&w)
		}
		for _, l := range w.lists() {
			*l = (*l)[:0]
		}
	}
	err := results.Scan(a.s.Dir, results.Ticks, tickColumns, func(f *results.Frame) error {
		id, seed := f.Column(results.ColPointID), f.Column(results.ColSeed)
		cols := make([]*results.Series, len(tickColumns))
		for i := range cols {
			cols[i] = f.Column(tickColumns[i])
		}
		for row := range f.Len() {
			if p, k := id.Text(row), seed.Text(row); p != w.point || k != w.key {
				flush()
				w.point, w.key = p, k
			}
			w.add(cols, row)
		}
		return nil
	})
	flush()
	return err
}

// add appends a row; columns are those of tickColumns.
func (w *windows) add(cols []*results.Series, row int) {
	num := func(i int) (float64, float64) {
		v, ok := cols[i].Float(row)
		if !ok {
			return 0, 0
		}
		return v, 1
	}
	at, _ := num(2)
	length, _ := num(3)
	w.end, w.length = append(w.end, at/1000), append(w.length, length)
	arrived, _ := num(4)
	completed, _ := num(5)
	w.arrived, w.completed = append(w.arrived, arrived), append(w.completed, completed)
	ttft, some := num(6)
	w.ttft, w.ttftN = append(w.ttft, ttft), append(w.ttftN, some*completed)
	itl, some := num(7)
	w.itl, w.itlN = append(w.itl, itl), append(w.itlN, some*completed)
	for pool := range w.active {
		v, _ := num(8 + pool)
		w.active[pool] = append(w.active[pool], v)
		v, _ = num(10 + pool)
		w.starting[pool] = append(w.starting[pool], v)
	}
	qp, _ := num(12)
	qd, _ := num(13)
	w.queued = append(w.queued, qp+qd)
}

// minute is ticks joined until they span bin seconds.
type minute struct {
	from, seconds      float64
	arrived, completed float64
	active             [2]float64 // worker-seconds
	ttftSum, ttftN     float64
	itlSum, itlN       float64
}

func (m *minute) ttft() float64 { return orZero(ratio(m.ttftSum, m.ttftN)) }
func (m *minute) itl() float64  { return orZero(ratio(m.itlSum, m.itlN)) }

// late reports whether the means of the minute miss the SLA.
func (m *minute) late(sla SLA) bool {
	return sla.TTFTMs > 0 && m.ttft() > sla.TTFTMs || sla.ITLMs > 0 && m.itl() > sla.ITLMs
}

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// bins joins the ticks to stretches of at least bin seconds; what is left at the end
// is one too. Workers active during a tick are the mean of its two ends.
func (w *windows) bins(fn func(*minute)) {
	var m minute
	for i := range w.end {
		s := w.length[i]
		if m.seconds == 0 {
			m.from = w.end[i] - s
		}
		m.seconds += s
		m.arrived += w.arrived[i]
		m.completed += w.completed[i]
		m.ttftSum += w.ttft[i] * w.ttftN[i]
		m.ttftN += w.ttftN[i]
		m.itlSum += w.itl[i] * w.itlN[i]
		m.itlN += w.itlN[i]
		for pool := range m.active {
			before := w.active[pool][max(i-1, 0)]
			m.active[pool] += (before + w.active[pool][i]) / 2 * s
		}
		if m.seconds >= bin {
			fn(&m)
			m = minute{}
		}
	}
	if m.seconds > 0 {
		fn(&m)
	}
}

// Timeline is a run as it went, in at most maxBuckets stretches: rates and means
// over each, the highest queue and TTFT too, so that no miss vanishes.
type Timeline struct {
	Case             int // in Analysis.Cases
	AtS              []float64
	Demand           []float64 // arrivals per second
	Ready, Starting  [2][]float64
	Queued           []float64 // highest
	TTFTMs, TTFTHigh []float64 // mean and highest tick; NaN without a completion
	ITLMs            []float64
}

func (w *windows) timeline(c int) Timeline {
	t := Timeline{Case: c}
	step := (len(w.end) + maxBuckets - 1) / maxBuckets
	for lo := 0; lo < len(w.end); lo += step {
		hi := min(lo+step, len(w.end))
		seconds, arrived, queued, high := 0.0, 0.0, 0.0, math.NaN()
		var m minute
		for i := lo; i < hi; i++ {
			seconds += w.length[i]
			arrived += w.arrived[i]
			queued = max(queued, w.queued[i])
			m.ttftSum += w.ttft[i] * w.ttftN[i]
			m.ttftN += w.ttftN[i]
			m.itlSum += w.itl[i] * w.itlN[i]
			m.itlN += w.itlN[i]
			if w.ttftN[i] > 0 && !(w.ttft[i] <= high) {
				high = w.ttft[i]
			}
		}
		t.AtS = append(t.AtS, w.end[hi-1])
		t.Demand = append(t.Demand, orZero(ratio(arrived, seconds)))
		t.Queued, t.TTFTHigh = append(t.Queued, queued), append(t.TTFTHigh, high)
		t.TTFTMs, t.ITLMs = append(t.TTFTMs, ratio(m.ttftSum, m.ttftN)), append(t.ITLMs, ratio(m.itlSum, m.itlN))
		for pool := range t.Ready {
			t.Ready[pool] = append(t.Ready[pool], w.active[pool][hi-1])
			t.Starting[pool] = append(t.Starting[pool], w.starting[pool][hi-1])
		}
	}
	return t
}
