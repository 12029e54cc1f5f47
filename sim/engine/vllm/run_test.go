package vllm_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/engine/trtllm"
	"github.com/dynosweep/dynosweep/sim/engine/vllm"
	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// twins are two cores that get the same commands: slow does every pass, quick
// takes decode runs where it finds them.
type twins struct {
	t           *testing.T
	rng         *rand.Rand
	cfg         engine.Config
	slow, quick *vllm.Core
	now         float64
	step        int64
	next        int32
	reserved    []int32
	runs        int
	log         []string
}

func TestRunsEqualPassByPass(t *testing.T) {
	runs := 0
	for seed := range uint64(200) {
		w := newTwins(t, seed)
		for range 120 {
			w.commands()
			w.advance()
			if t.Failed() {
				t.Fatalf("seed %d, %+v\n%v", seed, w.cfg, w.log)
			}
		}
		runs += w.runs
	}
	if runs < 5000 {
		t.Errorf("only %d passes were done in runs", runs)
	}
}

func newTwins(t *testing.T, seed uint64) *twins {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := defaults()
	cfg.BlockSize = 2 + rng.IntN(7)
	cfg.Blocks = 10 + rng.IntN(60)
	cfg.WantEvents = rng.IntN(4) > 0
	cfg.WantMetrics = true
	cfg.PrefixCaching = rng.IntN(8) > 0
	cfg.ChunkedPrefill = rng.IntN(8) > 0
	cfg.PreemptFIFO = rng.IntN(3) == 0
	cfg.MaxNumSeqs = rng.IntN(9)
	if rng.IntN(2) == 0 {
		cfg.MaxNumBatchedTokens = 3 + rng.IntN(60)
	}
	if rng.IntN(4) == 0 {
		cfg.DPSize, cfg.PrefillScheduleInterval = 2, 2+rng.IntN(3)
	}
	if rng.IntN(4) == 0 {
		cfg.Timing = timing.Fixed{Prefill: 3, Decode: 1.5}
	}
	if rng.IntN(4) == 0 {
		cfg.SpeedupRatio = 1.7
	}
	w := &twins{t: t, rng: rng, cfg: cfg}
	switch rng.IntN(4) {
	case 0:
		w.cfg.Role = engine.Decode
	case 1:
		w.cfg.Backend = engine.TRTLLM
	}
	w.slow, w.quick = core(t, w.cfg), core(t, w.cfg)
	return w
}

// core is newCore without the wrapper that hides TensorRT-LLM's state.
func core(t *testing.T, cfg engine.Config) *vllm.Core {
	switch c := newCore(t, cfg).(type) {
	case *vllm.Core:
		return c
	case trtllm.Core:
		return c.Core
	}
	t.Fatal("no paged core")
	return nil
}

// request makes a random one; prompts of one family share their blocks.
func (w *twins) request() engine.Request {
	tokens := int32(1 + w.rng.IntN(w.cfg.Blocks*w.cfg.BlockSize/3))
	r := engine.Request{ID: w.next, PromptTokens: tokens, OutputTokens: int32(w.rng.IntN(40)),
		Prompt: kv.Prompt{Ratio: 1, Base: kv.PrivateBase(int64(w.next))}}
	w.next++
	if family := w.rng.IntN(4); family > 0 {
		r.Prompt.Shared = min(tokens/int32(w.cfg.BlockSize), int32(w.rng.IntN(30)))
		for i := range r.Prompt.Shared {
			r.Prompt.Nodes = append(r.Prompt.Nodes, uint32(family*1000)+uint32(i))
		}
	}
	return r
}

// both applies a command to the two cores.
func (w *twins) both(name string, f func(c *vllm.Core, ev *kv.Events) string) {
	var ev [2]kv.Events
	a, b := f(w.slow, &ev[0]), f(w.quick, &ev[1])
	if a != b || !reflect.DeepEqual(ev[0].Items, ev[1].Items) || !slices.Equal(ev[0].Blocks, ev[1].Blocks) {
		w.t.Errorf("%s: %q and %q, events %v and %v", name, a, b, ev[0], ev[1])
	}
	w.log = append(w.log, name)
}

