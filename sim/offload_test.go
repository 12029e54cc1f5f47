package sim_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/simtest"
	"github.com/dynosweep/dynosweep/sim/tier"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// sharedPrompts is a trace of prompts that share their beginnings.
func sharedPrompts(tb testing.TB, r *rand.Rand, gaps ...float64) *trace.Trace {
	var rows []string
	at, unique := 0.0, 100
	for range 10 + r.IntN(40) {
		at += pick(r, gaps...)
		var ids []string
		for i := range r.IntN(9) {
			ids = append(ids, fmt.Sprint(i))
		}
		for range 1 + r.IntN(9) {
			unique++
			ids = append(ids, fmt.Sprint(unique))
		}
		rows = append(rows, fmt.Sprintf("%v,%d,%d,%s", at, len(ids)*64-r.IntN(64), pick(r, 1, 2, 9, 40), strings.Join(ids, " ")))
	}
	return simtest.Rows(tb, rows...)
}

// hostMemory is so many blocks behind a pool, at a bandwidth of 0 in no time.
func hostMemory(blocks int, gbps float64) *tier.Config {
	return &tier.Config{BlockBytes: 1e6, Host: tier.Host{Blocks: blocks, WriteGBps: gbps, ReadGBps: gbps,
		SharedWriteGBps: math.Inf(1), SharedReadGBps: math.Inf(1)}}
}

func offloadRun(tb testing.TB, tr *trace.Trace, blocks, workers int, memory *tier.Config, slow bool) *metrics.Summary {
	e := simtest.Fixed(10, 2)
	e.Blocks, e.BlockSize = blocks, 16
	cfg := sim.Config{Decode: simtest.Pool(workers, e), Source: simtest.Open(tb, tr), SlowPath: slow}
	cfg.Decode.Offload = memory
	return simtest.Run(tb, cfg).Summary
}

func TestUnboundedHostMemoryHitsLikeAnUnboundedPool(t *testing.T) {
	for seed := range uint64(20) {
		tr := sharedPrompts(t, rand.New(rand.NewPCG(seed, 3)), 10_000)
		want := offloadRun(t, tr, 100_000, 1, nil, false)
		got := offloadRun(t, tr, 90, 1, hostMemory(100_000, 0), false)
		if got.FirstReusedRatio != want.FirstReusedRatio {
			t.Errorf("seed %d: host memory reuses %v, a pool without end %v", seed, got.FirstReusedRatio, want.FirstReusedRatio)
		}
	}
}

// offloadFigures are those of a run that do not hang on the order of a sum.
func offloadFigures(s *metrics.Summary) string {
	tiers, _ := json.Marshal(s.Totals.Tiers)
	return fmt.Sprintf("%v %v %v %v %v %v %s", s.DurationMs, s.Totals.DecodeWorkerSeconds, s.CommittedPrefill, s.TTFT, s.E2E, s.FirstReusedRatio, tiers)
}

func TestDecodeRunsBesideTransfersEqualPassByPass(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		tr := sharedPrompts(t, r, 0, 7, 33.25, 150)
		memory := hostMemory(pick(r, 7, 40, 400), pick(r, 0.01, 0.3, 5.0))
		if r.IntN(3) == 0 {
			memory.Host.Shared = true
		}
		if r.IntN(3) == 0 {
			memory.Third = &tier.Third{Blocks: pick(r, 20, 400), WriteGBps: 0.5, ReadGBps: 1, LatencyMs: 0.1, Shared: r.IntN(2) == 0,
				SharedWriteGBps: math.Inf(1), SharedReadGBps: math.Inf(1)}
		}
		blocks, workers := 80+r.IntN(60), 1+r.IntN(3)
		fast := offloadFigures(offloadRun(t, tr, blocks, workers, memory, false))
		slow := offloadFigures(offloadRun(t, tr, blocks, workers, memory, true))
		if fast != slow {
			t.Errorf("seed %d, %+v: \n%s\npass by pass\n%s", seed, memory, fast, slow)
		}
	}
}

func TestATierGivesOutWhatCameIn(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := offloadRun(t, sharedPrompts(t, r, 0, 33.25, 150), 90, 1, hostMemory(pick(r, 20, 100, 1000), 1), false)
		host := s.Totals.Tiers[0]
		if host.BytesOut > host.BytesIn*float64(host.JobsOut) || host.PeakBlocks > host.CapacityBlocks || host.ResidentBlocks > host.PeakBlocks {
			t.Errorf("seed %d: %+v", seed, host)
		}
		if got := float64(host.ResidentBlocks)*1e6 + float64(host.Evictions)*1e6; got != host.BytesIn {
			t.Errorf("seed %d: %v bytes in, %v resident or evicted", seed, host.BytesIn, got)
		}
	}
}
