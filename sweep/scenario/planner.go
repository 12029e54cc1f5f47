package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/planner"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// Planner is the Planner of a run. It is shared by runs and never changed.
type Planner struct {
	Config      planner.Config
	Notices     []string // keys that were accepted and change nothing
	Granularity int      // of the bootstrap with hardware timing

	warmup resolved.FileRef
	id     [32]byte
}

const defaultGranularity = 8

// readPlanner reads a Planner configuration; nil with faults.
func readPlanner(f *document.Faults, n *document.Node, granularity int) *Planner {
	before := len(f.List)
	cfg, notices := planner.Read(n, f)
	if len(f.List) > before {
		return nil
	}
	return &Planner{Config: cfg, Notices: notices, Granularity: granularity}
}

// plannerArgument reads --planner-config: a path, or JSON or YAML text.
func plannerArgument(origin, arg string, files *Files, granularity int) (*Planner, error) {
	text, name := []byte(arg), origin
	if _, err := os.Stat(arg); err == nil || looksLikePath(arg) {
		if text, err = files.Document(origin, arg); err != nil {
			return nil, err
		}
		name = arg
	}
	n, err := parseText(name, text, filepath.Ext(name))
	if err != nil {
		return nil, err
	}
	if n == nil || n.Kind != document.Map {
		return nil, &document.Fault{Origin: name, Msg: "the Planner configuration must be a mapping"}
	}
	f := &document.Faults{Origin: name, Inline: name == origin}
	p := readPlanner(f, n, granularity)
	return p, f.Err()
}

// looksLikePath tells a missing file from inline text.
func looksLikePath(arg string) bool {
	switch filepath.Ext(arg) {
	case ".json", ".yaml", ".yml":
		return !strings.ContainsAny(arg, "{}\n")
	}
	return false
}

// parseText reads a document of either notation: a .json file is JSON, anything
// else YAML, of which JSON is a part.
func parseText(origin string, text []byte, ext string) (*document.Node, error) {
	if ext == ".json" {
		return document.ParseJSON(origin, text)
	}
	return document.ParseYAML(origin, text)
}

const warmupKey = "load_predictor_warmup_trace"

// refer reads the content of the warm-up trace, which identifies it.
func (p *Planner) refer(files *Files) error {
	path := p.Config.Predictor.WarmupTrace
	if path == "" {
		return nil
	}
	var err error
	p.warmup, err = files.warmup(path)
	return err
}

// Notices are remarks on a configuration that runs all the same: corrected pass times,
// Planner keys that change nothing, and GPU counts that the engines do not bear out.
func (r *Run) Notices() []string { return slices.Concat(r.correctionNotices(), r.plannerNotices()) }

func (r *Run) plannerNotices() []string {
	if r.Planner == nil {
		return nil
	}
	e := planner.Engines{Decode: planner.Engine{GPUs: r.Decode.BudgetGPUs()}}
	if r.Prefill != nil {
		e.Prefill.GPUs = r.Prefill.BudgetGPUs()
	}
	return slices.Concat(r.Planner.Notices, r.Planner.Config.Warnings(e))
}

// BudgetGPUs is what a worker costs in the Planner's budgets (spec planner 1).
func (r *Role) BudgetGPUs() int {
	pp := 1
	if r.Timing.Kind == Measured {
		pp = max(r.Timing.AIC.PP, 1)
	}
	return r.TensorParallel * r.DPSize * pp
}

// check returns why the Planner does not fit a topology and load, "" if it does.
func (p *Planner) check(disaggregated bool, w *Workload) string {
	switch mode := p.Config.Mode; {
	case mode == planner.Disagg && !disaggregated:
		return "the Planner's mode disagg does not fit an aggregated topology"
	case mode == planner.Agg && disaggregated:
		return "the Planner's mode agg does not fit a disaggregated topology"
	}
	if !w.scalable() {
		return "the Planner runs on synthetic load, mooncake and dynamo traces, not on " + w.Trace.Load.Format.String()
	}
	return ""
}
