package workload

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/rng"
)

// Control says what decides when synthetic requests come.
type Control uint8

const (
	Closed  Control = iota // a fixed number in flight
	Poisson                // a rate with exponential gaps
	Fixed                  // a constant gap
)

// ChooseControl reads the three load controls of a document, of which exactly one
// must be given (spec workload 1.1).
func ChooseControl(concurrency *int, ratePerS, intervalMs *float64) (Control, error) {
	given, control := 0, Closed
	if concurrency != nil {
		given++
	}
	if ratePerS != nil {
		given, control = given+1, Poisson
	}
	if intervalMs != nil {
		given, control = given+1, Fixed
	}
	if given != 1 {
		return 0, errors.New("synthetic replay requires exactly one of replay_concurrency, request_rate, or arrival_interval_ms")
	}
	return control, nil
}

// Synthetic is generated load, complete (spec workload 1).
type Synthetic struct {
	InputTokens  int
	OutputTokens int
	Requests     int // sessions, if TurnsPerSession > 1
	Control      Control
	Concurrency  int     // Closed
	RatePerS     float64 // Poisson: requests, or sessions, per second
	IntervalMs   float64 // Fixed; 0: all at once
	ArrivalSeed  uint64  // Poisson

	TurnsPerSession   int
	InterTurnDelayMs  float64 // after the completion of the turn before
	SharedPrefixRatio float64
	PrefixGroups      int
	GroupSeed         uint64  // of the draw of a session's group
	Speedup           float64 // open loop: divides arrivals and delays

	// Cumulative makes every prompt the whole session so far, with what its turns
	// emitted; InputTokens is what a turn adds. Otherwise turns stand alone.
	Cumulative bool // spec workload 3.9
}

// DefaultSynthetic returns the defaults; sizes and load control are left open.
func DefaultSynthetic() Synthetic {
	return Synthetic{ArrivalSeed: 42, TurnsPerSession: 1, GroupSeed: 42, Speedup: 1}
}

// Simple reports whether no key of workload mode is used: then requests stand
// alone, all their blocks are private and the report shows no sessions.
func (s *Synthetic) Simple() bool {
	return s.TurnsPerSession <= 1 && s.SharedPrefixRatio <= 0 && s.PrefixGroups <= 0 && s.InterTurnDelayMs <= 0
}

// Drawn reports whether a seed decides anything.
func (s *Synthetic) Drawn() bool { return s.Control == Poisson }

// Total is the number of requests.
func (s *Synthetic) Total() int64 { return int64(s.Requests) * int64(s.TurnsPerSession) }

