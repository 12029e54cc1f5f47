package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// trigger is the moment of the earlier request at which a dependency fires.
type trigger uint8

const (
	onCompletion trigger = iota
	onDispatch
)

func (t trigger) String() string { return [...]string{"completion", "dispatch"}[t] }

// relation says why a request depends on another; it does not change timing.
type relation uint8

const (
	sequence relation = iota
	spawn
	join
	replayBarrier
)

var relationNames = [...]string{"sequence", "spawn", "join", "replay_barrier"}

func (r relation) String() string { return relationNames[r] }

// dependency is one edge as read: a node waits for from.
type dependency struct {
	from     string
	trigger  trigger
	relation relation
	delayMs  float64
}

// graphNode is one request of an agentic trace as read. Its lengths and blocks are
// the builder's turn of the same number.
type graphNode struct {
	id, play, session, model string
	ordinal                  int // of its play in the source; -1: not given
	at                       spot
	notBeforeMs              float64
	deps                     []dependency
	apiMs                    float64  // recorded_api_time_ms; negative: not given
	outputIDs                []uint32 // nil: not given
}

// graph is what an agentic trace has beside its turns. Nodes are the turns of the
// trace, sorted by request id.
type graph struct {
	source   Provenance
	ids      []string // [node]
	sessions []string // [node]
	playOf   []int32  // [node]
	waits    []int32  // [node], number of dependencies
	parents  []int32  // [node], the first node by id that spawns it; -1: none
	edges    []edge   // sorted by source node
	firstOf  []int32  // [node], its edges are edges[firstOf[node]:firstOf[node+1]]
	plays    []play
	members  []int32  // nodes by play, then node
	models   []string // of the nodes, sorted
	model    []int32  // [node], index in models
	zeroMs   float64  // the clock's 0: the smallest not_before
	basis    WekaTimestamps
	authored authored
}

type edge struct {
	to       int32
	trigger  trigger
	relation relation
	delayMs  float64
}

type play struct {
	id     string
	first  int32   // its nodes are members[first:next.first]
	rootMs float64 // smallest not_before of its roots
	root   int32   // its only root; -1 if it has several
	roots  int32
}

// Provenance is what an agentic trace says of its origin.
type Provenance struct{ Format, Digest string }

// GraphSummary is what a report says of an agentic trace.
type GraphSummary struct {
	Source       Provenance
	BlockSize    int
	Nodes, Plays int
	Models       []string       // sorted
	Basis        WekaTimestamps // weka only: what inner times counted from
}

// Graph summarizes an agentic trace; false for another.
func (t *Trace) Graph() (GraphSummary, bool) {
	g := t.graph
	if g == nil {
		return GraphSummary{}, false
	}
	return GraphSummary{Source: g.source, BlockSize: t.blockSize, Nodes: len(g.ids), Plays: len(g.plays), Models: g.models, Basis: g.basis}, true
}

