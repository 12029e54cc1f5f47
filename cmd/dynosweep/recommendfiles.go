package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dynosweep/dynosweep/sweep/recommend"
)

// recommendationPath is the file of the i-th recommendation, from 0.
func recommendationPath(dir string, i int) string {
	return filepath.Join(dir, candidatesDir, fmt.Sprintf("%04d.yaml", i+1))
}

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

// show is the candidate for the files.
func (j *recommendJob) show(e *entry) candidateJSON {
	c := candidateJSON{ID: e.id, Status: e.status, Category: optional(e.category), Reason: optional(e.reason), UsedGPUs: e.candidate.GPUs,
		Config: e.candidate.Knobs, PredictionConfig: e.candidate.Config, Metrics: map[string]float64{}, Objectives: j.objectives(e),
		Top: e.top, Pareto: e.pareto, Provenance: map[string]any{"mode": e.mode, "point_id": optional(e.candidate.ID)}}
	if e.evaluated && len(e.objectives) > 0 {
		c.Score = &e.objectives[0]
	}
	if e.evaluated {
		for key, v := range e.metrics {
			c.Metrics[key] = v
		}
		if e.penalty > 0 && !math.IsInf(e.penalty, 0) {
			c.Provenance["sla_penalty"] = e.penalty
		}
	}
	if e.seen != nil {
		c.Provenance["rung"], c.Provenance["rung_rank"], c.Provenance["simulated_requests"] = e.seen.Rung, e.seen.Rank+1, e.simulated
		if before := e.seen.Before.Objectives; e.evaluated && len(before) > 0 {
			c.Provenance["prefix_score"] = before[0]
		}
	}
	return c
}

func (j *recommendJob) objectives(e *entry) map[string]float64 {
	out := map[string]float64{}
	if e.evaluated {
		for i, name := range j.target.ObjectiveNames() {
			if i < len(e.objectives) {
				out[name] = e.objectives[i]
			}
		}
	}
	return out
}

// writeFiles writes everything that a recommend leaves.
func (j *recommendJob) writeFiles(v *views) error {
	if len(v.top) > 0 {
		if err := os.MkdirAll(filepath.Join(j.dir, candidatesDir), 0o755); err != nil {
			return err
		}
	}
	files := &outputs{}
	defer files.discard()
	for _, e := range v.top {
		c := j.doc.Candidate(e.pick.Branch, e.pick.Index)
		text, err := j.doc.YAML(&c, filepath.Dir(e.path))
		if err != nil {
			return err
		}
		out, err := files.create(e.path, nil)
		if err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
		if err := files.commit(); err != nil { // one file open at a time
			return err
		}
	}
	if err := j.writeJSON(files, v); err != nil {
		return err
	}
	if err := j.writeCSV(files); err != nil {
		return err
	}
	return files.commit()
}

const recommendationSchema = "1.0"

func (j *recommendJob) writeJSON(files *outputs, v *views) error {
	out, err := files.create(filepath.Join(j.dir, "recommendation.json"), nil)
	if err != nil {
		return err
	}
	ids := func(list []*entry) []string {
		names := []string{}
		for _, e := range list {
			names = append(names, e.id)
		}
		return names
	}
	head := struct {
		Schema     string         `json:"schema_version"`
		Retention  string         `json:"candidate_retention"`
		Counts     map[string]int `json:"counts"`
		Views      any            `json:"views"`
		Provenance map[string]any `json:"provenance"`
	}{recommendationSchema, "all", j.counts(), map[string]any{"top_n": ids(v.top), "pareto_front": ids(v.front)}, j.provenance()}
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	out.Write(text[:len(text)-2]) // without the closing brace; errors show on commit
	out.WriteString(",\n  \"candidates\": [")
	for i, e := range j.entries { // one by one: there may be a hundred thousand
		if text, err = json.MarshalIndent(j.show(e), "    ", "  "); err != nil {
			return err
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString("\n    ")
		out.Write(text)
	}
	_, err = out.WriteString("\n  ]\n}\n")
	return err
}

// provenance says what searched.
func (j *recommendJob) provenance() map[string]any {
	o := &j.doc.Optimizer
	p := map[string]any{"tool": "dynosweep", "version": version(), "stack": j.c.String("stack"), "algorithm": o.Algorithm,
		"seed": o.Seed, "target": j.target.String(), "search_digest": j.doc.Digest(), "notices": j.doc.Notices}
	if j.plan != nil {
		type rung struct {
			Candidates int `json:"candidates"`
			Requests   int `json:"requests"`
		}
		var rungs []rung
		for _, r := range j.plan.Plan.Rungs {
			rungs = append(rungs, rung(r))
		}
		p["halving"] = map[string]any{"rungs": rungs, "share": j.plan.Plan.Share, "simulated_requests": j.simulated, "grid_requests": j.whole, "settled": j.plan.Settled}
	}
	return p
}

var recommendationColumns = []string{"schema_version", "candidate_id", "status", "reason_category", "reason", "used_gpus", "score", "config_json",
	"prediction_config_json", "metrics_json", "objectives_json", "provenance_json", "is_top_n", "is_pareto"}

func (j *recommendJob) writeCSV(files *outputs) error {
	out, err := files.create(filepath.Join(j.dir, "recommendation.csv"), nil)
	if err != nil {
		return err
	}
	w := csv.NewWriter(out)
	if err := w.Write(recommendationColumns); err != nil {
		return err
	}
	for _, e := range j.entries {
		c := j.show(e)
		score := ""
		if c.Score != nil {
			score = strconv.FormatFloat(*c.Score, 'g', -1, 64)
		}
		metrics, err1 := json.Marshal(c.Metrics)
		objectives, err2 := json.Marshal(c.Objectives)
		provenance, err3 := json.Marshal(c.Provenance)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if err := w.Write([]string{recommendationSchema, e.id, e.status, e.category, e.reason, strconv.Itoa(c.UsedGPUs), score, string(c.Config),
			string(c.PredictionConfig), string(metrics), string(objectives), string(provenance), strconv.FormatBool(e.top), strconv.FormatBool(e.pareto)}); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// printTable prints the recommendations (spec sweeps-and-schema 3).
func (j *recommendJob) printTable(v *views) {
	w := bufio.NewWriter(j.stdout)
	defer w.Flush()
	fmt.Fprintln(w, "AISimulate recommendations")
	for i, e := range v.top {
		fmt.Fprintf(w, "%d", i+1)
		for k, name := range j.target.ObjectiveNames() {
			fmt.Fprintf(w, " %s=%.4g", name, shown(j.target, e.objectives[k]))
		}
		fmt.Fprintf(w, " used_gpus=%d config=%s\n", e.candidate.GPUs, e.path)
	}
}

// shown is an objective as people read it: a latency, a size or a cost is positive.
func shown(t recommend.Target, v float64) float64 {
	if t == recommend.ByTTFT || t == recommend.ByE2ELatency || t.Least() {
		return -v
	}
	return v
}

func (j *recommendJob) printJSON(v *views) error {
	type row struct {
		Rank       int                `json:"rank"`
		Score      float64            `json:"score"`
		Objectives map[string]float64 `json:"objectives"`
		UsedGPUs   int                `json:"used_gpus"`
		Path       string             `json:"config_path"`
	}
	rows := []row{}
	for i, e := range v.top {
		rows = append(rows, row{i + 1, e.objectives[0], j.objectives(e), e.candidate.GPUs, e.path})
	}
	enc := json.NewEncoder(j.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}
