package document

import (
	"strconv"
	"strings"
)

// Key is one key of a document as data. Readers check values by it, and
// docs/reference.md is printed from it.
type Key struct {
	Name     string
	Kind     Kind // Float takes whole numbers too; List and Map are handed on unread
	Bits     int  // of an Int: the largest value is 2^Bits-1; 0 stands for 64
	Null     bool // null is the same as absent
	Required bool
	Path     bool     // the text names a file
	AnyText  bool     // a number or boolean is taken as the text that was written
	Choices  []string // of a String; nil: any text
	Range    Range    // of a Float
	Default  string   // as the reference page prints it, "" where there is none
	Meaning  string   // one sentence or two, as the reference page prints them
}

// Range bounds a number, both ends included. Rule is what a message says of a number
// outside; a Range without a rule bounds nothing.
type Range struct {
	Low, High float64
	Rule      string
}

// Type names the type of the key for the reference page.
func (k *Key) Type() string {
	name := [...]string{Bool: "boolean", Int: "integer", Float: "number", String: "string", List: "list", Map: "mapping"}[k.Kind]
	if k.Path {
		name = "path"
	}
	if k.Null {
		name += " or null"
	}
	return name
}

// Table is a group of keys that the reference page prints together.
type Table struct {
	Title, Note string
	Keys        []Key
}

// Values are the keys of one mapping that were written and are right. A key that is
// absent, null or refused is not set.
type Values struct {
	at     *Node
	faults *Faults
	byKey  map[string]*Node
}

// Read reads a mapping by its keys: unknown keys, missing ones, types, choices and
// ranges are checked, and what is wrong goes to the faults.
func (f *Faults) Read(n *Node, keys []Key) Values {
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = keys[i].Name
	}
	m := f.Mapping(n, "a map", names)
	v := Values{m.Node, f, map[string]*Node{}}
	for i := range keys {
		k := &keys[i]
		switch at := m.Get(k.Name); {
		case at == nil:
			if k.Required && (n == nil || n.Kind == Map) {
				m.Missing(k.Name)
			}
		case at.Kind == Null && k.Null:
		default:
			if at = f.check(at, k); at != nil {
				v.byKey[k.Name] = at
			}
		}
	}
	return v
}

// check returns the value of a key in the kind of the key, nil if it is refused.
func (f *Faults) check(n *Node, k *Key) *Node {
	want := [...]string{Bool: "a boolean", Int: "u" + strconv.Itoa(k.bits()), Float: "f64", String: "a string", List: "a sequence", Map: "a map"}[k.Kind]
	if k.bits() == 64 && k.Kind == Int {
		want = "usize"
	}
	right := n.Kind == k.Kind || k.Kind == Float && n.Kind == Int
	if k.AnyText && n.Kind != Null && n.Kind < List && n.Raw != "" {
		n, right = &Node{Kind: String, Text: n.Raw, Raw: n.Raw, Line: n.Line, Column: n.Column, Path: n.Path}, true
	}
	switch {
	case !right:
		f.wrongType(n, want)
	case k.Kind == Int:
		if _, err := strconv.ParseUint(n.Text, 10, k.bits()); err != nil {
			f.wrongValue(n, want)
			return nil
		}
		return n
	case k.Kind == String && k.Choices != nil && !contains(k.Choices, n.Text):
		f.Malformed(n, unknownChoice(n.Text, k.Choices))
	case k.Kind == Float && k.Range.Rule != "" && !(n.Number() >= k.Range.Low && n.Number() <= k.Range.High):
		f.Invalid(n, k.Name+" "+k.Range.Rule)
	default:
		return n
	}
	return nil
}

func (k *Key) bits() int {
	if k.Bits == 0 {
		return 64
	}
	return k.Bits
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// Require adds a fault of meaning at key unless holds.
func (v Values) Require(holds bool, key, msg string) {
	if !holds {
		v.faults.InvalidAt(v.Mapping(), key, msg)
	}
}

// Mapping is the mapping that was read.
func (v Values) Mapping() *Node {
	if v.at == nil {
		return EmptyMap(0, "")
	}
	return v.at
}

// Node returns the value of a key, nil if it is not set.
func (v Values) Node(key string) *Node { return v.byKey[key] }

// Has reports whether a key is set.
func (v Values) Has(key string) bool { return v.byKey[key] != nil }

// Number returns the value of a key of kind Float.
func (v Values) Number(key string) Opt[float64] {
	if n := v.byKey[key]; n != nil {
		return Opt[float64]{Value: n.Number(), Set: true}
	}
	return Opt[float64]{}
}

// Whole returns the value of a key of kind Int.
func (v Values) Whole(key string) Opt[uint64] {
	if n := v.byKey[key]; n != nil {
		u, err := strconv.ParseUint(n.Text, 10, 64)
		return Opt[uint64]{Value: u, Set: err == nil}
	}
	return Opt[uint64]{}
}

// Bool returns the value of a key of kind Bool.
func (v Values) Bool(key string) Opt[bool] {
	if n := v.byKey[key]; n != nil {
		return Opt[bool]{Value: n.Text == "true", Set: true}
	}
	return Opt[bool]{}
}

// Text returns the value of a key of kind String.
func (v Values) Text(key string) Opt[string] {
	if n := v.byKey[key]; n != nil {
		return Opt[string]{Value: n.Text, Set: true}
	}
	return Opt[string]{}
}

// Over returns v with the keys of other laid over it. Faults of meaning that are
// found in the result go to f.
func (v Values) Over(other Values, f *Faults) Values {
	out := Values{v.at, f, map[string]*Node{}}
	for _, one := range [...]Values{v, other} {
		for key, n := range one.byKey {
			out.byKey[key] = n
		}
	}
	if other.at != nil && len(other.byKey) > 0 {
		out.at = other.at
	}
	return out
}

// typeWord is what a message calls a type. The documents whose messages are
// upstream's own keep the words of upstream.
func (f *Faults) typeWord(want string) string {
	switch {
	case f.UpstreamWords:
		return want
	case want == "f64":
		return "a number"
	case want == "usize" || want == "u64":
		return "a whole number from 0"
	case want == "string or map":
		return "a string"
	case strings.HasPrefix(want, "struct ") || strings.HasPrefix(want, "internally tagged"):
		return "a mapping"
	case strings.HasPrefix(want, "u"):
		if bits, err := strconv.Atoi(want[1:]); err == nil {
			return "a whole number from 0 to " + strconv.FormatUint(1<<bits-1, 10)
		}
	}
	return want
}

func (f *Faults) wrongType(n *Node, want string) {
	f.Malformed(n, "invalid type: "+n.Describe()+", expected "+f.typeWord(want))
}

func (f *Faults) wrongValue(n *Node, want string) {
	f.Malformed(n, "invalid value: "+n.Describe()+", expected "+f.typeWord(want))
}
