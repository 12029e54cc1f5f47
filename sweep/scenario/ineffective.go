package scenario

import "github.com/dynosweep/dynosweep/sim/workload/trace"

// Idle tells which flags of a command line that resolved to run change nothing in
// it, and why, one sentence each.
func (c *ReplayFlags) Idle(run *Run) []string {
	out := idle(c.idleLoad(run.Workload))
	mode := run.Router.Mode
	return append(out, idle([]idleFlag{
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

// idleFlag is a flag that may change nothing.
type idleFlag struct {
	flag string
	idle bool
	why  string
}

func idle(flags []idleFlag) []string {
	var out []string
	for _, f := range flags {
		if f.idle {
			out = append(out, f.flag+" changes nothing here: "+f.why)
		}
	}
	return out
}

// idleLoad lists the flags of the load.
func (c *ReplayFlags) idleLoad(w *Workload) []idleFlag {
	closed := c.ReplayConcurrency != nil
	out := []idleFlag{{"--arrival-speedup-ratio", c.ArrivalSpeedupRatio != nil && closed, noArrivals}}
	if w.Trace != nil {
		format := w.Trace.Load.Format
		plain := format == trace.Mooncake || format == trace.MooncakeDelta || format == trace.AppliedCompute
		out = append(out, idleFlag{"--arrival-seed", c.ArrivalSeed != nil, "nothing of a trace is drawn"},
			idleFlag{"--execution-model", c.ExecutionModel != nil && plain, "only agentic traces have it"})
		shares, groups := w.Trace.Load.SharedPrefixRatio > 0, w.Trace.Load.PrefixGroups > 0
		if format != trace.AppliedCompute {
			const why = "only trace format applied_compute_agentic reads it"
			return append(out, idleFlag{"--trace-shared-prefix-ratio", c.TraceSharedPrefixRatio != nil, why},
				idleFlag{"--trace-num-prefix-groups", c.TraceNumPrefixGroups != nil, why})
		}
		return append(out, idleFlag{"--trace-shared-prefix-ratio", shares && !groups, "it needs --trace-num-prefix-groups"},
			idleFlag{"--trace-num-prefix-groups", groups && !shares, "it needs --trace-shared-prefix-ratio"})
	}
	s := w.Synthetic
	return append(out, idleFlag{"--arrival-seed", c.ArrivalSeed != nil && !s.Drawn(), "only --request-rate draws arrivals"},
		idleFlag{"--inter-turn-delay-ms", s.InterTurnDelayMs > 0 && s.TurnsPerSession == 1, "it needs --turns-per-session"},
		idleFlag{"--shared-prefix-ratio", s.SharedPrefixRatio > 0 && s.PrefixGroups == 0, "it needs --num-prefix-groups"},
		idleFlag{"--num-prefix-groups", s.PrefixGroups > 0 && s.SharedPrefixRatio == 0, "it needs --shared-prefix-ratio"},
		idleFlag{"--trace-format", c.TraceFormat != nil, onlyTraces}, idleFlag{"--trace-block-size", c.TraceBlockSize != nil, onlyTraces},
		idleFlag{"--trace-shared-prefix-ratio", c.TraceSharedPrefixRatio != nil, onlyTraces},
		idleFlag{"--trace-num-prefix-groups", c.TraceNumPrefixGroups != nil, onlyTraces},
		idleFlag{"--execution-model", c.ExecutionModel != nil, onlyTraces})
}
