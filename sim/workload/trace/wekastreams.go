package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// wekaTolerance is the difference in seconds up to which two times of a weka source
// count as the same.
const wekaTolerance = 1e-6

// wekaMs turns a difference of seconds into ms of whole nanoseconds, at least 0.
func wekaMs(s float64) float64 { return math.Round(max(0, s)*1e9) / 1e6 }

// overAt reports whether r has ended when b starts.
func (r *wekaRequest) overAt(b *wekaRequest) bool { return r.endS <= b.startS+wekaTolerance }

// before orders the requests of a list by start, then by position.
func (r *wekaRequest) before(b *wekaRequest) int {
	return cmp.Or(cmp.Compare(r.startS, b.startS), cmp.Compare(r.index, b.index))
}

// wekaStream is a conversation found in a list of requests.
type wekaStream struct {
	requests []*wekaRequest
	fork     *wekaRequest // the request whose prefix the first one shares; nil: none
}

// streams splits a list of requests into streams and names their sessions.
func (p *wekaPlay) streams(requests []*wekaRequest, session string) []*wekaStream {
	streams := splitStreams(requests)
	for n, s := range streams {
		name := p.prefix + session
		if n > 0 {
			name += fmt.Sprintf(":worker:%d", n-1)
		}
		for _, r := range s.requests {
			p.w.nodes[r.node].session = name
		}
	}
	return streams
}

// splitStreams splits a list of requests into streams, the main one first (spec
// workload 2.8, streams).
func splitStreams(requests []*wekaRequest) []*wekaStream {
	sorted := slices.Clone(requests)
	slices.SortFunc(sorted, (*wekaRequest).before)
	probe := 0
	if firstIsAlone(sorted) {
		probe = 1
	}
	f := wekaForks{at: make(map[*wekaRequest][]*wekaChain), chainOf: make(map[*wekaRequest]*wekaChain)}
	for _, r := range sorted[probe:] {
		f.place(r)
	}
	f.splice()
	var live []*wekaChain
	for _, c := range f.chains {
		if c.into == nil {
			live = append(live, c)
		}
	}
	slices.SortFunc(live, func(a, b *wekaChain) int { return a.requests[0].before(b.requests[0]) })
	streams := make([]*wekaStream, len(live))
	for n, c := range live {
		streams[n] = &wekaStream{requests: c.requests, fork: c.fork}
	}
	main := streams[0]
	main.requests = append(main.requests, sorted[:probe]...)
	slices.SortFunc(main.requests, (*wekaRequest).before)
	return streams
}

// firstIsAlone reports whether the first request shares nothing with the others and
// is a title or a quota probe before the conversation: it has a short output, or no
// other request has any of its hashes.
func firstIsAlone(sorted []*wekaRequest) bool {
	const shortOutput = 64
	if len(sorted) < 2 || len(sorted[0].ids) == 0 {
		return false
	}
	first := sorted[0]
	hashes := make(map[uint64]bool, len(first.ids))
	for _, id := range first.ids {
		hashes[id] = true
	}
	again := false
	for _, r := range sorted[1:] {
		if commonPrefix(first.ids, r.ids) > 0 {
			return false
		}
		again = again || slices.ContainsFunc(r.ids, func(id uint64) bool { return hashes[id] })
	}
	return first.output <= shortOutput || !again
}

// commonPrefix is the number of leading hashes that two lists share.
func commonPrefix(a, b []uint64) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// wekaChain is a stream while it is looked for.
type wekaChain struct {
	number   int
	requests []*wekaRequest
	tail     *wekaRequest // the last request with hashes; nil: none yet
	fork     *wekaRequest // the tail at which the chain began; nil: it shares nothing
	depth    int          // hashes shared with fork
	into     *wekaChain   // the chain that it became a part of; nil: it stands
}

// hashes returns the hashes of the tail.
func (c *wekaChain) hashes() []uint64 {
	if c.tail == nil {
		return nil
	}
	return c.tail.ids
}

// wekaForks is the search for the streams of one list.
type wekaForks struct {
	chains  []*wekaChain
	chainOf map[*wekaRequest]*wekaChain
	at      map[*wekaRequest][]*wekaChain // chains by the request at which they forked
}

