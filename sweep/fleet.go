package sweep

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Fleet runs points outside this process. Run returns when every task of w has a row, or
// with an error; it may be called again for what is left (spec scale-out 3).
type Fleet interface {
	Run(ctx context.Context, w *Work) error
}

// Task is a point to run.
type Task struct {
	*scenario.Point
	Bytes int64 // estimated peak memory
}

// Work is what a Fleet has to do. Its functions are called by one goroutine at a time.
type Work struct {
	Name   string
	Recipe Recipe
	Todo   []Task // the largest first

	// Adopt makes the rows of parts durable with one sync, in any order, any number of
	// times. The answers are in the order of parts; the error is of writing, or a
	// *results.ConflictError, and ends the work.
	Adopt func(parts [][]byte) ([]Answer, error)
	// Fail gives a point that cannot run anywhere its row.
	Fail func(p *scenario.Point, reason string) error
}

// Answer says what became of an adopted part.
type Answer struct {
	Key     results.Key
	Refused error // of class results.ErrRefused: nothing was kept of the part
}

// runFleet hands the points to the fleet of the options.
func (r *runner) runFleet(ctx context.Context, points []Task) error {
	planned := make(map[results.Key]*scenario.Point, len(points))
	for _, p := range points {
		planned[Key(p.Point)] = p.Point
	}
	return r.opt.Fleet.Run(ctx, &Work{
		Name: r.grid.Name, Recipe: r.shop.recipe, Todo: points,
		Adopt: func(parts [][]byte) ([]Answer, error) { return r.adopt(parts, planned) },
		Fail: func(p *scenario.Point, reason string) error {
			row := r.shop.row(p)
			row.Status, row.Reason = results.Failed, reason
			if err := r.store.Write(row); err != nil {
				return writing(p, err)
			}
			r.report(p, row.Status, row.Reason)
			return nil
		},
	})
}

func (r *runner) adopt(parts [][]byte, planned map[results.Key]*scenario.Point) ([]Answer, error) {
	adopted, err := r.store.AdoptAll(parts, func(k results.Key) *results.Point {
		if p := planned[k]; p != nil {
			return r.shop.row(p)
		}
		return nil
	})
	answers := make([]Answer, len(adopted))
	for i, a := range adopted {
		answers[i] = Answer{Key: a.Finished.Key}
		switch {
		case errors.Is(a.Err, results.ErrRefused):
			answers[i].Refused = a.Err
		case a.Err != nil:
			err = errors.Join(err, a.Err)
		case a.Fresh:
			r.report(planned[a.Finished.Key], a.Finished.Status, a.Finished.Reason)
		}
	}
	if err != nil {
		return answers, fmt.Errorf("rows of other machines: %w; finished points are kept", err)
	}
	return answers, nil
}
