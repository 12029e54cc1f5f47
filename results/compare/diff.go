package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynosweep/dynosweep/results"
)

// Metric is a figure that two sets are compared by.
type Metric struct {
	Column, Name, Unit string
	Higher             bool // larger is better
}

// Metrics are the figures of a comparison in their order.
var Metrics = []Metric{
	{"output_throughput_tok_s", "output throughput", "tok/s", true},
	{"request_throughput_rps", "request throughput", "requests/s", true},
	{"mean_ttft_ms", "TTFT mean", "ms", false},
	{"p99_ttft_ms", "TTFT p99", "ms", false},
	{"mean_itl_ms", "ITL mean", "ms", false},
	{"p99_itl_ms", "ITL p99", "ms", false},
	{"prefix_cache_reused_ratio", "prefix reuse", "0..1", true},
	{"mean_e2e_latency_ms", "latency mean", "ms", false},
	{"mean_output_token_throughput_per_user", "tokens per user", "tok/s", true},
	{"completed_requests", "completed", "requests", true},
	{"sla_attainment", "SLA attainment", "0..1", true},
	{"gpu_hours", "GPU-hours", "h", false},
	{"cost_usd", "cost", "USD", false},
	{"scaling_events", "scaling events", "events", false},
}

// Set is one side of a comparison: a sweep, or the report of one run.
type Set struct {
	Name   string
	sweep  *Sweep
	report map[string]float64
	id     string // of the report's point, "" unknown
}

// ReadSet reads a results directory, a points.parquet or a report of replay.
func ReadSet(path string) (*Set, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, inputf("%s: no such results: give a directory, a points.parquet or a report JSON of replay", path)
	}
	switch {
	case st.IsDir():
		s, err := Read(path)
		if err != nil {
			return nil, err
		}
		return &Set{Name: s.Name, sweep: s}, nil
	case strings.HasSuffix(path, ".parquet"):
		f, err := results.ReadFile(path)
		if err != nil {
			return nil, mendable(err)
		}
		s, err := OfFrame(filepath.Base(path), f)
		return &Set{Name: filepath.Base(path), sweep: s}, err
	}
	return readReport(path)
}

// readReport reads the report JSON of a replay, or a prediction, whose figures stand
// under summary.
func readReport(path string) (*Set, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, inputf("%s: neither a Parquet file nor a report JSON: %v", path, err)
	}
	s := &Set{Name: filepath.Base(path), report: map[string]float64{}}
	figures := doc
	if inner := map[string]json.RawMessage{}; json.Unmarshal(doc["summary"], &inner) == nil {
		figures = inner // a prediction of predict, or a report of the reference's library
	}
	for key, text := range figures {
		var v *float64
		if json.Unmarshal(text, &v) == nil && v != nil {
			s.report[key] = *v
		}
	}
	if _, ok := s.report["completed_requests"]; !ok {
		return nil, inputf("%s: no report of replay: completed_requests is missing", path)
	}
	if good, ok := s.report["goodput_completed_requests"]; ok {
		if v := ratio(good, s.report["num_requests"]); !math.IsNaN(v) {
			s.report["sla_attainment"] = v
		}
	}
	var origin struct {
		Point string `json:"point_id"`
	}
	_ = json.Unmarshal(doc["provenance"], &origin) // a report without it has no id
	s.id = origin.Point
	return s, nil
}

// Delta is one metric of a pair.
type Delta struct {
	*Metric
	Difference
}

// Better reports which way the difference goes: 1 B is better, -1 worse, 0 equal or
// within the noise.
func (d *Delta) Better() int {
	switch {
	case d.Method == Equal || d.Noise() || d.Abs.Mean == 0 || !d.A.OK() || !d.B.OK():
		return 0
	case d.Higher == (d.Abs.Mean > 0):
		return 1
	}
	return -1
}

// Pair is a point of A and its counterpart in B.
type Pair struct {
	A, B   string // labels; ids stand in IDA, IDB
	IDA    string
	IDB    string
	Deltas []Delta // metrics that a side lacks are left out
}

// Comparison is two sets side by side.
type Comparison struct {
	A, B         string
	Pairs        []Pair
	OnlyA, OnlyB int // points without a counterpart
	Totals       []Total
}

// Total is one metric over all pairs.
type Total struct {
	*Metric
	Better, Worse, Same int     // pairs; Same: equal or within the noise
	Single              int     // of Better and Worse, those of single runs
	GeoMean             float64 // of B/A; NaN if a figure is not positive
}

