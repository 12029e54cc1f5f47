package timing

import "errors"

// Corrections bring a model nearer to measured runs (spec calibration 2). The zero value
// is none. Scales have no unit.
type Corrections struct {
	PrefillScale float64 // of the prefill part, > 0
	DecodeScale  float64 // of the decode part, > 0
	PassMs       float64 // host time of every pass, >= 0
	SequenceMs   float64 // host time per decoding sequence of a pass, >= 0
}

// Neutral are the corrections that change nothing.
func Neutral() Corrections { return Corrections{PrefillScale: 1, DecodeScale: 1} }

// None reports whether c changes no time.
func (c Corrections) None() bool { return c == Corrections{} || c == Neutral() }

// Validate names every value out of its range.
func (c Corrections) Validate() error {
	var errs []error
	require := func(holds bool, msg string) {
		if !holds {
			errs = append(errs, errors.New(msg))
		}
	}
	require(c.PrefillScale > 0 && c.PrefillScale-c.PrefillScale == 0, "prefill_scale must be finite and > 0")
	require(c.DecodeScale > 0 && c.DecodeScale-c.DecodeScale == 0, "decode_scale must be finite and > 0")
	require(c.PassMs >= 0 && c.PassMs-c.PassMs == 0, "pass_ms must be finite and non-negative")
	require(c.SequenceMs >= 0 && c.SequenceMs-c.SequenceMs == 0, "sequence_ms must be finite and non-negative")
	return errors.Join(errs...)
}

// Prefill corrects the raw prefill part of a pass, ms; a pass without one stays 0.
func (c Corrections) Prefill(ms float64) float64 {
	if ms == 0 {
		return 0
	}
	return c.PassMs + float64(c.PrefillScale*ms)
}

// Decode corrects the raw decode part of a pass over n > 0 sequences that prefills
// nothing, ms.
func (c Corrections) Decode(ms float64, n int64) float64 {
	return c.PassMs + c.mixedDecode(ms, n)
}

// mixedDecode is Decode for a pass whose prefill part already has the host time.
func (c Corrections) mixedDecode(ms float64, n int64) float64 {
	return float64(c.DecodeScale*ms) + float64(c.SequenceMs*float64(n))
}

// A MixedDecoder is a Model whose decode part costs something else in a pass that also
// prefills.
type MixedDecoder interface {
	Model
	// MixedDecodeMs is DecodeMs in a pass with a prefill part above 0.
	MixedDecodeMs(n, activeKV, totalKV int64) float64
}

// Correct returns m with corrections: m itself when they change nothing. What counts
// extrapolation goes on counting.
func Correct(m Model, c Corrections) Model {
	if c.None() {
		return m
	}
	if counter, ok := m.(ExtrapolationCounter); ok {
		return &correctedCounter{corrected{m, c}, counter}
	}
	return &corrected{m, c}
}

// Uncorrected returns the model under the corrections, and these; m and none where
// there are none.
func Uncorrected(m Model) (Model, Corrections) {
	switch t := m.(type) {
	case *corrected:
		return t.model, t.c
	case *correctedCounter:
		return t.model, t.c
	}
	return m, Neutral()
}

// corrected is a model with corrections.
type corrected struct {
	model Model
	c     Corrections
}

var (
	_ MixedDecoder         = (*corrected)(nil)
	_ MixedDecoder         = (*correctedCounter)(nil)
	_ ExtrapolationCounter = (*correctedCounter)(nil)
)

func (m *corrected) PrefillMs(n, meanISL, meanPrefix int64) float64 {
	return m.c.Prefill(m.model.PrefillMs(n, meanISL, meanPrefix))
}

func (m *corrected) DecodeMs(n, activeKV, totalKV int64) float64 {
	if n <= 0 {
		return 0
	}
	return m.c.Decode(m.model.DecodeMs(n, activeKV, totalKV), n)
}

func (m *corrected) MixedDecodeMs(n, activeKV, totalKV int64) float64 {
	if n <= 0 {
		return 0
	}
	return m.c.mixedDecode(m.model.DecodeMs(n, activeKV, totalKV), n)
}

func (m *corrected) DecodeSeries(n, activeKV, totalKV int64, dst []float64) {
	m.model.DecodeSeries(n, activeKV, totalKV, dst)
	m.correctSeries(n, dst)
}

func (m *corrected) correctSeries(n int64, dst []float64) {
	if n <= 0 {
		return
	}
	for i, ms := range dst {
		dst[i] = m.c.Decode(ms, n)
	}
}

// correctedCounter is a model with corrections that counts extrapolation.
type correctedCounter struct {
	corrected
	counter ExtrapolationCounter
}

func (m *correctedCounter) DecodeSeriesExtrapolation(n, activeKV, totalKV int64, dst []float64, dist []Extrapolation) {
	m.counter.DecodeSeriesExtrapolation(n, activeKV, totalKV, dst, dist)
	m.correctSeries(n, dst)
}

func (m *correctedCounter) CountExtrapolation(n, activeKV int64, dist []Extrapolation) {
	m.counter.CountExtrapolation(n, activeKV, dist)
}
