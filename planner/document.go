package planner

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// fault is a refusal of one key, by its dotted path below the document.
type fault struct{ path, msg string }

// Read reads a Planner configuration strictly and returns it complete, with one
// notice per key that was accepted but changes nothing in a replay. n is a mapping, of
// its own or inside a larger document. What is wrong goes to the faults, each with
// its own place; the Config is of no use then.
func Read(n *document.Node, f *document.Faults) (Config, []string) {
	if n.Kind != document.Map {
		f.Malformed(n, "the Planner's configuration must be a mapping, got "+n.Describe())
		return Config{}, nil
	}
	w := newDraft()
	faults := w.decode(n, "", keys)
	if len(faults) == 0 {
		faults = w.check()
	}
	for _, one := range faults {
		at := n.Find(one.path)
		if at == nil {
			at = &document.Node{Line: n.Line, Column: n.Column, Path: document.JoinPath(n.Path, one.path)}
		}
		f.Invalid(at, one.msg)
	}
	if len(faults) > 0 {
		return Config{}, nil
	}
	w.remarkTargets()
	return w.Config, w.notices
}

// ReadJSON reads a Planner configuration that is a JSON file of its own.
func ReadJSON(name string, text []byte) (Config, []string, error) {
	n, err := document.ParseJSON(name, text)
	if err != nil {
		return Config{}, nil, err
	}
	f := &document.Faults{Origin: name}
	c, notices := Read(n, f)
	return c, notices, f.Err()
}

// number reads a finite number, numeric strings too.
func number(n *document.Node) (float64, error) {
	var f float64
	switch n.Kind {
	case document.Int, document.Float:
		f = n.Number()
	case document.String:
		var err error
		if f, err = strconv.ParseFloat(strings.TrimSpace(n.Text), 64); err != nil {
			return 0, fmt.Errorf("must be a number, got %q", n.Text)
		}
	default:
		return 0, fmt.Errorf("must be a number, got %s", kindOf(n))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, errors.New("must be finite")
	}
	return f, nil
}

// whole reads an integer, integral floats and numeric strings too.
func whole(n *document.Node) (int, error) {
	f, err := number(n)
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

// kindOf names a value in a message; numbers are told as they are.
func kindOf(n *document.Node) string {
	switch n.Kind {
	case document.Bool:
		return "a boolean"
	case document.String:
		return "a string"
	case document.List:
		return "a list"
	case document.Map:
		return "an object"
	case document.Null:
		return "null"
	}
	return n.Text
}
