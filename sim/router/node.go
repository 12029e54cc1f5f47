package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Node is one value of an input document, JSON or YAML alike, with its place. The
// YAML reader of sweep/scenario builds the tree of a policy file from it.
type Node struct {
	Line, Column int    // from 1, 0 if unknown
	Value        any    // nil, bool, int64, uint64, float64, string, []*Node or []Pair
	Text         string // a YAML scalar as written: a name may look like a number
}

// Pair is one entry of a mapping, in document order. Keys may repeat; readers of the
// tree refuse that.
type Pair struct {
	Key   string
	Value *Node
}

// maxDepth bounds the nesting of a document.
const maxDepth = 64

// parseJSON returns the tree of one JSON value.
func parseJSON(data []byte) (*Node, error) {
	p := jsonParser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	n, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, p.fail("trailing characters")
	}
	return n, nil
}

type jsonParser struct {
	data []byte
	dec  *json.Decoder
}

// place is the line and column of the last character read.
func (p *jsonParser) place() (line, column int) { return p.placeOf(p.dec.InputOffset()) }

// placeOf is the line and column of the last of so many characters.
func (p *jsonParser) placeOf(offset int64) (line, column int) {
	read := p.data[:min(int(offset), len(p.data))]
	return bytes.Count(read, []byte("\n")) + 1, len(read) - (bytes.LastIndexByte(read, '\n') + 1)
}

func (p *jsonParser) fail(format string, args ...any) error {
	return p.failAt(p.dec.InputOffset(), fmt.Sprintf(format, args...))
}

func (p *jsonParser) failAt(offset int64, message string) error {
	line, column := p.placeOf(offset)
	return fmt.Errorf("%s at line %d column %d", message, line, column)
}

func (p *jsonParser) token() (json.Token, error) {
	tok, err := p.dec.Token()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, p.fail("EOF while parsing a value")
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		// the decoder's own complaints do not count the character at fault, its scanner's do
		return nil, p.failAt(max(syntax.Offset, p.dec.InputOffset()+1), syntax.Error())
	}
	if err != nil {
		return nil, p.fail("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return tok, nil
}

func (p *jsonParser) value(depth int) (*Node, error) {
	tok, err := p.token()
	if err != nil {
		return nil, err
	}
	n := &Node{}
	n.Line, n.Column = p.place()
	if depth > maxDepth {
		return nil, p.fail("recursion limit exceeded")
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			n.Value, err = p.object(depth)
		} else {
			n.Value, err = p.array(depth)
		}
	case json.Number:
		n.Value, err = p.number(v.String())
	default:
		n.Value = tok
	}
	return n, err
}

func (p *jsonParser) object(depth int) (any, error) {
	pairs := []Pair{}
	for p.dec.More() {
		tok, err := p.token()
		if err != nil {
			return nil, err
		}
		key, ok := tok.(string)
		if !ok {
			return nil, p.fail("key must be a string")
		}
		n, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, Pair{key, n})
	}
	_, err := p.token()
	return pairs, err
}

func (p *jsonParser) array(depth int) (any, error) {
	items := []*Node{}
	for p.dec.More() {
		n, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, n)
	}
	_, err := p.token()
	return items, err
}

// number keeps integers exact where 64 bits hold them.
func (p *jsonParser) number(text string) (any, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, p.fail("number out of range")
	}
	return f, nil
}

// at joins a dotted path and a key.
func at(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// fault is an error about a node: path, message, place.
func (n *Node) fault(path, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if path != "" {
		msg = path + ": " + msg
	}
	if n.Line > 0 {
		msg += fmt.Sprintf(" at line %d column %d", n.Line, n.Column)
	}
	return errors.New(msg)
}

// shown describes the value of a node in messages.
func (n *Node) shown() string {
	switch v := n.Value.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprintf("boolean `%v`", v)
	case int64, uint64:
		return fmt.Sprintf("integer `%v`", v)
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".eIN") {
			s += ".0"
		}
		return "floating point `" + s + "`"
	case string:
		return fmt.Sprintf("string %q", v)
	case []*Node:
		return "sequence"
	}
	return "map"
}

// options are what the tag of a field says besides its key.
type options struct {
	key      string
	null     bool     // null means absent
	required bool     // absent is an error
	variants []string // the strings allowed
	rangeOf  string   // the numbers allowed, a key of ranges
}

func optionsOf(f reflect.StructField) options {
	key, rest, _ := strings.Cut(f.Tag.Get("key"), ",")
	return options{key: key, null: strings.Contains(rest, "null"), required: strings.Contains(rest, "required"),
		variants: strings.Fields(f.Tag.Get("variants")), rangeOf: f.Tag.Get("range")}
}

