package trace

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/sim/workload"
)

// row is one decoded row of the mooncake family. Slices live until the next row.
type row struct {
	has            field
	ids            []uint64 // one per trace block
	input, output  uint64
	timestampMs    float64
	delayMs        float64
	session        string
	requestID      string
	outputIDs      []uint32
	priority       int32
	strictPriority uint32
	policyClass    string
}

// field is a set of members present and not null.
type field uint32

const (
	hasIDs field = 1 << iota
	hasInput
	hasOutput
	hasTimestamp
	hasDelay
	hasSession
	hasRequestID
	hasOutputIDs
	hasPriority
	hasStrictPriority
	hasPolicyClass
	hasPlay
	hasOrdinal
	hasModel
	hasNotBefore
	hasAPITime
	hasDependencies
	hasWaitFor
	hasDelayMs
	hasToolWait
)

// rowField names the members that the formats of the mooncake family share.
func rowField(key []byte) field {
	switch string(key) {
	case "hash_ids":
		return hasIDs
	case "input_length", "input_tokens":
		return hasInput
	case "output_length", "output_tokens":
		return hasOutput
	case "timestamp", "created_time":
		return hasTimestamp
	case "delay", "delay_ms":
		return hasDelay
	case "session_id":
		return hasSession
	case "request_id":
		return hasRequestID
	case "output_token_ids":
		return hasOutputIDs
	case "priority":
		return hasPriority
	case "strict_priority":
		return hasStrictPriority
	case "policy_class":
		return hasPolicyClass
	}
	return 0
}

// decode reads a mooncake row.
func (r *row) decode(s *scanner, text []byte) error {
	r.reset()
	var seen field
	s.reset(text)
	for s.object(); s.member(); {
		f := rowField(s.key)
		if f == 0 {
			s.ignore()
			continue
		}
		if !s.once(&seen, f) || s.null() {
			continue
		}
		r.has |= f
		r.value(s, f)
	}
	return s.end()
}

func (r *row) reset() {
	*r = row{ids: r.ids[:0], outputIDs: r.outputIDs[:0]}
}

// once refuses a member, or its alias, that comes twice in one object.
func (s *scanner) once(seen *field, f field) bool {
	if *seen&f != 0 {
		s.fail("duplicate member %q", s.key)
		return false
	}
	*seen |= f
	return true
}

// value reads the value of one shared member.
func (r *row) value(s *scanner, f field) {
	switch f {
	case hasIDs:
		for s.array(); s.element(); {
			r.ids = append(r.ids, s.uint(math.MaxUint64))
		}
	case hasInput:
		r.input = s.uint(math.MaxUint64)
	case hasOutput:
		r.output = s.uint(math.MaxUint64)
	case hasTimestamp:
		r.timestampMs = s.float()
	case hasDelay:
		r.delayMs = s.float()
	case hasSession:
		r.session = string(s.str())
	case hasRequestID:
		r.requestID = string(s.str())
	case hasOutputIDs:
		for s.array(); s.element(); {
			r.outputIDs = append(r.outputIDs, uint32(s.uint(math.MaxUint32)))
		}
	case hasPriority:
		r.priority = s.int32()
	case hasStrictPriority:
		r.strictPriority = uint32(s.uint(math.MaxUint32))
	case hasPolicyClass:
		r.policyClass = string(s.str())
	}
}

// checkLengths makes the checks that need one row only and fills in the length of a
// row that has none.
func (r *row) checkLengths(l *lines, blockSize int) error {
	if r.has&hasIDs == 0 {
		return l.fail(nil, "trace line %d is missing hash_ids", l.n)
	}
	capacity := uint64(len(r.ids)) * uint64(blockSize)
	if r.has&hasInput == 0 {
		r.input = capacity
	}
	if r.input > capacity {
		return l.fail(nil, "trace line %d input_length %d exceeds hash_ids capacity %d", l.n, r.input, capacity)
	}
	if r.has&hasOutput == 0 {
		return l.fail(nil, "trace line %d is missing output_length", l.n)
	}
	return r.checkOutput(l.spot(), l.n)
}

// checkOutput compares the output length with the authored tokens and both lengths
// with what a request can number. n is the line number that the message shows.
func (r *row) checkOutput(at spot, n int) error {
	if got := uint64(len(r.outputIDs)); r.has&hasOutputIDs != 0 && got != r.output {
		return at.fail(nil, "trace line %d output_length %d does not match output_token_ids length %d", n, r.output, got)
	}
	if longest := max(r.input, r.output); longest > workload.MaxTokens {
		return at.fail(nil, "trace line %d has a length of %d tokens; at most %d can be replayed", n, longest, workload.MaxTokens)
	}
	return nil
}