// commands submits requests and, on a decode rank, moves destinations along.
func (w *twins) commands() {
	if w.rng.IntN(6) == 0 && w.slow.Gauges().Waiting < 20 {
		for range 1 + w.rng.IntN(4) {
			r := w.request()
			w.both(fmt.Sprintf("submit %d: %d + %d", r.ID, r.PromptTokens, r.OutputTokens), func(c *vllm.Core, _ *kv.Events) string {
				if w.cfg.Role == engine.Decode {
					return c.Accept(r).String()
				}
				c.Submit(r)
				return ""
			})
		}
	}
	if w.cfg.Role != engine.Decode {
		if w.rng.IntN(40) == 0 && w.next > 0 {
			id := int32(w.rng.IntN(int(w.next)))
			w.both(fmt.Sprintf("cancel %d", id), func(c *vllm.Core, ev *kv.Events) string {
				c.CancelSource(id, ev)
				return ""
			})
		}
		return
	}
	w.both("reserve", func(c *vllm.Core, ev *kv.Events) string {
		got, ok := c.TryReserve(ev)
		if ok && c == w.slow {
			w.reserved = append(w.reserved, got.Req)
		}
		return fmt.Sprint(got, ok)
	})
	if len(w.reserved) > 0 && w.rng.IntN(2) == 0 {
		i := w.rng.IntN(len(w.reserved))
		id := w.reserved[i]
		w.reserved = slices.Delete(w.reserved, i, i+1)
		cancel := w.rng.IntN(8) == 0
		w.both(fmt.Sprintf("activate or cancel %d", id), func(c *vllm.Core, ev *kv.Events) string {
			if cancel {
				c.CancelDestination(id, ev)
			} else {
				c.Activate(id, ev)
			}
			return ""
		})
	}
}

// advance does one pass or one run on both cores and compares everything.
func (w *twins) advance() {
	if !w.slow.Runnable() {
		return
	}
	run := w.quick.Run(1 + w.rng.IntN(64))
	if run.Passes > 0 {
		w.advanceRun(run)
	} else {
		var a, b engine.Pass
		w.slow.Pass(w.now, w.step, &a)
		w.quick.Pass(w.now, w.step, &b)
		if !reflect.DeepEqual(a, b) {
			w.t.Errorf("passes differ:\n%+v\n%+v", a, b)
		}
		w.now = a.EndMs
		w.step++
		w.log = append(w.log, fmt.Sprintf("pass, %d signals, %d preempted", len(a.Signals), len(a.Preempted)))
	}
	if a, b := w.slow.Dump(), w.quick.Dump(); a != b {
		w.t.Errorf("states differ:\n%s\n%s", a, b)
	}
	for _, c := range []*vllm.Core{w.slow, w.quick} {
		if err := c.Check(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *twins) advanceRun(run engine.Run) {
	members := slices.Clone(w.quick.Members())
	series := make([]float64, run.Passes)
	w.cfg.Timing.DecodeSeries(run.Members, run.Context, int64(w.cfg.Blocks*w.cfg.BlockSize), series)
	if err := timing.Durations(series, w.cfg.SpeedupRatio*w.cfg.DecodeSpeedupRatio); err != nil {
		w.t.Fatal(err)
	}
	n := 1 + w.rng.IntN(run.Passes)
	w.log = append(w.log, fmt.Sprintf("%d passes of a run of %+v", n, run))
	w.runs += n
	var quick kv.Events
	for left := n; left > 0; {
		piece := 1 + w.rng.IntN(left)
		w.quick.Advance(piece, &quick)
		left -= piece
	}
	var slow kv.Events
	for j := range n {
		var p engine.Pass
		w.slow.Pass(w.now, w.step, &p)
		w.now += series[j]
		w.step++
		if p.EndMs != w.now || len(p.Admissions)+len(p.Preempted) > 0 || len(p.Signals) != len(members) {
			w.t.Fatalf("pass %d of a run ends at %v, want %v: %+v\n%v", j, p.EndMs, w.now, p, w.log)
		}
		for i, s := range p.Signals {
			if s != (engine.Signal{Req: members[i], Tokens: 1}) {
				w.t.Fatalf("pass %d of a run gave %+v to member %d", j, s, members[i])
			}
		}
		for _, e := range p.Events.Items {
			slow.Items = append(slow.Items, e)
			slow.Blocks = append(slow.Blocks, p.Events.BlocksOf(e)...)
			if !e.Stored && !run.Events {
				w.t.Errorf("an eviction in a run that promised none")
			}
		}
		if j == n-1 && p.Metrics != w.quick.RunMetrics() {
			w.t.Errorf("metrics %+v, want %+v", w.quick.RunMetrics(), p.Metrics)
		}
	}
	for _, stored := range []bool{false, true} {
		if a, b := flatten(&slow, stored), flatten(&quick, stored); !slices.Equal(a, b) {
			w.t.Errorf("events (stored %v) %x, want %x", stored, b, a)
		}
	}
}

// flatten lists the blocks of the removed events in order, or those of the stored
// ones sorted: requests take turns inside a run.
func flatten(ev *kv.Events, stored bool) []kv.BlockID {
	var out []kv.BlockID
	at := 0
	for _, e := range ev.Items {
		n := int(e.To - e.From)
		if e.Stored == stored {
			out = append(out, ev.Blocks[at:at+n]...)
		}
		at += n
	}
	if stored {
		slices.Sort(out)
	}
	return out
}
