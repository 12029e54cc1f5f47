package aic

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// rows are the columns of one source file in file order.
type rows struct {
	path string
	n    int
	cols map[string]*column
}

// column holds integers, floats or words; words are kept once each.
type column struct {
	ints   []int64
	floats []float64
	codes  []int32
	words  []string
}

// readParquet decodes one table file (spec aic-perfmodel 3.4). Text columns may be
// string, large string or dictionary.
func readParquet(path string, data []byte) (r *rows, err error) {
	defer func() { // the decoder panics on some damaged files
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("%s: damaged parquet file: %v", path, p)
		}
	}()
	if strings.HasPrefix(string(data[:min(len(data), 40)]), "version https://git-lfs") {
		return nil, fmt.Errorf("%s: unresolved git-lfs pointer, not a table; fetch the large files first", path)
	}
	f, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	ar, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t, err := ar.ReadTable(context.Background())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer t.Release()
	r = &rows{path: path, n: int(t.NumRows()), cols: map[string]*column{}}
	for i := 0; i < int(t.NumCols()); i++ {
		c := t.Column(i)
		col, err := readColumn(c)
		if err != nil {
			return nil, fmt.Errorf("%s: column %s: %w", path, c.Name(), err)
		}
		r.cols[c.Name()] = col
	}
	return r, nil
}

func readColumn(c *arrow.Column) (*column, error) {
	col, ids := &column{}, map[string]int32{}
	word := func(w string) {
		id, ok := ids[w]
		if !ok {
			w = strings.Clone(w)
			id = int32(len(col.words))
			ids[w] = id
			col.words = append(col.words, w)
		}
		col.codes = append(col.codes, id)
	}
	for _, chunk := range c.Data().Chunks() {
		if err := col.chunk(chunk, word); err != nil {
			return nil, err
		}
	}
	return col, nil
}

func (col *column) chunk(chunk arrow.Array, word func(string)) error {
	text := func(a interface{ Value(int) string }) {
		for i := 0; i < chunk.Len(); i++ {
			if chunk.IsNull(i) {
				word("")
			} else {
				word(a.Value(i))
			}
		}
	}
	switch a := chunk.(type) {
	case *array.Int64:
		col.ints = append(col.ints, a.Int64Values()...)
	case *array.Int32:
		for _, v := range a.Int32Values() {
			col.ints = append(col.ints, int64(v))
		}
	case *array.Float64:
		col.floats = append(col.floats, a.Float64Values()...)
	case *array.String:
		text(a)
	case *array.LargeString:
		text(a)
	case *array.Dictionary:
		dict, ok := a.Dictionary().(interface{ Value(int) string })
		if !ok {
			return fmt.Errorf("dictionary of %s is not read", a.Dictionary().DataType())
		}
		for i := 0; i < a.Len(); i++ {
			if a.IsNull(i) {
				word("")
			} else {
				word(dict.Value(a.GetValueIndex(i)))
			}
		}
	case *array.Null:
		for i := 0; i < a.Len(); i++ {
			word("")
		}
	}
	return nil // columns of any other type are not asked for
}

// rowReader gives the columns of one source to a table loader, and keeps the first error.
type rowReader struct {
	*rows
	b   *builder
	err error
}

// ints returns a required integer column.
func (r *rowReader) ints(name string) []int64 {
	if c := r.cols[name]; c != nil && len(c.ints) == r.n {
		return c.ints
	}
	if r.err == nil {
		r.err = fmt.Errorf("%s: no integer column %q", r.path, name)
	}
	return make([]int64, r.n)
}

// optInts returns an integer column, zeros where the file has none.
func (r *rowReader) optInts(name string) []int64 {
	if c := r.cols[name]; c != nil && len(c.ints) == r.n {
		return c.ints
	}
	return make([]int64, r.n)
}

// words returns a text column as ids of the builder; absent or empty reads as def,
// unless def is empty and required is set.
func (r *rowReader) words(name, def string, required bool) []int32 {
	out := make([]int32, r.n)
	c := r.cols[name]
	if c == nil || len(c.codes) != r.n {
		if required && r.err == nil {
			r.err = fmt.Errorf("%s: no text column %q", r.path, name)
		}
		id := r.b.word(def)
		for i := range out {
			out[i] = id
		}
		return out
	}
	ids := make([]int32, len(c.words))
	for i, w := range c.words {
		if w == "" {
			w = def
		}
		ids[i] = r.b.word(w)
	}
	for i, code := range c.codes {
		out[i] = ids[code]
	}
	return out
}

// text returns the text of one cell, empty where the column is absent.
func (r *rowReader) text(name string, i int) string {
	if c := r.cols[name]; c != nil && len(c.codes) == r.n {
		return c.words[c.codes[i]]
	}
	return ""
}

// latency returns the latency column, ms; every value must be finite.
func (r *rowReader) latency() []float64 {
	c := r.cols["latency"]
	if c == nil || len(c.floats) != r.n {
		if r.err == nil {
			r.err = fmt.Errorf("%s: no float column \"latency\"", r.path)
		}
		return make([]float64, r.n)
	}
	for i, v := range c.floats {
		if (math.IsNaN(v) || math.IsInf(v, 0)) && r.err == nil {
			r.err = fmt.Errorf("%s: row %d: latency is not finite", r.path, i)
		}
	}
	return c.floats
}
