package planner

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/internal/document"
)

// remarkTargets notes latency targets that the optimization target does not read.
func (w *draft) remarkTargets() {
	if w.Target == SLA {
		return
	}
	def := DefaultConfig()
	for _, ms := range []struct {
		key       string
		got, want float64
	}{{"itl_ms", w.ITLMs, def.ITLMs}, {"ttft_ms", w.TTFTMs, def.TTFTMs}} {
		if ms.got != ms.want {
			w.notices = append(w.notices, ms.key+": is read with optimization_target sla only")
		}
	}
}

// check resolves what depends on several keys and returns the broken rules
// (spec planner 2.3, 2.4).
func (w *draft) check() []fault {
	faults := w.checkRoles()
	faults = append(faults, w.checkSurroundings()...)
	if w.Target == Load {
		faults = append(faults, w.checkThresholds()...)
	}
	faults = append(faults, w.checkLoops()...)
	w.Budget.MinPrefill, w.Budget.MinDecode = w.minEndpoint, w.minEndpoint
	if w.prefillMin != nil {
		w.Budget.MinPrefill = *w.prefillMin
	}
	if w.decodeMin != nil {
		w.Budget.MinDecode = *w.decodeMin
	}
	w.Recorder.ReportHours = 0
	if w.reportHours != nil {
		w.Recorder.ReportHours = *w.reportHours
	}
	return faults
}

func (w *draft) checkRoles() (faults []fault) {
	if w.Mode == singlePrefill || w.Mode == singleDecode {
		faults = append(faults, fault{"mode", fmt.Sprintf("must be agg or disagg in a replay, got %s", w.Mode)})
	}
	const useMin = "is refused in mode agg, which has one pool: use min_endpoint"
	if w.prefillMin != nil {
		switch w.Mode {
		case Agg:
			faults = append(faults, fault{"prefill_min_endpoint", useMin})
		case singleDecode:
			faults = append(faults, fault{"prefill_min_endpoint", "is refused in mode decode"})
		}
	}
	if w.decodeMin != nil {
		switch w.Mode {
		case Agg:
			faults = append(faults, fault{"decode_min_endpoint", useMin})
		case singlePrefill:
			faults = append(faults, fault{"decode_min_endpoint", "is refused in mode prefill"})
		}
	}
	if _, square := w.Regression.gridSide(); !square {
		faults = append(faults, fault{"fpm_sample_bucket_size",
			fmt.Sprintf("must be a perfect square, got %d", w.Regression.BucketSize)})
	}
	if w.Target == SLA && w.Regression.MinObservations > w.Regression.MaxSamples {
		faults = append(faults, fault{"load_min_observations", fmt.Sprintf(
			"must be <= max_num_fpm_samples, got %d > %d", w.Regression.MinObservations, w.Regression.MaxSamples)})
	}
	return faults
}

func (w *draft) checkSurroundings() (faults []fault) {
	if w.powerAware {
		const path = "enable_power_awareness"
		if w.powerLimit == nil {
			faults = append(faults, fault{path, "needs total_gpu_power_limit"})
		}
		if w.environment != "kubernetes" {
			faults = append(faults, fault{path, "needs environment kubernetes, got " + w.environment})
		}
		if w.Mode == Agg {
			faults = append(faults, fault{path, "is refused in mode agg"})
		}
	}
	if w.environment == "global-planner" && w.globalNamespace == "" {
		faults = append(faults, fault{"global_planner_namespace", "is required with environment global-planner"})
	}
	return append(faults, w.checkNativeModel()...)
}

// checkNativeModel refuses ais_perf_model, naming the role that it lacks first.
func (w *draft) checkNativeModel() (faults []fault) {
	if w.nativeModel == nil {
		return nil
	}
	roles := w.nativeModel.Get("roles")
	needed := []string{"prefill", "decode"}
	if w.Mode == Agg {
		needed = []string{"aggregated"}
	}
	for _, role := range needed {
		if v := roles.Get(role); v == nil || v.Kind == document.Null {
			faults = append(faults, fault{"ais_perf_model.roles." + role, fmt.Sprintf("is required in mode %s", w.Mode)})
		}
	}
	return append(faults, fault{"ais_perf_model", "native performance models are not available here: " +
		"remove it, and the Planner fits its regression to forward-pass metrics"})
}

