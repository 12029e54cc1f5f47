package aic

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
)

// Classes of error, for errors.Is (spec aic-perfmodel 10).
var (
	ErrModel    = errors.New("model error")
	ErrConfig   = errors.New("configuration error")
	ErrSystem   = errors.New("unknown system")
	ErrVersion  = errors.New("version error")
	ErrFlops    = errors.New("missing system flops")
	ErrMissing  = errors.New("missing data")
	ErrCapacity = errors.New("capacity error")
	ErrBatch    = errors.New("unreadable batch")
)

// classedError is an error of a class that its text does not name.
type classedError struct{ err, class error }

func classed(class error, format string, args ...any) error {
	return &classedError{fmt.Errorf(format, args...), class}
}

func (e *classedError) Error() string   { return e.err.Error() }
func (e *classedError) Unwrap() []error { return []error{e.err, e.class} }

// Config names a set of tables.
type Config struct {
	System      string // file name of the system's YAML without suffix, as h200_sxm
	Backend     string // vllm, sglang or trtllm
	Version     string // a slot (current, previous, next) or its value; empty means current
	SystemsPath string // a systems directory or a wheel; empty means the embedded data
}

// Database is the tables of one system, backend and version. It is read-only and
// safe for concurrent use; tables load at first use and are then shared.
type Database struct {
	System  *System
	Backend string
	Version string

	root   *root
	mu     sync.Mutex
	tables map[string]*lazyTable // by name; "own " in front where filled-in rows are left out
	fields sync.Map              // what estimates are taken from, by table and bound
}

type lazyTable struct {
	once sync.Once
	t    *table
	err  error
}

// shared keeps what was opened, so that a process loads each table once.
var shared = struct {
	sync.Mutex
	roots     map[string]*root
	databases map[Config]*Database
}{roots: map[string]*root{}, databases: map[Config]*Database{}}

func sharedRoot(path string) (*root, error) {
	if path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		path = abs
	}
	if r, ok := shared.roots[path]; ok {
		return r, nil
	}
	var (
		r   *root
		err error
	)
	if path == "" {
		r, err = embeddedRoot()
	} else {
		r, err = openRoot(path)
	}
	if err == nil {
		shared.roots[path] = r
	}
	return r, err
}

// Open resolves a configuration. The same configuration gives the same Database.
// A system without measured data opens too, for the SOL mode; its tables are missing.
func Open(c Config) (*Database, error) {
	shared.Lock()
	defer shared.Unlock()
	r, err := sharedRoot(c.SystemsPath)
	if err != nil {
		return nil, err
	}
	sys, err := r.system(c.System)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(backends, c.Backend) {
		return nil, classed(ErrConfig, "unknown backend %q; known: %s", c.Backend, strings.Join(backends, ", "))
	}
	s, err := r.slots(c.System, c.Backend)
	if err != nil {
		return nil, err
	}
	version, err := s.resolve(strings.TrimSpace(c.Version), c.System, c.Backend)
	if err != nil {
		return nil, err
	}
	c.Version = version
	if db, ok := shared.databases[c]; ok {
		return db, nil
	}
	db := &Database{System: sys, Backend: c.Backend, Version: version, root: r, tables: map[string]*lazyTable{}}
	shared.databases[c] = db
	return db, nil
}

// hasData reports an error for a system that has no tables of the backend.
func (db *Database) hasData() error {
	shared.Lock()
	defer shared.Unlock()
	if len(db.root.versionsOf(db.System, db.Backend)) == 0 {
		return classed(ErrVersion, "%s has no measured data of %s for system %s (only database mode SOL works)", db.root.name, db.Backend, db.System.Name)
	}
	if db.root.packed && !db.root.hasPack(db.System.Name, db.Backend, db.Version) {
		return classed(ErrVersion, "the embedded data does not hold %s %s on %s; it holds %s; %s",
			db.Backend, db.Version, db.System.Name, strings.Join(db.root.packs(), ", "), otherTables)
	}
	return nil
}

// table returns a table, an ErrMissing error if there is none. With ownOnly, rows
// filled in from other versions are left out (spec aic-perfmodel 3.3).
func (db *Database) table(name string, ownOnly bool) (*table, error) {
	key := name
	if ownOnly {
		key = "own " + name
	}
	db.mu.Lock()
	l := db.tables[key]
	if l == nil {
		l = &lazyTable{}
		db.tables[key] = l
	}
	db.mu.Unlock()
	l.once.Do(func() { l.t, l.err = db.load(name, ownOnly) })
	return l.t, l.err
}

func (db *Database) load(name string, ownOnly bool) (*table, error) {
	var t *table
	var err error
	if ownOnly {
		if t, err = db.table(name, false); err == nil {
			t = t.ownOnly()
		}
	} else {
		t, err = db.root.table(db.System, db.Backend, db.Version, name)
		if err == nil && t != nil {
			db.raise(name, t)
		}
	}
	if err != nil {
		return nil, err
	}
	if t == nil || len(t.slices) == 0 {
		return nil, fmt.Errorf("%s: no rows for %s %s on %s: %w", name, db.Backend, db.Version, db.System.Name, ErrMissing)
	}
	return t, nil
}

// raise lifts latencies below their speed of light, for the two tables that the
// reference lifts at load (spec aic-perfmodel 5.2, 5.3).
func (db *Database) raise(name string, t *table) {
	for i := range t.slices {
		s := &t.slices[i]
		var sol solver
		switch name {
		case "gemm_perf":
			mode, ok := gemmModes[t.words[s.key[0]]]
			flops, known := db.System.flops[mode.flops]
			if !ok || !known {
				continue
			}
			sol = &gemmSOL{float64(s.key[1]), float64(s.key[2]), flops, mode.bytes, db.System.memBW}
		case "generation_attention_perf":
			kv, ok := kvBytes[t.words[s.key[1]]]
			flops, known := db.System.flops[decodeClass(db.System, t.words[s.key[1]])]
			if !ok || !known {
				continue
			}
			sol = &decodeSOL{attentionBound{float64(s.key[2]), float64(s.key[3]), float64(s.key[4]), kv, flops, db.System.memBW}}
		default:
			return
		}
		s.raise(sol)
	}
}

func (t *tree) raise(sol solver) {
	for i, a0 := range t.k0 {
		for j := t.off0[i]; j < t.off0[i+1]; j++ {
			for l := t.off1[j]; l < t.off1[j+1]; l++ {
				if v := sol.sol(a0, t.k1[j], t.k2[l]); v > t.ms[l] {
					t.ms[l] = v
				}
			}
		}
	}
}

// Systems lists the systems of a data set, sorted; empty path means the embedded one.
func Systems(systemsPath string) ([]string, error) {
	shared.Lock()
	defer shared.Unlock()
	r, err := sharedRoot(systemsPath)
	if err != nil {
		return nil, err
	}
	return slices.Clone(r.systems), nil
}

// Backends lists the backends, sorted.
func Backends() []string { return slices.Clone(backends) }

// Versions describes the version slots of a backend on a system, as
// "{current 0.24.0, next 0.27.0}".
func Versions(systemsPath, system, backend string) (string, error) {
	shared.Lock()
	defer shared.Unlock()
	r, err := sharedRoot(systemsPath)
	if err != nil {
		return "", err
	}
	if _, err := r.system(system); err != nil {
		return "", err
	}
	s, err := r.slots(system, backend)
	if err != nil {
		return "", err
	}
	return s.String(), nil
}

// sortedWords returns distinct words in order, for messages that list what exists.
func sortedWords(words []string) string {
	sort.Strings(words)
	return strings.Join(slices.Compact(words), ", ")
}
