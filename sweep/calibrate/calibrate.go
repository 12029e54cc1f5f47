// Package calibrate brings a timing nearer to measured benchmark runs
// (spec calibration 3).
//
// The order of use is
//
//	runs, err := ReadRuns(path, text, options)      each file of measurements
//	c := Calibration{Deployments: ..., Runs: runs, Simulate: ...}
//	result, err := c.Fit(ctx)                       before, fit, leave-one-run-out
//	result.Checks                                   what speaks against the measurements
//
// Simulations are the caller's: Simulate is handed a batch of cases and answers them in
// order. Times are ms, lengths tokens. A fit draws nothing; lengths that a client drew
// from a range are drawn here from a fixed seed.
package calibrate

import (
	"context"
	"math"
	"slices"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Request is one request of a run, measured or simulated.
type Request struct {
	StartMs   float64 // from any origin
	TTFTMs    float64
	LatencyMs float64
	Input     int32
	Output    int32
}

// Figures are what is compared; NaN is unknown.
type Figures struct {
	TTFTMs, TPOTMs float64 // means over requests
	OutputTokS     float64
}

// Load is the load of a run: in order of dispatch.
type Load struct {
	Input, Output []int32   // [request]
	StartMs       []float64 // [request], ascending from 0; nil: a closed loop
	Concurrency   int       // 0: open loop
}

// Run is one measured run.
type Run struct {
	Name           string // file, and line where one file holds several
	Format         string
	TensorParallel int // 0: that of the deployment
	Load           Load
	Requests       []Request // nil: only the aggregates are known
	Measured       Figures
	MedianITLMs    float64 // gaps between chunks; 0 unknown
	Failed, Sent   int
	ServerTokens   int64 // output tokens as the server counts them; 0 unknown
	ClientTokens   int64
	PrefixHits     float64 // share of prompt tokens found in the cache; 0 unknown or none
	Preemptions    float64 // NaN unknown
	Notices        []string
}

// Case is one simulation that a calibration asks for.
type Case struct {
	Deployment scenario.Run // with its corrections
	Load       *Load
}

// Outcome is what a simulation came to.
type Outcome struct {
	Requests    []Request
	Preemptions int64
	KVTokens    int64 // of a rank
}

// Simulate answers cases in their order.
type Simulate func(ctx context.Context, cases []Case) ([]Outcome, error)

// summarize is the figures of the requests, in order of dispatch. With steady above 0,
// the concurrency of a closed loop, the start and the end are left out: requests that
// were dispatched before the steady-th one ended, or ended after the last dispatch.
func summarize(requests []Request, steady int) Figures {
	kept := requests
	if steady > 0 && len(requests) > steady {
		ends := make([]float64, len(requests))
		last := math.Inf(-1)
		for i, r := range requests {
			ends[i] = r.StartMs + r.LatencyMs
			last = max(last, r.StartMs)
		}
		slices.Sort(ends)
		from := ends[steady-1]
		kept = nil
		for _, r := range requests {
			if r.StartMs >= from && r.StartMs+r.LatencyMs <= last {
				kept = append(kept, r)
			}
		}
		if len(kept) == 0 {
			kept = requests
		}
	}
	var ttft, tpot, tokens float64
	var decoded int
	first, last := math.Inf(1), math.Inf(-1)
	for _, r := range kept {
		ttft += r.TTFTMs
		tokens += float64(r.Output)
		if r.Output >= 2 {
			tpot += (r.LatencyMs - r.TTFTMs) / float64(r.Output-1)
			decoded++
		}
		first, last = min(first, r.StartMs), max(last, r.StartMs+r.LatencyMs)
	}
	return Figures{ttft / float64(len(kept)), tpot / float64(decoded), tokens / (last - first) * 1000}
}

// Parameters of the correction, in the order in which they are fitted.
const (
	prefillScale = iota
	decodeScale
	clientMs
	passMs
	sequenceMs
	parameterCount
)

type vector [parameterCount]float64

// Prior knowledge of the parameters and the steps of their differences (spec
// calibration 3.3).
var (
	parameterNames = [parameterCount]string{"prefill_scale", "decode_scale", "client_ms", "pass_ms", "sequence_ms"}
	priorMean      = vector{1, 1, 0, 0, 0}
	priorSD        = vector{0.35, 0.35, 15, 1, 0.02}
	lowest         = vector{0.3, 0.3, 0, 0, 0}
	highest        = vector{3, 3, math.Inf(1), math.Inf(1), math.Inf(1)}
	steps          = vector{0.08, 0.08, 0, 0.3, 0.01}
)

// corrections of a simulation; the client's time is added afterwards.
func (x vector) corrections() scenario.Corrections {
	var c scenario.Corrections
	c.PrefillScale, c.DecodeScale, c.PassMs, c.SequenceMs = x[prefillScale], x[decodeScale], x[passMs], x[sequenceMs]
	return c
}
