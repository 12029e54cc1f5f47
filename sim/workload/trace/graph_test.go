package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/workloadtest"
)

const header64 = `{"schema":"dynamo.agentic_mooncake","version":2,"block_size":64,"hash_id_scope":"local","source":{"format":"f","digest":"d"}}` + "\n"

// node writes a version 2 row of one block and two output tokens; more adds members.
func node(id, play string, notBefore float64, more string) string {
	return fmt.Sprintf(`{"request_id":%q,"play_id":%q,"session_id":"s","model":"m","input_length":64,"output_length":2,"hash_ids":[1],"not_before_ms":%v%s}`+"\n",
		id, play, notBefore, more)
}

func dep(from, trigger string, delayMs float64, relation string) string {
	return fmt.Sprintf(`{"request_id":%q,"trigger":%q,"delay_ms":%v,"relation":%q}`, from, trigger, delayMs, relation)
}

func deps(d ...string) string { return `,"dependencies":[` + strings.Join(d, ",") + `]` }

func agentic() LoadOptions { return LoadOptions{Format: AgenticMooncake, BlockSize: 512} }

// until serves each request until the given time.
func until(endMs ...float64) func(*workloadtest.Served) float64 {
	return func(r *workloadtest.Served) float64 { return endMs[r.Ordinal] - r.ArrivalMs }
}

func TestGraphEdgesFire(t *testing.T) { // W14
	tr := load(t, header64+node("a", "p", 100, "")+
		node("b", "p", 0, deps(dep("a", "dispatch", 5, "spawn")))+
		node("c", "p", 0, deps(dep("a", "completion", 1, "sequence"), dep("b", "completion", 7, "join"))), agentic())
	all := workloadtest.Serve(t, source(t, tr, open(64)), 64, until(122, 122, 140))
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 100, 105, 129)
	if r := all[1]; r.RequestID != "b" || r.PlayID != "p" || r.Session != "s" || !r.HasSession || r.Turn != -1 {
		t.Errorf("%+v", r.Request)
	}
	fast := open(64)
	fast.Speedup = 2
	workloadtest.WantFloats(t, "x2", workloadtest.Arrivals(workloadtest.Serve(t, source(t, tr, fast), 64, until(72, 72, 87))), 50, 52.5, 75.5)
	if s, ok := tr.Graph(); !ok || s.Nodes != 3 || s.Plays != 1 || s.Source.Digest != "d" || s.Models[0] != "m" {
		t.Errorf("%+v", s)
	}
}

// A play with one root names it, a spawned request its first parent by id, and a
// request in a lane its lane, as the reference's records do.
func TestNodesKnowTheirKin(t *testing.T) {
	tr := load(t, header64+node("z", "p", 0, "")+node("b", "p", 5, "")+
		node("h", "p", 0, deps(dep("z", "completion", 1, "spawn"), dep("b", "completion", 1, "spawn")))+
		node("q", "r", 0, "")+node("qq", "r", 0, deps(dep("q", "completion", 1, "sequence"))), agentic())
	kin := func(d Drive) (out []string) {
		for _, r := range workloadtest.Serve(t, source(t, tr, d), 64, workloadtest.Constant(10)) {
			out = append(out, r.RequestID+":"+r.LaneID+":"+r.RootID+":"+r.ParentID)
		}
		return out
	}
	if got := strings.Join(kin(open(64)), " "); got != "b::: h:::b q::q: qq::q: z:::" {
		t.Error(got)
	}
	laned := open(64)
	laned.Laned, laned.Lanes = true, 1
	if got := strings.Join(kin(laned), " "); got != "b:lane:0:: h:lane:0::b q:lane:0:q: qq:lane:0:q: z:lane:0::" {
		t.Error(got)
	}
}

// threePlays is W15: a root and a dependant each; ordinal(i) adds members.
func threePlays(ordinal func(i int) string) string {
	text := header64
	for i := range 3 {
		p, root, more := fmt.Sprintf("p%d", i), fmt.Sprintf("r%da", i), ordinal(i)
		text += node(root, p, float64(1000*i), more)
		text += strings.Replace(node(fmt.Sprintf("r%db", i), p, float64(1000*i), more+deps(dep(root, "completion", 50, "sequence"))),
			`64,"output_length":2,"hash_ids":[1]`, `128,"output_length":2,"hash_ids":[1,2]`, 1)
	}
	return text
}