// finishGraph sorts the nodes by request id, resolves their dependencies and checks
// the graph (spec workload 2.4). nodes[i] is turn i of the builder.
func (b *builder) finishGraph(path string, nodes []graphNode, source Provenance) (*Trace, error) {
	t := b.t
	if len(nodes) == 0 {
		return nil, &InputError{File: path, Msg: fmt.Sprintf("agentic trace file %s did not contain any requests", path)}
	}
	rank := make([]int32, len(nodes)) // [sorted position]
	for i := range rank {
		rank[i] = int32(i)
	}
	slices.SortFunc(rank, func(x, y int32) int { return strings.Compare(nodes[x].id, nodes[y].id) })
	sorted, turns := make([]graphNode, len(nodes)), make([]traceTurn, len(nodes))
	at := make(map[string]int32, len(nodes))
	for i, k := range rank {
		sorted[i], turns[i] = nodes[k], t.turns[k]
		turns[i].delayMs = nodes[k].notBeforeMs
		at[nodes[k].id] = int32(i)
	}
	t.turns, t.nodeCount = turns, b.chain.len()
	g := &graph{source: source}
	t.graph = g
	if err := g.connect(sorted, at); err != nil {
		return nil, err
	}
	if err := g.acyclic(sorted); err != nil {
		return nil, err
	}
	if err := g.makePlays(path, sorted); err != nil {
		return nil, err
	}
	g.zeroMs = math.Inf(1)
	for i := range t.turns {
		g.zeroMs = min(g.zeroMs, t.turns[i].delayMs)
		p := &g.plays[g.playOf[i]]
		if g.waits[i] == 0 {
			p.rootMs = min(p.rootMs, t.turns[i].delayMs)
			p.root = int32(i)
			if p.roots++; p.roots > 1 {
				p.root = -1
			}
		}
	}
	for i := range sorted {
		g.models = append(g.models, sorted[i].model)
		g.authored.apiMs = append(g.authored.apiMs, sorted[i].apiMs)
		g.authored.outputs = append(g.authored.outputs, sorted[i].outputIDs)
	}
	g.authored.ordinal = sorted[0].ordinal >= 0
	slices.Sort(g.models)
	g.models = slices.Compact(g.models)
	for i := range sorted {
		k, _ := slices.BinarySearch(g.models, sorted[i].model)
		g.model = append(g.model, int32(k))
	}
	t.total()
	return t, nil
}

// connect resolves dependencies into edges by source.
func (g *graph) connect(nodes []graphNode, at map[string]int32) error {
	n := len(nodes)
	g.ids, g.sessions = make([]string, n), make([]string, n)
	g.waits, g.firstOf = make([]int32, n), make([]int32, n+1)
	g.parents = make([]int32, n)
	for i := range nodes {
		node := &nodes[i]
		g.ids[i], g.sessions[i], g.parents[i] = node.id, node.session, -1
		for _, d := range node.deps {
			from, ok := at[d.from]
			switch {
			case !ok:
				return node.at.fail(nil, "request %s references unknown request_id %s", node.id, d.from)
			case int(from) == i:
				return node.at.fail(nil, "request %s cannot depend on itself", node.id)
			case nodes[from].play != node.play:
				return node.at.fail(nil, "request %s in play %s depends on request %s in play %s", node.id, node.play, d.from, nodes[from].play)
			}
			g.firstOf[from+1]++
			g.waits[i]++
			if p := g.parents[i]; d.relation == spawn && (p < 0 || from < p) {
				g.parents[i] = from
			}
		}
	}
	for i := range n {
		g.firstOf[i+1] += g.firstOf[i]
	}
	g.edges = make([]edge, g.firstOf[n])
	next := slices.Clone(g.firstOf[:n])
	for i := range nodes {
		for _, d := range nodes[i].deps {
			from := at[d.from]
			g.edges[next[from]] = edge{to: int32(i), trigger: d.trigger, relation: d.relation, delayMs: d.delayMs}
			next[from]++
		}
	}
	return nil
}

// acyclic refuses a graph in which some nodes wait for each other.
func (g *graph) acyclic(nodes []graphNode) error {
	left := slices.Clone(g.waits)
	var todo []int32
	for i, n := range left {
		if n == 0 {
			todo = append(todo, int32(i))
		}
	}
	seen := 0
	for ; seen < len(todo); seen++ {
		for _, e := range g.from(todo[seen]) {
			if left[e.to]--; left[e.to] == 0 {
				todo = append(todo, e.to)
			}
		}
	}
	if seen == len(nodes) {
		return nil
	}
	var blocked []string
	var first spot
	for i, n := range left {
		if n > 0 && len(blocked) < 8 {
			first = cmp.Or(first, nodes[i].at)
			blocked = append(blocked, nodes[i].id)
		}
	}
	return first.fail(nil, "cycle detected among %d agentic requests; blocked request IDs: %s", len(nodes)-seen, strings.Join(blocked, ", "))
}

