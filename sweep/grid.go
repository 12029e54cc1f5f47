package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Options say how a grid is run.
type Options struct {
	Dir          string // results directory
	Spec         []byte // the specification as written
	Version      string // of the program
	Jobs         int    // points at a time, >= 1
	Limit        int    // run at most so many points now; 0: all
	RetryFailed  bool   // run points again that failed earlier
	Capture      bool   // write requests.parquet
	PointTimeout time.Duration
	MemoryBytes  int64 // for all points together; 0: no bound
	Now          func() time.Time
	FS           results.FS   // nil: the disk
	Progress     func(Update) // called by one goroutine at a time; may be nil
}

// Update is the state of a running sweep.
type Update struct {
	Total, Done, Failed, Skipped int // points of the grid; the rest is open
	Todo, Ran                    int // points of this run; of these ended
	Point                        *scenario.Point
	Status                       results.Status // of Point
	Reason                       string
}

// Tally is what a sweep came to.
type Tally struct {
	Total, Done, Failed, Skipped int
	Ran                          int // points that ended in this run
	Uncaptured                   int // with Capture: points that had finished without it
}

// Open is the number of points that have no row yet.
func (t Tally) Open() int { return t.Total - t.Done - t.Failed - t.Skipped }

// Preload reads every input file of the grid, so that bad input is told before
// anything is written. Errors are of class document.ErrInput.
func (in *Inputs) Preload(g *scenario.Grid) error {
	for i := range g.Points {
		run := &g.Points[i].Run
		if g.Points[i].Skip != "" {
			continue
		}
		if t := run.Workload.Trace; t != nil {
			if _, err := in.Trace(t); err != nil {
				return &InputError{err}
			}
		}
		for _, role := range [...]*scenario.Role{run.Prefill, run.Decode} {
			if role == nil || role.Timing.Kind != scenario.Profile {
				continue
			}
			if _, err := in.profile(role.Timing.Path); err != nil {
				return &InputError{err}
			}
		}
	}
	return nil
}

// runner is one sweep in progress.
type runner struct {
	grid  *scenario.Grid
	in    *Inputs
	opt   Options
	store *results.Store
	gate  *memoryGate

	mu    sync.Mutex // guards state, and keeps calls of Options.Progress apart
	state Update
}

// Run runs the points of a grid that have no row yet, on opt.Jobs goroutines, and
// rebuilds the tables. A point that fails is a row with its reason; Run fails when
// results cannot be written, and with ctx.Err() when ctx ends, after the tables of
// what is finished were built.
func Run(ctx context.Context, g *scenario.Grid, in *Inputs, opt Options) (Tally, error) {
	store, err := results.Open(opt.Dir, results.Options{
		Identity: results.Identity{Name: g.Name, SpecDigest: g.Digest, Version: opt.Version},
		Axes:     axes(g), Spec: opt.Spec, Now: opt.Now, FS: opt.FS,
	})
	if err != nil {
		return Tally{}, err
	}
	defer store.Close()
	r := &runner{grid: g, in: in, opt: opt, store: store, gate: newMemoryGate(opt.MemoryBytes)}
	var todo []*scenario.Point
	todo, r.state = r.plan()
	runErr := r.runAll(ctx, todo)
	if err := store.Finalize(r.rows()); err != nil {
		runErr = errors.Join(runErr, fmt.Errorf("tables of %s: %w", opt.Dir, err))
	}
	s := &r.state // every goroutine has ended
	t := Tally{Total: s.Total, Done: s.Done, Failed: s.Failed, Skipped: s.Skipped, Ran: s.Ran}
	if opt.Capture {
		for _, f := range store.Finished() {
			if f.Status == results.Done && !f.Captured() {
				t.Uncaptured++
			}
		}
	}
	return t, runErr
}

func axes(g *scenario.Grid) []results.Axis {
	types := [...]results.Type{scenario.StringAxis: results.String, scenario.IntAxis: results.Int64,
		scenario.FloatAxis: results.Float64, scenario.BoolAxis: results.Boolean}
	var out []results.Axis
	for _, a := range g.Axes {
		out = append(out, results.Axis{Name: a.Path, Type: types[a.Type]})
	}
	return out
}

// Key names the row of a point in the results.
func Key(p *scenario.Point) results.Key {
	k := results.Key{Point: p.ID}
	if p.Seed != nil {
		k.Seed, k.Seeded = int64(*p.Seed), true
	}
	return k
}

