package trace

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/sim/workload"
)

// WekaTimestamps says what the times inside a subagent count from.
type WekaTimestamps uint8

const (
	WekaAuto     WekaTimestamps = iota // relative as soon as one of the source precedes its marker
	WekaAbsolute                       // the start of the trace
	WekaRelative                       // the marker of the subagent
)

// String names what a report says was found; WekaAuto is a source without subagents.
func (b WekaTimestamps) String() string {
	return [...]string{"not_applicable", "absolute", "relative"}[b]
}

// ParseWekaTimestamps reads a weka_nested_timestamp_basis.
func ParseWekaTimestamps(name string) (WekaTimestamps, error) {
	for i, n := range [...]string{"auto", "absolute", "relative"} {
		if n == name {
			return WekaTimestamps(i), nil
		}
	}
	return 0, fmt.Errorf("weka_nested_timestamp_basis must be 'auto', 'absolute', or 'relative', got '%s'", name)
}

// wekaObject is one trace of a weka source: a play.
type wekaObject struct {
	at        spot
	label     string // of its place in the corpus
	id, scope string
	blockSize uint64
	models    []string
	entries   []wekaEntry
}

// wekaEntry is a request, or a subagent with requests.
type wekaEntry struct {
	subagent      bool
	hasDuration   bool
	durationMs    float64
	agent, status string
	inner         []wekaRequest
	wekaRequest
}

type wekaRequest struct {
	t, apiS       float64
	hasAPI        bool
	model         string
	input, output uint64
	ids           []uint64
	startS, endS  float64 // on the clock of the object
	index         int     // in its list
	sourceID      string  // names its place in the object
	node          int     // in the graph
}

// loadWeka reads a weka source: a .json or .jsonl file, or a folder of them (spec
// workload 2.8).
func loadWeka(path string, o LoadOptions) (*Trace, error) {
	files, err := o.wekaFiles(path)
	if err != nil {
		return nil, err
	}
	w := &wekaGraph{}
	w.corpus.Write([]byte("aisimulate-weka-corpus-v1\x00"))
	var digests []string
	for _, f := range files {
		digest, err := w.read(f.path, f.label, o)
		if err != nil {
			return nil, err
		}
		digests = append(digests, digest)
	}
	basis := w.basis(o.WekaTimestamps)
	for _, object := range w.objects {
		if err := w.lower(object, basis); err != nil {
			return nil, err
		}
	}
	t, err := w.b.finishGraph(path, w.nodes, Provenance{Format: "weka", Digest: w.sourceDigest(basis)})
	if err != nil {
		return nil, err
	}
	t.digest, t.graph.basis = joinDigests(digests), basis
	return t, nil
}

type wekaFile struct{ path, label string }

// wekaFiles lists the files of a source by their path inside it.
func (o LoadOptions) wekaFiles(path string) ([]wekaFile, error) {
	if o.content != nil {
		return []wekaFile{{path, filepath.Base(path)}}, nil
	}
	st, err := os.Lstat(path)
	if err != nil {
		return nil, &InputError{File: path, Msg: "failed to stat Weka source " + path, Err: err}
	}
	if !st.IsDir() {
		if ext := filepath.Ext(path); ext != ".json" && ext != ".jsonl" {
			return nil, &InputError{File: path, Msg: "Weka source file must use a .json or .jsonl extension: " + path}
		}
		return []wekaFile{{path, filepath.Base(path)}}, nil
	}
	var files []wekaFile
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return &InputError{File: p, Msg: "Weka corpus may not contain symlinks: " + p}
		}
		if ext := filepath.Ext(p); !d.IsDir() && (ext == ".json" || ext == ".jsonl") {
			label, err := filepath.Rel(path, p)
			files = append(files, wekaFile{p, filepath.ToSlash(label)})
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, &InputError{File: path, Msg: fmt.Sprintf("Weka source %s contains no JSON or JSONL files", path)}
	}
	slices.SortFunc(files, func(a, b wekaFile) int { return strings.Compare(a.label, b.label) })
	return files, nil
}

