package router

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
)

// TestConfigRefusals quotes the reference's messages; every one starts with the
// same words.
func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"bogus":1}`, "unknown field `bogus`, expected one of `overlap_score_credit`, "},
		{`{"Router_Temperature":1}`, "unknown field `Router_Temperature`"},
		{`{"overlap_score_credit":1,"overlap_score_credit":2}`, "duplicate field `overlap_score_credit`"},
		{`{"router_temperature":"1"}`, `router_temperature: invalid type: string "1", expected a number at line 1 column 25`},
		{`{"router_temperature":null}`, "router_temperature: invalid type: null, expected a number at line 1 column 26"},
		{"{\n \"router_temperature\":true}", "invalid type: boolean `true`, expected a number at line 2 column 26"},
		{`{"use_kv_events":1}`, "use_kv_events: invalid type: integer `1`, expected a boolean at line 1 column 18"},
		{`{"router_event_threads":2.0}`, "invalid type: floating point `2.0`, expected a whole number from 0 to 4294967295 at line 1 column 27"},
		{`{"router_event_threads":-1}`, "invalid value: integer `-1`, expected a whole number from 0 to 4294967295 at line 1 column 26"},
		{`{"router_event_threads":4294967296}`, "invalid value: integer `4294967296`, expected a whole number from 0 to 4294967295"},
		{`{"router_event_threads":18446744073709551615}`, "invalid value: integer `18446744073709551615`, expected a whole number from 0 to 4294967295"},
		{`{"router_event_threads":true}`, "invalid type: boolean `true`, expected a whole number from 0 to 4294967295"},
		{`router.json`, "expected value at line 1 column 1"},
		{"{\n\"router_temperature\":}", "expected value at line 2 column 22"},
		{`{"router_queue_policy":"x"}`, "unknown variant `x`, expected one of `fcfs`, `lcfs`, `wspt` at line 1 column 26"},
		{`{"shared_cache_type":"x"}`, "unknown variant `x`, expected `none` or `hicache`"},
		{`{"router_approximate_cache_policy":"ttl"}`, "unknown field `router_approximate_cache_policy`"},
		{`{"router_queue_threshold":1e999}`, "number out of range at line 1 column 31"},
		{`{} x`, " at line 1 column "}, {`{`, " at line 1 column "}, {`"a"`, `invalid type: string "a", expected a map`},
		{`{"router_temperature":-1}`, "router_temperature must be finite and non-negative"},
		{`{"overlap_score_credit":-1}`, "overlap_score_credit must be a finite, non-negative number"},
		{`{"overlap_score_weight":-1}`, "prefill_load_scale must be finite and non-negative"},
		{`{"host_cache_hit_weight":1.5}`, "host_cache_hit_weight must be between 0 and 1"},
		{`{"router_queue_threshold":-1}`, "router_queue_threshold must be greater than or equal to 0"},
		{`{"router_event_threads":0}`, "router_event_threads must be at least 1"},
		{`{"router_track_output_blocks":true,"router_track_active_blocks":false}`,
			"router_track_output_blocks requires router_track_active_blocks=true"},
		{`{"router_prefill_load_model":"ais","router_track_prefill_tokens":false}`,
			"router_prefill_load_model requires router_track_prefill_tokens=true"},
		{`{"use_remote_indexer":true,"serve_indexer":true}`, "use_remote_indexer and serve_indexer are mutually exclusive"},
		{`{"enable_session_prefix_index":true,"use_remote_indexer":true}`,
			"enable_session_prefix_index is not supported with use_remote_indexer=true"},
		{`{"enable_session_prefix_index":true,"use_kv_events":false}`, "enable_session_prefix_index requires use_kv_events=true"},
		{`{"router_predicted_ttl_secs":1,"use_kv_events":false}`, "router_predicted_ttl_secs requires use_kv_events=true"},
		{`{"durable_kv_events":true}`, "durable_kv_events=true is not supported by this runtime"},
		{`{"router_tracking_hash":"keyed-xxh3-v1"}`, "keyed-xxh3-v1 requires router_tracking_key_file"},
		{`{"router_tracking_key_id":"a"}`, "router tracking key options require router_tracking_hash=keyed-xxh3-v1"},
		{`{"conditional_disagg_enabled":true,"conditional_disagg_policy":"isl_or_load"}`,
			"conditional_disagg policy=IslOrLoad needs prefill_busy_threshold, but neither --router-conditional-disagg-config " +
				`{"prefill_busy_threshold": ...} nor --router-queue-threshold is set`},
	} {
		_, err := ParseDocument("", []byte(c.in))
		if err == nil || !strings.HasPrefix(err.Error(), "Failed to parse KvRouterConfig JSON: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.in, err, c.want)
		}
	}
	_, err := ParseDocument("", []byte(`{"router_temperature":-1,"prefill_load_scale":-1}`))
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 2 {
		t.Errorf("two faults should come joined, got %v", err)
	}
}

func config(t testing.TB, text string) Config {
	t.Helper()
	d, err := ParseDocument("", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Config(Completion{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestKeysWithoutEffectLeaveTheConfigAlone covers spec kv-router 3.2 and the rule
// that null is absent where null is allowed.
func TestKeysWithoutEffectLeaveTheConfigAlone(t *testing.T) {
	for _, in := range []string{`{}`,
		`{"use_kv_events":false,"router_ttl_secs":0,"router_replica_sync":true,"router_track_output_blocks":true,
		  "router_event_threads":9,"skip_initial_worker_wait":true,"enable_session_prefix_index":false,
		  "shared_cache_multiplier":0.5,"shared_cache_type":"hicache","router_reset_states":true}`,
		`{"conditional_disagg_enabled":true,"conditional_disagg_eff_isl_threshold":0,"conditional_disagg_prefill_busy_threshold":1.5}`,
		`{"router_queue_threshold":null,"overlap_score_weight":null,"router_policy_config":null,"router_snapshot_threshold":3}`,
		`{"host_cache_hit_weight":0.75,"disk_cache_hit_weight":1,"router_queue_policy":"fcfs","router_temperature":0}`,
		`{"router_tracking_hash":"keyed-xxh3-v1","router_tracking_key_id":"a","router_tracking_key_file":"b"}`} {
		if got := config(t, in); !reflect.DeepEqual(got, DefaultConfig()) {
			t.Errorf("%s: %+v", in, got)
		}
	}
	if c := config(t, `{"overlap_score_weight":0,"prefill_load_scale":3}`); c.PrefillScale != 0 || c.OverlapCredit != 0 {
		t.Errorf("overlap_score_weight 0 gives scale %v and credit %v, want 0 and 0", c.PrefillScale, c.OverlapCredit)
	}
	if c := config(t, `{"overlap_score_weight":2,"prefill_load_scale":3}`); c.PrefillScale != 2 || c.OverlapCredit != 1 {
		t.Errorf("overlap_score_weight 2 gives scale %v and credit %v, want 2 and 1", c.PrefillScale, c.OverlapCredit)
	}
}

func TestLoadModelAndEstimatorNeedEachOther(t *testing.T) {
	for _, c := range []struct {
		in, want  string
		estimator Estimator
	}{
		{`{"router_prefill_load_model":"aic"}`, "router_prefill_load_model='ais' requires ais_perf_config", nil},
		{`{}`, "ais_perf_config requires router_prefill_load_model='ais'", linear(1)},
	} {
		d, err := ParseDocument("", []byte(c.in))
		if err == nil {
			_, err = d.Config(Completion{Estimator: c.estimator})
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.in, err, c.want)
		}
	}
}

// root is a valid root profile for the policy tests; edits break one thing each.
const root = `{"default_policy_family":"chat",
"uncached_isl_buckets":[{"min_tokens":0,"bucket":"short"},{"min_tokens":700,"bucket":"long"}],
"policy_classes":[{"name":"a","policy_family":"chat","cache_bucket":"short","quantum":1},
{"name":"b","policy_family":"chat","cache_bucket":"long","quantum":2},{"name":"express","quantum":1}]}`

func policy(text string) (*Policy, error) {
	n, err := document.ParseJSON("p.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	f := &document.Faults{Origin: "p.yaml"}
	return ReadPolicy(n, f), f.Err()
}

func TestPolicyRefusals(t *testing.T) {
	const model = `{"models":{"m":{"default_policy_family":"a","uncached_isl_buckets":[{"min_tokens":0,"bucket":"x"}],` +
		`"policy_classes":[{"name":"o","policy_family":"a","cache_bucket":"x","quantum":1}]}}}`
	for _, c := range []struct{ in, old, new, want string }{
		{`{}`, "", "", "router policy config must define router settings, a root profile, at least one model profile, worker_selection, or request_classifier"},
		{`null`, "", "", "router policy config must define router settings"},
		{`[]`, "", "", "invalid type: sequence, expected a map"},
		{root, `"express"`, `"express","zz":1`, "policy_classes[2].zz: unknown field `zz`, expected one of `name`, `policy_family`"},
		{root, `"bucket":"short"`, `"bucket":"short","zz":1`, "uncached_isl_buckets[0].zz: unknown field `zz`, expected `min_tokens` or `bucket`"},
		{root, `"default_policy_family":"chat",`, ``, "root profile must specify default_policy_family, uncached_isl_buckets, and policy_classes when any root profile field is present"},
		{root, `"min_tokens":0`, `"min_tokens":5`, "root uncached_isl_buckets must start at min_tokens 0"},
		{root, `"min_tokens":700`, `"min_tokens":0`, "root uncached_isl_buckets min_tokens must be strictly increasing"},
		{root, `"bucket":"long"}`, `"bucket":"short"}`, `root contains duplicate cache bucket "short"`},
		{root, `"express"`, `"a"`, `root contains duplicate policy class "a"`},
		{root, `"cache_bucket":"long"`, `"cache_bucket":"short"`, `root contains duplicate policy classes for family "chat" and bucket "short"`},
		{root, `"policy_family":"chat","cache_bucket":"long",`, ``, `root is missing a policy class for family "chat" and bucket "long"`},
		{root, `family":"chat",