// plan lists the points to run now, in grid order, and counts the others.
func (r *runner) plan() ([]*scenario.Point, Update) {
	ended := map[results.Key]results.Status{}
	for _, f := range r.store.Finished() {
		ended[f.Key] = f.Status
	}
	u := Update{Total: len(r.grid.Points)}
	var todo []*scenario.Point
	for i := range r.grid.Points {
		p := &r.grid.Points[i]
		switch status := ended[Key(p)]; {
		case p.Skip != "":
			u.Skipped++
		case status == results.Done:
			u.Done++
		case status == results.Failed && !r.opt.RetryFailed:
			u.Failed++
		case r.opt.Limit == 0 || len(todo) < r.opt.Limit:
			todo = append(todo, p)
		case status == results.Failed:
			u.Failed++
		}
	}
	u.Todo = len(todo)
	return todo, u
}

// rows is the table of the whole grid: skipped points bring their row along.
func (r *runner) rows() []results.Planned {
	out := make([]results.Planned, 0, len(r.grid.Points))
	for i := range r.grid.Points {
		p := &r.grid.Points[i]
		row := results.Planned{Key: Key(p)}
		if p.Skip != "" {
			skipped := r.row(p)
			skipped.Status, skipped.Reason = results.Skipped, p.Skip
			row.Row = skipped
		}
		out = append(out, row)
	}
	return out
}

// row is a point's row before it ran.
func (r *runner) row(p *scenario.Point) *results.Point {
	row := &results.Point{Key: Key(p), Config: string(p.Resolved()), GPUs: int64(p.GPUs)}
	for i, v := range p.Values {
		row.Axes = append(row.Axes, axisValue(v, r.grid.Axes[i].Type))
	}
	return row
}

func axisValue(v any, t scenario.AxisType) results.Value {
	switch x := v.(type) {
	case int64:
		if t == scenario.FloatAxis {
			return results.Float(float64(x))
		}
		return results.Int(x)
	case float64:
		return results.Float(x)
	case string:
		return results.Text(x)
	case bool:
		return results.Bool(x)
	}
	return results.Null
}

// runAll runs the points, the largest first: what is left at the end is small, so
// that no goroutine works on alone for long. The first failure to write ends it.
func (r *runner) runAll(ctx context.Context, todo []*scenario.Point) error {
	type sized struct {
		*scenario.Point
		bytes int64
	}
	points := make([]sized, len(todo))
	for i, p := range todo {
		points[i] = sized{p, r.in.bytes(&p.Run, r.opt.Capture)}
	}
	slices.SortStableFunc(points, func(a, b sized) int { return cmp.Compare(b.bytes, a.bytes) })
	group, ctx2 := errgroup.WithContext(ctx)
	group.SetLimit(max(r.opt.Jobs, 1))
	for _, p := range points {
		if ctx2.Err() != nil {
			break
		}
		group.Go(func() error {
			if err := r.gate.enter(ctx2, p.bytes); err != nil {
				return err
			}
			defer r.gate.leave(p.bytes)
			return r.point(ctx2, p.Point)
		})
	}
	err := group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// point runs one point and makes its row durable. The error is of writing, or of
// an interruption; whatever else happens is in the row.
func (r *runner) point(ctx context.Context, p *scenario.Point) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	part, err := r.store.Begin(Key(p))
	if err != nil {
		return writing(p, err)
	}
	row, failure := r.execute(ctx, p, part)
	if failure != nil {
		part.Abort()
		var w *writeError
		if errors.As(failure, &w) || ctx.Err() != nil {
			return failure
		}
		row = r.row(p)
		row.Status, row.Reason = results.Failed, failure.Error()
		if part, err = r.store.Begin(Key(p)); err != nil {
			return writing(p, err)
		}
	}
	if err := part.Commit(row); err != nil {
		return writing(p, err)
	}
	r.report(p, row)
	return nil
}

// writeError is a failure of the results directory.
type writeError struct {
	point string
	err   error
}

func (e *writeError) Error() string {
	if errors.Is(e.err, results.ErrLost) {
		return "point " + e.point + ": cannot write its result: " + e.err.Error()
	}
	return "point " + e.point + ": cannot write its result: " + e.err.Error() + "; finished points are kept, run the same command again to continue"
}
func (e *writeError) Unwrap() error { return e.err }

func writing(p *scenario.Point, err error) error { return &writeError{p.ID, err} }