// read reads and checks the objects of one file.
func (w *wekaGraph) read(path, label string, o LoadOptions) (digest string, err error) {
	l, err := o.openLines(path, "")
	if err != nil {
		return "", err
	}
	writeLength(&w.corpus, len(label))
	w.corpus.Write([]byte(label))
	writeLength(&w.corpus, int(l.size))
	l.also = &w.corpus
	n := 0
	add := func(text []byte) error {
		n++
		object := &wekaObject{at: l.spot(), label: label}
		if filepath.Ext(path) == ".jsonl" {
			object.label = fmt.Sprintf("%s#%06d", label, n-1)
		}
		if err := object.decode(text); err != nil {
			if errors.Is(err, errTwoObjects) {
				return l.fail(nil, "Weka JSON source %s contains more than one object; use a .jsonl extension", path)
			}
			return l.fail(err, "parsing Weka source %s object %d", path, n)
		}
		return w.add(object, o.BlockSize)
	}
	if filepath.Ext(path) == ".jsonl" {
		for err == nil && l.next() {
			err = add(l.text)
		}
	} else {
		var all []byte
		for l.next() {
			all = append(append(all, l.text...), '\n')
		}
		if l.err == nil && len(all) > 0 {
			err = add(all)
		}
	}
	var e *InputError
	if errors.As(l.err, &e) {
		e.Msg = fmt.Sprintf("parsing Weka source %s object %d", path, n+1)
	}
	digest, err = closeWith(l, err)
	if err == nil && n == 0 {
		err = &InputError{File: path, Msg: fmt.Sprintf("Weka source %s contains no trace objects", path)}
	}
	return digest, err
}

// sourceDigest is the digest of the files read and of the basis of their inner times.
func (w *wekaGraph) sourceDigest(basis WekaTimestamps) string {
	raw := w.corpus.Sum()
	var sum blake3
	sum.Write([]byte("aisimulate-weka-corpus-semantics-v2\x00"))
	for _, part := range [...]string{hex.EncodeToString(raw[:]), basis.String()} {
		writeLength(&sum, len(part))
		sum.Write([]byte(part))
	}
	out := sum.Sum()
	return hex.EncodeToString(out[:])
}

