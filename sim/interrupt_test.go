package sim_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/simtest"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// ending is a context that ends when it is looked at for the last time.
type ending struct {
	context.Context
	looks int
}

func (e *ending) Err() error {
	if e.looks--; e.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// counted counts what a source releases.
type counted struct {
	workload.Source
	n int
}

func (c *counted) Next(nowMs float64) *workload.Request {
	r := c.Source.Next(nowMs)
	if r != nil {
		c.n++
	}
	return r
}

// A load of which one instant releases everything does not outlast its time limit.
func TestAContextEndsARunWhileItsLoadIsMade(t *testing.T) {
	load := workload.DefaultSynthetic()
	load.InputTokens, load.OutputTokens, load.Requests, load.Control, load.Concurrency = 1<<19, 1, 64, workload.Closed, 64
	src, err := load.NewSource(64)
	if err != nil {
		t.Fatal(err)
	}
	engine := simtest.VLLM()
	engine.Blocks = 1 << 20
	released := &counted{Source: src}
	s, err := sim.New(sim.Config{Decode: simtest.Pool(1, engine), Source: released})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(&ending{context.Background(), 2}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the run ends with %v", err)
	}
	if released.n != 4 { // the second look after 4 prompts of 2^19 tokens
		t.Errorf("%d of 64 requests were released before the run ended", released.n)
	}
}
