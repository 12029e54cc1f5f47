package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Recipe is what all points of a sweep have in common, wherever they run.
type Recipe struct {
	SpecDigest   string
	Version      string // of the program
	Axes         []scenario.Axis
	Cost         scenario.Cost
	Capture      bool // keep per-request records
	PointTimeout time.Duration
}

// Shop runs single points and makes their parts. It is safe for concurrent use.
type Shop struct {
	recipe Recipe
	in     *Inputs
	maker  *results.Maker
}

// NewShop makes parts for any results directory of the recipe's specification.
func NewShop(rc Recipe, in *Inputs) (*Shop, error) {
	m, err := results.NewMaker(results.Identity{SpecDigest: rc.SpecDigest, Version: rc.Version}, axes(rc.Axes))
	if err != nil {
		return nil, err
	}
	return &Shop{recipe: rc, in: in, maker: m}, nil
}

// Make runs a point and leaves its part in out, to be adopted by the store of the sweep.
// Whatever becomes of the point is in the part; the error is ctx's alone, or that the
// part cannot be made. local is the run with the paths of this machine, nil if the point
// names them itself; what the part says of the point is the point's own.
func (s *Shop) Make(ctx context.Context, p *scenario.Point, local *scenario.Run, out *bytes.Buffer) error {
	_, err := s.make(ctx, p, local, func(k results.Key) (*results.Part, error) { return s.maker.Begin(k, out), nil })
	return err
}

// MakeFailed leaves in out the part of a point that cannot run.
func (s *Shop) MakeFailed(p *scenario.Point, reason string, out *bytes.Buffer) error {
	row := s.row(p)
	row.Status, row.Reason = results.Failed, reason
	return s.maker.Begin(Key(p), out).Commit(row)
}

// make runs a point and commits the part that begin opens. The error is of writing, or
// of an interruption; whatever else happens is in the row.
func (s *Shop) make(ctx context.Context, p *scenario.Point, local *scenario.Run, begin func(results.Key) (*results.Part, error)) (*results.Point, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	part, err := begin(Key(p))
	if err != nil {
		return nil, writing(p, err)
	}
	if local == nil {
		local = &p.Run
	}
	row, failure := s.execute(ctx, p, local, part)
	if failure != nil {
		part.Abort()
		var w *writeError
		if errors.As(failure, &w) || ctx.Err() != nil {
			return nil, failure
		}
		row = s.row(p)
		row.Status, row.Reason = results.Failed, failure.Error()
		if part, err = begin(Key(p)); err != nil {
			return nil, writing(p, err)
		}
	}
	if err := part.Commit(row); err != nil {
		return nil, writing(p, err)
	}
	return row, nil
}

// row is a point's row before it ran.
func (s *Shop) row(p *scenario.Point) *results.Point {
	row := &results.Point{Key: Key(p), Config: string(p.Resolved()), GPUs: int64(p.GPUs)}
	for i, v := range p.Values {
		row.Axes = append(row.Axes, axisValue(v, s.recipe.Axes[i].Type))
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

// execute runs a point and fills its row and child tables. A panic is a bug of ours
// in one point: it costs that point alone.
func (s *Shop) execute(ctx context.Context, p *scenario.Point, run *scenario.Run, part *results.Part) (row *results.Point, err error) {
	defer func() {
		if x := recover(); x != nil {
			row, err = nil, fmt.Errorf("internal error: %v\n%s", x, debug.Stack())
		}
	}()
	if s.recipe.PointTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.recipe.PointTimeout)
		defer cancel()
	}
	w := RunOptions{Capture: s.recipe.Capture}
	if run.Planner != nil {
		w.Observers.Tick = func(t *sim.TickRecord) error {
			if err := part.Tick(&results.Tick{Record: t, Diagnostics: diagnostics(t)}); err != nil {
				return writing(p, err)
			}
			return nil
		}
	}
	out, err := Execute(ctx, s.in, run, w)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("did not end within the point timeout of %s", s.recipe.PointTimeout)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range out.Result.ScalingEvents {
		if err := part.Scaling(e); err != nil {
			return nil, writing(p, err)
		}
	}
	if s.recipe.Capture {
		if err := part.Requests(out.Result.Collector.Records()); err != nil {
			return nil, writing(p, err)
		}
	}
	return s.filled(p, out)
}

// filled is the row of a finished run.
func (s *Shop) filled(p *scenario.Point, out *Outcome) (*results.Point, error) {
	row := s.row(p)
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
	if !s.recipe.Cost.Asked() {
		return row, nil
	}
	usd, err := CostUSD(&s.recipe.Cost, &p.Run, out)
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
