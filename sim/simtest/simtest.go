// Package simtest builds a small run in one line and checks the laws that every
// run obeys (spec replay-runtime, report). Only tests import it.
package simtest

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

// Fixed is the engine of the specs' worked examples: vLLM, 64-token blocks, 16384
// of them, passes of prefillMs and decodeMs.
func Fixed(prefillMs, decodeMs float64) engine.Config {
	c := VLLM()
	c.Timing = timing.Fixed{Prefill: prefillMs, Decode: decodeMs}
	return c
}

// VLLM is an engine with every default of spec engine-args 2.2.
func VLLM() engine.Config {
	return engine.Config{
		Backend: engine.VLLM, Blocks: 16384, BlockSize: 64, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192,
		PrefillScheduleInterval: 1, PrefixCaching: true, ChunkedPrefill: true,
		SpeedupRatio: 1, DecodeSpeedupRatio: 1, MTPSeed: 42, Timing: timing.Polynomial{},
		SGLang: engine.SGLangConfig{MaxPrefillTokens: 16384, ChunkedPrefillSize: 8192, ClipMaxNewTokens: 4096, Conservativeness: 1},
	}
}

// Pool is n workers of one rank.
func Pool(n int, c engine.Config) sim.PoolConfig {
	return sim.PoolConfig{Workers: n, DPSize: 1, GPUsPerWorker: 1, Rank: c}
}

// Disaggregated makes both pools from one engine.
func Disaggregated(prefill, decode int, c engine.Config) sim.Config {
	p, d := c, c
	p.Role, d.Role = engine.Prefill, engine.Decode
	return sim.Config{Disaggregated: true, Prefill: Pool(prefill, p), Decode: Pool(decode, d)}
}

// Rows is a Mooncake trace of lines "t,in,out" or "t,in,out,id id ..." with 64-token
// trace blocks; without ids every block is unique.
func Rows(tb testing.TB, rows ...string) *trace.Trace {
	tb.Helper()
	var b strings.Builder
	unique := 1_000_000
	for _, row := range rows {
		f := strings.SplitN(row, ",", 4)
		var in int
		fmt.Sscan(f[1], &in)
		ids := []string{}
		if len(f) == 4 {
			ids = strings.Fields(f[3])
		}
		for len(ids)*64 < in {
			unique++
			ids = append(ids, fmt.Sprint(unique))
		}
		fmt.Fprintf(&b, `{"timestamp":%s,"input_length":%s,"output_length":%s,"hash_ids":[%s]}`+"\n", f[0], f[1], f[2], strings.Join(ids, ","))
	}
	return Trace(tb, b.String(), 64)
}

// Trace is a Mooncake trace from its text.
func Trace(tb testing.TB, text string, blockSize int) *trace.Trace {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	o := trace.DefaultLoadOptions(trace.Mooncake)
	o.BlockSize = blockSize
	tr, err := trace.Load([]string{path}, o)
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// Open releases a trace on its own clock to engines of 64-token blocks.
func Open(tb testing.TB, tr *trace.Trace) workload.Source {
	return Source(tb, tr, trace.Drive{BlockSize: 64, Speedup: 1})
}

// Source releases a trace as d says.
func Source(tb testing.TB, tr *trace.Trace, d trace.Drive) workload.Source {
	tb.Helper()
	src, err := tr.NewSource(d)
	if err != nil {
		tb.Fatal(err)
	}
	return src
}

// Outcome is a finished run with its records in order of arrival.
type Outcome struct {
	*sim.Result
	Summary *metrics.Summary
	Records []metrics.Record
}

// Run runs cfg with capture on and checks the laws of a run. A MaxSimTimeMs of 0 in
// cfg means no cap.
func Run(tb testing.TB, cfg sim.Config) *Outcome {
	tb.Helper()
	out, err := TryRun(tb, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// TryRun is Run for runs that may fail.
func TryRun(tb testing.TB, cfg sim.Config) (*Outcome, error) {
	tb.Helper()
	if cfg.MaxSimTimeMs == 0 {
		cfg.MaxSimTimeMs = math.Inf(1)
	}
	cfg.Capture = true
	s, err := sim.New(cfg)
	if err != nil {
		return nil, err
	}
	res, err := s.Run(context.Background())
	if err != nil {
		return nil, err
	}
	out := &Outcome{Result: res, Summary: res.Collector.Summary(res.Totals)}
	out.Records = slices.Clone(res.Collector.Records())
	slices.SortStableFunc(out.Records, metrics.CompareRecords)
	if err := Laws(out, math.IsInf(cfg.MaxSimTimeMs, 1)); err != nil {
		tb.Fatal(err)
	}
	return out, nil
}

// Laws checks what holds of every run: each request ends once, tokens do not
// exceed what was asked for and equal it on completion, and the times of a request
// follow each other.
func Laws(o *Outcome, uncapped bool) error {
	s := o.Summary
	if uncapped && int64(len(o.Records)) != s.Requests {
		return fmt.Errorf("%d requests arrived, %d ended", s.Requests, len(o.Records))
	}
	seen := map[int64]bool{}
	for i := range o.Records {
		r := &o.Records[i]
		if seen[r.Ordinal] {
			return fmt.Errorf("request %d ended twice", r.Ordinal)
		}
		seen[r.Ordinal] = true
		if r.Output > r.Requested {
			return fmt.Errorf("request %d emitted %d of %d tokens", r.Ordinal, r.Output, r.Requested)
		}
		if r.Status == metrics.Unfinished {
			return fmt.Errorf("request %d was recorded without an end", r.Ordinal)
		}
		if r.Status != metrics.Completed {
			continue
		}
		at := r.ArrivalMs
		for _, t := range []float64{r.FirstAdmitMs, r.FirstTokenMs, r.SecondTokenMs, r.LastTokenMs, r.TerminalMs} {
			if t == metrics.Unset {
				continue
			}
			if t < at {
				return fmt.Errorf("request %d goes back in time: %+v", r.Ordinal, *r)
			}
			at = t
		}
	}
	return nil
}

// KV is the KV router with its defaults and an event lag.
func KV(lagMs float64) sim.RouterConfig {
	return sim.RouterConfig{Mode: router.KVMode(), Config: router.DefaultConfig(), EventLagMs: lagMs}
}
