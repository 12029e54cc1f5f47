package vllm_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// example is one block of testdata/examples.txt.
type example struct {
	name     string
	cfg      engine.Config
	workers  int
	arrivals []arrival
	want     []map[string]string
	sum      []string
}

func TestWorkedExamplesGiveTheReferenceTimes(t *testing.T) {
	runs := 0
	for _, ex := range readExamples(t) {
		for _, fast := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/runs=%v", ex.name, fast), func(t *testing.T) {
				c := newCluster(t, ex.cfg, ex.workers)
				c.fast = fast
				ex.compare(t, c.run(ex.arrivals))
				runs += c.runs
				for _, w := range c.workers {
					for _, core := range w.cores {
						if err := core.Check(); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	if runs == 0 {
		t.Error("no pass was part of a run")
	}
}

func (ex *example) compare(t *testing.T, got []outcome) {
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	for i, r := range got {
		fields := map[string]string{
			"admit": near(r.admitMs), "first": near(r.firstMs), "last": near(r.lastMs),
			"tokens": number(float64(r.tokens)), "reused": number(float64(r.reused)), "rejected": near(r.lastMs),
		}
		for key, want := range ex.want[i] {
			if key == "stuck" {
				if r.end != engine.Running || r.admitMs >= 0 {
					t.Errorf("request %d ended", i)
				}
				continue
			}
			if key == "rejected" && r.end != engine.Rejected {
				t.Errorf("request %d was not rejected", i)
			}
			if fields[key] != want {
				t.Errorf("request %d: %s %s, want %s", i, key, fields[key], want)
			}
		}
	}
	if ex.sum == nil {
		return
	}
	var ttft, tpot, e2e, duration, tokens, multi float64
	for _, r := range got {
		ttft += r.firstMs - r.atMs
		e2e += r.lastMs - r.atMs
		duration = max(duration, r.lastMs)
		tokens += float64(r.tokens)
		if r.tokens > 1 {
			multi++
			tpot += (r.lastMs - r.firstMs) / float64(r.tokens-1)
		}
	}
	n := float64(len(got))
	for i, v := range []float64{ttft / n, tpot / multi, e2e / n, duration, tokens / duration * 1000} {
		if s := fmt.Sprintf("%.6g", v); s != ex.sum[i] {
			t.Errorf("sum %d: %s, want %s", i, s, ex.sum[i])
		}
	}
}

// near prints a time as the spec does, to the nanosecond.
func near(ms float64) string {
	return strconv.FormatFloat(float64(int64(ms*1e6+0.5))/1e6, 'f', -1, 64)
}

func readExamples(t *testing.T) []*example {
	data, err := os.ReadFile("testdata/examples.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []*example
	for _, line := range strings.Split(string(data), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		switch fields[0] {
		case "example":
			out = append(out, &example{name: strings.Join(fields[1:], " "), cfg: defaults(), workers: 1})
		case "engine":
			for _, f := range fields[1:] {
				key, value, _ := strings.Cut(f, "=")
				out[len(out)-1].set(t, key, value)
			}
		case "sum":
			out[len(out)-1].sum = fields[1:]
		default:
			out[len(out)-1].request(t, fields)
		}
	}
	return out
}

// request reads `t,prompt,output[,id.id] key=value ...`.
func (ex *example) request(t *testing.T, fields []string) {
	parts := strings.Split(fields[0], ",")
	a := arrival{atMs: float(t, parts[0]), prompt: int32(float(t, parts[1])), out: int32(float(t, parts[2]))}
	if len(parts) > 3 {
		for id := range strings.SplitSeq(parts[3], ".") {
			a.ids = append(a.ids, int(float(t, id)))
		}
	}
	want := map[string]string{}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		want[key] = value
	}
	ex.arrivals, ex.want = append(ex.arrivals, a), append(ex.want, want)
}

func (ex *example) set(t *testing.T, key, value string) {
	cfg := &ex.cfg
	fixed, _ := cfg.Timing.(timing.Fixed)
	switch key {
	case "backend":
		cfg.Backend = engine.TRTLLM
	case "workers":
		ex.workers = int(float(t, value))
	case "num_gpu_blocks":
		cfg.Blocks = int(float(t, value))
	case "block_size":
		cfg.BlockSize = int(float(t, value))
	case "max_model_len":
		cfg.MaxModelLen = int(float(t, value))
	case "max_num_batched_tokens":
		cfg.MaxNumBatchedTokens = int(float(t, value))
	case "dp_size":
		cfg.DPSize = int(float(t, value))
	case "enable_chunked_prefill":
		cfg.ChunkedPrefill = value == "true"
	case "enable_prefix_caching":
		cfg.PrefixCaching = value == "true"
	case "preemption_mode":
		cfg.PreemptFIFO = value == "fifo"
	case "speedup_ratio":
		cfg.SpeedupRatio = float(t, value)
	case "decode_speedup_ratio":
		cfg.DecodeSpeedupRatio = float(t, value)
	case "prefill_ms":
		cfg.Timing = timing.Fixed{Prefill: float(t, value), Decode: fixed.Decode}
	case "decode_ms":
		cfg.Timing = timing.Fixed{Prefill: fixed.Prefill, Decode: float(t, value)}
	case "aic_nextn":
		cfg.NextN = int(float(t, value))
	case "rates":
		for r := range strings.SplitSeq(value, ",") {
			cfg.AcceptRates = append(cfg.AcceptRates, float(t, r))
		}
	default:
		t.Fatalf("testdata/examples.txt: unknown engine key %q", key)
	}
}

func float(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatalf("testdata/examples.txt: %v", err)
	}
	return v
}
