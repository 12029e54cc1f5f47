package trace

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// wekaGraph gathers the objects of a weka source and then their nodes.
type wekaGraph struct {
	objects []*wekaObject
	b       *builder
	nodes   []graphNode
	plays   int
	corpus  blake3 // of the files, without their basis
}

// add checks one object and keeps it.
func (w *wekaGraph) add(o *wekaObject, blockSize int) error {
	if err := o.check(); err != nil {
		return err
	}
	if w.b == nil {
		if blockSize != 0 && uint64(blockSize) != o.blockSize {
			return o.at.fail(nil, "Weka source block size %d does not match configured block size %d", o.blockSize, blockSize)
		}
		w.b = newBuilder(LoadOptions{Format: Weka, BlockSize: int(o.blockSize)}, 0)
	}
	if have := uint64(w.b.t.blockSize); o.blockSize != have {
		return o.at.fail(nil, "Weka corpus mixes block sizes: %s has %d, expected %d", o.label, o.blockSize, have)
	}
	w.objects = append(w.objects, o)
	return nil
}

// basis returns what inner times of the whole source count from: what the caller
// wants, or what the times show; WekaAuto if no subagent has requests.
func (w *wekaGraph) basis(want WekaTimestamps) WekaTimestamps {
	found := want
	for _, o := range w.objects {
		for i := range o.entries {
			e := &o.entries[i]
			for k := range e.inner {
				if want == WekaAuto && e.inner[k].t < e.t-wekaTolerance {
					return WekaRelative
				}
				found = max(found, WekaAbsolute)
			}
		}
	}
	return found
}

// lower makes a play of an object.
func (w *wekaGraph) lower(o *wekaObject, basis WekaTimestamps) error {
	sum := blakeText(o.label)
	p := &wekaPlay{w: w, o: o, prefix: "weka:" + hex.EncodeToString(sum[:8]) + ":", startS: math.Inf(1),
		shared: make(map[uint64]uint64), taken: make(map[uint64]bool)}
	for i := range o.entries {
		e := &o.entries[i]
		if err := o.clock(e, basis); err != nil {
			return err
		}
		if !e.subagent {
			p.startS = min(p.startS, e.startS)
		}
		for k := range e.inner {
			p.startS = min(p.startS, e.inner[k].startS)
		}
	}
	p.lower()
	w.plays++
	return nil
}

// wekaPlay is one object while its graph is made.
type wekaPlay struct {
	w      *wekaGraph
	o      *wekaObject
	prefix string
	startS float64           // the earliest start of its requests
	shared map[uint64]uint64 // ids of the blocks that have a hash, by hash
	taken  map[uint64]bool   // ids in use
}

// wekaScope holds the streams of one list of requests.
type wekaScope struct {
	streams []*wekaStream
	waiter  *wekaRequest // waits for the last request of each stream; nil: none
}

// lower makes nodes and edges. The edges of a node stand in the order sequence,
// spawn, barriers, joins, as those of the reference do (spec workload 2.8).
func (p *wekaPlay) lower() {
	var outer []*wekaRequest
	for i := range p.o.entries {
		if e := &p.o.entries[i]; !e.subagent {
			p.node(&e.wekaRequest, fmt.Sprintf("outer:%d", i))
			outer = append(outer, &e.wekaRequest)
		}
	}
	scopes := []wekaScope{{streams: p.streams(outer, "session:root")}}
	for i := range p.o.entries {
		e := &p.o.entries[i]
		if !e.subagent || len(e.inner) == 0 {
			continue
		}
		var inner []*wekaRequest
		for k := range e.inner {
			p.node(&e.inner[k], fmt.Sprintf("outer:%d:inner:%d", i, k))
			inner = append(inner, &e.inner[k])
		}
		scope := wekaScope{streams: p.streams(inner, fmt.Sprintf("session:subagent:%d:%s", i, e.agent))}
		owner, stream := ownerOf(scopes[0].streams, i)
		scope.streams[0].fork = owner
		scope.waiter = e.waiter(stream, i)
		scopes = append(scopes, scope)
	}
	p.link(scopes)
}

// link adds the edges inside and between the streams of a play.
func (p *wekaPlay) link(scopes []wekaScope) {
	for _, scope := range scopes {
		for _, s := range scope.streams {
			for k := 1; k < len(s.requests); k++ {
				p.edge(s.requests[k-1], s.requests[k], sequence, onCompletion)
			}
			if first := s.requests[0]; s.fork != nil && first.startS < s.fork.endS {
				p.edge(s.fork, first, spawn, onDispatch)
			} else if s.fork != nil {
				p.edge(s.fork, first, spawn, onCompletion)
			}
		}
	}
	for _, scope := range scopes {
		for _, s := range scope.streams {
			for _, r := range s.requests {
				p.barriers(scope.streams, s, r)
			}
		}
	}
	for _, scope := range scopes {
		for _, s := range scope.streams {
			if scope.waiter != nil {
				p.edge(s.requests[len(s.requests)-1], scope.waiter, join, onCompletion)
			}
		}
	}
	root := scopes[0].streams[0].requests[0]
	for _, scope := range scopes {
		for _, s := range scope.streams {
			if first := s.requests[0]; first != root && len(p.w.nodes[first.node].deps) == 0 {
				p.edge(root, first, spawn, onDispatch)
			}
		}
	}
}

