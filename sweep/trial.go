package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dynosweep/dynosweep/sim/timing/aic"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Trial is one run of a search.
type Trial struct {
	Run      *scenario.Run
	Requests int                                          // released at most; 0: the whole load
	Timeout  time.Duration                                // 0: none
	Capture  bool                                         // keep records of the requests
	Load     func(blockSize int) (workload.Source, error) // instead of the run's workload; nil: that
	// ShouldStop is asked now and then, with the clock, whether the run may stop; nil:
	// it may not.
	ShouldStop func(nowMs float64) bool
}

// TrialResult is what a trial came to: an outcome, or why there is none.
type TrialResult struct {
	Outcome   *Outcome
	Err       error // a *MemoryError, of class document.ErrInput, or of the run
	TimedOut  bool
	Stopped   bool  // ShouldStop said so
	Simulated int64 // requests that ended
}

// MemoryError refuses one trial that would not fit.
type MemoryError struct{ Need, Have int64 }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("needs about %d MiB of memory, %d MiB are free", e.Need>>20, e.Have>>20)
}

// PanicError is a bug of ours that one trial met.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("internal error: %v", e.Value) }

// Try runs trials on jobs goroutines and returns one answer for each, in their
// order. Trials run side by side only while their estimated memory together stays
// within memory bytes (0: no bound); one that needs more than that alone is refused.
// After ctx ended the answers are incomplete.
func (in *Inputs) Try(ctx context.Context, trials []Trial, jobs int, memory int64) []TrialResult {
	out := make([]TrialResult, len(trials))
	gate := newMemoryGate(memory)
	var group errgroup.Group
	group.SetLimit(max(jobs, 1))
	for i := range trials {
		need := in.bytes(trials[i].Run, false)
		if memory > 0 && need > memory {
			out[i].Err = &MemoryError{need, memory}
			continue
		}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			if err := gate.enter(ctx, need); err != nil {
				out[i].Err = err
				return nil
			}
			defer gate.leave(need)
			out[i] = in.try(ctx, &trials[i])
			return nil
		})
	}
	group.Wait() // answers carry the errors
	return out
}

// try runs one trial. A panic is a bug of ours in one candidate: it costs that one
// alone.
func (in *Inputs) try(parent context.Context, t *Trial) (out TrialResult) {
	defer func() {
		if x := recover(); x != nil {
			out = TrialResult{Err: &PanicError{x, debug.Stack()}}
		}
	}()
	ctx, stop := context.WithCancel(parent)
	defer stop()
	if t.Timeout > 0 {
		ctx, stop = context.WithTimeout(ctx, t.Timeout)
		defer stop()
	}
	w := RunOptions{Requests: t.Requests, Capture: t.Capture, Load: t.Load}
	w.Observers.Progress = func(nowMs float64, finished int64) {
		out.Simulated = finished
		if t.ShouldStop != nil && !out.Stopped && t.ShouldStop(nowMs) {
			out.Stopped = true
			stop()
		}
	}
	o, err := Execute(ctx, in, t.Run, w)
	switch {
	case err == nil:
		out.Outcome, out.Stopped = o, false
		c := &o.Summary.Coverage.Outcomes
		out.Simulated = o.Summary.Requests - c.Unfinished
	case out.Stopped:
	case errors.Is(err, context.DeadlineExceeded):
		out.TimedOut, out.Err = true, fmt.Errorf("did not end within %s", t.Timeout)
	default:
		out.Err = err
	}
	return out
}

// prefix is the first so many requests that a load releases. Of sessions and plays
// it holds the turns whose predecessors ended in time.
type prefix struct {
	workload.Source
	left int
}

func (p *prefix) NextMs() float64 {
	if p.left <= 0 {
		return math.Inf(1)
	}
	return p.Source.NextMs()
}

func (p *prefix) Next(nowMs float64) *workload.Request {
	if p.left <= 0 {
		return nil
	}
	r := p.Source.Next(nowMs)
	if r != nil {
		p.left--
	}
	return r
}

func (p *prefix) Drained() bool { return p.left <= 0 || p.Source.Drained() }

// Load is how much a run's load asks for.
type Load struct {
	Requests, OutputTokens int64
	InFlight               int // sessions of a closed loop, plays with lanes; else 0
}

// LoadOf measures the load of a run.
func (in *Inputs) LoadOf(run *scenario.Run) (Load, error) {
	if s, ok := run.Synthetic(); ok {
		l := Load{Requests: s.Total(), OutputTokens: s.Total() * int64(s.OutputTokens)}
		if s.Control == workload.Closed {
			l.InFlight = s.Concurrency
		}
		return l, nil
	}
	t, err := in.Trace(run.Workload.Trace)
	if err != nil {
		return Load{}, &InputError{err}
	}
	l := Load{Requests: int64(t.Requests()), OutputTokens: t.OutputTokens()}
	switch d := run.Workload.Trace.Drive; {
	case d.ClosedLoop:
		l.InFlight = d.Concurrency
	case d.Laned:
		l.InFlight = d.Lanes
	}
	return l, nil
}

// Resolve answers questions about profiles and hardware tables outside a run.
func (in *Inputs) Resolve(q scenario.TimingQuery) (scenario.TimingAnswer, error) {
	return (&resolver{in: in}).answer(q)
}

// Experts reports whether a model has experts: only such a model minds how its
// experts are spread.
func (in *Inputs) Experts(q scenario.AICRequest) (bool, error) {
	q.TP, q.PP, q.AttentionDP, q.MoETP, q.MoEEP, q.Mode = 1, 1, 1, 1, 1, "SOL"
	if _, err := openModel(&q); err != nil {
		return false, err
	}
	q.AttentionDP = 2
	_, err := openModel(&q)
	if err != nil && !errors.Is(err, aic.ErrConfig) {
		return false, err
	}
	return err != nil, nil
}
