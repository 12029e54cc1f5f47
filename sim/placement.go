package sim

import (
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// routeBuf is what a hook of a placement returned: released routes, in a list that is
// used again, or why the run ends. Hooks nest (a release may submit work whose effects
// release more), so each depth has its own.
type routeBuf struct {
	routes []router.Route
	err    error
}

func (s *Sim) routeBuf() *routeBuf {
	if s.depth == len(s.routes) {
		s.routes = append(s.routes, routeBuf{})
	}
	b := &s.routes[s.depth]
	b.routes = b.routes[:0]
	return b
}

// releaseArrivals offers every ready request of the source to the cluster
// (spec replay-runtime 5).
func (s *Sim) releaseArrivals() (bool, error) {
	s.src.BeginRelease(s.nowMs, s.outstanding)
	changed := false
	for {
		r := s.src.Next(s.nowMs)
		if r == nil {
			return changed, nil
		}
		changed = true
		if err := s.interrupted(r.PromptTokens); err != nil {
			return true, err
		}
		id := s.arrive(r)
		if s.prefill != nil {
			s.handoffs.start(s, id)
			continue
		}
		if err := s.placeAggregated(id); err != nil {
			return true, err
		}
	}
}

// tokensPerCheck is the most prompt tokens that are released between two looks at the
// context: one instant may release a load that takes minutes to number and place.
const tokensPerCheck = 1 << 20

// interrupted is the context's error, looked at now and then.
func (s *Sim) interrupted(tokens int32) error {
	if s.unchecked += int64(tokens); s.unchecked < tokensPerCheck {
		return nil
	}
	s.unchecked = 0
	return s.ctx.Err()
}

// arrive opens the books of one request.
func (s *Sim) arrive(r *workload.Request) int32 {
	id := s.slots.allocate()
	q := s.slots.At(id)
	q.src, q.worker, q.rank, q.firstSignalSeen = r, -1, -1, false
	q.rec.Reset()
	q.rec.Ordinal, q.rec.ArrivalMs = r.Ordinal, r.ArrivalMs
	q.rec.Input, q.rec.Requested = r.PromptTokens, r.OutputTokens
	if s.cfg.Capture {
		q.rec.Detail = newDetail(s.src.Names(r.Handle))
		if q.rec.Detail.PlayID != "" {
			q.rec.Detail.DispatchedMs = s.nowMs
		}
	}
	s.arrived++
	s.outstanding++
	s.collector.Arrive()
	s.telemetry.window.Arrived()
	s.scaling.window.Arrived()
	return id
}

func newDetail(r workload.Names) *metrics.Detail {
	return &metrics.Detail{
		RequestID: r.RequestID, PlayID: r.PlayID, Session: r.Session, HasSession: r.HasSession, Turn: r.Turn,
		LaneID: r.LaneID, RootID: r.RootID, ParentID: r.ParentID,
		DispatchedMs: metrics.Unset, PrefillScheduler: -1, DecodeScheduler: -1,
		PrefillAdmitMs: metrics.Unset, SourceHeldMs: metrics.Unset, DestinationReservedMs: metrics.Unset,
		DestinationActivatedMs: metrics.Unset, DecodeAdmitMs: metrics.Unset, SourceReleasedMs: metrics.Unset,
		PrefillReused: -1, DecodeReused: -1, PrefillOverlapTokens: -1, DecodeOverlapTokens: -1,
	}
}

// place asks the pool's policy for a rank. Decode runs whose passes may have
// changed a cache are settled first, so that the router knows what it would know
// pass by pass.
func (s *Sim) place(p *pool, id int32) (route router.Route, queued bool, err error) {
	if err := s.syncEvents(p); err != nil {
		return route, false, err
	}
	if p.placement.WantsEvents() {
		s.mustKnowEvents(p)
	}
	q := s.slots.At(id)
	route, queued, err = p.placement.Place(router.Request{
		ID: id, ISL: q.src.PromptTokens, Prompt: &q.src.Prompt,
		Priority: q.src.Priority, StrictPriority: q.src.StrictPriority, PolicyClass: q.src.PolicyClass,
	}, s.nowMs)
	if err != nil {
		return route, false, policyError(err)
	}
	s.recordRouting(p, q, route, queued)
	return route, queued, nil
}

// syncEvents makes the KV events of passes that ended by now visible.
func (s *Sim) syncEvents(p *pool) error {
	if !p.placement.WantsEvents() {
		return nil
	}
	for id := p.eventRuns.first(0); id >= 0; id = p.eventRuns.first(id) {
		p.eventRuns.clear(id)
		if w := p.workers[id]; w != nil && w.inRun && w.runEvents {
			if err := s.settle(w); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Sim) placeAggregated(id int32) error {
	route, queued, err := s.place(s.decode, id)
	if err != nil {
		return err
	}
	if queued {
		return nil
	}
	return s.dispatch(route)
}

// dispatch submits a routed request to its rank (aggregated).
func (s *Sim) dispatch(route router.Route) error {
	q := s.slots.At(route.Req)
	p := s.decode
	w := p.workers[route.Worker]
	if err := s.settle(w); err != nil {
		return err
	}
	q.worker, q.rank = route.Worker, route.Rank
	s.countHit(route)
	w.inflight++
	rk := &w.ranks[route.Rank]
	rk.core.Submit(engine.Request{ID: route.Req, PromptTokens: q.src.PromptTokens,
		OutputTokens: q.src.OutputTokens, Prompt: q.src.Prompt})
	s.refreshGauges(rk)
	s.wake(w)
	return nil
}

// dispatchReleased dispatches requests that a hook let go, in order.
func (s *Sim) dispatchReleased(p *pool, b *routeBuf) error {
	if b.err != nil {
		return policyError(b.err)
	}
	routes := b.routes
	if len(routes) == 0 {
		return nil
	}
	s.depth++
	defer func() { s.depth-- }()
	for _, r := range routes {
		s.recordRelease(p, r)
		var err error
		if s.prefill == nil {
			err = s.dispatch(r)
		} else {
			err = s.handoffs.submitRouted(s, p, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// observe hands the KV events of one rank to whoever listens.
func (s *Sim) publishEvents(w *worker, rank int32, ev *kv.Events) error {
	if len(ev.Items) == 0 {
		return nil
	}
	if f := s.cfg.Observers.KVEvents; f != nil {
		if err := f(s.nowMs, w.pool.kind, w.id, rank, ev); err != nil {
			return err
		}
	}
	if !w.pool.placement.WantsEvents() {
		return nil
	}
	w.pool.placement.Observe(router.Rank{Worker: w.id, Rank: rank}, ev, s.nowMs)
	return nil
}

// countHit feeds the hit rate of a placement to the traffic windows.
func (s *Sim) countHit(r router.Route) {
	if r.OverlapBlocks >= 0 && r.ISLBlocks > 0 {
		s.telemetry.window.HitRate(r.OverlapBlocks, r.ISLBlocks)
		s.scaling.window.HitRate(r.OverlapBlocks, r.ISLBlocks)
	}
}

func (s *Sim) countAccepts(p *pool, accepted, forwards int64) {
	if p != s.prefill && accepted > 0 && forwards > 0 {
		s.telemetry.window.Accept(accepted, forwards)
		s.scaling.window.Accept(accepted, forwards)
	}
}

// noteRouting appends a routing_history entry (capture only).
func (s *Sim) recordRouting(p *pool, q *request, r router.Route, queued bool) {
	d := q.rec.Detail
	if d == nil {
		return
	}
	e := metrics.Routing{Pool: p.kind, Queued: queued, EnteredMs: metrics.Unset, ReleasedMs: metrics.Unset,
		Worker: -1, Scheduler: -1, Rank: -1, Selected: -1, Best: -1}
	if queued {
		e.EnteredMs = s.nowMs
	}
	d.Routing = append(d.Routing, e)
	if !queued {
		s.fillRouting(p, q, r)
	}
}

// noteRelease completes the entry of a request that leaves the router's queue.
func (s *Sim) recordRelease(p *pool, r router.Route) {
	q := s.slots.At(r.Req)
	if q.rec.Detail == nil {
		return
	}
	for i := range q.rec.Detail.Routing {
		if e := &q.rec.Detail.Routing[i]; e.Pool == p.kind && e.Worker < 0 {
			e.ReleasedMs = s.nowMs
		}
	}
	s.fillRouting(p, q, r)
}

func (s *Sim) fillRouting(p *pool, q *request, r router.Route) {
	d := q.rec.Detail
	sched := p.schedulerID(r.Worker, r.Rank)
	overlap := max(r.OverlapBlocks, 0) * int32(p.cfg.Rank.BlockSize)
	for i := range d.Routing {
		if e := &d.Routing[i]; e.Pool == p.kind && e.Worker < 0 {
			e.Worker, e.Scheduler, e.Rank, e.OverlapTokens = r.Worker, sched, r.Rank, overlap
			if r.OverlapBlocks >= 0 {
				e.Selected, e.Best = r.OverlapBlocks, r.BestBlocks
			}
		}
	}
	if p == s.prefill {
		d.PrefillScheduler, d.PrefillOverlapTokens = sched, min(overlap, q.rec.Input)
		return
	}
	d.DecodeScheduler = sched
	if s.prefill != nil {
		d.DecodeOverlapTokens = min(overlap, q.rec.Input)
	}
}
