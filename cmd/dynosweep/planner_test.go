package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// phase is a stretch of a trace: a request every gapMs from startMs to before endMs.
type phase struct{ startMs, endMs, gapMs int }

// burst writes a Mooncake trace of phases without shared prefixes, prompt lengths
// taken in turn (spec planner 13, notation T).
func burst(t *testing.T, osl int, isl []int, phases ...phase) string {
	t.Helper()
	var b strings.Builder
	n := 0
	for _, p := range phases {
		for at := p.startMs; at < p.endMs; at += p.gapMs {
			tokens := isl[n%len(isl)]
			ids := make([]string, (tokens+63)/64)
			for i := range ids {
				ids[i] = fmt.Sprint(n*1000 + i)
			}
			fmt.Fprintf(&b, `{"timestamp":%d,"input_length":%d,"output_length":%d,"hash_ids":[%s]}`+"\n", at, tokens, osl, strings.Join(ids, ","))
			n++
		}
	}
	path := filepath.Join(t.TempDir(), "burst.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// scaled is the part of a report that Planner tests look at.
type scaled struct {
	Completed   int     `json:"completed_requests"`
	MeanTTFTMs  float64 `json:"mean_ttft_ms"`
	GPUHours    float64 `json:"gpu_hours"`
	DecodeWorkS float64 `json:"decode_worker_seconds"`
	Planner     struct {
		Metadata   map[string]any
		Ticks      []tickSeen
		TicksKept  int           `json:"ticks_kept"`
		TicksFile  *string       `json:"ticks_file"`
		Events     []goldenEvent `json:"scaling_events"`
		Operations []struct {
			Cause       string
			Transitions []struct {
				Worker     int `json:"worker_id"`
				Transition string
				Reason     string
			}
		} `json:"lifecycle_operations"`
		TotalTicks int      `json:"total_ticks"`
		GPUHours   *float64 `json:"planner_gpu_hours"`
	}
}

type tickSeen struct {
	AtMs     float64 `json:"at_ms"`
	Topology struct {
		Prefill, Decode struct{ Active, Starting, Draining []int }
	}
	Effects struct {
		Diagnostics struct {
			EstimatedTTFTMs *float64 `json:"estimated_ttft_ms"`
			LoadReason      string   `json:"load_decision_reason"`
			Throughput      string   `json:"throughput_decision_reason"`
		}
	}
}

// autoscale replays a trace with a Planner and returns the report.
func autoscale(t *testing.T, trace, engine, planner string, more ...string) scaled {
	t.Helper()
	args := []string{trace, "--trace-block-size", "64", "--planner-config", planner}
	if engine != "" {
		args = append(args, "--extra-engine-args", engine)
	}
	return replayed(t, append(args, more...)...)
}

func replayed(t *testing.T, args ...string) scaled {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	_, stderr, code := runProgram(append([]string{"replay", "--report-json", path}, args...)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r scaled
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// at returns the tick at a second.
func (r *scaled) at(t *testing.T, s float64) *tickSeen {
	t.Helper()
	for i := range r.Planner.Ticks {
		if r.Planner.Ticks[i].AtMs == s*1000 {
			return &r.Planner.Ticks[i]
		}
	}
	t.Fatalf("no tick at %v s", s)
	return nil
}

// smallFixed is the engine of spec planner 13.1: passes of 20 ms, 8192 KV tokens.
func smallFixed(more string) string {
	return `{"timing_model":{"type":"fixed","prefill_ms":20,"decode_ms":20},"block_size":64,"num_gpu_blocks":128,"max_model_len":8192,"max_num_seqs":64,"max_num_batched_tokens":2048` + more + `}`
}

func easyPlanner(more string) string {
	return `{"mode":"agg","optimization_target":"throughput","decode_engine_num_gpu":1,"max_gpu_budget":4` + more + `}`
}

// TestConstantLoadBetweenTwoSizes: ten requests a second are too many for one worker
// and look like few for two. The reference changes its mind at every tick.
func TestConstantLoadBetweenTwoSizes(t *testing.T) {
	trace := burst(t, 64, []int{512}, phase{0, 300_000, 100})
	flapping := autoscale(t, trace, smallFixed(""), easyPlanner(""))
	if n := len(flapping.Planner.Events); n < 50 {
		t.Errorf("reference behaviour: %d scaling events in 60 ticks, want one at almost every tick", n)
	}
	calm := autoscale(t, trace, smallFixed(""), easyPlanner(`,"hysteresis_ticks":60`))
	if e := calm.Planner.Events; len(e) != 1 || e[0].To != 2 {
		t.Errorf("with hysteresis_ticks over the whole run: %+v, want one step to two workers", e)
	}
	some := autoscale(t, trace, smallFixed(""), easyPlanner(`,"hysteresis_ticks":6`))
	if n, most := len(some.Planner.Events), len(flapping.Planner.Events)/3; n == 0 || n > most {
		t.Errorf("hysteresis_ticks 6: %d scaling events, want at most a third of %d", n, len(flapping.Planner.Events))
	}
	held := 0
	for _, tick := range calm.Planner.Ticks {
		if tick.Effects.Diagnostics.LoadReason == "scale_down_hysteresis_hold" {
			held++
		}
	}
	if held < 50 {
		t.Errorf("%d ticks say that hysteresis held a scale-down, want nearly all", held)
	}
}

func TestPoolGoesDownToTheFloorWhenTrafficEnds(t *testing.T) {
	for _, floor := range []int{1, 2} {
		trace := burst(t, 64, []int{512}, phase{0, 40_000, 25}, phase{120_000, 120_001, 1})
		r := autoscale(t, trace, smallFixed(""), easyPlanner(fmt.Sprintf(`,"min_endpoint":%d`, floor)))
		peak := 0
		for _, tick := range r.Planner.Ticks {
			peak = max(peak, len(tick.Topology.Decode.Active))
		}
		last := r.at(t, 115).Topology.Decode
		if peak != 4 || len(last.Active) != floor || len(last.Draining) != 0 {
			t.Errorf("floor %d: at most %d workers under load, at the end %+v", floor, peak, last)
		}
	}
}

// TestMinimumIsKeptWithoutAnEstimate: constant pass times never make the model of
// target sla ready (spec planner 13.4).
func TestMinimumIsKeptWithoutAnEstimate(t *testing.T) {
	trace := burst(t, 64, []int{512}, phase{0, 60_000, 300})
	const slaPlanner = `{"mode":"agg","optimization_target":"sla","ttft_ms":400,"itl_ms":25,"enable_throughput_scaling":false,"enable_load_scaling":true,"max_gpu_budget":4,"min_endpoint":2}`
	for _, start := range []int{1, 2} {
		r := autoscale(t, trace, smallFixed(""), slaPlanner, "--num-workers", fmt.Sprint(start))
		for i, tick := range r.Planner.Ticks {
			if d := tick.Effects.Diagnostics; d.LoadReason != "insufficient_data" || d.EstimatedTTFTMs != nil {
				t.Fatalf("the model answers at %v ms: %+v", tick.AtMs, d)
			}
			if n := len(tick.Topology.Decode.Active); i > 0 && n != 2 {
				t.Errorf("start %d: %d workers at %v ms, the minimum is 2", start, n, tick.AtMs)
			}
		}
		if want := 2 - start; len(r.Planner.Events) != want {
			t.Errorf("start %d: events %+v, want %d, the repair of the minimum", start, r.Planner.Events, want)
		}
	}
}

func TestChangePerTickIsBounded(t *testing.T) {
	trace := burst(t, 100, []int{500, 800, 1100, 1700, 2300}, phase{0, 30_000, 200}, phase{30_000, 60_000, 125},
		phase{60_000, 120_000, 30}, phase{120_000, 180_000, 250})
	engine := `{"block_size":64,"num_gpu_blocks":1024,"max_num_seqs":32,"max_num_batched_tokens":4096}`
	steps := func(r scaled) (most int) {
		if len(r.Planner.Events) < 2 {
			t.Errorf("%d scaling events: the load does not try the bound", len(r.Planner.Events))
		}
		for _, e := range r.Planner.Events {
			most = max(most, max(e.To-e.From, e.From-e.To))
		}
		return most
	}
	load := autoscale(t, trace, engine, `{"mode":"agg","optimization_target":"load","decode_scale_up_kv_rate":20,"decode_scale_down_kv_rate":10,"max_gpu_budget":8}`)
	if n := steps(load); n != 1 {
		t.Errorf("load loop: %d workers in one tick", n)
	}
	disagg := func(limit int) scaled {
		role := func(name string) string {
			return `{"worker_type":"` + name + `","block_size":64,"num_gpu_blocks":1024,"max_num_seqs":32,"max_num_batched_tokens":4096}`
		}
		return autoscale(t, trace, "", fmt.Sprintf(`{"mode":"disagg","optimization_target":"sla","ttft_ms":300,"itl_ms":12,"throughput_adjustment_interval_seconds":20,"load_predictor":"constant","max_gpu_budget":12,"max_throughput_scaling_replicas":%d}`, limit),
			"--prefill-engine-args", role("prefill"), "--decode-engine-args", role("decode"), "--num-prefill-workers", "1", "--num-decode-workers", "1")
	}
	for _, limit := range []int{1, 2} {
		if n := steps(disagg(limit)); n > limit {
			t.Errorf("throughput loop bounded to %d: %d workers in one tick", limit, n)
		}
	}
	if n := steps(disagg(8)); n < 3 {
		t.Errorf("unbounded throughput loop: %d workers in one tick, so the bounds above show nothing", n)
	}
}

// TestQueueTimeCountsInTTFT: what waits in a worker is part of the TTFT that is
// measured and of the one that the Planner estimates (spec planner 13.3).
func TestQueueTimeCountsInTTFT(t *testing.T) {
	trace := burst(t, 96, []int{1024}, phase{0, 30_000, 500}, phase{30_000, 70_000, 40}, phase{70_000, 130_000, 400})
	engine := `{"block_size":64,"num_gpu_blocks":2048,"max_num_seqs":64,"max_num_batched_tokens":2048}`
	rows := filepath.Join(t.TempDir(), "requests.jsonl")
	r := autoscale(t, trace, engine, `{"mode":"agg","optimization_target":"sla","ttft_ms":400,"itl_ms":25,"enable_throughput_scaling":false,"enable_load_scaling":true,"max_gpu_budget":4}`,
		"--report-jsonl", rows)
	tick := r.at(t, 70)
	if got := tick.Effects.Diagnostics.EstimatedTTFTMs; got == nil || math.Abs(*got-15699.07) > 0.01 {
		t.Errorf("estimated TTFT behind 414 queued prompts: %v, the reference says 15699.07 ms", got)
	}
	want := []goldenEvent{{70, "agg", 1, 2}, {75, "agg", 2, 3}, {80, "agg", 3, 4}}
	if !slices.Equal(r.Planner.Events, want) {
		t.Errorf("events %+v, want %+v", r.Planner.Events, want)
	}
	if math.Abs(r.MeanTTFTMs-11757.30) > 0.01 || math.Abs(r.GPUHours-0.0821884) > 1e-7 {
		t.Errorf("mean TTFT %v ms, %v GPU-hours; the reference says 11757.30 and 0.0821884", r.MeanTTFTMs, r.GPUHours)
	}
	text, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	longest := 0.0
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var q struct {
			Arrival float64 `json:"arrival_time_ms"`
			Admit   float64 `json:"first_admit_ms"`
			TTFT    float64 `json:"ttft_ms"`
		}
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			t.Fatal(err)
		}
		if wait := q.Admit - q.Arrival; q.TTFT < wait {
			t.Fatalf("a request waited %v ms in the queue, its TTFT is %v ms", wait, q.TTFT)
		} else {
			longest = max(longest, wait)
		}
	}
	if longest < 10_000 {
		t.Errorf("the longest wait is %v ms: no queue was tried", longest)
	}
}

// TestScaleDownCancelsStartingWorkersFirst is spec planner 13.7: two workers start
// when demand falls, and one serves too much.
func TestScaleDownCancelsStartingWorkersFirst(t *testing.T) {
	trace := burst(t, 100, []int{500, 800, 1100, 1700, 2300}, phase{0, 60_000, 200}, phase{60_000, 80_000, 50}, phase{80_000, 160_000, 500})
	r := autoscale(t, trace, "", `{"mode":"disagg","optimization_target":"sla","ttft_ms":300,"itl_ms":12,"enable_load_scaling":false,"throughput_adjustment_interval_seconds":20,"load_predictor":"constant","prefill_engine_num_gpu":1,"decode_engine_num_gpu":1,"max_gpu_budget":8}`,
		"--prefill-engine-args", `{"worker_type":"prefill","block_size":64,"num_gpu_blocks":2048,"max_num_seqs":64,"max_num_batched_tokens":4096}`,
		"--decode-engine-args", `{"worker_type":"decode","block_size":64,"num_gpu_blocks":1024,"max_num_seqs":32,"max_num_batched_tokens":4096,"startup_time":30}`,
		"--num-prefill-workers", "1", "--num-decode-workers", "2")
	before, after := r.at(t, 100).Topology.Decode, r.at(t, 105).Topology.Decode
	if !slices.Equal(before.Active, []int{0, 1}) || !slices.Equal(before.Starting, []int{2, 3}) {
		t.Errorf("before: %+v, want workers 2 and 3 starting", before)
	}
	if !slices.Equal(after.Active, []int{0}) || len(after.Starting) != 0 {
		t.Errorf("after: %+v, want worker 0 alone: both starting workers cancelled, then worker 1 drained", after)
	}
	var told []string
	for _, o := range r.Planner.Operations {
		for _, x := range o.Transitions {
			told = append(told, strings.TrimSpace(fmt.Sprintf("%s: %d %s %s", o.Cause, x.Worker, x.Transition, x.Reason)))
		}
	}
	want := []string{"planner_scale: 2 worker_starting", "planner_scale: 3 worker_starting",
		"planner_scale: 3 worker_removed startup_cancelled", "planner_scale: 2 worker_removed startup_cancelled",
		"planner_scale: 1 worker_draining", "drain_settlement: 1 worker_removed"}
	if !slices.Equal(told, want) {
		t.Errorf("lifecycle %q,\nwant %q", told, want)
	}
	if want := []goldenEvent{{80, "decode", 2, 4}, {100, "decode", 4, 1}}; !slices.Equal(r.Planner.Events, want) {
		t.Errorf("events %+v, want %+v", r.Planner.Events, want)
	}
	if math.Abs(r.DecodeWorkS-300.683) > 0.001 || math.Abs(r.GPUHours-0.128069) > 1e-6 {
		t.Errorf("%v decode worker-seconds, %v GPU-hours; the reference says 300.683 and 0.128069", r.DecodeWorkS, r.GPUHours)
	}
}

// TestMinimumAndBudgetAreRepairedAtTheFirstTick are variations of spec planner 13.5:
// both pools grow before anything was forecast, and later the load is served within
// what is left.
func TestMinimumAndBudgetAreRepairedAtTheFirstTick(t *testing.T) {
	trace := burst(t, 100, []int{500, 800, 1100, 1700, 2300}, phase{0, 30_000, 200}, phase{30_000, 60_000, 125},
		phase{60_000, 120_000, 50}, phase{120_000, 180_000, 250})
	for _, c := range []struct {
		more     string
		events   []goldenEvent
		gpuHours float64
	}{
		{`"min_endpoint":2,"max_gpu_budget":8`, []goldenEvent{{5, "prefill", 1, 2}, {5, "decode", 1, 2}, {80, "decode", 2, 3},
			{120, "decode", 3, 4}, {140, "decode", 4, 2}}, 0.2201737},
		{`"min_gpu_budget":4,"max_gpu_budget":4`, []goldenEvent{{5, "prefill", 1, 2}, {5, "decode", 1, 2}, {80, "prefill", 2, 1},
			{80, "decode", 2, 3}}, 0.1978533},
	} {
		r := autoscale(t, trace, "", `{"mode":"disagg","optimization_target":"sla","ttft_ms":300,"itl_ms":15,"enable_load_scaling":false,"throughput_adjustment_interval_seconds":20,"load_predictor":"constant","prefill_engine_num_gpu":1,"decode_engine_num_gpu":1,`+c.more+`}`,
			"--prefill-engine-args", `{"worker_type":"prefill","block_size":64,"num_gpu_blocks":2048,"max_num_seqs":64,"max_num_batched_tokens":4096,"startup_time":3}`,
			"--decode-engine-args", `{"worker_type":"decode","block_size":64,"num_gpu_blocks":1024,"max_num_seqs":32,"max_num_batched_tokens":4096,"startup_time":6}`)
		if !slices.Equal(r.Planner.Events, c.events) || math.Abs(r.GPUHours-c.gpuHours) > 1e-7 {
			t.Errorf("%s: events %+v, %v GPU-hours; the reference says %+v and %v", c.more, r.Planner.Events, r.GPUHours, c.events, c.gpuHours)
		}
	}
}
