package scenario

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// Keys of the sweep specification's sections.
var (
	syntheticKeys = []string{"input_tokens", "output_tokens", "requests", "request_count", "turns_per_session",
		"inter_turn_delay_ms", "shared_prefix_ratio", "num_prefix_groups"}
	loadKeys = []string{"concurrency", "replay_concurrency", "request_rate", "arrival_interval_ms",
		"arrival_seed", "arrival_speedup", "arrival_speedup_ratio"}
	workloadKeys = slices.Concat([]string{"trace", "synthetic", "format", "trace_block_size", "max_sim_time_seconds",
		"agentic_lanes", "execution_model", "trace_shared_prefix_ratio", "trace_num_prefix_groups",
		"nested_timestamp_basis"}, loadKeys)
	aggregatedKeys    = []string{"mode", "workers"}
	disaggregatedKeys = []string{"mode", "prefill_workers", "decode_workers", "prefill_engine", "decode_engine", "kv_transfer"}
	kvTransferKeys    = []string{"bytes_per_token", "bandwidth_gb_per_second", "timing_mode", "contention"}
	routerKeys        = []string{"mode", "config", "policy_config", "model_name", "kv_event_lag_ms"}
	slaKeys           = []string{"ttft_ms", "itl_ms", "e2e_ms"}
	modeKinds         = []string{"aggregated", "disaggregated"}
	routerModes       = []string{"round_robin", "kv_router"}
)

// either reads one of two spellings of a key.
func (m mapping) either(a, b string) string {
	if m.get(b) == nil {
		return a
	}
	if m.get(a) != nil {
		m.f.badType(m.get(b), "duplicate field `"+a+"`: "+b+" is the same")
	}
	return b
}

// int narrows an optional count for checks that refuse what is out of range.
func (o opt[T]) int(def int) int {
	if v, ok := any(o.v).(uint64); ok && o.set {
		return int(min(v, math.MaxInt))
	}
	return def
}

// pathOf finds a file that a document names: relative to the document's folder, or
// else to the working directory.
func pathOf(dir, path string) string {
	if filepath.IsAbs(path) || dir == "" {
		return path
	}
	beside := filepath.Join(dir, path)
	if _, err := os.Stat(beside); err != nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return beside
}

// workloadSection reads one variant of workload; nil with faults.
func (f *faults) workloadSection(n *node, dir string) *Workload {
	m := f.mapping(n, "a mapping", workloadKeys)
	hasTrace, hasSynthetic := m.get("trace") != nil, m.get("synthetic") != nil
	if hasTrace == hasSynthetic {
		f.badType(m.node, "give either trace or synthetic")
		return nil
	}
	if hasTrace {
		return f.traceSection(m, dir)
	}
	return f.syntheticSection(m)
}

// loadControl reads the load keys, which stand in m or in its synthetic mapping.
type loadControl struct {
	at                         mapping
	concurrency                opt[uint64]
	rate, interval, speedup    opt[float64]
	seed                       opt[uint64]
	concurrencyKey, speedupKey string
}

func (m mapping) load() loadControl {
	c := loadControl{at: m, concurrencyKey: m.either("concurrency", "replay_concurrency"), speedupKey: m.either("arrival_speedup", "arrival_speedup_ratio")}
	c.concurrency, c.rate = m.uint(c.concurrencyKey, 64, orNull), m.float("request_rate", orNull)
	c.interval, c.seed = m.float("arrival_interval_ms", orNull), m.u64("arrival_seed", orNull)
	c.speedup = m.float(c.speedupKey, notNull)
	return c
}

