package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// kind is the type of a document value.
type kind uint8

const (
	nullKind kind = iota
	boolKind
	intKind
	floatKind
	stringKind
	listKind
	mapKind
)

// node is one value of an input document, JSON or YAML alike. Keys of a mapping
// are unique and keep the order of the document.
type node struct {
	kind  kind
	text  string // scalars: canonical text ("true", "-3", "1.5"), or the string
	raw   string // YAML scalars as written: a name may look like a number
	line  int    // from 1; 0 where lines say nothing (a command line)
	col   int
	path  string // dotted path from the root of the document
	keys  []string
	items []*node // list items, or mapping values in the order of keys
}

const maxDepth = 64 // of nested values; no document of ours needs ten

// get returns the value of a key, nil if n is no mapping or has no such key.
func (n *node) get(key string) *node {
	if n == nil || n.kind != mapKind {
		return nil
	}
	for i, k := range n.keys {
		if k == key {
			return n.items[i]
		}
	}
	return nil
}

// put appends or replaces a key of a mapping.
func (n *node) put(key string, v *node) {
	for i, k := range n.keys {
		if k == key {
			n.items[i] = v
			return
		}
	}
	n.keys = append(n.keys, key)
	n.items = append(n.items, v)
}

// emptyMap returns a mapping without keys that stands for an absent n.
func emptyMap(line int, path string) *node { return &node{kind: mapKind, line: line, path: path} }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// describe names a value as an error message does: "integer `5`", "sequence".
func (n *node) describe() string {
	switch n.kind {
	case boolKind:
		return "boolean `" + n.text + "`"
	case intKind:
		return "integer `" + n.text + "`"
	case floatKind:
		return "floating point `" + n.text + "`"
	case stringKind:
		return "string " + strconv.Quote(n.text)
	case listKind:
		return "sequence"
	case mapKind:
		return "map"
	}
	return "null"
}

// json returns the value as compact JSON, keys sorted. Non-finite numbers, which
// only YAML can write, become strings that any reader of numbers refuses.
func (n *node) json() []byte {
	b, err := json.Marshal(n.plain())
	if err != nil {
		panic("scenario: a document value does not marshal: " + err.Error())
	}
	return b
}

// plain returns the value in the types of encoding/json.
func (n *node) plain() any {
	switch n.kind {
	case boolKind:
		return n.text == "true"
	case intKind:
		return json.Number(n.text)
	case floatKind:
		if v, _ := strconv.ParseFloat(n.text, 64); math.IsInf(v, 0) || math.IsNaN(v) {
			return n.text
		}
		return json.Number(n.text)
	case stringKind:
		return n.text
	case listKind:
		out := make([]any, len(n.items))
		for i, v := range n.items {
			out[i] = v.plain()
		}
		return out
	case mapKind:
		out := make(map[string]any, len(n.items))
		for i, v := range n.items {
			out[n.keys[i]] = v.plain()
		}
		return out
	}
	return nil
}

// number makes a scalar node of a number; the text becomes canonical. A whole
// number that fits neither int64 nor uint64 is a float, as in serde.
func number(text string) (*node, error) {
	if !strings.ContainsAny(text, ".eEnN") && text != "-0" {
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			return &node{kind: intKind, text: strconv.FormatInt(v, 10)}, nil
		}
		if v, err := strconv.ParseUint(text, 10, 64); err == nil {
			return &node{kind: intKind, text: strconv.FormatUint(v, 10)}, nil
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, errors.New("number out of range")
	}
	return floatNode(v), nil
}

// floatNode makes a float whose text has a point, an exponent or a word.
func floatNode(v float64) *node {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".eIN") {
		text += ".0"
	}
	return &node{kind: floatKind, text: text}
}

// parseJSON reads one JSON value. Errors tell line and column of the text.
func parseJSON(text []byte) (*node, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	p := jsonParser{dec: dec, text: text}
	n, err := p.value("", 0)
	if err != nil {
		return nil, p.place(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("trailing characters %s", p.at(dec.InputOffset()))
	}
	return n, nil
}

type jsonParser struct {
	dec  *json.Decoder
	text []byte
}

func (p *jsonParser) at(offset int64) string {
	head := p.text[:min(int(offset), len(p.text))]
	line := bytes.Count(head, []byte{'\n'}) + 1
	col := len(head) - (bytes.LastIndexByte(head, '\n') + 1)
	return fmt.Sprintf("at line %d column %d", line, max(col, 1))
}

func (p *jsonParser) place(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		what := err.Error()
		if strings.Contains(what, "looking for beginning of value") {
			what = "expected value"
		}
		return fmt.Errorf("%s %s", what, p.at(syntax.Offset))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the JSON text ends early %s", p.at(int64(len(p.text))))
	}
	return fmt.Errorf("%w %s", err, p.at(p.dec.InputOffset()))
}

func (p *jsonParser) value(path string, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errors.New("values are nested too deeply")
	}
	t, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	n, err := &node{}, error(nil)
	switch t := t.(type) {
	case nil:
	case bool:
		n.kind, n.text = boolKind, strconv.FormatBool(t)
	case string:
		n.kind, n.text = stringKind, t
	case json.Number:
		n, err = number(t.String())
	case json.Delim:
		n, err = p.container(t, path, depth)
	}
	if err != nil {
		return nil, err
	}
	n.path = path
	return n, nil
}

// container reads the rest of a list or mapping whose bracket was read.
func (p *jsonParser) container(open json.Delim, path string, depth int) (*node, error) {
	n := &node{kind: listKind}
	if open == '{' {
		n.kind = mapKind
	}
	for p.dec.More() {
		at := path + "[" + strconv.Itoa(len(n.items)) + "]"
		if n.kind == mapKind {
			t, err := p.dec.Token()
			if err != nil {
				return nil, err
			}
			key, _ := t.(string)
			if n.get(key) != nil {
				return nil, fmt.Errorf("%s: duplicate field `%s`", join(path, key), key)
			}
			n.keys, at = append(n.keys, key), join(path, key)
		}
		v, err := p.value(at, depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, v)
	}
	_, err := p.dec.Token()
	return n, err
}
