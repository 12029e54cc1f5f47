package scenario

import (
	"slices"
	"strings"
)

// Keys of the older Sweeper file (spec sweeps-and-schema 6).
var (
	sweeperSections = []string{"search_space", "workload", "goal", "sweep"}
	sweeperRoles    = [][2]string{{"agg", "aggregated"}, {"aggregated", "aggregated"}, {"prefill", "prefill"}, {"decode", "decode"}}
	sweeperNumbers  = [][2]string{{"max_num_batched_tokens", "scheduler.max_batched_tokens"}, {"max_num_seqs", "scheduler.max_sequences"},
		{"block_size", "kv_cache.block_size"}, {"gpu_memory_utilization", "kv_cache.capacity.memory_fraction"}}
	sweeperSpaceKeys = func() []string {
		keys := []string{"model_name", "hardware_sku", "gpu_budget", "min_gpu_budget", "deployment_mode", "backend", "parallel_configs"}
		for _, role := range sweeperRoles {
			for _, n := range sweeperNumbers {
				keys = append(keys, role[0]+"_"+n[0])
			}
		}
		return keys
	}()
	sweeperLoadKeys = []string{"isl", "osl", "request_rate", "concurrency", "kv_load_ratio", "num_request_ratio", "random_range_ratio",
		"random_seed", "shared_prefix_ratio", "num_prefix_groups", "turns_per_session", "inter_turn_delay_ms", "arrival_seed",
		"trace_path", "trace_format", "arrival_speedup_ratio", "replay_concurrency"}
	sweeperShapes = [][2]string{{"tp", "tensor"}, {"pp", "pipeline"}, {"dp", "attention_data"}, {"moe_tp", "moe_tensor"}, {"moe_ep", "moe_expert"}}
)

// isSweeper reports an older Sweeper file.
func isSweeper(n *node) bool {
	return slices.ContainsFunc(n.keys, func(k string) bool { return k != "workload" && slices.Contains(sweeperSections, k) })
}

// sweeper is the file as an AISimulate document. Values keep the lines of the file.
func (r *recommender) sweeper(n *node) *node {
	m := r.f.mapping(n, "a mapping", sweeperSections)
	s := &sweeperFile{r: r, out: emptyMap(n.line, "")}
	s.space(m.sub("search_space", "a mapping", sweeperSpaceKeys))
	if w := m.sub("workload", "a mapping", sweeperLoadKeys); m.get("workload") != nil {
		s.workload(w)
	}
	s.goal(m.sub("goal", "a mapping", []string{"target", "sla", "pareto_objectives"}))
	s.sweep(m.sub("sweep", "a mapping", []string{"max_rounds", "parallel_evals", "candidates_per_round", "max_eval_seconds"}))
	return s.out
}

// sweeperFile is the document under way.
type sweeperFile struct {
	r   *recommender
	out *node
}

func (s *sweeperFile) put(path string, v *node) {
	if v != nil && v.kind != nullKind {
		s.out = s.out.with(path, v.placed(path))
	}
}

func (s *sweeperFile) word(path, text string) { s.put(path, literal(text)) }

// several makes a list a domain.
func several(v *node) *node {
	if v == nil || v.kind != listKind {
		return v
	}
	d := emptyMap(v.line, v.path)
	d.put("choices", v)
	return d
}

func (s *sweeperFile) space(m mapping) {
	for _, key := range [...]string{"model_name", "hardware_sku"} {
		if m.get(key) == nil {
			m.missing(key)
		}
	}
	s.put("engine.model", m.get("model_name"))
	if sku := m.get("hardware_sku"); sku != nil && sku.kind == listKind {
		s.word("engine.hardware", "auto")
		s.put("optimization.hardware", several(sku))
	} else {
		s.put("engine.hardware", sku)
	}
	s.word("engine.backend", "vllm")
	s.put("engine.backend", several(m.get("backend")))
	s.modes(m.get("deployment_mode"))
	s.put("optimization.constraints.max_candidate_gpus", m.get("gpu_budget"))
	s.put("optimization.constraints.min_candidate_gpus", m.get("min_gpu_budget"))
	for _, role := range sweeperRoles {
		for _, n := range sweeperNumbers {
			s.put(workersPath(role[1])+"."+n[1], several(m.get(role[0]+"_"+n[0])))
		}
	}
	if list := m.get("parallel_configs"); list != nil && list.kind == listKind {
		preset := s.shapes(list)
		for _, role := range roleNames {
			s.put(workersPath(role)+".parallelism.preset", preset)
		}
	} else if list != nil && list.kind != nullKind {
		s.r.f.badType(list, "parallel_configs must be a list of mappings")
	}
}

// modes spells agg and disagg out; absent is both, disaggregated first.
func (s *sweeperFile) modes(n *node) {
	if n == nil {
		n = &node{kind: listKind, items: []*node{literal("disagg"), literal("agg")}}
	}
	items := []*node{n}
	if n.kind == listKind {
		items = n.items
	}
	list := &node{kind: listKind, line: n.line, path: n.path}
	for _, v := range items {
		c := *v
		switch v.text {
		case "agg":
			c.text = modeKinds[0]
		case "disagg":
			c.text = modeKinds[1]
		default:
			s.r.f.badType(v, "unknown variant `"+v.textOf()+"`, expected `agg` or `disagg`")
		}
		list.items = append(list.items, &c)
	}
	s.put("engine.mode", several(list))
}

