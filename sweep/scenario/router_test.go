package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
)

// TestPolicyFileIsCheckedUnderEveryRouter: a round robin uses no policy file, but a
// wrong one is bad input all the same, named with its place. What only a live system
// can do is refused when the KV router would need it.
func TestPolicyFileIsCheckedUnderEveryRouter(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		text string
		want string // behind the file's name; "" valid
		kv   string // the same with the KV router
	}{
		{"policy_classes: [{name: a, quantum: 0}]\ndefault_policy_family: a\nuncached_isl_buckets: [{min_tokens: 0, bucket: x}]\n",
			`:1: policy_classes[0].quantum: root policy class "a" quantum must be greater than zero`, "same"},
		{"router: {router_queue_threshold: 1}\n",
			":1: router.router_queue_threshold: unknown router setting: router_queue_threshold (a policy file may set host_", "same"},
		{"router: {router_ttl_secs: -1}\n", ":1: router.router_ttl_secs: router_ttl_secs must be greater than or equal to 0", "same"},
		{"router: {use_kv_events: false}\n", ":1: router: enable_session_prefix_index requires use_kv_events=true", "same"},
		{"request_classifier: {type: x}\n", "", ": offline replay does not support request_classifier plugins"},
		{"router: {router_ttl_secs: 1}\n", "", ""},
	} {
		path := filepath.Join(dir, "p.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		for mode, want := range map[string]string{"round_robin": c.want, "kv_router": c.kv} {
			if want == "same" {
				want = c.want
			}
			flags := closed()
			flags.RouterMode, flags.RouterPolicyConfig = ptr(mode), ptr(path)
			flags.RouterConfig = ptr(`{"enable_session_prefix_index":true}`)
			_, err := flags.Resolve(&Files{})
			if want == "" && err == nil {
				continue
			}
			if want == "" || !errors.Is(err, document.ErrInput) || !strings.HasPrefix(err.Error(), path+want) {
				t.Errorf("%s, %q:\n got %v\nwant %s", mode, c.text, err, want)
			}
		}
	}
	flags := closed()
	flags.RouterPolicyConfig = ptr(filepath.Join(dir, "nowhere.yaml"))
	if _, err := flags.Resolve(&Files{}); err == nil || !strings.HasPrefix(err.Error(), "--router-policy-config: cannot read ") {
		t.Errorf("absent file: %v", err)
	}
}
