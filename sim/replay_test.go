package sim_test

import (
	"math"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/simtest"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// six are the requests of the worked examples: every 3 ms, 128 tokens in, 3 out.
var six = []string{"0,128,3", "3,128,3", "6,128,3", "9,128,3", "12,128,3", "15,128,3"}

// eight arrive every 10 ms and emit 10 tokens.
var eight = []string{"0,128,10", "10,128,10", "20,128,10", "30,128,10", "40,128,10", "50,128,10", "60,128,10", "70,128,10"}

func column(o *simtest.Outcome, f func(*metrics.Record) float64) []float64 {
	var out []float64
	for i := range o.Records {
		out = append(out, f(&o.Records[i]))
	}
	return out
}

func arrivals(r *metrics.Record) float64  { return r.ArrivalMs }
func admits(r *metrics.Record) float64    { return r.FirstAdmitMs }
func firsts(r *metrics.Record) float64    { return r.FirstTokenMs }
func lasts(r *metrics.Record) float64     { return r.LastTokenMs }
func reuses(r *metrics.Record) float64    { return float64(r.Reused) }
func held(r *metrics.Record) float64      { return r.Detail.SourceHeldMs }
func reserved(r *metrics.Record) float64  { return r.Detail.DestinationReservedMs }
func activated(r *metrics.Record) float64 { return r.Detail.DestinationActivatedMs }
func releasedAt(r *metrics.Record) float64 {
	return r.Detail.SourceReleasedMs
}

func same(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func close1(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// both runs a case with decode runs and pass by pass.
func both(t *testing.T, name string, f func(t *testing.T, slow bool)) {
	t.Run(name+"/path=fast", func(t *testing.T) { f(t, false) })
	t.Run(name+"/path=slow", func(t *testing.T) { f(t, true) })
}

func TestAggregatedExamples(t *testing.T) {
	both(t, "E1", func(t *testing.T, slow bool) {
		o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: simtest.Pool(1, simtest.Fixed(10, 2)),
			Source: simtest.Open(t, simtest.Rows(t, "0,128,3,1 2", "5,128,3", "40,128,3,1 2"))})
		same(t, "admit", column(o, admits), 0, 10, 40)
		same(t, "first", column(o, firsts), 10, 22, 50)
		same(t, "last", column(o, lasts), 24, 26, 54)
		same(t, "reused", column(o, reuses), 0, 0, 64)
		close1(t, "committed", float64(o.Summary.CommittedPrefill), 320)
	})
	both(t, "E2", func(t *testing.T, slow bool) {
		o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: simtest.Pool(4, simtest.Fixed(10, 2)), Source: simtest.Open(t, simtest.Rows(t, six...))})
		same(t, "first", column(o, firsts), 10, 13, 16, 19, 24, 27)
		same(t, "last", column(o, lasts), 24, 27, 20, 23, 28, 31)
		close1(t, "worker seconds", o.Totals.DecodeWorkerSeconds, 0.124)
	})
	both(t, "E3", func(t *testing.T, slow bool) {
		tr := simtest.Rows(t, "0,128,3", "0,128,3", "0,128,3", "0,128,3", "0,128,3")
		d := trace.Drive{BlockSize: 64, ClosedLoop: true, Concurrency: 2}
		o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: simtest.Pool(1, simtest.Fixed(10, 2)), Source: simtest.Source(t, tr, d)})
		same(t, "arrival", column(o, arrivals), 0, 0, 14, 14, 28)
		same(t, "last", column(o, lasts), 14, 14, 28, 28, 42)
		c := simtest.Disaggregated(1, 1, simtest.Fixed(10, 2))
		c.Source, c.SlowPath = simtest.Source(t, tr, d), slow
		o = simtest.Run(t, c)
		same(t, "disagg arrival", column(o, arrivals), 0, 0, 16, 16, 32)
		same(t, "disagg last", column(o, lasts), 16, 16, 32, 32, 48)
	})
	both(t, "E6", func(t *testing.T, slow bool) {
		rows := simtest.Rows(t, "0,128,3", "3,128,3", "10,128,3")
		o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: simtest.Pool(1, simtest.Fixed(10, 2)), Source: simtest.Open(t, rows)})
		same(t, "admit", column(o, admits), 0, 10, 10)
		c := simtest.Disaggregated(1, 1, simtest.Fixed(10, 2))
		c.Source, c.SlowPath = simtest.Open(t, rows), slow
		same(t, "disagg admit", column(simtest.Run(t, c), admits), 0, 10, 20)
		c.Source = simtest.Open(t, simtest.Rows(t, "0,128,3", "10,128,3"))
		same(t, "disagg admit of two", column(simtest.Run(t, c), admits), 0, 10)
	})
}

