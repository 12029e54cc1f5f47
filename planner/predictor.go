package planner

import (
	"fmt"
	"math"
)

// Predictor forecasts the next value of a series from one value per interval. Add
// gets finite values; Next may be called any number of times between two.
type Predictor interface {
	Add(v float64)
	Next() float64
}

// NewPredictor builds one predictor.
func NewPredictor(c PredictorConfig) (Predictor, error) {
	switch c.Kind {
	case "constant":
		return new(constant), nil
	case "kalman":
		return newKalman(c), nil
	case "arima":
		return newArima(c), nil
	case "prophet":
		return newProphet(c), nil
	}
	return nil, fmt.Errorf("load_predictor: must be constant, arima, prophet or kalman, got %q", c.Kind)
}

// MinPoints is how many values a predictor needs before it does more than repeat
// the last one.
func (c PredictorConfig) MinPoints() int {
	switch c.Kind {
	case "constant":
		return 1
	case "kalman":
		return c.KalmanMinPoints
	}
	return 5
}

// constant repeats the last value.
type constant struct{ last float64 }

func (c *constant) Add(v float64) { c.last = v }

func (c *constant) Next() float64 { return c.last }

// series feeds a predictor and drops the zeros before the first other value.
type series struct {
	p       Predictor
	started bool
}

func (s *series) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) || !s.started && v == 0 {
		return
	}
	s.started = true
	s.p.Add(v)
}

// forecaster predicts the requests of an interval and their mean lengths
// (spec planner 11).
type forecaster struct {
	n, isl, osl      series
	lastISL, lastOSL float64
	seen             bool // some request arrived
}

func (f *forecaster) init(c PredictorConfig, stepS int) error {
	for _, s := range []*series{&f.n, &f.isl, &f.osl} {
		var err error
		if s.p, err = NewPredictor(c); err != nil {
			return err
		}
	}
	if c.WarmupTrace == "" {
		return nil
	}
	windows, err := readWarmup(c.WarmupTrace, float64(stepS))
	if err != nil {
		return fmt.Errorf("load_predictor_warmup_trace: %w", err)
	}
	for _, w := range windows {
		f.observe(w.n, w.isl, w.osl)
	}
	f.seen = false
	for _, s := range []*series{&f.n, &f.isl, &f.osl} {
		s.started = false
	}
	return nil
}

// observe feeds one interval. One without requests repeats the lengths of the last
// that had any; lengths are 0 where nothing completed (spec planner 11.1).
func (f *forecaster) observe(n, isl, osl float64) {
	if math.IsNaN(n) {
		n = 0
	}
	f.n.add(n)
	switch {
	case n > 0:
		f.lastISL, f.lastOSL, f.seen = isl, osl, true
	case f.seen:
		isl, osl = f.lastISL, f.lastOSL
	}
	f.isl.add(isl)
	f.osl.add(osl)
}

func (f *forecaster) predict() (n, isl, osl float64) {
	return f.n.p.Next(), f.isl.p.Next(), f.osl.p.Next()
}
