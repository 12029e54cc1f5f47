package scenario

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/planner"
)

// routerKnobs are the numbers of kv_router with their default domains (spec
// sweeps-and-schema 2.4).
var routerKnobs = []struct {
	key string
	def []string
}{
	{"overlap_score_credit", []string{"0", "0.5", "1"}},
	{"prefill_load_scale", []string{"0", "0.25", "0.5", "1", "2", "4", "8", "16", "32"}},
	{"temperature", []string{"0", "0.2", "0.5", "1"}},
}

// router decides the placement. An absent section is no search: round_robin.
func (r *recommender) router(n *node) []decision {
	if n == nil {
		return nil
	}
	m := r.f.mapping(n, "a mapping", []string{"policy", "prefill_load_model", "overlap_score_credit", "prefill_load_scale", "temperature"})
	for _, v := range m.items {
		if v.kind == nullKind {
			r.f.badType(v, "null is not allowed: leave the key out")
		}
	}
	var d decision
	kv := false
	for _, policy := range r.domain(m.get("policy"), decimalRange, routerModes...) {
		at := emptyMap(n.line, "router").with("policy", policy.placed("router.policy"))
		o := option{set: []assign{{path: "router", v: at}}}
		if policy.text == "kv_router" {
			kv = true
			o.then = r.kvKnobs(m)
		}
		d.options = append(d.options, o)
	}
	for _, key := range m.keys {
		if !kv && key != "policy" {
			r.f.badType(m.get(key), key+" belongs to policy kv_router")
		}
	}
	return []decision{d}
}

func (r *recommender) kvKnobs(m mapping) []decision {
	model := m.sub("prefill_load_model", "a mapping", []string{"type"})
	models := []string{"none", "ais"}
	if model.get("type") == nil && !r.priced() {
		r.notice("router.prefill_load_model ais is left out: no hardware table knows the model")
		models = models[:1]
	}
	out := []decision{values("router.prefill_load_model.type", r.domain(model.get("type"), decimalRange, models...))}
	for _, k := range routerKnobs {
		out = append(out, values("router."+k.key, r.domain(m.get(k.key), decimalRange, k.def...)))
	}
	return out
}

// priced reports whether the hardware tables know the document's model, for the
// first of its systems and backends; true where nobody can tell.
func (r *recommender) priced() bool {
	if r.o.Experts == nil {
		return true
	}
	e := mapping{r.root.get("engine"), &faults{}}
	backend, system := "vllm", ""
	if v := e.get("backend"); v != nil {
		backend = v.first()
	}
	if v := e.get("hardware"); v != nil && v.text != "auto" {
		system = v.first()
	} else {
		system = r.hardware.first()
	}
	_, err := r.o.Experts(shape{replicas: 1, tensor: 1, attentionData: 1}.request(e, "aggregated", backend, system))
	return err == nil
}

// first is the first value of a domain as text, "" if there is none.
func (n *node) first() string {
	if c := n.get("choices"); c != nil && len(c.items) > 0 {
		n = c.items[0]
	}
	if n == nil {
		return ""
	}
	return n.text
}

// preset is a named set of values of the Planner section.
type preset struct {
	name   string
	values []string // [key of its group], "" leaves the key out
}

// presetGroup is one group of the Planner section (spec sweeps-and-schema 2.5).
type presetGroup struct {
	name    string
	keys    []string
	presets []preset
	knobs   [][]string // [key], of the independent knobs that preset false opens
}

