package workload_test

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sim/workload/workloadtest"
)

// synthetic returns sizes that few tests care about.
func synthetic(edit func(*workload.Synthetic)) workload.Synthetic {
	s := workload.DefaultSynthetic()
	s.InputTokens, s.OutputTokens, s.Requests, s.Control, s.Concurrency = 64, 2, 3, workload.Closed, 1
	edit(&s)
	return s
}

func newSynthetic(t testing.TB, blockSize int, edit func(*workload.Synthetic)) workload.Source {
	t.Helper()
	src, err := synthetic(edit).NewSource(blockSize)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// The arrivals of the spec, which the reference gave bit for bit.
func TestArrivalSchedules(t *testing.T) {
	for _, row := range []struct {
		name string
		spec func(*workload.Synthetic)
		want []float64
	}{
		{"interval 33.3", func(s *workload.Synthetic) { s.Control, s.IntervalMs = workload.Fixed, 33.3 }, []float64{0, 33.3, 66.6, 99.89999999999999, 133.2}},
		{"interval 0.1", func(s *workload.Synthetic) { s.Control, s.IntervalMs = workload.Fixed, .1 }, []float64{0, .1, .2, .30000000000000004, .4}},
		{"burst", func(s *workload.Synthetic) { s.Control = workload.Fixed }, []float64{0, 0, 0}},
		{"rate 10", func(s *workload.Synthetic) { s.Control, s.RatePerS = workload.Poisson, 10 }, []float64{0, 74.77246176406965, 153.01953951913882,
			254.207536844964, 306.2785951560703, 309.7732343327897, 363.38020105943315, 497.1018354595163, 686.3161441140516,
			700.3894577514478, 700.7151973425684, 969.7536124796243}},
		{"rate 10 twice as fast", func(s *workload.Synthetic) { s.Control, s.RatePerS, s.Speedup = workload.Poisson, 10, 2 }, []float64{0, 37.38623088203482, 76.50976975956941}},
		{"seed 0", func(s *workload.Synthetic) { s.Control, s.RatePerS, s.ArrivalSeed = workload.Poisson, 3.3, 0 }, []float64{0, 398.0198813934248, 847.9697489654759}},
		{"seed max", func(s *workload.Synthetic) {
			s.Control, s.RatePerS, s.ArrivalSeed = workload.Poisson, 5, math.MaxUint64
		}, []float64{0, 12.620133891914248, 20.752746974257782}},
	} {
		src := newSynthetic(t, 64, func(s *workload.Synthetic) { row.spec(s); s.Requests = len(row.want) })
		workloadtest.WantFloats(t, row.name, workloadtest.Arrivals(workloadtest.Serve(t, src, 64, workloadtest.Constant(1))), row.want...)
	}
}

func TestClosedLoopReplacesAtCompletion(t *testing.T) { // W1
	all := workloadtest.Serve(t, newSynthetic(t, 64, func(s *workload.Synthetic) { s.InputTokens, s.Requests, s.Concurrency = 100, 4, 2 }), 64, workloadtest.Constant(12))
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 0, 12, 12)
	if workloadtest.SharedBlocks(all[0], all[1]) != 0 || all[0].HasSession {
		t.Error("simple requests share blocks or show sessions")
	}
}

func TestTurnsFollowCompletionAndSpeedup(t *testing.T) { // W2, completions as recorded
	src := newSynthetic(t, 64, func(s *workload.Synthetic) {
		s.Control, s.IntervalMs, s.TurnsPerSession, s.InterTurnDelayMs, s.Speedup = workload.Fixed, 33.3, 2, 10, 3
	})
	end := []float64{11, 25, 32.1, 43, 54.1, 68}
	all := workloadtest.Serve(t, src, 64, func(r *workloadtest.Served) float64 { return end[r.Ordinal] - r.ArrivalMs })
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 14.333333333333334, 11.1, 35.43333333333334, 22.2, 57.43333333333334)
	if all[3].Session != "session_1" || all[3].Turn != 1 {
		t.Errorf("ordinal 3 is %s turn %d", all[3].Session, all[3].Turn)
	}
}

func TestThinkTimeHoldsTheSlot(t *testing.T) { // W9
	src := newSynthetic(t, 64, func(s *workload.Synthetic) { s.TurnsPerSession, s.InterTurnDelayMs, s.Concurrency = 2, 100, 2 })
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(workloadtest.Serve(t, src, 64, workloadtest.Constant(10))), 0, 110, 0, 110, 120, 230)
}

