package sim

import (
	"slices"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/timing"
)

type workerState uint8

const (
	active workerState = iota
	starting
	draining
	removed
)

// runLimit bounds a decode run: the ends of more passes than this are not worked
// out ahead, since an arrival may cut the run.
const runLimit = 64

// rank is one scheduler of a worker, with the buffer of its pass in flight.
type rank struct {
	core           engine.Core
	handoff        engine.Handoff
	offload        engine.Offload // nil without memory behind the KV pool
	pass           engine.Pass
	ran            bool                   // took part in the pass in flight
	rawMs          []float64              // [pass] of a run, ms as the model answers
	extrapolations []timing.Extrapolation // [pass], if the model tallies
	run            engine.Run
	deferred       []action         // commands that wait for the boundary
	pending        int              // accepted destinations that are not reserved yet
	mayReserve     bool             // the next boundary may reserve one more
	counted        metrics.Counters // since the last telemetry sample
	blocks         []int64          // [pass], KV blocks in use in the committed passes of a run
	occupancy      metrics.Occupancy
	gauges         engine.Gauges // after the last command or pass completion; telemetry only
	metrics        RankMetrics   // of the newest finished pass
	metricsFresh   bool          // metrics was not shown to the scaling policy yet
	lastMs         float64       // last publish time of the metric
}

// worker is one logical worker: its ranks behind a barrier (spec engine-vllm 9).
type worker struct {
	id     int32
	pool   *pool
	state  workerState
	ranks  []rank
	busy   bool // a pass is in flight
	heapAt int
	// The pass in flight, or the decode run of which it is part. ends holds the
	// ends of the passes of a run, seen the number already visible, committed
	// the number that the cores have advanced.
	startMs   float64
	endMs     float64
	inRun     bool
	runEvents bool
	ends      []float64 // [pass], ms
	published int
	committed int
	step      int64 // group passes since the ranks were last all empty
	retries   int   // effect-free zero-length passes in a row
	inflight  int   // requests counted on its ranks
	parked    bool  // ready, but its last pass had no effect
	origin    int   // operation that began its start or drain; observed runs only
}

// runnable reports whether some rank has work for a pass.
func (w *worker) runnable() bool {
	for i := range w.ranks {
		if w.ranks[i].core.Runnable() {
			return true
		}
	}
	return false
}

func (w *worker) drained() bool {
	if w.busy || w.inflight > 0 {
		return false
	}
	for i := range w.ranks {
		if !w.ranks[i].core.Drained() {
			return false
		}
	}
	return true
}

// startRun plans a decode run of the worker from nowMs. It reports false, with
// nothing changed, when the next pass has to be an ordinary one.
func (s *Sim) startRun(w *worker) bool {
	limit := runLimit
	for i := range w.ranks {
		rk := &w.ranks[i]
		if rk.pending > 0 && rk.mayReserve {
			limit = 1
		}
	}
	passes, n := limit, 0
	events := false
	for i := range w.ranks {
		rk := &w.ranks[i]
		rk.ran = rk.core.Runnable()
		rk.blocks = rk.blocks[:0]
		if !rk.ran {
			continue
		}
		rk.run = rk.core.Run(passes)
		if rk.run.Passes == 0 {
			return false
		}
		for _, id := range rk.core.Members() {
			if s.slots.At(id).rec.Output == 0 {
				return false // its first token is an effect of its own
			}
		}
		passes = min(passes, rk.run.Passes)
		events = events || rk.run.Events
		n++
	}
	if n == 0 {
		return false
	}
	if events && s.splitEvents {
		passes = 1 // event lag stamps every pass by itself
	}
	w.ends = w.ends[:0]
	if !s.planEnds(w, passes) {
		return false
	}
	w.inRun, w.runEvents = true, events
	if events {
		w.pool.eventRuns.set(w.id)
	}
	w.published, w.committed = 0, 0
	w.startMs, w.endMs = s.nowMs, w.ends[len(w.ends)-1]
	return true
}

