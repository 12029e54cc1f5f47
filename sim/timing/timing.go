// Package timing says how long a pass takes: the polynomial, fixed and
// profile-derived models, the rounding from a model's milliseconds to the clock,
// and the sampler of speculative decoding (spec engine-timing).
//
// A scheduler reduces its batch to a few integers, asks a Model at most twice per
// pass, and turns each answer into clock time with Duration.
package timing

// Model is a pure function of a few integers; it holds no state that a call
// changes and may be shared by goroutines.
type Model interface {
	// PrefillMs prices the prefill part: n requests of mean length meanISL, of
	// which meanPrefix tokens are already there (floors of the means). Callers
	// do not ask when n or meanISL-meanPrefix is 0. Raw, unscaled ms.
	PrefillMs(n, meanISL, meanPrefix int64) float64
	// DecodeMs prices one decode step over n > 0 requests holding activeKV
	// tokens in a cache of totalKV. The mean context is activeKV div n.
	DecodeMs(n, activeKV, totalKV int64) float64
	// DecodeSeries fills dst[j] with DecodeMs(n, activeKV+j*n, totalKV), bit for
	// bit: the passes of a decode run, in which every length grows by one.
	DecodeSeries(n, activeKV, totalKV int64, dst []float64)
}

// ExtrapolationCounter is a Model that counts how far outside the measured points the
// passes of a run lay. PrefillMs and DecodeMs count the pass they price. The passes of
// a series may be cut short, so they are counted once they ran:
// DecodeSeriesExtrapolation is DecodeSeries that also writes into dist[j] where pass j
// lay, and CountExtrapolation counts the passes that ran.
type ExtrapolationCounter interface {
	Model
	DecodeSeriesExtrapolation(n, activeKV, totalKV int64, dst []float64, dist []Extrapolation)
	// CountExtrapolation counts consecutive passes, of which the first held activeKV
	// tokens.
	CountExtrapolation(n, activeKV int64, dist []Extrapolation)
}

// Extrapolation is the distance of a pass from the measured points.
type Extrapolation struct {
	Outside   bool    // of the measured points
	Doublings float64 // distance to the nearest, in powers of two
	Op        int32   // the model's number of the op that was farthest
}
