package router

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/internal/spelling"
)

// Policy is a policy-class file (spec kv-router 8.5): settings that win over the
// router's configuration, a root profile and profiles for single models. A nil Policy has
// nothing to say.
type Policy struct {
	settings document.Values // of the `router` mapping

	root    *Profile
	models  []modelProfile
	refusal error // what an offline replay cannot do, reported at start
}

type modelProfile struct {
	name    string
	profile *Profile
}

// policyKeys are the keys of the file, in which null stands for absent.
var policyKeys = append([]document.Key{
	{Name: "router", Kind: document.Map, Null: true},
	{Name: "models", Kind: document.Map, Null: true},
	{Name: "worker_selection", Kind: document.Map, Null: true},
	{Name: "request_classifier", Kind: document.Map, Null: true},
}, profileKeys(false)...)

// profileKeys are the keys of a profile; a model's has them all.
func profileKeys(required bool) []document.Key {
	return []document.Key{
		{Name: "default_policy_family", Kind: document.String, AnyText: true, Null: !required, Required: required},
		{Name: "policy_classes", Kind: document.List, Null: !required, Required: required},
		{Name: "uncached_isl_buckets", Kind: document.List, Null: !required, Required: required},
	}
}

var bucketKeys = []document.Key{
	{Name: "min_tokens", Kind: document.Int, Required: true},
	{Name: "bucket", Kind: document.String, AnyText: true, Required: true},
}

var classKeys = []document.Key{
	{Name: "name", Kind: document.String, AnyText: true, Required: true},
	{Name: "policy_family", Kind: document.String, AnyText: true, Null: true},
	{Name: "cache_bucket", Kind: document.String, AnyText: true, Null: true},
	{Name: "queue_policy", Kind: document.String, Choices: []string{"fcfs", "lcfs", "wspt"}},
	{Name: "quantum", Kind: document.Int, Required: true},
	{Name: "prefill_busy_threshold", Kind: document.Int, Null: true},
	{Name: "prefill_busy_threshold_frac", Kind: document.Float, Null: true},
	{Name: "request_queue_limit_per_worker", Kind: document.Int, Null: true},
	{Name: "raw_isl_token_queue_limit_per_worker", Kind: document.Int, Null: true},
	{Name: "cached_token_queue_limit_per_worker", Kind: document.Int, Null: true},
}

// ReadPolicy reads a policy file; nil stands for an empty one. What is wrong goes to
// the faults.
func ReadPolicy(n *document.Node, f *document.Faults) *Policy {
	if n == nil {
		n = document.EmptyMap(0, "")
	} else if n.Kind == document.Null {
		n = document.EmptyMap(n.Line, "")
	}
	keys := f.Read(n, policyKeys)
	p := &Policy{}
	written := slices.ContainsFunc(policyKeys, func(k document.Key) bool { return keys.Has(k.Name) })
	if f.OK() && !written {
		f.Invalid(n, "router policy config must define router settings, a root profile, "+
			"at least one model profile, worker_selection, or request_classifier")
	}
	p.readSettings(keys.Node("router"), f)
	p.readRoot(keys, f)
	if models := keys.Node("models"); models != nil {
		for i, name := range models.Keys {
			p.readModel(name, models.Items[i], f)
		}
	}
	if selection := keys.Node("worker_selection"); selection != nil {
		p.readSelection(selection, f)
	}
	if classifier := keys.Node("request_classifier"); classifier != nil {
		if classifier.Get("type") == nil {
			f.Malformed(classifier, "missing field `type`")
		}
		p.refusal = errors.New("offline replay does not support request_classifier plugins")
	}
	return p
}

// selectionKeys choose a worker-selection policy by role. Only the built-in one,
// `default`, is simulated.
var (
	selectionRoles = []string{"aggregated", "prefill", "decode", "encode"}
	selectionKeys  = []document.Key{
		{Name: "aggregated", Kind: document.String, AnyText: true, Null: true},
		{Name: "prefill", Kind: document.String, AnyText: true, Null: true},
		{Name: "decode", Kind: document.String, AnyText: true, Null: true},
		{Name: "encode", Kind: document.String, AnyText: true, Null: true},
		{Name: "instances", Kind: document.List},
	}
)

