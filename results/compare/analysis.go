package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/results"
)

// Analysis is everything that a report says, computed.
type Analysis struct {
	Sweep   *Sweep
	Options Options
	ByCost  bool // verdicts go by USD per million output tokens; else by output tokens per GPU-second
	SLA     SLA  // by which points are judged; zero: none, or one per load
	Rejudge bool // by another SLA than the sweep was run with

	Done, Failed, Skipped int // points
	Seeds                 int // most seeds of a point
	Cases                 []Case
	Loads                 []Load
	Baseline              *Case // today's deployment, nil not named
	Lost                  []Reason
	Board                 *Board   // nil without a Planner
	Caveats               []string // doubts about every verdict
	s                     *Sweep
}

// Load is one traffic, SLA and model of the sweep in one environment, with its verdict:
// points under different loads do not compete.
type Load struct {
	Label   string // "" if there is only one
	SLA     SLA
	Cases   []int // in Analysis.Cases, in the order of the file
	Ranked  []int // the same, those that meet the SLA first, best first
	Verdict Verdict
	Front   []int // the Pareto front, by tokens per user ascending
	Knobs   []Knob
	Exact   bool // Knobs are of a full grid
	Slices  []Slice
	Heat    *Heat

	traffic     int // number of the load, whatever its environment
	environment []setting
}

// Verdict is what to deploy under one load.
type Verdict struct {
	Winner, Next *Case   // nil: none
	Nearest      []*Case // without a winner: the three that miss the SLA least
	NextBy       Difference
	BaselineBy   Difference // winner - baseline, in the unit of the objective
	Tied         int        // of the five best, those within the noise of the winner
	Sentence     string
	Second       string // about the next best, "" without one
	Others       string // why the others lost, "" without any
	Money        string // "" without prices
	Autoscaling  string // whether it pays; "" without a Planner
	Today        string // against the baseline
	FrontNote    string
	Caveats      []string
}

// Analyse judges every point of the sweep.
func (s *Sweep) Analyse(opt Options) (*Analysis, error) {
	if opt.Attainment == 0 {
		opt.Attainment = DefaultAttainment
	}
	if !(opt.Attainment > 0 && opt.Attainment <= 1) {
		return nil, inputf("--attainment: must be above 0 and at most 1, got %v", opt.Attainment)
	}
	a := &Analysis{Sweep: s, s: s, Options: opt, SLA: opt.SLA, Rejudge: opt.SLA.Set()}
	cases, err := s.judge(&a.Options)
	if err != nil {
		return nil, err
	}
	a.Cases = cases
	a.count()
	a.objective(a.Cases)
	if err := a.baseline(); err != nil {
		return nil, err
	}
	a.loads()
	for i := range a.Loads {
		a.settle(&a.Loads[i])
	}
	a.autoscaling()
	a.Lost, a.Caveats = lost(s.Points), a.common()
	if a.Board, err = a.board(); err != nil {
		return nil, mendable(err)
	}
	return a, nil
}

func (a *Analysis) count() {
	for i := range a.s.Points {
		p := &a.s.Points[i]
		a.Seeds = max(a.Seeds, len(p.Rows))
		switch {
		case len(p.Rows) > 0:
			a.Done++
		case p.Status == results.Skipped:
			a.Skipped++
		default:
			a.Failed++
		}
	}
}

// baseline finds the point that is deployed today.
func (a *Analysis) baseline() error {
	want := a.Options.Baseline
	if want == "" {
		return nil
	}
	var found []*Case
	for i := range a.Cases {
		if strings.HasPrefix(a.Cases[i].ID, want) {
			found = append(found, &a.Cases[i])
		}
	}
	switch len(found) {
	case 1:
		a.Baseline = found[0]
		return nil
	case 0:
		for i := range a.s.Points {
			if p := &a.s.Points[i]; strings.HasPrefix(p.ID, want) {
				return inputf("--baseline: point %s is %s: %s", p.ID, p.Status, p.Reason)
			}
		}
		return inputf("--baseline: no point %q; see the point_id column", want)
	}
	return inputf("--baseline: %q begins the id of %d points: give more of it", want, len(found))
}

// settle fills in what is thought about one load.
func (a *Analysis) settle(l *Load) {
	l.Ranked = slices.Clone(l.Cases)
	slices.SortStableFunc(l.Ranked, a.order)
	v := &l.Verdict
	for n, i := range l.Ranked {
		c := &a.Cases[i]
		switch {
		case c.Meets && v.Winner == nil:
			v.Winner = c
		case c.Meets && v.Next == nil:
			v.Next = c
			v.NextBy = Compare(v.Winner.Objective, c.Objective)
		case v.Winner == nil && n < 3:
			v.Nearest = append(v.Nearest, c)
		}
	}
	today := a.Baseline
	if today != nil {
		today = a.underLoad(today, l)
	}
	for _, i := range l.Cases {
		c := &a.Cases[i]
		if c.Why != "" && c != v.Winner {
			continue // said under another environment
		}
		if c.Why = a.why(c, v.Winner); c == today {
			c.Why = "baseline, " + c.Why
		}
	}
	a.front(l)
	a.knobs(l)
	a.shapes(l)
	a.tie(l)
	a.writeSentences(l)
}

// tie counts which of the five best are within the noise of the winner.
func (a *Analysis) tie(l *Load) {
	v := &l.Verdict
	if v.Winner == nil {
		return
	}
	for _, i := range l.Ranked[1:min(5, len(l.Ranked))] {
		c := &a.Cases[i]
		if !c.Meets {
			break
		}
		if d := Compare(v.Winner.Objective, c.Objective); d.Noise() || d.Method == Equal {
			v.Tied++
		}
	}
}

// ObjectiveName is what verdicts go by.
func (a *Analysis) ObjectiveName() string {
	if a.ByCost {
		return "USD per million output tokens"
	}
	return "output tokens per second and GPU"
}

// ObjectiveText is an objective for people.
func (a *Analysis) ObjectiveText(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case a.ByCost:
		return Dollars(v) + "/Mtok"
	}
	return Number(v) + " tok/s/GPU"
}

// ObjectiveMean is the objective of a case over its seeds; NaN if it has none.
func (c *Case) ObjectiveMean() float64 { return c.objectiveMean }

// GPUText is the number of GPUs, with a digit after the point where a Planner
// changes it.
func (c *Case) GPUText() string {
	if c.Setup.Planner {
		return trim(c.GPUs, 1) + " GPUs on average"
	}
	return Count(int(math.Round(c.GPUs)), "GPU")
}

// Head says what became of the sweep: the first line of every report.
func (a *Analysis) Head() string {
	n := len(a.s.Points)
	s := fmt.Sprintf("%s: %s of %s completed", a.s.Name, group(fmt.Sprint(a.Done)), Count(n, "point"))
	if a.Failed > 0 {
		s += ", " + group(fmt.Sprint(a.Failed)) + " failed"
	}
	if a.Skipped > 0 {
		s += ", " + group(fmt.Sprint(a.Skipped)) + " skipped"
	}
	return s
}
