package aic

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// near6 accepts a figure printed to six decimals.
func near6(got, want float64) bool { return math.Abs(got-want) <= 6e-7 }

// exactly accepts a figure printed in full.
func exactly(got, want float64) bool { return math.Abs(got-want) <= 1e-12*math.Abs(want) }

// TestWorkedTableOfQwen32B is spec aic-perfmodel 12.1.
func TestWorkedTableOfQwen32B(t *testing.T) {
	prefills := []struct {
		isl, prefix int
		want        [4]float64 // tp 1, 2, 4, 8
	}{
		{128, 0, [4]float64{23.485834, 15.402754, 11.401519, 9.327410}},
		{128, 64, [4]float64{23.065432, 14.316905, 10.420485, 8.447183}},
		{2048, 0, [4]float64{184.465386, 103.044997, 65.136967, 42.635393}},
		{2048, 1024, [4]float64{97.109481, 55.640999, 34.998689, 24.896258}},
		{8192, 0, [4]float64{864.274120, 473.798327, 280.603981, 164.581665}},
		{8192, 4096, [4]float64{453.386902, 247.253186, 143.673926, 90.027926}},
		{32768, 0, [4]float64{4624.467608, 2524.583123, 1379.997933, 792.056496}},
		{32768, 16384, [4]float64{2754.537884, 1504.607997, 818.196888, 456.082715}},
	}
	decodes := []struct {
		batch, context int
		want           [4]float64
	}{
		{1, 1024, [4]float64{18.281085, 10.651373, 6.967654, 5.007933}},
		{1, 8192, [4]float64{18.596896, 10.891624, 7.224094, 5.254758}},
		{1, 32768, [4]float64{20.651616, 11.929776, 7.687107, 5.651830}},
		{16, 1024, [4]float64{21.116968, 11.539529, 7.541993, 5.558357}},
		{16, 8192, [4]float64{28.774712, 15.299532, 9.480485, 6.522479}},
		{16, 32768, [4]float64{53.051669, 26.877054, 15.302541, 9.506418}},
		{64, 1024, [4]float64{25.411780, 14.251695, 9.128773, 6.433244}},
		{64, 8192, [4]float64{52.634904, 27.449931, 15.882505, 10.197070}},
		{64, 32768, [4]float64{146.273917, 75.240111, 39.696275, 21.831510}},
		{256, 1024, [4]float64{45.280074, 25.277958, 15.877631, 10.887107}},
		{256, 8192, [4]float64{151.918124, 80.571420, 43.241146, 25.028499}},
		{256, 32768, [4]float64{520.956023, 266.626991, 135.637658, 72.578785}},
	}
	for i, tp := range []int{1, 2, 4, 8} {
		m := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: tp})
		for _, p := range prefills {
			if got := m.PrefillMs(1, p.isl-p.prefix, p.prefix); !near6(got, p.want[i]) {
				t.Errorf("tp %d: P(1,%d,%d) = %.6f, want %.6f", tp, p.isl, p.prefix, got, p.want[i])
			}
		}
		for _, d := range decodes {
			if got := m.DecodeMs(d.batch, d.context); !near6(got, d.want[i]) {
				t.Errorf("tp %d: D(%d,%d) = %.6f, want %.6f", tp, d.batch, d.context, got, d.want[i])
			}
		}
		if m.Err() != nil {
			t.Error(m.Err())
		}
	}
	m := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2})
	for _, c := range []struct{ got, want float64 }{
		{m.DecodeMs(700, 40000), 870.5074902114748},
		{m.PrefillMs(64, 3900, 100), 13554.685744637447},
		{m.PrefillMs(1, 100000, 0), 13253.53577077058},
	} {
		if !exactly(c.got, c.want) {
			t.Errorf("far outside: %v, want %v", c.got, c.want)
		}
	}
}

