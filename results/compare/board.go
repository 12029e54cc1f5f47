package compare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/results"
)

// Board is what the Planners of a sweep did, and what it was worth.
//
// A worker's capacity is the best rate of completions per second and active worker
// that any whole minute of any point of the load showed while its mean TTFT and ITL were
// within the SLA (without an SLA: any minute). The need of a minute is the arrivals
// divided by that capacity, at least one worker. A deployment is under-provisioned in
// a minute whose mean TTFT or ITL misses the SLA, or that has fewer active workers
// than the need, rounded up; else over-provisioned where it has more.
//
// The clairvoyant bound is the GPU-hours of a scaler that knows every minute's
// arrivals ahead, starts and stops workers at no cost, divides a worker at will (the
// need is not rounded up) and keeps each at that best rate: no scaler on the same
// engines needs less unless it misses the SLA. The best fixed count is the point of
// the same load and engine without a Planner that meets the SLA for the fewest
// GPU-hours.
type Board struct {
	Rows      []BoardRow // load by load, the best first
	Timelines []Timeline // of at most maxTimelines points
	Sentence  string
}

// BoardRow is one point with a Planner: means over its seeds.
type BoardRow struct {
	Case        int // in Analysis.Cases
	Events      float64
	Reversals   float64 // scaling events against the direction of the one before, by pool
	UnderS      float64 // time under-provisioned
	OverS       float64 // time over-provisioned
	ReactionS   float64 // from the start of a shortage to the next scale-up; NaN: none
	StartMisses float64 // share of the completions in ticks that missed the SLA which fall where workers were starting; NaN: no misses
	GPUHours    float64
	Bound       float64 // clairvoyant GPU-hours; NaN unknown
	Fixed       int     // best fixed count, in Analysis.Cases; -1: none
	TTFTOK      float64 // shares of the requests that arrived within each bound
	ITLOK       float64
	Goodput     Estimate // requests per second within the SLA
}

// VsBound and VsFixed are GPU-hours over the bound and over the best fixed count, as
// a share of these; NaN where there is none.
func (r *BoardRow) VsBound() float64 { return ratio(r.GPUHours, r.Bound) - 1 }

// VsFixed is the regret against the best fixed count.
func (a *Analysis) VsFixed(r *BoardRow) float64 {
	if r.Fixed < 0 {
		return math.NaN()
	}
	return ratio(r.GPUHours, a.hours(&a.Cases[r.Fixed])) - 1
}

func (a *Analysis) hours(c *Case) float64 { return a.s.Over(c.Point, results.ColGPUHours).Mean }

const (
	maxTimelines = 24
	maxBuckets   = 2000
	bin          = 60.0 // seconds over which rates are taken
)

// board reads the ticks twice: for capacities, then for what each point did.
func (a *Analysis) board() (*Board, error) {
	planners := 0
	at := map[string]int{}
	for i := range a.Cases {
		at[a.Cases[i].ID] = i
		if a.Cases[i].Setup.Planner {
			planners++
		}
	}
	if planners == 0 || a.s.Dir == "" {
		return nil, nil
	}
	b := &scorecardBuilder{a: a, at: at, capacity: map[string]*[2]float64{}, rows: map[int]*planTotals{}}
	err := a.eachRun(func(w *windows) { b.measure(w) })
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // finished points without a tick
	}
	if err != nil {
		return nil, err
	}
	chosen := b.choose()
	out := &Board{}
	err = a.eachRun(func(w *windows) {
		i, ok := at[w.point]
		if !ok {
			return
		}
		b.add(i, w)
		if k := slices.Index(chosen, i); k >= 0 && !slices.ContainsFunc(out.Timelines, func(t Timeline) bool { return t.Case == i }) {
			out.Timelines = append(out.Timelines, w.timeline(i))
		}
	})
	if err == nil {
		err = b.events()
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for i := range a.Cases {
		if t := b.rows[i]; t != nil {
			out.Rows = append(out.Rows, b.row(i, t))
		}
	}
	slices.SortStableFunc(out.Rows, func(x, y BoardRow) int {
		return cmp.Or(a.Cases[x.Case].Load-a.Cases[y.Case].Load, a.order(x.Case, y.Case))
	})
	slices.SortStableFunc(out.Timelines, func(x, y Timeline) int { return slices.Index(chosen, x.Case) - slices.Index(chosen, y.Case) })
	out.Sentence = a.boardSentences(out)
	return out, nil
}

