package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

func traceCommand() *cli.Command {
	return &cli.Command{
		Name:   "trace",
		Usage:  "look at, change and make traces",
		Action: unknownVerb,
		Commands: []*cli.Command{
			{
				Name:      "stats",
				Usage:     "requests, lengths, arrivals and the reuse that a trace offers",
				ArgsUsage: "TRACE...",
				Description: `   dynosweep trace stats configs/traces/conversation.jsonl.gz
   dynosweep trace stats --format azure AzureLLMInferenceTrace_conv.csv --json`,
				Flags:        append(readTraceFlags(), &cli.BoolFlag{Name: "json", Usage: "print JSON"}),
				OnUsageError: usageError,
				Action:       traceStats,
			},
			{
				Name:      "convert",
				Usage:     "write a trace as mooncake or agentic_mooncake; cut it; change its speed",
				ArgsUsage: "TRACE...",
				Description: `   dynosweep trace convert --format dynamo shard-0.jsonl shard-1.jsonl.gz --out trace.jsonl
   dynosweep trace convert configs/traces/conversation.jsonl.gz --until-seconds 600 --speedup 2 --out short.jsonl`,
				Flags: append(readTraceFlags(),
					&cli.StringFlag{Name: "to", Usage: "mooncake or agentic_mooncake", Value: "mooncake"},
					&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "`FILE` to write; - is standard output", Value: "-"},
					&cli.Float64Flag{Name: "from-seconds", Usage: "leave out sessions that start earlier than `S` after the first"},
					&cli.Float64Flag{Name: "until-seconds", Usage: "leave out sessions that start `S` or more after the first", Value: math.Inf(1), HideDefault: true},
					&cli.Int64Flag{Name: "max-requests", Usage: "keep the first `N` requests; 0 keeps all"},
					&cli.Float64Flag{Name: "speedup", Usage: "divide starts and delays by `X`", Value: 1}),
				OnUsageError: usageError,
				Action:       traceConvert,
			},
			{
				Name:  "synth",
				Usage: "write synthetic load as a mooncake trace that replays to the same figures, or load of a given shape",
				Description: `   dynosweep trace synth --input-tokens 2048 --output-tokens 128 --request-count 100 --request-rate 5 --out load.jsonl
   dynosweep replay load.jsonl --trace-block-size 64
   dynosweep trace synth --shape configs/shapes/diurnal-day.yaml --out day.jsonl

   A shape has days, bursts, ramps, flash crowds, and classes of requests with lengths of
   their own (docs/traces.md). It takes none of the flags of synthetic load.`,
				Flags: append(synthFlags(),
					&cli.StringFlag{Name: "shape", Usage: "load shape, YAML `FILE`"},
					&cli.IntFlag{Name: "block-size", Usage: "`TOKENS` per hash id: the engines' block size", Value: 64},
					&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "`FILE` to write; - is standard output", Value: "-"}),
				OnUsageError: usageError,
				Action:       traceSynth,
			},
		},
	}
}

func readTraceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "format", Usage: "trace format, or the tables azure and burstgpt", Value: "mooncake"},
		&cli.IntFlag{Name: "block-size", Usage: "`TOKENS` per hash id (default 512; dynamo, weka: as in the file)", HideDefault: true},
		&cli.Float64Flag{Name: "shared-prefix-ratio", Usage: "applied_compute_agentic: shared share of first prompts"},
		&cli.IntFlag{Name: "num-prefix-groups", Usage: "applied_compute_agentic: number of prefix groups"},
		&cli.BoolFlag{Name: "keep-failed", Usage: "burstgpt: keep rows without response tokens, which are failed requests"},
	}
}

// synthFlags are the load flags of replay.
func synthFlags() []cli.Flag {
	var out []cli.Flag
	for _, f := range inputFlags() {
		if d, ok := f.(cli.CategorizableFlag); ok && d.GetCategory() == catLoad {
			out = append(out, f)
		}
	}
	return out
}

// loadOptions reads the flags that say how a trace is to be read.
func loadOptions(c *cli.Command) (trace.LoadOptions, error) {
	format, err := trace.ParseImport(c.String("format"))
	if err != nil {
		return trace.LoadOptions{}, badInput(fmt.Errorf("--format: %w", err))
	}
	o := trace.DefaultLoadOptions(format)
	if c.IsSet("block-size") {
		if o.BlockSize = c.Int("block-size"); o.BlockSize < 1 {
			return o, badInput(errors.New("--block-size: trace_block_size must be greater than 0"))
		}
	}
	if o.KeepFailed = c.Bool("keep-failed"); o.KeepFailed && format.String() != "burstgpt" {
		return o, badInput(errors.New("--keep-failed goes with --format burstgpt, whose rows without response tokens are failed requests"))
	}
	o.SharedPrefixRatio, o.PrefixGroups = c.Float64("shared-prefix-ratio"), c.Int("num-prefix-groups")
	if o.PrefixGroups < 0 || o.PrefixGroups > math.MaxInt32 {
		return o, badInput(fmt.Errorf("--num-prefix-groups: must be from 0 to %d, got %d", math.MaxInt32, o.PrefixGroups))
	}
	return o, nil
}

func traceStats(_ context.Context, c *cli.Command) error {
	o, err := loadOptions(c)
	if err != nil {
		return err
	}
	s, err := trace.Stat(c.Args().Slice(), o)
	if err != nil {
		return badInput(err)
	}
	if c.Bool("json") {
		return printJSON(c.Root().Writer, s)
	}
	for _, n := range s.Notices {
		fmt.Fprintln(c.Root().ErrWriter, "notice: "+n)
	}
	return printStats(c.Root().Writer, s)
}

