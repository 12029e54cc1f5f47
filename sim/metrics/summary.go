package metrics

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Totals is what only the run knows at its end.
type Totals struct {
	PrefillWorkerSeconds, DecodeWorkerSeconds float64 // provisioned; aggregated: decode
	PrefillGPUs, DecodeGPUs                   int     // per worker; aggregated: prefill 0
	WallMs                                    float64
	Unreleased                                int64      // requests never offered: the time limit came first, or their session or play had failed
	Agentic                                   []Field    // more keys of an agentic run, after the trajectories
	PlannerDetails                            bool       // a Planner ran and its ticks were kept
	G2Domains                                 []G2Domain // host memories that all workers share
	G3                                        *G3Offload // with a tier behind the host memory
	Tiers                                     []Tier     // behind the KV pools, nearest first
}

// Field is one more key of the report; Value is marshalled as JSON.
type Field struct {
	Name  string
	Value any
}

// Summary is the flat report of a run (spec report 4). Get, Keys and MarshalJSON
// give its figures by name.
type Summary struct {
	SLA       SLA
	Totals    Totals
	Requests  int64 // that arrived
	Completed int64 // the measured set

	InputTokens, OutputTokens, CommittedPrefill int64
	DurationMs                                  float64
	ReusedRatio, FirstReusedRatio               float64
	Good, GoodOutputTokens                      int64 // 0 without an SLA

	TTFT, TTST, TPOT, ITL, E2E, PerUser  Stats
	TTFTSamples, TPOTSamples, E2ESamples int64
	Agentic                              bool
	Trajectories, CompletedTrajectories  int64
	Trajectory                           Stats
	Grid                                 [len(GridTTFTMs)][len(GridITLMs)]int64 // completed requests within both limits
	Coverage                             Coverage
}

// Coverage is the block beside the summary that says what became of every request
// and where time and memory went.
type Coverage struct {
	CapturePerRequest     bool              `json:"capture_per_request"`
	CapturePlannerDetails bool              `json:"capture_planner_details"`
	PerRequestRecords     int64             `json:"per_request_records"`
	Outcomes              Outcomes          `json:"outcomes"`
	QueueMs               Stats             `json:"queue_ms"`           // arrival to first admission
	KVOccupancy           map[string]PoolKV `json:"kv_occupancy"`       // by pool, those that reported any
	PeakInFlight          int64             `json:"peak_in_flight"`     // requests that arrived and had not ended
	KVTiers               []Tier            `json:"kv_tiers,omitempty"` // behind the KV pools, nearest first
}

// Outcomes counts every request that arrived once. Preempted counts events, not
// requests.
type Outcomes struct {
	Completed     int64   `json:"completed"`
	Rejected      Reasons `json:"rejected"`
	Canceled      int64   `json:"canceled"`
	Failed        int64   `json:"failed"`
	FailedReasons Reasons `json:"failed_reasons"` // of the failed and the canceled
	Unfinished    int64   `json:"unfinished"`     // cut by the time limit
	Unreleased    int64   `json:"unreleased"`     // never offered; not among those that arrived
	Preempted     int64   `json:"preempted"`
}

// Reasons are outcomes in ascending order of their reason; as JSON an object of
// counts by reason.
type Reasons []Outcome

// Count is the number of requests behind the reasons.
func (r Reasons) Count() (n int64) {
	for _, o := range r {
		n += o.Count
	}
	return n
}

// MarshalJSON adds up equal reasons of different statuses.
func (r Reasons) MarshalJSON() ([]byte, error) {
	byReason := make(map[string]int64, len(r))
	for _, o := range r {
		byReason[o.Reason] += o.Count
	}
	return json.Marshal(byReason)
}

// PoolKV is the share of a pool's KV blocks in use during passes: the mean over
// their time and blocks, and the fullest rank ever seen.
type PoolKV struct {
	Mean float64 `json:"mean"`
	Peak float64 `json:"peak"`
}

