package workload

import (
	"math"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/rng"
)

// synthetic returns sizes that few tests care about.
func synthetic(edit func(*Synthetic)) Synthetic {
	s := DefaultSynthetic()
	s.InputTokens, s.OutputTokens, s.Requests, s.Control, s.Concurrency = 64, 2, 3, Closed, 1
	edit(&s)
	return s
}

func newSynthetic(t testing.TB, blockSize int, edit func(*Synthetic)) Source {
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
		spec func(*Synthetic)
		want []float64
	}{
		{"interval 33.3", func(s *Synthetic) { s.Control, s.IntervalMs = Fixed, 33.3 }, []float64{0, 33.3, 66.6, 99.89999999999999, 133.2}},
		{"interval 0.1", func(s *Synthetic) { s.Control, s.IntervalMs = Fixed, .1 }, []float64{0, .1, .2, .30000000000000004, .4}},
		{"burst", func(s *Synthetic) { s.Control = Fixed }, []float64{0, 0, 0}},
		{"rate 10", func(s *Synthetic) { s.Control, s.RatePerS = Poisson, 10 }, []float64{0, 74.77246176406965, 153.01953951913882,
			254.207536844964, 306.2785951560703, 309.7732343327897, 363.38020105943315, 497.1018354595163, 686.3161441140516,
			700.3894577514478, 700.7151973425684, 969.7536124796243}},
		{"rate 10 twice as fast", func(s *Synthetic) { s.Control, s.RatePerS, s.Speedup = Poisson, 10, 2 }, []float64{0, 37.38623088203482, 76.50976975956941}},
		{"seed 0", func(s *Synthetic) { s.Control, s.RatePerS, s.ArrivalSeed = Poisson, 3.3, 0 }, []float64{0, 398.0198813934248, 847.9697489654759}},
		{"seed max", func(s *Synthetic) { s.Control, s.RatePerS, s.ArrivalSeed = Poisson, 5, math.MaxUint64 }, []float64{0, 12.620133891914248, 20.752746974257782}},
	} {
		src := newSynthetic(t, 64, func(s *Synthetic) { row.spec(s); s.Requests = len(row.want) })
		wantFloats(t, row.name, arrivals(cluster(t, src, 64, constant(1))), row.want...)
	}
}

func TestLogarithmIsCorrectlyRounded(t *testing.T) {
	table, c := lnTables(), rng.NewChaCha(7)
	for i := range 400 {
		x := 1 - c.Float64()
		if i%4 == 1 {
			x = 1 - x*0x1p-20
		} else if i%4 == 2 {
			x *= 0x1p-60
		}
		if got, want := table.ln(x), exactLn(x); got != want {
			t.Errorf("ln(%v) = %v, want %v", x, got, want)
		}
	}
	if table.ln(1) != 0 {
		t.Error("ln(1) is not 0")
	}
}

