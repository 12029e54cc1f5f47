package trace

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/workloadtest"
)

const azureTable = "TIMESTAMP,ContextTokens,GeneratedTokens\n" +
	"2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:51.2224670,0,55\n"

const burstTable = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" +
	"5,ChatGPT,472,18,490,Conversation log\n45.5,\"GPT-4\",1087,0,1087,API log\n"

// convert returns what a conversion writes.
func convert(t *testing.T, text string, o LoadOptions, c Conversion) (string, *Converted) {
	t.Helper()
	var out bytes.Buffer
	done, err := Convert(&out, []string{write(t, "trace.jsonl", text)}, o, c)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), done
}

func TestTablesBecomeMooncake(t *testing.T) {
	text, done := convert(t, azureTable, LoadOptions{Format: azureCSV, BlockSize: 256}, DefaultConversion(Mooncake))
	want := `{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": [0, 1]}
{"timestamp": 4314.579, "input_length": 396, "output_length": 109, "hash_ids": [2, 3]}
`
	if text != want || done.BlockSize != 256 || done.Requests != 2 || done.Dropped != 1 || done.Failed != 0 ||
		len(done.Notices) != 1 || !strings.HasSuffix(done.Notices[0], "trace.jsonl: 1 of 3 rows have no prompt; they are left out") {
		t.Errorf("%+v\n%s", done, text)
	}
	c := DefaultConversion(Mooncake)
	c.Speedup, c.FromMs = 2, 1
	text, done = convert(t, burstTable, LoadOptions{Format: burstCSV, BlockSize: 512, KeepFailed: true}, c)
	if want := `{"timestamp": 20250, "input_length": 1087, "output_length": 0, "hash_ids": [1, 2, 3]}` + "\n"; text != want || done.Cut != 1 {
		t.Errorf("%+v\n%s", done, text)
	}
	for text, want := range map[string]string{
		"":                              "trace.jsonl:1: failed to read the header: the file is empty",
		"a,b\n":                         `:1: failed to read the header: no column "TIMESTAMP" in the header; TIMESTAMP, ContextTokens, GeneratedTokens are needed`,
		azureTable + "x,1,1\n":          `:5: failed to read a request: timestamp "x" is not a date and time such as 2023-11-16 18:15:46.6805900`,
		azureTable + "\n2023-11-16,1\n": ":6: failed to read a request: 2 columns, at least 3 are needed",
		azureTable + "\"":               ":5: failed to read a request: ",
	} {
		_, err := Convert(&bytes.Buffer{}, []string{write(t, "trace.jsonl", text)}, LoadOptions{Format: azureCSV, BlockSize: 1}, DefaultConversion(Mooncake))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Rows of BurstGPT without response tokens are failed requests: they are left out, and
// said to be.
func TestFailedRequestsAreLeftOutAndCounted(t *testing.T) {
	text, done := convert(t, burstTable, LoadOptions{Format: burstCSV, BlockSize: 512}, DefaultConversion(Mooncake))
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, `"output_length": 18`) || done.Failed != 1 || done.Requests != 1 {
		t.Errorf("%+v\n%s", done, text)
	}
	for i, want := range []string{
		": 1 of 2 rows have no response tokens: failed requests in this data set; they are left out (--keep-failed keeps them)",
		": nothing is read from the columns Model, Total tokens, Log Type: every row is a session of its own whose prompt shares nothing",
	} {
		if len(done.Notices) != 2 || !strings.HasSuffix(done.Notices[i], want) {
			t.Errorf("notices %q, want %q", done.Notices, want)
		}
	}
	o := LoadOptions{Format: burstCSV, BlockSize: 512, KeepFailed: true}
	if _, done := convert(t, burstTable, o, DefaultConversion(Mooncake)); done.Failed != 0 || done.Requests != 2 ||
		!strings.HasSuffix(done.Notices[0], "failed requests in this data set; they are kept as requests without output") {
		t.Errorf("%+v", done)
	}
	table := "Timestamp,Request tokens,Response tokens\n1,5,0\n2,5,0\n"
	_, err := Convert(&bytes.Buffer{}, []string{write(t, "trace.csv", table)}, LoadOptions{Format: burstCSV, BlockSize: 512}, DefaultConversion(Mooncake))
	if err == nil || !strings.HasSuffix(err.Error(), "all 2 requests have no response tokens: failed requests in this data set; --keep-failed keeps them") {
		t.Error(err)
	}
}

// What a conversion does not pass on is counted and named.
func TestConversionsNameWhatTheyDoNotWrite(t *testing.T) {
	const rows = `{"timestamp":0,"input_length":8,"output_length":1,"hash_ids":[1,2],"images":[{"url":"a"}]}
{"timestamp":1,"input_length":8,"output_length":1,"hash_ids":[1]}
`
	_, done := convert(t, rows, mooncake(64), DefaultConversion(Mooncake))
	if len(done.Notices) != 2 || !strings.HasSuffix(done.Notices[0], "1 of 2 rows have images, which changes nothing here") ||
		!strings.HasSuffix(done.Notices[1], "1 of 2 rows have more hash_ids than blocks; the surplus is cut") {
		t.Errorf("%q", done.Notices)
	}
	graph := header64 + node("a", "p", 0, `,"output_token_ids":[1,2],"recorded_api_time_ms":5`) + node("b", "p", 0, "")
	_, done = convert(t, graph, agentic(), DefaultConversion(AgenticMooncake))
	if len(done.Notices) != 2 || !strings.HasSuffix(done.Notices[0], "1 of 2 requests have output_token_ids, which are not written") ||
		!strings.HasSuffix(done.Notices[1], "1 of 2 requests have a recorded API time, which is not written") {
		t.Errorf("%q", done.Notices)
	}
}

// same compares two replays in arrivals, lengths and shared blocks; the order of
// requests is that of their arrivals.
func same(t *testing.T, what string, a, b []workloadtest.Served) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%s: %d and %d requests", what, len(a), len(b))
	}
	for i := range a {
		if a[i].ArrivalMs != b[i].ArrivalMs || a[i].PromptTokens != b[i].PromptTokens || a[i].OutputTokens != b[i].OutputTokens {
			t.Errorf("%s: request %d is %+v and %+v", what, i, a[i].Request, b[i].Request)
		}
		for k := range i {
			if x, y := workloadtest.SharedBlocks(a[i], a[k]), workloadtest.SharedBlocks(b[i], b[k]); x != y {
				t.Errorf("%s: requests %d and %d share %d and %d blocks", what, k, i, x, y)
			}
		}
	}
}

