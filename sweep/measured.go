package sweep

import (
	"errors"
	"fmt"

	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/timing/aic"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// measured prices passes from hardware tables (spec engine-timing 6). It belongs to
// one run.
type measured struct{ *aic.Model }

var _ timing.ExtrapolationCounter = (*measured)(nil)

// minDecodeMs is the least a decode step takes through the replay path.
const minDecodeMs = 1.0

func (m *measured) PrefillMs(n, meanISL, meanPrefix int64) float64 {
	return m.Model.PrefillMs(int(n), int(meanISL-meanPrefix), int(meanPrefix))
}

func (m *measured) DecodeMs(n, activeKV, _ int64) float64 {
	return atLeast(m.Model.DecodeMs(int(n), int(activeKV/n)), minDecodeMs)
}

func (m *measured) DecodeSeries(n, activeKV, totalKV int64, dst []float64) {
	m.DecodeSeriesExtrapolation(n, activeKV, totalKV, dst, nil)
}

func (m *measured) DecodeSeriesExtrapolation(n, activeKV, _ int64, dst []float64, dist []timing.Extrapolation) {
	m.Model.DecodeSeries(int(n), int(activeKV/n), dst, dist)
	for i, v := range dst {
		dst[i] = atLeast(v, minDecodeMs)
	}
}

func (m *measured) CountExtrapolation(n, activeKV int64, dist []timing.Extrapolation) {
	m.Model.CountExtrapolation(int(n), int(activeKV/n), dist)
}

// atLeast raises v to floor; a NaN, which tells of missing data, stays.
func atLeast(v, floor float64) float64 {
	if v < floor {
		return floor
	}
	return v
}

// openModel binds a model to the tables that a request names. Errors about the model
// or the system say so.
func openModel(q *scenario.AICRequest) (*aic.Model, error) {
	m, err := bindModel(q)
	switch {
	case errors.Is(err, aic.ErrModel):
		err = &scenario.KeyError{Key: "model", Err: err}
	case errors.Is(err, aic.ErrSystem):
		err = &scenario.KeyError{Key: "system", Err: err}
	case errors.Is(err, aic.ErrVersion):
		err = &scenario.KeyError{Key: "backend_version", Err: err}
	}
	return m, err
}

func bindModel(q *scenario.AICRequest) (*aic.Model, error) {
	db, err := aic.Open(aic.Config{System: q.System, Backend: q.Backend, Version: q.Version, SystemsPath: q.SystemsPath})
	if err != nil {
		return nil, err
	}
	cfg, err := modelConfig(q)
	if err != nil {
		return nil, err
	}
	return aic.NewModel(db, cfg)
}

func modelConfig(q *scenario.AICRequest) (aic.ModelConfig, error) {
	mode := aic.Mode(0)
	if q.Mode != "" {
		var err error
		if mode, err = aic.ParseMode(q.Mode); err != nil {
			return aic.ModelConfig{}, err
		}
	}
	return aic.ModelConfig{
		Model: q.Model, TP: q.TP, PP: q.PP, AttentionDP: q.AttentionDP, MoETP: q.MoETP, MoEEP: q.MoEEP, NextN: q.NextN,
		GEMM: q.GEMM, MoE: q.MoE, FMHA: q.FMHA, KVCache: q.KVCache, Comm: q.Comm,
		Mode: mode, AttentionBackend: q.AttentionBackend, DecodeQKNorm: q.DecodeQKNorm,
	}, nil
}

// passTimes asks a measured model for the Planner's bootstrap.
type passTimes struct {
	m *measured
	c timing.Corrections
}

func (p passTimes) PrefillMs(batch, isl int) (float64, error) {
	v := p.m.Model.PrefillMs(batch, isl, 0)
	return p.c.Prefill(v), p.err(v)
}

func (p passTimes) DecodeMs(batch, context int) (float64, error) {
	v := p.m.Model.DecodeMs(batch, context)
	return p.c.Decode(v, int64(batch)), p.err(v)
}

func (p passTimes) err(v float64) error {
	if v == v {
		return nil
	}
	return fmt.Errorf("hardware timing: %w", p.m.Err())
}