func (f *wekaForks) add(c *wekaChain, r *wekaRequest) {
	c.requests = append(c.requests, r)
	f.chainOf[r] = c
	if len(r.ids) > 0 {
		c.tail = r
	}
}

func (f *wekaForks) open() *wekaChain {
	c := &wekaChain{number: len(f.chains)}
	f.chains = append(f.chains, c)
	return c
}

// place puts the next request by start into the chain that it extends, or begins a
// chain with it, forked at the tail with which it shares most.
func (f *wekaForks) place(r *wekaRequest) {
	if len(f.chains) == 0 {
		f.add(f.open(), r)
		return
	}
	if len(r.ids) == 0 {
		f.add(f.chains[0], r)
		return
	}
	var extended, forked *wekaChain
	depth, anyTail := 0, false
	for _, c := range f.chains {
		tail := c.hashes()
		shared := commonPrefix(tail, r.ids)
		anyTail = anyTail || len(tail) > 0
		if shared == len(tail) && shared > 0 && (extended == nil || shared > len(extended.tail.ids)) &&
			c.tail.model == r.model && c.tail.overAt(r) {
			extended = c
		}
		if shared > depth || shared > 0 && shared == depth && len(tail) > len(forked.tail.ids) {
			forked, depth = c, shared
		}
	}
	switch {
	case extended != nil:
		f.add(extended, r)
	case !anyTail:
		f.add(f.chains[0], r)
	default:
		c := f.open()
		if forked != nil {
			c.fork, c.depth = forked.tail, depth
			f.at[c.fork] = append(f.at[c.fork], c)
		}
		f.add(c, r)
	}
}

// splice joins chains: of those forked at the end of a chain, the one that shares most
// with it continues it, and the others that start no earlier than the new end are
// forked anew there. It works in byte order of source ids.
func (f *wekaForks) splice() {
	bySource := func(a, b *wekaRequest) int { return cmp.Compare(a.sourceID, b.sourceID) }
	var waiting []*wekaRequest
	for r := range f.at {
		waiting = append(waiting, r)
	}
	slices.SortFunc(waiting, bySource)
	for len(waiting) > 0 {
		s := waiting[0]
		waiting = waiting[1:]
		c := f.chainOf[s]
		if c.tail != s {
			continue
		}
		best := f.successor(s)
		if best == nil {
			continue
		}
		for _, r := range best.requests {
			f.chainOf[r] = c
		}
		c.requests = append(c.requests, best.requests...)
		c.tail, best.into = best.tail, c
		if !f.forkAnew(s, c.tail) {
			continue
		}
		if at, found := slices.BinarySearchFunc(waiting, c.tail, bySource); !found {
			waiting = slices.Insert(waiting, at, c.tail)
		}
	}
}

// successor returns the chain forked at s that continues it best: the deepest, then
// the earliest, then the first; nil if none fits.
func (f *wekaForks) successor(s *wekaRequest) *wekaChain {
	const longGapS = 3600 // behind it, half the hashes must be shared
	var best *wekaChain
	for _, c := range f.at[s] {
		first := c.requests[0]
		if c.into != nil || first.model != s.model || !s.overAt(first) ||
			first.startS-s.endS > longGapS && float64(c.depth)/float64(len(s.ids)) < 0.5 {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(best.depth, c.depth), cmp.Compare(first.startS, best.requests[0].startS),
			cmp.Compare(c.number, best.number)) < 0 {
			best = c
		}
	}
	return best
}

// forkAnew moves the chains forked at s to tail, if they start no earlier and share
// something with it, and reports whether there were any.
func (f *wekaForks) forkAnew(s, tail *wekaRequest) bool {
	moved := false
	for _, c := range slices.Clone(f.at[s]) {
		first := c.requests[0]
		depth := commonPrefix(tail.ids, first.ids)
		if c.into != nil || tail.startS > first.startS+wekaTolerance || depth == 0 {
			continue
		}
		c.fork, c.depth = tail, depth
		f.at[tail] = append(f.at[tail], c)
		moved = true
	}
	return moved
}
