// Package compare judges results: what a figure is over seeds, whether two of them
// differ by more than the noise, which point to deploy, what the next best costs,
// which knob matters, and what a Planner's decisions were worth.
//
// The order of use is
//
//	s, err := Read(dir)              a results directory, its rows joined to points
//	a, err := s.Analyse(options)     verdicts, front, knobs, failures, Planner board
//
// and, for two sets of results,
//
//	left, err := ReadSet(path)       a directory, a Parquet file, or a replay report
//	c := Match(left, right)          pairs of points and their differences
//
// A point's figures are means over its seeds; their intervals are Student's at level
// Confidence and need two seeds (Estimate). Differences are paired by seed where the seeds are
// the same (Compare). Units are those of the columns of package results. The
// sentences of a report are made here, once, from full precision; terminal and page
// show them without further arithmetic. The same files give the same answer: there is
// no clock, and the bootstrap draws from a fixed stream.
package compare

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// ErrInput is the class of errors that the reader of a report can mend: a path, an
// option or a name that does not fit the results.
var ErrInput = errors.New("input")

// inputf is an error of class ErrInput.
func inputf(format string, args ...any) error {
	return inputError{fmt.Errorf(format, args...)}
}

type inputError struct{ error }

func (inputError) Is(target error) bool { return target == ErrInput }
func (e inputError) Unwrap() error      { return e.error }

// Sweep is a results directory, its rows joined to points.
type Sweep struct {
	Name         string
	Dir          string
	Frame        *results.Frame
	Manifest     *results.Manifest
	PendingParts int     // finished points and seeds that the table does not have yet
	Points       []Point // in the order of the file
	Axes         []Axis  // that have at least two values, nulls included
}

// Point is a configuration with its rows, one per seed.
type Point struct {
	ID      string
	Rows    []int // finished ones, in the order of the file
	Status  results.Status
	Reason  string // why it failed or was skipped
	Failed  int    // rows that failed
	GPUs    int64  // at the start, 0 unknown
	Label   string // what tells it from the others, for people
	Setup   Setup
	values  []string // [axis of the frame] as text, "" null
	example int      // a row to read values from
}

// Setup is what the resolved configuration says that no axis does.
type Setup struct {
	PrefillSystem, DecodeSystem string // "" where no document names one
	Disaggregated, Planner      bool
	Estimated                   bool // KV capacity comes from an estimate
	Polynomial                  bool // timing is the built-in polynomial
	SLA                         SLA
	StartupS                    float64 // seconds before a worker serves, the longest of the roles
}

// SLA is the bounds of a run, ms; 0 is not set.
type SLA struct {
	TTFTMs float64 `json:"ttft_ms"`
	ITLMs  float64 `json:"itl_ms"`
	E2EMs  float64 `json:"e2e_ms"`
}

// Set reports whether any bound is set.
func (s SLA) Set() bool { return s.TTFTMs > 0 || s.ITLMs > 0 || s.E2EMs > 0 }

// String names the bounds that are set.
func (s SLA) String() string {
	var parts []string
	for _, b := range [...]struct {
		name string
		ms   float64
	}{{"TTFT", s.TTFTMs}, {"ITL", s.ITLMs}, {"E2E", s.E2EMs}} {
		if b.ms > 0 {
			parts = append(parts, b.name+" "+Millis(b.ms))
		}
	}
	return strings.Join(parts, ", ")
}

// Axis is a varied key with its values in order: numbers ascending, others as they
// appear.
type Axis struct {
	Name        string
	Values      []string // as text, without null
	Numbers     []float64
	Null        bool // some points do not have it
	at          int  // column of the point's values
	load        bool // part of the question (traffic, SLA, model, environment), not of the answer
	environment bool // part of the environment, and of more than one value
	echo        bool // of one value, set where an axis before it is set: its name tells no more
}

// Short is the last part of the dotted name.
func (a *Axis) Short() string { return a.Name[strings.LastIndexByte(a.Name, '.')+1:] }

