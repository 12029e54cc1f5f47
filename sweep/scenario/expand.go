package scenario

import (
	"fmt"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// variant is one concrete form of a section: lists are resolved to one value each.
type variant struct {
	tree   *document.Node
	leaves []leaf // every scalar, in document order
}

// leaf is one value of a variant.
type leaf struct {
	path   string // dotted, without list indices
	v      *document.Node
	listed bool // one of several values of an axis
}

// Bounds of one section and of a whole grid.
const (
	maxVariants = 1 << 18
	maxPoints   = 1 << 20
)

// plainPath drops the list indices of a path: "topology[1].workers" becomes
// "topology.workers".
func plainPath(path string) string {
	if !strings.Contains(path, "[") {
		return path
	}
	var b strings.Builder
	inside := false
	for _, c := range path {
		switch c {
		case '[':
			inside = true
		case ']':
			inside = false
		default:
			if !inside {
				b.WriteRune(c)
			}
		}
	}
	return b.String()
}

// expandNode lists the concrete forms of n: a list of mappings (and nulls) is a list of
// alternatives, any other list an axis of values, and a mapping the product of its
// keys, the first one outermost. A list inside an axis is one value.
func expandNode(f *document.Faults, n *document.Node) []variant {
	switch n.Kind {
	case document.List:
		return expandList(f, n)
	case document.Map:
		return expandMap(f, n)
	}
	return []variant{{n, []leaf{{path: plainPath(n.Path), v: n}}}}
}

func expandList(f *document.Faults, n *document.Node) []variant {
	if len(n.Items) == 0 {
		f.Malformed(n, "an empty list: give at least one value")
		return nil
	}
	maps, nulls := 0, 0
	for _, v := range n.Items {
		switch v.Kind {
		case document.Map:
			maps++
		case document.Null:
			nulls++
		}
	}
	var out []variant
	switch {
	case maps == 0:
		path := plainPath(n.Path)
		for _, v := range n.Items {
			out = append(out, variant{v, []leaf{{path, v, true}}})
		}
	case maps+nulls < len(n.Items):
		f.Malformed(n, "a list holds either values of one axis or mappings that are alternatives, not both")
	default:
		for _, v := range n.Items {
			if v.Kind == document.Null {
				out = append(out, variant{tree: v})
				continue
			}
			out = append(out, expandMap(f, v)...)
			if tooMany(f, n, len(out)) {
				return nil
			}
		}
	}
	return out
}

func tooMany(f *document.Faults, n *document.Node, count int) bool {
	if count <= maxVariants {
		return false
	}
	f.Malformed(n, fmt.Sprintf("more than %d combinations", maxVariants))
	return true
}

func expandMap(f *document.Faults, n *document.Node) []variant {
	parts := make([][]variant, len(n.Items))
	total := 1
	for i, v := range n.Items {
		parts[i] = expandNode(f, v)
		if total *= len(parts[i]); tooMany(f, n, total) {
			return nil
		}
	}
	out := make([]variant, total)
	at := make([]int, len(parts))
	for j := range out {
		c := *n
		c.Items = make([]*document.Node, len(parts))
		for i, k := range at {
			c.Items[i] = parts[i][k].tree
			out[j].leaves = append(out[j].leaves, parts[i][k].leaves...)
		}
		out[j].tree = &c
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < len(parts[i]) {
				break
			}
			at[i] = 0
		}
	}
	return out
}
