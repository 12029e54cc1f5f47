package router

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/internal/document"
)

// Document is the router configuration as written (spec kv-router 3): an absent key
// is not set, which differs from 0. ReadDocument reads one, Config completes it.
type Document struct {
	keys document.Values
}

// The rules of numbers, in the reference's words.
var (
	credit      = document.Range{Low: 0, High: math.MaxFloat64, Rule: "must be a finite, non-negative number"}
	nonNegative = document.Range{Low: 0, High: math.MaxFloat64, Rule: "must be finite and non-negative"}
	fromZero    = document.Range{Low: 0, High: math.Inf(1), Rule: "must be greater than or equal to 0"}
	share       = document.Range{Low: 0, High: 1, Rule: "must be between 0 and 1"}
)

// InlineClass is how the reference names a configuration on a command line that it
// refuses.
const InlineClass = "Failed to parse KvRouterConfig JSON"

// ParseDocument reads a router configuration that was written as JSON on a command
// line; origin names the flag.
func ParseDocument(origin string, text []byte) (*Document, error) {
	if origin != "" {
		origin += ": "
	}
	f := &document.Faults{Origin: origin + InlineClass, Inline: true}
	n, err := document.ParseInlineJSON(f.Origin, text)
	if err != nil {
		return nil, err
	}
	d := ReadDocument(n, f)
	if err := f.Err(); err != nil {
		return nil, err
	}
	return d, nil
}

// ReadDocument reads a router configuration, strictly; nil stands for an empty one.
// The policy file that it may name is not read. What is wrong goes to the faults.
func ReadDocument(n *document.Node, f *document.Faults) *Document {
	d := &Document{f.Read(n, documentKeys)}
	d.check()
	return d
}

// check adds the faults of keys that do not fit each other.
func (d *Document) check() {
	k := d.keys
	truth := func(key string, otherwise bool) bool { return k.Bool(key).Or(otherwise) }
	refuse := func(broken bool, key, message string) { k.Require(!broken, key, message) }
	key := "prefill_load_scale"
	if k.Has("overlap_score_weight") {
		key = "overlap_score_weight"
	}
	refuse(!finite(k.Number(key).Value), key, "prefill_load_scale must be finite and non-negative")
	refuse(k.Whole("router_event_threads").Or(1) < 1, "router_event_threads", "router_event_threads must be at least 1")
	events := truth("use_kv_events", true)
	remote, session := truth("use_remote_indexer", false), truth("enable_session_prefix_index", false)
	refuse(truth("durable_kv_events", false), "durable_kv_events", "durable_kv_events=true is not supported by this runtime")
	refuse(truth("router_track_output_blocks", false) && !truth("router_track_active_blocks", true),
		"router_track_output_blocks", "router_track_output_blocks requires router_track_active_blocks=true")
	refuse(d.models() && !truth("router_track_prefill_tokens", true),
		"router_prefill_load_model", "router_prefill_load_model requires router_track_prefill_tokens=true")
	refuse(remote && truth("serve_indexer", false), "serve_indexer", "use_remote_indexer and serve_indexer are mutually exclusive")
	refuse(session && remote, "enable_session_prefix_index", "enable_session_prefix_index is not supported with use_remote_indexer=true")
	refuse(session && !events, "enable_session_prefix_index", "enable_session_prefix_index requires use_kv_events=true")
	refuse(k.Has("router_predicted_ttl_secs") && !events, "router_predicted_ttl_secs", "router_predicted_ttl_secs requires use_kv_events=true")
	d.checkTrackingKey()
	policy := k.Text("conditional_disagg_policy").Value
	refuse(d.lacksBusyLine(), "conditional_disagg_policy", "conditional_disagg policy="+conditionalNames[policy]+
		" needs prefill_busy_threshold, but neither --router-conditional-disagg-config "+
		`{"prefill_busy_threshold": ...} nor --router-queue-threshold is set`)
}

