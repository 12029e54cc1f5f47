package aic

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// backends are the serving frameworks whose schedulers exist.
var backends = []string{"sglang", "trtllm", "vllm"}

// root is a set of system files: a directory, an archive or the embedded one.
type root struct {
	fsys   fs.FS
	name   string // for messages
	packed bool   // tables are the converted ones, versions.txt lists what was measured
	slotsY *document.Node
	lanesY *document.Node
	reuseY *document.Node
	// measured[system][backend] are the versions with a directory, in no order.
	measured map[string]map[string][]string
	systems  []string // sorted
}

// openRoot opens a systems directory or a wheel.
func openRoot(name string) (*root, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("systems path: %w", err)
	}
	var fsys fs.FS
	if st.IsDir() {
		fsys = os.DirFS(name)
	} else {
		z, err := zip.OpenReader(name) // stays open as long as the process: tables load lazily
		if err != nil {
			return nil, fmt.Errorf("systems path %s: neither a directory nor a wheel: %w", name, err)
		}
		fsys = z
	}
	return rootIn(fsys, name)
}

// rootIn finds the systems in a directory or archive.
func rootIn(fsys fs.FS, name string) (*root, error) {
	sub, err := findSystems(fsys)
	if err != nil {
		return nil, fmt.Errorf("systems path %s: %w", name, err)
	}
	return newRoot(sub, name, false)
}

// Bounds of what is read of a systems directory or unpacked from a wheel. The largest
// measured table has some 20 MB.
const (
	maxDocument = 16 << 20
	maxTable    = 256 << 20
)

// readBounded reads a file of at most limit bytes. Whatever size an archive claims for it,
// no more memory is taken than is read.
func readBounded(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: more than %d MiB, which no file of this kind has", name, limit>>20)
	}
	return data, nil
}

// findSystems returns the directory that holds query_versions.yaml: the tree itself,
// its "systems", or the systems directory of a package one level down.
func findSystems(fsys fs.FS) (fs.FS, error) {
	const marker = "query_versions.yaml"
	for _, pattern := range []string{marker, "systems/" + marker, "*/systems/" + marker} {
		found, err := fs.Glob(fsys, pattern)
		if err == nil && len(found) > 0 {
			return fs.Sub(fsys, path.Dir(found[0]))
		}
	}
	return nil, fmt.Errorf("no %s in it", marker)
}

func newRoot(fsys fs.FS, name string, packed bool) (*root, error) {
	r := &root{fsys: fsys, name: name, packed: packed, measured: map[string]map[string][]string{}}
	for _, doc := range []struct {
		file string
		into **document.Node
		must bool
	}{
		{"query_versions.yaml", &r.slotsY, true},
		{"attention_lane_defaults.yaml", &r.lanesY, false},
		{"perf_data_reuse_manifest.yaml", &r.reuseY, false},
	} {
		data, err := readBounded(fsys, doc.file, maxDocument)
		if err != nil {
			if doc.must {
				return nil, fmt.Errorf("systems path %s: %w", name, err)
			}
			continue
		}
		if *doc.into, err = parseYAML(doc.file, data); err != nil {
			return nil, fmt.Errorf("systems path %s: %w", name, err)
		}
	}
	files, err := fs.Glob(fsys, "*.yaml")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		switch f {
		case "query_versions.yaml", "attention_lane_defaults.yaml", "perf_data_reuse_manifest.yaml":
		default:
			r.systems = append(r.systems, strings.TrimSuffix(f, ".yaml"))
		}
	}
	sort.Strings(r.systems)
	if packed {
		return r, r.readMeasured()
	}
	return r, nil
}

// readMeasured reads versions.txt of the embedded set: lines "system backend version".
func (r *root) readMeasured() error {
	data, err := fs.ReadFile(r.fsys, "versions.txt")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) == 3 {
			r.note(f[0], f[1], f[2])
		}
	}
	return nil
}

func (r *root) note(system, backend, version string) {
	m := r.measured[system]
	if m == nil {
		m = map[string][]string{}
		r.measured[system] = m
	}
	if !slices.Contains(m[backend], version) {
		m[backend] = append(m[backend], version)
	}
}

// versionsOf returns the versions of a backend that have a directory on a system.
func (r *root) versionsOf(sys *System, backend string) []string {
	if !r.packed && r.measured[sys.Name] == nil {
		r.measured[sys.Name] = map[string][]string{}
		families, _ := fs.ReadDir(r.fsys, path.Clean(sys.dataDir))
		for _, f := range families {
			for _, b := range backends {
				dirs, _ := fs.ReadDir(r.fsys, path.Join(sys.dataDir, f.Name(), b))
				for _, d := range dirs {
					r.note(sys.Name, b, d.Name())
				}
			}
		}
	}
	return r.measured[sys.Name][backend]
}

// otherTables says how systems and versions are read that are not built in.
const otherTables = "name the package's own systems directory or wheel for the rest (--systems-path, systems_path, or engine.systems_path of an AISimulate file)"

// system reads the file of one system.
func (r *root) system(name string) (*System, error) {
	if !slices.Contains(r.systems, name) {
		return nil, classed(ErrSystem, "unknown system %q; %s has %s; %s", name, r.name, strings.Join(r.systems, ", "), otherTables)
	}
	data, err := readBounded(r.fsys, name+".yaml", maxDocument)
	if err != nil {
		return nil, err
	}
	return parseSystem(name, name+".yaml", data)
}

