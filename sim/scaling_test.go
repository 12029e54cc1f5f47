package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// whim scales both pools at random, to nothing and back, and leaves workers in both
// when it stops.
type whim struct {
	rng    *rand.Rand
	left   int // ticks
	zeroed int // decisions that asked for an empty pool
}

func (p *whim) FirstTickMs() float64 { return p.rng.Float64() * 60 }

func (p *whim) Tick(s *sim.Snapshot) (sim.Decision, error) {
	p.left--
	if p.left <= 0 {
		return sim.Decision{TargetPrefill: 1 + p.rng.IntN(3), TargetDecode: 1 + p.rng.IntN(3), NextTickMs: math.Inf(1)}, nil
	}
	target := func() int {
		n := pick(p.rng, sim.Keep, sim.Keep, 0, 1, 2, 3, 5)
		if n == 0 {
			p.zeroed++
		}
		return n
	}
	return sim.Decision{TargetPrefill: target(), TargetDecode: target(), NextTickMs: s.NowMs + pick(p.rng, 0.5, 7, 31.7, 120, 400)}, nil
}

// ledger follows the workers of a pool through its operations.
type ledger struct {
	count           int
	atMs, integral  float64 // count x ms up to atMs
	alive           map[int32]string
	mostId          int32
	starts, removed int
}

func newLedger(workers int) *ledger {
	l := &ledger{count: workers, alive: map[int32]string{}, mostId: int32(workers) - 1}
	for i := range workers {
		l.alive[int32(i)] = "active"
	}
	return l
}

// apply checks an operation against what was known of the pool: states follow each
// other, ids are new, and the lists afterwards are the workers that are left.
func (l *ledger) apply(o *sim.Operation) error {
	if o.AtMs < l.atMs {
		return fmt.Errorf("operation %d goes back from %v to %v ms", o.Ordinal, l.atMs, o.AtMs)
	}
	l.integral += float64(l.count) * (o.AtMs - l.atMs)
	l.atMs = o.AtMs
	for _, t := range o.Transitions {
		if l.alive[t.Worker] != t.From {
			return fmt.Errorf("worker %d leaves %q, it was %q", t.Worker, t.From, l.alive[t.Worker])
		}
		if t.From == "" {
			if t.Worker <= l.mostId {
				return fmt.Errorf("worker %d came before", t.Worker)
			}
			l.mostId, l.starts = t.Worker, l.starts+1
		}
		l.alive[t.Worker] = t.To
		if t.To == "removed" {
			delete(l.alive, t.Worker)
			l.removed++
		}
	}
	l.count = len(o.Active) + len(o.Starting) + len(o.Draining)
	if l.count != len(l.alive) {
		return fmt.Errorf("operation %d leaves %d workers, %d are alive", o.Ordinal, l.count, len(l.alive))
	}
	return nil
}

// end is when the pool's clock must have stopped for its worker-seconds to be the
// integral of its workers, of whom some must be left.
func (l *ledger) end(seconds float64) float64 {
	return l.atMs + (seconds*1000-l.integral)/float64(l.count)
}

// TestBothPoolsConserveUnderRandomScaling: whatever is scaled while prompts move
// between the pools, down to nothing and back, every request ends once and as it
// should, worker-seconds are the integral of the workers that were provisioned, up
// to the end of the run, and pass-by-pass runs agree.
func TestBothPoolsConserveUnderRandomScaling(t *testing.T) {
	ran, zeroed, moved := 0, 0, 0
	for k := range 1200 {
		d := newDraw(t, k)
		if !d.cfg.Disaggregated {
			continue
		}
		for _, pool := range [...]*sim.PoolConfig{&d.cfg.Prefill, &d.cfg.Decode} {
			pool.Rank.Blocks *= 4 // the tightest fill up with prompts that wait for each other
		}
		startup := [2]float64{pick(d.rng, 0.0, 0, 13, 250), pick(d.rng, 0.0, 0, 13, 250)}
		var pools map[metrics.Pool]*ledger
		policy := func() *whim { return &whim{rng: rand.New(rand.NewPCG(uint64(k), 11)), left: 2 + k%40} }
		p := policy()
		o, err := d.run(t, func(c *sim.Config) {
			c.Scaling, c.Prefill.StartupMs, c.Decode.StartupMs = p, startup[0], startup[1]
			pools = map[metrics.Pool]*ledger{metrics.PrefillPool: newLedger(c.Prefill.Workers), metrics.DecodePool: newLedger(c.Decode.Workers)}
			c.Observers.Operation = func(op *sim.Operation) error { return pools[op.Pool].apply(op) }
		})
		if err != nil {
			t.Fatalf("run %d: %v\n%s", k, err, d.text)
		}
		last := 0.0
		for i := range o.Records {
			last = max(last, o.Records[i].TerminalMs)
		}
		var ends []float64
		for pool, seconds := range map[metrics.Pool]float64{metrics.PrefillPool: o.Totals.PrefillWorkerSeconds, metrics.DecodePool: o.Totals.DecodeWorkerSeconds} {
			l := pools[pool]
			moved += l.removed
			if l.count > 0 {
				ends = append(ends, l.end(seconds))
			} else if math.Abs(seconds*1000-l.integral) > 1e-6*(1+l.integral) {
				t.Fatalf("run %d: %v %s worker-seconds, the integral is %v ms", k, seconds, pool, l.integral)
			}
		}
		for _, end := range ends {
			if math.Abs(end-ends[0]) > 1e-6*(1+end) || end < last-1e-6*(1+last) {
				t.Fatalf("run %d: worker-seconds end at %v ms, the last request at %v ms", k, ends, last)
			}
		}
		if o.Totals.PrefillGPUs > 0 {
			gpu := (o.Totals.PrefillWorkerSeconds*float64(o.Totals.PrefillGPUs) + o.Totals.DecodeWorkerSeconds*float64(o.Totals.DecodeGPUs)) / 3600
			if got, _ := o.Summary.Get("gpu_hours"); math.Abs(got-gpu) > 1e-12*gpu {
				t.Fatalf("run %d: %v GPU-hours, want %v", k, got, gpu)
			}
		}
		slow, err := d.run(t, func(c *sim.Config) {
			c.Scaling, c.Prefill.StartupMs, c.Decode.StartupMs, c.SlowPath = policy(), startup[0], startup[1], true
		})
		if err != nil {
			t.Fatalf("run %d, pass by pass: %v", k, err)
		}
		_, a := figures(t, o)
		if _, b := figures(t, slow); a != b {
			t.Fatalf("run %d: records differ\n%s", k, firstDifference(a, b))
		}
		ran, zeroed = ran+1, zeroed+p.zeroed
	}
	if ran < 150 || zeroed < 100 || moved < 100 {
		t.Fatalf("%d runs, %d times to nothing, %d workers removed: too few to say anything", ran, zeroed, moved)
	}
}
