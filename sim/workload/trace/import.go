package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dynosweep/dynosweep/sim/workload"
)

// ParseImport reads the name of a format that Stat and Convert take: a trace_format,
// or one of the tables of requests that replay does not take, "azure" (the Azure LLM
// inference traces: TIMESTAMP, ContextTokens, GeneratedTokens) and "burstgpt"
// (BurstGPT: Timestamp in seconds, Request tokens, Response tokens; further columns
// are passed over). Their prompts share nothing.
func ParseImport(name string) (Format, error) {
	switch name {
	case azureName:
		return azureCSV, nil
	case burstName:
		return burstCSV, nil
	}
	f, err := ParseFormat(name)
	if err != nil {
		return 0, fmt.Errorf("%w; also '%s' and '%s'", err, azureName, burstName)
	}
	return f, nil
}

const (
	azureCSV Format = Weka + 1 + iota
	burstCSV
)

const azureName, burstName = "azure", "burstgpt"

// rowSource yields the rows of a file one by one, in flat memory.
type rowSource interface {
	// next moves to the next row; false at the end or at a fault.
	next() bool
	row() *row // lives until the next call of next
	spot() spot
	close() (digest string, err error)
	leftOut() leftOut
}

// leftOut says what a reading of rows did not pass on.
type leftOut struct {
	dropped int64 // rows without a prompt
	failed  int64 // rows of failed requests
	notices []string
}

// openRows opens a file of a format that can be read row by row.
func openRows(path string, o LoadOptions) (rowSource, error) {
	l, err := o.openLines(path, "trace file ")
	if err != nil {
		return nil, err
	}
	if o.Format == Mooncake {
		return &mooncakeRows{l: l, blockSize: o.BlockSize}, nil
	}
	return newCSVRows(l, o)
}

// mooncakeRows reads mooncake rows and checks each on its own.
type mooncakeRows struct {
	l         *lines
	blockSize int
	s         scanner
	r         row
	rows      int64 // read so far
	surplus   int64 // rows with more hash ids than blocks
	err       error
}

func (m *mooncakeRows) next() bool {
	if m.err != nil || !m.l.next() {
		return false
	}
	if err := m.r.decode(&m.s, m.l.text); err != nil {
		m.err = m.l.fail(err, "failed to parse line %d from %s as JSON", m.l.n, m.l.path)
	} else if m.err = m.r.checkLengths(m.l, m.blockSize); m.err == nil && m.r.input == 0 {
		m.err = m.l.fail(nil, "trace line %d must have a positive input_length", m.l.n)
	}
	if m.err != nil {
		return false
	}
	m.rows++
	n := (int(m.r.input) + m.blockSize - 1) / m.blockSize
	if n < len(m.r.ids) {
		m.surplus++
	}
	m.r.ids = m.r.ids[:n]
	return true
}

func (m *mooncakeRows) row() *row              { return &m.r }
func (m *mooncakeRows) spot() spot             { return m.l.spot() }
func (m *mooncakeRows) close() (string, error) { return closeWith(m.l, m.err) }

func (m *mooncakeRows) leftOut() (out leftOut) {
	out.notices = ignoredNotices(m.l.path, m.s.ignored, m.rows)
	if m.surplus > 0 {
		out.notices = append(out.notices, fmt.Sprintf("%s: %d of %d rows have more hash_ids than blocks; the surplus is cut", m.l.path, m.surplus, m.rows))
	}
	return out
}

// csvRows reads a table of requests.
type csvRows struct {
	l                    *lines
	in                   *recordReader
	c                    *csv.Reader
	azure                bool
	blockSize            int
	at, prompt, response int // columns
	zero                 time.Time
	fresh                uint64
	line                 int
	keepFailed           bool
	read, skipped        int64    // rows; those without a prompt
	failed               int64    // rows without response tokens, of BurstGPT only
	unused               []string // columns that nothing reads
	r                    row
	err                  error
}

// recordReader bounds what is read for one record.
type recordReader struct {
	r    io.Reader
	left int
}

func (b *recordReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLongLine
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}

