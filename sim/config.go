package sim

import (
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/tier"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// Config is one run, complete: nothing in it is looked up or defaulted later.
// It holds no mutable state but Source and Scaling, which belong to the run.
type Config struct {
	Disaggregated bool
	Prefill       PoolConfig // disaggregated only
	Decode        PoolConfig // the only pool of an aggregated run
	Router        RouterConfig
	Source        workload.Source
	Hasher        tier.Hasher // of its prompts, for memory behind KV pools; may be nil
	MaxSimTimeMs  float64     // +Inf: no cap
	SLA           metrics.SLA
	ClientMs      float64                  // added to every reported TTFT and latency; the run does not see it
	Capture       bool                     // keep per-request records
	Scaling       ScalingPolicy            // nil: fixed pools
	Telemetry     metrics.TelemetryOptions // IntervalMs 0: none
	Observers     Observers
	SlowPath      bool // pass by pass through the heap: the test switch of spec replay-runtime 13
}

// PoolConfig is one role's workers.
type PoolConfig struct {
	Workers       int
	DPSize        int            // ranks per worker
	GPUsPerWorker int            // tensor parallel x data parallel (x context parallel)
	Rank          engine.Config  // of every rank; MTPSeed is the base of aic_mtp_seed
	Offload       *tier.Config   // memory behind the KV pools; nil: none
	StartupMs     float64        // delay of scaled-up workers; 0: none
	Transfer      TransferConfig // read from the prefill pool only
}

// TransferConfig prices the KV handoff (spec replay-runtime 8.4).
type TransferConfig struct {
	BytesPerToken      float64 // 0: no model, no delay
	BandwidthGBps      float64 // decimal GB/s; 0: no delay
	DestinationMissing bool    // else full_prompt
	FairShare          bool    // contention: transfers over one link share its bandwidth
}

// RouterConfig chooses the placement policy of every pool.
type RouterConfig struct {
	Mode       *router.Mode  // nil: the default, round robin
	Config     router.Config // modes that are Configured
	Seed       uint64        // of the named streams for ties and draws
	EventLagMs float64       // modes that read KV events
}

// Observers receive what happens, in simulated order; nil fields are skipped.
type Observers struct {
	// KVEvents gets the events of one rank when they become visible.
	KVEvents func(atMs float64, pool metrics.Pool, worker, rank int32, ev KVEvents) error
	// Tick gets every Planner tick and what was decided.
	Tick func(t *TickRecord) error
	// Operation gets every change of a pool's workers once its instant is over.
	Operation func(o *Operation) error
	// Progress is called now and then with the clock and finished requests.
	Progress func(nowMs float64, finished int64)
}