// scorecardBuilder gathers the Planner scorecard.
type scorecardBuilder struct {
	a        *Analysis
	at       map[string]int
	capacity map[string]*[2]float64 // by class, [pool] completions per second and worker
	rows     map[int]*planTotals
}

// planTotals are the sums of one case over its seeds.
type planTotals struct {
	seeds                  float64
	events, reversals      float64
	under, over, bound     float64
	reaction, reactions    float64
	missed, missedStarting float64
	shortages              map[string][]episode // by key of the run
	direction              map[string]float64   // by pool and key
	gpus                   [2]float64
	boundKnown             bool
}

// episode is a stretch of shortage, seconds.
type episode struct{ from, to float64 }

// class groups points whose workers are alike: same load and same engine axes.
func (b *scorecardBuilder) class(c *Case) string {
	key := fmt.Sprint(b.a.Loads[c.Load].traffic, c.Setup.Disaggregated)
	for i := range b.a.s.Axes {
		x := &b.a.s.Axes[i]
		if x.group() == "engine" || x.group() == "timing" {
			key += "\x00" + c.values[x.at]
		}
	}
	return key
}

// group is the section of an axis.
func (a *Axis) group() string {
	for i := range a.Name {
		if a.Name[i] == '.' {
			return a.Name[:i]
		}
	}
	return a.Name
}

// measure raises the capacity of the class by what one run showed.
func (b *scorecardBuilder) measure(w *windows) {
	i, ok := b.at[w.point]
	if !ok {
		return
	}
	c := &b.a.Cases[i]
	key := b.class(c)
	best := b.capacity[key]
	if best == nil {
		best = &[2]float64{}
		b.capacity[key] = best
	}
	sla := b.a.Loads[c.Load].SLA
	w.bins(func(m *minute) {
		if m.seconds < bin || m.completed == 0 || m.late(sla) {
			return
		}
		for pool, seconds := range m.active {
			if seconds > 0 {
				best[pool] = max(best[pool], m.completed/seconds)
			}
		}
	})
}

// choose picks the points whose timelines are kept: the best of every load first.
func (b *scorecardBuilder) choose() (out []int) {
	for depth := 0; len(out) < maxTimelines; depth++ {
		any := false
		for i := range b.a.Loads {
			n := 0
			for _, k := range b.a.Loads[i].Ranked {
				if !b.a.Cases[k].Setup.Planner {
					continue
				}
				if n == depth && len(out) < maxTimelines {
					out = append(out, k)
					any = true
				}
				n++
			}
		}
		if !any {
			break
		}
	}
	return out
}

