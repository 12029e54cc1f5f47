// Package trace reads the requests of trace files, describes them, and writes them in
// other formats (spec workload 2).
//
//	tr, err := trace.Load(files, options)
//	src, err := tr.NewSource(drive)
//
// A Trace is read once, is immutable, and is shared by any number of runs; a Source
// belongs to one run and releases requests as package workload says. Stat describes
// a trace without keeping it, Convert writes it in another format, and WriteSynthetic
// writes generated load as a trace.
//
// Times are float64 ms, lengths are tokens. The blocks of prompts get their identity
// when the trace is read, as nodes of prefix chains; an engine's block size only
// decides how they are divided. A fault of an input file is an *InputError with the
// text of spec workload 4.
//
// The rules are those of spec workload: 2 for the formats, 3.4 and 3.5 for graphs.
package trace

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"sync"

	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// Format names a trace format.
type Format uint8

const (
	Mooncake Format = iota
	MooncakeDelta
	AgenticMooncake
	AppliedCompute
	Dynamo
	Weka
)

var formatNames = [...]string{"mooncake", "mooncake-delta", "agentic_mooncake", "applied_compute_agentic", "dynamo", "weka",
	azureName, burstName}

func (f Format) String() string { return formatNames[f] }

// ParseFormat reads a trace_format, aliases included (spec workload 2.1).
func ParseFormat(name string) (Format, error) {
	for f, n := range formatNames[:Weka+1] {
		if n == name {
			return Format(f), nil
		}
	}
	switch name {
	case "mooncake_delta":
		return MooncakeDelta, nil
	case "agentic-mooncake":
		return AgenticMooncake, nil
	}
	return 0, fmt.Errorf("trace_format must be 'mooncake', 'mooncake-delta', 'agentic_mooncake'/'agentic-mooncake', "+
		"'weka', 'applied_compute_agentic', or 'dynamo', got '%s'", name)
}

// DefaultBlockSize is the number of tokens per hash id where nothing else is said.
const DefaultBlockSize = 512

// LoadOptions says how to read trace files.
type LoadOptions struct {
	Format Format
	// BlockSize is tokens per hash id. Dynamo and weka files say it themselves and
	// are only checked against it; there, and only there, 0 means "not given".
	// An agentic_mooncake header wins over it.
	BlockSize int
	// SharedPrefixRatio and PrefixGroups make first prompts of applied_compute_agentic
	// share their start; other formats ignore them.
	SharedPrefixRatio float64
	PrefixGroups      int
	WekaTimestamps    WekaTimestamps
	// KeepFailed keeps the rows of a BurstGPT table without response tokens: failed
	// requests, which are left out otherwise.
	KeepFailed bool
	// Contents keeps what Trace.Hasher needs.
	Contents bool
	// content, unless nil, stands in for the file: tests of readers need no disk.
	content *string
}

// DefaultLoadOptions returns the options of a format that were not given.
func DefaultLoadOptions(f Format) LoadOptions {
	o := LoadOptions{Format: f, BlockSize: DefaultBlockSize}
	if f == Dynamo || f == Weka {
		o.BlockSize = 0
	}
	return o
}

// Trace is a trace read and checked, immutable and safe for concurrent use.
type Trace struct {
	format    Format
	path      string // of the first file
	blockSize int
	digest    string
	sessions  []traceSession // by first appearance, then one more that ends the last
	turns     []traceTurn    // session-major; of a graph: nodes by request id
	nodes     []uint32       // prefix-chain nodes of all turns; of a delta trace plain ids
	extras    []turnExtra    // what few turns have; [0] is empty
	ids       []uint64       // [node], its hash id, of a graph or if loaded with Contents
	order     []int32        // sessions by (start, index); nil: they are so already
	multiTurn bool           // some session has more than one turn
	anonymous bool           // open loop hides the sessions (context-free dynamo)
	graph     *graph         // agentic formats only

	inputTokens, outputTokens int64
	maxTokens                 int64  // most tokens of one request, or of one delta session
	nodeCount                 uint32 // distinct nodes
	ignored                   [len(ignoredMembers)]int64

	mu           sync.Mutex
	views        map[int]*view      // by engine block size
	graphDigests map[float64]string // by speed-up
	tokens       []uint32           // [node], made at first use by Hasher
}

// Notices says which members of its rows the simulation does not look at, one sentence
// each.
func (t *Trace) Notices() (out []string) {
	return ignoredNotices(t.path, t.ignored, int64(t.Requests()))
}

