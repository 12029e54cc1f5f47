package metrics

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// tokens is a completed request with these token times.
func tokens(arrival, admit float64, input int32, times ...float64) Record {
	var r Record
	r.Reset()
	r.ArrivalMs, r.FirstAdmitMs, r.Input, r.Status = arrival, admit, input, Completed
	r.Output, r.Requested, r.TokenMs = int32(len(times)), int32(len(times)), times
	r.TerminalMs = admit
	if n := len(times); n > 0 {
		r.FirstTokenMs, r.LastTokenMs, r.TerminalMs = times[0], times[n-1], times[n-1]
		if n > 1 {
			r.SecondTokenMs = times[1]
		}
	}
	return r
}

func run(opt Options, totals Totals, records ...Record) *Summary {
	c := NewCollector(opt)
	for i := range records {
		c.Arrive()
		c.Finish(&records[i])
	}
	return c.Summary(totals)
}

func expect(t *testing.T, s *Summary, want map[string]float64) {
	t.Helper()
	for key, w := range want {
		if v, ok := s.Get(key); !ok || math.Abs(v-w) > 1e-12*math.Abs(w) {
			t.Errorf("%s is %v, want %v", key, v, w)
		}
	}
}

func TestThreeRequestsOfTheSpec(t *testing.T) {
	third := tokens(40, 40, 128, 50, 52, 54)
	third.Reused, third.FirstReused = 64, 64
	s := run(Options{}, Totals{DecodeWorkerSeconds: 0.054, DecodeGPUs: 1, WallMs: 1.23},
		tokens(0, 0, 128, 10, 22, 24), tokens(5, 10, 128, 22, 24, 26), third)
	expect(t, s, map[string]float64{
		"duration_ms": 54, "request_throughput_rps": 55.55555555555556, "total_throughput_tok_s": 7277.777777777778,
		"output_throughput_tok_s": 166.66666666666666, "gpu_hours": 1.5e-05, "prefix_cache_reused_ratio": 64.0 / 384,
		"mean_ttft_ms": 37.0 / 3, "median_ttft_ms": 10, "p75_ttft_ms": 17, "mean_tpot_ms": 11.0 / 3, "max_tpot_ms": 7,
		"median_e2e_latency_ms": 21, "mean_itl_ms": 22.0 / 6, "std_itl_ms": 3.7267799624996494, "max_itl_ms": 12,
		"median_itl_ms": 1.9997051226201907, "p75_itl_ms": 1.9997051226201907, "p90_itl_ms": 12.001124195202625,
		"p99_output_token_throughput_per_user": 500.1967753331094, "max_output_token_throughput_per_user": 500,
	})
	var table bytes.Buffer
	if err := WriteTable(&table, s); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	if table.String() != string(want) {
		t.Errorf("table:\n%s\nwant\n%s", table.String(), want)
	}
}

func TestPercentileIsNearestRankHalfUp(t *testing.T) {
	for _, c := range []struct {
		n    int
		p    float64
		want int
	}{{10, 50, 5}, {10, 75, 7}, {10, 90, 8}, {10, 95, 9}, {10, 99, 9}, {3, 50, 1}, {3, 75, 2}, {1, 99, 0}, {2, 50, 1}} {
		if got := nearestRank(c.n, c.p); got != c.want {
			t.Errorf("n %d, p%v: rank %d, want %d", c.n, c.p, got, c.want)
		}
	}
}

func TestSketchBinsAreClosedAbove(t *testing.T) {
	for _, c := range []struct{ v, want float64 }{
		{1, 0.9989999999999999}, {2, 1.9997051226201907}, {12, 12.001124195202625}, {500, 500.1967753331094}} {
		var s Sketch
		s.Add(c.v, 2)
		if got := s.Stats().Median; got != c.want {
			t.Errorf("%v reads %v, want %v", c.v, got, c.want)
		}
	}
	var one, zeros Sketch
	one.Add(2, 1)
	if got := one.Stats(); got != (Stats{2, 2, 2, 2, 2, 2, 2, 2, 0}) {
		t.Errorf("a single sample is exact, got %+v", got)
	}
	zeros.Add(0, 3)
	if got := zeros.Stats(); got != (Stats{}) {
		t.Errorf("zeros: %+v", got)
	}
}

