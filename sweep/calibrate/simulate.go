package calibrate

import (
	"context"

	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sweep"
)

// Simulator answers cases on jobs goroutines, with at most memory bytes together (0: no
// bound). done, which may be nil, is told after every batch how many cases it answered.
func Simulator(in *sweep.Inputs, jobs int, memory int64, done func(cases int)) Simulate {
	return func(ctx context.Context, cases []Case) ([]Outcome, error) {
		trials := make([]sweep.Trial, len(cases))
		for i := range cases {
			trials[i] = sweep.Trial{Run: &cases[i].Deployment, Capture: true, Load: cases[i].Load.source}
		}
		answers := in.Try(ctx, trials, jobs, memory)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out := make([]Outcome, len(cases))
		for i := range answers {
			if err := answers[i].Err; err != nil {
				return nil, err
			}
			o := answers[i].Outcome
			out[i] = Outcome{Requests: completed(o.Result.Collector.Records()), Preemptions: o.Summary.Coverage.Outcomes.Preempted,
				KVTokens: int64(o.Blocks.Decode) * int64(cases[i].Deployment.Decode.Rank.BlockSize)}
		}
		if done != nil {
			done(len(cases))
		}
		return out, nil
	}
}

// source opens the load.
func (l *Load) source(blockSize int) (workload.Source, error) {
	return (&workload.Listed{Input: l.Input, Output: l.Output, ArrivalMs: l.StartMs, Concurrency: l.Concurrency}).NewSource(blockSize)
}

// completed is the completed requests of a simulation in the order of their arrival.
func completed(records []metrics.Record) []Request {
	out := make([]Request, 0, len(records))
	for i := range records {
		if r := &records[i]; r.Status == metrics.Completed && r.Output >= 1 {
			out = append(out, Request{r.ArrivalMs, r.TTFTMs(), r.E2EMs(), r.Input, r.Output})
		}
	}
	return out
}
