package aic

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
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
	ids    map[string]int32
}

// maxRows bounds a table file; the largest measured one has a hundredth of it.
const maxRows = 1 << 24

// unread are the columns that no table looks at.
var unread = map[string]bool{"framework": true, "version": true, "device": true, "power": true, "power_limit": true, "architecture": true, "implementation": true}

// readParquet decodes one table file (spec aic-perfmodel 3.4). Text columns may be
// string, large string or dictionary, which are the same in the file.
func readParquet(path string, data []byte) (r *rows, err error) {
	defer func() { // the decoder panics on some damaged files
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("%s: damaged parquet file: %v", path, p)
		}
	}()
	if strings.HasPrefix(string(data[:min(len(data), 40)]), "version https://git-lfs") {
		return nil, fmt.Errorf("%s: unresolved git-lfs pointer, not a table; fetch the large files first", path)
	}
	f, err := file.NewParquetReader(bytes.NewReader(data), file.WithReadProps(parquet.NewReaderProperties(&limitedMemory{})))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if n := f.NumRows(); n < 0 || n > maxRows {
		return nil, fmt.Errorf("%s: claims %d rows", path, n)
	}
	r = &rows{path: path, n: int(f.NumRows()), cols: map[string]*column{}}
	for j := range f.MetaData().Schema.NumColumns() {
		name := f.MetaData().Schema.Column(j).Path()
		if unread[name] {
			continue
		}
		col := &column{ids: map[string]int32{}}
		for g := range f.NumRowGroups() {
			c, err := f.RowGroup(g).Column(j)
			if err == nil {
				err = col.chunk(c)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: column %s: %w", path, name, err)
			}
		}
		r.cols[name] = col
	}
	return r, nil
}

// limitedMemory refuses the huge buffers that a damaged file asks for.
type limitedMemory struct{ memory.GoAllocator }

func (m *limitedMemory) Allocate(n int) []byte {
	if n > 1<<28 {
		panic(fmt.Sprintf("asks for %d bytes at once", n))
	}
	return m.GoAllocator.Allocate(n)
}

func (m *limitedMemory) Reallocate(n int, b []byte) []byte {
	if n > 1<<28 {
		panic(fmt.Sprintf("asks for %d bytes at once", n))
	}
	return m.GoAllocator.Reallocate(n, b)
}

// pageReader is a column chunk of values T.
type pageReader[T any] interface {
	HasNext() bool
	Err() error
	Descriptor() *schema.Column
	ReadBatchInPage(n int64, values []T, defs, reps []int16) (total int64, read int, err error)
}

// eachValue calls put for every row, with the zero value for null.
func eachValue[T any](c pageReader[T], put func(T)) error {
	const batch = 4096
	values, defs := make([]T, batch), make([]int16, batch)
	top := c.Descriptor().MaxDefinitionLevel()
	if c.Descriptor().MaxRepetitionLevel() > 0 {
		return fmt.Errorf("lists are not read")
	}
	rows := 0
	for c.HasNext() {
		total, read, err := c.ReadBatchInPage(batch, values, defs, nil)
		if err != nil {
			return err
		}
		if rows += int(total); total <= 0 || rows > maxRows {
			return fmt.Errorf("damaged page")
		}
		at := 0
		for i := range int(total) {
			var v T
			if (top == 0 || defs[i] == top) && at < read {
				v = values[at]
				at++
			}
			put(v)
		}
	}
	return c.Err()
}

func (col *column) chunk(chunk file.ColumnChunkReader) error {
	switch c := chunk.(type) {
	case *file.Int64ColumnChunkReader:
		return eachValue(c, func(v int64) { col.ints = append(col.ints, v) })
	case *file.Int32ColumnChunkReader:
		return eachValue(c, func(v int32) { col.ints = append(col.ints, int64(v)) })
	case *file.Float64ColumnChunkReader:
		return eachValue(c, func(v float64) { col.floats = append(col.floats, v) })
	case *file.ByteArrayColumnChunkReader:
		return eachValue(c, func(v parquet.ByteArray) {
			id, ok := col.ids[string(v)]
			if !ok {
				id = int32(len(col.words))
				col.words = append(col.words, string(v))
				col.ids[string(v)] = id
			}
			col.codes = append(col.codes, id)
		})
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
