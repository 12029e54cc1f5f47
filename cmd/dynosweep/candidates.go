package main

import (
	"context"
	"errors"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/timing/aic"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/recommend"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// candidateRunner runs the candidates of a search on this machine.
type candidateRunner struct {
	in     *sweep.Inputs
	jobs   int
	memory int64 // bytes for all runs together; 0: no bound
}

var _ recommend.Runner = candidateRunner{}

func (r candidateRunner) Load(run *scenario.Run) (recommend.Load, error) {
	l, err := r.in.LoadOf(run)
	return recommend.Load(l), err
}

func (r candidateRunner) Run(ctx context.Context, requests []recommend.RunRequest) []recommend.RunResult {
	trials := make([]sweep.Trial, len(requests))
	for i := range requests {
		q := &requests[i]
		trials[i] = sweep.Trial{Run: q.Run, Requests: q.Requests, Timeout: q.Timeout, ShouldStop: q.ShouldStop}
	}
	out := make([]recommend.RunResult, len(requests))
	for i, t := range r.in.Try(ctx, trials, r.jobs, r.memory) {
		out[i] = recommend.RunResult{Err: t.Err, Failure: failureClass(&t), Stopped: t.Stopped, Simulated: t.Simulated}
		if o := t.Outcome; t.Err == nil && o != nil {
			out[i].Summary, out[i].PlannerTicks = o.Summary, o.Result.Ticks
			out[i].CostUSD = func(c *scenario.Cost) (float64, error) { return sweep.CostUSD(c, trials[i].Run, o) }
		}
	}
	return out
}

// failureClass is the class of what ended a run.
func failureClass(t *sweep.TrialResult) recommend.Failure {
	var memory *sweep.MemoryError
	switch {
	case t.TimedOut:
		return recommend.TimedOut
	case errors.As(t.Err, &memory):
		return recommend.MemoryShort
	case errors.Is(t.Err, aic.ErrCapacity):
		return recommend.KVCapacityShort
	case errors.Is(t.Err, document.ErrInput):
		return recommend.ConfigUnrunnable
	}
	return recommend.RunFailed
}
