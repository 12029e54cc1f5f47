package trace

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads one JSON text from a byte slice, strictly and without building
// values. It is used as
//
//	s.reset(text)
//	for s.object(); s.member(); {
//		switch string(s.key) { case "a": v = s.uint(max) ... default: s.skip() }
//	}
//	err := s.end()
//
// After a fault every call returns zero values and member and element are false.
type scanner struct {
	text  []byte
	pos   int
	key   []byte // of the member read last, until the next call
	err   error
	fresh bool   // just inside a bracket: no comma comes before the next item
	loose bool   // inside skip: lone surrogates pass
	exact bool   // numbers are the nearest float64, see float
	buf   []byte // unescaped strings
	stack []byte // open brackets of skip

	ignored [len(ignoredMembers)]int64 // [member], rows that have one
}

// ignoredMembers are members of rows that say something about a request and that nothing
// simulates: text tokens alone are, and one model.
var ignoredMembers = [...]string{"images", "lora_name"}

// ignore reads over the value of a member that nothing reads, and counts it if it is one
// of ignoredMembers and says something.
func (s *scanner) ignore() {
	for i, name := range ignoredMembers {
		if string(s.key) != name {
			continue
		}
		if c := s.peek(); c == 'n' || c == '[' && bytes.HasPrefix(bytes.TrimLeft(s.text[s.pos+1:], " "), []byte("]")) {
			break // null or an empty list
		}
		s.ignored[i]++
	}
	s.skip()
}

func (s *scanner) reset(text []byte) {
	s.text, s.pos, s.err, s.fresh = text, 0, nil, false
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("column %d: "+format, append([]any{s.pos + 1}, args...)...)
	}
}

// peek skips white space and returns the next byte, 0 at the end or after a fault.
func (s *scanner) peek() byte {
	if s.err != nil {
		return 0
	}
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// end checks that nothing follows and returns the first fault.
func (s *scanner) end() error {
	if s.peek(); s.err == nil && s.pos < len(s.text) {
		s.fail("unexpected characters after the value")
	}
	return s.err
}

func (s *scanner) open(bracket byte, what string) {
	if s.peek() != bracket {
		s.fail("expected %s", what)
		return
	}
	s.pos++
	s.fresh = true
}

// object enters an object, array an array.
func (s *scanner) object() { s.open('{', "an object") }
func (s *scanner) array()  { s.open('[', "an array") }

// item moves past the comma to the next item, or past the closing bracket.
func (s *scanner) item(closing byte) bool {
	c := s.peek()
	if c == closing {
		s.pos++
		s.fresh = false
		return false
	}
	if !s.fresh {
		if c != ',' {
			s.fail("expected , or %c", closing)
			return false
		}
		s.pos++
		c = s.peek()
	}
	s.fresh = false
	if c == 0 || c == closing {
		s.fail("unexpected end or bracket")
		return false
	}
	return true
}

// element moves to the next element of the array; false past its end.
func (s *scanner) element() bool { return s.item(']') }

// member moves to the value of the next member and sets key; false past the end.
func (s *scanner) member() bool {
	if !s.item('}') {
		return false
	}
	s.key = s.str()
	if s.peek() != ':' {
		s.fail("expected :")
		return false
	}
	s.pos++
	return s.err == nil
}

// null consumes a null if one comes next.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.word("null")
	return s.err == nil
}

func (s *scanner) word(w string) {
	if end := s.pos + len(w); end > len(s.text) || string(s.text[s.pos:end]) != w {
		s.fail("not a JSON value")
		return
	}
	s.pos += len(w)
}

