package sim_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/simtest"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// draw is one random run: a function, since a run consumes its source.
type draw struct {
	rng   *rand.Rand
	cfg   sim.Config
	trace *trace.Trace
	drive trace.Drive
	text  string
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// newDraw makes run number k: tight pools, every backend, both topologies, prefix
// sharing, priorities of none, chunks, ranks, speculation, both routers.
func newDraw(tb testing.TB, k int) *draw {
	d := &draw{rng: rand.New(rand.NewPCG(uint64(k), 7))}
	r := d.rng
	var rows []string
	at, unique := 0.0, 100
	for range 2 + r.IntN(40) {
		at += pick(r, 0, 0, 0.5, 7, 33.25, 150)
		var ids []string
		for i := range r.IntN(9) {
			ids = append(ids, fmt.Sprint(i))
		}
		for range 1 + r.IntN(12) {
			unique++
			ids = append(ids, fmt.Sprint(unique))
		}
		rows = append(rows, fmt.Sprintf("%v,%d,%d,%s", at, len(ids)*64-r.IntN(64), pick(r, 0, 1, 2, 9, 40, 150), strings.Join(ids, " ")))
	}
	d.text = strings.Join(rows, "\n")
	d.trace = simtest.Rows(tb, rows...)
	e := d.engine()
	d.cfg = sim.Config{Decode: simtest.Pool(1+r.IntN(4), e)}
	if e.Backend != engine.TRTLLM && r.IntN(3) == 0 {
		d.cfg = simtest.Disaggregated(1+r.IntN(3), 1+r.IntN(3), e)
		d.cfg.Prefill.Transfer = pick(r, sim.TransferConfig{},
			sim.TransferConfig{BytesPerToken: 40000, BandwidthGBps: 5},
			sim.TransferConfig{BytesPerToken: 160000, BandwidthGBps: 50, DestinationMissing: true},
			sim.TransferConfig{BytesPerToken: 160000, BandwidthGBps: 5, FairShare: true})
		d.cfg.Prefill.Rank.NextN, d.cfg.Prefill.Rank.AcceptRates = 0, nil
	}
	ranks := pick(r, 1, 1, 1, 2, 3)
	d.cfg.Decode.DPSize, d.cfg.Prefill.DPSize = ranks, ranks
	if r.IntN(3) == 0 {
		d.cfg.Router = simtest.KV(pick(r, 0.0, 0, 13))
		d.cfg.Router.Config.Temperature = pick(r, 0, 0, 0.5)
	} else if k%2 == 0 {
		modes := router.Modes()
		d.cfg.Router = sim.RouterConfig{Mode: modes[k/2%len(modes)], Config: router.DefaultConfig(), Seed: uint64(k)}
	}
	d.drive = trace.Drive{BlockSize: e.BlockSize, Speedup: pick(r, 1.0, 1, 3)}
	if r.IntN(4) == 0 {
		d.drive = trace.Drive{BlockSize: e.BlockSize, ClosedLoop: true, Concurrency: 1 + r.IntN(9)}
	}
	return d
}

func (d *draw) engine() engine.Config {
	r := d.rng
	e := simtest.VLLM()
	need := 21*64 + 150
	e.Backend = pick(r, engine.VLLM, engine.VLLM, engine.SGLang, engine.TRTLLM)
	if e.Backend == engine.SGLang {
		e.BlockSize = pick(r, 1, 4, 16)
		e.SGLang.LPM = r.IntN(2) == 0
		e.SGLang.ChunkedPrefillSize = pick(r, 256, 512, 8192)
		e.SGLang.Conservativeness = pick(r, 0.3, 1)
		e.PrefillDecodeInterval = pick(r, 0, 0, 2)
		e.Blocks = int(float64(need)*pick(r, 1.3, 2, 9)/float64(e.BlockSize)) + 8
	} else {
		e.BlockSize = pick(r, 16, 32, 64, 96)
		e.Blocks = int(float64(need)*pick(r, 1.1, 1.4, 2.5, 40)/float64(e.BlockSize)) + 3
		e.MaxNumBatchedTokens = pick(r, 8192, 8192, 256, 1000)
		e.PreemptFIFO = e.Backend == engine.VLLM && r.IntN(3) == 0
		e.PrefixCaching = r.IntN(5) > 0
		if e.Backend == engine.VLLM {
			e.PrefillScheduleInterval = pick(r, 1, 1, 1, 3)
		}
	}
	if r.IntN(3) == 0 {
		e.MaxNumSeqs = 2 + r.IntN(20)
	}
	if r.IntN(3) == 0 {
		e.Timing = timing.Fixed{Prefill: pick(r, 0, 5, 12.5), Decode: pick(r, 1, 3.25)}
	}
	if r.IntN(6) == 0 && e.Backend != engine.TRTLLM {
		e.NextN, e.AcceptRates = 2, []float64{0.75, 0.4}
	}
	e.SpeedupRatio = pick(r, 1, 1, 0.5)
	return e
}

// run runs the draw, changed by mod.
func (d *draw) run(tb testing.TB, mod func(*sim.Config)) (*simtest.Outcome, error) {
	c := d.cfg
	c.Source = simtest.Source(tb, d.trace, d.drive)
	mod(&c)
	return simtest.TryRun(tb, c)
}

// passCounter counts decode passes, and as outside those whose context has an odd number.
type passCounter struct {
	timing.Model
	passes, outside int64
}

var _ timing.ExtrapolationCounter = (*passCounter)(nil)

func (t *passCounter) count(f timing.Extrapolation) {
	t.passes++
	if f.Outside {
		t.outside++
	}
}

func odd(activeKV int64) timing.Extrapolation { return timing.Extrapolation{Outside: activeKV%2 == 1} }

func (t *passCounter) DecodeMs(n, activeKV, totalKV int64) float64 {
	t.count(odd(activeKV))
	return t.Model.DecodeMs(n, activeKV, totalKV)
}

func (t *passCounter) DecodeSeriesExtrapolation(n, activeKV, totalKV int64, dst []float64, dist []timing.Extrapolation) {
	t.Model.DecodeSeries(n, activeKV, totalKV, dst)
	for j := range dist {
		dist[j] = odd(activeKV + int64(j)*n)
	}
}

func (t *passCounter) CountExtrapolation(_, _ int64, dist []timing.Extrapolation) {
	for _, f := range dist {
		t.count(f)
	}
}

// withCounters makes a run count its decode passes, by role.
func withCounters(c *sim.Config) (prefill, decode *passCounter) {
	prefill, decode = &passCounter{Model: c.Prefill.Rank.Timing}, &passCounter{Model: c.Decode.Rank.Timing}
	c.Decode.Rank.Timing = decode
	if c.Disaggregated {
		c.Prefill.Rank.Timing = prefill
	}
	return prefill, decode
}

// figures is everything that a run reports, wall time aside, as text.
func figures(tb testing.TB, o *simtest.Outcome) (summary, records string) {
	s := *o.Summary
	s.Totals.WallMs = 0
	b, err := s.MarshalJSON()
	if err != nil {
		tb.Fatal(err)
	}
	var w bytes.Buffer
	if err := metrics.WriteRecords(&w, o.Records); err != nil {
		tb.Fatal(err)
	}
	return string(b), w.String()
}

const draws = 400

// TestDecodeRunsEqualPassByPass: advancing decode runs in one loop gives every time,
// count and route of the pass-by-pass run, bit for bit; mean and std of the gaps,
// which are summed in another order, within 1e-11.
func TestDecodeRunsEqualPassByPass(t *testing.T) {
	ended := 0
	for k := range draws {
		d := newDraw(t, k)
		var p1, p2, d1, d2 *passCounter
		fast, err1 := d.run(t, func(c *sim.Config) { p1, d1 = withCounters(c) })
		slow, err2 := d.run(t, func(c *sim.Config) { p2, d2 = withCounters(c); c.SlowPath = true })
		if fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Fatalf("run %d: fast ends with %v, slow with %v\n%s", k, err1, err2, d.text)
		}
		if err1 != nil {
			continue
		}
		ended++
		if d1.passes != d2.passes || d1.outside != d2.outside || p1.passes != p2.passes {
			t.Fatalf("run %d: %d decode passes, %d outside, with decode runs; %d and %d pass by pass", k, d1.passes, d1.outside, d2.passes, d2.outside)
		}
		if a, b := fast.Summary.Coverage, slow.Summary.Coverage; !reflect.DeepEqual(a, b) {
			t.Fatalf("run %d (%+v): coverage is %+v with decode runs, %+v pass by pass", k, d.cfg.Decode.Rank, a, b)
		}
		_, r1 := figures(t, fast)
		_, r2 := figures(t, slow)
		if r1 != r2 {
			t.Fatalf("run %d (%+v): records differ\n%s\n%s\n%s", k, d.cfg.Decode.Rank, firstDifference(r1, r2), d.text, "")
		}
		for _, key := range metrics.Keys() {
			a, ok1 := fast.Summary.Get(key.Name)
			b, ok2 := slow.Summary.Get(key.Name)
			tol := 0.0
			if strings.HasSuffix(key.Name, "itl_ms") || strings.HasSuffix(key.Name, "per_user") || strings.HasSuffix(key.Name, "seconds") || key.Name == "gpu_hours" {
				tol = 1e-11
			}
			if key.Wall {
				continue
			}
			if ok1 != ok2 || math.Abs(a-b) > tol*math.Max(1, math.Abs(b)) {
				t.Fatalf("run %d: %s is %v with decode runs, %v pass by pass", k, key.Name, a, b)
			}
		}
	}
	if ended < draws/2 {
		t.Fatalf("only %d of %d runs ended: the draws are too tight to say anything", ended, draws)
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return "fast " + x[i] + "\nslow " + y[i]
		}
	}
	return fmt.Sprintf("%d and %d records", len(x), len(y))
}