// readSelection reads which policies choose workers. An offline replay refuses those
// that load code when it starts, not when it reads the file.
func (p *Policy) readSelection(n *document.Node, f *document.Faults) {
	keys := f.Read(n, selectionKeys)
	var names []string
	instances := keys.Node("instances")
	if instances != nil {
		for _, item := range instances.Items {
			// what configures an instance is its own affair
			one := f.Read(item, []document.Key{{Name: "name", Kind: document.String, AnyText: true, Required: true},
				{Name: "type", Kind: document.String, AnyText: true, Required: true}, {Name: "config", Kind: document.Map, Null: true}})
			names = append(names, one.Text("name").Value)
		}
	}
	chosen := 0
	for _, role := range selectionRoles {
		instance := keys.Text(role)
		if !instance.Set {
			continue
		}
		chosen++
		if instance.Value == "default" {
			continue
		}
		if !slices.Contains(names, instance.Value) {
			keys.Require(false, role, fmt.Sprintf("worker_selection %s %q does not name a configured instance", role, instance.Value))
		}
		p.refusal = fmt.Errorf("custom worker-selection policy %q is not supported by replay", instance.Value)
	}
	if chosen == 0 && (instances == nil || len(instances.Items) == 0) {
		f.Invalid(n, "worker_selection must define an instance or an aggregated, prefill, decode, or encode selection")
	}
}

// readRoot resolves the root profile if its keys are there.
func (p *Policy) readRoot(keys document.Values, f *document.Faults) {
	n, given := keys.Mapping(), 0
	for _, key := range profileKeys(true) {
		if v := n.Get(key.Name); v != nil && v.Kind != document.Null {
			given++
		}
	}
	switch given {
	case 0:
	case 3:
		p.root = readProfile("root", keys, f)
	default:
		f.Invalid(n, "root profile must specify default_policy_family, uncached_isl_buckets, "+
			"and policy_classes when any root profile field is present")
	}
}

// readModel resolves the profile of one model.
func (p *Policy) readModel(name string, n *document.Node, f *document.Faults) {
	if name == "" {
		f.Invalid(n, "model profile name must not be empty")
		return
	}
	keys := f.Read(n, profileKeys(true))
	p.models = append(p.models, modelProfile{name, readProfile(fmt.Sprintf("model %q", name), keys, f)})
}

// settingNames are the keys that the `router` mapping may hold: those of the router's
// configuration and one that only the file has.
var settingNames = []string{
	"host_cache_hit_weight", "disk_cache_hit_weight", "use_kv_events", "router_replica_sync",
	"router_track_active_blocks", "router_track_output_blocks", "router_assume_kv_reuse",
	"router_track_prefill_tokens", "router_tracking_hash", "router_tracking_key_file",
	"router_tracking_key_id", "router_prefill_load_model", "router_ttl_secs",
	"router_approximate_cache_policy", "router_event_threads", "use_remote_indexer",
	"serve_indexer", "enable_session_prefix_index", "shared_cache_type", "router_predicted_ttl_secs",
}

var settingKeys = func() []document.Key {
	keys := []document.Key{{Name: "router_approximate_cache_policy", Kind: document.String, Choices: []string{"ttl", "lru"}}}
	for _, k := range documentKeys {
		if slices.Contains(settingNames, k.Name) {
			keys = append(keys, k)
		}
	}
	return keys
}()

// readSettings reads the `router` mapping by itself.
func (p *Policy) readSettings(n *document.Node, f *document.Faults) {
	if n == nil {
		return
	}
	known := n
	for i, key := range n.Keys {
		if !slices.Contains(settingNames, key) {
			msg := "unknown router setting: " + key + " (a policy file may set " + strings.Join(settingNames, ", ") +
				"; the others stand in the router config)"
			if near := spelling.Nearest(key, settingNames); near != "" {
				msg += " (did you mean `" + near + "`?)"
			}
			f.Malformed(n.Items[i], msg)
			known = known.Without(key)
		}
	}
	p.settings = f.Read(known, settingKeys)
}