func (f *faults) syntheticSection(m mapping) *Workload {
	for i, key := range m.keys {
		if key != "synthetic" && !slices.Contains(loadKeys, key) && slices.Contains(workloadKeys, key) {
			f.badType(m.items[i], key+" belongs to trace workloads")
		}
	}
	s := m.sub("synthetic", "a mapping", append(slices.Clone(syntheticKeys), loadKeys...))
	at, ok := m.loadPlace(s)
	if !ok {
		return nil
	}
	c := at.load()
	w := workload.DefaultSynthetic()
	requests := s.either("requests", "request_count")
	for _, key := range [...]string{"input_tokens", "output_tokens", requests} {
		if s.get(key) == nil {
			s.missing(key)
		}
	}
	w.InputTokens, w.OutputTokens = s.uint("input_tokens", 64, notNull).int(0), s.uint("output_tokens", 64, notNull).int(0)
	w.Requests = s.uint(requests, 64, notNull).int(0)
	w.TurnsPerSession = s.uint("turns_per_session", 64, notNull).int(1)
	w.PrefixGroups = s.uint("num_prefix_groups", 64, notNull).int(0)
	w.InterTurnDelayMs, w.SharedPrefixRatio = s.float("inter_turn_delay_ms", notNull).or(0), s.float("shared_prefix_ratio", notNull).or(0)
	c.control(&w)
	if !f.ok() {
		return nil
	}
	place := map[string]struct {
		at  mapping
		key string
	}{"request_count": {s, requests}, "replay_concurrency": {at, c.concurrencyKey}, "arrival_speedup_ratio": {at, c.speedupKey},
		"request_rate": {at, "request_rate"}, "arrival_interval_ms": {at, "arrival_interval_ms"}}
	for _, k := range syntheticFaults(&w) {
		if p, ok := place[k.key]; ok {
			f.brokenAt(p.at.node, p.key, k.msg)
		} else {
			f.brokenAt(s.node, k.key, k.msg)
		}
	}
	return &Workload{Synthetic: &w, ArrivalSeedGiven: c.seed.set, MaxSimTimeMs: math.Inf(1)}
}

// loadPlace is the mapping in which the load keys stand: m, or its synthetic mapping
// s; false if they stand in both.
func (m mapping) loadPlace(s mapping) (mapping, bool) {
	isLoad := func(key string) bool { return slices.Contains(loadKeys, key) }
	i := slices.IndexFunc(s.keys, isLoad)
	if i < 0 {
		return m, true
	}
	if slices.ContainsFunc(m.keys, isLoad) {
		m.f.badType(s.items[i], "load keys stand in workload and in workload.synthetic: give them in one place")
		return m, false
	}
	return s, true
}

// control sets what decides when requests come.
func (c *loadControl) control(w *workload.Synthetic) {
	w.ArrivalSeed, w.Speedup = c.seed.or(defaultArrivalSeed), c.speedup.or(1)
	w.Concurrency, w.RatePerS, w.IntervalMs = c.concurrency.int(0), c.rate.v, c.interval.v
	var err error
	if w.Control, err = workload.ChooseControl(given(c.concurrency.set, w.Concurrency), given(c.rate.set, w.RatePerS), given(c.interval.set, w.IntervalMs)); err != nil {
		c.at.f.badType(c.at.node, err.Error())
	}
}

// given is a pointer to v, or nil.
func given[T any](set bool, v T) *T {
	if !set {
		return nil
	}
	return &v
}

