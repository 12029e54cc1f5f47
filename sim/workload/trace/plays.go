package trace

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/dynosweep/dynosweep/sim/workload"
)

// plays is the graph driver (spec workload 3.4, 3.5): a node becomes ready when its
// last dependency has fired and not before its own time. With lanes only so many
// plays run at once, in play order, each on the clock of its start.
type plays struct {
	trace   *Trace
	graph   *graph
	view    *view
	drive   Drive
	slots   workload.InFlight
	ready   workload.TurnHeap // released nodes are not in it; ref.Index is the node
	readyMs []float64         // [node], the latest bound so far
	waits   []int32           // [node], dependencies that have not fired; released: -1
	state   []playState       // [play]
	pending int32             // the next play without a lane; all have started: len(state)
	left    int               // nodes that may still be released
	ended   []nodeEnd         // since the last Flush
	quiet   []int32           // nodes of which nothing is held any more, since the last Flush
	log     lifecycle
}

var _ workload.Source = (*plays)(nil)

// playState is one play of a run.
type playState struct {
	lane       string  // "" without lanes, or before it has one
	startMs    float64 // first release; NaN before
	terminalMs float64 // when the last node completed, or the first one failed
	settledMs  float64 // when nothing of it was held any more
	open       int32   // nodes not completed
	inflight   int32   // nodes released and not ended
	held       int32   // nodes released and not quiescent
	unreleased int32
	failedNode int32 // whose end failed the play
	failedBy   workload.Outcome
	failed     bool
	finished   bool // completed, or failed with nothing in flight
	settled    bool // finished and nothing held
}

type nodeEnd struct {
	node int32
	how  workload.Outcome
	atMs float64
}

// newPlays returns the driver of an agentic trace.
func newPlays(t *Trace, d Drive) (*plays, error) {
	v, err := t.at(d.BlockSize)
	if err != nil {
		return nil, err
	}
	g := t.graph
	n := len(t.turns)
	p := &plays{trace: t, graph: g, view: v, drive: d, left: n, log: lifecycle{graph: g},
		readyMs: make([]float64, n), waits: slices.Clone(g.waits), state: make([]playState, len(g.plays))}
	for i := range p.state {
		nodes := int32(len(g.nodesOf(int32(i))))
		p.state[i] = playState{startMs: math.NaN(), terminalMs: math.NaN(), settledMs: math.NaN(), open: nodes, unreleased: nodes}
	}
	first := len(p.state)
	if d.Laned {
		first = min(first, d.Lanes)
	}
	for lane := range first {
		p.startNext(0, laneID(d, lane))
	}
	return p, nil
}

// laneID names a lane; "" without lanes.
func laneID(d Drive, lane int) string {
	if !d.Laned {
		return ""
	}
	return "lane:" + strconv.Itoa(lane)
}

// startNext starts the next pending play, if there is one, at atMs in a lane.
func (p *plays) startNext(atMs float64, lane string) {
	if int(p.pending) == len(p.state) {
		return
	}
	number := p.pending
	p.pending++
	p.state[number].lane = lane
	for _, node := range p.graph.nodesOf(number) {
		p.readyMs[node] = (p.trace.turns[node].delayMs - p.graph.zeroMs) / p.drive.Speedup
		if p.drive.Laned {
			rootMs := (p.graph.plays[number].rootMs - p.graph.zeroMs) / p.drive.Speedup
			p.readyMs[node] = atMs + max(0, p.readyMs[node]-rootMs)
		}
		if p.waits[node] == 0 {
			p.push(node)
		}
	}
}

func (p *plays) push(node int32) {
	p.ready.Push(workload.Turn{ReadyMs: p.readyMs[node], Ref: workload.SessionRef{Index: int64(node)}})
}

func (p *plays) NextMs() float64 {
	if len(p.ready) == 0 {
		return math.Inf(1)
	}
	return p.ready[0].ReadyMs
}

func (p *plays) BeginRelease(float64, int) {}

func (p *plays) Next(nowMs float64) *workload.Request {
	if p.NextMs() > nowMs {
		return nil
	}
	e := p.ready.Pop()
	node := int32(e.Ref.Index)
	s := p.slots.Start(e.Ref, -1, e.ReadyMs)
	t, g := p.trace, p.graph
	t.fill(&s.Request, int(node))
	s.Prompt = p.view.prompt(t, int(node), p.drive.BlockSize)
	st := &p.state[g.playOf[node]]
	if math.IsNaN(st.startMs) {
		st.startMs = nowMs
	}
	st.inflight++
	st.held++
	st.unreleased--
	p.waits[node] = -1
	p.log.node(nowMs, node, "dispatch", "")
	p.left--
	p.fire(node, onDispatch, nowMs)
	return &s.Request
}