// uint reads an integer from 0 to limit, written without fraction or exponent.
func (s *scanner) uint(limit uint64) uint64 {
	c := s.peek()
	if c < '0' || c > '9' {
		s.fail("expected an unsigned integer")
		return 0
	}
	from, v := s.pos, uint64(0)
	for s.pos < len(s.text) {
		d := uint64(s.text[s.pos]) - '0'
		if d > 9 {
			break
		}
		if v > (math.MaxUint64-d)/10 {
			s.fail("integer out of range")
			return 0
		}
		v = v*10 + d
		s.pos++
	}
	if c == '0' && s.pos > from+1 {
		s.pos = from
		s.fail("number with a leading zero")
		return 0
	}
	if s.pos < len(s.text) {
		if c := s.text[s.pos]; c == '.' || c == 'e' || c == 'E' {
			s.fail("expected an integer")
			return 0
		}
	}
	if v > limit {
		s.fail("integer out of range")
		return 0
	}
	return v
}

// int32 reads a signed integer.
func (s *scanner) int32() int32 {
	if s.peek() != '-' {
		return int32(s.uint(math.MaxInt32))
	}
	s.pos++
	if s.pos >= len(s.text) || s.text[s.pos] < '1' || s.text[s.pos] > '9' {
		s.fail("expected an integer")
		return 0
	}
	return int32(-int64(s.uint(-math.MinInt32)))
}

// str reads a string. The bytes live until the next call.
func (s *scanner) str() []byte {
	if s.peek() != '"' {
		s.fail("expected a string")
		return nil
	}
	s.pos++
	from := s.pos
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return s.text[from : s.pos-1]
		case c == '\\':
			return s.escaped(from)
		case c < ' ':
			s.fail("control character in a string")
			return nil
		}
		s.pos++
	}
	s.fail("string without an end")
	return nil
}

// escaped reads on from the first backslash of the string that began at from.
func (s *scanner) escaped(from int) []byte {
	s.buf = append(s.buf[:0], s.text[from:s.pos]...)
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		s.pos++
		switch {
		case c == '"':
			return s.buf
		case c < ' ':
			s.fail("control character in a string")
			return nil
		case c != '\\':
			s.buf = append(s.buf, c)
		default:
			if !s.escape() {
				return nil
			}
		}
	}
	s.fail("string without an end")
	return nil
}

// escape reads what follows a backslash and appends it to buf.
func (s *scanner) escape() bool {
	if s.pos >= len(s.text) {
		s.fail("string without an end")
		return false
	}
	c := s.text[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		s.buf = append(s.buf, c)
	case 'b':
		s.buf = append(s.buf, '\b')
	case 'f':
		s.buf = append(s.buf, '\f')
	case 'n':
		s.buf = append(s.buf, '\n')
	case 'r':
		s.buf = append(s.buf, '\r')
	case 't':
		s.buf = append(s.buf, '\t')
	case 'u':
		r := s.hex4()
		if utf16.IsSurrogate(r) && !s.loose {
			if s.pos+1 >= len(s.text) || s.text[s.pos] != '\\' || s.text[s.pos+1] != 'u' {
				s.fail("lone surrogate")
				return false
			}
			s.pos += 2
			if r = utf16.DecodeRune(r, s.hex4()); r == utf8.RuneError {
				s.fail("lone surrogate")
			}
		}
		s.buf = utf8.AppendRune(s.buf, r)
	default:
		s.fail("unknown escape")
	}
	return s.err == nil
}

func (s *scanner) hex4() rune {
	if s.pos+4 > len(s.text) {
		s.fail("short \\u escape")
		return 0
	}
	v, err := strconv.ParseUint(string(s.text[s.pos:s.pos+4]), 16, 16)
	if err != nil {
		s.fail("bad \\u escape")
	}
	s.pos += 4
	return rune(v)
}

// skip reads over one value of any kind.
func (s *scanner) skip() {
	s.stack = s.stack[:0]
	s.loose = true
	for s.err == nil {
		switch c := s.peek(); c {
		case '{', '[':
			s.pos++
			s.fresh = true
			s.stack = append(s.stack, c+2) // { and }, [ and ] are two apart
		case '"':
			s.str()
		case 't':
			s.word("true")
		case 'f':
			s.word("false")
		case 'n':
			s.word("null")
		default:
			s.float()
		}
		if !s.resume() {
			break
		}
	}
	s.loose = false
}

