package sweep

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// BenchmarkRun times whole runs of the shipped trace and of synthetic load, inputs
// parsed beforehand. scripts/bench-vs-reference times the same points beside the
// reference.
func BenchmarkRun(b *testing.B) {
	trace := []string{"../configs/traces/conversation.jsonl.gz"}
	block := int64(512)
	tenfold := []string{repeated(b, trace[0], 10)}
	text := func(s string) *string { return &s }
	num := func(n int64) *int64 { return &n }
	for _, bench := range []struct {
		name  string
		flags scenario.ReplayFlags
	}{
		{"topology=agg/workers=4/router=rr", scenario.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumWorkers: num(4)}},
		{"topology=agg/workers=4/router=rr/trace=x10", scenario.ReplayFlags{Traces: tenfold, TraceBlockSize: &block, NumWorkers: num(4)}},
		{"topology=agg/workers=4/router=kv", scenario.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumWorkers: num(4), RouterMode: text("kv_router")}},
		{"topology=agg/workers=16/router=kv", scenario.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumWorkers: num(16), RouterMode: text("kv_router")}},
		{"topology=disagg/workers=2+2/router=rr", scenario.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumPrefillWorkers: num(2), NumDecodeWorkers: num(2),
			PrefillEngineArgs: text(`{"worker_type":"prefill"}`), DecodeEngineArgs: text(`{"worker_type":"decode"}`)}},
		{"topology=agg/workers=8/planner=sla", scenario.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumWorkers: num(8),
			ExtraEngineArgs: text(`{"block_size":64,"num_gpu_blocks":16384,"startup_time":30}`),
			PlannerConfig: text(`{"mode":"agg","optimization_target":"sla","ttft_ms":2000,"itl_ms":50,"enable_load_scaling":true,` +
				`"load_predictor":"kalman","max_gpu_budget":16,"decode_engine_num_gpu":1}`)}},
		{"load=synthetic/workers=1/backend=vllm", scenario.ReplayFlags{InputTokens: num(5000), OutputTokens: num(500), RequestCount: num(1000), ReplayConcurrency: num(100)}},
		{"load=synthetic/workers=2/backend=sglang", scenario.ReplayFlags{InputTokens: num(2048), OutputTokens: num(128), RequestCount: num(2000), ReplayConcurrency: num(16),
			NumWorkers: num(2), ExtraEngineArgs: text(`{"engine_type":"sglang"}`)}},
		{"load=synthetic/workers=2/backend=trtllm", scenario.ReplayFlags{InputTokens: num(2048), OutputTokens: num(128), RequestCount: num(2000), ReplayConcurrency: num(16),
			NumWorkers: num(2), ExtraEngineArgs: text(`{"engine_type":"trtllm"}`)}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			run, err := bench.flags.Resolve(&scenario.Files{})
			if err != nil {
				b.Fatal(err)
			}
			in := &Inputs{}
			if _, err := in.Source(&run); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			requests := int64(0)
			for b.Loop() {
				out, err := Execute(context.Background(), in, &run, RunOptions{})
				if err != nil {
					b.Fatal(err)
				}
				requests = out.Summary.Requests
			}
			b.ReportMetric(float64(requests)*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// repeated writes a trace several times over: times go on a second after the last,
// hash ids are new each time. A run of it should cost that many times a run.
func repeated(b *testing.B, path string, times int) string {
	b.Helper()
	type row struct {
		Timestamp float64 `json:"timestamp"`
		Input     int     `json:"input_length"`
		Output    int     `json:"output_length"`
		HashIDs   []int   `json:"hash_ids"`
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		b.Fatal(err)
	}
	var rows []row
	last, ids := 0.0, 0
	for d := json.NewDecoder(z); d.More(); {
		var r row
		if err := d.Decode(&r); err != nil {
			b.Fatal(err)
		}
		rows, last = append(rows, r), max(last, r.Timestamp)
		for _, id := range r.HashIDs {
			ids = max(ids, id+1)
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for range times {
		for i := range rows {
			enc.Encode(rows[i])
			rows[i].Timestamp += last + 1000
			for k := range rows[i].HashIDs {
				rows[i].HashIDs[k] += ids
			}
		}
	}
	to := filepath.Join(b.TempDir(), "repeated.jsonl")
	if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
	return to
}
