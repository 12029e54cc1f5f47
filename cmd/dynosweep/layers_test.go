package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// layers says what each package may import beside the standard library: packages
// of the module below it, and third parties by path prefix. Arrows go down only.
// Test files may import anything.
var layers = []struct {
	dir   string
	local []string // a trailing /* covers the packages under it
	third []string
}{
	{"cmd/dynosweep", []string{"internal/document", "internal/safetext", "internal/spelling", "sweep", "sweep/*", "sweep/fleet/*", "sweep/scenario/*", "results", "results/*", "planner", "sim", "sim/engine", "sim/metrics", "sim/workload", "sim/workload/*", "sim/timing", "sim/timing/*"},
		[]string{"github.com/urfave/cli/v3", "github.com/schollz/progressbar/v3", "golang.org/x/term"}},
	{"sweep", []string{"internal/document", "sweep/scenario", "planner", "results", "sim", "sim/*", "sim/timing/*", "sim/workload/*"}, []string{"golang.org/x/sync/errgroup", "golang.org/x/sync/semaphore"}},
	{"sweep/fleet", []string{"planner", "results", "sweep", "sweep/scenario"}, []string{"github.com/nats-io/nats.go", "github.com/klauspost/compress/zstd"}},
	{"sweep/fleet/embed", []string{"sweep/fleet"}, []string{"github.com/nats-io/nats-server/v2/server"}},
	{"sweep/scenario", []string{"internal/document", "internal/spelling", "sweep/scenario/resolved", "planner", "sim", "sim/*", "sim/timing/*", "sim/workload/*"}, nil},
	{"sweep/scenario/optimizer", []string{"internal/document", "internal/spelling", "sweep/scenario", "sim/engine", "sim/metrics"}, nil},
	{"sweep/scenario/resolved", nil, nil}, // the types of a text in the results: results/compare may know them
	{"sweep/recommend", []string{"internal/document", "internal/safetext", "sweep/scenario", "sweep/scenario/optimizer", "results/compare", "sim", "sim/*"}, []string{"gonum.org/v1/gonum"}},
	{"sweep/calibrate", []string{"internal/document", "sweep", "sweep/scenario", "sim/metrics", "sim/workload"}, []string{"gonum.org/v1/gonum"}},
	{"sweep/launch", []string{"internal/safetext", "sweep/scenario", "sweep/scenario/resolved", "results/compare"}, nil},
	{"planner", []string{"internal/document", "internal/npz", "internal/spelling", "sim", "sim/engine", "sim/timing", "sim/workload", "sim/metrics", "sim/rng"}, []string{"gonum.org/v1/gonum"}},
	{"results", []string{"sim", "sim/metrics"}, []string{"github.com/apache/arrow-go/v18", "golang.org/x/sys/windows"}},
	{"results/resultstest", []string{"results", "sim", "sim/metrics"}, nil},
	{"results/compare", []string{"results", "sweep/scenario/resolved"}, []string{"gonum.org/v1/gonum"}},
	{"results/page", []string{"results", "results/compare"}, []string{"github.com/"}},
	{"sim", []string{"sim/engine", "sim/engine/*", "sim/kv", "sim/tier", "sim/invariant", "sim/metrics", "sim/rng", "sim/router", "sim/slab", "sim/timing", "sim/workload"}, nil},
	{"sim/engine", []string{"sim/kv", "sim/tier", "sim/timing", "sim/rng", "sim/invariant"}, nil},
	{"sim/engine/vllm", []string{"sim/engine", "sim/kv", "sim/tier", "sim/slab", "sim/timing", "sim/rng", "sim/invariant"}, nil},
	{"sim/engine/sglang", []string{"sim/engine", "sim/kv", "sim/slab", "sim/timing", "sim/rng", "sim/invariant"}, nil},
	{"sim/engine/trtllm", []string{"sim/engine", "sim/engine/vllm", "sim/kv", "sim/timing", "sim/rng", "sim/invariant"}, nil},
	{"sim/router", []string{"internal/document", "internal/spelling", "sim/kv", "sim/timing", "sim/rng", "sim/invariant"}, nil},
	{"sim/workload", []string{"sim/kv", "sim/rng", "sim/slab"}, nil},
	{"sim/workload/trace", []string{"internal/document", "sim/kv", "sim/rng", "sim/workload"}, []string{"github.com/zeebo/xxh3"}},
	{"sim/workload/workloadtest", []string{"sim/kv", "sim/workload"}, nil},
	{"sim/metrics", []string{"internal/spelling", "sim/kv", "sim/rng"}, nil},
	{"sim/simtest", []string{"sim", "sim/*", "sim/engine/*", "sim/timing/*", "sim/workload/*"}, nil},
	{"sim/kv", []string{"sim/invariant"}, nil},
	{"sim/timing", []string{"internal/npz", "sim/invariant", "sim/rng"}, nil},
	{"sim/timing/aic", []string{"internal/document", "internal/safetext", "sim/timing", "sim/invariant"}, []string{"github.com/apache/arrow-go/v18"}},
	{"internal/document", []string{"internal/spelling"}, []string{"go.yaml.in/yaml/v3"}},
	{"internal/npz", nil, nil},
	{"internal/safetext", nil, nil},
	{"internal/spelling", nil, nil},
	{"sim/tier", []string{"sim/kv"}, nil},
	{"sim/rng", nil, nil},
	{"sim/slab", nil, nil},
	{"sim/invariant", nil, nil},
}

func TestImportsGoDownOnly(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata" || d.Name() == "scripts") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen++
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		checkImports(t, path, filepath.ToSlash(dir))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 30 {
		t.Fatalf("scanned only %d files: the fence looks at the wrong folder", seen)
	}
}

func checkImports(t *testing.T, path, dir string) {
	t.Helper()
	at := -1
	for i := range layers {
		if layers[i].dir == dir {
			at = i
		}
	}
	if at < 0 {
		t.Errorf("%s: package %s stands on no floor; add it to layers", path, dir)
		return
	}
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range f.Imports {
		name, _ := strconv.Unquote(im.Path.Value)
		if !allowed(name, layers[at].local, layers[at].third) {
			t.Errorf("%s imports %s, which package %s may not know", path, name, dir)
		}
	}
}

func allowed(name string, local, third []string) bool {
	if own, ok := strings.CutPrefix(name, "github.com/dynosweep/dynosweep/"); ok {
		for i := range local {
			base, under := strings.CutSuffix(local[i], "/*")
			if own == local[i] || under && strings.HasPrefix(own, base+"/") && !strings.Contains(own[len(base)+1:], "/") {
				return true
			}
		}
		return false
	}
	if !strings.Contains(strings.SplitN(name, "/", 2)[0], ".") {
		return true // standard library
	}
	for _, p := range third {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