// writeLength writes a length as 64 bits, little endian.
func writeLength(h *blake3, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

var errTwoObjects = errors.New("a second object follows")

// decode reads one trace object.
func (o *wekaObject) decode(text []byte) error {
	s := scanner{exact: true}
	var seen field
	s.reset(text)
	for s.object(); s.member(); {
		switch string(s.key) {
		case "id":
			s.once(&seen, 1)
			o.id = string(s.str())
		case "block_size":
			s.once(&seen, 2)
			o.blockSize = s.uint(math.MaxInt64)
		case "hash_id_scope":
			s.once(&seen, 4)
			o.scope = string(s.str())
		case "requests":
			s.once(&seen, 8)
			for s.array(); s.element(); {
				o.entries = append(o.entries, readWekaEntry(&s, len(o.entries)))
			}
		case "models":
			s.once(&seen, 16)
			for s.array(); s.element(); {
				o.models = append(o.models, string(s.str()))
			}
		case "tool_tokens":
			s.once(&seen, 32)
			s.uint(math.MaxUint64)
		case "system_tokens":
			s.once(&seen, 64)
			s.uint(math.MaxUint64)
		default:
			s.skip()
		}
	}
	if s.err == nil && seen&15 != 15 {
		s.fail("id, block_size, hash_id_scope and requests are required")
	}
	if s.err == nil && s.peek() == '{' {
		return errTwoObjects
	}
	return s.end()
}

// readWekaEntry reads a request or, at the top level, a subagent.
func readWekaEntry(s *scanner, index int) wekaEntry {
	e := wekaEntry{wekaRequest: wekaRequest{index: index}}
	e.subagent = wekaKind(s) == "subagent"
	var seen field
	for s.object(); s.member(); {
		if e.subagent {
			e.readSubagent(s, &seen)
		} else {
			e.readRequest(s, &seen)
		}
	}
	if s.err != nil {
		return e
	}
	if e.subagent && seen&31 != 31 {
		s.fail("type, t, agent_id, subagent_type, status and requests of a subagent are required")
	} else if !e.subagent && seen&31 != 31 {
		s.fail("type, t, model, in and out of a request are required")
	}
	return e
}

// wekaKind looks ahead for the type of the object that comes next.
func wekaKind(s *scanner) (kind string) {
	if s.peek() != '{' {
		s.fail("expected an object")
		return ""
	}
	ahead := scanner{text: s.text, pos: s.pos}
	for ahead.object(); ahead.member(); {
		if string(ahead.key) == "type" && ahead.peek() == '"' {
			kind = string(ahead.str())
		} else {
			ahead.skip()
		}
	}
	if ahead.err != nil {
		s.err = ahead.err
	}
	return kind
}

// readRequest reads one member. The first five are required; think_time and ttft
// change nothing but must be numbers.
func (r *wekaRequest) readRequest(s *scanner, seen *field) {
	switch string(s.key) {
	case "type":
		s.once(seen, 1)
		if kind := string(s.str()); kind != "n" && kind != "s" {
			s.fail("unknown request type %q", kind)
		}
	case "t":
		s.once(seen, 2)
		r.t = s.float()
	case "model":
		s.once(seen, 4)
		r.model = string(s.str())
	case "in":
		s.once(seen, 8)
		r.input = s.uint(math.MaxUint64)
	case "out":
		s.once(seen, 16)
		r.output = s.uint(math.MaxUint64)
	case "hash_ids":
		s.once(seen, 32)
		for s.array(); s.element(); {
			r.ids = append(r.ids, s.uint(math.MaxUint64))
		}
	case "api_time":
		s.once(seen, 64)
		r.hasAPI = s.peek() != 'n'
		r.apiS = s.optionalFloat()
	case "think_time":
		s.once(seen, 128)
		s.optionalFloat()
	case "ttft":
		s.once(seen, 256)
		s.optionalFloat()
	default:
		s.skip()
	}
}

// optionalFloat reads a number or null, which is 0.
func (s *scanner) optionalFloat() float64 {
	if s.null() {
		return 0
	}
	return s.float()
}

func (e *wekaEntry) readSubagent(s *scanner, seen *field) {
	switch string(s.key) {
	case "t":
		s.once(seen, 1)
		e.t = s.float()
	case "agent_id":
		s.once(seen, 2)
		e.agent = string(s.str())
	case "subagent_type":
		s.once(seen, 4)
		s.str()
	case "status":
		s.once(seen, 8)
		e.status = string(s.str())
	case "requests":
		s.once(seen, 16)
		for s.array(); s.element(); {
			r := wekaRequest{index: len(e.inner)}
			var have field
			for s.object(); s.member(); {
				r.readRequest(s, &have)
			}
			if s.err == nil && have&31 != 31 {
				s.fail("type, t, model, in and out of a request are required")
			}
			e.inner = append(e.inner, r)
		}
	case "duration_ms":
		s.once(seen, 32)
		e.hasDuration = s.peek() != 'n'
		e.durationMs = s.optionalFloat()
	case "type":
		s.once(seen, 64)
		s.str()
	default:
		s.skip()
	}
}

// fail makes a fault of the object.
func (o *wekaObject) fail(format string, args ...any) error {
	return o.at.fail(nil, "Weka trace "+o.label+" "+format, args...)
}

// check checks the object.
func (o *wekaObject) check() error {
	switch {
	case blank(o.id):
		return o.fail("has an empty id")
	case o.scope != "local":
		return o.fail("has unsupported hash_id_scope %q; expected local", o.scope)
	case o.blockSize == 0:
		return o.fail("has zero block_size")
	case o.blockSize > math.MaxInt32:
		return o.fail("has block_size %d; at most %d can be replayed", o.blockSize, math.MaxInt32)
	}
	found := make(map[string]bool)
	requests := 0
	for i := range o.entries {
		e := &o.entries[i]
		if !e.subagent {
			if err := o.checkRequest(&e.wekaRequest, found); err != nil {
				return err
			}
			requests++
			continue
		}
		if err := o.checkSubagent(e, i, requests, found); err != nil {
			return err
		}
	}
	if requests == 0 {
		return o.fail("has no model requests")
	}
	return o.checkModels(found)
}

func (o *wekaObject) checkRequest(r *wekaRequest, found map[string]bool) error {
	found[r.model] = true
	switch {
	case r.t < 0 || r.t > maxWekaS:
		return o.fail("has invalid request timestamp")
	case r.apiS < 0 || r.apiS > maxWekaS:
		return o.fail("has invalid api_time; expected a finite non-negative value")
	case r.input == 0:
		return o.fail("has a zero-length request")
	case r.input/o.blockSize >= workload.MaxOwnBlocks:
		return o.fail("has a prompt of %d tokens, more than %d blocks of %d", r.input, workload.MaxOwnBlocks, o.blockSize)
	case r.input > workload.MaxTokens || r.output > workload.MaxTokens:
		return o.fail("has a length of %d tokens; at most %d can be replayed", max(r.input, r.output), workload.MaxTokens)
	}
	return nil
}

// maxWekaS keeps times in ns inside 64 bits.
const maxWekaS = 1e9

func (o *wekaObject) checkSubagent(e *wekaEntry, index, before int, found map[string]bool) error {
	switch {
	case blank(e.agent):
		return o.fail("has an empty subagent agent_id")
	case e.t < 0 || e.t > maxWekaS:
		return o.fail("has invalid subagent timestamp")
	case e.status != "completed" && e.status != "async_launched":
		return o.fail("has unsupported non-success subagent status %q for %s", e.status, e.agent)
	case e.durationMs < 0 || e.durationMs > maxWekaS*1e3:
		return o.fail("has negative duration_ms for subagent %s", e.agent)
	case before == 0:
		return o.fail("has subagent %s at outer index %d without a preceding parent request", e.agent, index)
	case e.status == "completed" && len(e.inner) == 0:
		return o.fail("has blocking subagent %s with no replayable requests; external waits are not modeled", e.agent)
	}
	for k := range e.inner {
		if err := o.checkRequest(&e.inner[k], found); err != nil {
			return err
		}
	}
	return nil
}

// checkModels compares the models found with those declared, if any are.
func (o *wekaObject) checkModels(found map[string]bool) error {
	if len(o.models) == 0 {
		return nil
	}
	quoted := func(names []string) string {
		slices.Sort(names)
		for i := range names {
			names[i] = strconv.Quote(names[i])
		}
		return "{" + strings.Join(slices.Compact(names), ", ") + "}"
	}
	var names []string
	absent := false
	for name := range found {
		names = append(names, name)
		absent = absent || !slices.Contains(o.models, name)
	}
	if !absent {
		return nil
	}
	return o.fail("contains request models absent from its declaration: declared %s, found %s", quoted(slices.Clone(o.models)), quoted(names))
}

// recordedMs is the recorded_api_time_ms, negative if it is not given.
func (r *wekaRequest) recordedMs() float64 {
	if !r.hasAPI {
		return -1
	}
	return wekaMs(r.apiS)
}

// clock sets the times of an entry. Relative inner times count from its marker;
// absolute ones may not precede it.
func (o *wekaObject) clock(e *wekaEntry, basis WekaTimestamps) error {
	e.startS, e.endS = e.t, e.t+e.apiS
	for k := range e.inner {
		r := &e.inner[k]
		switch {
		case basis == WekaRelative:
			r.startS = e.t + r.t
		case r.t < e.t-wekaTolerance:
			return o.fail("has a request of subagent %s at %s that precedes its marker at %s under absolute nested_timestamp_basis",
				e.agent, workload.FormatFloat(r.t), workload.FormatFloat(e.t))
		default:
			r.startS = max(r.t, e.t)
		}
		r.endS = r.startS + r.apiS
	}
	return nil
}
