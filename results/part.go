package results

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// A part is the durable unit of one point and seed:
//
//	magic, then frames of [table uint8][length uint32][CRC-32C uint32][payload]
//
// The payloads of one child table, joined, are an Arrow IPC stream; tables
// interleave as their rows come. The frame of table Points is the last and holds
// the point's row (maker.go). A part that does not end with it is torn and ignored.
const (
	partMagic   = "dswpart2"
	frameHeader = 9
	batchRows   = 4096 // rows of a child table gathered before they are written
	maxFrame    = 1 << 28
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Part gathers what one point and seed leaves. It belongs to one goroutine. After
// an error only Abort is of use.
type Part struct {
	maker    *Maker
	key      Key
	out      sink
	ticks    stream[tickRow]
	passes   stream[passRow]
	scalings stream[scalingRow]
	requests stream[requestRow]
}

// sink is where a part goes. commit makes it whole; it learns what the part says of its
// point, and where in the part its last frame begins.
type sink interface {
	io.Writer
	size() int64
	commit(f Finished, row int64) error
	abort()
}

func (m *Maker) begin(key Key, out sink) *Part {
	io.WriteString(out, partMagic) // a sink keeps the first bytes in memory
	return &Part{maker: m, key: key, out: out,
		ticks:    stream[tickRow]{id: Ticks, columns: tickColumns},
		passes:   stream[passRow]{id: ForwardPasses, columns: passColumns},
		scalings: stream[scalingRow]{id: ScalingEvents, columns: scalingColumns},
		requests: stream[requestRow]{id: Requests, columns: requestColumns}}
}

// Begin opens the part of a point and seed. Nothing of it counts before Commit; an
// earlier part of the same key stays until then.
func (s *Store) Begin(key Key) (*Part, error) {
	return s.Maker.begin(key, &storeSink{store: s, key: key}), nil
}

// memorySink keeps a part in memory.
type memorySink struct{ *bytes.Buffer }

func (m *memorySink) size() int64                  { return int64(m.Len()) }
func (m *memorySink) commit(Finished, int64) error { return nil }
func (m *memorySink) abort()                       { m.Reset() }

// storeSink brings a part into a Store: through memory into a pack, or, once it is
// large, into a file of its own.
type storeSink struct {
	store *Store
	key   Key
	small bytes.Buffer
	file  *durable // nil: small
	long  int64    // bytes in file
}

func (k *storeSink) size() int64 {
	if k.file != nil {
		return k.long
	}
	return int64(k.small.Len())
}

func (k *storeSink) Write(b []byte) (int, error) {
	if k.file == nil && k.small.Len()+len(b) <= spillBytes {
		return k.small.Write(b)
	}
	if k.file == nil {
		err := k.store.stillOurs()
		if err != nil {
			return 0, err
		}
		if k.file, err = createDurable(k.store.fs, k.store.partName(k.key)); err != nil {
			return 0, err
		}
		k.long = int64(k.small.Len())
		if _, err := k.file.Write(k.small.Bytes()); err != nil {
			return 0, err
		}
		k.small = bytes.Buffer{}
	}
	n, err := k.file.Write(b)
	k.long += int64(n)
	return n, err
}

func (k *storeSink) commit(f Finished, row int64) error {
	if k.file != nil {
		if err := k.file.commit(); err != nil {
			return err
		}
	}
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	f.at = location{file: k.store.partName(k.key), size: k.long}
	if k.file == nil {
		var err error
		if f.at, err = k.store.addToPack(k.small.Bytes()); err != nil {
			return err
		}
	}
	f.at.row = row
	k.store.note(f)
	return nil
}

func (k *storeSink) abort() {
	if k.file != nil {
		k.file.abort()
	}
}

// partName is the file of a large part.
func (s *Store) partName(k Key) string {
	return filepath.Join(s.dir, partsDir, k.String()+partSuffix)
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
	at := p.out.size()
	head, err := p.maker.encodeRow(row)
	if err == nil {
		err = writeFrame(p.out, Points, head)
	}
	if err != nil {
		p.out.abort()
		return err
	}
	set := p.tables()
	return p.out.commit(Finished{Key: row.Key, Status: row.Status, Reason: row.Reason, Version: p.maker.identity.Version, tables: set}, at)
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
		s.frames = bufio.NewWriterSize(frameWriter{out, s.id}, 8<<10)
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

// errTorn says that a part is not whole.
var errTorn = errors.New("part is torn")

// frames reads a part frame by frame.
type frames struct {
	in   *bufio.Reader
	at   int64 // of the next frame, from the begin of the part
	left int64 // bytes behind the frames read so far
	buf  []byte
	bad  error // the part does not begin as one
}

// newFrames reads the part that stands at a place of a file.
func newFrames(file io.ReaderAt, where location) *frames {
	size := int64(1 << 16)
	f := &frames{in: bufio.NewReaderSize(io.NewSectionReader(file, where.at, where.size), int(min(size, max(where.size, 16)))),
		at: int64(len(partMagic)), left: where.size - int64(len(partMagic))}
	var magic [len(partMagic)]byte
	if _, err := io.ReadFull(f.in, magic[:]); err != nil || string(magic[:]) != partMagic {
		f.bad = errTorn
	}
	return f
}

// next returns the next frame; its payload lives until the next call. After the
// last frame it returns io.EOF, and errTorn where the part stops inside a frame or
// a checksum is wrong.
func (f *frames) next() (TableID, []byte, error) {
	if f.bad != nil {
		return 0, nil, f.bad
	}
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
	f.at += frameHeader + n
	f.buf = slices.Grow(f.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(f.in, f.buf); err != nil {
		return 0, nil, errTorn
	}
	if crc32.Checksum(f.buf, castagnoli) != binary.LittleEndian.Uint32(head[5:]) {
		return 0, nil, errTorn
	}
	return TableID(head[0]), f.buf, nil
}

// row reads a part to its end and returns what its last frame says, which child tables
// it has, and where that frame begins; errTorn if the part is not whole.
func (f *frames) row() (head *partHead, set tableSet, at int64, err error) {
	for {
		begin := f.at
		id, payload, err := f.next()
		switch {
		case err == io.EOF && head != nil:
			return head, set, at, nil
		case err == io.EOF || err == nil && head != nil: // no row, or frames behind it
			return nil, set, 0, errTorn
		case err != nil:
			return nil, set, 0, err
		}
		if set[id] = true; id != Points {
			continue
		}
		if head, err = parseHead(slices.Clone(payload)); err != nil {
			return nil, set, 0, err
		}
		at = begin
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
func eachBatch(file io.ReaderAt, where location, id TableID, fn func(arrow.RecordBatch) error) error {
	r, err := ipc.NewReader(&tableReader{f: newFrames(file, where), id: id})
	if err != nil {
		return fmt.Errorf("%s: %w", where.file, err)
	}
	defer r.Release()
	for r.Next() {
		if err := fn(r.RecordBatch()); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", where.file, err)
	}
	return nil
}
