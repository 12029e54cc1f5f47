package scenario

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
	Line   int    // in that file, from 1; 0: not a file
	Class  string // what the document failed to be, "" for a broken rule
	Path   string // dotted path of the value, "" for the whole document
	Msg    string // what is wrong and what to do

	relation bool // values that are good alone do not fit each other
}

// Error prints "origin:line: class: path: message"; empty parts are left out.
func (f *Fault) Error() string {
	var b strings.Builder
	if f.Origin != "" {
		b.WriteString(f.Origin)
		if f.Line > 0 {
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
	return b.String()
}

// Is puts every fault into the class ErrInput.
func (f *Fault) Is(target error) bool { return target == ErrInput }

// faults gathers what is wrong with one document.
type faults struct {
	origin string
	class  string // of type errors
	list   []*Fault
}

// badType adds a fault of form: a wrong type, an unknown or missing key.
func (f *faults) badType(n *node, msg string) {
	f.list = append(f.list, &Fault{Origin: f.origin, Line: n.line, Class: f.class, Path: n.path, Msg: msg})
}

// broken adds a fault of meaning at n.
func (f *faults) broken(n *node, msg string) {
	f.list = append(f.list, &Fault{Origin: f.origin, Line: n.line, Path: n.path, Msg: msg})
}

// brokenAt adds a fault of meaning at a key of the mapping n, written or not.
func (f *faults) brokenAt(n *node, key, msg string) {
	if v := n.get(key); v != nil {
		f.broken(v, msg)
		return
	}
	f.list = append(f.list, &Fault{Origin: f.origin, Line: n.line, Path: n.path, Msg: msg})
}

// misfitAt is brokenAt for a relation between values that are good alone.
func (f *faults) misfitAt(n *node, key, msg string) {
	f.brokenAt(n, key, msg)
	f.list[len(f.list)-1].relation = true
}

func (f *faults) ok() bool { return len(f.list) == 0 }

// err joins the faults, sorted by line and path; nil if there are none. Two
// faults that read the same are told once.
func (f *faults) err() error {
	slices.SortStableFunc(f.list, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Msg, b.Msg))
	})
	var errs []error
	for i, x := range f.list {
		if i > 0 && *x == *f.list[i-1] {
			continue
		}
		errs = append(errs, x)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
