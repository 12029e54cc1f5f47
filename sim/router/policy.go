package router

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Policy is a policy-class file (spec kv-router 8.5): settings that win over the
// router's JSON, a root profile and profiles for single models. A nil Policy has
// nothing to say.
type Policy struct {
	settings []Pair
	root     *Profile
	models   []modelProfile
	refusal  error // what an offline replay cannot do, reported at start
}

type modelProfile struct {
	name    string
	profile *Profile
}

// policyKeys is the file as written.
type policyKeys struct {
	Router     *Node       `key:"router"`
	Family     *string     `key:"default_policy_family,null"`
	Classes    []classKeys `key:"policy_classes,null"`
	Buckets    []bucketKey `key:"uncached_isl_buckets,null"`
	Models     *Node       `key:"models"`
	Selection  *Node       `key:"worker_selection"`
	Classifier *Node       `key:"request_classifier"`
}

// profileKeys is a model's profile; every field is required.
type profileKeys struct {
	Family  *string     `key:"default_policy_family,required"`
	Classes []classKeys `key:"policy_classes,required"`
	Buckets []bucketKey `key:"uncached_isl_buckets,required"`
}

type bucketKey struct {
	MinTokens *uint64 `key:"min_tokens,required"`
	Bucket    *string `key:"bucket,required"`
}

type classKeys struct {
	Name        *string  `key:"name,required"`
	Family      *string  `key:"policy_family,null"`
	Bucket      *string  `key:"cache_bucket,null"`
	QueuePolicy *string  `key:"queue_policy" variants:"fcfs lcfs wspt"`
	Quantum     *uint64  `key:"quantum,required"`
	BusyTokens  *uint64  `key:"prefill_busy_threshold,null"`
	BusyFrac    *float64 `key:"prefill_busy_threshold_frac,null"`
	MaxRequests *uint64  `key:"request_queue_limit_per_worker,null"`
	MaxISL      *uint64  `key:"raw_isl_token_queue_limit_per_worker,null"`
	MaxCached   *uint64  `key:"cached_token_queue_limit_per_worker,null"`
}

// ParsePolicy reads the tree of a policy file; path names it in messages.
func ParsePolicy(path string, n *Node) (*Policy, error) {
	var keys policyKeys
	if n.Value == nil {
		n = &Node{Line: n.Line, Column: n.Column, Value: []Pair{}}
	}
	malformed := func(err error) error {
		return fmt.Errorf("router_policy_config: failed to parse router policy config %s: %w", path, err)
	}
	if err := decode(n, "", &keys); err != nil {
		return nil, malformed(err)
	}
	models, err := decodeModels(keys.Models)
	if err != nil {
		return nil, malformed(err)
	}
	p := &Policy{}
	selection, err := p.decodePlugins(keys.Selection, keys.Classifier)
	if err != nil {
		return nil, malformed(err)
	}
	if err := p.build(&keys, models, selection); err != nil {
		return nil, fmt.Errorf("router_policy_config: invalid router policy config: %w", err)
	}
	return p, nil
}

// namedKeys is a model's profile as written.
type namedKeys struct {
	name string
	keys profileKeys
}

func decodeModels(n *Node) ([]namedKeys, error) {
	if absent(n) {
		return nil, nil
	}
	pairs, ok := n.Value.([]Pair)
	if !ok {
		return nil, n.fault("models", "invalid type: %s, expected a map", n.shown())
	}
	var models []namedKeys
	for _, pair := range pairs {
		for _, m := range models {
			if m.name == pair.Key {
				return nil, pair.Value.fault("models", "duplicate field `%s`", pair.Key)
			}
		}
		m := namedKeys{name: pair.Key}
		if err := decode(pair.Value, at("models", pair.Key), &m.keys); err != nil {
			return nil, err
		}
		models = append(models, m)
	}
	return models, nil
}

func absent(n *Node) bool { return n == nil || n.Value == nil }

// selectionKeys choose a worker-selection policy by role. Only the built-in one,
// `default`, is simulated.
type selectionKeys struct {
	Aggregated *string        `key:"aggregated,null"`
	Prefill    *string        `key:"prefill,null"`
	Decode     *string        `key:"decode,null"`
	Encode     *string        `key:"encode,null"`
	Instances  []instanceKeys `key:"instances"`
}

// instanceKeys is a custom policy; what configures it is its own affair.
type instanceKeys struct {
	Name   *string `key:"name,required"`
	Type   *string `key:"type,required"`
	Config *Node   `key:"config"`
}

// decodePlugins reads the two keys that load code in a live system. An offline
// replay refuses them when it starts, not when it reads the file.
func (p *Policy) decodePlugins(selection, classifier *Node) (*selectionKeys, error) {
	var keys *selectionKeys
	if !absent(selection) {
		keys = &selectionKeys{}
		if err := decode(selection, "worker_selection", keys); err != nil {
			return nil, err
		}
	}
	if absent(classifier) {
		return keys, nil
	}
	pairs, ok := classifier.Value.([]Pair)
	if !ok {
		return nil, classifier.fault("request_classifier", "invalid type: %s, expected a map", classifier.shown())
	}
	if !slices.ContainsFunc(pairs, func(pair Pair) bool { return pair.Key == "type" }) {
		return nil, classifier.fault("request_classifier", "missing field `type`")
	}
	p.refusal = errors.New("offline replay does not support request_classifier plugins")
	return keys, nil
}

