package launch

import (
	"strings"
	"testing"
)

// The command that measures a point offers the trace as the simulation did: unpacked,
// as fast, and cut at the same time.
func TestAIPerfGetsTheTraceAsSimulated(t *testing.T) {
	trace := func(path string) []any { return []any{map[string]any{"path": path}} }
	for _, c := range []struct {
		workload        map[string]any
		convert, aiperf string
		note            string
	}{
		{map[string]any{"type": "trace", "format": "mooncake", "trace": trace("t.jsonl"), "arrival_speedup": 1.0},
			"", "--custom-dataset-type mooncake_trace --fixed-schedule --input-file t.jsonl", ""},
		{map[string]any{"type": "trace", "format": "mooncake", "trace": trace("t.jsonl.gz"), "concurrency": 8.0, "trace_block_size": 64.0},
			"dynosweep trace convert --format mooncake t.jsonl.gz --block-size 64", "--custom-dataset-type mooncake_trace --isl-block-size 64 --concurrency 8", ""},
		{map[string]any{"type": "trace", "format": "dynamo", "trace": trace("t.jsonl"), "arrival_speedup": 2.0, "max_sim_time_ms": 60000.0},
			"dynosweep trace convert --format dynamo t.jsonl --speedup 2 --until-seconds 120", "--custom-dataset-type mooncake_trace --fixed-schedule", ""},
		{map[string]any{"type": "trace", "format": "dynamo", "trace": trace("t.jsonl"), "arrival_speedup": 0.5, "max_sim_time_ms": 60000.0},
			"dynosweep trace convert --format dynamo t.jsonl --speedup 0.5 --until-seconds 30", "--custom-dataset-type mooncake_trace --fixed-schedule", ""},
		{map[string]any{"type": "trace", "format": "mooncake", "trace": trace("t.jsonl"), "arrival_speedup": 2.0, "concurrency": 8.0, "max_sim_time_ms": 60000.0},
			"", "--custom-dataset-type mooncake_trace --concurrency 8 --input-file t.jsonl", "stop AIPerf there"},
		{map[string]any{"type": "trace", "format": "weka", "trace": trace("t.jsonl"), "arrival_speedup": 1.0},
			"dynosweep trace convert --format weka t.jsonl", "--custom-dataset-type mooncake_trace --fixed-schedule", "cannot offer this load: in weka traces"},
	} {
		d := &Deployment{Model: "m"}
		d.measure(c.workload)
		if got := strings.Join(d.Convert, " "); got != c.convert {
			t.Errorf("convert %q, want %q", got, c.convert)
		}
		if got := strings.Join(d.AIPerf, " "); !strings.HasSuffix(got, "--streaming "+c.aiperf) {
			t.Errorf("aiperf %q, want %q", got, c.aiperf)
		}
		if got := strings.Join(d.Notes, " "); !strings.Contains(got, c.note) {
			t.Errorf("notes %q, want %q", got, c.note)
		}
	}
}

func TestHostileNamesStayInTheirComments(t *testing.T) {
	if got := oneLine("a\nb\r\n  c"); got != "a b c" {
		t.Errorf("got %q", got)
	}
	if got := ShellJoin([]string{"a b", "it's", "", "plain-1.0", "$(x)"}); got != `'a b' 'it'\''s' '' plain-1.0 '$(x)'` {
		t.Errorf("got %s", got)
	}
}