func (f *faults) traceSection(m mapping, dir string) *Workload {
	for _, key := range [...]string{"request_rate", "arrival_interval_ms", "arrival_seed"} {
		if v := m.get(key); v != nil {
			f.badType(v, "request_rate, arrival_interval_ms and arrival_seed only apply to synthetic load")
		}
	}
	format := workload.Mooncake
	if v := m.string("format", notNull); v.set {
		var err error
		if format, err = workload.ParseFormat(v.v); err != nil {
			f.brokenAt(m.node, "format", err.Error())
			return nil
		}
	}
	load := workload.DefaultLoadOptions(format)
	if b := m.uint("trace_block_size", 64, orNull); b.set {
		m.rule(b.v > 0, "trace_block_size", "trace_block_size must be greater than 0")
		m.rule(b.v <= maxBlockSize, "trace_block_size", fmt.Sprintf("trace_block_size must be at most %d, got %d", maxBlockSize, b.v))
		load.BlockSize = b.int(0)
	}
	load.SharedPrefixRatio = m.float("trace_shared_prefix_ratio", notNull).or(0)
	load.PrefixGroups = m.uint("trace_num_prefix_groups", 32, notNull).int(0)
	if v := m.string("nested_timestamp_basis", notNull); v.set {
		i := slices.Index(timestampBases, v.v)
		m.rule(i >= 0 && format == workload.Weka, "nested_timestamp_basis", "nested_timestamp_basis is "+oneOf(timestampBases)+", for format weka only")
		load.WekaTimestamps = workload.WekaTimestamps(max(i, 0))
	}
	c, lanes := m.load(), m.uint("agentic_lanes", 64, orNull)
	t := &Trace{Paths: m.traces(dir), Load: load, Drive: workload.Drive{ClosedLoop: c.concurrency.set, Concurrency: c.concurrency.int(0),
		Speedup: c.speedup.or(1), Laned: lanes.set, Lanes: lanes.int(0)}}
	w := &Workload{Trace: t, MaxSimTimeMs: math.Inf(1), ExecutionModel: m.string("execution_model", orNull).v}
	if v := m.float("max_sim_time_seconds", orNull); v.set {
		w.MaxSimTimeMs = v.v * 1000
		m.rule(finite(w.MaxSimTimeMs, 0), "max_sim_time_seconds", "max_sim_time_ms must be a finite, non-negative value")
	}
	for _, k := range t.check() {
		key := map[string]string{"replay_concurrency": c.concurrencyKey, "arrival_speedup_ratio": c.speedupKey,
			"shared_prefix_ratio": "trace_shared_prefix_ratio", "num_prefix_groups": "trace_num_prefix_groups"}[k.key]
		f.brokenAt(m.node, orText(key, k.key), k.msg)
	}
	return w
}

// traces reads trace: a path, or inside an axis a list of paths.
func (m mapping) traces(dir string) []string {
	n := m.get("trace")
	items := []*node{n}
	if n.kind == listKind {
		items = n.items
	}
	var out []string
	for _, v := range items {
		if v.kind != stringKind || v.text == "" {
			m.f.badType(v, "invalid type: "+v.describe()+", expected the path of a trace")
			continue
		}
		path := pathOf(dir, v.text)
		if _, err := os.Stat(path); err != nil {
			m.f.broken(v, "failed to open trace file "+path+": "+cause(err))
		}
		out = append(out, path)
	}
	return out
}

// topology is one variant of the topology section.
type topology struct {
	at              *node
	disaggregated   bool
	prefill, decode int          // workers; decode is the only pool of an aggregated one
	over            [2]*node     // engine keys of prefill and decode, nil: none
	overKey         [2]string    // their JSON
	transfer        *transferDoc // nil: none written
}

// transferDoc is a kv_transfer mapping as written.
type transferDoc struct {
	bytes              opt[uint64]
	bytesAuto          bool
	bandwidth          opt[float64]
	timing, contention opt[int]
}

func (f *faults) topologySection(n *node) *topology {
	t := &topology{at: n, prefill: 1, decode: 1}
	if n.kind == nullKind {
		return t
	}
	t.disaggregated = n.get("mode") != nil && n.get("mode").text == modeKinds[1]
	keys := aggregatedKeys
	if t.disaggregated {
		keys = disaggregatedKeys
	}
	m := f.mapping(n, "a mapping", keys)
	m.enum("mode", modeKinds...)
	t.prefill, t.decode = m.workers("prefill_workers"), m.workers("decode_workers")
	if !t.disaggregated {
		t.decode = m.workers("workers")
	}
	for i, key := range [...]string{"prefill_engine", "decode_engine"} {
		if v := m.get(key); v != nil && v.kind != nullKind {
			f.mapping(v, "a mapping", engineSectionKeys)
			t.over[i], t.overKey[i] = v, string(v.json())
		}
	}
	if v := m.get("kv_transfer"); v != nil && v.kind != nullKind {
		t.transfer = f.kvTransfer(v)
	}
	return t
}

