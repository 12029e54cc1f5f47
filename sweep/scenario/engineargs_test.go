package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
)

func mustRole(t *testing.T, text string) *Role {
	t.Helper()
	r, err := EngineArgs("--extra-engine-args", text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// wantError checks class and text of a refusal.
func wantError(t *testing.T, err error, in, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted, want %q", in, want)
		return
	}
	if !errors.Is(err, document.ErrInput) {
		t.Errorf("%s: %v is not ErrInput", in, err)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%s:\n got  %v\n want %s", in, err, want)
	}
}

// TestEngineArgsRefusals holds the literal messages: testdata/engine-errors.txt
// pairs an input with the text that DynoSim 1.6.1 gave when run on it (where ours
// names a nearer path, or 1.4.2 has another text, that one stands there). Ours adds
// the origin and the path.
func TestEngineArgsRefusals(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "engine-errors.txt"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, line := range strings.Split(string(text), "\n") {
		in, want, ok := strings.Cut(line, " -> ")
		if !ok {
			continue
		}
		n++
		_, err := EngineArgs("--extra-engine-args", in)
		wantError(t, err, in, want)
	}
	if n < 90 {
		t.Fatalf("only %d cases", n)
	}
}

func TestEngineArgsDefaults(t *testing.T) {
	for backend, block := range map[string]int{"vllm": 64, "sglang": 1, "trtllm": 32} {
		got := mustRole(t, `{"engine":{"backend":"`+backend+`"}}`)
		want := &Role{DPSize: 1, TensorParallel: 1, ContextParallel: 1, Rank: engine.Config{
			Blocks: 16384, BlockSize: block, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192,
			PrefillScheduleInterval: 1, PrefixCaching: true, ChunkedPrefill: true,
			SpeedupRatio: 1, DecodeSpeedupRatio: 1, MTPSeed: 42, DPSize: 1,
			SGLang: engine.SGLangConfig{MaxPrefillTokens: 16384, ChunkedPrefillSize: 8192, ClipMaxNewTokens: 4096, Conservativeness: 1}}}
		want.Rank.Backend = map[string]engine.Backend{"vllm": engine.VLLM, "sglang": engine.SGLang, "trtllm": engine.TRTLLM}[backend]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got  %+v\n want %+v", backend, got, want)
		}
	}
	if !reflect.DeepEqual(mustRole(t, ""), mustRole(t, "{}")) {
		t.Error("no argument differs from {}")
	}
}

// TestFlatEqualsNested pairs spellings of one configuration.
func TestFlatEqualsNested(t *testing.T) {
	for _, c := range []struct{ name, flat, nested string }{
		{"backend", `{"engine_type":"SGLang","block_size":0}`, `{"engine":{"backend":"sglang"}}`},
		{"null blocks", `{"num_gpu_blocks":null,"has_perf_model":true}`, `{}`},
		{"unlimited", `{"max_num_seqs":null,"max_num_batched_tokens":null}`, `{"engine":{"max_num_seqs":null,"max_num_batched_tokens":null}}`},
		{"role flags", `{"is_prefill":true}`, `{"engine":{"worker_type":"prefill"}}`},
		{"launch keys", `{"dp_size":2,"startup_time":1.5,"tensor_parallel_size":4}`, `{"dp_size":2,"startup_time":1.5,"tensor_parallel_size":4}`},
		{"transfer", `{"kv_bytes_per_token":7,"kv_transfer_bandwidth":2}`, `{"engine":{"kv_transfer_bytes_per_token":7,"kv_transfer_bandwidth":2.0}}`},
		{"automatic transfer", `{"kv_bytes_per_token":"auto","kv_transfer_contention":"fair_share"}`, `{"engine":{"kv_transfer_bytes_per_token":"auto","kv_transfer_contention":"fair_share"}}`},
		{"preemption", `{"preemption_mode":"FIFO"}`, `{"engine":{"preemption_mode":"fifo"}}`},
		{"page", `{"engine_type":"sglang","sglang":{"page_size":16,"schedule_policy":"fcfs"}}`, `{"engine":{"backend":"sglang","block_size":16}}`},
		{"profile", `{"planner_profile_data":"a.npz"}`, `{"engine":{"timing_model":{"type":"external","provider":"dynamo_profile","config":{"path":"a.npz"}}}}`},
		{"queue policy", `{"router_queue_policy":"wspt"}`, `{"engine":{},"dynamo":{"router_queue_policy":"wspt"}}`},
		{"measured", `{"aic_backend":"vllm","aic_model_path":"m","aic_tp_size":2,"aic_attention_dp_size":2,"aic_gemm_dtype":"auto","dp_size":1}`,
			`{"engine":{"timing_model":{"type":"external","provider":"ais","config":{"model":"m","system":"h200_sxm","tp":2,"attention_dp":2}}}}`},
	} {
		got, want := mustRole(t, c.flat), mustRole(t, c.nested)
		got.named, want.named = named{}, named{} // the places differ
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got  %+v\n want %+v", c.name, got, want)
		}
	}
}

