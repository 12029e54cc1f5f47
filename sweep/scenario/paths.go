package scenario

import (
	"errors"
	"slices"
	"strings"
)

// PathUse says what a run reads at one of its paths.
type PathUse uint8

const (
	ReadsFiles  PathUse = iota // a file, or the files of a folder
	ReadsModel                 // the configuration files in a model's folder
	ReadsWarmup                // a file, a folder or a pattern
	ReadsFolder                // the folder that holds the file
)

// WithPaths is the run with each path of an input file replaced by what local says. It
// computes the same figures from the same content and keeps its identity, but its
// resolved text names the new paths.
func (r Run) WithPaths(local func(path string, use PathUse) (string, error)) (Run, error) {
	var errs []error
	replace := func(path *string, use PathUse) {
		if *path == "" {
			return
		}
		to, err := local(*path, use)
		if err != nil {
			errs = append(errs, err)
		}
		*path = to
	}
	request := func(q *AICRequest, files modelFiles) {
		if q.SystemsPath != "" {
			errs = append(errs, errors.New("tables of systems_path stay on the machine that names them: run the sweep without --on"))
		}
		if files.model.Path != "" {
			replace(&q.Model, ReadsModel)
		}
	}
	role := func(old *Role) *Role {
		if old == nil {
			return nil
		}
		n := *old
		use := ReadsFiles
		if strings.HasSuffix(n.Timing.Path, ".json") {
			use = ReadsFolder
		}
		replace(&n.Timing.Path, use)
		request(&n.Timing.AIC, n.files)
		if n.Capacity != nil {
			c := *n.Capacity
			request(&c.Model, n.files)
			n.Capacity = &c
		}
		return &n
	}
	r.Prefill, r.Decode = role(r.Prefill), role(r.Decode)
	request(&r.Transfer.Model, r.Transfer.files)
	if r.Workload != nil && r.Workload.Trace != nil {
		w, t := *r.Workload, *r.Workload.Trace
		t.Paths = slices.Clone(t.Paths)
		for i := range t.Paths {
			replace(&t.Paths[i], ReadsFiles)
		}
		w.Trace, r.Workload = &t, &w
	}
	if r.Router != nil && r.Router.Estimator != nil {
		n, q := *r.Router, *r.Router.Estimator
		request(&q, n.files)
		n.Estimator, r.Router = &q, &n
	}
	if r.Planner != nil {
		n := *r.Planner
		replace(&n.Config.Predictor.WarmupTrace, ReadsWarmup)
		r.Planner = &n
	}
	return r, errors.Join(errs...)
}
