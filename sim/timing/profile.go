package timing

import (
	"errors"
	"fmt"
	"math"
)

// Profile interpolates measured points linearly and extrapolates from the outer
// segments (spec engine-timing 5). Prefill is a line through (tokens, ms), decode
// a surface over (active KV tokens, mean context).
type Profile struct {
	prefillTokens []float64 // [point], strictly rising
	prefillMs     []float64 // [point]
	activeKV      []float64 // [row], tokens, strictly rising
	context       []float64 // [column], tokens, strictly rising
	itl           []float64 // [row*columns + column], ms
}

var _ Model = (*Profile)(nil)

// NewProfile checks the arrays and keeps them. itl is row-major, one row per
// activeKV and one column per context.
func NewProfile(prefillTokens, prefillMs, activeKV, context, itl []float64, rows, columns int) (*Profile, error) {
	switch {
	case len(prefillTokens) != len(prefillMs):
		return nil, fmt.Errorf("Prefill array length mismatch: isl=%d, ttft=%d", len(prefillTokens), len(prefillMs))
	case rows != len(activeKV) || columns != len(context) || len(itl) != rows*columns:
		return nil, fmt.Errorf("Decode array dimension mismatch: itl shape=(%d, %d), active_kv=%d, context=%d",
			rows, columns, len(activeKV), len(context))
	case len(prefillTokens) < 2:
		return nil, errors.New("Failed to build prefill interpolator: The chosen Interpolation strategy needs at least 2 data points")
	case !rising(prefillTokens):
		return nil, errors.New("Failed to build prefill interpolator: Values in the x axis need to be strictly monotonic rising")
	case len(activeKV) < 2:
		return nil, fmt.Errorf("Failed to build decode interpolator: active_kv needs at least 2 data points, got %d", len(activeKV))
	case len(context) < 2:
		return nil, fmt.Errorf("Failed to build decode interpolator: context needs at least 2 data points, got %d", len(context))
	case !rising(activeKV):
		return nil, errors.New("Failed to build decode interpolator: The x-axis needs to be strictly monotonic rising")
	case !rising(context):
		return nil, errors.New("Failed to build decode interpolator: The y-axis needs to be strictly monotonic rising")
	}
	if err := errors.Join(finite("prefill_isl", prefillTokens), finite("prefill_ttft_ms", prefillMs),
		finite("decode_active_kv_tokens", activeKV), finite("decode_context_length", context), finite("decode_itl", itl)); err != nil {
		return nil, err
	}
	return &Profile{prefillTokens, prefillMs, activeKV, context, itl}, nil
}

// PrefillMs reads the prefill line at n (meanISL - meanPrefix) tokens, at least 0.
func (p *Profile) PrefillMs(n, meanISL, meanPrefix int64) float64 {
	if n <= 0 || meanISL <= meanPrefix {
		return 0
	}
	x := float64(n * (meanISL - meanPrefix))
	i := segment(p.prefillTokens, x, 0)
	return max(0, line(p.prefillTokens[i], p.prefillMs[i], p.prefillTokens[i+1], p.prefillMs[i+1], x))
}

// DecodeMs reads the decode surface at (activeKV, activeKV div n), at least 1 ms.
func (p *Profile) DecodeMs(n, activeKV, _ int64) float64 {
	if n <= 0 {
		return 0
	}
	x, y := float64(activeKV), float64(activeKV/n)
	return p.surface(segment(p.activeKV, x, 0), segment(p.context, y, 0), x, y)
}

// DecodeSeries walks along the surface: both coordinates only rise.
func (p *Profile) DecodeSeries(n, activeKV, _ int64, dst []float64) {
	if n <= 0 {
		clear(dst)
		return
	}
	i, j := 0, 0
	for k := range dst {
		x, y := float64(activeKV), float64(activeKV/n)
		i, j = segment(p.activeKV, x, i), segment(p.context, y, j)
		dst[k] = p.surface(i, j, x, y)
		activeKV += n
	}
}

// surface interpolates in the cell of row i and column j: over x first.
func (p *Profile) surface(i, j int, x, y float64) float64 {
	x1, x2 := p.activeKV[i], p.activeKV[i+1]
	low, high := p.itl[i*len(p.context):], p.itl[(i+1)*len(p.context):]
	z1 := line(x1, low[j], x2, high[j], x)
	z2 := line(x1, low[j+1], x2, high[j+1], x)
	return max(1, line(p.context[j], z1, p.context[j+1], z2, y))
}

// segment returns i >= from with axis[i] <= x < axis[i+1], the first or last
// segment for an x outside the axis. axis[from] <= x unless from is 0.
func segment(axis []float64, x float64, from int) int {
	lo, hi := from, len(axis)-2
	if x < axis[lo+1] {
		return lo
	}
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if axis[mid] <= x {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// line is the value at x of the line through (x1, y1) and (x2, y2).
func line(x1, y1, x2, y2, x float64) float64 {
	return float64((y2-y1)/(x2-x1)*(x-x1)) + y1
}

// rising reports whether a is strictly rising; a NaN is not.
func rising(a []float64) bool {
	for i := 1; i < len(a); i++ {
		if !(a[i-1] < a[i]) {
			return false
		}
	}
	return true
}

// finite names the first entry of a that is no number.
func finite(name string, a []float64) error {
	for i, v := range a {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%s: entry %d is %v, must be finite", name, i, v)
		}
	}
	return nil
}