// printStats prints a trace's figures for people.
func printStats(w io.Writer, s *trace.Stats) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-26s"+format+"\n", append([]any{name}, args...)...)
	}
	line("format", "%s, %d tokens per block", s.Format, s.BlockSize)
	line("requests", "%d in %d sessions", s.Requests, s.Sessions)
	if s.Dropped > 0 {
		line("dropped rows", "%d without a prompt", s.Dropped)
	}
	if s.Failed > 0 {
		line("failed requests", "%d without response tokens, left out", s.Failed)
	}
	line("tokens", "%d in, %d out", s.InputTokens, s.OutputTokens)
	line("duration", "%.1f s, %.3f requests/s", s.DurationMs/1000, s.RatePerS)
	for _, q := range [...]struct {
		name string
		q    trace.Quantiles
	}{{"input tokens (ISL)", s.ISL}, {"output tokens (OSL)", s.OSL}} {
		line(q.name, "mean %.1f  min %d  p50 %d  p75 %d  p90 %d  p95 %d  p99 %d  max %d",
			q.q.Mean, q.q.Min, q.q.P50, q.q.P75, q.q.P90, q.q.P95, q.q.P99, q.q.Max)
	}
	line("reuse, infinite cache", "%.2f%% of input tokens", 100*s.Reuse.Infinite)
	line("shared prefixes", "%.2f%% of input tokens, first block of %.2f%% of requests", 100*s.Reuse.SharedTokens, 100*s.Reuse.SharedRequests)
	line("distinct blocks", "%d", s.Reuse.DistinctBlocks)
	if s.Reuse.Sampled < 1 {
		line("", "reuse looked at %.3g%% of the blocks", 100*s.Reuse.Sampled)
	}
	if len(s.Reuse.Curve) > 0 {
		b.WriteString("reuse against the size of an LRU cache\n")
	}
	for _, p := range s.Reuse.Curve {
		fmt.Fprintf(&b, "  %11d tokens  %6.2f%%  %s\n", p.Tokens, 100*p.HitRatio, strings.Repeat("#", int(math.Round(40*p.HitRatio))))
	}
	peak := 0.0
	for _, p := range s.Arrivals {
		peak = max(peak, p.RatePerS)
	}
	if peak > 0 {
		b.WriteString("arrivals over time (requests/s)\n")
	}
	for _, p := range s.Arrivals {
		fmt.Fprintf(&b, "  %9.1f s  %8.3f  %s\n", p.StartMs/1000, p.RatePerS, strings.Repeat("#", int(math.Round(40*p.RatePerS/max(peak, math.SmallestNonzeroFloat64)))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func traceConvert(_ context.Context, c *cli.Command) error {
	o, err := loadOptions(c)
	if err != nil {
		return err
	}
	to, err := trace.ParseFormat(c.String("to"))
	if err != nil {
		return badInput(fmt.Errorf("--to: %w", err))
	}
	how := trace.Conversion{To: to, FromMs: c.Float64("from-seconds") * 1000, UntilMs: c.Float64("until-seconds") * 1000,
		MaxRequests: c.Int64("max-requests"), Speedup: c.Float64("speedup")}
	if err := how.Validate(); err != nil {
		return badInput(err)
	}
	files := &outputs{inputs: c.Args().Slice()}
	defer files.discard()
	out, err := files.create(c.String("out"), c.Root().Writer)
	if err != nil {
		return badInput(err)
	}
	done, err := trace.Convert(out, c.Args().Slice(), o, how)
	if err != nil {
		return badInput(err)
	}
	if err := files.commit(); err != nil {
		return err
	}
	fmt.Fprintf(c.Root().ErrWriter, "%d requests, %d tokens per hash id (--trace-block-size %d); %d cut, %d dropped, %d failed\n",
		done.Requests, done.BlockSize, done.BlockSize, done.Cut, done.Dropped, done.Failed)
	for _, n := range done.Notices {
		fmt.Fprintln(c.Root().ErrWriter, "notice: "+n)
	}
	return nil
}

func traceSynth(_ context.Context, c *cli.Command) error {
	if c.IsSet("shape") {
		return traceShape(c)
	}
	s, err := readReplayFlags(c).Generated()
	if err != nil {
		return err
	}
	if c.Int("block-size") < 1 {
		return badInput(errors.New("--block-size must be at least 1"))
	}
	files := &outputs{}
	defer files.discard()
	out, err := files.create(c.String("out"), c.Root().Writer)
	if err != nil {
		return badInput(err)
	}
	if err := trace.WriteSynthetic(out, s, c.Int("block-size")); err != nil {
		return badInput(err)
	}
	return files.commit()
}

// traceShape writes load of a given shape.
func traceShape(c *cli.Command) error {
	for _, f := range append(synthFlags(), &cli.IntFlag{Name: "block-size"}) {
		if name := f.Names()[0]; c.IsSet(name) {
			return badInput(fmt.Errorf("--%s does not go with --shape: the file says what the load is", name))
		}
	}
	path := c.String("shape")
	text, err := (&scenario.Files{}).Document("", path)
	if err != nil {
		return badInput(err)
	}
	shape, err := trace.ParseShape(path, text)
	if err != nil {
		return badInput(err)
	}
	files := &outputs{inputs: []string{path}}
	defer files.discard()
	out, err := files.create(c.String("out"), c.Root().Writer)
	if err != nil {
		return badInput(err)
	}
	n, err := trace.WriteShape(out, shape)
	if err != nil {
		return badInput(fmt.Errorf("%s: %w", path, err))
	}
	if err := files.commit(); err != nil {
		return err
	}
	fmt.Fprintf(c.Root().ErrWriter, "%d requests over %g s, %d tokens per hash id (--trace-block-size %d)\n", n, shape.DurationS, shape.BlockSize, shape.BlockSize)
	return nil
}
