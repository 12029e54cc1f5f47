package sweep

import (
	"context"
	"testing"

	"dynosweep/sweep/spec"
)

// BenchmarkRun times whole runs of the shipped trace and of synthetic load, inputs
// parsed beforehand. scripts/bench-vs-reference times the same points beside the
// reference.
func BenchmarkRun(b *testing.B) {
	trace := []string{"../configs/traces/conversation.jsonl.gz"}
	block := int64(512)
	text := func(s string) *string { return &s }
	num := func(n int64) *int64 { return &n }
	for _, bench := range []struct {
		name  string
		flags spec.ReplayFlags
	}{
		{"topology=agg/workers=4/router=rr", spec.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumWorkers: num(4)}},
		{"topology=agg/workers=4/router=kv", spec.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumWorkers: num(4), RouterMode: text("kv_router")}},
		{"topology=agg/workers=16/router=kv", spec.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumWorkers: num(16), RouterMode: text("kv_router")}},
		{"topology=disagg/workers=2+2/router=rr", spec.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumPrefillWorkers: num(2), NumDecodeWorkers: num(2),
			PrefillEngineArgs: text(`{"worker_type":"prefill"}`), DecodeEngineArgs: text(`{"worker_type":"decode"}`)}},
		{"topology=agg/workers=8/planner=sla", spec.ReplayFlags{Traces: trace, TraceBlockSize: &block, NumWorkers: num(8),
			ExtraEngineArgs: text(`{"block_size":64,"num_gpu_blocks":16384,"startup_time":30}`),
			PlannerConfig: text(`{"mode":"agg","optimization_target":"sla","ttft_ms":2000,"itl_ms":50,"enable_load_scaling":true,` +
				`"load_predictor":"kalman","max_gpu_budget":16,"decode_engine_num_gpu":1}`)}},
		{"load=synthetic/workers=1/backend=vllm", spec.ReplayFlags{InputTokens: num(5000), OutputTokens: num(500), RequestCount: num(1000), ReplayConcurrency: num(100)}},
		{"load=synthetic/workers=2/backend=sglang", spec.ReplayFlags{InputTokens: num(2048), OutputTokens: num(128), RequestCount: num(2000), ReplayConcurrency: num(16),
			NumWorkers: num(2), ExtraEngineArgs: text(`{"engine_type":"sglang"}`)}},
		{"load=synthetic/workers=2/backend=trtllm", spec.ReplayFlags{InputTokens: num(2048), OutputTokens: num(128), RequestCount: num(2000), ReplayConcurrency: num(16),
			NumWorkers: num(2), ExtraEngineArgs: text(`{"engine_type":"trtllm"}`)}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			run, err := bench.flags.Resolve(&spec.Files{})
			if err != nil {
				b.Fatal(err)
			}
			in := &Inputs{}
			b.ReportAllocs()
			requests := int64(0)
			for b.Loop() {
				out, err := Execute(context.Background(), in, &run, Watch{})
				if err != nil {
					b.Fatal(err)
				}
				requests = out.Summary.Requests
			}
			b.ReportMetric(float64(requests)*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
