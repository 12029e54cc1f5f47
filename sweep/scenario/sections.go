package scenario

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
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
)

// PathFrom finds a file that a document names: relative to the document's folder, or
// else to the working directory.
func PathFrom(dir, path string) string {
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

// readWorkload reads one variant of workload; nil with faults.
func readWorkload(f *document.Faults, n *document.Node, dir string) *Workload {
	m := f.Mapping(n, "a mapping", workloadKeys)
	hasTrace, hasSynthetic := m.Get("trace") != nil, m.Get("synthetic") != nil
	if hasTrace == hasSynthetic {
		f.Malformed(m.Node, "give either trace or synthetic")
		return nil
	}
	if hasTrace {
		return readTrace(f, m, dir)
	}
	return readSynthetic(f, m)
}

// loadControl reads the load keys, which stand in m or in its synthetic mapping.
type loadControl struct {
	at                         document.Mapping
	concurrency                document.Opt[uint64]
	rate, interval, speedup    document.Opt[float64]
	seed                       document.Opt[uint64]
	concurrencyKey, speedupKey string
}

func readLoad(m document.Mapping) loadControl {
	c := loadControl{at: m, concurrencyKey: m.Alias("concurrency", "replay_concurrency"), speedupKey: m.Alias("arrival_speedup", "arrival_speedup_ratio")}
	c.concurrency, c.rate = m.Uint(c.concurrencyKey, 64, document.OrNull), m.Float("request_rate", document.OrNull)
	c.interval, c.seed = m.Float("arrival_interval_ms", document.OrNull), m.Uint64("arrival_seed", document.OrNull)
	c.speedup = m.Float(c.speedupKey, document.NotNull)
	return c
}

func readSynthetic(f *document.Faults, m document.Mapping) *Workload {
	for i, key := range m.Keys {
		if key != "synthetic" && !slices.Contains(loadKeys, key) && slices.Contains(workloadKeys, key) {
			f.Malformed(m.Items[i], key+" belongs to trace workloads")
		}
	}
	s := m.Sub("synthetic", "a mapping", append(slices.Clone(syntheticKeys), loadKeys...))
	before := len(f.List) // unknown keys hide no faults of the others
	at, ok := findLoadKeys(m, s)
	if !ok {
		return nil
	}
	c := readLoad(at)
	w := workload.DefaultSynthetic()
	requests := s.Alias("requests", "request_count")
	for _, key := range [...]string{"input_tokens", "output_tokens", requests} {
		if s.Get(key) == nil {
			s.Missing(key)
		}
	}
	w.InputTokens, w.OutputTokens = s.Uint("input_tokens", 64, document.NotNull).Int(0), s.Uint("output_tokens", 64, document.NotNull).Int(0)
	w.Requests = s.Uint(requests, 64, document.NotNull).Int(0)
	w.TurnsPerSession = s.Uint("turns_per_session", 64, document.NotNull).Int(1)
	w.PrefixGroups = s.Uint("num_prefix_groups", 64, document.NotNull).Int(0)
	w.InterTurnDelayMs, w.SharedPrefixRatio = s.Float("inter_turn_delay_ms", document.NotNull).Or(0), s.Float("shared_prefix_ratio", document.NotNull).Or(0)
	c.control(&w)
	if len(f.List) > before {
		return nil
	}
	place := map[string]struct {
		at  document.Mapping
		key string
	}{"request_count": {s, requests}, "replay_concurrency": {at, c.concurrencyKey}, "arrival_speedup_ratio": {at, c.speedupKey},
		"request_rate": {at, "request_rate"}, "arrival_interval_ms": {at, "arrival_interval_ms"}}
	for _, k := range syntheticFaults(&w) {
		if p, ok := place[k.key]; ok {
			f.InvalidAt(p.at.Node, p.key, k.msg)
		} else {
			f.InvalidAt(s.Node, k.key, k.msg)
		}
	}
	return &Workload{Synthetic: &w, ArrivalSeedGiven: c.seed.Set, MaxSimTimeMs: math.Inf(1)}
}

// findLoadKeys is the mapping in which the load keys stand: m, or its synthetic mapping
// s; false if they stand in both.
func findLoadKeys(m document.Mapping, s document.Mapping) (document.Mapping, bool) {
	isLoad := func(key string) bool { return slices.Contains(loadKeys, key) }
	i := slices.IndexFunc(s.Keys, isLoad)
	if i < 0 {
		return m, true
	}
	if slices.ContainsFunc(m.Keys, isLoad) {
		m.Faults.Malformed(s.Items[i], "load keys stand in workload and in workload.synthetic: give them in one place")
		return m, false
	}
	return s, true
}

// control sets what decides when requests come.
func (c *loadControl) control(w *workload.Synthetic) {
	w.ArrivalSeed, w.Speedup = c.seed.Or(defaultArrivalSeed), c.speedup.Or(1)
	w.Concurrency, w.RatePerS, w.IntervalMs = c.concurrency.Int(0), c.rate.Value, c.interval.Value
	var err error
	if w.Control, err = workload.ChooseControl(given(c.concurrency.Set, w.Concurrency), given(c.rate.Set, w.RatePerS), given(c.interval.Set, w.IntervalMs)); err != nil {
		c.at.Faults.Malformed(c.at.Node, err.Error())
	}
}

// given is a pointer to v, or nil.
func given[T any](set bool, v T) *T {
	if !set {
		return nil
	}
	return &v
}

func readTrace(f *document.Faults, m document.Mapping, dir string) *Workload {
	for _, key := range [...]string{"request_rate", "arrival_interval_ms", "arrival_seed"} {
		if v := m.Get(key); v != nil {
			f.Malformed(v, "request_rate, arrival_interval_ms and arrival_seed only apply to synthetic load")
		}
	}
	format := trace.Mooncake
	if v := m.String("format", document.NotNull); v.Set {
		var err error
		if format, err = trace.ParseFormat(v.Value); err != nil {
			f.InvalidAt(m.Node, "format", err.Error())
			return nil
		}
	}
	load := trace.DefaultLoadOptions(format)
	if b := m.Uint("trace_block_size", 64, document.OrNull); b.Set {
		m.Require(b.Value > 0, "trace_block_size", "trace_block_size must be greater than 0")
		m.Require(b.Value <= maxBlockSize, "trace_block_size", fmt.Sprintf("trace_block_size must be at most %d, got %d", maxBlockSize, b.Value))
		load.BlockSize = b.Int(0)
	}
	load.SharedPrefixRatio = m.Float("trace_shared_prefix_ratio", document.NotNull).Or(0)
	load.PrefixGroups = m.Uint("trace_num_prefix_groups", 32, document.NotNull).Int(0)
	if v := m.String("nested_timestamp_basis", document.NotNull); v.Set {
		i := slices.Index(timestampBases, v.Value)
		m.Require(i >= 0 && format == trace.Weka, "nested_timestamp_basis", "nested_timestamp_basis is "+document.OneOf(timestampBases)+", for format weka only")
		load.WekaTimestamps = trace.WekaTimestamps(max(i, 0))
	}
	c, lanes := readLoad(m), m.Uint("agentic_lanes", 64, document.OrNull)
	t := &Trace{Load: load, Drive: trace.Drive{ClosedLoop: c.concurrency.Set, Concurrency: c.concurrency.Int(0),
		Speedup: c.speedup.Or(1), Laned: lanes.Set, Lanes: lanes.Int(0)}}
	t.readPaths(m, dir)
	w := &Workload{Trace: t, MaxSimTimeMs: math.Inf(1), ExecutionModel: m.String("execution_model", document.OrNull).Value}
	if v := m.Float("max_sim_time_seconds", document.OrNull); v.Set {
		w.MaxSimTimeMs = v.Value * 1000
		m.Require(document.FiniteFrom(w.MaxSimTimeMs, 0), "max_sim_time_seconds", "max_sim_time_ms must be a finite, non-negative value")
	}
	for _, k := range t.check() {
		key := map[string]string{"replay_concurrency": c.concurrencyKey, "arrival_speedup_ratio": c.speedupKey,
			"shared_prefix_ratio": "trace_shared_prefix_ratio", "num_prefix_groups": "trace_num_prefix_groups"}[k.key]
		f.InvalidAt(m.Node, orText(key, k.key), k.msg)
	}
	return w
}

// readPaths reads trace: a path, or inside an axis a list of paths.
func (t *Trace) readPaths(m document.Mapping, dir string) {
	n := m.Get("trace")
	items := []*document.Node{n}
	if n.Kind == document.List {
		items = n.Items
	}
	for _, v := range items {
		if v.Kind != document.String || v.Text == "" {
			m.Faults.Malformed(v, "invalid type: "+v.Describe()+", expected the path of a trace")
			continue
		}
		path := PathFrom(dir, v.Text)
		if _, err := os.Stat(path); err != nil {
			m.Faults.Invalid(v, "failed to open trace file "+path+": "+cause(err))
		}
		t.Paths = append(t.Paths, path)
		t.place(m.Faults.Origin, v)
	}
}

// topology is one variant of the topology section.
type topology struct {
	at              *document.Node
	disaggregated   bool
	prefill, decode int               // workers; decode is the only pool of an aggregated one
	over            [2]*document.Node // engine keys of prefill and decode, nil: none
	overKey         [2]string         // their JSON
	transfer        *transferDoc      // nil: none written
}

// transferDoc is a kv_transfer mapping as written.
type transferDoc struct {
	bytes              document.Opt[uint64]
	bytesAuto          bool
	bandwidth          document.Opt[float64]
	timing, contention document.Opt[int]
}

func readTopology(f *document.Faults, n *document.Node) *topology {
	t := &topology{at: n, prefill: 1, decode: 1}
	if n.Kind == document.Null {
		return t
	}
	t.disaggregated = n.Get("mode") != nil && n.Get("mode").Text == modeKinds[1]
	keys := aggregatedKeys
	if t.disaggregated {
		keys = disaggregatedKeys
	}
	m := f.Mapping(n, "a mapping", keys)
	m.Enum("mode", modeKinds...)
	t.prefill, t.decode = readWorkers(m, "prefill_workers"), readWorkers(m, "decode_workers")
	if !t.disaggregated {
		t.decode = readWorkers(m, "workers")
	}
	for i, key := range [...]string{"prefill_engine", "decode_engine"} {
		if v := m.Get(key); v != nil && v.Kind != document.Null {
			f.Mapping(v, "a mapping", engineSectionKeys)
			t.over[i], t.overKey[i] = v, string(v.JSON())
		}
	}
	if v := m.Get("kv_transfer"); v != nil && v.Kind != document.Null {
		t.transfer = readKVTransfer(f, v)
	}
	return t
}

// readKVTransfer reads a kv_transfer mapping.
func readKVTransfer(f *document.Faults, v *document.Node) *transferDoc {
	t := &transferDoc{}
	k := f.Mapping(v, "a mapping", kvTransferKeys)
	if b := k.Get("bytes_per_token"); b != nil && b.Kind == document.String && b.Text == "auto" {
		t.bytesAuto = true
	} else {
		t.bytes = k.Uint("bytes_per_token", 64, document.NotNull)
		k.Require(!t.bytes.Set || t.bytes.Value > 0, "bytes_per_token", "bytes_per_token must be auto or a positive integer")
	}
	t.bandwidth = k.Float("bandwidth_gb_per_second", document.OrNull)
	k.Require(!t.bandwidth.Set || document.FiniteFrom(t.bandwidth.Value, 0) && t.bandwidth.Value > 0, "bandwidth_gb_per_second", "bandwidth_gb_per_second must be finite and positive, or null for no delay")
	t.timing, t.contention = k.Enum("timing_mode", transferModes...), k.Enum("contention", contentions...)
	return t
}

func readWorkers(m document.Mapping, key string) int {
	n := m.Uint(key, 32, document.NotNull)
	m.Require(n.Or(1) >= 1, key, "a pool must start with at least one worker")
	m.Require(n.Value <= maxWorkers, key, fmt.Sprintf("at most %d workers, got %d", maxWorkers, n.Value))
	return n.Int(1)
}

// price applies kv_transfer over what the prefill role's engine keys say.
func (t *transferDoc) price(base KVTransfer) KVTransfer {
	if t == nil {
		return base
	}
	switch {
	case t.bytes.Set:
		base.BytesPerToken, base.BytesAuto = float64(t.bytes.Value), false
	case t.bytesAuto || base.BytesPerToken == 0:
		base.BytesPerToken, base.BytesAuto = 0, true
	}
	if t.bandwidth.Set || t.bandwidth.Null {
		base.BandwidthGBps = t.bandwidth.Value
	}
	if t.timing.Set {
		base.DestinationMissing = t.timing.Value == 1
	}
	if t.contention.Set {
		base.FairShare = t.contention.Value == 1
	}
	return base
}

// readRouter reads one variant of router.
func readRouter(f *document.Faults, n *document.Node, dir string) *routerDoc {
	d := &routerDoc{faults: document.Faults{Origin: f.Origin}, mode: router.DefaultMode()}
	if n.Kind == document.Null {
		return d
	}
	m := f.Mapping(n, "a mapping", routerKeys)
	d.mode = readMode(m, "mode")
	d.lagMs, d.modelName = m.Float("kv_event_lag_ms", document.NotNull).Value, m.String("model_name", document.OrNull).Value
	m.Require(document.FiniteFrom(d.lagMs, 0), "kv_event_lag_ms", "kv_event_lag_ms must be finite and non-negative, got "+plainFloat(d.lagMs))
	m.Require(d.lagMs == 0 || d.mode.Events, "kv_event_lag_ms", "kv_event_lag_ms only supports router_mode='kv_router'")
	if p := m.String("policy_config", document.OrNull); p.Set {
		d.policy, d.policyAt = PathFrom(dir, p.Value), f.Origin
	}
	if c := m.Get("config"); c != nil && c.Kind != document.Null {
		f.Mapping(c, "a mapping", c.Keys)
		if p := c.Get("router_policy_config"); p != nil && p.Kind == document.String {
			d.policy = orText(d.policy, PathFrom(dir, p.Text))
			d.policyAt = f.Origin
		}
		d.config = c
		d.ais = c.Get("router_prefill_load_model") != nil && c.Get("router_prefill_load_model").Text != "none"
	}
	return d
}

func readSLA(f *document.Faults, n *document.Node) metrics.SLA {
	if n.Kind == document.Null {
		return metrics.SLA{}
	}
	m := f.Mapping(n, "a mapping", slaKeys)
	var b slaBounds
	for i, key := range slaKeys {
		o := m.Float(key, document.OrNull)
		b[i] = given(o.Set, o.Value)
	}
	sla, faults := b.check()
	for _, k := range faults {
		f.InvalidAt(m.Node, k.key, k.msg)
	}
	return sla
}
