package router

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/kv"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected output of testdata/*.txt")

// TestScripts runs the worked examples of spec kv-router 12, without an engine: a
// script says when prefills end and which blocks an engine announces. A block of
// commands ends with a line `----`; the expected output follows up to an empty
// line. Workers are named in the order of first use, since the first pick on idle
// workers is a tie. A placement prints worker, selected/best overlap and the cost
// of every candidate in order of worker and rank.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var result strings.Builder
	d := &driver{t: t}
	for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		commands, want, found := strings.Cut(block+"\n", "----\n")
		if !found { // a comment
			result.WriteString(block + "\n\n")
			continue
		}
		d.out.Reset()
		for _, line := range strings.Split(strings.TrimSpace(commands), "\n") {
			if !strings.HasPrefix(line, "#") {
				d.run(line)
			}
		}
		if got := d.out.String(); got != want && !*rewrite {
			t.Errorf("%s\ngot:\n%swant:\n%s", commands, got, want)
		}
		result.WriteString(commands + "----\n" + d.out.String() + "\n")
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(result.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// driver drives one router by commands of the form `verb key=value ...`.
type driver struct {
	t       *testing.T
	k       *KV
	block   int32
	prompts map[int32]driven
	names   map[Rank]string
	used    int
	ids     map[[2]int]uint32
	out     strings.Builder
}

type driven struct {
	prompt kv.Prompt
	blocks int32
	at     Rank
}

type args map[string]string

func (a args) num(key string) float64 {
	f, _ := strconv.ParseFloat(a[key], 64)
	return f
}

func (a args) or(key string, otherwise int) int {
	if s, ok := a[key]; ok {
		n, _ := strconv.Atoi(s)
		return n
	}
	return otherwise
}

func (d *driver) run(line string) {
	words := strings.Fields(line)
	a := args{}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		a[key] = value
	}
	req, now := int32(a.or("id", 0)), a.num("t")
	switch words[0] {
	case "new":
		d.start(a)
	case "place":
		d.place(a, req, now)
	case "cached": // an engine announces the prompt's blocks, at the end of a pass
		d.announce(req, now)
	case "evicted": // or gives up all but keep of them
		d.evicted(req, a, now)
	case "prefilled": // a pass ends: events, then the first token
		d.announce(req, now)
		d.released(d.k.PrefillCompleted(req, now, nil))
	case "prefill":
		d.released(d.k.PrefillCompleted(req, now, nil))
	case "terminal":
		d.released(d.k.Terminal(req, now, nil))
	case "cancel":
		fmt.Fprintln(&d.out, d.k.CancelPending(req))
	case "ready":
		d.k.WorkerReady(int32(a.or("w", 0)), now)
	case "draining":
		d.k.WorkerDraining(d.worker(a["w"]), now)
	case "removed":
		d.k.WorkerRemoved(d.worker(a["w"]), now)
	case "settled":
		d.released(d.k.TopologySettled(now, nil))
	case "busy":
		fmt.Fprintln(&d.out, d.k.allBusy(&d.k.cfg.Profile.Classes[0], now))
	default:
		d.t.Fatalf("unknown command %q", line)
	}
	if err := d.k.book.check(); err != nil {
		d.t.Errorf("%s: %v", line, err)
	}
}

func (d *driver) start(a args) {
	doc, err := ParseDocument("", []byte(cmpOr(a["config"], "{}")))
	if err != nil {
		d.t.Fatal(err)
	}
	with := Completion{ModelName: a["model"]}
	if a["policy"] != "" {
		text, err := os.ReadFile(filepath.Join("testdata", a["policy"]))
		if err != nil {
			d.t.Fatal(err)
		}
		if with.Policy, err = policy(string(text)); err != nil {
			d.t.Fatal(err)
		}
	}
	if tokens := a.num("tokens_per_ms"); tokens > 0 {
		with.Estimator = linear(tokens)
	}
	cfg, err := doc.Config(with)
	if err != nil {
		d.t.Fatal(err)
	}
	side := map[string]Side{"": Aggregated, "prefill": Prefill, "decode": Decode}[a["side"]]
	d.block = int32(a.or("block", 64))
	d.k, err = NewKV(Options{Config: cfg, Side: side, BlockSize: int(d.block), DPSize: a.or("dp", 1),
		MaxBatchedTokens: a.or("batch", 8192), EventLagMs: a.num("lag"), Seed: uint64(a.or("seed", 0))})
	if err != nil {
		d.t.Fatal(err)
	}
	for w := range a.or("workers", 2) {
		d.k.WorkerReady(int32(w), 0)
	}
	d.prompts, d.names, d.used, d.ids = map[int32]driven{}, map[Rank]string{}, 0, map[[2]int]uint32{}
}

