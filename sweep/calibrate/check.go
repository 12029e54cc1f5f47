package calibrate

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Check is something that speaks against a measurement, or that a user should know.
type Check struct {
	Run     string `json:"run,omitempty"`
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Refuses bool   `json:"refuses"` // fitting it would be wrong; --force fits all the same
}

// RefusedError says which checks forbid a fit.
type RefusedError struct{ Checks []Check }

func (e *RefusedError) Error() string {
	var lines []string
	for _, c := range e.Checks {
		lines = append(lines, c.Run+": "+c.Message)
	}
	return "the measurements can not be fitted:\n  " + strings.Join(lines, "\n  ") + "\nleave these runs out, measure again, or --force"
}

func refuse(checks []Check, force bool) error {
	var bad []Check
	for _, c := range checks {
		if c.Refuses {
			bad = append(bad, c)
		}
	}
	if len(bad) == 0 || force {
		return nil
	}
	return &RefusedError{bad}
}

// Limits of the checks (spec calibration 3.2).
const (
	maxTokenMismatch = 0.02
	maxFailures      = 0.01
	coldFactor       = 5.0
	coldRequests     = 5
	speculationRatio = 0.7
	chunkFactor      = 2.0
)

// checkRun compares a run with its simulation before corrections.
func checkRun(r *Run, o *Outcome, sim Figures) []Check {
	var out []Check
	add := func(refuses bool, kind, format string, args ...any) {
		out = append(out, Check{r.Name, kind, fmt.Sprintf(format, args...), refuses})
	}
	for _, n := range r.Notices {
		add(false, "input", "%s", n)
	}
	if a, b := float64(r.ServerTokens), float64(r.ClientTokens); a > 0 && b > 0 && math.Abs(a-b) > maxTokenMismatch*max(a, b) {
		add(true, "tokens", "server and client count %d and %d output tokens: they use different tokenizers, or outputs were cut", r.ServerTokens, r.ClientTokens)
	}
	if r.Sent > 0 && float64(r.Failed) > maxFailures*float64(r.Sent) {
		add(true, "failures", "%d of %d requests failed or were cancelled", r.Failed, r.Sent)
	}
	if cold, median := coldStart(r.Requests); cold && !burst(o.Requests) {
		add(true, "cold", "each of the first %d requests had a TTFT above %g times the median of %.4g ms: warm up before measuring", coldRequests, coldFactor, median)
	}
	if r.PrefixHits > maxTokenMismatch {
		add(true, "prefix", "the prefix cache answered %.0f %% of the prompt tokens: turn prefix caching off, or use prompts that share nothing", 100*r.PrefixHits)
	}
	m := &r.Measured
	if m.TPOTMs < speculationRatio*sim.TPOTMs && m.TTFTMs > speculationRatio*sim.TTFTMs {
		add(true, "speculation", "TPOT of %.4g ms is far below the simulated %.4g ms while TTFT is not: did the engine decode speculatively? Then set aic_nextn", m.TPOTMs, sim.TPOTMs)
	}
	if r.MedianITLMs > chunkFactor*m.TPOTMs {
		add(true, "chunks", "the median gap between chunks is %.4g ms, TPOT %.4g ms: the server streams several tokens at once; turn that off (stream_interval 1)", r.MedianITLMs, m.TPOTMs)
	}
	if o.Preemptions > 0 && !(r.Preemptions > 0) || o.Preemptions == 0 && r.Preemptions > 0 {
		measured := "the measurement does not say"
		if !math.IsNaN(r.Preemptions) {
			measured = fmt.Sprintf("%.0f were measured", r.Preemptions)
		}
		if o.Preemptions > 0 || r.Preemptions > 0 {
			add(r.Preemptions == 0 || o.Preemptions == 0, "kv", "the simulation preempts %d times with %d KV tokens, %s: give the engine's own number as --kv-tokens", o.Preemptions, o.KVTokens, measured)
		}
	}
	return out
}

// burst reports whether the requests that a loop starts at once are as slow in the
// simulation, which is never cold.
func burst(simulated []Request) bool {
	slow, _ := coldStart(simulated)
	return slow
}

// coldStart reports whether all of the first requests were slow.
func coldStart(requests []Request) (cold bool, medianMs float64) {
	if len(requests) < 2*coldRequests {
		return false, 0
	}
	ttft := make([]float64, len(requests))
	for i, r := range requests {
		ttft[i] = r.TTFTMs
	}
	first := slices.Min(ttft[:coldRequests])
	slices.Sort(ttft)
	medianMs = ttft[len(ttft)/2]
	return first > coldFactor*medianMs, medianMs
}
