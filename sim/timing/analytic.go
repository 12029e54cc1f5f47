package timing

// Polynomial is the default model: prefill is a quadratic in the tokens to
// compute, decode a quadratic in the filled share of the cache
// (spec engine-timing 3).
type Polynomial struct{}

var _ Model = Polynomial{}

// PrefillMs is 4.209989e-07 t^2 + 1.518344e-02 t + 1.650142e+01 with
// t = n (meanISL - meanPrefix), 0 without work.
func (Polynomial) PrefillMs(n, meanISL, meanPrefix int64) float64 {
	fresh := meanISL - meanPrefix
	if n <= 0 || fresh <= 0 {
		return 0
	}
	t := float64(n * fresh)
	// Order and rounding of each product as in the reference; no fusing.
	return float64(4.209989e-07*float64(t*t)) + float64(1.518344e-02*t) + 1.650142e+01
}

// DecodeMs is max(1, -25.74 p^2 + 54.01 p + 5.74) with p = activeKV / totalKV,
// at most 1, and 1 for an empty cache. The batch size has no influence.
func (Polynomial) DecodeMs(n, activeKV, totalKV int64) float64 {
	if n <= 0 {
		return 0
	}
	return occupancyMs(activeKV, totalKV)
}

func (Polynomial) DecodeSeries(n, activeKV, totalKV int64, dst []float64) {
	if n <= 0 {
		clear(dst)
		return
	}
	for j := range dst {
		dst[j] = occupancyMs(activeKV, totalKV)
		activeKV += n
	}
}

// occupancyMs is the decode polynomial at p = activeKV / totalKV.
func occupancyMs(activeKV, totalKV int64) float64 {
	p := 1.0
	if totalKV > 0 {
		p = min(1, float64(activeKV)/float64(totalKV))
	}
	return max(1, float64(-25.74*float64(p*p))+float64(54.01*p)+5.74)
}

// Fixed takes constant times, which may be 0 (spec engine-timing 3).
type Fixed struct {
	Prefill float64 // ms of a pass that computes prompt tokens
	Decode  float64 // ms of a decode step
}

var _ Model = Fixed{}

func (f Fixed) PrefillMs(n, meanISL, meanPrefix int64) float64 {
	if n <= 0 || meanISL <= meanPrefix {
		return 0
	}
	return f.Prefill
}

func (f Fixed) DecodeMs(n, _, _ int64) float64 {
	if n <= 0 {
		return 0
	}
	return f.Decode
}

func (f Fixed) DecodeSeries(n, activeKV, totalKV int64, dst []float64) {
	ms := f.DecodeMs(n, activeKV, totalKV)
	for j := range dst {
		dst[j] = ms
	}
}
