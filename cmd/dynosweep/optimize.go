package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/recommend"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// optimizerSpec reads the file as a replay optimiser's specification; nil if it is
// another document.
func (j *recommendJob) optimizerSpec() (*scenario.Optimize, error) {
	files := &scenario.Files{}
	path := j.c.String("config")
	is, err := scenario.IsOptimize(path, files)
	if err != nil || !is {
		return nil, err
	}
	if len(j.c.StringSlice("set")) > 0 {
		return nil, badInput(errors.New("--set belongs to AISimulate files, not to a replay optimiser's specification"))
	}
	o, err := scenario.ReadOptimize(path, files)
	if err != nil {
		return nil, err
	}
	return o, badInput(spareInputs(j.dir, files.Read()))
}

// optimize runs the replay optimiser, in each mode that the engine arguments allow.
func (j *recommendJob) optimize(ctx context.Context, o *scenario.Optimize) error {
	goal := recommend.Goal{}
	var err error
	if goal.Objective, err = recommend.ParseObjective(o.Objective); err != nil {
		return badInput(err)
	}
	for _, b := range o.Bounds {
		goal.Bounds = append(goal.Bounds, recommend.Bound(b))
	}
	if !j.c.IsSet("jobs") {
		j.jobs = min(j.jobs, o.Jobs)
	}
	var done []optimized
	for _, aggregated := range [...]bool{false, true} {
		if aggregated && !o.Aggregated || !aggregated && !o.Disaggregated {
			continue
		}
		w, err := recommend.Optimize(ctx, optimizeSpace(o, aggregated), goal, j.runStates(o))
		if err != nil {
			if ctx.Err() == nil {
				err = badInput(fmt.Errorf("%s: hardware.totalGpus: %w", j.c.String("config"), err))
			}
			return err
		}
		done = append(done, optimized{w, aggregated})
	}
	return j.publishOptimized(done, o)
}

// optimized is the search of one mode.
type optimized struct {
	*recommend.Sweep
	aggregated bool
}

func (w optimized) mode() string {
	if w.aggregated {
		return "agg"
	}
	return "disagg"
}

func optimizeSpace(o *scenario.Optimize, aggregated bool) recommend.Space {
	p := recommend.Space{Aggregated: aggregated, TotalGPUs: o.TotalGPUs, PrefillTP: o.PrefillTP, DecodeTP: o.DecodeTP}
	if o.RoundRobin {
		p.Routers = append(p.Routers, recommend.RoundRobin)
	}
	if o.KV {
		p.Routers = append(p.Routers, recommend.KVStates(o.Credits, o.Scales)...)
	}
	return p
}

// runStates runs states through the engine. A state that cannot run is a result with
// its reason.
func (j *recommendJob) runStates(o *scenario.Optimize) func(context.Context, []recommend.State) []recommend.Result {
	return func(ctx context.Context, states []recommend.State) []recommend.Result {
		out := make([]recommend.Result, len(states))
		runs := make([]scenario.Run, len(states))
		var trials []sweep.Trial
		var at []int
		for i, s := range states {
			runs[i], out[i].Err = o.Run(scenario.Deployment{PrefillTP: s.PrefillTP, PrefillWorkers: s.PrefillWorkers, DecodeTP: s.DecodeTP,
				DecodeWorkers: s.DecodeWorkers, KV: s.Router.KV, Credit: s.Router.Credit, Scale: s.Router.Scale})
			if out[i].Err == nil {
				trials, at = append(trials, sweep.Trial{Run: &runs[i]}), append(at, i)
			}
		}
		for k, t := range j.in.Try(ctx, trials, j.jobs, j.memory) {
			if out[at[k]].Err = t.Err; t.Err == nil && t.Outcome != nil {
				out[at[k]].Figures = t.Outcome.Summary
			}
		}
		return out
	}
}

// publishOptimized writes the tables, prints the best rows and says whether there is
// one.
func (j *recommendJob) publishOptimized(done []optimized, o *scenario.Optimize) error {
	if err := clearOutputDir(j.dir); err != nil {
		return err
	}
	files := &outputs{}
	defer files.discard()
	best, found := optimized{}, false
	for _, w := range done {
		if err := j.writeTables(files, w); err != nil {
			return err
		}
		if _, ok := w.Best(); ok && (!found || better(w, best)) {
			best, found = w, true
		}
	}
	if err := files.commit(); err != nil {
		return err
	}
	var near error
	b := bufio.NewWriter(j.stdout)
	defer b.Flush()
	if j.asJSON {
		if err := printOptimizedJSON(b, done); err != nil {
			return err
		}
	}
	for _, w := range done {
		if !j.asJSON {
			if err := j.printOptimized(b, w); err != nil {
				return err
			}
		}
		if r, ok := w.BestInfeasible(); ok && !found {
			near = errors.Join(near, fmt.Errorf("%s: no state meets the bounds; the nearest is %s, penalty %s%s", w.mode(), stateText(r.State), shortest(r.Penalty), missed(w.Goal.Bounds, r)))
		}
	}
	if found {
		if len(done) > 1 && !j.asJSON {
			fmt.Fprintf(b, "chosen_mode: %s\n", best.mode())
		}
		return nil
	}
	if near == nil {
		near = fmt.Errorf("no state ran: %w", done[0].Rows[0].Err)
	}
	return near
}

