package scenario

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/router"
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
func (r *recommender) router(n *document.Node) []decision {
	if n == nil {
		return nil
	}
	m := r.f.Mapping(n, "a mapping", []string{"policy", "prefill_load_model", "overlap_score_credit", "prefill_load_scale", "temperature"})
	for _, v := range m.Items {
		if v.Kind == document.Null {
			r.f.Malformed(v, "null is not allowed: leave the key out")
		}
	}
	var d decision
	kv := false
	for _, policy := range r.domain(m.Get("policy"), decimalRange, referenceModes()...) {
		at := document.EmptyMap(n.Line, "router").With("policy", policy.At("router.policy"))
		o := option{set: []assign{{path: "router", v: at}}}
		if mode := router.FindMode(policy.Text); mode != nil && mode.Configured {
			kv = true
			o.then = r.kvKnobs(m)
		}
		d.options = append(d.options, o)
	}
	for _, key := range m.Keys {
		if !kv && key != "policy" && !(key == "prefill_load_model" && r.noLoadModel(m)) {
			r.f.Malformed(m.Get(key), key+" belongs to policy kv_router")
		}
	}
	return []decision{d}
}

// noLoadModel reports that the router section asks for no estimate of prefill load,
// which every policy can do (spec sweeps-and-schema 2.4).
func (r *recommender) noLoadModel(m document.Mapping) bool {
	model := m.Sub("prefill_load_model", "a mapping", []string{"type"})
	for _, v := range r.domain(model.Get("type"), decimalRange, "none") {
		if v.Text != "none" {
			return false
		}
	}
	return true
}

// referenceModes names the modes that a search tries where the document names none:
// those of the reference, so that the candidates are its own.
func referenceModes() (names []string) {
	for _, m := range router.Modes() {
		if m.Reference {
			names = append(names, m.Name)
		}
	}
	return names
}

func (r *recommender) kvKnobs(m document.Mapping) []decision {
	model := m.Sub("prefill_load_model", "a mapping", []string{"type"})
	models := []string{"none", "ais"}
	if model.Get("type") == nil && !r.priced() {
		r.notice("router.prefill_load_model ais is left out: no hardware table knows the model")
		models = models[:1]
	}
	out := []decision{values("router.prefill_load_model.type", r.domain(model.Get("type"), decimalRange, models...))}
	for _, k := range routerKnobs {
		out = append(out, values("router."+k.key, r.domain(m.Get(k.key), decimalRange, k.def...)))
	}
	return out
}

// priced reports whether the hardware tables know the document's model, for the
// first of its systems and backends; true where nobody can tell.
func (r *recommender) priced() bool {
	if r.o.Experts == nil {
		return true
	}
	e := document.Mapping{Node: r.root.Get("engine"), Faults: &document.Faults{}}
	backend, system := "vllm", ""
	if v := e.Get("backend"); v != nil {
		backend = firstText(v)
	}
	if v := e.Get("hardware"); v != nil && v.Text != "auto" {
		system = firstText(v)
	} else {
		system = firstText(r.hardware)
	}
	_, err := r.o.Experts(r.request(shape{replicas: 1, tensor: 1, attentionData: 1}, e, "aggregated", backend, system))
	return err == nil
}

// firstText is the first value of a domain as text, "" if there is none.
func firstText(n *document.Node) string {
	if c := n.Get("choices"); c != nil && len(c.Items) > 0 {
		n = c.Items[0]
	}
	if n == nil {
		return ""
	}
	return n.Text
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
			out = append(out, assign{path: path, v: literal(text).At(path)})
		}
	}
	return out
}

