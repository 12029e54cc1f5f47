package trace

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// authored is what only the digest of a graph needs of its nodes.
type authored struct {
	apiMs   []float64  // [node], recorded_api_time_ms; negative: not given
	outputs [][]uint32 // [node], output_token_ids; nil: not given
	ordinal bool       // the plays have numbers of their own
}

// incoming is one edge seen from its target.
type incoming struct {
	from int32
	edge
}

// GraphDigest returns the digest of an agentic trace whose times are divided by
// speedup, in hex; "" for another trace (spec report 14.2).
func (t *Trace) GraphDigest(speedup float64) string {
	if t.graph == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d, ok := t.graphDigests[speedup]; ok {
		return d
	}
	d := t.digestGraph(speedup)
	if t.graphDigests == nil {
		t.graphDigests = make(map[float64]string)
	}
	t.graphDigests[speedup] = d
	return d
}

func (t *Trace) digestGraph(speedup float64) string {
	g := t.graph
	var sum blake3
	deps := g.incoming()
	line := append(strconv.AppendInt([]byte(`{"block_size":`), int64(t.blockSize), 10), `,"nodes":[`...)
	for i := range g.ids {
		if i > 0 {
			line = append(line, ',')
		}
		line = t.appendNode(line, i, speedup)
		line = g.appendDependencies(line, deps[i], speedup)
		sum.Write(line)
		line = line[:0]
	}
	sum.Write([]byte("]}"))
	out := sum.Sum()
	return hex.EncodeToString(out[:])
}

// incoming returns the edges into each node by source, trigger, relation and delay.
func (g *graph) incoming() [][]incoming {
	in := make([][]incoming, len(g.ids))
	for i := range in {
		in[i] = make([]incoming, 0, g.waits[i])
	}
	for from := range g.ids {
		for _, e := range g.from(int32(from)) {
			in[e.to] = append(in[e.to], incoming{int32(from), e})
		}
	}
	for _, edges := range in {
		slices.SortStableFunc(edges, func(a, b incoming) int {
			return cmp.Or(cmp.Compare(a.from, b.from), strings.Compare(b.trigger.String(), a.trigger.String()),
				cmp.Compare(a.relation, b.relation), cmp.Compare(a.delayMs, b.delayMs))
		})
	}
	return in
}

// appendNode appends a node up to its dependencies.
func (t *Trace) appendNode(to []byte, i int, speedup float64) []byte {
	g, turn := t.graph, &t.turns[i]
	extra := &t.extras[turn.extra]
	play := g.playOf[i]
	to = appendJSON(append(to, `{"request_id":`...), g.ids[i])
	to = appendJSON(append(to, `,"play_id":`...), g.plays[play].id)
	if g.authored.ordinal {
		to = strconv.AppendInt(append(to, `,"source_play_ordinal":`...), int64(play), 10)
	}
	to = appendJSON(append(to, `,"session_id":`...), g.sessions[i])
	to = appendJSON(append(to, `,"model":`...), g.modelOf(int32(i)))
	to = strconv.AppendInt(append(to, `,"input_length":`...), int64(turn.input), 10)
	to = strconv.AppendInt(append(to, `,"max_output_tokens":`...), int64(turn.output), 10)
	to = append(to, `,"output_token_ids":`...)
	if ids := g.authored.outputs[i]; ids == nil {
		to = append(to, `null,"replay_key":null`...)
	} else {
		to = appendList(to, len(ids), func(k int) uint64 { return uint64(ids[k]) })
		to = appendJSON(append(to, `,"replay_key":`...), strings.TrimSpace(g.ids[i]))
	}
	nodes := t.nodes[turn.first:][:t.blocks(i)]
	to = appendList(append(to, `,"hash_ids":`...), len(nodes), func(k int) uint64 { return t.ids[nodes[k]] })
	to = appendFloat(append(to, `,"not_before_ms":`...), (turn.delayMs-g.zeroMs)/speedup)
	if api := g.authored.apiMs[i]; api >= 0 {
		to = appendFloat(append(to, `,"recorded_api_time_ms":`...), api)
	}
	to = strconv.AppendInt(append(to, `,"priority":`...), int64(extra.priority), 10)
	to = strconv.AppendUint(append(to, `,"strict_priority":`...), uint64(extra.strictPriority), 10)
	to = append(to, `,"policy_class":`...)
	if extra.policyClass == "" {
		return append(to, "null"...)
	}
	return appendJSON(to, extra.policyClass)
}

// appendDependencies appends the edges into a node and ends it.
func (g *graph) appendDependencies(to []byte, deps []incoming, speedup float64) []byte {
	to = append(to, `,"dependencies":[`...)
	for k, d := range deps {
		if k > 0 {
			to = append(to, ',')
		}
		to = appendJSON(append(to, `{"request_id":`...), g.ids[d.from])
		to = append(append(to, `,"trigger":"`...), d.trigger.String()...)
		to = appendFloat(append(to, `","delay_ms":`...), d.delayMs/speedup)
		to = append(append(to, `,"relation":"`...), d.relation.String()...)
		to = append(to, `"}`...)
	}
	return append(to, "]}"...)
}

// appendList appends n numbers, the k-th of which is at(k).
func appendList(to []byte, n int, at func(k int) uint64) []byte {
	to = append(to, '[')
	for k := range n {
		if k > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendUint(to, at(k), 10)
	}
	return append(to, ']')
}
