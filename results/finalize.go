package results

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Planned is one row that points.parquet should have, in the order of the grid. A
// point that never runs brings its Row; any other is taken from its part, and left
// out while it has none.
type Planned struct {
	Key Key
	Row *Point
}

// rowGroup is the number of rows per Parquet row group: what is held in memory.
const rowGroup = 1 << 15

// Keys of the metadata of every Parquet file.
const (
	metaVersion = "dynosweep.version"
	metaSchema  = "dynosweep.schema_version"
	metaSpec    = "dynosweep.spec_digest"
	metaAxes    = "dynosweep.axes"                 // points: JSON list of column names
	metaTTFT    = "dynosweep.sla_grid_ttft_ms"     // points: JSON list of limits
	metaITL     = "dynosweep.sla_grid_mean_itl_ms" // points: JSON list of limits
)

// Finalize replaces the tables by ones made of the finished parts in plan order.
// Each file is replaced whole; after an interruption it can be called again. A
// child table without a row has no file.
func (s *Store) Finalize(plan []Planned) error {
	if err := s.stillOurs(); err != nil {
		return err
	}
	if err := s.settlePacks(); err != nil {
		return err
	}
	files := &openFiles{}
	defer files.close()
	for id := Ticks; id < tableCount; id++ {
		if err := s.writeChild(id, plan, files); err != nil {
			return err
		}
	}
	counts, err := s.writePoints(plan, files)
	if err != nil {
		return err
	}
	s.manifest.Points, s.manifest.Open = counts, len(plan)
	for _, n := range counts {
		s.manifest.Open -= n
	}
	s.manifest.FinishedAt = stamp(s.opt.Now())
	return s.writeManifest()
}

