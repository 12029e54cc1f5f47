package planner

import (
	"math"
	"testing"
)

func feedStore(s *store, rows ...[3]float64) {
	for _, r := range rows {
		s.add([2]float64{r[0], r[1]}, r[2])
	}
}

func wantPredict(t *testing.T, s *store, x0, x1, want, tol float64) {
	t.Helper()
	got, ok := s.predict([2]float64{x0, x1})
	if !ok || math.Abs(got-want) > tol {
		t.Errorf("predict(%v, %v) = %v %v, want %v", x0, x1, got, ok, want)
	}
}

// Vectors of spec planner 13.3.
func TestStoreVectors(t *testing.T) {
	s := newStore(64, 5, 4)
	feedStore(s, [3]float64{500500, 1000, 15}, [3]float64{1001000, 2000, 33},
		[3]float64{125250, 500, 8}, [3]float64{320400, 800, 12.5})
	if s.ready {
		t.Error("ready after four samples of five")
	}
	feedStore(s, [3]float64{2646150, 2300, 61})
	wantPredict(t, s, 500500, 1000, 16.775643386, 5e-10)
	wantPredict(t, s, 8002000, 4000, 158.878835134, 5e-10)
	wantPredict(t, s, 0, 0, 0.995960824, 5e-10)
	feedStore(s, [3]float64{720600, 1200, 20})
	wantPredict(t, s, 500500, 1000, 16.445079591, 5e-10)
	wantPredict(t, s, 8002000, 4000, 159.185519784, 5e-10)
	wantPredict(t, s, 0, 0, 0.659217483, 5e-10)

	s = newStore(64, 5, 4)
	for i := 1.0; i <= 7; i++ {
		s.add([2]float64{10 * i, 7}, 2+4*i)
	}
	wantPredict(t, s, 100, 70, 42, 1e-9)

	s = newStore(64, 5, 4)
	for x0 := range 3 {
		for x1 := range 3 {
			s.add([2]float64{float64(x0), float64(x1)}, 20-2*float64(x0)+3*float64(x1))
		}
	}
	wantPredict(t, s, 100, 4, 30, 1e-9)
	wantPredict(t, s, 0, 0, 18, 1e-9)
}

func TestConstantTimingNeverBecomesReady(t *testing.T) {
	s := newStore(64, 5, 4)
	for i := range 30 {
		s.add([2]float64{float64(i), float64(2 * i)}, 20)
	}
	if s.ready {
		t.Error("a flat fit serves")
	}
	s.add([2]float64{1, 1}, math.Nextafter(20, 21)) // and rounding is no slope
	if s.ready {
		t.Error("rounding made a slope")
	}
	s = newStore(64, 5, 4)
	for range 10 {
		s.add([2]float64{5, 5}, 20)
	}
	if s.ready {
		t.Error("ready without a feature that varies")
	}
}

func TestOldestOfTheFullestBucketIsEvicted(t *testing.T) {
	s := newStore(4, 5, 2)
	feedStore(s, [3]float64{0, 0, 1}, [3]float64{1e6, 1e6, 2}, [3]float64{2000, 2000, 3},
		[3]float64{3000, 3000, 4}, [3]float64{100, 0, 5})
	for i, want := range []float64{1, 3, 4, 5} {
		if s.samples[i].y != want {
			t.Fatalf("kept %v, want the second gone", s.samples)
		}
	}
}

func TestFlatFitKeepsTheOneBefore(t *testing.T) {
	s := newStore(5, 5, 2)
	for i := 1.0; i <= 5; i++ {
		s.add([2]float64{i, 1}, 10+i)
	}
	wantPredict(t, s, 3, 1, 13, 1e-9)
	for i := 1.0; i <= 5; i++ { // falling times: no non-negative slope is left
		s.add([2]float64{i, 1}, 100-10*i)
	}
	wantPredict(t, s, 3, 1, 13, 1e-9)
}

// TestEstimatesByHand is the check of spec planner 13.3.
func TestEstimatesByHand(t *testing.T) {
	cfg := DefaultConfig().Regression
	m := newModel(aggregatedRole, limits{2048, 64, 131072}, cfg)
	row := func(wallMs float64, n, prefill, d, kv, qn, qp int64) FPM {
		f := FPM{WallS: wallMs / 1000}
		f.Pass.PrefillRequests, f.Pass.PrefillTokens = n, prefill
		f.Pass.DecodeRequests, f.Pass.DecodeKVTokens = d, kv
		f.Pass.QueuedPrefill, f.Pass.QueuedPrefillTokens = qn, qp
		return f
	}
	for _, kv := range []int64{1096, 1096, 1097, 1096, 1096} {
		ms := 6.189822
		if kv == 1097 {
			ms = 6.190231
		}
		m.feed([]FPM{row(ms, 0, 0, 1, kv, 0, 0)})
	}
	now := row(6.189822, 0, 0, 1, 1096, 0, 0)
	if itl, ok := m.iterationMs(&now, 1, false); !ok || math.Abs(itl-6.638495) > 1e-4 {
		t.Errorf("ITL %v %v, want 6.638495", itl, ok)
	}
	if ttft, ok := m.queuedMs(&now, 1, 1, false, 0); !ok || ttft != 0 {
		t.Errorf("TTFT %v %v, want 0: no prompt was ever seen", ttft, ok)
	}
	s := m.stores[mixed]
	feedStore(s, [3]float64{593104, 1087, 59.386243}, [3]float64{592607, 1087, 59.282801},
		[3]float64{1053136, 2048, 74.746119}, [3]float64{1361560.3333, 2048, 74.432484}, [3]float64{593317, 1087, 59.430349})
	m.isl.values, m.prefill.values, m.count.values = []float64{590.917}, []float64{880.625}, []float64{1}
	loaded := row(59.430349, 1, 1024, 63, 68517, 414, 423936)
	if ttft, ok := m.queuedMs(&loaded, 1, 1, false, 0); !ok || math.Abs(ttft-15699.07) > 0.01 {
		t.Errorf("TTFT %v %v, want 15699.07", ttft, ok)
	}
	m.context.values = nil
	loaded.Pass.DecodeRequests = 64
	if itl, ok := m.iterationMs(&loaded, 1, false); !ok || math.Abs(itl-57.1171) > 1e-3 {
		t.Errorf("ITL %v %v, want 57.1171", itl, ok)
	}
}

func TestWorkThatTheRoleCannotDoEndsTheCall(t *testing.T) {
	m := newModel(decodeRole, limits{4096, 32, 65536}, DefaultConfig().Regression)
	ok, bad := FPM{WallS: 0.02}, FPM{WallS: 0.03}
	ok.Pass.DecodeRequests, ok.Pass.DecodeKVTokens = 2, 2000
	bad.Pass.DecodeRequests, bad.Pass.DecodeKVTokens = 2, 2000
	bad.Pass.PrefillRequests, bad.Pass.PrefillTokens = 1, 300
	m.feed([]FPM{ok, bad, ok, ok})
	if n := len(m.stores[0].samples); n != 1 {
		t.Errorf("%d samples, want the one before the recomputed prompt", n)
	}
}
