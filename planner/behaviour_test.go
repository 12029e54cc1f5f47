package planner

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
)

// plant is a deployment as a Planner sees it: pools that obey at once, with
// starting workers until they are readied.
type plant struct {
	t       testing.TB
	p       *Policy
	ordinal int
	now     float64
	prefill sim.PoolSnapshot
	decode  sim.PoolSnapshot
	nextID  int32
	delayed bool // scaled-up workers start
	traffic sim.Traffic
	fill    func(f *FPM) // the load of every decode worker
	queue   func(f *FPM) // and of every prefill worker
}

func newPlant(t testing.TB, config string, prefill, decode int) *plant {
	t.Helper()
	e := Engine{GPUs: 1, MaxBatchedTokens: 2048, MaxSeqs: 64, ContextLength: 8192, KVTokens: 8192, Ranks: 1}
	cfg := mustParse(t, config)
	p, err := New(cfg, Engines{Disaggregated: cfg.Mode == Disagg, Prefill: e, Decode: e})
	if err != nil {
		t.Fatal(err)
	}
	s := &plant{t: t, p: p, now: p.FirstTickMs(), fill: func(*FPM) {}, queue: func(*FPM) {}}
	for range prefill {
		s.prefill.Active = append(s.prefill.Active, s.id())
	}
	for range decode {
		s.decode.Active = append(s.decode.Active, s.id())
	}
	return s
}

func (s *plant) id() int32 { s.nextID++; return s.nextID - 1 }

// tick runs one tick, applies it, and returns what was thought.
func (s *plant) tick() Tick {
	s.t.Helper()
	s.traffic.DurationS = s.p.cfg.ScaleIntervalS
	shot := sim.Snapshot{Ordinal: s.ordinal, NowMs: s.now, Prefill: s.prefill, Decode: s.decode, Traffic: s.traffic}
	shot.Prefill.Metrics, shot.Decode.Metrics = rows(s.prefill.Active, s.queue), rows(s.decode.Active, s.fill)
	d, err := s.p.Tick(&shot)
	if err != nil {
		s.t.Fatal(err)
	}
	s.apply(&s.prefill, d.TargetPrefill)
	s.apply(&s.decode, d.TargetDecode)
	s.ordinal++
	s.now = d.NextTickMs
	return *d.Detail.(*Tick)
}

func rows(active []int32, fill func(*FPM)) (out []FPM) {
	for _, id := range active {
		f := FPM{Worker: id, WallS: 0.02}
		fill(&f)
		out = append(out, f)
	}
	return out
}

// apply cancels starting workers before it drains active ones, the highest id
// first (spec planner 4.4).
func (s *plant) apply(pool *sim.PoolSnapshot, target int) {
	if target == sim.Keep {
		return
	}
	for len(pool.Active)+len(pool.Starting) < target {
		if s.delayed {
			pool.Starting = append(pool.Starting, s.id())
		} else {
			pool.Active = append(pool.Active, s.id())
		}
	}
	for len(pool.Active)+len(pool.Starting) > target {
		if n := len(pool.Starting); n > 0 {
			pool.Starting = pool.Starting[:n-1]
		} else {
			pool.Active = pool.Active[:len(pool.Active)-1]
		}
	}
}

func (s *plant) ready() {
	s.decode.Active = append(s.decode.Active, s.decode.Starting...)
	s.decode.Starting = nil
}

// share spreads tokens of context over the decode workers.
func (s *plant) share(tokens int64) func(*FPM) {
	return func(f *FPM) { f.Pass.DecodeRequests, f.Pass.DecodeKVTokens = 1, tokens/int64(len(s.decode.Active)) }
}

const aggEasy = `{"mode":"agg","max_gpu_budget":4,"optimization_target":`

func TestConstantLoadFlapsWithoutHysteresisAndSettlesWithIt(t *testing.T) {
	flips := func(config string) (n int) {
		s := newPlant(t, config, 0, 1)
		last := 1
		for range 100 {
			s.fill = s.share(3600)
			if len(s.decode.Active) == 1 {
				s.fill = s.share(9000) // a queue builds up on one worker
			}
			s.tick()
			if len(s.decode.Active) != last {
				n, last = n+1, len(s.decode.Active)
			}
		}
		return n
	}
	if n := flips(aggEasy + `"throughput"}`); n < 90 {
		t.Errorf("%d changes of size in 100 ticks; the reference flaps every tick", n)
	}
	if n := flips(aggEasy + `"throughput","hysteresis_ticks":12}`); n > 17 {
		t.Errorf("%d changes of size in 100 ticks with hysteresis_ticks 12", n)
	}
}