// Read reads a results directory.
func Read(dir string) (*Sweep, error) {
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return nil, inputf("%s is no directory: give the results directory of a sweep", dir)
	}
	manifest, err := results.ReadManifest(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, mendable(err)
	}
	frame, err := results.ReadPoints(dir)
	switch {
	case errors.Is(err, os.ErrNotExist) && manifest != nil:
		return nil, inputf("%s holds no %s yet: its sweep is running, or was killed; run it again, which keeps the finished points", dir, results.Points.File())
	case errors.Is(err, os.ErrNotExist):
		return nil, inputf("%s holds no %s: give the results directory of a sweep", dir, results.Points.File())
	case err != nil:
		return nil, mendable(err)
	}
	s := &Sweep{Dir: dir, Frame: frame, Manifest: manifest, Name: filepath.Base(filepath.Clean(dir))}
	if manifest != nil {
		s.Name = manifest.Name
	}
	if err := s.join(); err != nil {
		return nil, err
	}
	if manifest != nil && manifest.FinishedAt != "" && manifest.Open == 0 {
		return s, nil // every planned point has its row: no part waits, and reading them all would cost
	}
	parts, err := results.CountParts(dir, frame.Meta.SpecDigest)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	s.PendingParts = max(parts-s.ended(), 0)
	return s, nil
}

// ended counts the rows that ran.
func (s *Sweep) ended() (n int) {
	for i := range s.Points {
		n += len(s.Points[i].Rows) + s.Points[i].Failed
	}
	return n
}

// mendable puts an error about a file that is damaged, or not ours, into the class
// ErrInput.
func mendable(err error) error {
	if errors.Is(err, results.ErrDamaged) || errors.Is(err, results.ErrForeignResults) {
		return inputError{err}
	}
	return err
}

// OfFrame is the points of a table that is already read.
func OfFrame(name string, f *results.Frame) (*Sweep, error) {
	s := &Sweep{Name: name, Frame: f}
	return s, s.join()
}

// readColumns are the columns of the points that judging needs. Without the check a
// missing one would look like a figure that no run has.
var readColumns = [...]string{results.ColPointID, results.ColSeed, results.ColStatus, results.ColReason, results.ColConfig, results.ColGPUs,
	results.ColRequests, results.ColThroughput, results.ColTokensPerUser, results.ColOutputTokens, results.ColP95TTFT, results.ColP95TPOT,
	results.ColGPUHours, results.ColPrefillWorkerSeconds, results.ColPrefillGPUsPerWorker, results.ColDecodeWorkerSeconds,
	results.ColDecodeGPUsPerWorker, results.ColGoodputRequests, results.ColGoodputRPS, results.ColCostUSD, results.ColSLAAttainment}

// missingColumn is the first of readColumns that a table lacks, "" if it has them all.
func missingColumn(f *results.Frame) string {
	for _, name := range readColumns {
		if f.Column(name) == nil {
			return name
		}
	}
	return ""
}

// join makes points of the rows.
func (s *Sweep) join() error {
	f := s.Frame
	id, status, reason := f.Column(results.ColPointID), f.Column(results.ColStatus), f.Column(results.ColReason)
	config, gpus := f.Column(results.ColConfig), f.Column(results.ColGPUs)
	if missing := missingColumn(f); missing != "" {
		return inputf("%s: not the points of a sweep: there is no column %s", s.Dir, missing)
	}
	at := map[string]int{}
	for i := range f.Len() {
		name := id.Text(i)
		k, ok := at[name]
		if !ok {
			k = len(s.Points)
			at[name] = k
			p := Point{ID: name, Status: results.Status(status.Text(i)), Reason: reason.Text(i), example: i}
			p.GPUs, _ = gpus.Int(i)
			for _, a := range f.Meta.Axes {
				p.values = append(p.values, axisText(f.Column(a), i))
			}
			if err := p.Setup.read(config.Text(i)); err != nil {
				return fmt.Errorf("point %s: config: %w", name, err)
			}
			s.Points = append(s.Points, p)
		}
		p := &s.Points[k]
		switch results.Status(status.Text(i)) {
		case results.Done:
			p.Rows = append(p.Rows, i)
			p.Status = results.Done
		case results.Failed:
			p.Failed++
			p.Reason = reason.Text(i)
		}
	}
	s.axes()
	s.label()
	return nil
}

