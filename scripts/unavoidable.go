//go:build ignore

// Unavoidable does only what no simulation of a trace can do without, with the
// parts that dynosweep does it with: it parses the trace, prices every pass with
// the polynomial and rounds it to a duration, does one table operation for every
// distinct trace block, feeds the sketches with the gaps and the collector with the
// requests, and takes the percentiles. Its time is what a replay is compared with:
//
//	go build -o unavoidable scripts/unavoidable.go
//	time ./unavoidable configs/traces/conversation.jsonl.gz 1378454
//	time dynosweep replay configs/traces/conversation.jsonl.gz --num-workers 4
//
// The number is that of the passes of the replay beside it: 1,378,454 for the
// conversation trace on 4 workers with round robin.
package main

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/dynosweep/dynosweep/sim/kv"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
)

const (
	engineBlock = 64 // tokens
	poolTokens  = 1 << 20
	series      = 64 // passes priced together, as in a decode run
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: unavoidable TRACE PASSES")
		os.Exit(2)
	}
	passes, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = work(os.Args[1], passes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func work(path string, passes int) error {
	load, err := trace.Load([]string{path}, trace.DefaultLoadOptions(trace.Mooncake))
	if err != nil {
		return err
	}
	source, err := load.NewSource(trace.Drive{BlockSize: engineBlock, Speedup: 1})
	if err != nil {
		return err
	}
	collector := metrics.NewCollector(metrics.Options{Requests: int64(load.Requests())})
	if err := price(collector, passes); err != nil {
		return err
	}
	distinct := requests(source, collector)
	summary := collector.Summary(metrics.Totals{})
	fmt.Printf("%d requests, %d passes, %d distinct trace blocks, mean gap %.3f ms\n",
		load.Requests(), passes, distinct, summary.ITL.Mean)
	return nil
}

// price works out so many passes, a batch that grows and starts again, and feeds
// the gap of each.
func price(collector *metrics.Collector, passes int) error {
	var ms [series]float64
	for done := 0; done < passes; done += series {
		timing.Polynomial{}.DecodeSeries(20, int64(done*40%poolTokens), poolTokens, ms[:])
		for _, raw := range ms[:min(series, passes-done)] {
			d, err := timing.Duration(raw, 1)
			if err != nil {
				return err
			}
			collector.Gap(d, 20)
		}
	}
	return nil
}

// requests goes through the requests, enters each trace block once, and ends them.
func requests(source workload.Source, collector *metrics.Collector) int {
	var blocks kv.Table
	record := metrics.Record{}
	source.BeginRelease(math.MaxFloat64, 0)
	for r := source.Next(math.MaxFloat64); r != nil; r = source.Next(math.MaxFloat64) {
		for _, node := range r.Prompt.Nodes {
			*blocks.Ref(uint64(node)) = 1
		}
		collector.Arrive()
		record.Reset()
		record.Ordinal, record.ArrivalMs, record.FirstAdmitMs = r.Ordinal, r.ArrivalMs, r.ArrivalMs
		record.FirstTokenMs, record.SecondTokenMs = r.ArrivalMs+float64(r.PromptTokens), r.ArrivalMs+float64(r.PromptTokens)+10
		record.LastTokenMs = record.FirstTokenMs + 10*float64(r.OutputTokens)
		record.TerminalMs = record.LastTokenMs
		record.Input, record.Output, record.Status = r.PromptTokens, r.OutputTokens, metrics.Completed
		collector.Finish(&record)
		source.Done(r.Handle, r.ArrivalMs, r.OutputTokens, workload.Completed)
	}
	return blocks.Len()
}
