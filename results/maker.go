package results

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Maker makes parts: what one point and seed leaves, as bytes that any Store of the same
// specification can adopt. It is immutable and may be shared.
type Maker struct {
	identity Identity
	columns  []columnOf[Point] // of points.parquet, axes included
}

// NewMaker makes parts of the specification that id names, whose varied keys are axes.
func NewMaker(id Identity, axes []Axis) (*Maker, error) {
	columns, err := withAxes(axes)
	if err != nil {
		return nil, err
	}
	return &Maker{identity: id, columns: columns}, nil
}

// Begin opens a part that is gathered in out, which its Commit leaves complete.
func (m *Maker) Begin(key Key, out *bytes.Buffer) *Part {
	out.Reset()
	return m.begin(key, &memorySink{Buffer: out})
}

// partHead is the JSON that opens a part's last frame.
type partHead struct {
	SchemaVersion int    `json:"schema_version"`
	SpecDigest    string `json:"spec_digest"`
	Version       string `json:"version"` // of the program
	Point         string `json:"point_id"`
	Seed          *int64 `json:"seed"`
	Status        Status `json:"status"`
	Reason        string `json:"reason,omitempty"`

	cells []byte // the row, one cell a column, in the order of the columns
}

// key is the point and seed that the part is about.
func (h *partHead) key() Key {
	k := Key{Point: h.Point}
	if h.Seed != nil {
		k.Seed, k.Seeded = *h.Seed, true
	}
	return k
}

// encodeRow is the last frame of a part: [length uvarint][head JSON][cells].
func (m *Maker) encodeRow(p *Point) ([]byte, error) {
	head := partHead{SchemaVersion: SchemaVersion, SpecDigest: m.identity.SpecDigest, Version: m.identity.Version,
		Point: p.Key.Point, Status: p.Status, Reason: p.Reason}
	if p.Key.Seeded {
		head.Seed = &p.Key.Seed
	}
	raw, err := json.Marshal(&head)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 4096)
	out = append(binary.AppendUvarint(out, uint64(len(raw))), raw...)
	out = binary.AppendUvarint(out, uint64(len(m.columns)))
	for i := range m.columns {
		out = m.columns[i].of(p).appendCell(out, m.columns[i].Type)
	}
	return out, nil
}

// parseHead reads the last frame of a part; errTorn if it is none.
func parseHead(payload []byte) (*partHead, error) {
	n, used := binary.Uvarint(payload)
	if used <= 0 || n > uint64(len(payload)-used) {
		return nil, errTorn
	}
	head := new(partHead)
	rest := payload[used:]
	if json.Unmarshal(rest[:n], head) != nil {
		return nil, errTorn
	}
	head.cells = rest[n:]
	return head, nil
}

var errCells = errors.New("its row does not read")

// decodeRow reads the cells of a part back.
func (m *Maker) decodeRow(head *partHead) ([]Value, error) {
	n, used := binary.Uvarint(head.cells)
	if used <= 0 || n != uint64(len(m.columns)) {
		return nil, fmt.Errorf("%d cells, want %d", n, len(m.columns))
	}
	rest := head.cells[used:]
	cells := make([]Value, n)
	for i := range cells {
		var ok bool
		if cells[i], rest, ok = parseCell(rest, m.columns[i].Type); !ok {
			return nil, fmt.Errorf("column %s: %w", m.columns[i].Name, errCells)
		}
	}
	if len(rest) > 0 {
		return nil, errCells
	}
	return cells, nil
}

// appendCell appends a cell: 0 for null; else 1 and the value, integers as varints,
// floats as their bits, texts behind their length.
func (v Value) appendCell(b []byte, t Type) []byte {
	if !v.set {
		return append(b, 0)
	}
	b = append(b, 1)
	switch t {
	case Int64, Boolean:
		return binary.AppendVarint(b, v.i)
	case Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.f))
	case Nested:
		for i := range v.grid {
			for _, n := range v.grid[i] {
				b = binary.AppendVarint(b, n)
			}
		}
		return b
	}
	return append(binary.AppendUvarint(b, uint64(len(v.s))), v.s...)
}

// parseCell reads what appendCell wrote and returns the bytes behind it.
func parseCell(b []byte, t Type) (v Value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] > 1 {
		return Null, nil, false
	}
	if v.set, b = b[0] == 1, b[1:]; !v.set {
		return Null, b, true
	}
	switch t {
	case Int64, Boolean:
		n := 0
		if v.i, n = binary.Varint(b); n <= 0 {
			return Null, nil, false
		}
		return v, b[n:], true
	case Float64:
		if len(b) < 8 {
			return Null, nil, false
		}
		v.f = math.Float64frombits(binary.LittleEndian.Uint64(b))
		return v, b[8:], true
	case Nested:
		v.grid = new(Grid)
		for i := range v.grid {
			for j := range v.grid[i] {
				n := 0
				if v.grid[i][j], n = binary.Varint(b); n <= 0 {
					return Null, nil, false
				}
				b = b[n:]
			}
		}
		return v, b, true
	}
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return Null, nil, false
	}
	b = b[used:]
	v.s = string(b[:n])
	return v, b[n:], true
}
