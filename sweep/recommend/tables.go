package recommend

import (
	"cmp"
	"slices"
)

// betterFeasible orders feasible rows, best first: score, output throughput, mean
// request latency, GPUs (spec sweeps-and-schema 4.5).
func betterFeasible(a, b *Row) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.outputTPS, a.outputTPS),
		cmp.Compare(a.meanE2EMs, b.meanE2EMs), cmp.Compare(a.GPUs, b.GPUs))
}

// nearer orders infeasible rows, nearest first: penalty, output throughput, mean
// request latency.
func nearer(a, b *Row) int {
	return cmp.Or(cmp.Compare(a.Penalty, b.Penalty), cmp.Compare(b.outputTPS, a.outputTPS),
		cmp.Compare(a.meanE2EMs, b.meanE2EMs))
}

// Feasible is the table of feasible rows, best first.
func (w *Sweep) Feasible() []Row { return w.table(true, betterFeasible) }

// Infeasible is the table of rows that ran and miss a bound, nearest first.
func (w *Sweep) Infeasible() []Row { return w.table(false, nearer) }

func (w *Sweep) table(feasible bool, order func(a, b *Row) int) []Row {
	var out []Row
	for _, r := range w.Rows {
		if r.Err == nil && r.Feasible == feasible {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b Row) int { return order(&a, &b) })
	return out
}

// Best is the first feasible row; ok is false if there is none.
func (w *Sweep) Best() (Row, bool) { return head(w.Feasible()) }

// BestInfeasible is the nearest row that misses a bound.
func (w *Sweep) BestInfeasible() (Row, bool) { return head(w.Infeasible()) }

func head(rows []Row) (Row, bool) {
	if len(rows) == 0 {
		return Row{}, false
	}
	return rows[0], true
}
