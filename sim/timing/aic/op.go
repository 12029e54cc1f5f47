package aic

import (
	"errors"
	"math"
)

// step is one question to an op: a batch, its sequence length and prefix, and the
// tokens x that go through token-wise ops. The op records what went wrong and how
// far outside the measured points it had to look.
type step struct {
	batch, seq, prefix, x int
	reach                 reach
	estimated             bool // HYBRID put an estimate for missing data
	err                   error
}

// fail records the first error and returns 0.
func (st *step) fail(err error) float64 {
	if st.err == nil {
		st.err = err
	}
	return 0
}

// op is one kernel or group of a pass. Each method returns ms of one call.
type op interface {
	silicon(*step) float64   // from the measured table
	sol(*step) float64       // speed of light
	empirical(*step) float64 // speed of light over a borrowed utilisation
	weights() float64        // bytes of weights of one call site (spec aic-perfmodel 9.2)
	usesSeq() bool           // whether the value depends on more than x
}

// Mode is how an op's latency comes about (spec aic-perfmodel 11).
type Mode uint8

const (
	Silicon   Mode = iota // measured tables, missing data is an error
	Hybrid                // measured tables, missing data is estimated
	Empirical             // speed of light over measured utilisation
	SOL                   // speed of light
)

var modeNames = []string{"SILICON", "HYBRID", "EMPIRICAL", "SOL"}

// ParseMode reads a database mode; empty means SILICON.
func ParseMode(s string) (Mode, error) {
	for i, n := range modeNames {
		if s == n || s == "" {
			return Mode(i), nil
		}
	}
	return 0, classed(ErrConfig, "database mode %q is unknown; known: SILICON, HYBRID, EMPIRICAL, SOL", s)
}

func (m Mode) String() string { return modeNames[m] }

// value prices an op in a mode.
func (m Mode) value(o op, st *step) float64 {
	if group, ok := o.(grouper); ok {
		return group.inMode(m, st)
	}
	switch m {
	case SOL:
		return o.sol(st)
	case Empirical:
		return o.empirical(st)
	}
	v := o.silicon(st)
	if m == Hybrid && st.err != nil && errors.Is(st.err, ErrMissing) {
		st.err, st.estimated = nil, true
		v = o.empirical(st)
	}
	return v
}

// grouper is an op made of others.
type grouper interface {
	inMode(Mode, *step) float64
}

// memOp moves bytes per token through memory: embeddings, norms, activations.
type memOp struct {
	sys      *System
	perToken float64 // bytes
	table    float64 // bytes of weights
}

func (o *memOp) silicon(st *step) float64   { return o.sys.memMs(o.perToken * float64(st.x)) }
func (o *memOp) empirical(st *step) float64 { return o.silicon(st) }
func (o *memOp) sol(st *step) float64       { return o.sys.memSOLMs(o.perToken * float64(st.x)) }
func (o *memOp) weights() float64           { return o.table }
func (o *memOp) usesSeq() bool              { return false }

// embedding reads one row of h bfloat16 values per token; vocab rows are stored.
func embedding(sys *System, vocab, h int) op {
	return &memOp{sys, float64(h * 2), float64(vocab) * float64(h) * 2}
}

// elementWise reads din and writes dout values of 2 bytes per token.
func elementWise(sys *System, din, dout int) op {
	return &memOp{sys, float64(2*din + 2*dout), 0}
}

// p2pOp hands activations to the next pipeline stage.
type p2pOp struct {
	sys   *System
	h, pp int
}

func (o *p2pOp) silicon(st *step) float64 {
	if o.pp <= 1 {
		return 0
	}
	return (float64(st.x*o.h*2)/o.sys.interBW + o.sys.p2pLatency) * 1000
}
func (o *p2pOp) empirical(st *step) float64 { return o.silicon(st) }
func (o *p2pOp) sol(st *step) float64 {
	if o.pp <= 1 {
		return 0
	}
	return float64(st.x*o.h*2) / o.sys.interBW * 1000
}
func (o *p2pOp) weights() float64 { return 0 }
func (o *p2pOp) usesSeq() bool    { return false }

// overlapOp runs two groups side by side and takes the longer.
type overlapOp struct{ a, b []op }

func (o *overlapOp) inMode(m Mode, st *step) float64 {
	return math.Max(sumOps(m, o.a, st), sumOps(m, o.b, st))
}
func (o *overlapOp) silicon(st *step) float64   { return o.inMode(Silicon, st) }
func (o *overlapOp) empirical(st *step) float64 { return o.inMode(Empirical, st) }
func (o *overlapOp) sol(st *step) float64       { return o.inMode(SOL, st) }
func (o *overlapOp) weights() float64           { return sumWeights(o.a) + sumWeights(o.b) }
func (o *overlapOp) usesSeq() bool              { return false }

// fallbackOp takes the primary, and the sum of the list when the primary's data is
// missing. The primary of a HYBRID model is not estimated (spec aic-perfmodel 5.8).
type fallbackOp struct {
	primary op
	list    []op
}

func (o *fallbackOp) inMode(m Mode, st *step) float64 {
	first := m
	if m == Hybrid {
		first = Silicon
	}
	before := *st
	v := first.value(o.primary, st)
	if st.err == nil || before.err != nil || !errors.Is(st.err, ErrMissing) {
		return v
	}
	*st = before
	return sumOps(m, o.list, st)
}
func (o *fallbackOp) silicon(st *step) float64   { return o.inMode(Silicon, st) }
func (o *fallbackOp) empirical(st *step) float64 { return o.inMode(Empirical, st) }
func (o *fallbackOp) sol(st *step) float64       { return o.inMode(SOL, st) }
func (o *fallbackOp) weights() float64 {
	if w := o.primary.weights(); w > 0 {
		return w
	}
	return sumWeights(o.list)
}
func (o *fallbackOp) usesSeq() bool { return true }

func sumOps(m Mode, ops []op, st *step) float64 {
	total := 0.0
	for _, o := range ops {
		total += m.value(o, st)
	}
	return total
}

func sumWeights(ops []op) float64 {
	total := 0.0
	for _, o := range ops {
		total += o.weights()
	}
	return total
}
