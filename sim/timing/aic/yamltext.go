package aic

import (
	"slices"

	"github.com/dynosweep/dynosweep/internal/document"
)

// parseYAML reads one YAML document of the performance data; an empty one is a
// mapping without keys. Errors name file and line.
func parseYAML(file string, data []byte) (*document.Node, error) {
	n, err := document.ParseYAML(file, data)
	if err == nil && n == nil {
		n = document.EmptyMap(1, "")
	}
	return n, err
}

// below returns the value under a path of keys, nil if there is none. Keys may hold
// dots, as versions do.
func below(n *document.Node, path ...string) *document.Node {
	for _, key := range path {
		n = n.Get(key)
	}
	return n
}

// scalarText returns a scalar under a path of keys as it was written: a version may look
// like a number. It is false for null, absent and values that are no scalars.
func scalarText(n *document.Node, path ...string) (string, bool) {
	n = below(n, path...)
	switch {
	case n == nil || n.Kind == document.Null || n.Kind >= document.List:
		return "", false
	case n.Kind == document.String:
		return n.Text, true
	}
	return n.Raw, true
}

// holds reports whether a sequence holds a scalar.
func holds(n *document.Node, word string) bool {
	return n != nil && slices.ContainsFunc(n.Items, func(e *document.Node) bool {
		v, ok := scalarText(e)
		return ok && v == word
	})
}
