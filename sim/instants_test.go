package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/simtest"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// gridMs divides every time of a grid run, so that events of all kinds meet.
const gridMs = 5

// Kinds of things that happen at an instant, as a run shows them from outside.
const (
	anArrival = iota
	aPassEnd
	aWorkerReady
	aTransferEnd
	aRemoval
	aSample
	aScalingTick
	instantKinds
)

var instantNames = [instantKinds]string{"arrival", "pass end", "worker ready", "transfer end", "removal", "telemetry sample", "scaling tick"}

// observed is all that a run showed: every tick, sample, operation and record as
// text, and which kinds of events happened at which instant.
type observed struct {
	log   strings.Builder
	kinds map[float64]uint32 // bit set of kinds
}

func (o *observed) note(atMs float64, kind int) { o.kinds[atMs] |= 1 << kind }

// gridPolicy scales both pools up and down, by the ordinal of the tick alone.
type gridPolicy struct {
	seed     uint64
	everyMs  float64
	ticks    int
	observed *observed
}

func (p *gridPolicy) FirstTickMs() float64 { return p.everyMs }

func (p *gridPolicy) Tick(s *sim.Snapshot) (sim.Decision, error) {
	p.observed.note(s.NowMs, aScalingTick)
	fmt.Fprintf(&p.observed.log, "tick %+v\n", *s)
	r := rand.New(rand.NewPCG(p.seed, uint64(s.Ordinal)))
	next := s.NowMs + p.everyMs
	if s.Ordinal >= p.ticks {
		return sim.Decision{TargetPrefill: 1, TargetDecode: 1, NextTickMs: math.Inf(1)}, nil
	}
	return sim.Decision{TargetPrefill: 1 + r.IntN(3), TargetDecode: 1 + r.IntN(4), NextTickMs: next}, nil
}

// gridRun makes run k, in which every arrival, pass, transfer, startup, sample and
// tick takes whole steps of the grid.
func gridRun(t *testing.T, k int, slow bool) *observed {
	r := rand.New(rand.NewPCG(uint64(k), 23))
	o := &observed{kinds: map[float64]uint32{}}
	step := func(n int) float64 { return float64(n * gridMs) }
	var rows []string
	at := 0.0
	for range 4 + r.IntN(20) {
		at += step(r.IntN(9))
		rows = append(rows, fmt.Sprintf("%v,%d,%d", at, 64*(1+r.IntN(12)), pick(r, 1, 2, 5, 20, 60)))
	}
	e := simtest.Fixed(step(1+r.IntN(3)), step(1))
	e.Backend = pick(r, engine.VLLM, engine.VLLM, engine.SGLang)
	c := sim.Config{Decode: simtest.Pool(1+r.IntN(2), e)}
	if r.IntN(3) > 0 {
		c = simtest.Disaggregated(1+r.IntN(2), 1+r.IntN(2), e)
		// 64 tokens take one step of the grid on a link of their own.
		c.Prefill.Transfer = sim.TransferConfig{BytesPerToken: 1e6, BandwidthGBps: 64.0 / gridMs, FairShare: r.IntN(3) == 0}
	}
	if r.IntN(2) == 0 {
		c.Router = simtest.KV(pick(r, 0, step(1)))
	}
	if r.IntN(2) == 0 {
		c.Decode.Rank.Timing = timing.Polynomial{} // passes off the grid
	}
	c.Prefill.StartupMs = step(1 + r.IntN(8))
	c.Decode.StartupMs = step(1 + r.IntN(8))
	c.Scaling = &gridPolicy{seed: uint64(k), everyMs: step(1 + r.IntN(6)), ticks: 40, observed: o}
	c.Telemetry = metrics.TelemetryOptions{IntervalMs: step(1 + r.IntN(6)), Sink: func(s *metrics.Sample) error {
		o.note(s.AtMs, aSample)
		fmt.Fprintf(&o.log, "sample %+v\n", *s)
		return nil
	}}
	c.Observers.Operation = func(op *sim.Operation) error {
		switch op.Cause {
		case sim.WorkerReady:
			o.note(op.AtMs, aWorkerReady)
		case sim.DrainSettlement:
			o.note(op.AtMs, aRemoval)
		}
		fmt.Fprintf(&o.log, "operation %+v\n", *op)
		return nil
	}
	c.SlowPath = slow
	c.Source = simtest.Source(t, simtest.Rows(t, rows...), trace.Drive{BlockSize: e.BlockSize, Speedup: 1})
	out, err := simtest.TryRun(t, c)
	if err != nil {
		t.Fatalf("run %d: %v", k, err)
	}
	for i := range out.Records {
		rec := &out.Records[i]
		o.note(rec.ArrivalMs, anArrival)
		for _, ms := range []float64{rec.FirstTokenMs, rec.SecondTokenMs, rec.LastTokenMs} {
			o.note(ms, aPassEnd)
		}
		if d := rec.Detail; c.Disaggregated && rec.Status == metrics.Completed && c.Prefill.Transfer.BytesPerToken > 0 {
			o.note(d.DestinationActivatedMs, aTransferEnd)
		}
	}
	_, records := figures(t, out)
	o.log.WriteString(records)
	return o
}

// TestEveryPairOfEventsAtOneInstant: whatever else happens at the instant of a tick, a
// sample or a placement, it sees every pass that ended by then: runs whose events all
// lie on one grid show the same snapshots, samples, operations and records with decode
// runs as pass by pass. The draws make every pair of kinds meet.
func TestEveryPairOfEventsAtOneInstant(t *testing.T) {
	var met [instantKinds][instantKinds]int
	for k := range 120 {
		fast, slow := gridRun(t, k, false), gridRun(t, k, true)
		if a, b := fast.log.String(), slow.log.String(); a != b {
			t.Fatalf("run %d differs from itself pass by pass:\n%s", k, firstDifference(a, b))
		}
		for _, kinds := range fast.kinds {
			for a := range instantKinds {
				for b := range a {
					met[a][b] += int((kinds >> a) & (kinds >> b) & 1)
				}
			}
		}
	}
	for a := range instantKinds {
		for b := range a {
			if met[a][b] < 5 {
				t.Errorf("%s and %s met at one instant %d times: too few to say anything", instantNames[b], instantNames[a], met[a][b])
			}
		}
	}
}