// add counts one run.
func (b *scorecardBuilder) add(i int, w *windows) {
	t := b.rows[i]
	if t == nil {
		t = &planTotals{shortages: map[string][]episode{}, direction: map[string]float64{}}
		b.rows[i] = t
	}
	t.seeds++
	c := &b.a.Cases[i]
	sla := b.a.Loads[c.Load].SLA
	row := c.Rows[0]
	for pool, name := range [...]string{"prefill_gpus_per_worker", "decode_gpus_per_worker"} {
		if col := b.a.s.Frame.Column(name); col != nil {
			t.gpus[pool], _ = col.Float(row)
		}
	}
	rate := b.capacity[b.class(c)]
	t.boundKnown = rate != nil && rate[1] > 0
	var short []episode
	w.bins(func(m *minute) {
		lacking, spare := m.late(sla), false
		for pool, seconds := range m.active {
			if rate == nil || rate[pool] == 0 || pool == 0 && !c.Setup.Disaggregated {
				continue
			}
			need := max(1, m.arrived/m.seconds/rate[pool])
			t.bound += need * m.seconds / 3600 * t.gpus[pool]
			have, want := seconds/m.seconds, math.Ceil(need-1e-9)
			lacking = lacking || have < want-1e-9
			spare = spare || have > want+1e-9
		}
		switch {
		case lacking:
			t.under += m.seconds
			if n := len(short); n > 0 && short[n-1].to == m.from {
				short[n-1].to = m.from + m.seconds
			} else {
				short = append(short, episode{m.from, m.from + m.seconds})
			}
		case spare:
			t.over += m.seconds
		}
	})
	t.shortages[w.key] = short
	for k := range w.end {
		late := sla.TTFTMs > 0 && w.ttftN[k] > 0 && w.ttft[k] > sla.TTFTMs || sla.ITLMs > 0 && w.itlN[k] > 0 && w.itl[k] > sla.ITLMs
		if late {
			t.missed += w.completed[k]
			if w.starting[0][k]+w.starting[1][k] > 0 {
				t.missedStarting += w.completed[k]
			}
		}
	}
}

// events counts scaling events, reversals and reactions.
func (b *scorecardBuilder) events() error {
	return results.Scan(b.a.s.Dir, results.ScalingEvents, nil, func(f *results.Frame) error {
		id, seed, at := f.Column(results.ColPointID), f.Column(results.ColSeed), f.Column("at_s")
		component, from, to := f.Column("component"), f.Column("from_count"), f.Column("to_count")
		for row := range f.Len() {
			i, ok := b.at[id.Text(row)]
			if !ok || b.rows[i] == nil {
				continue
			}
			t := b.rows[i]
			t.events++
			key := seed.Text(row)
			x, _ := from.Float(row)
			y, _ := to.Float(row)
			way := key + component.Text(row)
			if d := t.direction[way]; d*(y-x) < 0 {
				t.reversals++
			}
			t.direction[way] = y - x
			when, _ := at.Float(row)
			if y <= x {
				continue
			}
			short := t.shortages[key]
			for len(short) > 0 && short[0].to <= when { // over before anything was done
				short = short[1:]
			}
			if len(short) > 0 && short[0].from <= when {
				t.reaction += when - short[0].from
				t.reactions++
				short = short[1:]
			}
			t.shortages[key] = short
		}
		return nil
	})
}

func (b *scorecardBuilder) row(i int, t *planTotals) BoardRow {
	c := &b.a.Cases[i]
	n := t.seeds
	r := BoardRow{Case: i, Events: t.events / n, Reversals: t.reversals / n, UnderS: t.under / n, OverS: t.over / n,
		ReactionS: ratio(t.reaction, t.reactions), StartMisses: ratio(t.missedStarting, t.missed),
		GPUHours: b.a.hours(c), Bound: math.NaN(), Fixed: b.fixed(c), TTFTOK: c.TTFTOK, ITLOK: c.ITLOK,
		Goodput: b.a.s.Over(c.Point, results.ColGoodputRPS)}
	if t.boundKnown {
		r.Bound = t.bound / n
	}
	return r
}

// fixed is the best point without a Planner whose workers are alike; -1 if none
// meets the SLA.
func (b *scorecardBuilder) fixed(c *Case) int {
	best, hours := -1, math.Inf(1)
	class := b.class(c)
	for i := range b.a.Cases {
		x := &b.a.Cases[i]
		if x.Setup.Planner || !x.Meets || b.class(x) != class {
			continue
		}
		if h := b.a.hours(x); h < hours {
			best, hours = i, h
		}
	}
	return best
}

