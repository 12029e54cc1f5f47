package sim

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/engine/sglang"
	"github.com/dynosweep/dynosweep/sim/engine/trtllm"
	"github.com/dynosweep/dynosweep/sim/engine/vllm"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// constructors are the backends' own, by engine.Backend.
var constructors = [...]func(engine.Config) (engine.Core, error){
	engine.VLLM:   func(c engine.Config) (engine.Core, error) { return vllm.New(c) },
	engine.SGLang: func(c engine.Config) (engine.Core, error) { return sglang.New(c) },
	engine.TRTLLM: func(c engine.Config) (engine.Core, error) { return trtllm.New(c) },
}

func newCore(cfg engine.Config) (engine.Core, error) { return constructors[cfg.Backend](cfg) }

// New checks a configuration and builds the run at clock 0.
func New(cfg Config) (*Sim, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Sim{startedMs: -1, cfg: cfg, src: cfg.Source, capMs: cfg.MaxSimTimeMs}
	s.collector = metrics.NewCollector(metrics.Options{
		SLA: cfg.SLA, ClientMs: cfg.ClientMs, Capture: cfg.Capture, Trajectories: cfg.Source.Plays() != nil,
		Requests: cfg.Source.Total()})
	// A cap can cut requests that already have tokens, and only completed ones
	// count: their gaps wait with the request.
	s.exactTokens = cfg.SlowPath || !math.IsInf(cfg.MaxSimTimeMs, 1)
	s.handoffs.open = map[int64]int32{}
	s.lifecycle.observer = cfg.Observers.Operation
	s.handoffs.sourceFirst = !cfg.Decode.Rank.Backend.Descriptor().DestinationFirst
	s.scaling.armedMs = math.Inf(1)
	s.telemetry.armedMs, s.telemetry.on = math.Inf(1), cfg.Telemetry.IntervalMs > 0 && cfg.Telemetry.Sink != nil
	if cfg.Disaggregated {
		if err := s.addPool(&s.prefill, stagePrefill, metrics.PrefillPool, cfg.Prefill, router.Prefill); err != nil {
			return nil, err
		}
		if err := s.addPool(&s.decode, stageDecode, metrics.DecodePool, cfg.Decode, router.Decode); err != nil {
			return nil, err
		}
		return s, nil
	}
	if err := s.addPool(&s.decode, stageAggregated, metrics.Agg, cfg.Decode, router.Aggregated); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Sim) addPool(at **pool, stage uint8, kind metrics.Pool, cfg PoolConfig, side router.Side) error {
	p := &pool{stage: stage, kind: kind, cfg: cfg}
	p.extrapolation, _ = cfg.Rank.Timing.(timing.ExtrapolationCounter)
	var err error
	if p.placement, err = newPlacement(s.cfg.Router, cfg, side); err != nil {
		return &Error{InvalidSpec, err}
	}
	p.memory = s.newMemory(&cfg)
	p.cfg.Rank.WantEvents = p.placement.WantsEvents() || s.cfg.Observers.KVEvents != nil
	p.cfg.Rank.WantMetrics = s.cfg.Scaling != nil
	if s.cfg.Observers.KVEvents != nil {
		s.cfg.SlowPath = true // events are written in the order of their time
	}
	s.splitEvents = s.splitEvents || p.placement.WantsEvents() && s.cfg.Router.EventLagMs > 0
	*at = p
	s.pools = append(s.pools, p)
	for i := 0; i < cfg.Workers; i++ {
		if _, err := s.addWorker(p, active); err != nil {
			return err
		}
	}
	return nil
}

func newPlacement(r RouterConfig, cfg PoolConfig, side router.Side) (router.Placement, error) {
	mode := r.Mode
	if mode == nil {
		mode = router.DefaultMode()
	}
	return mode.New(router.Options{
		Config: r.Config, Side: side, BlockSize: cfg.Rank.BlockSize, DPSize: cfg.DPSize,
		MaxBatchedTokens: cfg.Rank.MaxNumBatchedTokens, Seed: r.Seed, EventLagMs: r.EventLagMs,
	})
}

// validate checks relations between the parts; every part was checked by its own
// package (spec replay-runtime 1).
func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, &Error{InvalidSpec, fmt.Errorf(format, args...)})
	}
	roles := []struct {
		name string
		pool *PoolConfig
		want engine.Role
	}{{"aggregated", &c.Decode, engine.Aggregated}}
	if c.Disaggregated {
		roles = append(roles[:0], struct {
			name string
			pool *PoolConfig
			want engine.Role
		}{"prefill", &c.Prefill, engine.Prefill}, struct {
			name string
			pool *PoolConfig
			want engine.Role
		}{"decode", &c.Decode, engine.Decode})
	}
	for _, r := range roles {
		if r.pool.Workers < 1 && c.Scaling == nil {
			bad("%s pool must start with at least one worker", r.name)
		}
		if r.pool.DPSize < 1 {
			bad("%s dp_size must be positive", r.name)
		}
		if r.pool.Rank.Role != r.want {
			bad("%s pool has a %s engine", r.name, r.pool.Rank.Role)
		}
	}
	if c.Disaggregated {
		if c.Prefill.Rank.BlockSize != c.Decode.Rank.BlockSize {
			bad("offline disaggregated replay requires matching prefill/decode block_size, got %d and %d",
				c.Prefill.Rank.BlockSize, c.Decode.Rank.BlockSize)
		}
		if c.Prefill.Rank.Backend != c.Decode.Rank.Backend {
			errs = append(errs, &Error{InvariantViolated, errors.New("offline disaggregated replay requires matching backend engine types")})
		} else if !c.Decode.Rank.Backend.Descriptor().Disaggregated {
			bad("disaggregated serving is not supported for backend=trtllm; use vllm or sglang")
		}
	}
	if c.Source == nil {
		bad("a run needs a workload")
	}
	if math.IsNaN(c.MaxSimTimeMs) || c.MaxSimTimeMs < 0 {
		errs = append(errs, errors.New("max_sim_time_ms must be a finite, non-negative value"))
	}
	return errors.Join(errs...)
}
