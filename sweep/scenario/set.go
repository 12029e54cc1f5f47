package scenario

import (
	"strings"
)

// applySet applies one --set PATH=VALUE to the document root: PATH names mapping
// keys, missing mappings are made, VALUE is YAML (spec sweeps-and-schema 1). search
// permits the sections that only recommend has.
func applySet(root *node, assignment string, search bool) error {
	path, text, ok := strings.Cut(assignment, "=")
	bad := func(msg string) error { return &Fault{Origin: "--set " + assignment, Path: path, Msg: msg} }
	if !ok || path == "" {
		return &Fault{Origin: "--set " + assignment, Msg: "expected PATH=VALUE"}
	}
	keys := strings.Split(path, ".")
	if !search && (keys[0] == "optimization" || keys[0] == "optimizer") {
		return bad(keys[0] + " belongs to recommend, predict runs one configuration")
	}
	at := ""
	for i, key := range keys {
		if key == "" {
			return bad("an empty path segment")
		}
		if strings.ContainsAny(key, "[]") || strings.Trim(key, "0123456789") == "" {
			return bad("path segments are keys of mappings, `" + key + "` is an index")
		}
		at = join(at, key)
		if i == len(keys)-1 {
			break
		}
		next := root.get(key)
		if next == nil {
			next = emptyMap(0, at)
			root.put(key, next)
		}
		if next.kind != mapKind {
			return bad("`" + at + "` is no mapping")
		}
		root = next
	}
	v, err := parseYAML("--set "+assignment, []byte(text))
	if err != nil {
		return err
	}
	if v == nil {
		v = &node{}
	}
	v.rebase(at)
	root.put(keys[len(keys)-1], v)
	return nil
}

// rebase gives a subtree the paths of its place, and no lines.
func (n *node) rebase(path string) {
	n.path, n.line = path, 0
	for i, v := range n.items {
		if n.kind == mapKind {
			v.rebase(join(path, n.keys[i]))
		} else {
			v.rebase(path)
		}
	}
}