// Match pairs the points of two sets: the only one with the only one, else by point
// id, else by the values of all axes.
func Match(a, b *Set) (*Comparison, error) {
	c := &Comparison{A: a.Name, B: b.Name}
	pa, pb := a.points(), b.points()
	if len(pa) == 0 || len(pb) == 0 {
		empty := a
		if len(pa) > 0 {
			empty = b
		}
		return nil, inputf("%s has no finished point to compare", empty.Name)
	}
	byID, byKey := map[string]int{}, map[string]int{}
	for k := range pb {
		byID[pb[k].id] = k
		if pb[k].key != "" {
			byKey[pb[k].key] = k
		}
	}
	used := make([]bool, len(pb))
	for i := range pa {
		k, ok := byID[pa[i].id]
		if pa[i].id == "" || !ok {
			k, ok = byKey[pa[i].key]
		}
		if len(pa) == 1 && len(pb) == 1 {
			k, ok = 0, true
		}
		if !ok || used[k] {
			c.OnlyA++
			continue
		}
		used[k] = true
		c.Pairs = append(c.Pairs, pairOf(&pa[i], &pb[k]))
	}
	c.OnlyB = len(pb) - len(c.Pairs)
	if len(c.Pairs) == 0 {
		return nil, inputf("no point of %s (%d) has a counterpart in %s (%d): points are paired by id, or by equal values of all axes", a.Name, len(pa), b.Name, len(pb))
	}
	c.total()
	return c, nil
}

// side is a point of a set.
type side struct {
	id, key, label string
	of             func(column string) Sample
}

func (s *Set) points() (out []side) {
	if s.sweep == nil {
		return []side{{id: s.id, label: s.Name, of: func(column string) Sample {
			if v, ok := s.report[column]; ok {
				return Sample{Values: []float64{v}}
			}
			return Sample{}
		}}}
	}
	for i := range s.sweep.Points {
		p := &s.sweep.Points[i]
		if len(p.Rows) == 0 {
			continue
		}
		key := ""
		for k, name := range s.sweep.Frame.Meta.Axes {
			if p.values[k] != "" {
				key += name + "=" + p.values[k] + "\x00"
			}
		}
		out = append(out, side{p.ID, key, s.sweep.LabelUnderLoad(p), func(column string) Sample { return s.sweep.Values(p, column) }})
	}
	return out
}

func pairOf(a, b *side) Pair {
	p := Pair{A: a.label, B: b.label, IDA: a.id, IDB: b.id}
	for i := range Metrics {
		m := &Metrics[i]
		d := Compare(a.of(m.Column), b.of(m.Column))
		if d.A.OK() && d.B.OK() {
			p.Deltas = append(p.Deltas, Delta{m, d})
		}
	}
	return p
}

// total adds the pairs up by metric.
func (c *Comparison) total() {
	for i := range Metrics {
		t := Total{Metric: &Metrics[i]}
		logs, n := 0.0, 0
		for k := range c.Pairs {
			for j := range c.Pairs[k].Deltas {
				d := &c.Pairs[k].Deltas[j]
				if d.Metric != t.Metric {
					continue
				}
				n++
				logs += math.Log(d.B.Mean / d.A.Mean) // NaN or infinite if a figure is not positive
				switch d.Better() {
				case 1:
					t.Better++
				case -1:
					t.Worse++
				default:
					t.Same++
				}
				if d.Better() != 0 && d.Method == SingleRun {
					t.Single++
				}
			}
		}
		if n == 0 {
			continue
		}
		t.GeoMean = math.Exp(logs / float64(n))
		if math.IsInf(logs, 0) {
			t.GeoMean = math.NaN()
		}
		c.Totals = append(c.Totals, t)
	}
}

// Methods says how the intervals of the comparison were made.
func (c *Comparison) Methods() string {
	var seen [Welch + 1]bool
	for i := range c.Pairs {
		for _, d := range c.Pairs[i].Deltas {
			seen[d.Method] = true
		}
	}
	var parts []string
	if seen[Paired] {
		parts = append(parts, "differences are paired by seed, with Student's interval")
	}
	if seen[Bootstrap] {
		parts = append(parts, fmt.Sprintf("differences are paired by seed, with the bootstrap interval of %d resamples", resamples))
	}
	if seen[Welch] {
		parts = append(parts, "sides without common seeds are compared by Welch's interval")
	}
	if seen[SingleRun] {
		parts = append(parts, "single run: no test is possible")
	}
	if len(parts) == 0 {
		return "every figure is equal"
	}
	return fmt.Sprintf("%.0f %% intervals; %s; ~: within the noise; =: equal", 100*Confidence, strings.Join(parts, "; "))
}
