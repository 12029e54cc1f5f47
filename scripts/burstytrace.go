//go:build ignore

// Burstytrace makes configs/traces/bursty.jsonl.gz of the conversation trace: the
// same requests in the same order, at other times. Every 15 minutes of the trace are
// spread over one wave of load, so that each wave has the requests of its 15 minutes:
//
//	rate
//	1.8 |          ____
//	    |        /      \
//	    |      /          \
//	0.4 |____/              \
//	    0   180  480  600   900 s
//
// in units of which the mean is 1.09. Only the number behind "timestamp" changes.
// The same trace and Go release give the same bytes. From the repository root:
//
//	go run scripts/burstytrace.go configs/traces/conversation.jsonl.gz configs/traces/bursty.jsonl.gz
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"strconv"
)

// corner is a point of the wave: time in s, rate in requests per unit of time.
type corner struct{ at, rate float64 }

var wave = []corner{{0, 0.4}, {180, 0.4}, {480, 1.8}, {600, 1.8}, {900, 0.4}}

const period = 900.0

// warp maps seconds into a period of constant rate to seconds into the wave with as
// many requests before.
func warp(s float64) float64 {
	total := 0.0
	for i := 1; i < len(wave); i++ {
		total += area(wave[i-1], wave[i])
	}
	left := s / period * total
	for i := 1; i < len(wave); i++ {
		a, b := wave[i-1], wave[i]
		if w := area(a, b); left > w && i < len(wave)-1 {
			left -= w
			continue
		}
		slope := (b.rate - a.rate) / (b.at - a.at)
		if slope == 0 {
			return a.at + left/a.rate
		}
		return a.at + (math.Sqrt(a.rate*a.rate+2*slope*left)-a.rate)/slope
	}
	panic("burstytrace: a wave has two corners at least")
}

func area(a, b corner) float64 { return (b.at - a.at) * (a.rate + b.rate) / 2 }

// retime replaces the timestamp, in ms, that opens a row.
func retime(row []byte) ([]byte, error) {
	const key = `{"timestamp": `
	end := bytes.IndexByte(row, ',')
	if !bytes.HasPrefix(row, []byte(key)) || end < 0 {
		return nil, fmt.Errorf("a row must begin with %s", key)
	}
	ms, err := strconv.ParseInt(string(row[len(key):end]), 10, 64)
	if err != nil {
		return nil, err
	}
	start := math.Floor(float64(ms)/1000/period) * period
	out := append([]byte(key), strconv.FormatInt(int64(1000*(start+warp(float64(ms)/1000-start))), 10)...)
	return append(out, row[end:]...), nil
}

func convert(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	rows := bufio.NewScanner(unzipped)
	rows.Buffer(nil, 1<<20)
	for n := 1; rows.Scan(); n++ {
		row, err := retime(rows.Bytes())
		if err != nil {
			return fmt.Errorf("%s:%d: %w", from, n, err)
		}
		if _, err := zipped.Write(append(row, '\n')); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: burstytrace FROM TO")
		os.Exit(2)
	}
	if err := convert(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "burstytrace:", err)
		os.Exit(1)
	}
}
