package planner

import "math"

// kalman is a local linear trend filter: state [level, trend], F = [[1,1],[0,1]],
// H = [1,0] (spec planner 11.3).
type kalman struct {
	cfg       PredictorConfig
	level     float64
	trend     float64
	p         [2][2]float64 // covariance of the state
	last      float64       // raw
	points    int
	predicted bool // the state stands one step ahead of the last value
}

func newKalman(c PredictorConfig) *kalman {
	c.KalmanQLevel = math.Max(1e-12, c.KalmanQLevel)
	c.KalmanQTrend = math.Max(1e-12, c.KalmanQTrend)
	c.KalmanR = math.Max(1e-9, c.KalmanR)
	return &kalman{cfg: c, p: [2][2]float64{{1000, 0}, {0, 1000}}}
}

func (k *kalman) Add(v float64) {
	k.last = v
	k.points++
	z := v
	if k.cfg.Log1p {
		z = math.Log1p(math.Max(0, v))
	}
	if k.points == 1 {
		k.level, k.trend, k.predicted = z, 0, false
		return
	}
	if !k.predicted {
		k.step()
	}
	k.update(z)
	k.predicted = false
}

// step moves the state one interval on.
func (k *kalman) step() {
	p := &k.p
	k.level += k.trend
	p00 := p[0][0] + p[1][0] + p[0][1] + p[1][1] + k.cfg.KalmanQLevel
	p01 := p[0][1] + p[1][1]
	p10 := p[1][0] + p[1][1]
	p[1][1] += k.cfg.KalmanQTrend
	p[0][0], p[0][1], p[1][0] = p00, p01, p10
}

// update takes a value in, with the Joseph form (I-KH)P(I-KH)' + KRK'.
func (k *kalman) update(z float64) {
	p, r := k.p, k.cfg.KalmanR
	s := p[0][0] + r
	k0, k1 := p[0][0]/s, p[1][0]/s
	e := z - k.level
	k.level += float64(k0 * e)
	k.trend += float64(k1 * e)
	// A = I - KH = [[1-k0, 0], [-k1, 1]]
	a00 := 1 - k0
	b00, b01 := float64(a00*p[0][0]), float64(a00*p[0][1])
	b10, b11 := p[1][0]-float64(k1*p[0][0]), p[1][1]-float64(k1*p[0][1])
	k.p[0][0] = float64(b00*a00) + float64(k0*r*k0)
	k.p[0][1] = b01 - float64(b00*k1) + float64(k0*r*k1)
	k.p[1][0] = float64(b10*a00) + float64(k1*r*k0)
	k.p[1][1] = b11 - float64(b10*k1) + float64(k1*r*k1)
}

// Next repeats the last value until there are enough points, and the first time
// after a value moves the filter on.
func (k *kalman) Next() float64 {
	if k.points == 0 || k.points < k.cfg.KalmanMinPoints {
		return k.last
	}
	if !k.predicted {
		k.step()
		k.predicted = true
	}
	if k.cfg.Log1p {
		return math.Max(0, math.Expm1(k.level))
	}
	return math.Max(0, k.level)
}
