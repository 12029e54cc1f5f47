// Package sim runs one deployment: a logical clock, pools of workers with their
// schedulers, placement, admission, KV handoff, scaling and measurement
// (spec replay-runtime). Nothing is parallel and nothing depends on wall time.
//
//	s, err := sim.New(cfg)     // cfg is complete, see Config
//	result, err := s.Run(ctx)  // once
//
// Simulated time is float64 ms from 0, compared exactly. At each interesting
// instant the run repeats a fixed list of phases until none changes anything
// (drain), then jumps to the next. A worker's pass is committed when it starts and
// becomes visible at its end. Passes in a row in which only lengths and time change
// (decode runs, worker.go) are computed in one loop, with the same bits as one by one.
//
// A backend is its own package, its descriptor in engine/backend.go, its constructor in
// build.go, keys of its own in sweep/scenario (engineargs.go, role.go), and its launch
// flags in sweep/launch/launch.go. A router mode is an entry of router/mode.go, a file
// with its Placement, a test and a paragraph of docs/router.md.
package sim

import (
	"context"
	"math"

	"github.com/dynosweep/dynosweep/sim/invariant"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// KVEvents is a batch of KV events of one rank.
type KVEvents = *kv.Events

// Sim is one run in progress.
type Sim struct {
	cfg                    Config
	nowMs                  float64
	startedMs              float64 // instant at which passes were started last
	events                 eventHeap
	completions            completions
	slots                  slots
	collector              *metrics.Collector
	src                    workload.Source
	prefill                *pool // nil when aggregated
	decode                 *pool // the aggregated pool, or the decode pool
	pools                  []*pool
	parked                 []*worker
	routes                 []routeBuf // stack of release lists, one per nesting depth
	depth                  int
	exactTokens            bool // keep token times per request: a cap may cut requests
	splitEvents            bool // stamp the events of every pass of a run by itself
	gapMs                  float64
	gapN                   int64
	capMs                  float64
	arrived                int64
	finished               int64
	outstanding            int // closed loop: arrived and not terminal
	handoffs               handoffs
	scaling                scaler
	lifecycle              lifecycle
	telemetry              sampler
	poolEvents, hostEvents kv.Events // scratch of endTransfers
	steps                  int64
	ctx                    context.Context // of Run
	unchecked              int64           // prompt tokens released since ctx was looked at
}

// Result is what a run leaves.
type Result struct {
	Collector     *metrics.Collector // Summary(Totals) and Records
	Totals        metrics.Totals     // the caller adds the wall time
	ScalingEvents []ScalingEvent
	Ticks         int
	ClockMs       float64
}

// Run simulates to the end, or to the time cap. It fails with an *Error when the
// workload, the policies or a dead end demand it, and with ctx.Err() when ctx ends.
func (s *Sim) Run(ctx context.Context) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.ctx = ctx
	if err := s.begin(); err != nil {
		return nil, err
	}
	for !s.done() {
		if s.steps++; s.steps&1023 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if s.cfg.Observers.Progress != nil {
				s.cfg.Observers.Progress(s.nowMs, s.finished)
			}
		}
		nextEventMs, tick := s.nextInstants()
		if math.IsInf(nextEventMs, 1) {
			return nil, s.stuckError()
		}
		if nextEventMs > s.capMs {
			// Pass by pass the ends inside decode runs would be instants of their own.
			last := s.lastEndWithinCap()
			if tick > last {
				s.advance(last)
				break
			}
		}
		if tick < nextEventMs {
			if err := s.sampleOnly(tick); err != nil {
				return nil, err
			}
			continue
		}
		s.advance(nextEventMs)
		if err := s.drain(); err != nil {
			return nil, err
		}
	}
	return s.finish()
}

// begin drains the instant 0 and arms the first ticks.
func (s *Sim) begin() error {
	if err := s.drain(); err != nil {
		return err
	}
	if err := s.armTicks(); err != nil {
		return err
	}
	if (s.eventsDue() || s.ticksDue()) && !s.done() {
		return s.drain()
	}
	return nil
}

// done reports that nothing but ready events and ticks is left.
func (s *Sim) done() bool {
	return s.slots.live == 0 && len(s.completions.items) == 0 && s.src.Drained() &&
		s.handoffs.idle() && s.allDrained()
}

func (s *Sim) allDrained() bool {
	for _, p := range s.pools {
		for _, w := range p.present {
			if !w.drained() {
				return false
			}
		}
	}
	return true
}

// nextInstants returns the next instant at which state can change, and the armed
// telemetry tick, +Inf where there is none.
func (s *Sim) nextInstants() (nextEventMs, tick float64) {
	nextEventMs, tick = s.src.NextMs(), s.telemetry.armedMs
	if nextEventMs < s.nowMs {
		nextEventMs = s.nowMs
	}
	if len(s.completions.items) > 0 {
		nextEventMs = min(nextEventMs, s.completions.items[0].endMs)
	}
	if t := s.events.top(); t != nil {
		nextEventMs = min(nextEventMs, t.atMs)
	}
	nextEventMs = min(nextEventMs, s.handoffs.links.endMs(), s.scaling.armedMs, s.offloadMs())
	return nextEventMs, tick
}