// exactLn sums the series of 2 atanh((m-1)/(m+1)) + e 2 atanh(1/3) in 200 bits.
func exactLn(x float64) float64 {
	float := func(v float64) *big.Float { return new(big.Float).SetPrec(200).SetFloat64(v) }
	atanh2 := func(z *big.Float) *big.Float {
		sum, term, z2 := float(0), float(2), float(0).Mul(z, z)
		term.Mul(term, z)
		for n := 1.0; n < 150; n += 2 {
			sum.Add(sum, float(0).Quo(term, float(n)))
			term.Mul(term, z2)
		}
		return sum
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	l := atanh2(float(0).Quo(float(1), float(3)))
	l.Mul(l, float(float64(e)))
	l.Add(l, atanh2(float(0).Quo(float(m-1), float(0).Add(float(m), float(1)))))
	v, _ := l.Float64()
	return v
}

func TestClosedLoopReplacesAtCompletion(t *testing.T) { // W1
	all := cluster(t, newSynthetic(t, 64, func(s *Synthetic) { s.InputTokens, s.Requests, s.Concurrency = 100, 4, 2 }), 64, constant(12))
	wantFloats(t, "arrivals", arrivals(all), 0, 0, 12, 12)
	if sharedBlocks(all[0], all[1]) != 0 || all[0].HasSession {
		t.Error("simple requests share blocks or show sessions")
	}
}

func TestTurnsFollowCompletionAndSpeedup(t *testing.T) { // W2, completions as recorded
	src := newSynthetic(t, 64, func(s *Synthetic) {
		s.Control, s.IntervalMs, s.TurnsPerSession, s.InterTurnDelayMs, s.Speedup = Fixed, 33.3, 2, 10, 3
	})
	end := []float64{11, 25, 32.1, 43, 54.1, 68}
	all := cluster(t, src, 64, func(r *done) float64 { return end[r.Ordinal] - r.ArrivalMs })
	wantFloats(t, "arrivals", arrivals(all), 0, 14.333333333333334, 11.1, 35.43333333333334, 22.2, 57.43333333333334)
	if all[3].Session != "session_1" || all[3].Turn != 1 {
		t.Errorf("ordinal 3 is %s turn %d", all[3].Session, all[3].Turn)
	}
}

func TestThinkTimeHoldsTheSlot(t *testing.T) { // W9
	src := newSynthetic(t, 64, func(s *Synthetic) { s.TurnsPerSession, s.InterTurnDelayMs, s.Concurrency = 2, 100, 2 })
	wantFloats(t, "arrivals", arrivals(cluster(t, src, 64, constant(10))), 0, 110, 0, 110, 120, 230)
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
		all := cluster(t, newSynthetic(t, 64, func(s *Synthetic) {
			s.InputTokens, s.Requests, s.SharedPrefixRatio, s.PrefixGroups = row.input, 2, row.ratio, 1
		}), 64, constant(1))
		if got := sharedBlocks(all[0], all[1]); got != row.want {
			t.Errorf("input %d ratio %v shares %d blocks, want %d", row.input, row.ratio, got, row.want)
		}
	}
	for _, row := range []struct {
		groups int
		reuse  float64
	}{{1, .4875}, {2, .475}, {3, .4625}, {5, .4375}, {8, .4}, {1000, .0125}} {
		all := cluster(t, newSynthetic(t, 64, func(s *Synthetic) {
			s.InputTokens, s.Requests, s.SharedPrefixRatio, s.PrefixGroups = 640, 40, .5, row.groups
		}), 64, constant(11))
		found := 0
		for i := range all {
			best := 0
			for j := range i {
				best = max(best, sharedBlocks(all[i], all[j]))
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
		all := cluster(t, newSynthetic(t, 64, func(s *Synthetic) {
			s.InputTokens, s.TurnsPerSession, s.SharedPrefixRatio, s.PrefixGroups = 640, 3, .5, groups
		}), 64, constant(1))
		want := 5 * min(groups, 1)
		if got := sharedBlocks(all[0], all[2]); got != want {
			t.Errorf("%d groups: turns share %d blocks, want %d", groups, got, want)
		}
	}
}

// Sessions whose prompts grow are those of the mooncake-delta trace that the load
// writes: the same times, lengths, and blocks in common.
func TestCumulativeTurnsAreADeltaTrace(t *testing.T) {
	s := synthetic(func(s *Synthetic) {
		s.InputTokens, s.OutputTokens, s.Requests, s.Concurrency = 200, 30, 40, 7
		s.TurnsPerSession, s.InterTurnDelayMs, s.SharedPrefixRatio, s.PrefixGroups = 4, 12.5, .7, 3
		s.Cumulative, s.GroupSeed = true, 0
	})
	var text strings.Builder
	if err := s.WriteTrace(&text, 64); err != nil {
		t.Fatal(err)
	}
	own, err := s.NewSource(64)
	if err != nil {
		t.Fatal(err)
	}
	trace := source(t, load(t, text.String(), LoadOptions{Format: MooncakeDelta, BlockSize: 64}), closed(64, 7))
	service := func(r *done) float64 { return 10 + float64(r.Ordinal%7) }
	some := func(r *done) Outcome {
		if r.Turn == 1 && r.Ordinal%3 == 0 {
			return Rejected
		}
		return Completed
	}
	a, b := clusterWith(t, own, 64, service, some), clusterWith(t, trace, 64, service, some)
	if len(a) != 160 || len(b) != len(a) {
		t.Fatalf("%d and %d requests", len(a), len(b))
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.ArrivalMs != y.ArrivalMs || x.PromptTokens != y.PromptTokens || x.OutputTokens != y.OutputTokens || x.Names != y.Names {
			t.Fatalf("request %d: %+v and %+v", i, x, y)
		}
		for j := range i {
			if m, n := sharedBlocks(*x, a[j]), sharedBlocks(*y, b[j]); m != n {
				t.Fatalf("requests %d and %d share %d blocks, in the trace %d", j, i, m, n)
			}
		}
	}
	if got := []int32{a[0].PromptTokens, a[1].PromptTokens, a[2].PromptTokens, a[3].PromptTokens}; !slices.Equal(got, []int32{200, 430, 660, 890}) {
		t.Errorf("prompts of %v tokens", got)
	}
	if shared := sharedBlocks(a[1], a[2]); shared != 430/64 || a[1].Prompt.Block(430/64) != a[2].blocks[430/64] {
		t.Errorf("a turn shares %d blocks with the next one", shared)
	}
}

func TestMillionRequestsInFlatMemory(t *testing.T) {
	src := newSynthetic(t, 64, func(s *Synthetic) {
		s.Requests, s.Control, s.RatePerS, s.SharedPrefixRatio, s.PrefixGroups = 1e6, Poisson, 100, .5, 10
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for !src.Drained() {
		now := src.NextMs()
		for r := src.Next(now); r != nil; r = src.Next(now) {
			src.Done(r.Handle, now, r.OutputTokens, Completed)
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
		edit func(*Synthetic)
		want string
	}{
		{func(s *Synthetic) { s.InputTokens = 0 }, "input_tokens must be at least 1"},
		{func(s *Synthetic) { s.OutputTokens = 0 }, "output_tokens must be at least 1"},
		{func(s *Synthetic) { s.Requests = 0 }, "request_count must be at least 1"},
		{func(s *Synthetic) { s.TurnsPerSession = 0 }, "turns_per_session must be at least 1"},
		{func(s *Synthetic) { s.InterTurnDelayMs = nan }, "inter_turn_delay_ms must be a finite non-negative number"},
		{func(s *Synthetic) { s.SharedPrefixRatio = 1.5 }, "shared_prefix_ratio must be between 0.0 and 1.0, got 1.5"},
		{func(s *Synthetic) { s.Concurrency = 0 }, "replay_concurrency must be at least 1"},
		{func(s *Synthetic) { s.Control = Poisson }, "request_rate must be a finite positive number, got 0"},
		{func(s *Synthetic) { s.Control, s.IntervalMs = Fixed, -1 }, "arrival_interval_ms must be a finite non-negative number, got -1"},
		{func(s *Synthetic) { s.Control, s.Speedup = Fixed, 0 }, "arrival_speedup_ratio must be a finite positive number, got 0"},
		{func(s *Synthetic) { s.Control, s.Speedup, s.TurnsPerSession = Fixed, nan, 2 }, "ratio must be a finite positive number, got NaN"},
		{func(s *Synthetic) { s.Requests, s.TurnsPerSession = 1<<35, 1<<35 }, "request_count times turns_per_session must be at most 68719476736"},
		{func(s *Synthetic) { s.Control, s.IntervalMs = Fixed, 1e308 }, "arrival_interval_ms 1e+308 puts arrivals beyond the range of the clock"},
		{func(s *Synthetic) { s.Control, s.RatePerS, s.Speedup = Poisson, 0.5, 1e-306 }, "request_rate 0.5 puts arrivals beyond the range of the clock"},
		{func(s *Synthetic) { s.InputTokens = 1 << 40 }, "input_tokens must be at most 2147483647"},
		{func(s *Synthetic) { s.Cumulative, s.TurnsPerSession = true, 1<<26 },
			"turns_per_session 67108864 of 66 tokens each make a session of more than 2147483647 tokens"},
	} {
		s := synthetic(row.edit)
		_, err := s.NewSource(64)
		if err == nil || !slices.Contains(strings.Split(err.Error(), "\n"), row.want) {
			t.Errorf("got %v, want %q", err, row.want)
		}
	}
	one, rate := 1, 2.0
	if _, err := ChooseControl(&one, &rate, nil); err == nil ||
		err.Error() != "synthetic replay requires exactly one of replay_concurrency, request_rate, or arrival_interval_ms" {
		t.Error(err)
	}
}
