package planner

import (
	"archive/zip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
)

// readNPZ reads the named arrays of a ZIP of .npy files, flattened. Little-endian
// float64 and int64 are understood.
func readNPZ(name string, arrays []string) (map[string][]float64, error) {
	z, err := zip.OpenReader(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer z.Close()
	out := map[string][]float64{}
	for _, key := range arrays {
		f, err := z.Open(key + ".npy")
		if err != nil {
			continue
		}
		values, err := readNPY(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, key, err)
		}
		out[key] = values
	}
	return out, nil
}

// maxPoints bounds what a profile can hold.
const maxPoints = 1 << 24

// readNPY reads one array of format version 1 to 3.
func readNPY(r io.Reader) ([]float64, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil || string(head[:6]) != "\x93NUMPY" {
		return nil, errors.New("not an .npy array")
	}
	length := make([]byte, 4)
	if head[6] == 1 {
		length = length[:2]
	}
	if _, err := io.ReadFull(r, length); err != nil {
		return nil, err
	}
	size := uint32(binary.LittleEndian.Uint16(length))
	if len(length) == 4 {
		size = binary.LittleEndian.Uint32(length)
	}
	if size > 1<<16 {
		return nil, errors.New("header too long")
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	kind, count, err := describe(string(text))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(r, int64(8*count)))
	if err != nil {
		return nil, err
	}
	if len(raw) < 8*count {
		return nil, io.ErrUnexpectedEOF
	}
	out := make([]float64, count)
	for i := range out {
		bits := binary.LittleEndian.Uint64(raw[8*i:])
		if kind == "<i8" {
			out[i] = float64(int64(bits))
		} else {
			out[i] = math.Float64frombits(bits)
		}
	}
	return out, nil
}

// describe reads the element type and the number of elements from a header such as
// {'descr': '<f8', 'fortran_order': False, 'shape': (3,), }.
func describe(header string) (kind string, count int, err error) {
	_, rest, ok := strings.Cut(header, "'descr': '")
	kind, _, ok2 := strings.Cut(rest, "'")
	if !ok || !ok2 || kind != "<f8" && kind != "<i8" {
		return "", 0, fmt.Errorf("element type must be <f8 or <i8, got %q", kind)
	}
	_, rest, ok = strings.Cut(header, "'shape': (")
	shape, _, ok2 := strings.Cut(rest, ")")
	if !ok || !ok2 {
		return "", 0, errors.New("no shape")
	}
	count = 1
	for part := range strings.SplitSeq(shape, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > maxPoints || count*n > maxPoints {
			return "", 0, fmt.Errorf("bad shape (%s)", shape)
		}
		count *= n
	}
	return kind, count, nil
}

// readArrays reads a JSON object of numbers and lists of numbers.
func readArrays(name string) (map[string][]float64, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := map[string][]float64{}
	for key, v := range raw {
		var list []float64
		var one float64
		if json.Unmarshal(v, &list) == nil {
			out[key] = list
		} else if json.Unmarshal(v, &one) == nil {
			out[key] = []float64{one}
		}
	}
	return out, nil
}
