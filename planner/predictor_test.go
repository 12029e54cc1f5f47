package planner

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
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
		{"arima", func(c *PredictorConfig) { c.Kind = "arima" }, 1e-5, 0,
			[]float64{0, 10, 12, 15, 20, 27.374274, 35.519949, 23.317732, 16.281487, 0, 12.39409, 1.36912}},
		{"arima log1p", func(c *PredictorConfig) { c.Kind, c.Log1p = "arima", true }, 4e-4, 0,
			[]float64{0, 10, 12, 15, 20, 23.789954, 29.623801, 27.51001, 19.303555, 0.71503, 0.84102, 6.52599}},
		{"prophet", func(c *PredictorConfig) { c.Kind = "prophet" }, 0.015, 0.01,
			[]float64{0, 10, 12, 15, 20, 28.599498, 35.531274, 36.995776, 32.522773, 20.740861, 12.893961, 9.352327}},
		{"prophet log1p window 8", func(c *PredictorConfig) { c.Kind, c.Log1p, c.ProphetWindow = "prophet", true, 8 }, 0.015, 0.01,
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

func TestArimaWithoutTermsIsTheMeanInLogSpace(t *testing.T) {
	cfg := DefaultConfig().Predictor
	got := forecasts(t, cfg, []float64{81, 80, 250, 250, 250, 100})
	want := []float64{81, 80, 250, 250, 159.053069, 147.230673}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-8*want[i]+5e-7 {
			t.Errorf("after value %d: %v, reference %v", i, got[i], want[i])
		}
	}
	mean := (math.Log1p(81) + math.Log1p(80) + 3*math.Log1p(250)) / 5
	if math.Abs(got[4]-math.Expm1(mean)) > 1e-6 {
		t.Errorf("%v is not the mean %v", got[4], math.Expm1(mean))
	}
}

// TestArimaFollowsItsReference uses forecasts of the library behind the reference
// (testdata/arima.json says how they were made).
func TestArimaFollowsItsReference(t *testing.T) {
	text, err := os.ReadFile("testdata/arima.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name              string
			Values, Forecasts []float64
			Start             int
			Log1p, Constant   bool
			Order             [3]int
		}
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) < 30 {
		t.Fatalf("%d cases, %v", len(file.Cases), err)
	}
	close := 0
	for _, c := range file.Cases {
		a := newArima(PredictorConfig{Log1p: c.Log1p})
		worst := 0.0
		for i, v := range c.Values {
			if a.Add(v); i < c.Start-1 {
				continue
			}
			want := c.Forecasts[i-c.Start+1]
			worst = math.Max(worst, math.Abs(a.Next()-want)/want)
		}
		if o := a.model.order; o != (order{c.Order[0], c.Order[1], c.Order[2], c.Constant}) {
			t.Errorf("%s: order %v, reference %v", c.Name, o, c.Order)
		}
		if worst > 5e-4 {
			t.Errorf("%s: forecasts %.3g away", c.Name, worst)
		}
		if worst < 1e-5 {
			close++
		}
	}
	if close < len(file.Cases)*9/10 {
		t.Errorf("%d of %d series within 1e-5", close, len(file.Cases))
	}
}

func TestConstantSeriesIsRepeated(t *testing.T) {
	for _, kind := range []string{"constant", "kalman", "arima", "prophet"} {
		cfg := DefaultConfig().Predictor
		cfg.Kind = kind
		for i, got := range forecasts(t, cfg, []float64{7, 7, 7, 7, 7, 7, 7, 7}) {
			if math.Abs(got-7) > 1e-12 {
				t.Errorf("%s after value %d: %v", kind, i, got)
			}
		}
	}
}

