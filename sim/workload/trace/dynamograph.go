package trace

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// check makes the checks over all files: the common block size, and whether the
// requests are those of agents. want is the block size asked for, 0 if none.
func (d *dynamoTrace) check(path string, want int) (blockSize int, agent bool, err error) {
	if len(d.requests) == 0 {
		return 0, false, &InputError{File: path, Msg: "Dynamo trace contains no request_end records"}
	}
	first := &d.requests[0]
	for i := range d.requests {
		if r := &d.requests[i]; r.agent != first.agent {
			return 0, false, r.at.fail(nil, "Dynamo request trace cannot mix requests with and without agent_context")
		}
	}
	if first.blockSize == 0 {
		return 0, false, first.at.fail(nil, "embedded trace block size must be positive")
	}
	for i := range d.requests {
		if r := &d.requests[i]; r.blockSize != first.blockSize {
			return 0, false, r.at.fail(nil, "mixed replay trace_block_size values are not supported")
		}
	}
	if want != 0 && uint64(want) != first.blockSize {
		return 0, false, first.at.fail(nil, "trace_block_size %d does not match embedded Dynamo request trace block size %d", want, first.blockSize)
	}
	if first.blockSize > math.MaxInt32 {
		return 0, false, first.at.fail(nil, "embedded trace block size must be at most %d", math.MaxInt32)
	}
	return int(first.blockSize), first.agent, nil
}

// row returns a request as a row whose hashes it shares.
func (d *dynamoTrace) row(r *dynamoRequest) row {
	has := hasIDs | hasInput | hasRequestID | hasSession
	if r.hasOutput {
		has |= hasOutput
	}
	return row{has: has, ids: d.ids[r.from:r.to], input: r.input, output: r.output, requestID: r.id, session: r.session}
}

// plain makes a trace of context-free requests: each its own session, in order of
// time.
func (d *dynamoTrace) plain(path string, o LoadOptions) (*Trace, error) {
	b := newBuilder(o, 0)
	zero := d.requests[0].start
	for i := range d.requests {
		r := &d.requests[i]
		row := d.row(r)
		n := i + 1
		if !r.hasOutput {
			return nil, r.at.fail(nil, "missing output_tokens")
		}
		if capacity := uint64(len(row.ids)) * uint64(o.BlockSize); r.input > capacity {
			return nil, r.at.fail(nil, "trace line %d input_length %d exceeds hash_ids capacity %d", n, r.input, capacity)
		}
		if err := row.checkOutput(r.at, n); err != nil {
			return nil, err
		}
		if r.input == 0 {
			return nil, r.at.fail(nil, "session request_%d turn 0 must have a positive input_length", n)
		}
		b.t.sessions = append(b.t.sessions, traceSession{startMs: float64(r.start - zero), line: int32(n)})
		b.sessionOf = append(b.sessionOf, int32(i))
		b.addTurn(n, row.ids, int32(r.input), int32(r.output), 0, turnExtra{})
	}
	b.t.anonymous = true
	return b.finish(path)
}

// graph makes a trace of agents' requests; their order in d.requests is the sorted
// one.
func (d *dynamoTrace) graph(path string, o LoadOptions) (*Trace, error) {
	g, err := d.sessionsOf()
	if err != nil {
		return nil, err
	}
	if err := g.lower(); err != nil {
		return nil, err
	}
	o.Contents = true
	b := newBuilder(o, 0)
	seen := make(map[string]bool, len(g.nodes))
	for i := range g.nodes {
		r, node := &d.requests[i], &g.nodes[i]
		if !r.hasOutput {
			return nil, r.at.fail(nil, "missing output_tokens")
		}
		if len(node.deps) == 0 {
			node.notBeforeMs = float64(r.start - d.requests[0].start)
		}
		row := agenticRow{row: d.row(r), play: "-", model: r.model, deps: node.deps, notBeforeMs: node.notBeforeMs}
		if err := row.check(r.at, i+2, o.BlockSize, seen); err != nil {
			return nil, err
		}
		b.addTurn(r.at.line, row.ids, int32(r.input), int32(r.output), 0, turnExtra{})
	}
	nameComponents(g.nodes, "dynamo-play:")
	source := Provenance{Format: dynamoSchema, Digest: fmt.Sprintf("requests:%d;tools:%d", len(d.requests), len(d.tools))}
	return b.finishGraph(path, g.nodes, source)
}

// dynamoGraph is a trace of agents while its edges are found. Requests are numbers
// in sorted order.
type dynamoGraph struct {
	*dynamoTrace
	nodes    []graphNode      // [request]
	at       map[string]int   // request by id
	of       map[string][]int // requests by session, in order
	order    []string         // sessions by first request
	parent   map[string]string
	tool     map[string]*dynamoTool // by child session
	explicit map[[2]string]bool     // session pairs linked by explicit dependencies
}

// sessionsOf groups the requests by session and finds every session's parent.
func (d *dynamoTrace) sessionsOf() (*dynamoGraph, error) {
	g := &dynamoGraph{dynamoTrace: d, nodes: make([]graphNode, len(d.requests)), at: make(map[string]int), of: make(map[string][]int),
		parent: make(map[string]string), tool: make(map[string]*dynamoTool), explicit: make(map[[2]string]bool)}
	for i := range d.requests {
		r := &d.requests[i]
		g.nodes[i] = graphNode{id: r.id, session: r.session, model: r.model, ordinal: -1, at: r.at, apiMs: -1}
		g.at[r.id] = i
		if len(g.of[r.session]) == 0 {
			g.order = append(g.order, r.session)
		}
		g.of[r.session] = append(g.of[r.session], i)
		if r.parent == "" {
			continue
		}
		if p := g.parent[r.session]; p != "" && p != r.parent {
			return nil, r.at.fail(nil, "session %q has conflicting parent_session_id values %q and %q", r.session, p, r.parent)
		}
		g.parent[r.session] = r.parent
	}
	for _, session := range g.order {
		if p := g.parent[session]; p != "" && len(g.of[p]) == 0 {
			return nil, d.requests[g.of[session][0]].at.fail(nil, "child session %q references unknown parent session %q", session, p)
		}
	}
	return g, nil
}