// Summary computes every figure.
func (c *Collector) Summary(t Totals) *Summary {
	s := &Summary{
		SLA: c.opt.SLA, Totals: t, Requests: c.arrived, Completed: c.completed,
		InputTokens: c.input, OutputTokens: c.output, CommittedPrefill: c.committed,
		DurationMs: c.durationMs, Good: c.good, GoodOutputTokens: c.goodOutput,
		ReusedRatio: share(c.reused, c.input), FirstReusedRatio: share(c.firstReused, c.input),
		TTFT: c.ttft.Stats(), TTST: c.ttst.Stats(), TPOT: c.tpot.Stats(), E2E: c.e2e.Stats(),
		ITL: c.itl.Stats(), PerUser: c.perUser.Stats(),
		TTFTSamples: int64(c.ttft.Len()), TPOTSamples: int64(c.tpot.Len()), E2ESamples: int64(c.e2e.Len()),
		Agentic: c.opt.Trajectories, Trajectories: c.trajectoriesEnded,
		CompletedTrajectories: int64(c.trajectories.Len()), Trajectory: c.trajectories.Stats(),
		Coverage: c.coverage(t),
	}
	for i := range GridTTFTMs { // sums of the cells up to both limits
		row := int64(0)
		for j := range GridITLMs {
			row += c.within[i][j]
			s.Grid[i][j] = row
			if i > 0 {
				s.Grid[i][j] += s.Grid[i-1][j]
			}
		}
	}
	return s
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (c *Collector) coverage(t Totals) Coverage {
	v := Coverage{
		CapturePerRequest: c.opt.Capture, CapturePlannerDetails: t.PlannerDetails,
		PerRequestRecords: int64(len(c.records)), QueueMs: c.queue.Stats(), PeakInFlight: c.peak, KVTiers: t.Tiers,
		KVOccupancy: map[string]PoolKV{},
		Outcomes: Outcomes{Completed: c.succeeded, Unfinished: c.arrived - c.ended,
			Unreleased: t.Unreleased, Preempted: c.preempted},
	}
	reasons := slices.Clone(c.reasons)
	slices.SortFunc(reasons, func(a, b Outcome) int { return cmp.Compare(a.Reason, b.Reason) })
	for _, o := range reasons {
		switch o.Status {
		case Rejected:
			v.Outcomes.Rejected = append(v.Outcomes.Rejected, o)
			continue
		case Canceled:
			v.Outcomes.Canceled += o.Count
		default:
			v.Outcomes.Failed += o.Count
		}
		v.Outcomes.FailedReasons = append(v.Outcomes.FailedReasons, o)
	}
	for p, o := range c.occupancy {
		if o.totalMs > 0 {
			v.KVOccupancy[Pool(p).String()] = PoolKV{o.usedMs / o.totalMs, o.peak}
		}
	}
	return v
}

// seconds is the duration by which rates divide, never 0.
func (s *Summary) seconds() float64 { return max(s.DurationMs/1000, 1e-9) }

// perSecond is a rate over the simulated duration.
func (s *Summary) perSecond(n int64) float64 { return float64(n) / s.seconds() }

// perWallSecond is a rate over real time, 0 when none passed.
func (s *Summary) perWallSecond(n int64) float64 {
	if s.Totals.WallMs <= 0 {
		return 0
	}
	return float64(n) / s.Totals.WallMs * 1000
}

// GPUHours are provisioned: starting and draining workers count.
func (s *Summary) GPUHours() float64 {
	t := &s.Totals
	return (float64(t.PrefillWorkerSeconds*float64(t.PrefillGPUs)) +
		float64(t.DecodeWorkerSeconds*float64(t.DecodeGPUs))) / 3600
}

// Attainment is the share of the arrived requests that met the SLA; ok is false
// without an SLA or without requests.
func (s *Summary) Attainment() (ratio float64, ok bool) {
	if !s.SLA.Set() || s.Requests == 0 {
		return 0, false
	}
	return share(s.Good, s.Requests), true
}
