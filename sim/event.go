package sim

// Kinds of future events, in the order in which simultaneous ones are handled.
// Pass completions come before all of them and live in a heap of their own; the
// telemetry and the scaling tick come after them, and as one of each is armed at
// most, their times stand by themselves (spec replay-runtime 2.1).
const (
	evWorkerReady = uint8(iota + 1)
	evTransfer
)

// event is one future event. Order: (atMs, kind, stage, key, seq), times compared
// exactly.
type event struct {
	atMs  float64
	kind  uint8
	stage uint8
	key   int64 // worker id, or handoff ordinal
	seq   uint64
}

func (a *event) before(b *event) bool {
	if a.atMs != b.atMs {
		return a.atMs < b.atMs
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	if a.stage != b.stage {
		return a.stage < b.stage
	}
	if a.key != b.key {
		return a.key < b.key
	}
	return a.seq < b.seq
}

// eventHeap is a binary min-heap of events, held by value.
type eventHeap struct {
	items []event
	seq   uint64
}

func (h *eventHeap) push(e event) {
	e.seq = h.seq
	h.seq++
	h.items = append(h.items, e)
	i := len(h.items) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !h.items[i].before(&h.items[p]) {
			break
		}
		h.items[i], h.items[p] = h.items[p], h.items[i]
		i = p
	}
}

func (h *eventHeap) pop() event {
	top := h.items[0]
	n := len(h.items) - 1
	h.items[0] = h.items[n]
	h.items = h.items[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h.items[c+1].before(&h.items[c]) {
			c++
		}
		if !h.items[c].before(&h.items[i]) {
			break
		}
		h.items[i], h.items[c] = h.items[c], h.items[i]
		i = c
	}
	return top
}

// top returns the earliest event; nil when there is none.
func (h *eventHeap) top() *event {
	if len(h.items) == 0 {
		return nil
	}
	return &h.items[0]
}

// completions is the heap of pass completions: one entry per busy worker, ordered
// by (end, stage, worker id). Entries know their place, so that a decode run cut
// short moves its worker forward without a stale entry.
type completions struct{ items []*worker }

func endsBefore(a, b *worker) bool {
	if a.endMs != b.endMs {
		return a.endMs < b.endMs
	}
	if a.pool.stage != b.pool.stage {
		return a.pool.stage < b.pool.stage
	}
	return a.id < b.id
}

func (c *completions) swap(i, j int) {
	c.items[i], c.items[j] = c.items[j], c.items[i]
	c.items[i].heapAt, c.items[j].heapAt = i, j
}

func (c *completions) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !endsBefore(c.items[i], c.items[p]) {
			return
		}
		c.swap(i, p)
		i = p
	}
}

func (c *completions) down(i int) {
	n := len(c.items)
	for {
		k := 2*i + 1
		if k >= n {
			return
		}
		if k+1 < n && endsBefore(c.items[k+1], c.items[k]) {
			k++
		}
		if !endsBefore(c.items[k], c.items[i]) {
			return
		}
		c.swap(i, k)
		i = k
	}
}

func (c *completions) push(w *worker) {
	w.heapAt = len(c.items)
	c.items = append(c.items, w)
	c.up(w.heapAt)
}

// fix restores the order after w.endMs became earlier.
func (c *completions) fix(w *worker) { c.up(w.heapAt) }

// remove takes w out of the heap.
func (c *completions) remove(w *worker) {
	i, n := w.heapAt, len(c.items)-1
	if i != n {
		c.swap(i, n)
	}
	c.items[n] = nil
	c.items = c.items[:n]
	if i != n {
		c.down(i)
		c.up(i)
	}
	w.heapAt = -1
}