// slots returns the version slots, with next derived from what any system without an
// override has measured (spec aic-perfmodel 3.2).
func (r *root) slots(system, backend string) (slots, error) {
	s, ok := parseSlots(r.slotsY, system, backend)
	if !ok {
		return s, classed(ErrVersion, "no versions of backend %q on %s", backend, system)
	}
	if s.override {
		return s, nil
	}
	for _, name := range r.systems {
		if below(r.slotsY, "overrides", name) != nil {
			continue
		}
		sys, err := r.system(name)
		if err != nil {
			return s, err
		}
		for _, v := range r.versionsOf(sys, backend) {
			if slotLess(s.current, v) && (s.next == "" || slotLess(s.next, v)) {
				s.next = v
			}
		}
	}
	return s, nil
}

// located is one source file of a table.
type located struct {
	path string
	own  bool
	keep map[string]bool
}

// locate returns the ordered sources of a table (spec aic-perfmodel 3.3).
func (r *root) locate(sys *System, backend, version, name string) ([]located, error) {
	switch name {
	case "nccl_perf":
		return r.locateComm(sys, "nccl", sys.ncclVersion, name), nil
	case "oneccl_perf":
		return r.locateComm(sys, "oneccl", sys.onecclVersion, name), nil
	}
	comm := name == "custom_allreduce_perf"
	var out []located
	add := func(b, v string, own bool, keep map[string]bool) {
		families, _ := fs.ReadDir(r.fsys, path.Clean(sys.dataDir))
		for _, f := range families {
			p := path.Join(sys.dataDir, f.Name(), b, v, name+".parquet")
			if _, err := fs.Stat(r.fsys, p); err == nil {
				out = append(out, located{p, own, keep})
			}
		}
	}
	add(backend, version, true, nil)
	if !comm {
		reused, err := r.reused(sys, backend, version, name)
		if err != nil {
			return nil, err
		}
		for _, v := range reused {
			add(backend, v, false, nil)
		}
	}
	for _, v := range newestFirst(r.versionsOf(sys, backend), version) {
		add(backend, v, false, nil)
	}
	if !comm {
		for _, b := range backends {
			if keep := r.shared(backend, b, name); keep != nil {
				for _, v := range newestFirst(r.versionsOf(sys, b), "") {
					add(b, v, false, keep)
				}
			}
		}
	}
	return out, nil
}

func (r *root) locateComm(sys *System, library, version, name string) []located {
	p := path.Join(sys.dataDir, "comm", library, version, name+".parquet")
	if _, err := fs.Stat(r.fsys, p); version == "" || err != nil {
		return nil
	}
	return []located{{p, true, nil}}
}

// newestFirst sorts the versions strictly older than the limit, all when it is empty;
// names that are no versions are left out.
func newestFirst(versions []string, limit string) []string {
	top, ok := pepKey(limit)
	if limit != "" && !ok {
		return nil
	}
	var out []string
	for _, v := range versions {
		if k, ok := pepKey(v); ok && (limit == "" || pepLess(k, top)) {
			out = append(out, v)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, _ := pepKey(out[i])
		b, _ := pepKey(out[j])
		return pepLess(b, a)
	})
	return out
}

// reused returns the versions that reuse.yaml of the requested version names for a table.
func (r *root) reused(sys *System, backend, version, name string) ([]string, error) {
	var out []string
	families, _ := fs.ReadDir(r.fsys, path.Clean(sys.dataDir))
	for _, f := range families {
		p := path.Join(sys.dataDir, f.Name(), backend, version, "reuse.yaml")
		data, err := readBounded(r.fsys, p, maxDocument)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		doc, err := parseYAML(p, data)
		if err != nil {
			return nil, err
		}
		list := below(doc, "reuse")
		if list == nil {
			continue
		}
		for _, e := range list.Items {
			t, _ := scalarText(e, "table")
			v, ok := scalarText(e, "from_version")
			if t == name && ok {
				out = append(out, v)
			}
		}
	}
	return out, nil
}

// shared returns the kernel sources whose rows a backend may take from another one,
// nil if none.
func (r *root) shared(backend, other, name string) map[string]bool {
	groups := below(r.reuseY, "groups")
	if backend == other || groups == nil {
		return nil
	}
	var keep map[string]bool
	for _, g := range groups.Items {
		file, _ := scalarText(g, "op_file")
		tier, _ := scalarText(g, "tier")
		if file != name+".parquet" || (tier != "shared" && tier != "shared_fallback") {
			continue
		}
		frameworks := below(g, "frameworks")
		if !holds(frameworks, backend) || !holds(frameworks, other) {
			continue
		}
		if keep == nil {
			keep = map[string]bool{}
		}
		kernel, _ := scalarText(g, "kernel_source")
		keep[kernel] = true
	}
	return keep
}

// table loads and merges one table; nil when no source has rows.
func (r *root) table(sys *System, backend, version, name string) (*table, error) {
	if r.packed {
		return r.packedTable(sys, backend, version, name)
	}
	var sources []source
	total := 0
	places, err := r.locate(sys, backend, version, name)
	if err != nil {
		return nil, err
	}
	for _, l := range places {
		data, err := readBounded(r.fsys, l.path, maxTable)
		if err != nil {
			return nil, err
		}
		rows, err := readParquet(l.path, data)
		if err != nil {
			return nil, err
		}
		total += rows.n
		sources = append(sources, source{rows, l.own, l.keep})
	}
	if total == 0 {
		return nil, nil
	}
	return buildTable(name, sys.Name, sources)
}
