package metrics

import "math"

// Kind is the type of a report key.
type Kind uint8

const (
	Int Kind = iota
	Float
	Text
)

// Presence says which reports have a key.
type Presence uint8

const (
	Always    Presence = iota
	WithSLA            // only when a goodput bound was given
	OfAgentic          // only for agentic loads
)

// Key is one line of the report: its name, what it means, and how to read it.
type Key struct {
	Name, Unit, Meaning string
	Kind                Kind
	When                Presence
	Wall                bool // real time: differs from run to run

	get     func(*Summary) float64 // NaN: null
	samples func(*Summary) int64   // of a distribution; nil for other figures
	text    func(*Summary) string  // Kind Text
}

// null is the value of a figure that nobody measured.
func null(*Summary) float64 { return math.NaN() }

// keys is the report in order of serialisation (spec report 4).
var keys = buildKeys()

// Keys returns every key of the report in its order, the optional ones included.
// The slice is shared and read-only.
func Keys() []Key { return keys }

func buildKeys() []Key {
	k := append(loadKeys(), resourceKeys()...)
	k = append(k, rateKeys()...)
	k = append(k, dist("ttft_ms", "ms", "time to first token: first token - arrival",
		func(s *Summary) *Stats { return &s.TTFT }, func(s *Summary) int64 { return s.TTFTSamples })...)
	k = append(k, dist("ttst_ms", "ms", "gap between the first and the second token",
		func(s *Summary) *Stats { return &s.TTST }, tpotSamples)...)
	k = append(k, dist("tpot_ms", "ms", "time per output token: mean gap of a request",
		func(s *Summary) *Stats { return &s.TPOT }, tpotSamples)...)
	k = append(k, dist("itl_ms", "ms", "inter-token latency: every gap of every request",
		func(s *Summary) *Stats { return &s.ITL }, tpotSamples)...)
	k = append(k, agenticKeys()...)
	k = append(k, dist("e2e_latency_ms", "ms", "request latency: last token - arrival",
		func(s *Summary) *Stats { return &s.E2E }, func(s *Summary) int64 { return s.E2ESamples })...)
	return append(k, dist("output_token_throughput_per_user", "tok/s/user", "1000 / gap, for every gap above 0",
		func(s *Summary) *Stats { return &s.PerUser }, tpotSamples)...)
}

func loadKeys() []Key {
	return []Key{
		{Name: "kv_eviction_policy", Kind: Text, Meaning: "order in which unused KV blocks are evicted",
			text: func(*Summary) string { return "lru" }},
		{Name: committedKey, Unit: "tokens", Meaning: "prefill tokens of completed passes of all workers, recomputation included",
			get: func(s *Summary) float64 { return float64(s.CommittedPrefill) }},
		{Name: "num_requests", Unit: "requests", Meaning: "requests that arrived",
			get: func(s *Summary) float64 { return float64(s.Requests) }},
		{Name: "completed_requests", Unit: "requests", Meaning: "requests admitted and completed: the measured set of every figure below",
			get: func(s *Summary) float64 { return float64(s.Completed) }},
		{Name: "total_input_tokens", Unit: "tokens", Meaning: "input lengths of the measured set",
			get: func(s *Summary) float64 { return float64(s.InputTokens) }},
		{Name: "total_output_tokens", Unit: "tokens", Meaning: "tokens emitted to the measured set",
			get: func(s *Summary) float64 { return float64(s.OutputTokens) }},
		{Name: "duration_ms", Unit: "ms", Kind: Float, Meaning: "latest end of a measured request, from clock 0",
			get: func(s *Summary) float64 { return s.DurationMs }},
		{Name: "wall_time_ms", Unit: "ms", Kind: Float, Wall: true, Meaning: "real time of building and running the simulation",
			get: func(s *Summary) float64 { return s.Totals.WallMs }},
		{Name: "request_throughput_rps", Unit: "requests/s", Kind: Float, Meaning: "completed requests / duration",
			get: func(s *Summary) float64 { return s.perSecond(s.Completed) }},
		{Name: "input_throughput_tok_s", Unit: "tok/s", Kind: Float, Meaning: "input tokens / duration",
			get: func(s *Summary) float64 { return s.perSecond(s.InputTokens) }},
		{Name: "output_throughput_tok_s", Unit: "tok/s", Kind: Float, Meaning: "output tokens / duration",
			get: func(s *Summary) float64 { return s.perSecond(s.OutputTokens) }},
		{Name: "total_throughput_tok_s", Unit: "tok/s", Kind: Float, Meaning: "input and output tokens / duration",
			get: func(s *Summary) float64 { return s.perSecond(s.InputTokens + s.OutputTokens) }},
	}
}