// better reports that a's best row beats b's; b keeps a tie.
func better(a, b optimized) bool {
	row, _ := recommend.Better(b.Sweep, a.Sweep)
	first, _ := b.Best()
	return row.State != first.State
}

// missed says by how much a row misses each bound.
func missed(bounds []recommend.Bound, r recommend.Row) string {
	text := ""
	for _, b := range bounds {
		if x := b.Excess(r.Figures); x > 0 {
			v, _ := r.Figures.Get(b.Key)
			text += fmt.Sprintf("; %s: %s %.6g is %.3g%% above %.6g", b.Name, b.Key, v, 100*x, b.Limit)
		}
	}
	return text
}

func stateText(s recommend.State) string {
	router := "round_robin"
	if s.Router.KV {
		router = fmt.Sprintf("kv_router credit %v scale %v", s.Router.Credit, s.Router.Scale)
	}
	if s.Aggregated() {
		return fmt.Sprintf("tp %d workers %d %s", s.DecodeTP, s.DecodeWorkers, router)
	}
	return fmt.Sprintf("prefill_tp %d decode_tp %d prefill_workers %d decode_workers %d %s", s.PrefillTP, s.DecodeTP, s.PrefillWorkers, s.DecodeWorkers, router)
}

func shortest(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// column is one column of the optimiser's tables.
type column struct {
	name string
	of   func(*recommend.Row) any // nil: null
}

// stateColumns describe the state (spec sweeps-and-schema 4.6).
func stateColumns(aggregated bool) []column {
	mode := column{"router_mode", func(r *recommend.Row) any {
		if r.State.Router.KV {
			return "kv_router"
		}
		return "round_robin"
	}}
	credit := column{"overlap_score_credit", func(r *recommend.Row) any { return r.State.Router.Credit }}
	scale := column{"prefill_load_scale", func(r *recommend.Row) any { return r.State.Router.Scale }}
	if aggregated {
		return []column{{"tp", func(r *recommend.Row) any { return r.State.DecodeTP }},
			{"workers", func(r *recommend.Row) any { return r.State.DecodeWorkers }}, mode, credit, scale}
	}
	return []column{{"prefill_tp", func(r *recommend.Row) any { return r.State.PrefillTP }},
		{"decode_tp", func(r *recommend.Row) any { return r.State.DecodeTP }},
		{"prefill_workers", func(r *recommend.Row) any { return r.State.PrefillWorkers }},
		{"decode_workers", func(r *recommend.Row) any { return r.State.DecodeWorkers }}, credit, mode, scale}
}

// columns are those of one mode: the report, the state, the verdict.
func (w optimized) columns() []column {
	var out []column
	for _, k := range metrics.Keys() {
		if k.When != metrics.Always {
			continue
		}
		out = append(out, column{k.Name, func(r *recommend.Row) any {
			s, ok := r.Figures.(*metrics.Summary)
			if !ok {
				return nil
			}
			if k.Kind == metrics.Text {
				return k.Text(s)
			}
			v, ok := k.Value(s)
			switch {
			case !ok:
				return nil
			case k.Kind == metrics.Int:
				return int64(v)
			}
			return v
		}})
	}
	out = append(out, stateColumns(w.aggregated)...)
	ran := func(r *recommend.Row, v float64) any {
		if r.Err != nil {
			return nil
		}
		return v
	}
	return append(out, column{"total_gpus_used", func(r *recommend.Row) any { return r.GPUs }},
		column{"score", func(r *recommend.Row) any { return ran(r, r.Score) }},
		column{"objective", func(r *recommend.Row) any { return w.Goal.Objective.String() }},
		column{"feasible", func(r *recommend.Row) any { return r.Feasible }},
		column{"violation_penalty", func(r *recommend.Row) any { return ran(r, r.Penalty) }})
}

// optimizedTables are the tables of one mode.
var optimizedTables = [...]string{"evaluated", "feasible", "best_infeasible"}

// writeTables writes evaluated, feasible and best infeasible of one mode, as CSV
// and JSON. The evaluated table tells in one more column why a row failed.
func (j *recommendJob) writeTables(files *outputs, w optimized) error {
	columns := w.columns()
	tables := []struct {
		name string
		rows []recommend.Row
	}{{optimizedTables[0], w.Rows}, {optimizedTables[1], w.Feasible()}, {optimizedTables[2], nil}}
	if r, ok := w.BestInfeasible(); ok {
		tables[2].rows = []recommend.Row{r}
	}
	for _, t := range tables {
		cols := columns
		if t.name == optimizedTables[0] {
			cols = append(cols[:len(cols):len(cols)], column{"error", func(r *recommend.Row) any {
				if r.Err == nil {
					return nil
				}
				return r.Err.Error()
			}})
		}
		base := filepath.Join(j.dir, w.mode()+"_"+t.name)
		for _, f := range [...]struct {
			ext   string
			write func(io.Writer, []column, []recommend.Row) error
		}{{".csv", writeRowsCSV}, {".json", writeRowsJSON}} {
			out, err := files.create(base+f.ext, nil)
			if err != nil {
				return err
			}
			if err := f.write(out, cols, t.rows); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeRowsCSV(w io.Writer, columns []column, rows []recommend.Row) error {
	out := csv.NewWriter(w)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for k := range rows {
		for i, c := range columns {
			line[i] = cellText(c.of(&rows[k]))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func cellText(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case float64:
		return shortest(x)
	}
	return fmt.Sprint(v)
}

// writeRowsJSON writes a list of objects whose keys are in the order of the columns.
func writeRowsJSON(w io.Writer, columns []column, rows []recommend.Row) error {
	if _, err := io.WriteString(w, "["); err != nil {
		return err
	}
	for k := range rows {
		for i, c := range columns {
			open := ",\n   "
			if i == 0 {
				open = [...]string{"\n  {", ",\n  {"}[min(k, 1)]
			}
			text, err := json.Marshal(c.of(&rows[k]))
			if err != nil {
				text = []byte("null") // a penalty beyond all numbers
			}
			if _, err := fmt.Fprintf(w, "%s%q: %s", open, c.name, text); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(w, "}"); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "\n]\n")
	return err
}

// printOptimizedJSON writes one object with the tables of each mode.
func printOptimizedJSON(w io.Writer, done []optimized) error {
	for i, s := range done {
		infeasible := s.Infeasible()
		fmt.Fprintf(w, "%s%q: {\"evaluated\": %d, \"feasible\": ", [...]string{"{", ", "}[min(i, 1)], s.mode(), len(s.Rows))
		if err := writeRowsJSON(w, s.columns(), s.Feasible()); err != nil {
			return err
		}
		fmt.Fprint(w, ", \"best_infeasible\": ")
		if err := writeRowsJSON(w, s.columns(), infeasible[:min(1, len(infeasible))]); err != nil {
			return err
		}
		fmt.Fprint(w, "}")
	}
	_, err := fmt.Fprintln(w, "}")
	return err
}

// shownRows is how many feasible rows the terminal shows.
const shownRows = 10

// printOptimized prints the best row and the first ten (spec sweeps-and-schema 4.6).
func (j *recommendJob) printOptimized(w io.Writer, s optimized) error {
	failed := 0
	for _, r := range s.Rows {
		if r.Err != nil {
			failed++
		}
	}
	rows, title := s.Feasible(), "feasible, best first"
	fmt.Fprintf(w, "%s: %d states evaluated, %d feasible, %d failed\n", s.mode(), len(s.Rows), len(rows), failed)
	if r, ok := s.BestInfeasible(); ok {
		fmt.Fprintf(w, "best infeasible: %s, penalty %s\n", stateText(r.State), shortest(r.Penalty))
	}
	if len(rows) > 0 {
		fmt.Fprintf(w, "best: %s, score %s\n", stateText(rows[0].State), shortest(rows[0].Score))
	} else {
		rows, title = s.Infeasible(), "infeasible, nearest first"
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintf(w, "%s:\n", title)
	var shown []column
	for _, c := range stateColumns(s.aggregated) {
		if c.name != "router_mode" {
			shown = append(shown, c)
		}
	}
	all := s.columns()
	for _, name := range [...]string{"total_gpus_used", "score", "violation_penalty", "output_throughput_tok_s", "prefix_cache_reused_ratio", "mean_ttft_ms", "mean_tpot_ms", "mean_e2e_latency_ms"} {
		for _, c := range all {
			if c.name == name {
				shown = append(shown, c)
			}
		}
	}
	return printColumns(w, shown, rows[:min(shownRows, len(rows))])
}

func printColumns(w io.Writer, columns []column, rows []recommend.Row) error {
	cells := make([][]string, len(rows)+1)
	width := make([]int, len(columns))
	for i, c := range columns {
		cells[0] = append(cells[0], c.name)
		for k := range rows {
			v := c.of(&rows[k])
			text := cellText(v)
			if x, ok := v.(float64); ok {
				text = fmt.Sprintf("%.6g", x)
			}
			cells[k+1] = append(cells[k+1], text)
		}
		for _, line := range cells {
			width[i] = max(width[i], len(line[i]))
		}
	}
	for _, line := range cells {
		for i, text := range line {
			if _, err := fmt.Fprintf(w, "%*s  ", width[i], text); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}