// TestWorkedSetups is spec aic-perfmodel 12.2, the systems that are embedded.
func TestWorkedSetups(t *testing.T) {
	for _, c := range []struct {
		model, system, backend, parallel string
		want                             [4]float64 // P(1,2048,0) P(1,8192,4096) D(16,8192) D(64,2048)
	}{
		{"Qwen/Qwen3-32B", "h100_sxm", "vllm", "tp_size=2", [4]float64{107.185400, 249.738484, 20.552392, 21.565639}},
		{"Qwen/Qwen3-32B", "b200_sxm", "vllm", "tp_size=2", [4]float64{58.333258, 126.961604, 10.667855, 11.336015}},
		{"Qwen/Qwen3-32B", "h200_sxm", "sglang", "tp_size=2", [4]float64{106.395321, 255.474116, 14.523169, 15.359262}},
		{"Qwen/Qwen3-32B", "b200_sxm", "sglang", "tp_size=2", [4]float64{59.967111, 130.117538, 10.272453, 10.907495}},
		{"Qwen/Qwen3-32B", "h200_sxm", "trtllm", "tp_size=2", [4]float64{110.383301, 257.372416, 16.005237, 16.616718}},
		{"Qwen/Qwen3-32B", "b200_sxm", "trtllm", "tp_size=2", [4]float64{59.468752, 136.836367, 10.785902, 11.085496}},
		{"Qwen/Qwen3-32B-FP8", "h200_sxm", "vllm", "tp_size=1", [4]float64{133.169041, 317.920931, 26.206329, 33.168316}},
		{"Qwen/Qwen3-32B-FP8-Static-PerTensor", "h200_sxm", "trtllm", "tp_size=1", [4]float64{114.651565, 270.466345, 15.934164, 16.462154}},
		{"meta-llama/Meta-Llama-3.1-8B", "h100_sxm", "vllm", "tp_size=1", [4]float64{43.507889, 103.501036, 13.080872, 12.557609}},
		{"meta-llama/Meta-Llama-3.1-70B", "h100_sxm", "vllm", "tp_size=4", [4]float64{130.179289, 280.876723, 19.761461, 20.739295}},
		{"meta-llama/Meta-Llama-3.1-70B", "h100_sxm", "vllm", "tp_size=4;pp_size=2", [4]float64{130.860377, 282.228900, 19.776703, 20.770266}},
		{"Qwen/Qwen3-30B-A3B", "h200_sxm", "vllm", "", [4]float64{40.428467, 87.692917, 13.084773, 19.118067}},
		{"Qwen/Qwen3-30B-A3B", "h200_sxm", "vllm", "tp_size=4;moe_ep_size=4", [4]float64{24.867611, 46.114872, 6.788366, 8.800135}},
		{"Qwen/Qwen3-235B-A22B-FP8", "h200_sxm", "sglang", "tp_size=4;attention_dp_size=2;moe_ep_size=8", [4]float64{123.122088, 241.851592, 20.907358, 22.273889}},
		{"openai/gpt-oss-120b", "h200_sxm", "vllm", "", [4]float64{72.956636, 124.164446, 12.421044, 21.955586}},
		{"mistralai/Mixtral-8x7B-v0.1", "h200_sxm", "vllm", "tp_size=2;moe_tp_size=2", [4]float64{52.650958, 105.505666, 14.747112, 17.448120}},
		{"deepseek-ai/DeepSeek-V3", "h200_sxm", "vllm", "tp_size=8;moe_ep_size=8", [4]float64{139.089581, 269.075378, 25.578744, 34.212396}},
		{"deepseek-ai/DeepSeek-V3", "b200_sxm", "trtllm", "tp_size=8;moe_ep_size=8;fmha_quant_mode=bfloat16", [4]float64{52.774478, 97.138541, 15.360661, 21.275175}},
		{"moonshotai/Kimi-K2-Instruct", "h200_sxm", "vllm", "tp_size=8;moe_ep_size=8", [4]float64{123.223848, 219.265925, 26.163421, 38.682000}},
	} {
		checkSetup(t, Config{System: c.system, Backend: c.backend}, c.model, c.parallel, []question{
			{false, 1, 2048, 0, c.want[0]}, {false, 1, 8192, 4096, c.want[1]}, {true, 16, 8192, 0, c.want[2]}, {true, 64, 2048, 0, c.want[3]},
		})
	}
}

type question struct {
	decode                bool
	batch, length, prefix int
	want                  float64
}

