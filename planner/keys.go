package planner

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/internal/spelling"
	"github.com/dynosweep/dynosweep/sim"
)

// draft is a Config on its way: beside it stand the keys whose absence matters and
// those that only take part in checks.
type draft struct {
	Config
	minEndpoint                  int
	prefillMin, decodeMin        *int
	queueUp, queueDown           *int
	rateUp, rateDown             *float64
	scaleIntervalS               *float64
	environment, globalNamespace string
	powerAware                   bool
	powerLimit                   *int
	reportHours                  *float64
	nativeModel                  *document.Node
	notices                      []string
}

func newDraft() *draft {
	c := DefaultConfig()
	hours := c.Recorder.ReportHours
	return &draft{Config: c, minEndpoint: 1, environment: "kubernetes", reportHours: &hours}
}

// key is one key of the document: how its value enters the draft, and whether it
// does anything in a replay.
type key struct {
	alias string
	inert bool // accepted, checked, without effect on any figure
	set   func(d *draft, v *document.Node) error
}

// bound restricts a number.
type bound[T int | float64] func(T) error

func over[T int | float64](low T) bound[T] {
	return func(v T) error {
		if v <= low {
			return fmt.Errorf("must be > %v, got %v", low, v)
		}
		return nil
	}
}

func atLeast[T int | float64](low T) bound[T] {
	return func(v T) error {
		if v < low {
			return fmt.Errorf("must be >= %v, got %v", low, v)
		}
		return nil
	}
}

func atMost[T int | float64](high T) bound[T] {
	return func(v T) error {
		if v > high {
			return fmt.Errorf("must be <= %v, got %v", high, v)
		}
		return nil
	}
}

func inside[T int | float64](low, high T) bound[T] {
	return func(v T) error {
		if v < low || v > high {
			return fmt.Errorf("must be in %v..%v, got %v", low, high, v)
		}
		return nil
	}
}

func integer(at func(*draft) *int, bounds ...bound[int]) key {
	return key{set: func(d *draft, v *document.Node) error {
		n, err := whole(v)
		if err != nil {
			return err
		}
		*at(d) = n
		return inBounds(n, bounds)
	}}
}

func float(at func(*draft) *float64, bounds ...bound[float64]) key {
	return key{set: func(d *draft, v *document.Node) error {
		f, err := number(v)
		if err != nil {
			return err
		}
		*at(d) = f
		return inBounds(f, bounds)
	}}
}

func inBounds[T int | float64](v T, bounds []bound[T]) error {
	for _, b := range bounds {
		if err := b(v); err != nil {
			return err
		}
	}
	return nil
}

// optional makes null the value nil and everything else what inner makes of it.
func optional[T any](at func(*draft) **T, inner func(func(*draft) *T) key) key {
	return key{set: func(d *draft, v *document.Node) error {
		if v.Kind == document.Null {
			*at(d) = nil
			return nil
		}
		value := new(T)
		*at(d) = value
		return inner(func(*draft) *T { return value }).set(d, v)
	}}
}

func boundedInt(bounds ...bound[int]) func(func(*draft) *int) key {
	return func(at func(*draft) *int) key { return integer(at, bounds...) }
}

func boundedFloat(bounds ...bound[float64]) func(func(*draft) *float64) key {
	return func(at func(*draft) *float64) key { return float(at, bounds...) }
}

func boolean(at func(*draft) *bool) key {
	return key{set: func(d *draft, v *document.Node) error {
		if v.Kind != document.Bool {
			return fmt.Errorf("must be true or false, got %s", kindOf(v))
		}
		*at(d) = v.Text == "true"
		return nil
	}}
}

func text[T ~string](at func(*draft) *T) key {
	return key{set: func(d *draft, v *document.Node) error {
		if v.Kind != document.String {
			return fmt.Errorf("must be a string, got %s", kindOf(v))
		}
		*at(d) = T(v.Text)
		return nil
	}}
}

func choice[T ~string](at func(*draft) *T, names ...T) key {
	return key{set: func(d *draft, v *document.Node) error {
		if v.Kind != document.String {
			return fmt.Errorf("must be one of %v, got %s", names, kindOf(v))
		}
		if !slices.Contains(names, T(v.Text)) {
			return fmt.Errorf("must be one of %v, got %s%s", names, v.Text, nearChoice(v.Text, names))
		}
		*at(d) = T(v.Text)
		return nil
	}}
}

