package planner

import (
	"math"
	"testing"
)

// The series and the forecasts after each value (spec planner 13.8).
var specSeries = []float64{0, 10, 12, 15, 20, 26, 33, 30, 20, 0, 0, 5}

func forecasts(t *testing.T, c PredictorConfig, values []float64) []float64 {
	t.Helper()
	p, err := NewPredictor(c)
	if err != nil {
		t.Fatal(err)
	}
	s := series{p: p}
	out := make([]float64, len(values))
	for i, v := range values {
		s.add(v)
		out[i] = p.Next()
		if again := p.Next(); again != out[i] {
			t.Errorf("%s: asking twice gives %v, then %v", c.Kind, out[i], again)
		}
	}
	return out
}

func TestForecastsMatchTheReference(t *testing.T) {
	for _, c := range []struct {
		name     string
		set      func(*PredictorConfig)
		rel, abs float64
		want     []float64
	}{
		{"constant", func(c *PredictorConfig) { c.Kind = "constant" }, 0, 0,
			[]float64{0, 10, 12, 15, 20, 26, 33, 30, 20, 0, 0, 5}},
		{"kalman", func(c *PredictorConfig) { c.Kind = "kalman" }, 0, 5e-7,
			[]float64{0, 10, 12, 15, 20, 29.984677, 37.16341, 37.341468, 30.454588, 14.591956, 5.39319, 2.736267}},
		{"kalman log1p", func(c *PredictorConfig) { c.Kind, c.Log1p = "kalman", true }, 0, 5e-7,
			[]float64{0, 10, 12, 15, 20, 33.255648, 42.512946, 42.580485, 32.107566, 3.670047, 0.527626, 1.114014}},
		{"kalman reactive", func(c *PredictorConfig) {
			c.Kind, c.KalmanQLevel, c.KalmanQTrend, c.KalmanR, c.KalmanMinPoints = "kalman", 10, 1, 5, 3
		}, 0, 5e-7,
			[]float64{0, 10, 12, 17.900599, 23.759234, 30.384363, 37.957373, 35.058582, 23.219203, 0.027149, 0, 0.484655}},
		{"prophet", func(c *PredictorConfig) { c.Kind = "prophet" }, 0.05, 0.5,
			[]float64{0, 10, 12, 15, 20, 28.599498, 35.531274, 36.995776, 32.522773, 20.740861, 12.893961, 9.352327}},
		{"prophet log1p window 8", func(c *PredictorConfig) { c.Kind, c.Log1p, c.ProphetWindow = "prophet", true, 8 }, 0.05, 0.5,
			[]float64{0, 10, 12, 15, 20, 33.714285, 42.447572, 43.62578, 36.203163, 5.723693, 0.647676, 0.402148}},
	} {
		cfg := DefaultConfig().Predictor
		c.set(&cfg)
		for i, got := range forecasts(t, cfg, specSeries) {
			if math.Abs(got-c.want[i]) > math.Max(c.abs, c.rel*c.want[i]) {
				t.Errorf("%s after value %d: %v, reference %v", c.name, i, got, c.want[i])
			}
		}
	}
}