// overlay returns a document with the settings of the file laid over it; what does
// not fit then goes to the faults.
func (p *Policy) overlay(d *Document, f *document.Faults) *Document {
	if p == nil {
		return d
	}
	out := &Document{d.keys.Over(p.settings, f)}
	k := out.keys
	k.Require(k.Text("router_approximate_cache_policy").Value != "lru" || !k.Bool("use_kv_events").Or(true), "router_approximate_cache_policy",
		"router_approximate_cache_policy=lru requires use_kv_events=false; the local side indexer is TTL-only")
	out.check()
	return out
}

// Refusal is what the file asks for and an offline replay with a KV router cannot
// do; nil: nothing.
func (p *Policy) Refusal() error {
	if p == nil {
		return nil
	}
	return p.refusal
}

// profile returns the profile of a model, else the root profile, else nil.
func (p *Policy) profile(model string) *Profile {
	if p == nil {
		return nil
	}
	for _, m := range p.models {
		if m.name == model {
			return m.profile
		}
	}
	return p.root
}

// nameRule is the shape of every name in a profile.
const nameRule = "[A-Za-z0-9_.-]+"

// checkName adds a fault at n unless its text is a name.
func checkName(f *document.Faults, n *document.Node, label, kind string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	if n.Text == "" || strings.Trim(n.Text, letters) != "" {
		f.Invalid(n, fmt.Sprintf("%s %s name %q must match %s", label, kind, n.Text, nameRule))
		return false
	}
	return true
}

// profileReader turns one profile as written into a Profile.
type profileReader struct {
	f       *document.Faults
	label   string // names the profile in messages
	p       Profile
	buckets []string
}

// readProfile checks and resolves one profile; nil with faults.
func readProfile(label string, keys document.Values, f *document.Faults) *Profile {
	r := &profileReader{f: f, label: label}
	before := len(f.List)
	family := keys.Node("default_policy_family")
	if family != nil {
		checkName(f, family, label, "policy family")
	}
	if n := keys.Node("uncached_isl_buckets"); n != nil {
		r.readBuckets(n)
	}
	classes := keys.Node("policy_classes")
	if classes != nil {
		if len(classes.Items) == 0 {
			r.bad(classes, "policy_classes must not be empty")
		}
		for _, item := range classes.Items {
			r.readClass(item)
		}
	}
	if len(f.List) > before || family == nil || classes == nil {
		return nil
	}
	r.checkCells(family, classes)
	return &r.p
}

// bad adds a fault that begins with the name of the profile.
func (r *profileReader) bad(n *document.Node, format string, args ...any) {
	r.f.Invalid(n, r.label+" "+fmt.Sprintf(format, args...))
}

// checkCells checks that every family has a class for every bucket.
func (r *profileReader) checkCells(family, classes *document.Node) {
	p := &r.p
	p.DefaultFamily = slices.Index(p.Families, family.Text)
	if p.DefaultFamily < 0 {
		r.bad(family, "default_policy_family %q does not name a configured family", family.Text)
	}
	for _, i := range p.Explicit {
		if slices.Contains(p.Families, p.Classes[i].Name) {
			r.bad(classes.Items[i], "explicit policy class %q collides with a policy family", p.Classes[i].Name)
		}
	}
	for f, cells := range p.Cells {
		for b, cell := range cells {
			if cell == none {
				r.bad(classes, "is missing a policy class for family %q and bucket %q", p.Families[f], r.buckets[b])
			}
		}
	}
}