func checkSetup(t *testing.T, config Config, model, parallel string, questions []question) {
	t.Helper()
	db, err := Open(config)
	if err != nil {
		t.Error(err)
		return
	}
	c := ModelConfig{Model: model}
	if err := c.SetParallel(parallel); err != nil {
		t.Error(err)
		return
	}
	m, err := NewModel(db, c)
	if err != nil {
		t.Errorf("%s on %s %s: %v", model, config.System, config.Backend, err)
		return
	}
	for _, q := range questions {
		var got float64
		if q.decode {
			got = m.DecodeMs(q.batch, q.length)
		} else {
			got = m.PrefillMs(q.batch, q.length-q.prefix, q.prefix)
		}
		if !near6(got, q.want) {
			t.Errorf("%s %s on %s %s: %+v: got %.6f (%v)", model, parallel, config.System, config.Backend, q, got, m.Err())
		}
	}
}

// TestOriginalPackage reads the package's own files. It runs where
// AIC_SYSTEMS_PATH names its systems directory or wheel (spec aic-perfmodel 12.2, second table).
func TestOriginalPackage(t *testing.T) {
	path := os.Getenv("AIC_SYSTEMS_PATH")
	if path == "" {
		t.Skip("AIC_SYSTEMS_PATH is not set")
	}
	for _, c := range []struct {
		model, system, backend, parallel string
		want                             [4]float64 // P(1,2048,0) P(4,1024,256) D(16,8192) D(64,2048)
	}{
		{"Qwen/Qwen3-8B", "a100_sxm", "vllm", "", [4]float64{126.816436, 183.123751, 23.729435, 24.655070}},
		{"Qwen/Qwen3-8B", "gb200", "trtllm", "tp_size=4", [4]float64{14.430014, 18.372069, 2.991882, 3.045146}},
		{"Qwen/Qwen3-235B-A22B", "gb200", "vllm", "tp_size=8;moe_ep_size=8", [4]float64{51.338477, 62.239981, 10.536860, 14.353540}},
		{"nvidia/Qwen3-235B-A22B-NVFP4", "b200_sxm", "trtllm", "tp_size=4;moe_ep_size=4", [4]float64{56.967866, 72.078290, 10.311368, 12.461833}},
	} {
		checkSetup(t, Config{System: c.system, Backend: c.backend, SystemsPath: path}, c.model, c.parallel, []question{
			{false, 1, 2048, 0, c.want[0]}, {false, 4, 1024, 256, c.want[1]}, {true, 16, 8192, 0, c.want[2]}, {true, 64, 2048, 0, c.want[3]},
		})
	}
	in := openModel(t, "h100_sxm", "sglang", ModelConfig{Model: "Qwen/Qwen3-30B-A3B", TP: 2, MoEEP: 2})
	db, err := Open(Config{System: "h100_sxm", Backend: "sglang", SystemsPath: path})
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewModel(db, ModelConfig{Model: "Qwen/Qwen3-30B-A3B", TP: 2, MoEEP: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []int{1, 7, 33, 300} {
		for _, l := range []int{1, 100, 5000, 70000} {
			if x, y := in.DecodeMs(b, l), out.DecodeMs(b, l); x != y {
				t.Errorf("D(%d,%d): embedded %v, package %v", b, l, x, y)
			}
			if x, y := in.PrefillMs(b, l, 55), out.PrefillMs(b, l, 55); x != y {
				t.Errorf("P(%d,%d,55): embedded %v, package %v", b, l, x, y)
			}
		}
	}
}

// TestWorkedOps is spec aic-perfmodel 12.3 to 12.5.
func TestWorkedOps(t *testing.T) {
	check := func(costs []OpCost, err error, total float64, want map[string]float64) {
		t.Helper()
		if err != nil {
			t.Error(err)
			return
		}
		sum := 0.0
		for _, c := range costs {
			sum += c.Ms
			name := c.Name[strings.IndexByte(c.Name, '_')+1:]
			if w, ok := want[name]; ok && math.Abs(c.Ms-w) > 1e-11 {
				t.Errorf("%s = %.12f, want %.12f", c.Name, c.Ms, w)
			}
			delete(want, name)
		}
		for name := range want {
			t.Errorf("no op %s", name)
		}
		if math.Abs(sum-total) > 1e-11 {
			t.Errorf("total %.12f, want %.12f", sum, total)
		}
	}
	m := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2})
	costs, err := m.PrefillOps(1, 2000, 1000)
	check(costs, err, 104.696275275533, map[string]float64{
		"embedding": 0.008333333333, "add_norm_1": 1.557333333333, "qkv_gemm": 8.216675193637, "attention": 11.408934190655,
		"proj_gemm": 6.590276047451, "gate_ffn1_gemm": 40.638879677733, "act_gate": 2.752, "ffn2_gemm": 19.944905143226,
		"logits_gemm": 0.200426990849, "embedding_ar": 0.091637039008, "ar_1": 5.864770496488, "ar_2": 5.864770496488, "p2p": 0,
	})
	costs, err = m.DecodeOps(16, 8192)
	check(costs, err, 15.299531746045, map[string]float64{
		"embedding": 0.003042666667, "qkv_gemm": 1.017287148370, "attention": 4.910785697618, "proj_gemm": 0.876714653439,
		"gate_ffn1_gemm": 4.535163737795, "act_gate": 0.212480000000, "ffn2_gemm": 2.507395802646, "logits_gemm": 0.196797183288,
		"embedding_ar": 0.004914880022, "ar_1": 0.314552321434,
	})
	m = openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-30B-A3B", TP: 4, MoEEP: 4})
	costs, err = m.PrefillOps(1, 2048, 0)
	check(costs, err, 24.867610560195, map[string]float64{"router_gemm": 0.312704006831, "moe_pre_dispatch": 2.485140380859, "moe": 13.182259368896, "moe_post_dispatch": 2.485140380859})
	costs, err = m.DecodeOps(64, 2048)
	check(costs, err, 8.800135287906, map[string]float64{"moe": 5.552640151978, "logits_gemm": 0.047764727759})
	m = openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "deepseek-ai/DeepSeek-V3", TP: 8, MoEEP: 8})
	costs, err = m.PrefillOps(1, 2048, 0)
	check(costs, err, 139.089580600532, map[string]float64{"shared_gate_up_gemm": 5.070319900910, "shared_ffn2_gemm": 4.858853290478, "tp_allreduce": 17.837903952599})
	costs, err = m.DecodeOps(16, 8192)
	check(costs, err, 25.578743719770, map[string]float64{"mla_block": 9.509716821289, "moe_overlap": 14.452120407025})
	m = openModel(t, "h200_sxm", "trtllm", ModelConfig{Model: "Qwen/Qwen3-32B-FP8-Static-PerTensor"})
	costs, err = m.PrefillOps(1, 2048, 0)
	check(costs, err, 114.651564627363, map[string]float64{"qkv_gemm": 10.995199648539, "attention": 13.828112659847,
		"proj_gemm": 7.687816747030, "gate_ffn1_gemm": 51.073364067078, "ffn2_gemm": 22.058043197405, "logits_gemm": 0.385484307465})
}

