package scenario

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/sim/metrics"
)

// opt is a value that a document may leave out (neither field) or set to null.
type opt[T any] struct {
	v    T
	set  bool // written, and not null
	null bool // written as null
}

// or returns the value, or def where the document says nothing or null.
func (o opt[T]) or(def T) T {
	if o.set {
		return o.v
	}
	return def
}

// Nullability of a key.
const (
	notNull = false
	orNull  = true
)

// mapping reads one mapping of a document, key by key. Everything wrong goes to
// the faults; the zero value comes back then.
type mapping struct {
	*node
	f *faults
}

// mapping opens n, which may be nil for an absent mapping at path, and refuses
// keys that are not among keys. want names the expected type.
func (f *faults) mapping(n *node, want string, keys []string) mapping {
	if n == nil {
		return mapping{emptyMap(0, ""), f}
	}
	if n.kind != mapKind {
		f.badType(n, "invalid type: "+n.describe()+", expected "+want)
		return mapping{emptyMap(n.line, n.path), f}
	}
	for i, key := range n.keys {
		if !slices.Contains(keys, key) {
			f.badType(n.items[i], unknownField(key, keys))
		}
	}
	return mapping{n, f}
}

// sub opens the mapping under key.
func (m mapping) sub(key, want string, keys []string) mapping {
	return m.f.mapping(m.get(key), want, keys)
}

func (m mapping) missing(key string) { m.f.badType(m.node, "missing field `"+key+"`") }

// value returns what stands under key, nil for null and absent.
func (m mapping) value(key, want string, nullable bool) (n *node, null bool) {
	n = m.get(key)
	if n == nil || n.kind != nullKind {
		return n, false
	}
	if !nullable {
		m.f.badType(n, "invalid type: null, expected "+want)
	}
	return nil, nullable
}

// uint reads a whole number of at most bits bits.
func (m mapping) uint(key string, bits int, nullable bool) opt[uint64] {
	want := "u" + strconv.Itoa(bits)
	if bits == 64 {
		want = "usize"
	}
	return m.number(key, want, bits, nullable)
}

// u64 is uint for the fields that upstream declares with that width.
func (m mapping) u64(key string, nullable bool) opt[uint64] {
	return m.number(key, "u64", 64, nullable)
}

func (m mapping) number(key, want string, bits int, nullable bool) opt[uint64] {
	n, null := m.value(key, want, nullable)
	if n == nil {
		return opt[uint64]{null: null}
	}
	if n.kind != intKind {
		m.f.badType(n, "invalid type: "+n.describe()+", expected "+want)
		return opt[uint64]{}
	}
	v, err := strconv.ParseUint(n.text, 10, bits)
	if err != nil {
		m.f.badType(n, "invalid value: "+n.describe()+", expected "+want)
		return opt[uint64]{}
	}
	return opt[uint64]{v: v, set: true}
}

// float reads a number; whole numbers are taken.
func (m mapping) float(key string, nullable bool) opt[float64] {
	n, null := m.value(key, "f64", nullable)
	if n == nil {
		return opt[float64]{null: null}
	}
	if n.kind != intKind && n.kind != floatKind {
		m.f.badType(n, "invalid type: "+n.describe()+", expected f64")
		return opt[float64]{}
	}
	return opt[float64]{v: n.float(), set: true}
}

func (n *node) float() float64 {
	v, err := strconv.ParseFloat(n.text, 64)
	if err != nil {
		panic("scenario: a number node holds " + n.text)
	}
	return v
}

func (m mapping) bool(key string) opt[bool] {
	n, _ := m.value(key, "a boolean", notNull)
	if n == nil {
		return opt[bool]{}
	}
	if n.kind != boolKind {
		m.f.badType(n, "invalid type: "+n.describe()+", expected a boolean")
		return opt[bool]{}
	}
	return opt[bool]{v: n.text == "true", set: true}
}

func (m mapping) string(key string, nullable bool) opt[string] {
	n, null := m.value(key, "a string", nullable)
	if n == nil {
		return opt[string]{null: null}
	}
	if n.kind != stringKind {
		m.f.badType(n, "invalid type: "+n.describe()+", expected a string")
		return opt[string]{}
	}
	return opt[string]{v: n.text, set: true}
}

// enum reads one of the names and returns its index.
func (m mapping) enum(key string, names ...string) opt[int] {
	n, _ := m.value(key, "string or map", notNull)
	if n == nil {
		return opt[int]{}
	}
	if n.kind != stringKind {
		m.f.badType(n, "invalid type: "+n.describe()+", expected string or map")
		return opt[int]{}
	}
	i := slices.Index(names, n.text)
	if i < 0 {
		m.f.badType(n, "unknown variant `"+n.text+"`, expected "+oneOf(names))
		return opt[int]{}
	}
	return opt[int]{v: i, set: true}
}

// rule adds a fault at key unless holds.
func (m mapping) rule(holds bool, key, msg string) {
	if !holds {
		m.f.brokenAt(m.node, key, msg)
	}
}

// fits is rule for a relation between values that are good alone: alternatives of
// a grid that break it are skipped.
func (m mapping) fits(holds bool, key, msg string) {
	if !holds {
		m.f.misfitAt(m.node, key, msg)
	}
}

// finite reports a number from lo up.
func finite(v, lo float64) bool { return v >= lo && !math.IsInf(v, 1) }

// fraction reports a number in [0, 1].
func fraction(v float64) bool { return v >= 0 && v <= 1 }

// oneOf prints the names an error message lists: "`a`", "`a` or `b`", "one of ...".
func oneOf(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = "`" + name + "`"
	}
	switch len(quoted) {
	case 1:
		return quoted[0]
	case 2:
		return quoted[0] + " or " + quoted[1]
	}
	return "one of " + strings.Join(quoted, ", ")
}

// unknownField says that key is none of keys, and which one may be meant.
func unknownField(key string, keys []string) string {
	if len(keys) == 0 {
		return "unknown field `" + key + "`, there are no fields"
	}
	msg := "unknown field `" + key + "`, expected " + oneOf(keys)
	if near := nearest(key, keys); near != "" {
		msg += " (did you mean `" + near + "`?)"
	}
	return msg
}

// nearest returns the key that differs in the fewest edits, at most a third of
// the key's length; "" if none is near. The first of equals wins.
func nearest(key string, keys []string) string {
	if len(key) > 64 {
		return ""
	}
	best, found := len(key)/3+1, ""
	for _, k := range keys {
		if d := metrics.Edits(key, k); d < best {
			best, found = d, k
		}
	}
	return found
}
