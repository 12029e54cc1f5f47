package metrics

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// reference is a recorded report of the reference; each file states its origin.
type reference struct {
	Origin    string
	Summary   map[string]any
	Requests  []map[string]any
	Telemetry []json.RawMessage
}

func readReference(t *testing.T, path string) reference {
	t.Helper()
	var ref reference
	readJSON(t, path, &ref)
	return ref
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// record turns one per-request object of the reference back into a Record.
func record(ordinal int, m map[string]any) Record {
	f := func(key string) float64 {
		if v, ok := m[key].(float64); ok {
			return v
		}
		return Unset
	}
	i := func(key string) int32 { return int32(f(key)) }
	r := Record{Ordinal: int64(ordinal), ArrivalMs: f("arrival_time_ms"), FirstAdmitMs: f("first_admit_ms"),
		FirstTokenMs: f("first_token_ms"), SecondTokenMs: Unset, LastTokenMs: f("last_token_ms"),
		TerminalMs: f("terminal_time_ms"), Input: i("input_length"), Requested: i("requested_output_length"),
		Output: i("output_length"), Reused: i("reused_input_tokens"),
		Status: map[string]Status{"completed": Completed, "rejected": Rejected}[m["terminal_status"].(string)]}
	if r.Output >= 2 {
		r.SecondTokenMs = r.FirstTokenMs + f("ttst_ms")
	}
	d := &Detail{DispatchedMs: f("dispatched_at_ms"), PrefillScheduler: i("prefill_worker_idx"),
		DecodeScheduler: i("decode_worker_idx"), PrefillAdmitMs: f("prefill_admit_ms"), SourceHeldMs: f("source_held_ms"),
		DestinationReservedMs: f("destination_reserved_ms"), DestinationActivatedMs: f("destination_activated_ms"),
		DecodeAdmitMs: f("decode_admit_ms"), SourceReleasedMs: f("source_released_ms"), PrefillReused: -1,
		DecodeReused: i("decode_reused_input_tokens"), PrefillOverlapTokens: i("prefill_route_overlap_tokens"),
		DecodeOverlapTokens: i("decode_route_overlap_tokens")}
	if s, ok := m["session_id"].(string); ok {
		d.HasSession, d.Session, d.Turn = true, s, i("turn_index")
	}
	pools := map[string]Pool{"agg": Agg, "prefill": PrefillPool, "decode": DecodePool}
	for _, e := range m["routing_history"].([]any) {
		e := e.(map[string]any)
		d.Routing = append(d.Routing, Routing{Pool: pools[e["pool"].(string)], EnteredMs: Unset, ReleasedMs: Unset,
			Worker: int32(e["logical_worker_id"].(float64)), Scheduler: int32(e["scheduler_id"].(float64)), Selected: -1, Best: -1})
	}
	for n, e := range m["admission_history"].([]any) {
		e := e.(map[string]any)
		d.Admitted = append(d.Admitted, Admission{Pool: pools[e["pool"].(string)], AtMs: e["at_ms"].(float64),
			PoolOrdinal: int32(e["pool_admission_ordinal"].(float64)), Reused: int32(e["reused_input_tokens"].(float64))})
		if n == 0 {
			r.FirstReused = d.Admitted[0].Reused
		}
	}
	r.Admissions = int32(len(d.Admitted))
	if r.Output > 0 && r.Output <= 3 { // all token times are known
		r.TokenMs = []float64{r.FirstTokenMs, r.SecondTokenMs, r.LastTokenMs}[:r.Output]
	}
	r.Detail = d
	return r
}

// Every figure that follows from the records equals the reference's: counts,
// percentiles, minimum and maximum exactly, mean and std within 1e-9.
func TestSummaryEqualsReference(t *testing.T) {
	files, _ := filepath.Glob("testdata/*_*.json")
	if len(files) < 6 {
		t.Fatalf("only %d recorded reports", len(files))
	}
	for _, path := range files {
		ref := readReference(t, path)
		opt := Options{Capture: true}
		if _, ok := ref.Summary["goodput_completed_requests"]; ok {
			opt.SLA.TTFTMs = 11
		}
		c := NewCollector(opt)
		gaps := true
		for i, m := range ref.Requests {
			c.Arrive()
			r := record(i, m)
			gaps = gaps && (r.Output < 2 || r.TokenMs != nil)
			c.Finish(&r)
		}
		get := func(key string) float64 { return ref.Summary[key].(float64) }
		c.CommittedPrefill(int64(get("committed_prefill_tokens")))
		s := c.Summary(Totals{PrefillWorkerSeconds: get("prefill_worker_seconds"), DecodeWorkerSeconds: get("decode_worker_seconds"),
			PrefillGPUs: int(get("prefill_gpus_per_worker")), DecodeGPUs: int(get("decode_gpus_per_worker"))})
		for key, want := range ref.Summary {
			want, isNumber := want.(float64)
			if !isNumber || strings.Contains(key, "wall") || strings.HasPrefix(key, "processed_") && strings.HasSuffix(key, "_per_s") {
				continue
			}
			if !gaps && (strings.Contains(key, "_itl_") || strings.Contains(key, "per_user")) {
				continue
			}
			got, ok := s.Get(key)
			loose := strings.HasPrefix(key, "mean_") || strings.HasPrefix(key, "std_")
			if !ok || got != want && !(loose && math.Abs(got-want) <= 1e-9*math.Abs(want)+1e-12) {
				t.Errorf("%s: %s is %v, reference %v", path, key, got, want)
			}
		}
	}
}

func TestRecordJSONEqualsReference(t *testing.T) {
	files, _ := filepath.Glob("testdata/*_*.json")
	for _, path := range files {
		for i, want := range readReference(t, path).Requests {
			r := record(i, want)
			line := r.AppendJSON(nil)
			var got map[string]any
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatalf("%s: %v in %s", path, err, line)
			}
			want["uuid"] = r.UUID()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s record %d:\ngot  %v\nwant %v", path, i, got, want)
			}
			if order := fieldOrder(t, line); order[len(order)-1] != "terminal_status" || order[0] != "session_id" || order[2] != "uuid" {
				t.Errorf("%s record %d: fields in order %v", path, i, order)
			}
		}
	}
}

