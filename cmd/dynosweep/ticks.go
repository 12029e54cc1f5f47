package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sweep"
)

// tickLog keeps the Planner's ticks for the report, up to a bound, and streams all
// of them to a file if there is one.
type tickLog struct {
	sink *output // --ticks-jsonl; nil: none
	kept int
	list []byte // the report's ticks, each with a comma behind
	line []byte
	ops  []operationEntry
	seen int // operations, kept or not
}

// maxReportTicks bounds the ticks of a JSON report, and its lifecycle operations; of a
// longer run it has the first ones, the count, and the file with all ticks.
const maxReportTicks = 10_000

// plannerBlock is the report's planner object (spec report 10); ticks_kept,
// ticks_file and planner_gpu_hours are our own.
type plannerBlock struct {
	Metadata      planner.Metadata `json:"metadata"`
	Ticks         json.RawMessage  `json:"ticks"`
	TicksKept     int              `json:"ticks_kept"`
	TicksFile     *string          `json:"ticks_file"`
	ScalingEvents []scalingEntry   `json:"scaling_events"`
	Operations    []operationEntry `json:"lifecycle_operations"`
	AllOperations int              `json:"total_lifecycle_operations"`
	TotalTicks    int              `json:"total_ticks"`
	HTMLReport    *string          `json:"html_report_path"`
	GPUHours      *float64         `json:"planner_gpu_hours"`
}

type scalingEntry struct {
	AtS       float64 `json:"at_s"`
	Component string  `json:"component"`
	From      int     `json:"from_count"`
	To        int     `json:"to_count"`
	Reason    string  `json:"reason"`
}

// watch hangs the log on a run.
func (l *tickLog) watch(o *sim.Observers) {
	o.Tick = func(t *sim.TickRecord) error {
		keep := l.kept < maxReportTicks
		if !keep && l.sink == nil {
			return nil
		}
		l.line = planner.AppendTick(l.line[:0], t)
		if keep {
			if l.kept++; l.kept == 1 {
				l.list = append(l.list, '[')
			}
			l.list = append(append(l.list, l.line...), ',')
		}
		if l.sink == nil {
			return nil
		}
		l.line = append(l.line, '\n')
		_, err := l.sink.Write(l.line)
		return err
	}
	o.Operation = func(op *sim.Operation) error {
		if l.seen++; l.seen <= maxReportTicks {
			l.ops = append(l.ops, newOperationEntry(op))
		}
		return nil
	}
}

// operationEntry is one change of a pool's workers (spec report 10). Requests have
// no UUID here: released ones are named by their ordinal.
type operationEntry struct {
	Ordinal     int               `json:"operation_ordinal"`
	AtMs        float64           `json:"at_ms"`
	Pool        string            `json:"pool"`
	Cause       sim.Cause         `json:"cause"`
	Tick        *int              `json:"planner_tick_ordinal"`
	Origin      *int              `json:"origin_operation_ordinal"`
	Transitions []transitionEntry `json:"transitions"`
	After       struct {
		Active   []int32 `json:"active"`
		Starting []int32 `json:"starting"`
		Draining []int32 `json:"draining"`
	} `json:"state_after_batch"`
	Released []string `json:"topology_released_request_uuids"`
}

type transitionEntry struct {
	Worker     int32   `json:"worker_id"`
	Transition string  `json:"transition"`
	Prior      *string `json:"prior_state"`
	State      string  `json:"state"`
	Reason     string  `json:"reason,omitempty"`
	Origin     int     `json:"origin_operation_ordinal"`
}

func newOperationEntry(o *sim.Operation) operationEntry {
	e := operationEntry{Ordinal: o.Ordinal, AtMs: o.AtMs, Pool: o.Pool.String(), Cause: o.Cause,
		Tick: orNone(o.Tick), Origin: orNone(o.Origin), Transitions: []transitionEntry{}, Released: []string{}}
	for _, t := range o.Transitions {
		te := transitionEntry{Worker: t.Worker, Transition: "worker_" + t.To, State: t.To, Origin: t.Origin}
		if t.To == "active" {
			te.Transition = "worker_ready"
		}
		if t.From != "" {
			te.Prior = &t.From
		}
		if t.Cancelled {
			te.Reason = "startup_cancelled"
		}
		e.Transitions = append(e.Transitions, te)
	}
	e.After.Active, e.After.Starting = append([]int32{}, o.Active...), append([]int32{}, o.Starting...)
	e.After.Draining = append([]int32{}, o.Draining...)
	for _, r := range o.Released {
		e.Released = append(e.Released, strconv.FormatInt(r, 10))
	}
	return e
}

// orNone is an ordinal, nil below 0.
func orNone(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

// block is the report's planner object.
func (l *tickLog) block(out *sweep.Outcome) plannerBlock {
	b := plannerBlock{Metadata: out.Policy.Metadata(true), Ticks: l.array(), TicksKept: l.kept,
		TotalTicks: out.Result.Ticks, ScalingEvents: []scalingEntry{}, Operations: l.ops, AllOperations: l.seen}
	if b.Operations == nil {
		b.Operations = []operationEntry{}
	}
	if l.sink != nil && l.sink.path != "" {
		b.TicksFile = &l.sink.path
	}
	for _, e := range out.Result.ScalingEvents {
		b.ScalingEvents = append(b.ScalingEvents, scalingEntry{e.AtS, e.Component, e.From, e.To, e.Reason})
	}
	if hours, ok := out.Policy.GPUHours(); ok {
		b.GPUHours = &hours
	}
	return b
}

// array closes the list, which it takes over.
func (l *tickLog) array() json.RawMessage {
	if l.kept == 0 {
		return json.RawMessage("[]")
	}
	l.list[len(l.list)-1] = ']'
	return l.list
}

// cut tells of ticks that are neither in the report nor in a file, "" if none.
func (l *tickLog) cut(total int) string {
	if total <= l.kept || l.sink != nil {
		return ""
	}
	return fmt.Sprintf("the report has the first %d of %d Planner ticks: --ticks-jsonl FILE writes them all", l.kept, total)
}
