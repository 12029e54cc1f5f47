package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim/tier"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/timing/aic"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Inputs loads what runs share, each thing once: traces and timing profiles. What
// it hands out is immutable. It is safe for concurrent use.
type Inputs struct {
	mu       sync.Mutex
	traces   map[string]*once[*trace.Trace]
	profiles map[string]*once[*timing.Profile]
}

// once is a value that is made at first use.
type once[T any] struct {
	do  sync.Once
	v   T
	err error
}

func shared[T any](mu *sync.Mutex, m *map[string]*once[T], key string, load func() (T, error)) (T, error) {
	mu.Lock()
	if *m == nil {
		*m = map[string]*once[T]{}
	}
	o := (*m)[key]
	if o == nil {
		o = &once[T]{}
		(*m)[key] = o
	}
	mu.Unlock()
	o.do.Do(func() { o.v, o.err = load() })
	return o.v, o.err
}

// Trace returns a loaded trace. Bad input is a *trace.InputError.
func (in *Inputs) Trace(t *scenario.Trace) (*trace.Trace, error) {
	key := fmt.Sprintf("%q %+v", t.Paths, t.Load)
	return shared(&in.mu, &in.traces, key, func() (*trace.Trace, error) { return trace.Load(t.Paths, t.Load) })
}

// Notices says what the loaded traces hold that changes nothing, sorted.
func (in *Inputs) Notices() (out []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, o := range in.traces {
		if o.v != nil {
			out = append(out, o.v.Notices()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Source opens the load of one run.
func (in *Inputs) Source(run *scenario.Run) (workload.Source, error) {
	if s, ok := run.Synthetic(); ok {
		return s.NewSource(run.BlockSize())
	}
	t, err := in.runTrace(run)
	if err != nil {
		return nil, err
	}
	d, _ := run.Drive()
	return t.NewSource(d)
}

// runTrace loads the trace of a run, with what its memory behind the KV pools needs.
func (in *Inputs) runTrace(run *scenario.Run) (*trace.Trace, error) {
	t := *run.Workload.Trace
	t.Load.Contents = run.Offloads()
	loaded, err := in.Trace(&t)
	if err == nil && t.Load.Contents && loaded.Agentic() {
		return nil, errors.New("native_host_offload and kv_tiers are not simulated under agentic traces: leave them out")
	}
	return loaded, err
}

// hasher names the blocks of a run's prompts for memory behind the KV pools; nil if
// there is none or the blocks have no names.
func (in *Inputs) hasher(run *scenario.Run) (tier.Hasher, error) {
	if _, synthetic := run.Synthetic(); synthetic || !run.Offloads() {
		return nil, nil
	}
	t, err := in.runTrace(run)
	if err != nil {
		return nil, err
	}
	if h, err := t.Hasher(run.BlockSize()); h != nil || err != nil {
		return h, err
	}
	return nil, nil
}

// profile returns a loaded timing profile: of an .npz file, or fitted to a
// profiler's result folder or its raw-data JSON.
func (in *Inputs) profile(path string) (*timing.Profile, error) {
	return shared(&in.mu, &in.profiles, path, func() (*timing.Profile, error) {
		if strings.HasSuffix(path, ".npz") {
			return timing.LoadProfile(path)
		}
		return planner.FitProfileFolder(path)
	})
}

// resolver answers the questions of one run about loaded data. The measured models
// it makes are the run's own: they memoise and count.
type resolver struct {
	in       *Inputs
	measured []*measured
}

func (r *resolver) answer(q scenario.TimingQuery) (scenario.TimingAnswer, error) {
	var a scenario.TimingAnswer
	if q.Timing != nil {
		m, err := r.model(q.Timing)
		if err != nil {
			return a, err
		}
		a.Model = m
	}
	if q.Capacity != nil {
		m, err := openModel(&q.Capacity.Model)
		if err != nil {
			return a, err
		}
		c, err := m.Capacity(aic.CapacityConfig{MemoryFraction: q.Capacity.MemoryFraction,
			BlockSize: q.Capacity.BlockSize, MaxNumBatchedTokens: q.Capacity.MaxBatchedTokens})
		if err != nil {
			return a, fmt.Errorf("estimate of KV blocks: %w; give num_gpu_blocks", err)
		}
		a.Blocks = int(c.NumGPUBlocks)
	}
	if q.TransferBytes != nil {
		m, err := openModel(q.TransferBytes)
		if err != nil {
			return a, err
		}
		a.BytesPerToken = int(m.KVBytesPerToken())
	}
	return a, nil
}

func (r *resolver) model(t *scenario.Timing) (timing.Model, error) {
	if t.Kind == scenario.Profile {
		return r.in.profile(t.Path)
	}
	m, err := openModel(&t.AIC)
	if err != nil {
		return nil, err
	}
	r.measured = append(r.measured, &measured{m})
	return r.measured[len(r.measured)-1], nil
}