func object(at func(*draft) **document.Node) key {
	return key{set: func(d *draft, v *document.Node) error {
		switch v.Kind {
		case document.Null:
			return nil
		case document.Map:
		default:
			return fmt.Errorf("must be an object, got %s", kindOf(v))
		}
		*at(d) = v
		return nil
	}}
}

func (k key) also(alias string) key { k.alias = alias; return k }

func (k key) quiet() key { k.inert = true; return k }

// orNull accepts null as "not written".
func (k key) orNull() key {
	set := k.set
	k.set = func(d *draft, v *document.Node) error {
		if v.Kind == document.Null {
			return nil
		}
		return set(d, v)
	}
	return k
}

// Values of inert keys are checked and dropped.
func anyInt(*draft) *int               { return new(int) }
func anyFloat(*draft) *float64         { return new(float64) }
func anyBool(*draft) *bool             { return new(bool) }
func anyText(*draft) *string           { return new(string) }
func anyObject(*draft) **document.Node { return new(*document.Node) }

// The single modes are read, so that a check can explain them.
const singlePrefill, singleDecode Mode = "prefill", "decode"

// keys are the top-level keys (spec planner 2.1, 2.2).
var keys = map[string]key{
	"mode":                      choice(func(d *draft) *Mode { return &d.Mode }, Disagg, Agg, singlePrefill, singleDecode),
	"optimization_target":       choice(func(d *draft) *Target { return &d.Target }, Throughput, Latency, Load, SLA),
	"enable_throughput_scaling": boolean(func(d *draft) *bool { return &d.ThroughputScaling }),
	"enable_load_scaling":       boolean(func(d *draft) *bool { return &d.LoadScaling }),
	"throughput_adjustment_interval_seconds": integer(func(d *draft) *int { return &d.ThroughputIntervalS }).
		also("throughput_adjustment_interval"),
	"load_adjustment_interval_seconds": integer(func(d *draft) *int { return &d.LoadIntervalS }, over(0)).
		also("load_adjustment_interval"),
	"ttft_ms":           float(func(d *draft) *float64 { return &d.TTFTMs }, over(0.0)).also("ttft"),
	"itl_ms":            float(func(d *draft) *float64 { return &d.ITLMs }).also("itl"),
	"speculative_nextn": integer(func(d *draft) *int { return &d.NextN }, atLeast(0)),
	"hysteresis_ticks":  integer(func(d *draft) *int { return &d.HysteresisTicks }, atLeast(0)),
	"advisory":          boolean(anyBool).quiet(),
	"ais_perf_model":    object(func(d *draft) **document.Node { return &d.nativeModel }),

	"max_throughput_scaling_replicas": integer(func(d *draft) *int { return &d.Budget.MaxReplicaStep }, over(0)),
	"max_gpu_budget":                  integer(func(d *draft) *int { return &d.Budget.MaxGPUs }),
	"min_gpu_budget":                  integer(func(d *draft) *int { return &d.Budget.MinGPUs }, atMost(sim.MaxWorkers)),
	"min_endpoint":                    integer(func(d *draft) *int { return &d.minEndpoint }, atLeast(0), atMost(sim.MaxWorkers)),
	"prefill_min_endpoint":            optional(func(d *draft) **int { return &d.prefillMin }, boundedInt(atLeast(1), atMost(sim.MaxWorkers))),
	"decode_min_endpoint":             optional(func(d *draft) **int { return &d.decodeMin }, boundedInt(atLeast(1), atMost(sim.MaxWorkers))),

	"prefill_scale_up_queue_tokens":   optional(func(d *draft) **int { return &d.queueUp }, boundedInt(atLeast(0))),
	"prefill_scale_down_queue_tokens": optional(func(d *draft) **int { return &d.queueDown }, boundedInt(atLeast(0))),
	"decode_scale_up_kv_rate":         optional(func(d *draft) **float64 { return &d.rateUp }, boundedFloat(inside(0.0, 100))),
	"decode_scale_down_kv_rate":       optional(func(d *draft) **float64 { return &d.rateDown }, boundedFloat(inside(0.0, 100))),

	"max_num_fpm_samples":           integer(func(d *draft) *int { return &d.Regression.MaxSamples }, over(0)),
	"fpm_sample_bucket_size":        integer(func(d *draft) *int { return &d.Regression.BucketSize }, over(0)),
	"load_min_observations":         integer(func(d *draft) *int { return &d.Regression.MinObservations }),
	"load_scaling_down_sensitivity": integer(func(d *draft) *int { return &d.Regression.DownSensitivity }, inside(0, 100)),

	"load_predictor":              choice(func(d *draft) *string { return &d.Predictor.Kind }, "constant", "arima", "prophet", "kalman"),
	"load_predictor_log1p":        boolean(func(d *draft) *bool { return &d.Predictor.Log1p }),
	"prophet_window_size":         integer(func(d *draft) *int { return &d.Predictor.ProphetWindow }, over(0)),
	"kalman_q_level":              float(func(d *draft) *float64 { return &d.Predictor.KalmanQLevel }),
	"kalman_q_trend":              float(func(d *draft) *float64 { return &d.Predictor.KalmanQTrend }),
	"kalman_r":                    float(func(d *draft) *float64 { return &d.Predictor.KalmanR }),
	"kalman_min_points":           integer(func(d *draft) *int { return &d.Predictor.KalmanMinPoints }),
	"load_predictor_warmup_trace": text(func(d *draft) *string { return &d.Predictor.WarmupTrace }).orNull(),

	"prefill_engine_num_gpu": integer(func(d *draft) *int { return &d.Recorder.PrefillEngineGPUs }, atLeast(0)).orNull(),
	"decode_engine_num_gpu":  integer(func(d *draft) *int { return &d.Recorder.DecodeEngineGPUs }, atLeast(0)).orNull(),
	"report_interval_hours":  optional(func(d *draft) **float64 { return &d.reportHours }, boundedFloat(over(0.0))),
	"live_dashboard_port":    integer(func(d *draft) *int { return &d.Recorder.DashboardPort }, inside(0, 65535)),
	"report_output_dir":      text(anyText).quiet(),
	"report_filename":        text(anyText).orNull().quiet(),
	"report_write_gzip_log":  boolean(anyBool).quiet(),

	"pre_deployment_sweeping_mode": choice(anyText, "none", "rapid", "thorough").orNull().quiet(),
	"environment": choice(func(d *draft) *string { return &d.environment },
		"kubernetes", "virtual", "global-planner").quiet(),
	"global_planner_namespace":  text(func(d *draft) *string { return &d.globalNamespace }).orNull().quiet(),
	"namespace":                 text(anyText).orNull().quiet(),
	"backend":                   choice(anyText, "vllm", "sglang", "trtllm", "mocker").quiet(),
	"log_dir":                   text(anyText).orNull().quiet(),
	"model_name":                text(anyText).orNull().quiet(),
	"profile_results_dir":       text(anyText).orNull().quiet(),
	"throughput_metrics_source": choice(anyText, "frontend", "router").quiet(),
	"control_api_port":          integer(anyInt, inside(0, 65535)).quiet(),
	"enable_power_awareness":    boolean(func(d *draft) *bool { return &d.powerAware }).quiet(),
	"total_gpu_power_limit":     optional(func(d *draft) **int { return &d.powerLimit }, boundedInt(atLeast(1))).quiet(),
	"plugin_registration":       object(anyObject).quiet(),
	"no_correction":             {inert: true, set: func(*draft, *document.Node) error { return nil }},
	"aic_perf_model": {set: func(*draft, *document.Node) error {
		return errors.New("was removed: use ais_perf_model.roles")
	}},
}

