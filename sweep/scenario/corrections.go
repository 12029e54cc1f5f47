package scenario

import (
	"math"
	"slices"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// Corrections bring a timing nearer to measured runs (spec calibration 2). The zero value
// is none. It is comparable.
type Corrections struct {
	timing.Corrections
	ClientMs float64 // added to every reported TTFT and latency
	Fitted   Fit     // where they come from
}

// Fit says which calibration made corrections, and for what.
type Fit struct {
	From, SHA256           string // calibration.json and its digest, hex
	Model, System, Backend string // the timing that was fitted, "" unknown
	DTypes                 string // its number formats: gemm, moe, fmha, kv_cache, comm, separated by /
}

// None reports whether c changes no figure.
func (c *Corrections) None() bool { return c.Corrections.None() && c.ClientMs == 0 }

// DTypes names the number formats of a request as Fit does; "-" is the checkpoint's.
func (q *AICRequest) DTypes() string {
	text := ""
	for i, d := range [...]string{q.GEMM, q.MoE, q.FMHA, q.KVCache, q.Comm} {
		if i > 0 {
			text += "/"
		}
		text += orText(d, "-")
	}
	return text
}

// Misused says why corrections are used for something else than they were fitted for,
// "" if they are not.
func (t *Timing) Misused() string {
	f, q := &t.Corrections.Fitted, &t.AIC
	if t.Kind != Measured || f.Model == "" || t.Corrections.None() {
		return ""
	}
	for _, k := range [...]struct{ name, fitted, used string }{
		{"model", f.Model, q.Model}, {"engine", f.Backend, q.Backend}, {"system", f.System, q.System}, {"number formats", f.DTypes, q.DTypes()}} {
		if k.fitted != "" && k.fitted != k.used {
			return "corrections were fitted for " + k.name + " " + k.fitted + ", and are used for " + k.used +
				": measured runs of other deployments did not become nearer by them; calibrate this one"
		}
	}
	return ""
}

var (
	correctionKeys = []string{"prefill_scale", "decode_scale", "pass_ms", "sequence_ms", "client_ms", "fitted"}
	fitKeys        = []string{"from", "sha256", "model", "system", "backend", "dtypes"}
)

// readCorrections reads the corrections of a timing (spec calibration 2); those that
// change nothing are none.
func readCorrections(m document.Mapping) Corrections {
	n := m.Get("corrections")
	if n == nil || n.Kind == document.Null {
		return Corrections{}
	}
	c := m.Sub("corrections", "a mapping", correctionKeys)
	out := Corrections{Corrections: timing.Neutral()}
	for _, k := range [...]struct {
		key string
		dst *float64
	}{{"prefill_scale", &out.PrefillScale}, {"decode_scale", &out.DecodeScale}} {
		*k.dst = c.Float(k.key, document.NotNull).Or(1)
		c.Require(*k.dst > 0 && !math.IsInf(*k.dst, 1), k.key, k.key+" must be finite and > 0")
	}
	for _, k := range [...]struct {
		key string
		dst *float64
	}{{"pass_ms", &out.PassMs}, {"sequence_ms", &out.SequenceMs}, {"client_ms", &out.ClientMs}} {
		*k.dst = c.Float(k.key, document.NotNull).Value
		c.Require(document.FiniteFrom(*k.dst, 0), k.key, k.key+" must be finite and non-negative")
	}
	if c.Get("fitted") != nil {
		f := c.Sub("fitted", "a mapping", fitKeys)
		for i, dst := range [...]*string{&out.Fitted.From, &out.Fitted.SHA256, &out.Fitted.Model, &out.Fitted.System, &out.Fitted.Backend, &out.Fitted.DTypes} {
			*dst = f.String(fitKeys[i], document.NotNull).Value
		}
	}
	if out.None() {
		return Corrections{}
	}
	return out
}

// resolved are the corrections with their keys, nil for none. Where they come from does
// not tell configurations apart.
func (c *Corrections) resolved(f form) *resolved.Corrections {
	if c.None() {
		return nil
	}
	out := &resolved.Corrections{ClientMs: c.ClientMs, DecodeScale: c.DecodeScale, PassMs: c.PassMs,
		PrefillScale: c.PrefillScale, SequenceMs: c.SequenceMs}
	if f == whole && c.Fitted != (Fit{}) {
		t := &c.Fitted
		out.Fitted = &resolved.Fit{Backend: t.Backend, DTypes: t.DTypes, From: t.From, Model: t.Model, SHA256: t.SHA256, System: t.System}
	}
	return out
}

// correctionNotices says that figures are corrected, and where corrections are used for
// something else than they were fitted for.
func (r *Run) correctionNotices() []string {
	var out []string
	add := func(text string) {
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, role := range r.roles() {
		if !role.Timing.Corrections.None() {
			add("timing.corrections: pass times are corrected, not the reference's")
			add(role.Timing.Misused())
		}
	}
	return out
}

// clientMs is what a run's client adds to every TTFT and latency: the larger of its
// roles' values, since one client waits for both.
func (r *Run) clientMs() float64 {
	ms := 0.0
	for _, role := range r.roles() {
		ms = max(ms, role.Timing.Corrections.ClientMs)
	}
	return ms
}
