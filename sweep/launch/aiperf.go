package launch

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// measure is the AIPerf command that offers the same load.
func (d *Deployment) measure(w *resolved.Workload) {
	d.AIPerf = []string{"aiperf", "profile", "--model", d.Model, "--url", "localhost:8000", "--endpoint-type", "chat", "--streaming"}
	if w.Synthetic == nil {
		d.measureTrace(w.Trace)
		return
	}
	s := w.Synthetic
	add := func(flag, value string) { d.AIPerf = append(d.AIPerf, flag, value) }
	add("--synthetic-input-tokens-mean", strconv.Itoa(s.InputTokens))
	add("--synthetic-input-tokens-stddev", "0")
	add("--output-tokens-mean", strconv.Itoa(s.OutputTokens))
	add("--output-tokens-stddev", "0")
	add("--extra-inputs", "ignore_eos:true")
	add("--request-count", strconv.Itoa(s.Requests))
	if s.Concurrency != nil {
		add("--concurrency", strconv.Itoa(*s.Concurrency))
	}
	speedup := 1.0
	if s.ArrivalSpeedup != nil {
		speedup = *s.ArrivalSpeedup
	}
	if s.RequestRate != nil {
		add("--request-rate", strconv.FormatFloat(*s.RequestRate*speedup, 'g', -1, 64))
		add("--request-rate-mode", "poisson")
	}
	if ms := s.ArrivalIntervalMs; ms != nil && *ms > 0 {
		add("--request-rate", strconv.FormatFloat(1000*speedup / *ms, 'g', -1, 64))
		add("--request-rate-mode", "constant")
	}
	if s.SharedPrefixRatio > 0 {
		add("--num-prefix-prompts", strconv.Itoa(s.NumPrefixGroups))
		add("--prefix-prompt-length", strconv.Itoa(int(float64(s.InputTokens)*s.SharedPrefixRatio)))
		d.Notes = append(d.Notes, "AIPerf puts the shared prefix before the prompt: lower the mean by it to keep the prompt's length")
	}
}

// measureTrace is the AIPerf command for a trace. A trace that is compressed, sped up
// or cut is converted first.
func (d *Deployment) measureTrace(w *resolved.Trace) {
	convert := []string{"dynosweep", "trace", "convert", "--format", w.Format}
	for _, f := range w.Trace {
		convert = append(convert, f.Path)
	}
	plain := len(w.Trace) == 1 && w.Format == "mooncake" && !strings.HasSuffix(w.Trace[0].Path, ".gz")
	speedup := 1.0
	if w.ArrivalSpeedup != nil && w.Concurrency == nil {
		speedup = *w.ArrivalSpeedup
	}
	if speedup != 1 {
		convert, plain = append(convert, "--speedup", strconv.FormatFloat(speedup, 'f', -1, 64)), false
	}
	if ms := w.MaxSimTimeMs; ms != nil && w.Concurrency == nil {
		convert, plain = append(convert, "--until-seconds", strconv.FormatFloat(*ms/1000*speedup, 'g', -1, 64)), false
	} else if ms != nil {
		d.Notes = append(d.Notes, fmt.Sprintf("the simulation stopped at %g s: stop AIPerf there", *ms/1000))
	}
	switch w.Format {
	case "agentic_mooncake", "weka", "mooncake-delta":
		d.Notes = append(d.Notes, "aiperf.sh cannot offer this load: in "+w.Format+" traces requests depend on earlier ones, which AIPerf's mooncake_trace cannot express")
	}
	d.AIPerf = append(d.AIPerf, "--custom-dataset-type", "mooncake_trace")
	if b := w.TraceBlockSize; b != nil && *b != 512 {
		size := strconv.Itoa(*b)
		d.AIPerf = append(d.AIPerf, "--isl-block-size", size)
		convert = append(convert, "--block-size", size)
	}
	if w.Concurrency != nil {
		d.AIPerf = append(d.AIPerf, "--concurrency", strconv.Itoa(*w.Concurrency))
	} else {
		d.AIPerf = append(d.AIPerf, "--fixed-schedule")
	}
	if plain {
		d.AIPerf = append(d.AIPerf, "--input-file", w.Trace[0].Path)
	} else {
		d.Convert = convert
	}
}
