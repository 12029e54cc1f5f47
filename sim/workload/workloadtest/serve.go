// Package workloadtest serves the requests of a workload.Source without a simulator,
// for tests of load and of traces.
//
//	all := workloadtest.Serve(t, src, 64, workloadtest.Constant(12))
//
// Times are ms on the run's clock.
package workloadtest

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// Served is what a fake cluster did with a request.
type Served struct {
	workload.Request
	workload.Names
	Blocks  []kv.BlockID // full prompt blocks
	StartMs float64      // release
}

// Serve serves every request at once, for as long as service says, and emits all
// its tokens at the end. It follows the loop of spec workload 3.1 and returns the
// requests by ordinal.
func Serve(t *testing.T, src workload.Source, blockSize int, service func(r *Served) float64) []Served {
	t.Helper()
	return ServeWith(t, src, blockSize, service, func(*Served) workload.Outcome { return workload.Completed })
}

// ServeWith is Serve with a way for each request to end: one that does not complete
// emits nothing.
func ServeWith(t *testing.T, src workload.Source, blockSize int, service func(r *Served) float64, end func(r *Served) workload.Outcome) []Served {
	t.Helper()
	type flight struct {
		d     *Served
		endMs float64
	}
	var flying []flight
	var all []*Served
	now := 0.0
	for step := 0; ; step++ {
		if step > 1e6 {
			t.Fatal("the source does not end")
		}
		slices.SortStableFunc(flying, func(a, b flight) int { return cmp.Compare(a.endMs, b.endMs) })
		for len(flying) > 0 && flying[0].endMs <= now {
			r := flying[0].d
			flying = flying[1:]
			how := end(r)
			emitted := r.OutputTokens
			if how != workload.Completed {
				emitted = 0
			}
			src.Done(r.Handle, now, emitted, how)
			src.Quiescent(r.Ordinal, now)
		}
		src.Flush(now)
		src.BeginRelease(now, len(flying))
		for r := src.Next(now); r != nil; r = src.Next(now) {
			d := &Served{Request: *r, Names: src.Names(r.Handle), StartMs: now}
			flying = append(flying, flight{d, now + service(d)})
			for i := range int(r.PromptTokens) / blockSize {
				d.Blocks = append(d.Blocks, r.Prompt.Block(i))
			}
			all = append(all, d)
		}
		next := src.NextMs()
		for _, f := range flying {
			next = min(next, f.endMs)
		}
		if math.IsInf(next, 1) {
			break
		}
		if next < now {
			t.Fatalf("time goes back from %v to %v", now, next)
		}
		now = next
	}
	if !src.Drained() {
		t.Error("nothing happens any more, but the source is not drained")
	}
	slices.SortFunc(all, func(a, b *Served) int { return int(a.Ordinal - b.Ordinal) })
	out := make([]Served, len(all))
	for i, d := range all {
		out[i] = *d
	}
	return out
}

// Constant is a service time.
func Constant(ms float64) func(*Served) float64 { return func(*Served) float64 { return ms } }

// Arrivals lists the arrival times of requests.
func Arrivals(all []Served) []float64 {
	var out []float64
	for _, d := range all {
		out = append(out, d.ArrivalMs)
	}
	return out
}

// WantFloats fails the test unless both lists are equal to the last bit.
func WantFloats(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s %v, want %v", what, got, want)
	}
}

// SharedBlocks is the length of the common prefix of two prompts, in blocks.
func SharedBlocks(a, b Served) int {
	n := 0
	for n < len(a.Blocks) && n < len(b.Blocks) && a.Blocks[n] == b.Blocks[n] {
		n++
	}
	return n
}

// AllocsPerStep releases and ends requests one by one and returns the allocations of each.
func AllocsPerStep(src workload.Source) float64 {
	now := 0.0
	step := func() {
		now = max(now, src.NextMs())
		src.BeginRelease(now, 0)
		for r := src.Next(now); r != nil; r = src.Next(now) {
			src.Done(r.Handle, now, r.OutputTokens, workload.Completed)
			src.Quiescent(r.Ordinal, now)
			src.Flush(now)
		}
	}
	for range 50 {
		step()
	}
	return testing.AllocsPerRun(100, step)
}