func TestTimeCapStopsBeforeTheNextInstant(t *testing.T) {
	for _, want := range []struct{ capMs, requests, completed, seconds, committed float64 }{
		{0, 1, 0, 0, 0}, {5, 2, 0, 0.006, 0}, {12, 5, 0, 0.024, 128}, {24, 6, 0, 0.044, 384}, {30, 6, 0, 0.050, 512},
	} {
		both(t, "E11", func(t *testing.T, slow bool) {
			cap := want.capMs
			if cap == 0 {
				cap = math.SmallestNonzeroFloat64
			}
			o := simtest.Run(t, sim.Config{SlowPath: slow, MaxSimTimeMs: cap, Decode: simtest.Pool(2, simtest.Fixed(10, 2)),
				Source: simtest.Open(t, simtest.Rows(t, six...))})
			close1(t, "requests", float64(o.Summary.Requests), want.requests)
			close1(t, "not offered", float64(o.Summary.Coverage.Outcomes.Unreleased), 6-want.requests)
			close1(t, "completed", float64(o.Summary.Completed), want.completed)
			close1(t, "worker seconds", o.Totals.DecodeWorkerSeconds, want.seconds)
			close1(t, "committed", float64(o.Summary.CommittedPrefill), want.committed)
		})
	}
}

// TestOccupancyIsThatOfThePasses: two blocks of four for 10 ms, then three of them
// for two passes of 2 ms, the last of which gives them back.
func TestOccupancyIsThatOfThePasses(t *testing.T) {
	both(t, "one request", func(t *testing.T, slow bool) {
		e := simtest.Fixed(10, 2)
		e.Blocks = 4
		o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: simtest.Pool(1, e), Source: simtest.Open(t, simtest.Rows(t, "0,128,3"))})
		kv := o.Summary.Coverage.KVOccupancy["agg"]
		close1(t, "mean", kv.Mean, (2*10+3*4)/4./14)
		close1(t, "peak", kv.Peak, 0.75)
	})
}

func TestTurnsAfterAFailedOneAreCounted(t *testing.T) {
	c := simtest.Disaggregated(1, 1, simtest.Fixed(10, 2))
	c.Decode.Rank.Blocks = 1
	const row = `{"session_id":"a","timestamp":0,"input_length":128,"output_length":3,"hash_ids":[1,2]}` + "\n"
	c.Source = simtest.Open(t, simtest.Trace(t, row+row+row, 64))
	o := simtest.Run(t, c)
	if got := o.Summary.Coverage.Outcomes; got.Failed != 1 || got.Unreleased != 2 {
		t.Errorf("%+v", got)
	}
}

func transfer(c sim.Config, bytes, gbps float64, missing bool) sim.Config {
	c.Prefill.Transfer = sim.TransferConfig{BytesPerToken: bytes, BandwidthGBps: gbps, DestinationMissing: missing}
	return c
}