func TestLanesRunPlaysInOrder(t *testing.T) { // W15
	plain := load(t, threePlays(func(int) string { return "" }), agentic())
	reversed := load(t, threePlays(func(i int) string { return fmt.Sprintf(`,"source_play_ordinal":%d`, 2-i) }), agentic())
	for _, row := range []struct {
		name  string
		tr    *Trace
		lanes int
		want  []float64
	}{
		{"no lanes", plain, 0, []float64{0, 61, 1000, 1061, 2000, 2061}},
		{"one", plain, 1, []float64{0, 61, 72, 133, 144, 205}},
		{"two", plain, 2, []float64{0, 61, 0, 61, 72, 133}},
		{"nine", plain, 9, []float64{0, 61, 0, 61, 0, 61}},
		{"one, reversed", reversed, 1, []float64{144, 205, 72, 133, 0, 61}},
	} {
		d := open(64)
		d.Laned, d.Lanes = row.lanes > 0, row.lanes
		workloadtest.WantFloats(t, row.name, workloadtest.Arrivals(workloadtest.Serve(t, source(t, row.tr, d), 64, workloadtest.Constant(11))), row.want...)
	}
}

func TestRejectionFailsThePlayAndFreesItsLane(t *testing.T) { // W15
	tr := load(t, threePlays(func(int) string { return "" }), agentic())
	d := open(64)
	d.Laned, d.Lanes = true, 1
	src := source(t, tr, d)
	all := workloadtest.ServeWith(t, src, 64, workloadtest.Constant(12), func(r *workloadtest.Served) workload.Outcome {
		if r.RequestID == "r0a" {
			return workload.Rejected
		}
		return workload.Completed
	})
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 12, 74, 86, 148)
	out := src.Plays()
	if out[0].Status != "failed" || out[0].SettledMs != 12 || out[1].Status != "completed" || out[1].TerminalMs != 86 || out[1].StartMs != 12 {
		t.Errorf("%+v", out)
	}
}

// A node that waits for a rejected one never starts: it is skipped, not released.
func TestAFailedPlayNamesItsFailureAndSkipsTheRest(t *testing.T) {
	text := header64 + node("a", "p", 0, "") +
		node("b", "p", 0, deps(dep("a", "completion", 0, "sequence"))) +
		node("c", "p", 0, deps(dep("b", "completion", 0, "sequence")))
	src := source(t, load(t, text, agentic()), open(64))
	workloadtest.ServeWith(t, src, 64, workloadtest.Constant(5), func(*workloadtest.Served) workload.Outcome { return workload.Rejected })
	want := workload.PlayOutcome{PlayID: "p", Status: "failed", TerminalMs: 5, SettledMs: 5,
		FailedRequest: "a", FailedBy: workload.Rejected}
	if got := src.Plays(); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestHeaderlessRowsCountFromTheirRoots(t *testing.T) {
	tr := load(t, `{"request_id":"a","timestamp":100000,"input_length":100,"output_length":2,"hash_ids":[1,2,3]}
{"request_id":"b","timestamp":100500,"input_length":64,"output_length":2,"hash_ids":[1]}
{"request_id":"c","wait_for":["a","b"],"delay":5,"tool_wait_ms":2.5,"input_length":64,"output_length":2,"hash_ids":[1]}
{"request_id":"d","wait_for":["a"],"delay_ms":7,"input_length":64,"output_length":2,"hash_ids":[1],"branches":[{"x":[]}]}`,
		LoadOptions{Format: AgenticMooncake, BlockSize: 64})
	all := workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(10))
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 500, 517.5, 17)
	if all[2].PlayID != "legacy-play:a" || all[2].Session != "agentic-session" || tr.Sessions() != 1 {
		t.Errorf("%+v", all[2].Request)
	}
}

const appliedA = `{"num_turns":2,"input_prompt_length":100,"assistant_response_length":[4,4],"tool_call_output_length":[30,40],"tool_call_latency":[0.01,0.0205],"final_assistant_response_length":5}` + "\n"
const appliedB = `{"num_turns":0,"input_prompt_length":100,"assistant_response_length":[],"tool_call_output_length":[],"tool_call_latency":[],"final_assistant_response_length":5}` + "\n"