// TestTailOfTheLikelihoodIsTheFilter: what is computed once the covariance stands
// still, from sums of lags or by recursion, is what the whole filter says.
func TestTailOfTheLikelihoodIsTheFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var y []float64
	walk := 5000.0
	for range 300 {
		walk += 5 * rng.NormFloat64()
		y = append(y, walk)
	}
	for _, o := range []order{{}, {constant: true}, {p: 1, constant: true}, {p: 3, constant: true}, {q: 1, constant: true},
		{p: 1, q: 1, constant: true}, {p: 1, q: 2}, {p: 2, q: 1, constant: true}, {d: 1, constant: true}, {p: 2, d: 1},
		{p: 1, d: 1, q: 1, constant: true}, {d: 1, q: 3}, {p: 1, d: 2}, {d: 2, q: 1}} {
		m := arma{order: o, free: make([]float64, o.params())}
		for i := range m.free {
			m.free[i] = 0.3 + 0.2*rng.NormFloat64()
		}
		m.free[len(m.free)-1] = 7
		c := m.parts(m.free)
		h := newHistory(y[:200], o)
		h.extend(y) // and growing is as good as being built
		f := newFilter(o.d, max(o.p, o.q+1))
		ll, next := f.run(h, c)

		f.start(c)
		want := 0.0
		for i, v := range y {
			s, e := f.observe(), v-f.seen()
			if i >= o.d {
				want -= 0.5 * (math.Log(2*math.Pi*s) + e*e/s)
			}
			for i := range f.state {
				f.nx[i] = f.state[i] + f.gain[i]*e
			}
			f.move(f.nx, 1, f.state, 1)
			f.state[f.d] += c.c
			f.propagate(c.variance, s)
		}
		if seen := f.seen(); math.Abs(ll-want) > 1e-9*math.Abs(want) || math.Abs(next-seen) > 1e-8*math.Abs(seen) {
			t.Errorf("%+v: likelihood %v and forecast %v, the filter says %v and %v", o, ll, next, want, seen)
		}
	}
}

// TestLagSumsKeepWhatIsLeft: a level of a billion and steps of a thousandth.
func TestLagSumsKeepWhatIsLeft(t *testing.T) {
	h := newHistory(nil, order{p: 1})
	var y []float64
	want := 0.0
	for i := range 1000 {
		y = append(y, 1e9+float64(i%7)/1024)
		if i > 0 {
			want += sq(y[i] - y[i-1])
		}
	}
	h.extend(y)
	if got := h.sums.squares(0, []float64{1}); math.Abs(got-want) > 1e-12*want {
		t.Errorf("%v, want %v", got, want)
	}
}

// BenchmarkLongForecast forecasts after every value of a series, as a long run does.
func BenchmarkLongForecast(b *testing.B) {
	for _, c := range []struct {
		terms string
		ma    float64
	}{{"none", 0}, {"ma", 0.6}} {
		for _, ticks := range []int{1000, 4000} {
			b.Run(fmt.Sprintf("terms=%s/ticks=%d", c.terms, ticks), func(b *testing.B) {
				for b.Loop() {
					rng := rand.New(rand.NewPCG(8, 2))
					p, before := newArima(PredictorConfig{}), 0.0
					for i := range ticks {
						e := 10 * rng.NormFloat64()
						p.Add(100 + e + c.ma*before)
						before = e
						if i >= 40 { // enough for an order
							p.Next()
						}
					}
					if p.model.q > 0 != (c.ma > 0) {
						b.Fatalf("order %v", p.model.order)
					}
				}
			})
		}
	}
}

func BenchmarkForecast(b *testing.B) {
	for _, kind := range []string{"arima", "prophet"} {
		b.Run("kind="+kind, func(b *testing.B) {
			cfg := DefaultConfig().Predictor
			cfg.Kind = kind
			p, _ := NewPredictor(cfg)
			for i := range 200 {
				p.Add(100 + 30*math.Sin(float64(i)/3) + float64(i*i%17))
			}
			p.Next()
			b.ReportAllocs()
			for b.Loop() {
				p.Add(100)
				p.Next()
			}
		})
	}
}
