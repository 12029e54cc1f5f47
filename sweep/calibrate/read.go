package calibrate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// Source is one file of measurements as a command line names it:
// FILE[@tp=N][@concurrency=N][@lengths=LOW..HIGH][@after=FILE].
type Source struct {
	Path        string
	After       string  // second scrape of Prometheus text
	TP          int     // 0: the deployment's
	Concurrency int     // 0: as the file says
	Low, High   float64 // lengths were drawn uniformly from these multiples of the nominal ones; 0: as the file says
}

// ParseSource reads a source of a command line.
func ParseSource(text string) (Source, error) {
	parts := strings.Split(text, "@")
	s := Source{Path: parts[0]}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "tp":
			s.TP, err = positive(value)
		case "concurrency":
			s.Concurrency, err = positive(value)
		case "after":
			s.After = value
		case "lengths":
			s.Low, s.High, err = parseRange(value)
		default:
			return s, fmt.Errorf("%s: unknown option %q, expected tp, concurrency, lengths or after", text, key)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %s: %w", text, key, err)
		}
	}
	if s.Path == "" {
		return s, fmt.Errorf("%q names no file", text)
	}
	return s, nil
}

func positive(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("must be an integer from 1, got %q", text)
	}
	return n, nil
}

// parseRange reads 0.8..1.
func parseRange(text string) (low, high float64, err error) {
	a, b, ok := strings.Cut(text, "..")
	low, err1 := strconv.ParseFloat(strings.TrimSpace(a), 64)
	high, err2 := strconv.ParseFloat(strings.TrimSpace(b), 64)
	if !ok || err1 != nil || err2 != nil || !(low > 0 && low <= high && high <= 100) {
		return 0, 0, fmt.Errorf("must be LOW..HIGH with 0 < LOW <= HIGH, as 0.8..1, got %q", text)
	}
	return low, high, nil
}

// Formats of measurements.
const (
	FormatAIPerf     = "aiperf"
	FormatVLLM       = "vllm bench"
	FormatSGLang     = "sglang bench"
	FormatPrometheus = "prometheus"
	FormatCSV        = "csv"
)

// maxRequests bounds what one file may list.
const maxRequests = 1 << 17

// Files reads a file by path; a missing one beside another is no error of its own.
type Files func(path string) ([]byte, error)

// ReadRuns reads one source. Faults name file and line.
func ReadRuns(s Source, files Files) ([]Run, error) {
	text, err := files(s.Path)
	if err != nil {
		return nil, err
	}
	f := detect(text)
	if f == "" {
		return nil, fault(s.Path, 1, "this is none of the known forms: an AIPerf profile_export.jsonl, the JSON of vllm bench serve, the JSONL of SGLang's bench_serving, Prometheus text, or CSV with isl,osl,concurrency")
	}
	var runs []Run
	switch f {
	case FormatAIPerf:
		runs, err = readAIPerf(s, text, files)
	case FormatVLLM, FormatSGLang:
		runs, err = readBench(s, f, text)
	case FormatPrometheus:
		runs, err = readScrapes(s, text, files)
	default:
		runs, err = readCSV(s, text)
	}
	if err != nil {
		return nil, err
	}
	for i := range runs {
		r := &runs[i]
		r.Format = f
		if s.TP > 0 {
			r.TensorParallel = s.TP
		}
		if err := r.complete(); err != nil {
			return nil, fault(s.Path, 1, "%s: %v", r.Name, err)
		}
	}
	return runs, nil
}

func fault(path string, line int, format string, args ...any) error {
	return &document.Fault{Origin: path, Line: line, Msg: fmt.Sprintf(format, args...)}
}

// detect is the format of a text, "" if none.
func detect(text []byte) string {
	start := bytes.TrimSpace(text)
	if len(start) == 0 {
		return ""
	}
	if start[0] == '{' {
		var keys map[string]json.RawMessage
		if json.NewDecoder(bytes.NewReader(start)).Decode(&keys) != nil {
			return ""
		}
		has := func(list ...string) bool {
			return !slices.ContainsFunc(list, func(k string) bool { return keys[k] == nil })
		}
		switch {
		case has("metadata", "metrics"), has("metadata", "error"):
			return FormatAIPerf
		case has("backend", "random_range_ratio"):
			return FormatSGLang
		case has("total_input_tokens", "max_concurrency"):
			return FormatVLLM
		}
		return ""
	}
	first, _, _ := bytes.Cut(start, []byte("\n"))
	if header := strings.ReplaceAll(string(first), " ", ""); strings.HasPrefix(header, "isl,osl,concurrency") {
		return FormatCSV
	}
	if bytes.Contains(text, []byte("vllm:")) || bytes.Contains(text, []byte("sglang:")) {
		return FormatPrometheus
	}
	return ""
}

// complete checks a run and fills in what its requests say.
func (r *Run) complete() error {
	if len(r.Requests) > 0 {
		slices.SortStableFunc(r.Requests, func(a, b Request) int {
			switch {
			case a.StartMs < b.StartMs:
				return -1
			case a.StartMs > b.StartMs:
				return 1
			}
			return 0
		})
		r.Measured = summarize(r.Requests, 0)
		l := &r.Load
		l.Input, l.Output, l.StartMs = nil, nil, nil
		for i := range r.Requests {
			q := &r.Requests[i]
			l.Input, l.Output = append(l.Input, q.Input), append(l.Output, q.Output)
			if l.Concurrency == 0 {
				l.StartMs = append(l.StartMs, q.StartMs-r.Requests[0].StartMs)
			}
		}
	}
	if len(r.Load.Input) == 0 {
		return fmt.Errorf("no completed request")
	}
	for i := range r.Load.Input {
		if r.Load.Input[i] < 1 || r.Load.Output[i] < 1 {
			return fmt.Errorf("request %d has %d input and %d output tokens, must be at least 1", i+1, r.Load.Input[i], r.Load.Output[i])
		}
	}
	if r.Load.StartMs == nil && r.Load.Concurrency == 0 {
		return fmt.Errorf("the concurrency is not known: add @concurrency=N to the file")
	}
	for _, m := range compared[:2] {
		if v := m.of(&r.Measured); !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("no mean %s above 0", m.name)
		}
	}
	return nil
}

// drawn is count requests of lengths drawn uniformly from multiples of the nominal ones,
// at least 1; the draw has a fixed seed, so that every reading gives the same load.
func drawn(input, output float64, low, high float64, count int) Load {
	if low == 0 {
		low, high = 1, 1
	}
	rng := rand.New(rand.NewPCG(uint64(count), uint64(input*4096+output)))
	draw := func(nominal float64) int32 {
		a, b := math.Round(nominal*low), math.Round(nominal*high)
		return int32(min(max(1, a+math.Floor(rng.Float64()*(b-a+1))), math.MaxInt32/2))
	}
	var l Load
	for range min(count, maxRequests) {
		l.Input, l.Output = append(l.Input, draw(input)), append(l.Output, draw(output))
	}
	return l
}

// lines visits the lines of a text that are not blank, with their numbers from 1.
func lines(text []byte, visit func(number int, line []byte) error) error {
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(make([]byte, 0, 1<<16), 1<<30)
	for n := 1; s.Scan(); n++ {
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 {
			if err := visit(n, line); err != nil {
				return err
			}
		}
	}
	return s.Err()
}