// The bounds that spare the logarithm never put a value in another bin.
func TestSketchFastBoundsNeverErr(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s Sketch
	counts := map[int]int64{}
	v := 1.0
	for range 200000 {
		switch rng.IntN(8) {
		case 0:
			v = math.Exp(rng.Float64()*1400 - 700)
		case 1: // on a bound
			v = math.Exp(math.Round(rng.Float64()*4000-2000) * lnGamma)
		case 2:
			v = math.Nextafter(v, 0)
		case 3:
			v = math.Nextafter(v, math.Inf(1))
		case 4:
			v *= 1 + (rng.Float64()-0.5)*1e-11
		default:
			v *= 1 + (rng.Float64()-0.5)*1e-3
		}
		if v < smallest || v > 1e308 {
			v = 1
		}
		s.Add(v, 1)
		counts[int(math.Ceil(math.Log(v)*invLnGamma))]++
	}
	for i, n := range s.bins {
		if counts[s.base+i] != n {
			t.Fatalf("bin %d holds %d, want %d", s.base+i, n, counts[s.base+i])
		}
	}
}

func TestEqualGapsTogetherAreEqualGapsApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	together, apart := NewCollector(Options{}), NewCollector(Options{})
	for range 20000 {
		ms, n := 5.8+rng.NormFloat64()*3e-5, int64(1+rng.IntN(64))
		together.Gap(ms, n)
		for range n {
			apart.Gap(ms, 1)
		}
	}
	for _, pair := range [][2]Stats{{together.itl.Stats(), apart.itl.Stats()}, {together.perUser.Stats(), apart.perUser.Stats()}} {
		a, b := pair[0], pair[1]
		if math.Abs(a.Mean-b.Mean) > 1e-12*b.Mean || math.Abs(a.Std-b.Std) > 1e-9*b.Std {
			t.Errorf("mean %v and %v, std %v and %v", a.Mean, b.Mean, a.Std, b.Std)
		}
		a.Mean, a.Std = b.Mean, b.Std
		if a != b {
			t.Errorf("%+v and %+v", a, b)
		}
	}
}

func TestZeroGapsCountOnlyAsLatency(t *testing.T) {
	s := run(Options{}, Totals{}, tokens(0, 0, 8, 10, 10, 10, 10))
	expect(t, s, map[string]float64{"mean_itl_ms": 0, "p99_itl_ms": 0, "mean_output_token_throughput_per_user": 0, "num_tpot_samples": 1})
}

func TestGoodputCountsEqualityAsMet(t *testing.T) {
	load := []Record{
		tokens(0, 0, 128, 10, 32, 34), tokens(3, 3, 128, 13, 35, 37), tokens(6, 6, 128, 22, 34, 36),
		tokens(9, 9, 128, 25, 37, 39), tokens(12, 12, 128, 34, 36, 38), tokens(15, 15, 128, 37, 39, 41)}
	for _, c := range []struct {
		sla  SLA
		good float64
	}{
		{SLA{TTFTMs: 11}, 2}, {SLA{TTFTMs: 10}, 2}, {SLA{ITLMs: 6.9}, 2}, {SLA{ITLMs: 7, TTFTMs: 15}, 0},
		{SLA{ITLMs: 7}, 4}, {SLA{E2EMs: 20}, 0}, {SLA{E2EMs: 30}, 4}} {
		s := run(Options{SLA: c.sla}, Totals{}, load...)
		expect(t, s, map[string]float64{"goodput_completed_requests": c.good,
			"goodput_request_throughput_rps": c.good / 0.041, "goodput_output_throughput_tok_s": 3 * c.good / 0.041})
		if a, ok := s.Attainment(); !ok || a != c.good/6 {
			t.Errorf("%+v: attainment %v", c.sla, a)
		}
	}
	if s := run(Options{}, Totals{}, load...); s.Grid[0][1] != 4 || s.Grid[0][2] != 6 || s.Grid[15][0] != 2 {
		t.Errorf("grid %v", s.Grid)
	}
	noTokens := tokens(0, 0, 8)
	noTokens.TerminalMs = 10
	for sla, want := range map[SLA]bool{{E2EMs: 10}: true, {E2EMs: 9}: false, {TTFTMs: 99}: false, {ITLMs: 99}: false, {}: false} {
		if sla.Met(&noTokens) != want {
			t.Errorf("a request without tokens under %+v: %v", sla, !want)
		}
	}
}