func TestGroupsShareWholeBlocks(t *testing.T) { // table of 1.3 and W4
	for _, row := range []struct {
		input int
		ratio float64
		want  int // full blocks shared
	}{
		{640, .25, 3}, {640, .75, 8}, {640, .05, 1}, {640, .04, 0}, {640, 1, 10},
		{100, .5, 1}, {100, 1, 1}, {160, .5, 2}, {128, 1, 2}, {64, .5, 1},
	} {
		all := workloadtest.Serve(t, newSynthetic(t, 64, func(s *workload.Synthetic) {
			s.InputTokens, s.Requests, s.SharedPrefixRatio, s.PrefixGroups = row.input, 2, row.ratio, 1
		}), 64, workloadtest.Constant(1))
		if got := workloadtest.SharedBlocks(all[0], all[1]); got != row.want {
			t.Errorf("input %d ratio %v shares %d blocks, want %d", row.input, row.ratio, got, row.want)
		}
	}
	for _, row := range []struct {
		groups int
		reuse  float64
	}{{1, .4875}, {2, .475}, {3, .4625}, {5, .4375}, {8, .4}, {1000, .0125}} {
		all := workloadtest.Serve(t, newSynthetic(t, 64, func(s *workload.Synthetic) {
			s.InputTokens, s.Requests, s.SharedPrefixRatio, s.PrefixGroups = 640, 40, .5, row.groups
		}), 64, workloadtest.Constant(11))
		found := 0
		for i := range all {
			best := 0
			for j := range i {
				best = max(best, workloadtest.SharedBlocks(all[i], all[j]))
			}
			found += best
		}
		if got := float64(found) / 400; got != row.reuse {
			t.Errorf("%d groups: reuse %v, want %v", row.groups, got, row.reuse)
		}
	}
}

func TestTurnsShareOnlyTheGroupPrefix(t *testing.T) { // W5, and none without groups
	for _, groups := range []int{0, 2} {
		all := workloadtest.Serve(t, newSynthetic(t, 64, func(s *workload.Synthetic) {
			s.InputTokens, s.TurnsPerSession, s.SharedPrefixRatio, s.PrefixGroups = 640, 3, .5, groups
		}), 64, workloadtest.Constant(1))
		want := 5 * min(groups, 1)
		if got := workloadtest.SharedBlocks(all[0], all[2]); got != want {
			t.Errorf("%d groups: turns share %d blocks, want %d", groups, got, want)
		}
	}
}

// Sessions whose prompts grow are those of the mooncake-delta trace that the load
// writes: the same times, lengths, and blocks in common.
func TestCumulativeTurnsAreADeltaTrace(t *testing.T) {
	s := synthetic(func(s *workload.Synthetic) {
		s.InputTokens, s.OutputTokens, s.Requests, s.Concurrency = 200, 30, 40, 7
		s.TurnsPerSession, s.InterTurnDelayMs, s.SharedPrefixRatio, s.PrefixGroups = 4, 12.5, .7, 3
		s.Cumulative, s.GroupSeed = true, 0
	})
	var text strings.Builder
	if err := trace.WriteSynthetic(&text, s, 64); err != nil {
		t.Fatal(err)
	}
	own, err := s.NewSource(64)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "load.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	written, err := trace.Load([]string{path}, trace.LoadOptions{Format: trace.MooncakeDelta, BlockSize: 64})
	if err != nil {
		t.Fatal(err)
	}
	replayed, err := written.NewSource(trace.Drive{BlockSize: 64, ClosedLoop: true, Concurrency: 7})
	if err != nil {
		t.Fatal(err)
	}
	service := func(r *workloadtest.Served) float64 { return 10 + float64(r.Ordinal%7) }
	some := func(r *workloadtest.Served) workload.Outcome {
		if r.Turn == 1 && r.Ordinal%3 == 0 {
			return workload.Rejected
		}
		return workload.Completed
	}
	a, b := workloadtest.ServeWith(t, own, 64, service, some), workloadtest.ServeWith(t, replayed, 64, service, some)
	if len(a) != 160 || len(b) != len(a) {
		t.Fatalf("%d and %d requests", len(a), len(b))
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.ArrivalMs != y.ArrivalMs || x.PromptTokens != y.PromptTokens || x.OutputTokens != y.OutputTokens || x.Names != y.Names {
			t.Fatalf("request %d: %+v and %+v", i, x, y)
		}
		for j := range i {
			if m, n := workloadtest.SharedBlocks(*x, a[j]), workloadtest.SharedBlocks(*y, b[j]); m != n {
				t.Fatalf("requests %d and %d share %d blocks, in the trace %d", j, i, m, n)
			}
		}
	}
	if got := []int32{a[0].PromptTokens, a[1].PromptTokens, a[2].PromptTokens, a[3].PromptTokens}; !slices.Equal(got, []int32{200, 430, 660, 890}) {
		t.Errorf("prompts of %v tokens", got)
	}
	if shared := workloadtest.SharedBlocks(a[1], a[2]); shared != 430/64 || a[1].Prompt.Block(430/64) != a[2].Blocks[430/64] {
		t.Errorf("a turn shares %d blocks with the next one", shared)
	}
}