// Validate returns every fault, in the order in which the reference looks.
func (s *Synthetic) Validate() error {
	var faults []error
	check := func(good bool, format string, args ...any) {
		if !good {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	check(s.InputTokens >= 1, "input_tokens must be at least 1")
	check(s.OutputTokens >= 1, "output_tokens must be at least 1")
	check(s.Requests >= 1, "request_count must be at least 1")
	check(s.TurnsPerSession >= 1, "turns_per_session must be at least 1")
	check(finite(s.InterTurnDelayMs) && s.InterTurnDelayMs >= 0, "inter_turn_delay_ms must be a finite non-negative number")
	check(s.SharedPrefixRatio >= 0 && s.SharedPrefixRatio <= 1, "shared_prefix_ratio must be between 0.0 and 1.0, got %s", FormatFloat(s.SharedPrefixRatio))
	check(s.PrefixGroups >= 0, "num_prefix_groups must be at least 0, got %d", s.PrefixGroups)
	switch s.Control {
	case Closed:
		check(s.Concurrency >= 1, "replay_concurrency must be at least 1")
	case Poisson:
		check(finite(s.RatePerS) && s.RatePerS > 0, "request_rate must be a finite positive number, got %s", FormatFloat(s.RatePerS))
	case Fixed:
		check(finite(s.IntervalMs) && s.IntervalMs >= 0, "arrival_interval_ms must be a finite non-negative number, got %s", FormatFloat(s.IntervalMs))
	}
	if s.Control != Closed && !(finite(s.Speedup) && s.Speedup > 0) {
		name := "ratio"
		if s.Simple() {
			name = "arrival_speedup_ratio"
		}
		check(false, "%s must be a finite positive number, got %s", name, FormatFloat(s.Speedup))
	}
	check(s.InputTokens <= MaxTokens, "input_tokens must be at most %d", MaxTokens)
	check(s.OutputTokens <= MaxTokens, "output_tokens must be at most %d", MaxTokens)
	check(s.Requests <= maxRequests/max(s.TurnsPerSession, 1),
		"request_count times turns_per_session must be at most %d", int64(maxRequests))
	check(s.PrefixGroups <= math.MaxInt32, "num_prefix_groups must be at most %d", math.MaxInt32)
	if each := s.InputTokens + s.OutputTokens; s.Cumulative && each > 0 {
		check(s.TurnsPerSession <= MaxTokens/each, "turns_per_session %d of %d tokens each make a session of more than %d tokens", s.TurnsPerSession, each, MaxTokens)
	}
	if len(faults) == 0 && s.Control != Closed {
		name, v, gapMs := "arrival_interval_ms", s.IntervalMs, s.IntervalMs
		if s.Control == Poisson {
			name, v, gapMs = "request_rate", s.RatePerS, maxGap*1000/s.RatePerS
		}
		check(finite(gapMs*float64(s.Requests)/s.Speedup), "%s %g puts arrivals beyond the range of the clock", name, v)
	}
	return errors.Join(faults...)
}

// maxGap bounds a drawn gap, as a multiple of the mean one: -ln of the smallest draw.
const maxGap = 709

// Limits of what a request's prompt and a run can number (see kv.PrivateBase).
const (
	MaxTokens    = math.MaxInt32
	maxRequests  = 1 << 36
	MaxOwnBlocks = 1 << 24
)

// NewSource returns the load of one run on engines with the given block size (the
// prefill engine's in a disaggregated run).
func (s Synthetic) NewSource(blockSize int) (Source, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	longest := int64(s.InputTokens) + int64(s.OutputTokens)
	if s.Cumulative {
		longest *= int64(s.TurnsPerSession)
	}
	if err := CheckOwnBlocks(longest, blockSize); err != nil {
		return nil, err
	}
	if int64(s.PrefixGroups)*int64((s.InputTokens+blockSize-1)/blockSize) > math.MaxUint32 {
		return nil, fmt.Errorf("num_prefix_groups %d of up to %d tokens each is more than can be numbered", s.PrefixGroups, s.InputTokens)
	}
	f := s.feed(blockSize)
	closed := 0
	if s.Control == Closed {
		closed = s.Concurrency
	}
	if s.Simple() {
		return NewQueue(f, closed), nil
	}
	return NewSessions(f, closed), nil
}

// Sessions returns the sessions of valid load from the first one, and the number of
// leading blocks of blockSize tokens that the sessions of one group (their Tag) share.
func (s Synthetic) Sessions(blockSize int) (sessions Feed, sharedBlocks int) {
	f := s.feed(blockSize)
	return f, f.shared
}

// feed returns the sessions of valid load from the first one.
func (s Synthetic) feed(blockSize int) *syntheticFeed {
	f := &syntheticFeed{spec: s, arrivals: newSchedule(&s), named: !s.Simple()}
	if s.Control == Closed {
		f.spec.Speedup = 1
	}
	if s.Cumulative {
		f.grown = make(map[int64]grownSession)
	}
	if s.PrefixGroups > 0 && s.SharedPrefixRatio > 0 {
		n := (s.InputTokens + blockSize - 1) / blockSize
		f.shared = min(n, int(math.Round(float64(n)*s.SharedPrefixRatio)))
		f.groupBlocks = min(f.shared, s.InputTokens/blockSize)
		f.groups = rng.NewChaCha(s.GroupSeed)
		f.nodes = make(map[int32][]uint32)
	}
	return f
}

// CheckOwnBlocks refuses a request or session whose private blocks could not be
// numbered.
func CheckOwnBlocks(tokens int64, blockSize int) error {
	if blockSize < 1 {
		return fmt.Errorf("block_size must be at least 1, got %d", blockSize)
	}
	if tokens/int64(blockSize) >= MaxOwnBlocks {
		return fmt.Errorf("a prompt and output of %d tokens at block_size %d is more than %d blocks", tokens, blockSize, MaxOwnBlocks)
	}
	return nil
}

// syntheticFeed makes sessions one after the other.
type syntheticFeed struct {
	spec        Synthetic
	arrivals    schedule
	made        int64
	named       bool // workload mode: the report shows sessions
	groups      rng.ChaCha
	shared      int                // leading blocks that a group shares
	groupBlocks int                // those of them that are full
	nodes       map[int32][]uint32 // [group] -> [block], made at first use

	grown map[int64]grownSession // cumulative only: by session, while turns are left
}

// grownSession is a session whose prompts grow: one token list, of which the first
// turn's group prefix is shared and the rest private.
type grownSession struct {
	tokens int32 // prompts and outputs so far
	owner  int64 // of the private blocks
}

func (f *syntheticFeed) Next() (ref SessionRef, startMs float64, ok bool) {
	if f.made == int64(f.spec.Requests) {
		return SessionRef{}, 0, false
	}
	ref = SessionRef{Index: f.made, Tag: -1}
	f.made++
	if f.nodes != nil {
		ref.Tag = int32(f.groups.IntN(uint64(f.spec.PrefixGroups)))
	}
	if f.spec.Control == Closed {
		return ref, 0, true
	}
	return ref, f.arrivals.next() / f.spec.Speedup, true
}

func (f *syntheticFeed) Turns(SessionRef) int32 { return int32(f.spec.TurnsPerSession) }

func (f *syntheticFeed) Total() int64 {
	if f.spec.Simple() {
		return int64(f.spec.Requests)
	}
	return int64(f.spec.Requests) * int64(f.spec.TurnsPerSession)
}

func (f *syntheticFeed) DelayMs(SessionRef, int32) float64 {
	return f.spec.InterTurnDelayMs / f.spec.Speedup
}

func (f *syntheticFeed) Fill(r *Request, ref SessionRef, turn int32) {
	r.Ordinal = ref.Index*int64(f.spec.TurnsPerSession) + int64(turn)
	r.PromptTokens = int32(f.spec.InputTokens)
	r.OutputTokens = int32(f.spec.OutputTokens)
	owner := r.Ordinal
	if f.grown != nil {
		s, ok := f.grown[ref.Index]
		if !ok {
			s.owner = owner
		}
		s.tokens += r.PromptTokens
		f.grown[ref.Index] = s
		r.PromptTokens, owner = s.tokens, s.owner
	}
	r.Prompt = kv.Prompt{Ratio: 1, Base: kv.PrivateBase(owner)}
	if ref.Tag >= 0 && f.groupBlocks > 0 {
		r.Prompt.Nodes = f.group(ref.Tag)
		r.Prompt.Shared = int32(f.groupBlocks)
	}
}

func (f *syntheticFeed) Names(ref SessionRef, turn int32) Names {
	if !f.named {
		return Names{}
	}
	return Names{Session: "session_" + strconv.FormatInt(ref.Index, 10), Turn: turn, HasSession: true}
}

// group returns the nodes of a group's prefix. Ids are dense over all groups.
func (f *syntheticFeed) group(g int32) []uint32 {
	nodes := f.nodes[g]
	if nodes == nil {
		nodes = make([]uint32, f.groupBlocks)
		for b := range nodes {
			nodes[b] = uint32(int(g)*f.groupBlocks + b)
		}
		f.nodes[g] = nodes
	}
	return nodes
}

// ended appends what a turn emitted to its session; nothing of a rejected turn, whose
// generated blocks must not be found again: the session goes on under another owner.
func (f *syntheticFeed) Ended(ref SessionRef, turn, emitted int32, how Outcome) {
	if f.grown == nil {
		return
	}
	next := turn + 1
	if how == Failed || next == f.Turns(ref) {
		delete(f.grown, ref.Index)
		return
	}
	s := f.grown[ref.Index]
	switch {
	case how != Rejected:
		s.tokens += emitted
	case emitted > 0:
		s.owner = ref.Index*int64(f.spec.TurnsPerSession) + int64(next)
	}
	f.grown[ref.Index] = s
}

// FormatFloat writes v as the reference prints a float: shortest digits, no exponent.
func FormatFloat(v float64) string {
	switch s := strconv.FormatFloat(v, 'f', -1, 64); s {
	case "+Inf":
		return "inf"
	case "-Inf":
		return "-inf"
	default:
		return s
	}
}