"unc`, `family":"zz",
"unc`, `root default_policy_family "zz" does not name a configured family`},
		{root, `"express"`, `"chat"`, `root explicit policy class "chat" collides with a policy family`},
		{root, `"express"`, `"a b"`, `root policy class name "a b" must match [A-Za-z0-9_.-]+`},
		{root, `"express"`, `"express","policy_family":"chat"`, `root policy class "express" must specify both policy_family and cache_bucket or neither for an explicit class`},
		{root, `"cache_bucket":"long"`, `"cache_bucket":"zz"`, `root policy class "b" references unknown cache bucket "zz"`},
		{root, `"quantum":2`, `"quantum":0`, `root policy class "b" quantum must be greater than zero`},
		{root, `,"quantum":2`, ``, "policy_classes[1]: missing field `quantum`"},
		{root, `"quantum":2`, `"quantum":2,"queue_policy":"lcfs"`, `root policy class "b" queue_policy must be fcfs or wspt`},
		{root, `"quantum":2`, `"quantum":2,"prefill_busy_threshold":1.5`, "policy_classes[1].prefill_busy_threshold: invalid type: floating point `1.5`, expected a whole number from 0"},
		{root, `"quantum":2`, `"quantum":2,"prefill_busy_threshold_frac":-1`, `root policy class "b" prefill_busy_threshold_frac must be finite and non-negative`},
		{model, `"m"`, `""`, "model profile name must not be empty"},
		{model, `"min_tokens":0`, `"min_tokens":1`, `model "m" uncached_isl_buckets must start at min_tokens 0`},
		{model, `"default_policy_family":"a",`, ``, "models.m: missing field `default_policy_family`"},
		{`{"router":{"zz":1,"aa":1}}`, "", "", "unknown router setting: aa"},
		{`{"router":{"router_queue_threshold":1}}`, "", "", "unknown router setting: router_queue_threshold"},
		{`{"router":{"router_track_active_blocks":1}}`, "", "", "router.router_track_active_blocks: invalid type: integer `1`, expected a boolean"},
		{`{"router":{"host_cache_hit_weight":5}}`, "", "", "router.host_cache_hit_weight: host_cache_hit_weight must be between 0 and 1"},
		{`{"worker_selection":{}}`, "", "", "worker_selection must define an instance or an aggregated, prefill, decode, or encode selection"},
		{`{"worker_selection":{"aggregated":"x"}}`, "", "", `worker_selection aggregated "x" does not name a configured instance`},
		{`{"request_classifier":{}}`, "", "", "request_classifier: missing field `type`"},
	} {
		_, err := policy(strings.Replace(c.in, c.old, c.new, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s\n got %v\nwant %s", c.old, c.new, err, c.want)
		}
	}
}

