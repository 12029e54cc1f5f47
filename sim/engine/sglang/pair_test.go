package sglang

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/kv"
)

// trip is one request's way through a disaggregated pair; times in ms.
type trip struct {
	outcome              // on the decode worker
	reserved, held       float64
	prefilled            []float64 // admissions on the prefill worker
	activated            float64
	fresh                int32
	canceled, sourceGone bool
}

// side is one worker of the pair.
type side struct {
	core     *Core
	pass     engine.Pass
	end      float64 // of the pass in flight; +Inf: idle
	deferred []action
	ledger   ledger
}

type verb uint8

const (
	reserve verb = iota
	submit
	activate
	release
	cancelDest
	cancelSource
)

// action is an action of the coordinator.
type action struct {
	do  verb
	req int32
}

// pair is one prefill and one decode worker with the coordinator of spec
// replay-runtime 8 between them.
type pair struct {
	t        testing.TB
	pre, dec side
	msPerTok float64 // transfer time of a prompt token
	missing  bool    // of fresh destination tokens only
	cancel   func(req int32) bool
	jobs     []job
	out      []trip
	book     *book
	queue    []action
	moving   []float64 // [request] end of its transfer, +Inf
	now      float64
	next     int
	runs     bool
	capacity int // closed loop, 0: by arrival
	live     int
	checks   int
}

