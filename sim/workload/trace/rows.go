package trace

import (
	"bufio"
	"io"
	"math"
	"strconv"
)

// rowWriter writes trace rows as JSON lines.
type rowWriter struct {
	w    *bufio.Writer
	line []byte
	n    int64 // rows written
}

func newRowWriter(w io.Writer) *rowWriter { return &rowWriter{w: bufio.NewWriterSize(w, 1<<16)} }

func (w *rowWriter) begin() { w.line = append(w.line[:0], '{') }

func (w *rowWriter) key(name string) {
	if len(w.line) > 1 {
		w.line = append(w.line, ", "...)
	}
	w.line = append(w.line, '"')
	w.line = append(w.line, name...)
	w.line = append(w.line, `": `...)
}

func (w *rowWriter) ms(name string, v float64) {
	w.key(name)
	w.line = appendMs(w.line, v)
}

func (w *rowWriter) int(name string, v int64) {
	w.key(name)
	w.line = strconv.AppendInt(w.line, v, 10)
}

func (w *rowWriter) text(name, v string) {
	w.key(name)
	w.line = appendJSON(w.line, v)
}

// ids writes n ids, the i-th of which is at(i).
func (w *rowWriter) ids(name string, n int, at func(i int) uint64) {
	w.key(name)
	w.line = append(w.line, '[')
	for i := range n {
		if i > 0 {
			w.line = append(w.line, ", "...)
		}
		w.line = strconv.AppendUint(w.line, at(i), 10)
	}
	w.line = append(w.line, ']')
}

// router writes the fields for the router that are set.
func (w *rowWriter) router(x *turnExtra) {
	if x.priority != 0 {
		w.int("priority", int64(x.priority))
	}
	if x.strictPriority != 0 {
		w.int("strict_priority", int64(x.strictPriority))
	}
	if x.policyClass != "" {
		w.text("policy_class", x.policyClass)
	}
}

func (w *rowWriter) end() error {
	w.n++
	w.line = append(w.line, "}\n"...)
	_, err := w.w.Write(w.line)
	return err
}

func (w *rowWriter) flush() error { return w.w.Flush() }

// jsonEscapes holds the letters of the control characters that have one.
var jsonEscapes = [' ']byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}

// appendJSON appends s as a JSON string; s is valid UTF-8.
func appendJSON(to []byte, s string) []byte {
	to = append(to, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c < ' ' && jsonEscapes[c] != 0:
			to = append(to, '\\', jsonEscapes[c])
		case c < ' ':
			to = append(to, `\u00`...)
			to = append(to, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			to = append(to, c)
		}
	}
	return append(to, '"')
}

// appendMs appends a time so that reading it gives v again. That takes more digits
// than the shortest decimal now and then, because readers of traces scale the digits
// in float64 (see scanner.float); two times in a thousand no digits do, and the
// shortest ones read as a neighbour of v.
func appendMs(to []byte, v float64) []byte {
	short := strconv.AppendFloat(nil, v, 'f', -1, 64)
	var s scanner
	if s.reset(short); s.float() == v {
		return append(to, short...)
	}
	// Nearby significands at every scale: those of 64 bits are read as their nearest
	// float64, so each float64 near v * 10^k is one candidate.
	for k := 1; k <= 22; k++ {
		f := math.Abs(v) * pow10[k]
		for range 4 {
			f = math.Nextafter(f, 0)
		}
		for range 9 {
			if f < 1<<64 && f == math.Trunc(f) && f/pow10[k] == math.Abs(v) {
				return appendScaled(to, uint64(f), k, v < 0)
			}
			f = math.Nextafter(f, math.Inf(1))
		}
	}
	return append(to, short...)
}

// appendScaled appends digits / 10^k.
func appendScaled(to []byte, digits uint64, k int, negative bool) []byte {
	if negative {
		to = append(to, '-')
	}
	text := strconv.FormatUint(digits, 10)
	for len(text) <= k {
		text = "0" + text
	}
	to = append(to, text[:len(text)-k]...)
	to = append(to, '.')
	return append(to, text[len(text)-k:]...)
}