func (w *draft) checkThresholds() (faults []fault) {
	t := &w.Thresholds
	const up, down = "prefill_scale_up_queue_tokens", "prefill_scale_down_queue_tokens"
	if w.Mode != Agg && w.Mode != singleDecode {
		faults = append(faults, missing(w.queueUp, up)...)
		faults = append(faults, missing(w.queueDown, down)...)
		if w.queueUp != nil && w.queueDown != nil {
			t.PrefillUpTokens, t.PrefillDownTokens = *w.queueUp, *w.queueDown
			if *w.queueUp <= *w.queueDown {
				faults = append(faults, fault{up, fmt.Sprintf("must be > %s, got %d <= %d", down, *w.queueUp, *w.queueDown)})
			}
		}
	}
	const rateUp, rateDown = "decode_scale_up_kv_rate", "decode_scale_down_kv_rate"
	if w.Mode != singlePrefill {
		faults = append(faults, missing(w.rateUp, rateUp)...)
		faults = append(faults, missing(w.rateDown, rateDown)...)
		if w.rateUp != nil && w.rateDown != nil {
			t.DecodeUpRate, t.DecodeDownRate = *w.rateUp, *w.rateDown
			if *w.rateUp <= *w.rateDown {
				faults = append(faults, fault{rateUp, fmt.Sprintf("must be > %s, got %v <= %v", rateDown, *w.rateUp, *w.rateDown)})
			}
		}
	}
	return faults
}

func missing[T any](v *T, path string) []fault {
	if v != nil {
		return nil
	}
	return []fault{{path, "is required with optimization_target load"}}
}

// checkLoops settles which loops run and how often ticks come.
func (w *draft) checkLoops() (faults []fault) {
	asked := w.ThroughputScaling && w.Target == SLA
	if w.Target != SLA {
		w.ThroughputScaling, w.LoadScaling = false, true
	}
	if !w.ThroughputScaling && !w.LoadScaling {
		faults = append(faults, fault{"enable_throughput_scaling", "or enable_load_scaling must be true"})
	}
	if w.ThroughputScaling && w.ThroughputIntervalS <= 0 {
		return append(faults, fault{"throughput_adjustment_interval_seconds",
			fmt.Sprintf("must be > 0, got %d", w.ThroughputIntervalS)})
	}
	if w.scaleIntervalS != nil {
		w.ScaleIntervalS = *w.scaleIntervalS
	} else {
		w.ScaleIntervalS = scaleInterval(w.LoadIntervalS, w.ThroughputIntervalS, asked)
	}
	const path = "scheduling.scale_interval_seconds"
	if !divides(w.ScaleIntervalS, float64(w.LoadIntervalS)) {
		faults = append(faults, fault{path, fmt.Sprintf("must divide load_adjustment_interval_seconds, got %v and %d",
			w.ScaleIntervalS, w.LoadIntervalS)})
	}
	if w.ThroughputScaling && !divides(w.ScaleIntervalS, float64(w.ThroughputIntervalS)) {
		faults = append(faults, fault{path, fmt.Sprintf("must divide throughput_adjustment_interval_seconds, got %v and %d",
			w.ScaleIntervalS, w.ThroughputIntervalS)})
	}
	if w.ThroughputScaling && w.LoadScaling && w.LoadIntervalS >= w.ThroughputIntervalS {
		faults = append(faults, fault{"load_adjustment_interval_seconds", fmt.Sprintf(
			"must be shorter than throughput_adjustment_interval_seconds, got %d >= %d", w.LoadIntervalS, w.ThroughputIntervalS)})
	}
	return faults
}

// Validate checks a Config that did not come from a Document.
func (c Config) Validate() error {
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, errors.New(path+": "+fmt.Sprintf(format, args...)))
	}
	if c.Mode != Agg && c.Mode != Disagg {
		bad("mode", "must be agg or disagg, got %q", c.Mode)
	}
	if !c.LoadScaling && !c.ThroughputScaling {
		bad("enable_load_scaling", "or enable_throughput_scaling must be true")
	}
	if c.LoadIntervalS <= 0 {
		bad("load_adjustment_interval_seconds", "must be > 0, got %d", c.LoadIntervalS)
	}
	if !(c.ScaleIntervalS > 0) || math.IsInf(c.ScaleIntervalS, 0) {
		bad("scheduling.scale_interval_seconds", "must be > 0, got %v", c.ScaleIntervalS)
	}
	if c.ThroughputScaling && (c.Target != SLA || c.ThroughputIntervalS <= 0) {
		bad("throughput_adjustment_interval_seconds", "must be > 0 and needs optimization_target sla, got %d", c.ThroughputIntervalS)
	}
	if _, square := c.Regression.gridSide(); !square || c.Regression.BucketSize <= 0 {
		bad("fpm_sample_bucket_size", "must be a perfect square, got %d", c.Regression.BucketSize)
	}
	if c.Regression.MaxSamples <= 0 || c.Target == SLA && c.Regression.MinObservations > c.Regression.MaxSamples {
		bad("max_num_fpm_samples", "must be > 0 and >= load_min_observations, got %d", c.Regression.MaxSamples)
	}
	return errors.Join(errs...)
}