func (p *plays) Names(handle int32) workload.Names {
	g, node := p.graph, p.slots.At(handle).Ref.Index
	pl := &g.plays[g.playOf[node]]
	n := workload.Names{Session: g.sessions[node], Turn: -1, HasSession: true,
		RequestID: g.ids[node], PlayID: pl.id, LaneID: p.state[g.playOf[node]].lane}
	if pl.root >= 0 {
		n.RootID = g.ids[pl.root]
	}
	if parent := g.parents[node]; parent >= 0 {
		n.ParentID = g.ids[parent]
	}
	return n
}

// fire lets the edges of one kind that leave a node act.
func (p *plays) fire(node int32, on trigger, atMs float64) {
	if p.state[p.graph.playOf[node]].failed {
		return
	}
	for _, e := range p.graph.from(node) {
		if e.trigger != on {
			continue
		}
		p.readyMs[e.to] = max(p.readyMs[e.to], atMs+e.delayMs/p.drive.Speedup)
		if p.waits[e.to]--; p.waits[e.to] == 0 {
			p.push(e.to)
		}
	}
}

func (p *plays) Done(handle int32, nowMs float64, _ int32, how workload.Outcome) {
	s := p.slots.End(handle)
	p.ended = append(p.ended, nodeEnd{node: int32(s.Ref.Index), how: how, atMs: nowMs})
}

// Quiescent notes that nothing of a node is held any more; its end is noted by now.
func (p *plays) Quiescent(ordinal int64, _ float64) { p.quiet = append(p.quiet, int32(ordinal)) }

// Flush applies what came since the last one, by node: first the ends, with what they
// free, then what is quiescent (spec report 14.1).
func (p *plays) Flush(nowMs float64) {
	if len(p.ended) > 0 {
		slices.SortFunc(p.ended, func(a, b nodeEnd) int { return cmp.Compare(a.node, b.node) })
		for _, end := range p.ended {
			p.end(end)
		}
		p.ended = p.ended[:0]
	}
	if len(p.quiet) == 0 {
		return
	}
	slices.Sort(p.quiet)
	for _, node := range p.quiet {
		number := p.graph.playOf[node]
		st := &p.state[number]
		p.log.node(nowMs, node, "quiescent", "")
		if st.held--; st.finished && !st.settled && st.held == 0 {
			st.settled, st.settledMs = true, nowMs
			p.log.play(nowMs, number)
		}
	}
	p.quiet = p.quiet[:0]
}

// end applies the end of one node. The lane of a play that is finished goes to the
// next one, though a prefill worker may still hold blocks of it.
func (p *plays) end(e nodeEnd) {
	st := &p.state[p.graph.playOf[e.node]]
	p.log.node(e.atMs, e.node, "causal_terminal", e.how.String())
	st.inflight--
	if e.how != workload.Completed {
		p.fail(e)
	} else {
		st.open--
		if !st.failed {
			st.terminalMs = e.atMs
		}
		p.fire(e.node, onCompletion, e.atMs)
	}
	if !st.finished && st.inflight == 0 && (st.failed || st.open == 0) {
		st.finished = true
		p.startNext(e.atMs, st.lane)
	}
}

// fail ends a play: what it has not released is skipped.
func (p *plays) fail(e nodeEnd) {
	number := p.graph.playOf[e.node]
	st := &p.state[number]
	if st.failed {
		return
	}
	st.failed, st.terminalMs = true, e.atMs
	st.failedNode, st.failedBy = e.node, e.how
	p.left -= int(st.unreleased)
	st.unreleased = 0
	for _, node := range p.graph.nodesOf(number) {
		if p.waits[node] >= 0 {
			p.log.node(e.atMs, node, "skipped", "")
		}
	}
	kept := p.ready[:0]
	for _, e := range p.ready {
		if p.graph.playOf[e.Ref.Index] != number {
			kept = append(kept, e)
		}
	}
	p.ready = kept
	kept.Init()
}

func (p *plays) Drained() bool    { return p.left == 0 }
func (p *plays) ClosedLoop() bool { return false }
func (p *plays) Total() int64     { return int64(len(p.graph.ids)) }

// Plays lists how each play went, in play order.
func (p *plays) Plays() []workload.PlayOutcome {
	out := make([]workload.PlayOutcome, len(p.state))
	for i := range p.state {
		st := &p.state[i]
		o := workload.PlayOutcome{PlayID: p.graph.plays[i].id, Status: "incomplete",
			StartMs: st.startMs, TerminalMs: st.terminalMs, SettledMs: st.settledMs}
		if st.failed {
			o.FailedRequest, o.FailedBy = p.graph.ids[st.failedNode], st.failedBy
		}
		switch {
		case !st.settled:
		case st.failed:
			o.Status = "failed"
		default:
			o.Status = "completed"
		}
		out[i] = o
	}
	return out
}

func (p *plays) Lifecycle() (events int64, digest string) { return p.log.events, p.log.digest() }