func TestAppliedSessionsGrow(t *testing.T) { // W13
	tr := load(t, appliedA+appliedB+appliedA, LoadOptions{Format: AppliedCompute, BlockSize: 64})
	all := workloadtest.Serve(t, source(t, tr, closed(64, 2)), 64, until(13, 38, 74, 14, 37, 70, 104.5))
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 23, 58.5, 0, 14, 47, 90.5)
	if all[1].PromptTokens != 134 || all[2].PromptTokens != 178 || all[4].Session != "applied_compute_agentic_session_3" {
		t.Errorf("%+v", all[1].Request)
	}
	if a, b, c := workloadtest.SharedBlocks(all[0], all[1]), workloadtest.SharedBlocks(all[1], all[2]), workloadtest.SharedBlocks(all[0], all[4]); a != 1 || b != 2 || c != 0 {
		t.Errorf("shared %d %d %d", a, b, c)
	}
	o := LoadOptions{Format: AppliedCompute, BlockSize: 64, SharedPrefixRatio: .5, PrefixGroups: 2}
	all = workloadtest.Serve(t, source(t, load(t, appliedA+appliedA+appliedA, o), closed(64, 1)), 64, workloadtest.Constant(1))
	if a, b := workloadtest.SharedBlocks(all[0], all[6]), workloadtest.SharedBlocks(all[0], all[3]); a != 1 || b != 0 {
		t.Errorf("groups share %d and %d blocks, want 1 and 0", a, b)
	}
}

// dynamoRow writes a request_end of two output tokens.
func dynamoRow(id string, received, total int, input int, hashes, more string) string {
	return fmt.Sprintf(`{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1,"request":{"request_id":%q,"output_tokens":2,`+
		`"request_received_ms":%d,"total_time_ms":%d.0,"replay":{"trace_block_size":64,"input_length":%d,"input_sequence_hashes":[%s]}}%s}`+"\n",
		id, received, total, input, hashes, more)
}

func TestDynamoRequestsAreSortedByTime(t *testing.T) { // W16, in two files
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl.gz")
	text := dynamoRow("r2", 1100, 50, 150, "11,12,13", "") + `{"event_type":"request_payload"}` + "\n[1]\n" + `{"event_type":"tool_start","x":1}` + "\n"
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	fmt.Fprint(w, dynamoRow("r1", 1000, 50, 128, "11,12", ""))
	fmt.Fprintf(w, `{"event":%s}`, strings.TrimSpace(dynamoRow("r3", 1100, 20, 192, "11,12,14", "")))
	w.Close()
	for path, data := range map[string][]byte{first: []byte(text), second: z.Bytes()} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := Load([]string{first, second}, LoadOptions{Format: Dynamo})
	if err != nil {
		t.Fatal(err)
	}
	all := workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(11))
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 100, 100)
	if all[1].PromptTokens != 192 || all[1].HasSession || workloadtest.SharedBlocks(all[1], all[2]) != 2 {
		t.Errorf("%+v", all[1].Request)
	}
	all = workloadtest.Serve(t, source(t, tr, closed(64, 1)), 64, workloadtest.Constant(11))
	if all[0].Session != "request_1" || !all[0].HasSession {
		t.Errorf("%+v", all[0].Request)
	}
}

func TestDynamoAgentsGetTheirEdges(t *testing.T) { // W17
	ctx := func(session, parent string) string {
		if parent != "" {
			parent = `,"parent_session_id":"` + parent + `"`
		}
		return `,"agent_context":{"session_id":"` + session + `"` + parent + `}`
	}
	tool := func(mode, consumer string) string {
		return `{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1,"agent_context":{"session_id":"p"},` +
			`"tool":{"tool_call_id":"t","tool_class":"agent","claude":{"source_request_id":"p1"` + consumer + `,"child_session_id":"c","execution_mode":"` + mode + `"}}}` + "\n"
	}
	rows := func(p2 int) string {
		return dynamoRow("p1", 100, 10, 64, "1", ctx("p", "")) + dynamoRow("c1", 120, 10, 64, "2", ctx("c", "p")) +
			dynamoRow("c2", 150, 10, 64, "3", ctx("c", "")) + dynamoRow("p2", p2, 10, 64, "4", ctx("p", ""))
	}
	for _, row := range []struct {
		name, text string
		want       []float64 // c1, c2, p1, p2
	}{
		{"inferred", rows(200), []float64{20, 51, 0, 102}},
		{"blocking tool", rows(200) + tool("blocking", `,"consumer_request_id":"p2"`), []float64{20, 51, 0, 102}},
		{"background tool", rows(130) + tool("background", ""), []float64{20, 51, 0, 31}},
	} {
		tr := load(t, row.text, LoadOptions{Format: Dynamo})
		workloadtest.WantFloats(t, row.name, workloadtest.Arrivals(workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(11))), row.want...)
	}
}

