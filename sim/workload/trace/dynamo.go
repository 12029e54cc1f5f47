package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

const dynamoSchema = "dynamo.request.trace.v1"

// dynamoTrace is what the files of a Dynamo request trace hold (spec workload 2.7).
type dynamoTrace struct {
	requests []dynamoRequest
	tools    []dynamoTool // of sessions
	ids      []uint64     // slab of all requests' hashes
	seen     map[string]bool
	ignored  [len(ignoredMembers)]int64
}

type dynamoRequest struct {
	at              spot
	agent           bool // has an agent_context
	session, parent string
	id, model       string
	start, end      uint64 // ms
	output, input   uint64
	hasOutput       bool
	blockSize       uint64
	from, to        int // its hashes are ids[from:to]
	deps            []dependency
}

type dynamoTool struct {
	at                      spot
	session                 string
	id, class               string
	claude                  bool
	source, consumer, child string
	hasConsumer, hasChild   bool
	mode                    string
}

// loadDynamo reads any number of Dynamo request trace files.
func loadDynamo(files []string, o LoadOptions) (*Trace, error) {
	d := &dynamoTrace{seen: make(map[string]bool)}
	var digests []string
	for _, path := range files {
		l, err := o.openLines(path, "")
		if err != nil {
			return nil, err
		}
		digest, err := closeWith(l, d.read(l))
		if err != nil {
			return nil, dynamoReadError(err)
		}
		digests = append(digests, digest)
	}
	blockSize, agent, err := d.check(files[0], o.BlockSize)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(d.requests, func(a, b dynamoRequest) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), strings.Compare(a.id, b.id))
	})
	o.BlockSize = blockSize
	var t *Trace
	if agent {
		t, err = d.graph(files[0], o)
	} else {
		t, err = d.plain(files[0], o)
	}
	if err != nil {
		return nil, err
	}
	t.digest, t.ignored = joinDigests(digests), d.ignored
	return t, nil
}

// dynamoReadError gives a fault in reading the words of this format.
func dynamoReadError(err error) error {
	if e, ok := err.(*InputError); ok && strings.HasPrefix(e.Msg, "failed to read line") {
		e.Msg = fmt.Sprintf("failed to read %s:%d", e.File, e.Line)
	}
	return err
}

// read reads one file.
func (d *dynamoTrace) read(l *lines) error {
	var s scanner
	for l.next() {
		record, kind, err := dynamoEvent(&s, l.text)
		if err == nil {
			switch kind {
			case "request_end":
				err = d.readRequest(&s, l, record)
			case "tool_end", "tool_error":
				err = d.readTool(&s, l, record)
			case "request_payload", "tool_start", "-":
			default:
				err = fmt.Errorf("unknown event_type %q", kind)
			}
		}
		if _, ours := err.(*InputError); ours {
			return err
		}
		if err != nil {
			return l.fail(err, "failed to parse %s:%d", l.path, l.n)
		}
	}
	for i, n := range s.ignored {
		d.ignored[i] += n
	}
	return nil
}

// dynamoEvent finds the record in a line: its member event, or all of it. kind is
// the record's event_type, else the outer one; "-" if the line is no object.
func dynamoEvent(s *scanner, text []byte) (record []byte, kind string, err error) {
	s.reset(text)
	if s.peek() != '{' {
		s.skip()
		return nil, "-", s.end()
	}
	record = text
	for s.object(); s.member(); {
		switch string(s.key) {
		case "event":
			s.peek()
			from := s.pos
			s.skip()
			record = text[from:s.pos]
		case "event_type":
			kind = s.stringOr(kind)
		default:
			s.skip()
		}
	}
	if err := s.end(); err != nil {
		return nil, "", err
	}
	if s.reset(record); s.peek() != '{' {
		return record, kind, nil
	}
	for s.object(); s.member(); {
		if string(s.key) == "event_type" {
			kind = s.stringOr(kind)
		} else {
			s.skip()
		}
	}
	return record, kind, s.end()
}

// stringOr reads a string, or passes over another value and keeps v.
func (s *scanner) stringOr(v string) string {
	if s.peek() == '"' {
		return string(s.str())
	}
	s.skip()
	return v
}

// dynamoHead is what every record has.
type dynamoHead struct {
	timeMs          uint64
	session, parent string
	agent           bool
}