func TestHandoffExamples(t *testing.T) {
	both(t, "E4", func(t *testing.T, slow bool) {
		c := simtest.Disaggregated(1, 1, simtest.Fixed(10, 2))
		c.Source, c.SlowPath = simtest.Open(t, simtest.Rows(t, six...)), slow
		o := simtest.Run(t, c)
		for name, f := range map[string]func(*metrics.Record) float64{"held": held, "reserved": reserved, "activated": activated, "released": releasedAt} {
			same(t, name, column(o, f), 10, 20, 20, 20, 30, 30)
		}
		same(t, "first", column(o, firsts), 12, 22, 22, 22, 32, 32)
		same(t, "last", column(o, lasts), 16, 26, 26, 26, 36, 36)
	})
	both(t, "E5 1P1D", func(t *testing.T, slow bool) {
		c := transfer(simtest.Disaggregated(1, 1, simtest.Fixed(10, 2)), 100000, 1, false)
		c.Source, c.SlowPath = simtest.Open(t, simtest.Rows(t, six...)), slow
		o := simtest.Run(t, c)
		same(t, "admit", column(o, admits), 0, 10, 10, 10, 20, 20)
		same(t, "reserved", column(o, reserved), 10, 20, 20, 20, 30, 30)
		same(t, "activated", column(o, activated), 22.8, 32.8, 32.8, 32.8, 42.8, 42.8)
		same(t, "released", column(o, releasedAt), 30, 32.8, 32.8, 32.8, 42.8, 42.8)
		same(t, "first", column(o, firsts), 24.8, 34.8, 34.8, 34.8, 44.8, 44.8)
		same(t, "last", column(o, lasts), 28.8, 38.8, 38.8, 38.8, 48.8, 48.8)
	})
	both(t, "E5 2P1D", func(t *testing.T, slow bool) {
		c := transfer(simtest.Disaggregated(2, 1, simtest.Fixed(10, 2)), 100000, 1, false)
		c.Source, c.SlowPath = simtest.Open(t, simtest.Rows(t, six...)), slow
		o := simtest.Run(t, c)
		same(t, "held", column(o, held), 10, 13, 20, 23, 30, 33)
		same(t, "reserved", column(o, reserved), 10, 13, 20, 24.8, 30.8, 34.8)
		same(t, "activated", column(o, activated), 22.8, 26.8, 32.8, 38.8, 44.8, 48.8)
		same(t, "released", column(o, releasedAt), 30, 33, 32.8, 38.8, 44.8, 48.8)
		same(t, "last", column(o, lasts), 28.8, 32.8, 38.8, 44.8, 50.8, 54.8)
		close1(t, "prefill seconds", o.Totals.PrefillWorkerSeconds, 0.1096)
		close1(t, "decode seconds", o.Totals.DecodeWorkerSeconds, 0.0548)
		c = transfer(c, 100000, 4, false)
		c.Source = simtest.Open(t, simtest.Rows(t, six...))
		o = simtest.Run(t, c)
		same(t, "reserved at 4 GB/s", column(o, reserved), 10, 13, 21.2, 23.2, 30.4, 33)
		same(t, "activated at 4 GB/s", column(o, activated), 13.2, 17.2, 24.4, 26.4, 33.6, 37.6)
		same(t, "last at 4 GB/s", column(o, lasts), 19.2, 23.2, 30.4, 32.4, 39.6, 43.6)
	})
	for _, sg := range []bool{false, true} {
		both(t, "E5 modes", func(t *testing.T, slow bool) {
			e := simtest.Fixed(10, 2)
			if sg {
				e.Backend = engine.SGLang
			}
			for _, m := range []struct {
				isl     string
				missing bool
				want    []float64
			}{{"200", false, []float64{30, 130, 230}}, {"200", true, []float64{35.6, 116.4, 216.4}}, {"256", true, []float64{35.6, 110, 210}}} {
				rows := simtest.Rows(t, "0,"+m.isl+",2,1 2 3 4", "100,"+m.isl+",2,1 2 3 4", "200,"+m.isl+",2,1 2 3 4")
				c := transfer(simtest.Disaggregated(1, 1, e), 100000, 1, m.missing)
				c.Source, c.SlowPath = simtest.Open(t, rows), slow
				o := simtest.Run(t, c)
				same(t, "activated "+m.isl, column(o, activated), m.want...)
				if sg {
					same(t, "reserved", column(o, reserved), 0, 100, 200)
				}
			}
		})
	}
	both(t, "E7", func(t *testing.T, slow bool) {
		rows := simtest.Rows(t, "0,128,20", "3,128,2", "6,128,2", "9,128,2")
		c := transfer(simtest.Disaggregated(1, 1, simtest.Fixed(10, 3)), 10000, 1, false)
		c.Source, c.SlowPath = simtest.Open(t, rows), slow
		o := simtest.Run(t, c)
		same(t, "reserved", column(o, reserved)[1:], 20.28, 23.28, 23.28)
		same(t, "activated", column(o, activated)[1:], 23.28, 26.28, 26.28)
		e := simtest.Fixed(10, 3)
		e.Backend = engine.SGLang
		c = transfer(simtest.Disaggregated(1, 1, e), 10000, 1, false)
		c.Source, c.SlowPath = simtest.Open(t, rows), slow
		o = simtest.Run(t, c)
		same(t, "sglang reserved", column(o, reserved)[1:], 3, 6, 9)
		same(t, "sglang activated", column(o, activated)[1:], 23.28, 23.28, 23.28)
	})
	both(t, "E8", func(t *testing.T, slow bool) {
		rows := func() workload.Source { return simtest.Open(t, simtest.Rows(t, "0,128,20", "0,128,20", "0,128,20")) }
		c := simtest.Disaggregated(1, 1, simtest.Fixed(10, 2))
		c.Decode.Rank.Blocks, c.Source, c.SlowPath = 1, rows(), slow
		for _, r := range simtest.Run(t, c).Records {
			if r.Status != metrics.Failed || r.Detail.SourceHeldMs != 10 || r.Detail.DestinationReservedMs != metrics.Unset {
				t.Errorf("a prompt over the decode pool: %+v", r)
			}
		}
		c.Decode.Rank.Blocks, c.Source = 5, rows()
		same(t, "last", column(simtest.Run(t, c), lasts), 50, 88, 126)
		c.Decode.Rank.Blocks, c.Prefill.Rank.Blocks, c.Source = 16384, 1, rows()
		for _, r := range simtest.Run(t, c).Records {
			if r.Status != metrics.Rejected {
				t.Errorf("a prompt over the prefill pool ended %v", r.Status)
			}
		}
		c.Prefill.Rank.Blocks, c.Decode.Rank.MaxNumSeqs, c.Source = 16384, 1, rows()
		same(t, "first", column(simtest.Run(t, c), firsts), 12, 52, 92)
	})
}

