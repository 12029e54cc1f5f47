// Package sweep runs points: it loads their inputs once, runs each configuration,
// and, for a whole grid, runs the points on a bounded number of goroutines, makes
// every finished one durable and continues where an earlier run stopped.
//
//	in := &sweep.Inputs{}
//	out, err := sweep.Execute(ctx, in, &run, sweep.RunOptions{})    // one configuration
//
// Points share only inputs that never change, so the figures of a point do not depend
// on the others.
package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// RunOptions says what of a run is kept or looked at, beside its summary.
type RunOptions struct {
	Capture   bool // keep per-request records
	Observers sim.Observers
	Telemetry func(*metrics.Sample) error // nil: none
	SlowPath  bool
	Requests  int // release at most so many, as a search does; 0: the whole load
	// Load is released instead of the run's workload, as a calibration does; nil: the
	// workload. It is handed the block size that prompts are cut by.
	Load func(blockSize int) (workload.Source, error)
}

// Outcome is one finished run.
type Outcome struct {
	Summary *metrics.Summary
	Result  *sim.Result
	Policy  *planner.Policy // nil without a Planner
	Outside []Outside       // per role with hardware timing
	Blocks  Blocks
}

// Blocks is the number of KV blocks per rank that the run used.
type Blocks struct{ Prefill, Decode int }

// Outside tells how often hardware timing was asked beyond its measured points.
type Outside struct {
	Role            string
	Passes, Queried int64
	Doublings       float64 // farthest distance to a measured point, in powers of two
	Op              string
}

// Share is the part of the passes that were priced outside the measured grid.
func (o Outside) Share() float64 {
	if o.Queried == 0 {
		return 0
	}
	return float64(o.Passes) / float64(o.Queried)
}

// InputError marks an error that the run's inputs caused, before anything ran.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// Is puts it into the class document.ErrInput.
func (e *InputError) Is(target error) bool { return target == document.ErrInput }

// Execute runs one configuration to its end. Wall time in the summary counts from
// when its input files are parsed and its timing tables are loaded.
func Execute(ctx context.Context, in *Inputs, run *scenario.Run, w RunOptions) (*Outcome, error) {
	if run.Workload.Trace != nil {
		if _, err := in.runTrace(run); err != nil {
			return nil, &InputError{err}
		}
	}
	res := &resolver{in: in}
	cfg, err := run.Config(nil, res.answer)
	if err != nil {
		return nil, &InputError{err}
	}
	began := time.Now()
	var src workload.Source
	if w.Load != nil {
		src, err = w.Load(run.BlockSize())
	} else {
		src, err = in.Source(run)
	}
	if err != nil {
		return nil, &InputError{err}
	}
	if w.Requests > 0 {
		src = &prefix{src, w.Requests}
	}
	cfg.Source = src
	if cfg.Hasher, err = in.hasher(run); err != nil {
		return nil, &InputError{err}
	}
	out := &Outcome{Blocks: Blocks{cfg.Prefill.Rank.Blocks, cfg.Decode.Rank.Blocks}}
	if run.Planner != nil {
		if out.Policy, err = planner.New(run.Planner.Config, engines(run, &cfg)); err != nil {
			return nil, &InputError{err}
		}
		for _, m := range res.measured {
			m.ResetExtrapolation() // the Planner's lessons are no passes
		}
		cfg.Scaling = out.Policy
	}
	cfg.Capture, cfg.Observers, cfg.SlowPath = w.Capture, w.Observers, w.SlowPath
	cfg.Telemetry.Sink = w.Telemetry
	s, err := sim.New(cfg)
	if err != nil {
		return nil, &InputError{err}
	}
	if out.Result, err = s.Run(ctx); err != nil {
		return nil, res.explain(err)
	}
	totals := out.Result.Totals
	totals.Agentic = agentic(in, run, src)
	totals.WallMs = float64(time.Since(began)) / float64(time.Millisecond)
	out.Summary = out.Result.Collector.Summary(totals)
	out.Outside = outside(run, &cfg)
	return out, nil
}

// explain adds what the hardware model knows to a failed pass.
func (r *resolver) explain(err error) error {
	var e *sim.Error
	if errors.As(err, &e) && e.Class == sim.EngineFault {
		for _, m := range r.measured {
			if why := m.Err(); why != nil {
				return &sim.Error{Class: sim.EngineFault, Err: why}
			}
		}
	}
	return err
}

// outside tells of the roles with hardware timing, by the model that each one's pool
// runs with.
func outside(run *scenario.Run, cfg *sim.Config) []Outside {
	var out []Outside
	for _, of := range [...]struct {
		role *scenario.Role
		pool *sim.PoolConfig
	}{{run.Decode, &cfg.Decode}, {run.Prefill, &cfg.Prefill}} {
		if m, ok := uncorrected(of.pool.Rank.Timing).(*measured); ok && of.role != nil {
			o := m.Outside()
			out = append(out, Outside{of.role.Rank.Role.String(), o.Passes, o.Queried, o.Doublings, o.Op})
		}
	}
	return out
}

// engines is what the Planner knows of the deployment.
func engines(run *scenario.Run, cfg *sim.Config) planner.Engines {
	of := func(role *scenario.Role, p *sim.PoolConfig) planner.Engine {
		c := &p.Rank
		return planner.Engine{GPUs: role.BudgetGPUs(), MaxBatchedTokens: c.MaxNumBatchedTokens, MaxSeqs: c.MaxNumSeqs,
			ContextLength: c.MaxModelLen, KVTokens: c.Blocks * c.BlockSize, Ranks: p.DPSize, NextN: c.NextN}
	}
	e := planner.Engines{Disaggregated: cfg.Disaggregated, Decode: of(run.Decode, &cfg.Decode), Granularity: run.Planner.Granularity}
	e.DecodeTiming = hardware(cfg.Decode.Rank.Timing)
	e.PrefillTiming = e.DecodeTiming
	if cfg.Disaggregated {
		e.Prefill, e.PrefillTiming = of(run.Prefill, &cfg.Prefill), hardware(cfg.Prefill.Rank.Timing)
	}
	return e
}

func uncorrected(m timing.Model) timing.Model {
	base, _ := timing.Uncorrected(m)
	return base
}

// hardware is what the Planner's lessons ask: the corrected times of hardware tables.
func hardware(m timing.Model) planner.PassTimes {
	base, c := timing.Uncorrected(m)
	if t, ok := base.(*measured); ok {
		return passTimes{t, c}
	}
	return nil
}