func TestReleasesDoNotAllocate(t *testing.T) {
	src := newSynthetic(t, 64, func(s *workload.Synthetic) { s.Requests, s.Control, s.RatePerS = 300, workload.Poisson, 5 })
	if n := workloadtest.AllocsPerStep(src); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

func TestMillionRequestsInFlatMemory(t *testing.T) {
	src := newSynthetic(t, 64, func(s *workload.Synthetic) {
		s.Requests, s.Control, s.RatePerS, s.SharedPrefixRatio, s.PrefixGroups = 1e6, workload.Poisson, 100, .5, 10
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for !src.Drained() {
		now := src.NextMs()
		for r := src.Next(now); r != nil; r = src.Next(now) {
			src.Done(r.Handle, now, r.OutputTokens, workload.Completed)
			n++
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); n != 1e6 || grown > 1<<20 {
		t.Errorf("%d requests grew the heap by %d bytes", n, grown)
	}
}

func TestSyntheticRefusals(t *testing.T) {
	nan := math.NaN()
	for _, row := range []struct {
		edit func(*workload.Synthetic)
		want string
	}{
		{func(s *workload.Synthetic) { s.InputTokens = 0 }, "input_tokens must be at least 1"},
		{func(s *workload.Synthetic) { s.OutputTokens = 0 }, "output_tokens must be at least 1"},
		{func(s *workload.Synthetic) { s.Requests = 0 }, "request_count must be at least 1"},
		{func(s *workload.Synthetic) { s.TurnsPerSession = 0 }, "turns_per_session must be at least 1"},
		{func(s *workload.Synthetic) { s.InterTurnDelayMs = nan }, "inter_turn_delay_ms must be a finite non-negative number"},
		{func(s *workload.Synthetic) { s.SharedPrefixRatio = 1.5 }, "shared_prefix_ratio must be between 0.0 and 1.0, got 1.5"},
		{func(s *workload.Synthetic) { s.Concurrency = 0 }, "replay_concurrency must be at least 1"},
		{func(s *workload.Synthetic) { s.Control = workload.Poisson }, "request_rate must be a finite positive number, got 0"},
		{func(s *workload.Synthetic) { s.Control, s.IntervalMs = workload.Fixed, -1 }, "arrival_interval_ms must be a finite non-negative number, got -1"},
		{func(s *workload.Synthetic) { s.Control, s.Speedup = workload.Fixed, 0 }, "arrival_speedup_ratio must be a finite positive number, got 0"},
		{func(s *workload.Synthetic) { s.Control, s.Speedup, s.TurnsPerSession = workload.Fixed, nan, 2 }, "ratio must be a finite positive number, got NaN"},
		{func(s *workload.Synthetic) { s.Requests, s.TurnsPerSession = 1<<35, 1<<35 }, "request_count times turns_per_session must be at most 68719476736"},
		{func(s *workload.Synthetic) { s.Control, s.IntervalMs = workload.Fixed, 1e308 }, "arrival_interval_ms 1e+308 puts arrivals beyond the range of the clock"},
		{func(s *workload.Synthetic) { s.Control, s.RatePerS, s.Speedup = workload.Poisson, 0.5, 1e-306 }, "request_rate 0.5 puts arrivals beyond the range of the clock"},
		{func(s *workload.Synthetic) { s.InputTokens = 1 << 40 }, "input_tokens must be at most 2147483647"},
		{func(s *workload.Synthetic) { s.Cumulative, s.TurnsPerSession = true, 1<<26 },
			"turns_per_session 67108864 of 66 tokens each make a session of more than 2147483647 tokens"},
	} {
		s := synthetic(row.edit)
		_, err := s.NewSource(64)
		if err == nil || !slices.Contains(strings.Split(err.Error(), "\n"), row.want) {
			t.Errorf("got %v, want %q", err, row.want)
		}
	}
	one, rate := 1, 2.0
	if _, err := workload.ChooseControl(&one, &rate, nil); err == nil ||
		err.Error() != "synthetic replay requires exactly one of replay_concurrency, request_rate, or arrival_interval_ms" {
		t.Error(err)
	}
}
