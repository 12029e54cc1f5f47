package aic

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// linear is a speed of light that grows with the last axis.
type linear struct{}

func (linear) sol(_, _, c float64) float64 { return c }

// TestCurve is spec aic-perfmodel 4.1.
func TestCurve(t *testing.T) {
	c := curve{[]float64{10, 20, 40}, []float64{1, 3, 4}}
	for _, q := range []struct {
		x, want float64
		outside bool
	}{
		{10, 1, false}, {20, 3, false}, {40, 4, false},
		{15, 2, false}, {30, 3.5, false},
		{math.Nextafter(20, 0), 3, false},
		{5, 0.5, true}, {80, 8, true},
	} {
		var r reach
		if got := c.at(q.x, linear{}, &r); math.Abs(got-q.want) > 1e-12 || r.outside != q.outside {
			t.Errorf("at %v: %v (outside %v), want %v (%v)", q.x, got, r.outside, q.want, q.outside)
		}
	}
	var r reach
	c.at(160, linear{}, &r)
	if r.doublings != 2 {
		t.Errorf("160 is %v doublings beyond 40, want 2", r.doublings)
	}
}

// TestGrid is spec aic-perfmodel 4.2 on a ragged table.
func TestGrid(t *testing.T) {
	b := newBuilder()
	for _, p := range [][4]float64{{1, 1, 10, 1}, {1, 1, 20, 2}, {1, 2, 10, 4}, {1, 2, 40, 16}, {2, 1, 10, 9}, {2, 1, 20, 25}, {1, 1, 10, 77}} {
		b.add(sliceKey{}, p[0], p[1], p[2], p[3], true)
	}
	s := b.finish().slices[0]
	plain, root := newGrid(&s.tree, linear{}, false), newGrid(&s.tree, linear{}, true)
	for _, q := range []struct {
		name  string
		g     *grid
		at    [3]float64
		want  float64
		bound bool // inside the table
	}{
		{"first row of a key wins", plain, [3]float64{1, 1, 10}, 1, true},
		{"last axis", plain, [3]float64{1, 1, 15}, 1.5, true},
		{"middle axis", plain, [3]float64{1, 1.5, 10}, 2.5, true},
		{"middle axis on square roots", root, [3]float64{1, 1.5, 10}, 2.25, true},
		{"outer axis stays linear", root, [3]float64{1.5, 1, 20}, 13.5, true},
		{"both axes", plain, [3]float64{1.5, 1, 15}, (1.5 + 17) / 2, true},
		{"one branch reaches: rescaled along its axis", plain, [3]float64{1, 1.5, 30}, 12, true},
		{"no branch reaches", plain, [3]float64{1.5, 2, 100}, 0, false},
		{"below the first key", plain, [3]float64{1, 1, 5}, 0, false},
	} {
		got, ok := q.g.level0(q.at[0], q.at[1], q.at[2])
		if ok != q.bound || ok && math.Abs(got-q.want) > 1e-12 {
			t.Errorf("%s: %v, %v, want %v, %v", q.name, got, ok, q.want, q.bound)
		}
		if _, ok := q.g.at(q.at[0], q.at[1], q.at[2], &reach{}); !ok {
			t.Errorf("%s: nothing to hold on to", q.name)
		}
	}
	var r reach
	few := buildTree([]point{{[3]float64{1, 1, 10}, 5, true}})
	if v, ok := newGrid(&few, linear{}, false).at(1, 1, 40, &r); !ok || math.Abs(v-20) > 1e-12 || math.Abs(r.doublings-2) > 1e-12 {
		t.Errorf("one leaf: %v, %v, %+v; its utilisation holds", v, ok, r)
	}
	none := buildTree([]point{{[3]float64{1, 1, 10}, 0, true}})
	if _, ok := newGrid(&none, linear{}, false).at(1, 1, 40, &r); ok {
		t.Error("a leaf of no time anchors")
	}
}

// TestWorkedLookups are the single lookups of spec aic-perfmodel 12.3.
func TestWorkedLookups(t *testing.T) {
	m := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2})
	var decode *decodeAttentionOp
	var logits *gemmOp
	for i := range m.generate {
		switch o := m.generate[i].op.(type) {
		case *decodeAttentionOp:
			decode = o
		case *gemmOp:
			if m.generate[i].name == "generation_logits_gemm" {
				logits = o
			}
		}
	}
	for _, q := range []struct{ batch, seq, want float64 }{
		{16, 7372, 0.0707664372215125}, {16, 8191, 0.0767340463510967}, {16, 8192, 0.0767413328091304}, {16, 9011, 0.0826940121375325},
		{64, 40000, 1.217705405024968}, {700, 40000, 13.047717650662054},
	} {
		if got, _ := decode.grid.at(32, q.batch, q.seq, &reach{}); math.Abs(got-q.want) > 1e-13*q.want*10 {
			t.Errorf("decode grid at (32,%v,%v): %v, want %v", q.batch, q.seq, got, q.want)
		}
	}
	var taken [4]*site
	if n := logits.neighbours(1, &taken); n != 4 || taken[0].sol.n != 65536 || taken[0].sol.k != 5120 || taken[1].sol.k != 6144 || taken[2].sol.k != 4096 || taken[3].sol.k != 7168 {
		t.Errorf("neighbours of the logits: %d, %+v", n, taken)
	}
	if got := logits.silicon(&step{x: 1}); math.Abs(got-0.200426990848876) > 1e-14 {
		t.Errorf("logits at one token: %v", got)
	}
	m = openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B"})
	costs, err := m.PrefillOps(1, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range costs {
		if c.Name == "context_logits_gemm" && math.Abs(c.Ms-0.398552379151446) > 1e-14 {
			t.Errorf("logits of one GPU: %v", c.Ms)
		}
	}
}

