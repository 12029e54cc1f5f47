package scenario

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/router"
)

func pathsOf(tables []KeyTable) map[string]bool {
	out := map[string]bool{}
	for _, t := range tables {
		for _, k := range t.Keys {
			out[k.Path] = true
		}
	}
	return out
}

// sameKeys compares what is described with what is read.
func sameKeys(t *testing.T, what string, described, read map[string]bool) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(read)) {
		if !described[k] {
			t.Errorf("%s: %s is read and not described", what, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(described)) {
		if !read[k] {
			t.Errorf("%s: %s is described and not read", what, k)
		}
	}
}

func prefixed(into map[string]bool, prefix string, keys []string) {
	for _, k := range keys {
		into[prefix+k] = true
	}
}

func TestReferenceNamesEverySweepKey(t *testing.T) {
	read := map[string]bool{"cost.usd_per_gpu_hour": true, "cost.usd_per_gigabyte_hour": true, "constraints.max_gpus": true, "planner.startup_seconds": true,
		"timing.prefill_ms": true, "timing.decode_ms": true, "timing.path": true}
	prefixed(read, "", sweepKeys)
	prefixed(read, "workload.", workloadKeys)
	prefixed(read, "workload.synthetic.", syntheticKeys)
	prefixed(read, "topology.", slices.Concat(aggregatedKeys, disaggregatedKeys))
	prefixed(read, "topology.kv_transfer.", kvTransferKeys)
	prefixed(read, "router.", routerKeys)
	prefixed(read, "timing.", aicTimingKeys)
	prefixed(read, "timing.corrections.", correctionKeys)
	prefixed(read, "sla.", slaKeys)
	for _, alias := range []string{"workload.synthetic.request_count", "workload.replay_concurrency", "workload.arrival_speedup_ratio"} {
		delete(read, alias) // named in the text of their twins
	}
	sameKeys(t, "sweep", pathsOf(SweepReference()), read)
}

func TestReferenceNamesEveryEngineKey(t *testing.T) {
	read := map[string]bool{"sglang.page_size": true, "engine_type": true, "is_prefill": true, "is_decode": true,
		"planner_profile_data": true, "has_perf_model": true}
	prefixed(read, "", slices.Concat(engineKeys, aicFlatKeys, offloadKeys))
	for _, k := range launchKeys {
		read[k] = k != "engine" && k != "dynamo"
	}
	maps.DeleteFunc(read, func(k string, on bool) bool { return !on || k == "kv_bytes_per_token" })
	prefixed(read, "sglang.", sglangKeys)
	prefixed(read, "trtllm.", trtllmKeys)
	prefixed(read, "dynamo.", dynamoKeys)
	prefixed(read, "timing_model.", []string{"type", "prefill_ms", "decode_ms", "provider", "config", "corrections"})
	sameKeys(t, "engine", pathsOf(EngineReference()), read)
}

func TestReferenceNamesEveryAISimulateKey(t *testing.T) {
	described := pathsOf(AISimulateReference())
	read := map[string]bool{}
	prefixed(read, "engine.", predictEngineKeys)
	prefixed(read, "engine.kv_transfer.", kvTransferKeys)
	const worker = "engine.workers.<role>."
	prefixed(read, worker, []string{"startup_seconds", "timing.type", "timing.prefill_ms", "timing.decode_ms", "timing.decode_qk_norm", "timing.corrections"})
	prefixed(read, worker+"parallelism.", parallelismKeys)
	prefixed(read, worker+"scheduler.", schedulerKeys)
	prefixed(read, worker+"kv_cache.", kvCacheKeys)
	prefixed(read, worker+"kv_cache.capacity.", capacityKeys)
	prefixed(read, "evaluation.sla.", slaKeys)
	prefixed(read, "optimization.", optimizationKeys)
	prefixed(read, "optimization.constraints.", constraintKeys)
	prefixed(read, "optimizer.", optimizerKeys)
	read["planner.policy"] = true
	for _, k := range predictPlannerKeys {
		read["planner."+k[0]] = true
	}
	for _, group := range []string{"engine.kv_transfer", worker + "kv_cache.capacity", "optimization.constraints"} {
		delete(read, group) // described by its keys
	}
	for k := range described {
		if section, _, _ := strings.Cut(k, "."); section == "traffic" || section == "router" || section == "cost" {
			delete(described, k) // their readers hold no list of keys
		}
	}
	sameKeys(t, "AISimulate", described, read)
}

func TestReferenceNamesEveryPlannerKey(t *testing.T) {
	text, err := json.Marshal(planner.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	tree := map[string]any{}
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	described := pathsOf(PlannerReference())
	var walk func(map[string]any)
	walk = func(m map[string]any) {
		for k, v := range m {
			if inner, ok := v.(map[string]any); ok {
				walk(inner)
			} else if !described[k] && !described["scheduling."+k] {
				t.Errorf("planner: %s is part of the configuration and not described", k)
			}
		}
	}
	walk(tree)
}

// defaultOf is a default that can be written into a document; false for defaults that
// are told in words.
func defaultOf(k Key) (any, bool) {
	if k.Default == "" || k.Default == "required" {
		return nil, false
	}
	var v any
	if err := yaml.Unmarshal([]byte(k.Default), &v); err != nil {
		return nil, false
	}
	return v, true
}

// with returns a copy of the tree m in which path holds v.
func with(m map[string]any, path string, v any) map[string]any {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]any{}
	}
	key, rest, deeper := strings.Cut(path, ".")
	if deeper {
		inner, _ := out[key].(map[string]any)
		v = with(inner, rest, v)
	}
	out[key] = v
	return out
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDescribedEngineDefaultsChangeNothing(t *testing.T) {
	read := func(doc map[string]any) *Role {
		r, err := EngineArgs("reference", text(t, doc))
		if err != nil {
			t.Fatalf("%v: %v", doc, err)
		}
		r.BlocksGiven, r.MTPSeedGiven = false, false
		return r
	}
	tables := EngineReference()
	aic := map[string]any{"aic_backend": "vllm", "aic_model_path": "Qwen/Qwen3-32B"}
	tried := 0
	for _, table := range tables {
		for _, k := range table.Keys {
			v, ok := defaultOf(k)
			if !ok || k.Path == "aic_backend" {
				continue
			}
			tried++
			base, path := map[string]any{}, k.Path
			switch {
			case table.Title == "Flat form" && strings.HasPrefix(path, "aic_"):
				base = aic
			case table.Title == "timing_model":
				continue
			case table.Title == "engine", strings.HasPrefix(table.Title, "engine."):
				path = "engine." + path
			}
			got, want := read(with(base, path, v)), read(base)
			got.named, want.named = named{}, named{} // the places differ
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v differs from what is absent:\n%+v\n%+v", k.Path, v, got, want)
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d defaults were tried", tried)
	}
}

// sweepBase is a specification in which the key may stand.
func sweepBase(path string) map[string]any {
	generated := map[string]any{"input_tokens": 100, "output_tokens": 4, "requests": 3}
	doc := map[string]any{"workload": map[string]any{"synthetic": generated, "request_rate": 5}, "router": map[string]any{"mode": "kv_router"}}
	trace := map[string]any{"trace": "reference_test.go"} // only its content counts here, as identity
	switch {
	case path == "workload.request_rate":
		doc = with(doc, "workload", map[string]any{"synthetic": generated, "concurrency": 2})
	case strings.HasPrefix(path, "workload.trace_") && path != "workload.trace_block_size":
		doc = with(with(doc, "workload", trace), "workload.format", "applied_compute_agentic")
		doc = with(doc, "workload.concurrency", 2)
	case path == "workload.nested_timestamp_basis":
		doc = with(with(doc, "workload", trace), "workload.format", "weka")
	case slices.Contains([]string{"workload.format", "workload.trace_block_size", "workload.max_sim_time_seconds", "workload.agentic_lanes", "workload.execution_model"}, path):
		doc = with(doc, "workload", trace)
	case path == "router", path == "router.mode":
		delete(doc, "router")
	case strings.HasPrefix(path, "topology.kv_transfer."):
		doc = with(doc, "topology", map[string]any{"mode": "disaggregated", "kv_transfer": map[string]any{"bytes_per_token": 1000}})
	case strings.HasPrefix(path, "topology.") && path != "topology.mode" && path != "topology.workers":
		doc = with(doc, "topology", map[string]any{"mode": "disaggregated"})
	case strings.HasPrefix(path, "timing.") && path != "timing.type":
		doc = with(doc, "timing", map[string]any{"type": "aic", "model": "Qwen/Qwen3-32B", "system": "h200_sxm"})
	case strings.HasPrefix(path, "planner."):
		doc = with(doc, "planner", map[string]any{"mode": "agg", "optimization_target": "sla"})
	}
	return doc
}

func TestDescribedSweepDefaultsChangeNothing(t *testing.T) {
	id := func(doc map[string]any) string {
		g, err := ParseSweep("reference.yaml", ".", []byte(text(t, doc)), &Files{})
		if err != nil {
			t.Fatalf("%v: %v", text(t, doc), err)
		}
		return g.Points[0].ID
	}
	for _, table := range SweepReference() {
		for _, k := range table.Keys {
			v, ok := defaultOf(k)
			if !ok || k.Path == "workload.arrival_seed" {
				continue // a written seed is part of the identity; its default is a constant of this package
			}
			base := sweepBase(k.Path)
			if got, want := id(with(base, k.Path, v)), id(base); got != want {
				t.Errorf("%s: %v makes another point than its absence", k.Path, v)
			}
		}
	}
}

func TestDescribedAISimulateDefaultsChangeNothing(t *testing.T) {
	files := &Files{}
	id := func(doc map[string]any) string {
		r, err := ParsePredict("reference.yaml", ".", []byte(text(t, doc)), PredictOptions{Stack: "dynamo"}, files)
		if err != nil {
			t.Fatalf("%v: %v", text(t, doc), err)
		}
		return r.ID()
	}
	for _, table := range AISimulateReference() {
		for _, k := range table.Keys {
			v, ok := defaultOf(k)
			if !ok || table.Title == "Search" || k.Path == "traffic.load.seed" { // a written seed is part of the identity
				continue
			}
			base := predictBase(k.Path)
			if got, want := id(with(base, strings.Replace(k.Path, "<role>", "aggregated", 1), v)), id(base); got != want {
				t.Errorf("%s: %v makes another run than its absence", k.Path, v)
			}
		}
	}
}

// predictBase is an AISimulate file in which the key may stand.
func predictBase(path string) map[string]any {
	doc := map[string]any{"engine": map[string]any{"model": "Qwen/Qwen3-32B", "hardware": "h200_sxm", "workers": map[string]any{"aggregated": map[string]any{}}}}
	stop := map[string]any{"requests": 5}
	source := map[string]any{"type": "synthetic"}
	switch {
	case strings.HasSuffix(path, "prefill_decode_interval"):
		return with(doc, "engine.backend", "sglang")
	case strings.HasPrefix(path, "engine.kv_transfer."):
		doc = with(doc, "engine.mode", "disaggregated")
		return with(doc, "engine.workers", map[string]any{"prefill": map[string]any{}, "decode": map[string]any{}})
	case strings.Contains(path, ".parallelism.moe_"):
		return with(doc, "engine.workers.aggregated.parallelism", map[string]any{"moe_tensor": 1, "moe_expert": 1})
	case strings.HasPrefix(path, "router.") && path != "router.policy":
		return with(doc, "router.policy", "kv_router")
	case strings.Contains(path, "_per_turn"), strings.Contains(path, ".session."):
		stop, source = map[string]any{"sessions": 5}, map[string]any{"type": "synthetic-session", "session": map[string]any{}}
	case strings.HasSuffix(path, "speedup"), strings.HasSuffix(path, "lanes"):
		doc = with(doc, "traffic.load.type", "trace_timestamps")
		stop, source = nil, map[string]any{"type": "trace", "paths": []string{"reference_test.go"}}
	case strings.HasSuffix(path, "source.format"), strings.HasSuffix(path, "source.block_size"), strings.HasSuffix(path, "max_virtual_time_seconds"):
		stop, source = nil, map[string]any{"type": "trace", "paths": []string{"reference_test.go"}}
	case strings.HasSuffix(path, "timestamp_basis"):
		stop, source = nil, map[string]any{"type": "trace", "paths": []string{"reference_test.go"}, "format": "weka"}
		doc = with(doc, "traffic.load.type", "trace_timestamps")
	}
	if strings.HasPrefix(path, "traffic.") {
		doc = with(doc, "traffic.source", source)
		if stop != nil {
			doc = with(doc, "traffic.stop", stop)
		}
	}
	return doc
}

func TestDescribedRouterDefaultsChangeNothing(t *testing.T) {
	read := func(doc map[string]any) router.Config {
		d, err := router.ParseDocument("", []byte(text(t, doc)))
		if err != nil {
			t.Fatalf("%v: %v", doc, err)
		}
		c, err := d.Config(router.Completion{})
		if err != nil {
			t.Fatalf("%v: %v", doc, err)
		}
		return c
	}
	for _, table := range RouterReference() {
		for _, k := range table.Keys {
			if v, ok := defaultOf(k); ok && !reflect.DeepEqual(read(map[string]any{k.Path: v}), router.DefaultConfig()) {
				t.Errorf("%s: %v is not the default", k.Path, v)
			}
		}
	}
}

func TestDescribedPlannerDefaultsChangeNothing(t *testing.T) {
	read := func(doc map[string]any) planner.Config {
		if doc == nil {
			doc = map[string]any{}
		}
		c, _, err := planner.ReadJSON("", []byte(text(t, doc)))
		if err != nil {
			t.Fatalf("%v: %v", doc, err)
		}
		return c
	}
	for _, table := range PlannerReference() {
		for _, k := range table.Keys {
			v, ok := defaultOf(k)
			if !ok {
				continue
			}
			base := map[string]any{"optimization_target": "sla"}
			if k.Path == "optimization_target" {
				base = nil
			}
			if got, want := read(with(base, k.Path, v)), read(base); got != want {
				t.Errorf("%s: %v is not the default:\n%+v\n%+v", k.Path, v, got, want)
			}
		}
	}
}
