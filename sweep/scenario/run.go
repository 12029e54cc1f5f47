// Package scenario turns every input document into runs: engine arguments in both
// shapes, the flags of replay, the sweep specification and the AISimulate YAML
// (spec engine-args, sweeps-and-schema). It is strict: an unknown key, a wrong
// type or a broken rule is a Fault with origin, line and dotted path, and all
// faults of a document are reported at once.
//
// The order of use is
//
//	run, err := flags.Resolve(files)              or ReadPredict, or a Point's Run
//	src, err := a workload.Source for run.Workload
//	cfg, err := run.Config(src, resolver)         the complete sim.Config
//
// Documents have three stages: what was written (opt values), with defaults
// filled in (Role, Workload, Router, Planner), and the sim.Config. The middle one
// has a JSON form, which Run.Resolved makes and FromResolved reads back. From it
// the identity of a point is digested; seeds that a document leaves open and the
// paths of files are no part of the identity, the content of files is.
//
// Times are ms unless a name says otherwise, lengths are tokens. Nothing here runs
// a simulation, starts a goroutine, or reads more than the documents named.
package scenario

import (
	"errors"
	"fmt"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// Run is one configuration, complete but for what only loaded data can tell: the
// workload's requests and the TimingResolver's answers. Its parts are shared with
// other runs and never changed; a Run is copied by value.
type Run struct {
	Prefill                       *Role // nil: aggregated
	Decode                        *Role // the only role of an aggregated run
	PrefillWorkers, DecodeWorkers int
	Transfer                      KVTransfer // disaggregated only
	Workload                      *Workload
	Router                        *Router
	Planner                       *Planner // nil: fixed pools
	SLA                           metrics.SLA
	RouterSeed                    uint64
	ArrivalSeed                   uint64  // of Poisson arrivals, written or not
	MTPSeed                       uint64  // of roles that leave aic_mtp_seed open
	TelemetryMs                   float64 // sampling interval, 0: none
}

// Disaggregated reports whether prefill and decode have pools of their own.
func (r *Run) Disaggregated() bool { return r.Prefill != nil }

// GPUs is the number of GPUs at the start.
func (r *Run) GPUs() int {
	n := r.DecodeWorkers * r.Decode.GPUs()
	if r.Prefill != nil {
		n += r.PrefillWorkers * r.Prefill.GPUs()
	}
	return n
}

// Drawn reports whether the seed of the run decides anything: a draw of the
// router, a Poisson arrival or a draft token whose seed is open.
func (r *Run) Drawn() bool {
	if r.Workload.Drawn() && !r.Workload.ArrivalSeedGiven || r.Decode.drawn() {
		return true
	}
	if !r.Router.Mode.Draws {
		return false
	}
	return r.Planner != nil || r.DecodeWorkers*r.Decode.DPSize > 1 ||
		r.Prefill != nil && r.PrefillWorkers*r.Prefill.DPSize > 1
}

// drawn reports whether an open aic_mtp_seed decides anything: some draft token is
// neither sure to be accepted nor after one that is sure to fail.
func (r *Role) drawn() bool {
	if r.MTPSeedGiven {
		return false
	}
	for _, p := range r.Rank.AcceptRates {
		if p > 0 && p < 1 {
			return true
		}
		if p == 0 {
			return false
		}
	}
	return false
}

// WithSeed returns the run with seed s of a sweep: the router draws from s, and
// arrivals and draft tokens from 41 + s where the document leaves them open.
func (r Run) WithSeed(s uint64) Run {
	r = r.WithDefaultSeeds()
	r.RouterSeed, r.MTPSeed = s, seedOffset+s
	if !r.Workload.ArrivalSeedGiven {
		r.ArrivalSeed = seedOffset + s
	}
	return r
}

// WithDefaultSeeds returns the run with the seeds of a replay without flags.
func (r Run) WithDefaultSeeds() Run {
	r.RouterSeed, r.MTPSeed, r.ArrivalSeed = 0, defaultMTPSeed, defaultArrivalSeed
	if s := r.Workload.Synthetic; s != nil {
		r.ArrivalSeed = s.ArrivalSeed
	}
	return r
}

// Synthetic returns the generated load with the run's seed in it; false for a trace.
func (r *Run) Synthetic() (workload.Synthetic, bool) {
	if r.Workload.Synthetic == nil {
		return workload.Synthetic{}, false
	}
	s := *r.Workload.Synthetic
	if s.Drawn() {
		s.ArrivalSeed = r.ArrivalSeed
	}
	return s, true
}

// Drive says how a loaded trace is released in this run; false for generated load.
func (r *Run) Drive() (trace.Drive, bool) {
	if r.Workload.Trace == nil {
		return trace.Drive{}, false
	}
	d := r.Workload.Trace.Drive
	d.BlockSize = r.BlockSize()
	return d, true
}

// BlockSize is the engine block size that prompts are cut by: the prefill role's
// in a disaggregated run.
func (r *Run) BlockSize() int {
	if r.Prefill != nil {
		return r.Prefill.Rank.BlockSize
	}
	return r.Decode.Rank.BlockSize
}

// Config is the sim.Config of the run. Source, and what observes the run (Capture,
// Scaling, Telemetry.Sink, Observers), are the caller's: src goes in as it is, the
// rest is left empty. resolve may be nil if no role needs data.
func (r *Run) Config(src workload.Source, resolve TimingResolver) (sim.Config, error) {
	cfg := sim.Config{
		Disaggregated: r.Disaggregated(), Source: src, SLA: r.SLA, ClientMs: r.clientMs(), MaxSimTimeMs: r.Workload.MaxSimTimeMs,
		Router:    sim.RouterConfig{Mode: r.Router.Mode, Seed: r.RouterSeed, EventLagMs: r.Router.EventLagMs},
		Telemetry: metrics.TelemetryOptions{IntervalMs: r.TelemetryMs},
	}
	var err error
	if cfg.Router.Config, err = r.Router.complete(resolve); err != nil {
		return sim.Config{}, err
	}
	if cfg.Decode, err = r.pool(r.Decode, r.DecodeWorkers, resolve); err != nil {
		return sim.Config{}, err
	}
	if r.Prefill == nil {
		return cfg, nil
	}
	if cfg.Prefill, err = r.pool(r.Prefill, r.PrefillWorkers, resolve); err != nil {
		return sim.Config{}, err
	}
	cfg.Prefill.Transfer, err = r.transfer(resolve)
	return cfg, err
}

// Offloads reports whether some role has memory behind its KV pools.
func (r *Run) Offloads() bool {
	return r.Decode.Offloads() || r.Prefill != nil && r.Prefill.Offloads()
}

func (r *Run) pool(role *Role, workers int, resolve TimingResolver) (sim.PoolConfig, error) {
	rank := role.Rank
	if rank.NextN > 0 && !role.MTPSeedGiven {
		rank.MTPSeed = r.MTPSeed
	}
	model, blocks, err := role.resolve(resolve)
	if err != nil {
		if _, placed := err.(*document.Fault); placed {
			return sim.PoolConfig{}, err
		}
		return sim.PoolConfig{}, fmt.Errorf("%s engine: %w", rank.Role, err)
	}
	rank.Timing, rank.Blocks = model, blocks
	offload, err := role.offload(resolve)
	if err != nil {
		return sim.PoolConfig{}, fmt.Errorf("%s engine: %w", rank.Role, err)
	}
	return sim.PoolConfig{Workers: workers, DPSize: role.DPSize, GPUsPerWorker: role.GPUs(),
		Rank: rank, StartupMs: role.StartupMs, Offload: offload}, nil
}

// resolve returns the timing model and the number of KV blocks of a rank.
func (r *Role) resolve(ask TimingResolver) (timing.Model, int, error) {
	q := TimingQuery{Capacity: r.Capacity}
	var model timing.Model
	switch r.Timing.Kind {
	case Polynomial:
		model = timing.Polynomial{}
	case Fixed:
		model = timing.Fixed{Prefill: r.Timing.PrefillMs, Decode: r.Timing.DecodeMs}
	default:
		q.Timing = &r.Timing
	}
	correct := func(m timing.Model) timing.Model { return timing.Correct(m, r.Timing.Corrections.Corrections) }
	if q == (TimingQuery{}) {
		return correct(model), r.Rank.Blocks, nil
	}
	if ask == nil {
		return nil, 0, errors.New("no data for " + r.Timing.Kind.String() + " timing")
	}
	a, err := ask(q)
	if err != nil {
		return nil, 0, r.named.explain(err)
	}
	if q.Timing != nil {
		model = a.Model
	}
	model = correct(model)
	if q.Capacity == nil {
		return model, r.Rank.Blocks, nil
	}
	if a.Blocks <= 0 {
		return nil, 0, fmt.Errorf("no room for KV blocks: the estimate is %d; set num_gpu_blocks", a.Blocks)
	}
	return model, a.Blocks, nil
}

// transfer prices the handoff; bytes_per_token auto asks for the bytes of the
// prefill role's model, which needs no answer while nothing delays a transfer.
func (r *Run) transfer(ask TimingResolver) (sim.TransferConfig, error) {
	t := r.Transfer
	if t.free() {
		return sim.TransferConfig{}, nil
	}
	if t.BytesAuto {
		req := t.Model
		if req.Model == "" {
			req = r.Prefill.request()
		}
		if req.Model == "" || ask == nil {
			return sim.TransferConfig{}, &document.Fault{Path: "kv_transfer.bytes_per_token",
				Msg: "auto needs the prefill role's model, which only aic timing names: give an integer"}
		}
		a, err := ask(TimingQuery{TransferBytes: &req})
		if err != nil {
			return sim.TransferConfig{}, fmt.Errorf("kv_transfer.bytes_per_token: auto: %w; give an integer", err)
		}
		t.BytesPerToken = float64(a.BytesPerToken)
	}
	return sim.TransferConfig{BytesPerToken: t.BytesPerToken, BandwidthGBps: t.BandwidthGBps,
		DestinationMissing: t.DestinationMissing, FairShare: t.FairShare}, nil
}

// Provenance lists, per role, the capacities and timings that no document gave and
// where their value comes from, sorted by key.
func (r *Run) Provenance() []Defaulted {
	var out []Defaulted
	if r.Prefill != nil {
		out = r.Decode.provenance("decode_engine", out)
		return r.Prefill.provenance("prefill_engine", out)
	}
	return r.Decode.provenance("engine", out)
}

// Defaulted is one value that a document left open.
type Defaulted struct {
	Key    string `json:"key"`   // dotted, engine.num_gpu_blocks
	Value  string `json:"value"` // "" until estimated
	Source string `json:"source"`
}

func (r *Role) provenance(at string, out []Defaulted) []Defaulted {
	if !r.BlocksGiven {
		d := Defaulted{at + ".num_gpu_blocks", fmt.Sprint(r.Rank.Blocks), "default"}
		if r.Capacity != nil {
			c := r.Capacity.Model
			d.Value, d.Source = "", fmt.Sprintf("estimate for %s on %s, %s", c.Model, c.System, c.Backend)
		}
		out = append(out, d)
	}
	switch r.Timing.Kind {
	case Polynomial:
		out = append(out, Defaulted{at + ".timing_model", "polynomial", "built in"})
	case Profile:
		out = append(out, Defaulted{at + ".timing_model", "profile", r.Timing.Path})
	case Measured:
		c := r.Timing.AIC
		out = append(out, Defaulted{at + ".timing_model", "aic", fmt.Sprintf("%s on %s, %s %s", c.Model, c.System, c.Backend, orText(c.Version, "current"))})
	}
	if c := &r.Timing.Corrections; !c.None() {
		source := "corrected, not the reference"
		if c.Fitted.From != "" {
			source += ": fitted by " + c.Fitted.From + " " + c.Fitted.SHA256
		}
		out = append(out, Defaulted{at + ".timing_model.corrections", string(jsonOf(c.resolved(identity))), source})
	}
	return out
}

func orText(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// roleMismatch says that engine arguments are used for another role than theirs.
func roleMismatch(want, got engine.Role) string {
	names := [...]string{"Aggregated", "Prefill", "Decode"}
	if want == engine.Aggregated {
		return "offline replay only supports aggregated workers, got " + names[got]
	}
	return fmt.Sprintf("offline disaggregated replay requires %s_engine_args.worker_type=%s, got %s", want, want, names[got])
}