// edge lets request to wait for request from, unless it does so already.
func (g *dynamoGraph) edge(from, to int, on trigger, why relation, delayMs float64) {
	node := &g.nodes[to]
	for _, d := range node.deps {
		if d.from == g.requests[from].id && d.trigger == on {
			return
		}
	}
	node.deps = append(node.deps, dependency{from: g.requests[from].id, trigger: on, relation: why, delayMs: delayMs})
}

// gapMs is the time from the trigger at request from to the start of request to.
func (g *dynamoGraph) gapMs(from, to int, on trigger) float64 {
	at := g.requests[from].end
	if on == onDispatch {
		at = g.requests[from].start
	}
	if start := g.requests[to].start; start < at {
		return -float64(at - start)
	} else {
		return float64(start - at)
	}
}

// lower finds all edges: inside sessions, by explicit dependencies, and between
// parents and children.
func (g *dynamoGraph) lower() error {
	for _, session := range g.order {
		requests := g.of[session]
		for k := 1; k < len(requests); k++ {
			from, to := requests[k-1], requests[k]
			g.edge(from, to, onCompletion, sequence, g.gapMs(from, to, onCompletion))
		}
	}
	if err := g.readTools(); err != nil {
		return err
	}
	if err := g.readExplicits(); err != nil {
		return err
	}
	for _, session := range g.order {
		parent := g.parent[session]
		if parent == "" {
			continue
		}
		if t := g.tool[session]; t != nil && g.requests[g.at[t.source]].session != parent {
			return t.at.fail(nil, "tool %q source request %q is not in parent session %q", t.id, t.source, parent)
		}
		g.family(session, parent)
	}
	return nil
}

// readTools checks the tool records of agents and remembers which one started a
// session.
func (g *dynamoGraph) readTools() error {
	for i := range g.tools {
		t := &g.tools[i]
		if !t.claude {
			continue
		}
		if t.mode != "blocking" && t.mode != "background" {
			return t.at.fail(nil, "tool %q (%s) has unsupported execution_mode %q", t.id, t.class, t.mode)
		}
		named := []string{t.source}
		if t.hasConsumer {
			named = append(named, t.consumer)
		}
		for _, id := range named {
			k, ok := g.at[id]
			if !ok {
				return t.at.fail(nil, "tool %q references unknown request_id %q", t.id, id)
			}
			if s := g.requests[k].session; s != t.session {
				return t.at.fail(nil, "tool %q request %q belongs to session %q, expected %q", t.id, id, s, t.session)
			}
		}
		if !t.hasChild || len(g.of[t.child]) == 0 {
			continue
		}
		if g.tool[t.child] != nil {
			return t.at.fail(nil, "multiple tool events reference child session %q", t.child)
		}
		g.tool[t.child] = t
	}
	return nil
}

func (g *dynamoGraph) readExplicits() error {
	for to := range g.requests {
		r := &g.requests[to]
		for _, d := range r.deps {
			from, ok := g.at[d.from]
			if !ok {
				return r.at.fail(nil, "request %q depends on unknown request_id %q", r.id, d.from)
			}
			source := &g.requests[from]
			if source.start > r.start {
				return r.at.fail(nil, "request %q depends on later request %q", r.id, d.from)
			}
			g.edge(from, to, d.trigger, d.relation, max(0, g.gapMs(from, to, d.trigger)))
			if source.session != r.session {
				g.explicit[[2]string{source.session, r.session}] = true
				g.explicit[[2]string{r.session, source.session}] = true
			}
		}
	}
	return nil
}

// family links a child session to its parent.
func (g *dynamoGraph) family(session, parent string) {
	child := g.of[session]
	first, last := child[0], g.latest(child, math.MaxUint64)
	if t := g.tool[session]; t != nil {
		source := g.at[t.source]
		g.edge(source, first, onDispatch, spawn, g.gapMs(source, first, onDispatch))
		if t.hasConsumer {
			consumer := g.at[t.consumer]
			if from := g.latest(child, g.requests[consumer].start); from >= 0 {
				g.edge(from, consumer, onCompletion, join, g.gapMs(from, consumer, onCompletion))
			}
		}
		return
	}
	if g.explicit[[2]string{session, parent}] {
		return
	}
	spawner, joiner := -1, -1
	for _, p := range g.of[parent] {
		if g.requests[p].start <= g.requests[first].start {
			spawner = p
		}
		if joiner < 0 && g.requests[p].start >= g.requests[last].end {
			joiner = p
		}
	}
	if spawner >= 0 {
		g.edge(spawner, first, onDispatch, spawn, g.gapMs(spawner, first, onDispatch))
	}
	if joiner >= 0 {
		g.edge(last, joiner, onCompletion, join, g.gapMs(last, joiner, onCompletion))
	}
}

// latest returns the request with the largest (end, start, id) among those that
// end by endMs, -1 if there is none.
func (g *dynamoGraph) latest(requests []int, endMs uint64) int {
	best := -1
	for _, i := range requests {
		r := &g.requests[i]
		if r.end > endMs {
			continue
		}
		if best >= 0 {
			b := &g.requests[best]
			if cmp.Or(cmp.Compare(r.end, b.end), cmp.Compare(r.start, b.start), strings.Compare(r.id, b.id)) < 0 {
				continue
			}
		}
		best = i
	}
	return best
}