// TestModes is the checked figures of spec aic-perfmodel 11.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		system, backend string
		c               ModelConfig
		prefill, decode float64
	}{
		{"b200_sxm", "trtllm", ModelConfig{Model: "openai/gpt-oss-120b", TP: 2, MoETP: 2, Mode: Hybrid}, 62.41249474304553, 9.392340946566367},
		{"h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2, Mode: SOL}, 77.35667300796763, 7.671536213333334},
		{"h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2, Mode: Empirical}, 103.9418309447572, 12.453215012040125},
		{"h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2, Mode: Hybrid}, 103.04499679505287, 12.37392844568119},
		{"h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2}, 103.04499679505287, 12.37392844568119},
		{"h100_pcie", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2, Mode: SOL}, 140.4609650733261, 18.629204991999995},
	} {
		t.Run(fmt.Sprintf("%s/%s/%v", c.system, c.backend, c.c.Mode), func(t *testing.T) {
			m := openModel(t, c.system, c.backend, c.c)
			if got := m.PrefillMs(1, 2048, 0); !exactly(got, c.prefill) {
				t.Errorf("prefill %v, want %v (%v)", got, c.prefill, m.Err())
			}
			if got := m.DecodeMs(16, 2048); !exactly(got, c.decode) {
				t.Errorf("decode %v, want %v (%v)", got, c.decode, m.Err())
			}
		})
	}
}

// TestMoreWorkedFigures are the single figures of spec aic-perfmodel 12.1 and 14.
func TestMoreWorkedFigures(t *testing.T) {
	m := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 16})
	if p, d := m.PrefillMs(1, 2048, 0), m.DecodeMs(16, 8192); !near6(p, 152.458896) || !near6(d, 15.229049) {
		t.Errorf("tp 16: %v %v", p, d)
	}
	m = openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", TP: 2, NextN: 2})
	if p, d := m.PrefillMs(1, 4096, 4096), m.DecodeMs(16, 8192); !near6(p, 247.253186) || !near6(d, 24.254395) {
		t.Errorf("nextn 2: %v %v", p, d)
	}
	off := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B"})
	on := openModel(t, "h200_sxm", "vllm", ModelConfig{Model: "Qwen/Qwen3-32B", DecodeQKNorm: true})
	if d := on.DecodeMs(16, 8192) - off.DecodeMs(16, 8192); !near6(d, 1.690952) {
		t.Errorf("the query-key norm adds %v, want 1.690952", d)
	}
}