func axisText(c *results.Series, row int) string {
	if c == nil {
		return ""
	}
	return c.Text(row)
}

// read takes what is wanted out of a resolved configuration.
func (s *Setup) read(config string) error {
	if config == "" || config == "null" {
		return nil
	}
	var c resolved.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	system := func(r *resolved.Role) string {
		if r == nil {
			return ""
		}
		s.Estimated = s.Estimated || r.Capacity != nil
		s.Polynomial = s.Polynomial || r.Engine.TimingModel.Type == resolved.Polynomial
		s.StartupS = max(s.StartupS, r.StartupTime, r.StartupTimeMs/1000)
		return r.System()
	}
	s.Disaggregated, s.Planner = c.PrefillEngine != nil, c.Planner != nil
	s.PrefillSystem, s.DecodeSystem = system(c.PrefillEngine), system(c.DecodeEngine)
	if c.Engine != nil {
		s.DecodeSystem = system(c.Engine)
	}
	if b := c.SLA; b != nil {
		s.SLA = SLA{TTFTMs: b.TTFTMs, ITLMs: b.ITLMs, E2EMs: b.E2EMs}
	}
	return nil
}

// axes lists the axes on which points differ.
func (s *Sweep) axes() {
	for i, name := range s.Frame.Meta.Axes {
		col := s.Frame.Column(name)
		a := Axis{Name: name, at: i, load: isGiven(name)}
		seen := map[string]bool{}
		for k := range s.Points {
			switch v := s.Points[k].values[i]; {
			case v == "":
				a.Null = true
			case !seen[v]:
				seen[v] = true
				a.Values = append(a.Values, v)
				if n, ok := col.Float(s.Points[k].example); ok && col.Type != results.Boolean {
					a.Numbers = append(a.Numbers, n)
				}
			}
		}
		if len(a.Values) < 2 && !(a.Null && len(a.Values) == 1) {
			continue
		}
		a.environment = isEnvironment(name) && len(a.Values) > 1
		a.load = a.load || a.environment
		if len(a.Numbers) == len(a.Values) {
			order := make([]int, len(a.Values))
			for k := range order {
				order[k] = k
			}
			slices.SortFunc(order, func(x, y int) int { return cmpFloat(a.Numbers[x], a.Numbers[y]) })
			values, numbers := make([]string, len(order)), make([]float64, len(order))
			for k, o := range order {
				values[k], numbers[k] = a.Values[o], a.Numbers[o]
			}
			a.Values, a.Numbers = values, numbers
		} else {
			a.Numbers = nil
		}
		a.echo = len(a.Values) == 1 && slices.ContainsFunc(s.Axes, func(b Axis) bool { return b.load == a.load && s.setAlike(&a, &b) })
		s.Axes = append(s.Axes, a)
	}
}

