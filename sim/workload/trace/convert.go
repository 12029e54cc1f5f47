package trace

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/dynosweep/dynosweep/sim/workload"
)

// Conversion says what to write, and of what part of a trace.
type Conversion struct {
	To Format // Mooncake or AgenticMooncake
	// FromMs and UntilMs keep sessions, or plays, that start in [FromMs, UntilMs)
	// after the first start; UntilMs +Inf for no end.
	FromMs, UntilMs float64
	// MaxRequests keeps so many requests from the start, 0 for all. What is loaded
	// and not streamed is kept by whole sessions and plays.
	MaxRequests int64
	Speedup     float64 // divides starts and delays
}

// DefaultConversion keeps a trace as it is.
func DefaultConversion(to Format) Conversion {
	return Conversion{To: to, UntilMs: math.Inf(1), Speedup: 1}
}

// Validate returns the first fault.
func (c *Conversion) Validate() error {
	switch {
	case c.To != Mooncake && c.To != AgenticMooncake:
		return fmt.Errorf("cannot write %s; mooncake and agentic_mooncake can be written", c.To)
	case !(c.Speedup > 0) || math.IsInf(c.Speedup, 0):
		return fmt.Errorf("ratio must be a finite positive number, got %s", workload.FormatFloat(c.Speedup))
	case math.IsNaN(c.FromMs) || c.FromMs < 0 || !(c.UntilMs > c.FromMs):
		return fmt.Errorf("the kept time must not be empty or negative, got %s to %s ms", workload.FormatFloat(c.FromMs), workload.FormatFloat(c.UntilMs))
	case c.MaxRequests < 0:
		return fmt.Errorf("the number of requests must not be negative, got %d", c.MaxRequests)
	}
	return nil
}

// cuts reports whether starts decide what is kept.
func (c *Conversion) cuts() bool { return c.FromMs > 0 || !math.IsInf(c.UntilMs, 1) }

// keeps reports whether a session that starts startMs after the first is kept.
func (c *Conversion) keeps(startMs float64) bool { return startMs >= c.FromMs && startMs < c.UntilMs }

// Converted says what was written.
type Converted struct {
	BlockSize int   `json:"block_size"` // what a replay of a mooncake file must be told
	Requests  int64 `json:"requests"`
	Cut       int64 `json:"cut"`     // left out by time or number
	Dropped   int64 `json:"dropped"` // rows of a table without a prompt
	Failed    int64 `json:"failed"`  // rows of failed requests that were left out
	// Notices says what of the input was not written, one sentence each.
	Notices []string `json:"notices,omitempty"`
}

// Convert reads a trace and writes it in another format. Mooncake files and tables of
// requests to mooncake stream in flat memory; everything else is loaded.
func Convert(w io.Writer, files []string, o LoadOptions, c Conversion) (*Converted, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if o.Format == Mooncake || o.Format > Weka {
		if err := o.checkFiles(files); err != nil {
			return nil, err
		}
		if c.To == Mooncake {
			return convertRows(w, files[0], o, c)
		}
	}
	t, err := Load(files, o)
	if err != nil {
		return nil, err
	}
	out := newRowWriter(w)
	done := &Converted{BlockSize: t.blockSize}
	switch {
	case c.To == AgenticMooncake && t.graph != nil:
		err = t.writeGraph(out, c, done)
	case c.To == AgenticMooncake:
		err = t.writeSessionsAsGraph(out, c, done)
	default:
		err = t.writeSessions(out, c, done)
	}
	if err != nil {
		return nil, err
	}
	done.Requests, done.Notices = out.n, append(t.Notices(), t.unwritten()...)
	if c.To == AgenticMooncake {
		done.Requests-- // the header
	}
	if done.Requests == 0 {
		return nil, errNothing(files[0], done.Cut)
	}
	return done, out.flush()
}

