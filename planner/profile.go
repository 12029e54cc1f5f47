package planner

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/dynosweep/dynosweep/sim/timing"
)

// profileSide names the points of one phase in a profiler's result folder.
type profileSide struct {
	npz, json string
	arrays    []string
}

var (
	prefillPoints = profileSide{"selected_prefill_interpolation/raw_data.npz", "prefill_raw_data.json",
		[]string{"prefill_isl", "prefill_ttft"}}
	decodePoints = profileSide{"selected_decode_interpolation/raw_data.npz", "decode_raw_data.json",
		[]string{"x_kv_usage", "y_context_length", "z_itl", "max_kv_tokens"}}
)

// profileGrid is the number of evaluated points per axis.
const profileGrid = 100

// FitProfileFolder turns a profiler's result folder into a timing profile: the
// Planner's regression is fitted to the folder's points and evaluated on a grid
// (spec engine-timing 5). dir may also be one of the folder's raw-data JSON files.
// TTFT and ITL are ms, KV usage is a share of max_kv_tokens. Every point is kept,
// however many there are.
func FitProfileFolder(dir string) (*timing.Profile, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	prefill, err := prefillPoints.read(dir)
	if err != nil {
		return nil, err
	}
	decode, err := decodePoints.read(dir)
	if err != nil {
		return nil, err
	}
	isl, ttft, err := fitPrefill(prefill[0], prefill[1])
	if err != nil {
		return nil, fmt.Errorf("%s: prefill: %w", dir, err)
	}
	kv, context, itl, err := fitDecode(decode[0], decode[1], decode[2], decode[3])
	if err != nil {
		return nil, fmt.Errorf("%s: decode: %w", dir, err)
	}
	return timing.NewProfile(isl, ttft, kv, context, itl, profileGrid, profileGrid)
}

func (s profileSide) read(dir string) ([][]float64, error) {
	arrays, name, err := s.open(dir)
	if err != nil {
		return nil, err
	}
	out := make([][]float64, len(s.arrays))
	for i, key := range s.arrays {
		values, ok := arrays[key]
		if !ok || len(values) == 0 {
			return nil, fmt.Errorf("%s: %s: missing or empty", name, key)
		}
		for j, v := range values {
			if !finite(v) || v < 0 {
				return nil, fmt.Errorf("%s: %s[%d]: must be finite and >= 0, got %v", name, key, j, v)
			}
		}
		out[i] = values
	}
	return out, nil
}

func (s profileSide) open(dir string) (arrays map[string][]float64, name string, err error) {
	name = filepath.Join(dir, s.npz)
	arrays, err = readNPZ(name, s.arrays)
	if errors.Is(err, fs.ErrNotExist) {
		name = filepath.Join(dir, s.json)
		arrays, err = readArrays(name)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: neither %s nor %s is there", dir, s.npz, s.json)
		}
	}
	return arrays, name, err
}

// roomFor is the regression's configuration with place for n points.
func roomFor(n int) RegressionConfig {
	c := DefaultConfig().Regression
	c.MaxSamples = max(c.MaxSamples, n)
	return c
}

var errFlat = errors.New("no fit: it takes at least five points whose time rises with the work")

func fitPrefill(isl, ttft []float64) (grid, ms []float64, err error) {
	if len(isl) != len(ttft) {
		return nil, nil, fmt.Errorf("%d lengths, but %d times", len(isl), len(ttft))
	}
	m := newModel(prefillRole, limits{math.MaxInt32, 1, math.MaxInt32}, roomFor(len(isl)))
	low, high := math.Inf(1), math.Inf(-1)
	for i, v := range isl {
		low, high = math.Min(low, v), math.Max(high, v)
		if s, x, ok := m.classify(work{n: 1, prefill: v}); ok && s != nil && ttft[i] > 0 {
			s.add(x, ttft[i])
		}
	}
	grid = evenly(low, high)
	for _, v := range grid {
		y, ok := m.estimate(work{n: 1, prefill: v})
		if !ok {
			return nil, nil, errFlat
		}
		ms = append(ms, y)
	}
	return grid, ms, nil
}

// fitDecode returns the axes and, row by row, the times of the surface.
func fitDecode(usage, lengths, itl, maxKV []float64) (kv, context, ms []float64, err error) {
	if len(usage) != len(lengths) || len(usage) != len(itl) {
		return nil, nil, nil, fmt.Errorf("%d KV usages, %d contexts, %d times", len(usage), len(lengths), len(itl))
	}
	m := newModel(decodeRole, limits{math.MaxInt32, math.MaxInt32, math.MaxInt32}, roomFor(len(usage)))
	longest := 1.0
	for i, u := range usage {
		tokens, requests := u*maxKV[0], 1.0
		if lengths[i] > 0 {
			requests = math.Max(1, tokens/lengths[i])
		}
		longest = math.Max(longest, tokens/requests)
		if s, x, ok := m.classify(work{d: requests, kv: tokens}); ok && s != nil && itl[i] > 0 {
			s.add(x, itl[i])
		}
	}
	kv, context = evenly(0, maxKV[0]), evenly(1, longest)
	for _, k := range kv {
		for _, c := range context {
			y, ok := m.estimate(work{d: math.Max(1, k/c), kv: k})
			if !ok {
				return nil, nil, nil, errFlat
			}
			ms = append(ms, y)
		}
	}
	return kv, context, ms, nil
}

func evenly(low, high float64) []float64 {
	out := make([]float64, profileGrid)
	for i := range out {
		out[i] = low + (high-low)*float64(i)/(profileGrid-1)
	}
	return out
}
