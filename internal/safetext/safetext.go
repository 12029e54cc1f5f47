// Package safetext shows text that a user or a file brought without letting it act.
//
//	out := safetext.NewWriter(os.Stdout) // terminal escapes become visible
//	row[0] = safetext.Cell(label)        // no spreadsheet takes it for a formula
//
// File names, labels and messages may hold any bytes. A terminal obeys control
// characters, so that a name could hide or forge output; a spreadsheet computes cells that
// begin like a formula.
package safetext

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Writer passes text on with control characters written out: ESC becomes \x1b. Line feeds
// and tabs stay, and so does all text that is no control character, valid UTF-8 or not.
type Writer struct {
	w    io.Writer
	lead bool // the last byte may begin a two-byte control character
	buf  []byte
}

// NewWriter returns a Writer onto w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Unwrap returns the writer below, for text that is the program's own: colours, a
// progress bar, the size of the terminal.
func Unwrap(w io.Writer) io.Writer {
	if s, ok := w.(*Writer); ok {
		return s.w
	}
	return w
}

// c1Lead begins the UTF-8 of U+0080 to U+00BF, of which the first half are control
// characters too: U+009B acts as ESC [.
const c1Lead = 0xC2

// Write writes p; it reports len(p) if all of it was written.
func (s *Writer) Write(p []byte) (int, error) {
	if !s.lead && !acts(p) {
		return s.w.Write(p)
	}
	out := s.buf[:0]
	for _, c := range p {
		switch {
		case s.lead && c >= 0x80 && c < 0xA0:
			out = fmt.Appendf(out, `\u%04x`, c)
			s.lead = false
			continue
		case s.lead:
			out = append(out, c1Lead)
			s.lead = false
		}
		switch {
		case c == c1Lead:
			s.lead = true
		case control(c):
			out = fmt.Appendf(out, `\x%02x`, c)
		default:
			out = append(out, c)
		}
	}
	s.buf = out
	if _, err := s.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func control(c byte) bool { return c < 0x20 && c != '\n' && c != '\t' || c == 0x7F }

// acts reports whether p may hold a control character.
func acts(p []byte) bool {
	for _, c := range p {
		if c == c1Lead || control(c) {
			return true
		}
	}
	return false
}

// Text is text as a Writer writes it.
func Text(text string) string {
	var out strings.Builder
	w := NewWriter(&out)
	_, _ = w.Write([]byte(text)) // a Builder takes everything
	if w.lead {
		out.WriteByte(c1Lead)
	}
	return out.String()
}

// Cell is text as a cell of a CSV file: what a spreadsheet would compute is quoted with an
// apostrophe, its mark of text. Numbers stay numbers.
func Cell(text string) string {
	if text == "" || !strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return text
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text
	}
	return "'" + text
}

// Cells makes every text of a row a Cell, in place.
func Cells(row []string) []string {
	for i, text := range row {
		row[i] = Cell(text)
	}
	return row
}
