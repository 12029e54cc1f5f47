package router

import (
	"errors"
	"fmt"
	"math"
	"reflect"
)

// Document is the router configuration as written (spec kv-router 3): an absent key
// is nil, which differs from 0. ParseDocument reads one, Config completes it.
type Document struct {
	Cost  costKeys
	Track trackKeys
	Queue queueKeys
	Inert inertKeys
}

// costKeys weigh the parts of a candidate's cost.
type costKeys struct {
	OverlapCredit       *float64 `key:"overlap_score_credit" range:"credit"`
	CreditDecay         *float64 `key:"overlap_score_credit_decay" range:"finite"`
	PrefillScale        *float64 `key:"prefill_load_scale"`
	ActiveRequestWeight *float64 `key:"decode_active_request_weight" range:"finite"`
	OverlapWeight       *float64 `key:"overlap_score_weight,null"`          // old name of prefill_load_scale
	HostWeight          *float64 `key:"host_cache_hit_weight" range:"unit"` // no simulated engine announces
	DiskWeight          *float64 `key:"disk_cache_hit_weight" range:"unit"` // blocks of these tiers
	Temperature         *float64 `key:"router_temperature" range:"finite"`
}

// trackKeys choose what the book counts.
type trackKeys struct {
	ActiveBlocks  *bool   `key:"router_track_active_blocks"`
	OutputBlocks  *bool   `key:"router_track_output_blocks"` // without effect
	AssumeKVReuse *bool   `key:"router_assume_kv_reuse"`
	PrefillTokens *bool   `key:"router_track_prefill_tokens"`
	LoadModel     *string `key:"router_prefill_load_model" variants:"none aic ais"`
}

// queueKeys set up the queue.
type queueKeys struct {
	Threshold    *float64 `key:"router_queue_threshold,null" range:"positive"`
	Policy       *string  `key:"router_queue_policy" variants:"fcfs lcfs wspt"`
	PolicyConfig *string  `key:"router_policy_config,null"` // path; the caller reads the file
}

// inertKeys are accepted, checked, and without effect on an offline replay
// (spec kv-router 3.2).
type inertKeys struct {
	UseKVEvents         *bool    `key:"use_kv_events"`
	DurableKVEvents     *bool    `key:"durable_kv_events"`
	ReplicaSync         *bool    `key:"router_replica_sync"`
	TrackingHash        *string  `key:"router_tracking_hash" variants:"public-xxh3-v1 keyed-xxh3-v1"`
	TrackingKeyFile     *string  `key:"router_tracking_key_file,null"`
	TrackingKeyID       *string  `key:"router_tracking_key_id,null"`
	SnapshotThreshold   *uint32  `key:"router_snapshot_threshold,null"`
	ResetStates         *bool    `key:"router_reset_states"`
	TTLSecs             *float64 `key:"router_ttl_secs" range:"positive"`
	EventThreads        *uint32  `key:"router_event_threads"`
	SkipInitialWait     *bool    `key:"skip_initial_worker_wait"`
	UseRemoteIndexer    *bool    `key:"use_remote_indexer"`
	ServeIndexer        *bool    `key:"serve_indexer"`
	SessionPrefixIndex  *bool    `key:"enable_session_prefix_index"`
	SharedMultiplier    *float64 `key:"shared_cache_multiplier,null" range:"unit"`
	SharedType          *string  `key:"shared_cache_type" variants:"none hicache"`
	PredictedTTLSecs    *float64 `key:"router_predicted_ttl_secs,null" range:"positive"`
	ConditionalEnabled  *bool    `key:"conditional_disagg_enabled"`
	ConditionalPolicy   *string  `key:"conditional_disagg_policy" variants:"isl_bounding prefill_load isl_or_load"`
	ConditionalISL      *uint64  `key:"conditional_disagg_eff_isl_threshold"`
	ConditionalISLRatio *float64 `key:"conditional_disagg_eff_isl_ratio_threshold" range:"unit"`
	ConditionalPrefill  *float64 `key:"conditional_disagg_prefill_busy_threshold,null" range:"positive"`
	ConditionalDecode   *float64 `key:"conditional_disagg_decode_busy_threshold,null" range:"positive"`
}

