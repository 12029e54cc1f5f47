package planner

import "math"

// role is what a performance model covers.
type role uint8

const (
	aggregatedRole role = iota
	prefillRole
	decodeRole
)

// work is what one pass does; the regression sees its features.
type work struct {
	n, prefill, prefix float64 // prefill requests, their new tokens, their cached tokens
	d, kv              float64 // decode requests, their context tokens
}

// kind chooses a store: the model of an aggregated engine learns passes with
// decode only, prefill only and both apart.
type kind uint8

const (
	decodeOnly kind = iota
	prefillOnly
	mixed
	kinds
)

// limits are what the model knows of an engine.
type limits struct{ batchedTokens, seqs, kvTokens int }

// model estimates pass times of one role from forward-pass metrics
// (spec planner 6).
type model struct {
	role    role
	limits  limits
	stores  [kinds]*store // prefill and decode roles use the first alone
	isl     average       // prompt tokens per prefill request
	context average       // context tokens per decode request
	prefill average       // prefill tokens per pass, aggregated only
	count   average       // prefill requests per pass, aggregated only
}

func newModel(r role, l limits, c RegressionConfig) *model {
	m := &model{role: r, limits: l}
	side, _ := c.gridSide()
	used := kind(1)
	if r == aggregatedRole {
		used = kinds
	}
	for k := range used {
		m.stores[k] = newStore(c.MaxSamples, c.MinObservations, side)
	}
	for _, a := range []*average{&m.isl, &m.context, &m.prefill, &m.count} {
		a.most = c.MaxSamples
	}
	return m
}

// ready reports whether any store has a fit; it need not be the one asked for.
func (m *model) ready() bool {
	for _, s := range m.stores {
		if s != nil && s.ready {
			return true
		}
	}
	return false
}

// average is a moving average over the last values from the first positive one on.
type average struct {
	most    int
	values  []float64 // ring
	next    int
	started bool
}

func (a *average) add(v float64) {
	if !a.started && v <= 0 {
		return
	}
	a.started = true
	if len(a.values) < a.most {
		a.values = append(a.values, v)
		return
	}
	a.values[a.next] = v
	a.next = (a.next + 1) % a.most
}

// mean adds oldest first, so that it does not depend on how the ring lies.
func (a *average) mean() float64 {
	if len(a.values) == 0 {
		return 0
	}
	sum := 0.0
	for i := range a.values {
		sum += a.values[(a.next+i)%len(a.values)]
	}
	return sum / float64(len(a.values))
}

func scheduled(f *FPM) work {
	p := &f.Pass
	return work{n: float64(p.PrefillRequests), prefill: float64(p.PrefillTokens), prefix: float64(p.PrefillKVTokens),
		d: float64(p.DecodeRequests), kv: float64(p.DecodeKVTokens)}
}

// feed learns from the passes of a tick, in order. Work that the role cannot do
// ends the call: the samples before it stay, those after it are lost
// (spec planner 6.2).
func (m *model) feed(rows []FPM) {
	for i := range rows {
		w := scheduled(&rows[i])
		isl := 0.0
		if w.n > 0 {
			isl = w.prefill / w.n
		}
		m.isl.add(isl)
		if w.d > 0 {
			m.context.add(w.kv / w.d)
		}
	}
	for i := range rows {
		w := scheduled(&rows[i])
		store, x, ok := m.classify(w)
		if !ok {
			return
		}
		if store != nil && rows[i].WallS > 0 {
			store.add(x, rows[i].WallS*1000)
		}
	}
	if m.role != aggregatedRole {
		return
	}
	for i := range rows {
		w := scheduled(&rows[i])
		m.prefill.add(w.prefill)
		m.count.add(w.n)
	}
}