// writeChild joins the rows of one child table.
func (s *Store) writeChild(id TableID, plan []Planned, files *openFiles) error {
	var with []location
	for _, p := range plan {
		if p.Row == nil && s.finished[p.Key].tables[id] {
			with = append(with, s.finished[p.Key].at)
		}
	}
	name := filepath.Join(s.dir, id.File())
	if len(with) == 0 {
		if err := s.fs.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	columns := Tables()[id].Columns
	return writeDurably(s.fs, name, func(w io.Writer) error {
		out, err := s.newParquet(w, columns, nil)
		if err != nil {
			return err
		}
		for _, at := range with {
			file, err := files.open(at.file)
			if err != nil {
				return err
			}
			err = eachBatch(file, at, id, func(b arrow.RecordBatch) error {
				same := array.NewRecordBatch(out.schema, b.Columns(), b.NumRows()) // with our field metadata
				defer same.Release()
				return out.write(same)
			})
			if err != nil {
				return err
			}
		}
		return out.Close()
	})
}

// writePoints writes points.parquet and counts its rows by status.
func (s *Store) writePoints(plan []Planned, files *openFiles) (map[Status]int, error) {
	columns, counts := plain(s.columns), map[Status]int{}
	err := writeDurably(s.fs, filepath.Join(s.dir, Points.File()), func(w io.Writer) error {
		out, err := s.newParquet(w, columns, s.pointMetadata())
		if err != nil {
			return err
		}
		rows := array.NewRecordBuilder(memory.DefaultAllocator, out.schema)
		defer rows.Release()
		flush := func() error {
			batch := rows.NewRecordBatch()
			defer batch.Release()
			return out.write(batch)
		}
		gathered := 0
		for _, p := range plan {
			cells, status, err := s.cells(p, files)
			if err != nil {
				return err
			}
			if cells == nil {
				continue
			}
			counts[status]++
			for i, v := range cells {
				v.appendTo(rows.Field(i))
			}
			if gathered++; gathered%512 == 0 {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if err := flush(); err != nil {
			return err
		}
		return out.Close()
	})
	return counts, err
}

// cells returns the row of a planned point; nil if it has not ended.
func (s *Store) cells(p Planned, files *openFiles) ([]Value, Status, error) {
	if p.Row != nil {
		cells := make([]Value, len(s.columns))
		for i := range s.columns {
			cells[i] = s.columns[i].of(p.Row)
		}
		return cells, p.Row.Status, nil
	}
	f, ok := s.finished[p.Key]
	if !ok {
		return nil, "", nil
	}
	head, err := files.head(f.at)
	if err != nil {
		return nil, "", err
	}
	cells, err := s.decodeRow(head)
	if err != nil {
		return nil, "", fmt.Errorf("%s: point %s: %w: remove the file and run its points again", f.at.file, p.Key, err)
	}
	return cells, head.Status, nil
}

// settlePacks makes every committed part durable, before the tables say that it is done.
func (s *Store) settlePacks() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pack.close()
}

// openFiles keeps the file read last open, since parts that follow each other in the
// plan mostly stand in one pack.
type openFiles struct {
	name string
	file *os.File
	buf  []byte
}

func (o *openFiles) open(name string) (*os.File, error) {
	if o.name == name && o.file != nil {
		return o.file, nil
	}
	o.close()
	var err error
	o.file, err = os.Open(name)
	o.name = name
	return o.file, err
}

func (o *openFiles) close() {
	if o.file != nil {
		o.file.Close()
		o.file = nil
	}
}

// head reads the last frame of a part, which lives until the next call.
func (o *openFiles) head(where location) (*partHead, error) {
	file, err := o.open(where.file)
	if err != nil {
		return nil, err
	}
	n := where.size - where.row
	o.buf = slices.Grow(o.buf[:0], int(n))[:n]
	if _, err := file.ReadAt(o.buf, where.at+where.row); err != nil {
		return nil, fmt.Errorf("%s: %w", where.file, err)
	}
	payload := o.buf[frameHeader:]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(o.buf[5:]) {
		return nil, fmt.Errorf("%s: %w", where.file, errTorn)
	}
	return parseHead(payload)
}

// withAxes inserts the axis columns into the columns of points.parquet.
func withAxes(axes []Axis) ([]columnOf[Point], error) {
	cs := slices.Clone(pointColumns[:axisAt])
	for i, a := range axes {
		c := Column{Name: a.Name, Type: a.Type, Axis: true, Meaning: "axis of the specification"}
		cs = append(cs, columnOf[Point]{c, func(p *Point) Value {
			if i >= len(p.Axes) {
				return Null
			}
			return p.Axes[i]
		}})
	}
	cs = append(cs, pointColumns[axisAt:]...)
	seen := make(map[string]bool, len(cs))
	for i := range cs {
		if seen[cs[i].Name] {
			return nil, fmt.Errorf("axis %s: there is a column of that name", cs[i].Name)
		}
		seen[cs[i].Name] = true
	}
	return cs, nil
}

// pointMetadata is what a reader of points.parquet needs beside the columns.
func (s *Store) pointMetadata() [][2]string {
	names := make([]string, len(s.opt.Axes))
	for i, a := range s.opt.Axes {
		names[i] = a.Name
	}
	list := func(v any) string {
		raw, _ := json.Marshal(v) // strings and finite numbers marshal
		return string(raw)
	}
	return [][2]string{{metaAxes, list(names)}, {metaTTFT, list(metrics.GridTTFTMs)}, {metaITL, list(metrics.GridITLMs)}}
}

// arrowSchema is the schema of a table; units and meanings become field metadata.
func arrowSchema(columns []Column, meta *arrow.Metadata) *arrow.Schema {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c.Name, Type: c.Type.arrowType(), Nullable: !c.Required,
			Metadata: arrow.MetadataFrom(map[string]string{"meaning": c.Meaning, "unit": c.Unit})}
	}
	return arrow.NewSchema(fields, meta)
}

// parquetWriter writes one table, a bounded number of rows in memory.
type parquetWriter struct {
	*pqarrow.FileWriter
	schema *arrow.Schema
}

func (s *Store) newParquet(w io.Writer, columns []Column, more [][2]string) (*parquetWriter, error) {
	meta := append([][2]string{{metaVersion, s.opt.Identity.Version}, {metaSchema, strconv.Itoa(SchemaVersion)},
		{metaSpec, s.opt.Identity.SpecDigest}}, more...)
	var keys, values []string
	for _, kv := range meta {
		keys, values = append(keys, kv[0]), append(values, kv[1])
	}
	about := arrow.NewMetadata(keys, values)
	schema := arrowSchema(columns, &about)
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithMaxRowGroupLength(rowGroup), parquet.WithCreatedBy("dynosweep "+s.opt.Identity.Version))
	fw, err := pqarrow.NewFileWriter(schema, w, props, pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, err
	}
	return &parquetWriter{fw, schema}, nil
}

func (p *parquetWriter) write(b arrow.RecordBatch) error {
	if b.NumRows() == 0 {
		return nil
	}
	return p.WriteBuffered(b)
}
