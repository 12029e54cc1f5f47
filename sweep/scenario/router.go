package scenario

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// Router is the placement of a run. It is shared by runs and never changed.
type Router struct {
	Mode       *router.Mode
	Config     router.Config // configured modes only; its Estimator is filled in by Run.Config
	Estimator  *AICRequest   // prefill-load estimate, nil: none
	EventLagMs float64

	files modelFiles // of the estimator
	id    [32]byte
}

// routerDoc is what a document says about placement.
type routerDoc struct {
	faults    document.Faults // of config
	mode      *router.Mode
	config    *document.Node // nil: none
	policy    string         // path, wins over the one in config
	policyAt  string         // origin of policy
	modelName string
	estimator *AICRequest
	// estimatorAt is the flag that asks for the estimate, "" if config does.
	estimatorAt string
	lagMs       float64
	ais         bool // config asks for the prefill-load estimate
}

// RouterModes lists the router modes, each with what it does in a few words; format
// surrounds a name, in which % stands for it.
func RouterModes(format string) string { return router.DescribeModes(format) }

// RouterModeNames lists the names of the router modes, the default first.
func RouterModeNames() []string { return router.ModeNames() }

// FrontendMode returns what the --router-mode of a Dynamo frontend calls a mode.
func FrontendMode(name string) string {
	if m := router.FindMode(name); m != nil {
		return m.Frontend
	}
	return router.DefaultMode().Frontend
}

// readMode reads the name of a router mode; the default one if the key is missing or
// malformed.
func readMode(m document.Mapping, key string) *router.Mode {
	if n := m.Get(key); n != nil && n.Kind == document.String {
		if mode := router.FindMode(n.Text); mode != nil {
			return mode
		}
	}
	return router.Modes()[m.Enum(key, router.ModeNames()...).Value]
}

// complete reads the configuration and the policy file. queuePolicy is the one of
// the engine arguments of the pool that queues, "" not set.
func (d *routerDoc) complete(queuePolicy string, files *Files) (*Router, error) {
	r := &Router{Mode: d.mode}
	f := d.faults // a copy: the document may be completed more than once
	doc := router.ReadDocument(d.config, &f)
	policy, err := d.readPolicy(doc, f.OK(), files)
	if err := errors.Join(f.Err(), err); err != nil {
		return nil, err
	}
	if !d.mode.Configured {
		return r, nil
	}
	with := router.Completion{ModelName: d.modelName, Policy: policy}
	if queuePolicy != "" {
		p, err := router.ParseQueuePolicy(queuePolicy)
		if err != nil {
			return nil, d.fault(err)
		}
		with.QueuePolicy = &p
	}
	if d.estimator != nil {
		with.Estimator = prefillEstimator{}
	}
	if r.Config, err = doc.Config(with); errors.Is(err, router.ErrEstimateUnused) && d.estimatorAt != "" {
		return nil, &document.Fault{Origin: d.estimatorAt,
			Msg: `the router does not estimate prefill load: give --router-config '{"router_prefill_load_model":"ais"}', or leave the --aic-* flags out`}
	} else if err != nil {
		return nil, d.fault(err)
	}
	r.Config.Estimator, r.Estimator, r.EventLagMs = nil, d.estimator, d.lagMs
	return r, nil
}

// fault gives errors of the whole configuration its place.
func (d *routerDoc) fault(err error) error {
	at := d.config
	if at == nil {
		at = document.EmptyMap(0, "")
	}
	f := document.Faults{Origin: d.faults.Origin, Inline: d.faults.Inline}
	for _, e := range document.Split(err) {
		f.Invalid(at, e.Error())
	}
	return f.Err()
}

// readPolicy reads the policy file, nil without one, and what it says about the
// configuration, if that is right. Modes that are not configured use neither; both
// have to be right all the same.
func (d *routerDoc) readPolicy(doc *router.Document, right bool, files *Files) (*router.Policy, error) {
	path, origin := d.policy, d.policyAt
	if path == "" {
		path, origin = doc.PolicyPath(), d.faults.Origin
	}
	if path == "" {
		return nil, nil
	}
	text, err := files.Document(origin, path)
	if err != nil {
		return nil, err
	}
	n, err := document.ParseYAML(path, text)
	if err != nil {
		return nil, err
	}
	f := &document.Faults{Origin: path}
	p := router.ReadPolicy(n, f)
	if f.OK() && right {
		doc.Check(p, f)
	}
	if err := p.Refusal(); err != nil && f.OK() && d.mode.Configured {
		return nil, &document.Fault{Origin: path, Msg: err.Error()}
	}
	return p, f.Err()
}

// prefillEstimator answers the router's question with a timing model.
type prefillEstimator struct{ model timing.Model }

var _ router.Estimator = prefillEstimator{}

// PrefillMs is the time of batch prompts of uncached tokens each, behind prefix
// cached ones.
func (e prefillEstimator) PrefillMs(batch, uncached, prefix int) (float64, error) {
	ms := e.model.PrefillMs(int64(batch), int64(prefix+uncached), int64(prefix))
	if math.IsNaN(ms) || math.IsInf(ms, 0) {
		return 0, fmt.Errorf("no prefill time for %d prompts of %d tokens behind %d cached", batch, uncached, prefix)
	}
	return ms, nil
}

// complete returns the configuration with the estimator that the caller loaded.
func (r *Router) complete(ask TimingResolver) (router.Config, error) {
	c := r.Config
	if !r.Mode.Configured || r.Estimator == nil {
		return c, nil
	}
	if ask == nil {
		return c, errors.New("no data for the router's prefill-load estimate")
	}
	a, err := ask(TimingQuery{Timing: &Timing{Kind: Measured, AIC: *r.Estimator}})
	if err != nil {
		return c, fmt.Errorf("router prefill-load estimate: %w", err)
	}
	c.Estimator = prefillEstimator{a.Model}
	return c, nil
}

// refer reads the content of the files that identify the router; a policy file counts
// by what it says.
func (r *Router) refer(files *Files) error {
	if r.Estimator == nil {
		return nil
	}
	var err error
	r.files, err = r.Estimator.refer(files)
	return err
}