// TestPolicyFileWinsOverTheDocument: its settings replace JSON values, its profile
// silences threshold and policy; what it cannot do is refused at start.
func TestPolicyFileWinsOverTheDocument(t *testing.T) {
	lcfs := LCFS
	resolve := func(doc, text, model string) (Config, error) {
		p, err := policy(text)
		if err != nil {
			t.Fatal(err)
		}
		d, err := ParseDocument("", []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		return d.Config(Completion{Policy: p, ModelName: model, QueuePolicy: &lcfs})
	}
	c, err := resolve(`{"router_track_active_blocks":true,"router_queue_threshold":0.5}`, `{"router":{"router_track_active_blocks":false}}`, "")
	if err != nil || c.TrackActiveBlocks || c.Profile.Classes[0].BusyFrac != 0.5 || c.Profile.Classes[0].Policy != LCFS {
		t.Errorf("settings only: %+v, %v", c, err)
	}
	text, err := os.ReadFile("testdata/policy.json")
	if err != nil {
		t.Fatal(err)
	}
	for model, classes := range map[string]int{"": 5, "unknown": 5, "big": 1} {
		c, err := resolve(`{"router_queue_threshold":9}`, string(text), model)
		if err != nil || len(c.Profile.Classes) != classes || c.Profile.Classes[0].BusyFrac != 0.5 {
			t.Errorf("model %q: %+v, %v", model, c.Profile, err)
		}
	}
	for in, want := range map[string]string{
		`{"request_classifier":{"type":"x"}}`:                                       "offline replay does not support request_classifier plugins",
		`{"worker_selection":{"decode":"x","instances":[{"name":"x","type":"y"}]}}`: `custom worker-selection policy "x" is not supported by replay`,
		`{"router":{"router_approximate_cache_policy":"lru"}}`:                      "router_approximate_cache_policy=lru requires use_kv_events=false; the local side indexer is TTL-only",
		`{"worker_selection":{"aggregated":"default"}}`:                             "",
	} {
		if _, err := resolve(`{}`, in, ""); (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// TestClassOfARequest covers the three rules of class choice.
func TestClassOfARequest(t *testing.T) {
	text, err := os.ReadFile("testdata/policy.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy(string(text))
	if err != nil {
		t.Fatal(err)
	}
	profile := p.profile("")
	for _, c := range []struct {
		name     string
		uncached int64
		want     string
	}{
		{"express", 5000, "express"}, {"", 0, "chat-short"}, {"", 699, "chat-short"}, {"", 700, "chat-long"},
		{"agent", 576, "agent-short"}, {"agent", 701, "agent-long"},
		{"chat-short", 704, "chat-long"}, {"agent-long", 1, "chat-short"}, {"nobody", 1, "chat-short"},
	} {
		i := profile.classByName(c.name)
		if i < 0 {
			i = profile.classify(c.name, c.uncached)
		}
		if got := profile.Classes[i].Name; got != c.want {
			t.Errorf("class %q, %d uncached: %s, want %s", c.name, c.uncached, got, c.want)
		}
	}
}

func TestBadOptionsAreErrors(t *testing.T) {
	bad := DefaultConfig()
	bad.PrefillScale = -1
	for _, o := range []Options{
		{Config: bad, BlockSize: 1, DPSize: 1}, {Config: Config{}, BlockSize: 1, DPSize: 1},
		{Config: DefaultConfig(), DPSize: 1}, {Config: DefaultConfig(), BlockSize: 1},
		{Config: DefaultConfig(), BlockSize: 1, DPSize: 1, EventLagMs: -1},
	} {
		if _, err := NewKV(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// FuzzParseDocument: no panic, and a refusal always says something.
func FuzzParseDocument(f *testing.F) {
	f.Add([]byte(`{"router_temperature":1e3,"router_queue_threshold":null,"router_prefill_load_model":"ais"}`))
	f.Add([]byte(`{"overlap_score_weight":0,"conditional_disagg_policy":"isl_or_load"}`))
	f.Add([]byte(`[[{"a":`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := ParseDocument("", data)
		if err != nil {
			if err.Error() == "" {
				t.Error("empty message")
			}
			return
		}
		c, err := d.Config(Completion{})
		if err == nil {
			_, err = NewKV(Options{Config: c, BlockSize: 64, DPSize: 1})
		}
		if err != nil && !strings.Contains(err.Error(), "ais_perf_config") {
			t.Errorf("%s was parsed, then refused: %v", data, err)
		}
	})
}

// FuzzParsePolicy: no panic, and a profile that was accepted has a class for every
// request.
func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(root), "chat", int64(900))
	f.Add([]byte(`{"router":{"router_ttl_secs":1},"worker_selection":{"instances":[{"name":"a","type":"b"}]}}`), "", int64(0))
	f.Add([]byte(`{"models":{"m":{"default_policy_family":"a"}}}`), "x", int64(1))
	f.Fuzz(func(t *testing.T, data []byte, class string, uncached int64) {
		p, err := policy(string(data))
		if err != nil {
			return
		}
		c, err := ReadDocument(nil, &document.Faults{}).Config(Completion{Policy: p})
		if err != nil {
			return
		}
		i := c.Profile.classByName(class)
		if i < 0 {
			i = c.Profile.classify(class, max(uncached, 0))
		}
		if c.Profile.Classes[i].Quantum < 1 {
			t.Errorf("class %+v", c.Profile.Classes[i])
		}
	})
}