func newPair(t testing.TB, pre, dec engine.Config, jobs []job) *pair {
	p := &pair{t: t, jobs: jobs, out: make([]trip, len(jobs)),
		book: &book{page: pre.BlockSize, tbs: 64, known: map[string]uint32{}}}
	pre.Role, dec.Role = engine.Prefill, engine.Decode
	for _, s := range []struct {
		side *side
		cfg  engine.Config
	}{{&p.pre, pre}, {&p.dec, dec}} {
		core, err := New(s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		*s.side = side{core: core, end: math.Inf(1), ledger: ledger{}}
	}
	for i := range p.out {
		p.out[i].first, p.out[i].last = -1, -1
		p.moving = append(p.moving, math.Inf(1))
	}
	return p
}

func (p *pair) idle(s *side) bool { return math.IsInf(s.end, 1) }

// replay runs to the end, or to the first instant at which nothing can go on.
func (p *pair) replay() error {
	for {
		for p.drain() {
		}
		next := min(p.pre.end, p.dec.end)
		for _, at := range p.moving {
			next = min(next, at)
		}
		if p.capacity == 0 && p.next < len(p.jobs) {
			next = min(next, p.jobs[p.next].at)
		}
		if math.IsInf(next, 1) {
			break
		}
		p.now = next
	}
	if p.live > 0 || p.next < len(p.jobs) {
		return fmt.Errorf("dead end with %d in flight", p.live)
	}
	for _, s := range []*side{&p.pre, &p.dec} {
		c := s.core
		if !c.Drained() || c.tree.locked != 0 || len(c.reqs.Free()) != int(c.reqs.Len()) {
			p.t.Fatalf("worker not empty at the end: %+v %+v", c.Gauges(), c.handoff)
		}
	}
	return nil
}

// drain does one round of the phases of an instant; false if nothing happened.
func (p *pair) drain() bool {
	changed := false
	for _, s := range []*side{&p.pre, &p.dec} {
		if s.end == p.now {
			p.complete(s)
			changed = true
		}
	}
	for req, at := range p.moving {
		if at == p.now {
			p.moving[req] = math.Inf(1)
			p.queue = append(p.queue, action{activate, int32(req)})
		}
	}
	for len(p.queue) > 0 {
		a := p.queue[0]
		p.queue = p.queue[1:]
		p.act(a)
		changed = true
	}
	for p.next < len(p.jobs) && (p.capacity == 0 && p.jobs[p.next].at <= p.now || p.capacity > p.live) {
		p.queue = append(p.queue, action{reserve, int32(p.next)})
		p.next++
		p.live++
		changed = true
	}
	return p.start(&p.pre) || p.start(&p.dec) || changed
}

func (p *pair) act(a action) {
	s := &p.dec
	if a.do == submit || a.do == release || a.do == cancelSource {
		s = &p.pre
	}
	if a.do > submit && !p.idle(s) {
		s.deferred = append(s.deferred, a)
		return
	}
	j, o := p.jobs[a.req], &p.out[a.req]
	r := engine.Request{ID: a.req, PromptTokens: j.isl, OutputTokens: j.osl}
	var ev kv.Events
	switch a.do {
	case reserve:
		r.Prompt = p.prompt(a.req)
		if why := s.core.Accept(r); why != engine.NoReason {
			o.end, o.reason = engine.Rejected, why
			p.live--
			return
		}
	case submit:
		r.OutputTokens, r.Prompt = 1, p.prompt(a.req)
		s.core.SubmitSource(r)
		if p.cancel != nil && p.cancel(a.req) {
			p.queue = append(p.queue, action{cancelSource, a.req}, action{cancelDest, a.req})
		}
		return
	case activate:
		if o.canceled {
			return
		}
		s.core.Activate(a.req, &ev)
		o.activated = p.now
		p.queue = append(p.queue, action{release, a.req})
	case release:
		s.core.ReleaseSource(a.req, &ev)
		o.sourceGone = true
	case cancelDest:
		if o.end == engine.Running {
			s.core.CancelDestination(a.req, &ev)
			o.canceled = true
			p.live--
		}
	case cancelSource:
		if !o.sourceGone {
			s.core.CancelSource(a.req, &ev)
			o.sourceGone = true
		}
	}
	p.settle(s, &ev)
	if s == &p.dec && p.idle(s) {
		p.reserve()
	}
}

func (p *pair) prompt(req int32) kv.Prompt {
	q := p.book.prompt(p.jobs[req])
	q.Base = kv.PrivateBase(int64(req))
	return q
}

// reserve tries the head of the pending destinations once.
func (p *pair) reserve() bool {
	var ev kv.Events
	r, ok := p.dec.core.TryReserve(&ev)
	p.settle(&p.dec, &ev)
	if ok {
		p.out[r.Req].reserved, p.out[r.Req].fresh = p.now, r.FreshTokens
		p.queue = append(p.queue, action{submit, r.Req})
	}
	return ok
}

// settle checks a worker after a command or a pass.
func (p *pair) settle(s *side, ev *kv.Events) {
	if err := s.core.Check(); err != nil {
		p.t.Fatalf("at %v ms: %v", p.now, err)
	}
	s.ledger.apply(p.t, ev)
	if p.checks++; p.checks%16 == 0 {
		s.ledger.compare(p.t, s.core)
	}
}

// start starts passes on an idle worker until one takes time; false if none did
// anything.
func (p *pair) start(s *side) bool {
	for tries := 0; p.idle(s) && s.core.Runnable() && tries < 1024; tries++ {
		if p.runs && s == &p.dec && p.run(s) {
			return true
		}
		s.core.Pass(p.now, 0, &s.pass)
		s.core.EndGroup(engine.GroupPass{Prefilled: s.pass.Metrics.PrefillTokens > 0, ModelWork: s.pass.ModelWork})
		for _, a := range s.pass.Admissions {
			if o := &p.out[a.Req]; s == &p.pre {
				o.prefilled = append(o.prefilled, p.now)
			} else {
				o.admitted, o.reused = append(o.admitted, p.now), append(o.reused, a.Reused)
			}
		}
		s.end = s.pass.EndMs
		switch {
		case s.end > p.now:
			p.settle(s, &s.pass.Events)
			return true
		case s.pass.Stall == engine.Progress:
			p.settle(s, &s.pass.Events)
			p.complete(s)
			return true
		}
		s.end = math.Inf(1)
		if s == &p.dec && p.reserve() {
			return true
		}
		if s.pass.Stall == engine.Nothing {
			return false
		}
	}
	return false
}

// run advances one pass of a decode run, as a cut run would be.
func (p *pair) run(s *side) bool {
	r := s.core.Run(8)
	if r.Passes == 0 {
		return false
	}
	d := s.core.cfg.Timing.DecodeMs(r.Members, r.Context, int64(s.core.total*s.core.page))
	s.pass.Reset()
	s.pass.EndMs = p.now + d
	s.core.Advance(1, &s.pass.Events)
	for _, id := range s.core.Members() {
		s.pass.Signals = append(s.pass.Signals, engine.Signal{Req: id, Tokens: 1})
	}
	s.end = s.pass.EndMs
	p.settle(s, &s.pass.Events)
	return true
}

// complete applies the pass of a worker that ends now.
func (p *pair) complete(s *side) {
	s.end = math.Inf(1)
	p.queue = append(p.queue, s.deferred...)
	s.deferred = s.deferred[:0]
	if s == &p.dec {
		p.reserve()
	}
	for _, g := range s.pass.Signals {
		o := &p.out[g.Req]
		if s == &p.pre {
			if g.End == engine.Rejected {
				o.sourceGone = true
				p.queue = append(p.queue, action{cancelDest, g.Req})
			}
			continue
		}
		if g.Tokens > 0 && o.tokens == 0 {
			o.first = p.now
		}
		if o.tokens += g.Tokens; g.Tokens > 0 {
			o.last = p.now
		}
		if o.end, o.reason = g.End, g.Reason; g.End != engine.Running {
			p.live--
		}
	}
	for _, req := range s.pass.Held {
		o := &p.out[req]
		o.held = p.now
		if o.canceled {
			continue
		}
		tokens := p.jobs[req].isl
		if p.missing {
			tokens = o.fresh
		}
		if ms := float64(tokens) * p.msPerTok; ms > 0 {
			p.moving[req] = p.now + ms
		} else {
			p.queue = append(p.queue, action{activate, req})
		}
	}
	s.pass.Signals, s.pass.Held = s.pass.Signals[:0], s.pass.Held[:0]
}

func TestHandoffExamples(t *testing.T) {
	base := defaults()
	base.Timing = fix
	rows := []job{{0, 100, 4, []int{1, 2}}, {1000, 100, 4, []int{1, 2}}}
	with := func(set func(c *engine.Config)) engine.Config {
		c := base
		set(&c)
		return c
	}
	page16 := with(func(c *engine.Config) { c.BlockSize, c.Blocks = 16, 1024 })
	type row struct{ reserved, prefilled, held, activated, first, last float64 }
	for _, c := range []struct {
		name     string
		pre, dec engine.Config
		jobs     []job
		msPerTok float64
		missing  bool
		want     []row
		fresh    []int32
	}{
		{"plain", base, base, alike(3, 100, 5), 0, false, []row{{0, 0, 10, 10, 12, 20}, {0, 0, 10, 10, 12, 20}, {0, 0, 10, 10, 12, 20}}, nil},
		{"transfer", base, base, alike(3, 100, 5), .1, false, []row{{0, 0, 10, 20, 22, 30}, {0, 0, 10, 20, 22, 30}, {0, 0, 10, 20, 22, 30}}, nil},
		{"decode pool of two", base, with(func(c *engine.Config) { c.Blocks = 210 }), alike(3, 100, 5), 0, false,
			[]row{{0, 0, 10, 10, 12, 20}, {0, 0, 10, 10, 12, 20}, {20, 20, 30, 30, 32, 40}}, nil},
		{"missing pages", page16, page16, rows, .1, true, []row{{0, 0, 10, 21.2, 23.2, open}, {1000, 1000, 1010, 1011.6, 1013.6, open}}, []int32{112, 16}},
		{"missing tokens", base, base, rows, .1, true, []row{{0, 0, 10, 20, 22, open}, {1000, 1000, 1010, 1010, 1012, open}}, []int32{100, 0}},
	} {
		p := newPair(t, c.pre, c.dec, c.jobs)
		p.msPerTok, p.missing = c.msPerTok, c.missing
		if err := p.replay(); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for i, w := range c.want {
			o := &p.out[i]
			got := row{o.reserved, o.prefilled[0], o.held, o.activated, o.first, o.last}
			a, b := reflect.ValueOf(got), reflect.ValueOf(w)
			for k := range a.NumField() {
				if !near(a.Field(k).Float(), b.Field(k).Float()) {
					t.Errorf("%s, request %d: %+v, want %+v", c.name, i+1, got, w)
				}
			}
			if c.fresh != nil && o.fresh != c.fresh[i] {
				t.Errorf("%s, request %d: %d fresh tokens, want %d", c.name, i+1, o.fresh, c.fresh[i])
			}
		}
	}
}

func TestDecodeWorkerRetractsAndPrefillsForFree(t *testing.T) {
	cfg := defaults()
	cfg.Timing = fix
	small := cfg
	small.Blocks, small.SGLang.ClipMaxNewTokens = 80, 1
	p := newPair(t, cfg, small, []job{{0, 20, 40, []int{1}}, {0, 20, 22, []int{2}}})
	if err := p.replay(); err != nil {
		t.Fatal(err)
	}
	a, b := p.out[0], p.out[1]
	if a.first != 12 || b.first != 12 || a.last != 92 || b.last != 54 || !reflect.DeepEqual(a.admitted, []float64{10, 54}) || a.reused[1] != 38 {
		t.Errorf("got %+v and %+v", a, b)
	}
}

// Random pairs with cancellations end, lose nobody, hold nothing at the end, keep
// their laws and tell the router the truth; decode runs change nothing.
func TestRandomHandoffs(t *testing.T) {
	for seed := range uint64(300) {
		replay := func(runs bool) (*pair, error) {
			r := rand.New(rand.NewPCG(seed, 2))
			g := randomRig(r)
			cfg := g.cfg
			cfg.DPSize, cfg.SpeedupRatio, cfg.Timing, cfg.WantEvents, cfg.WantMetrics = 1, 1, fix, true, true
			dec := cfg
			dec.Blocks = pick(r, 100, 300, 4000) / cfg.BlockSize
			p := newPair(t, cfg, dec, randomJobs(r, 64))
			p.capacity, p.runs = g.concurrency, runs
			p.msPerTok, p.missing = pick(r, 0, .01, .1), r.IntN(2) == 0
			drop := r.IntN(4)
			p.cancel = func(req int32) bool { return drop == 0 && req%3 == 1 }
			return p, p.replay()
		}
		slow, err := replay(false)
		fast, fastErr := replay(true)
		if fmt.Sprint(err) != fmt.Sprint(fastErr) || !reflect.DeepEqual(slow.out, fast.out) {
			t.Fatalf("seed %d: pass by pass %v %+v\nruns %v %+v", seed, err, slow.out, fastErr, fast.out)
		}
		if a, b := slow.dec.core.tree.dump(), fast.dec.core.tree.dump(); a != b {
			t.Fatalf("seed %d: tree pass by pass\n%s\nruns\n%s", seed, a, b)
		}
	}
}