// unwritten says what a loaded trace has that no conversion writes.
func (t *Trace) unwritten() []string {
	if t.graph == nil {
		return nil
	}
	outputs, api := 0, 0
	for i := range t.turns {
		if t.graph.authored.outputs[i] != nil {
			outputs++
		}
		if t.graph.authored.apiMs[i] >= 0 {
			api++
		}
	}
	var out []string
	if outputs > 0 {
		out = append(out, fmt.Sprintf("%s: %d of %d requests have output_token_ids, which are not written", t.path, outputs, len(t.turns)))
	}
	if api > 0 {
		out = append(out, fmt.Sprintf("%s: %d of %d requests have a recorded API time, which is not written", t.path, api, len(t.turns)))
	}
	return out
}

// errNothing refuses to write a trace that no reader takes.
func errNothing(path string, cut int64) error {
	return &InputError{File: path, Msg: fmt.Sprintf("nothing is left of %d requests: keep a longer time, or more of them", cut)}
}

// convertRows writes rows as they come. A session belongs to its first row. Where the
// speed changes, times count from the first one, which a replay at that speed divides.
func convertRows(w io.Writer, path string, o LoadOptions, c Conversion) (*Converted, error) {
	zeroMs, rebase := 0.0, c.Speedup != 1
	if c.cuts() || rebase {
		var err error
		if zeroMs, err = firstTimestamp(path, o); err != nil {
			return nil, err
		}
		if math.IsInf(zeroMs, 1) && c.cuts() {
			return nil, &InputError{File: path, Msg: "no row has a timestamp to cut by"}
		}
	}
	rows, err := openRows(path, o)
	if err != nil {
		return nil, err
	}
	out := newRowWriter(w)
	done := &Converted{BlockSize: o.BlockSize}
	kept := make(map[string]bool)
	for rows.next() && err == nil {
		r := rows.row()
		if c.MaxRequests > 0 && out.n == c.MaxRequests {
			done.Cut++
			continue
		}
		keep, known := kept[r.session]
		if !known || r.has&hasSession == 0 {
			keep = !c.cuts() || r.has&hasTimestamp != 0 && c.keeps(r.timestampMs-zeroMs)
			if r.has&hasSession != 0 && c.cuts() {
				kept[r.session] = keep
			}
		}
		if !keep {
			done.Cut++
			continue
		}
		if rebase {
			r.timestampMs -= zeroMs
		}
		err = out.row(r, c.Speedup)
	}
	if _, closing := rows.close(); closing != nil {
		err = closing
	}
	if err != nil {
		return nil, err
	}
	left := rows.leftOut()
	done.Requests, done.Dropped, done.Failed, done.Notices = out.n, left.dropped, left.failed, left.notices
	if done.Requests+done.Cut == 0 {
		if done.Failed > 0 {
			return nil, &InputError{File: path, Msg: fmt.Sprintf("all %d requests have no response tokens: failed requests in this data set; --keep-failed keeps them", done.Failed)}
		}
		return nil, &InputError{File: path, Msg: fmt.Sprintf("trace file %s did not contain any requests", path)}
	}
	if done.Requests == 0 {
		return nil, errNothing(path, done.Cut)
	}
	return done, out.flush()
}

// firstTimestamp returns the smallest timestamp of a file, +Inf if it has none.
func firstTimestamp(path string, o LoadOptions) (float64, error) {
	rows, err := openRows(path, o)
	if err != nil {
		return 0, err
	}
	zeroMs := math.Inf(1)
	for rows.next() {
		if r := rows.row(); r.has&hasTimestamp != 0 {
			zeroMs = min(zeroMs, r.timestampMs)
		}
	}
	if _, err := rows.close(); err != nil {
		return 0, err
	}
	return zeroMs, nil
}

// row writes a row with its times divided by speedup.
func (w *rowWriter) row(r *row, speedup float64) error {
	w.begin()
	if r.has&hasRequestID != 0 {
		w.text("request_id", r.requestID)
	}
	if r.has&hasSession != 0 {
		w.text("session_id", r.session)
	}
	if r.has&hasTimestamp != 0 {
		w.ms("timestamp", r.timestampMs/speedup)
	}
	if r.has&hasDelay != 0 {
		w.ms("delay", r.delayMs/speedup)
	}
	w.int("input_length", int64(r.input))
	w.int("output_length", int64(r.output))
	w.ids("hash_ids", len(r.ids), func(i int) uint64 { return r.ids[i] })
	if len(r.outputIDs) > 0 {
		w.ids("output_token_ids", len(r.outputIDs), func(i int) uint64 { return uint64(r.outputIDs[i]) })
	}
	x := r.extra(false)
	w.router(&x)
	return w.end()
}