// TestObservationChangesNothing: telemetry, KV event listeners and ticks that never
// scale leave every figure as it is.
func TestObservationChangesNothing(t *testing.T) {
	for k := range draws / 4 {
		d := newDraw(t, k)
		var d1, d2 *passCounter
		bare, err := d.run(t, func(c *sim.Config) { _, d1 = withCounters(c) })
		if err != nil {
			continue
		}
		seen := 0
		watched, err := d.run(t, func(c *sim.Config) {
			_, d2 = withCounters(c)
			c.Telemetry = metrics.TelemetryOptions{IntervalMs: 17, Sink: func(*metrics.Sample) error { seen++; return nil }}
			c.Observers.Progress = func(float64, int64) {}
		})
		if err != nil {
			t.Fatalf("run %d fails when watched: %v", k, err)
		}
		if d1.passes != d2.passes || d1.outside != d2.outside {
			t.Fatalf("run %d: %d decode passes, %d outside, with telemetry %d and %d", k, d1.passes, d1.outside, d2.passes, d2.outside)
		}
		if a, b := bare.Summary.Coverage, watched.Summary.Coverage; !reflect.DeepEqual(a, b) {
			t.Fatalf("run %d: coverage is %+v, with telemetry %+v", k, a, b)
		}
		if _, a := figures(t, bare); seen == 0 {
			t.Fatalf("run %d: no sample", k)
		} else if _, b := figures(t, watched); a != b {
			t.Fatalf("run %d: telemetry changes records\n%s", k, firstDifference(b, a))
		}
	}
}

