package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

// ParseJSON reads the JSON value of a file; errors are Faults with the line.
func ParseJSON(origin string, text []byte) (*Node, error) { return parseJSON(origin, text, false) }

// ParseInlineJSON reads a JSON value that was written on a command line; errors are
// Faults with line and column at the end of the message.
func ParseInlineJSON(origin string, text []byte) (*Node, error) {
	return parseJSON(origin, text, true)
}

func parseJSON(origin string, text []byte, inline bool) (*Node, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	p := jsonParser{dec: dec, text: text}
	n, err := p.value("", 0)
	if err == nil {
		if _, trailing := dec.Token(); trailing != io.EOF {
			err = errors.New("trailing characters")
		}
	}
	if err == nil {
		return n, nil
	}
	f := p.fault(err)
	f.Origin = origin
	if !inline {
		f.Column = 0
	}
	return nil, f
}

// jsonParser builds the tree from the tokens of encoding/json.
type jsonParser struct {
	dec   *json.Decoder
	text  []byte
	count int // of values
	at    int // how far line and start are known, in bytes
	line  int // lines before at
	start int // of the line that holds at, in bytes
}

// place returns line and column of the last of the first offset bytes. Offsets must
// not shrink from call to call.
func (p *jsonParser) place(offset int64) (line, column int) {
	to := min(int(offset), len(p.text))
	if to < p.at { // only the last call, for a fault
		p.at, p.line, p.start = 0, 0, 0
	}
	for i, c := range p.text[p.at:to] {
		if c == '\n' {
			p.line, p.start = p.line+1, p.at+i+1
		}
	}
	p.at = to
	return p.line + 1, max(to-p.start, 1)
}

// fault gives an error of the decoder its place and plainer words.
func (p *jsonParser) fault(err error) *Fault {
	f, ok := err.(*Fault)
	if !ok {
		f = &Fault{Msg: strings.TrimPrefix(err.Error(), "json: ")}
	}
	offset := p.dec.InputOffset()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		offset = max(syntax.Offset, offset+1)
		if strings.Contains(f.Msg, "looking for beginning of value") {
			f.Msg = "expected value"
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		offset = int64(len(p.text))
		f.Msg = "the JSON text ends early"
	}
	f.Line, f.Column = p.place(offset)
	return f
}

func (p *jsonParser) value(path string, depth int) (*Node, error) {
	if p.count++; depth > maxDepth || p.count > maxNodes {
		return nil, &Fault{Path: path, Msg: "the document is too large or nested too deeply"}
	}
	t, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	n, line, column := &Node{}, 0, 0
	line, column = p.place(p.dec.InputOffset())
	switch t := t.(type) {
	case nil:
	case bool:
		n.Kind, n.Text = Bool, strconv.FormatBool(t)
	case string:
		n.Kind, n.Text = String, t
	case json.Number:
		n, err = NumberNode(t.String())
	case json.Delim:
		n, err = p.container(t, path, depth)
	}
	if err != nil {
		return nil, err
	}
	n.Path, n.Line, n.Column = path, line, column
	return n, nil
}

// container reads the rest of a list or mapping whose bracket was read.
func (p *jsonParser) container(open json.Delim, path string, depth int) (*Node, error) {
	n := &Node{Kind: List}
	if open == '{' {
		n.Kind = Map
	}
	for p.dec.More() {
		at := path + "[" + strconv.Itoa(len(n.Items)) + "]"
		if n.Kind == Map {
			t, err := p.dec.Token()
			if err != nil {
				return nil, err
			}
			key, _ := t.(string)
			if n.Get(key) != nil {
				return nil, &Fault{Path: JoinPath(path, key), Msg: "duplicate field `" + key + "`"}
			}
			n.Keys, at = append(n.Keys, key), JoinPath(path, key)
		}
		v, err := p.value(at, depth+1)
		if err != nil {
			return nil, err
		}
		n.Items = append(n.Items, v)
	}
	_, err := p.dec.Token()
	return n, err
}
