package workload

import "github.com/dynosweep/dynosweep/sim/slab"

// sessionRef names a session of a feed. tag is the feed's own note on it.
type sessionRef struct {
	index int64
	tag   int32
}

// feed is where a driver's sessions come from, one at a time.
type feed interface {
	// next makes the next session: by (start, index) in open loop, where startMs is
	// its shaped arrival, by index in closed loop, where startMs means nothing.
	next() (ref sessionRef, startMs float64, ok bool)
	turns(ref sessionRef) int32
	// total is the number of turns of all sessions.
	total() int64
	// delayMs is the shaped think time before a turn > 0.
	delayMs(ref sessionRef, turn int32) float64
	// fill completes a Request whose Handle and ArrivalMs are set and whose other
	// fields are zero.
	fill(r *Request, ref sessionRef, turn int32)
	names(ref sessionRef, turn int32) Names
	// ended tells that the turn ended with emitted output tokens.
	ended(ref sessionRef, turn, emitted int32, how Outcome)
}

// slot is a released request and what its driver must remember of it.
type slot struct {
	Request
	ref  sessionRef
	turn int32
	live bool
}

// slots is the pool of released requests, by handle. Room grows with the number in
// flight, never with the number released.
type slots struct{ slab.Slab[slot] }

// take returns an empty slot; its address stays until put.
func (p *slots) take(ref sessionRef, turn int32, arrivalMs float64) *slot {
	h := p.Allocate()
	s := p.At(h)
	*s = slot{Request: Request{Handle: h, ArrivalMs: arrivalMs}, ref: ref, turn: turn, live: true}
	return s
}

// put gives back the slot of a handle and returns it, still filled.
func (p *slots) put(handle int32) *slot {
	s := p.At(handle)
	if !s.live {
		panic("workload: Done of a request that is not in flight")
	}
	s.live = false
	p.Release(handle)
	return s
}
