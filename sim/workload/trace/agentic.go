package trace

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/dynosweep/dynosweep/sim/workload"
)

const agenticSchema = "dynamo.agentic_mooncake"

// loadAgentic reads agentic_mooncake: version 2 behind its header, or headerless
// rows, told apart by the schema member of the first line.
func loadAgentic(path string, o LoadOptions) (*Trace, error) {
	l, err := o.openLines(path, "trace file ")
	if err != nil {
		return nil, err
	}
	var t *Trace
	if !l.next() {
		err = l.err
		if err == nil {
			err = &InputError{File: path, Msg: fmt.Sprintf("agentic trace file %s is missing its v2 header", path)}
		}
	} else if hasMember(l.text, "schema") || !hasMember(l.text, "request_id") {
		t, err = readAgentic(l, o)
	} else {
		t, err = readLegacy(l, o)
	}
	digest, err := closeWith(l, err)
	if err != nil {
		return nil, err
	}
	t.digest = digest
	return t, nil
}

// hasMember reports whether text is an object with the member, as far as it is JSON.
func hasMember(text []byte, name string) bool {
	var s scanner
	s.reset(text)
	found := false
	for s.object(); s.member(); s.skip() {
		found = found || string(s.key) == name
	}
	return found
}

// agenticRow is a row of either kind of agentic_mooncake.
type agenticRow struct {
	row
	play, model string
	ordinal     int
	notBeforeMs float64
	apiMs       float64 // recorded_api_time_ms
	deps        []dependency
	// Headerless rows only.
	waitFor    []string
	delay2Ms   float64 // delay_ms, where it is a field of its own
	toolWaitMs float64
}

// readAgentic reads from the header line on.
func readAgentic(l *lines, o LoadOptions) (*Trace, error) {
	source, blockSize, err := readHeader(l)
	if err != nil {
		return nil, err
	}
	o.BlockSize, o.Contents = blockSize, true
	b := newBuilder(o, 0)
	seen := make(map[string]bool)
	var nodes []graphNode
	var s scanner
	var r agenticRow
	for l.next() {
		if err := r.decode(&s, l.text); err != nil {
			return nil, l.fail(err, "failed to parse line %d from %s as an agentic Mooncake v2 request", l.n, l.path)
		}
		if err := r.check(l.spot(), l.n, blockSize, seen); err != nil {
			return nil, err
		}
		seen[r.requestID] = true
		b.addTurn(l.n, r.ids, int32(r.input), int32(r.output), 0, r.extra(false))
		nodes = append(nodes, graphNode{id: r.requestID, play: r.play, session: r.session, model: r.model,
			ordinal: r.ordinal, at: l.spot(), notBeforeMs: r.notBeforeMs, deps: r.deps, apiMs: r.recordedMs(), outputIDs: r.authoredOutput()})
	}
	if l.err != nil {
		return nil, l.err
	}
	b.t.ignored = s.ignored
	return b.finishGraph(l.path, nodes, source)
}

// readHeader reads the first line.
func readHeader(l *lines) (source Provenance, blockSize int, err error) {
	const fSchema, fVersion, fBlock, fScope, fSource, all = 1, 2, 4, 8, 16, 31
	var s scanner
	var seen field
	var schema, scope string
	var version uint64
	s.reset(l.text)
	for s.object(); s.member(); {
		switch string(s.key) {
		case "schema":
			s.once(&seen, fSchema)
			schema = string(s.str())
		case "version":
			s.once(&seen, fVersion)
			version = s.uint(math.MaxUint32)
		case "block_size":
			s.once(&seen, fBlock)
			blockSize = int(s.uint(math.MaxInt64))
		case "hash_id_scope":
			s.once(&seen, fScope)
			scope = string(s.str())
		case "source":
			s.once(&seen, fSource)
			source = readProvenance(&s)
		default:
			s.skip()
		}
	}
	cause := s.end()
	switch {
	case cause == nil && seen != all:
		cause = errors.New("schema, version, block_size, hash_id_scope and source are required")
	case cause == nil && scope != "local":
		cause = fmt.Errorf("unknown hash_id_scope %q, expected local", scope)
	}
	switch {
	case cause != nil:
		return source, 0, l.fail(cause, "failed to parse line %d from %s as the agentic Mooncake v2 header", l.n, l.path)
	case schema != agenticSchema:
		return source, 0, l.fail(nil, "unsupported agentic Mooncake schema %q; expected %q", schema, agenticSchema)
	case version != 2:
		return source, 0, l.fail(nil, "unsupported agentic Mooncake version %d; expected 2", version)
	case blockSize == 0:
		return source, 0, l.fail(nil, "agentic Mooncake block_size must be greater than 0")
	case blockSize > math.MaxInt32:
		return source, 0, l.fail(nil, "agentic Mooncake block_size must be at most %d", math.MaxInt32)
	case blank(source.Format) || blank(source.Digest):
		return source, 0, l.fail(nil, "agentic Mooncake source provenance requires nonempty format and digest")
	}
	return source, blockSize, nil
}

