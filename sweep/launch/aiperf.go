package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// measure is the AIPerf command that offers the same load.
func (d *Deployment) measure(w map[string]any) {
	d.AIPerf = []string{"aiperf", "profile", "--model", d.Model, "--url", "localhost:8000", "--endpoint-type", "chat", "--streaming"}
	text := func(key string) string {
		switch v := w[key].(type) {
		case float64:
			return strconv.FormatFloat(v, 'f', -1, 64)
		case string:
			return v
		}
		return ""
	}
	add := func(flag, value string) {
		if value != "" {
			d.AIPerf = append(d.AIPerf, flag, value)
		}
	}
	if text("type") != "synthetic" {
		d.measureTrace(w, text)
		return
	}
	add("--synthetic-input-tokens-mean", text("input_tokens"))
	add("--synthetic-input-tokens-stddev", "0")
	add("--output-tokens-mean", text("output_tokens"))
	add("--output-tokens-stddev", "0")
	add("--extra-inputs", "ignore_eos:true")
	add("--request-count", text("requests"))
	add("--concurrency", text("concurrency"))
	speedup, _ := w["arrival_speedup"].(float64)
	if rate, ok := w["request_rate"].(float64); ok {
		add("--request-rate", strconv.FormatFloat(rate*speedup, 'g', -1, 64))
		add("--request-rate-mode", "poisson")
	}
	if ms, ok := w["arrival_interval_ms"].(float64); ok && ms > 0 {
		add("--request-rate", strconv.FormatFloat(1000*speedup/ms, 'g', -1, 64))
		add("--request-rate-mode", "constant")
	}
	if ratio, ok := w["shared_prefix_ratio"].(float64); ok && ratio > 0 {
		d.AIPerf = append(d.AIPerf, "--num-prefix-prompts", text("num_prefix_groups"))
		if n, ok := w["input_tokens"].(float64); ok {
			add("--prefix-prompt-length", strconv.Itoa(int(n*ratio)))
		}
		d.Notes = append(d.Notes, "AIPerf puts the shared prefix before the prompt: lower the mean by it to keep the prompt's length")
	}
}

// measureTrace is the AIPerf command for a trace. A trace that is compressed, sped up
// or cut is converted first.
func (d *Deployment) measureTrace(w map[string]any, text func(string) string) {
	var paths []string
	files, _ := w["trace"].([]any)
	for _, f := range files {
		m, _ := f.(map[string]any)
		path, _ := m["path"].(string)
		paths = append(paths, path)
	}
	convert := append([]string{"dynosweep", "trace", "convert", "--format", text("format")}, paths...)
	plain := len(paths) == 1 && text("format") == "mooncake" && !strings.HasSuffix(paths[0], ".gz")
	speedup, _ := w["arrival_speedup"].(float64)
	if speedup != 1 && speedup > 0 && text("concurrency") == "" {
		convert, plain = append(convert, "--speedup", text("arrival_speedup")), false
	}
	if ms, ok := w["max_sim_time_ms"].(float64); ok && text("concurrency") == "" {
		if speedup <= 0 {
			speedup = 1
		}
		convert, plain = append(convert, "--until-seconds", strconv.FormatFloat(ms/1000*speedup, 'g', -1, 64)), false
	} else if ok {
		d.Notes = append(d.Notes, fmt.Sprintf("the simulation stopped at %g s: stop AIPerf there", ms/1000))
	}
	switch format := text("format"); format {
	case "agentic_mooncake", "weka", "mooncake-delta":
		d.Notes = append(d.Notes, "aiperf.sh cannot offer this load: in "+format+" traces requests depend on earlier ones, which AIPerf's mooncake_trace cannot express")
	}
	d.AIPerf = append(d.AIPerf, "--custom-dataset-type", "mooncake_trace")
	if b := text("trace_block_size"); b != "" && b != "512" {
		d.AIPerf = append(d.AIPerf, "--isl-block-size", b)
		convert = append(convert, "--block-size", b)
	}
	if c := text("concurrency"); c != "" {
		d.AIPerf = append(d.AIPerf, "--concurrency", c)
	} else {
		d.AIPerf = append(d.AIPerf, "--fixed-schedule")
	}
	if plain {
		d.AIPerf = append(d.AIPerf, "--input-file", paths[0])
	} else {
		d.Convert = convert
	}
}
