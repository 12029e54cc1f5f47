package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dynosweep/dynosweep/results"
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
	Fleet        Fleet        // where points run; nil: in this process
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
	shop  *Shop
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
		Axes:     axes(g.Axes), Spec: opt.Spec, Now: opt.Now, FS: opt.FS,
	})
	if err != nil {
		return Tally{}, err
	}
	defer store.Close()
	shop, err := NewShop(Recipe{SpecDigest: g.Digest, Version: opt.Version, Axes: g.Axes, Cost: g.Cost,
		Capture: opt.Capture, PointTimeout: opt.PointTimeout}, in)
	if err != nil {
		return Tally{}, err
	}
	r := &runner{grid: g, in: in, opt: opt, store: store, shop: shop, gate: newMemoryGate(opt.MemoryBytes)}
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

func axes(list []scenario.Axis) []results.Axis {
	types := [...]results.Type{scenario.StringAxis: results.String, scenario.IntAxis: results.Int64,
		scenario.FloatAxis: results.Float64, scenario.BoolAxis: results.Boolean}
	var out []results.Axis
	for _, a := range list {
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
			skipped := r.shop.row(p)
			skipped.Status, skipped.Reason = results.Skipped, p.Skip
			row.Row = skipped
		}
		out = append(out, row)
	}
	return out
}

// runAll runs the points, the largest first: what is left at the end is small, so
// that no goroutine works on alone for long. The first failure to write ends it.
func (r *runner) runAll(ctx context.Context, todo []*scenario.Point) error {
	points := make([]Task, len(todo))
	for i, p := range todo {
		points[i] = Task{p, r.in.bytes(&p.Run, r.opt.Capture)}
	}
	slices.SortStableFunc(points, func(a, b Task) int { return cmp.Compare(b.Bytes, a.Bytes) })
	if r.opt.Fleet != nil && len(points) > 0 {
		return r.runFleet(ctx, points)
	}
	group, ctx2 := errgroup.WithContext(ctx)
	group.SetLimit(max(r.opt.Jobs, 1))
	for _, p := range points {
		if ctx2.Err() != nil {
			break
		}
		group.Go(func() error {
			if err := r.gate.enter(ctx2, p.Bytes); err != nil {
				return err
			}
			defer r.gate.leave(p.Bytes)
			return r.point(ctx2, p.Point)
		})
	}
	err := group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// point runs one point and makes its row durable.
func (r *runner) point(ctx context.Context, p *scenario.Point) error {
	row, err := r.shop.make(ctx, p, nil, r.store.Begin)
	if err == nil {
		r.report(p, row.Status, row.Reason)
	}
	return err
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

// report counts a finished point and hands the state on.
func (r *runner) report(p *scenario.Point, status results.Status, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := &r.state
	u.Ran++
	if status == results.Done {
		u.Done++
	} else {
		u.Failed++
	}
	u.Point, u.Status, u.Reason = p, status, reason
	if r.opt.Progress != nil {
		r.opt.Progress(*u)
	}
}
