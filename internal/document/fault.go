package document

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// ErrInput is the class of every error that the user's input causes: the exit
// code is 2. Test with errors.Is.
var ErrInput = errors.New("bad input")

// Fault is one thing that is wrong with an input.
type Fault struct {
	Origin string // file name or flag
	Line   int    // in that file, from 1; 0: unknown
	Column int    // from 1, of a text that was written in place of a file; else 0
	Class  string // what the document failed to be, "" for a broken rule
	Path   string // dotted path of the value, "" for the whole document
	Msg    string // what is wrong and what to do

	Relation bool // values that are good alone do not fit each other
}

// Error prints "origin:line: class: path: message"; empty parts are left out. Of a
// text on a command line the place stands at the end, with its column.
func (f *Fault) Error() string {
	var b strings.Builder
	if f.Origin != "" {
		b.WriteString(f.Origin)
		if f.Line > 0 && f.Column == 0 {
			b.WriteByte(':')
			b.WriteString(strconv.Itoa(f.Line))
		}
		b.WriteString(": ")
	}
	for _, part := range [...]string{f.Class, f.Path} {
		if part != "" {
			b.WriteString(part)
			b.WriteString(": ")
		}
	}
	b.WriteString(f.Msg)
	if f.Column > 0 {
		b.WriteString(" at line " + strconv.Itoa(f.Line) + " column " + strconv.Itoa(f.Column))
	}
	return b.String()
}

// Is puts every fault into the class ErrInput.
func (f *Fault) Is(target error) bool { return target == ErrInput }

// Faults gathers what is wrong with one document.
type Faults struct {
	Origin string // file name or flag
	Class  string // of type errors
	// Inline marks a text that was written on a command line: the place of a fault
	// is told as line and column of that text.
	Inline bool
	// UpstreamWords keeps upstream's names of types in messages that are upstream's.
	UpstreamWords bool
	List          []*Fault
}

// add adds a fault at the place of n and returns it.
func (f *Faults) add(n *Node, class, msg string) *Fault {
	one := &Fault{Origin: f.Origin, Line: n.Line, Class: class, Path: n.Path, Msg: msg}
	if f.Inline {
		one.Column = n.Column
	}
	f.List = append(f.List, one)
	return one
}

// Malformed adds a fault of form: a wrong type, an unknown or missing key.
func (f *Faults) Malformed(n *Node, msg string) { f.add(n, f.Class, msg) }

// Invalid adds a fault of meaning at n.
func (f *Faults) Invalid(n *Node, msg string) { f.add(n, "", msg) }

// InvalidAt adds a fault of meaning at a key of the mapping n, or at the mapping if
// the key is not written.
func (f *Faults) InvalidAt(n *Node, key, msg string) {
	if v := n.Get(key); v != nil {
		n = v
	}
	f.add(n, "", msg)
}

// IncompatibleAt is InvalidAt for a relation between values that are good alone.
func (f *Faults) IncompatibleAt(n *Node, key, msg string) {
	f.InvalidAt(n, key, msg)
	f.List[len(f.List)-1].Relation = true
}

// OK reports that nothing is wrong so far.
func (f *Faults) OK() bool { return len(f.List) == 0 }

// Err joins the faults, sorted by line and path; nil if there are none. Two
// faults that read the same are told once.
func (f *Faults) Err() error {
	slices.SortStableFunc(f.List, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Msg, b.Msg))
	})
	var errs []error
	for i, x := range f.List {
		if i > 0 && *x == *f.List[i-1] {
			continue
		}
		errs = append(errs, x)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Split returns the errors that errors.Join put together, at any depth.
func Split(err error) []error {
	many, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var out []error
	for _, e := range many.Unwrap() {
		out = append(out, Split(e)...)
	}
	return out
}