// setAlike reports whether the same points have the two axes.
func (s *Sweep) setAlike(a, b *Axis) bool {
	for i := range s.Points {
		if v := s.Points[i].values; (v[a.at] == "") != (v[b.at] == "") {
			return false
		}
	}
	return true
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// label gives every point a name that people can tell apart from others under the
// same load.
func (s *Sweep) label() {
	seen := map[string]int{}
	for i := range s.Points {
		p := &s.Points[i]
		p.Label = s.labelOf(p, false)
		seen[s.LabelUnderLoad(p)]++
	}
	full := make([]bool, len(s.Points))
	for i := range s.Points {
		full[i] = seen[s.LabelUnderLoad(&s.Points[i])] > 1
	}
	for i := range s.Points {
		if full[i] {
			s.Points[i].Label = s.labelOf(&s.Points[i], true)
		}
	}
}

// LabelUnderLoad is the point's label with the load it ran under, where there are
// several.
func (s *Sweep) LabelUnderLoad(p *Point) string {
	text := p.Label
	if load := s.loadOf(p); load != "" {
		text += ", " + load
	}
	return text
}

// word is a value for people: of a path or of a model the last part, unless two end alike.
func (a *Axis) word(v string) string {
	if !strings.HasSuffix(a.Name, ".trace") && !strings.HasSuffix(a.Name, ".model") {
		return v
	}
	for _, other := range a.Values {
		if other != v && filepath.Base(other) == filepath.Base(v) {
			return v
		}
	}
	return filepath.Base(v)
}

// labelOf spells the point's values: the topology as xN or xPyD, words bare, numbers
// with the last part of their key. An axis of one value tells nothing unless all.
func (s *Sweep) labelOf(p *Point, all bool) string {
	value := func(name string) string {
		for i := range s.Axes {
			if s.Axes[i].Name == name {
				return p.values[s.Axes[i].at]
			}
		}
		return ""
	}
	var parts [len(labelOrder) + 1][]string
	pd := value("topology.prefill_workers") != "" && value("topology.decode_workers") != ""
	for i := range s.Axes {
		a := &s.Axes[i]
		v := p.values[a.at]
		at := slices.Index(labelOrder[:], a.group())
		if at < 0 {
			at = len(labelOrder)
		}
		add := func(text string) { parts[at] = append(parts[at], text) }
		if v == "" && a.Name == "planner.mode" && p.Status != results.Skipped {
			add("fixed")
		}
		if v == "" || a.load {
			continue
		}
		words := a.Numbers == nil
		switch {
		case len(a.Values) < 2 && !all && !(words && strings.HasSuffix(a.Name, ".mode")):
		case a.Name == "topology.workers":
			add("x" + v)
		case a.Name == "topology.prefill_workers" && pd:
			add(v + "P" + value("topology.decode_workers") + "D")
		case a.Name == "topology.decode_workers" && pd:
		case a.Name == "planner.mode":
			add("Planner")
		case words:
			add(cmp.Or(shortWords[v], v))
		case a.Short() == "tensor_parallel":
			add("tp" + v)
		case a.Short() == "startup_seconds":
			add("startup " + v + " s")
		default:
			add(a.Short() + " " + v)
		}
	}
	text := strings.Join(slices.Concat(parts[:]...), " ")
	if text == "" {
		return "the only point"
	}
	return text
}

// labelOrder is the sections in the order of a label.
var labelOrder = [...]string{"topology", "planner", "router", "engine"}

// shortWords are the words that labels abbreviate.
var shortWords = map[string]string{"aggregated": "agg", "disaggregated": "disagg"}

// Values reads a numeric column over the finished seeds of a point.
func (s *Sweep) Values(p *Point, column string) Sample {
	col, seed := s.Frame.Column(column), s.Frame.Column(results.ColSeed)
	var out Sample
	if col == nil {
		return out
	}
	for _, row := range p.Rows {
		v, ok := col.Float(row)
		if !ok {
			continue
		}
		out.Values = append(out.Values, v)
		if n, ok := seed.Int(row); ok {
			out.Seeds = append(out.Seeds, n)
		}
	}
	return out
}

// Over is the mean of a column over the seeds of a point, with its interval.
func (s *Sweep) Over(p *Point, column string) Estimate {
	return EstimateOf(s.Values(p, column).Values)
}

// derived is a figure computed row by row, NaN where it is undefined.
func (s *Sweep) derived(p *Point, of func(row int) float64) Sample {
	seed := s.Frame.Column(results.ColSeed)
	var out Sample
	for _, row := range p.Rows {
		v := of(row)
		if math.IsNaN(v) {
			continue
		}
		out.Values = append(out.Values, v)
		if n, ok := seed.Int(row); ok {
			out.Seeds = append(out.Seeds, n)
		}
	}
	return out
}

// AxisValues are the point's values of the axes of the file as text, "" for null.
func (p *Point) AxisValues() []string { return p.values }