var presetGroups = []presetGroup{
	{"scaling_policy",
		[]string{"enable_throughput_scaling", "enable_load_scaling", "throughput_adjustment_interval_seconds", "load_adjustment_interval_seconds"},
		[]preset{{"disabled", []string{"false", "false", "", ""}},
			{"throughput_180_5", []string{"true", "false", "180", "5"}}, {"throughput_600_5", []string{"true", "false", "600", "5"}},
			{"load_180_5", []string{"false", "true", "180", "5"}}, {"load_180_10", []string{"false", "true", "180", "10"}},
			{"hybrid_180_5", []string{"true", "true", "180", "5"}}, {"hybrid_600_5", []string{"true", "true", "600", "5"}}},
		[][]string{{"false", "true"}, {"false", "true"}, {"180", "600"}, {"5", "10"}}},
	{"fpm_sampling", []string{"max_num_fpm_samples", "fpm_sample_bucket_size"},
		[]preset{{"small", []string{"32", "4"}}, {"default", []string{"64", "16"}}, {"large", []string{"128", "16"}}, {"fine", []string{"128", "64"}}},
		[][]string{{"32", "64", "128"}, {"4", "16", "64"}}},
	{"load_sensitivity", []string{"load_scaling_down_sensitivity", "load_min_observations"},
		[]preset{{"aggressive", []string{"70", "3"}}, {"default", []string{"80", "5"}}, {"conservative", []string{"90", "8"}}},
		[][]string{{"70", "80", "90"}, {"3", "5", "8"}}},
	{"load_predictor",
		[]string{"load_predictor", "load_predictor_log1p", "prophet_window_size", "kalman_q_level", "kalman_q_trend", "kalman_r", "kalman_min_points"},
		[]preset{{"constant_last", []string{"constant", "", "", "", "", "", ""}},
			{"arima_raw", []string{"arima", "false", "", "", "", "", ""}}, {"arima_log1p", []string{"arima", "true", "", "", "", "", ""}},
			{"prophet_w20_raw", []string{"prophet", "false", "20", "", "", "", ""}}, {"prophet_w20_log1p", []string{"prophet", "true", "20", "", "", "", ""}},
			{"prophet_w50_raw", []string{"prophet", "false", "50", "", "", "", ""}}, {"prophet_w50_log1p", []string{"prophet", "true", "50", "", "", "", ""}},
			{"kalman_default_raw", []string{"kalman", "false", "", "1", "0.1", "10", "5"}}, {"kalman_default_log1p", []string{"kalman", "true", "", "1", "0.1", "10", "5"}},
			{"kalman_reactive_raw", []string{"kalman", "false", "", "10", "1", "5", "3"}}, {"kalman_reactive_log1p", []string{"kalman", "true", "", "10", "1", "5", "3"}}},
		[][]string{{"constant", "arima", "prophet", "kalman"}, {"false", "true"}, {"20", "50"}, {"1", "10"}, {"0.1", "1"}, {"5", "10"}, {"3", "5"}}},
}

// knobName is the name of a group's key as an independent knob.
func knobName(group, key string) string {
	if group == "load_predictor" && key == "load_predictor" {
		return "type"
	}
	return key
}

// set is the assignments of one preset.
func (g *presetGroup) set(values []string) []assign {
	var out []assign
	for i, text := range values {
		if text != "" {
			path := "planner." + g.keys[i]
			out = append(out, assign{path: path, v: literal(text).placed(path)})
		}
	}
	return out
}

// planner decides the Planner. An absent section is no search: disabled.
func (r *recommender) planner(n *node) []decision {
	if n == nil {
		return nil
	}
	keys := []string{"policy"}
	for _, g := range presetGroups {
		keys = append(keys, g.name)
	}
	for _, k := range predictPlannerKeys {
		keys = append(keys, k[0])
	}
	m := r.f.mapping(n, "a mapping", keys)
	base := emptyMap(n.line, "planner")
	var free []decision
	for i, key := range m.keys {
		v := m.items[i]
		switch {
		case isGroup(key) && v.kind == mapKind && !v.isDomain():
		case v.isDomain():
			free = append(free, values("planner."+key, r.domain(v, floatRange)))
		default:
			base.put(key, v)
		}
	}
	if base.get("target") == nil {
		base.put("target", &node{kind: stringKind, text: r.plannerTarget(), line: n.line, path: "planner.target"})
	}
	if m.get("policy") != nil { // a section as predict takes it
		return append([]decision{one(assign{"planner", base, true})}, append(r.groups(m, presetGroups, false), free...)...)
	}
	policies := r.policies(m)
	groups := append(r.groups(m, presetGroups[1:3], true), free...)
	var d decision
	for _, o := range policies {
		if isDisabled(o) {
			off := emptyMap(n.line, "planner").with("policy", literal("disabled").placed("planner.policy"))
			if !slices.ContainsFunc(d.options, isDisabled) {
				d.options = append(d.options, option{set: []assign{{path: "planner", v: off}}})
			}
			continue
		}
		on := base.with("policy", literal("enabled").placed("planner.policy"))
		predictors := r.predictorsFor(m, o)
		o.set = append([]assign{{"planner", on, true}}, o.set...)
		o.then = append(slices.Clone(groups), predictors...)
		d.options = append(d.options, o)
	}
	return []decision{d}
}