func TestEveryArrivalHasAnOutcome(t *testing.T) {
	c := NewCollector(Options{})
	end := func(status Status, reason string) {
		r := tokens(0, 0, 8)
		r.Status, r.Reason = status, reason
		c.Finish(&r)
	}
	for range 7 {
		c.Arrive()
	}
	end(Completed, "")
	end(Rejected, "prompt exceeds the KV pool")
	end(Rejected, "policy")
	end(Rejected, "policy")
	end(Failed, "handoff")
	end(Unfinished, "")
	s := c.Summary(Totals{Unreleased: 3})
	var b strings.Builder
	if err := WriteOutcomes(&b, s); err != nil {
		t.Fatal(err)
	}
	want := "completed 1 of 7\nrejected 2: policy\nrejected 1: prompt exceeds the KV pool\n" +
		"cut 2: unfinished at the time limit\nnot offered 3: the time limit came first, or their session or play had failed\nfailed 1: handoff\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if raw, err := json.Marshal(s.Coverage.QueueMs); err != nil || !strings.HasPrefix(string(raw), `{"mean":0,"min":0,`) {
		t.Errorf("got %s: %v", raw, err)
	}
	raw, err := json.Marshal(s.Coverage.Outcomes)
	if want := `{"completed":1,"rejected":{"policy":2,"prompt exceeds the KV pool":1},"canceled":0,"failed":1,` +
		`"failed_reasons":{"handoff":1},"unfinished":2,"unreleased":3,"preempted":0}`; err != nil || string(raw) != want {
		t.Errorf("got %s, want %s", raw, want)
	}
	if s.Coverage.PeakInFlight != 7 {
		t.Errorf("peak in flight %d, want 7", s.Coverage.PeakInFlight)
	}
}

func TestReasonsThatNameRequestsStayBounded(t *testing.T) {
	c := NewCollector(Options{})
	for i := range 10000 {
		r := tokens(0, 0, 8)
		r.Status, r.Reason = Rejected, string(rune('a'+i))
		c.Arrive()
		c.Finish(&r)
	}
	o := c.Summary(Totals{}).Coverage.Outcomes.Rejected
	if len(o) != maxReasons+1 || o.Count() != 10000 {
		t.Errorf("%d reasons, %d requests", len(o), o.Count())
	}
}

func TestNothingCompletedReadsZero(t *testing.T) {
	r := tokens(0, Unset, 8)
	r.Status, r.FirstAdmitMs = Rejected, Unset
	s := run(Options{SLA: SLA{TTFTMs: 1}}, Totals{}, r, r, r, r, r)
	for i := range keys {
		k := &keys[i]
		if v, ok := k.Value(s); ok && v != 0 && k.Name != "num_requests" {
			t.Errorf("%s is %v", k.Name, v)
		}
	}
	expect(t, s, map[string]float64{"num_requests": 5})
}

