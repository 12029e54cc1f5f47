package planner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/dynosweep/dynosweep/sim"
)

// PassTimes is a hardware model that the Planner can ask before any pass ran.
// Times are ms.
type PassTimes interface {
	// PrefillMs is one prefill pass of batch prompts of isl tokens without prefix.
	PrefillMs(batch, isl int) (float64, error)
	// DecodeMs is one decode pass of batch requests at a mean context.
	DecodeMs(batch, context int) (float64, error)
}

// Bootstrap says what the performance model learned before the first tick
// (spec planner 6.7).
type Bootstrap struct {
	Status      string `json:"status"`
	Granularity int    `json:"benchmark_granularity,omitempty"`
	PrefillFPMs *int   `json:"prefill_fpm_count,omitempty"`
	DecodeFPMs  *int   `json:"decode_fpm_count,omitempty"`
	Digest      string `json:"fpm_sha256,omitempty"`
}

// Statuses of a bootstrap. The third also stands for hardware timing that fails.
const (
	BootInstalled     = "installed"
	BootEmpty         = "empty"
	BootFailed        = "session_failed_load_only"
	BootNotConfigured = "not_configured_load_only"
	BootNotRequired   = "not_required"
)

var bootContexts = [...]int{500, 2000, 4000, 8000}

// bootstrap feeds the models with what hardware timing says of a grid of passes.
// A model that fails leaves the regression to learn from the run alone.
func (p *Policy) bootstrap() Bootstrap {
	if p.cfg.Target != SLA {
		return Bootstrap{Status: BootNotRequired}
	}
	g := p.granularity()
	boot := Bootstrap{Status: BootNotConfigured, Granularity: g}
	timing, learner := p.engines.PrefillTiming, p.models.prefill
	if p.cfg.Mode == Agg {
		timing, learner = p.engines.DecodeTiming, p.models.decode
	}
	if timing == nil || p.engines.DecodeTiming == nil {
		return boot
	}
	prefill, err := prefillGrid(timing, learner.limits.batchedTokens, g)
	if err == nil {
		var decode []FPM
		if decode, err = decodeGrid(p.engines.DecodeTiming, p.engines.Decode, p.models.decode.limits.seqs, g); err == nil {
			return p.install(boot, learner, prefill, decode)
		}
	}
	boot.Status = BootFailed
	return boot
}

func (p *Policy) install(boot Bootstrap, learner *model, prefill, decode []FPM) Bootstrap {
	np, nd := len(prefill), len(decode)
	boot.PrefillFPMs, boot.DecodeFPMs = &np, &nd
	boot.Status = BootEmpty
	if np+nd > 0 {
		boot.Status = BootInstalled
	}
	learner.feed(prefill)
	p.models.decode.feed(decode)
	text, err := json.Marshal([2][]FPM{prefill, decode})
	if err != nil {
		panic(fmt.Sprintf("planner: bootstrap samples are not JSON: %v", err))
	}
	sum := sha256.Sum256(text)
	boot.Digest = hex.EncodeToString(sum[:])
	return boot
}

// prefillGrid samples prompts from 100 tokens to a full batch.
func prefillGrid(t PassTimes, batchedTokens, g int) (out []FPM, err error) {
	step := max(1, (batchedTokens-100)/g)
	for isl := 100; isl <= batchedTokens; isl += step {
		ms, err := t.PrefillMs(1, isl)
		if err != nil {
			return nil, err
		}
		if ms > 0 {
			out = append(out, FPM{WallS: ms / 1000,
				Pass: sim.ForwardPass{PrefillRequests: 1, PrefillTokens: int64(isl)}})
		}
	}
	return out, nil
}

// decodeGrid samples batches at four contexts, as far as they fit the cache.
func decodeGrid(t PassTimes, e Engine, seqs, g int) (out []FPM, err error) {
	kv := e.KVTokens
	if kv == 0 {
		kv = 262144
	}
	step := max(1, seqs/g)
	for _, context := range bootContexts {
		for batch := 1; batch <= seqs && batch*context <= kv; batch += step {
			ms, err := t.DecodeMs(batch, context)
			if err != nil {
				return nil, err
			}
			if ms > 0 {
				out = append(out, FPM{WallS: ms / 1000,
					Pass: sim.ForwardPass{DecodeRequests: int64(batch), DecodeKVTokens: int64(batch * context)}})
			}
		}
	}
	return out, nil
}

// Bootstrap returns what the models learned before the first tick.
func (p *Policy) Bootstrap() Bootstrap { return p.boot }
