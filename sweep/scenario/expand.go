package scenario

import (
	"fmt"
	"strings"
)

// variant is one concrete form of a section: lists are resolved to one value each.
type variant struct {
	tree   *node
	leaves []leaf // every scalar, in document order
}

// leaf is one value of a variant.
type leaf struct {
	path   string // dotted, without list indices
	v      *node
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

// expand lists the concrete forms of n: a list of mappings (and nulls) is a list of
// alternatives, any other list an axis of values, and a mapping the product of its
// keys, the first one outermost. A list inside an axis is one value.
func (f *faults) expand(n *node) []variant {
	switch n.kind {
	case listKind:
		return f.expandList(n)
	case mapKind:
		return f.expandMap(n)
	}
	return []variant{{n, []leaf{{path: plainPath(n.path), v: n}}}}
}

func (f *faults) expandList(n *node) []variant {
	if len(n.items) == 0 {
		f.badType(n, "an empty list: give at least one value")
		return nil
	}
	maps, nulls := 0, 0
	for _, v := range n.items {
		switch v.kind {
		case mapKind:
			maps++
		case nullKind:
			nulls++
		}
	}
	var out []variant
	switch {
	case maps == 0:
		path := plainPath(n.path)
		for _, v := range n.items {
			out = append(out, variant{v, []leaf{{path, v, true}}})
		}
	case maps+nulls < len(n.items):
		f.badType(n, "a list holds either values of one axis or mappings that are alternatives, not both")
	default:
		for _, v := range n.items {
			if v.kind == nullKind {
				out = append(out, variant{tree: v})
				continue
			}
			out = append(out, f.expandMap(v)...)
			if f.tooMany(n, len(out)) {
				return nil
			}
		}
	}
	return out
}

func (f *faults) tooMany(n *node, count int) bool {
	if count <= maxVariants {
		return false
	}
	f.badType(n, fmt.Sprintf("more than %d combinations", maxVariants))
	return true
}

func (f *faults) expandMap(n *node) []variant {
	parts := make([][]variant, len(n.items))
	total := 1
	for i, v := range n.items {
		parts[i] = f.expand(v)
		if total *= len(parts[i]); f.tooMany(n, total) {
			return nil
		}
	}
	out := make([]variant, total)
	at := make([]int, len(parts))
	for j := range out {
		c := *n
		c.items = make([]*node, len(parts))
		for i, k := range at {
			c.items[i] = parts[i][k].tree
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