// newCSVRows reads the header of a table.
func newCSVRows(l *lines, o LoadOptions) (*csvRows, error) {
	in := &recordReader{r: l.r, left: maxLine}
	t := &csvRows{l: l, in: in, c: csv.NewReader(in), azure: o.Format == azureCSV, blockSize: o.BlockSize, keepFailed: o.KeepFailed, line: 1}
	t.c.ReuseRecord = true
	t.c.FieldsPerRecord = -1
	names := [...]string{"Timestamp", "Request tokens", "Response tokens"}
	if t.azure {
		names = [...]string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
	}
	header, err := t.c.Read()
	if err == io.EOF {
		err = errors.New("the file is empty")
	}
	for i, to := range [...]*int{&t.at, &t.prompt, &t.response} {
		*to = -1
		for k, name := range header {
			if strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")) == names[i] {
				*to = k
			}
		}
		if err == nil && *to < 0 {
			err = fmt.Errorf("no column %q in the header; %s are needed", names[i], strings.Join(names[:], ", "))
		}
	}
	if err != nil {
		l.file.Close()
		return nil, &InputError{File: l.path, Line: 1, Msg: "failed to read the header", Err: err}
	}
	for k, name := range header {
		if k != t.at && k != t.prompt && k != t.response {
			t.unused = append(t.unused, strings.TrimSpace(name))
		}
	}
	return t, nil
}

func (t *csvRows) next() bool {
	for t.err == nil {
		t.in.left = maxLine
		record, err := t.c.Read()
		if err == io.EOF {
			return false
		}
		if err == nil {
			t.line, _ = t.c.FieldPos(0)
			err = t.request(record)
		}
		if err != nil {
			var at *csv.ParseError
			if errors.As(err, &at) {
				t.line = at.Line
			}
			t.err = t.spot().fail(err, "failed to read a request")
			return false
		}
		t.read++
		if t.r.input == 0 {
			t.skipped++
			continue
		}
		if t.r.output == 0 && !t.azure {
			if t.failed++; !t.keepFailed {
				continue
			}
		}
		n := (int(t.r.input) + t.blockSize - 1) / t.blockSize
		t.r.ids = t.r.ids[:0]
		for range n {
			t.r.ids = append(t.r.ids, t.fresh)
			t.fresh++
		}
		return true
	}
	return false
}

// request reads one record.
func (t *csvRows) request(record []string) error {
	t.r.reset()
	if need := max(t.at, t.prompt, t.response); need >= len(record) {
		return fmt.Errorf("%d columns, at least %d are needed", len(record), need+1)
	}
	var err error
	if t.r.timestampMs, err = t.time(strings.TrimSpace(record[t.at])); err != nil {
		return err
	}
	if t.r.input, err = tokens(record[t.prompt]); err != nil {
		return err
	}
	if t.r.output, err = tokens(record[t.response]); err != nil {
		return err
	}
	if int(t.r.input)/t.blockSize >= workload.MaxOwnBlocks {
		return fmt.Errorf("a prompt of %d tokens is more than %d blocks of %d", t.r.input, workload.MaxOwnBlocks, t.blockSize)
	}
	t.r.has = hasTimestamp | hasIDs | hasInput | hasOutput
	return nil
}

// time returns a timestamp in ms; of an Azure table after the first request.
func (t *csvRows) time(text string) (float64, error) {
	if !t.azure {
		s, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(s) || math.IsInf(s*1000, 0) {
			return 0, fmt.Errorf("timestamp %q is not a number of seconds", text)
		}
		return float64(s * 1000), nil
	}
	for _, layout := range [...]string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", time.RFC3339, "2006-01-02T15:04:05"} {
		at, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		if t.zero.IsZero() {
			t.zero = at
		}
		return float64(at.Sub(t.zero).Nanoseconds()) / 1e6, nil
	}
	return 0, fmt.Errorf("timestamp %q is not a date and time such as 2023-11-16 18:15:46.6805900", text)
}

// tokens reads a token count.
func tokens(text string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of tokens", text)
	}
	return n, nil
}

func (t *csvRows) row() *row              { return &t.r }
func (t *csvRows) spot() spot             { return spot{t.l.path, t.line} }
func (t *csvRows) close() (string, error) { return closeWith(t.l, t.err) }

func (t *csvRows) leftOut() leftOut {
	out := leftOut{dropped: t.skipped}
	note := func(format string, args ...any) {
		out.notices = append(out.notices, t.l.path+": "+fmt.Sprintf(format, args...))
	}
	if t.skipped > 0 {
		note("%d of %d rows have no prompt; they are left out", t.skipped, t.read)
	}
	const failed = "%d of %d rows have no response tokens: failed requests in this data set; "
	switch {
	case t.failed == 0:
	case t.keepFailed:
		note(failed+"they are kept as requests without output", t.failed, t.read)
	default:
		out.failed = t.failed
		note(failed+"they are left out (--keep-failed keeps them)", t.failed, t.read)
	}
	if len(t.unused) > 0 {
		note("nothing is read from the columns %s: every row is a session of its own whose prompt shares nothing", strings.Join(t.unused, ", "))
	}
	return out
}