// blocks is the number of trace blocks of turn i.
func (t *Trace) blocks(i int) int { return (int(t.turns[i].input) + t.blockSize - 1) / t.blockSize }

// block is the hash of block k of turn i: its prefix-chain node.
func (t *Trace) block(i int) func(k int) uint64 {
	first := t.turns[i].first
	return func(k int) uint64 { return uint64(t.nodes[first+k]) }
}

// zeroMs is the first start of all sessions, +Inf if none has one.
func (t *Trace) zeroMs() float64 {
	zeroMs := math.Inf(1)
	for i := range t.sessions[:len(t.sessions)-1] {
		if s := t.sessions[i].startMs; !math.IsNaN(s) {
			zeroMs = min(zeroMs, s)
		}
	}
	return zeroMs
}

// kept calls write for every session that is kept, with its start after the first;
// 0 where the trace has no starts.
func (t *Trace) kept(out *rowWriter, c Conversion, done *Converted, write func(session int, startMs float64) error) error {
	zeroMs := t.zeroMs()
	if math.IsInf(zeroMs, 1) && c.cuts() {
		return errors.New("this trace has no starts to cut by")
	}
	header, full := out.n, false
	for i := range len(t.sessions) - 1 {
		s := &t.sessions[i]
		turns := int64(t.sessions[i+1].first - s.first)
		startMs := 0.0
		if !math.IsNaN(s.startMs) {
			startMs = s.startMs - zeroMs
		}
		if !c.keeps(startMs) {
			done.Cut += turns
			continue
		}
		if full = full || c.MaxRequests > 0 && out.n-header+turns > c.MaxRequests; full {
			done.Cut += turns
			continue
		}
		if err := write(i, startMs/c.Speedup); err != nil {
			return err
		}
	}
	return nil
}

