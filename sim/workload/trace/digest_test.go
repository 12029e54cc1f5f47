package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/workloadtest"
)

// The worked examples of spec report 14.3: a worker with passes of 10 and 2 ms.
func TestDigestsOfAGraphAndOfItsEvents(t *testing.T) {
	const head = `{"schema":"dynamo.agentic_mooncake","version":2,"block_size":64,"hash_id_scope":"local","source":{"format":"g","digest":"s"}}` + "\n"
	one := `{"request_id":"a","play_id":"p","session_id":"s","model":"m","input_length":64,"output_length":1,"hash_ids":[7],"not_before_ms":%d}` + "\n"
	two := `{"request_id":"b","play_id":"p","session_id":"s","model":"m","input_length":100,"output_length":2,"output_token_ids":[5,6],"hash_ids":[7,8],` +
		`"not_before_ms":0,"priority":1,"dependencies":[{"request_id":"a","trigger":"completion","delay_ms":0.5,"relation":"sequence"}]}` + "\n"
	for _, c := range []struct {
		name, text, graph, log string
		events                 int64
	}{
		{"E-A1", head + fmt.Sprintf(one, 0), "d6becad116e3614e3c928aee59424be3f418a531f4960cd99a4c9df0015b1459",
			"bc91866395987ff21d9439058527b2acf0c4a43d66ba3730ac5d7b0e59dfee0f", 4},
		{"E-A2", head + two + fmt.Sprintf(one, 3), "6037f52f94458a0ff7da4998cba09a55c4d1d8d20d1f8fae01df88741ac1c4e9",
			"5bb06d2b075e2f9690d600a817bd6c9e22391d4a8e863ecbe77662826454ed5b", 7},
	} {
		tr := load(t, c.text, agentic())
		if got := tr.GraphDigest(1); got != c.graph {
			t.Errorf("%s: graph %s", c.name, got)
		}
		src := source(t, tr, open(64))
		workloadtest.Serve(t, src, 64, func(r *workloadtest.Served) float64 { return 10 + 2*float64(r.OutputTokens-1) })
		if events, got := src.Lifecycle(); got != c.log || events != c.events {
			t.Errorf("%s: %d events, log %s", c.name, events, got)
		}
	}
	if load(t, sessionRows, mooncake(512)).GraphDigest(1) != "" {
		t.Error("a trace without a graph has a graph digest")
	}
}

// A speed-up divides times and delays, so it changes the digest of the graph.
func TestSpeedupChangesTheGraphDigest(t *testing.T) {
	rows := func(k float64) *Trace {
		return load(t, header64+node("a", "p", 8*k, "")+node("b", "p", 16*k, deps(dep("a", "completion", 4*k, "join"))), agentic())
	}
	if slow, fast := rows(1), rows(2); slow.GraphDigest(1) == fast.GraphDigest(1) || slow.GraphDigest(1) != fast.GraphDigest(2) {
		t.Error("the digest does not follow the times of the graph")
	}
}

// A lane is free at a play's last end, but the play is settled when its last blocks are.
func TestAPlayIsSettledWhenNothingOfItIsHeld(t *testing.T) {
	d := open(64)
	d.Laned, d.Lanes = true, 1
	src := source(t, load(t, header64+node("a", "p", 0, "")+node("b", "q", 0, ""), agentic()), d)
	a := src.Next(0)
	ordinal := a.Ordinal
	src.Done(a.Handle, 5, 2, workload.Completed)
	src.Flush(5)
	if src.NextMs() != 5 || src.Plays()[0].Status != "incomplete" {
		t.Errorf("next at %v, %+v", src.NextMs(), src.Plays())
	}
	src.Quiescent(ordinal, 7)
	src.Flush(7)
	if out := src.Plays()[0]; out.Status != "completed" || out.SettledMs != 7 || out.TerminalMs != 5 {
		t.Errorf("%+v", out)
	}
	if events, _ := src.Lifecycle(); events != 4 {
		t.Errorf("%d events", events)
	}
}

