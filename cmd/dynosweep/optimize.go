package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/dynosweep/dynosweep/sweep/recommend"
	"github.com/dynosweep/dynosweep/sweep/scenario"
	"github.com/dynosweep/dynosweep/sweep/scenario/optimizer"
)

// optimizerSpec reads the file as a replay optimiser's specification; nil if it is
// another document.
func (j *recommendJob) optimizerSpec() (*optimizer.Spec, error) {
	files := &scenario.Files{}
	path := j.c.String("config")
	is, err := optimizer.Is(path, files)
	if err != nil || !is {
		return nil, err
	}
	if len(j.c.StringSlice("set")) > 0 {
		return nil, badInput(errors.New("--set belongs to AISimulate files, not to a replay optimiser's specification"))
	}
	o, err := optimizer.Read(path, files)
	if err != nil {
		return nil, err
	}
	return o, badInput(spareInputs(j.dir, files.Read()))
}

// optimize runs the replay optimiser, in each mode that the engine arguments allow.
func (j *recommendJob) optimize(ctx context.Context, o *optimizer.Spec) error {
	if !j.c.IsSet("jobs") {
		j.runner.jobs = min(j.runner.jobs, o.Jobs)
	}
	done, err := recommend.OptimizeSpec(ctx, o, j.runner)
	if errors.Is(err, recommend.ErrSearchSpace) {
		return badInput(fmt.Errorf("%s: %w", j.c.String("config"), err))
	}
	if err != nil {
		return err
	}
	if err := j.writeTables(done); err != nil {
		return err
	}
	return j.printSweeps(done)
}

// writeTables writes the tables of each mode, as CSV and JSON.
func (j *recommendJob) writeTables(done []recommend.ModeSweep) error {
	if err := j.vacate(); err != nil {
		return err
	}
	files := &outputs{}
	defer files.discard()
	for _, w := range done {
		for _, name := range recommend.Tables {
			columns, rows := w.Table(name)
			for _, f := range [...]struct {
				extension string
				write     func(io.Writer, []recommend.Column, []recommend.Row) error
			}{{".csv", recommend.WriteRowsCSV}, {".json", recommend.WriteRowsJSON}} {
				out, err := files.create(filepath.Join(j.dir, w.Mode+"_"+name)+f.extension, nil)
				if err != nil {
					return err
				}
				if err := f.write(out, columns, rows); err != nil {
					return err
				}
			}
		}
	}
	return files.commit()
}

// printSweeps prints the best rows of each mode. The error says that none is feasible.
func (j *recommendJob) printSweeps(done []recommend.ModeSweep) error {
	b := bufio.NewWriter(j.stdout)
	defer b.Flush()
	if j.asJSON {
		if err := printSweepsJSON(b, done); err != nil {
			return err
		}
	} else {
		for _, w := range done {
			if err := printSweep(b, w); err != nil {
				return err
			}
		}
	}
	best, found := recommend.BestMode(done)
	if !found {
		return recommend.NoFeasibleError(done)
	}
	if len(done) > 1 && !j.asJSON {
		fmt.Fprintf(b, "chosen_mode: %s\n", best.Mode)
	}
	return nil
}

// printSweepsJSON writes one object with the tables of each mode.
func printSweepsJSON(w io.Writer, done []recommend.ModeSweep) error {
	for i, s := range done {
		infeasible := s.Infeasible()
		fmt.Fprintf(w, "%s%q: {\"evaluated\": %d, \"feasible\": ", [...]string{"{", ", "}[min(i, 1)], s.Mode, len(s.Rows))
		if err := recommend.WriteRowsJSON(w, s.Columns(), s.Feasible()); err != nil {
			return err
		}
		fmt.Fprint(w, ", \"best_infeasible\": ")
		if err := recommend.WriteRowsJSON(w, s.Columns(), infeasible[:min(1, len(infeasible))]); err != nil {
			return err
		}
		fmt.Fprint(w, "}")
	}
	_, err := fmt.Fprintln(w, "}")
	return err
}

// shownRows is how many feasible rows the terminal shows.
const shownRows = 10

// printSweep prints the best row and the first ten (spec sweeps-and-schema 4.6).
func printSweep(w io.Writer, s recommend.ModeSweep) error {
	failed := 0
	for _, r := range s.Rows {
		if r.Err != nil {
			failed++
		}
	}
	rows, title := s.Feasible(), "feasible, best first"
	fmt.Fprintf(w, "%s: %d states evaluated, %d feasible, %d failed\n", s.Mode, len(s.Rows), len(rows), failed)
	if r, ok := s.BestInfeasible(); ok {
		fmt.Fprintf(w, "best infeasible: %s, penalty %s\n", r.State, recommend.CellText(r.Penalty))
	}
	if len(rows) > 0 {
		fmt.Fprintf(w, "best: %s, score %s\n", rows[0].State, recommend.CellText(rows[0].Score))
	} else {
		rows, title = s.Infeasible(), "infeasible, nearest first"
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintf(w, "%s:\n", title)
	var shown []recommend.Column
	for _, c := range recommend.StateColumns(s.Space.Aggregated) {
		if c.Name != "router_mode" {
			shown = append(shown, c)
		}
	}
	all := s.Columns()
	for _, name := range [...]string{"total_gpus_used", "score", "violation_penalty", "output_throughput_tok_s", "prefix_cache_reused_ratio", "mean_ttft_ms", "mean_tpot_ms", "mean_e2e_latency_ms"} {
		for _, c := range all {
			if c.Name == name {
				shown = append(shown, c)
			}
		}
	}
	return printColumns(w, shown, rows[:min(shownRows, len(rows))])
}

func printColumns(w io.Writer, columns []recommend.Column, rows []recommend.Row) error {
	cells := make([][]string, len(rows)+1)
	width := make([]int, len(columns))
	for i, c := range columns {
		cells[0] = append(cells[0], c.Name)
		for k := range rows {
			v := c.Value(&rows[k])
			text := recommend.CellText(v)
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
