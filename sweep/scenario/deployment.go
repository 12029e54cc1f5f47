package scenario

import (
	"path/filepath"

	"github.com/dynosweep/dynosweep/internal/document"
)

// Load that stands in for the one that a deployment's document does not name.
const (
	noWorkload = "{synthetic: {input_tokens: 1, output_tokens: 1, request_count: 1}, concurrency: 1}"
	noTraffic  = "{source: {type: synthetic, input_tokens: 1, output_tokens: 1}, load: {type: concurrency, concurrency: 1}, stop: {requests: 1}}"
)

// ReadDeployments reads the deployments of a sweep specification or an AISimulate file
// that may leave out the load: each is a run whose workload means nothing. Combinations
// that do not run are left out.
func ReadDeployments(path string, files *Files) ([]Run, error) {
	text, err := files.Document("", path)
	if err != nil {
		return nil, err
	}
	return ParseDeployments(path, filepath.Dir(path), text, files)
}

// ParseDeployments is ReadDeployments on a text; origin names it in messages, dir is the
// folder that paths start from.
func ParseDeployments(origin, dir string, text []byte, files *Files) ([]Run, error) {
	root, err := document.ParseYAML(origin, text)
	if err != nil {
		return nil, err
	}
	if root == nil || root.Kind != document.Map {
		return nil, &document.Fault{Origin: origin, Line: 1, Msg: "must be a sweep specification or an AISimulate file"}
	}
	if e := root.Get("engine"); root.Get("traffic") != nil || e != nil && (e.Get("workers") != nil || e.Get("model") != nil) {
		if err := putLoad(root, "traffic", noTraffic); err != nil {
			return nil, err
		}
		run, err := readConfiguration(origin, dir, root, PredictOptions{Stack: stacks[1]}, files)
		return []Run{run}, err
	}
	if err := putLoad(root, "workload", noWorkload); err != nil {
		return nil, err
	}
	grid, err := readGrid(origin, dir, text, root, files)
	if err != nil {
		return nil, err
	}
	var out []Run
	for i := range grid.Points {
		if p := &grid.Points[i]; p.Skip == "" {
			out = append(out, p.Run)
		}
	}
	if len(out) == 0 {
		return nil, &document.Fault{Origin: origin, Line: 1, Msg: "no combination runs: " + grid.Points[0].Skip}
	}
	return out, nil
}

func putLoad(root *document.Node, key, text string) error {
	load, err := document.ParseYAML("", []byte(text))
	if err == nil {
		load.Rebase(key)
		root.Put(key, load)
	}
	return err
}

// Corrected returns the run with other corrections in every role.
func (r Run) Corrected(c Corrections) Run {
	change := func(role *Role) *Role {
		out := *role
		out.Timing.Corrections = c
		return &out
	}
	if r.Prefill != nil {
		r.Prefill = change(r.Prefill)
	}
	r.Decode = change(r.Decode)
	return r
}

// WithKVTokens returns the run with a KV cache of that many tokens per rank in every
// role, as an engine's log names it.
func (r Run) WithKVTokens(tokens int) Run {
	change := func(role *Role) *Role {
		out := *role
		out.Capacity, out.BlocksGiven = nil, true
		out.Rank.Blocks = max(1, min(tokens/max(out.Rank.BlockSize, 1), maxBlocks))
		return &out
	}
	if r.Prefill != nil {
		r.Prefill = change(r.Prefill)
	}
	r.Decode = change(r.Decode)
	return r
}
