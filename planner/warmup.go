package planner

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// warmWindow is one interval of a warm-up trace: requests and mean lengths.
type warmWindow struct{ n, isl, osl float64 }

// warmRow is one request of a warm-up trace.
type warmRow struct {
	atMs     float64
	isl, osl int
}

// warmLine is a line of either format (spec planner 11.6).
type warmLine struct {
	Timestamp    *float64 `json:"timestamp"`
	InputLength  *float64 `json:"input_length"`
	OutputLength *float64 `json:"output_length"`

	Schema    string   `json:"schema"`
	EventType string   `json:"event_type"`
	EventMs   *float64 `json:"event_time_unix_ms"`
	Request   *struct {
		ReceivedMs   *float64 `json:"request_received_ms"`
		OutputTokens *float64 `json:"output_tokens"`
		Replay       *struct {
			InputLength *float64 `json:"input_length"`
		} `json:"replay"`
	} `json:"request"`
}

const requestTrace = "dynamo.request.trace.v1"

// readWarmup reads a file, a pattern or a directory of .jsonl and .jsonl.gz files
// and cuts it into intervals of stepS seconds, from the first with a request to
// the last; intervals between without any are zeros (spec planner 11.6).
func readWarmup(path string, stepS float64) ([]warmWindow, error) {
	files, err := WarmupFiles(path)
	if err != nil {
		return nil, err
	}
	var r warmReader
	for _, name := range files {
		if err := r.file(name); err != nil {
			return nil, err
		}
	}
	if len(r.rows) == 0 {
		return nil, fmt.Errorf("%s: no request in it", path)
	}
	return r.windows(stepS)
}

// WarmupFiles are the files, in order, that a warm-up trace is read from.
func WarmupFiles(path string) ([]string, error) {
	pattern := path
	var files []string
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		files = []string{path}
	} else {
		if err == nil {
			pattern = filepath.Join(path, "*")
		}
		all, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, name := range all {
			if strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".jsonl.gz") {
				files = append(files, name)
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no .jsonl or .jsonl.gz file there", path)
	}
	sort.Strings(files)
	for i := 1; i < len(files); i++ {
		if files[i] == files[i-1]+".gz" {
			return nil, fmt.Errorf("%s: both %s and its .gz copy are there: remove one", path, files[i-1])
		}
	}
	return files, nil
}

// warmReader gathers the rows of several files, all of one format.
type warmReader struct {
	rows   []warmRow
	format string
	first  string // file:line that set the format
}

// maxWarmupLine is the longest line that is read, unpacked, in bytes.
const maxWarmupLine = 128 << 20

func (r *warmReader) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		in = z
	}
	return r.read(name, in)
}

func (r *warmReader) read(name string, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 1<<16), maxWarmupLine)
	n := 0
	for lines.Scan() {
		n++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		if err := r.line(fmt.Sprintf("%s:%d", name, n), text); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	return nil
}

func (r *warmReader) line(at string, text []byte) error {
	var l warmLine
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("%s: not a trace row: %w", at, err)
	}
	format := "mooncake"
	if l.Schema != "" || l.Request != nil {
		format = requestTrace
	}
	if l.Schema != "" && l.Schema != requestTrace {
		return fmt.Errorf("%s: schema must be %s, got %s", at, requestTrace, l.Schema)
	}
	if r.format == "" {
		r.format, r.first = format, at
	}
	if r.format != format {
		return fmt.Errorf("%s: %s row, but %s has a %s row: formats must not be mixed", at, format, r.first, r.format)
	}
	row, use, err := l.mooncake()
	if format == requestTrace {
		row, use, err = l.requestEnd()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if use {
		r.rows = append(r.rows, row)
	}
	return nil
}

func (l *warmLine) mooncake() (row warmRow, use bool, err error) {
	row.atMs, err = need("timestamp", l.Timestamp)
	if err != nil {
		return row, false, err
	}
	if row.isl, err = length("input_length", l.InputLength); err != nil {
		return row, false, err
	}
	row.osl, err = length("output_length", l.OutputLength)
	return row, true, err
}

func (l *warmLine) requestEnd() (row warmRow, use bool, err error) {
	if l.EventType != "request_end" {
		return row, false, nil
	}
	if l.Request == nil {
		return row, false, errors.New("request: missing")
	}
	at := l.Request.ReceivedMs
	if at == nil {
		at = l.EventMs
	}
	if row.atMs, err = need("request.request_received_ms or event_time_unix_ms", at); err != nil {
		return row, false, err
	}
	if l.Request.Replay == nil {
		return row, false, errors.New("request.replay: missing")
	}
	if row.isl, err = length("request.replay.input_length", l.Request.Replay.InputLength); err != nil {
		return row, false, err
	}
	row.osl, err = length("request.output_tokens", l.Request.OutputTokens)
	return row, true, err
}

func need(key string, v *float64) (float64, error) {
	if v == nil {
		return 0, fmt.Errorf("%s: missing", key)
	}
	if *v < 0 {
		return 0, fmt.Errorf("%s: must be >= 0, got %v", key, *v)
	}
	return *v, nil
}

func length(key string, v *float64) (int, error) {
	f, err := need(key, v)
	if err != nil {
		return 0, err
	}
	if f != math.Trunc(f) || f > 1<<40 {
		return 0, fmt.Errorf("%s: must be an integer, got %v", key, f)
	}
	return int(f), nil
}

// maxWindows bounds the zeros between far-off rows.
const maxWindows = 10_000_000

func (r *warmReader) windows(stepS float64) ([]warmWindow, error) {
	origin := 0.0
	if r.format == requestTrace {
		origin = math.Inf(1)
		for _, row := range r.rows {
			origin = math.Min(origin, row.atMs)
		}
	}
	bucket := func(row warmRow) float64 { return math.Floor((row.atMs - origin) / 1000 / stepS) }
	first, last := math.Inf(1), math.Inf(-1)
	for _, row := range r.rows {
		first, last = math.Min(first, bucket(row)), math.Max(last, bucket(row))
	}
	if last-first >= maxWindows {
		return nil, fmt.Errorf("%s: spans more than %d intervals of %v s", r.first, maxWindows, stepS)
	}
	out := make([]warmWindow, int(last-first)+1)
	for _, row := range r.rows {
		w := &out[int(bucket(row)-first)]
		w.n++
		w.isl += float64(row.isl)
		w.osl += float64(row.osl)
	}
	for i := range out {
		if w := &out[i]; w.n > 0 {
			w.isl /= w.n
			w.osl /= w.n
		}
	}
	return out, nil
}