func readProvenance(s *scanner) (p Provenance) {
	var seen field
	for s.object(); s.member(); {
		switch string(s.key) {
		case "format":
			s.once(&seen, 1)
			p.Format = string(s.str())
		case "digest":
			s.once(&seen, 2)
			p.Digest = string(s.str())
		default:
			s.skip()
		}
	}
	if seen != 3 {
		s.fail("format and digest are required")
	}
	return p
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// decode reads a version 2 node.
func (r *agenticRow) decode(s *scanner, text []byte) error {
	r.reset()
	*r = agenticRow{row: r.row, ordinal: -1}
	var seen field
	s.reset(text)
	for s.object(); s.member(); {
		f := rowField(s.key)
		if f&(hasTimestamp|hasDelay) != 0 {
			f = 0
		}
		switch string(s.key) {
		case "play_id":
			f = hasPlay
		case "source_play_ordinal":
			f = hasOrdinal
		case "model":
			f = hasModel
		case "not_before_ms":
			f = hasNotBefore
		case "recorded_api_time_ms":
			f = hasAPITime
		case "dependencies":
			f = hasDependencies
		}
		if f == 0 {
			s.ignore()
			continue
		}
		required := f&(hasRequestID|hasPlay|hasSession|hasModel|hasNotBefore|hasDependencies) != 0
		if !s.once(&seen, f) || !required && s.null() {
			continue
		}
		r.has |= f
		r.agenticValue(s, f)
	}
	const needed = hasRequestID | hasPlay | hasSession | hasModel | hasNotBefore
	if s.err == nil && seen&needed != needed {
		s.fail("request_id, play_id, session_id, model and not_before_ms are required")
	}
	return s.end()
}

// agenticValue reads the value of one member.
func (r *agenticRow) agenticValue(s *scanner, f field) {
	switch f {
	case hasPlay:
		r.play = string(s.str())
	case hasOrdinal:
		r.ordinal = int(s.uint(math.MaxInt64))
	case hasModel:
		r.model = string(s.str())
	case hasNotBefore:
		r.notBeforeMs = s.float()
	case hasAPITime:
		r.apiMs = s.float()
	case hasDependencies:
		for s.array(); s.element(); {
			r.deps = append(r.deps, readDependency(s))
		}
	default:
		r.value(s, f)
	}
}

// readDependency reads one edge, all of whose members are required.
func readDependency(s *scanner) (d dependency) {
	const fRequest, fTrigger, fDelay, fRelation, all = 1, 2, 4, 8, 15
	var seen field
	for s.object(); s.member(); {
		switch string(s.key) {
		case "request_id":
			s.once(&seen, fRequest)
			d.from = string(s.str())
		case "trigger":
			s.once(&seen, fTrigger)
			d.trigger = readTrigger(s)
		case "delay_ms":
			s.once(&seen, fDelay)
			d.delayMs = s.float()
		case "relation":
			s.once(&seen, fRelation)
			d.relation = readRelation(s)
		default:
			s.skip()
		}
	}
	if s.err == nil && seen != all {
		s.fail("request_id, trigger, delay_ms and relation are required")
	}
	return d
}

// recordedMs is the recorded_api_time_ms, negative if it is not given.
func (r *agenticRow) recordedMs() float64 {
	if r.has&hasAPITime == 0 {
		return -1
	}
	return r.apiMs
}

// authoredOutput returns a copy of the output_token_ids, nil if they are not given.
func (r *agenticRow) authoredOutput() []uint32 {
	if r.has&hasOutputIDs == 0 {
		return nil
	}
	return append([]uint32{}, r.outputIDs...)
}

func readTrigger(s *scanner) trigger {
	switch name := string(s.str()); name {
	case "dispatch":
		return onDispatch
	case "completion":
	default:
		s.fail("unknown trigger %q", name)
	}
	return onCompletion
}

func readRelation(s *scanner) relation {
	name := string(s.str())
	for i, known := range relationNames {
		if name == known {
			return relation(i)
		}
	}
	s.fail("unknown relation %q", name)
	return 0
}

// check makes the checks of one version 2 row, in the reference's order. n is the
// line number that messages show; seen holds the request ids before this one.
func (r *agenticRow) check(at spot, n, blockSize int, seen map[string]bool) error {
	switch {
	case blank(r.requestID):
		return at.fail(nil, "trace line %d has empty request_id", n)
	case blank(r.play):
		return at.fail(nil, "trace line %d has empty play_id", n)
	case blank(r.session):
		return at.fail(nil, "trace line %d has empty session_id", n)
	case seen[r.requestID]:
		return at.fail(nil, "trace line %d duplicates request_id %s", n, r.requestID)
	}
	if err := r.checkBlocks(at, n, blockSize, true); err != nil {
		return err
	}
	if blank(r.model) {
		return at.fail(nil, "trace line %d has an empty model", n)
	}
	if err := r.checkOutput(at, n); err != nil {
		return err
	}
	if r.notBeforeMs < 0 {
		return at.fail(nil, "trace line %d has invalid not_before_ms %s", n, workload.FormatFloat(r.notBeforeMs))
	}
	if r.apiMs < 0 {
		return at.fail(nil, "trace line %d has invalid recorded_api_time_ms %s", n, workload.FormatFloat(r.apiMs))
	}
	for _, d := range r.deps {
		if d.delayMs < 0 {
			return at.fail(nil, "trace line %d has invalid dependency delay %s", n, workload.FormatFloat(d.delayMs))
		}
		if d.trigger == onDispatch && d.relation != spawn {
			name := [...]string{"Sequence", "Spawn", "Join", "ReplayBarrier"}[d.relation]
			return at.fail(nil, "trace line %d has invalid %s dependency with Dispatch trigger", n, name)
		}
	}
	return nil
}

// checkBlocks checks lengths against hash ids, of which there must be exactly as
// many as blocks, or at least as many.
func (r *row) checkBlocks(at spot, n, blockSize int, exact bool) error {
	size := uint64(blockSize)
	switch {
	case r.has&hasIDs == 0:
		return at.fail(nil, "trace line %d is missing hash_ids", n)
	case len(r.ids) == 0:
		return at.fail(nil, "trace line %d has empty hash_ids", n)
	case r.has&hasInput == 0:
		return at.fail(nil, "trace line %d is missing input_length", n)
	case r.input == 0:
		return at.fail(nil, "trace line %d has zero input_length", n)
	}
	need, got := (r.input-1)/size+1, uint64(len(r.ids))
	switch {
	case exact && need != got:
		return at.fail(nil, "trace line %d has input_length %d at block_size %d and requires exactly %d hash_ids, got %d", n, r.input, size, need, got)
	case need > got:
		return at.fail(nil, "trace line %d has input_length %d but only %d tokens can be synthesized from %d hash_ids at trace_block_size %d",
			n, r.input, got*size, got, size)
	case r.has&hasOutput == 0:
		return at.fail(nil, "trace line %d is missing output_length", n)
	}
	return nil
}

// readLegacy reads headerless rows (spec workload 2.5); the first line is already
// the present one.
func readLegacy(l *lines, o LoadOptions) (*Trace, error) {
	o.Contents = true
	b := newBuilder(o, 0)
	lineOf := make(map[string]int)
	var nodes []graphNode
	var s scanner
	var r agenticRow
	for more := true; more; more = l.next() {
		if err := r.decodeLegacy(&s, l.text); err != nil {
			return nil, l.fail(err, "failed to parse line %d from %s as agentic Mooncake JSON", l.n, l.path)
		}
		if err := r.checkLegacy(l, o.BlockSize, lineOf); err != nil {
			return nil, err
		}
		lineOf[r.requestID] = l.n
		b.addTurn(l.n, r.ids, int32(r.input), int32(r.output), 0, r.extra(false))
		nodes = append(nodes, r.lower(l.spot()))
	}
	if l.err != nil {
		return nil, l.err
	}
	b.t.ignored = s.ignored
	for i := range nodes {
		for _, d := range nodes[i].deps {
			if lineOf[d.from] == 0 {
				return nil, nodes[i].at.fail(nil, "request %s waits for unknown request_id %s", nodes[i].id, d.from)
			}
			if d.from == nodes[i].id {
				return nil, nodes[i].at.fail(nil, "cycle detected at request %s", d.from)
			}
		}
	}
	nameComponents(nodes, "legacy-play:")
	t, err := b.finishGraph(l.path, nodes, Provenance{Format: "agentic_mooncake", Digest: "legacy"})
	if err != nil {
		return nil, legacyCycle(err)
	}
	// Only roots set the clock: a dependant's not_before of 0 says nothing.
	t.graph.zeroMs = math.Inf(1)
	for _, p := range t.graph.plays {
		t.graph.zeroMs = min(t.graph.zeroMs, p.rootMs)
	}
	return t, nil
}

// legacyCycle gives the fault of a cyclic graph the words used for these rows.
func legacyCycle(err error) error {
	var e *InputError
	if errors.As(err, &e) {
		if _, ids, ok := strings.Cut(e.Msg, "blocked request IDs: "); ok {
			first, _, _ := strings.Cut(ids, ", ")
			e.Msg = "cycle detected at request " + first
		}
	}
	return err
}

// decodeLegacy reads a headerless row.
func (r *agenticRow) decodeLegacy(s *scanner, text []byte) error {
	r.reset()
	*r = agenticRow{row: r.row, ordinal: -1}
	var seen field
	s.reset(text)
	for s.object(); s.member(); {
		f := rowField(s.key)
		switch string(s.key) {
		case "wait_for":
			f = hasWaitFor
		case "delay_ms":
			f = hasDelayMs
		case "tool_wait_ms":
			f = hasToolWait
		}
		if f == 0 {
			s.ignore()
			continue
		}
		if !s.once(&seen, f) || s.null() {
			continue
		}
		r.has |= f
		switch f {
		case hasWaitFor:
			for s.array(); s.element(); {
				r.waitFor = append(r.waitFor, string(s.str()))
			}
		case hasDelayMs:
			r.delay2Ms = s.float()
		case hasToolWait:
			r.toolWaitMs = s.float()
		default:
			r.value(s, f)
		}
	}
	switch {
	case s.err != nil:
	case r.has&hasRequestID == 0:
		s.fail("request_id is required")
	case r.has&hasDelay != 0 && r.has&hasDelayMs != 0:
		s.fail("delay and delay_ms cannot both be set")
	}
	return s.end()
}

func (r *agenticRow) checkLegacy(l *lines, blockSize int, lineOf map[string]int) error {
	switch n := l.n; {
	case blank(r.requestID):
		return l.fail(nil, "trace line %d has empty request_id", n)
	case lineOf[r.requestID] > 0:
		return l.fail(nil, "trace line %d duplicates request_id %s", n, r.requestID)
	}
	if err := r.checkBlocks(l.spot(), l.n, blockSize, false); err != nil {
		return err
	}
	if err := r.checkOutput(l.spot(), l.n); err != nil {
		return err
	}
	if r.toolWaitMs < 0 {
		return l.fail(nil, "trace line %d has invalid tool_wait_ms %s", l.n, workload.FormatFloat(r.toolWaitMs))
	}
	if d := r.delayMs + r.delay2Ms; d < 0 {
		return l.fail(nil, "trace line %d has invalid delay %s", l.n, workload.FormatFloat(d))
	}
	return nil
}

// lower turns a headerless row into a node of a graph.
func (r *agenticRow) lower(at spot) graphNode {
	n := graphNode{id: r.requestID, session: "agentic-session", model: "unknown", ordinal: -1, at: at, apiMs: -1, outputIDs: r.authoredOutput()}
	if r.has&hasSession != 0 {
		n.session = r.session
	}
	if len(r.waitFor) == 0 {
		n.notBeforeMs = r.timestampMs
	}
	kind := sequence
	if len(r.waitFor) > 1 {
		kind = join
	}
	for _, id := range r.waitFor {
		n.deps = append(n.deps, dependency{from: id, relation: kind, delayMs: r.delayMs + r.delay2Ms + r.toolWaitMs})
	}
	return n
}
