package scenario

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// Router is the placement of a run. It is shared by runs and never changed.
type Router struct {
	KV         bool
	Config     router.Config // KV only; its Estimator is filled in by Run.Config
	Estimator  *AICRequest   // prefill-load estimate, nil: none
	EventLagMs float64

	model, systems fileRef
	id             [32]byte
}

// routerDoc is what a document says about placement.
type routerDoc struct {
	origin    string         // of config
	at        *document.Node // where config stands in a larger document, nil alone
	kv        bool
	config    []byte // JSON, nil: none
	policy    string // path, wins over the one in config
	policyAt  string // origin of policy
	modelName string
	estimator *AICRequest
	lagMs     float64
	ais       bool // config asks for the prefill-load estimate
}

// complete reads the configuration and the policy file. queuePolicy is the one of
// the engine arguments of the pool that queues, "" not set.
func (d *routerDoc) complete(queuePolicy string, files *Files) (*Router, error) {
	r := &Router{KV: d.kv}
	text := d.config
	if text == nil {
		text = []byte("{}")
	}
	doc, err := router.ParseDocument(text)
	if err != nil {
		return nil, d.fault(err)
	}
	with := router.Completion{ModelName: d.modelName}
	if with.Policy, err = d.readPolicy(doc, files); err != nil {
		return nil, err
	}
	if !d.kv {
		return r, nil
	}
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
	if r.Config, err = doc.Config(with); err != nil {
		return nil, d.fault(err)
	}
	r.Config.Estimator, r.Estimator, r.EventLagMs = nil, d.estimator, d.lagMs
	return r, nil
}

func (d *routerDoc) fault(err error) error {
	var list []error
	for _, e := range unjoin(err) {
		f := &document.Fault{Origin: d.origin, Msg: e.Error()}
		if d.at != nil {
			f.Line, f.Path = d.at.Line, d.at.Path
		}
		list = append(list, f)
	}
	return errors.Join(list...)
}

// readPolicy reads the policy file, nil without one, and what it says about the
// configuration. A round robin uses neither; both have to be right all the same.
func (d *routerDoc) readPolicy(doc *router.Document, files *Files) (*router.Policy, error) {
	path, origin := d.policy, d.policyAt
	if path == "" {
		path, origin = doc.PolicyPath(), d.origin
	}
	if path == "" {
		return nil, nil
	}
	text, err := files.document(origin, path)
	if err != nil {
		return nil, err
	}
	n, err := document.ParseYAML(path, text)
	if err != nil {
		return nil, err
	}
	if n == nil {
		n = &document.Node{}
	}
	p, err := router.ParsePolicy(path, routerNode(n))
	if err == nil {
		err = doc.Check(p)
	}
	if err == nil && d.kv {
		err = p.Refusal()
	}
	if err != nil {
		return nil, (&routerDoc{origin: path}).fault(err)
	}
	return p, nil
}

// routerNode is the value as the router's readers take it.
func routerNode(n *document.Node) *router.Node {
	out := &router.Node{Line: n.Line, Column: n.Column, Text: n.Raw}
	switch n.Kind {
	case document.Bool:
		out.Value = n.Text == "true"
	case document.Int:
		if v, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
			out.Value = v
		} else {
			v, _ := strconv.ParseUint(n.Text, 10, 64)
			out.Value = v
		}
	case document.Float:
		out.Value = n.Number()
	case document.String:
		out.Value = n.Text
	case document.List:
		items := make([]*router.Node, len(n.Items))
		for i, v := range n.Items {
			items[i] = routerNode(v)
		}
		out.Value = items
	case document.Map:
		pairs := make([]router.Pair, len(n.Items))
		for i, v := range n.Items {
			pairs[i] = router.Pair{Key: n.Keys[i], Value: routerNode(v)}
		}
		out.Value = pairs
	}
	return out
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
	if !r.KV || r.Estimator == nil {
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

// seal reads what identifies the router: a policy file counts by what it says.
func (r *Router) seal(files *Files) error {
	if e := r.Estimator; e != nil {
		var err error
		if e.SystemsPath != "" {
			if r.systems, err = files.ref(e.SystemsPath); err != nil {
				return err
			}
		}
		if path := e.localConfig(e.Model); path != "" {
			if r.model, err = files.ref(path); err != nil {
				return err
			}
		}
	}
	r.id = digest(r.resolved(false))
	return nil
}

// resolved is the router as plain values, with upstream's keys.
func (r *Router) resolved(paths bool) map[string]any {
	if !r.KV {
		return map[string]any{"mode": "round_robin"}
	}
	c := &r.Config
	m := map[string]any{"mode": "kv_router", "kv_event_lag_ms": r.EventLagMs, "config": map[string]any{
		"overlap_score_credit": c.OverlapCredit, "overlap_score_credit_decay": c.CreditDecay,
		"prefill_load_scale": c.PrefillScale, "decode_active_request_weight": c.ActiveRequestWeight,
		"router_temperature": c.Temperature, "router_track_active_blocks": c.TrackActiveBlocks,
		"router_assume_kv_reuse": c.AssumeKVReuse, "router_track_prefill_tokens": c.TrackPrefillTokens,
		"router_policy": plainProfile(&c.Profile)}}
	if r.Estimator != nil {
		m["prefill_load_model"] = r.Estimator.resolved(r.model, r.systems, paths)
	}
	return m
}

// plainProfile is a profile as plain values, with the keys of a policy file; -1
// stands for a limit that is not set.
func plainProfile(p *router.Profile) map[string]any {
	var classes []any
	for i := range p.Classes {
		c := &p.Classes[i]
		classes = append(classes, map[string]any{"name": c.Name, "queue_policy": c.Policy.String(), "quantum": c.Quantum,
			"prefill_busy_threshold": c.BusyTokens, "prefill_busy_threshold_frac": c.BusyFrac,
			"request_queue_limit_per_worker": c.MaxRequests, "raw_isl_token_queue_limit_per_worker": c.MaxISL,
			"cached_token_queue_limit_per_worker": c.MaxCached})
	}
	m := map[string]any{"policy_classes": classes}
	if len(p.Families) > 0 {
		m["policy_families"], m["default_policy_family"] = p.Families, p.Families[p.DefaultFamily]
		m["uncached_isl_buckets"], m["cells"], m["explicit"] = p.MinTokens, p.Cells, p.Explicit
	}
	return m
}
