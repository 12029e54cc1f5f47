// Package results writes and reads the results directory of a sweep: the schema of
// its tables, a durable part file for every finished point, and the Parquet files
// that are made from the parts.
//
// The order of use is
//
//	store, err := Open(dir, options)        locks; refuses another specification
//	for each point not in store.Finished(): in any order, from any goroutine
//		part, err := store.Begin(key)
//		part.Tick(...), part.Scaling(...)   streamed during the run
//		part.Requests(records)              with capture
//		part.Commit(&row)                   durable when it returns
//	store.Finalize(plan)                    points.parquet and the others, in plan order
//	store.Close()
//
// Parts stand under parts/: many small ones share a pack, and each large one has a file
// of its own. Whatever interrupts a run, a part is there whole or not at all, and
// Finalize makes the same bytes from the same parts, except for manifest.json and
// columns named wall_*. A committed part survives the end of the process at once, and a
// power cut a tenth of a second later (pack.go). The schema (Tables) gives the units.
// The wall clock is read through Options.Now only.
package results

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Identity says whose results a directory holds.
type Identity struct {
	Name       string // of the specification
	SpecDigest string
	Version    string // of the program; a later one may continue
}

// Axis is a varied key of the specification and its column.
type Axis struct {
	Name string // dotted path, as topology.workers
	Type Type
}

// Options open a Store.
type Options struct {
	Identity Identity
	Axes     []Axis           // a function of the specification
	Spec     []byte           // written as spec.yaml
	Now      func() time.Time // real time, for manifest.json
	FS       FS               // nil: Disk
}

// Store is an open results directory. Begin and Part.Commit may be called by many
// goroutines; the other methods by one.
type Store struct {
	*Maker
	dir      string
	opt      Options
	fs       FS
	lock     *os.File
	manifest Manifest

	mu       sync.Mutex
	finished map[Key]Finished
	pack     packWriter
}

// Finished is what a part says of its point and seed.
type Finished struct {
	Key     Key
	Status  Status
	Reason  string
	Version string // of the program that ran the point
	tables  tableSet
	at      location
}

// Captured reports whether the point left rows of requests.
func (f *Finished) Captured() bool { return f.tables[Requests] }

// tableSet says which tables a part has rows of.
type tableSet [tableCount]bool

// Files and folders of a results directory beside the tables.
const (
	manifestFile = "manifest.json"
	specFile     = "spec.yaml"
	lockFile     = ".lock"
	partsDir     = "parts"
	partSuffix   = ".part"
	pointPrefix  = "point-"
	PageFile     = "report.html" // of a report
)

// What a user can mend about a directory: it belongs to another specification or
// schema, or to nobody we know; another process writes it; a file of it cannot be read;
// nothing can be written there.
var (
	ErrForeignResults = errors.New("not the results of this sweep")
	ErrLocked         = errors.New("locked")
	ErrDamaged        = errors.New("damaged")
	ErrUnusable       = errors.New("cannot hold results")
	ErrLost           = errors.New("was removed or replaced during the run")
)

// unusable adds what to do to the refusal of a directory by the system.
func unusable(dir string, err error) error {
	for _, cause := range [...]error{fs.ErrPermission, fs.ErrExist, syscall.EROFS, syscall.ENOTDIR, syscall.ELOOP} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%s %w: %w: choose another --out", dir, ErrUnusable, err)
		}
	}
	return err
}

// PointDir is the folder in a results directory for what a point leaves that is run
// again with full capture.
func PointDir(dir string, k Key) string { return filepath.Join(dir, pointPrefix+k.String()) }

// Open creates or continues the results directory dir and locks it.
func Open(dir string, opt Options) (*Store, error) {
	if opt.FS == nil {
		opt.FS = Disk{}
	}
	maker, err := NewMaker(opt.Identity, opt.Axes)
	if err != nil {
		return nil, err
	}
	s := &Store{Maker: maker, dir: dir, opt: opt, fs: opt.FS, finished: map[Key]Finished{}}
	if err := checkForeign(dir); err != nil {
		return nil, unusable(dir, err)
	}
	if err := s.fs.MkdirAll(filepath.Join(dir, partsDir)); err != nil {
		return nil, unusable(dir, err)
	}
	if s.lock, err = lockDir(dir, opt.Now()); err != nil {
		return nil, unusable(dir, err)
	}
	if err := s.load(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close makes what was committed durable and gives the lock back. Parts in progress
// are lost.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.pack.close(), s.lock.Close())
}

// stillOurs refuses to write into a directory that is gone, or that became another's
// while this process ran: what it would add there belongs to nobody.
func (s *Store) stillOurs() error {
	mine, err := s.lock.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(filepath.Join(s.dir, lockFile))
	if err == nil && os.SameFile(mine, there) {
		return nil
	}
	return fmt.Errorf("%s %w: the points that it held are lost: run the sweep again with another --out", s.dir, ErrLost)
}

// checkForeign refuses a folder that has files and is no results directory.
func checkForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == manifestFile {
			return nil
		}
	}
	for _, e := range entries {
		if name := e.Name(); !known(name) {
			return fmt.Errorf("%s holds %s and no %s, so it is no results directory (%w): choose another --out", dir, name, manifestFile, ErrForeignResults)
		}
	}
	return nil
}

