package timing

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dynosweep/dynosweep/internal/npz"
)

// LoadProfile reads a profile from an .npz file: a ZIP of five .npy arrays of
// float64, in C or Fortran order (spec engine-timing 5).
func LoadProfile(path string) (*Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("Failed to open NPZ file: %q: %w", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("Failed to open NPZ file: %q: %w", path, err)
	}
	p, err := ReadProfile(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// ReadProfile is LoadProfile on an open file of size bytes.
func ReadProfile(r io.ReaderAt, size int64) (*Profile, error) {
	z, err := npz.New(r, size)
	if err != nil {
		return nil, fmt.Errorf("Failed to create NPZ reader: %w", err)
	}
	names := [...]string{"prefill_isl", "prefill_ttft_ms", "decode_active_kv_tokens", "decode_context_length", "decode_itl"}
	var arrays [len(names)]npz.Array
	for i, name := range names {
		dims := 1
		if i == len(names)-1 {
			dims = 2
		}
		if arrays[i], err = readArray(z, name, dims); err != nil {
			return nil, fmt.Errorf("Failed to load %s from NPZ: %w", name, err)
		}
	}
	itl := arrays[4]
	return NewProfile(arrays[0].Values, arrays[1].Values, arrays[2].Values, arrays[3].Values,
		itl.Values, itl.Shape[0], itl.Shape[1])
}

// readArray reads an array of float64, which must have dims dimensions.
func readArray(z *npz.Archive, name string, dims int) (npz.Array, error) {
	a, err := z.Array(name)
	switch {
	case err != nil:
	case !strings.HasSuffix(a.Descr, "f8"):
		err = fmt.Errorf("incorrect descriptor ('%s') for this type", a.Descr)
	case len(a.Shape) != dims:
		err = fmt.Errorf("ndim %d of array did not match Dimension type with NDIM = Some(%d)", len(a.Shape), dims)
	}
	return a, err
}