// leastScaleIntervalS keeps a run from being nothing but ticks; intervals are
// compared in whole milliseconds anyway.
const leastScaleIntervalS = 0.001

var schedulingKeys = map[string]key{
	"scale_interval_seconds":    optional(func(d *draft) **float64 { return &d.scaleIntervalS }, boundedFloat(atLeast(leastScaleIntervalS))),
	"tick_max_duration_seconds": float(anyFloat, over(0.0)).quiet(),
	"external_plugins":          {inert: true, set: noPlugins},
	"gateway":                   object(anyObject).quiet(),
}

// noPlugins refuses custom plug-ins: a replay without them would be another one.
func noPlugins(_ *draft, v *document.Node) error {
	if v.Kind == document.Null || v.Kind == document.List && len(v.Items) == 0 {
		return nil
	}
	return errors.New("custom plug-ins cannot run here: remove the list")
}

var interpolationKeys = map[string]key{
	"hf_id": text(anyText), "system": text(anyText), "backend": text(anyText),
	"isl": integer(anyInt, over(0)), "osl": integer(anyInt, over(0)),
	"sweep_max_context_length":          integer(anyInt, over(0)),
	"prefill_interpolation_granularity": integer(anyInt, over(0)),
	"decode_interpolation_granularity":  integer(anyInt, over(0)),
	"prefill_pick":                      object(anyObject), "decode_pick": object(anyObject),
}

