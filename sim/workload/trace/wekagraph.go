package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// wekaGraph gathers the objects of a weka source and then their nodes.
type wekaGraph struct {
	objects []*wekaObject
	b       *builder
	nodes   []graphNode
	plays   int
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

// basis returns what inner times of the whole source count from; WekaAuto if there
// are none.
func (w *wekaGraph) basis(want WekaTimestamps) WekaTimestamps {
	found := WekaAuto
	for _, o := range w.objects {
		for i := range o.entries {
			e := &o.entries[i]
			for k := range e.inner {
				if e.inner[k].t < e.t {
					found = WekaRelative
				}
				found = max(found, WekaAbsolute)
			}
		}
	}
	if found == WekaAuto || want == WekaAuto {
		return found
	}
	return want
}

// lower makes a play of an object.
func (w *wekaGraph) lower(o *wekaObject, relative bool) {
	p := &wekaPlay{w: w, o: o, prefix: "weka:" + labelDigest(o.label) + ":", startNs: math.MaxInt64}
	for i := range o.entries {
		e := &o.entries[i]
		e.clock(relative)
		if !e.subagent {
			p.startNs = min(p.startNs, e.start)
		}
		for k := range e.inner {
			p.startNs = min(p.startNs, e.inner[k].start)
		}
	}
	p.lower()
	w.plays++
}

// wekaPlay is one object while its graph is made.
type wekaPlay struct {
	w       *wekaGraph
	o       *wekaObject
	prefix  string
	startNs int64
}

// lower makes nodes and edges: streams at the top level, streams inside each
// subagent, and the edges between a subagent and its parent.
func (p *wekaPlay) lower() {
	var outer []*wekaRequest
	for i := range p.o.entries {
		if e := &p.o.entries[i]; !e.subagent {
			p.node(&e.wekaRequest, fmt.Sprintf("request:outer:%d", i))
			outer = append(outer, &e.wekaRequest)
		}
	}
	parents := p.link(outer, "session:root")
	for i := range p.o.entries {
		e := &p.o.entries[i]
		if !e.subagent || len(e.inner) == 0 {
			continue
		}
		var inner []*wekaRequest
		for k := range e.inner {
			p.node(&e.inner[k], fmt.Sprintf("request:outer:%d:inner:%d", i, k))
			inner = append(inner, &e.inner[k])
		}
		streams := p.link(inner, fmt.Sprintf("session:subagent:%d:%s", i, e.agent))
		p.family(e, i, parents, streams)
	}
	p.adopt(parents[0].requests[0])
}

// adopt leaves root as the only request without dependencies: the others of that kind,
// which overlap all that came before them, are spawned by its start.
func (p *wekaPlay) adopt(root *wekaRequest) {
	orphan := func(r *wekaRequest) {
		node := &p.w.nodes[r.node]
		if r == root || len(node.deps) > 0 {
			return
		}
		node.deps = append(node.deps, dependency{from: p.w.nodes[root.node].id, trigger: onDispatch, relation: spawn,
			delayMs: float64(max(0, r.start-root.start)) / 1e6})
	}
	for i := range p.o.entries {
		e := &p.o.entries[i]
		if !e.subagent {
			orphan(&e.wekaRequest)
		}
		for k := range e.inner {
			orphan(&e.inner[k])
		}
	}
}

// node adds a request. Its full blocks are named by the hashes of its object; the
// partial tail and blocks without a hash are its own.
func (p *wekaPlay) node(r *wekaRequest, name string) {
	w, t := p.w, p.w.b.t
	r.node = len(w.nodes)
	w.nodes = append(w.nodes, graphNode{id: p.prefix + name, play: p.prefix + "play:" + p.o.id, model: r.model,
		ordinal: w.plays, at: p.o.at, notBeforeMs: float64(r.start-p.startNs) / 1e6})
	turn := traceTurn{first: len(t.nodes), input: int32(r.input), output: int32(r.output)}
	full := min(int(r.input)/t.blockSize, len(r.ids))
	parent := w.b.chain.next(root, uint64(w.plays)) // keeps objects apart
	for k := range (int(r.input) + t.blockSize - 1) / t.blockSize {
		if k < full {
			parent = w.b.chain.next(parent, r.ids[k])
		} else {
			parent = w.b.chain.fresh()
		}
		t.nodes = append(t.nodes, parent)
	}
	t.turns = append(t.turns, turn)
}

// edge lets request to wait for request from: for its end, or for its start if they
// overlapped and this is allowed.
func (p *wekaPlay) edge(from, to *wekaRequest, why relation, mayOverlap bool) {
	d := dependency{from: p.w.nodes[from.node].id, relation: why}
	ns := to.start - from.end
	if mayOverlap && from.endS > to.startS {
		d.trigger, ns = onDispatch, to.start-from.start
	}
	if why != replayBarrier {
		d.delayMs = float64(max(0, ns)) / 1e6
	}
	node := &p.w.nodes[to.node]
	node.deps = append(node.deps, d)
}

// overlap reports whether b starts before a ends, by more than a microsecond.
func overlap(a, b *wekaRequest) bool { return a.endS > b.startS+1e-6 }

// wekaStream is a conversation found in a list of requests.
type wekaStream struct {
	requests []*wekaRequest
	path     []uint64 // hashes that the next request would continue
	longest  int
	fork     *wekaRequest // of another stream, whose prefix the first request shares
	after    *wekaStream  // that it is to become a part of
}

func (s *wekaStream) last() *wekaRequest { return s.requests[len(s.requests)-1] }

func (s *wekaStream) add(r *wekaRequest) {
	s.requests = append(s.requests, r)
	s.longest = max(s.longest, len(r.ids))
	if n := common(s.path, r.ids); n < len(r.ids) || n == len(s.path) {
		s.path = r.ids
	}
}

// common is the number of leading hashes that two lists share.
func common(a, b []uint64) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// link splits a list of requests into streams, names their sessions and adds the
// edges inside and between them.
func (p *wekaPlay) link(requests []*wekaRequest, session string) []*wekaStream {
	byStart := slices.Clone(requests)
	slices.SortStableFunc(byStart, func(a, b *wekaRequest) int { return cmp.Compare(a.start, b.start) })
	streams := split(byStart)
	for n, s := range streams {
		name := p.prefix + session
		if n > 0 {
			name += fmt.Sprintf(":worker:%d", n-1)
		}
		for k, r := range s.requests {
			p.w.nodes[r.node].session = name
			if k > 0 {
				p.edge(s.requests[k-1], r, sequence, false)
			} else if s.fork != nil {
				p.edge(s.fork, r, spawn, true)
			}
		}
	}
	for _, s := range streams {
		for _, r := range s.requests {
			for _, other := range streams {
				if other != s {
					p.barrier(other, r)
				}
			}
		}
	}
	return streams
}

// barrier makes r wait for the last request of another stream that started before it
// and had ended when it started.
func (p *wekaPlay) barrier(other *wekaStream, r *wekaRequest) {
	var last *wekaRequest
	for _, q := range other.requests {
		if q.start < r.start && !overlap(q, r) {
			last = q
		}
	}
	if last != nil {
		p.edge(last, r, replayBarrier, false)
	}
}

// split finds the streams in requests sorted by start. A request continues a
// stream whose path it extends; or one whose path it shares in part, if no later
// request has a better claim to that path; else it begins a stream, as a fork of the
// one it shares most with. A request that continues a path in part and is itself
// extended stands for a stream of its own until all those that extend it have come.
func split(requests []*wekaRequest) []*wekaStream {
	next, extends := extensions(requests)
	of := make([]*wekaStream, len(requests))
	at := make(map[*wekaRequest]int, len(requests))
	var streams []*wekaStream
	for i, r := range requests {
		at[r] = i
		s := &wekaStream{}
		if p := extends[i]; p >= 0 {
			s = of[p]
		} else {
			if best := closest(streams, r); best != nil {
				s.fork = best.last()
				p := at[s.fork]
				if continues(s.fork, r) && next[p] < 0 && !claimed(requests, extends, p, i) {
					next[p] = i
					s.fork, s.after = nil, best
				}
			}
			streams = append(streams, s)
		}
		s.add(r)
		of[i] = s
		if s.after != nil && next[i] < 0 {
			for _, q := range s.requests {
				s.after.add(q)
				of[at[q]] = s.after
			}
			streams = slices.DeleteFunc(streams, func(x *wekaStream) bool { return x == s })
		}
	}
	return mergeLone(streams, requests)
}

// continues reports whether b may follow a in one stream.
func continues(a, b *wekaRequest) bool { return a.model == b.model && !overlap(a, b) }

// extensions pairs requests with earlier ones that they extend exactly: each one takes
// the longest that is free, among equals that of the chain that began first. next[i]
// is the request that extends i, extends[i] the one that i extends; -1 for none.
func extensions(requests []*wekaRequest) (next, extends []int) {
	next, extends = make([]int, len(requests)), make([]int, len(requests))
	var tails []int // [chain], its last request
	for k, b := range requests {
		next[k], extends[k] = -1, -1
		chain, length := -1, 0
		for c, i := range tails {
			a := requests[i]
			if len(a.ids) > length && continues(a, b) && common(a.ids, b.ids) == len(a.ids) {
				chain, length = c, len(a.ids)
			}
		}
		if chain < 0 {
			tails = append(tails, k)
			continue
		}
		extends[k] = tails[chain]
		next[extends[k]], tails[chain] = k, k
	}
	return next, extends
}

// closest returns the stream whose path shares most with r, among equals the one
// with the longest request, then the first; nil if none shares anything.
func closest(streams []*wekaStream, r *wekaRequest) *wekaStream {
	var best *wekaStream
	length := 0
	for _, s := range streams {
		n := common(s.path, r.ids)
		if n > length || n == length && n > 0 && s.longest > best.longest {
			best, length = s, n
		}
	}
	return best
}

// claimed reports whether a request after i shares more with request p than i does,
// and with no other one before it as much.
func claimed(requests []*wekaRequest, extends []int, p, i int) bool {
	own := common(requests[p].ids, requests[i].ids)
	for k := i + 1; k < len(requests); k++ {
		q := requests[k]
		n := common(requests[p].ids, q.ids)
		if n <= own || extends[k] >= 0 || !continues(requests[p], q) {
			continue
		}
		better := false
		for z := range k {
			better = better || z != p && common(requests[z].ids, q.ids) > n
		}
		if !better {
			return true
		}
	}
	return false
}

// mergeLone puts a first request that shares nothing with any other one at the head
// of the second stream: a title or a quota probe before the conversation.
func mergeLone(streams []*wekaStream, requests []*wekaRequest) []*wekaStream {
	if len(streams) < 2 || len(streams[0].requests) > 1 {
		return streams
	}
	lone := streams[0].requests[0]
	for _, r := range requests {
		if r != lone && common(lone.ids, r.ids) > 0 {
			return streams
		}
	}
	streams[1].requests = append([]*wekaRequest{lone}, streams[1].requests...)
	return streams[1:]
}

// family links the subagent at index: its first stream to the request before its marker, and, if it blocks, the first later request of that
// one's stream to their ends.
func (p *wekaPlay) family(e *wekaEntry, index int, parents, streams []*wekaStream) {
	var parent *wekaRequest
	var in *wekaStream
	for _, s := range parents {
		for _, r := range s.requests {
			if r.index < index && (parent == nil || r.index > parent.index) {
				parent, in = r, s
			}
		}
	}
	p.edge(parent, streams[0].requests[0], spawn, true)
	if e.status != "completed" {
		return
	}
	endNs := int64(0)
	for k := range e.inner {
		endNs = max(endNs, e.inner[k].end)
	}
	if e.hasDuration {
		endNs = e.start + int64(math.Round(e.durationMs*1e6))
	}
	for _, r := range in.requests {
		if r.index > index && r.start >= endNs {
			for _, s := range streams {
				p.edge(s.last(), r, join, false)
			}
			return
		}
	}
}