// TestSameSeedSameBytes: a run repeats itself to the last byte.
func TestSameSeedSameBytes(t *testing.T) {
	for k := range draws / 4 {
		d := newDraw(t, k)
		a, err := d.run(t, func(*sim.Config) {})
		if err != nil {
			continue
		}
		b, err := d.run(t, func(*sim.Config) {})
		if err != nil {
			t.Fatal(err)
		}
		s1, r1 := figures(t, a)
		s2, r2 := figures(t, b)
		if s1 != s2 || r1 != r2 {
			t.Fatalf("run %d differs from itself", k)
		}
	}
}

// TestTwiceTheTimesTwiceTheLatencies: with fixed timing, doubling every time of the
// load and of the passes doubles every latency exactly.
func TestTwiceTheTimesTwiceTheLatencies(t *testing.T) {
	for k := range draws / 4 {
		d := newDraw(t, k)
		if d.drive.ClosedLoop || d.cfg.Router.EventLagMs > 0 {
			continue
		}
		scale := func(x float64) func(*sim.Config) {
			return func(c *sim.Config) {
				for _, p := range []*sim.PoolConfig{&c.Prefill, &c.Decode} {
					p.Rank.Timing = timing.Fixed{Prefill: 8 * x, Decode: 2 * x}
					p.Rank.SpeedupRatio, p.Rank.DecodeSpeedupRatio = 1, 1
					p.Transfer.BandwidthGBps /= x
				}
				drive := d.drive
				drive.Speedup /= x
				c.Source = simtest.Source(t, d.trace, drive)
			}
		}
		one, err := d.run(t, scale(1))
		if err != nil {
			continue
		}
		two, err := d.run(t, scale(2))
		if err != nil {
			t.Fatal(err)
		}
		for i := range one.Records {
			a, b := &one.Records[i], &two.Records[i]
			if a.Status == metrics.Completed && a.Output > 0 && math.Abs(2*a.E2EMs()-b.E2EMs()) > 1e-9*b.E2EMs() {
				t.Fatalf("run %d, request %d: latency %v, doubled %v", k, a.Ordinal, a.E2EMs(), b.E2EMs())
			}
		}
	}
}