func TestAcceptRatesAreCutAndPadded(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"aic_nextn":2,"aic_nextn_accept_rates":"0.5"}`, "0.5,0"},
		{`{"aic_nextn":2}`, "0.85,0.3"},
		{`{"aic_nextn":5,"aic_nextn_accept_rates":""}`, "0.85,0.3,0,0,0"},
		{`{"aic_nextn":1,"aic_nextn_accept_rates":"1.0, 0.25"}`, "1"},
	} {
		r := mustRole(t, c.in)
		if r.AcceptRates != c.want || len(r.Rank.AcceptRates) != r.Rank.NextN {
			t.Errorf("%s: %q %v, want %q", c.in, r.AcceptRates, r.Rank.AcceptRates, c.want)
		}
	}
}

func TestMeasuredTimingAsksForCapacity(t *testing.T) {
	r := mustRole(t, `{"aic_backend":"sglang","engine_type":"sglang","aic_model_path":"m","aic_moe_tp_size":1,"aic_moe_ep_size":2,"aic_tp_size":2,"block_size":16,"mem_fraction_static":0.8}`)
	want := AICRequest{Model: "m", System: "h200_sxm", Backend: "sglang", TP: 2, PP: 1, AttentionDP: 1, CP: 1, MoETP: 1, MoEEP: 2, Mode: "SILICON"}
	if r.Timing.AIC != want || r.TensorParallel != 2 || r.Rank.Blocks != 0 {
		t.Errorf("got %+v", r)
	}
	if c := r.Capacity; c == nil || *c != (Capacity{Model: want, BlockSize: 16, MaxBatchedTokens: 8192, MaxSeqs: 256, MemoryFraction: 0.8}) {
		t.Errorf("capacity %+v", c)
	}
	if r := mustRole(t, `{"aic_backend":"vllm","aic_model_path":"m","num_gpu_blocks":7}`); r.Capacity != nil || r.Rank.Blocks != 7 {
		t.Errorf("explicit blocks still ask: %+v", r)
	}
}

func FuzzEngineArgs(f *testing.F) {
	for _, s := range []string{`{}`, `{"engine":{"backend":"sglang","sglang":{}}}`, `{"aic_backend":"vllm"}`,
		`{"engine":{"timing_model":{"type":"fixed","prefill_ms":1,"decode_ms":2}}}`, `{"aic_nextn":2,"aic_nextn_accept_rates":"1,2"}`,
		`{"sglang":{"page_size":3}}`, `[1,2`, `{"a":{"a":{}}}`, `{"dp_size":1e3}`, `{"is_prefill":true,"worker_type":"decode"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := EngineArgs("arg", text)
		if err == nil {
			if r.Rank.BlockSize <= 0 || r.DPSize <= 0 || r.GPUs() <= 0 || r.Rank.Blocks == 0 && r.Capacity == nil {
				t.Errorf("%q gives %+v", text, r)
			}
			return
		}
		if !errors.Is(err, document.ErrInput) {
			t.Errorf("%q: %v is not ErrInput", text, err)
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if !strings.HasPrefix(line, "arg: ") && !strings.Contains(text, "\n") && !strings.ContainsAny(line, "\\`") {
				t.Errorf("%q: %q names no origin", text, line)
			}
		}
	})
}
