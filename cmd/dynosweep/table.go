package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/dynosweep/dynosweep/internal/safetext"
)

// leastWidth is the width of what is not a terminal; none is taken to be narrower.
const leastWidth = 80

// widthOf is how many columns fit on w.
func widthOf(w io.Writer) int {
	if f, ok := safetext.Unwrap(w).(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil {
			return max(n, leastWidth)
		}
	}
	return leastWidth
}

// fitted is one column of a table that keeps to the width of the terminal.
type fitted struct {
	head  string
	left  bool // aligned left
	spare int  // 0: always shown; else the highest goes first while the table is too wide
	cells []string
}

func (c *fitted) width() int {
	n := utf8.RuneCountInString(c.head)
	for _, s := range c.cells {
		n = max(n, utf8.RuneCountInString(s))
	}
	return n
}

// totalWidth is the width of a table, two spaces before each column.
func totalWidth(columns []fitted) (n int) {
	for i := range columns {
		n += 2 + columns[i].width()
	}
	return n
}

// empty reports whether no cell has a figure.
func (c *fitted) empty() bool {
	return !slices.ContainsFunc(c.cells, func(s string) bool { return s != "-" })
}

// printFitted prints columns with two spaces before each, in at most width columns.
// Spare ones without a figure go; others go until the last column, a label, has the
// room that it needs, or least; then it is clipped.
func printFitted(w io.Writer, width, least int, columns []fitted) error {
	columns = slices.DeleteFunc(columns, func(c fitted) bool { return c.spare > 0 && c.empty() })
	room := func() int {
		n := width
		for _, c := range columns[:len(columns)-1] {
			n -= 2 + c.width()
		}
		return n - 2
	}
	label := columns[len(columns)-1].width()
	for room() < min(label, least) {
		at := -1
		for i, c := range columns {
			if c.spare > 0 && (at < 0 || c.spare > columns[at].spare) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		columns = append(columns[:at:at], columns[at+1:]...)
	}
	last := max(room(), 1)
	line := func(of func(*fitted) string) error {
		var b strings.Builder
		for i := range columns {
			c := &columns[i]
			text := of(c)
			if i == len(columns)-1 {
				text = clip(text, last)
			}
			pad := strings.Repeat(" ", max(c.width()-utf8.RuneCountInString(text), 0))
			if c.left {
				text += pad
			} else {
				text = pad + text
			}
			b.WriteString("  " + text)
		}
		_, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
		return err
	}
	if columns[0].head != "" {
		if err := line(func(c *fitted) string { return c.head }); err != nil {
			return err
		}
	}
	for k := range columns[0].cells {
		if err := line(func(c *fitted) string { return c.cells[k] }); err != nil {
			return err
		}
	}
	return nil
}

// clip shortens a label to n characters.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:max(n-3, 0)]) + "..."[:min(n, 3)]
}