func TestFloatsOfDigests(t *testing.T) {
	for want, v := range map[string]float64{"0.0": 0, "10.0": 10, "0.00001234": 0.00001234, "1e-6": 1e-6, "1.5e-10": 1.5e-10,
		"1234567890123456.0": 1234567890123456, "1e+16": 1e16, "1.5e+300": 1.5e300, "0.00001": 1e-5, "9.999e-6": 9.999e-6, "-2.5": -2.5} {
		if got := string(appendFloat(nil, v)); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

// W20: the smallest source, and the edges of four small ones.
func TestWekaGraphs(t *testing.T) {
	const smallest = `{"id":"x","block_size":64,"hash_id_scope":"local","requests":[{"type":"n","t":0,"model":"m","in":100,"out":1,"hash_ids":[1]}]}`
	tr := loadWekaFile(t, "w.json", smallest)
	s, _ := tr.Graph()
	if s.Source.Digest != "813a0f6be27fc9664854238eb3e3991622b67d19bddc9a753a4bc6faa023688e" ||
		tr.GraphDigest(1) != "c5d05c40c9bb1db322df9a052119febd6e03bcf3b8fbfb72fb77c915dbbdda12" ||
		tr.graph.ids[0] != "weka:58f0c520b7fdbb54:request:outer:0" || s.Basis.String() != "not_applicable" {
		t.Errorf("%+v, graph %s, %s", s, tr.GraphDigest(1), tr.graph.ids[0])
	}
	if got := []uint64{tr.ids[tr.nodes[0]], tr.ids[tr.nodes[1]]}; got[0] != 7990404934477563056 || got[1] != 10331727794083465290 {
		t.Errorf("hash ids %d", got)
	}
	for _, c := range []struct{ name, requests, want string }{
		{"forked anew", "0 .3 1 1,2,3;.3 .1 1 1;.3 .1 1 1,2,4", "0:root 1:worker:0 2:root | 0>2 sequence 0, 2>1 spawn! 0, 0>1 replay_barrier 0"},
		{"no hashes", "0 .1 1 1,2;.2 .5 1 ;.3 .1 1 5;.5 .1 1 1,2,9", "0:root 1:root 2:worker:0 3:root | 0>1 sequence 100, 0>2 replay_barrier 0, 1>3 sequence 0, 2>3 replay_barrier 0"},
		{"lone first", "0 .1 64 9,5;.2 .1 1 1,5;.4 .1 1 1,5,6", "0:root 1:root 2:root | 0>1 sequence 100, 1>2 sequence 100"},
		{"long lone first", "0 .1 80 9,5;.2 .1 1 1,5;.4 .1 1 1,5,6", "0:root 1:worker:0 2:worker:0 | 0>1 replay_barrier 0, 1>2 sequence 100, 0>2 replay_barrier 0"},
	} {
		if got := shape(loadWekaFile(t, "w.json", wekaOf(c.requests))); !sameEdges(got, c.want) {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// wekaOf makes a source of requests "t api out ids".
func wekaOf(requests string) string {
	var rows []string
	for _, r := range strings.Split(requests, ";") {
		f := strings.SplitN(r, " ", 4)
		n := max(1, len(strings.Split(f[3], ",")))
		rows = append(rows, fmt.Sprintf(`{"type":"n","t":0%s,"api_time":0%s,"model":"m","in":%d,"out":%s,"hash_ids":[%s]}`,
			strings.TrimPrefix(f[0], "0"), f[1], 64*n, f[2], f[3]))
	}
	return `{"id":"x","block_size":64,"hash_id_scope":"local","requests":[` + strings.Join(rows, ",") + `]}`
}

// shape writes the stream of each request and the edges; ! marks those on dispatch.
func shape(tr *Trace) string {
	g := tr.graph
	var streams, edges []string
	for i, id := range g.ids {
		name := id[strings.LastIndex(id, ":")+1:]
		streams = append(streams, name+strings.SplitAfterN(g.sessions[i], "session", 2)[1])
		for _, e := range g.from(int32(i)) {
			mark := ""
			if e.trigger == onDispatch {
				mark = "!"
			}
			to := g.ids[e.to]
			edges = append(edges, fmt.Sprintf("%s>%s %s%s %v", name, to[strings.LastIndex(to, ":")+1:], e.relation, mark, e.delayMs))
		}
	}
	for i := range streams {
		streams[i] = strings.Replace(streams[i], ":root:worker", ":worker", 1)
	}
	return strings.Join(streams, " ") + " | " + strings.Join(edges, ", ")
}

// sameEdges compares two shapes with their edges in any order.
func sameEdges(a, b string) bool {
	x, y := strings.SplitN(a, " | ", 2), strings.SplitN(b, " | ", 2)
	count := map[string]int{}
	for _, e := range strings.Split(x[1], ", ") {
		count[e]++
	}
	for _, e := range strings.Split(y[1], ", ") {
		count[e]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return x[0] == y[0]
}

func loadWekaFile(t *testing.T, name, text string) *Trace {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := Load([]string{path}, LoadOptions{Format: Weka})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// The digests of 50 random sources, with several objects and files, subagents, two
// models, requests without hashes and times moved by less than the tolerance. Origin:
// a model of spec workload 2.8 whose digests are those of the reference.
func TestWekaDigestsOfRandomSources(t *testing.T) {
	packed, err := os.ReadFile("testdata/weka-sources.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	in := bufio.NewScanner(z)
	in.Buffer(nil, 1<<20)
	for ; in.Scan(); n++ {
		var c struct {
			Files                map[string]string
			Single               bool
			Speedup              float64
			Graph, Source, Basis string
		}
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		path := dir
		for name, text := range c.Files {
			file := filepath.Join(dir, filepath.FromSlash(name))
			if c.Single {
				path = file
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tr, err := Load([]string{path}, LoadOptions{Format: Weka})
		if err != nil {
			t.Errorf("source %d: %v", n, err)
			continue
		}
		s, _ := tr.Graph()
		if got := tr.GraphDigest(c.Speedup); got != c.Graph || s.Source.Digest != c.Source || s.Basis.String() != c.Basis {
			t.Errorf("source %d: graph %s, source %s, basis %s; want %s, %s, %s", n, got, s.Source.Digest, s.Basis, c.Graph, c.Source, c.Basis)
		}
	}
	if n != 50 {
		t.Errorf("%d sources", n)
	}
}

// Of plays that end together the one whose last node comes first frees its lane first,
// whatever other nodes of the plays end with it.
func TestLanesAreFreedInOrderOfTheLastNodes(t *testing.T) {
	d := open(64)
	d.Laned, d.Lanes = true, 2
	tr := load(t, header64+node("a", "p", 0, "")+node("z", "p", 0, "")+node("m", "q", 0, "")+node("n", "r", 0, "")+node("o", "s", 0, ""), agentic())
	lane := map[string]string{}
	for _, r := range workloadtest.Serve(t, source(t, tr, d), 64, workloadtest.Constant(10)) {
		lane[r.PlayID] = r.LaneID
	}
	if lane["p"] != "lane:0" || lane["q"] != "lane:1" || lane["r"] != "lane:1" || lane["s"] != "lane:0" {
		t.Errorf("%v", lane)
	}
}
