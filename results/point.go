package results

import "github.com/dynosweep/dynosweep/sim/metrics"

// Key names a point and seed. Keys are comparable.
type Key struct {
	Point  string // digest: letters and digits
	Seed   int64
	Seeded bool // false: nothing is drawn, the seed is null
}

// Status is what became of a point.
type Status string

const (
	Done    Status = "done"
	Failed  Status = "failed"  // it ran and failed, with a reason
	Skipped Status = "skipped" // it did not run, with a reason
)

// Maybe is a figure that can be undefined; the zero Maybe is.
type Maybe struct {
	V  float64
	OK bool
}

// Some is a defined figure.
func Some(v float64) Maybe { return Maybe{v, true} }

func (m Maybe) value() Value { return unless(!m.OK, Float(m.V)) }

// Point is one row of points.parquet. A point that did not end well has no Summary
// and no figures.
type Point struct {
	Key    Key
	Status Status
	Reason string
	Axes   []Value // in the order of Options.Axes; Null where the axis does not apply
	Config string  // resolved configuration, JSON
	GPUs   int64   // of the initial workers; 0: unknown

	Summary                   *metrics.Summary
	ScalingEvents             Maybe // undefined without a Planner
	PlannerGPUHours           Maybe
	OutsideShare              Maybe // undefined without hardware timing
	CostUSD                   Maybe
	USDPerMillionOutputTokens Maybe
}

// Get returns a numeric column of the point by name, as assertions want it.
func (p *Point) Get(name string) (float64, bool) {
	for i := range pointColumns {
		c := &pointColumns[i]
		if c.Name != name {
			continue
		}
		v := c.of(p)
		switch {
		case v.IsNull():
			return 0, false
		case c.Type == Int64:
			return float64(v.i), true
		case c.Type == Float64:
			return v.f, true
		}
	}
	return 0, false
}

// NumericColumns names the columns that Get can answer.
func NumericColumns() (names []string) {
	for i := range pointColumns {
		if c := &pointColumns[i]; c.Type == Int64 || c.Type == Float64 {
			names = append(names, c.Name)
		}
	}
	return names
}