// TestWorkedCapacity is spec aic-perfmodel 12.6.
func TestWorkedCapacity(t *testing.T) {
	for _, c := range []struct {
		model, system, backend, parallel string
		tokens, block                    int
		want                             Capacity
	}{
		{"Qwen/Qwen3-32B", "h200_sxm", "vllm", "tp_size=1", 8192, 16, Capacity{15616, 249864, 262144}},
		{"Qwen/Qwen3-32B", "h200_sxm", "vllm", "tp_size=4", 8192, 16, Capacity{109707, 1755323, 65536}},
		{"Qwen/Qwen3-32B", "h200_sxm", "vllm", "tp_size=8", 8192, 16, Capacity{235037, 3760597, 32768}},
		{"Qwen/Qwen3-32B", "h200_sxm", "vllm", "tp_size=1", 2048, 16, Capacity{15880, 254088, 262144}},
		{"Qwen/Qwen3-32B", "h100_sxm", "vllm", "tp_size=1", 8192, 16, Capacity{1562, 24994, 262144}},
		{"Qwen/Qwen3-32B", "b200_sxm", "trtllm", "tp_size=2", 8192, 32, Capacity{33371, 1067891, 131072}},
		{"Qwen/Qwen3-32B-FP8", "h200_sxm", "sglang", "tp_size=1", 8192, 1, Capacity{703750, 703750, 131072}},
		{"meta-llama/Meta-Llama-3.1-70B", "h100_sxm", "vllm", "tp_size=2;pp_size=2", 8192, 16, Capacity{14131, 226099, 163840}},
		{"Qwen/Qwen3-235B-A22B-FP8", "h200_sxm", "sglang", "tp_size=4;attention_dp_size=2;moe_ep_size=8", 8192, 64, Capacity{62223, 3982304, 24064}},
		{"openai/gpt-oss-120b", "h200_sxm", "vllm", "", 8192, 16, Capacity{119682, 1914927, 73728}},
		{"deepseek-ai/DeepSeek-V3", "h200_sxm", "vllm", "tp_size=8;moe_ep_size=8", 8192, 64, Capacity{17609, 1127011, 35136}},
		{"deepseek-ai/DeepSeek-V3", "b200_sxm", "trtllm", "tp_size=8;moe_ep_size=8", 8192, 32, Capacity{77336, 2474752, 35136}},
		{"Qwen/Qwen3-32B", "b200_sxm", "trtllm", "tp_size=4", 2048, 1, Capacity{2369694, 2369694, 65536}},
		{"moonshotai/Kimi-K2-Instruct", "b200_sxm", "trtllm", "tp_size=8;moe_ep_size=8", 8192, 1, Capacity{1367380, 1367380, 35136}},
		{"nvidia/DeepSeek-V3.1-NVFP4", "b200_sxm", "trtllm", "tp_size=4;moe_ep_size=4", 8192, 1, Capacity{2121989, 2121989, 35136}},
	} {
		config := ModelConfig{Model: c.model}
		if err := config.SetParallel(c.parallel); err != nil {
			t.Fatal(err)
		}
		m := openModel(t, c.system, c.backend, config)
		got, err := m.Capacity(CapacityConfig{BlockSize: c.block, MaxNumBatchedTokens: c.tokens})
		if err != nil || got != c.want {
			t.Errorf("%s %s on %s %s: %+v, want %+v (%v)", c.model, c.parallel, c.system, c.backend, got, c.want, err)
		}
	}
}

