package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/workloadtest"
)

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

func source(t testing.TB, tr *Trace, d Drive) workload.Source {
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

func TestReleasesDoNotAllocate(t *testing.T) {
	flat, sessions, graph := "", "", header64
	for i := range 300 {
		flat += fmt.Sprintf(`{"timestamp":%d,"input_length":900,"output_length":1,"hash_ids":[0,%d]}`+"\n", i, i)
		sessions += fmt.Sprintf(`{"session_id":"%d","timestamp":%d,"input_length":900,"output_length":1,"hash_ids":[0,%d]}`+"\n", i%7, i, i)
		graph += node(fmt.Sprint(i), "p", float64(i), "")
	}
	for name, src := range map[string]workload.Source{
		"flat":     source(t, load(t, flat, mooncake(512)), open(96)),
		"sessions": source(t, load(t, sessions, mooncake(512)), open(64)),
		"graph":    source(t, load(t, graph, agentic()), open(64)),
	} {
		if n := workloadtest.AllocsPerStep(src); n != 0 {
			t.Errorf("%s: %v allocations per step", name, n)
		}
	}
}

func TestATraceIsSharedByRuns(t *testing.T) {
	tr := load(t, sessionRows, mooncake(512))
	want := workloadtest.Serve(t, source(t, tr, open(96)), 96, workloadtest.Constant(3))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			all := workloadtest.Serve(t, source(t, tr, open(32*(1+i%4))), 32*(1+i%4), workloadtest.Constant(3))
			if i%4 == 2 {
				same(t, "shared", want, all)
			}
		})
	}
	wg.Wait()
}
