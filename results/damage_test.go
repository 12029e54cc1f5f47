package results

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A single flipped bit in the Arrow schema asked for 153 GB: the file was made by a
// sweep of eight points, and one bit of it was changed afterwards.
func TestFlippedBitInTheArrowSchemaIsDamage(t *testing.T) {
	_, err := ReadFile(filepath.Join("testdata", "flipped_bit.parquet"))
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "run its sweep again") {
		t.Fatal(err)
	}
}

// Reading a table with any one bit flipped takes a bounded amount of memory and ends
// with a table or with an error that says what to do.
func TestFlippedBitsCostBoundedMemory(t *testing.T) {
	dir := t.TempDir()
	mustSweep(t, dir, asPlanned)
	whole, err := os.ReadFile(filepath.Join(dir, Points.File()))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	name := filepath.Join(t.TempDir(), Points.File())
	var before, after runtime.MemStats
	for range 100 {
		torn := bytes.Clone(whole)
		at := rng.IntN(len(torn))
		torn[at] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(name, torn, 0o644); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&before)
		_, err := ReadFile(name)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 2*maxAllocation {
			t.Errorf("a flip in byte %d made the reader allocate %d MB", at, took>>20)
		}
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("a flip in byte %d: %v does not name the file", at, err)
		}
	}
}

// Whatever a manifest holds, it is read or refused.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"schema_version":2,"name":"x","spec_digest":"d","points":{"done":1},"open":0}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := decodeManifest(bytes.NewReader(text)); (m == nil) == (err == nil) {
			t.Errorf("%v, %v", m, err)
		}
	})
}
