package document

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/spelling"
)

// Opt is a value that a document may leave out (neither field) or set to null.
type Opt[T any] struct {
	Value T
	Set   bool // written, and not null
	Null  bool // written as null
}

// Or returns the value, or def where the document says nothing or null.
func (o Opt[T]) Or(def T) T {
	if o.Set {
		return o.Value
	}
	return def
}

// Nullability of a key.
const (
	NotNull = false
	OrNull  = true
)

// Mapping reads one mapping of a document, key by key. Everything wrong goes to
// the faults; the zero value comes back then.
type Mapping struct {
	*Node
	Faults *Faults
}

// Mapping opens n, which may be nil for an absent mapping at path, and refuses
// keys that are not among keys. want names the expected type.
func (f *Faults) Mapping(n *Node, want string, keys []string) Mapping {
	if n == nil {
		return Mapping{EmptyMap(0, ""), f}
	}
	if n.Kind != Map {
		f.wrongType(n, want)
		return Mapping{EmptyMap(n.Line, n.Path), f}
	}
	for i, key := range n.Keys {
		if !slices.Contains(keys, key) {
			f.Malformed(n.Items[i], UnknownKey(key, keys))
		}
	}
	return Mapping{n, f}
}

// Sub opens the mapping under key.
func (m Mapping) Sub(key, want string, keys []string) Mapping {
	return m.Faults.Mapping(m.Get(key), want, keys)
}

// Missing adds the fault that key must be written.
func (m Mapping) Missing(key string) { m.Faults.Malformed(m.Node, "missing field `"+key+"`") }

// value returns what stands under key, nil for null and absent.
func (m Mapping) value(key, want string, nullable bool) (n *Node, null bool) {
	n = m.Get(key)
	if n == nil || n.Kind != Null {
		return n, false
	}
	if !nullable {
		m.Faults.wrongType(n, want)
	}
	return nil, nullable
}

// Uint reads a whole number of at most bits bits.
func (m Mapping) Uint(key string, bits int, nullable bool) Opt[uint64] {
	want := "u" + strconv.Itoa(bits)
	if bits == 64 {
		want = "usize"
	}
	return m.number(key, want, bits, nullable)
}

// Uint64 is Uint for the keys that upstream declares with that width.
func (m Mapping) Uint64(key string, nullable bool) Opt[uint64] {
	return m.number(key, "u64", 64, nullable)
}

func (m Mapping) number(key, want string, bits int, nullable bool) Opt[uint64] {
	n, null := m.value(key, want, nullable)
	if n == nil {
		return Opt[uint64]{Null: null}
	}
	if n.Kind != Int {
		m.Faults.wrongType(n, want)
		return Opt[uint64]{}
	}
	v, err := strconv.ParseUint(n.Text, 10, bits)
	if err != nil {
		m.Faults.wrongValue(n, want)
		return Opt[uint64]{}
	}
	return Opt[uint64]{Value: v, Set: true}
}

// Float reads a number; whole numbers are taken.
func (m Mapping) Float(key string, nullable bool) Opt[float64] {
	n, null := m.value(key, "f64", nullable)
	if n == nil {
		return Opt[float64]{Null: null}
	}
	if n.Kind != Int && n.Kind != Float {
		m.Faults.wrongType(n, "f64")
		return Opt[float64]{}
	}
	return Opt[float64]{Value: n.Number(), Set: true}
}

// Number returns the value of a number; it panics for other kinds.
func (n *Node) Number() float64 {
	v, err := strconv.ParseFloat(n.Text, 64)
	if err != nil {
		panic("document: a number node holds " + n.Text)
	}
	return v
}

// Bool reads true or false.
func (m Mapping) Bool(key string) Opt[bool] {
	n, _ := m.value(key, "a boolean", NotNull)
	if n == nil {
		return Opt[bool]{}
	}
	if n.Kind != Bool {
		m.Faults.wrongType(n, "a boolean")
		return Opt[bool]{}
	}
	return Opt[bool]{Value: n.Text == "true", Set: true}
}

