package scenario

import (
	"slices"

	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// Ineffective tells which flags of a command line that resolved to run change nothing in
// it, and why, one sentence each.
func (c *ReplayFlags) Ineffective(run *Run) []string {
	out := explainIneffective(c.ineffectiveLoad(run.Workload))
	mode := run.Router.Mode
	for _, role := range [...]*Role{run.Prefill, run.Decode} {
		for i := 0; role != nil && i < len(role.live); i++ {
			if text := role.live[i] + " of the engine arguments changes nothing here: only live serving reads it"; !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return append(out, explainIneffective([]ineffectiveFlag{
		{"--router-config", c.RouterConfig != nil && !mode.Configured, onlyKV},
		{"--router-policy-config", c.RouterPolicyConfig != nil && !mode.Configured, onlyKV},
		{"--model-name", c.ModelName != nil && !mode.Configured, onlyKV},
		{"--router-seed", c.RouterSeed != nil && !mode.Draws, "--router-mode " + mode.Name + " draws nothing"},
		{"--aic-backend", c.AICBackend != nil && !mode.Configured, onlyKV},
		{"--benchmark-granularity", c.BenchmarkGranularity != nil && run.Planner == nil, "there is no Planner"},
	})...)
}

const (
	onlyKV     = "only --router-mode kv_router reads it"
	onlyTraces = "only trace-file replay reads it"
	noArrivals = "a closed loop has no arrival times"
)

// ineffectiveFlag is a flag that may change nothing.
type ineffectiveFlag struct {
	flag        string
	ineffective bool
	why         string
}

func explainIneffective(flags []ineffectiveFlag) []string {
	var out []string
	for _, f := range flags {
		if f.ineffective {
			out = append(out, f.flag+" changes nothing here: "+f.why)
		}
	}
	return out
}

// ineffectiveLoad lists the flags of the load.
func (c *ReplayFlags) ineffectiveLoad(w *Workload) []ineffectiveFlag {
	closed := c.ReplayConcurrency != nil
	out := []ineffectiveFlag{{"--arrival-speedup-ratio", c.ArrivalSpeedupRatio != nil && closed, noArrivals}}
	if w.Trace != nil {
		format := w.Trace.Load.Format
		plain := format == trace.Mooncake || format == trace.MooncakeDelta || format == trace.AppliedCompute
		out = append(out, ineffectiveFlag{"--arrival-seed", c.ArrivalSeed != nil, "nothing of a trace is drawn"},
			ineffectiveFlag{"--execution-model", c.ExecutionModel != nil && plain, "only agentic traces have it"})
		shares, groups := w.Trace.Load.SharedPrefixRatio > 0, w.Trace.Load.PrefixGroups > 0
		if format != trace.AppliedCompute {
			const why = "only trace format applied_compute_agentic reads it"
			return append(out, ineffectiveFlag{"--trace-shared-prefix-ratio", c.TraceSharedPrefixRatio != nil, why},
				ineffectiveFlag{"--trace-num-prefix-groups", c.TraceNumPrefixGroups != nil, why})
		}
		return append(out, ineffectiveFlag{"--trace-shared-prefix-ratio", shares && !groups, "it needs --trace-num-prefix-groups"},
			ineffectiveFlag{"--trace-num-prefix-groups", groups && !shares, "it needs --trace-shared-prefix-ratio"})
	}
	s := w.Synthetic
	return append(out, ineffectiveFlag{"--arrival-seed", c.ArrivalSeed != nil && !s.Drawn(), "only --request-rate draws arrivals"},
		ineffectiveFlag{"--inter-turn-delay-ms", s.InterTurnDelayMs > 0 && s.TurnsPerSession == 1, "it needs --turns-per-session"},
		ineffectiveFlag{"--shared-prefix-ratio", s.SharedPrefixRatio > 0 && s.PrefixGroups == 0, "it needs --num-prefix-groups"},
		ineffectiveFlag{"--num-prefix-groups", s.PrefixGroups > 0 && s.SharedPrefixRatio == 0, "it needs --shared-prefix-ratio"},
		ineffectiveFlag{"--trace-format", c.TraceFormat != nil, onlyTraces}, ineffectiveFlag{"--trace-block-size", c.TraceBlockSize != nil, onlyTraces},
		ineffectiveFlag{"--trace-shared-prefix-ratio", c.TraceSharedPrefixRatio != nil, onlyTraces},
		ineffectiveFlag{"--trace-num-prefix-groups", c.TraceNumPrefixGroups != nil, onlyTraces},
		ineffectiveFlag{"--execution-model", c.ExecutionModel != nil, onlyTraces})
}