// ParseDocument reads the JSON object of a router configuration, strictly. The
// policy file that it may name is not read. Several faults come joined.
func ParseDocument(data []byte) (*Document, error) {
	d := &Document{}
	n, err := parseJSON(data)
	if err == nil {
		err = decode(n, "", d)
	}
	faults := []error{err}
	if err == nil {
		faults = d.faults()
	}
	for i, fault := range faults {
		if fault != nil {
			faults[i] = fmt.Errorf("Failed to parse KvRouterConfig JSON: %w", fault)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return d, nil
}

// or returns the value of a key, or its default.
func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// faults are all values out of range and all keys that do not fit each other.
func (d *Document) faults() []error {
	return append(d.checkRanges(), d.checkRelations()...)
}

// ranges are what the tag `range` of a number can ask for: at least 0, at most
// most. The wording is the reference's.
var ranges = map[string]struct {
	most float64
	rule string
}{
	"credit":   {math.MaxFloat64, "must be a finite, non-negative number"},
	"finite":   {math.MaxFloat64, "must be finite and non-negative"},
	"positive": {math.Inf(1), "must be greater than or equal to 0"},
	"unit":     {1, "must be between 0 and 1"},
}

// outOfRange is the fault of a number, nil if it has none or is absent.
func outOfRange(key, kind string, v *float64) error {
	if r := ranges[kind]; v != nil && !(*v >= 0 && *v <= r.most) {
		return errors.New(key + " " + r.rule)
	}
	return nil
}

func (d *Document) checkRanges() []error {
	var errs []error
	var fields []field
	collect(reflect.ValueOf(d).Elem(), &fields)
	for _, f := range fields {
		if v, ok := f.value.Interface().(*float64); ok && f.rangeOf != "" {
			errs = append(errs, outOfRange(f.key, f.rangeOf, v))
		}
	}
	scale := d.Cost.PrefillScale
	if d.Cost.OverlapWeight != nil {
		scale = d.Cost.OverlapWeight
	}
	errs = append(errs, outOfRange("prefill_load_scale", "finite", scale))
	if or(d.Inert.EventThreads, 1) < 1 {
		errs = append(errs, errors.New("router_event_threads must be at least 1"))
	}
	return errs
}

func (d *Document) checkRelations() []error {
	i, t := &d.Inert, &d.Track
	events := or(i.UseKVEvents, true)
	remote, session := or(i.UseRemoteIndexer, false), or(i.SessionPrefixIndex, false)
	var errs []error
	refuse := func(broken bool, message string) {
		if broken {
			errs = append(errs, errors.New(message))
		}
	}
	refuse(or(i.DurableKVEvents, false), "durable_kv_events=true is not supported by this runtime")
	refuse(or(t.OutputBlocks, false) && !or(t.ActiveBlocks, true),
		"router_track_output_blocks requires router_track_active_blocks=true")
	refuse(d.models() && !or(t.PrefillTokens, true), "router_prefill_load_model requires router_track_prefill_tokens=true")
	refuse(remote && or(i.ServeIndexer, false), "use_remote_indexer and serve_indexer are mutually exclusive")
	refuse(session && remote, "enable_session_prefix_index is not supported with use_remote_indexer=true")
	refuse(session && !events, "enable_session_prefix_index requires use_kv_events=true")
	refuse(i.PredictedTTLSecs != nil && !events, "router_predicted_ttl_secs requires use_kv_events=true")
	if or(i.TrackingHash, "") == "keyed-xxh3-v1" {
		refuse(i.TrackingKeyFile == nil, "keyed-xxh3-v1 requires router_tracking_key_file")
		refuse(i.TrackingKeyFile != nil && or(i.TrackingKeyID, "") == "",
			"keyed-xxh3-v1 requires a nonempty router_tracking_key_id")
	} else {
		refuse(i.TrackingKeyFile != nil || i.TrackingKeyID != nil,
			"router tracking key options require router_tracking_hash=keyed-xxh3-v1")
	}
	refuse(d.lacksBusyLine(), "conditional_disagg policy="+conditionalNames[or(i.ConditionalPolicy, "")]+
		" needs prefill_busy_threshold, but neither --router-conditional-disagg-config "+
		`{"prefill_busy_threshold": ...} nor --router-queue-threshold is set`)
	return errs
}

// lacksBusyLine reports a policy of conditional disaggregation that compares with a
// busy line, where none is given.
func (d *Document) lacksBusyLine() bool {
	i := &d.Inert
	return or(i.ConditionalEnabled, false) && conditionalNames[or(i.ConditionalPolicy, "")] != "" &&
		i.ConditionalPrefill == nil && d.Queue.Threshold == nil
}

// conditionalNames are the policies that need a busy line, as messages name them.
var conditionalNames = map[string]string{"prefill_load": "PrefillLoad", "isl_or_load": "IslOrLoad"}

// models reports whether the prefill load is to melt with predicted time.
func (d *Document) models() bool { return or(d.Track.LoadModel, "none") != "none" }

// PolicyPath returns the path of the policy file that the document names, else "".
func (d *Document) PolicyPath() string { return or(d.Queue.PolicyConfig, "") }

// Check reports what is wrong with the settings of a policy file over the document,
// which by itself is valid.
func (d Document) Check(p *Policy) error { return p.overlay(&d) }

// Completion is what a document lacks to be a configuration.
type Completion struct {
	Policy      *Policy      // the policy file; nil: none
	ModelName   string       // chooses among the profiles of the policy file
	QueuePolicy *QueuePolicy // of the engine arguments of the pool that queues; nil: unset
	Estimator   Estimator    // nil: none was configured
}

// Config applies the settings of the policy file, which win over the document, then
// the defaults.
func (d Document) Config(with Completion) (Config, error) {
	if err := errors.Join(with.Policy.Refusal(), with.Policy.overlay(&d)); err != nil {
		return Config{}, err
	}
	if d.models() && with.Estimator == nil {
		return Config{}, errors.New("router_prefill_load_model='ais' requires ais_perf_config")
	}
	if !d.models() && with.Estimator != nil {
		return Config{}, errors.New("ais_perf_config requires router_prefill_load_model='ais'")
	}
	c := DefaultConfig()
	c.Estimator = with.Estimator
	c.OverlapCredit = or(d.Cost.OverlapCredit, c.OverlapCredit)
	c.CreditDecay = or(d.Cost.CreditDecay, c.CreditDecay)
	c.PrefillScale = or(d.Cost.PrefillScale, c.PrefillScale)
	c.ActiveRequestWeight = or(d.Cost.ActiveRequestWeight, c.ActiveRequestWeight)
	c.Temperature = or(d.Cost.Temperature, c.Temperature)
	if w := d.Cost.OverlapWeight; w != nil {
		c.PrefillScale = *w
		if *w == 0 {
			c.OverlapCredit = 0
		}
	}
	c.TrackActiveBlocks = or(d.Track.ActiveBlocks, c.TrackActiveBlocks)
	c.AssumeKVReuse = or(d.Track.AssumeKVReuse, c.AssumeKVReuse)
	c.TrackPrefillTokens = or(d.Track.PrefillTokens, c.TrackPrefillTokens)
	policy := queuePolicies[or(d.Queue.Policy, "fcfs")]
	if with.QueuePolicy != nil {
		policy = *with.QueuePolicy
	}
	c.Profile = singleClass(or(d.Queue.Threshold, none), policy)
	if p := with.Policy.profile(with.ModelName); p != nil {
		c.Profile = *p
	}
	return c, c.Validate()
}

var queuePolicies = map[string]QueuePolicy{"fcfs": FCFS, "lcfs": LCFS, "wspt": WSPT}

// ParseQueuePolicy reads the name of a queue policy.
func ParseQueuePolicy(name string) (QueuePolicy, error) {
	if p, ok := queuePolicies[name]; ok {
		return p, nil
	}
	return 0, fmt.Errorf("unknown variant `%s`, expected one of `fcfs`, `lcfs`, `wspt`", name)
}