// classify returns the store and the features of a pass; no store for empty work,
// not ok for work that contradicts itself or the role (spec planner 6.1).
func (m *model) classify(w work) (s *store, x [2]float64, ok bool) {
	foreign := m.role == prefillRole && w.d > 0 || m.role == decodeRole && w.prefill > 0
	if foreign || w.n <= 0 && (w.prefill > 0 || w.prefix > 0) || w.d <= 0 && w.kv > 0 {
		return nil, x, false
	}
	pairs, prefix := 0.0, 0.0
	if w.prefill > 0 {
		prefix = w.prefix
		pairs = float64(prefix*w.prefill)/w.n + float64(w.prefill*w.prefill)/(2*w.n) + w.prefill/2
	}
	return m.storeOf(w), [2]float64{prefix + w.kv + pairs, w.prefill + w.d}, true
}

func (m *model) storeOf(w work) *store {
	switch {
	case w.prefill <= 0 && w.d <= 0:
		return nil
	case m.role != aggregatedRole:
		return m.stores[0]
	case w.prefill <= 0:
		return m.stores[decodeOnly]
	case w.d <= 0:
		return m.stores[prefillOnly]
	}
	return m.stores[mixed]
}

// estimate is the time of a pass in ms; 0 for empty work, not ok without a fit for
// its kind.
func (m *model) estimate(w work) (ms float64, ok bool) {
	s, x, ok := m.classify(w)
	switch {
	case !ok:
		return 0, false
	case s == nil:
		return 0, true
	}
	return s.predict(x)
}

// chunked is the time to prefill tokens in full batches and one for the rest, with
// n prefill requests and the decode work of rest in every one.
func (m *model) chunked(tokens int, rest work) (ms float64, ok bool) {
	full, tail := tokens/m.limits.batchedTokens, tokens%m.limits.batchedTokens
	if full > 0 {
		rest.prefill = float64(m.limits.batchedTokens)
		one, ok := m.estimate(rest)
		if !ok {
			return 0, false
		}
		ms = float64(full) * one
	}
	if tail > 0 {
		rest.prefill = float64(tail)
		one, ok := m.estimate(rest)
		if !ok {
			return 0, false
		}
		ms += one
	}
	return ms, true
}

func ceil0(v float64) float64 {
	if v <= 0 {
		return 0
	}
	return math.Ceil(v)
}

// queuedMs is the time until a new prompt behind the queue is prefilled. queue and
// decode scale the queued prefill and the decode work; hit is the cached share
// (spec planner 6.5).
func (m *model) queuedMs(f *FPM, queue, decode float64, withQueued bool, hit float64) (ms float64, ok bool) {
	p := &f.Pass
	tokens := float64(p.QueuedPrefillTokens) * queue
	n := float64(p.QueuedPrefill) * queue
	if isl := m.isl.mean(); isl > 0 {
		tokens += isl
		n++
	}
	tokens = ceil0(tokens * (1 - hit))
	if tokens == 0 {
		return 0, true
	}
	rest := work{n: math.Max(1, ceil0(n))}
	if m.role == aggregatedRole {
		kv, d := float64(p.DecodeKVTokens), float64(p.DecodeRequests)
		if withQueued {
			kv += float64(p.QueuedDecodeKVTokens)
			d += float64(p.QueuedDecode)
		}
		rest.kv, rest.d = ceil0(kv*decode), ceil0(d*decode)
	}
	return m.chunked(int(tokens), rest)
}

// iterationMs is the time of a decode step with one more request of mean context.
func (m *model) iterationMs(f *FPM, decode float64, withPrefill bool) (ms float64, ok bool) {
	p := &f.Pass
	kv := float64(p.DecodeKVTokens + p.QueuedDecodeKVTokens)
	d := float64(p.DecodeRequests + p.QueuedDecode)
	if withPrefill {
		kv += float64(p.QueuedPrefillTokens)
		d += float64(p.QueuedPrefill)
	}
	kv *= decode
	d *= decode
	if context := m.context.mean(); context > 0 {
		kv += context
		d++
	}
	w := work{kv: ceil0(kv), d: ceil0(d)}
	if m.role == aggregatedRole {
		w.prefill = ceil0(m.prefill.mean())
		w.n = ceil0(m.count.mean())
		if w.prefill > 0 {
			w.n = math.Max(w.n, 1)
		}
	}
	return m.estimate(w)
}