func isGroup(key string) bool {
	return slices.ContainsFunc(presetGroups, func(g presetGroup) bool { return g.name == key })
}

// plannerTarget follows the target of the search.
func (r *recommender) plannerTarget() string {
	switch r.out.Goal.Target {
	case "ttft", "e2e_latency":
		return "latency"
	case "throughput", "throughput_per_gpu", "throughput_per_user", "pareto":
		return "throughput"
	}
	return "sla"
}

// value is what an option writes to a key of planner.
func (o *option) value(key string) string {
	for _, a := range o.set {
		if a.path == "planner."+key {
			return a.v.text
		}
		if a.path == "planner" {
			if v := a.v.get(key); v != nil {
				return v.text
			}
		}
	}
	return ""
}

// isDisabled reports a policy without any scaling.
func isDisabled(o option) bool {
	return o.value("policy") == "disabled" || o.value("policy") == "" && o.value("enable_throughput_scaling") != "true" && o.value("enable_load_scaling") != "true"
}

// policies lists the scaling policies. Those with throughput scaling need target sla
// and both bounds: without, they are dropped, or refused if the user listed them.
func (r *recommender) policies(m mapping) []option {
	g := presetGroups[0]
	options, listed := r.group(m, &g)
	target := textAt(m.node, "target", r.plannerTarget())
	if target == "sla" && r.out.SLA.TTFTMs > 0 && r.out.SLA.ITLMs > 0 {
		return options
	}
	var out []option
	for _, o := range options {
		switch {
		case o.value("enable_throughput_scaling") != "true":
			out = append(out, o)
		case listed:
			r.f.brokenAt(m.node, g.name, "throughput scaling needs target sla, and evaluation.sla.ttft_ms and itl_ms")
			return nil
		}
	}
	return out
}

// groups are the decisions of some groups; all says that an absent one is its
// default presets.
func (r *recommender) groups(m mapping, groups []presetGroup, all bool) []decision {
	var out []decision
	for i := range groups {
		v := m.get(groups[i].name)
		if v == nil && !all || v != nil && v.kind != mapKind {
			continue
		}
		options, _ := r.group(m, &groups[i])
		out = append(out, decision{options: options})
	}
	return out
}

// group lists the options of one group; listed says that the user named them.
func (r *recommender) group(m mapping, g *presetGroup) (options []option, listed bool) {
	names := []string{"preset"}
	for _, key := range g.keys {
		names = append(names, knobName(g.name, key))
	}
	at := m.sub(g.name, "a mapping", names)
	p := at.get("preset")
	knobs := len(at.keys) > 0 && p == nil || p != nil && (p.kind == boolKind && p.text == "false" || p.empty()) || m.get(g.name).empty()
	switch {
	case knobs:
		return r.knobs(at, g), false
	case p == nil || p.kind == stringKind && p.text == "default":
		for _, s := range g.presets {
			options = append(options, option{set: g.set(s.values)})
		}
		return options, false
	case p.kind != listKind || len(p.items) == 0:
		r.f.badType(p, "preset is default, false, or a non-empty list of names or complete mappings")
		return nil, true
	}
	for _, v := range p.items {
		if v.kind == mapKind {
			options = append(options, option{set: r.complete(v, g)})
			continue
		}
		i := slices.IndexFunc(g.presets, func(s preset) bool { return s.name == v.text })
		if i < 0 {
			var known []string
			for _, s := range g.presets {
				known = append(known, s.name)
			}
			r.f.badType(v, "unknown preset `"+v.textOf()+"`, expected "+oneOf(known))
			continue
		}
		options = append(options, option{set: g.set(g.presets[i].values)})
	}
	return options, true
}

// complete reads a preset written as a mapping.
func (r *recommender) complete(n *node, g *presetGroup) []assign {
	var names []string
	for _, key := range g.keys {
		names = append(names, knobName(g.name, key))
	}
	m := r.f.mapping(n, "a mapping", names)
	var out []assign
	for i, key := range g.keys {
		if v := m.get(names[i]); v != nil && v.kind != nullKind {
			path := "planner." + key
			out = append(out, assign{path: path, v: v.placed(path)})
		}
	}
	return out
}

