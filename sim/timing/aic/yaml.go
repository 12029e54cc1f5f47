package aic

import (
	"fmt"
	"strings"
)

// node is one value of the YAML subset that the performance package writes: block
// and flow mappings and sequences, plain and quoted scalars, folded text. Keys and
// scalars stay text; null is the empty plain scalar, "null" or "~".
type node struct {
	kind   nodeKind
	text   string
	quoted bool
	keys   []string
	items  []*node // values of a mapping, in key order, or elements of a sequence
}

type nodeKind uint8

const (
	scalarNode nodeKind = iota
	mapNode
	listNode
)

// maxYAMLDepth bounds nesting, so that hostile input cannot exhaust the stack.
const maxYAMLDepth = 40

// get returns the value under a path of keys, or nil.
func (n *node) get(path ...string) *node {
	for _, p := range path {
		if n == nil || n.kind != mapNode {
			return nil
		}
		var next *node
		for i, k := range n.keys {
			if k == p {
				next = n.items[i]
			}
		}
		n = next
	}
	return n
}

// str returns the text of a scalar, and false for null, absent or not a scalar.
func (n *node) str() (string, bool) {
	if n == nil || n.kind != scalarNode {
		return "", false
	}
	if !n.quoted && (n.text == "" || n.text == "null" || n.text == "~") {
		return "", false
	}
	return n.text, true
}

type yamlLine struct {
	indent, number int
	text           string
}

type yamlParser struct {
	file  string
	lines []yamlLine
	at    int
}

// parseYAML reads one document. Errors name file and line.
func parseYAML(file, data string) (*node, error) {
	p := &yamlParser{file: file}
	for i, raw := range strings.Split(data, "\n") {
		text := strings.TrimRight(stripComment(raw), " \t\r")
		body := strings.TrimLeft(text, " ")
		if body == "" || body == "---" {
			continue
		}
		p.lines = append(p.lines, yamlLine{len(text) - len(body), i + 1, body})
	}
	if len(p.lines) == 0 {
		return &node{}, nil
	}
	n, err := p.block(p.lines[0].indent, 0)
	if err == nil && p.at < len(p.lines) {
		err = p.errorf("unexpected indentation")
	}
	return n, err
}

func (p *yamlParser) errorf(format string, args ...any) error {
	number := 0
	if p.at < len(p.lines) {
		number = p.lines[p.at].number
	} else if len(p.lines) > 0 {
		number = p.lines[len(p.lines)-1].number
	}
	return fmt.Errorf("%s:%d: %s", p.file, number, fmt.Sprintf(format, args...))
}

// stripComment cuts a comment that starts the line or follows a blank, outside quotes.
func stripComment(s string) string {
	var quote byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case (c == '\'' || c == '"') && (i == 0 || strings.IndexByte(" [{,:", s[i-1]) >= 0):
			quote = c
		case c == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t'):
			return s[:i]
		}
	}
	return s
}

// block parses the lines from p.at that stand at the given indentation.
func (p *yamlParser) block(indent, depth int) (*node, error) {
	if depth > maxYAMLDepth {
		return nil, p.errorf("nested too deeply")
	}
	first := p.lines[p.at].text
	if first == "-" || strings.HasPrefix(first, "- ") {
		return p.sequence(indent, depth)
	}
	if _, _, ok := splitKey(first); ok {
		return p.mapping(indent, depth)
	}
	n, err := p.value(first)
	p.at++
	return n, err
}