// advance moves the clock. Worker time is integrated when a pool changes and at
// the end, which differs from a sum per instant by rounding alone.
func (s *Sim) advance(toMs float64) {
	if toMs > s.nowMs {
		s.nowMs = toMs
	}
}

// drain repeats the phases of the instant until a full round changes nothing.
func (s *Sim) drain() error {
	if s.ticksDue() {
		if err := s.settleAll(); err != nil {
			return err
		}
	}
	for changed := true; changed; {
		var err error
		if changed, err = s.round(); err != nil {
			return err
		}
	}
	if invariant.On {
		if err := s.check(); err != nil {
			panic(err)
		}
	}
	return nil
}

// round is one pass over the phases (spec replay-runtime 3.1, 3.2).
func (s *Sim) round() (changed bool, err error) {
	if changed, err = s.offloads(); err != nil {
		return true, err
	}
	for len(s.completions.items) > 0 && s.completions.items[0].endMs == s.nowMs {
		w := s.completions.items[0]
		s.completions.remove(w)
		if err := s.complete(w); err != nil {
			return true, err
		}
		changed = true
	}
	if c, err := s.offloads(); c || err != nil {
		changed = true
		if err != nil {
			return true, err
		}
	}
	if c, err := s.dueEvents(); c || err != nil {
		changed = true
		if err != nil {
			return true, err
		}
	}
	if s.prefill != nil {
		c, err := s.runActions()
		changed = changed || c
		if err != nil {
			return true, err
		}
	}
	s.src.Flush(s.nowMs)
	c, err := s.releaseArrivals()
	changed = changed || c
	if err != nil {
		return true, err
	}
	for _, p := range s.pools {
		c, err := s.startPasses(p)
		changed = changed || c
		if err != nil {
			return true, err
		}
	}
	s.startedMs = s.nowMs
	for _, p := range s.pools {
		c, err := s.removeDrained(p)
		changed = changed || c
		if err != nil {
			return true, err
		}
	}
	c, err = s.ticks()
	return changed || c, err
}

// dueEvents applies worker-ready and transfer events of the instant.
func (s *Sim) dueEvents() (bool, error) {
	changed := false
	for {
		e := s.events.top()
		if e == nil || e.atMs > s.nowMs || e.kind > evTransfer {
			ended, err := s.endShared()
			return changed || ended, err
		}
		ev := s.events.pop()
		changed = true
		var err error
		if ev.kind == evWorkerReady {
			err = s.workerReady(s.poolOf(ev.stage), int32(ev.key))
		} else {
			err = s.transferDone(ev.key)
		}
		if err != nil {
			return true, err
		}
	}
}

func (s *Sim) poolOf(stage uint8) *pool {
	if stage == stagePrefill {
		return s.prefill
	}
	return s.decode
}

// settleAll brings every decode run to the present.
func (s *Sim) settleAll() error {
	for _, p := range s.pools {
		for _, w := range p.present {
			if err := s.settle(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastEndWithinCap is the last pass end inside decode runs that is within the cap,
// the present if there is none.
func (s *Sim) lastEndWithinCap() float64 {
	last := s.nowMs
	for _, w := range s.completions.items {
		for _, e := range w.ends {
			if w.inRun && e <= s.capMs {
				last = max(last, e)
			}
		}
	}
	return last
}

// finish publishes the last sample and closes the books.
func (s *Sim) finish() (*Result, error) {
	if err := s.settleAll(); err != nil {
		return nil, err
	}
	if err := s.finalSample(); err != nil {
		return nil, err
	}
	s.flushGaps()
	err := s.endOperations()
	for _, p := range s.pools {
		p.integrate(s.nowMs)
		for _, w := range p.present {
			for i := range w.ranks {
				s.collector.Occupied(p.kind, w.ranks[i].occupancy)
			}
		}
	}
	return s.result(), err
}

func (s *Sim) result() *Result {
	for _, p := range s.src.Plays() {
		s.collector.Trajectory(p.TerminalMs-p.StartMs, p.Status == "completed")
	}
	t := metrics.Totals{
		DecodeWorkerSeconds: s.decode.workerMs / 1000,
		DecodeGPUs:          s.decode.cfg.GPUsPerWorker,
		Unreleased:          max(0, s.src.Total()-s.arrived),
		PlannerDetails:      s.cfg.Scaling != nil && s.cfg.Observers.Tick != nil,
	}
	s.offloadTotals(&t)
	if s.prefill != nil {
		t.PrefillWorkerSeconds = s.prefill.workerMs / 1000
		t.PrefillGPUs = s.prefill.cfg.GPUsPerWorker
	}
	return &Result{
		Collector: s.collector, Totals: t, ScalingEvents: s.scaling.events, Ticks: s.scaling.ordinal, ClockMs: s.nowMs,
	}
}
