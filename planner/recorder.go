package planner

import (
	"math"

	"github.com/dynosweep/dynosweep/sim"
)

// recorder adds up what the reference's diagnostics recorder would (spec planner
// 12.3): GPU-hours of active workers at the configured GPUs per engine, which are
// not the report's gpu_hours, and the last consumed traffic.
type recorder struct {
	cfg   *Config
	last  float64 // time of the last record, s; NaN: none yet
	hours float64
	seen  sim.Traffic // the last consumed window
	any   bool
}

func newRecorder(c *Config) recorder { return recorder{cfg: c, last: math.NaN()} }

func (r *recorder) observe(t *sim.Traffic) {
	if t.DurationS > 0 {
		r.seen, r.any = *t, true
	}
}

// record completes a tick. Ticks on which no loop was due and nothing was decided
// are not recorded, and the next record covers their time.
func (r *recorder) record(t *Tick, decided bool) {
	t.Recorded = t.Schedule.RunLoad || t.Schedule.RunThroughput || decided
	if t.Recorded {
		if !math.IsNaN(r.last) {
			prefill := float64(max(t.Counts.ReadyPrefill, 0) * r.cfg.Recorder.PrefillEngineGPUs)
			decode := float64(t.Counts.ReadyDecode * r.cfg.Recorder.DecodeEngineGPUs)
			r.hours += (prefill + decode) * (t.Schedule.AtS - r.last) / 3600
		}
		r.last = t.Schedule.AtS
	}
	nan := math.NaN()
	t.PlannerGPUHours = nan
	if r.known() {
		t.PlannerGPUHours = r.hours
	}
	t.ObservedTTFTMs, t.ObservedITLMs, t.ObservedRPS = nan, nan, nan
	t.ObservedISL, t.ObservedOSL, t.ObservedHitRate = nan, nan, nan
	if r.any {
		t.ObservedTTFTMs, t.ObservedITLMs = r.seen.AvgTTFTMs, r.seen.AvgITLMs
		if r.cfg.ThroughputIntervalS > 0 {
			t.ObservedRPS = float64(r.seen.Arrived) / float64(r.cfg.ThroughputIntervalS)
		}
		t.ObservedISL, t.ObservedOSL, t.ObservedHitRate = r.seen.AvgISL, r.seen.AvgOSL, r.seen.AvgHitRate
	}
}

// known reports whether the engines' GPUs were configured for every role.
func (r *recorder) known() bool {
	c := &r.cfg.Recorder
	return c.DecodeEngineGPUs > 0 && (r.cfg.Mode == Agg || c.PrefillEngineGPUs > 0)
}

// GPUHours is the planner GPU-hours up to the last tick, at the configured GPUs
// per engine; ok is false where those are unset.
func (p *Policy) GPUHours() (hours float64, ok bool) { return p.recorder.hours, p.recorder.known() }