// modelOf returns the model that a node was recorded with.
func (g *graph) modelOf(node int32) string { return g.models[g.model[node]] }

// from returns the edges that start at a node.
func (g *graph) from(node int32) []edge { return g.edges[g.firstOf[node]:g.firstOf[node+1]] }

// makePlays groups the nodes by play and puts the plays in order: by ordinal where
// the source gives them, else by id.
func (g *graph) makePlays(path string, nodes []graphNode) error {
	ordinalOf := make(map[string]int)
	var ids []string
	for i := range nodes {
		n := &nodes[i]
		ordinal, ok := ordinalOf[n.play]
		if !ok {
			ordinalOf[n.play] = n.ordinal
			ids = append(ids, n.play)
		} else if ordinal != n.ordinal {
			return n.at.fail(nil, "play %s has inconsistent source_play_ordinal values", n.play)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(ordinalOf[a], ordinalOf[b]), strings.Compare(a, b))
	})
	if ordinalOf[ids[len(ids)-1]] >= 0 {
		for i, id := range ids {
			if ordinalOf[id] < 0 {
				return &InputError{File: path, Msg: "source_play_ordinal must be set for every play when it is used"}
			}
			if ordinalOf[id] != i {
				return &InputError{File: path, Msg: fmt.Sprintf("source_play_ordinal values must be unique and contiguous from 0; expected %d, found %d", i, ordinalOf[id])}
			}
		}
	}
	g.group(nodes, ids)
	return nil
}

// group books every node in its play.
func (g *graph) group(nodes []graphNode, ids []string) {
	number := make(map[string]int32, len(ids))
	g.plays = make([]play, len(ids)+1)
	for i, id := range ids {
		number[id] = int32(i)
		g.plays[i] = play{id: id, rootMs: math.Inf(1)}
	}
	g.playOf = make([]int32, len(nodes))
	for i := range nodes {
		g.playOf[i] = number[nodes[i].play]
		g.plays[g.playOf[i]+1].first++
	}
	for i := range ids {
		g.plays[i+1].first += g.plays[i].first
	}
	g.members = make([]int32, len(nodes))
	next := make([]int32, len(ids))
	for i, p := range g.playOf {
		g.members[g.plays[p].first+next[p]] = int32(i)
		next[p]++
	}
	// The entry that ends the last play is not one itself: members is all it is for.
	g.plays = g.plays[:len(ids)]
}

// nodesOf returns the nodes of a play, ascending.
func (g *graph) nodesOf(p int32) []int32 {
	to := int32(len(g.members))
	if int(p)+1 < len(g.plays) {
		to = g.plays[p+1].first
	}
	return g.members[g.plays[p].first:to]
}

// nameComponents sets the play of every node to the connected component it is in,
// named by prefix and the root with the smallest (not_before, id).
func nameComponents(nodes []graphNode, prefix string) {
	at := make(map[string]int, len(nodes))
	up := make([]int, len(nodes))
	for i := range nodes {
		at[nodes[i].id], up[i] = i, i
	}
	find := func(i int) int {
		for up[i] != i {
			up[i] = up[up[i]]
			i = up[i]
		}
		return i
	}
	for i := range nodes {
		for _, d := range nodes[i].deps {
			if from, ok := at[d.from]; ok {
				up[find(i)] = find(from)
			}
		}
	}
	first := make([]int, len(nodes)) // [component], best root + 1
	for i := range nodes {
		if c := find(i); len(nodes[i].deps) == 0 {
			if k := first[c] - 1; k < 0 || cmp.Or(cmp.Compare(nodes[i].notBeforeMs, nodes[k].notBeforeMs), strings.Compare(nodes[i].id, nodes[k].id)) < 0 {
				first[c] = i + 1
			}
		}
	}
	for i := range nodes {
		nodes[i].play = prefix
		if k := first[find(i)] - 1; k >= 0 {
			nodes[i].play = prefix + nodes[k].id
		}
	}
}