func TestWekaPlay(t *testing.T) { // W18
	request := func(at, api float64, input, output int, ids string) string {
		return fmt.Sprintf(`{"type":"n","t":%v,"model":"m","in":%d,"out":%d,"hash_ids":[%s],"api_time":%v}`, at, input, output, ids, api)
	}
	text := `{"id":"tr","block_size":64,"hash_id_scope":"local","requests":[` + strings.Join([]string{
		request(0, .5, 128, 2, "1,2"),
		`{"type":"subagent","t":0.6,"agent_id":"ag","subagent_type":"x","status":"completed","duration_ms":400,"requests":[` + request(.7, .2, 64, 2, "9") + `]}`,
		request(1.25, .5, 200, 2, "1,2,3,4"), request(2, 0, 256, 0, "1,2,3,4")}, ",") + "]}\n"
	tr, err := Load([]string{write(t, "w.jsonl", text)}, LoadOptions{Format: Weka})
	if err != nil {
		t.Fatal(err)
	}
	all := workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(11))
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 700, 1250, 2000)
	if a, b, c := workloadtest.SharedBlocks(all[0], all[1]), workloadtest.SharedBlocks(all[0], all[2]), workloadtest.SharedBlocks(all[2], all[3]); a != 0 || b != 2 || c != 3 {
		t.Errorf("shared %d %d %d", a, b, c)
	}
	if all[1].RequestID != "weka:d31e103079951f1f:request:outer:1:inner:0" || all[1].Session != "weka:d31e103079951f1f:session:subagent:1:ag" {
		t.Errorf("%+v", all[1].Request)
	}
}

// One inner time before its marker makes all inner times of the source relative.
func TestWekaInnerTimesShareABasis(t *testing.T) {
	object := func(id string, inner float64) string {
		return fmt.Sprintf(`{"id":%q,"block_size":64,"hash_id_scope":"local","requests":[{"type":"n","t":0,"model":"m","in":64,"out":1,"api_time":0.1},`+
			`{"type":"subagent","t":0.5,"agent_id":"a","subagent_type":"x","status":"completed","requests":[{"type":"n","t":%v,"model":"m","in":64,"out":1}]}]}`+"\n", id, inner)
	}
	for _, row := range []struct {
		text  string
		basis string
		want  []float64
	}{
		{object("a", .6), "absolute", []float64{0, 600}},
		{object("a", .6) + object("b", .1), "relative", []float64{0, 1100, 0, 600}},
	} {
		tr, err := Load([]string{write(t, "w.jsonl", row.text)}, LoadOptions{Format: Weka})
		if err != nil {
			t.Fatal(err)
		}
		workloadtest.WantFloats(t, row.basis, workloadtest.Arrivals(workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(1))), row.want...)
		if g, _ := tr.Graph(); g.Basis.String() != row.basis {
			t.Errorf("basis %v, want %v", g.Basis, row.basis)
		}
	}
}