// selectDefault refuses selections that are not the built-in policy.
func (p *Policy) selectDefault(keys *selectionKeys) error {
	chosen := 0
	for _, role := range []struct {
		name     string
		instance *string
	}{{"aggregated", keys.Aggregated}, {"prefill", keys.Prefill}, {"decode", keys.Decode}, {"encode", keys.Encode}} {
		if role.instance == nil {
			continue
		}
		chosen++
		if *role.instance == "default" {
			continue
		}
		if !slices.ContainsFunc(keys.Instances, func(i instanceKeys) bool { return *i.Name == *role.instance }) {
			return fmt.Errorf("worker_selection %s %q does not name a configured instance", role.name, *role.instance)
		}
		p.refusal = fmt.Errorf("custom worker-selection policy %q is not supported by replay", *role.instance)
	}
	if chosen == 0 && len(keys.Instances) == 0 {
		return errors.New("worker_selection must define an instance or an aggregated, prefill, decode, or encode selection")
	}
	return nil
}

// build checks what the file means.
func (p *Policy) build(keys *policyKeys, models []namedKeys, selection *selectionKeys) error {
	root := profileKeys{keys.Family, keys.Classes, keys.Buckets}
	if root.given() == 0 && absent(keys.Router) && len(models) == 0 && selection == nil && p.refusal == nil {
		return errors.New("router policy config must define router settings, a root profile, " +
			"at least one model profile, worker_selection, or request_classifier")
	}
	if err := p.readSettings(keys.Router); err != nil {
		return err
	}
	if err := p.readProfiles(&root, models); err != nil {
		return err
	}
	if selection != nil {
		return p.selectDefault(selection)
	}
	return nil
}

// given is the number of fields that are there.
func (k *profileKeys) given() (n int) {
	for _, there := range []bool{k.Family != nil, k.Buckets != nil, k.Classes != nil} {
		if there {
			n++
		}
	}
	return n
}

// readProfiles resolves the root profile, if its fields are there, and the models'.
func (p *Policy) readProfiles(root *profileKeys, models []namedKeys) (err error) {
	switch root.given() {
	case 0:
	case 3:
		if p.root, err = newProfile("root", root); err != nil {
			return err
		}
	default:
		return errors.New("root profile must specify default_policy_family, uncached_isl_buckets, " +
			"and policy_classes when any root profile field is present")
	}
	for _, m := range models {
		if m.name == "" {
			return errors.New("model profile name must not be empty")
		}
		profile, err := newProfile(fmt.Sprintf("model %q", m.name), &m.keys)
		if err != nil {
			return err
		}
		p.models = append(p.models, modelProfile{m.name, profile})
	}
	return nil
}

// overlayKeys are the settings of the `router` mapping: those of the JSON and one
// that only the file has.
type overlayKeys struct {
	Document          Document
	ApproximatePolicy *string `key:"router_approximate_cache_policy" variants:"ttl lru"`
}

// overlayAllowed are the keys that the `router` mapping may hold.
var overlayAllowed = []string{
	"host_cache_hit_weight", "disk_cache_hit_weight", "use_kv_events", "router_replica_sync",
	"router_track_active_blocks", "router_track_output_blocks", "router_assume_kv_reuse",
	"router_track_prefill_tokens", "router_tracking_hash", "router_tracking_key_file",
	"router_tracking_key_id", "router_prefill_load_model", "router_ttl_secs",
	"router_approximate_cache_policy", "router_event_threads", "use_remote_indexer",
	"serve_indexer", "enable_session_prefix_index", "shared_cache_type", "router_predicted_ttl_secs",
}