func TestConversionsReplayTheSame(t *testing.T) {
	run := func(text string, o LoadOptions, d Drive) []workloadtest.Served {
		return workloadtest.Serve(t, source(t, load(t, text, o), d), 32, workloadtest.Constant(7))
	}
	sessions, _ := convert(t, sessionRows, mooncake(512), DefaultConversion(Mooncake))
	same(t, "mooncake", run(sessionRows, mooncake(512), open(32)), run(sessions, mooncake(512), open(32)))
	graph, done := convert(t, sessionRows, mooncake(512), DefaultConversion(AgenticMooncake))
	same(t, "sessions as plays", run(sessionRows, mooncake(512), open(32)), run(graph, agentic(), open(32)))
	if done.Requests != 5 || done.BlockSize != 512 {
		t.Errorf("%+v", done)
	}
	o := LoadOptions{Format: AppliedCompute, BlockSize: 64, SharedPrefixRatio: .5, PrefixGroups: 2}
	rows, _ := convert(t, appliedA+appliedB+appliedA, o, DefaultConversion(Mooncake))
	same(t, "applied", run(appliedA+appliedB+appliedA, o, closed(32, 2)), run(rows, mooncake(64), closed(32, 2)))
	plays := threePlays(func(int) string { return "" })
	again, _ := convert(t, plays, agentic(), DefaultConversion(AgenticMooncake))
	same(t, "graph", run(plays, agentic(), open(32)), run(again, agentic(), open(32)))
	requests := dynamoRow("b", 30, 1, 70, "1,2", "") + dynamoRow("a", 10, 1, 64, "1", "")
	rows, _ = convert(t, requests, LoadOptions{Format: Dynamo}, DefaultConversion(Mooncake))
	same(t, "dynamo", run(requests, LoadOptions{Format: Dynamo}, open(32)), run(rows, mooncake(64), open(32)))
}