func TestHysteresisCountsTicksInARow(t *testing.T) {
	s := newPlant(t, aggEasy+`"throughput","hysteresis_ticks":3}`, 0, 2)
	low, mid := s.share(100), s.share(16000)
	for i, fill := range []func(*FPM){low, low, mid, low, low, low} {
		s.fill = fill
		got := s.tick()
		want := HysteresisHold
		switch i {
		case 2:
			want = NoChange
		case 5:
			want = ScaleDown
		}
		if got.LoadReason != want {
			t.Errorf("tick %d: %s, want %s", i, got.LoadReason, want)
		}
	}
}

func TestPoolShrinksToTheFloorWhenTrafficEnds(t *testing.T) {
	s := newPlant(t, `{"mode":"disagg","optimization_target":"latency","prefill_min_endpoint":2,"max_gpu_budget":20}`, 6, 5)
	for range 30 {
		if got := s.tick(); got.LoadReason == ScaleUp {
			t.Fatalf("scale-up of an idle pool: %+v", got)
		}
	}
	if p, d := len(s.prefill.Active), len(s.decode.Active); p != 2 || d != 1 {
		t.Errorf("%d prefill and %d decode workers idle, want the floors 2 and 1", p, d)
	}
}

func TestMinimumIsKeptWhileTheModelHasNoEstimate(t *testing.T) {
	sla := `{"mode":"disagg","optimization_target":"sla","enable_load_scaling":true,"load_predictor":"constant",
		"throughput_adjustment_interval_seconds":20,"min_endpoint":2,"max_gpu_budget":8}`
	s := newPlant(t, sla, 1, 1)
	first := s.tick()
	if first.ScaleToPrefill != 2 || first.ScaleToDecode != 2 {
		t.Errorf("first tick: %+v", first)
	}
	s.traffic = sim.Traffic{Arrived: 1000, Completed: 10, AvgISL: 1000, AvgOSL: 100}
	for range 20 {
		s.tick()
	}
	if p, d := len(s.prefill.Active), len(s.decode.Active); p != 2 || d != 2 {
		t.Errorf("%d prefill and %d decode workers, want 2 and 2: no estimate is no reason to move", p, d)
	}
}

func TestChangePerTickIsBounded(t *testing.T) {
	s := newPlant(t, `{"mode":"agg","optimization_target":"throughput","max_gpu_budget":64}`, 0, 1)
	s.fill = func(f *FPM) { f.Pass.QueuedPrefillTokens = 1e9 }
	for want := 2; want < 10; want++ {
		if s.tick(); len(s.decode.Active) != want {
			t.Fatalf("%d workers, want %d: one more per load tick", len(s.decode.Active), want)
		}
	}
	s = newPlant(t, `{"mode":"disagg","optimization_target":"sla","enable_throughput_scaling":true,"max_gpu_budget":-1,
		"throughput_adjustment_interval_seconds":5,"load_predictor":"constant","max_throughput_scaling_replicas":3,"itl_ms":15}`, 1, 1)
	warm(s)
	s.traffic = sim.Traffic{Arrived: 100_000, Completed: 10, AvgISL: 1000, AvgOSL: 100}
	if got := s.tick(); got.ThroughputReason != Scale || len(s.decode.Active) != 4 || len(s.prefill.Active) != 4 {
		t.Errorf("%+v: %d workers, want 1 + 3", got, len(s.decode.Active))
	}
}

// warm gives the models of a disaggregated plant enough different passes.
func warm(s *plant) {
	var prefill, decode []FPM
	for i := range 10 {
		f := FPM{WallS: 0.01 + float64(i)*0.002}
		f.Pass.PrefillRequests, f.Pass.PrefillTokens = 1, int64(200*(i+1))
		prefill = append(prefill, f)
		f = FPM{WallS: 0.005 + float64(i*i)*0.0001}
		f.Pass.DecodeRequests, f.Pass.DecodeKVTokens = int64(i+1), int64(800*(i+1)+50*(i%3))
		decode = append(decode, f)
	}
	s.p.models.prefill.feed(prefill)
	s.p.models.decode.feed(decode)
}

