package npz

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// npy is an array file of format version 1.
func npy(dictionary string, order binary.ByteOrder, values any) []byte {
	var b bytes.Buffer
	b.WriteString("\x93NUMPY\x01\x00")
	binary.Write(&b, binary.LittleEndian, uint16(len(dictionary)))
	b.WriteString(dictionary)
	binary.Write(&b, order, values)
	return b.Bytes()
}

// pack is an archive of one array called a.
func pack(t testing.TB, file []byte) *Archive {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("a.npy")
	if err == nil {
		_, err = w.Write(file)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestOrdersGiveTheSameArray(t *testing.T) {
	want := []float64{1, 2, 3, 4, 5, 6} // 2 x 3, row-major
	for _, c := range []struct {
		descr, fortran string
		order          binary.ByteOrder
		values         any
	}{
		{"<f8", "False", binary.LittleEndian, want},
		{">f8", "False", binary.BigEndian, want},
		{"<f8", "True", binary.LittleEndian, []float64{1, 4, 2, 5, 3, 6}},
		{">i8", "True", binary.BigEndian, []int64{1, 4, 2, 5, 3, 6}},
		{"<i8", "False", binary.LittleEndian, []int64{1, 2, 3, 4, 5, 6}},
	} {
		dictionary := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (2, 3), }", c.descr, c.fortran)
		got, err := pack(t, npy(dictionary, c.order, c.values)).Array("a")
		if err != nil || !slices.Equal(got.Values, want) || !slices.Equal(got.Shape, []int{2, 3}) || got.Descr != c.descr {
			t.Errorf("%s: %+v, %v", dictionary, got, err)
		}
	}
}

func TestThreeDimensionsInFortranOrder(t *testing.T) {
	shape := []int{2, 3, 4}
	column := make([]float64, 24)
	want := make([]float64, 24)
	for i := range 2 {
		for j := range 3 {
			for k := range 4 {
				want[(i*3+j)*4+k] = float64(100*i + 10*j + k)
				column[i+2*(j+3*k)] = float64(100*i + 10*j + k)
			}
		}
	}
	a, err := pack(t, npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3, 4)}", binary.LittleEndian, column)).Array("a")
	if err != nil || !slices.Equal(a.Values, want) || !slices.Equal(a.Shape, shape) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestRefusals(t *testing.T) {
	for dictionary, want := range map[string]string{
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}":                 "incorrect descriptor ('<f4')",
		"{'descr': '<f8', 'fortran_order': Maybe, 'shape': (1,)}":                 "fortran_order must be True or False",
		"{'descr': '<f8', 'fortran_order': False, 'shape': 1}":                    "shape must be a tuple",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}":                "must be a whole number",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}":                 "ends after 8 bytes",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000,)}":           "cannot stand in",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (16777216, 16777216)}": "is too large",
	} {
		if _, err := pack(t, npy(dictionary, binary.LittleEndian, []float64{1})).Array("a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dictionary, err, want)
		}
	}
	if _, err := pack(t, nil).Array("b"); !errors.Is(err, ErrAbsent) {
		t.Errorf("an absent array: %v", err)
	}
}

// A header may promise 128 MiB in a file of a few bytes: the refusal must come before
// the memory does.
func TestPromisesAreNotAllocated(t *testing.T) {
	archive := pack(t, npy("{'descr': '<f8', 'fortran_order': False, 'shape': (16777216,)}", binary.LittleEndian, []float64{1}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := archive.Array("a"); err == nil {
		t.Error("accepted")
	}
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 1<<20 {
		t.Errorf("%d bytes are allocated for a file of a few", bytes)
	}
}

func FuzzArray(f *testing.F) {
	f.Add([]byte("\x93NUMPY\x01\x00"))
	f.Add(npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 1), }", binary.LittleEndian, []float64{1, math.NaN()}))
	f.Add(npy("{'descr': '>i8', 'fortran_order': False, 'shape': (), }", binary.BigEndian, []int64{7}))
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := readArray(bytes.NewReader(file), uint64(len(file)))
		if err != nil {
			return
		}
		entries := 1
		for _, n := range a.Shape {
			entries *= n
		}
		if len(a.Values) != entries {
			t.Errorf("shape %v with %d values", a.Shape, len(a.Values))
		}
	})
}