// planner decides the Planner. An absent section is no search: disabled.
func (r *recommender) planner(n *document.Node) []decision {
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
	m := r.f.Mapping(n, "a mapping", keys)
	base := document.EmptyMap(n.Line, "planner")
	var free []decision
	for i, key := range m.Keys {
		v := m.Items[i]
		switch {
		case isGroup(key) && v.Kind == document.Map && !isDomain(v):
		case isDomain(v):
			free = append(free, values("planner."+key, r.domain(v, floatRange)))
		default:
			base.Put(key, v)
		}
	}
	if base.Get("target") == nil {
		base.Put("target", &document.Node{Kind: document.String, Text: r.plannerTarget(), Line: n.Line, Path: "planner.target"})
	}
	if m.Get("policy") != nil { // a section as predict takes it
		return append([]decision{one(assign{"planner", base, true})}, append(r.groups(m, presetGroups, false), free...)...)
	}
	policies := r.policies(m)
	groups := append(r.groups(m, presetGroups[1:3], true), free...)
	var d decision
	for _, o := range policies {
		if isDisabled(o) {
			off := document.EmptyMap(n.Line, "planner").With("policy", literal("disabled").At("planner.policy"))
			if !slices.ContainsFunc(d.options, isDisabled) {
				d.options = append(d.options, option{set: []assign{{path: "planner", v: off}}})
			}
			continue
		}
		on := base.With("policy", literal("enabled").At("planner.policy"))
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
			return a.v.Text
		}
		if a.path == "planner" {
			if v := a.v.Get(key); v != nil {
				return v.Text
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
func (r *recommender) policies(m document.Mapping) []option {
	g := presetGroups[0]
	options, listed := r.group(m, &g)
	target := textAt(m.Node, "target", r.plannerTarget())
	if target == "sla" && r.out.SLA.TTFTMs > 0 && r.out.SLA.ITLMs > 0 {
		return options
	}
	const needs = "throughput scaling needs target sla, and evaluation.sla.ttft_ms and itl_ms"
	at := m.Get(g.name)
	if at == nil {
		at = m.Node
	}
	var out []option
	for _, o := range options {
		switch {
		case o.value("enable_throughput_scaling") != "true":
			out = append(out, o)
		case listed:
			r.f.Invalid(at, needs)
			return nil
		default:
			r.lost.add(at, needs)
		}
	}
	return out
}

// groups are the decisions of some groups; all says that an absent one is its
// default presets.
func (r *recommender) groups(m document.Mapping, groups []presetGroup, all bool) []decision {
	var out []decision
	for i := range groups {
		v := m.Get(groups[i].name)
		if v == nil && !all || v != nil && v.Kind != document.Map {
			continue
		}
		options, _ := r.group(m, &groups[i])
		out = append(out, decision{options: options})
	}
	return out
}

// group lists the options of one group; listed says that the user named them.
func (r *recommender) group(m document.Mapping, g *presetGroup) (options []option, listed bool) {
	names := []string{"preset"}
	for _, key := range g.keys {
		names = append(names, knobName(g.name, key))
	}
	at := m.Sub(g.name, "a mapping", names)
	p := at.Get("preset")
	knobs := len(at.Keys) > 0 && p == nil || p != nil && (p.Kind == document.Bool && p.Text == "false" || p.Empty()) || m.Get(g.name).Empty()
	switch {
	case knobs:
		return r.knobs(at, g), false
	case p == nil || p.Kind == document.String && p.Text == "default":
		for _, s := range g.presets {
			options = append(options, option{set: g.set(s.values)})
		}
		return options, false
	case p.Kind != document.List || len(p.Items) == 0:
		r.f.Malformed(p, "preset is default, false, or a non-empty list of names or complete mappings")
		return nil, true
	}
	for _, v := range p.Items {
		if v.Kind == document.Map {
			options = append(options, option{set: r.complete(v, g)})
			continue
		}
		i := slices.IndexFunc(g.presets, func(s preset) bool { return s.name == v.Text })
		if i < 0 {
			var known []string
			for _, s := range g.presets {
				known = append(known, s.name)
			}
			r.f.Malformed(v, "unknown preset `"+v.String()+"`, expected "+document.OneOf(known))
			continue
		}
		options = append(options, option{set: g.set(g.presets[i].values)})
	}
	return options, true
}

// complete reads a preset written as a mapping.
func (r *recommender) complete(n *document.Node, g *presetGroup) []assign {
	var names []string
	for _, key := range g.keys {
		names = append(names, knobName(g.name, key))
	}
	m := r.f.Mapping(n, "a mapping", names)
	var out []assign
	for i, key := range g.keys {
		if v := m.Get(names[i]); v != nil && v.Kind != document.Null {
			path := "planner." + key
			out = append(out, assign{path: path, v: v.At(path)})
		}
	}
	return out
}

// knobs lists the product of a group's independent knobs, the last one fastest.
func (r *recommender) knobs(at document.Mapping, g *presetGroup) []option {
	out := []option{{}}
	for i, key := range g.keys {
		path := "planner." + key
		vs := r.domain(at.Get(knobName(g.name, key)), floatRange, g.knobs[i]...)
		next := make([]option, 0, len(out)*len(vs))
		for _, o := range out {
			for _, v := range vs {
				next = append(next, option{set: append(slices.Clone(o.set), assign{path: path, v: v.At(path)})})
			}
		}
		if out = next; len(out) > maxVariants {
			r.f.Malformed(at.Node, fmt.Sprintf("more than %d combinations", maxVariants))
			return nil
		}
	}
	return out
}

// predictorsFor decides the load predictor of one policy. Several candidates are
// ranked beforehand on the trace, once per throughput interval (spec
// sweeps-and-schema 2.5).
func (r *recommender) predictorsFor(m document.Mapping, policy option) []decision {
	g := presetGroups[3]
	if v := m.Get(g.name); v != nil && v.Kind != document.Map {
		return nil
	}
	options, _ := r.group(m, &g)
	if len(options) < 2 || !r.f.OK() {
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
		r.f.List = append(r.f.List, &document.Fault{Origin: r.f.Origin, Path: "planner.load_predictor", Msg: err.Error()})
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
	source := r.root.Get("traffic").Get("source")
	if source.Get("type") == nil || source.Get("type").Text != "trace" {
		return nil
	}
	p := &predictor{f: &document.Faults{Origin: r.f.Origin}, dir: r.out.dir, stack: r.o.Stack}
	w := p.trace(document.Mapping{Node: document.EmptyMap(0, "traffic").With("source", source).With("load.type", literal("trace_timestamps")), Faults: p.f})
	if w == nil || !p.f.OK() || !w.scalable() || math.IsNaN(w.MaxSimTimeMs) {
		return nil
	}
	return w.Trace
}

// isRelation reports a fault of values that are good alone but do not fit together.
func isRelation(f *document.Fault) bool {
	return f.Relation || f.Msg == trtllmRefusal || strings.HasPrefix(f.Msg, "replay invariant violated") ||
		strings.HasPrefix(f.Msg, "offline disaggregated replay requires matching")
}
