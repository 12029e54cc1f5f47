package sglang

import "github.com/dynosweep/dynosweep/sim/engine"

// queueMetrics fills what is queued after the pass (spec engine-sglang 9.1):
// requests without output wait for prefill; retracted ones, activated handoffs
// and destinations wait for decode.
func (c *Core) queueMetrics(p *engine.Pass) {
	if c.cfg.WantMetrics {
		c.fillQueued(&p.Metrics)
	}
}

func (c *Core) fillQueued(m *engine.ForwardPass) {
	m.QueuedPrefill, m.QueuedPrefillTokens, m.QueuedPrefillVar = c.queuedPrefill.n, c.queuedPrefill.sum, c.queuedPrefill.variance()
	decode := c.queuedDecode
	for _, list := range [...][]int32{c.handoff.ready, c.handoff.pending, c.handoff.reserved} {
		for _, i := range list {
			decode.add(c.reqs.At(i).len()) // a destination has no output yet
		}
	}
	m.QueuedDecode, m.QueuedDecodeKVTokens, m.QueuedDecodeVar = decode.n, decode.sum, decode.variance()
}
