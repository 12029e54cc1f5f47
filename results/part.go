package results

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// A part file is the durable unit of one point and seed:
//
//	magic, then frames of [table uint8][length uint32][CRC-32C uint32][payload]
//
// The payloads of one child table, joined, are an Arrow IPC stream; tables
// interleave as their rows come. The frame of table Points is the last and holds
// the point's row as JSON. A file that does not end with it is torn and ignored.
const (
	partMagic   = "dswpart1"
	frameHeader = 9
	batchRows   = 4096 // rows of a child table gathered before they are written
	maxFrame    = 1 << 28
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Part gathers what one point and seed leaves. It belongs to one goroutine. After
// an error only Abort is of use.
type Part struct {
	store    *Store
	key      Key
	out      *durable
	ticks    stream[tickRow]
	passes   stream[passRow]
	scalings stream[scalingRow]
	requests stream[requestRow]
}

// Begin opens the part of a point and seed. Nothing of it counts before Commit; an
// earlier part of the same key stays until then.
func (s *Store) Begin(key Key) (*Part, error) {
	out, err := createDurable(s.fs, s.partName(key))
	if err != nil {
		return nil, err
	}
	if _, err := out.WriteString(partMagic); err != nil {
		out.abort()
		return nil, err
	}
	return &Part{store: s, key: key, out: out,
		ticks:    stream[tickRow]{id: Ticks, columns: tickColumns},
		passes:   stream[passRow]{id: ForwardPasses, columns: passColumns},
		scalings: stream[scalingRow]{id: ScalingEvents, columns: scalingColumns},
		requests: stream[requestRow]{id: Requests, columns: requestColumns}}, nil
}

// Tick adds one Planner tick and the forward passes it saw.
func (p *Part) Tick(t *Tick) error {
	if err := p.ticks.add(p.out, &tickRow{p.key, t}); err != nil {
		return err
	}
	sn := t.Record.Snapshot
	for _, pool := range [...]struct {
		id   metrics.Pool
		rows []sim.RankMetrics
	}{{metrics.PrefillPool, sn.Prefill.Metrics}, {metrics.DecodePool, sn.Decode.Metrics}} {
		for i := range pool.rows {
			if err := p.passes.add(p.out, &passRow{p.key, sn.Ordinal, pool.id, &pool.rows[i]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Scaling adds one scaling event.
func (p *Part) Scaling(e sim.ScalingEvent) error {
	return p.scalings.add(p.out, &scalingRow{p.key, e})
}

// Requests adds the records of ended requests in the order of the per-request
// output, into which it sorts them.
func (p *Part) Requests(records []metrics.Record) error {
	slices.SortFunc(records, metrics.CompareRecords)
	for i := range records {
		row := requestRow{p.key, &records[i], records[i].Detail}
		if row.d == nil {
			row.d = &noDetail
		}
		if row.r.Status == metrics.Unfinished {
			continue
		}
		if err := p.requests.add(p.out, &row); err != nil {
			return err
		}
	}
	return nil
}

// Commit finishes the part with the point's row. On return it survives a crash.
func (p *Part) Commit(row *Point) error {
	if row.Key != p.key {
		panic(fmt.Sprintf("results: row of %+v for the part of %+v", row.Key, p.key))
	}
	for _, end := range []func() error{p.ticks.end, p.passes.end, p.scalings.end, p.requests.end} {
		if err := end(); err != nil {
			p.out.abort()
			return err
		}
	}
	head, err := p.store.encodeRow(row)
	if err == nil {
		err = writeFrame(p.out, Points, head)
	}
	if err != nil {
		p.out.abort()
		return err
	}
	if err := p.out.commit(); err != nil {
		return err
	}
	p.store.note(Finished{Key: row.Key, Status: row.Status, Reason: row.Reason, tables: p.tables()})
	return nil
}

// Abort drops what was gathered.
func (p *Part) Abort() {
	p.ticks.release()
	p.passes.release()
	p.scalings.release()
	p.requests.release()
	p.out.abort()
}

func (p *Part) tables() (set tableSet) {
	set[Ticks], set[ForwardPasses] = p.ticks.used, p.passes.used
	set[ScalingEvents], set[Requests] = p.scalings.used, p.requests.used
	return set
}

// stream turns rows of one child table into record batches in frames. It costs
// nothing until the first row.
type stream[R any] struct {
	id      TableID
	columns []columnOf[R]
	used    bool
	rows    int
	builder *array.RecordBuilder
	writer  *ipc.Writer
	frames  *bufio.Writer
}

func (s *stream[R]) add(out io.Writer, row *R) error {
	if s.builder == nil {
		schema := arrowSchema(plain(s.columns), nil)
		s.used = true
		s.builder = array.NewRecordBuilder(memory.DefaultAllocator, schema)
		s.frames = bufio.NewWriterSize(frameWriter{out, s.id}, 1<<16)
		s.writer = ipc.NewWriter(s.frames, ipc.WithSchema(schema), ipc.WithLZ4())
	}
	for i := range s.columns {
		s.columns[i].of(row).appendTo(s.builder.Field(i))
	}
	if s.rows++; s.rows < batchRows {
		return nil
	}
	return s.flush()
}

func (s *stream[R]) flush() error {
	s.rows = 0
	batch := s.builder.NewRecordBatch()
	defer batch.Release()
	return s.writer.Write(batch)
}

// end writes the rows left and the end of the stream.
func (s *stream[R]) end() error {
	if s.builder == nil {
		return nil
	}
	defer s.release()
	if s.rows > 0 {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if err := s.writer.Close(); err != nil {
		return err
	}
	return s.frames.Flush()
}

func (s *stream[R]) release() {
	if s.builder != nil {
		s.builder.Release()
		s.builder = nil
	}
}

// frameWriter makes a frame of every Write.
type frameWriter struct {
	out io.Writer
	id  TableID
}

func (w frameWriter) Write(b []byte) (int, error) {
	if err := writeFrame(w.out, w.id, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func writeFrame(out io.Writer, id TableID, payload []byte) error {
	var head [frameHeader]byte
	head[0] = byte(id)
	binary.LittleEndian.PutUint32(head[1:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(head[5:], crc32.Checksum(payload, castagnoli))
	if _, err := out.Write(head[:]); err != nil {
		return err
	}
	_, err := out.Write(payload)
	return err
}

// errTorn says that a part file is not whole.
var errTorn = errors.New("part file is torn")

// frames reads a part file frame by frame.
type frames struct {
	file *os.File
	in   *bufio.Reader
	left int64 // bytes behind the frames read so far
	buf  []byte
}

func openFrames(name string) (*frames, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	f := &frames{file: file, in: bufio.NewReaderSize(file, 1<<16)}
	info, err := file.Stat()
	if err == nil {
		magic := make([]byte, len(partMagic))
		f.left = info.Size() - int64(len(magic))
		if _, rerr := io.ReadFull(f.in, magic); rerr != nil || string(magic) != partMagic {
			err = fmt.Errorf("%s: %w", name, errTorn)
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

// next returns the next frame; its payload lives until the next call. After the
// last frame it returns io.EOF, and errTorn where the file stops inside a frame or
// a checksum is wrong.
func (f *frames) next() (TableID, []byte, error) {
	if f.left == 0 {
		return 0, nil, io.EOF
	}
	var head [frameHeader]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, nil, errTorn
	}
	n := int64(binary.LittleEndian.Uint32(head[1:]))
	if f.left -= frameHeader + n; f.left < 0 || n > maxFrame || head[0] >= byte(tableCount) {
		return 0, nil, errTorn
	}
	f.buf = slices.Grow(f.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(f.in, f.buf); err != nil {
		return 0, nil, errTorn
	}
	if crc32.Checksum(f.buf, castagnoli) != binary.LittleEndian.Uint32(head[5:]) {
		return 0, nil, errTorn
	}
	return TableID(head[0]), f.buf, nil
}

func (f *frames) close() { f.file.Close() }

// row reads a part to its end and returns the point's row and which child tables
// it has; errTorn if it is not whole.
func (f *frames) row() (head []byte, set tableSet, err error) {
	for {
		id, payload, err := f.next()
		switch {
		case err == io.EOF && head != nil:
			return head, set, nil
		case err == io.EOF || err == nil && head != nil: // no row, or frames behind it
			return nil, set, errTorn
		case err != nil:
			return nil, set, err
		}
		if set[id] = true; id == Points {
			head = slices.Clone(payload)
		}
	}
}

// tableReader joins the frames of one table into a stream.
type tableReader struct {
	f    *frames
	id   TableID
	rest []byte
}

func (r *tableReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		id, payload, err := r.f.next()
		if err != nil {
			return 0, err
		}
		if id == r.id {
			r.rest = payload
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// eachBatch calls fn for the record batches of one child table of a part, which
// live during the call.
func eachBatch(name string, id TableID, fn func(arrow.RecordBatch) error) error {
	f, err := openFrames(name)
	if err != nil {
		return err
	}
	defer f.close()
	r, err := ipc.NewReader(&tableReader{f: f, id: id})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer r.Release()
	for r.Next() {
		if err := fn(r.RecordBatch()); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// partHead is the JSON of a part's last frame.
type partHead struct {
	SchemaVersion int             `json:"schema_version"`
	SpecDigest    string          `json:"spec_digest"`
	Point         string          `json:"point_id"`
	Seed          *int64          `json:"seed"`
	Status        Status          `json:"status"`
	Reason        string          `json:"reason,omitempty"`
	Row           json.RawMessage `json:"row"` // cells in the order of the columns
}