// planEnds fills w.ends with the pass ends of a run; false if its first pass
// would not move the clock.
func (s *Sim) planEnds(w *worker, passes int) bool {
	cfg := &w.pool.cfg.Rank
	total := int64(cfg.Blocks) * int64(cfg.BlockSize)
	ratio := cfg.SpeedupRatio * cfg.DecodeSpeedupRatio
	ran := 0
	for i := range w.ranks {
		rk := &w.ranks[i]
		if !rk.ran {
			continue
		}
		ran++
		if cap(rk.rawMs) < passes {
			rk.rawMs = make([]float64, max(passes, runLimit))
		}
		rk.rawMs = rk.rawMs[:passes]
		if cfg.Role == engine.Prefill {
			return false
		}
		if t := w.pool.extrapolation; t != nil {
			rk.extrapolations = slices.Grow(rk.extrapolations[:0], passes)[:passes]
			t.DecodeSeriesExtrapolation(rk.run.Members, rk.run.Context, total, rk.rawMs, rk.extrapolations)
		} else {
			cfg.Timing.DecodeSeries(rk.run.Members, rk.run.Context, total, rk.rawMs)
		}
	}
	now := s.nowMs
	if len(w.ranks) == 1 {
		w.ends = appendEnds(w.ends, now, w.ranks[0].rawMs, ratio)
		return len(w.ends) > 0
	}
	for j := range passes {
		end := now
		for i := range w.ranks {
			if rk := &w.ranks[i]; rk.ran {
				d, err := timing.Duration(rk.rawMs[j], ratio)
				if err != nil {
					return false // the ordinary pass reports it
				}
				end = max(end, now+d)
			}
		}
		if end <= now {
			break
		}
		w.ends = append(w.ends, end)
		now = end
	}
	return len(w.ends) > 0
}

// appendEnds is planEnds for a worker of one rank. It stops before a pass that would
// not move the clock, or that no clock can hold: the ordinary pass reports it.
func appendEnds(ends []float64, now float64, rawMs []float64, ratio float64) []float64 {
	for i, raw := range rawMs {
		d, err := timing.Duration(raw, ratio)
		if err != nil {
			return ends[:len(ends)-i]
		}
		if now+d <= now {
			break
		}
		now += d
		ends = append(ends, now)
	}
	return ends
}

// settle brings a worker that is inside a decode run to nowMs: passes that ended
// by now become visible, the one in flight is committed and becomes the last of
// the run. Whatever touches a worker settles it first. Bit-equal to pass by pass,
// since nothing but lengths and time moves inside a run (spec replay-runtime 13).
func (s *Sim) settle(w *worker) error {
	if !w.inRun || w.committed == len(w.ends) {
		return nil
	}
	j := w.published
	for j < len(w.ends) && w.ends[j] <= s.nowMs {
		j++
	}
	if j > w.published {
		if err := s.publishRun(w, j); err != nil {
			return err
		}
		for i := range w.ranks {
			s.refreshGauges(&w.ranks[i])
		}
	}
	// A pass that ends just now leaves the worker idle, unless the passes of this
	// instant have started already: then the next one is in flight.
	if j > 0 && w.ends[j-1] == s.nowMs && j < len(w.ends) && s.startedMs != s.nowMs {
		s.completions.remove(w)
		w.busy, w.inRun = false, false
		s.wake(w)
		return nil
	}
	if j < len(w.ends) {
		s.advanceRun(w, 1)
		w.ends = w.ends[:j+1]
		if w.endMs != w.ends[j] {
			w.endMs = w.ends[j]
			s.completions.fix(w)
		}
	}
	return nil
}

// advanceRun commits n more passes of the run in every rank.
func (s *Sim) advanceRun(w *worker, n int) {
	for i := range w.ranks {
		if rk := &w.ranks[i]; rk.ran {
			rk.blocks = slices.Grow(rk.blocks, n)[:w.committed+n]
			rk.core.RunBlocks(rk.blocks[w.committed:])
			rk.core.Advance(n, &rk.pass.Events)
			if s.cfg.Scaling != nil {
				rk.pass.Metrics = rk.core.RunMetrics() // of this pass: later arrivals are no part of it
			}
		}
	}
	w.committed += n
	w.step += int64(n)
}