func TestQueueTimeCountsInTheEstimatedTTFT(t *testing.T) {
	s := newPlant(t, `{"mode":"disagg","optimization_target":"sla","enable_throughput_scaling":false,
		"enable_load_scaling":true,"ttft_ms":400,"itl_ms":1000,"max_gpu_budget":8}`, 1, 1)
	warm(s)
	idle := s.tick()
	s.queue = func(f *FPM) { f.Pass.QueuedPrefill, f.Pass.QueuedPrefillTokens = 50, 50_000 }
	queued := s.tick()
	if idle.LoadReasonPrefill == ScaleUp || queued.LoadReasonPrefill != ScaleUp || len(s.prefill.Active) != 2 {
		t.Errorf("prefill: %s idle, %s with a queue", idle.LoadReasonPrefill, queued.LoadReasonPrefill)
	}
	if !(queued.EstimatedTTFTMs > 400 && queued.EstimatedTTFTMs > 10*idle.EstimatedTTFTMs) {
		t.Errorf("TTFT %v ms idle, %v ms behind 50,000 tokens", idle.EstimatedTTFTMs, queued.EstimatedTTFTMs)
	}
}

func TestStartingWorkersBlockTheLoadLoopAndGoFirst(t *testing.T) {
	s := newPlant(t, `{"mode":"disagg","optimization_target":"sla","enable_load_scaling":false,"max_gpu_budget":12,
		"throughput_adjustment_interval_seconds":20,"load_predictor":"constant","itl_ms":12}`, 1, 2)
	s.delayed = true
	warm(s)
	s.traffic = sim.Traffic{Arrived: 300, Completed: 10, AvgISL: 1000, AvgOSL: 100}
	for range 4 {
		s.tick()
	}
	if len(s.decode.Starting) == 0 {
		t.Fatal("no worker was asked for")
	}
	s.traffic.Arrived = 1
	for range 4 {
		s.tick()
	}
	if len(s.decode.Starting) != 0 || len(s.decode.Active) != 1 {
		t.Errorf("%d starting, %d active: re-targeting cancels starting workers first", len(s.decode.Starting), len(s.decode.Active))
	}

	s = newPlant(t, aggEasy+`"throughput"}`, 0, 1)
	s.delayed = true
	s.fill = s.share(9000)
	s.tick()
	if got := s.tick(); got.LoadReason != ScalingInProgress || got.Counts.ExpectedDecode != 2 {
		t.Errorf("%s with %d expected, want scaling_in_progress with 2", got.LoadReason, got.Counts.ExpectedDecode)
	}
	s.ready()
	if got := s.tick(); got.LoadReason == ScalingInProgress {
		t.Error("still in progress with every worker ready")
	}
}

func TestDrainingWorkersDoNotBlock(t *testing.T) {
	s := newPlant(t, aggEasy+`"throughput"}`, 0, 1)
	s.decode.Draining = []int32{7, 8}
	s.fill = s.share(9000)
	if got := s.tick(); got.LoadReason != ScaleUp {
		t.Errorf("%s with workers draining", got.LoadReason)
	}
}

func TestMissingMetricsAreAMismatch(t *testing.T) {
	s := newPlant(t, aggEasy+`"throughput"}`, 0, 2)
	shot := sim.Snapshot{NowMs: s.now, Decode: s.decode}
	shot.Decode.Metrics = rows(s.decode.Active[:1], s.fill)
	d, _ := s.p.Tick(&shot)
	if got := d.Detail.(*Tick); got.LoadReason != WorkerCountMismatch {
		t.Errorf("%s with one of two workers reporting", got.LoadReason)
	}
}

func TestLastValues(t *testing.T) {
	l := lastSeen{hitRate: math.NaN(), accept: 1}
	if l.hit() != 0 {
		t.Error("a hit rate was assumed")
	}
	l.observe(&Observation{HitRate: 0.99, AcceptLength: 9}, 2)
	if l.hit() != 0.95 || l.accept != 3 {
		t.Errorf("hit %v accept %v, want the limits 0.95 and 3", l.hit(), l.accept)
	}
	l.observe(&Observation{HitRate: 0, AcceptLength: math.NaN()}, 2)
	if l.hit() != 0 || l.accept != 3 {
		t.Errorf("hit %v accept %v: 0 is a hit rate, a missing accept length is none", l.hit(), l.accept)
	}
}

