package calibrate

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

var csvColumns = []string{"isl", "osl", "concurrency", "mean_ttft_ms", "mean_tpot_ms", "output_tok_s", "requests", "lengths", "tp"}

// requestsPerSlot is how many requests a client sends for each of its slots where a row
// does not say.
const requestsPerSlot = 10

// readCSV reads one run a row.
func readCSV(s Source, text []byte) ([]Run, error) {
	c := csv.NewReader(bytes.NewReader(text))
	c.TrimLeadingSpace = true
	head, err := c.Read()
	if err != nil {
		return nil, fault(s.Path, 1, "%v", err)
	}
	for i := range head {
		head[i] = strings.TrimSpace(head[i])
		if !slices.Contains(csvColumns, head[i]) {
			return nil, fault(s.Path, 1, "unknown column %q, expected %s", head[i], strings.Join(csvColumns, ", "))
		}
	}
	var out []Run
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		line, _ := c.FieldPos(0)
		if err != nil {
			return nil, fault(s.Path, line, "%v", err)
		}
		r, err := csvRun(s, head, row)
		if err != nil {
			return nil, fault(s.Path, line, "%v", err)
		}
		r.Name = fmt.Sprintf("%s:%d", s.Path, line)
		out = append(out, *r)
	}
}

func csvRun(s Source, head, row []string) (*Run, error) {
	cell := func(name string) string {
		if i := slices.Index(head, name); i >= 0 {
			return strings.TrimSpace(row[i])
		}
		return ""
	}
	var errs []error
	number := func(name string, most float64) float64 {
		text := cell(name)
		if text == "" {
			return 0
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0 && v <= most) {
			errs = append(errs, fmt.Errorf("%s must be a number above 0, at most %g, got %q", name, most, text))
		}
		return v
	}
	isl, osl, concurrency := number("isl", maxTokens), number("osl", maxTokens), number("concurrency", maxRequests)
	r := &Run{Preemptions: nan, Measured: Figures{number("mean_ttft_ms", maxMs), number("mean_tpot_ms", maxMs), number("output_tok_s", maxMs)}}
	requests := number("requests", maxRequests)
	r.TensorParallel = int(number("tp", maxRequests))
	low, high := s.Low, s.High
	if text := cell("lengths"); text != "" && text != "fixed" {
		var err error
		if low, high, err = parseRange(strings.TrimSpace(strings.TrimPrefix(text, "uniform"))); err != nil {
			errs = append(errs, fmt.Errorf("lengths must be fixed or uniform LOW..HIGH, got %q", text))
		}
	}
	if isl == 0 || osl == 0 || concurrency == 0 {
		errs = append(errs, errors.New("isl, osl and concurrency are required"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if requests == 0 {
		requests = min(requestsPerSlot*concurrency, maxRequests)
	}
	r.Load = drawn(isl, osl, low, high, int(requests))
	r.Load.Concurrency = int(concurrency)
	return r, nil
}
