package recommend

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"

	"github.com/dynosweep/dynosweep/internal/safetext"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Column is one column of the optimiser's tables.
type Column struct {
	Name  string
	Value func(*Row) any // nil: null
}

// StateColumns describe the state (spec sweeps-and-schema 4.6).
func StateColumns(aggregated bool) []Column {
	mode := Column{"router_mode", func(r *Row) any {
		if r.State.Router.KV {
			return "kv_router"
		}
		return "round_robin"
	}}
	credit := Column{"overlap_score_credit", func(r *Row) any { return r.State.Router.Credit }}
	scale := Column{"prefill_load_scale", func(r *Row) any { return r.State.Router.Scale }}
	if aggregated {
		return []Column{{"tp", func(r *Row) any { return r.State.DecodeTP }},
			{"workers", func(r *Row) any { return r.State.DecodeWorkers }}, mode, credit, scale}
	}
	return []Column{{"prefill_tp", func(r *Row) any { return r.State.PrefillTP }},
		{"decode_tp", func(r *Row) any { return r.State.DecodeTP }},
		{"prefill_workers", func(r *Row) any { return r.State.PrefillWorkers }},
		{"decode_workers", func(r *Row) any { return r.State.DecodeWorkers }}, credit, mode, scale}
}

// Columns are those of one mode: the report, the state, the verdict.
func (w *Sweep) Columns() []Column {
	var out []Column
	for _, k := range metrics.Keys() {
		if k.When != metrics.Always {
			continue
		}
		out = append(out, Column{k.Name, func(r *Row) any {
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
	out = append(out, StateColumns(w.Space.Aggregated)...)
	ran := func(r *Row, v float64) any {
		if r.Err != nil {
			return nil
		}
		return v
	}
	return append(out, Column{"total_gpus_used", func(r *Row) any { return r.GPUs }},
		Column{"score", func(r *Row) any { return ran(r, r.Score) }},
		Column{"objective", func(r *Row) any { return w.Goal.Objective.String() }},
		Column{"feasible", func(r *Row) any { return r.Feasible }},
		Column{"violation_penalty", func(r *Row) any { return ran(r, r.Penalty) }})
}

// Tables are the names of the tables of one mode.
var Tables = [...]string{"evaluated", "feasible", "best_infeasible"}

// Table returns columns and rows of the named one of Tables. The evaluated table says in
// one more column why a row failed.
func (w *Sweep) Table(name string) ([]Column, []Row) {
	columns := w.Columns()
	switch name {
	case Tables[0]:
		why := Column{"error", func(r *Row) any {
			if r.Err == nil {
				return nil
			}
			return r.Err.Error()
		}}
		return append(columns, why), w.Rows
	case Tables[1]:
		return columns, w.Feasible()
	}
	infeasible := w.Infeasible()
	return columns, infeasible[:min(1, len(infeasible))]
}

// WriteRowsCSV writes rows as CSV with a head line.
func WriteRowsCSV(w io.Writer, columns []Column, rows []Row) error {
	out := csv.NewWriter(w)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.Name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for k := range rows {
		for i, c := range columns {
			line[i] = safetext.Cell(CellText(c.Value(&rows[k])))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// CellText is a value as CSV shows it.
func CellText(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case float64:
		return shortest(x)
	}
	return fmt.Sprint(v)
}

// WriteRowsJSON writes a list of objects whose keys are in the order of the columns.
func WriteRowsJSON(w io.Writer, columns []Column, rows []Row) error {
	if _, err := io.WriteString(w, "["); err != nil {
		return err
	}
	for k := range rows {
		for i, c := range columns {
			open := ",\n   "
			if i == 0 {
				open = [...]string{"\n  {", ",\n  {"}[min(k, 1)]
			}
			text, err := json.Marshal(c.Value(&rows[k]))
			if err != nil {
				text = []byte("null") // a penalty beyond all numbers
			}
			if _, err := fmt.Fprintf(w, "%s%q: %s", open, c.Name, text); err != nil {
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