// readBuckets fills the bounds and the names of the buckets.
func (r *profileReader) readBuckets(list *document.Node) {
	if len(list.Items) == 0 {
		r.bad(list, "uncached_isl_buckets must not be empty")
	}
	last := int64(-1)
	for i, item := range list.Items {
		keys := r.f.Read(item, bucketKeys)
		from, name := keys.Node("min_tokens"), keys.Node("bucket")
		if from == nil || name == nil {
			continue
		}
		min := bounded(keys.Whole("min_tokens"))
		switch {
		case i == 0 && min != 0:
			r.bad(from, "uncached_isl_buckets must start at min_tokens 0")
		case min <= last:
			r.bad(from, "uncached_isl_buckets min_tokens must be strictly increasing")
		}
		last = min
		if checkName(r.f, name, r.label, "cache bucket") && slices.Contains(r.buckets, name.Text) {
			r.bad(name, "contains duplicate cache bucket %q", name.Text)
		}
		r.buckets, r.p.MinTokens = append(r.buckets, name.Text), append(r.p.MinTokens, min)
	}
}

// bounded returns a count as int64, none if it is not set.
func bounded(v document.Opt[uint64]) int64 {
	if !v.Set {
		return none
	}
	return int64(min(v.Value, math.MaxInt64))
}

// readClass adds one class.
func (r *profileReader) readClass(n *document.Node) {
	keys := r.f.Read(n, classKeys)
	name := keys.Node("name")
	if name == nil || !keys.Has("quantum") || !checkName(r.f, name, r.label, "policy class") {
		return
	}
	p := &r.p
	if slices.ContainsFunc(p.Classes, func(o Class) bool { return o.Name == name.Text }) {
		r.bad(name, "contains duplicate policy class %q", name.Text)
	}
	require := func(holds bool, key, format string, args ...any) {
		keys.Require(holds, key, fmt.Sprintf("%s policy class %q ", r.label, name.Text)+fmt.Sprintf(format, args...))
	}
	policy := queuePolicies[keys.Text("queue_policy").Or("fcfs")]
	family, bucket := keys.Node("policy_family"), keys.Node("cache_bucket")
	require(keys.Whole("quantum").Value > 0, "quantum", "quantum must be greater than zero")
	require(policy != LCFS, "queue_policy", "queue_policy must be fcfs or wspt")
	require(finite(keys.Number("prefill_busy_threshold_frac").Value), "prefill_busy_threshold_frac", "prefill_busy_threshold_frac must be finite and non-negative")
	require((family == nil) == (bucket == nil), "name", "must specify both policy_family and cache_bucket or neither for an explicit class")
	index := len(p.Classes)
	p.Classes = append(p.Classes, Class{Name: name.Text, Policy: policy, Quantum: bounded(keys.Whole("quantum")),
		BusyTokens: bounded(keys.Whole("prefill_busy_threshold")), BusyFrac: keys.Number("prefill_busy_threshold_frac").Or(none),
		MaxRequests: bounded(keys.Whole("request_queue_limit_per_worker")), MaxISL: bounded(keys.Whole("raw_isl_token_queue_limit_per_worker")),
		MaxCached: bounded(keys.Whole("cached_token_queue_limit_per_worker"))})
	switch {
	case family == nil || bucket == nil:
		p.Explicit = append(p.Explicit, index)
		return
	case !checkName(r.f, family, r.label, "policy family"):
		return
	}
	at := slices.Index(r.buckets, bucket.Text)
	require(at >= 0, "cache_bucket", "references unknown cache bucket %q", bucket.Text)
	if at < 0 {
		return
	}
	cell := &p.family(family.Text)[at]
	if *cell != none {
		r.bad(bucket, "contains duplicate policy classes for family %q and bucket %q", family.Text, bucket.Text)
	}
	*cell = index
}

// family returns the row of cells of a family, a new empty one if needed.
func (p *Profile) family(name string) []int {
	i := slices.Index(p.Families, name)
	if i < 0 {
		i = len(p.Families)
		p.Families = append(p.Families, name)
		p.Cells = append(p.Cells, slices.Repeat([]int{none}, len(p.MinTokens)))
	}
	return p.Cells[i]
}