// linear is a stand-in estimator: so many uncached tokens per ms, prefix for free.
type linear float64

func (l linear) PrefillMs(_, uncached, _ int) (float64, error) {
	return float64(uncached) / float64(l), nil
}

func cmpOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// prompt interns trace ids written as `0+16,900` (first+count) into a chain; each
// covers ratio engine blocks.
func (d *driver) prompt(text string, ratio int) kv.Prompt {
	var nodes []uint32
	parent := -1
	for _, part := range strings.Split(text, ",") {
		first, count, many := strings.Cut(part, "+")
		id, _ := strconv.Atoi(first)
		n := 1
		if many {
			n, _ = strconv.Atoi(count)
		}
		for i := range n {
			key := [2]int{parent, id + i}
			node, ok := d.ids[key]
			if !ok {
				node = uint32(len(d.ids))
				d.ids[key] = node
			}
			nodes = append(nodes, node)
			parent = int(node)
		}
	}
	return kv.Prompt{Nodes: nodes, Ratio: int32(ratio), Shared: int32(len(nodes) * ratio), Base: kv.PrivateBase(99)}
}

func (d *driver) place(a args, req int32, now float64) {
	p := d.prompt(a["ids"], a.or("ratio", 1))
	isl := int32(a.or("isl", 0))
	d.prompts[req] = driven{prompt: p, blocks: isl / d.block}
	route, queued, err := d.k.Place(Request{ID: req, ISL: isl, Prompt: &p, Priority: int32(a.or("priority", 0)),
		StrictPriority: uint32(a.or("strict", 0)), PolicyClass: a["class"]}, now)
	switch {
	case err != nil:
		fmt.Fprintf(&d.out, "R%d error: %v\n", req, err)
	case queued:
		fmt.Fprintf(&d.out, "R%d queued\n", req)
	default:
		d.print(route)
	}
}

func (d *driver) print(r Route) {
	at := Rank{r.Worker, r.Rank}
	if d.names[at] == "" {
		d.names[at] = string(rune('A' + d.used))
		d.used++
	}
	dr := d.prompts[r.Req]
	dr.at = at
	d.prompts[r.Req] = dr
	fmt.Fprintf(&d.out, "R%d %s %d/%d of %d:", r.Req, d.names[at], r.OverlapBlocks, r.BestBlocks, r.ISLBlocks)
	costs := map[string]float64{}
	idle := 0
	for i, c := range d.k.cost {
		name := d.names[d.k.book.ranks[d.k.eligible[i]].Rank]
		if name == "" {
			name = "?" + strconv.Itoa(idle)
			idle++
		}
		costs[name] = c
	}
	for i := range d.used {
		if c, ok := costs[string(rune('A'+i))]; ok {
			fmt.Fprintf(&d.out, " %c=%v", 'A'+i, c)
		}
	}
	for i := range idle {
		fmt.Fprintf(&d.out, " ?=%v", costs["?"+strconv.Itoa(i)])
	}
	fmt.Fprintln(&d.out)
}

func (d *driver) released(routes []Route, err error) {
	if err != nil {
		fmt.Fprintln(&d.out, err)
	}
	for _, r := range routes {
		d.print(r)
	}
}

func (d *driver) announce(req int32, now float64) {
	dr := d.prompts[req]
	var ev kv.Events
	ev.BeginStored(0, false)
	for i := range dr.blocks {
		ev.Add(dr.prompt.Block(int(i)))
	}
	if d.k.WantsEvents() {
		d.k.Observe(dr.at, &ev, now)
	}
}

func (d *driver) evicted(req int32, a args, now float64) {
	dr := d.prompts[req]
	var ev kv.Events
	ev.BeginRemoved()
	for i := int(dr.blocks) - 1; i >= a.or("keep", 0); i-- {
		ev.Add(dr.prompt.Block(i))
	}
	d.k.Observe(dr.at, &ev, now)
}

// worker finds a worker by its printed name or by number.
func (d *driver) worker(name string) int32 {
	for at, n := range d.names {
		if n == name {
			return at.Worker
		}
	}
	n, _ := strconv.Atoi(name)
	return int32(n)
}
