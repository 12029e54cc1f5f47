package scenario

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// fingerprint reads the content of the files that the run names and makes the
// digests of its parts.
func (r *Run) fingerprint(files *Files) error {
	if err := r.refer(files); err != nil {
		return err
	}
	r.identify()
	return nil
}

// refer reads the content of every file that the run names.
func (r *Run) refer(files *Files) error {
	for _, role := range r.roles() {
		if err := role.refer(files); err != nil {
			return err
		}
	}
	if err := r.Workload.refer(files); err != nil {
		return err
	}
	if err := r.Router.refer(files); err != nil {
		return err
	}
	if t := &r.Transfer; t.Model.Model != "" {
		var err error
		if t.files, err = t.Model.refer(files); err != nil {
			return err
		}
	}
	if r.Planner != nil {
		if err := r.Planner.refer(files); err != nil {
			return &document.Fault{Path: warmupKey, Msg: err.Error()}
		}
	}
	return nil
}

// roles are the engines of the run, the prefill role first.
func (r *Run) roles() []*Role {
	if r.Prefill != nil {
		return []*Role{r.Prefill, r.Decode}
	}
	return []*Role{r.Decode}
}

// identify makes the digests of the parts.
func (r *Run) identify() {
	for _, role := range r.roles() {
		role.identify()
	}
	r.Workload.identify()
	r.Router.identify()
	if r.Planner != nil {
		r.Planner.identify()
	}
}

func (r *Role) identify()     { r.id = digest(r.resolved(identity)) }
func (w *Workload) identify() { w.id = digest(w.resolved(identity)) }
func (r *Router) identify()   { r.id = digest(r.resolved(identity)) }
func (p *Planner) identify()  { p.id = digest(p.resolved(identity)) }

// fingerprint of a part alone, for points that share it.
func (r *Role) fingerprint(files *Files) error {
	err := r.refer(files)
	r.identify()
	return err
}

func (w *Workload) fingerprint(files *Files) error {
	err := w.refer(files)
	w.identify()
	return err
}

func (r *Router) fingerprint(files *Files) error {
	err := r.refer(files)
	r.identify()
	return err
}

func (p *Planner) fingerprint(files *Files) error {
	err := p.refer(files)
	p.identify()
	return err
}

// ID identifies the configuration: 16 hex digits of a digest over the JSON form of
// its parts and the content of its input files, seeds aside.
func (r *Run) ID() string {
	h := sha256.New()
	part := func(name string, id [32]byte) { fmt.Fprintf(h, "%s %x\n", name, id) }
	c := r.head(identity)
	fmt.Fprintf(h, "%s\n", jsonOf(resolved.Head{DecodeWorkers: c.DecodeWorkers, KVTransfer: c.KVTransfer, Mode: c.Mode,
		PrefillWorkers: c.PrefillWorkers, SLA: c.SLA, TelemetryIntervalMs: c.TelemetryIntervalMs, Workers: c.Workers}))
	if r.Prefill != nil {
		part("prefill", r.Prefill.id)
	}
	part("decode", r.Decode.id)
	part("workload", r.Workload.id)
	part("router", r.Router.id)
	if r.Planner != nil {
		part("planner", r.Planner.id)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// digest is the SHA-256 of a part as compact JSON with sorted keys.
func digest(part any) [32]byte { return sha256.Sum256(jsonOf(part)) }

// jsonOf is a value that always marshals as JSON.
func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("scenario: a resolved configuration does not marshal: " + err.Error())
	}
	return text
}