// knobs lists the product of a group's independent knobs, the last one fastest.
func (r *recommender) knobs(at mapping, g *presetGroup) []option {
	out := []option{{}}
	for i, key := range g.keys {
		path := "planner." + key
		vs := r.domain(at.get(knobName(g.name, key)), floatRange, g.knobs[i]...)
		next := make([]option, 0, len(out)*len(vs))
		for _, o := range out {
			for _, v := range vs {
				next = append(next, option{set: append(slices.Clone(o.set), assign{path: path, v: v.placed(path)})})
			}
		}
		if out = next; len(out) > maxVariants {
			r.f.badType(at.node, fmt.Sprintf("more than %d combinations", maxVariants))
			return nil
		}
	}
	return out
}

// predictorsFor decides the load predictor of one policy. Several candidates are
// ranked beforehand on the trace, once per throughput interval (spec
// sweeps-and-schema 2.5).
func (r *recommender) predictorsFor(m mapping, policy option) []decision {
	g := presetGroups[3]
	if v := m.get(g.name); v != nil && v.kind != mapKind {
		return nil
	}
	options, _ := r.group(m, &g)
	if len(options) < 2 || !r.f.ok() {
		return []decision{{options: options}}
	}
	if policy.value("enable_throughput_scaling") != "true" {
		r.notice("planner.load_predictor: the first candidate is used where throughput scaling is off (no_throughput_scaling_candidate)")
		return []decision{{options: options[:1]}}
	}
	seconds, err := strconv.Atoi(orText(policy.value("throughput_adjustment_interval_seconds"), "180"))
	if err != nil || seconds <= 0 {
		return []decision{{options: options[:1]}}
	}
	best, ok := r.chosen[seconds]
	if !ok {
		best = r.rankPredictors(seconds, options)
		if r.chosen == nil {
			r.chosen = map[int]int{}
		}
		r.chosen[seconds] = best
	}
	return []decision{{options: options[best : best+1]}}
}

// rankPredictors returns the best of the options for an interval.
func (r *recommender) rankPredictors(seconds int, options []option) int {
	t := r.traceOf()
	if t == nil || r.o.BestPredictor == nil {
		r.notice("planner.load_predictor: the first candidate is used (static_workload_configured_fallback)")
		return 0
	}
	var candidates []planner.PredictorConfig
	for i := range options {
		candidates = append(candidates, predictorConfig(&options[i]))
	}
	best, remark, err := r.o.BestPredictor(t, seconds, candidates)
	if err != nil {
		r.f.list = append(r.f.list, &Fault{Origin: r.f.origin, Path: "planner.load_predictor", Msg: err.Error()})
		return 0
	}
	if remark != "" {
		r.notice("planner.load_predictor: %s", remark)
	}
	return best
}

// predictorConfig is the Planner's configuration of a predictor option.
func predictorConfig(o *option) planner.PredictorConfig {
	c := planner.DefaultConfig().Predictor
	number := func(key string, def float64) float64 {
		if v, err := strconv.ParseFloat(o.value(key), 64); err == nil {
			return v
		}
		return def
	}
	c.Kind = orText(o.value("load_predictor"), c.Kind)
	c.Log1p = o.value("load_predictor_log1p") == "true"
	c.ProphetWindow = int(number("prophet_window_size", float64(c.ProphetWindow)))
	c.KalmanQLevel, c.KalmanQTrend = number("kalman_q_level", c.KalmanQLevel), number("kalman_q_trend", c.KalmanQTrend)
	c.KalmanR, c.KalmanMinPoints = number("kalman_r", c.KalmanR), int(number("kalman_min_points", float64(c.KalmanMinPoints)))
	return c
}

// traceOf reads the trace that the document names, if the Planner can look at it;
// nil for other loads and with faults, which a candidate's own reading tells.
func (r *recommender) traceOf() *Trace {
	source := r.root.get("traffic").get("source")
	if source.get("type") == nil || source.get("type").text != "trace" {
		return nil
	}
	p := &predictor{f: &faults{origin: r.f.origin}, dir: r.out.dir, stack: r.o.Stack}
	w := p.trace(mapping{emptyMap(0, "traffic").with("source", source).with("load.type", literal("trace_timestamps")), p.f})
	if w == nil || !p.f.ok() || !w.scalable() || math.IsNaN(w.MaxSimTimeMs) {
		return nil
	}
	return w.Trace
}

// isRelation reports a fault of values that are good alone but do not fit together.
func isRelation(f *Fault) bool {
	return f.relation || f.Msg == trtllmRefusal || strings.HasPrefix(f.Msg, "replay invariant violated") ||
		strings.HasPrefix(f.Msg, "offline disaggregated replay requires matching")
}
