package scenario

import (
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// applySet applies one --set PATH=VALUE to the document root: PATH names mapping
// keys, missing mappings are made, VALUE is YAML (spec sweeps-and-schema 1). search
// permits the sections that only recommend has.
func applySet(root *document.Node, assignment string, search bool) error {
	path, text, ok := strings.Cut(assignment, "=")
	bad := func(msg string) error { return &document.Fault{Origin: "--set " + assignment, Path: path, Msg: msg} }
	if !ok || path == "" {
		return &document.Fault{Origin: "--set " + assignment, Msg: "expected PATH=VALUE"}
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
		at = document.JoinPath(at, key)
		if i == len(keys)-1 {
			break
		}
		next := root.Get(key)
		if next == nil {
			next = document.EmptyMap(0, at)
			root.Put(key, next)
		}
		if next.Kind != document.Map {
			return bad("`" + at + "` is no mapping")
		}
		root = next
	}
	v, err := document.ParseYAML("--set "+assignment, []byte(text))
	if err != nil {
		return err
	}
	if v == nil {
		v = &document.Node{}
	}
	v.Rebase(at)
	root.Put(keys[len(keys)-1], v)
	return nil
}
