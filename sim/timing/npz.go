package timing

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
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
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("Failed to create NPZ reader: %w", err)
	}
	names := [...]string{"prefill_isl", "prefill_ttft_ms", "decode_active_kv_tokens", "decode_context_length", "decode_itl"}
	var arrays [len(names)]array
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
	return NewProfile(arrays[0].values, arrays[1].values, arrays[2].values, arrays[3].values,
		itl.values, itl.shape[0], itl.shape[1])
}

// array is a float64 array in row-major order.
type array struct {
	shape  [2]int
	values []float64
}

// maxEntries bounds an array, so that a damaged header cannot ask for all memory.
const maxEntries = 1 << 24

// readArray reads name.npy, which must have dims dimensions.
func readArray(z *zip.Reader, name string, dims int) (array, error) {
	f, err := z.Open(name + ".npy")
	if err != nil {
		return array{}, fmt.Errorf("%s.npy not found in archive", name)
	}
	defer f.Close()
	h, err := readHeader(f)
	if err != nil {
		return array{}, err
	}
	if len(h.shape) != dims {
		return array{}, fmt.Errorf("ndim %d of array did not match Dimension type with NDIM = Some(%d)", len(h.shape), dims)
	}
	a := array{shape: [2]int{h.shape[0], 1}}
	if dims == 2 {
		a.shape[1] = h.shape[1]
	}
	rows, columns := a.shape[0], a.shape[1]
	if columns > 0 && rows > maxEntries/columns {
		return array{}, fmt.Errorf("array of %d x %d entries is too large", rows, columns)
	}
	raw, err := io.ReadAll(io.LimitReader(f, int64(8*rows*columns)))
	if err != nil || len(raw) < 8*rows*columns {
		return array{}, fmt.Errorf("data of %d entries ends after %d bytes", rows*columns, len(raw))
	}
	a.values = make([]float64, rows*columns)
	for i := range a.values {
		from := i
		if h.fortran {
			from = i%columns*rows + i/columns
		}
		a.values[i] = math.Float64frombits(h.order.Uint64(raw[8*from:]))
	}
	return a, nil
}

// header is what a .npy file says about its data.
type header struct {
	order   binary.ByteOrder
	fortran bool
	shape   []int
}

// readHeader reads the magic, the version and the dictionary of a .npy file.
func readHeader(r io.Reader) (header, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:6]) != "\x93NUMPY" {
		return header{}, errors.New("start does not match NPY format")
	}
	size := make([]byte, 2)
	if head[6] > 1 {
		size = make([]byte, 4)
	}
	if _, err := io.ReadFull(r, size); err != nil {
		return header{}, fmt.Errorf("header length: %w", err)
	}
	n := int64(binary.LittleEndian.Uint16(size))
	if len(size) == 4 {
		n = int64(binary.LittleEndian.Uint32(size))
	}
	text := make([]byte, min(n, 1<<16))
	if _, err := io.ReadFull(r, text); err != nil {
		return header{}, fmt.Errorf("header of %d bytes: %w", n, err)
	}
	return parseHeader(string(text))
}

// parseHeader reads the three entries of a header dictionary, such as
//
//	{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }
func parseHeader(text string) (header, error) {
	var h header
	switch descr := quoted(entry(text, "descr")); descr {
	case "<f8", "=f8":
		h.order = binary.LittleEndian
	case ">f8":
		h.order = binary.BigEndian
	default:
		return header{}, fmt.Errorf("incorrect descriptor ('%s') for this type", descr)
	}
	switch v := entry(text, "fortran_order"); {
	case strings.HasPrefix(v, "True"):
		h.fortran = true
	case !strings.HasPrefix(v, "False"):
		return header{}, fmt.Errorf("header %q: fortran_order must be True or False", text)
	}
	shape, ok := strings.CutPrefix(entry(text, "shape"), "(")
	shape, _, closed := strings.Cut(shape, ")")
	if !ok || !closed {
		return header{}, fmt.Errorf("header %q: shape must be a tuple", text)
	}
	for part := range strings.SplitSeq(shape, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return header{}, fmt.Errorf("header %q: shape entry %q must be a whole number", text, part)
		}
		h.shape = append(h.shape, int(n))
	}
	return h, nil
}

// entry returns what follows the key in the dictionary, from its first character.
func entry(text, key string) string {
	_, rest, ok := strings.Cut(text, "'"+key+"'")
	if !ok {
		return ""
	}
	_, rest, _ = strings.Cut(rest, ":")
	return strings.TrimSpace(rest)
}

// quoted returns the string literal at the start of v.
func quoted(v string) string {
	v, ok := strings.CutPrefix(v, "'")
	if !ok {
		return ""
	}
	v, _, _ = strings.Cut(v, "'")
	return v
}