// checkTrackingKey holds the hash of tracked blocks against the keys that go with it.
func (d *Document) checkTrackingKey() {
	k := d.keys
	const hash, file, id = "router_tracking_hash", "router_tracking_key_file", "router_tracking_key_id"
	if k.Text(hash).Value != "keyed-xxh3-v1" {
		key := file
		if !k.Has(file) {
			key = id
		}
		k.Require(!k.Has(file) && !k.Has(id), key, "router tracking key options require router_tracking_hash=keyed-xxh3-v1")
		return
	}
	k.Require(k.Has(file), hash, "keyed-xxh3-v1 requires router_tracking_key_file")
	k.Require(!k.Has(file) || k.Text(id).Value != "", hash, "keyed-xxh3-v1 requires a nonempty router_tracking_key_id")
}

// lacksBusyLine reports a policy of conditional disaggregation that compares with a
// busy line, where none is given.
func (d *Document) lacksBusyLine() bool {
	k := d.keys
	return k.Bool("conditional_disagg_enabled").Value && conditionalNames[k.Text("conditional_disagg_policy").Value] != "" &&
		!k.Has("conditional_disagg_prefill_busy_threshold") && !k.Has("router_queue_threshold")
}

// conditionalNames are the policies that need a busy line, as messages name them.
var conditionalNames = map[string]string{"prefill_load": "PrefillLoad", "isl_or_load": "IslOrLoad"}

// models reports whether the prefill load is to melt with predicted time.
func (d *Document) models() bool {
	return d.keys.Text("router_prefill_load_model").Or("none") != "none"
}

// PolicyPath returns the path of the policy file that the document names, else "".
func (d *Document) PolicyPath() string { return d.keys.Text("router_policy_config").Value }

// Check adds what is wrong with the settings of a policy file over the document,
// which by itself is right, to the faults of the file.
func (d *Document) Check(p *Policy, f *document.Faults) { p.overlay(d, f) }

// Completion is what a document lacks to be a configuration.
type Completion struct {
	Policy      *Policy      // the policy file; nil: none
	ModelName   string       // chooses among the profiles of the policy file
	QueuePolicy *QueuePolicy // of the engine arguments of the pool that queues; nil: unset
	Estimator   Estimator    // nil: none was configured
}

// ErrEstimateUnused is Config's error about an estimate of prefill load that the
// configuration does not ask for.
var ErrEstimateUnused = errors.New("ais_perf_config requires router_prefill_load_model='ais'")

// Config applies the settings of the policy file, which win over the document, then
// the defaults.
func (d *Document) Config(with Completion) (Config, error) {
	f := &document.Faults{}
	d = with.Policy.overlay(d, f)
	if err := errors.Join(with.Policy.Refusal(), f.Err()); err != nil {
		return Config{}, err
	}
	if d.models() && with.Estimator == nil {
		return Config{}, errors.New("router_prefill_load_model='ais' requires ais_perf_config")
	}
	if !d.models() && with.Estimator != nil {
		return Config{}, ErrEstimateUnused
	}
	k, c := d.keys, DefaultConfig()
	c.Estimator = with.Estimator
	c.OverlapCredit = k.Number("overlap_score_credit").Or(c.OverlapCredit)
	c.HostWeight = k.Number("host_cache_hit_weight").Or(c.HostWeight)
	c.CreditDecay = k.Number("overlap_score_credit_decay").Or(c.CreditDecay)
	c.PrefillScale = k.Number("prefill_load_scale").Or(c.PrefillScale)
	c.ActiveRequestWeight = k.Number("decode_active_request_weight").Or(c.ActiveRequestWeight)
	c.Temperature = k.Number("router_temperature").Or(c.Temperature)
	if w := k.Number("overlap_score_weight"); w.Set {
		c.PrefillScale = w.Value
		if w.Value == 0 {
			c.OverlapCredit = 0
		}
	}
	c.TrackActiveBlocks = k.Bool("router_track_active_blocks").Or(c.TrackActiveBlocks)
	c.AssumeKVReuse = k.Bool("router_assume_kv_reuse").Or(c.AssumeKVReuse)
	c.TrackPrefillTokens = k.Bool("router_track_prefill_tokens").Or(c.TrackPrefillTokens)
	policy := queuePolicies[k.Text("router_queue_policy").Or("fcfs")]
	if with.QueuePolicy != nil {
		policy = *with.QueuePolicy
	}
	c.Profile = singleClass(k.Number("router_queue_threshold").Or(none), policy)
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
