package sim

import "math"

// startTransfer moves the prompt's KV from its source to its reserved destination.
func (s *Sim) startTransfer(id int32) error {
	h := &s.handoffs
	q := &s.slots.items[id]
	t := s.prefill.cfg.Transfer
	tokens := float64(q.rec.Input)
	if t.DestinationMissing {
		tokens = float64(q.hand.freshTokens)
	}
	bytes := float64(tokens * t.BytesPerToken)
	if t.BytesPerToken <= 0 || t.BandwidthGBps <= 0 || bytes == 0 {
		return s.transferred(id)
	}
	h.open[q.hand.ordinal] = id
	if t.FairShare {
		s.startShared(id, bytes)
		return nil
	}
	// spec replay-runtime 8.4, evaluated left to right
	delay := bytes / (t.BandwidthGBps * 1e9) * 1000
	s.events.push(event{atMs: s.nowMs + delay, kind: evTransfer, key: q.hand.ordinal})
	return nil
}

// transferDone applies a transfer event.
func (s *Sim) transferDone(ordinal int64) error {
	h := &s.handoffs
	id, ok := h.open[ordinal]
	if !ok {
		return nil
	}
	if s.prefill.cfg.Transfer.FairShare && !s.finishShared(id) {
		return nil
	}
	delete(h.open, ordinal)
	return s.transferred(id)
}

func (s *Sim) transferred(id int32) error {
	s.handoffs.push(activateDestination, id)
	return nil
}

// dropStaleTransfers removes transfer events whose handoff is no longer open, or
// whose finish was moved by a change of the shares.
func (s *Sim) dropStaleTransfers() {
	for {
		e := s.events.top()
		if e == nil || e.kind != evTransfer || e.atMs > s.nowMs {
			return
		}
		id, ok := s.handoffs.open[e.key]
		if ok && (!s.prefill.cfg.Transfer.FairShare || s.handoffs.links.due(id, e.atMs)) {
			return
		}
		s.events.pop()
	}
}

// links shares the bandwidth of worker links among concurrent transfers
// (kv_transfer.contention fair_share): every prefill worker has one outgoing link,
// every decode worker one incoming link, each of the configured bandwidth, and the
// rates of the transfers are max-min fair. Rates change only when a transfer
// starts or ends, so the simulation is exact and event-driven.
type links struct {
	active []flow
	atMs   float64 // up to when left is accounted
	room   []float64
	count  []int
}

// flow is one transfer under way.
type flow struct {
	req      int32
	source   int32   // prefill worker
	dest     int32   // decode worker
	left     float64 // bytes
	rate     float64 // bytes per ms
	finishMs float64
	fixed    bool
}

// due reports whether the transfer of req really finishes at atMs.
func (l *links) due(req int32, atMs float64) bool {
	for i := range l.active {
		if l.active[i].req == req {
			return l.active[i].finishMs == atMs
		}
	}
	return false
}

func (s *Sim) startShared(id int32, bytes float64) {
	q := &s.slots.items[id]
	l := &s.handoffs.links
	l.progress(s.nowMs)
	l.active = append(l.active, flow{req: id, source: q.hand.pworker, dest: q.worker, left: bytes})
	s.reshare()
}

// finishShared ends the transfer of id if it is due now.
func (s *Sim) finishShared(id int32) bool {
	l := &s.handoffs.links
	if !l.due(id, s.nowMs) {
		return false
	}
	l.progress(s.nowMs)
	for i := range l.active {
		if l.active[i].req == id {
			l.active = append(l.active[:i], l.active[i+1:]...)
			break
		}
	}
	s.reshare()
	return true
}

func (l *links) progress(nowMs float64) {
	for i := range l.active {
		f := &l.active[i]
		f.left = max(0, f.left-float64(f.rate*(nowMs-l.atMs)))
	}
	l.atMs = nowMs
}

// reshare gives every flow its max-min fair rate and schedules its finish: the
// link with the smallest equal share is filled first, its flows are fixed, and the
// rest share what is left (progressive filling). Ties go to the lower link.
func (s *Sim) reshare() {
	l := &s.handoffs.links
	capacity := s.prefill.cfg.Transfer.BandwidthGBps * 1e9 / 1000 // bytes per ms
	np := len(s.prefill.workers)
	n := np + len(s.decode.workers)
	l.room, l.count = l.room[:0], l.count[:0]
	for i := 0; i < n; i++ {
		l.room, l.count = append(l.room, capacity), append(l.count, 0)
	}
	for i := range l.active {
		f := &l.active[i]
		f.fixed = false
		l.count[f.source]++
		l.count[np+int(f.dest)]++
	}
	for open := len(l.active); open > 0; {
		tight, share := -1, math.Inf(1)
		for i := range l.room {
			if l.count[i] > 0 && l.room[i]/float64(l.count[i]) < share {
				tight, share = i, l.room[i]/float64(l.count[i])
			}
		}
		for i := range l.active {
			f := &l.active[i]
			src, dst := int(f.source), np+int(f.dest)
			if f.fixed || src != tight && dst != tight {
				continue
			}
			f.fixed, f.rate = true, share
			open--
			l.room[src], l.room[dst] = max(0, l.room[src]-share), max(0, l.room[dst]-share)
			l.count[src]--
			l.count[dst]--
		}
	}
	for i := range l.active {
		f := &l.active[i]
		at := s.nowMs + f.left/f.rate
		if at != f.finishMs {
			f.finishMs = at
			s.events.push(event{atMs: at, kind: evTransfer, key: s.slots.items[f.req].hand.ordinal})
		}
	}
}