func (p *yamlParser) sequence(indent, depth int) (*node, error) {
	n := &node{kind: listNode}
	for p.at < len(p.lines) && p.lines[p.at].indent == indent {
		l := &p.lines[p.at]
		if l.text != "-" && !strings.HasPrefix(l.text, "- ") {
			break
		}
		rest := strings.TrimLeft(l.text[1:], " ")
		if rest == "" {
			p.at++
			item, err := p.nested(indent, depth)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
			continue
		}
		l.indent += len(l.text) - len(rest)
		l.text = rest
		item, err := p.block(l.indent, depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	return n, nil
}

func (p *yamlParser) mapping(indent, depth int) (*node, error) {
	n := &node{kind: mapNode}
	for p.at < len(p.lines) && p.lines[p.at].indent == indent {
		key, rest, ok := splitKey(p.lines[p.at].text)
		if !ok {
			return nil, p.errorf("expected \"key: value\"")
		}
		var (
			v   *node
			err error
		)
		switch {
		case rest == "":
			p.at++
			v, err = p.nested(indent, depth)
		case rest[0] == '>' || rest[0] == '|':
			p.at++
			v = &node{quoted: true, text: p.folded(indent)}
		default:
			v, err = p.value(rest)
			p.at++
			p.folded(indent) // continuation lines of a plain scalar carry nothing that is read
		}
		if err != nil {
			return nil, err
		}
		n.keys = append(n.keys, key)
		n.items = append(n.items, v)
	}
	return n, nil
}

// nested parses what stands below a key or dash at the given indentation, null if nothing.
func (p *yamlParser) nested(indent, depth int) (*node, error) {
	if p.at >= len(p.lines) {
		return &node{}, nil
	}
	l := p.lines[p.at]
	list := l.text == "-" || strings.HasPrefix(l.text, "- ")
	if l.indent > indent || (l.indent == indent && list) {
		return p.block(l.indent, depth+1)
	}
	return &node{}, nil
}

// folded consumes the deeper lines and joins them with blanks.
func (p *yamlParser) folded(indent int) string {
	var parts []string
	for p.at < len(p.lines) && p.lines[p.at].indent > indent {
		parts = append(parts, p.lines[p.at].text)
		p.at++
	}
	return strings.Join(parts, " ")
}

// splitKey cuts "key: rest" at the first colon that ends the line or precedes a blank.
func splitKey(s string) (key, rest string, ok bool) {
	if s == "" || s[0] == '{' || s[0] == '[' {
		return "", "", false
	}
	if s[0] == '"' || s[0] == '\'' {
		end := strings.IndexByte(s[1:], s[0])
		if end < 0 || !strings.HasPrefix(s[end+2:], ":") {
			return "", "", false
		}
		return s[1 : end+1], strings.TrimSpace(s[end+3:]), true
	}
	for i := 0; i < len(s); i++ {
		if s[i] == ':' && (i+1 == len(s) || s[i+1] == ' ') {
			return strings.TrimSpace(s[:i]), strings.TrimSpace(s[i+1:]), true
		}
	}
	return "", "", false
}

// value parses an inline value: a flow collection or a scalar.
func (p *yamlParser) value(s string) (*node, error) {
	f := flowParser{s: s}
	n, err := f.parse(0)
	if err == nil && strings.TrimSpace(f.s[f.at:]) != "" {
		err = fmt.Errorf("unexpected text after value")
	}
	if err != nil {
		return nil, p.errorf("%v", err)
	}
	return n, nil
}

type flowParser struct {
	s  string
	at int
}

func (f *flowParser) skip() {
	for f.at < len(f.s) && f.s[f.at] == ' ' {
		f.at++
	}
}

func (f *flowParser) parse(depth int) (*node, error) {
	if depth > maxYAMLDepth {
		return nil, fmt.Errorf("nested too deeply")
	}
	f.skip()
	if f.at < len(f.s) && (f.s[f.at] == '{' || f.s[f.at] == '[') {
		return f.collection(depth)
	}
	return f.scalar(depth > 0)
}

func (f *flowParser) collection(depth int) (*node, error) {
	n, end := &node{kind: listNode}, byte(']')
	if f.s[f.at] == '{' {
		n.kind, end = mapNode, '}'
	}
	f.at++
	for {
		f.skip()
		if f.at >= len(f.s) {
			return nil, fmt.Errorf("unclosed %q", end)
		}
		if f.s[f.at] == end {
			f.at++
			return n, nil
		}
		if n.kind == mapNode {
			key, err := f.scalar(true)
			if err != nil {
				return nil, err
			}
			f.skip()
			if f.at >= len(f.s) || f.s[f.at] != ':' {
				return nil, fmt.Errorf("expected ':' after %q", key.text)
			}
			f.at++
			n.keys = append(n.keys, key.text)
		}
		v, err := f.parse(depth + 1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, v)
		f.skip()
		if f.at < len(f.s) && f.s[f.at] == ',' {
			f.at++
		} else if f.at >= len(f.s) || f.s[f.at] != end {
			return nil, fmt.Errorf("expected ',' or %q", end)
		}
	}
}

// scalar parses a quoted or plain scalar; inside a collection it ends at , ] } or ": ".
func (f *flowParser) scalar(inside bool) (*node, error) {
	f.skip()
	if f.at < len(f.s) && (f.s[f.at] == '"' || f.s[f.at] == '\'') {
		end := strings.IndexByte(f.s[f.at+1:], f.s[f.at])
		if end < 0 {
			return nil, fmt.Errorf("unclosed quote")
		}
		text := f.s[f.at+1 : f.at+1+end]
		f.at += end + 2
		return &node{text: text, quoted: true}, nil
	}
	start := f.at
	for f.at < len(f.s) {
		c := f.s[f.at]
		if inside && (strings.IndexByte(",]}", c) >= 0 || c == ':' && (f.at+1 == len(f.s) || f.s[f.at+1] == ' ')) {
			break
		}
		f.at++
	}
	return &node{text: strings.TrimSpace(f.s[start:f.at])}, nil
}
