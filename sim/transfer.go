package sim

import (
	"fmt"
	"math"
	"slices"
)

// startTransfer moves the prompt's KV from its source to its reserved destination.
func (s *Sim) startTransfer(id int32) error {
	h := &s.handoffs
	q := s.slots.At(id)
	t := s.prefill.cfg.Transfer
	tokens := float64(q.rec.Input)
	if t.DestinationMissing {
		tokens = float64(q.handoff.freshTokens)
	}
	bytes := float64(tokens * t.BytesPerToken)
	if t.BytesPerToken <= 0 || t.BandwidthGBps <= 0 || bytes == 0 {
		return s.transferred(id)
	}
	// alone on its links; spec replay-runtime 8.4, evaluated left to right
	delay := bytes / (t.BandwidthGBps * 1e9) * 1000
	if math.IsInf(delay, 1) {
		return &Error{InvalidSpec, fmt.Errorf("at kv_transfer_bandwidth %v GB/s a transfer of %v bytes never ends: "+
			"raise it, or leave it out for transfers that take no time", t.BandwidthGBps, bytes)}
	}
	h.open[q.handoff.ordinal] = id
	if t.FairShare && delay > 0 {
		s.startShared(id, bytes)
		return nil
	}
	s.events.push(event{atMs: s.nowMs + delay, kind: evTransfer, key: q.handoff.ordinal})
	return nil
}

// transferDone applies the end of a transfer.
func (s *Sim) transferDone(ordinal int64) error {
	h := &s.handoffs
	id := h.open[ordinal]
	delete(h.open, ordinal)
	return s.transferred(id)
}

func (s *Sim) transferred(id int32) error {
	s.handoffs.push(activateDestination, id)
	return nil
}

// links shares the bandwidth of worker links among concurrent transfers
// (kv_transfer.contention fair_share): every prefill worker has one outgoing link,
// every decode worker one incoming link, each of the configured bandwidth, and the
// rates of the transfers are max-min fair. Rates change only when a transfer
// starts or ends, so the simulation is exact and event-driven.
type links struct {
	flows []flow  // in order of their start
	first int     // the flow that ends first
	atMs  float64 // up to when left is accounted
	lanes []lane  // [prefill worker, then decode worker] scratch of reshare
}

// flow is one transfer under way.
type flow struct {
	ordinal int64
	source  int32   // prefill worker
	dest    int32   // decode worker
	left    float64 // bytes
	rate    float64 // bytes per ms
	endMs   float64
	fixed   bool
	next    [2]int32 // flow behind it on its source's and its destination's link, -1 none
}

// lane is one link while rates are dealt out.
type lane struct {
	room  float64 // bytes per ms not given away
	count int     // flows without a rate
	head  int32   // first of its flows, -1 none
}

// endMs is when the first transfer ends, +Inf without one.
func (l *links) endMs() float64 {
	if len(l.flows) == 0 {
		return math.Inf(1)
	}
	return l.flows[l.first].endMs
}

func (s *Sim) startShared(id int32, bytes float64) {
	q := s.slots.At(id)
	l := &s.handoffs.links
	l.progress(s.nowMs)
	l.flows = append(l.flows, flow{ordinal: q.handoff.ordinal, source: q.handoff.prefillWorker, dest: q.worker, left: bytes})
	s.reshare()
}

// endShared ends the transfers that are due, of equal ones the older first, and
// reports whether there was one.
func (s *Sim) endShared() (ended bool, err error) {
	l := &s.handoffs.links
	for l.endMs() <= s.nowMs {
		l.progress(s.nowMs)
		ordinal := l.flows[l.first].ordinal
		l.flows = slices.Delete(l.flows, l.first, l.first+1)
		s.reshare()
		if err := s.transferDone(ordinal); err != nil {
			return true, err
		}
		ended = true
	}
	return ended, nil
}

func (l *links) progress(nowMs float64) {
	for i := range l.flows {
		f := &l.flows[i]
		f.left = max(0, f.left-float64(f.rate*(nowMs-l.atMs)))
	}
	l.atMs = nowMs
}

// reshare gives every flow its max-min fair rate and finds the one that ends first:
// the link with the smallest equal share is filled first, its flows are fixed, and
// the rest share what is left (progressive filling). Ties go to the lower link.
func (s *Sim) reshare() {
	l := &s.handoffs.links
	prefill := len(s.prefill.workers)
	capacity := s.prefill.cfg.Transfer.BandwidthGBps * 1e9 / 1000 // bytes per ms
	l.connect(prefill, len(s.decode.workers), capacity)
	for open := len(l.flows); open > 0; {
		tight, share := -1, math.Inf(1)
		for i := range l.lanes {
			if n := l.lanes[i].count; n > 0 && l.lanes[i].room/float64(n) < share {
				tight, share = i, l.lanes[i].room/float64(n)
			}
		}
		open -= l.fill(tight, prefill, share)
	}
	l.first = 0
	for i := range l.flows {
		f := &l.flows[i]
		f.endMs = s.nowMs + f.left/f.rate
		if g := &l.flows[l.first]; f.endMs < g.endMs || f.endMs == g.endMs && f.ordinal < g.ordinal {
			l.first = i
		}
	}
}

// connect puts every flow on its two links, none with a rate.
func (l *links) connect(prefill, decode int, capacity float64) {
	l.lanes = l.lanes[:0]
	for range prefill + decode {
		l.lanes = append(l.lanes, lane{room: capacity, head: -1})
	}
	for i := len(l.flows) - 1; i >= 0; i-- { // so that each link lists its flows in order
		f := &l.flows[i]
		f.fixed = false
		for side, at := range [2]int{int(f.source), prefill + int(f.dest)} {
			f.next[side], l.lanes[at].head = l.lanes[at].head, int32(i)
			l.lanes[at].count++
		}
	}
}

// fill gives the flows of one link that have no rate yet the same one, and returns
// how many they are.
func (l *links) fill(tight, prefill int, share float64) (n int) {
	side := 0
	if tight >= prefill {
		side = 1
	}
	for i := l.lanes[tight].head; i >= 0; i = l.flows[i].next[side] {
		f := &l.flows[i]
		if f.fixed {
			continue
		}
		f.fixed, f.rate = true, share
		n++
		for _, at := range [2]int{int(f.source), prefill + int(f.dest)} {
			l.lanes[at].room = max(0, l.lanes[at].room-share)
			l.lanes[at].count--
		}
	}
	return n
}
