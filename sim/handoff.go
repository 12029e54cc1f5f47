package sim

import (
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
)

// actionKind is one command of the handoff coordinator (spec replay-runtime 8.2).
type actionKind uint8

const (
	submitPrefill actionKind = iota
	reserveDestination
	startTransfer
	activateDestination
	releaseSource
	cancelSource
	cancelDestination
)

type action struct {
	kind actionKind
	req  int32
}

// handoff is the coordinator's view of one request. Facts only ever become true.
type handoff struct {
	ordinal                    int64
	prefillWorker, prefillRank int32 // prefill worker and rank, -1 before placement
	freshTokens                int32 // of the reserved destination
	placedPrefill              bool
	placedDecode               bool
	sourceLive                 bool // the prefill scheduler knows the request
	destinationLive            bool // the decode scheduler knows the request
	held, reserved             bool
	decodeDone                 bool
	closed                     bool // source released, or cleanup done
	failing                    bool
	cancelsOpen                int8
	failStatus                 metrics.Status
	failReason                 string
}

// handoffs is the coordinator of a disaggregated run: one global FIFO of actions.
type handoffs struct {
	sourceFirst bool
	fifo        []action
	head        int
	ordinals    int64
	open        map[int64]int32 // transfers under way: ordinal -> request
	events      kv.Events       // of commands
	links       links
}

func (h *handoffs) idle() bool { return h.head == len(h.fifo) }

func (h *handoffs) push(kind actionKind, req int32) {
	if h.head == len(h.fifo) {
		h.fifo, h.head = h.fifo[:0], 0
	}
	h.fifo = append(h.fifo, action{kind, req})
}

// start opens the handoff of an arrived request and enqueues its first action.
func (h *handoffs) start(s *Sim, id int32) {
	h.ordinals++
	s.slots.At(id).handoff = handoff{ordinal: h.ordinals, prefillWorker: -1, prefillRank: -1}
	if h.sourceFirst {
		h.push(submitPrefill, id)
	} else {
		h.push(reserveDestination, id)
	}
}

// runActions executes the FIFO to exhaustion, actions appended meanwhile included.
func (s *Sim) runActions() (bool, error) {
	h := &s.handoffs
	changed := false
	for h.head < len(h.fifo) {
		a := h.fifo[h.head]
		h.head++
		changed = true
		if err := h.run(s, a); err != nil {
			return true, err
		}
	}
	return changed, nil
}

func (h *handoffs) run(s *Sim, a action) error {
	switch a.kind {
	case submitPrefill:
		return h.placeOn(s, s.prefill, a)
	case reserveDestination:
		return h.placeOn(s, s.decode, a)
	case startTransfer:
		return s.startTransfer(a.req)
	}
	return h.command(s, a)
}

// placeOn asks the pool for a rank; without an active worker the action waits.
func (h *handoffs) placeOn(s *Sim, p *pool, a action) error {
	if p.active == 0 {
		p.waiting = append(p.waiting, a)
		return nil
	}
	route, queued, err := s.place(p, a.req)
	if err != nil || queued {
		return err
	}
	return h.submitRouted(s, p, route)
}

// submitRouted sends a placed request to its scheduler: as a source to the prefill pool,
// as a destination to the decode pool.
func (h *handoffs) submitRouted(s *Sim, p *pool, r router.Route) error {
	q := s.slots.At(r.Req)
	w := p.workers[r.Worker]
	if err := s.settle(w); err != nil {
		return err
	}
	rk := &w.ranks[r.Rank]
	req := engine.Request{ID: r.Req, PromptTokens: q.src.PromptTokens, OutputTokens: q.src.OutputTokens, Prompt: q.src.Prompt}
	w.inflight++
	defer s.wake(w)
	defer s.refreshGauges(rk)
	if p == s.prefill {
		req.OutputTokens = min(req.OutputTokens, 1)
		q.handoff.prefillWorker, q.handoff.prefillRank, q.handoff.placedPrefill, q.handoff.sourceLive = r.Worker, r.Rank, true, true
		s.countHit(r)
		rk.handoff.SubmitSource(req)
		return nil
	}
	q.worker, q.rank, q.handoff.placedDecode = r.Worker, r.Rank, true
	if why := rk.handoff.Accept(req); why != engine.NoReason {
		w.inflight--
		if d := q.rec.Detail; d != nil {
			d.DecodeScheduler = -1 // chosen, never assigned
		}
		return h.startCleanup(s, r.Req, metrics.Failed, why.String())
	}
	q.handoff.destinationLive = true
	rk.pending++
	rk.mayReserve = true
	if w.busy {
		return nil
	}
	return h.tryReservation(s, w, r.Rank)
}

