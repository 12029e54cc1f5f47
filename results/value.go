package results

import (
	"fmt"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Type is the type of a column.
type Type uint8

const (
	Int64 Type = iota
	Float64
	String
	Boolean
	Nested // the SLA grid: [TTFT limit][ITL limit], counts
)

func (t Type) String() string {
	return [...]string{"int64", "double", "string", "boolean", "list<list<int64>>"}[t]
}

// Grid counts requests within both limits, [metrics.GridTTFTMs][metrics.GridITLMs].
type Grid = [len(metrics.GridTTFTMs)][len(metrics.GridITLMs)]int64

// Value is one cell. The zero Value is null; a Value that is set has the type of
// its column.
type Value struct {
	set  bool
	i    int64
	f    float64
	s    string
	grid *Grid
}

// Null is no value.
var Null Value

// Int is a cell of an Int64 column.
func Int[N ~int | ~int32 | ~int64](v N) Value { return Value{set: true, i: int64(v)} }

// Float is a cell of a Float64 column; what is no number is null.
func Float(v float64) Value {
	return Value{set: !math.IsNaN(v) && !math.IsInf(v, 0), f: v}
}

// Text is a cell of a String column.
func Text(s string) Value { return Value{set: true, s: s} }

// Bool is a cell of a Boolean column.
func Bool(v bool) Value {
	if v {
		return Value{set: true, i: 1}
	}
	return Value{set: true}
}

// gridValue is a cell of a Nested column; g is shared.
func gridValue(g *Grid) Value { return Value{set: g != nil, grid: g} }

// unless is null when the condition holds.
func unless(absent bool, v Value) Value {
	if absent {
		return Null
	}
	return v
}

// count is null below 0.
func count[N ~int | ~int32 | ~int64](v N) Value { return unless(v < 0, Int(v)) }

// label is null when empty.
func label(s string) Value { return unless(s == "", Text(s)) }

// IsNull reports whether the cell has no value.
func (v Value) IsNull() bool { return !v.set }

// equal reports whether two cells of type t are the same value, bit by bit.
func (v Value) equal(o Value, t Type) bool {
	if !v.set || !o.set {
		return v.set == o.set
	}
	switch t {
	case Float64:
		return math.Float64bits(v.f) == math.Float64bits(o.f)
	case String:
		return v.s == o.s
	case Nested:
		return *v.grid == *o.grid
	}
	return v.i == o.i
}

// show is a cell of type t as people read it.
func (v Value) show(t Type) string {
	switch {
	case !v.set:
		return "null"
	case t == Float64:
		return strconv.FormatFloat(v.f, 'g', -1, 64)
	case t == String:
		return strconv.Quote(v.s)
	case t == Nested:
		return fmt.Sprint(*v.grid)
	}
	return strconv.FormatInt(v.i, 10)
}

var nested = arrow.ListOfNonNullable(arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64))

// arrowType is the Arrow type of a column.
func (t Type) arrowType() arrow.DataType {
	switch t {
	case Int64:
		return arrow.PrimitiveTypes.Int64
	case Float64:
		return arrow.PrimitiveTypes.Float64
	case Boolean:
		return arrow.FixedWidthTypes.Boolean
	case Nested:
		return nested
	}
	return arrow.BinaryTypes.String
}

// appendTo adds the cell to a column under construction.
func (v Value) appendTo(b array.Builder) {
	if !v.set {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.Int64Builder:
		b.Append(v.i)
	case *array.Float64Builder:
		b.Append(v.f)
	case *array.StringBuilder:
		b.Append(v.s)
	case *array.BooleanBuilder:
		b.Append(v.i != 0)
	case *array.ListBuilder:
		v.appendGrid(b)
	default:
		panic(fmt.Sprintf("results: no cell for %T", b))
	}
}

func (v Value) appendGrid(b *array.ListBuilder) {
	b.Append(true)
	rows := b.ValueBuilder().(*array.ListBuilder)
	cells := rows.ValueBuilder().(*array.Int64Builder)
	for i := range v.grid {
		rows.Append(true)
		cells.AppendValues(v.grid[i][:], nil)
	}
}
