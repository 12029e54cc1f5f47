package vllm

import (
	"math/bits"

	"github.com/dynosweep/dynosweep/sim/engine"
)

// sums are the count, sum and sum of squares of lengths in tokens.
type sums struct{ n, sum, squares int64 }

// add counts a length in (sign 1) or out (sign -1).
func (s *sums) add(length, sign int64) {
	s.n += sign
	s.sum += sign * length
	s.squares += sign * length * length
}

// variance is the population variance, (n Σl² - (Σl)²) / n² with an exact
// numerator, so that lengths which all grow by one keep it to the last bit.
func (s *sums) variance() float64 {
	if s.n == 0 {
		return 0
	}
	h1, l1 := bits.Mul64(uint64(s.n), uint64(s.squares))
	h2, l2 := bits.Mul64(uint64(s.sum), uint64(s.sum))
	lo, borrow := bits.Sub64(l1, l2, 0)
	hi, _ := bits.Sub64(h1, h2, borrow)
	num := float64(float64(hi)*0x1p64) + float64(lo)
	return num / float64(float64(s.n)*float64(s.n))
}

// batchMetrics fills m from what the pass scheduled (spec engine-vllm 11).
func (c *Core) batchMetrics(m *engine.ForwardPass) {
	var prefill, decode sums
	for _, s := range c.running {
		r := c.reqs.At(s)
		switch {
		case r.pass != c.passes:
		case r.promptTokens > 0:
			prefill.add(int64(r.prompt), 1)
			m.PrefillKVTokens += int64(r.promptBefore)
		case r.length < r.total:
			decode.add(int64(r.length), 1)
		}
	}
	m.PrefillRequests, m.PrefillVar = prefill.n, prefill.variance()
	m.DecodeRequests, m.DecodeKVTokens, m.DecodeVar = decode.n, decode.sum, decode.variance()
}

// queueMetrics fills m from the queues after the pass.
func (c *Core) queueMetrics(m *engine.ForwardPass) {
	m.QueuedPrefill, m.QueuedPrefillTokens, m.QueuedPrefillVar = c.queuedPrefill.n, c.queuedPrefill.sum, c.queuedPrefill.variance()
	m.QueuedDecode, m.QueuedDecodeKVTokens, m.QueuedDecodeVar = c.queuedDecode.n, c.queuedDecode.sum, c.queuedDecode.variance()
}