func resourceKeys() []Key {
	return []Key{
		{Name: "prefill_worker_seconds", Unit: "s", Kind: Float, Meaning: "provisioned prefill workers integrated over time; 0 when aggregated",
			get: func(s *Summary) float64 { return s.Totals.PrefillWorkerSeconds }},
		{Name: "decode_worker_seconds", Unit: "s", Kind: Float, Meaning: "provisioned decode (or aggregated) workers integrated over time",
			get: func(s *Summary) float64 { return s.Totals.DecodeWorkerSeconds }},
		{Name: "prefill_gpus_per_worker", Unit: "GPUs", Meaning: "tensor x data x prefill context parallel size; 0 when aggregated",
			get: func(s *Summary) float64 { return float64(s.Totals.PrefillGPUs) }},
		{Name: "decode_gpus_per_worker", Unit: "GPUs", Meaning: "tensor x data x prefill context parallel size",
			get: func(s *Summary) float64 { return float64(s.Totals.DecodeGPUs) }},
		{Name: "gpu_hours", Unit: "h", Kind: Float, Meaning: "worker seconds x GPUs per worker of both roles / 3600",
			get: (*Summary).GPUHours},
		{Name: "goodput_completed_requests", Unit: "requests", When: WithSLA, Meaning: "measured requests within every SLA bound",
			get: func(s *Summary) float64 { return float64(s.Good) }},
		{Name: "goodput_request_throughput_rps", Unit: "requests/s", Kind: Float, When: WithSLA, Meaning: "good requests / duration",
			get: func(s *Summary) float64 { return s.perSecond(s.Good) }},
		{Name: "goodput_output_throughput_tok_s", Unit: "tok/s", Kind: Float, When: WithSLA, Meaning: "output tokens of good requests / duration",
			get: func(s *Summary) float64 { return s.perSecond(s.GoodOutputTokens) }},
		{Name: "power_w", Unit: "W", Kind: Float, Meaning: "mean active power per GPU; null: no timing source reports energy", get: null},
		{Name: "power_coverage", Unit: "0..1", Kind: Float, Meaning: "share of the modeled work with measured energy; null as power_w", get: null},
	}
}

func rateKeys() []Key {
	return []Key{
		{Name: "processed_tokens", Unit: "tokens", Meaning: "input and output tokens of the measured set",
			get: func(s *Summary) float64 { return float64(s.InputTokens + s.OutputTokens) }},
		{Name: "processed_tokens_per_s", Unit: "tok/s", Kind: Float, Wall: true, Meaning: "processed tokens / real time",
			get: func(s *Summary) float64 { return s.perWallSecond(s.InputTokens + s.OutputTokens) }},
		{Name: "processed_output_tokens_per_s", Unit: "tok/s", Kind: Float, Wall: true, Meaning: "output tokens / real time",
			get: func(s *Summary) float64 { return s.perWallSecond(s.OutputTokens) }},
		{Name: "prefix_cache_reused_ratio", Unit: "0..1", Kind: Float, Meaning: "input tokens found in the cache, best admission of each request, / input tokens",
			get: func(s *Summary) float64 { return s.ReusedRatio }},
		{Name: "first_admission_prefix_cache_reused_ratio", Unit: "0..1", Kind: Float, Meaning: "the same at the first admission of each request",
			get: func(s *Summary) float64 { return s.FirstReusedRatio }},
		{Name: "num_ttft_samples", Unit: "requests", Meaning: "requests with a first token",
			get: func(s *Summary) float64 { return float64(s.TTFTSamples) }},
		{Name: "num_tpot_samples", Unit: "requests", Meaning: "requests with two tokens or more",
			get: func(s *Summary) float64 { return float64(s.TPOTSamples) }},
		{Name: "num_e2e_latency_samples", Unit: "requests", Meaning: "requests with a last token",
			get: func(s *Summary) float64 { return float64(s.E2ESamples) }},
	}
}