// TestSampleSpan is spec aic-perfmodel 15: the product is truncated in float64.
func TestSampleSpan(t *testing.T) {
	for _, q := range [][3]int{{1, 1, 1}, {2, 1, 2}, {10, 9, 11}, {8192, 7372, 9011}, {30, 27, 33}} {
		if lo, hi := sampleSpan(q[0]); lo != q[1] || hi != q[2] {
			t.Errorf("%d: %d to %d, want %d to %d", q[0], lo, hi, q[1], q[2])
		}
	}
}

// TestQuantDefaults is the observed results of spec aic-perfmodel 2.3.
func TestQuantDefaults(t *testing.T) {
	for _, q := range []struct {
		model, backend      string
		gemm, moe, fmha, kv string
	}{
		{"Qwen/Qwen3-32B", "sglang", "bfloat16", "", "bfloat16", "bfloat16"},
		{"Qwen/Qwen3-32B-FP8", "vllm", "fp8_block", "", "bfloat16", "fp8"},
		{"Qwen/Qwen3-32B-FP8", "sglang", "fp8_block", "", "fp8", "fp8"},
		{"Qwen/Qwen3-32B-FP8", "trtllm", "fp8_block", "", "fp8", "fp8"},
		{"nvidia/Llama-3.1-70B-Instruct-FP8", "vllm", "fp8_static", "", "bfloat16", "fp8"},
		{"Qwen/Qwen3-32B-FP8-Static-PerTensor", "trtllm", "fp8_static", "", "fp8", "fp8"},
		{"openai/gpt-oss-120b", "trtllm", "bfloat16", "w4a16_mxfp4", "bfloat16", "bfloat16"},
		{"deepseek-ai/DeepSeek-V3", "trtllm", "fp8_block", "fp8_block", "fp8", "fp8"},
		{"moonshotai/Kimi-K2.5", "vllm", "bfloat16", "int4_wo", "bfloat16", "bfloat16"},
		{"nvidia/Qwen3-235B-A22B-NVFP4", "trtllm", "nvfp4", "nvfp4", "fp8", "fp8"},
	} {
		c, err := loadCheckpoint(q.model)
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := c.quantModes(quant{}, q.backend)
		if err != nil || got.gemm != q.gemm || q.moe != "" && got.moe != q.moe || got.fmha != q.fmha || got.kv != q.kv {
			t.Errorf("%s on %s: %+v (%v), want %+v", q.model, q.backend, got, err, q)
		}
	}
	c := &checkpoint{family: llama, quantAlgo: "mixed_precision"}
	if _, err := c.quantModes(quant{gemm: "fp8"}, "vllm"); err != nil {
		t.Errorf("a dense model has no experts to name a format for: %v", err)
	}
	if _, err := c.quantModes(quant{moe: "fp8"}, "vllm"); err == nil {
		t.Error("no format of matrix products")
	}
	if dtype(" auto ") != "" || dtype("int4") != "int4_wo" || dtype("fp8") != "fp8" {
		t.Error("format names")
	}
}

func TestLocalModelDirectory(t *testing.T) {
	dir := t.TempDir()
	config := `{"architectures": ["Qwen2ForCausalLM"], "rope_factor": Infinity, "num_hidden_layers": 64, "hidden_size": 5120,
		"num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 27648, "vocab_size": 152064, "max_position_embeddings": 32768}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	m := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: dir, TP: 4})
	if v := m.DecodeMs(16, 2048); !(v > 0) || m.Err() != nil {
		t.Errorf("%v, %v", v, m.Err())
	}
	if m.ckpt.headDim != 128 || m.ckpt.qkNorm {
		t.Errorf("%+v", m.ckpt)
	}
	for text, want := range map[string]string{
		`{"architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 64}`:   "missing key hidden_size",
		`{"architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": "64"}`: "num_hidden_layers: not a number: 64",
		"{\n\"architectures\": [}": dir + "/config.json:2: invalid character",
		"[]":                       dir + "/config.json:1: must be a JSON object",
		"null":                     dir + "/config.json:1: must be a JSON object",
	} {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := loadCheckpoint(dir); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "hf_quant_config.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := loadCheckpoint(dir); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "hf_quant_config.json") {
		t.Errorf("a quantisation file that cannot be read: %v", err)
	}
}

// TestEveryBundledModelBuilds prices every model that is listed at the speed of light.
func TestEveryBundledModelBuilds(t *testing.T) {
	names, err := Models()
	if err != nil || len(names) < 25 {
		t.Fatalf("%d models, %v", len(names), err)
	}
	for _, name := range names {
		for _, backend := range backends {
			m := openModel(t, "b200_sxm", backend, ModelConfig{Model: name, TP: 4, MoEEP: 4, Mode: SOL})
			if p, d := m.PrefillMs(1, 1000, 24), m.DecodeMs(8, 1000); !(p > 0) || !(d > 0) {
				t.Errorf("%s on %s: %v, %v, %v", name, backend, p, d, m.Err())
			}
		}
	}
}