// fieldOrder lists the top-level keys of an object.
func fieldOrder(t *testing.T, object []byte) (order []string) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		key, err := dec.Token()
		var skip json.RawMessage
		if err == nil {
			err = dec.Decode(&skip)
		}
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, key.(string))
	}
	return order
}

func TestKeysComeInReferenceOrder(t *testing.T) {
	raw, err := os.ReadFile("testdata/sla_telemetry.json")
	if err != nil {
		t.Fatal(err)
	}
	var withSLA struct{ Summary json.RawMessage }
	if err := json.Unmarshal(raw, &withSLA); err != nil {
		t.Fatal(err)
	}
	marshal := func(opt Options, totals Totals) []string {
		b, err := NewCollector(opt).Summary(totals).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return fieldOrder(t, b)
	}
	got, want := marshal(Options{SLA: SLA{TTFTMs: 11}}, Totals{}), fieldOrder(t, withSLA.Summary)
	if !reflect.DeepEqual(got, want) || len(got) != 84 {
		t.Errorf("with an SLA: %d keys %v\nreference %v", len(got), got, want)
	}
	if n := len(marshal(Options{}, Totals{})); n != 81 {
		t.Errorf("without an SLA: %d keys, want 81", n)
	}

	var agentic struct {
		Keys        []string
		LatenciesMs []float64 `json:"latencies_ms"`
		Trajectory  map[string]float64
	}
	readJSON(t, "testdata/agentic.json", &agentic)
	fields := []Field{{"agentic_graph", nil}, {"agentic_lifecycle_event_count", 1}, {"agentic_lifecycle_digest", ""}, {"agentic_play_outcomes", nil}}
	got = marshal(Options{Trajectories: true}, Totals{Agentic: fields})
	wall := map[string]bool{"wall_time_ms": true, "processed_tokens_per_s": true, "processed_output_tokens_per_s": true}
	kept := got[:0]
	for _, k := range got {
		if !wall[k] { // the recording has none
			kept = append(kept, k)
		}
	}
	if want := agentic.Keys[:len(agentic.Keys)-1]; !reflect.DeepEqual(kept, want) { // the last follows the report
		t.Errorf("agentic: %v\nreference %v", kept, want)
	}
	c := NewCollector(Options{Trajectories: true})
	for _, ms := range agentic.LatenciesMs {
		c.Trajectory(ms, true)
	}
	s := c.Summary(Totals{})
	for key, want := range agentic.Trajectory {
		if got, ok := s.Get(key); !ok || math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s is %v, reference %v", key, got, want)
		}
	}
}

// The samples of the reference come out of the Window and the Sample encoder; our
// per-rank counters are the only fields beyond.
func TestTelemetryEqualsReference(t *testing.T) {
	ref := readReference(t, "testdata/sla_telemetry.json")
	var w Window
	records := make([]Record, len(ref.Requests))
	ends := func(from, to float64) { // requests that ended in (from, to]
		for i := range records {
			if r := &records[i]; r.TerminalMs > from && r.TerminalMs <= to {
				w.Completed(r)
			}
		}
	}
	for i, m := range ref.Requests {
		records[i] = record(i, m)
	}
	rank := func(worker int32, active, inactive, running, waiting int64) RankSample {
		return RankSample{Worker: worker, ActiveBlocks: active, InactiveBlocks: inactive, TotalBlocks: 50, Running: running, Waiting: waiting}
	}
	states := [][]RankSample{
		{rank(0, 0, 0, 0, 1), rank(1, 0, 0, 0, 0)},
		{rank(0, 5, 0, 2, 1), rank(1, 5, 0, 2, 1)},
		{rank(0, 5, 0, 2, 1), rank(1, 5, 0, 2, 1)},
		{rank(0, 0, 6, 0, 0), rank(1, 0, 6, 0, 0)},
	}
	kinds := []SampleKind{Baseline, Periodic, Periodic, Final}
	times := []float64{0, 0, 15, 30, 41}
	for k, state := range states {
		switch k {
		case 1:
			for range records {
				w.Arrived()
			}
		case 2:
			w.Accept(2, 2)
		case 3:
			w.Accept(10, 10)
		}
		ends(times[k], times[k+1])
		if want := k > 0; w.Pending() != want {
			t.Errorf("sample %d: pending is %v", k, !want)
		}
		s := Sample{Ordinal: int64(k), Kind: kinds[k], StartMs: times[k], AtMs: times[k+1], Traffic: w.Consume(times[k+1]),
			Decode: PoolSample{Ranks: state, Active: []int32{0, 1}}}
		line := s.AppendJSON(nil)
		for _, extra := range []string{`,"cache_hit_tokens":0,"cache_total_tokens":0,"preemptions":0}`} {
			line = bytes.ReplaceAll(line, []byte(`"waiting_requests":0`+extra), []byte(`"waiting_requests":0}`))
			line = bytes.ReplaceAll(line, []byte(`"waiting_requests":1`+extra), []byte(`"waiting_requests":1}`))
		}
		var want bytes.Buffer
		if err := json.Compact(&want, ref.Telemetry[k]); err != nil {
			t.Fatal(err)
		}
		if string(line) != want.String() {
			t.Errorf("sample %d:\ngot  %s\nwant %s", k, line, want.String())
		}
	}
}