// script is a scaling policy that follows a list.
type script struct {
	at     []float64
	wanted []sim.Decision
	next   int
}

func (p *script) FirstTickMs() float64 { return p.at[0] }

func (p *script) Tick(s *sim.Snapshot) (sim.Decision, error) {
	d := p.wanted[p.next]
	p.next++
	d.NextTickMs = math.Inf(1)
	if p.next < len(p.at) {
		d.NextTickMs = p.at[p.next]
	}
	return d, nil
}

func TestScalingExamples(t *testing.T) {
	both(t, "E9", func(t *testing.T, slow bool) {
		p := simtest.Pool(1, simtest.Fixed(10, 2))
		p.StartupMs = 15
		o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: p, Source: simtest.Open(t, simtest.Rows(t, eight...)),
			Scaling: &script{at: []float64{5, 45, 60}, wanted: []sim.Decision{
				{TargetPrefill: sim.Keep, TargetDecode: 3}, {TargetPrefill: sim.Keep, TargetDecode: 1}, {TargetPrefill: sim.Keep, TargetDecode: sim.Keep}}}})
		same(t, "worker", column(o, func(r *metrics.Record) float64 { return float64(r.Detail.DecodeScheduler) }), 0, 0, 1, 2, 0, 0, 0, 0)
		same(t, "last", column(o, lasts), 38, 40, 48, 58, 98, 100, 102, 104)
		close1(t, "worker seconds", o.Totals.DecodeWorkerSeconds, 0.2)
	})
	both(t, "E9 cancel", func(t *testing.T, slow bool) {
		p := simtest.Pool(1, simtest.Fixed(10, 2))
		p.StartupMs = 20
		pol := &script{at: []float64{5, 7}, wanted: []sim.Decision{{TargetPrefill: sim.Keep, TargetDecode: 4}, {TargetPrefill: sim.Keep, TargetDecode: 2}}}
		o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: p, Source: simtest.Open(t, simtest.Rows(t, eight...)), Scaling: pol})
		same(t, "worker", column(o, func(r *metrics.Record) float64 { return float64(r.Detail.DecodeScheduler) })[:5], 0, 0, 0, 1, 0)
	})
	both(t, "E10", func(t *testing.T, slow bool) {
		c := simtest.Disaggregated(1, 1, simtest.Fixed(10, 2))
		c.Source, c.SlowPath = simtest.Open(t, simtest.Rows(t, eight...)), slow
		c.Scaling = &script{at: []float64{5, 35}, wanted: []sim.Decision{{}, {TargetPrefill: 1, TargetDecode: 1}}}
		o := simtest.Run(t, c)
		same(t, "last", column(o, lasts), 55, 65, 65, 65, 75, 85, 95, 105)
	})
	t.Run("to zero", func(t *testing.T) {
		_, err := simtest.TryRun(t, sim.Config{Decode: simtest.Pool(1, simtest.Fixed(10, 2)), Source: simtest.Open(t, simtest.Rows(t, eight...)),
			Scaling: &script{at: []float64{5}, wanted: []sim.Decision{{}}}})
		if err == nil || err.Error() != "placement policy error: no active workers for round-robin placement" {
			t.Errorf("aggregated round robin without workers: %v", err)
		}
	})
	t.Run("to more than there can be", func(t *testing.T) {
		_, err := simtest.TryRun(t, sim.Config{Decode: simtest.Pool(1, simtest.Fixed(10, 2)), Source: simtest.Open(t, simtest.Rows(t, eight...)),
			Scaling: &script{at: []float64{5}, wanted: []sim.Decision{{TargetDecode: sim.MaxWorkers + 1}}}})
		if err == nil || err.Error() != "scaling policy error: agg: asked for 1048577 workers, a pool has 0 to 1048576" {
			t.Errorf("a target without bound: %v", err)
		}
	})
}

