package trace

import (
	"encoding/hex"
	"strconv"
)

// lifecycle digests the events of an agentic run as they come; the log itself is not
// kept (spec report 14.1).
type lifecycle struct {
	graph  *graph
	events int64
	sum    blake3
	line   []byte
}

// node logs an event of a node; a status of "" is left out.
func (l *lifecycle) node(atMs float64, node int32, event, status string) {
	l.begin(atMs, l.graph.playOf[node])
	l.line = append(l.line, `,"request_id":`...)
	l.line = appendJSON(l.line, l.graph.ids[node])
	l.end(event, status)
}

// play logs that a play is quiescent.
func (l *lifecycle) play(atMs float64, play int32) {
	l.begin(atMs, play)
	l.end("play_quiescent", "")
}

func (l *lifecycle) begin(atMs float64, play int32) {
	if l.events == 0 {
		l.sum.Write([]byte("aisimulate-agentic-lifecycle-v1\x00"))
	}
	l.line = append(l.line[:0], `{"schema":"aisimulate.agentic.lifecycle.v1","ordinal":`...)
	l.line = strconv.AppendInt(l.line, l.events, 10)
	l.line = append(l.line, `,"at_ms":`...)
	l.line = appendFloat(l.line, atMs)
	l.line = append(l.line, `,"play_id":`...)
	l.line = appendJSON(l.line, l.graph.plays[play].id)
}

func (l *lifecycle) end(event, status string) {
	l.line = append(append(append(l.line, `,"event":"`...), event...), '"')
	if status != "" {
		l.line = append(append(append(l.line, `,"status":"`...), status...), '"')
	}
	l.line = append(l.line, "}\n"...)
	l.sum.Write(l.line)
	l.events++
}

// digest returns the digest of the events so far, in hex.
func (l *lifecycle) digest() string {
	sum := l.sum
	if l.events == 0 {
		sum.Write([]byte("aisimulate-agentic-lifecycle-v1\x00"))
	}
	out := sum.Sum()
	return hex.EncodeToString(out[:])
}

// appendFloat appends the shortest digits that read back as v: from 1e-5 up to 1e16
// plain, with .0 if v is whole, else with an exponent that has no padding.
func appendFloat(to []byte, v float64) []byte {
	if a := max(v, -v); a != 0 && (a < 1e-5 || a >= 1e16) {
		to = strconv.AppendFloat(to, v, 'e', -1, 64)
		if n := len(to); to[n-2] == '0' && (to[n-3] == '-' || to[n-3] == '+') {
			to = append(to[:n-2], to[n-1])
		}
		return to
	}
	from := len(to)
	to = strconv.AppendFloat(to, v, 'f', -1, 64)
	for _, c := range to[from:] {
		if c == '.' {
			return to
		}
	}
	return append(to, ".0"...)
}