// The streams that the reference finds in lists of prompts, one second apart.
func TestWekaStreams(t *testing.T) {
	for _, row := range []struct {
		prompts [][]uint64
		want    []int // stream of each
	}{
		{[][]uint64{{1}, {2}, {3}, {4}}, []int{0, 0, 1, 2}},
		{[][]uint64{{1, 2}, {1, 3}, {1, 4}}, []int{0, 0, 0}},
		{[][]uint64{{1, 2}, {1, 3}, {1, 2, 5}}, []int{0, 1, 0}},
		{[][]uint64{{1, 2, 3}, {1}, {1, 2}}, []int{0, 0, 0}},
		{[][]uint64{{1, 2, 3}, {1}, {1, 2, 3, 6}}, []int{0, 1, 0}},
		{[][]uint64{{1}, {2}, {2}, {1}}, []int{0, 1, 1, 0}},
		{[][]uint64{{1}, {1}, {2}, {2}, {3}, {3}}, []int{0, 0, 1, 1, 2, 2}},
		{[][]uint64{{1, 2}, {3, 4}, {1, 5}}, []int{0, 1, 0}},
		{[][]uint64{{1, 2}, {3, 4}, {5, 6}, {3, 7}}, []int{0, 0, 1, 0}},
		{[][]uint64{{1}, {1, 2}, {1}, {1, 2}}, []int{0, 0, 1, 0}},
	} {
		var requests []*wekaRequest
		for i, ids := range row.prompts {
			requests = append(requests, &wekaRequest{ids: ids, sourceID: fmt.Sprintf("outer:%d", i), startS: float64(i), endS: float64(i) + .1, index: i})
		}
		got := make([]int, len(requests))
		for n, s := range splitStreams(requests) {
			for _, r := range s.requests {
				got[r.index] = n
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(row.want) {
			t.Errorf("%v: streams %v, want %v", row.prompts, got, row.want)
		}
	}
}

// Sessions and parents that the reference reports for requests that overlap, or that
// were recorded with two models.
func TestWekaForks(t *testing.T) {
	type call struct {
		t, api float64
		model  string
		ids    string
	}
	for _, row := range []struct {
		name  string
		calls []call
		want  string // stream<parent of each
	}{
		{"nothing shared, all overlap: spawned by the root", []call{{0, 1, "a", "1"}, {.2, 1, "a", "1,2"}, {.3, .2, "a", "9"}}, "0< 1<0 2<0"},
		{"nothing shared, one has ended: a barrier", []call{{0, .1, "a", "1"}, {.2, .8, "a", "1,2"}, {.3, .2, "a", "9"}}, "0< 0< 1<"},
		{"no barrier for a request of no width that starts with it", []call{{0, 1, "a", "7"}, {.5, 0, "a", "1"}, {.5, .1, "a", "2"}, {.6, .1, "a", "7,8"}}, "0< 1<0 2<0 3<0"},
		{"another model never continues, but forks", []call{{0, .4, "b", "1"}, {.6, .2, "a", "1"}}, "0< 1<0"},
		{"the closest counts whatever its model", []call{{.1, .2, "b", "3,4,5"}, {.2, .4, "a", "3,6"}, {.6, 1, "a", "3,4,5"}}, "0< 1<0 2<0"},
		{"a path that shrank forks at its last request", []call{{0, .1, "a", "1,3"}, {.4, .05, "a", "1"}, {.5, .1, "b", "1,8"}}, "0< 0< 1<1"},
		{"a stretch still to be extended stands alone", []call{{0, .1, "a", "1,2,4"}, {.2, .6, "a", "1,3"}, {.5, .2, "a", "1,7"}, {.9, .1, "a", "1,3,5"}}, "0< 0< 1<0 0<"},
		{"once extended it is part of its stream", []call{{0, .01, "a", "1,3"}, {.1, 0, "a", "1"}, {.2, .33, "a", "1"}, {.52, .3, "a", "1"}}, "0< 0< 0< 1<2"},
		{"of equals the first chain is extended", []call{{0, .5, "a", "1"}, {.3, .24, "a", "1"}, {1, 0, "a", "1"}, {1.2, .1, "a", "1,2"}}, "0< 1<0 0< 0<"},
	} {
		var requests []string
		for _, c := range row.calls {
			requests = append(requests, fmt.Sprintf(`{"type":"n","t":%v,"model":%q,"in":%d,"out":1,"hash_ids":[%s],"api_time":%v}`,
				c.t, c.model, 64*(1+strings.Count(c.ids, ",")), c.ids, c.api))
		}
		text := `{"id":"o","block_size":64,"hash_id_scope":"local","requests":[` + strings.Join(requests, ",") + "]}\n"
		tr := load(t, text, LoadOptions{Format: Weka})
		g, got := tr.graph, []string{}
		for i := range g.ids {
			parent := ""
			if k := g.parents[i]; k >= 0 {
				parent = g.ids[k][strings.LastIndexByte(g.ids[k], ':')+1:]
			}
			stream := 0
			if _, worker, ok := strings.Cut(g.sessions[i], ":worker:"); ok {
				if _, err := fmt.Sscan(worker, &stream); err != nil {
					t.Fatal(err)
				}
				stream++
			}
			got = append(got, fmt.Sprintf("%d<%s", stream, parent))
		}
		if text := strings.Join(got, " "); text != row.want {
			t.Errorf("%s: %s, want %s", row.name, text, row.want)
		}
		if roots := g.plays[0].roots; roots != 1 {
			t.Errorf("%s: %d roots", row.name, roots)
		}
	}
}

func TestLabelDigestIsBLAKE3(t *testing.T) {
	long := make([]byte, 5000) // vectors of the BLAKE3 authors: bytes 0..250, repeated
	for i := range long {
		long[i] = byte(i % 251)
	}
	for label, want := range map[string]string{
		"":                  "af1349b9f5f9a1a6",
		"w.jsonl#000001":    "d45d61ea265bffd6",
		string(long[:1024]): "42214739f095a406",
		string(long[:1025]): "d00278ae47eb27b3",
		string(long[:4096]): "015094013f57a527",
		string(long):        "ee78d92070de3df1",
	} {
		if sum := blakeText(label); hex.EncodeToString(sum[:8]) != want {
			t.Errorf("digest of %d bytes is %x, want %s", len(label), sum, want)
		}
	}
}
