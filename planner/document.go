package planner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"
)

// Document is a Planner configuration as written: JSON, or another notation turned
// into the same types (nil, bool, string, any Go number or json.Number, []any,
// map[string]any). A key that is absent from Root was not written.
type Document struct {
	Root   map[string]any
	Prefix string                   // dotted path of Root inside a larger document, "" alone
	At     func(path string) string // place of a dotted path below Root, as file:line; nil: unknown
}

// fault is a refusal of one key.
type fault struct{ path, msg string }

// refuse joins faults, sorted by path, each with its place.
func (d Document) refuse(faults []fault) error {
	sort.SliceStable(faults, func(i, j int) bool { return faults[i].path < faults[j].path })
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = errors.New(d.place(f.path) + f.msg)
	}
	return errors.Join(errs...)
}

func (d Document) place(path string) string {
	out := ""
	if d.At != nil {
		if at := d.At(path); at != "" {
			out = at + ": "
		}
	}
	if d.Prefix != "" {
		out += d.Prefix + "."
	}
	return out + path + ": "
}

// ParseJSON reads one JSON object. Duplicate keys and text after the object are
// errors; every error says name:line.
func ParseJSON(name string, text []byte) (Document, error) {
	p := &jsonReader{name: name, text: text, dec: json.NewDecoder(bytes.NewReader(text)), lines: map[string]int{}}
	p.dec.UseNumber()
	root, err := p.value("", 0)
	if err != nil {
		return Document{}, err
	}
	if _, err := p.dec.Token(); err != io.EOF {
		return Document{}, p.errorf("text after the configuration")
	}
	object, ok := root.(map[string]any)
	if !ok {
		return Document{}, fmt.Errorf("%s:1: must be a JSON object", name)
	}
	at := func(path string) string {
		line, ok := p.lines[path]
		if !ok {
			line = 1
		}
		return name + ":" + strconv.Itoa(line)
	}
	return Document{Root: object, At: at}, nil
}

// jsonReader turns JSON into a tree and remembers the line of every key.
type jsonReader struct {
	name  string
	text  []byte
	dec   *json.Decoder
	lines map[string]int // [dotted path]
	known struct{ offset, line int }
}

func (p *jsonReader) line() int {
	to := min(int(p.dec.InputOffset()), len(p.text))
	p.known.line += bytes.Count(p.text[p.known.offset:to], []byte{'\n'})
	p.known.offset = to
	return p.known.line + 1
}

func (p *jsonReader) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.name, p.line(), fmt.Sprintf(format, args...))
}

const maxDepth = 100

func (p *jsonReader) value(path string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, p.errorf("nested deeper than %d", maxDepth)
	}
	tok, err := p.dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, p.errorf("not JSON: %v", err)
	}
	switch tok {
	case json.Delim('{'):
		return p.object(path, depth)
	case json.Delim('['):
		return p.array(path, depth)
	}
	return tok, nil
}

func (p *jsonReader) object(path string, depth int) (any, error) {
	out := map[string]any{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return nil, p.errorf("not JSON: %v", err)
		}
		key, _ := tok.(string)
		below := join(path, key)
		if _, dup := out[key]; dup {
			return nil, p.errorf("%s: given twice", below)
		}
		p.lines[below] = p.line()
		if out[key], err = p.value(below, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := p.dec.Token(); err != nil {
		return nil, p.errorf("not JSON: %v", err)
	}
	return out, nil
}

func (p *jsonReader) array(path string, depth int) (any, error) {
	out := []any{}
	for p.dec.More() {
		v, err := p.value(path+"["+strconv.Itoa(len(out))+"]", depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	if _, err := p.dec.Token(); err != nil {
		return nil, p.errorf("not JSON: %v", err)
	}
	return out, nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// number reads any notation of a finite number, numeric strings too.
func number(v any) (float64, error) {
	var f float64
	switch n := v.(type) {
	case json.Number:
		var err error
		if f, err = n.Float64(); err != nil {
			return 0, fmt.Errorf("must be a number, got %s", n)
		}
	case string:
		var err error
		if f, err = strconv.ParseFloat(strings.TrimSpace(n), 64); err != nil {
			return 0, fmt.Errorf("must be a number, got %q", n)
		}
	case int:
		f = float64(n)
	case int64:
		f = float64(n)
	case uint64:
		f = float64(n)
	case float64:
		f = n
	default:
		return 0, fmt.Errorf("must be a number, got %s", kindOf(v))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, errors.New("must be finite")
	}
	return f, nil
}

// whole reads an integer, integral floats and numeric strings too.
func whole(v any) (int, error) {
	f, err := number(v)
	if err != nil {
		return 0, err
	}
	if f != math.Trunc(f) {
		return 0, fmt.Errorf("must be an integer, got %v", f)
	}
	if math.Abs(f) > 1<<53 {
		return 0, fmt.Errorf("is out of range: %v", f)
	}
	return int(f), nil
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("%v", v)
}