func ignoredNotices(path string, ignored [len(ignoredMembers)]int64, rows int64) (out []string) {
	for i, n := range ignored {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s: %d of %d rows have %s, which changes nothing here", path, n, rows, ignoredMembers[i]))
		}
	}
	return out
}

type traceSession struct {
	startMs float64 // authored; NaN: none
	first   int32   // its first turn
	line    int32   // of its first row
	name    string
	named   bool // else the name is made up from the line
}

// id is the session id that a report shows.
func (s *traceSession) id() string {
	if s.named {
		return s.name
	}
	return "request_" + strconv.Itoa(int(s.line))
}

type traceTurn struct {
	delayMs       float64 // after the turn before; of a graph node: not_before
	first         int     // its blocks are nodes[first:]
	input, output int32
	extra         int32 // index in extras
}

// turnExtra is what most turns do not have.
type turnExtra struct {
	priority       int32
	strictPriority uint32
	policyClass    string
	outputIDs      []uint32 // authored tokens, delta traces only
}

// Format returns the format that was read.
func (t *Trace) Format() Format { return t.format }

// BlockSize is the number of tokens per hash id.
func (t *Trace) BlockSize() int { return t.blockSize }

// Digest is the SHA-256 of the content: of the file's bytes, or of the digests of
// several files in the order given.
func (t *Trace) Digest() string { return t.digest }

// Requests is the number of requests that a full replay makes.
func (t *Trace) Requests() int { return len(t.turns) }

// Sessions is the number of sessions, or of plays of an agentic trace.
func (t *Trace) Sessions() int {
	if t.graph != nil {
		return len(t.graph.plays)
	}
	return len(t.sessions) - 1
}

// InputTokens and OutputTokens are totals over all requests. Of a mooncake-delta
// trace the input counts what each turn adds.
func (t *Trace) InputTokens() int64  { return t.inputTokens }
func (t *Trace) OutputTokens() int64 { return t.outputTokens }

// Agentic reports whether requests depend on each other by a graph.
func (t *Trace) Agentic() bool { return t.graph != nil }

// view is a trace seen at one engine block size.
type view struct {
	once  sync.Once
	ratio int32    // engine blocks per node
	nodes []uint32 // slab
	first []int    // [turn], offset in nodes; nil: the trace's own
}

// at returns the view at a block size, made at first use and shared afterwards.
func (t *Trace) at(blockSize int) (*view, error) {
	t.mu.Lock()
	v := t.views[blockSize]
	if v == nil {
		v = new(view)
		if t.views == nil {
			t.views = make(map[int]*view)
		}
		t.views[blockSize] = v
	}
	t.mu.Unlock()
	v.once.Do(func() { t.look(v, blockSize) })
	if v.ratio == 0 {
		return nil, fmt.Errorf("block_size %d cuts the trace's %d distinct blocks of %d tokens into more than can be numbered",
			blockSize, t.nodeCount, t.blockSize)
	}
	return v, nil
}

// look fills a view. Where engine blocks divide trace blocks, they are named by
// arithmetic. Elsewhere block b ends at token (b+1)*blockSize - 1, in trace block k:
// everything up to there is equal iff the chain nodes of k are equal, so (node k,
// b minus the first block that ends in k) is its identity.
func (t *Trace) look(v *view, blockSize int) {
	if t.blockSize%blockSize == 0 {
		v.nodes, v.ratio = t.nodes, int32(t.blockSize/blockSize)
		return
	}
	perNode := (t.blockSize + blockSize - 1) / blockSize
	if int64(t.nodeCount)*int64(perNode) > math.MaxUint32 {
		return
	}
	total := 0
	v.first = make([]int, len(t.turns))
	for i := range t.turns {
		v.first[i] = total
		total += int(t.turns[i].input) / blockSize
	}
	v.nodes = make([]uint32, 0, total)
	for i := range t.turns {
		turn := &t.turns[i]
		k, inK := -1, 0
		for b := range int(turn.input) / blockSize {
			if at := ((b+1)*blockSize - 1) / t.blockSize; at != k {
				k, inK = at, 0
			}
			v.nodes = append(v.nodes, t.nodes[turn.first+k]*uint32(perNode)+uint32(inK))
			inK++
		}
	}
	v.ratio = 1
}