// execute runs a point and fills its row and child tables. A panic is a bug of ours
// in one point: it costs that point alone.
func (r *runner) execute(ctx context.Context, p *scenario.Point, part *results.Part) (row *results.Point, err error) {
	defer func() {
		if x := recover(); x != nil {
			row, err = nil, fmt.Errorf("internal error: %v\n%s", x, debug.Stack())
		}
	}()
	if r.opt.PointTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.opt.PointTimeout)
		defer cancel()
	}
	w := RunOptions{Capture: r.opt.Capture}
	if p.Run.Planner != nil {
		w.Observers.Tick = func(t *sim.TickRecord) error {
			if err := part.Tick(&results.Tick{Record: t, Diagnostics: diagnostics(t)}); err != nil {
				return writing(p, err)
			}
			return nil
		}
	}
	out, err := Execute(ctx, r.in, &p.Run, w)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("did not end within the point timeout of %s", r.opt.PointTimeout)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range out.Result.ScalingEvents {
		if err := part.Scaling(e); err != nil {
			return nil, writing(p, err)
		}
	}
	if r.opt.Capture {
		if err := part.Requests(out.Result.Collector.Records()); err != nil {
			return nil, writing(p, err)
		}
	}
	return r.filled(p, out)
}

// filled is the row of a finished run.
func (r *runner) filled(p *scenario.Point, out *Outcome) (*results.Point, error) {
	row := r.row(p)
	row.Status, row.Summary = results.Done, out.Summary
	if out.Summary.Requests > 0 && out.Summary.Completed == 0 {
		row.Reason = "no request completed: " + strings.Join(out.Summary.Coverage.Outcomes.Losses(), "; ")
	}
	if out.Policy != nil {
		row.ScalingEvents = results.Some(float64(len(out.Result.ScalingEvents)))
		if hours, ok := out.Policy.GPUHours(); ok {
			row.PlannerGPUHours = results.Some(hours)
		}
	}
	for _, o := range out.Outside {
		row.OutsideShare = results.Some(max(row.OutsideShare.V, o.Share()))
	}
	if !r.grid.Cost.Asked() {
		return row, nil
	}
	usd, err := CostUSD(&r.grid.Cost, &p.Run, out)
	if err != nil {
		return nil, err
	}
	row.CostUSD = results.Some(usd)
	if n := out.Summary.OutputTokens; n > 0 {
		row.USDPerMillionOutputTokens = results.Some(usd / float64(n) * 1e6)
	}
	return row, nil
}

// CostUSD is the sum over roles of provisioned GPU-hours times the price of their
// system.
func CostUSD(c *scenario.Cost, run *scenario.Run, out *Outcome) (float64, error) {
	usd, t := 0.0, &out.Result.Totals
	for _, part := range [...]struct {
		role               *scenario.Role
		hours, workerHours float64
	}{{run.Prefill, t.PrefillWorkerSeconds * float64(t.PrefillGPUs) / 3600, t.PrefillWorkerSeconds / 3600},
		{run.Decode, t.DecodeWorkerSeconds * float64(t.DecodeGPUs) / 3600, t.DecodeWorkerSeconds / 3600}} {
		if part.role == nil {
			continue
		}
		price, ok := c.Price(part.role.System())
		if !ok {
			return 0, fmt.Errorf("no price for system %q and no default in cost.usd_per_gpu_hour", part.role.System())
		}
		usd += float64(part.hours * price)
		usd += c.MemoryUSD(part.role, part.workerHours, out.Result.ClockMs/3.6e6)
	}
	return usd, nil
}

// report counts a finished point and hands the state on.
func (r *runner) report(p *scenario.Point, row *results.Point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := &r.state
	u.Ran++
	if row.Status == results.Done {
		u.Done++
	} else {
		u.Failed++
	}
	u.Point, u.Status, u.Reason = p, row.Status, row.Reason
	if r.opt.Progress != nil {
		r.opt.Progress(*u)
	}
}

// diagnostics is the Planner's view of a tick for the table.
func diagnostics(t *sim.TickRecord) results.Diagnostics {
	d, ok := t.Decision.Detail.(*planner.Tick)
	if !ok {
		return results.Diagnostics{}
	}
	return results.Diagnostics{
		EstimatedTTFTMs: d.EstimatedTTFTMs, EstimatedITLMs: d.EstimatedITLMs,
		PredictedRequests: d.PredictedNumReq, PredictedISL: d.PredictedISL, PredictedOSL: d.PredictedOSL,
		PredictedHitRate: d.PredictedHitRate, EngineRPSPrefill: d.EngineRPSPrefill, EngineRPSDecode: d.EngineRPSDecode,
		LowerBoundPrefill: d.LowerBoundPrefill, LowerBoundDecode: d.LowerBoundDecode,
		LoadReason: string(d.LoadReason), LoadReasonPrefill: string(d.LoadReasonPrefill), LoadReasonDecode: string(d.LoadReasonDecode),
		ThroughputReason: string(d.ThroughputReason), ThroughputReasonPrefill: string(d.ThroughputReasonPrefill),
		ThroughputReasonDecode: string(d.ThroughputReasonDecode), PlannerGPUHours: d.PlannerGPUHours,
	}
}
