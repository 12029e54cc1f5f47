package sim_test

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// Two vLLM workers behind a round robin serve 100 requests of 1,000 tokens in and 50
// out, of which 8 are in flight at any time.
func ExampleNew() {
	load := workload.DefaultSynthetic()
	load.InputTokens, load.OutputTokens, load.Requests, load.Concurrency = 1000, 50, 100, 8
	source, err := load.NewSource(64)
	if err != nil {
		log.Fatal(err)
	}
	rank := engine.Config{Backend: engine.VLLM, Blocks: 16384, BlockSize: 64, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192,
		PrefillScheduleInterval: 1, PrefixCaching: true, ChunkedPrefill: true, Timing: timing.Polynomial{}}
	run, err := sim.New(sim.Config{
		Decode:       sim.PoolConfig{Workers: 2, DPSize: 1, GPUsPerWorker: 1, Rank: rank},
		Source:       source,
		MaxSimTimeMs: math.Inf(1),
	})
	if err != nil {
		log.Fatal(err)
	}
	result, err := run.Run(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	summary := result.Collector.Summary(result.Totals)
	ttft, _ := summary.Get("mean_ttft_ms")
	rate, _ := summary.Get("output_throughput_tok_s")
	fmt.Printf("%d requests, mean TTFT %.1f ms, %.0f output tokens/s\n", summary.Requests, ttft, rate)
	// Output: 100 requests, mean TTFT 82.6 ms, 1033 output tokens/s
}
