package calibrate

import (
	"encoding/json"
	"path/filepath"
)

// aiperfLine is one request of AIPerf's profile_export.jsonl. Times of metrics are ms.
type aiperfLine struct {
	Metadata struct {
		StartNs   *float64 `json:"request_start_ns"`
		Phase     string   `json:"benchmark_phase"`
		Cancelled bool     `json:"was_cancelled"`
	} `json:"metadata"`
	Metrics map[string]struct {
		Value json.RawMessage `json:"value"`
	} `json:"metrics"`
	Error json.RawMessage `json:"error"`
}

// value is a metric that is one number.
func (l *aiperfLine) value(name string) (v float64, ok bool) {
	return v, json.Unmarshal(l.Metrics[name].Value, &v) == nil
}

// readAIPerf reads profile_export.jsonl, and the concurrency from
// profile_export_aiperf.json where that lies beside it.
func readAIPerf(s Source, text []byte, files Files) ([]Run, error) {
	r := Run{Name: s.Path, Preemptions: nan, Load: Load{Concurrency: s.Concurrency}}
	err := lines(text, func(n int, line []byte) error {
		var l aiperfLine
		if err := json.Unmarshal(line, &l); err != nil {
			return fault(s.Path, n, "no record of AIPerf: %v", err)
		}
		if l.Metadata.Phase != "" && l.Metadata.Phase != "profiling" {
			return nil
		}
		r.Sent++
		if l.Metadata.Cancelled || len(l.Error) > 0 && string(l.Error) != "null" {
			r.Failed++
			return nil
		}
		q := Request{}
		var input, output float64
		for _, k := range []struct {
			name string
			dst  *float64
			most float64
		}{{"input_sequence_length", &input, maxTokens}, {"output_sequence_length", &output, maxTokens},
			{"time_to_first_token", &q.TTFTMs, maxMs}, {"request_latency", &q.LatencyMs, maxMs}} {
			v, ok := l.value(k.name)
			if !ok || !(v >= 0 && v <= k.most) {
				return fault(s.Path, n, "metrics.%s.value must be a number from 0 to %g", k.name, k.most)
			}
			*k.dst = v
		}
		if l.Metadata.StartNs == nil || !(*l.Metadata.StartNs >= 0 && *l.Metadata.StartNs < 1e19) {
			return fault(s.Path, n, "metadata.request_start_ns is missing or out of range")
		}
		if q.LatencyMs < q.TTFTMs {
			return fault(s.Path, n, "request_latency is below time_to_first_token")
		}
		q.StartMs, q.Input, q.Output = *l.Metadata.StartNs/1e6, int32(input), int32(output)
		r.Requests = append(r.Requests, q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if r.Load.Concurrency == 0 {
		r.Load.Concurrency = aiperfConcurrency(s, files)
	}
	return []Run{r}, nil
}

// aiperfConcurrency is what the summary beside the records says, 0 without one.
func aiperfConcurrency(s Source, files Files) int {
	text, err := files(filepath.Join(filepath.Dir(s.Path), "profile_export_aiperf.json"))
	if err != nil {
		return 0
	}
	var doc struct {
		Input struct {
			Loadgen struct {
				Concurrency int      `json:"concurrency"`
				Rate        *float64 `json:"request_rate"`
			} `json:"loadgen"`
		} `json:"input_config"`
	}
	if json.Unmarshal(text, &doc) != nil || doc.Input.Loadgen.Rate != nil || doc.Input.Loadgen.Concurrency < 0 {
		return 0
	}
	return min(doc.Input.Loadgen.Concurrency, maxTokens)
}