func TestRouterExamples(t *testing.T) {
	both(t, "E12", func(t *testing.T, slow bool) {
		for _, want := range []struct {
			lag     float64
			overlap []float64
		}{{0, []float64{0, 10, 10}}, {30, []float64{0, 10, 10}}, {45, []float64{0, 0, 10}}, {95, []float64{0, 0, 0}}} {
			ids := "1 2 3 4 5 6 7 8 9 10"
			o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: simtest.Pool(2, simtest.Fixed(10, 2)), Router: simtest.KV(want.lag),
				Source: simtest.Open(t, simtest.Rows(t, "0,640,3,"+ids, "50,640,3,"+ids, "100,640,3,"+ids))})
			best := column(o, func(r *metrics.Record) float64 { return float64(r.Detail.Routing[0].Best) })
			if want.lag == 45 {
				best = []float64{best[0], best[1], math.Min(best[2], 10)}
			}
			same(t, "overlap", best, want.overlap...)
		}
	})
	both(t, "E13", func(t *testing.T, slow bool) {
		e := simtest.Fixed(10, 2)
		e.MaxNumBatchedTokens = 640
		r := simtest.KV(0)
		r.Config.Profile.Classes[0].BusyFrac = 0.5
		o := simtest.Run(t, sim.Config{SlowPath: slow, Decode: simtest.Pool(1, e), Router: r,
			Source: simtest.Open(t, simtest.Rows(t, "0,640,3", "1,640,3", "2,640,3", "3,640,3"))})
		same(t, "release", column(o, func(r *metrics.Record) float64 { return r.Detail.Routing[0].ReleasedMs }), -1, 10, 34, 58)
	})
}

func TestTransfersShareTheirLinksFairly(t *testing.T) {
	// Two sources finish a 128-token prompt at 10 ms for the same decode worker: each
	// transfer alone would take 12.8 ms, sharing its incoming link takes both 25.6 ms.
	c := transfer(simtest.Disaggregated(2, 1, simtest.Fixed(10, 2)), 100000, 1, false)
	c.Prefill.Transfer.FairShare = true
	c.Source = simtest.Open(t, simtest.Rows(t, "0,128,2", "0,128,2"))
	o := simtest.Run(t, c)
	same(t, "activated", column(o, activated), 35.6, 35.6)
	// With the second 6.4 ms later: alone for 6.4 ms (half done), then both at half
	// rate until the first ends 12.8 ms later (the second is half done), then alone.
	c.Source = simtest.Open(t, simtest.Rows(t, "0,128,1", "6.4,128,1"))
	o = simtest.Run(t, c)
	same(t, "activated", column(o, activated), 29.2, 35.6)
	// The end that the first would have had alone, 22.8, is no instant any more: a
	// cap behind it leaves the clock where the second started, at 16.4.
	c.MaxSimTimeMs, c.Source = 25, simtest.Open(t, simtest.Rows(t, "0,128,1", "6.4,128,1"))
	if o = simtest.Run(t, c); o.ClockMs != 16.4 {
		t.Errorf("the clock stands at %v, want 16.4", o.ClockMs)
	}
}

func TestBandwidthsAtTheEndsOfTheNumbers(t *testing.T) {
	for _, shared := range []bool{false, true} {
		c := transfer(simtest.Disaggregated(1, 1, simtest.Fixed(10, 2)), 100000, math.MaxFloat64, false)
		c.Prefill.Transfer.FairShare = shared
		c.Source = simtest.Open(t, simtest.Rows(t, "0,128,2", "0,128,2"))
		same(t, "no time", column(simtest.Run(t, c), activated), 10, 10)
		c.Prefill.Transfer.BandwidthGBps = math.SmallestNonzeroFloat64
		c.Source = simtest.Open(t, simtest.Rows(t, "0,128,2"))
		const want = "invalid replay spec: at kv_transfer_bandwidth 5e-324 GB/s a transfer of 1.28e+07 bytes never ends: "
		if _, err := simtest.TryRun(t, c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("shared %v: %v", shared, err)
		}
	}
}

func TestPromptWithoutOutputIsHeldBeforeItsBatchMates(t *testing.T) {
	// Both prompts finish at 10; the one that asks for no token ends without one, and
	// such ends come before tokens, so its destination is reserved first.
	both(t, "two prompts", func(t *testing.T, slow bool) {
		c := transfer(simtest.Disaggregated(1, 1, simtest.Fixed(10, 2)), 100000, 1, false)
		c.Decode.Rank.Blocks, c.SlowPath = 3, slow
		c.Source = simtest.Open(t, simtest.Rows(t, "0,128,2", "0,128,0"))
		o := simtest.Run(t, c)
		same(t, "reserved", column(o, reserved), 22.8, 10)
	})
}
