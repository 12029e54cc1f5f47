package metrics

// Traffic is what arrived and completed in a window of simulated time. Means of
// nothing are 0.
type Traffic struct {
	DurationS       float64
	Arrived         int64
	Completed       int64 // completed and not rejected: the requests behind the means
	AvgISL, AvgOSL  float64
	AvgTTFTMs       float64 // over TTFT > 0
	TTFTCount       int64
	AvgITLMs        float64 // of mean gaps, over requests with more than one output token
	ITLCount        int64
	AvgHitRate      float64 // mean over placements of overlap / isl blocks
	HitRateCount    int64
	AvgAcceptLength float64 // accepted tokens per request decode-forward
	Forwards        int64   // 0: no accept length
}

// Window accumulates the traffic between two looks (spec replay-runtime 9). A
// Planner and telemetry each have their own. The zero Window starts at clock 0.
type Window struct {
	sinceMs                         float64
	arrived, completed              int64
	input, output                   int64 // tokens of the completed
	ttftMs, itlMs, hits             float64
	ttftCount, itlCount, placements int64
	accepted, forwards              int64
}

// Arrived counts an offered request, later rejected or not.
func (w *Window) Arrived() { w.arrived++ }

// Completed folds in an ended request; all but completed ones are ignored.
func (w *Window) Completed(r *Record) {
	if r.Status != Completed {
		return
	}
	w.completed++
	w.input += int64(r.Input)
	w.output += int64(r.Output)
	if r.Output >= 1 {
		if ttft := r.serverTTFTMs(); ttft > 0 {
			w.ttftMs += ttft
			w.ttftCount++
		}
	}
	if r.Output >= 2 {
		w.itlMs += r.TPOTMs()
		w.itlCount++
	}
}

// HitRate counts one placement that found overlap of isl blocks; isl 0 is ignored.
func (w *Window) HitRate(overlap, isl int32) {
	if isl > 0 {
		w.hits += float64(overlap) / float64(isl)
		w.placements++
	}
}

// Accept counts accepted tokens (the base token included) and request
// decode-forwards.
func (w *Window) Accept(accepted, forwards int64) {
	w.accepted += accepted
	w.forwards += forwards
}

// Pending reports whether anything was observed since the last Consume.
func (w *Window) Pending() bool {
	return w.arrived|w.completed|w.placements|w.accepted|w.forwards != 0
}

// Consume returns the figures since the last Consume and starts the next window at nowMs.
func (w *Window) Consume(nowMs float64) Traffic {
	t := Traffic{
		DurationS: (nowMs - w.sinceMs) / 1000, Arrived: w.arrived, Completed: w.completed,
		AvgISL: mean(float64(w.input), w.completed), AvgOSL: mean(float64(w.output), w.completed),
		AvgTTFTMs: mean(w.ttftMs, w.ttftCount), TTFTCount: w.ttftCount,
		AvgITLMs: mean(w.itlMs, w.itlCount), ITLCount: w.itlCount,
		AvgHitRate: mean(w.hits, w.placements), HitRateCount: w.placements,
		AvgAcceptLength: mean(float64(w.accepted), w.forwards), Forwards: w.forwards,
	}
	*w = Window{sinceMs: nowMs}
	return t
}

