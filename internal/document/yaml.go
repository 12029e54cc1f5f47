package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds a YAML document, aliases expanded.
const maxNodes = 1 << 20

// ParseYAML reads one YAML document; nil for an empty one. Errors carry origin and
// line.
func ParseYAML(origin string, text []byte) (*Node, error) {
	var root, next yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&root); {
	case errors.Is(err, io.EOF) || err == nil && len(root.Content) == 0:
		return nil, nil
	case err != nil:
		return nil, yamlFault(origin, err)
	}
	switch err := d.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, yamlFault(origin, err)
	case len(next.Content) > 0:
		return nil, &Fault{Origin: origin, Line: next.Content[0].Line, Msg: "a second YAML document: a file holds one"}
	}
	c := yamlConverter{origin: origin, open: map[*yaml.Node]bool{}}
	n, err := c.value(root.Content[0], "", 0)
	if err != nil {
		return nil, err
	}
	return n, nil
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// yamlFault moves the line out of a message of the YAML package.
func yamlFault(origin string, err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	f := &Fault{Origin: origin, Line: 1, Msg: "not YAML: " + msg}
	if at := yamlLine.FindStringSubmatchIndex(msg); at != nil {
		f.Line, _ = strconv.Atoi(msg[at[2]:at[3]])
		f.Msg = "not YAML: " + msg[:at[0]] + msg[at[1]:]
	}
	return f
}

type yamlConverter struct {
	origin string
	count  int
	open   map[*yaml.Node]bool // anchored values that are being read
}

func (c *yamlConverter) fault(y *yaml.Node, path, msg string) error {
	return &Fault{Origin: c.origin, Line: y.Line, Path: path, Msg: msg}
}

func (c *yamlConverter) value(y *yaml.Node, path string, depth int) (*Node, error) {
	if c.count++; c.count > maxNodes || depth > maxDepth {
		return nil, c.fault(y, path, "the document is too large or nested too deeply")
	}
	if y.Anchor != "" {
		c.open[y] = true
		defer delete(c.open, y)
	}
	switch y.Kind {
	case yaml.AliasNode:
		if c.open[y.Alias] {
			return nil, &Fault{Origin: c.origin, Line: y.Line, Msg: "*" + y.Value + " refers to a value that contains it"}
		}
		n, err := c.value(y.Alias, path, depth+1)
		if err != nil {
			return nil, err
		}
		n.Line = y.Line
		return n, nil
	case yaml.ScalarNode:
		n, err := scalar(y)
		if err != nil {
			return nil, c.fault(y, path, err.Error())
		}
		n.Line, n.Column, n.Path, n.Raw = y.Line, y.Column, path, y.Value
		return n, nil
	case yaml.SequenceNode:
		n := &Node{Kind: List, Line: y.Line, Column: y.Column, Path: path}
		for i, item := range y.Content {
			v, err := c.value(item, path+"["+strconv.Itoa(i)+"]", depth+1)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, v)
		}
		return n, nil
	}
	return c.mapping(y, path, depth)
}

func (c *yamlConverter) mapping(y *yaml.Node, path string, depth int) (*Node, error) {
	n := EmptyMap(y.Line, path)
	n.Column = y.Column
	for i := 0; i+1 < len(y.Content); i += 2 {
		k := y.Content[i]
		if k.Kind != yaml.ScalarNode {
			return nil, c.fault(k, path, "a key must be a word")
		}
		key := k.Value
		if n.Get(key) != nil {
			return nil, c.fault(k, JoinPath(path, key), "duplicate field `"+key+"`")
		}
		v, err := c.value(y.Content[i+1], JoinPath(path, key), depth+1)
		if err != nil {
			return nil, err
		}
		v.Line = k.Line
		n.Put(key, v)
	}
	return n, nil
}

// scalar reads a plain value by its resolved tag. Words that YAML 1.1 takes for
// dates stay text.
func scalar(y *yaml.Node) (*Node, error) {
	switch tag := y.ShortTag(); tag {
	case "!!null":
		return &Node{}, nil
	case "!!bool":
		var v bool
		if err := y.Decode(&v); err != nil {
			return nil, errors.New("not a boolean: " + y.Value)
		}
		return &Node{Kind: Bool, Text: strconv.FormatBool(v)}, nil
	case "!!int", "!!float":
		return yamlNumber(y)
	case "!!str", "!!timestamp":
		return &Node{Kind: String, Text: y.Value}, nil
	default:
		return nil, fmt.Errorf("values of type %s are not used here", tag)
	}
}

func yamlNumber(y *yaml.Node) (*Node, error) {
	var v any
	if err := y.Decode(&v); err != nil {
		return nil, errors.New("not a number: " + y.Value)
	}
	switch v := v.(type) {
	case int:
		return NumberNode(strconv.Itoa(v))
	case int64:
		return NumberNode(strconv.FormatInt(v, 10))
	case uint64:
		return NumberNode(strconv.FormatUint(v, 10))
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return &Node{Kind: Float, Text: strconv.FormatFloat(v, 'g', -1, 64)}, nil
		}
		return FloatNode(v), nil
	}
	return nil, errors.New("not a number: " + y.Value)
}

// yaml is the value as a YAML tree.
func (n *Node) yaml() *yaml.Node {
	switch n.Kind {
	case List:
		out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
		for _, v := range n.Items {
			out.Content = append(out.Content, v.yaml())
		}
		return out
	case Map:
		out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for i, v := range n.Items {
			out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: n.Keys[i]}, v.yaml())
		}
		return out
	}
	tag := [...]string{Null: "!!null", Bool: "!!bool", Int: "!!int", Float: "!!float", String: "!!str"}[n.Kind]
	text := n.Text
	if n.Kind == Null {
		text = "null"
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

// MarshalYAML returns the value as a YAML document.
func (n *Node) MarshalYAML() ([]byte, error) { return yaml.Marshal(n.yaml()) }