// prompt returns the block identities of a turn.
func (v *view) prompt(t *Trace, i, blockSize int) kv.Prompt {
	turn := &t.turns[i]
	shared := turn.input / int32(blockSize)
	from := turn.first
	if v.first != nil {
		from = v.first[i]
	}
	to := from + int((shared+v.ratio-1)/v.ratio)
	return kv.Prompt{Nodes: v.nodes[from:to:to], Ratio: v.ratio, Shared: shared, Base: kv.PrivateBase(int64(i))}
}

// Drive says how a trace is released in one run.
type Drive struct {
	BlockSize   int     // of the engines (of the prefill engines in a disaggregated run)
	ClosedLoop  bool    // Concurrency sessions at a time, timestamps unused
	Concurrency int     // closed loop only
	Speedup     float64 // open loop: divides starts and delays
	Laned       bool    // agentic: at most Lanes plays at a time
	Lanes       int
}

// NewSource returns the load of one run, as the table of spec workload 0 says.
func (t *Trace) NewSource(d Drive) (workload.Source, error) {
	if err := t.checkDrive(d); err != nil {
		return nil, err
	}
	if err := workload.CheckOwnBlocks(t.maxTokens, d.BlockSize); err != nil {
		return nil, err
	}
	if t.delta() && t.maxTokens > workload.MaxTokens {
		return nil, fmt.Errorf("a session grows to %d tokens; at most %d can be replayed", t.maxTokens, workload.MaxTokens)
	}
	if t.graph != nil {
		return newPlays(t, d)
	}
	f := &traceFeed{trace: t, drive: d, named: true}
	if err := f.shape(); err != nil {
		return nil, err
	}
	if !d.ClosedLoop {
		f.named = t.multiTurn && !t.anonymous
	}
	var err error
	if t.delta() {
		f.delta = newDeltaState(t, d.BlockSize)
	} else if f.view, err = t.at(d.BlockSize); err != nil {
		return nil, err
	}
	if d.ClosedLoop {
		return workload.NewSessions(f, d.Concurrency), nil
	}
	if !t.multiTurn {
		return workload.NewQueue(f, 0), nil
	}
	return workload.NewSessions(f, 0), nil
}

// checkDrive refuses load controls that do not fit the trace.
func (t *Trace) checkDrive(d Drive) error {
	if d.Laned {
		switch {
		case d.Lanes < 1:
			return errors.New("agentic_lanes must be at least 1")
		case d.ClosedLoop:
			return errors.New("agentic_lanes cannot be combined with replay_concurrency")
		case t.graph == nil && t.format == Dynamo:
			return errors.New("agentic_lanes requires an agentic Dynamo request trace")
		case t.graph == nil:
			return errors.New("agentic_lanes requires trace_format='agentic_mooncake', 'weka', or 'dynamo'")
		}
	}
	if d.ClosedLoop {
		switch {
		case d.Concurrency < 1:
			return errors.New("replay_concurrency must be at least 1")
		case t.graph != nil && t.format == AgenticMooncake:
			return errors.New("agentic_mooncake trace format is not supported with replay_concurrency")
		case t.graph != nil:
			return errors.New("agentic Dynamo request traces are not supported with replay_concurrency")
		}
		return nil
	}
	if t.format == AppliedCompute {
		return errors.New("trace_format='applied_compute_agentic' requires replay_concurrency because source traces do not contain first-turn timestamps")
	}
	if !(d.Speedup > 0) || math.IsInf(d.Speedup, 0) {
		return fmt.Errorf("ratio must be a finite positive number, got %s", workload.FormatFloat(d.Speedup))
	}
	return nil
}

// delta reports whether prompts grow turn by turn.
func (t *Trace) delta() bool { return t.format == MooncakeDelta && t.multiTurn }

// traceFeed hands out the sessions of a trace.
type traceFeed struct {
	trace  *Trace
	drive  Drive
	view   *view       // unless delta
	delta  *deltaState // grown prompts
	named  bool        // the report shows sessions
	zeroMs float64     // open loop: the first start
	at     int         // sessions handed out
}

// shape checks the starts of all sessions and, in open loop, finds the first one.
// In closed loop they are not used, may be missing, but must not be negative.
func (f *traceFeed) shape() error {
	t := f.trace
	sessions := t.sessions[:len(t.sessions)-1]
	if !f.drive.ClosedLoop {
		f.zeroMs = math.Inf(1)
		for i := range sessions {
			s := &sessions[i]
			if math.IsNaN(s.startMs) {
				return t.spot(s).fail(nil, "trace mode requires first_arrival_timestamp_ms for session %s", s.id())
			}
			f.zeroMs = min(f.zeroMs, s.startMs)
		}
	}
	for i := range sessions {
		s := &sessions[i]
		if startMs := (s.startMs - f.zeroMs) / f.drive.speedup(); startMs < 0 || math.IsInf(startMs, 0) {
			return t.spot(s).fail(nil, "session %s has invalid first_arrival_timestamp_ms %s", s.id(), workload.FormatFloat(startMs))
		}
	}
	return nil
}