// String reads a text.
func (m Mapping) String(key string, nullable bool) Opt[string] {
	n, null := m.value(key, "a string", nullable)
	if n == nil {
		return Opt[string]{Null: null}
	}
	if n.Kind != String {
		m.Faults.wrongType(n, "a string")
		return Opt[string]{}
	}
	return Opt[string]{Value: n.Text, Set: true}
}

// Enum reads one of the names and returns its index.
func (m Mapping) Enum(key string, names ...string) Opt[int] {
	n, _ := m.value(key, "string or map", NotNull)
	if n == nil {
		return Opt[int]{}
	}
	if n.Kind != String {
		m.Faults.wrongType(n, "string or map")
		return Opt[int]{}
	}
	i := slices.Index(names, n.Text)
	if i < 0 {
		m.Faults.Malformed(n, unknownChoice(n.Text, names))
		return Opt[int]{}
	}
	return Opt[int]{Value: i, Set: true}
}

// Require adds a fault of meaning at key unless holds.
func (m Mapping) Require(holds bool, key, msg string) {
	if !holds {
		m.Faults.InvalidAt(m.Node, key, msg)
	}
}

// RequireCompatible is Require for a relation between values that are good alone: alternatives of
// a grid that break it are skipped.
func (m Mapping) RequireCompatible(holds bool, key, msg string) {
	if !holds {
		m.Faults.IncompatibleAt(m.Node, key, msg)
	}
}

// FiniteFrom reports a number from lo up.
func FiniteFrom(v, lo float64) bool { return v >= lo && !math.IsInf(v, 1) }

// IsFraction reports a number in [0, 1].
func IsFraction(v float64) bool { return v >= 0 && v <= 1 }

// OneOf prints the names an error message lists: "`a`", "`a` or `b`", "one of ...".
func OneOf(names []string) string {
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

// UnknownKey says that key is none of keys, and which one may be meant.
func UnknownKey(key string, keys []string) string {
	if len(keys) == 0 {
		return "unknown field `" + key + "`, there are no fields"
	}
	msg := "unknown field `" + key + "`, expected " + OneOf(keys)
	if near := spelling.Nearest(key, keys); near != "" {
		msg += " (did you mean `" + near + "`?)"
	}
	return msg
}

// Alias reads one of two spellings of a key.
func (m Mapping) Alias(a, b string) string {
	if m.Get(b) == nil {
		return a
	}
	if m.Get(a) != nil {
		m.Faults.Malformed(m.Get(b), "duplicate field `"+a+"`: "+b+" is the same")
	}
	return b
}

// Int narrows an optional count for checks that refuse what is out of range.
func (o Opt[T]) Int(def int) int {
	if v, ok := any(o.Value).(uint64); ok && o.Set {
		return int(min(v, math.MaxInt))
	}
	return def
}

// Count reads a positive count.
func (m Mapping) Count(key string, def int) int {
	o := m.Uint(key, 64, NotNull)
	m.Require(!o.Set || o.Value > 0, key, key+" must be positive")
	return o.Int(def)
}

// RequirePositive checks that a written count is not 0.
func (m Mapping) RequirePositive(o Opt[uint64], key string) {
	m.Require(!o.Set || o.Value > 0, key, key+" must be positive")
}

// OrUnlimited is the value, 0 for null, def when nothing was written.
func (o Opt[T]) OrUnlimited(def T) T {
	if o.Null {
		return o.Value
	}
	return o.Or(def)
}

// RequiredString reads a string that must be there and not be blank.
func (m Mapping) RequiredString(key string) string {
	if m.Get(key) == nil {
		m.Missing(key)
		return ""
	}
	o := m.String(key, NotNull)
	m.Require(!o.Set || strings.TrimSpace(o.Value) != "", key, key+" must not be empty")
	return o.Value
}

// unknownChoice says that word is none of names, and which one may be meant.
func unknownChoice(word string, names []string) string {
	msg := "unknown variant `" + word + "`, expected " + OneOf(names)
	if near := spelling.Nearest(word, names); near != "" {
		msg += " (did you mean `" + near + "`?)"
	}
	return msg
}

// Pointer is the value, nil when none was written.
func (o Opt[T]) Pointer() *T {
	if !o.Set {
		return nil
	}
	return &o.Value
}