// TestErrorsNameWhatExists is spec aic-perfmodel 12.7 and 10.
func TestErrorsNameWhatExists(t *testing.T) {
	for _, c := range []struct {
		name  string
		open  Config
		model ModelConfig
		class error
		text  []string
	}{
		{"system", Config{System: "h300", Backend: "vllm"}, ModelConfig{}, ErrSystem, []string{"h300", "h200_sxm"}},
		{"backend", Config{System: "h200_sxm", Backend: "tgi"}, ModelConfig{}, ErrConfig, []string{"tgi", "sglang, trtllm, vllm"}},
		{"version", Config{System: "h200_sxm", Backend: "vllm", Version: "0.19.0"}, ModelConfig{}, ErrVersion, []string{"0.19.0", "current 0.24.0", "next 0.27.0"}},
		{"previous", Config{System: "h200_sxm", Backend: "vllm", Version: "previous"}, ModelConfig{}, ErrVersion, []string{"previous", "current 0.24.0"}},
		{"next", Config{System: "h200_sxm", Backend: "vllm", Version: "next"}, ModelConfig{Model: "Qwen/Qwen3-32B"}, ErrVersion, []string{"0.27.0", "h200_sxm-vllm-0.24.0"}},
		{"no data", Config{System: "h100_pcie", Backend: "vllm"}, ModelConfig{Model: "Qwen/Qwen3-32B"}, ErrVersion, []string{"h100_pcie", "SOL"}},
		{"not embedded", Config{System: "gb200", Backend: "vllm"}, ModelConfig{Model: "Qwen/Qwen3-32B"}, ErrVersion, []string{"gb200", "h200_sxm-vllm-0.24.0"}},
		{"model", Config{System: "h200_sxm", Backend: "vllm"}, ModelConfig{Model: "acme/none"}, ErrModel, []string{"acme/none", "Qwen/Qwen3-32B"}},
		{"architecture", Config{System: "h200_sxm", Backend: "vllm"}, ModelConfig{Model: "google/gemma-4-26B-A4B"}, ErrModel, []string{"Gemma", "LlamaForCausalLM"}},
		{"heads", Config{System: "h200_sxm", Backend: "vllm"}, ModelConfig{Model: "Qwen/Qwen3-32B", TP: 3}, ErrConfig, []string{"num_heads 64 should be divisible by tp_size 3"}},
		{"width", Config{System: "h200_sxm", Backend: "vllm"}, ModelConfig{Model: "Qwen/Qwen3-30B-A3B", TP: 2}, ErrConfig, []string{"width mismatch", "= 2", "= 1"}},
		{"flops", Config{System: "h200_sxm", Backend: "vllm"}, ModelConfig{Model: "Qwen/Qwen3-32B", GEMM: "nvfp4"}, ErrFlops, []string{"missing system flops", "fp4_tc_flops"}},
		{"mode", Config{System: "h200_sxm", Backend: "vllm"}, ModelConfig{Model: "Qwen/Qwen3-32B", GEMM: "fp5"}, ErrConfig, []string{"fp5", "fp8_block"}},
		{"lane", Config{System: "h200_sxm", Backend: "vllm"}, ModelConfig{Model: "Qwen/Qwen3-32B", AttentionBackend: "fa9"}, ErrConfig, []string{"fa9", "triton"}},
		{"block", Config{System: "h200_sxm", Backend: "vllm"}, ModelConfig{Model: "Qwen/Qwen3-30B-A3B-FP8", TP: 4, MoETP: 4}, ErrConfig, []string{"fp8 block"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, err := Open(c.open)
			if err == nil {
				_, err = NewModel(db, c.model)
			}
			if !errors.Is(err, c.class) {
				t.Fatalf("error %v, want class %v", err, c.class)
			}
			for _, w := range c.text {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not name %q", err, w)
				}
			}
		})
	}
}

func TestMissingDataStopsOnePhase(t *testing.T) {
	m := openModel(t, "b200_sxm", "trtllm", ModelConfig{Model: "deepseek-ai/DeepSeek-V3", TP: 8, MoEEP: 8})
	if v := m.DecodeMs(16, 8192); math.IsNaN(v) || m.Err() != nil {
		t.Errorf("decode: %v, %v", v, m.Err())
	}
	v := m.PrefillMs(1, 128, 0)
	if err := m.Err(); !math.IsNaN(v) || !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "context_mla_block") || !strings.Contains(err.Error(), "attention/KV fp8/fp8 (measured: bfloat16/bfloat16") || !strings.Contains(err.Error(), "HYBRID") {
		t.Errorf("prefill: %v, %v", v, m.Err())
	}
}