// extra returns the rare fields of a row, empty if it has none.
func (r *row) extra(keepOutput bool) turnExtra {
	x := turnExtra{priority: r.priority, strictPriority: r.strictPriority, policyClass: r.policyClass}
	if keepOutput && len(r.outputIDs) > 0 {
		x.outputIDs = append([]uint32(nil), r.outputIDs...)
	}
	return x
}

// builder gathers the turns of a trace in file order.
type builder struct {
	t         *Trace
	chain     *interner
	extraOf   map[extraKey]int32
	sessionOf []int32          // [turn in file order]
	lineOf    []int32          // [turn in file order]
	lastMs    []float64        // [session], timestamp seen last; NaN: none
	byName    map[string]int32 // named sessions
	contents  bool
}

// extraKey tells extras without output tokens apart.
type extraKey struct {
	priority       int32
	strictPriority uint32
	policyClass    string
}

// newBuilder returns a builder with room for about so many hash ids before it grows.
func newBuilder(o LoadOptions, ids int64) *builder {
	ids = min(ids, 1<<24)
	rows := ids / 16
	return &builder{contents: o.Contents, chain: newInterner(ids * 2 / 3), t: &Trace{format: o.Format, blockSize: o.BlockSize,
		sessions: make([]traceSession, 0, rows), turns: make([]traceTurn, 0, rows),
		extras: make([]turnExtra, 1), nodes: make([]uint32, 0, ids)}}
}

// addTurn appends a turn with the chain of its blocks, the surplus cut off.
func (b *builder) addTurn(line int, ids []uint64, input, output int32, delayMs float64, x turnExtra) {
	t := b.t
	ids = ids[:(int(input)+t.blockSize-1)/t.blockSize]
	turn := traceTurn{delayMs: delayMs, first: len(t.nodes), input: input, output: output, extra: b.intern(x)}
	parent := root
	for _, id := range ids {
		node := b.chain.next(parent, id)
		t.nodes = append(doubled(t.nodes), node)
		if b.contents && int(node) == len(t.ids) {
			t.ids = append(doubled(t.ids), id)
		}
		if t.format != MooncakeDelta {
			parent = node
		}
	}
	t.turns = append(doubled(t.turns), turn)
	b.lineOf = append(doubled(b.lineOf), int32(line))
}

// intern returns the index of x in extras, where equal ones are kept once.
func (b *builder) intern(x turnExtra) int32 {
	if x.outputIDs == nil {
		if x.priority == 0 && x.strictPriority == 0 && x.policyClass == "" {
			return 0
		}
		key := extraKey{x.priority, x.strictPriority, x.policyClass}
		if i, ok := b.extraOf[key]; ok {
			return i
		}
		if b.extraOf == nil {
			b.extraOf = make(map[extraKey]int32)
		}
		b.extraOf[key] = int32(len(b.t.extras))
	}
	b.t.extras = append(b.t.extras, x)
	return int32(len(b.t.extras) - 1)
}

// session returns the session of a row and whether the row is its first.
func (b *builder) session(r *row, line int) (i int32, first bool) {
	named := r.has&hasSession != 0
	if named {
		if i, ok := b.byName[r.session]; ok {
			return i, false
		}
		if i, ok := b.madeUp(r.session); ok {
			return i, false
		}
	} else if b.byName != nil {
		if i, ok := b.byName["request_"+strconv.Itoa(line)]; ok {
			return i, false
		}
	}
	i = int32(len(b.t.sessions))
	b.t.sessions = append(doubled(b.t.sessions), traceSession{line: int32(line), name: r.session, named: named})
	b.lastMs = append(doubled(b.lastMs), math.NaN())
	if named {
		if b.byName == nil {
			b.byName = make(map[string]int32)
		}
		b.byName[r.session] = i
	}
	return i, true
}

