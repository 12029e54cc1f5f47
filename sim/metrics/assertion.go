package metrics

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/spelling"
)

// Assertion is a bound on one figure, as `mean_ttft_ms<500`.
type Assertion struct {
	Metric string
	Op     string // one of < <= > >= == !=
	Bound  float64
}

// operators, the longer ones first.
var operators = [...]string{"<=", ">=", "==", "!=", "<", ">"}

// ParseAssertion reads metric, operator and bound, with or without spaces. The
// metric is a numeric report key or one of more; an unknown one is refused with
// the nearest known name.
func ParseAssertion(text string, more ...string) (Assertion, error) {
	refuse := func(format string, args ...any) (Assertion, error) {
		return Assertion{}, fmt.Errorf("assertion %q: %s", text, fmt.Sprintf(format, args...))
	}
	at := strings.IndexAny(text, "<>=!")
	if at < 0 {
		return refuse("no operator, want METRIC<BOUND with one of < <= > >= == !=")
	}
	a := Assertion{Metric: strings.TrimSpace(text[:at])}
	for _, op := range operators {
		if strings.HasPrefix(text[at:], op) {
			a.Op = op
			break
		}
	}
	if a.Op == "" {
		return refuse("unknown operator, want one of < <= > >= == !=")
	}
	bound := strings.TrimSpace(text[at+len(a.Op):])
	v, err := strconv.ParseFloat(bound, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return refuse("bound must be a finite number, got %q", bound)
	}
	a.Bound = v
	if a.Metric == "" {
		return refuse("no metric before %s", a.Op)
	}
	names := assertable(more)
	for _, n := range names {
		if n == a.Metric {
			return a, nil
		}
	}
	if near := nearest(a.Metric, names); spelling.Edits(a.Metric, near) <= len(a.Metric)/2 {
		return refuse("unknown metric %s, did you mean %s?", a.Metric, near)
	}
	return refuse("unknown metric %s, want a numeric key of the report", a.Metric)
}

// assertable lists the names that an assertion may use.
func assertable(more []string) []string {
	var names []string
	for i := range keys {
		if keys[i].get != nil {
			names = append(names, keys[i].Name)
		}
	}
	return append(names, more...)
}

// Check returns an error with metric, bound and value unless the bound holds.
// Figures come from get, as Summary.Get; one without a value holds no bound.
func (a Assertion) Check(get func(name string) (float64, bool)) error {
	v, ok := get(a.Metric)
	if !ok {
		return fmt.Errorf("assertion %s fails: %s has no value in this run", a, a.Metric)
	}
	if !a.holds(v) {
		return fmt.Errorf("assertion %s fails: %s is %s", a, a.Metric, number(v))
	}
	return nil
}

func (a Assertion) holds(v float64) bool {
	switch a.Op {
	case "<":
		return v < a.Bound
	case "<=":
		return v <= a.Bound
	case ">":
		return v > a.Bound
	case ">=":
		return v >= a.Bound
	case "==":
		return v == a.Bound
	case "!=":
		return v != a.Bound
	}
	panic("metrics: assertion with operator " + strconv.Quote(a.Op))
}

// String is the assertion without spaces.
func (a Assertion) String() string { return a.Metric + a.Op + number(a.Bound) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// nearest returns the name with the fewest edits to want; the first of equals.
func nearest(want string, names []string) string {
	best, fewest := "", math.MaxInt
	for _, n := range names {
		if d := spelling.Edits(want, n); d < fewest {
			best, fewest = n, d
		}
	}
	return best
}
