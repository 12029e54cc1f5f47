package workload

import "github.com/dynosweep/dynosweep/sim/slab"

// SessionRef names a session of a Feed. Tag is the feed's own note on it.
type SessionRef struct {
	Index int64
	Tag   int32
}

// Feed is where a driver's sessions come from, one at a time.
type Feed interface {
	// Next makes the next session: by (start, index) in open loop, where startMs is
	// its shaped arrival, by index in closed loop, where startMs means nothing.
	Next() (ref SessionRef, startMs float64, ok bool)
	Turns(ref SessionRef) int32
	// Total is the number of turns of all sessions.
	Total() int64
	// DelayMs is the shaped think time before a turn > 0.
	DelayMs(ref SessionRef, turn int32) float64
	// Fill completes a Request whose Handle and ArrivalMs are set and whose other
	// fields are zero.
	Fill(r *Request, ref SessionRef, turn int32)
	Names(ref SessionRef, turn int32) Names
	// Ended tells that the turn ended with emitted output tokens.
	Ended(ref SessionRef, turn, emitted int32, how Outcome)
}

// Released is a request in flight with the session turn that it is.
type Released struct {
	Request
	Ref  SessionRef
	Turn int32
	live bool
}

// InFlight is the pool of released requests, by handle. Room grows with the number in
// flight, never with the number released.
type InFlight struct{ slab.Slab[Released] }

// Start returns the slot of a request that is released now. Its address stays valid
// until End.
func (p *InFlight) Start(ref SessionRef, turn int32, arrivalMs float64) *Released {
	h := p.Allocate()
	s := p.At(h)
	*s = Released{Request: Request{Handle: h, ArrivalMs: arrivalMs}, Ref: ref, Turn: turn, live: true}
	return s
}

// End gives back the slot of a handle and returns it, still filled.
func (p *InFlight) End(handle int32) *Released {
	s := p.At(handle)
	if !s.live {
		panic("workload: Done of a request that is not in flight")
	}
	s.live = false
	p.Release(handle)
	return s
}