// shapes completes the mappings of parallel_configs.
func (s *sweeperFile) shapes(list *node) *node {
	out := &node{kind: listKind, line: list.line, path: list.path}
	keys := slices.Clone(shapeKeys)
	for _, k := range sweeperShapes {
		keys = append(keys, k[0])
	}
	for _, v := range list.items {
		m := s.r.f.mapping(v, "a mapping", keys)
		c := emptyMap(v.line, v.path)
		for _, key := range shapeKeys {
			c.put(key, scalarAt(v, intKind, "1"))
		}
		for i, key := range m.keys {
			if j := slices.IndexFunc(sweeperShapes, func(k [2]string) bool { return k[0] == key }); j >= 0 {
				key = sweeperShapes[j][1]
			}
			c.put(key, m.items[i])
		}
		out.items = append(out.items, c)
	}
	return out
}

func (s *sweeperFile) workload(m mapping) {
	if v := m.float("random_range_ratio", orNull); v.set && v.v != 1 {
		m.rule(false, "random_range_ratio", "random_range_ratio must be 1: lengths are not drawn")
	}
	if m.get("trace_path") != nil {
		s.trace(m)
		return
	}
	turns := m.uint("turns_per_session", 64, orNull).or(1)
	sessions := turns > 1 || m.float("shared_prefix_ratio", orNull).v > 0
	unit := "requests"
	if sessions && turns > 1 {
		unit = "sessions"
		if s.r.o.Stack != "dynamo" {
			s.r.notice("workload.turns_per_session: on the engine stack a prompt is the whole session so far; with --stack dynamo turns stand alone, as in replay")
		}
		s.word("traffic.source.type", "synthetic-session")
		s.put("traffic.source.new_input_tokens_per_turn", m.get("isl"))
		s.put("traffic.source.output_tokens_per_turn", m.get("osl"))
		s.put("traffic.source.session.turns", m.get("turns_per_session"))
		s.put("traffic.source.session.shared_prefix_ratio", m.get("shared_prefix_ratio"))
		s.put("traffic.source.session.prefix_groups", m.get("num_prefix_groups"))
		s.put("traffic.source.session.inter_turn_delay_ms", m.get("inter_turn_delay_ms"))
	} else {
		m.rule(!sessions, "shared_prefix_ratio", "shared_prefix_ratio needs turns_per_session of at least 2 here")
		s.word("traffic.source.type", "synthetic")
		s.put("traffic.source.input_tokens", m.get("isl"))
		s.put("traffic.source.output_tokens", m.get("osl"))
	}
	given := 0
	for _, l := range [...][3]string{{"request_rate", "poisson", unit + "_per_second"}, {"concurrency", "concurrency", "concurrency"},
		{"kv_load_ratio", "kv_capacity_fraction", "fraction"}} {
		if v := m.get(l[0]); v != nil && v.kind != nullKind {
			given++
			s.word("traffic.load.type", l[1])
			s.put("traffic.load."+l[2], several(v))
			if l[1] == "poisson" {
				s.put("traffic.load.seed", m.get("arrival_seed"))
			}
		}
	}
	if given != 1 {
		s.r.f.badType(m.node, "give exactly one of request_rate, concurrency and kv_load_ratio")
	}
	if m.get("num_request_ratio") == nil {
		m.missing("num_request_ratio")
	}
	s.put("traffic.stop."+unit+"_per_load_unit", m.get("num_request_ratio"))
}

func (s *sweeperFile) trace(m mapping) {
	s.word("traffic.source.type", "trace")
	s.put("traffic.source.paths", &node{kind: listKind, line: m.get("trace_path").line, items: []*node{m.get("trace_path")}})
	s.put("traffic.source.format", m.get("trace_format"))
	for _, key := range [...]string{"isl", "osl", "request_rate", "concurrency", "kv_load_ratio", "num_request_ratio"} {
		if v := m.get(key); v != nil && v.kind != nullKind {
			s.r.f.badType(v, key+" belongs to synthetic load, trace_path is given")
		}
	}
	if v := m.get("replay_concurrency"); v != nil && v.kind != nullKind {
		s.word("traffic.load.type", "concurrency")
		s.put("traffic.load.concurrency", several(v))
		return
	}
	s.word("traffic.load.type", "trace_timestamps")
	s.put("traffic.load.speedup", several(m.get("arrival_speedup_ratio")))
}

func (s *sweeperFile) goal(m mapping) {
	s.word("optimization.target", "throughput")
	s.put("optimization.target", m.get("target"))
	sla := m.sub("sla", "a mapping", append(slices.Clone(slaKeys), "ttft", "itl", "e2e", "e2e_latency"))
	for i, key := range sla.keys {
		name := strings.TrimSuffix(strings.TrimSuffix(key, "_ms"), "_latency") + "_ms"
		s.put("evaluation.sla."+name, sla.items[i])
	}
	if v := m.get("pareto_objectives"); v != nil && v.kind != nullKind {
		var names []string
		for _, item := range v.items {
			names = append(names, item.text)
		}
		slices.Sort(names)
		m.rule(slices.Equal(names, []string{"throughput_per_gpu", "throughput_per_user"}), "pareto_objectives",
			"pareto_objectives must be throughput_per_gpu and throughput_per_user")
	}
}

func (s *sweeperFile) sweep(m mapping) {
	rounds, evals := m.uint("max_rounds", 20, notNull), m.uint("parallel_evals", 16, notNull)
	each := m.uint("candidates_per_round", 20, orNull)
	trials := rounds.or(20) * each.or(evals.or(defaultParallelism))
	s.put("optimizer.max_trials", scalarAt(m.node, intKind, plainFloat(float64(min(trials, 1<<30)))))
	s.put("optimizer.parallelism", m.get("parallel_evals"))
	s.put("optimizer.candidate_timeout_seconds", m.get("max_eval_seconds"))
	s.word("optimizer.algorithm", "bayesian")
}
