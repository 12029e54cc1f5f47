package sweep

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Costs of a run in bytes, measured and rounded up: what stays live, doubled for
// the garbage collector's headroom.
const (
	runBytes     = 16 << 20 // a run without anything
	blockBytes   = 64       // of a KV pool, per block
	requestBytes = 128      // of the exact distributions, per request
	recordBytes  = 2048     // of a captured record
)

// bytes estimates the peak memory of one run beside its shared inputs.
func (in *Inputs) bytes(run *scenario.Run, capture bool) int64 {
	requests := int64(0)
	if s, ok := run.Synthetic(); ok {
		requests = s.Total()
	} else if t, err := in.Trace(run.Workload.Trace); err == nil {
		requests = int64(t.Requests())
	}
	total := runBytes + requests*requestBytes
	if capture {
		total += requests * recordBytes
	}
	for _, side := range [...]struct {
		role    *scenario.Role
		workers int
	}{{run.Prefill, run.PrefillWorkers}, {run.Decode, run.DecodeWorkers}} {
		if side.role == nil {
			continue
		}
		blocks := int64(side.role.Rank.Blocks)
		if blocks == 0 {
			blocks = 1 << 16 // a capacity estimated later
		}
		total += int64(side.workers*side.role.DPSize) * min(blocks*blockBytes, 1<<30)
	}
	return total
}

// memoryGate admits points while their memory together stays within a bound. A point
// that is larger than the bound runs alone. The first to ask is the first to be let in.
type memoryGate struct {
	bound int64               // bytes; 0: none
	room  *semaphore.Weighted // nil: no bound
}

func newMemoryGate(bound int64) *memoryGate {
	g := &memoryGate{bound: bound}
	if bound > 0 {
		g.room = semaphore.NewWeighted(bound)
	}
	return g
}

// enter waits for room, or for ctx to end.
func (g *memoryGate) enter(ctx context.Context, need int64) error {
	if g.room == nil {
		return ctx.Err()
	}
	return g.room.Acquire(ctx, min(need, g.bound))
}

// leave gives back what enter took for the same need.
func (g *memoryGate) leave(need int64) {
	if g.room != nil {
		g.room.Release(min(need, g.bound))
	}
}