// kvTransfer reads a kv_transfer mapping.
func (f *faults) kvTransfer(v *node) *transferDoc {
	t := &transferDoc{}
	k := f.mapping(v, "a mapping", kvTransferKeys)
	if b := k.get("bytes_per_token"); b != nil && b.kind == stringKind && b.text == "auto" {
		t.bytesAuto = true
	} else {
		t.bytes = k.uint("bytes_per_token", 64, notNull)
		k.rule(!t.bytes.set || t.bytes.v > 0, "bytes_per_token", "bytes_per_token must be auto or a positive integer")
	}
	t.bandwidth = k.float("bandwidth_gb_per_second", orNull)
	k.rule(!t.bandwidth.set || finite(t.bandwidth.v, 0) && t.bandwidth.v > 0, "bandwidth_gb_per_second", "bandwidth_gb_per_second must be finite and positive, or null for no delay")
	t.timing, t.contention = k.enum("timing_mode", transferModes...), k.enum("contention", contentions...)
	return t
}

func (m mapping) workers(key string) int {
	n := m.uint(key, 32, notNull)
	m.rule(n.or(1) >= 1, key, "a pool must start with at least one worker")
	m.rule(n.v <= maxWorkers, key, fmt.Sprintf("at most %d workers, got %d", maxWorkers, n.v))
	return n.int(1)
}

// price applies kv_transfer over what the prefill role's engine keys say.
func (t *transferDoc) price(base KVTransfer) KVTransfer {
	if t == nil {
		return base
	}
	switch {
	case t.bytes.set:
		base.BytesPerToken, base.BytesAuto = float64(t.bytes.v), false
	case t.bytesAuto || base.BytesPerToken == 0:
		base.BytesPerToken, base.BytesAuto = 0, true
	}
	if t.bandwidth.set || t.bandwidth.null {
		base.BandwidthGBps = t.bandwidth.v
	}
	if t.timing.set {
		base.DestinationMissing = t.timing.v == 1
	}
	if t.contention.set {
		base.FairShare = t.contention.v == 1
	}
	return base
}

// routerSection reads one variant of router.
func (f *faults) routerSection(n *node, dir string) *routerDoc {
	d := &routerDoc{origin: f.origin}
	if n.kind == nullKind {
		return d
	}
	m := f.mapping(n, "a mapping", routerKeys)
	d.kv = m.enum("mode", routerModes...).v == 1
	d.lagMs, d.modelName = m.float("kv_event_lag_ms", notNull).v, m.string("model_name", orNull).v
	m.rule(finite(d.lagMs, 0), "kv_event_lag_ms", "kv_event_lag_ms must be finite and non-negative, got "+plainFloat(d.lagMs))
	m.rule(d.lagMs == 0 || d.kv, "kv_event_lag_ms", "kv_event_lag_ms only supports router_mode='kv_router'")
	if p := m.string("policy_config", orNull); p.set {
		d.policy, d.policyAt = pathOf(dir, p.v), f.origin
	}
	if c := m.get("config"); c != nil && c.kind != nullKind {
		f.mapping(c, "a mapping", c.keys)
		if p := c.get("router_policy_config"); p != nil && p.kind == stringKind {
			d.policy = orText(d.policy, pathOf(dir, p.text))
			d.policyAt = f.origin
		}
		d.at, d.config = c, c.json()
		d.ais = c.get("router_prefill_load_model") != nil && c.get("router_prefill_load_model").text != "none"
	}
	return d
}

func (f *faults) slaSection(n *node) metrics.SLA {
	if n.kind == nullKind {
		return metrics.SLA{}
	}
	m := f.mapping(n, "a mapping", slaKeys)
	var b slaBounds
	for i, key := range slaKeys {
		o := m.float(key, orNull)
		b[i] = given(o.set, o.v)
	}
	sla, faults := b.check()
	for _, k := range faults {
		f.brokenAt(m.node, k.key, k.msg)
	}
	return sla
}
