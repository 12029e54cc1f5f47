package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// Frame is a table in memory, or a batch of its rows.
type Frame struct {
	Columns []Column // as the file has them, axes marked
	Meta    Meta
	series  []Series
	byName  map[string]int
	rows    int
}

// Meta is what a file says of itself.
type Meta struct {
	Version, SpecDigest string
	SchemaVersion       int
	Axes                []string  // columns of points.parquet that vary
	GridTTFTMs          []float64 // limits of sla_grid, points only
	GridITLMs           []float64
}

// Series is one column. Cells are asked by row; a null cell answers false.
type Series struct {
	Column
	valid  []bool
	ints   []int64   // Int64; 1 and 0 for Boolean
	floats []float64 // Float64
	texts  []string
	grids  []Grid
}

// Len is the number of rows.
func (f *Frame) Len() int { return f.rows }

// Column returns a column by name; nil if there is none.
func (f *Frame) Column(name string) *Series {
	i, ok := f.byName[name]
	if !ok {
		return nil
	}
	return &f.series[i]
}

// Null reports whether row i has no value.
func (s *Series) Null(i int) bool { return !s.valid[i] }

// Float is the number in row i of an Int64, Float64 or Boolean column.
func (s *Series) Float(i int) (float64, bool) {
	switch {
	case !s.valid[i]:
		return 0, false
	case s.Type == Float64:
		return s.floats[i], true
	case s.Type == Int64, s.Type == Boolean:
		return float64(s.ints[i]), true
	}
	return 0, false
}

// Int is the number in row i of an Int64 or Boolean column.
func (s *Series) Int(i int) (int64, bool) {
	if !s.valid[i] || s.Type != Int64 && s.Type != Boolean {
		return 0, false
	}
	return s.ints[i], true
}

// Grid is the SLA grid of row i.
func (s *Series) Grid(i int) (*Grid, bool) {
	if !s.valid[i] || s.Type != Nested {
		return nil, false
	}
	return &s.grids[i], true
}

// Text is row i as people read it; "" for null.
func (s *Series) Text(i int) string {
	if !s.valid[i] {
		return ""
	}
	switch s.Type {
	case Int64:
		return strconv.FormatInt(s.ints[i], 10)
	case Float64:
		return strconv.FormatFloat(s.floats[i], 'g', -1, 64)
	case Boolean:
		return strconv.FormatBool(s.ints[i] != 0)
	case Nested:
		raw, _ := json.Marshal(s.grids[i]) // integers marshal
		return string(raw)
	}
	return s.texts[i]
}

// ReadPoints reads points.parquet of a results directory.
func ReadPoints(dir string) (*Frame, error) { return ReadFile(filepath.Join(dir, Points.File())) }

// ReadFile reads a whole Parquet file of ours.
func ReadFile(name string) (*Frame, error) {
	var all *Frame
	err := scanFile(name, nil, func(f *Frame) error {
		if all == nil {
			all = f
			return nil
		}
		all.rows += f.rows
		for i := range all.series {
			all.series[i].extend(&f.series[i])
		}
		return nil
	})
	return all, err
}

func (s *Series) extend(o *Series) {
	s.valid = append(s.valid, o.valid...)
	s.ints = append(s.ints, o.ints...)
	s.floats = append(s.floats, o.floats...)
	s.texts = append(s.texts, o.texts...)
	s.grids = append(s.grids, o.grids...)
}

// Scan reads one table of a results directory in batches, in row order, at least
// one batch if the file is there. columns names the ones wanted; nil is all.
func Scan(dir string, id TableID, columns []string, fn func(*Frame) error) error {
	return scanFile(filepath.Join(dir, id.File()), columns, fn)
}

// damaged says what to do about a file that does not read.
func damaged(name string, err error) error {
	return fmt.Errorf("%s is %w: %w: run its sweep again, which makes the tables anew", name, ErrDamaged, err)
}

func scanFile(name string, columns []string, fn func(*Frame) error) error {
	s, err := openTable(name, columns)
	if err != nil {
		return err
	}
	defer s.file.Close()
	for read := false; ; read = true {
		f, err := s.next()
		switch {
		case err != nil:
			return err
		case f == nil && read:
			return nil
		case f == nil:
			return fn(s.empty)
		}
		if err := fn(f); err != nil {
			return err
		}
	}
}

