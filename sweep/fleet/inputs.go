package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// maxInputs bounds the input files of a sweep, which travel through the broker.
const maxInputs = 256 << 20

// useOfPath is a path and what is read there.
type useOfPath struct {
	path string
	use  scenario.PathUse
}

// listInputs finds the files that the points read, with their digests; local says where
// each stands on this machine, by digest.
func listInputs(todo []sweep.Task) (list []input, local map[string]string, err error) {
	local = map[string]string{}
	seen := map[useOfPath]bool{}
	total := int64(0)
	for _, t := range todo {
		_, err := t.Run.WithPaths(func(path string, use scenario.PathUse) (string, error) {
			if seen[useOfPath{path, use}] {
				return path, nil
			}
			seen[useOfPath{path, use}] = true
			in, err := listInput(path, use, local)
			if err != nil {
				return "", err
			}
			for _, f := range in.Files {
				total += f.Bytes
			}
			list = append(list, in)
			return path, nil
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
	}
	if total > maxInputs {
		return nil, nil, fmt.Errorf("%w: the input files have %d MiB, and at most %d MiB go through the broker: run the sweep without --on", ErrInput, total>>20, maxInputs>>20)
	}
	return list, local, nil
}

func listInput(path string, use scenario.PathUse, local map[string]string) (input, error) {
	in := input{Path: path, Use: use}
	dir, names, err := filesOf(path, use)
	if err != nil {
		return in, err
	}
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		in.Base = filepath.Base(path)
	}
	for _, name := range names {
		f := inputFile{Name: filepath.ToSlash(name)}
		full := filepath.Join(dir, name)
		if f.SHA256, f.Bytes, err = digestOf(full); err != nil {
			return in, err
		}
		if err := f.check(); err != nil {
			return in, fmt.Errorf("%s: %w", full, err)
		}
		local[f.SHA256] = full
		in.Files = append(in.Files, f)
	}
	return in, nil
}

// filesOf lists what is read at a path, relative to a folder.
func filesOf(path string, use scenario.PathUse) (dir string, names []string, err error) {
	st, statErr := os.Stat(path)
	folder := statErr == nil && st.IsDir()
	switch {
	case use == scenario.ReadsWarmup:
		files, err := planner.WarmupFiles(path)
		if err != nil {
			return "", nil, err
		}
		for _, f := range files {
			if dir == "" {
				dir = filepath.Dir(f)
			}
			if filepath.Dir(f) != dir {
				return "", nil, fmt.Errorf("%s matches files of several folders, which does not run on a fleet: put them into one", path)
			}
			names = append(names, filepath.Base(f))
		}
		return dir, names, nil
	case statErr != nil:
		return "", nil, statErr
	case use == scenario.ReadsModel:
		for _, name := range []string{"config.json", "hf_quant_config.json"} {
			if _, err := os.Stat(filepath.Join(path, name)); err == nil {
				names = append(names, name)
			}
		}
		return path, names, nil
	case !folder && use == scenario.ReadsFolder:
		path, folder = filepath.Dir(path), true
	}
	if !folder {
		return filepath.Dir(path), []string{filepath.Base(path)}, nil
	}
	err = filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var name string
			name, err = filepath.Rel(path, at)
			names = append(names, name)
		}
		return err
	})
	return path, names, err
}

func digestOf(name string) (string, int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// upload brings the files that the broker lacks to it, each under its digest.
func upload(ctx context.Context, store jetstream.ObjectStore, list []input, local map[string]string) error {
	for _, in := range list {
		for _, f := range in.Files {
			if _, err := store.GetInfo(ctx, f.SHA256); err == nil {
				continue
			}
			file, err := os.Open(local[f.SHA256])
			if err != nil {
				return err
			}
			_, err = store.Put(ctx, jetstream.ObjectMeta{Name: f.SHA256}, file)
			file.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// cache holds input files by what they stand for. Each input has a folder that is named
// by the digest of its list and appears whole.
type cache struct {
	dir string
	mu  sync.Mutex
}

// place brings an input into the cache and says the path that a run reads it at.
func (c *cache) place(ctx context.Context, in *input, get func(ctx context.Context, f *inputFile, to io.Writer) error) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := sha256.New()
	files := slices.Clone(in.Files)
	slices.SortFunc(files, func(a, b inputFile) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		fmt.Fprintf(h, "%q %s\n", f.Name, f.SHA256)
	}
	dir := filepath.Join(c.dir, "sha256-"+hex.EncodeToString(h.Sum(nil)))
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := c.fill(ctx, dir, files, get); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, filepath.FromSlash(in.Base)), nil
}

func (c *cache) fill(ctx context.Context, dir string, files []inputFile, get func(ctx context.Context, f *inputFile, to io.Writer) error) error {
	tmp, err := os.MkdirTemp(c.dir, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for i := range files {
		if err := fetch(ctx, filepath.Join(tmp, filepath.FromSlash(files[i].Name)), &files[i], get); err != nil {
			return fmt.Errorf("input %s: %w", files[i].Name, err)
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return nil // another process of this machine was first
		}
		return err
	}
	return nil
}

// fetch writes one file and refuses content of another digest or length.
func fetch(ctx context.Context, name string, f *inputFile, get func(ctx context.Context, f *inputFile, to io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	h := sha256.New()
	err = errors.Join(get(ctx, f, io.MultiWriter(file, h)), file.Close())
	if err == nil && hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		err = errors.New("what came is not what its digest says")
	}
	return err
}
