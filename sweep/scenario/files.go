package scenario

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// Files reads the files that documents name and remembers the digest of each, so
// that the points of a grid share the work. It is not safe for goroutines. The
// zero value is ready.
type Files struct {
	digests map[string]string // [path], hex SHA-256 of the content
	read    []string
}

// Read lists what was read so far, documents and what they name: no output may
// replace it.
func (s *Files) Read() []string { return s.read }

// maxDocument bounds what is read as a document; traces are only digested.
const maxDocument = 64 << 20

// Document reads a whole document; origin names the input that asked for it.
func (s *Files) Document(origin, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &document.Fault{Origin: origin, Msg: "cannot read " + path + ": " + cause(err)}
	}
	defer f.Close()
	s.read = append(s.read, path)
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return nil, &document.Fault{Origin: origin, Msg: "cannot read " + path + ": " + cause(err)}
	}
	if len(text) > maxDocument {
		return nil, &document.Fault{Origin: origin, Msg: path + ": a document of more than 64 MiB"}
	}
	return text, nil
}

// cause drops operation and path from a file error: the message names the path.
func cause(err error) string {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// ref describes a file by path and content. A folder counts as the sorted list
// of its files with their contents.
func (s *Files) ref(path string) (resolved.FileRef, error) {
	if d, ok := s.digests[path]; ok {
		return resolved.FileRef{Path: path, SHA256: d}, nil
	}
	sum := sha256.New()
	st, err := os.Stat(path)
	switch {
	case err != nil:
	case st.IsDir():
		err = filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			name, err := filepath.Rel(path, at)
			if err != nil {
				return err
			}
			one := sha256.New()
			if err := copyFile(one, at); err != nil {
				return err
			}
			fmt.Fprintf(sum, "%q %x\n", filepath.ToSlash(name), one.Sum(nil))
			return nil
		})
	case !st.Mode().IsRegular():
		err = errors.New("not a regular file: it is read more than once, so write it to a file first")
	default:
		err = copyFile(sum, path)
	}
	if err != nil {
		return resolved.FileRef{}, &document.Fault{Msg: "cannot read " + path + ": " + cause(err)}
	}
	if s.digests == nil {
		s.digests = map[string]string{}
	}
	s.digests[path] = hex.EncodeToString(sum.Sum(nil))
	s.read = append(s.read, path)
	return resolved.FileRef{Path: path, SHA256: s.digests[path]}, nil
}

// warmup describes the Planner's warm-up trace: a file, a folder, or a pattern,
// which counts as the list of the contents that it matches.
func (s *Files) warmup(path string) (resolved.FileRef, error) {
	if _, err := os.Stat(path); err == nil || !strings.ContainsAny(path, "*?[") {
		return s.ref(path)
	}
	names, err := planner.WarmupFiles(path)
	if err != nil {
		return resolved.FileRef{}, err
	}
	sum := sha256.New()
	for _, name := range names {
		one, err := s.ref(name)
		if err != nil {
			return resolved.FileRef{}, err
		}
		fmt.Fprintf(sum, "%s\n", one.SHA256)
	}
	return resolved.FileRef{Path: path, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// profile describes a timing profile; a raw-data JSON file stands for its folder,
// from which the other phase is read too.
func (s *Files) profile(path string) (resolved.FileRef, error) {
	if st, err := os.Stat(path); err == nil && !st.IsDir() && filepath.Ext(path) != ".npz" {
		folder, err := s.ref(filepath.Dir(path))
		return resolved.FileRef{Path: path, SHA256: folder.SHA256}, err
	}
	return s.ref(path)
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
