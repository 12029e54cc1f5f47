package sim

import (
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// admit records the admissions of a pass that starts now.
func (s *Sim) recordAdmissions(w *worker, rank int32, admissions []engine.Admission) {
	offloads := w.ranks[rank].offload != nil
	for _, a := range admissions {
		q := s.slots.At(a.Req)
		rec := &q.rec
		if rec.FirstAdmitMs == metrics.Unset {
			rec.FirstAdmitMs = s.nowMs
			rec.FirstReused = a.Reused
			if offloads {
				rec.FirstDevice, rec.Tiered = a.Device, true
			}
		}
		rec.Reused = max(rec.Reused, a.Reused)
		rec.Admissions++
		d := rec.Detail
		if d == nil {
			continue
		}
		var nth int32
		for i := range d.Admitted {
			if d.Admitted[i].Pool == w.pool.kind {
				nth++
			}
		}
		d.Admitted = append(d.Admitted, metrics.Admission{Pool: w.pool.kind, PoolOrdinal: nth, AtMs: s.nowMs, Reused: a.Reused, Device: a.Device, Tiered: offloads && nth == 0})
		switch w.pool.kind {
		case metrics.PrefillPool:
			if nth == 0 {
				d.PrefillAdmitMs = s.nowMs
			}
			d.PrefillReused = max(d.PrefillReused, a.Reused)
		case metrics.DecodePool:
			if nth == 0 {
				d.DecodeAdmitMs = s.nowMs
			}
			d.DecodeReused = max(d.DecodeReused, a.Reused)
		}
	}
}

// complete applies the pass of w that ends now: for each rank in order, events,
// then output signals, then lifecycle facts (spec replay-runtime 4.4).
func (s *Sim) complete(w *worker) error {
	w.busy = false
	s.wake(w)
	if w.pool.memory != nil {
		s.endPass(w)
	}
	run := w.inRun
	if run {
		w.inRun = false
		if err := s.publishRun(w, len(w.ends)); err != nil {
			return err
		}
	}
	for i := range w.ranks {
		if !run {
			w.ranks[i].occupy(w.endMs - w.startMs)
		}
		if err := s.completeRank(w, int32(i), run); err != nil {
			return err
		}
	}
	if !run && !w.runnable() {
		w.step = 0
	}
	if w.pool.memory != nil {
		w.pool.memory.Advance(w.id, s.nowMs)
		return s.endTransfers(w)
	}
	return nil
}

// completeRank applies one rank's payload; that of a decode run was shown already
// and leaves only the boundary itself.
func (s *Sim) completeRank(w *worker, rank int32, run bool) error {
	rk := &w.ranks[rank]
	s.refreshGauges(rk)
	if s.prefill != nil {
		s.handoffs.wakeDeferred(rk)
	}
	var signals []engine.Signal
	var held []int32
	if !run {
		if s.cfg.Scaling != nil {
			rk.publish(w.id, rank, rk.pass.Metrics, w.startMs, w.endMs)
		}
		if rk.ran {
			signals, held = rk.pass.Signals, rk.pass.Held
			s.collector.CommittedPrefill(rk.pass.Metrics.PrefillTokens)
			if err := s.publishEvents(w, rank, &rk.pass.Events); err != nil {
				return err
			}
			rk.pass.Events.Reset()
			s.countAccepts(w.pool, rk.pass.Accepted, rk.pass.Forwards)
			rk.counted.CacheHitTokens += rk.pass.CacheHit
			rk.counted.CacheTotalTokens += rk.pass.CacheTotal
		}
	}
	if s.prefill != nil {
		return s.handoffs.onPassEnd(s, w, rank, signals, held)
	}
	for _, sig := range signals {
		if err := s.applySignal(w, sig); err != nil {
			return err
		}
	}
	return nil
}

// signal applies one output signal of an aggregated worker.
func (s *Sim) applySignal(w *worker, sig engine.Signal) error {
	q := s.slots.At(sig.Req)
	if sig.Tokens > 0 {
		s.token(sig.Req, sig.Tokens, s.nowMs)
	}
	p := w.pool
	if sig.End == engine.Running {
		if q.firstSignalSeen {
			return nil
		}
		q.firstSignalSeen = true
		b := s.routeBuf()
		b.routes, b.err = p.placement.PrefillCompleted(sig.Req, s.nowMs, b.routes)
		return s.dispatchReleased(p, b)
	}
	w.inflight--
	b := s.routeBuf()
	b.routes, b.err = p.placement.Terminal(sig.Req, s.nowMs, b.routes)
	if sig.End == engine.Rejected {
		s.finishRequest(sig.Req, metrics.Rejected, sig.Reason.String())
	} else {
		s.finishRequest(sig.Req, metrics.Completed, "")
	}
	s.quiesce(sig.Req)
	return s.dispatchReleased(p, b)
}

// end closes the books of a request at its terminal event: collector, traffic,
// workload. Its slot lives on until the caller releases it.
func (s *Sim) finishRequest(id int32, status metrics.Status, reason string) {
	q := s.slots.At(id)
	rec := &q.rec
	rec.Status, rec.Reason, rec.TerminalMs = status, reason, s.nowMs
	s.finished++
	s.outstanding--
	if status == metrics.Completed {
		s.telemetry.window.Completed(rec)
		s.scaling.window.Completed(rec)
	}
	s.collector.Finish(rec)
	outcome := workload.Completed
	switch status {
	case metrics.Rejected:
		outcome = workload.Rejected
	case metrics.Canceled, metrics.Failed:
		outcome = workload.Failed
	}
	s.src.Done(q.src.Handle, s.nowMs, rec.Output, outcome)
}

// quiesce gives the slot of an ended request back once nothing of it is held.
func (s *Sim) quiesce(id int32) {
	s.src.Quiescent(s.slots.At(id).rec.Ordinal, s.nowMs)
	s.slots.release(id)
}

// touch refreshes the gauges of a rank after a command or a completion. It is then
// that its preemptions are counted: a request that arrives during a pass shows those
// of the pass.
func (s *Sim) refreshGauges(rk *rank) {
	if !s.telemetry.on {
		return
	}
	g := rk.core.Gauges()
	rk.counted.Preemptions += g.Preemptions - rk.gauges.Preemptions
	rk.gauges = g
}
