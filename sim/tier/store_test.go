package tier

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// slowStore is the rules of spec kv-offload 2 and 3 with a slice and scans.
type slowStore struct {
	blocks []slowBlock
	mark   int
}

type slowBlock struct {
	id       kv.BlockID
	hash     uint64
	mark     int
	resident bool
	pins     int
}

func (s *slowStore) find(id kv.BlockID) *slowBlock {
	i := slices.IndexFunc(s.blocks, func(b slowBlock) bool { return b.id == id })
	if i < 0 {
		return nil
	}
	return &s.blocks[i]
}

// evict drops the n blocks that must go first.
func (s *slowStore) evict(n int) (out []kv.BlockID) {
	var idle []slowBlock
	for _, b := range s.blocks {
		if b.resident && b.pins == 0 {
			idle = append(idle, b)
		}
	}
	slices.SortFunc(idle, func(a, b slowBlock) int { return cmp.Or(cmp.Compare(a.mark, b.mark), cmp.Compare(a.hash, b.hash)) })
	for _, b := range idle[:n] {
		out = append(out, b.id)
		s.blocks = slices.DeleteFunc(s.blocks, func(o slowBlock) bool { return o.id == b.id })
	}
	return out
}

func TestStoreEvictsByAgeThenHash(t *testing.T) {
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 9))
		capacity := 4 + rng.IntN(60)
		fast, slow := newStore(capacity), &slowStore{}
		var pending, pinned [][]kv.BlockID
		slots := func(ids []kv.BlockID) (out []int32) {
			for _, id := range ids {
				out = append(out, fast.slot(id))
			}
			return out
		}
		for step := range 300 {
			switch op := rng.IntN(5); {
			case op == 0: // reserve a cohort
				var ids []kv.BlockID
				first := kv.BlockID(rng.IntN(90))
				for i := range 1 + rng.IntN(12) {
					if id := first + kv.BlockID(i); fast.slot(id) == 0 {
						ids = append(ids, id)
					}
				}
				need := max(0, fast.used+len(ids)-capacity)
				if len(ids) == 0 || len(ids) > capacity || fast.idle() < need {
					continue
				}
				var lost []kv.BlockID
				fast.room(len(ids), &lost)
				want := slow.evict(need)
				slices.Sort(lost)
				slices.Sort(want)
				if !slices.Equal(lost, want) {
					t.Fatalf("seed %d step %d: evicted %x, want %x", seed, step, lost, want)
				}
				for _, id := range ids {
					hash := rng.Uint64()
					fast.reserve(id, hash, 0)
					slow.blocks = append(slow.blocks, slowBlock{id: id, hash: hash})
				}
				pending = append(pending, ids)
			case op == 1 && len(pending) > 0:
				ids := pending[0]
				pending = pending[1:]
				fast.complete(slots(ids))
				slow.mark++
				for _, id := range ids {
					b := slow.find(id)
					b.resident, b.mark = true, slow.mark
				}
			case op == 2: // touch
				id := kv.BlockID(rng.IntN(100))
				if s := fast.slot(id); s != 0 {
					fast.touch(s)
					if b := slow.find(id); b.resident && b.pins == 0 {
						slow.mark++
						b.mark = slow.mark
					}
				}
			case op == 3: // pin
				var ids []kv.BlockID
				for i := range 5 {
					id := kv.BlockID(rng.IntN(90) + i)
					if s := fast.slot(id); s != 0 && fast.isResident(s) && !slices.Contains(ids, id) {
						ids = append(ids, id)
						slow.find(id).pins++
					}
				}
				fast.pin(slots(ids))
				pinned = append(pinned, ids)
			case op == 4 && len(pinned) > 0:
				ids := pinned[0]
				pinned = pinned[1:]
				fast.unpin(slots(ids))
				slow.mark++
				for _, id := range ids {
					if b := slow.find(id); b.pins == 1 {
						b.pins, b.mark = 0, slow.mark
					} else {
						b.pins--
					}
				}
			}
			if err := fast.check(); err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
		}
	}
}

func TestAFullStoreTakesLittleMemory(t *testing.T) {
	const n = 20_000
	s := newStore(n)
	for i := range n {
		s.reserve(kv.BlockID(i), 1, 0)
	}
	// 276 bytes a page of 8 blocks, twice that while pages are appended, and its place
	// in the index.
	if got := cap(s.pages) * 280; got > 64*n {
		t.Errorf("%d bytes for %d blocks, want at most 64 each", got, n)
	}
}
