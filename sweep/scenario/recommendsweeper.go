package scenario

import (
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
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
func isSweeper(n *document.Node) bool {
	return slices.ContainsFunc(n.Keys, func(k string) bool { return k != "workload" && slices.Contains(sweeperSections, k) })
}

// sweeper is the file as an AISimulate document. Values keep the lines of the file.
func (r *recommender) sweeper(n *document.Node) *document.Node {
	m := r.f.Mapping(n, "a mapping", sweeperSections)
	s := &sweeperFile{r: r, out: document.EmptyMap(n.Line, "")}
	s.space(m.Sub("search_space", "a mapping", sweeperSpaceKeys))
	if w := m.Sub("workload", "a mapping", sweeperLoadKeys); m.Get("workload") != nil {
		s.workload(w)
	}
	s.goal(m.Sub("goal", "a mapping", []string{"target", "sla", "pareto_objectives"}))
	s.sweep(m.Sub("sweep", "a mapping", []string{"max_rounds", "parallel_evals", "candidates_per_round", "max_eval_seconds"}))
	return s.out
}

// sweeperFile is the document under way.
type sweeperFile struct {
	r   *recommender
	out *document.Node
}

func (s *sweeperFile) put(path string, v *document.Node) {
	if v != nil && v.Kind != document.Null {
		s.out = s.out.With(path, v.At(path))
	}
}

func (s *sweeperFile) word(path, text string) { s.put(path, literal(text)) }

// several makes a list a domain.
func several(v *document.Node) *document.Node {
	if v == nil || v.Kind != document.List {
		return v
	}
	d := document.EmptyMap(v.Line, v.Path)
	d.Put("choices", v)
	return d
}

func (s *sweeperFile) space(m document.Mapping) {
	for _, key := range [...]string{"model_name", "hardware_sku"} {
		if m.Get(key) == nil {
			m.Missing(key)
		}
	}
	s.put("engine.model", m.Get("model_name"))
	if sku := m.Get("hardware_sku"); sku != nil && sku.Kind == document.List {
		s.word("engine.hardware", "auto")
		s.put("optimization.hardware", several(sku))
	} else {
		s.put("engine.hardware", sku)
	}
	s.word("engine.backend", "vllm")
	s.put("engine.backend", several(m.Get("backend")))
	s.modes(m.Get("deployment_mode"))
	s.put("optimization.constraints.max_candidate_gpus", m.Get("gpu_budget"))
	s.put("optimization.constraints.min_candidate_gpus", m.Get("min_gpu_budget"))
	for _, role := range sweeperRoles {
		for _, n := range sweeperNumbers {
			s.put(workersPath(role[1])+"."+n[1], several(m.Get(role[0]+"_"+n[0])))
		}
	}
	if list := m.Get("parallel_configs"); list != nil && list.Kind == document.List {
		preset := s.shapes(list)
		for _, role := range roleNames {
			s.put(workersPath(role)+".parallelism.preset", preset)
		}
	} else if list != nil && list.Kind != document.Null {
		s.r.f.Malformed(list, "parallel_configs must be a list of mappings")
	}
}

// modes spells agg and disagg out; absent is both, disaggregated first.
func (s *sweeperFile) modes(n *document.Node) {
	if n == nil {
		n = &document.Node{Kind: document.List, Items: []*document.Node{literal("disagg"), literal("agg")}}
	}
	items := []*document.Node{n}
	if n.Kind == document.List {
		items = n.Items
	}
	list := &document.Node{Kind: document.List, Line: n.Line, Path: n.Path}
	for _, v := range items {
		c := *v
		switch v.Text {
		case "agg":
			c.Text = modeKinds[0]
		case "disagg":
			c.Text = modeKinds[1]
		default:
			s.r.f.Malformed(v, "unknown variant `"+v.String()+"`, expected `agg` or `disagg`")
		}
		list.Items = append(list.Items, &c)
	}
	s.put("engine.mode", several(list))
}

// shapes completes the mappings of parallel_configs.
func (s *sweeperFile) shapes(list *document.Node) *document.Node {
	out := &document.Node{Kind: document.List, Line: list.Line, Path: list.Path}
	keys := slices.Clone(shapeKeys)
	for _, k := range sweeperShapes {
		keys = append(keys, k[0])
	}
	for _, v := range list.Items {
		m := s.r.f.Mapping(v, "a mapping", keys)
		c := document.EmptyMap(v.Line, v.Path)
		for _, key := range shapeKeys {
			c.Put(key, v.Scalar(document.Int, "1"))
		}
		for i, key := range m.Keys {
			if j := slices.IndexFunc(sweeperShapes, func(k [2]string) bool { return k[0] == key }); j >= 0 {
				key = sweeperShapes[j][1]
			}
			c.Put(key, m.Items[i])
		}
		out.Items = append(out.Items, c)
	}
	return out
}

func (s *sweeperFile) workload(m document.Mapping) {
	if v := m.Float("random_range_ratio", document.OrNull); v.Set && v.Value != 1 {
		m.Require(false, "random_range_ratio", "random_range_ratio must be 1: lengths are not drawn")
	}
	if m.Get("trace_path") != nil {
		s.trace(m)
		return
	}
	turns := m.Uint("turns_per_session", 64, document.OrNull).Or(1)
	sessions := turns > 1 || m.Float("shared_prefix_ratio", document.OrNull).Value > 0
	unit := "requests"
	if sessions && turns > 1 {
		unit = "sessions"
		if s.r.o.Stack != "dynamo" {
			s.r.notice("workload.turns_per_session: on the engine stack a prompt is the whole session so far; with --stack dynamo turns stand alone, as in replay")
		}
		s.word("traffic.source.type", "synthetic-session")
		s.put("traffic.source.new_input_tokens_per_turn", m.Get("isl"))
		s.put("traffic.source.output_tokens_per_turn", m.Get("osl"))
		s.put("traffic.source.session.turns", m.Get("turns_per_session"))
		s.put("traffic.source.session.shared_prefix_ratio", m.Get("shared_prefix_ratio"))
		s.put("traffic.source.session.prefix_groups", m.Get("num_prefix_groups"))
		s.put("traffic.source.session.inter_turn_delay_ms", m.Get("inter_turn_delay_ms"))
	} else {
		m.Require(!sessions, "shared_prefix_ratio", "shared_prefix_ratio needs turns_per_session of at least 2 here")
		s.word("traffic.source.type", "synthetic")
		s.put("traffic.source.input_tokens", m.Get("isl"))
		s.put("traffic.source.output_tokens", m.Get("osl"))
	}
	given := 0
	for _, l := range [...][3]string{{"request_rate", "poisson", unit + "_per_second"}, {"concurrency", "concurrency", "concurrency"},
		{"kv_load_ratio", "kv_capacity_fraction", "fraction"}} {
		if v := m.Get(l[0]); v != nil && v.Kind != document.Null {
			given++
			s.word("traffic.load.type", l[1])
			s.put("traffic.load."+l[2], several(v))
			if l[1] == "poisson" {
				s.put("traffic.load.seed", m.Get("arrival_seed"))
			}
		}
	}
	if given != 1 {
		s.r.f.Malformed(m.Node, "give exactly one of request_rate, concurrency and kv_load_ratio")
	}
	if m.Get("num_request_ratio") == nil {
		m.Missing("num_request_ratio")
	}
	s.put("traffic.stop."+unit+"_per_load_unit", m.Get("num_request_ratio"))
}

func (s *sweeperFile) trace(m document.Mapping) {
	s.word("traffic.source.type", "trace")
	s.put("traffic.source.paths", &document.Node{Kind: document.List, Line: m.Get("trace_path").Line, Items: []*document.Node{m.Get("trace_path")}})
	s.put("traffic.source.format", m.Get("trace_format"))
	for _, key := range [...]string{"isl", "osl", "request_rate", "concurrency", "kv_load_ratio", "num_request_ratio"} {
		if v := m.Get(key); v != nil && v.Kind != document.Null {
			s.r.f.Malformed(v, key+" belongs to synthetic load, trace_path is given")
		}
	}
	if v := m.Get("replay_concurrency"); v != nil && v.Kind != document.Null {
		s.word("traffic.load.type", "concurrency")
		s.put("traffic.load.concurrency", several(v))
		return
	}
	s.word("traffic.load.type", "trace_timestamps")
	s.put("traffic.load.speedup", several(m.Get("arrival_speedup_ratio")))
}

func (s *sweeperFile) goal(m document.Mapping) {
	s.word("optimization.target", "throughput")
	s.put("optimization.target", m.Get("target"))
	sla := m.Sub("sla", "a mapping", append(slices.Clone(slaKeys), "ttft", "itl", "e2e", "e2e_latency"))
	for i, key := range sla.Keys {
		name := strings.TrimSuffix(strings.TrimSuffix(key, "_ms"), "_latency") + "_ms"
		s.put("evaluation.sla."+name, sla.Items[i])
	}
	if v := m.Get("pareto_objectives"); v != nil && v.Kind != document.Null {
		var names []string
		for _, item := range v.Items {
			names = append(names, item.Text)
		}
		slices.Sort(names)
		m.Require(slices.Equal(names, []string{"throughput_per_gpu", "throughput_per_user"}), "pareto_objectives",
			"pareto_objectives must be throughput_per_gpu and throughput_per_user")
	}
}

func (s *sweeperFile) sweep(m document.Mapping) {
	rounds, evals := m.Uint("max_rounds", 20, document.NotNull), m.Uint("parallel_evals", 16, document.NotNull)
	each := m.Uint("candidates_per_round", 20, document.OrNull)
	trials := rounds.Or(20) * each.Or(evals.Or(defaultParallelism))
	s.put("optimizer.max_trials", m.Node.Scalar(document.Int, plainFloat(float64(min(trials, 1<<30)))))
	s.put("optimizer.parallelism", m.Get("parallel_evals"))
	s.put("optimizer.candidate_timeout_seconds", m.Get("max_eval_seconds"))
	s.word("optimizer.algorithm", "bayesian")
}