// speedup is what starts and delays are divided by.
func (d *Drive) speedup() float64 {
	if d.ClosedLoop {
		return 1
	}
	return d.Speedup
}

// spot is where a session begins in the trace's file.
func (t *Trace) spot(s *traceSession) spot { return spot{t.path, int(s.line)} }

func (f *traceFeed) Next() (ref workload.SessionRef, startMs float64, ok bool) {
	t := f.trace
	if f.at == len(t.sessions)-1 {
		return workload.SessionRef{}, 0, false
	}
	i := f.at
	f.at++
	if f.drive.ClosedLoop {
		return workload.SessionRef{Index: int64(i)}, 0, true
	}
	if t.order != nil {
		i = int(t.order[i])
	}
	return workload.SessionRef{Index: int64(i)}, (t.sessions[i].startMs - f.zeroMs) / f.drive.speedup(), true
}

func (f *traceFeed) Turns(ref workload.SessionRef) int32 {
	return f.trace.sessions[ref.Index+1].first - f.trace.sessions[ref.Index].first
}

func (f *traceFeed) Total() int64 { return int64(len(f.trace.turns)) }

func (f *traceFeed) DelayMs(ref workload.SessionRef, turn int32) float64 {
	return f.trace.turns[f.trace.sessions[ref.Index].first+turn].delayMs / f.drive.speedup()
}

func (f *traceFeed) Fill(r *workload.Request, ref workload.SessionRef, turn int32) {
	t := f.trace
	s := &t.sessions[ref.Index]
	i := int(s.first + turn)
	t.fill(r, i)
	if f.delta != nil {
		f.delta.grow(r, ref, i)
	} else {
		r.Prompt = f.view.prompt(t, i, f.drive.BlockSize)
	}
}

func (f *traceFeed) Names(ref workload.SessionRef, turn int32) workload.Names {
	if !f.named {
		return workload.Names{}
	}
	return workload.Names{Session: f.trace.sessions[ref.Index].id(), Turn: turn, HasSession: true}
}

// fill sets the fields of a turn that need no session and no block size.
func (t *Trace) fill(r *workload.Request, i int) {
	turn, extra := &t.turns[i], &t.extras[t.turns[i].extra]
	r.Ordinal = int64(i)
	r.PromptTokens = turn.input
	r.OutputTokens = turn.output
	r.Priority = extra.priority
	r.StrictPriority = extra.strictPriority
	r.PolicyClass = extra.policyClass
}

func (f *traceFeed) Ended(ref workload.SessionRef, turn, emitted int32, how workload.Outcome) {
	if f.delta != nil {
		i := f.trace.sessions[ref.Index].first + turn
		last := i+1 == f.trace.sessions[ref.Index+1].first
		f.delta.ended(ref, int(i), emitted, how, last)
	}
}

// finish makes the derived parts of a trace whose sessions and turns stand.
func (t *Trace) finish() {
	n := len(t.sessions) - 1
	t.multiTurn = n < len(t.turns)
	byStart := func(a, b int32) bool {
		x, y := t.sessions[a].startMs, t.sessions[b].startMs
		return x < y || x == y && a < b
	}
	for i := 1; i < n && t.order == nil; i++ {
		if byStart(int32(i), int32(i-1)) {
			t.order = make([]int32, n)
		}
	}
	if t.order != nil {
		for i := range t.order {
			t.order[i] = int32(i)
		}
		sort.Slice(t.order, func(i, j int) bool { return byStart(t.order[i], t.order[j]) })
	}
	t.total()
}

// total sums tokens.
func (t *Trace) total() {
	for i := range t.turns {
		in, out := int64(t.turns[i].input), int64(t.turns[i].output)
		t.inputTokens += in
		t.outputTokens += out
		t.maxTokens = max(t.maxTokens, in+out)
	}
	if !t.delta() {
		return
	}
	for i := range len(t.sessions) - 1 {
		sum := int64(0)
		for _, turn := range t.turns[t.sessions[i].first:t.sessions[i+1].first] {
			sum += int64(turn.input) + int64(turn.output)
		}
		t.maxTokens = max(t.maxTokens, sum)
	}
}