// tryReservation tries the head of a rank's pending destinations once.
func (h *handoffs) tryReservation(s *Sim, w *worker, rank int32) error {
	rk := &w.ranks[rank]
	if rk.pending == 0 {
		return nil
	}
	res, ok := rk.handoff.TryReserve(&h.events)
	rk.mayReserve = ok
	if err := h.flushEvents(s, w, rank); err != nil || !ok {
		return err
	}
	rk.pending--
	return h.onReserved(s, res)
}

// flushEvents hands the KV events of a command to the placement.
func (h *handoffs) flushEvents(s *Sim, w *worker, rank int32) error {
	err := s.publishEvents(w, rank, &h.events)
	h.events.Reset()
	return err
}

// onReserved applies the fact that a destination got its blocks.
func (h *handoffs) onReserved(s *Sim, r engine.Reservation) error {
	q := s.slots.At(r.Req)
	q.handoff.reserved, q.handoff.freshTokens = true, r.FreshTokens
	if d := q.rec.Detail; d != nil && d.DestinationReservedMs == metrics.Unset {
		d.DestinationReservedMs = s.nowMs
	}
	switch {
	case q.handoff.held:
		h.push(startTransfer, r.Req)
	case !h.sourceFirst:
		h.push(submitPrefill, r.Req)
	}
	return nil
}

// onSourceHeld applies the fact that a prompt is computed and its blocks wait.
func (h *handoffs) onSourceHeld(s *Sim, id int32) {
	q := s.slots.At(id)
	q.handoff.held = true
	if d := q.rec.Detail; d != nil && d.SourceHeldMs == metrics.Unset {
		d.SourceHeldMs = s.nowMs
	}
	switch {
	case q.handoff.failing:
		// the cancel that waits for the worker will drop it
	case q.handoff.reserved:
		h.push(startTransfer, id)
	case h.sourceFirst:
		h.push(reserveDestination, id)
	}
}

// command executes an action that needs an idle worker; a pass in flight defers it
// to the boundary.
func (h *handoffs) command(s *Sim, a action) error {
	q := s.slots.At(a.req)
	p, wid, rid := s.decode, q.worker, q.rank
	if a.kind == releaseSource || a.kind == cancelSource {
		p, wid, rid = s.prefill, q.handoff.prefillWorker, q.handoff.prefillRank
	}
	w := p.workers[wid]
	if err := s.settle(w); err != nil {
		return err
	}
	rk := &w.ranks[rid]
	if w.busy {
		rk.deferred = append(rk.deferred, a)
		return nil
	}
	switch a.kind {
	case activateDestination:
		rk.handoff.Activate(a.req, &h.events)
	case releaseSource:
		rk.handoff.ReleaseSource(a.req, &h.events)
	case cancelSource:
		rk.handoff.CancelSource(a.req, &h.events)
	case cancelDestination:
		if !q.handoff.reserved {
			rk.pending--
		}
		rk.handoff.CancelDestination(a.req, &h.events)
	}
	s.wake(w)
	defer s.refreshGauges(rk) // after the attempt
	if err := h.flushEvents(s, w, rid); err != nil {
		return err
	}
	if err := h.onCommandDone(s, a, w); err != nil {
		return err
	}
	rk.mayReserve = true
	return h.tryReservation(s, w, rid)
}

// applied moves the coordinator on after a command.
func (h *handoffs) onCommandDone(s *Sim, a action, w *worker) error {
	q := s.slots.At(a.req)
	d := q.rec.Detail
	switch a.kind {
	case activateDestination:
		if d != nil {
			d.DestinationActivatedMs = s.nowMs
		}
		h.push(releaseSource, a.req)
	case releaseSource:
		q.handoff.sourceLive = false
		w.inflight--
		if d != nil {
			d.SourceReleasedMs = s.nowMs
		}
		return h.close(s, a.req)
	case cancelSource, cancelDestination:
		if a.kind == cancelSource {
			q.handoff.sourceLive = false
		} else {
			q.handoff.destinationLive = false
		}
		w.inflight--
		if q.handoff.cancelsOpen--; q.handoff.cancelsOpen == 0 {
			return h.closeFailed(s, a.req)
		}
	}
	return nil
}