// node adds a request. Its full blocks are named by the hashes of its object; the
// partial tail and blocks without a hash are its own.
func (p *wekaPlay) node(r *wekaRequest, sourceID string) {
	r.sourceID = sourceID
	w, t := p.w, p.w.b.t
	r.node = len(w.nodes)
	w.nodes = append(w.nodes, graphNode{id: p.prefix + "request:" + sourceID, play: p.prefix + "play:" + p.o.id, model: r.model,
		ordinal: w.plays, at: p.o.at, notBeforeMs: wekaMs(r.startS - p.startS), apiMs: r.recordedMs()})
	turn := traceTurn{first: len(t.nodes), input: int32(r.input), output: int32(r.output)}
	full := int(r.input) / t.blockSize
	parent := w.b.chain.next(root, uint64(w.plays)) // keeps objects apart
	if int(parent) == len(t.ids) {
		t.ids = append(t.ids, 0)
	}
	for k := range (int(r.input) + t.blockSize - 1) / t.blockSize {
		if k < min(full, len(r.ids)) {
			parent = w.b.chain.next(parent, r.ids[k])
		} else {
			parent = w.b.chain.fresh()
		}
		if int(parent) == len(t.ids) {
			t.ids = append(t.ids, p.blockID(w.nodes[r.node].id, r, k, full))
		}
		t.nodes = append(t.nodes, parent)
	}
	t.turns = append(t.turns, turn)
}

// blockID returns the id that the graph gives block k of a request, of which so many
// are full: equal hashes of an object have equal ids, blocks without a hash ids of
// their own (spec workload 2.8).
func (p *wekaPlay) blockID(request string, r *wekaRequest, k, full int) uint64 {
	switch {
	case k >= full:
		return p.unusedID(fmt.Sprintf("weka-partial-tail\x00%s:%d:%d", request, full, r.input))
	case k >= len(r.ids):
		return p.unusedID(fmt.Sprintf("weka-full-block\x00private:missing:%s:%d", request, k))
	}
	id, ok := p.shared[r.ids[k]]
	if !ok {
		id = p.unusedID(fmt.Sprintf("weka-full-block\x00source:%s:%d", p.o.label, r.ids[k]))
		p.shared[r.ids[k]] = id
	}
	return id
}

// unusedID returns the id of an identity, with the first nonce that gives one which no
// other identity of the object has.
func (p *wekaPlay) unusedID(identity string) uint64 {
	for nonce := 0; ; nonce++ {
		sum := blakeText(identity + "\x00" + strconv.Itoa(nonce))
		if id := binary.LittleEndian.Uint64(sum[:8]); !p.taken[id] {
			p.taken[id] = true
			return id
		}
	}
}

// edge lets request to wait for the end or the start of request from. Of two edges
// with the same source, trigger and relation the first one stays.
func (p *wekaPlay) edge(from, to *wekaRequest, why relation, on trigger) {
	d := dependency{from: p.w.nodes[from.node].id, relation: why, trigger: on}
	switch {
	case why == replayBarrier:
	case on == onDispatch:
		d.delayMs = wekaMs(to.startS - from.startS)
	default:
		d.delayMs = wekaMs(to.startS - from.endS)
	}
	node := &p.w.nodes[to.node]
	for _, have := range node.deps {
		if have.from == d.from && have.trigger == d.trigger && have.relation == d.relation {
			return
		}
	}
	node.deps = append(node.deps, d)
}

// barriers makes r wait, in each other stream of its list, for the request that ended
// last of those that started before r and were over at its start. A request that was
// over when another of these started needs no barrier of its own.
func (p *wekaPlay) barriers(streams []*wekaStream, own *wekaStream, r *wekaRequest) {
	var last []*wekaRequest
	for _, other := range streams {
		if other == own {
			continue
		}
		var found *wekaRequest
		for _, q := range other.requests {
			if q.startS < r.startS && q.overAt(r) && (found == nil || endsAfter(q, found)) {
				found = q
			}
		}
		if found != nil {
			last = append(last, found)
		}
	}
	for _, q := range last {
		if !slices.ContainsFunc(last, func(l *wekaRequest) bool { return q.startS < l.startS && q.overAt(l) }) {
			p.edge(q, r, replayBarrier, onCompletion)
		}
	}
}

// endsAfter orders requests by end, start and source id.
func endsAfter(a, b *wekaRequest) bool {
	return cmp.Or(cmp.Compare(a.endS, b.endS), cmp.Compare(a.startS, b.startS), cmp.Compare(a.sourceID, b.sourceID)) > 0
}

// ownerOf returns the last top-level request listed before a subagent, and its stream.
func ownerOf(streams []*wekaStream, index int) (owner *wekaRequest, stream *wekaStream) {
	for _, s := range streams {
		for _, r := range s.requests {
			if r.index < index && (owner == nil || r.index > owner.index) {
				owner, stream = r, s
			}
		}
	}
	return owner, stream
}

// waiter returns the request that waits for the end of a subagent that blocks: the
// first one in its owner's stream that is listed after it and starts no earlier than
// its end. It is nil if there is none.
func (e *wekaEntry) waiter(stream *wekaStream, index int) *wekaRequest {
	if e.status != "completed" {
		return nil
	}
	endS := e.t
	for k := range e.inner {
		endS = max(endS, e.inner[k].endS)
	}
	if e.hasDuration {
		endS = e.t + e.durationMs/1000
	}
	var first *wekaRequest
	for _, r := range stream.requests {
		if r.index > index && r.startS+wekaTolerance >= endS && (first == nil || r.index < first.index) {
			first = r
		}
	}
	return first
}
