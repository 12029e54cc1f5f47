package workload

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// Listed is load whose every request is given: lengths, and in open loop the times at
// which requests arrive. Prompts share nothing.
type Listed struct {
	Input, Output []int32   // [request], tokens
	ArrivalMs     []float64 // [request], ascending; nil: a closed loop
	Concurrency   int       // of the closed loop
}

// NewSource returns the load of one run on engines with the given block size.
func (l *Listed) NewSource(blockSize int) (Source, error) {
	if err := l.validate(blockSize); err != nil {
		return nil, err
	}
	closed := l.Concurrency
	if l.ArrivalMs != nil {
		closed = 0
	}
	return NewQueue(&listedFeed{load: l}, closed), nil
}

func (l *Listed) validate(blockSize int) error {
	switch {
	case len(l.Input) == 0 || len(l.Input) != len(l.Output):
		return errors.New("a list of requests needs as many input as output lengths, and one at least")
	case l.ArrivalMs == nil && l.Concurrency < 1:
		return errors.New("a closed loop needs a concurrency of at least 1")
	case l.ArrivalMs != nil && len(l.ArrivalMs) != len(l.Input):
		return errors.New("a list of requests needs as many arrival times as lengths")
	}
	last := 0.0
	for i := range l.Input {
		if l.Input[i] < 1 || l.Output[i] < 1 {
			return fmt.Errorf("request %d has %d input and %d output tokens, must be at least 1", i, l.Input[i], l.Output[i])
		}
		if err := CheckOwnBlocks(int64(l.Input[i])+int64(l.Output[i]), blockSize); err != nil {
			return err
		}
		if l.ArrivalMs == nil {
			continue
		}
		if at := l.ArrivalMs[i]; !(at >= last) || math.IsInf(at, 0) {
			return fmt.Errorf("request %d arrives at %v ms, must be finite and not before the one before it", i, at)
		}
		last = l.ArrivalMs[i]
	}
	return nil
}

// listedFeed makes one session of one turn for each request.
type listedFeed struct {
	load *Listed
	made int
}

var _ Feed = (*listedFeed)(nil)

func (f *listedFeed) Next() (ref SessionRef, startMs float64, ok bool) {
	if f.made == len(f.load.Input) {
		return SessionRef{}, 0, false
	}
	ref = SessionRef{Index: int64(f.made), Tag: -1}
	if f.load.ArrivalMs != nil {
		startMs = f.load.ArrivalMs[f.made]
	}
	f.made++
	return ref, startMs, true
}

func (f *listedFeed) Turns(SessionRef) int32                  { return 1 }
func (f *listedFeed) Total() int64                            { return int64(len(f.load.Input)) }
func (f *listedFeed) DelayMs(SessionRef, int32) float64       { return 0 }
func (f *listedFeed) Names(SessionRef, int32) Names           { return Names{} }
func (f *listedFeed) Ended(SessionRef, int32, int32, Outcome) {}

func (f *listedFeed) Fill(r *Request, ref SessionRef, _ int32) {
	r.Ordinal = ref.Index
	r.PromptTokens, r.OutputTokens = f.load.Input[ref.Index], f.load.Output[ref.Index]
	r.Prompt = kv.Prompt{Ratio: 1, Base: kv.PrivateBase(ref.Index)}
}
