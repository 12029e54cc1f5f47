package trace

import (
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// deltaState grows the prompts of mooncake-delta sessions (spec workload 2.3): the
// new input of a turn and the output really emitted are appended to one token list
// per session, whose whole is the next prompt. While every token of a list was
// authored, blocks are interned by content, so sessions share them; from the first
// drawn token on they are the session's own, by index, so that a turn finds what
// the generation of its predecessor filled.
type deltaState struct {
	trace     *Trace
	blockSize int
	chain     *interner       // of token runs, cut at block ends
	live      []*deltaSession // [session], while turns are left
	spare     int64           // the next owner that is no session's number
}

type deltaSession struct {
	list  tokenList
	total int32 // tokens, drawn ones included
	drawn bool  // the list stopped growing at the first drawn token
	owner int64
	// The list before the authored output of the turn in flight.
	before tokenList
}

// tokenList is an authored token list as chain nodes of its full blocks and the
// runs of the open one.
type tokenList struct {
	nodes []uint32 // [full block]
	at    uint32   // chain node of all closed runs
	fill  int      // tokens in the open block
	token uint32   // the open run
	run   int      // its length
}

// newDeltaState returns the prompts of one run.
func newDeltaState(t *Trace, blockSize int) *deltaState {
	n := len(t.sessions) - 1
	return &deltaState{trace: t, blockSize: blockSize, chain: newInterner(0),
		live: make([]*deltaSession, n), spare: int64(n)}
}

// push appends count tokens of one value.
func (d *deltaState) push(l *tokenList, token uint32, count int) {
	for count > 0 {
		if l.run > 0 && l.token != token {
			d.closeRun(l)
		}
		take := min(count, d.blockSize-l.fill)
		l.token = token
		l.run += take
		l.fill += take
		count -= take
		if l.fill == d.blockSize {
			d.closeRun(l)
			l.nodes = append(l.nodes, l.at)
			l.fill = 0
		}
	}
}

func (d *deltaState) closeRun(l *tokenList) {
	l.at = d.chain.next(l.at, uint64(l.token)<<32|uint64(l.run))
	l.run = 0
}

// grow appends the input of turn i to its session and makes the prompt of r.
func (d *deltaState) grow(r *workload.Request, ref workload.SessionRef, i int) {
	s := d.live[ref.Index]
	if s == nil {
		s = &deltaSession{owner: ref.Index, list: tokenList{at: root}}
		d.live[ref.Index] = s
	}
	t := d.trace
	turn := &t.turns[i]
	if !s.drawn {
		left := int(turn.input)
		for k := turn.first; left > 0; k++ {
			n := min(left, t.blockSize)
			d.push(&s.list, t.nodes[k], n)
			left -= n
		}
		s.before = s.list
		d.pushOutput(s, i, int(turn.output))
	}
	s.total += turn.input
	r.PromptTokens = s.total
	r.Prompt = kv.Prompt{Nodes: s.list.nodes, Ratio: 1, Shared: int32(len(s.list.nodes)), Base: kv.PrivateBase(s.owner)}
}

// pushOutput appends the first n authored output tokens of turn i, if it has any.
func (d *deltaState) pushOutput(s *deltaSession, i, n int) {
	ids := d.trace.extras[d.trace.turns[i].extra].outputIDs
	for _, token := range ids[:min(n, len(ids))] {
		d.push(&s.list, token, 1)
	}
}

// ended appends what turn i really emitted; nothing of a rejected turn. Blocks that
// a rejected turn had filled with output must not be found again, so its session
// goes on under another owner.
func (d *deltaState) ended(ref workload.SessionRef, i int, emitted int32, how workload.Outcome, last bool) {
	s := d.live[ref.Index]
	if last || how == workload.Failed {
		d.live[ref.Index] = nil
		return
	}
	if !s.drawn {
		s.list = s.before
	}
	if how == workload.Rejected {
		if emitted > 0 {
			s.owner = d.spare
			d.spare++
		}
		return
	}
	s.total += emitted
	if s.drawn || emitted == 0 {
		return
	}
	d.pushOutput(s, i, int(emitted))
	s.drawn = len(d.trace.extras[d.trace.turns[i].extra].outputIDs) == 0
}
