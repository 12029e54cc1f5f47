// Package document reads the documents that users write, YAML and JSON, strictly.
//
// ParseYAML or ParseJSON turns a text into a tree of Nodes with their places; a
// Mapping opens one mapping of it and reads it key by key; Faults gathers all that is
// wrong on the way, and Err gives it sorted by line, each fault in the form
// "file:line: dotted.path: what is wrong". A value that is refused reads as the zero
// value, so that reading goes on to the next fault.
//
// Lines and columns count from 1, and 0 stands where a document has none (a value of
// a command line). A document is bounded in size and depth, aliases expanded, keys of
// a mapping are unique, and keys that nobody reads are refused with the nearest one
// that is read.
package document

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Kind is the type of a document value.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	List
	Map
)

// Node is one value of an input document, JSON or YAML alike. Keys of a mapping
// are unique and keep the order of the document.
type Node struct {
	Kind   Kind
	Text   string // scalars: canonical text ("true", "-3", "1.5"), or the string
	Raw    string // YAML scalars as written: a name may look like a number
	Line   int    // from 1; 0 where lines say nothing (a command line)
	Column int
	Path   string // dotted path from the root of the document
	Keys   []string
	Items  []*Node // list items, or mapping values in the order of keys
}

const maxDepth = 64 // of nested values; no document of ours needs ten

// Get returns the value of a key, nil if n is no mapping or has no such key.
func (n *Node) Get(key string) *Node {
	if n == nil || n.Kind != Map {
		return nil
	}
	for i, k := range n.Keys {
		if k == key {
			return n.Items[i]
		}
	}
	return nil
}

// Put appends or replaces a key of a mapping.
func (n *Node) Put(key string, v *Node) {
	for i, k := range n.Keys {
		if k == key {
			n.Items[i] = v
			return
		}
	}
	n.Keys = append(n.Keys, key)
	n.Items = append(n.Items, v)
}

// EmptyMap returns a mapping without keys that stands for an absent n.
func EmptyMap(line int, path string) *Node { return &Node{Kind: Map, Line: line, Path: path} }

func JoinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Describe names a value as an error message does: "integer `5`", "sequence".
func (n *Node) Describe() string {
	switch n.Kind {
	case Bool:
		return "boolean `" + n.Text + "`"
	case Int:
		return "integer `" + n.Text + "`"
	case Float:
		return "floating point `" + n.Text + "`"
	case String:
		return "string " + strconv.Quote(n.Text)
	case List:
		return "sequence"
	case Map:
		return "map"
	}
	return "null"
}

// JSON returns the value as compact JSON, keys sorted. Non-finite numbers, which
// only YAML can write, become strings that any reader of numbers refuses.
func (n *Node) JSON() []byte {
	b, err := json.Marshal(n.Plain())
	if err != nil {
		panic("document: a document value does not marshal: " + err.Error())
	}
	return b
}

// Plain returns the value in the types of encoding/json.
func (n *Node) Plain() any {
	switch n.Kind {
	case Bool:
		return n.Text == "true"
	case Int:
		return json.Number(n.Text)
	case Float:
		if v, _ := strconv.ParseFloat(n.Text, 64); math.IsInf(v, 0) || math.IsNaN(v) {
			return n.Text
		}
		return json.Number(n.Text)
	case String:
		return n.Text
	case List:
		out := make([]any, len(n.Items))
		for i, v := range n.Items {
			out[i] = v.Plain()
		}
		return out
	case Map:
		out := make(map[string]any, len(n.Items))
		for i, v := range n.Items {
			out[n.Keys[i]] = v.Plain()
		}
		return out
	}
	return nil
}

// NumberNode makes a scalar node of a number; the text becomes canonical. A whole
// number that fits neither int64 nor uint64 is a float, as in serde.
func NumberNode(text string) (*Node, error) {
	if !strings.ContainsAny(text, ".eEnN") && text != "-0" {
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			return &Node{Kind: Int, Text: strconv.FormatInt(v, 10)}, nil
		}
		if v, err := strconv.ParseUint(text, 10, 64); err == nil {
			return &Node{Kind: Int, Text: strconv.FormatUint(v, 10)}, nil
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, errors.New("number out of range")
	}
	return FloatNode(v), nil
}

// FloatNode makes a float whose text has a point, an exponent or a word.
func FloatNode(v float64) *Node {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".eIN") {
		text += ".0"
	}
	return &Node{Kind: Float, Text: text}
}

// Find returns the value at a dotted path below n, nil if there is none.
func (n *Node) Find(path string) *Node {
	for _, key := range strings.Split(path, ".") {
		n = n.Get(key)
	}
	return n
}

// At is the value as if written at path.
func (n *Node) At(path string) *Node {
	c := *n
	c.Path = path
	return &c
}

// With returns the document with a value put at a dotted path; what is not on the
// path is shared. Missing mappings are made.
func (n *Node) With(path string, v *Node) *Node {
	c := *n
	c.Keys, c.Items = slices.Clone(n.Keys), slices.Clone(n.Items)
	key, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		c.Put(key, v)
		return &c
	}
	below := n.Get(key)
	if below == nil || below.Kind != Map {
		below = EmptyMap(n.Line, JoinPath(n.Path, key))
	}
	c.Put(key, below.With(rest, v))
	return &c
}

// Without returns the mapping without some keys.
func (n *Node) Without(keys ...string) *Node {
	c := EmptyMap(n.Line, n.Path)
	for i, key := range n.Keys {
		if !slices.Contains(keys, key) {
			c.Keys, c.Items = append(c.Keys, key), append(c.Items, n.Items[i])
		}
	}
	return c
}

// Only returns the mapping with those of its keys that are among keys.
func (n *Node) Only(keys ...string) *Node {
	c := EmptyMap(n.Line, n.Path)
	for i, key := range n.Keys {
		if slices.Contains(keys, key) {
			c.Keys, c.Items = append(c.Keys, key), append(c.Items, n.Items[i])
		}
	}
	return c
}

// Empty reports a mapping without keys.
func (n *Node) Empty() bool { return n != nil && n.Kind == Map && len(n.Keys) == 0 }

// String is the value as text; lists as JSON.
func (n *Node) String() string {
	if n.Kind == List || n.Kind == Map {
		return string(n.JSON())
	}
	return n.Text
}

// Rebase gives a subtree the paths of its place, and no lines.
func (n *Node) Rebase(path string) {
	n.Path, n.Line = path, 0
	for i, v := range n.Items {
		if n.Kind == Map {
			v.Rebase(JoinPath(path, n.Keys[i]))
		} else {
			v.Rebase(path)
		}
	}
}

// ClearPlaces removes lines and columns of a value and all below, where they would
// say nothing to the reader of a message.
func (n *Node) ClearPlaces() {
	n.Line, n.Column = 0, 0
	for _, v := range n.Items {
		v.ClearPlaces()
	}
}

// Scalar makes a value that no document wrote, at the place of n.
func (n *Node) Scalar(k Kind, text string) *Node {
	return &Node{Kind: k, Text: text, Line: n.Line, Path: n.Path}
}
