package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// Refusal is why a candidate is not run, in the words of spec sweeps-and-schema 3.
type Refusal struct {
	Status   string // infeasible or unsupported
	Category string
	Reason   string
}

func (r *Refusal) Error() string { return r.Category + ": " + r.Reason }

// Candidate is one concrete configuration of a search.
type Candidate struct {
	Run     Run    // zero if Refused
	ID      string // of the configuration; "" if there is none
	Key     string // of configuration and hardware: candidates with the same one are folded
	GPUs    int
	Knobs   []byte // what the search decided, as JSON: dotted path to value
	Config  []byte // the whole concrete document as canonical JSON
	Refused *Refusal

	doc   *document.Node
	knobs map[string]any
}

// Candidate makes candidate i of a branch.
func (r *Recommend) Candidate(branch int, i int64) Candidate {
	b := &r.Branches[branch]
	doc, knobs := b.base, map[string]any{"engine.mode": b.Mode}
	for _, a := range pick(b.space, i, nil) {
		doc = doc.With(a.path, a.v)
		if !a.quiet {
			knobs[a.path] = a.v.Plain()
		}
	}
	c := Candidate{doc: doc, knobs: knobs}
	var err error
	if r.fraction {
		c.doc, err = r.relative(doc)
	}
	if err == nil {
		c.Run, err = r.lower(c.doc)
	}
	c.Config = c.doc.JSON()
	c.Knobs, _ = json.Marshal(knobs)
	if err != nil {
		c.Run, c.Refused = Run{}, refusal(err)
		return c
	}
	c.ID, c.GPUs = c.Run.ID(), c.Run.GPUs()
	c.Key = c.ID + " " + c.Run.Decode.System()
	c.Refused = r.beyond(&c)
	return c
}

// Summary is the candidate without what only a run, a file or Without needs: that is
// made again by asking for it once more.
func (c Candidate) Summary() Candidate {
	c.Run, c.doc, c.knobs = Run{}, nil, nil
	return c
}

// Without returns, for every decision of the candidate, what the others are: two
// candidates that share one of these texts differ in that decision alone. The
// decisions of the router, of the Planner and of the parallel shapes of both roles
// count as one decision together, too.
func (c *Candidate) Without() []string {
	keys := slices.Sorted(maps.Keys(c.knobs))
	var out []string
	drop := func(name string, gone func(key string) bool) {
		rest := map[string]any{}
		for _, k := range keys {
			if !gone(k) {
				rest[k] = c.knobs[k]
			}
		}
		text, _ := json.Marshal(rest)
		out = append(out, name+" "+string(text))
	}
	for _, k := range keys {
		drop(k, func(key string) bool { return key == k })
	}
	for _, section := range [...]string{"router", "planner"} {
		within := func(key string) bool { return key == section || strings.HasPrefix(key, section+".") }
		if slices.ContainsFunc(keys, within) {
			drop(section+".*", within)
		}
	}
	if len(out) > 0 && c.Run.Prefill != nil {
		drop("parallelism", func(key string) bool { return strings.Contains(key, ".parallelism") })
	}
	return out
}

// lower reads a concrete document as predict does.
func (r *Recommend) lower(doc *document.Node) (Run, error) {
	p := &predictor{f: &document.Faults{Origin: r.origin}, dir: r.dir, files: r.files, stack: r.stack}
	p.read(doc)
	if err := p.f.Err(); err != nil {
		return Run{}, err
	}
	return p.run, p.run.fingerprint(r.files)
}

func refusal(err error) *Refusal {
	var own *Refusal
	if errors.As(err, &own) {
		return own
	}
	out := &Refusal{"unsupported", "candidate_materialization", strings.ReplaceAll(err.Error(), "\n", "; ")}
	for _, e := range document.Split(err) {
		var f *document.Fault
		if errors.As(e, &f) && isRelation(f) {
			out.Category, out.Reason = "backend_topology", f.Path+": "+f.Msg
		}
	}
	return out
}

// beyond says which limit of the search a candidate breaks.
func (r *Recommend) beyond(c *Candidate) *Refusal {
	g := &r.Goal
	switch {
	case c.GPUs > g.MaxGPUs:
		return &Refusal{"infeasible", "gpu_budget", fmt.Sprintf("needs %d GPUs, max_candidate_gpus is %d", c.GPUs, g.MaxGPUs)}
	case c.GPUs < g.MinGPUs:
		return &Refusal{"infeasible", "gpu_budget", fmt.Sprintf("has %d GPUs, min_candidate_gpus is %d", c.GPUs, g.MinGPUs)}
	}
	if s := c.Run.Workload.Synthetic; s != nil && s.Total() > r.Optimizer.MaxRequests {
		load := ""
		if s.Concurrency > 0 {
			load = fmt.Sprintf(" at concurrency %d", s.Concurrency)
		}
		return &Refusal{"unsupported", "candidate_materialization", fmt.Sprintf("%d requests%s: optimizer.max_candidate_requests is %d", s.Total(), load, r.Optimizer.MaxRequests)}
	}
	if why := r.Cost.missing(&c.Run); why != "" {
		return &Refusal{"unsupported", "candidate_materialization", why}
	}
	return nil
}

