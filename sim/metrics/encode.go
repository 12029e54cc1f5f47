package metrics

import (
	"encoding/json"
	"math"
	"strconv"
)

// The encoders below write compact JSON into a reused buffer, with floats spelled
// as the reference spells them: shortest digits that read back, always with a
// point or an exponent.

// appendName starts the next field of an object: a comma unless it is the first.
func appendName(b []byte, name string) []byte {
	if n := len(b); n > 0 && b[n-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, `":`...)
}

func appendInt(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) }

// appendFloat writes null for what is no number.
func appendFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, 'f', -1, 64)
	for _, c := range b[start:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}

func appendString(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always marshals
	return append(b, quoted...)
}

func appendAny(b []byte, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	return append(b, raw...), err
}

// appendTime writes a time, null if it never happened.
func appendTime(b []byte, ms float64) []byte {
	if ms < 0 {
		return append(b, "null"...)
	}
	return appendFloat(b, ms)
}

// appendID writes an id or count, null below 0.
func appendID(b []byte, id int32) []byte {
	if id < 0 {
		return append(b, "null"...)
	}
	return appendInt(b, int64(id))
}

func appendBool(b []byte, v bool) []byte { return strconv.AppendBool(b, v) }

func appendIDs(b []byte, ids []int32) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, int64(id))
	}
	return append(b, ']')
}
