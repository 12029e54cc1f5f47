package sim

import (
	"math"

	"github.com/dynosweep/dynosweep/sim/metrics"
)

// sampler takes telemetry samples (spec report 9). Sampling changes nothing.
type sampler struct {
	on      bool
	window  metrics.Window
	armedMs float64 // next periodic tick; +Inf: none
	ordinal int64
	ticks   int     // periodic samples taken
	lastMs  float64 // time of the last sample
	record  metrics.Sample
}

func (s *Sim) baselineSample() error {
	t := &s.telemetry
	if !t.on {
		return nil
	}
	if err := s.sample(metrics.Baseline); err != nil {
		return err
	}
	t.armedMs = s.cfg.Telemetry.IntervalMs
	return nil
}

// sampleOnly moves the clock to a telemetry tick at which nothing else happens and
// no worker is woken. A pass of a decode run that ends exactly then makes it a full
// instant.
func (s *Sim) sampleOnly(atMs float64) error {
	s.advance(atMs)
	busy := len(s.completions.items)
	if err := s.settleAll(); err != nil {
		return err
	}
	if len(s.completions.items) < busy {
		return s.drain()
	}
	return s.sample(metrics.Periodic)
}

// sample takes one sample and arms the next periodic tick.
func (s *Sim) sample(kind metrics.SampleKind) error {
	t := &s.telemetry
	s.fillSample(kind)
	t.lastMs = s.nowMs
	t.ordinal++
	if kind == metrics.Periodic {
		t.ticks++
		t.armedMs = float64(t.ticks+1) * s.cfg.Telemetry.IntervalMs
	}
	if err := s.cfg.Telemetry.Sink(&t.record); err != nil {
		return &Error{TelemetryFault, err}
	}
	return nil
}

func (s *Sim) finalSample() error {
	if !s.telemetry.on || s.nowMs <= s.telemetry.lastMs && !s.telemetry.window.Pending() {
		return nil
	}
	s.telemetry.armedMs = math.Inf(1)
	return s.sample(metrics.Final)
}

// fillSample reads the gauges and consumes what was counted since the last sample.
// The baseline has gauges only: what the first instant counted goes to the next one.
func (s *Sim) fillSample(kind metrics.SampleKind) {
	s.mustBeSettled("telemetry", s.pools...)
	t := &s.telemetry
	v := &t.record
	v.Ordinal, v.Kind, v.StartMs, v.AtMs = t.ordinal, kind, t.lastMs, s.nowMs
	v.Traffic = metrics.Traffic{}
	consume := kind != metrics.Baseline
	if consume {
		v.Traffic = t.window.Consume(s.nowMs)
	}
	if s.prefill != nil {
		s.fillPool(s.prefill, &v.Prefill, consume)
	}
	s.fillPool(s.decode, &v.Decode, consume)
}

// fillPool shows a pool; take also what its ranks counted since that was taken last.
func (s *Sim) fillPool(p *pool, v *metrics.PoolSample, consume bool) {
	v.Ranks = v.Ranks[:0]
	v.Active, v.Starting, v.Draining = p.idsByState(v.Active, v.Starting, v.Draining)
	v.Pending, v.Interval = p.placement.Queued(), metrics.Counters{}
	if consume {
		v.Interval, p.removedCounts = p.removedCounts, metrics.Counters{}
	}
	for _, w := range p.present {
		for i := range w.ranks {
			rk := &w.ranks[i]
			g := &rk.gauges
			var counted metrics.Counters
			if consume {
				counted, rk.counted = rk.counted, metrics.Counters{}
			}
			v.Ranks = append(v.Ranks, metrics.RankSample{
				Worker: w.id, Rank: int32(i), ActiveBlocks: g.ActiveBlocks, InactiveBlocks: g.InactiveBlocks,
				TotalBlocks: g.TotalBlocks, Running: g.Running, Waiting: g.Waiting, Interval: counted,
			})
			v.Interval.Add(counted)
		}
	}
}
