package router

import (
	"math"
	"math/bits"
)

// Estimator predicts how long a prefill takes: ms of a batch of requests that each
// compute uncached tokens behind prefix cached ones. An error leaves a request's
// booked load without decay.
type Estimator interface {
	PrefillMs(batch, uncached, prefix int) (float64, error)
}

// unmodeled is the duration of an entry without a prediction.
const unmodeled = -1

// prefillFIFO is one rank's booked prefill load, oldest entry first, linked through
// the book's entries. Without predictions the load of an entry counts in full until
// its prefill completes. With them the load melts at the rate of the front entry,
// whose clock started at since (spec kv-router 7.3). Times are whole ns.
type prefillFIFO struct {
	front, back  int32 // request, -1 if empty
	sum          int64 // tokens booked
	unmodeled    int32 // entries without a duration
	frontStartNs int64 // when the front's clock started
}

// nanos rounds ms to whole nanoseconds.
func nanos(ms float64) int64 { return int64(math.Round(ms * 1e6)) }

// pushPrefill appends a request that booked tokens > 0.
func (b *book) pushPrefill(f *prefillFIFO, req int32, nowNs int64) {
	e := &b.entries[req]
	e.prev, e.next = f.back, -1
	if f.back < 0 {
		f.front, f.frontStartNs = req, nowNs
	} else {
		b.entries[f.back].next = req
	}
	f.back = req
	f.sum += e.tokens
	if e.durNs == unmodeled {
		f.unmodeled++
	}
}

// dropPrefill removes a request's load if it still has any.
func (b *book) dropPrefill(f *prefillFIFO, req int32, nowNs int64) {
	e := &b.entries[req]
	if e.tokens == 0 {
		return
	}
	if f.front == req {
		f.front, f.frontStartNs = e.next, nowNs // the new front starts its clock now
	} else {
		b.entries[e.prev].next = e.next
		if e.durNs != unmodeled {
			f.frontStartNs = min(f.frontStartNs+e.durNs, nowNs)
		}
	}
	if f.back == req {
		f.back = e.prev
	} else {
		b.entries[e.next].prev = e.prev
	}
	f.sum -= e.tokens
	if e.durNs == unmodeled {
		f.unmodeled--
	}
	e.tokens = 0
}

// active returns the prefill tokens that count at nowNs.
func (b *book) active(f *prefillFIFO, nowNs int64) int64 {
	if f.front < 0 {
		return 0
	}
	front := &b.entries[f.front]
	if front.durNs == unmodeled {
		return f.sum
	}
	elapsed := max(nowNs-f.frontStartNs, 0)
	if f.unmodeled > 0 {
		rest := 0.0
		if front.durNs > 0 {
			share := min(max(1-float64(elapsed)/float64(front.durNs), 0), 1)
			rest = math.Ceil(float64(front.tokens) * share)
		}
		return f.sum - front.tokens + int64(rest)
	}
	if front.durNs == 0 {
		return max(f.sum-front.tokens, 0)
	}
	// done may exceed the front's own tokens and spill to later entries.
	hi, lo := bits.Mul64(uint64(front.tokens), uint64(elapsed))
	if hi >= uint64(front.durNs) {
		return 0 // done does not even fit 64 bits
	}
	done, _ := bits.Div64(hi, lo, uint64(front.durNs))
	if done >= uint64(f.sum) {
		return 0
	}
	return f.sum - int64(done)
}
