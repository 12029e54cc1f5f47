package main

import (
	"context"
	"runtime"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// TestStartupTimeHasACliff is what the comment of configs/planner-startup.yaml says:
// up to 90 s of startup time the Planner keeps most requests within the SLA, at two
// minutes it does not, and it decides less and less often; workers that start at once
// beat fixed fleets for their GPU-hours, slow ones do not.
func TestStartupTimeHasACliff(t *testing.T) {
	t.Parallel()
	g, err := scenario.ReadSweep("../../configs/planner-startup.yaml", &scenario.Files{})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Notices) > 0 {
		t.Errorf("the shipped configuration has notices: %q", g.Notices)
	}
	type figures struct {
		sla, gpuHours float64
		events        int
	}
	in := &sweep.Inputs{}
	point := func(workers int, hysteresis, startup any) (f figures) {
		for i := range g.Points {
			v := map[string]any{}
			for j, axis := range g.Axes {
				v[axis.Path] = g.Points[i].Values[j]
			}
			if v["topology.workers"] != int64(workers) || v["planner.hysteresis_ticks"] != hysteresis || v["planner.startup_seconds"] != startup {
				continue
			}
			out, err := sweep.Execute(context.Background(), in, &g.Points[i].Run, sweep.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f.sla, _ = out.Summary.Attainment()
			f.gpuHours, _ = out.Summary.Get("gpu_hours")
			f.events = len(out.Result.ScalingEvents)
			return f
		}
		t.Fatalf("no point with %d workers, hysteresis %v, startup %v", workers, hysteresis, startup)
		return f
	}
	five, six := point(5, nil, nil), point(6, nil, nil)
	// fixed is the attainment of a fixed fleet of that many GPU-hours, between five
	// and six workers.
	fixed := func(gpuHours float64) float64 {
		return five.sla + (six.sla-five.sla)*(gpuHours-five.gpuHours)/(six.gpuHours-five.gpuHours)
	}
	at := map[int64]figures{}
	for _, s := range []int64{0, 60, 90, 120, 300} {
		at[s] = point(2, int64(4), s)
	}
	if at[0].sla < fixed(at[0].gpuHours)+0.01 {
		t.Errorf("without startup time %+v, between five %+v and six fixed workers %+v", at[0], five, six)
	}
	if at[60].sla > fixed(at[60].gpuHours)-0.01 {
		t.Errorf("at 60 s %+v, five fixed workers %+v", at[60], five)
	}
	if at[60].sla < 0.8 || at[90].sla < 0.75 || at[120].sla > 0.65 || at[300].sla > 0.65 {
		t.Errorf("no cliff between 90 and 120 s: %+v", at)
	}
	if !(at[0].events > at[60].events && at[60].events > at[120].events && at[120].events > 2*at[300].events) {
		t.Errorf("scaling events %d, %d, %d, %d at 0, 60, 120, 300 s do not fall", at[0].events, at[60].events, at[120].events, at[300].events)
	}
	if eager := point(2, int64(0), int64(0)); eager.events < 3*at[0].events || eager.sla >= at[0].sla {
		t.Errorf("without hysteresis %+v, with %+v", eager, at[0])
	}
}

// TestManyTicksInFlatMemory: a pool that changes size at four of ten ticks holds no
// more after 100,000 ticks than after 20,000, though worker ids are never used again.
func TestManyTicksInFlatMemory(t *testing.T) {
	text := func(s string) *string { return &s }
	count := func(n int64) *int64 { return &n }
	gap := 10_000.0
	for _, router := range []string{"round_robin", "kv_router"} {
		flags := scenario.ReplayFlags{InputTokens: count(512), OutputTokens: count(256), RequestCount: count(10_000), ArrivalIntervalMs: &gap,
			RouterMode: &router, ExtraEngineArgs: text(`{"block_size":64,"num_gpu_blocks":64}`),
			PlannerConfig: text(`{"mode":"agg","optimization_target":"load","decode_scale_up_kv_rate":5,"decode_scale_down_kv_rate":1,` +
				`"load_adjustment_interval_seconds":1,"max_gpu_budget":4,"decode_engine_num_gpu":1}`)}
		run, err := flags.Resolve(&scenario.Files{})
		if err != nil {
			t.Fatal(err)
		}
		ticks, early, late := 0, uint64(0), uint64(0)
		held := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		var w sweep.RunOptions
		w.Observers.Tick = func(*sim.TickRecord) error {
			switch ticks++; ticks {
			case 20_000:
				early = held()
			case 99_900:
				late = held()
			}
			return nil
		}
		out, err := sweep.Execute(context.Background(), &sweep.Inputs{}, &run, w)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(out.Result.ScalingEvents); ticks < 99_900 || n < 30_000 {
			t.Fatalf("%s: %d ticks, %d scaling events", router, ticks, n)
		}
		if late > early+8<<20 {
			t.Errorf("%s: %d bytes held after 20,000 ticks, %d after 99,900", router, early, late)
		}
		t.Logf("%s: %d -> %d bytes, %d events", router, early, late, len(out.Result.ScalingEvents))
	}
}
