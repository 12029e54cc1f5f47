// Package npz reads arrays of numbers from .npz files: ZIP archives of .npy arrays,
// as NumPy writes them, of format versions 1 to 3.
//
// New opens an archive and Array reads one array of it. Float64 and int64 are
// understood, in either byte order, in C or Fortran order; values come in row-major
// order. Memory is bounded by the file: an array whose header promises more than its
// entry can hold is refused before anything is allocated for it.
package npz

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// ErrAbsent is the class of errors about arrays that an archive does not hold.
var ErrAbsent = errors.New("not found in archive")

const (
	maxEntries = 1 << 24 // of an array
	maxHeader  = 1 << 16 // bytes of the dictionary
	maxRatio   = 1100    // what deflate unpacks from a byte at most, rounded up
)

// Archive is an open .npz file.
type Archive struct{ zip *zip.Reader }

// New opens the archive that r holds in size bytes.
func New(r io.ReaderAt, size int64) (*Archive, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, err
	}
	return &Archive{z}, nil
}

// Array is an array of numbers.
type Array struct {
	Descr  string // type of the elements as the file names it, for example "<f8"
	Shape  []int  // [dimension], none for a single number
	Values []float64
}

// Array returns the array that is stored as name.npy, or an error of class ErrAbsent.
func (a *Archive) Array(name string) (Array, error) {
	for _, f := range a.zip.File {
		if f.Name != name+".npy" {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return Array{}, err
		}
		defer r.Close()
		size := f.UncompressedSize64
		if f.CompressedSize64 < math.MaxUint64/maxRatio {
			size = min(size, f.CompressedSize64*maxRatio)
		}
		return readArray(r, size)
	}
	return Array{}, fmt.Errorf("%s.npy %w", name, ErrAbsent)
}

// readArray reads an .npy file of at most size bytes.
func readArray(r io.Reader, size uint64) (Array, error) {
	h, err := readHeader(r)
	if err != nil {
		return Array{}, err
	}
	entries := 1
	for _, n := range h.shape {
		if n > 0 && entries > maxEntries/n {
			return Array{}, fmt.Errorf("array of shape %v is too large", h.shape)
		}
		entries *= n
	}
	if uint64(8*entries) > size {
		return Array{}, fmt.Errorf("data of %d entries cannot stand in %d bytes", entries, size)
	}
	raw := make([]byte, 8*entries)
	if n, err := io.ReadFull(r, raw); err != nil {
		return Array{}, fmt.Errorf("data of %d entries ends after %d bytes", entries, n)
	}
	a := Array{Descr: h.descr, Shape: h.shape, Values: make([]float64, entries)}
	for i := range a.Values {
		from := i
		if h.fortran {
			from = columnMajor(i, h.shape)
		}
		bits := h.order.Uint64(raw[8*from:])
		if h.integer {
			a.Values[i] = float64(int64(bits))
		} else {
			a.Values[i] = math.Float64frombits(bits)
		}
	}
	return a, nil
}

// columnMajor is the index in Fortran order of the element that has index i in
// row-major order.
func columnMajor(i int, shape []int) int {
	index, stride := 0, 1
	for _, n := range shape {
		stride *= n
	}
	for d := len(shape) - 1; d >= 0; d-- {
		stride /= shape[d]
		index += i % shape[d] * stride
		i /= shape[d]
	}
	return index
}

// header is what a .npy file says about its data.
type header struct {
	descr            string
	order            binary.ByteOrder
	integer, fortran bool
	shape            []int
}

// readHeader reads the magic, the version and the dictionary of a .npy file.
func readHeader(r io.Reader) (header, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:6]) != "\x93NUMPY" {
		return header{}, errors.New("start does not match NPY format")
	}
	if head[6] < 1 || head[6] > 3 {
		return header{}, fmt.Errorf("NPY format version %d is not known", head[6])
	}
	size := make([]byte, 2)
	if head[6] > 1 {
		size = make([]byte, 4)
	}
	if _, err := io.ReadFull(r, size); err != nil {
		return header{}, fmt.Errorf("header length: %w", err)
	}
	n := uint32(binary.LittleEndian.Uint16(size))
	if len(size) == 4 {
		n = binary.LittleEndian.Uint32(size)
	}
	if n > maxHeader {
		return header{}, fmt.Errorf("header of %d bytes is too long", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return header{}, fmt.Errorf("header of %d bytes: %w", n, err)
	}
	return parseHeader(string(text))
}

// parseHeader reads the three entries of a header dictionary, such as
//
//	{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }
func parseHeader(text string) (header, error) {
	h := header{descr: quoted(entry(text, "descr")), order: binary.LittleEndian}
	switch h.descr {
	case "<f8", "=f8":
	case "<i8", "=i8":
		h.integer = true
	case ">f8", ">i8":
		h.order, h.integer = binary.BigEndian, h.descr == ">i8"
	default:
		return header{}, fmt.Errorf("incorrect descriptor ('%s') for this type", h.descr)
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