func TestConversionCutsAndSpeedsUp(t *testing.T) {
	c := DefaultConversion(Mooncake)
	c.FromMs, c.UntilMs, c.MaxRequests, c.Speedup = 0, 50, 2, 2
	text, done := convert(t, sessionRows, mooncake(512), c)
	want := `{"session_id": "a", "timestamp": 0, "input_length": 512, "output_length": 3, "hash_ids": [1]}
{"session_id": "a", "timestamp": 100, "input_length": 1024, "output_length": 3, "hash_ids": [1, 2]}
`
	if text != want || done.Requests != 2 || done.Cut != 3 {
		t.Errorf("%+v\n%s", done, text)
	}
	c = DefaultConversion(AgenticMooncake)
	c.MaxRequests, c.FromMs = 3, 500
	text, done = convert(t, threePlays(func(int) string { return "" }), agentic(), c)
	if done.Requests != 2 || done.Cut != 4 || !strings.Contains(text, `"r1b"`) || strings.Contains(text, `"r2a"`) {
		t.Errorf("%+v\n%s", done, text)
	}
}

func TestWhatCannotBeExpressedIsRefused(t *testing.T) {
	for _, row := range []struct {
		text string
		o    LoadOptions
		to   Format
		want string
	}{
		{deltaRows, LoadOptions{Format: MooncakeDelta, BlockSize: 512}, Mooncake, "hold generated tokens"},
		{header64 + node("a", "p", 0, ""), agentic(), Mooncake, "depend on each other by a graph"},
		{appliedA, LoadOptions{Format: AppliedCompute, BlockSize: 64}, AgenticMooncake, "has no start"},
		{appliedA, LoadOptions{Format: AppliedCompute, BlockSize: 64}, Weka, "cannot write weka"},
	} {
		_, err := Convert(&bytes.Buffer{}, []string{write(t, "trace.jsonl", row.text)}, row.o, DefaultConversion(row.to))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("got %v, want %s", err, row.want)
		}
	}
}

func TestWrittenLoadReplaysTheSame(t *testing.T) {
	for name, edit := range map[string]func(*workload.Synthetic){
		"poisson": func(s *workload.Synthetic) { s.Control, s.RatePerS, s.Requests = workload.Poisson, 10, 200 },
		"turns": func(s *workload.Synthetic) {
			s.Control, s.IntervalMs, s.Speedup = workload.Fixed, 33.3, 3
			s.TurnsPerSession, s.InterTurnDelayMs, s.SharedPrefixRatio, s.PrefixGroups, s.InputTokens, s.Requests = 3, 12.7, .5, 2, 300, 12
		},
		"closed": func(s *workload.Synthetic) { s.Concurrency, s.Requests, s.InputTokens = 3, 9, 100 },
	} {
		s := workload.DefaultSynthetic()
		s.InputTokens, s.OutputTokens, s.Control = 64, 2, workload.Closed
		edit(&s)
		var out bytes.Buffer
		if err := WriteSynthetic(&out, s, 64); err != nil {
			t.Fatal(err)
		}
		own, err := s.NewSource(64)
		if err != nil {
			t.Fatal(err)
		}
		d := open(64)
		if s.Control == workload.Closed {
			d = closed(64, s.Concurrency)
		}
		a := workloadtest.Serve(t, own, 64, workloadtest.Constant(7))
		b := workloadtest.Serve(t, source(t, load(t, out.String(), mooncake(64)), d), 64, workloadtest.Constant(7))
		same(t, name, a, b)
	}
}

// Readers reach all but two of a thousand float64 times; of those they reach the
// neighbour.
func TestTimesSurviveWriting(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lost := 0
	for range 20000 {
		v := r.ExpFloat64() * math.Pow(10, float64(r.IntN(9)))
		var s scanner
		s.reset(appendMs(nil, v))
		got := s.float()
		if got != v {
			lost++
		}
		if s.end() != nil || got < math.Nextafter(v, 0) || got > math.Nextafter(v, math.Inf(1)) {
			t.Errorf("%v reads as %v", v, got)
		}
	}
	if lost > 60 {
		t.Errorf("%d of 20000 times changed", lost)
	}
}