// readSettings checks the `router` mapping by itself.
func (p *Policy) readSettings(n *Node) error {
	if absent(n) {
		return nil
	}
	pairs, ok := n.Value.([]Pair)
	if !ok {
		return n.fault("router", "invalid type: %s, expected a map", n.shown())
	}
	var unknown []string
	for _, pair := range pairs {
		if !slices.Contains(overlayAllowed, pair.Key) {
			unknown = append(unknown, pair.Key)
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("unknown router setting: %s (a policy file may set %s; the others stand in the router config)",
			slices.Min(unknown), strings.Join(overlayAllowed, ", "))
	}
	p.settings = pairs
	return decode(&Node{Line: n.Line, Column: n.Column, Value: pairs}, "router", &overlayKeys{})
}

// overlay lays the settings over a document and checks the result.
func (p *Policy) overlay(d *Document) error {
	if p == nil {
		return nil
	}
	keys := overlayKeys{Document: *d}
	if err := decode(&Node{Value: p.settings}, "router", &keys); err != nil {
		return err
	}
	*d = keys.Document
	if or(keys.ApproximatePolicy, "ttl") == "lru" && or(d.Inert.UseKVEvents, true) {
		return errors.New("router_approximate_cache_policy=lru requires use_kv_events=false; " +
			"the local side indexer is TTL-only")
	}
	return errors.Join(d.faults()...)
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

func checkName(label, kind, name string) error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	if name == "" || strings.Trim(name, letters) != "" {
		return fmt.Errorf("%s %s name %q must match %s", label, kind, name, nameRule)
	}
	return nil
}

// newProfile checks and resolves one profile; label names it in messages.
func newProfile(label string, keys *profileKeys) (*Profile, error) {
	defaultFamily := *keys.Family
	if err := checkName(label, "policy family", defaultFamily); err != nil {
		return nil, err
	}
	if len(keys.Classes) == 0 {
		return nil, fmt.Errorf("%s policy_classes must not be empty", label)
	}
	p := &Profile{}
	bucketNames, err := p.readBuckets(label, keys.Buckets)
	if err != nil {
		return nil, err
	}
	for i := range keys.Classes {
		if err := p.readClass(label, &keys.Classes[i], bucketNames); err != nil {
			return nil, err
		}
	}
	p.DefaultFamily = slices.Index(p.Families, defaultFamily)
	if p.DefaultFamily < 0 {
		return nil, fmt.Errorf("%s default_policy_family %q does not name a configured family", label, defaultFamily)
	}
	for _, i := range p.Explicit {
		if slices.Contains(p.Families, p.Classes[i].Name) {
			return nil, fmt.Errorf("%s explicit policy class %q collides with a policy family", label, p.Classes[i].Name)
		}
	}
	for f, cells := range p.Cells {
		if b := slices.Index(cells, none); b >= 0 {
			return nil, fmt.Errorf("%s is missing a policy class for family %q and bucket %q",
				label, p.Families[f], bucketNames[b])
		}
	}
	return p, nil
}

// readBuckets fills p.MinTokens and returns the names of the buckets.
func (p *Profile) readBuckets(label string, buckets []bucketKey) ([]string, error) {
	if len(buckets) == 0 {
		return nil, fmt.Errorf("%s uncached_isl_buckets must not be empty", label)
	}
	if *buckets[0].MinTokens != 0 {
		return nil, fmt.Errorf("%s uncached_isl_buckets must start at min_tokens 0", label)
	}
	var names []string
	for i, b := range buckets {
		if i > 0 && *b.MinTokens <= *buckets[i-1].MinTokens {
			return nil, fmt.Errorf("%s uncached_isl_buckets min_tokens must be strictly increasing", label)
		}
		if err := checkName(label, "cache bucket", *b.Bucket); err != nil {
			return nil, err
		}
		if slices.Contains(names, *b.Bucket) {
			return nil, fmt.Errorf("%s contains duplicate cache bucket %q", label, *b.Bucket)
		}
		names = append(names, *b.Bucket)
		p.MinTokens = append(p.MinTokens, bounded(b.MinTokens))
	}
	return names, nil
}

// bounded returns a count as int64, none if absent.
func bounded(v *uint64) int64 {
	if v == nil {
		return none
	}
	return int64(min(*v, math.MaxInt64))
}

// readClass adds one class.
func (p *Profile) readClass(label string, c *classKeys, bucketNames []string) error {
	name := *c.Name
	if err := checkName(label, "policy class", name); err != nil {
		return err
	}
	if slices.ContainsFunc(p.Classes, func(o Class) bool { return o.Name == name }) {
		return fmt.Errorf("%s contains duplicate policy class %q", label, name)
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s policy class %q %s", label, name, fmt.Sprintf(format, args...))
	}
	policy := queuePolicies[or(c.QueuePolicy, "fcfs")]
	switch {
	case *c.Quantum == 0:
		return bad("quantum must be greater than zero")
	case policy == LCFS:
		return bad("queue_policy must be fcfs or wspt")
	case c.BusyFrac != nil && !finite(*c.BusyFrac):
		return bad("prefill_busy_threshold_frac must be finite and non-negative")
	case (c.Family == nil) != (c.Bucket == nil):
		return bad("must specify both policy_family and cache_bucket or neither for an explicit class")
	}
	index := len(p.Classes)
	p.Classes = append(p.Classes, Class{Name: name, Policy: policy, Quantum: bounded(c.Quantum),
		BusyTokens: bounded(c.BusyTokens), BusyFrac: or(c.BusyFrac, none),
		MaxRequests: bounded(c.MaxRequests), MaxISL: bounded(c.MaxISL), MaxCached: bounded(c.MaxCached)})
	if c.Family == nil {
		p.Explicit = append(p.Explicit, index)
		return nil
	}
	if err := checkName(label, "policy family", *c.Family); err != nil {
		return err
	}
	bucket := slices.Index(bucketNames, *c.Bucket)
	if bucket < 0 {
		return bad("references unknown cache bucket %q", *c.Bucket)
	}
	cell := &p.family(*c.Family)[bucket]
	if *cell != none {
		return fmt.Errorf("%s contains duplicate policy classes for family %q and bucket %q", label, *c.Family, *c.Bucket)
	}
	*cell = index
	return nil
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
