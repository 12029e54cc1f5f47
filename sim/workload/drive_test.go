package workload

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// done is what a fake cluster did with a request.
type done struct {
	Request
	Names
	blocks  []kv.BlockID // full prompt blocks
	startMs float64      // release
}

// cluster serves every request at once, for as long as service says, and emits all
// its tokens at the end. It follows the loop of spec workload 3.1 and returns the
// requests by ordinal.
func cluster(t *testing.T, src Source, blockSize int, service func(r *done) float64) []done {
	t.Helper()
	return clusterWith(t, src, blockSize, service, func(*done) Outcome { return Completed })
}

func clusterWith(t *testing.T, src Source, blockSize int, service func(r *done) float64, end func(r *done) Outcome) []done {
	t.Helper()
	type flight struct {
		d     *done
		endMs float64
	}
	var flying []flight
	var all []*done
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
			if how != Completed {
				emitted = 0
			}
			src.Done(r.Handle, now, emitted, how)
		}
		src.Flush(now)
		src.BeginRelease(now, len(flying))
		for r := src.Next(now); r != nil; r = src.Next(now) {
			d := &done{Request: *r, Names: src.Names(r.Handle), startMs: now}
			flying = append(flying, flight{d, now + service(d)})
			for i := range int(r.PromptTokens) / blockSize {
				d.blocks = append(d.blocks, r.Prompt.Block(i))
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
	slices.SortFunc(all, func(a, b *done) int { return int(a.Ordinal - b.Ordinal) })
	out := make([]done, len(all))
	for i, d := range all {
		out[i] = *d
	}
	return out
}

// constant is a service time.
func constant(ms float64) func(*done) float64 { return func(*done) float64 { return ms } }

func arrivals(all []done) []float64 {
	var out []float64
	for _, d := range all {
		out = append(out, d.ArrivalMs)
	}
	return out
}

func wantFloats(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s %v, want %v", what, got, want)
	}
}

// sharedBlocks is the length of the common prefix of two prompts, in blocks.
func sharedBlocks(a, b done) int {
	n := 0
	for n < len(a.blocks) && n < len(b.blocks) && a.blocks[n] == b.blocks[n] {
		n++
	}
	return n
}

// write makes a file with the text and returns its path.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load reads a trace given as text.
func load(t testing.TB, text string, o LoadOptions) *Trace {
	t.Helper()
	tr, err := Load([]string{write(t, "trace.jsonl", strings.TrimPrefix(text, "\n"))}, o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func source(t testing.TB, tr *Trace, d Drive) Source {
	t.Helper()
	src, err := tr.NewSource(d)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func mooncake(blockSize int) LoadOptions { return LoadOptions{Format: Mooncake, BlockSize: blockSize} }

func open(blockSize int) Drive { return Drive{BlockSize: blockSize, Speedup: 1} }

func closed(blockSize, concurrency int) Drive {
	return Drive{BlockSize: blockSize, ClosedLoop: true, Concurrency: concurrency}
}

// churn releases and ends requests one by one and returns the allocations of each.
func churn(src Source) float64 {
	now := 0.0
	step := func() {
		now = max(now, src.NextMs())
		src.BeginRelease(now, 0)
		for r := src.Next(now); r != nil; r = src.Next(now) {
			src.Done(r.Handle, now, r.OutputTokens, Completed)
			src.Flush(now)
		}
	}
	for range 50 {
		step()
	}
	return testing.AllocsPerRun(100, step)
}

func TestReleasesDoNotAllocate(t *testing.T) {
	flat, sessions, graph := "", "", header64
	for i := range 300 {
		flat += fmt.Sprintf(`{"timestamp":%d,"input_length":900,"output_length":1,"hash_ids":[0,%d]}`+"\n", i, i)
		sessions += fmt.Sprintf(`{"session_id":"%d","timestamp":%d,"input_length":900,"output_length":1,"hash_ids":[0,%d]}`+"\n", i%7, i, i)
		graph += node(fmt.Sprint(i), "p", float64(i), "")
	}
	for name, src := range map[string]Source{
		"synthetic": newSynthetic(t, 64, func(s *Synthetic) { s.Requests, s.Control, s.RatePerS = 300, Poisson, 5 }),
		"flat":      source(t, load(t, flat, mooncake(512)), open(96)),
		"sessions":  source(t, load(t, sessions, mooncake(512)), open(64)),
		"graph":     source(t, load(t, graph, agentic()), open(64)),
	} {
		if n := churn(src); n != 0 {
			t.Errorf("%s: %v allocations per step", name, n)
		}
	}
}

func TestATraceIsSharedByRuns(t *testing.T) {
	tr := load(t, sessionRows, mooncake(512))
	want := cluster(t, source(t, tr, open(96)), 96, constant(3))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			all := cluster(t, source(t, tr, open(32*(1+i%4))), 32*(1+i%4), constant(3))
			if i%4 == 2 {
				same(t, "shared", want, all)
			}
		})
	}
	wg.Wait()
}