// readHead reads a member that every record can have; false if it is another one.
func (h *dynamoHead) readHead(s *scanner, seen *field) bool {
	switch string(s.key) {
	case "schema":
		if name := string(s.str()); name != dynamoSchema {
			s.fail("unsupported schema %q, expected %q", name, dynamoSchema)
		}
		*seen |= 1
	case "event_type":
		s.str()
		*seen |= 2
	case "event_time_unix_ms":
		h.timeMs = s.uint(math.MaxUint64)
		*seen |= 4
	case "agent_context":
		if h.agent = !s.null(); h.agent {
			h.readContext(s)
		}
	default:
		return false
	}
	return true
}

func (h *dynamoHead) readContext(s *scanner) {
	named := false
	for s.object(); s.member(); {
		switch string(s.key) {
		case "session_id":
			h.session, named = string(s.str()), true
		case "parent_session_id":
			h.parent = s.optional()
		default:
			s.skip()
		}
	}
	if s.err == nil && !named {
		s.fail("agent_context.session_id is required")
	}
}

// optional reads a string or null, which is "".
func (s *scanner) optional() string {
	if s.null() {
		return ""
	}
	return string(s.str())
}

func (h *dynamoHead) complete(s *scanner, seen field) {
	if s.err == nil && seen&7 != 7 {
		s.fail("schema, event_type and event_time_unix_ms are required")
	}
}

// readRequest reads a request_end.
func (d *dynamoTrace) readRequest(s *scanner, l *lines, record []byte) error {
	var h dynamoHead
	var seen field
	var m dynamoMetrics
	r := dynamoRequest{at: l.spot(), model: "unknown", from: len(d.ids)}
	present := false
	s.reset(record)
	for s.object(); s.member(); {
		switch {
		case h.readHead(s, &seen):
		case string(s.key) == "request":
			if present = !s.null(); present {
				d.ids = d.ids[:r.from]
				m = dynamoMetrics{}
				m.read(s, &r, &d.ids)
			}
		default:
			s.ignore()
		}
	}
	h.complete(s, seen)
	if err := s.end(); err != nil {
		return err
	}
	r.to = len(d.ids)
	r.agent, r.session, r.parent = h.agent, h.session, h.parent
	switch {
	case !present:
		return l.fail(nil, "request_end is missing request metrics")
	case blank(r.id):
		return l.fail(nil, "request_id must be nonempty")
	case d.seen[r.id]:
		return l.fail(nil, "duplicate request_id %q", r.id)
	case r.agent && blank(r.session):
		return l.fail(nil, "session_id must be nonempty")
	case m.totalMs < 0:
		return l.fail(nil, "request duration must be finite and nonnegative")
	}
	d.seen[r.id] = true
	r.start, r.end = m.times(h.timeMs)
	d.requests = append(d.requests, r)
	return nil
}

// dynamoMetrics are the times in a request.
type dynamoMetrics struct {
	receivedMs            uint64
	totalMs               float64
	hasReceived, hasTotal bool
}

// times returns start and end of a request whose event came at eventMs.
func (m *dynamoMetrics) times(eventMs uint64) (start, end uint64) {
	total := uint64(0)
	if m.hasTotal {
		total = uint64(min(math.Round(m.totalMs), 1<<62))
	}
	switch {
	case m.hasReceived && m.hasTotal:
		return m.receivedMs, max(m.receivedMs, m.receivedMs+total)
	case m.hasReceived:
		return m.receivedMs, eventMs
	}
	return eventMs - min(eventMs, total), eventMs
}

// read reads the member request.
func (m *dynamoMetrics) read(s *scanner, r *dynamoRequest, ids *[]uint64) {
	var seen field
	for s.object(); s.member(); {
		switch string(s.key) {
		case "request_id":
			r.id = string(s.str())
			seen |= 1
		case "model":
			if !s.null() {
				r.model = string(s.str())
			}
		case "output_tokens":
			if r.hasOutput = !s.null(); r.hasOutput {
				r.output = s.uint(math.MaxUint64)
			}
		case "request_received_ms":
			if m.hasReceived = !s.null(); m.hasReceived {
				m.receivedMs = s.uint(math.MaxUint64)
			}
		case "total_time_ms":
			if m.hasTotal = !s.null(); m.hasTotal {
				m.totalMs = s.float()
			}
		case "replay":
			r.readReplay(s, ids)
			seen |= 2
		default:
			s.ignore()
		}
	}
	if s.err == nil && seen != 3 {
		s.fail("request.request_id and request.replay are required")
	}
}

