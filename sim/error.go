package sim

import (
	"errors"
	"fmt"

	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Class groups run errors the way the reference prefixes them.
type Class string

const (
	InvalidSpec       Class = "invalid replay spec"
	EngineFault       Class = "engine error"
	PlacementFault    Class = "placement policy error"
	ScalingFault      Class = "scaling policy error"
	TelemetryFault    Class = "telemetry observer error"
	InvariantViolated Class = "replay invariant violated"
)

// Error is why a run could not start or go on.
type Error struct {
	Class Class
	Err   error
}

func (e *Error) Error() string { return string(e.Class) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ErrStuck is wrapped by the error of a run that has work left and no future
// instant.
var ErrStuck = errors.New("no progress is possible")

func policyError(err error) error { return &Error{PlacementFault, err} }

// stuckError says that work remains and nothing can happen any more, naming the
// request at the front and where it waits (spec replay-runtime 7).
func (s *Sim) stuckError() error {
	n := s.slots.live
	what := "reached a dead end with"
	if s.engineOwnsWork() {
		what = "detected an effect-free zero-duration pass with"
	}
	mode := "offline replay"
	if s.prefill != nil {
		mode = "offline disagg replay"
		if what[0] == 'd' {
			what = "encountered an effect-free zero-duration pass with"
		}
	}
	text := fmt.Sprintf("%s %s %d in-flight requests remaining", mode, what, n)
	if who := s.blockedRequest(); who != "" {
		text += "; " + who
	}
	return &Error{InvariantViolated, stuck{text}}
}

type stuck struct{ text string }

func (e stuck) Error() string { return e.text }
func (e stuck) Unwrap() error { return ErrStuck }

func (s *Sim) engineOwnsWork() bool {
	for _, p := range s.pools {
		for _, w := range p.present {
			if w.runnable() {
				return true
			}
		}
	}
	return false
}

// blockedRequest describes the oldest request that is still in the cluster.
func (s *Sim) blockedRequest() string {
	var first *request
	for i := range s.slots.Len() {
		q := s.slots.At(i)
		if q.src != nil && (q.rec.Status == metrics.Unfinished) && (first == nil || q.rec.Ordinal < first.rec.Ordinal) {
			first = q
		}
	}
	if first == nil {
		return ""
	}
	cfg := &s.decode.cfg.Rank
	where := "queued in the router"
	p, w, r := s.decode, first.worker, first.rank
	if w < 0 && s.prefill != nil && first.handoff.prefillWorker >= 0 {
		p, w, r = s.prefill, first.handoff.prefillWorker, first.handoff.prefillRank
		cfg = &p.cfg.Rank
	}
	if w >= 0 {
		where = fmt.Sprintf("on %s worker %d rank %d", p.kind, w, r)
	}
	return fmt.Sprintf("request %d (%d prompt tokens, %d output tokens, %d emitted) waits %s, whose KV pool has %d blocks of %d tokens and whose pass takes at most %s tokens",
		first.rec.Ordinal, first.rec.Input, first.rec.Requested, first.rec.Output, where,
		cfg.Blocks, cfg.BlockSize, limitText(cfg.MaxNumBatchedTokens))
}

func limitText(n int) string {
	if n == 0 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}
