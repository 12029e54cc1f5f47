package timing

import (
	"errors"
	"fmt"
	"math"
)

// ErrOutOfRange is the class of durations that no clock can hold.
var ErrOutOfRange = errors.New("scaled timing duration is out of range")

// nsPerS as a float64: nanoseconds in a second.
const nsPerS = 1e9

// Duration turns a model's raw milliseconds into clock milliseconds: rounded to
// whole nanoseconds, ties to even, divided by ratio and rounded again when
// ratio > 0 (spec engine-timing 4). A ratio of 0 leaves the time as it is. rawMs
// must be finite and not negative.
func Duration(rawMs, ratio float64) (float64, error) {
	if ms, ok := quick(rawMs, ratio); ok {
		return ms, nil
	}
	return exact(rawMs, ratio)
}

// Durations applies Duration to each of ms in place, bit for bit, and stops at
// the first error.
func Durations(ms []float64, ratio float64) error {
	for i, raw := range ms {
		d, ok := quick(raw, ratio)
		if !ok {
			var err error
			if d, err = exact(raw, ratio); err != nil {
				return err
			}
		}
		ms[i] = d
	}
	return nil
}

// quick is Duration for times below a second, before and after scaling. The
// rounding of the product back from seconds is the identity there, and so is
// the scaling step at ratio 1 (spec replay-runtime 13, note 4).
func quick(rawMs, ratio float64) (float64, bool) {
	if !(rawMs >= 0 && rawMs < 999) {
		return 0, false
	}
	a := roundNs(rawMs / 1000)
	if ratio > 0 && ratio != 1 {
		s := a / nsPerS / ratio
		if s >= 0.999 {
			return 0, false
		}
		a = roundNs(s)
	}
	return a / nsPerS * 1000, true
}

// exact is Duration as the spec states it, for any input.
func exact(rawMs, ratio float64) (float64, error) {
	a, ok := toSpan(rawMs / 1000)
	if ok && ratio > 0 && a != (span{}) {
		a, ok = toSpan(a.seconds() / ratio)
	}
	if ok {
		a, ok = toSpan(float64(a.seconds()*1000) / 1000)
	}
	if !ok {
		return 0, fmt.Errorf("%w: %v ms at ratio %v", ErrOutOfRange, rawMs, ratio)
	}
	return a.seconds() * 1000, nil
}

// span is a duration in whole nanoseconds: s seconds and ns below a second.
type span struct {
	s  uint64
	ns uint32
}

// toSpan rounds seconds to the nearest nanosecond, ties to even, of the exact
// binary value. False for NaN, negative values and 2^64 s or more.
func toSpan(sec float64) (span, bool) {
	if !(sec >= 0 && sec < 0x1p64) {
		return span{}, false
	}
	whole := math.Floor(sec)
	d := span{uint64(whole), uint32(roundNs(sec - whole))}
	if d.ns == nsPerS {
		d.s, d.ns = d.s+1, 0
		if d.s == 0 {
			return span{}, false
		}
	}
	return d, true
}

func (d span) seconds() float64 { return float64(d.s) + float64(float64(d.ns)/nsPerS) }

// roundNs is the integer nearest to sec * 1e9, ties to even, of the exact
// product, for 0 <= sec <= 1. The float64 product decides unless it lies half way;
// then the part that was rounded away does.
func roundNs(sec float64) float64 {
	p := float64(sec * nsPerS)
	r := math.RoundToEven(p)
	if d := p - r; d == 0.5 || d == -0.5 {
		if rest := math.FMA(sec, nsPerS, -p); rest > 0 {
			r = math.Ceil(p)
		} else if rest < 0 {
			r = math.Floor(p)
		}
	}
	return r
}