// publishRun makes the passes of the run before index to visible: events, tokens,
// metrics.
func (s *Sim) publishRun(w *worker, to int) error {
	n := to - w.published
	if n <= 0 {
		return nil
	}
	if ahead := to - w.committed; ahead > 0 {
		s.advanceRun(w, ahead)
	}
	for i := range w.ranks {
		rk := &w.ranks[i]
		rk.occupyRun(w, to)
		if rk.ran {
			if t := w.pool.extrapolation; t != nil {
				t.CountExtrapolation(rk.run.Members, rk.run.Context+int64(w.published)*rk.run.Members, rk.extrapolations[w.published:to])
			}
			if err := s.publishEvents(w, int32(i), &rk.pass.Events); err != nil {
				return err
			}
			rk.pass.Events.Reset()
			s.recordRunTokens(rk.core.Members(), w.ends[w.published:to])
			s.countAccepts(w.pool, rk.run.Members*int64(n), rk.run.Members*int64(n))
		}
		if s.cfg.Scaling != nil {
			began := w.startMs
			if to > 1 {
				began = w.ends[to-2]
			}
			var m engine.ForwardPass
			if rk.ran {
				m = rk.pass.Metrics
			}
			rk.publish(w.id, int32(i), m, began, w.ends[to-1])
		}
	}
	w.published = to
	return nil
}

// occupy counts the blocks that the pass that just ended had in use.
func (rk *rank) occupy(ms float64) {
	used := rk.pass.Blocks
	if !rk.ran {
		used = rk.core.Gauges().ActiveBlocks
	}
	rk.occupancy.Add(used, rk.gauges.TotalBlocks, ms)
}

// occupyRun is occupy for the passes of a run before index to that are not visible.
func (rk *rank) occupyRun(w *worker, to int) {
	from := w.startMs
	if w.published > 0 {
		from = w.ends[w.published-1]
	}
	if rk.ran {
		rk.pass.Blocks = rk.blocks[to-1]
		rk.occupancy.AddRun(rk.blocks[w.published:to], rk.gauges.TotalBlocks, from, w.ends[w.published:to])
		return
	}
	for _, end := range w.ends[w.published:to] {
		rk.occupy(end - from)
		from = end
	}
}

func (rk *rank) publish(worker, rank int32, m engine.ForwardPass, startMs, endMs float64) {
	rk.metrics = RankMetrics{Worker: worker, Rank: rank, WallS: (endMs - startMs) / 1000, Pass: m}
	rk.metricsFresh = true
	rk.lastMs = endMs
}

// recordRunTokens gives every member one token at each of ends.
func (s *Sim) recordRunTokens(members []int32, ends []float64) {
	var last float64
	var count int64
	for _, id := range members {
		rec := &s.slots.At(id).rec
		if rec.LastTokenMs != last || count == 0 {
			if count > 0 {
				s.gap(ends[0]-last, count)
			}
			last, count = rec.LastTokenMs, 0
		}
		count++
		if rec.Output == 1 {
			rec.SecondTokenMs = ends[0]
		}
		rec.Output += int32(len(ends))
		rec.LastTokenMs = ends[len(ends)-1]
		if s.exactTokens {
			rec.TokenMs = append(rec.TokenMs, ends...)
		}
	}
	s.gap(ends[0]-last, count)
	for j := 1; j < len(ends); j++ {
		s.gap(ends[j]-ends[j-1], int64(len(members)))
	}
}

// gap feeds n equal inter-token gaps, unless gaps are kept per request. Equal
// gaps in a row are fed at once: most requests of a pass share theirs.
func (s *Sim) gap(ms float64, n int64) {
	if s.exactTokens {
		return
	}
	ms = max(ms, 0)
	if ms == s.gapMs {
		s.gapN += n
		return
	}
	s.flushGaps()
	s.gapMs, s.gapN = ms, n
}

func (s *Sim) flushGaps() {
	if s.gapN > 0 {
		s.collector.Gap(s.gapMs, s.gapN)
		s.gapN = 0
	}
}

// token records n tokens of one request at atMs.
func (s *Sim) token(id int32, n int32, atMs float64) {
	rec := &s.slots.At(id).rec
	if rec.Output == 0 {
		rec.FirstTokenMs = atMs
		if n > 1 {
			rec.SecondTokenMs = atMs
			s.gap(0, int64(n-1))
		}
	} else {
		s.gap(atMs-rec.LastTokenMs, 1)
		if n > 1 {
			s.gap(0, int64(n-1))
		}
		if rec.Output == 1 {
			rec.SecondTokenMs = atMs
		}
	}
	rec.Output += n
	rec.LastTokenMs = atMs
	if s.exactTokens {
		for ; n > 0; n-- {
			rec.TokenMs = append(rec.TokenMs, atMs)
		}
	}
}
