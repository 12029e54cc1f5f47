package sweep

import (
	"context"

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

// gate admits points while their memory together stays within a bound. A point
// that is larger than the bound runs alone.
type gate struct {
	bound int64
	state chan gateState // one token
	moved chan struct{}  // a nudge that room may have appeared
}

type gateState struct {
	used    int64
	running int
}

func newGate(bound int64) *gate {
	g := &gate{bound: bound, state: make(chan gateState, 1), moved: make(chan struct{}, 1)}
	g.state <- gateState{}
	return g
}

// enter waits for room, or for ctx to end.
func (g *gate) enter(ctx context.Context, need int64) error {
	for {
		s := <-g.state
		if g.bound == 0 || s.running == 0 || s.used+need <= g.bound {
			g.state <- gateState{s.used + need, s.running + 1}
			g.nudge() // the next in line may fit too
			return nil
		}
		g.state <- s
		select {
		case <-g.moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave(need int64) {
	s := <-g.state
	g.state <- gateState{s.used - need, s.running - 1}
	g.nudge()
}

func (g *gate) nudge() {
	select {
	case g.moved <- struct{}{}:
	default:
	}
}
