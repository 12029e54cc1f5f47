package calibrate

import (
	"math"
	"strconv"
	"strings"
)

// Names of counters that two scrapes are compared by, per engine; several are spellings
// of one.
var (
	ttftNames       = []string{"vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"}
	tpotNames       = []string{"vllm:request_time_per_output_token_seconds", "vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds", "sglang:time_per_output_token_seconds", "sglang:inter_token_latency_seconds"}
	promptNames     = []string{"vllm:prompt_tokens_total", "sglang:prompt_tokens_total"}
	generationNames = []string{"vllm:generation_tokens_total", "sglang:generation_tokens_total"}
	hitNames        = []string{"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total"}
	queryNames      = []string{"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total"}
	preemptionNames = []string{"vllm:num_preemptions_total", "sglang:num_retracted_reqs_total"}
)

// readScrapes reads two scrapes of an engine's metrics, before and after a run.
func readScrapes(s Source, text []byte, files Files) ([]Run, error) {
	if s.After == "" {
		return nil, fault(s.Path, 1, "one scrape has no differences: name the one after the run as @after=FILE")
	}
	if s.Concurrency == 0 {
		return nil, fault(s.Path, 1, "scrapes do not tell the concurrency: add @concurrency=N")
	}
	later, err := files(s.After)
	if err != nil {
		return nil, err
	}
	before, err := parseMetrics(s.Path, text)
	if err != nil {
		return nil, err
	}
	after, err := parseMetrics(s.After, later)
	if err != nil {
		return nil, err
	}
	diff := func(names []string, suffix string) float64 {
		for _, n := range names {
			if v, ok := after[n+suffix]; ok {
				return v - before[n+suffix]
			}
		}
		return nan
	}
	count := diff(ttftNames, "_count")
	prompts, generated := diff(promptNames, ""), diff(generationNames, "")
	if !(count >= 1 && count <= maxRequests) || !(prompts >= count && prompts/count <= maxTokens) || !(generated >= count && generated/count <= maxTokens) {
		return nil, fault(s.After, 1, "no requests, prompt tokens or generation tokens between the scrapes")
	}
	r := Run{Name: s.Path, Preemptions: diff(preemptionNames, ""), Measured: Figures{TTFTMs: 1000 * diff(ttftNames, "_sum") / count,
		TPOTMs: 1000 * diff(tpotNames, "_sum") / diff(tpotNames, "_count"), OutputTokS: nan}}
	if hits, queries := diff(hitNames, ""), diff(queryNames, ""); queries > 0 && hits > 0 {
		r.PrefixHits = hits / queries
	}
	r.Load = drawn(prompts/count, generated/count, s.Low, s.High, int(count))
	r.Load.Concurrency = s.Concurrency
	if s.Low == 0 {
		r.Notices = append(r.Notices, "scrapes have no lengths of single requests: every request gets the mean; add @lengths=LOW..HIGH if the client drew them")
	}
	return []Run{r}, nil
}

// parseMetrics sums the samples of Prometheus text by name, over all labels.
func parseMetrics(path string, text []byte) (map[string]float64, error) {
	out := map[string]float64{}
	err := lines(text, func(n int, line []byte) error {
		s := string(line)
		if s[0] == '#' {
			return nil
		}
		name, rest := s, ""
		if i := strings.IndexAny(s, "{ \t"); i >= 0 {
			name, rest = s[:i], s[i:]
		}
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return fault(path, n, "a sample of %s has no value", name)
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return fault(path, n, "the value of %s must be a number, got %q", name, fields[0])
		}
		if !strings.HasSuffix(name, "_bucket") && !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[name] += v
		}
		return nil
	})
	return out, err
}