// decode fills the struct that dst points to from a mapping, strictly: a key that
// no field has, a repeated or missing key and a value of the wrong type are errors.
// Fields name their key in the tag `key:"name[,null][,required]"`; a struct field
// without a tag lends its fields. Keys that are absent leave their field as it is.
func decode(n *Node, path string, dst any) error {
	pairs, ok := n.Value.([]Pair)
	if !ok {
		return n.fault(path, "invalid type: %s, expected a map", n.shown())
	}
	var fields []field
	collect(reflect.ValueOf(dst).Elem(), &fields)
	seen := map[string]bool{}
	for _, p := range pairs {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == p.Key })
		if i < 0 {
			return p.Value.fault(path, "unknown field `%s`, expected %s", p.Key, oneOf(keysOf(fields)))
		}
		if seen[p.Key] {
			return p.Value.fault(path, "duplicate field `%s`", p.Key)
		}
		seen[p.Key] = true
		if err := set(p.Value, at(path, p.Key), fields[i].options, fields[i].value); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if f.required && !seen[f.key] {
			return n.fault(path, "missing field `%s`", f.key)
		}
	}
	return nil
}

type field struct {
	options
	value reflect.Value
}

// collect lists the fields of a struct, those of untagged structs in place.
func collect(v reflect.Value, fields *[]field) {
	for i := range v.NumField() {
		o := optionsOf(v.Type().Field(i))
		if o.key == "" {
			collect(v.Field(i), fields)
			continue
		}
		*fields = append(*fields, field{o, v.Field(i)})
	}
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// oneOf lists alternatives in a message.
func oneOf(names []string) string {
	quoted := "`" + strings.Join(names, "`, `") + "`"
	switch len(names) {
	case 1:
		return quoted
	case 2:
		return "`" + names[0] + "` or `" + names[1] + "`"
	}
	return "one of " + quoted
}

// set stores one value: a pointer to a scalar, a node as it is, or a list of
// structs.
func set(n *Node, path string, o options, dst reflect.Value) error {
	if n.Value == nil && o.null {
		dst.SetZero()
		return nil
	}
	switch p := dst.Addr().Interface().(type) {
	case **Node:
		*p = n
		return nil
	case **float64:
		return scalar(n, path, "f64", p, n.float)
	case **bool:
		return scalar(n, path, "a boolean", p, n.boolean)
	case **uint32:
		return scalar(n, path, "u32", p, n.uint32)
	case **uint64:
		return scalar(n, path, "usize", p, n.uint64)
	case **string:
		if err := scalar(n, path, "a string", p, n.text); err != nil {
			return err
		}
		if len(o.variants) > 0 && !slices.Contains(o.variants, **p) {
			return n.fault(path, "unknown variant `%s`, expected %s", **p, oneOf(o.variants))
		}
		return nil
	}
	return setList(n, path, dst)
}

// scalar stores what read makes of a node, or says what was expected of it.
func scalar[T any](n *Node, path, expected string, dst **T, read func() (T, bool)) error {
	v, ok := read()
	if ok {
		*dst = &v
		return nil
	}
	what := "invalid type"
	if expected == "u32" || expected == "usize" {
		switch n.Value.(type) {
		case int64, uint64: // a number of the right kind, out of range
			what = "invalid value"
		}
	}
	return n.fault(path, "%s: %s, expected %s", what, n.shown(), expected)
}

// setList stores a list of structs.
func setList(n *Node, path string, dst reflect.Value) error {
	items, ok := n.Value.([]*Node)
	if !ok {
		return n.fault(path, "invalid type: %s, expected a sequence", n.shown())
	}
	list := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if err := decode(item, fmt.Sprintf("%s[%d]", path, i), list.Index(i).Addr().Interface()); err != nil {
			return err
		}
	}
	dst.Set(list)
	return nil
}

func (n *Node) float() (float64, bool) {
	switch v := n.Value.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	}
	return 0, false
}

func (n *Node) boolean() (bool, bool) {
	v, ok := n.Value.(bool)
	return v, ok
}

func (n *Node) uint64() (uint64, bool) {
	switch v := n.Value.(type) {
	case int64:
		return uint64(v), v >= 0
	case uint64:
		return v, true
	}
	return 0, false
}

func (n *Node) uint32() (uint32, bool) {
	v, ok := n.uint64()
	return uint32(v), ok && v <= math.MaxUint32
}

// text returns a string, or a scalar of another type as written if that is known.
func (n *Node) text() (string, bool) {
	if s, ok := n.Value.(string); ok {
		return s, true
	}
	return n.Text, n.Text != "" && n.Value != nil
}