func mean(sum float64, n int64) float64 {
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// SampleKind says why a telemetry sample was taken.
type SampleKind uint8

const (
	Baseline SampleKind = iota
	Periodic
	Final
)

func (k SampleKind) String() string { return [...]string{"baseline", "periodic", "final"}[k] }

// Sample is one telemetry sample (spec report 9). Slices live until the next one.
type Sample struct {
	Ordinal       int64
	Kind          SampleKind
	StartMs, AtMs float64 // the interval since the previous sample
	Traffic       Traffic
	Prefill       PoolSample
	Decode        PoolSample // the only pool of an aggregated run
}

// PoolSample is the state of one pool. Ids ascend.
type PoolSample struct {
	Ranks                      []RankSample // live ranks, by worker and rank
	Pending                    int          // requests queued in the router
	Active, Starting, Draining []int32      // worker ids
	Interval                   Counters     // of the whole pool since the previous sample
}

// RankSample is the state of one rank after its last command or pass end, and what
// it counted since the previous sample.
type RankSample struct {
	Worker, Rank                              int32
	ActiveBlocks, InactiveBlocks, TotalBlocks int64
	Running, Waiting                          int64 // requests
	Interval                                  Counters
}

// Counters are what schedulers count. Cache figures are SGLang's, else 0.
type Counters struct{ CacheHitTokens, CacheTotalTokens, Preemptions int64 }

// Add adds o.
func (c *Counters) Add(o Counters) {
	c.CacheHitTokens += o.CacheHitTokens
	c.CacheTotalTokens += o.CacheTotalTokens
	c.Preemptions += o.Preemptions
}

// AppendJSON appends the sample as one compact JSON object.
func (s *Sample) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	b = appendInt(appendName(b, "sample_ordinal"), s.Ordinal)
	b = appendString(appendName(b, "kind"), s.Kind.String())
	b = appendFloat(appendName(b, "interval_start_ms"), s.StartMs)
	b = appendFloat(appendName(b, "sampled_at_ms"), s.AtMs)
	b = s.Traffic.appendJSON(appendName(b, "traffic"))
	b = appendRanks(appendName(b, "prefill_scheduler_metrics"), s.Prefill.Ranks)
	b = appendRanks(appendName(b, "decode_scheduler_metrics"), s.Decode.Ranks)
	b = append(s.Prefill.Interval.appendFields(append(appendName(b, "prefill_interval_metrics"), '{')), '}')
	b = append(s.Decode.Interval.appendFields(append(appendName(b, "decode_interval_metrics"), '{')), '}')
	b = appendInt(appendName(b, "router_pending_prefill_requests"), int64(s.Prefill.Pending))
	b = appendInt(appendName(b, "router_pending_decode_requests"), int64(s.Decode.Pending))
	b = appendIDs(appendName(b, "active_prefill_ids"), s.Prefill.Active)
	b = appendIDs(appendName(b, "active_decode_ids"), s.Decode.Active)
	b = appendIDs(appendName(b, "starting_prefill_ids"), s.Prefill.Starting)
	b = appendIDs(appendName(b, "starting_decode_ids"), s.Decode.Starting)
	b = appendIDs(appendName(b, "draining_prefill_ids"), s.Prefill.Draining)
	b = appendIDs(appendName(b, "draining_decode_ids"), s.Decode.Draining)
	return append(b, '}')
}

// MarshalJSON is AppendJSON.
func (s *Sample) MarshalJSON() ([]byte, error) { return s.AppendJSON(nil), nil }

func (t *Traffic) appendJSON(b []byte) []byte {
	b = append(b, '{')
	b = appendFloat(appendName(b, "duration_s"), t.DurationS)
	b = appendInt(appendName(b, "arriving_requests"), t.Arrived)
	b = appendInt(appendName(b, "completed_requests"), t.Completed)
	b = appendFloat(appendName(b, "avg_isl"), t.AvgISL)
	b = appendFloat(appendName(b, "avg_osl"), t.AvgOSL)
	b = appendFloat(appendName(b, "avg_ttft_ms"), t.AvgTTFTMs)
	b = appendFloat(appendName(b, "avg_itl_ms"), t.AvgITLMs)
	b = appendInt(appendName(b, "ttft_count"), t.TTFTCount)
	b = appendInt(appendName(b, "itl_count"), t.ITLCount)
	b = appendFloat(appendName(b, "avg_router_kv_hit_rate"), t.AvgHitRate)
	b = appendInt(appendName(b, "router_kv_hit_rate_count"), t.HitRateCount)
	b = appendName(b, "avg_accept_length")
	if t.Forwards == 0 {
		b = append(b, "null"...)
	} else {
		b = appendFloat(b, t.AvgAcceptLength)
	}
	b = appendInt(appendName(b, "accept_length_forward_count"), t.Forwards)
	return append(b, '}')
}

func appendRanks(b []byte, ranks []RankSample) []byte {
	b = append(b, '[')
	for i := range ranks {
		if i > 0 {
			b = append(b, ',')
		}
		b = ranks[i].appendJSON(b)
	}
	return append(b, ']')
}

func (r *RankSample) appendJSON(b []byte) []byte {
	b = append(b, '{')
	b = appendInt(appendName(b, "worker_id"), int64(r.Worker))
	b = appendInt(appendName(b, "dp_rank"), int64(r.Rank))
	b = appendInt(appendName(b, "active_blocks"), r.ActiveBlocks)
	b = appendInt(appendName(b, "inactive_blocks"), r.InactiveBlocks)
	b = appendInt(appendName(b, "total_blocks"), r.TotalBlocks)
	b = appendFloat(appendName(b, "active_cache_usage"), share(r.ActiveBlocks, r.TotalBlocks))
	b = appendFloat(appendName(b, "physical_cache_usage"), share(r.ActiveBlocks+r.InactiveBlocks, r.TotalBlocks))
	b = appendInt(appendName(b, "running_requests"), r.Running)
	b = appendInt(appendName(b, "waiting_requests"), r.Waiting)
	return append(r.Interval.appendFields(b), '}')
}

func (c *Counters) appendFields(b []byte) []byte {
	b = appendInt(appendName(b, "cache_hit_tokens"), c.CacheHitTokens)
	b = appendInt(appendName(b, "cache_total_tokens"), c.CacheTotalTokens)
	return appendInt(appendName(b, "preemptions"), c.Preemptions)
}