// TestOneWorkerLeavesNoChoice: with a single rank and no queue limit every router
// gives the same times.
func TestOneWorkerLeavesNoChoice(t *testing.T) {
	for k := range draws / 4 {
		d := newDraw(t, k)
		one := func(mode *router.Mode) func(*sim.Config) {
			return func(c *sim.Config) {
				c.Decode.Workers, c.Decode.DPSize = 1, 1
				c.Prefill.Workers, c.Prefill.DPSize = min(c.Prefill.Workers, 1), 1
				c.Router = sim.RouterConfig{Mode: mode, Config: router.DefaultConfig(), Seed: 3}
			}
		}
		a, err := d.run(t, one(nil))
		if err != nil {
			continue
		}
		for _, mode := range router.Modes()[1:] {
			b, err := d.run(t, one(mode))
			if err != nil {
				t.Fatalf("run %d ends under round robin, not under %s: %v", k, mode.Name, err)
			}
			if x, y := column(a, lasts), column(b, lasts); fmt.Sprint(x) != fmt.Sprint(y) {
				t.Fatalf("run %d: last tokens %v and %v under %s", k, x, y, mode.Name)
			}
		}
	}
}

// watcher records what a Planner would see and scales up and down now and then.
type watcher struct {
	every float64
	seen  []string
}

func (p *watcher) FirstTickMs() float64 { return p.every }

func (p *watcher) Tick(s *sim.Snapshot) (sim.Decision, error) {
	p.seen = append(p.seen, fmt.Sprintf("%+v", *s))
	d := sim.Decision{TargetPrefill: sim.Keep, TargetDecode: sim.Keep, NextTickMs: s.NowMs + p.every}
	if s.Ordinal > 500 {
		d.NextTickMs = math.Inf(1) // a run that is stuck ends with its own error
	}
	switch s.Ordinal % 7 {
	case 2:
		d.TargetDecode = len(s.Decode.Active) + len(s.Decode.Starting) + 1
	case 5:
		d.TargetPrefill, d.TargetDecode = 1, 1
	}
	return d, nil
}

// TestTicksReadWithoutCutting: a Planner sees the same snapshots, workers and
// metrics, with decode runs and pass by pass, and requests and the clock, beside a
// time cap as well, end at the same times.
func TestTicksReadWithoutCutting(t *testing.T) {
	ticks := 0
	for k := range draws / 2 {
		d := newDraw(t, k)
		var seen [2][]string
		var ends [2][]float64 // last tokens, then the clock
		var errs [2]error
		for i, slow := range []bool{false, true} {
			w := &watcher{every: 31.7}
			o, err := d.run(t, func(c *sim.Config) {
				c.Scaling, c.SlowPath, c.Decode.StartupMs, c.MaxSimTimeMs = w, slow, 40, []float64{0, 0, 75.5, 190}[k%4]
			})
			errs[i], seen[i] = err, w.seen
			if err == nil {
				ends[i] = append(column(o, lasts), o.ClockMs)
			}
		}
		if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
			t.Fatalf("run %d: fast ends with %v, slow with %v", k, errs[0], errs[1])
		}
		if errs[0] != nil {
			continue
		}
		ticks += len(seen[0])
		if a, b := strings.Join(seen[0], "\n"), strings.Join(seen[1], "\n"); a != b {
			t.Fatalf("run %d (%+v): snapshots differ\n%s", k, d.cfg.Decode.Rank, firstDifference(a, b))
		}
		if fmt.Sprint(ends[0]) != fmt.Sprint(ends[1]) {
			t.Fatalf("run %d: last tokens and clock %v and %v", k, ends[0], ends[1])
		}
	}
	if ticks < 1000 {
		t.Fatalf("only %d ticks", ticks)
	}
}

// TestSamplesReadWithoutCutting: telemetry shows the same samples with decode runs
// and pass by pass, beside a time cap as well.
func TestSamplesReadWithoutCutting(t *testing.T) {
	samples := 0
	for k := range draws / 4 {
		d := newDraw(t, k)
		limit := []float64{0, 20.5, 45, 150}[k%4] // 0: no cap
		var seen [2][]string
		for i, slow := range []bool{false, true} {
			sink := func(v *metrics.Sample) error { seen[i] = append(seen[i], string(v.AppendJSON(nil))); return nil }
			_, err := d.run(t, func(c *sim.Config) {
				c.SlowPath, c.MaxSimTimeMs = slow, limit
				c.Telemetry = metrics.TelemetryOptions{IntervalMs: 4.5, Sink: sink}
			})
			if err != nil {
				seen[i] = nil
			}
		}
		samples += len(seen[0])
		if a, b := strings.Join(seen[0], "\n"), strings.Join(seen[1], "\n"); a != b {
			t.Fatalf("run %d (cap %v, %+v): samples differ\n%s", k, limit, d.cfg.Decode.Rank, firstDifference(a, b))
		}
	}
	if samples < 1000 {
		t.Fatalf("only %d samples", samples)
	}
}
