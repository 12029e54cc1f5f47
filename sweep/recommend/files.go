package recommend

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"path/filepath"
	"strconv"

	"github.com/dynosweep/dynosweep/internal/safetext"
)

// candidateJSON is a candidate as recommendation.json shows it.
type candidateJSON struct {
	ID               string             `json:"candidate_id"`
	Status           string             `json:"status"`
	Category         *string            `json:"reason_category"`
	Reason           *string            `json:"reason"`
	UsedGPUs         int                `json:"used_gpus"`
	Score            *float64           `json:"score"`
	Config           json.RawMessage    `json:"config"`
	PredictionConfig json.RawMessage    `json:"prediction_config"`
	Metrics          map[string]float64 `json:"metrics"`
	Objectives       map[string]float64 `json:"objectives"`
	Provenance       map[string]any     `json:"provenance"`
	Top              bool               `json:"is_top_n"`
	Pareto           bool               `json:"is_pareto"`
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// document is the candidate for the files.
func (s *Search) document(c *Candidate) candidateJSON {
	d := candidateJSON{ID: c.ID, Status: c.Status, Category: optional(c.category), Reason: optional(c.Reason), UsedGPUs: c.config.GPUs,
		Config: c.config.Knobs, PredictionConfig: c.config.Config, Metrics: map[string]float64{}, Objectives: s.objectives(c),
		Top: c.top, Pareto: c.pareto, Provenance: map[string]any{"mode": c.mode, "point_id": optional(c.config.ID)}}
	if c.evaluated && len(c.Objectives) > 0 {
		d.Score = &c.Objectives[0]
	}
	if c.evaluated {
		for key, v := range c.metrics {
			d.Metrics[key] = v
		}
		if c.penalty > 0 && !math.IsInf(c.penalty, 0) {
			d.Provenance["sla_penalty"] = c.penalty
		}
	}
	if c.seen != nil {
		d.Provenance["rung"], d.Provenance["rung_rank"], d.Provenance["simulated_requests"] = c.seen.Rung, c.seen.Rank+1, c.simulated
		if before := c.seen.Before.Objectives; c.evaluated && len(before) > 0 {
			d.Provenance["prefix_score"] = before[0]
		}
	}
	return d
}

func (s *Search) objectives(c *Candidate) map[string]float64 {
	out := map[string]float64{}
	if c.evaluated {
		for i, name := range s.target.ObjectiveNames() {
			if i < len(c.Objectives) {
				out[name] = c.Objectives[i]
			}
		}
	}
	return out
}

// WriteConfig writes the i-th recommendation as a file that predict takes, for the place
// that Candidate.Path names.
func (a *Answer) WriteConfig(w io.Writer, i int) error {
	c := a.Top[i]
	made := a.search.doc.Candidate(c.pick.Branch, c.pick.Index)
	text, err := a.search.doc.YAML(&made, filepath.Dir(c.Path))
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

const recommendationSchema = "1.0"

// WriteJSON writes recommendation.json: every candidate, what became of it, and what
// searched.
func (a *Answer) WriteJSON(w io.Writer) error {
	s, out := a.search, bufio.NewWriter(w)
	ids := func(list []*Candidate) []string {
		names := []string{}
		for _, c := range list {
			names = append(names, c.ID)
		}
		return names
	}
	head := struct {
		Schema     string         `json:"schema_version"`
		Retention  string         `json:"candidate_retention"`
		Counts     map[string]int `json:"counts"`
		Views      any            `json:"views"`
		Provenance map[string]any `json:"provenance"`
	}{recommendationSchema, "all", s.counts(), map[string]any{"top_n": ids(a.Top), "pareto_front": ids(a.front)}, s.provenance()}
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	out.Write(text[:len(text)-2]) // without the closing brace; Flush returns the errors
	out.WriteString(",\n  \"candidates\": [")
	for i, c := range s.candidates { // one by one: there may be a hundred thousand
		if text, err = json.MarshalIndent(s.document(c), "    ", "  "); err != nil {
			return err
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString("\n    ")
		out.Write(text)
	}
	out.WriteString("\n  ]\n}\n")
	return out.Flush()
}

// provenance says what searched.
func (s *Search) provenance() map[string]any {
	o := &s.doc.Optimizer
	p := map[string]any{"tool": "dynosweep", "version": s.opt.Version, "stack": s.opt.Stack, "algorithm": o.Algorithm,
		"seed": o.Seed, "target": s.target.String(), "search_digest": s.doc.Digest(), "notices": s.doc.Notices}
	if s.halving != nil {
		type rung struct {
			Candidates int `json:"candidates"`
			Requests   int `json:"requests"`
		}
		var rungs []rung
		for _, r := range s.halving.Plan.Rungs {
			rungs = append(rungs, rung(r))
		}
		p["halving"] = map[string]any{"rungs": rungs, "share": s.halving.Plan.Share, "simulated_requests": s.simulated, "grid_requests": s.wholeGrid, "settled": s.halving.Settled}
	}
	return p
}

var recommendationColumns = []string{"schema_version", "candidate_id", "status", "reason_category", "reason", "used_gpus", "score", "config_json",
	"prediction_config_json", "metrics_json", "objectives_json", "provenance_json", "is_top_n", "is_pareto"}

// WriteCSV writes recommendation.csv: one row for each candidate.
func (a *Answer) WriteCSV(out io.Writer) error {
	s, w := a.search, csv.NewWriter(out)
	if err := w.Write(recommendationColumns); err != nil {
		return err
	}
	for _, c := range s.candidates {
		d := s.document(c)
		score := ""
		if d.Score != nil {
			score = strconv.FormatFloat(*d.Score, 'g', -1, 64)
		}
		metrics, err1 := json.Marshal(d.Metrics)
		objectives, err2 := json.Marshal(d.Objectives)
		provenance, err3 := json.Marshal(d.Provenance)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if err := w.Write(safetext.Cells([]string{recommendationSchema, c.ID, c.Status, c.category, c.Reason, strconv.Itoa(d.UsedGPUs), score, string(d.Config),
			string(d.PredictionConfig), string(metrics), string(objectives), string(provenance), strconv.FormatBool(c.top), strconv.FormatBool(c.pareto)})); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// ObjectivesOf are the objectives of a candidate by name.
func (a *Answer) ObjectivesOf(c *Candidate) map[string]float64 { return a.search.objectives(c) }