func TestGPUHoursOfBothRoles(t *testing.T) {
	s := run(Options{}, Totals{DecodeWorkerSeconds: 0.028, DecodeGPUs: 8, PrefillWorkerSeconds: 3600, PrefillGPUs: 2})
	expect(t, s, map[string]float64{"gpu_hours": 0.028*8/3600 + 2})
}

func TestRecordsAreOrderedByIDArrivalOrdinal(t *testing.T) {
	rec := func(id string, arrival float64, ordinal int64) Record {
		r := tokens(arrival, arrival, 8)
		r.Ordinal, r.Detail = ordinal, &Detail{RequestID: id, PlayID: "p"}
		return r
	}
	cut := rec("", 0, 9)
	cut.Status = Unfinished
	var b strings.Builder
	if err := WriteRecords(&b, []Record{rec("b", 0, 0), rec("a", 9, 1), rec("a", 2, 3), rec("a", 2, 2), cut, rec("", 50, 4)}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		var m struct {
			ID   string `json:"request_id"`
			UUID string `json:"uuid"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m.ID+m.UUID[len(m.UUID)-1:])
	}
	if want := "5 a3 a4 a2 b1"; strings.Join(got, " ") != want {
		t.Errorf("order %v, want %s", got, want)
	}
}

// The form in which the reference writes a spawned request of a play in a lane.
func TestAgenticRecordsTellTheirKin(t *testing.T) {
	r := tokens(0, 0, 8, 10)
	d := NoDetail()
	d.RequestID, d.PlayID, d.Session, d.HasSession, d.Turn = "b", "p", "s", true, -1
	d.LaneID, d.RootID, d.ParentID = "lane:1", "a", "a"
	r.Detail = &d
	const want = `{"request_id":"b","play_id":"p","session_id":"s","turn_index":null,"agentic":{"request_id":"b","play_id":"p","conversation_id":"s","lane_id":"lane:1","root_id":"a","parent_id":"a"},"uuid":`
	if line := string(r.AppendJSON(nil)); !strings.HasPrefix(line, want) {
		t.Errorf("%s\nwant %s", line, want)
	}
}

func TestQueuedRoutingTellsItsWait(t *testing.T) {
	released := Routing{Queued: true, EnteredMs: 2, ReleasedMs: 5, Worker: 1, Scheduler: 3, Rank: 1, OverlapTokens: 64, Selected: 1, Best: 4}
	waiting := Routing{Queued: true, EnteredMs: 2, ReleasedMs: Unset, Worker: -1, Scheduler: -1, Rank: -1, Selected: -1, Best: -1}
	for want, e := range map[string]*Routing{
		`"queue_wait_ms":3.0,"logical_worker_id":1,"scheduler_id":3,"dp_rank":1,"reported_overlap_tokens":64,"selected_overlap_blocks":1,"best_available_overlap_blocks":4,"overlap_regret_blocks":3,`: &released,
		`"released_at_ms":null,"queue_wait_ms":null,"logical_worker_id":null,`: &waiting,
	} {
		if got := string(e.appendJSON(nil)); !strings.Contains(got, want) || !strings.Contains(got, `"outcome":"queued"`) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
}

func TestReportIsOneFlatObject(t *testing.T) {
	s := run(Options{}, Totals{}, tokens(0, 0, 8, 10, 12))
	var b bytes.Buffer
	if err := (&Report{Summary: s, Provenance: map[string]string{"version": "x"}}).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	order := fieldOrder(t, b.Bytes())
	if got := strings.Join(order[81:], " "); got != "planner coverage provenance" {
		t.Errorf("blocks %s", got)
	}
	if !strings.Contains(b.String(), "\n  \"duration_ms\": 12.0,\n") || !strings.Contains(b.String(), "\"num_requests\": 1,") {
		t.Errorf("numbers: %s", b.String())
	}
}

func TestWindowAveragesHitsAndSkipsTheUnfinished(t *testing.T) {
	var w Window
	w.HitRate(1, 4)
	w.HitRate(3, 4)
	w.HitRate(0, 0)
	r := tokens(0, 0, 100, 0, 3, 6)
	w.Completed(&r)
	r = tokens(0, 0, 300, 10)
	w.Completed(&r)
	r.Status = Rejected
	w.Completed(&r)
	want := Traffic{DurationS: 2, Completed: 2, AvgISL: 200, AvgOSL: 2, AvgTTFTMs: 10, TTFTCount: 1, AvgITLMs: 3, ITLCount: 1, AvgHitRate: 0.5, HitRateCount: 2}
	if got := w.Consume(2000); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := w.Consume(3000); got != (Traffic{DurationS: 1}) {
		t.Errorf("the next window holds %+v", got)
	}
}

func TestAssertions(t *testing.T) {
	s := run(Options{}, Totals{}, tokens(0, 0, 8, 10, 12))
	for text, fails := range map[string]string{
		"mean_ttft_ms<10": "assertion mean_ttft_ms<10 fails: mean_ttft_ms is 10", "mean_ttft_ms <= 10": "", "mean_ttft_ms>=10": "",
		"mean_ttft_ms>10": "assertion mean_ttft_ms>10 fails: mean_ttft_ms is 10", "completed_requests==1": "",
		"completed_requests != 1": "assertion completed_requests!=1 fails: completed_requests is 1",
		"power_w>0":               "assertion power_w>0 fails: power_w has no value in this run",
	} {
		a, err := ParseAssertion(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := ""
		if err := a.Check(s.Get); err != nil {
			got = err.Error()
		}
		if got != fails {
			t.Errorf("%s: %q, want %q", text, got, fails)
		}
	}
	for text, want := range map[string]string{
		"mean_tfft_ms<5": `assertion "mean_tfft_ms<5": unknown metric mean_tfft_ms, did you mean mean_ttft_ms?`,
		"cost_us<5":      `assertion "cost_us<5": unknown metric cost_us, did you mean cost_usd?`,
		"mean_ttft_ms":   `assertion "mean_ttft_ms": no operator, want METRIC<BOUND with one of < <= > >= == !=`,
		"mean_ttft_ms=5": `assertion "mean_ttft_ms=5": unknown operator, want one of < <= > >= == !=`,
		"mean_ttft_ms<x": `assertion "mean_ttft_ms<x": bound must be a finite number, got "x"`,
		"<5":             `assertion "<5": no metric before <`,
	} {
		_, err := ParseAssertion(text, "cost_usd")
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseAssertion(f *testing.F) {
	for _, s := range []string{"mean_ttft_ms<500", "a!=b", ">=", "p99_itl_ms >= 1e3", "==\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAssertion(text)
		if err != nil {
			return
		}
		again, err := ParseAssertion(a.String())
		if err != nil || again != a {
			t.Errorf("%q reads back as %v, %v", text, again, err)
		}
	})
}

func TestFinishAllocatesNothingWarm(t *testing.T) {
	c := NewCollector(Options{SLA: SLA{TTFTMs: 100}})
	r := tokens(0, 0, 128, 10, 22, 24)
	for _, d := range []*Exact{&c.ttft, &c.ttst, &c.tpot, &c.e2e, &c.queue} {
		d.values = make([]float64, 0, 1000)
	}
	c.Finish(&r)
	if n := testing.AllocsPerRun(500, func() { c.Arrive(); c.Finish(&r); c.Gap(2, 16) }); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func BenchmarkGap(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int64
	}{{"count=1", 1}, {"count=16", 16}} {
		b.Run(c.name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			gaps := make([]float64, 4096)
			for i := range gaps { // a decode run: slow growth, then another batch
				gaps[i] = 6 + float64(i%512)*1e-4 + rng.Float64()*1e-6 + float64(i/512)*0.1
			}
			col := NewCollector(Options{})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				col.Gap(gaps[i&4095], c.n)
			}
		})
	}
}