// known reports whether a results directory can hold a file or folder of that name.
func known(name string) bool {
	for id := range tableCount {
		if name == id.File() {
			return true
		}
	}
	return slices.Contains([]string{lockFile, partsDir, specFile, PageFile}, name) ||
		strings.HasPrefix(name, pointPrefix) || strings.HasSuffix(name, tmpSuffix)
}

// load reads what the directory says of itself, or writes it, and lists the parts.
func (s *Store) load() error {
	have, err := readManifest(s.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return s.create()
	case err != nil:
		return err
	}
	if err := s.match(have); err != nil {
		return err
	}
	s.manifest = *have
	s.manifest.Version = s.opt.Identity.Version
	s.manifest.StartedAt = stamp(s.opt.Now())
	if _, err := s.take(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.dir, specFile)); errors.Is(err, os.ErrNotExist) {
		return s.writeSpec()
	}
	return nil
}

// take makes the whole parts of the specification the finished points; others counts
// the parts that are not.
func (s *Store) take() (others int, err error) {
	list, err := listParts(s.dir, s.opt.Identity.SpecDigest)
	for _, f := range list.finished {
		s.finished[f.Key] = f
	}
	s.pack.next = list.packs
	return list.others, err
}

// Versions counts the finished points by the version of the program that ran them.
func (s *Store) Versions() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, f := range s.finished {
		out[f.Version]++
	}
	return out
}

// match refuses a directory of another specification or schema.
func (s *Store) match(m *Manifest) error {
	if m.SchemaVersion != SchemaVersion {
		return fmt.Errorf("%s has schema version %d, this program writes %d (%w): choose another --out; report and compare read it", s.dir, m.SchemaVersion, SchemaVersion, ErrForeignResults)
	}
	if id := s.opt.Identity; m.SpecDigest != id.SpecDigest {
		return fmt.Errorf("%s belongs to specification %s (%s), not to %s (%s) (%w): choose another --out", s.dir, m.SpecDigest, m.Name, id.SpecDigest, id.Name, ErrForeignResults)
	}
	return nil
}

// create makes the directory ours: the specification first, the manifest last. Parts
// that are there, of a directory that lost its manifest, are taken if they are ours.
func (s *Store) create() error {
	others, err := s.take()
	if err != nil {
		return err
	}
	if len(s.finished) == 0 {
		if err := s.unclaimed(others); err != nil {
			return err
		}
	}
	now := stamp(s.opt.Now())
	id := s.opt.Identity
	s.manifest = Manifest{Name: id.Name, Version: id.Version, SchemaVersion: SchemaVersion,
		SpecDigest: id.SpecDigest, CreatedAt: now, StartedAt: now}
	if err := s.writeSpec(); err != nil {
		return err
	}
	return s.writeManifest()
}

// unclaimed refuses to replace what another sweep left in a directory without manifest,
// of which others is the number of its parts.
func (s *Store) unclaimed(others int) error {
	if others > 0 {
		return fmt.Errorf("%s has no %s, and its %d finished points are of another specification (%w): choose another --out", s.dir, manifestFile, others, ErrForeignResults)
	}
	raw, err := os.ReadFile(filepath.Join(s.dir, specFile))
	taken := ""
	if err == nil && !bytes.Equal(raw, s.opt.Spec) {
		taken = specFile
	}
	for id := range tableCount {
		if _, err := os.Stat(filepath.Join(s.dir, id.File())); err == nil {
			taken = id.File()
		}
	}
	if taken != "" {
		return fmt.Errorf("%s holds %s of something else and no %s (%w): choose another --out", s.dir, taken, manifestFile, ErrForeignResults)
	}
	return nil
}

func (s *Store) writeSpec() error {
	return writeDurably(s.fs, filepath.Join(s.dir, specFile), func(w io.Writer) error {
		_, err := w.Write(s.opt.Spec)
		return err
	})
}

// Finished lists the points that ended, by point id and seed.
func (s *Store) Finished() []Finished {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Finished, 0, len(s.finished))
	for _, f := range s.finished {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Finished) int { return compareKeys(a.Key, b.Key) })
	return out
}

// note remembers a part that became durable. The caller holds mu.
func (s *Store) note(f Finished) { s.finished[f.Key] = f }

// Write is Begin and Commit for a point without child rows.
func (s *Store) Write(row *Point) error {
	p, err := s.Begin(row.Key)
	if err != nil {
		return err
	}
	return p.Commit(row)
}

// String names the key: the point, and its seed where it has one.
func (k Key) String() string {
	if !k.Seeded {
		return k.Point
	}
	return k.Point + "-seed" + strconv.FormatInt(k.Seed, 10)
}

func compareKeys(a, b Key) int {
	if c := strings.Compare(a.Point, b.Point); c != 0 {
		return c
	}
	switch {
	case a.Seeded != b.Seeded && b.Seeded, a.Seed < b.Seed:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// Inspect reads what a results directory says of itself and of its points, without
// a lock: another process may be writing it.
func Inspect(dir string) (*Manifest, []Finished, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, nil, err
	}
	list, err := listParts(dir, m.SpecDigest)
	if errors.Is(err, os.ErrNotExist) {
		err = nil // no parts, so nothing has finished
	}
	slices.SortFunc(list.finished, func(a, b Finished) int { return compareKeys(a.Key, b.Key) })
	return m, list.finished, err
}

// CountParts is the number of points and seeds of a specification that ended, whether or
// not they are in its tables yet.
func CountParts(dir, specDigest string) (int, error) {
	list, err := listParts(dir, specDigest)
	return len(list.finished), err
}
