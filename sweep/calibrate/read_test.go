package calibrate

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/internal/document"
)

// Two requests in each form: TTFT of 100 and 120 ms, 11 and 21 tokens, 10 ms each.
const (
	aiperfText = `{"metadata":{"request_start_ns":1000000000,"benchmark_phase":"warmup"},"metrics":{}}
{"metadata":{"request_start_ns":2000000000,"benchmark_phase":"profiling"},"metrics":{"input_sequence_length":{"value":500,"unit":"tokens"},"output_sequence_length":{"value":11,"unit":"tokens"},"time_to_first_token":{"value":100.0,"unit":"ms"},"request_latency":{"value":200.0,"unit":"ms"},"inter_chunk_latency":{"value":[10,10],"unit":"ms"}},"error":null}
{"metadata":{"request_start_ns":2050000000,"benchmark_phase":"profiling"},"metrics":{"input_sequence_length":{"value":700},"output_sequence_length":{"value":21},"time_to_first_token":{"value":120},"request_latency":{"value":320}}}
{"metadata":{"request_start_ns":2050000000,"benchmark_phase":"profiling","was_cancelled":true},"metrics":{},"error":{"code":499}}
`
	vllmText = `{"backend":"vllm","max_concurrency":2,"request_rate":"inf","completed":2,"failed":1,"duration":0.37,"total_input_tokens":1200,"total_output_tokens":32,
"mean_ttft_ms":110,"mean_tpot_ms":10,"output_throughput":86.5,"input_lens":[500,700,9],"output_lens":[11,21,0],"ttfts":[0.1,0.12,0],
"itls":[[0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01],[0.2],[]],"errors":["","","timeout"]}`
	sglangText = `{"backend":"sglang","random_range_ratio":0.5,"random_input_len":1000,"random_output_len":100,"max_concurrency":4,"completed":40,"total_input_tokens":30000,"total_output_tokens":3000,"total_output_tokens_retokenized":2999,"mean_ttft_ms":90,"mean_tpot_ms":8,"output_throughput":400}

{"backend":"sglang","random_range_ratio":1,"random_input_len":1000,"random_output_len":100,"max_concurrency":8,"completed":80,"total_input_tokens":80000,"total_output_tokens":8000,"mean_ttft_ms":99,"mean_tpot_ms":9,"output_throughput":700}
`
	scrapeText = `# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
vllm:prompt_tokens_total{model_name="m"} 1000
vllm:generation_tokens_total{model_name="m"} 100
vllm:time_to_first_token_seconds_sum{model_name="m"} 1
vllm:time_to_first_token_seconds_count{model_name="m"} 10
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10
vllm:request_time_per_output_token_seconds_sum{model_name="m"} 0.1
vllm:request_time_per_output_token_seconds_count{model_name="m"} 10
vllm:num_preemptions_total{model_name="m"} 3
`
	scrapeLater = `vllm:prompt_tokens_total{model_name="m"} 21000
vllm:generation_tokens_total{model_name="m"} 2100
vllm:time_to_first_token_seconds_sum{model_name="m"} 3
vllm:time_to_first_token_seconds_count{model_name="m"} 30
vllm:request_time_per_output_token_seconds_sum{model_name="m"} 0.3
vllm:request_time_per_output_token_seconds_count{model_name="m"} 30
vllm:num_preemptions_total{model_name="m"} 5
vllm:prefix_cache_hits_total 5000
vllm:prefix_cache_queries_total 20000
`
)

func read(t *testing.T, s Source, files map[string]string) []Run {
	t.Helper()
	runs, err := ReadRuns(s, func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("no such file")
	})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func TestFormatsGiveTheSameRequests(t *testing.T) {
	for _, c := range []struct {
		path, text  string
		concurrency int
		failed      int
	}{{"profile_export.jsonl", aiperfText, 2, 1}, {"vllm.json", vllmText, 2, 1}} {
		r := read(t, Source{Path: c.path}, map[string]string{c.path: c.text, "profile_export_aiperf.json": `{"input_config":{"loadgen":{"concurrency":2}}}`})[0]
		near(t, c.path+" TTFT", r.Measured.TTFTMs, 110, 1e-9)
		near(t, c.path+" TPOT", r.Measured.TPOTMs, 10, 1e-9)
		if r.Load.Concurrency != c.concurrency || r.Failed != c.failed || len(r.Load.Input) != 2 || r.Load.Input[1] != 700 || r.Load.Output[0] != 11 || r.Load.StartMs != nil {
			t.Errorf("%s: %+v", c.path, r)
		}
	}
	open := read(t, Source{Path: "profile_export.jsonl"}, map[string]string{"profile_export.jsonl": aiperfText})[0]
	if open.Load.Concurrency != 0 || len(open.Load.StartMs) != 2 || open.Load.StartMs[1] != 50 {
		t.Errorf("without a concurrency the recorded times count: %+v", open.Load)
	}
}

