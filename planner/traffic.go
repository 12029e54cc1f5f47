package planner

import (
	"math"

	"github.com/dynosweep/dynosweep/sim"
)

// Observation is the traffic of a merged window. Means of nothing are 0; NaN is
// an accept length that was not measured.
type Observation struct {
	DurationS, NumReq     float64
	ISL, OSL              float64 // of completed requests
	HitRate, AcceptLength float64
}

// window merges what the run reports tick by tick until a tick consumes it
// (spec planner 4.1).
type window struct{ sum sim.Traffic }

func (w *window) add(t *sim.Traffic) {
	s := &w.sum
	s.DurationS += t.DurationS
	s.Arrived += t.Arrived
	s.AvgISL = merged(s.AvgISL, s.Completed, t.AvgISL, t.Completed)
	s.AvgOSL = merged(s.AvgOSL, s.Completed, t.AvgOSL, t.Completed)
	s.AvgTTFTMs = merged(s.AvgTTFTMs, s.TTFTCount, t.AvgTTFTMs, t.TTFTCount)
	s.AvgITLMs = merged(s.AvgITLMs, s.ITLCount, t.AvgITLMs, t.ITLCount)
	s.AvgHitRate = merged(s.AvgHitRate, s.HitRateCount, t.AvgHitRate, t.HitRateCount)
	s.AvgAcceptLength = merged(s.AvgAcceptLength, s.Forwards, t.AvgAcceptLength, t.Forwards)
	s.Completed += t.Completed
	s.TTFTCount += t.TTFTCount
	s.ITLCount += t.ITLCount
	s.HitRateCount += t.HitRateCount
	s.Forwards += t.Forwards
}

// merged weighs two means by their counts.
func merged(a float64, n int64, b float64, m int64) float64 {
	if n+m == 0 {
		return 0
	}
	return (float64(a*float64(n)) + float64(b*float64(m))) / float64(n+m)
}

// take empties the window; ok is false if no time passed in it.
func (w *window) take() (o Observation, raw sim.Traffic, ok bool) {
	raw = w.sum
	w.sum = sim.Traffic{}
	o = Observation{DurationS: raw.DurationS, NumReq: float64(raw.Arrived), ISL: raw.AvgISL,
		OSL: raw.AvgOSL, HitRate: raw.AvgHitRate, AcceptLength: math.NaN()}
	if raw.Forwards > 0 {
		o.AcceptLength = raw.AvgAcceptLength
	}
	return o, raw, raw.DurationS > 0
}

// lastSeen holds the values that stay until a new one is observed.
type lastSeen struct {
	hitRate float64 // NaN: never observed, no discount
	accept  float64 // accepted tokens per forward, in [1, nextn+1]
}

// observe takes a zero hit rate for a value and a missing accept length for none.
func (l *lastSeen) observe(o *Observation, nextn int) {
	if !math.IsNaN(o.HitRate) {
		l.hitRate = o.HitRate
	}
	if v := o.AcceptLength; !math.IsNaN(v) && !math.IsInf(v, 0) {
		l.accept = v
	}
	if nextn <= 0 {
		l.accept = 1
		return
	}
	l.accept = min(max(l.accept, 1), float64(nextn+1))
}

// hit is the share of a prompt that is expected in the cache, 0 to 0.95.
func (l *lastSeen) hit() float64 {
	if math.IsNaN(l.hitRate) {
		return 0
	}
	return min(max(l.hitRate, 0), 0.95)
}
