package sglang

import (
	"testing"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// ledger is what a router believes of one rank after its KV events.
type ledger map[kv.BlockID]bool

// apply fails if an event announces what is known, withdraws what is not, or hangs
// a block on an unknown parent.
func (l ledger) apply(t testing.TB, ev *kv.Events) {
	t.Helper()
	for _, v := range ev.Items {
		if v.Stored && v.HasParent && !l[v.Parent] {
			t.Fatalf("stored below unknown parent %x", v.Parent)
		}
		for _, id := range ev.BlocksOf(v) {
			if l[id] == v.Stored {
				t.Fatalf("block %x: stored %v, known %v", id, v.Stored, l[id])
			}
			if l[id] = v.Stored; !v.Stored {
				delete(l, id)
			}
		}
	}
	ev.Reset()
}

// compare fails if the belief is not what the rank holds: the tree and the offered
// private pages.
func (l ledger) compare(t testing.TB, c *Core) {
	t.Helper()
	if !c.cfg.WantEvents {
		return
	}
	truth := ledger{}
	for i := range c.tree.nodes {
		n := &c.tree.nodes[i]
		for pos := n.start; pos < n.end; pos++ {
			truth[n.key(pos)] = true
		}
	}
	spare := map[int32]bool{}
	for _, i := range c.reqs.Free() {
		spare[i] = true
	}
	for i := range c.reqs.Len() {
		if r := c.reqs.At(i); !spare[i] {
			for pos := r.cached; pos < r.hashed; pos++ {
				truth[r.prompt.Block(int(pos))] = true
			}
		}
	}
	for id := range truth {
		if !l[id] {
			t.Fatalf("block %x is held and not known", id)
		}
	}
	if len(l) != len(truth) {
		t.Fatalf("%d blocks known, %d held", len(l), len(truth))
	}
}

func TestEventsTellWhatARankHolds(t *testing.T) {
	g := &rig{cfg: defaults(), tbs: 16}
	g.cfg.WantEvents, g.cfg.Timing, g.cfg.Blocks = true, fix, 60
	g.cfg.SGLang.ChunkedPrefillSize = 32
	shared := []int{1, 2, 3, 4}
	if _, err := g.replay(t, []job{{0, 40, 6, shared}, {0, 40, 9, shared}, {100, 30, 3, []int{7, 8}}, {200, 48, 2, shared}}); err != nil {
		t.Fatal(err)
	}
	if g.storedBlocks == 0 || g.withdrawn == 0 {
		t.Errorf("%d blocks stored, %d removed", g.storedBlocks, g.withdrawn)
	}
}
