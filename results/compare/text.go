package compare

import (
	"math"
	"strconv"
	"strings"
)

// Number is a figure with four significant digits and thousands in groups; whole
// numbers in full.
func Number(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case v == math.Trunc(v) && a < 1e15:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 1000:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a >= 0.001:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// group puts commas between thousands of a whole number.
func group(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Millis is a duration given in ms: "38.2 ms", "1.41 s", "12.5 min".
func Millis(ms float64) string {
	switch a := math.Abs(ms); {
	case math.IsNaN(ms):
		return "-"
	case a >= 6e5:
		return trim(ms/6e4, 1) + " min"
	case a >= 1e4:
		return trim(ms/1000, 1) + " s"
	case a >= 1000:
		return trim(ms/1000, 2) + " s"
	case a >= 100:
		return trim(ms, 0) + " ms"
	case a >= 10:
		return trim(ms, 1) + " ms"
	}
	return trim(ms, 2) + " ms"
}

// trim prints v with at most so many digits after the point, no trailing zeros.
func trim(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

// Dollars is money: cents up to a thousand dollars, whole dollars beyond, three
// significant digits below ten cents.
func Dollars(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 1000:
		return "$" + group(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 0.1 || a == 0:
		return "$" + strconv.FormatFloat(v, 'f', 2, 64)
	}
	return "$" + strconv.FormatFloat(v, 'g', 2, 64)
}

// Percent is a share: "99.2 %". Only the whole is 100 %, only nothing is 0 %.
func Percent(share float64) string {
	p := share * 100
	switch {
	case math.IsNaN(share):
		return "-"
	case p < 100 && p > 99.9:
		return strconv.FormatFloat(min(p, 99.99), 'f', 2, 64) + " %"
	case p > 0 && p < 0.1:
		return strconv.FormatFloat(max(p, 0.01), 'f', 2, 64) + " %"
	}
	return trim(p, 1) + " %"
}

// Change is a signed relative difference: "+28 %", from 1000 % on as a factor.
func Change(rel float64) string {
	if rel >= 10 {
		return "x" + Number(math.Round(10*(1+rel))/10)
	}
	return signed(rel) + " %"
}

func signed(rel float64) string {
	p := rel * 100
	digits := 0
	if math.Abs(p) < 10 {
		digits = 1
	}
	s := strconv.FormatFloat(p, 'f', digits, 64)
	if s == "-0.0" || s == "-0" || s == "0.0" {
		s = "0"
	}
	if p > 0 {
		s = "+" + s
	}
	return s
}

// Show prints a figure by f, with the interval where there is one.
func (e Estimate) Show(f func(float64) string) string {
	switch {
	case !e.OK():
		return "-"
	case !e.Interval() || e.Low == e.High:
		return f(e.Mean)
	}
	return f(e.Mean) + " [" + f(e.Low) + ", " + f(e.High) + "]"
}

// Plain prints the mean alone.
func (e Estimate) Plain(f func(float64) string) string {
	if !e.OK() {
		return "-"
	}
	return f(e.Mean)
}

// Count is a number with its noun: "1 point", "3 points".
func Count(n int, noun string) string {
	s := group(strconv.Itoa(n)) + " " + noun
	if n != 1 {
		s += "s"
	}
	return s
}

// ShortID is the beginning of a point id that tells it from the others of its sweep;
// --baseline and --point take it.
func ShortID(id string) string { return id[:min(8, len(id))] }