func TestWindowsMergeByTheirOwnCounts(t *testing.T) {
	var w window
	w.add(&sim.Traffic{DurationS: 5, Arrived: 3, Completed: 1, AvgISL: 100, AvgOSL: 10, AvgHitRate: 0.5, HitRateCount: 3})
	w.add(&sim.Traffic{DurationS: 5, Arrived: 2, Completed: 3, AvgISL: 200, AvgOSL: 30, AvgAcceptLength: 2, Forwards: 4})
	o, _, ok := w.take()
	if !ok || o != (Observation{DurationS: 10, NumReq: 5, ISL: 175, OSL: 25, HitRate: 0.5, AcceptLength: 2}) {
		t.Errorf("%+v", o)
	}
	if _, _, ok := w.take(); ok {
		t.Error("a window was consumed twice")
	}
}

func TestPlannerGPUHours(t *testing.T) {
	s := newPlant(t, `{"mode":"agg","decode_engine_num_gpu":4,"max_gpu_budget":-1}`, 0, 3)
	s.fill = s.share(3 * 7000)
	for range 4 {
		s.tick()
	}
	// The first interval is skipped: three of 5 s with 3 workers of 4 GPUs.
	if hours, ok := s.p.GPUHours(); !ok || math.Abs(hours-3*5*12/3600.0) > 1e-12 {
		t.Errorf("%v %v", hours, ok)
	}
	s = newPlant(t, `{"mode":"agg"}`, 0, 1)
	if got := s.tick(); !math.IsNaN(got.PlannerGPUHours) {
		t.Errorf("%v GPU-hours of unknown GPUs", got.PlannerGPUHours)
	}
	cfg := mustParse(t, `{"mode":"disagg","prefill_engine_num_gpu":4}`)
	w := cfg.Warnings(Engines{Disaggregated: true, Prefill: Engine{GPUs: 2}, Decode: Engine{GPUs: 1}})
	if len(w) != 2 {
		t.Errorf("warnings %q, want a disagreement and an unset count", w)
	}
	cfg = mustParse(t, `{"mode":"agg","min_gpu_budget":9,"max_gpu_budget":4,"decode_engine_num_gpu":1}`)
	if w := cfg.Warnings(Engines{Decode: Engine{GPUs: 1}}); len(w) != 1 || !strings.Contains(w[0], "no deployment has both") {
		t.Errorf("warnings %q, want one about the budgets", w)
	}
}

func TestPlannerMustFitTheTopology(t *testing.T) {
	cfg := mustParse(t, `{"mode":"disagg"}`)
	if _, err := New(cfg, Engines{Decode: Engine{GPUs: 1}}); err == nil {
		t.Error("a disaggregated Planner took an aggregated topology")
	}
}

func TestManyTicksInFlatMemory(t *testing.T) {
	s := newPlant(t, `{"mode":"disagg","optimization_target":"sla","enable_load_scaling":true,"load_predictor":"kalman",
		"throughput_adjustment_interval_seconds":20,"max_gpu_budget":12,"ttft_ms":400,"itl_ms":15}`, 2, 2)
	warm(s)
	s.traffic = sim.Traffic{Arrived: 30, Completed: 10, AvgISL: 1000, AvgOSL: 100}
	shot := sim.Snapshot{Prefill: s.prefill, Decode: s.decode, Traffic: s.traffic}
	shot.Traffic.DurationS = 5
	shot.Prefill.Metrics, shot.Decode.Metrics = rows(s.prefill.Active, s.queue), rows(s.decode.Active, s.share(2000))
	run := func(n int) {
		for range n {
			f := &shot.Decode.Metrics[0].Pass
			f.DecodeKVTokens = (f.DecodeKVTokens*31 + 7) % 5000
			if _, err := s.p.Tick(&shot); err != nil {
				t.Fatal(err)
			}

		}
	}
	run(1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(100_000)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes allocated in 100,000 ticks", grown)
	}
}

func BenchmarkTick(b *testing.B) {
	s := newPlant(b, `{"mode":"disagg","optimization_target":"sla","enable_load_scaling":true,"load_predictor":"kalman",
		"throughput_adjustment_interval_seconds":20,"max_gpu_budget":12,"ttft_ms":400,"itl_ms":15}`, 2, 2)
	warm(s)
	shot := sim.Snapshot{Prefill: s.prefill, Decode: s.decode,
		Traffic: sim.Traffic{DurationS: 5, Arrived: 30, Completed: 10, AvgISL: 1000, AvgOSL: 100}}
	shot.Prefill.Metrics, shot.Decode.Metrics = rows(s.prefill.Active, s.queue), rows(s.decode.Active, s.share(2000))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.p.Tick(&shot); err != nil {
			b.Fatal(err)
		}

	}
}
