package results

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Manifest is manifest.json: whose results these are, and where and when they were
// made. Times are real, UTC, RFC 3339.
type Manifest struct {
	Name          string         `json:"name"`
	Version       string         `json:"version"`
	SchemaVersion int            `json:"schema_version"`
	SpecDigest    string         `json:"spec_digest"`
	CreatedAt     string         `json:"created_at"`
	StartedAt     string         `json:"started_at"`            // of the latest run
	FinishedAt    string         `json:"finished_at,omitempty"` // of the latest Finalize
	Machine       Machine        `json:"machine"`
	Points        map[Status]int `json:"points"` // rows of points.parquet
	Open          int            `json:"open"`   // rows that it will have beside these
}

// Machine is where the latest run was made.
type Machine struct {
	Host  string `json:"host"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (s *Store) writeManifest() error {
	host, _ := os.Hostname()
	s.manifest.Machine = Machine{host, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()}
	return writeDurably(s.fs, filepath.Join(s.dir, manifestFile), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(&s.manifest)
	})
}

// ReadManifest reads what a results directory says of itself.
func ReadManifest(dir string) (*Manifest, error) { return readManifest(dir) }

func readManifest(dir string) (*Manifest, error) {
	name := filepath.Join(dir, manifestFile)
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := decodeManifest(f)
	if err != nil {
		return nil, fmt.Errorf("%s is %w: %v: remove it and run the sweep again, which keeps the finished points", name, ErrDamaged, err)
	}
	return m, nil
}

// maxManifest bounds what is read as a manifest, in bytes; one has a few thousand.
const maxManifest = 16 << 20

func decodeManifest(r io.Reader) (*Manifest, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxManifest {
		return nil, fmt.Errorf("more than %d MiB", maxManifest>>20)
	}
	m := new(Manifest)
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, err
	}
	return m, nil
}