func TestStats(t *testing.T) {
	st, err := Stat([]string{write(t, "trace.jsonl", sessionRows)}, mooncake(512))
	if err != nil {
		t.Fatal(err)
	}
	if st.Requests != 5 || st.Sessions != 2 || st.InputTokens != 5184 || st.OutputTokens != 15 || st.DurationMs != 200 || st.RatePerS != 15 {
		t.Errorf("%+v", st)
	}
	if st.ISL != (Quantiles{Mean: 1036.8, Min: 512, P50: 1024, P75: 1536, P90: 1600, P95: 1600, P99: 1600, Max: 1600}) {
		t.Errorf("%+v", st.ISL)
	}
	// Block 1 comes four times, [1 2] three times, [1 2 3] twice, 9 and [1 2 3 4] once.
	curve := st.Reuse.Curve
	if st.Reuse.Curve = nil; len(curve) == 0 || curve[len(curve)-1].HitRatio != st.Reuse.Infinite {
		t.Errorf("a cache of every block hits %v, want %v", curve, st.Reuse.Infinite)
	}
	if want := (Reuse{Infinite: 512 * 6 / 5184., SharedTokens: 512 * 9 / 5184., SharedRequests: .8, DistinctBlocks: 5, Sampled: 1}); !reflect.DeepEqual(st.Reuse, want) {
		t.Errorf("%+v, want %+v", st.Reuse, want)
	}
	if _, err := json.Marshal(st); err != nil {
		t.Error(err)
	}
	loaded, err := Stat([]string{write(t, "trace.jsonl", sessionRows)}, LoadOptions{Format: MooncakeDelta, BlockSize: 512})
	if err != nil || loaded.ISL.Max != 512+1024+1536+1600+9 {
		t.Errorf("%v %+v", err, loaded)
	}
	table, err := Stat([]string{write(t, "trace.csv", burstTable)}, LoadOptions{Format: burstCSV, BlockSize: 512, KeepFailed: true})
	if err != nil || table.Requests != 2 || table.DurationMs != 40500 || len(table.Arrivals) != 41 || table.Arrivals[40].Requests != 1 {
		t.Errorf("%v %+v", err, table)
	}
}

// A set past its limit keeps a sample whose shares are those of the whole.
func TestStatsSampleStaysTrue(t *testing.T) {
	s := newSampledSet()
	for i := range 3 * sampleLimit {
		s.add(mixHash(uint64(i)), 10)
		if i%4 == 0 {
			s.add(mixHash(uint64(i)), 10)
		}
	}
	sum := s.sum()
	if r := float64(sum.again) / float64(sum.weight); math.Abs(r-.2) > .002 || s.ratio() >= 1 || len(s.slots) > 2*sampleLimit {
		t.Errorf("reuse %v of a sample of %v in %d slots", r, s.ratio(), len(s.slots))
	}
	if d := float64(s.distinct()); math.Abs(d/(3*sampleLimit)-1) > .01 {
		t.Errorf("%v distinct", d)
	}
}

func TestLengthQuantilesAreClose(t *testing.T) {
	var d lengths
	var all []int64
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		v := int64(math.Exp(r.Float64() * 21))
		d.add(v)
		all = append(all, v)
	}
	slices.Sort(all)
	q := d.quantiles()
	for _, c := range []struct{ got, want int64 }{{q.P50, all[2499]}, {q.P90, all[4499]}, {q.P99, all[4949]}, {q.Max, all[4999]}} {
		if math.Abs(float64(c.got-c.want)) > float64(c.want)/32768 {
			t.Errorf("quantile %d, want %d", c.got, c.want)
		}
	}
}

// A replay subtracts the first time before it divides: dividing epoch milliseconds
// would lose their last digits.
func TestFasterEpochTimesKeepTheirDigits(t *testing.T) {
	text := `{"timestamp":1700000000123,"input_length":1,"output_length":1,"hash_ids":[1]}` + "\n" +
		`{"timestamp":1700000000224,"input_length":1,"output_length":1,"hash_ids":[1]}` + "\n"
	c := DefaultConversion(Mooncake)
	c.Speedup = 3
	o := LoadOptions{Format: Mooncake, BlockSize: 1}
	out, _ := convert(t, text, o, c)
	faster := open(1)
	faster.Speedup = 3
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(workloadtest.Serve(t, source(t, load(t, out, o), open(1)), 1, workloadtest.Constant(1))),
		workloadtest.Arrivals(workloadtest.Serve(t, source(t, load(t, text, o), faster), 1, workloadtest.Constant(1)))...)
}

func TestConversionThatKeepsNothingIsRefused(t *testing.T) {
	text := `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1]}` + "\n"
	for _, to := range []Format{Mooncake, AgenticMooncake} {
		c := DefaultConversion(to)
		c.FromMs = 1
		var out bytes.Buffer
		_, err := Convert(&out, []string{write(t, "trace.jsonl", text)}, LoadOptions{Format: Mooncake, BlockSize: 1}, c)
		if err == nil || !strings.Contains(err.Error(), "trace.jsonl: nothing is left of 1 requests") {
			t.Errorf("%v: %v", to, err)
		}
	}
}