// table reads one Parquet file batch by batch. The library panics on some damaged
// files, which is recovered around its calls alone.
type table struct {
	name    string
	file    *file.Reader
	empty   *Frame
	batches pqarrow.RecordReader
}

func (s *table) recovered(err *error) {
	if x := recover(); x != nil {
		*err = damaged(s.name, fmt.Errorf("%v", x))
	}
}

func openTable(name string, columns []string) (_ *table, err error) {
	s := &table{name: name}
	defer s.recovered(&err)
	s.file, err = file.OpenParquetFile(name, false, file.WithReadProps(parquet.NewReaderProperties(boundedMemory{memory.NewGoAllocator()})))
	var system *fs.PathError
	if errors.As(err, &system) {
		return nil, err
	}
	if err != nil {
		return nil, damaged(name, err)
	}
	defer func() {
		if s.batches == nil {
			s.file.Close()
		}
	}()
	meta, err := readMeta(s.file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if v := s.file.MetaData().KeyValueMetadata().FindValue("ARROW:schema"); v != nil {
		if err := checkArrowSchema(*v); err != nil {
			return nil, damaged(name, err)
		}
	}
	// The Parquet schema says enough; the library would believe the lengths in Arrow's.
	s.file.MetaData().FileMetaData.KeyValueMetadata = nil
	r, err := pqarrow.NewFileReader(s.file, pqarrow.ArrowReadProperties{BatchSize: 4096}, boundedMemory{memory.NewGoAllocator()})
	if err != nil {
		return nil, damaged(name, err)
	}
	if s.empty, err = emptyFrame(columnsOf(filepath.Base(name)), meta, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var wanted []int // every column has one leaf
	for i, c := range s.empty.Columns {
		if columns == nil || slices.Contains(columns, c.Name) {
			wanted = append(wanted, i)
		}
	}
	if s.batches, err = r.GetRecordReader(context.Background(), wanted, nil); err != nil {
		return nil, damaged(name, err)
	}
	return s, nil
}

// next returns a copy of the next batch, nil at the end.
func (s *table) next() (f *Frame, err error) {
	defer s.recovered(&err)
	if !s.batches.Next() {
		err := s.batches.Err()
		s.batches.Release()
		if err != nil && err != io.EOF {
			return nil, damaged(s.name, err)
		}
		return nil, nil
	}
	if f, err = s.empty.with(s.batches.RecordBatch()); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return f, nil
}

// maxAllocation bounds one piece of memory that a file's lengths ask for. The largest
// honest one is a page: about a megabyte, or the longest resolved configuration.
const maxAllocation = 256 << 20

// boundedMemory allocates for the Parquet library. It panics on what no honest file
// asks for; openTable and next turn that into a damaged file.
type boundedMemory struct{ *memory.GoAllocator }

func (b boundedMemory) Allocate(size int) []byte {
	mustBeHonest(size)
	return b.GoAllocator.Allocate(size)
}

func (b boundedMemory) Reallocate(size int, p []byte) []byte {
	mustBeHonest(size)
	return b.GoAllocator.Reallocate(size, p)
}

func mustBeHonest(size int) {
	if size < 0 || size > maxAllocation {
		panic(fmt.Sprintf("a length in it asks for %d bytes at once", size))
	}
}

// columnsOf are the described columns of a table by its file name, nil for another file.
func columnsOf(file string) []Column {
	for _, t := range Tables() {
		if t.ID.File() == file {
			return t.Columns
		}
	}
	return nil
}

// emptyFrame has the columns of a file and no rows; known describes them.
func emptyFrame(known []Column, meta Meta, r *pqarrow.FileReader) (*Frame, error) {
	schema, err := r.Schema()
	if err != nil {
		return nil, err
	}
	f := &Frame{Meta: meta}
	for _, field := range schema.Fields() {
		c := Column{Name: field.Name, Required: !field.Nullable, Axis: slices.Contains(f.Meta.Axes, field.Name)}
		if at := slices.IndexFunc(known, func(k Column) bool { return k.Name == c.Name }); at >= 0 && !c.Axis {
			c.Meaning, c.Unit = known[at].Meaning, known[at].Unit
		}
		if c.Type, err = typeOf(field.Type); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		f.add(Series{Column: c})
	}
	return f, nil
}

func (f *Frame) add(s Series) {
	if f.byName == nil {
		f.byName = map[string]int{}
	}
	f.byName[s.Name] = len(f.series)
	f.Columns = append(f.Columns, s.Column)
	f.series = append(f.series, s)
}

func typeOf(t arrow.DataType) (Type, error) {
	switch t.ID() {
	case arrow.INT64:
		return Int64, nil
	case arrow.FLOAT64:
		return Float64, nil
	case arrow.STRING:
		return String, nil
	case arrow.BOOL:
		return Boolean, nil
	case arrow.LIST:
		return Nested, nil
	}
	return 0, fmt.Errorf("unknown type %s (%w)", t, ErrForeignResults)
}

// readMeta reads the file's metadata; a file of another schema is refused.
func readMeta(pf *file.Reader) (m Meta, err error) {
	kv := pf.MetaData().KeyValueMetadata()
	text := func(key string) string {
		if v := kv.FindValue(key); v != nil {
			return *v
		}
		return ""
	}
	m.Version, m.SpecDigest = text(metaVersion), text(metaSpec)
	if m.SchemaVersion, err = strconv.Atoi(text(metaSchema)); err != nil {
		return m, fmt.Errorf("no table of dynosweep: metadata %s is %q (%w)", metaSchema, text(metaSchema), ErrForeignResults)
	}
	if m.SchemaVersion < oldestSchema || m.SchemaVersion > SchemaVersion {
		return m, fmt.Errorf("schema version %d, this program reads %d to %d (%w)", m.SchemaVersion, oldestSchema, SchemaVersion, ErrForeignResults)
	}
	for _, l := range [...]struct {
		key  string
		into any
	}{{metaAxes, &m.Axes}, {metaTTFT, &m.GridTTFTMs}, {metaITL, &m.GridITLMs}} {
		if t := text(l.key); t != "" {
			if err := json.Unmarshal([]byte(t), l.into); err != nil {
				return m, fmt.Errorf("metadata %s: %w", l.key, err)
			}
		}
	}
	return m, nil
}

// with copies the columns of a batch into a frame like f.
func (f *Frame) with(b arrow.RecordBatch) (*Frame, error) {
	out := &Frame{Meta: f.Meta, rows: int(b.NumRows())}
	for i, field := range b.Schema().Fields() {
		s := Series{Column: f.Column(field.Name).Column}
		if err := s.load(b.Column(i)); err != nil {
			return nil, err
		}
		out.add(s)
	}
	return out, nil
}

// load copies an Arrow column.
func (s *Series) load(a arrow.Array) error {
	n := a.Len()
	s.valid = make([]bool, n)
	for i := range n {
		s.valid[i] = a.IsValid(i)
	}
	switch a := a.(type) {
	case *array.Int64:
		s.ints = slices.Clone(a.Int64Values())
	case *array.Float64:
		s.floats = slices.Clone(a.Float64Values())
	case *array.String:
		s.texts = make([]string, n)
		for i := range n {
			if s.valid[i] {
				s.texts[i] = strings.Clone(a.Value(i))
			}
		}
	case *array.Boolean:
		s.ints = make([]int64, n)
		for i := range n {
			if s.valid[i] && a.Value(i) {
				s.ints[i] = 1
			}
		}
	case *array.List:
		return s.loadGrids(a)
	}
	return nil
}

// loadGrids copies nested lists, which must have the shape of Grid.
func (s *Series) loadGrids(a *array.List) error {
	rows, ok := a.ListValues().(*array.List)
	if !ok {
		return fmt.Errorf("column %s: want lists of lists", s.Name)
	}
	cells, ok := rows.ListValues().(*array.Int64)
	if !ok {
		return fmt.Errorf("column %s: want integers", s.Name)
	}
	s.grids = make([]Grid, a.Len())
	for i := range s.grids {
		if !s.valid[i] {
			continue
		}
		from, to := a.ValueOffsets(i)
		if to-from != int64(len(s.grids[i])) {
			return fmt.Errorf("column %s: %d rows, want %d", s.Name, to-from, len(s.grids[i]))
		}
		for j := range s.grids[i] {
			lo, hi := rows.ValueOffsets(int(from) + j)
			if hi-lo != int64(len(s.grids[i][j])) {
				return fmt.Errorf("column %s: %d columns, want %d", s.Name, hi-lo, len(s.grids[i][j]))
			}
			copy(s.grids[i][j][:], cells.Int64Values()[lo:hi])
		}
	}
	return nil
}
