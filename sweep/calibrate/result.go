package calibrate

import (
	"context"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Calibration is what a fit needs.
type Calibration struct {
	Deployments []scenario.Run // one for each tensor parallelism
	Runs        []Run
	Simulate    Simulate
	Host        bool // fit pass_ms and sequence_ms too
	Steady      bool // leave out the start and the end of closed loops, on both sides
}

// Parameter is one fitted value with its 95 % interval.
type Parameter struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Correlation is a pair of parameters of which only a combination is known.
type Correlation struct {
	A     string  `json:"a"`
	B     string  `json:"b"`
	Value float64 `json:"value"`
}

// Comparison is one run and one metric.
type Comparison struct {
	Run      string  `json:"run"`
	Metric   string  `json:"metric"`
	Measured float64 `json:"measured"`
	Before   float64 `json:"before"`
	After    float64 `json:"after"`
	LeftOut  float64 `json:"left_out"` // simulated with what the other runs say
}

// MetricErrors are the errors of one metric over the runs.
type MetricErrors struct {
	Metric  string `json:"metric"`
	Before  Errors `json:"before"`
	After   Errors `json:"after"`
	LeftOut Errors `json:"leave_one_run_out"`
}

// Result is a finished calibration.
type Result struct {
	Corrections  scenario.Corrections `json:"-"`
	Parameters   []Parameter          `json:"parameters"`
	Correlations []Correlation        `json:"correlations"`
	Runs         []Comparison         `json:"runs"`
	Errors       []MetricErrors       `json:"errors"`
	Checks       []Check              `json:"checks"`
}

// Metrics that are compared, in order.
const (
	MetricTPOT   = "tpot_ms"
	MetricTTFT   = "ttft_ms"
	MetricOutput = "output_tok_s"
)

var compared = []struct {
	name string
	of   func(f *Figures) float64
}{{MetricTPOT, func(f *Figures) float64 { return f.TPOTMs }}, {MetricTTFT, func(f *Figures) float64 { return f.TTFTMs }},
	{MetricOutput, func(f *Figures) float64 { return f.OutputTokS }}}

// pair finds the deployment of every run.
func (c *Calibration) pair() ([]scenario.Run, error) {
	out := make([]scenario.Run, len(c.Runs))
	for i := range c.Runs {
		r := &c.Runs[i]
		found := 0
		for _, d := range c.Deployments {
			if r.TensorParallel == 0 || d.Decode.TensorParallel == r.TensorParallel {
				out[i] = d
				found++
			}
		}
		switch {
		case found == 0:
			return nil, fmt.Errorf("%s: no deployment of the specification has tensor parallelism %d", r.Name, r.TensorParallel)
		case found > 1:
			return nil, fmt.Errorf("%s: the specification has %d deployments that it may have run on: add @tp=N to the file, or leave one deployment", r.Name, found)
		}
	}
	return out, nil
}

// Before simulates the runs without corrections and checks the measurements against
// them (spec calibration 3.2).
func (c *Calibration) before(ctx context.Context, f *fitter) ([]Figures, []Check, error) {
	run, at := make([]int, len(f.runs)), make([]vector, len(f.runs))
	for k := range f.runs {
		run[k], at[k] = k, priorMean
	}
	outcomes, err := f.outcomes(ctx, run, at)
	if err != nil {
		return nil, nil, err
	}
	figures := make([]Figures, len(outcomes))
	var checks []Check
	for k := range outcomes {
		figures[k] = summarize(outcomes[k].Requests, f.steadyOf(k))
		checks = append(checks, checkRun(&f.runs[k], &outcomes[k], figures[k])...)
	}
	return figures, checks, nil
}

// Fit checks the measurements and, unless a check forbids it, fits. With force every
// check is a notice.
func (c *Calibration) Fit(ctx context.Context, force bool) (*Result, error) {
	f := &fitter{runs: c.Runs, simulate: c.Simulate, steady: c.Steady, active: passMs}
	if c.Host {
		f.active = parameterCount
	}
	var err error
	if f.on, err = c.pair(); err != nil {
		return nil, err
	}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	start, checks, err := c.before(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &Result{Checks: checks}
	if err := refuse(checks, force); err != nil {
		return out, err
	}
	if c.Host && !spans(start, hostSpan) {
		out.Checks = append(out.Checks, Check{Kind: "host", Message: "the simulated decode times of the runs span less than a factor of 2.5: pass_ms and sequence_ms can not be told from decode_scale and are not fitted"})
		f.active = passMs
	}
	m, err := f.fit(ctx, start)
	if err != nil {
		return nil, err
	}
	left, err := f.leaveOut(ctx, m)
	if err != nil {
		return nil, err
	}
	out.fill(f, m, start, left)
	return out, nil
}

// prepare takes the figures of the steady part of runs with requests.
func (c *Calibration) prepare() error {
	for i := range c.Runs {
		r := &c.Runs[i]
		if !c.Steady {
			continue
		}
		if r.Requests == nil || r.Load.Concurrency == 0 {
			return fmt.Errorf("%s: --steady needs the requests of a closed loop, and this run has none", r.Name)
		}
		r.Measured = summarize(r.Requests, r.Load.Concurrency)
	}
	return nil
}

// hostSpan is the least factor between the simulated TPOT of runs that tells host times
// from scales.
const hostSpan = 2.5

// spans reports whether the simulated decode times span a factor.
func spans(sim []Figures, factor float64) bool {
	low, high := math.Inf(1), 0.0
	for _, f := range sim {
		if f.TPOTMs > 0 {
			low, high = min(low, f.TPOTMs), max(high, f.TPOTMs)
		}
	}
	return high >= factor*low
}

func (r *Result) fill(f *fitter, m *minimum, before, left []Figures) {
	r.Corrections = m.x.corrections()
	r.Corrections.ClientMs = m.x[clientMs]
	for p := range f.active {
		r.Parameters = append(r.Parameters, Parameter{parameterNames[p], m.x[p],
			max(lowest[p], m.x[p]-1.96*m.deviation[p]), min(highest[p], m.x[p]+1.96*m.deviation[p])})
		for q := p + 1; q < f.active; q++ {
			if v := m.correlate[p][q]; math.Abs(v) > 0.8 {
				r.Correlations = append(r.Correlations, Correlation{parameterNames[p], parameterNames[q], v})
			}
		}
	}
	after := make([]Figures, len(m.sim))
	for k := range after {
		after[k] = m.sim[k]
		after[k].TTFTMs += m.x[clientMs]
	}
	for _, metric := range compared {
		var measured, was, is, out []float64
		for k := range f.runs {
			v := [...]float64{metric.of(&f.runs[k].Measured), metric.of(&before[k]), metric.of(&after[k]), metric.of(&left[k])}
			measured, was, is, out = append(measured, v[0]), append(was, v[1]), append(is, v[2]), append(out, v[3])
			if v[0] > 0 {
				r.Runs = append(r.Runs, Comparison{f.runs[k].Name, metric.name, v[0], v[1], v[2], v[3]})
			}
		}
		r.Errors = append(r.Errors, MetricErrors{metric.name, Compare(was, measured), Compare(is, measured), Compare(out, measured)})
	}
}

// Better reports whether the corrections lower the error of TPOT on runs that they were
// not fitted to.
func (r *Result) Better() bool { return r.Errors[0].LeftOut.MAPE < r.Errors[0].Before.MAPE }

// Figure is a figure for assertions: loo_tpot_mape, before_ttft_bias and so on.
func (r *Result) Figure(name string) (float64, bool) {
	for _, e := range r.Errors {
		for stage, errs := range map[string]Errors{"before": e.Before, "after": e.After, "loo": e.LeftOut} {
			for kind, v := range map[string]float64{"mape": errs.MAPE, "bias": errs.Bias, "rho": errs.Rho} {
				if name == stage+"_"+shortMetric(e.Metric)+"_"+kind {
					return v, true
				}
			}
		}
	}
	return 0, false
}

// FigureNames are the names that Figure knows.
func FigureNames() []string {
	var out []string
	for _, stage := range [...]string{"before", "after", "loo"} {
		for _, metric := range compared {
			for _, kind := range [...]string{"mape", "bias", "rho"} {
				out = append(out, stage+"_"+shortMetric(metric.name)+"_"+kind)
			}
		}
	}
	return out
}

func shortMetric(name string) string {
	switch name {
	case MetricTPOT:
		return "tpot"
	case MetricTTFT:
		return "ttft"
	}
	return "output"
}