// close ends the handoff after the source was released. The request lives on until
// its decode terminal, which may already be behind it.
func (h *handoffs) close(s *Sim, id int32) error {
	q := s.slots.At(id)
	q.handoff.closed = true
	b := s.routeBuf()
	b.routes, b.err = s.prefill.placement.Terminal(id, s.nowMs, b.routes)
	if q.handoff.decodeDone {
		s.quiesce(id)
	}
	return s.dispatchReleased(s.prefill, b)
}

// fail starts the cleanup of a request that cannot go on.
func (h *handoffs) startCleanup(s *Sim, id int32, status metrics.Status, reason string) error {
	q := s.slots.At(id)
	q.handoff.failing, q.handoff.failStatus, q.handoff.failReason = true, status, reason
	if q.handoff.sourceLive {
		q.handoff.cancelsOpen++
		h.push(cancelSource, id)
	}
	if q.handoff.destinationLive {
		q.handoff.cancelsOpen++
		h.push(cancelDestination, id)
	}
	if q.handoff.cancelsOpen == 0 {
		return h.closeFailed(s, id)
	}
	return nil
}

// closeFailed ends a failed request once both sides dropped it.
func (h *handoffs) closeFailed(s *Sim, id int32) error {
	q := s.slots.At(id)
	var err error
	if q.handoff.placedPrefill {
		b := s.routeBuf()
		b.routes, b.err = s.prefill.placement.Terminal(id, s.nowMs, b.routes)
		err = s.dispatchReleased(s.prefill, b)
	}
	if q.handoff.placedDecode && err == nil {
		b := s.routeBuf()
		b.routes, b.err = s.decode.placement.Terminal(id, s.nowMs, b.routes)
		err = s.dispatchReleased(s.decode, b)
	}
	s.finishRequest(id, q.handoff.failStatus, q.handoff.failReason)
	s.quiesce(id)
	return err
}

// wakeDeferred re-queues the commands that waited for the worker's pass.
func (h *handoffs) wakeDeferred(rk *rank) {
	for _, a := range rk.deferred {
		h.push(a.kind, a.req)
	}
	rk.deferred = rk.deferred[:0]
}

// boundary applies what a finished pass of one rank means for handoffs: deferred
// commands wake, one pending destination is tried, then the signals and facts.
func (h *handoffs) onPassEnd(s *Sim, w *worker, rank int32, signals []engine.Signal, held []int32) error {
	rk := &w.ranks[rank]
	var res engine.Reservation
	got := false
	if rk.pending > 0 {
		res, got = rk.handoff.TryReserve(&h.events)
		rk.mayReserve = got
		s.refreshGauges(rk)
		if err := h.flushEvents(s, w, rank); err != nil {
			return err
		}
	}
	for _, sig := range signals {
		var err error
		if w.pool == s.prefill {
			err = h.prefillSignal(s, w, sig)
		} else {
			err = h.decodeSignal(s, w, sig)
		}
		if err != nil {
			return err
		}
	}
	for _, id := range held {
		h.onSourceHeld(s, id)
	}
	if !got {
		return nil
	}
	rk.pending--
	return h.onReserved(s, res)
}

// prefillSignal: the token of a prefill pass is not a measured token.
func (h *handoffs) prefillSignal(s *Sim, w *worker, sig engine.Signal) error {
	if sig.End == engine.Rejected {
		w.inflight--
		s.slots.At(sig.Req).handoff.sourceLive = false
		return h.startCleanup(s, sig.Req, metrics.Rejected, sig.Reason.String())
	}
	if sig.End != engine.Completed {
		return nil
	}
	b := s.routeBuf()
	b.routes, b.err = s.prefill.placement.PrefillCompleted(sig.Req, s.nowMs, b.routes)
	return s.dispatchReleased(s.prefill, b)
}

func (h *handoffs) decodeSignal(s *Sim, w *worker, sig engine.Signal) error {
	if sig.Tokens > 0 {
		s.token(sig.Req, sig.Tokens, s.nowMs)
	}
	if sig.End == engine.Running {
		return nil
	}
	w.inflight--
	q := s.slots.At(sig.Req)
	q.handoff.decodeDone, q.handoff.destinationLive = true, false
	b := s.routeBuf()
	b.routes, b.err = s.decode.placement.Terminal(sig.Req, s.nowMs, b.routes)
	if sig.End == engine.Rejected {
		s.finishRequest(sig.Req, metrics.Rejected, sig.Reason.String())
	} else {
		s.finishRequest(sig.Req, metrics.Completed, "")
	}
	if q.handoff.closed {
		s.quiesce(sig.Req)
	}
	return s.dispatchReleased(s.decode, b)
}
