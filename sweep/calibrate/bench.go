package calibrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Limits of what files may say.
const (
	maxTokens = math.MaxInt32 / 2
	maxMs     = 1e12
)

var nan = math.NaN()

// benchResult is one result of vllm bench serve or of SGLang's bench_serving. Lists are
// per request, times of lists in seconds.
type benchResult struct {
	MaxConcurrency   *int        `json:"max_concurrency"`
	Completed        int         `json:"completed"`
	Failed           int         `json:"failed"`
	Duration         float64     `json:"duration"`
	TotalInput       float64     `json:"total_input_tokens"`
	TotalOutput      float64     `json:"total_output_tokens"`
	Retokenized      float64     `json:"total_output_tokens_retokenized"`
	OutputThroughput float64     `json:"output_throughput"`
	MeanTTFTMs       float64     `json:"mean_ttft_ms"`
	MeanTPOTMs       float64     `json:"mean_tpot_ms"`
	InputLens        []float64   `json:"input_lens"`
	OutputLens       []float64   `json:"output_lens"`
	TTFTs            []float64   `json:"ttfts"`
	ITLs             [][]float64 `json:"itls"`
	StartTimes       []float64   `json:"start_times"`
	Errors           []string    `json:"errors"`

	RandomInput  float64 `json:"random_input_len"`
	RandomOutput float64 `json:"random_output_len"`
	RandomRange  float64 `json:"random_range_ratio"`
}

// readBench reads results one after the other: one run each.
func readBench(s Source, format string, text []byte) ([]Run, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var out []Run
	for {
		var b benchResult
		at := int(dec.InputOffset())
		at += len(text[at:]) - len(bytes.TrimLeft(text[at:], " \t\r\n"))
		line := 1 + bytes.Count(text[:at], []byte("\n"))
		err := dec.Decode(&b)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fault(s.Path, line, "no result of %s: %v", format, err)
		}
		r, err := b.run(s, format)
		if err != nil {
			return nil, fault(s.Path, line, "%v", err)
		}
		r.Name = s.Path
		if len(out) > 0 {
			r.Name = fmt.Sprintf("%s:%d", s.Path, line)
		}
		out = append(out, *r)
	}
}

func (b *benchResult) run(s Source, format string) (*Run, error) {
	r := &Run{Preemptions: nan, Load: Load{Concurrency: s.Concurrency}, Failed: b.Failed, Sent: b.Completed + b.Failed}
	if r.Load.Concurrency == 0 && b.MaxConcurrency != nil && *b.MaxConcurrency > 0 {
		r.Load.Concurrency = min(*b.MaxConcurrency, maxTokens)
	}
	if format == FormatSGLang && b.Retokenized > 0 {
		r.ServerTokens, r.ClientTokens = int64(min(b.TotalOutput, 1e15)), int64(min(b.Retokenized, 1e15))
	}
	if len(b.TTFTs) > 0 {
		return r, b.requests(r)
	}
	if b.Completed < 1 || b.Completed > maxRequests || !(b.TotalInput >= 1) || !(b.TotalOutput >= 1) {
		return nil, errors.New("no completed requests, or no token totals")
	}
	input, output := b.TotalInput/float64(b.Completed), b.TotalOutput/float64(b.Completed)
	low, high := s.Low, s.High
	switch {
	case low > 0:
	case format == FormatSGLang && b.RandomInput > 0 && b.RandomOutput > 0 && b.RandomRange > 0 && b.RandomRange <= 1:
		input, output, low, high = b.RandomInput, b.RandomOutput, b.RandomRange, 1
	default:
		r.Notices = append(r.Notices, "the file has no lengths of single requests (--save-detailed, --output-details): every request gets the mean; add @lengths=LOW..HIGH if the client drew them")
	}
	if input > maxTokens || output > maxTokens {
		return nil, errors.New("token totals are too large")
	}
	load := drawn(input, output, low, high, b.Completed)
	r.Load.Input, r.Load.Output = load.Input, load.Output
	r.Measured = Figures{b.MeanTTFTMs, b.MeanTPOTMs, b.OutputThroughput}
	if r.Load.Concurrency == 0 {
		return nil, errors.New("without single requests the run needs max_concurrency, or @concurrency=N")
	}
	return r, nil
}

// requests reads the lists.
func (b *benchResult) requests(r *Run) error {
	n := len(b.TTFTs)
	if len(b.InputLens) != n || len(b.OutputLens) != n || len(b.ITLs) != n || b.StartTimes != nil && len(b.StartTimes) != n {
		return errors.New("input_lens, output_lens, ttfts, itls and start_times must have one entry for each request")
	}
	var gaps []float64
	for i := range n {
		if i < len(b.Errors) && b.Errors[i] != "" || b.OutputLens[i] == 0 {
			if r.Sent == b.Completed { // the totals do not count failures
				r.Failed++
			}
			continue
		}
		q := Request{TTFTMs: b.TTFTs[i] * 1000, Input: 0, Output: 0}
		q.LatencyMs = q.TTFTMs
		for _, gap := range b.ITLs[i] {
			q.LatencyMs += gap * 1000
			gaps = append(gaps, gap*1000)
		}
		if b.StartTimes != nil {
			q.StartMs = b.StartTimes[i] * 1000
		}
		if !(q.TTFTMs >= 0 && q.LatencyMs >= q.TTFTMs && q.LatencyMs <= maxMs && q.StartMs-q.StartMs == 0) {
			return fmt.Errorf("request %d: times must be finite and not negative", i+1)
		}
		if !(b.InputLens[i] >= 1 && b.InputLens[i] <= maxTokens && b.OutputLens[i] >= 1 && b.OutputLens[i] <= maxTokens) {
			return fmt.Errorf("request %d: lengths must be from 1 to %d", i+1, maxTokens)
		}
		q.Input, q.Output = int32(b.InputLens[i]), int32(b.OutputLens[i])
		r.Requests = append(r.Requests, q)
	}
	r.Sent = max(r.Sent, n)
	if len(gaps) > 0 {
		slices.Sort(gaps)
		r.MedianITLMs = gaps[len(gaps)/2]
	}
	if b.StartTimes == nil {
		if r.Load.Concurrency == 0 {
			return errors.New("without start_times and max_concurrency the load is not known: add @concurrency=N")
		}
		r.dispatch()
	}
	return nil
}

// dispatch gives requests of a closed loop the start times that its concurrency implies.
func (r *Run) dispatch() {
	free := make([]float64, min(r.Load.Concurrency, len(r.Requests)))
	for i := range r.Requests {
		k := 0
		for j := range free {
			if free[j] < free[k] {
				k = j
			}
		}
		r.Requests[i].StartMs = free[k]
		free[k] += r.Requests[i].LatencyMs
	}
}