// readReplay reads the member request.replay.
func (r *dynamoRequest) readReplay(s *scanner, ids *[]uint64) {
	var seen field
	for s.object(); s.member(); {
		switch string(s.key) {
		case "trace_block_size":
			r.blockSize = s.uint(math.MaxUint64)
			seen |= 1
		case "input_length":
			r.input = s.uint(math.MaxUint64)
			seen |= 2
		case "input_sequence_hashes":
			*ids = (*ids)[:r.from]
			for s.array(); s.element(); {
				*ids = append(*ids, s.uint(math.MaxUint64))
			}
			seen |= 4
		case "dependencies":
			r.deps = nil
			for s.array(); s.element(); {
				r.deps = append(r.deps, readExplicit(s))
			}
		default:
			s.skip()
		}
	}
	if s.err == nil && seen != 7 {
		s.fail("replay.trace_block_size, replay.input_length and replay.input_sequence_hashes are required")
	}
}

// readExplicit reads an edge without a delay.
func readExplicit(s *scanner) (d dependency) {
	var seen field
	for s.object(); s.member(); {
		switch string(s.key) {
		case "request_id":
			d.from = string(s.str())
			seen |= 1
		case "trigger":
			d.trigger = readTrigger(s)
			seen |= 2
		case "relation":
			d.relation = readRelation(s)
			seen |= 4
		default:
			s.skip()
		}
	}
	if s.err == nil && seen != 7 {
		s.fail("request_id, trigger and relation of a dependency are required")
	}
	return d
}

// readTool reads a tool_end or tool_error. Without a session or a tool it is
// dropped.
func (d *dynamoTrace) readTool(s *scanner, l *lines, record []byte) error {
	var h dynamoHead
	var seen field
	var times toolTimes
	tool := dynamoTool{at: l.spot()}
	present := false
	s.reset(record)
	for s.object(); s.member(); {
		switch {
		case h.readHead(s, &seen):
		case string(s.key) == "tool":
			if present = !s.null(); present {
				times = tool.read(s)
			}
		default:
			s.skip()
		}
	}
	h.complete(s, seen)
	if err := s.end(); err != nil || !h.agent || !present {
		return err
	}
	tool.session = h.session
	switch {
	case blank(tool.session):
		return l.fail(nil, "session_id must be nonempty")
	case blank(tool.id):
		return l.fail(nil, "tool_call_id must be nonempty")
	case blank(tool.class):
		return l.fail(nil, "tool_class must be nonempty")
	case times.hasStart && times.hasEnd && times.end < times.start:
		return l.fail(nil, "tool end time precedes start time")
	case times.durationMs < 0:
		return l.fail(nil, "tool duration must be finite and nonnegative")
	}
	d.tools = append(d.tools, tool)
	return nil
}

type toolTimes struct {
	start, end       uint64
	hasStart, hasEnd bool
	durationMs       float64
}

// read reads the member tool.
func (t *dynamoTool) read(s *scanner) (times toolTimes) {
	var seen field
	for s.object(); s.member(); {
		switch string(s.key) {
		case "tool_call_id":
			t.id = string(s.str())
			seen |= 1
		case "tool_class":
			t.class = string(s.str())
			seen |= 2
		case "started_at_unix_ms":
			if times.hasStart = !s.null(); times.hasStart {
				times.start = s.uint(math.MaxUint64)
			}
		case "ended_at_unix_ms":
			if times.hasEnd = !s.null(); times.hasEnd {
				times.end = s.uint(math.MaxUint64)
			}
		case "duration_ms":
			if !s.null() {
				times.durationMs = s.float()
			}
		case "claude":
			if t.claude = !s.null(); t.claude {
				t.readClaude(s)
			}
		default:
			s.skip()
		}
	}
	if s.err == nil && seen != 3 {
		s.fail("tool.tool_call_id and tool.tool_class are required")
	}
	return times
}

func (t *dynamoTool) readClaude(s *scanner) {
	var seen field
	for s.object(); s.member(); {
		switch string(s.key) {
		case "source_request_id":
			t.source = string(s.str())
			seen |= 1
		case "execution_mode":
			t.mode = string(s.str())
			seen |= 2
		case "consumer_request_id":
			if t.hasConsumer = !s.null(); t.hasConsumer {
				t.consumer = string(s.str())
			}
		case "child_session_id":
			if t.hasChild = !s.null(); t.hasChild {
				t.child = string(s.str())
			}
		default:
			s.skip()
		}
	}
	if s.err == nil && seen != 3 {
		s.fail("claude.source_request_id and claude.execution_mode are required")
	}
}