var pickKeys = map[string]key{"tp": integer(anyInt), "pp": integer(anyInt), "dp": integer(anyInt),
	"moe_tp": integer(anyInt), "moe_ep": integer(anyInt)}

// sections are nested objects with keys of their own. A section that only
// describes a deployment is inert as a whole.
var sections = map[string]struct {
	keys  map[string]key
	inert bool
}{
	"scheduling":                     {keys: schedulingKeys},
	"aic_interpolation":              {keys: interpolationKeys, inert: true},
	"aic_interpolation.prefill_pick": {keys: pickKeys, inert: true},
	"aic_interpolation.decode_pick":  {keys: pickKeys, inert: true},
}

// decode fills d from one mapping and returns the faults of its keys.
func (d *draft) decode(n *document.Node, prefix string, known map[string]key) (faults []fault) {
	names := slices.Sorted(slices.Values(n.Keys))
	for _, name := range names {
		path, v := document.JoinPath(prefix, name), n.Get(name)
		canonical, k, ok := find(known, name)
		switch {
		case canonical != name && n.Get(canonical) != nil:
			faults = append(faults, fault{path, "is an older name of " + canonical + ", which is given too"})
			continue
		case prefix == "" && isPrometheus(name):
			d.notices = append(d.notices, path+": has no effect in a replay")
			continue
		}
		if s, nested := sections[path]; nested {
			faults = append(faults, d.section(path, v, s.keys, s.inert)...)
			continue
		}
		if !ok {
			faults = append(faults, fault{path, "unknown key" + suggestion(known, name)})
			continue
		}
		if err := k.set(d, v); err != nil {
			faults = append(faults, fault{path, err.Error()})
		} else if k.inert && !sections[prefix].inert {
			d.notices = append(d.notices, path+": has no effect in a replay")
		}
	}
	return faults
}

func (d *draft) section(path string, v *document.Node, known map[string]key, inert bool) []fault {
	switch v.Kind {
	case document.Null:
		return nil
	case document.Map:
	default:
		return []fault{{path, "must be an object, got " + kindOf(v)}}
	}
	if inert && !strings.Contains(path, ".") {
		d.notices = append(d.notices, path+": has no effect in a replay")
	}
	return d.decode(v, path, known)
}

func find(known map[string]key, name string) (string, key, bool) {
	if k, ok := known[name]; ok {
		return name, k, true
	}
	for canonical, k := range known {
		if k.alias == name {
			return canonical, k, true
		}
	}
	return name, key{}, false
}

func isPrometheus(name string) bool {
	return strings.HasPrefix(name, "metric_") && strings.Contains(name, "prometheus")
}

// suggestion is a hint at the known key that an unknown one may stand for.
func suggestion(known map[string]key, name string) string {
	if near := spelling.Likely(name, slices.Sorted(maps.Keys(known))); near != "" {
		return " (did you mean `" + near + "`?)"
	}
	return ""
}

// nearChoice is a hint at the value that a refused one may stand for.
func nearChoice[T ~string](word string, names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	if near := spelling.Nearest(word, texts); near != "" {
		return " (did you mean `" + near + "`?)"
	}
	return ""
}