func TestSGLangLinesAreRunsOfDrawnLengths(t *testing.T) {
	runs := read(t, Source{Path: "bench.jsonl"}, map[string]string{"bench.jsonl": sglangText})
	if len(runs) != 2 || runs[1].Name != "bench.jsonl:3" || runs[0].ServerTokens != 3000 || runs[0].ClientTokens != 2999 {
		t.Fatalf("%+v", runs)
	}
	low, high := int32(math.MaxInt32), int32(0)
	for _, n := range runs[0].Load.Input {
		low, high = min(low, n), max(high, n)
	}
	if low < 500 || high > 1000 || high-low < 300 || len(runs[0].Load.Input) != 40 {
		t.Errorf("lengths from %d to %d", low, high)
	}
	if runs[1].Load.Input[0] != 1000 || runs[1].Load.Output[79] != 100 {
		t.Error("a ratio of 1 draws nothing")
	}
}

func TestScrapesGiveTheirDifference(t *testing.T) {
	r := read(t, Source{Path: "a", After: "b", Concurrency: 4}, map[string]string{"a": scrapeText, "b": scrapeLater})[0]
	near(t, "TTFT", r.Measured.TTFTMs, 100, 1e-9)
	near(t, "TPOT", r.Measured.TPOTMs, 10, 1e-9)
	if len(r.Load.Input) != 20 || r.Load.Input[0] != 1000 || r.Load.Output[0] != 100 || r.Preemptions != 2 || r.PrefixHits != 0.25 {
		t.Errorf("%+v", r)
	}
}

func TestChecksRefuseMeasurements(t *testing.T) {
	sim := Figures{100, 20, 100}
	good := Run{Measured: Figures{110, 21, 100}, Preemptions: nan, ServerTokens: 100, ClientTokens: 101, Sent: 200, Failed: 1, MedianITLMs: 22}
	if c := checkRun(&good, &Outcome{}, sim); len(c) > 0 {
		t.Errorf("a good run: %v", c)
	}
	for kind, spoil := range map[string]func(r *Run, o *Outcome){
		"tokens":      func(r *Run, _ *Outcome) { r.ClientTokens = 110 },
		"failures":    func(r *Run, _ *Outcome) { r.Failed = 3 },
		"prefix":      func(r *Run, _ *Outcome) { r.PrefixHits = 0.5 },
		"speculation": func(r *Run, _ *Outcome) { r.Measured.TPOTMs = 12 },
		"chunks":      func(r *Run, _ *Outcome) { r.MedianITLMs = 50 },
		"kv":          func(r *Run, o *Outcome) { o.Preemptions, r.Preemptions = 9, 0 },
		"cold": func(r *Run, _ *Outcome) {
			for i := range 40 {
				r.Requests = append(r.Requests, Request{TTFTMs: 100})
				if i < coldRequests {
					r.Requests[i].TTFTMs = 900
				}
			}
		},
	} {
		r, o := good, Outcome{}
		spoil(&r, &o)
		checks := checkRun(&r, &o, sim)
		if len(checks) != 1 || checks[0].Kind != kind || !checks[0].Refuses {
			t.Errorf("%s: %v", kind, checks)
		}
		if refuse(checks, false) == nil || refuse(checks, true) != nil {
			t.Errorf("%s: only --force fits it", kind)
		}
	}
}

func TestBadFilesNameTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"":  "f:1: this is none",
		"{": "f:1: this is none",
		"isl,osl,concurrency,mean_ttft_ms,mean_tpot_ms\n1,1,1,1,1\n1,1,0,1,1\n": "f:3: concurrency must be",
		"isl,osl,concurrency,speed\n":                                           `f:1: unknown column "speed"`,
		"isl,osl,concurrency,mean_ttft_ms\n1,1,1,5\n":                           "no mean tpot_ms",
		strings.Replace(aiperfText, `"value":120`, `"value":-1`, 1):             "f:3: metrics.time_to_first_token.value",
		scrapeText: "@after=FILE",
		`{"total_input_tokens":5,"max_concurrency":1,"completed":1,"total_output_tokens":1}`: "no mean tpot_ms",
		`{"total_input_tokens":5,"max_concurrency":1,"ttfts":[1]}`:                           "one entry for each request",
	} {
		_, err := ReadRuns(Source{Path: "f"}, func(string) ([]byte, error) { return []byte(text), nil })
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, document.ErrInput) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{"": "names no file", "a@tp=x": "tp", "a@speed=1": "unknown option", "a@lengths=2..1": "LOW..HIGH"} {
		if _, err := ParseSource(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzReadRuns(f *testing.F) {
	for _, text := range []string{aiperfText, vllmText, sglangText, scrapeText, scrapeLater, "isl,osl,concurrency,lengths,mean_ttft_ms,mean_tpot_ms\n1024,8,4,uniform 0.8..1,121,13.91\n"} {
		f.Add([]byte(text), 0)
		f.Add([]byte(text), 4)
	}
	f.Fuzz(func(t *testing.T, text []byte, concurrency int) {
		s := Source{Path: "a", After: "a", Concurrency: max(concurrency%1024, 0)}
		runs, err := ReadRuns(s, func(string) ([]byte, error) { return text, nil })
		if err != nil {
			var at *document.Fault
			if !errors.As(err, &at) || at.Line < 1 {
				t.Errorf("a refusal without a position: %v", err)
			}
		}
		for i := range runs {
			if l := &runs[i].Load; len(l.Input) == 0 || len(l.Input) != len(l.Output) || l.StartMs == nil && l.Concurrency < 1 {
				t.Errorf("a run without load: %+v", runs[i])
			}
		}
	})
}