// writeSessions writes a trace of sessions as mooncake rows, session by session.
func (t *Trace) writeSessions(out *rowWriter, c Conversion, done *Converted) error {
	if t.graph != nil {
		return fmt.Errorf("the requests of this %s trace depend on each other by a graph, which mooncake cannot express; write agentic_mooncake", t.format)
	}
	if t.delta() {
		return errors.New("prompts of this mooncake-delta trace hold generated tokens, which mooncake cannot express")
	}
	return t.kept(out, c, done, func(session int, startMs float64) error {
		s := &t.sessions[session]
		for i := s.first; i < t.sessions[session+1].first; i++ {
			out.begin()
			if t.multiTurn || s.named {
				out.text("session_id", s.id())
			}
			if i > s.first {
				out.ms("delay", t.turns[i].delayMs/c.Speedup)
			} else if !math.IsNaN(s.startMs) {
				out.ms("timestamp", startMs)
			}
			t.writeLengths(out, int(i))
			if err := out.end(); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeLengths writes lengths, blocks and router fields of turn i.
func (t *Trace) writeLengths(out *rowWriter, i int) {
	out.int("input_length", int64(t.turns[i].input))
	out.int("output_length", int64(t.turns[i].output))
	out.ids("hash_ids", t.blocks(i), t.block(i))
	out.router(&t.extras[t.turns[i].extra])
}

// writeHeader writes the first line of agentic_mooncake.
func (t *Trace) writeHeader(out *rowWriter, source Provenance) error {
	out.begin()
	out.text("schema", agenticSchema)
	out.int("version", 2)
	out.int("block_size", int64(t.blockSize))
	out.text("hash_id_scope", "local")
	out.key("source")
	out.line = append(out.line, `{"format": `...)
	out.line = appendJSON(out.line, source.Format)
	out.line = append(out.line, `, "digest": `...)
	out.line = append(appendJSON(out.line, source.Digest), '}')
	return out.end()
}

// writeSessionsAsGraph writes every session as a play whose requests follow each
// other.
func (t *Trace) writeSessionsAsGraph(out *rowWriter, c Conversion, done *Converted) error {
	if t.delta() {
		return errors.New("prompts of this mooncake-delta trace hold generated tokens, which agentic_mooncake cannot express")
	}
	if err := t.writeHeader(out, Provenance{Format: t.format.String(), Digest: t.digest}); err != nil {
		return err
	}
	ordinal := int64(0)
	return t.kept(out, c, done, func(session int, startMs float64) error {
		s := &t.sessions[session]
		if math.IsNaN(s.startMs) {
			return t.spot(s).fail(nil, "session %s has no start, which agentic_mooncake needs", s.id())
		}
		request := func(i int32) string { return fmt.Sprintf("%010d", i) } // in order of the turns
		for i := s.first; i < t.sessions[session+1].first; i++ {
			out.begin()
			out.text("request_id", request(i))
			out.text("play_id", fmt.Sprintf("play-%010d", session))
			out.int("source_play_ordinal", ordinal)
			out.text("session_id", nonBlank(s.id(), session))
			out.text("model", "unknown")
			out.ms("not_before_ms", startMs)
			t.writeLengths(out, int(i))
			if i > s.first {
				out.deps([]dependency{{from: request(i - 1), delayMs: t.turns[i].delayMs / c.Speedup}})
			}
			if err := out.end(); err != nil {
				return err
			}
		}
		ordinal++
		return nil
	})
}

// nonBlank returns a session id, or a made-up one for an id of spaces.
func nonBlank(id string, session int) string {
	if blank(id) {
		return fmt.Sprintf("session-%010d", session)
	}
	return id
}

// deps writes dependencies.
func (w *rowWriter) deps(deps []dependency) {
	w.key("dependencies")
	w.line = append(w.line, '[')
	for i, d := range deps {
		if i > 0 {
			w.line = append(w.line, ", "...)
		}
		w.line = append(w.line, `{"request_id": `...)
		w.line = appendJSON(w.line, d.from)
		w.line = append(w.line, `, "trigger": "`...)
		w.line = append(w.line, d.trigger.String()...)
		w.line = append(w.line, `", "delay_ms": `...)
		w.line = appendMs(w.line, d.delayMs)
		w.line = append(w.line, `, "relation": "`...)
		w.line = append(w.line, d.relation.String()...)
		w.line = append(w.line, `"}`...)
	}
	w.line = append(w.line, ']')
}

// writeGraph writes an agentic trace, whole plays in play order.
func (t *Trace) writeGraph(out *rowWriter, c Conversion, done *Converted) error {
	g := t.graph
	if err := t.writeHeader(out, g.source); err != nil {
		return err
	}
	into := make([][]dependency, len(g.ids)) // [node]
	for from := range g.ids {
		for _, e := range g.from(int32(from)) {
			into[e.to] = append(into[e.to], dependency{from: g.ids[from], trigger: e.trigger, relation: e.relation, delayMs: e.delayMs / c.Speedup})
		}
	}
	ordinal, full := int64(0), false
	for p := range g.plays {
		nodes := g.nodesOf(int32(p))
		keep := c.keeps(g.plays[p].rootMs - g.zeroMs)
		full = full || keep && c.MaxRequests > 0 && out.n-1+int64(len(nodes)) > c.MaxRequests
		if full || !keep {
			done.Cut += int64(len(nodes))
			continue
		}
		for _, i := range nodes {
			out.begin()
			out.text("request_id", g.ids[i])
			out.text("play_id", g.plays[p].id)
			out.int("source_play_ordinal", ordinal)
			out.text("session_id", g.sessions[i])
			out.text("model", g.modelOf(i))
			out.ms("not_before_ms", max(0, t.turns[i].delayMs-g.zeroMs)/c.Speedup)
			t.writeLengths(out, int(i))
			if len(into[i]) > 0 {
				out.deps(into[i])
			}
			if err := out.end(); err != nil {
				return err
			}
		}
		ordinal++
	}
	return nil
}