// lastTrajectoryKey is the key that Totals.Agentic follow.
const (
	// committedKey is the key that the blocks of memory behind KV pools follow.
	committedKey = "committed_prefill_tokens"

	lastTrajectoryKey = "p50_trajectory_e2e_latency_ms"
)

func agenticKeys() []Key {
	k := []Key{
		{Name: "total_trajectories", Unit: "plays", Meaning: "agentic plays",
			get: func(s *Summary) float64 { return float64(s.Trajectories) }},
		{Name: "completed_trajectories", Unit: "plays", Meaning: "plays of which every request completed",
			get: func(s *Summary) float64 { return float64(s.CompletedTrajectories) }},
		{Name: "incomplete_trajectories", Unit: "plays", Meaning: "the others",
			get: func(s *Summary) float64 { return float64(s.Trajectories - s.CompletedTrajectories) }},
	}
	k = append(k, dist("trajectory_e2e_latency_ms", "ms", "completed plays: last end - start",
		func(s *Summary) *Stats { return &s.Trajectory }, func(s *Summary) int64 { return int64(s.CompletedTrajectories) })...)
	k = append(k, Key{Name: lastTrajectoryKey, Unit: "ms", Kind: Float, Meaning: "the median again",
		get: func(s *Summary) float64 { return s.Trajectory.Median }})
	for i := range k {
		k[i].When = OfAgentic
	}
	return k
}

// tpotSamples counts the requests with two tokens or more, which alone have gaps.
func tpotSamples(s *Summary) int64 { return s.TPOTSamples }

// dist is the nine keys of one distribution.
func dist(suffix, unit, meaning string, of func(*Summary) *Stats, samples func(*Summary) int64) []Key {
	parts := [...]struct {
		name, meaning string
		get           func(*Stats) float64
	}{
		{"mean", "mean", func(t *Stats) float64 { return t.Mean }},
		{"min", "minimum", func(t *Stats) float64 { return t.Min }},
		{"max", "maximum", func(t *Stats) float64 { return t.Max }},
		{"median", "median", func(t *Stats) float64 { return t.Median }},
		{"p75", "75th percentile", func(t *Stats) float64 { return t.P75 }},
		{"p90", "90th percentile", func(t *Stats) float64 { return t.P90 }},
		{"p95", "95th percentile", func(t *Stats) float64 { return t.P95 }},
		{"p99", "99th percentile", func(t *Stats) float64 { return t.P99 }},
		{"std", "population standard deviation", func(t *Stats) float64 { return t.Std }},
	}
	k := make([]Key, len(parts))
	for i, p := range parts {
		k[i] = Key{Name: p.name + "_" + suffix, Unit: unit, Kind: Float, Meaning: p.meaning + "; " + meaning,
			get: func(s *Summary) float64 { return p.get(of(s)) }, samples: samples}
	}
	return k
}

// In reports whether the report s has key k, be it null.
func (k *Key) In(s *Summary) bool {
	switch k.When {
	case WithSLA:
		return s.SLA.Set()
	case OfAgentic:
		return s.Agentic
	}
	return true
}

// Measured reports whether anything was measured for key k. The report prints 0 for a
// distribution without samples, as the reference does; a table has no value there.
func (k *Key) Measured(s *Summary) bool { return k.samples == nil || k.samples(s) > 0 }

// Value is the figure of key k; ok is false for null, absent and text keys.
func (k *Key) Value(s *Summary) (v float64, ok bool) {
	if k.get == nil || !k.In(s) {
		return 0, false
	}
	if v = k.get(s); math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}

// Text is the string of a key of kind Text.
func (k *Key) Text(s *Summary) string { return k.text(s) }

// Get returns a figure by name; ok is false for unknown, absent, null and text keys.
func (s *Summary) Get(name string) (v float64, ok bool) {
	for i := range keys {
		if keys[i].Name == name {
			return keys[i].Value(s)
		}
	}
	return 0, false
}