// BoardShown is at most n rows of the board, the best of every load in turn, load by
// load.
func (a *Analysis) BoardShown(n int) (out []*BoardRow) {
	rows := a.Board.Rows
	place := make([]int, len(rows)) // of a row in its load
	for i := 1; i < len(rows); i++ {
		if a.Cases[rows[i].Case].Load == a.Cases[rows[i-1].Case].Load {
			place[i] = place[i-1] + 1
		}
	}
	last, room := len(rows), 0 // the place of which only the first loads have room
	if len(rows) > n {
		sorted := slices.Sorted(slices.Values(place))
		last = sorted[n]
		room = n - slices.Index(sorted, last)
	}
	for i := range rows {
		if place[i] == last {
			room--
		}
		if place[i] < last || place[i] == last && room >= 0 {
			out = append(out, &rows[i])
		}
	}
	return out
}

// maxBoardLoads bounds the loads that the board's sentence tells of.
const maxBoardLoads = 4

// boardSentences says what the best Planner is worth under each load.
func (a *Analysis) boardSentences(b *Board) string {
	var out []string
	told := 0
	for k := range a.Loads {
		l := &a.Loads[k]
		var best *BoardRow
		ticked, planners, meets := 0, 0, false
		for i := range b.Rows {
			if r := &b.Rows[i]; a.Cases[r.Case].Load == k {
				ticked++
				if best == nil {
					best = r
				}
			}
		}
		for _, i := range l.Cases {
			if c := &a.Cases[i]; c.Setup.Planner {
				planners++
				meets = meets || c.Meets
			}
		}
		if planners == 0 {
			continue
		}
		if told++; told > maxBoardLoads {
			continue
		}
		text := "No Planner tick was recorded."
		if best != nil {
			text = a.boardSentence(l, best, meets)
		}
		if n := planners - ticked; n > 0 && best != nil {
			text += fmt.Sprintf(" %s ended before the first tick.", Count(n, "other Planner point"))
		}
		if l.Label != "" {
			text = l.Label + ": " + text
		}
		out = append(out, text)
	}
	if n := told - maxBoardLoads; n > 0 {
		out = append(out, fmt.Sprintf("... and %s.", Count(n, "more load")))
	}
	return strings.Join(out, " ")
}

// boardSentence is about the best row of a load; meets: a Planner point of the load
// meets the SLA, ticks or not.
func (a *Analysis) boardSentence(l *Load, r *BoardRow, meets bool) string {
	c := &a.Cases[r.Case]
	s := fmt.Sprintf("The best Planner point, %s, ", c.Label)
	switch {
	case !c.Meets && c.Attainment.OK():
		none := "No Planner point meets the SLA"
		if meets {
			none = "No Planner point with a tick meets the SLA"
		}
		s = fmt.Sprintf("%s; the nearest, %s, meets it for %s of requests with ", none, c.Label, c.Attainment.Plain(Percent))
	case c.Attainment.OK():
		s += fmt.Sprintf("meets the SLA for %s of requests with ", c.Attainment.Plain(Percent))
	default:
		s += "uses "
	}
	s += fmt.Sprintf("%s GPU-hours", Number(r.GPUHours))
	if v := r.VsBound(); !math.IsNaN(v) {
		s += fmt.Sprintf(", %s over the clairvoyant bound", Change(v))
	}
	switch v := a.VsFixed(r); {
	case !math.IsNaN(v):
		s += fmt.Sprintf(", %s against the best fixed count (%s)", Change(v), a.Cases[r.Fixed].Label)
	case l.SLA.Set():
		s += "; no fixed count of the sweep meets the SLA to compare with"
	default:
		s += "; the sweep has no fixed count to compare with"
	}
	s += "; " + plural(r.Events, "scaling event") + ", " + plural(r.Reversals, "reversal")
	if v := r.StartMisses; !math.IsNaN(v) {
		s += fmt.Sprintf("; %s of the misses fall where workers were starting", Percent(v))
	}
	return s + "."
}

// plural is a mean count with its noun.
func plural(n float64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Number(n) + " " + noun
}