// resume moves to the next value inside the brackets that skip has open; false
// when none is open any more.
func (s *scanner) resume() bool {
	for n := len(s.stack); n > 0 && s.err == nil; n-- {
		if s.stack[n-1] == '}' && s.member() || s.stack[n-1] == ']' && s.element() {
			return true
		}
		s.stack = s.stack[:n-1]
	}
	return false
}

var errRange = errors.New("number out of range")

// float reads a number as the reference's JSON reader does: the digits as one
// 64-bit integer (further ones are dropped), scaled by one power of ten. With 16
// digits and more the result can be one step away from the nearest float64. An exact
// scanner returns the nearest one.
func (s *scanner) float() float64 {
	negative := s.peek() == '-'
	if negative {
		s.pos++
	}
	from := s.pos
	digits, exponent, ok := s.mantissa()
	if !ok {
		return 0
	}
	v, ok := scale(digits, exponent)
	if ok && s.exact {
		var err error
		v, err = strconv.ParseFloat(string(s.text[from:s.pos]), 64)
		ok = err == nil
	}
	if !ok {
		s.fail("%w", errRange)
		return 0
	}
	if negative {
		return -v
	}
	return v
}

// mantissa reads digits, fraction and exponent of a number without its sign: the
// number is digits * 10^exponent.
func (s *scanner) mantissa() (digits uint64, exponent int, ok bool) {
	from := s.pos
	full := false // digits has no room for another one
	for s.digit() {
		d := uint64(s.text[s.pos] - '0')
		if full = full || digits > (math.MaxUint64-d)/10; full {
			exponent++
		} else {
			digits = digits*10 + d
		}
		s.pos++
	}
	if s.err != nil || s.pos == from || s.text[from] == '0' && s.pos > from+1 {
		s.fail("not a JSON value")
		return 0, 0, false
	}
	if s.pos < len(s.text) && s.text[s.pos] == '.' {
		s.pos++
		for from = s.pos; s.digit(); s.pos++ {
			d := uint64(s.text[s.pos] - '0')
			if full = full || digits > (math.MaxUint64-d)/10; full {
				continue
			}
			digits = digits*10 + d
			exponent--
		}
		if s.pos == from {
			s.fail("digit expected after the point")
			return 0, 0, false
		}
	}
	if s.pos < len(s.text) && s.text[s.pos]|0x20 == 'e' {
		e, ok := s.exponent()
		return digits, exponent + e, ok
	}
	return digits, exponent, true
}

func (s *scanner) digit() bool {
	return s.err == nil && s.pos < len(s.text) && s.text[s.pos]-'0' <= 9
}

// exponent reads the e of a number and what follows, cut at a million.
func (s *scanner) exponent() (int, bool) {
	s.pos++
	sign := 1
	if s.pos < len(s.text) && (s.text[s.pos] == '+' || s.text[s.pos] == '-') {
		if s.text[s.pos] == '-' {
			sign = -1
		}
		s.pos++
	}
	from, e := s.pos, 0
	for ; s.digit(); s.pos++ {
		e = min(e*10+int(s.text[s.pos]-'0'), 1e6)
	}
	if s.pos == from {
		s.fail("digit expected in the exponent")
		return 0, false
	}
	return sign * e, true
}

// pow10 holds 1e0 .. 1e308.
var pow10 = func() (p [309]float64) {
	for i := range p {
		p[i], _ = strconv.ParseFloat("1e"+strconv.Itoa(i), 64)
	}
	return p
}()

// scale returns digits * 10^exponent; false if that is beyond float64.
func scale(digits uint64, exponent int) (float64, bool) {
	v := float64(digits)
	if v == 0 {
		return 0, true
	}
	for exponent < -308 {
		if v == 0 {
			return 0, true
		}
		v /= 1e308
		exponent += 308
	}
	if exponent < 0 {
		return v / pow10[-exponent], true
	}
	if exponent > 308 {
		return 0, false
	}
	v *= pow10[exponent]
	return v, !math.IsInf(v, 0)
}