// madeUp finds the session of an earlier row without session_id by the name that
// was made up for it.
func (b *builder) madeUp(name string) (int32, bool) {
	digits, ok := strings.CutPrefix(name, "request_")
	line, err := strconv.Atoi(digits)
	if !ok || err != nil || strconv.Itoa(line) != digits {
		return 0, false
	}
	s := b.t.sessions // by line
	lo, hi := 0, len(s)
	for lo < hi {
		mid := (lo + hi) / 2
		if int(s[mid].line) < line {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return int32(lo), lo < len(s) && int(s[lo].line) == line && !s[lo].named
}

// place books the row in its session (spec workload 2.2).
func (b *builder) place(r *row, l *lines) (delayMs float64, err error) {
	i, first := b.session(r, l.n)
	s := &b.t.sessions[i]
	switch {
	case first:
		if r.has&hasDelay != 0 && r.delayMs != 0 {
			return 0, l.fail(nil, "trace line %d sets delay on the first turn of session %s", l.n, s.id())
		}
		s.startMs = math.NaN()
		if r.has&hasTimestamp != 0 {
			s.startMs = r.timestampMs
		}
	case r.has&hasDelay != 0:
		delayMs = r.delayMs
	case r.has&hasTimestamp != 0:
		if math.IsNaN(b.lastMs[i]) {
			return 0, l.fail(nil, "trace line %d for session %s cannot infer delay without a previous timestamp", l.n, s.id())
		}
		delayMs = r.timestampMs - b.lastMs[i]
	}
	if !(delayMs >= 0) || math.IsInf(delayMs, 0) {
		return 0, l.fail(nil, "trace line %d has invalid delay %s", l.n, workload.FormatFloat(delayMs))
	}
	if r.has&hasTimestamp != 0 {
		b.lastMs[i] = r.timestampMs
	}
	b.sessionOf = append(doubled(b.sessionOf), i)
	return delayMs, nil
}

// loadMooncake reads mooncake and mooncake-delta.
func loadMooncake(path string, o LoadOptions) (*Trace, error) {
	l, err := o.openLines(path, "trace file ")
	if err != nil {
		return nil, err
	}
	b := newBuilder(o, l.ids())
	err = b.rows(l, o)
	b.t.digest, err = closeWith(l, err)
	if err != nil {
		return nil, err
	}
	return b.finish(path)
}

// closeWith closes l and returns its digest, or err, or what went wrong in reading.
func closeWith(l *lines, err error) (string, error) {
	digest, closing := l.close()
	if err == nil {
		err = closing
	}
	return digest, err
}

func (b *builder) rows(l *lines, o LoadOptions) error {
	var s scanner
	var r row
	for l.next() {
		if err := r.decode(&s, l.text); err != nil {
			return l.fail(err, "failed to parse line %d from %s as JSON", l.n, l.path)
		}
		if err := r.checkLengths(l, o.BlockSize); err != nil {
			return err
		}
		delayMs, err := b.place(&r, l)
		if err != nil {
			return err
		}
		b.addTurn(l.n, r.ids, int32(r.input), int32(r.output), delayMs, r.extra(o.Format == MooncakeDelta))
		if len(b.t.turns) == math.MaxInt32 {
			return l.fail(errors.New("too many rows"), "failed to load %s", l.path)
		}
	}
	b.t.ignored = s.ignored
	return nil
}

// finish brings the turns into session-major order and checks every session.
func (b *builder) finish(path string) (*Trace, error) {
	t := b.t
	if len(t.turns) == 0 {
		return nil, &InputError{File: path, Msg: fmt.Sprintf("trace file %s did not contain any requests", path)}
	}
	b.sessionMajor()
	for i := range len(t.sessions) - 1 {
		from := int(t.sessions[i].first)
		for k, turn := range t.turns[from:t.sessions[i+1].first] {
			if turn.input == 0 {
				return nil, &InputError{File: path, Line: int(b.lineOf[from+k]),
					Msg: fmt.Sprintf("session %s turn %d must have a positive input_length", t.sessions[i].id(), k)}
			}
		}
	}
	t.nodeCount = b.chain.len()
	t.finish()
	if t.format == MooncakeDelta && !t.multiTurn {
		t.rechain()
	}
	return t, nil
}

// sessionMajor sorts turns by session, stably, and closes the list of sessions.
func (b *builder) sessionMajor() {
	t := b.t
	t.sessions = append(t.sessions, traceSession{startMs: math.NaN()})
	for _, s := range b.sessionOf {
		t.sessions[s+1].first++
	}
	for i := 1; i < len(t.sessions); i++ {
		t.sessions[i].first += t.sessions[i-1].first
	}
	if len(t.sessions)-1 == len(t.turns) {
		return // one turn each, in order of appearance
	}
	at := make([]int32, len(t.sessions))
	for i := range t.sessions {
		at[i] = t.sessions[i].first
	}
	turns, lineOf := make([]traceTurn, len(t.turns)), make([]int32, len(t.turns))
	for i, s := range b.sessionOf {
		turns[at[s]], lineOf[at[s]] = t.turns[i], b.lineOf[i]
		at[s]++
	}
	t.turns, b.lineOf = turns, lineOf
}

// rechain turns the plain ids of a delta trace into prefix chains, for one whose
// sessions all have one turn.
func (t *Trace) rechain() {
	chain := newInterner(int64(t.nodeCount))
	for i := range t.turns {
		parent := root
		turn := &t.turns[i]
		for k := range (int(turn.input) + t.blockSize - 1) / t.blockSize {
			parent = chain.next(parent, uint64(t.nodes[turn.first+k]))
			t.nodes[turn.first+k] = parent
		}
	}
	t.nodeCount = chain.len()
}