// relative replaces a load relative to the KV capacity by a concurrency (spec
// sweeps-and-schema 5.6).
func (r *Recommend) relative(doc *document.Node) (*document.Node, error) {
	share := doc.Find("traffic.load.fraction").Number()
	load := func(n int) *document.Node {
		at := document.EmptyMap(doc.Get("traffic").Line, "traffic.load")
		at.Put("type", literal("concurrency").At("traffic.load.type"))
		at.Put("concurrency", literal(strconv.Itoa(n)).At("traffic.load.concurrency"))
		return doc.With("traffic.load", at)
	}
	run, err := r.lower(load(1))
	if err != nil {
		return doc, err
	}
	_, blocks, err := run.Decode.resolve(r.resolve)
	if err != nil {
		return doc, &Refusal{"infeasible", "kv_capacity", err.Error()}
	}
	s := run.Workload.Synthetic
	capacity := float64(blocks) * float64(run.Decode.Rank.BlockSize) * float64(run.Decode.DPSize) * float64(run.DecodeWorkers)
	n := math.Floor(share * math.Floor(capacity/float64(s.InputTokens+s.OutputTokens/2)))
	return load(int(min(max(1, n), 1<<40))), nil
}

// tries is how many candidates of a branch are read beforehand.
const tries = 64

// try reads some candidates of every branch. A fault that none of them is free of is
// the document's.
func (r *Recommend) try() error {
	for b := range r.Branches {
		n := r.Branches[b].Size
		var first error
		good := false
		for k := int64(0); k < tries && k < n && !good; k++ {
			i := k
			if n > tries {
				i = int64(float64(n-1) * (float64(k) / (tries - 1)))
			}
			err := r.tryOne(b, i)
			good = err == nil
			if first == nil {
				first = err
			}
		}
		if !good && first != nil {
			return first
		}
	}
	return nil
}

// tryOne returns what is wrong with one candidate but for values that do not fit
// each other.
func (r *Recommend) tryOne(branch int, i int64) error {
	b := &r.Branches[branch]
	doc := b.base
	for _, a := range pick(b.space, i, nil) {
		doc = doc.With(a.path, a.v)
	}
	if r.fraction {
		doc = doc.With("traffic.load", document.EmptyMap(0, "traffic.load").With("type", literal("concurrency").At("traffic.load.type")))
	}
	_, err := r.lower(doc)
	for _, e := range document.Split(err) {
		var f *document.Fault
		if !errors.As(e, &f) || !isRelation(f) {
			return err
		}
	}
	return nil
}

// YAML is the document that predict takes unchanged. The files that it names are
// written as seen from the folder into, which must exist.
func (r *Recommend) YAML(c *Candidate, into string) ([]byte, error) {
	doc := c.doc
	if paths := doc.Find("traffic.source.paths"); paths != nil && paths.Kind == document.List {
		moved := *paths
		moved.Items = nil
		for _, v := range paths.Items {
			p := *v
			p.Text = r.seenFrom(into, v.Text)
			moved.Items = append(moved.Items, &p)
		}
		doc = doc.With("traffic.source.paths", &moved)
	}
	for _, path := range [...]string{"engine.systems_path", "engine.model"} {
		v := doc.Find(path)
		if v == nil || v.Kind != document.String {
			continue
		}
		if q := (&AICRequest{}); path == "engine.model" && q.localConfig(PathFrom(r.dir, v.Text)) == "" {
			continue // a name, no folder
		}
		p := *v
		p.Text = r.seenFrom(into, v.Text)
		doc = doc.With(path, &p)
	}
	return doc.MarshalYAML()
}

// seenFrom is a path of the document as seen from another folder.
func (r *Recommend) seenFrom(folder, path string) string {
	at := PathFrom(r.dir, path)
	if filepath.IsAbs(path) {
		return path
	}
	from, err1 := filepath.Abs(folder)
	to, err2 := filepath.Abs(at)
	if rel, err := filepath.Rel(from, to); err == nil && err1 == nil && err2 == nil {
		return rel
	}
	return at
}
