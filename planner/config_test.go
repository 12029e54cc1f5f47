package planner

import (
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
)

func parse(text string) (Config, []string, error) {
	return ReadJSON("planner.json", []byte(text))
}

func mustParse(t testing.TB, text string) Config {
	t.Helper()
	cfg, _, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestEmptyDocumentGivesTheDefaults(t *testing.T) {
	got := mustParse(t, "{}")
	want := DefaultConfig()
	want.ThroughputScaling, want.LoadScaling = false, true // an easy target
	want.ScaleIntervalS = 5
	want.Budget.MinPrefill, want.Budget.MinDecode = 1, 1
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestKeysReachTheirFields(t *testing.T) {
	c := mustParse(t, `{"mode":"agg","optimization_target":"sla","enable_load_scaling":true,"ttft":400,"itl_ms":"25",
		"throughput_adjustment_interval":"60","load_adjustment_interval_seconds":10.0,"min_endpoint":2,
		"max_gpu_budget":-1,"min_gpu_budget":3,"load_predictor":"kalman","kalman_r":2,"hysteresis_ticks":3,
		"fpm_sample_bucket_size":4,"max_num_fpm_samples":32,"load_min_observations":3,"decode_engine_num_gpu":2,
		"report_interval_hours":null,"live_dashboard_port":0,"load_predictor_warmup_trace":null}`)
	if c.TTFTMs != 400 || c.ITLMs != 25 || c.ThroughputIntervalS != 60 || c.LoadIntervalS != 10 || c.ScaleIntervalS != 10 {
		t.Errorf("times: %+v", c)
	}
	if c.Budget != (BudgetConfig{MaxGPUs: -1, MinGPUs: 3, MaxReplicaStep: 8, MinPrefill: 2, MinDecode: 2}) {
		t.Errorf("budget: %+v", c.Budget)
	}
	if c.Predictor.Kind != "kalman" || c.Predictor.KalmanR != 2 || c.HysteresisTicks != 3 || c.Recorder.On() {
		t.Errorf("predictor, hysteresis, recorder: %+v", c)
	}
	if !c.ThroughputScaling || !c.LoadScaling {
		t.Error("both loops were asked for")
	}
	c = mustParse(t, `{"optimization_target":"load","prefill_scale_up_queue_tokens":10,"prefill_scale_down_queue_tokens":0,
		"decode_scale_up_kv_rate":90,"decode_scale_down_kv_rate":70.5,"prefill_min_endpoint":3}`)
	if c.Thresholds != (ThresholdConfig{10, 0, 90, 70.5}) || c.Budget.MinPrefill != 3 || c.Budget.MinDecode != 1 {
		t.Errorf("%+v", c)
	}
}

func TestScaleIntervalIsTheGreatestCommonDivisor(t *testing.T) {
	sla := `{"optimization_target":"sla","enable_load_scaling":true,`
	for text, want := range map[string]float64{
		`{}`: 5,
		`{"load_adjustment_interval_seconds":7,"throughput_adjustment_interval_seconds":20}`:                  7,
		sla + `"load_adjustment_interval_seconds":12,"throughput_adjustment_interval_seconds":20}`:            4,
		`{"load_adjustment_interval_seconds":6,"scheduling":{"scale_interval_seconds":2}}`:                    2,
		`{"optimization_target":"sla","load_adjustment_interval_seconds":9,"enable_throughput_scaling":true}`: 9,
	} {
		if got := mustParse(t, text).ScaleIntervalS; got != want {
			t.Errorf("%s: %v s, want %v", text, got, want)
		}
	}
}

func TestFaultsNameTheirPath(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:               "planner.json:1: the Planner's configuration must be a mapping, got sequence",
		`{"mode":"agg"} x`: "planner.json:1: ",
		"{\n\"mode\":\"agg\",\n\"mode\":\"agg\"}":           "planner.json:3: mode: duplicate field `mode`",
		"{\n \"mode\": 3}":                                  "planner.json:2: mode: must be one of",
		`{"max_gpu":3}`:                                     "planner.json:1: max_gpu: unknown key (did you mean `max_gpu_budget`?)",
		`{"scheduling":{"interval":3}}`:                     "scheduling.interval: unknown key",
		`{"scheduling":{"external_plugins":[{}]}}`:          "scheduling.external_plugins: custom plug-ins",
		`{"aic_interpolation":{"prefill_pick":{"tp":1.5}}}`: "aic_interpolation.prefill_pick.tp: must be an integer, got 1.5",
		`{"aic_perf_model":{}}`:                             "aic_perf_model: was removed: use ais_perf_model.roles",
		`{"ais_perf_model":{"roles":{}}}`:                   "ais_perf_model: native performance models",
		`{"mode":"prefill"}`:                                "mode: must be agg or disagg in a replay, got prefill",
		`{"ttft_ms":0}`:                                     "ttft_ms: must be > 0, got 0",
		`{"ttft_ms":1,"ttft":1}`:                            "ttft: is an older name of ttft_ms",
		`{"min_endpoint":1.5}`:                              "min_endpoint: must be an integer, got 1.5",
		`{"min_endpoint":true}`:                             "min_endpoint: must be a number",
		`{"advisory":1}`:                                    "advisory: must be true or false",
		`{"mode":"agg","decode_min_endpoint":2}`:            "decode_min_endpoint: is refused in mode agg",
		`{"mode":"agg","prefill_min_endpoint":2}`:           "prefill_min_endpoint: is refused in mode agg",
		`{"fpm_sample_bucket_size":15}`:                     "fpm_sample_bucket_size: must be a perfect square, got 15",
		`{"load_scaling_down_sensitivity":101}`:             "load_scaling_down_sensitivity: must be in 0..100, got 101",
		`{"load_adjustment_interval_seconds":0}`:            "load_adjustment_interval_seconds: must be > 0",
		`{"optimization_target":"load","mode":"agg"}`:       "decode_scale_down_kv_rate: is required",
		`{"optimization_target":"load"}`:                    "prefill_scale_up_queue_tokens: is required",
		`{"optimization_target":"load","mode":"agg","decode_scale_up_kv_rate":50,"decode_scale_down_kv_rate":50}`: "decode_scale_up_kv_rate: must be > decode_scale_down_kv_rate, got 50 <= 50",
		`{"optimization_target":"sla","enable_throughput_scaling":false}`:                                         "enable_throughput_scaling: or enable_load_scaling",
		`{"optimization_target":"sla","throughput_adjustment_interval_seconds":0}`:                                "throughput_adjustment_interval_seconds: must be > 0",
		`{"scheduling":{"scale_interval_seconds":2}}`:                                                             "scheduling.scale_interval_seconds: must divide load_adjustment_interval_seconds, got 2 and 5",
		`{"optimization_target":"sla","enable_load_scaling":true,"throughput_adjustment_interval_seconds":5}`:     "must be shorter than throughput_adjustment_interval_seconds, got 5 >= 5",
		`{"report_interval_hours":-1}`:                                                                            "report_interval_hours: must be > 0",
		`{"enable_power_awareness":true}`:                                                                         "enable_power_awareness: needs total_gpu_power_limit",
		`{"environment":"global-planner"}`:                                                                        "global_planner_namespace: is required",
		`{"optimization_target":"sla","load_min_observations":99}`:                                                "load_min_observations: must be <= max_num_fpm_samples, got 99 > 64",
		`{"total_gpu_power_limit":0}`:                                                                             "total_gpu_power_limit: must be >= 1",
		`{"hysteresis_ticks":-1}`:                                                                                 "hysteresis_ticks: must be >= 0",
		`{"min_endpoint":1e9}`:                                                                                    "min_endpoint: must be <= 1048576, got 1000000000",
		`{"decode_min_endpoint":1e9}`:                                                                             "decode_min_endpoint: must be <= 1048576",
		`{"min_gpu_budget":1e9}`:                                                                                  "min_gpu_budget: must be <= 1048576",
		`{"scheduling":{"scale_interval_seconds":1e-6}}`:                                                          "scheduling.scale_interval_seconds: must be >= 0.001, got 1e-06",
		`{"max_gpu_buget":3}`:                                                                                     "max_gpu_buget: unknown key (did you mean `max_gpu_budget`?)",
		`{"optimisation_target":"sla"}`:                                                                           "unknown key (did you mean `optimization_target`?)",
		`{"scheduling":{"scale_intervall_seconds":5}}`:                                                            "unknown key (did you mean `scale_interval_seconds`?)",
		`{"colour":"red"}`:                                                                                        "colour: unknown key",
		`{"mode":null}`:                                                                                           "mode: must be one of [disagg agg prefill decode], got null",
		`{"load_predictor":"lstm"}`:                                                                               "load_predictor: must be one of",
	} {
		_, _, err := parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "planner.json:") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAllFaultsAreReportedAtOnceSorted(t *testing.T) {
	n, err := document.ParseYAML("s.yaml", []byte("points:\n  planner:\n    ttft_ms: -1\n    backend: vlm\n    mode: y\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := &document.Faults{Origin: "s.yaml"}
	Read(n.Find("points.planner"), f)
	err = f.Err()
	want := "s.yaml:3: points.planner.ttft_ms: must be > 0, got -1\n" +
		"s.yaml:4: points.planner.backend: must be one of [vllm sglang trtllm mocker], got vlm (did you mean `vllm`?)\n" +
		"s.yaml:5: points.planner.mode: must be one of [disagg agg prefill decode], got y"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestKeysWithoutEffectGiveOneNoticeEach(t *testing.T) {
	_, notices, err := parse(`{"namespace":"x","no_correction":true,"metric_pulling_prometheus_endpoint":"x",
		"aic_interpolation":{"isl":100,"prefill_pick":{"tp":2}},"advisory":false,"ttft_ms":100,
		"scheduling":{"tick_max_duration_seconds":5,"scale_interval_seconds":1}}`)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(notices, "\n")
	for _, key := range []string{"namespace", "no_correction", "metric_pulling_prometheus_endpoint", "aic_interpolation",
		"advisory", "scheduling.tick_max_duration_seconds", "ttft_ms"} {
		if strings.Count(got, key+":") != 1 {
			t.Errorf("%s: not exactly one notice in\n%s", key, got)
		}
	}
	if len(notices) != 7 {
		t.Errorf("%d notices:\n%s", len(notices), got)
	}
}

func TestDigestIgnoresReportsAndKeyOrder(t *testing.T) {
	a := mustParse(t, `{"mode":"agg","max_gpu_budget":4,"live_dashboard_port":0}`)
	b := mustParse(t, `{"report_interval_hours":1,"max_gpu_budget":4,"mode":"agg"}`)
	c := mustParse(t, `{"mode":"agg","max_gpu_budget":5}`)
	if a.Digest() != b.Digest() || a.Digest() == c.Digest() {
		t.Error("digest follows the report keys, or not the budget")
	}
}

func FuzzDocument(f *testing.F) {
	f.Add(`{"mode":"agg","optimization_target":"load","decode_scale_up_kv_rate":90,"decode_scale_down_kv_rate":70}`)
	f.Add(`{"scheduling":{"scale_interval_seconds":0.5},"min_endpoint":"3"}`)
	f.Add(`{"aic_interpolation":{"prefill_pick":null}}`)
	f.Fuzz(func(t *testing.T, text string) {
		cfg, _, err := parse(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "planner.json:") {
				t.Errorf("no position: %v", err)
			}
			return
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
	})
}
