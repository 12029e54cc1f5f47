package launch

import (
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// The command that measures a point offers the trace as the simulation did: unpacked,
// as fast, and cut at the same time.
func TestAIPerfGetsTheTraceAsSimulated(t *testing.T) {
	trace := func(path string) []resolved.FileRef { return []resolved.FileRef{{Path: path}} }
	one, two, half, minute, eight, size := 1.0, 2.0, 0.5, 60000.0, 8, 64
	for _, c := range []struct {
		workload        resolved.Trace
		convert, aiperf string
		note            string
	}{
		{resolved.Trace{Format: "mooncake", Trace: trace("t.jsonl"), ArrivalSpeedup: &one},
			"", "--custom-dataset-type mooncake_trace --fixed-schedule --input-file t.jsonl", ""},
		{resolved.Trace{Format: "mooncake", Trace: trace("t.jsonl.gz"), Concurrency: &eight, TraceBlockSize: &size},
			"dynosweep trace convert --format mooncake t.jsonl.gz --block-size 64", "--custom-dataset-type mooncake_trace --isl-block-size 64 --concurrency 8", ""},
		{resolved.Trace{Format: "dynamo", Trace: trace("t.jsonl"), ArrivalSpeedup: &two, MaxSimTimeMs: &minute},
			"dynosweep trace convert --format dynamo t.jsonl --speedup 2 --until-seconds 120", "--custom-dataset-type mooncake_trace --fixed-schedule", ""},
		{resolved.Trace{Format: "dynamo", Trace: trace("t.jsonl"), ArrivalSpeedup: &half, MaxSimTimeMs: &minute},
			"dynosweep trace convert --format dynamo t.jsonl --speedup 0.5 --until-seconds 30", "--custom-dataset-type mooncake_trace --fixed-schedule", ""},
		{resolved.Trace{Format: "mooncake", Trace: trace("t.jsonl"), ArrivalSpeedup: &two, Concurrency: &eight, MaxSimTimeMs: &minute},
			"", "--custom-dataset-type mooncake_trace --concurrency 8 --input-file t.jsonl", "stop AIPerf there"},
		{resolved.Trace{Format: "weka", Trace: trace("t.jsonl"), ArrivalSpeedup: &one},
			"dynosweep trace convert --format weka t.jsonl", "--custom-dataset-type mooncake_trace --fixed-schedule", "cannot offer this load: in weka traces"},
	} {
		d := &Deployment{Model: "m"}
		d.measure(&resolved.Workload{Trace: &c.workload})
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
	if got := oneLine("a\nb\r\n  c\x1b[2J"); got != `a b c\x1b[2J` {
		t.Errorf("got %q", got)
	}
	if got := ShellJoin([]string{"a b", "it's", "", "plain-1.0", "$(x)"}); got != `'a b' 'it'\''s' '' plain-1.0 '$(x)'` {
		t.Errorf("got %s", got)
	}
}

func TestEveryBackendIsToldItsContextLength(t *testing.T) {
	limit := 2048
	for backend, want := range map[string]string{"vllm": "--max-model-len 2048", "sglang": "--context-length 2048", "trtllm": "--max-seq-len 2048"} {
		r := &resolved.Role{TensorParallelSize: 1, DPSize: 1}
		r.Engine.Backend, r.Engine.MaxModelLen = backend, &limit
		if got := strings.Join(engineFlags("m", r), " "); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", backend, got, want)
		}
	}
}
