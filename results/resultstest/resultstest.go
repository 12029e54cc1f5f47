// Package resultstest makes small results directories for tests: a grid of points
// whose figures follow simple formulas, so that a test knows who wins.
//
//	dir := resultstest.Grid(t, resultstest.Options{Points: 60, Seeds: 3})
//
// Only tests import it.
package resultstest

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Options shape a grid. Its axes are topology.workers (1, 2, ...), router.mode and
// engine.block_size, as many values as Points needs.
type Options struct {
	Name    string // of the specification; "" is grid
	Points  int    // that finish
	Seeds   int    // rows per point with the KV router; 0: one row without a seed
	Failed  int    // points that failed, and as many skipped
	Planner bool   // every second point has a Planner, with ticks and scaling events
	Loads   int    // values of workload.arrival_speedup; below 2 there is no such axis
	Reason  string // of failures; "" is a common one
}

// epoch is the time of every directory.
func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

var axes = []results.Axis{{Name: "workload.arrival_speedup", Type: results.Int64}, {Name: "topology.workers", Type: results.Int64},
	{Name: "router.mode", Type: results.String}, {Name: "engine.block_size", Type: results.Int64}, {Name: "planner.mode", Type: results.String}}

var routers = []string{"round_robin", "kv_router"}

// Grid writes a results directory and returns its path.
func Grid(t testing.TB, o Options) string {
	t.Helper()
	dir := t.TempDir()
	if o.Name == "" {
		o.Name = "grid"
	}
	store, err := results.Open(dir, results.Options{Identity: results.Identity{Name: o.Name, SpecDigest: "feed", Version: "test"},
		Axes: axes, Spec: []byte("name: " + o.Name + "\n"), Now: epoch})
	check(t, err)
	defer store.Close()
	var plan []results.Planned
	for i := range o.Points + 2*o.Failed {
		for _, row := range o.rows(i) {
			p := results.Planned{Key: row.Key, Row: row}
			if o.Planner && row.Status == results.Done && planned(i) {
				writeTicks(t, store, row)
				p.Row = nil // taken from its part
			}
			plan = append(plan, p)
		}
	}
	check(t, store.Finalize(plan))
	return dir
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func planned(i int) bool { return i%2 == 1 }

// rows are the rows of point i.
func (o *Options) rows(i int) (out []*results.Point) {
	loads := max(o.Loads, 1)
	load, k := i%loads, i/loads
	workers, router, block := 1+k%8, k/8%2, 16<<(k/16%4)
	p := results.Point{Key: results.Key{Point: fmt.Sprintf("%016x", uint64(i+1)*0x9e3779b97f4a7c15)}, GPUs: int64(workers), Status: results.Done}
	speedup := results.Null
	if loads > 1 {
		speedup = results.Int(load + 1)
	}
	mode := results.Null
	var planner any
	if o.Planner && planned(i) {
		mode, planner = results.Text("agg"), map[string]any{"mode": "agg"}
	}
	// Past the values of the other axes, block sizes go on.
	p.Axes = []results.Value{speedup, results.Int(workers), results.Text(routers[router]), results.Int(block + k/64), mode}
	config, _ := json.Marshal(map[string]any{"mode": "aggregated", "workers": workers, "planner": planner,
		"engine":   map[string]any{"engine": map[string]any{"backend": "vllm", "timing_model": map[string]any{"type": "fixed", "prefill_ms": 10, "decode_ms": 2}}, "dp_size": 1, "tensor_parallel_size": 1},
		"workload": map[string]any{"type": "synthetic", "input_tokens": 100, "output_tokens": 10, "requests": 100, "concurrency": 4},
		"router":   map[string]any{"mode": routers[router]}, "seeds": map[string]any{"router": 0}, "sla": map[string]any{"ttft_ms": 2000, "itl_ms": 50}})
	p.Config = string(config)
	if i >= o.Points {
		p.Status, p.Reason = results.Failed, o.Reason
		if p.Reason == "" {
			p.Reason = fmt.Sprintf("request larger than the cache: needs %d blocks, has 640", 900+i)
		}
		if i >= o.Points+o.Failed {
			p.Status, p.Reason = results.Skipped, "needs 20 GPUs, constraints.max_gpus is 16"
		}
		return []*results.Point{&p}
	}
	seeds := o.Seeds
	if router == 0 {
		seeds = 0 // draws nothing
	}
	for s := range max(seeds, 1) {
		row := p
		if seeds > 0 {
			row.Key.Seed, row.Key.Seeded = int64(s+1), true
		}
		row.Summary = summary(k, workers, router, load+1, s)
		row.CostUSD = results.Some(row.Summary.GPUHours() * 2)
		row.USDPerMillionOutputTokens = results.Some(row.CostUSD.V / float64(row.Summary.OutputTokens) * 1e6)
		out = append(out, &row)
	}
	return out
}

// summary makes figures: more workers are faster and dearer, the KV router is a tenth
// faster, and seeds move everything by up to a hundredth.
func summary(k, workers, router, load, seed int) *metrics.Summary {
	noise := 1 + 0.01*math.Sin(float64(7*seed+k))
	ttft := 2400 * float64(load) / float64(workers) * (1 - 0.1*float64(router)) * noise
	itl := (10 + 60*float64(load)/float64(workers)) * noise
	s := &metrics.Summary{SLA: metrics.SLA{TTFTMs: 2000, ITLMs: 50}, Requests: 1000, Completed: 1000, TTFTSamples: 1000, TPOTSamples: 1000, E2ESamples: 1000, InputTokens: 4e6, OutputTokens: 2e5,
		DurationMs: 6e5 * noise, Totals: metrics.Totals{DecodeWorkerSeconds: 600 * float64(workers) * noise, DecodeGPUs: 1, WallMs: 1},
		ReusedRatio: 0.1 + 0.4*float64(router)}
	stats := func(mid float64) metrics.Stats {
		return metrics.Stats{Mean: mid, Min: mid / 4, Max: mid * 4, Median: mid * 0.9, P75: mid * 1.2, P90: mid * 1.6, P95: mid * 2, P99: mid * 3, Std: mid / 2}
	}
	s.TTFT, s.TTST, s.TPOT, s.ITL, s.E2E, s.PerUser = stats(ttft), stats(itl), stats(itl), stats(itl), stats(ttft+200*itl), stats(1000/itl)
	for i, a := range metrics.GridTTFTMs {
		for j, b := range metrics.GridITLMs {
			s.Grid[i][j] = int64(1000 * within(a, ttft) * within(b, itl))
		}
	}
	s.Good = int64(1000 * within(2000, ttft) * within(50, itl))
	s.Coverage.QueueMs = stats(ttft / 3)
	s.Coverage.KVOccupancy = map[string]metrics.PoolKV{"agg": {Mean: 0.4, Peak: 0.9}}
	return s
}

// within is the share of requests within a limit.
func within(limit, mid float64) float64 { return 1 - math.Exp(-3*limit/mid) }

// writeTicks writes the part of a point with a Planner: an hour of ticks every 10 s,
// a surge in the middle to which it reacts 30 s late.
func writeTicks(t testing.TB, store *results.Store, row *results.Point) {
	t.Helper()
	part, err := store.Begin(row.Key)
	check(t, err)
	workers := 2
	for i := range 360 {
		now := float64(i+1) * 10000
		rate, starting := 2.0, 0
		surge := i >= 120 && i < 200
		if surge {
			rate = 6
		}
		if i == 123 || i == 203 {
			to := map[int]int{123: 6, 203: 2}[i]
			reason := map[bool]string{true: "scale_up", false: "scale_down"}[to > workers]
			check(t, part.Scaling(sim.ScalingEvent{AtS: now / 1000, Component: "agg", From: workers, To: to, Reason: reason}))
			workers = to
		}
		if i >= 123 && i < 126 {
			starting = 4
		}
		active := make([]int32, workers-starting)
		snap := &sim.Snapshot{Ordinal: i, NowMs: now, Decode: sim.PoolSnapshot{Active: active, Starting: make([]int32, starting)},
			Traffic: metrics.Traffic{DurationS: 10, Arrived: int64(10 * rate), Completed: int64(10 * math.Min(rate, 1.2*float64(len(active)))), TTFTCount: 1, ITLCount: 1, AvgTTFTMs: 300, AvgITLMs: 10, AvgISL: 100, AvgOSL: 10}}
		if surge && len(active) < 5 {
			snap.Traffic.AvgTTFTMs = 5000
		}
		check(t, part.Tick(&results.Tick{Record: &sim.TickRecord{Snapshot: snap, Decision: sim.Decision{TargetPrefill: sim.Keep, TargetDecode: sim.Keep, NextTickMs: now + 10000}},
			Diagnostics: results.Diagnostics{LowerBoundPrefill: -1, LowerBoundDecode: -1}}))
	}
	check(t, part.Commit(row))
}
