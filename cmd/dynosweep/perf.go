package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sim/timing/aic"
)

func perfCommand() *cli.Command {
	return &cli.Command{
		Name:   "perf",
		Usage:  "ask the hardware model: latency of a pass, KV capacity",
		Action: unknownVerb,
		Commands: []*cli.Command{
			{
				Name:  "step",
				Usage: "latency of one prefill or decode pass",
				Description: `   dynosweep perf step --model Qwen/Qwen3-32B --system h200_sxm --backend vllm --tp-size 2 --phase decode --batch-size 32 --length 4000
   dynosweep perf step --model Qwen/Qwen3-32B --system h200_sxm --backend vllm --phase prefill --length 2048 --ops
   dynosweep perf step --batch steps.csv`,
				Flags: append(modelFlags(),
					&cli.StringFlag{Name: "phase", Usage: "prefill or decode", Value: "prefill"},
					&cli.IntFlag{Name: "batch-size", Usage: "requests in the pass", Value: 1},
					&cli.IntFlag{Name: "length", Usage: "full prompt `TOKENS`, or context with the current token"},
					&cli.IntFlag{Name: "prefix", Usage: "prefill: cached `TOKENS` of the prompt"},
					&cli.BoolFlag{Name: "ops", Usage: "show every op"}),
				OnUsageError: usageError,
				Action:       perfStep,
			},
			{
				Name:  "capacity",
				Usage: "KV cache that fits beside the model",
				Description: `   dynosweep perf capacity --model Qwen/Qwen3-32B --system h200_sxm --backend vllm --tp-size 2
   dynosweep perf capacity --batch capacity.csv`,
				Flags: append(modelFlags(),
					&cli.Float64Flag{Name: "memory-fraction", Usage: "share of GPU memory; 0 is the backend's default"},
					&cli.Float64Flag{Name: "tier-gigabytes", Usage: "also print what `GB` (decimal) of host memory or disk behind a rank hold"},
					&cli.IntFlag{Name: "block-size", Usage: "`TOKENS` per block", Value: 64},
					&cli.IntFlag{Name: "max-num-batched-tokens", Usage: "`TOKENS` of one pass", Value: 8192},
					&cli.BoolFlag{Name: "ops", Usage: "show where the memory goes, the weights op by op"}),
				OnUsageError: usageError,
				Action:       perfCapacity,
			},
			perfCheckCommand(),
		},
	}
}

func modelFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "batch", Usage: "answer the rows of a CSV `FILE` on standard output"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		&cli.StringFlag{Name: "model", Usage: "bundled model `NAME`, or a directory with config.json"},
		&cli.StringFlag{Name: "system", Usage: "hardware system", Value: "h200_sxm"},
		&cli.StringFlag{Name: "backend", Usage: "vllm, sglang or trtllm", Value: "vllm"},
		&cli.StringFlag{Name: "backend-version", Usage: "version of the tables: current, previous, next, or its number"},
		&cli.StringFlag{Name: "systems-path", Usage: "systems `DIR` or wheel to read instead of the built-in tables"},
		&cli.IntFlag{Name: "tp-size", Usage: "tensor parallelism", Value: 1},
		&cli.IntFlag{Name: "pp-size", Usage: "pipeline parallelism", Value: 1},
		&cli.IntFlag{Name: "attention-dp-size", Usage: "attention data parallelism", Value: 1},
		&cli.IntFlag{Name: "moe-tp-size", Usage: "expert tensor parallelism", Value: 1},
		&cli.IntFlag{Name: "moe-ep-size", Usage: "expert parallelism", Value: 1},
		&cli.IntFlag{Name: "nextn", Usage: "draft tokens of speculative decoding"},
		&cli.StringFlag{Name: "gemm-dtype", Usage: "number format of matrix products"},
		&cli.StringFlag{Name: "moe-dtype", Usage: "number format of experts"},
		&cli.StringFlag{Name: "fmha-dtype", Usage: "number format of attention"},
		&cli.StringFlag{Name: "kv-cache-dtype", Usage: "number format of the KV cache"},
		&cli.StringFlag{Name: "comm-dtype", Usage: "number format of communication: half, int8 or fp8; collectives are measured in half whatever it is"},
		&cli.StringFlag{Name: "attention-backend", Usage: "attention kernel of the tables instead of the framework's own"},
		&cli.StringFlag{Name: "mode", Usage: "SILICON, HYBRID, EMPIRICAL or SOL", Value: "SILICON"},
		&cli.BoolFlag{Name: "decode-qk-norm", Usage: "price query and key norms in decode too, as newer cores do"},
	}
}

func perfModelConfig(c *cli.Command) (aic.ModelConfig, error) {
	for _, size := range []string{"tp-size", "pp-size", "attention-dp-size", "moe-tp-size", "moe-ep-size"} {
		if n := c.Int(size); n < 1 {
			return aic.ModelConfig{}, fmt.Errorf("--%s must be at least 1, got %d", size, n)
		}
	}
	mode, err := aic.ParseMode(c.String("mode"))
	if err != nil {
		return aic.ModelConfig{}, fmt.Errorf("--mode: %w", err)
	}
	return aic.ModelConfig{
		Model: c.String("model"), TP: c.Int("tp-size"), PP: c.Int("pp-size"), AttentionDP: c.Int("attention-dp-size"),
		MoETP: c.Int("moe-tp-size"), MoEEP: c.Int("moe-ep-size"), NextN: c.Int("nextn"),
		GEMM: c.String("gemm-dtype"), MoE: c.String("moe-dtype"), FMHA: c.String("fmha-dtype"),
		KVCache: c.String("kv-cache-dtype"), Comm: c.String("comm-dtype"),
		Mode: mode, AttentionBackend: c.String("attention-backend"), DecodeQKNorm: c.Bool("decode-qk-norm"),
	}, nil
}

// perfModel opens the model that the flags name.
func perfModel(c *cli.Command) (*aic.Model, error) {
	if c.String("model") == "" {
		names, err := aic.Models()
		if err != nil {
			return nil, err
		}
		return nil, badInput(fmt.Errorf("--model is required; bundled models: %s", strings.Join(names, ", ")))
	}
	cfg, err := perfModelConfig(c)
	if err != nil {
		return nil, badInput(err)
	}
	db, err := aic.Open(aic.Config{System: c.String("system"), Backend: c.String("backend"),
		Version: c.String("backend-version"), SystemsPath: c.String("systems-path")})
	if err != nil {
		return nil, badInput(err)
	}
	m, err := aic.NewModel(db, cfg)
	return m, badInput(err)
}

// perRow are the flags that the columns of a batch stand for.
var perRow = []string{"model", "system", "backend", "backend-version", "phase", "batch-size", "length", "prefix",
	"memory-fraction", "tier-gigabytes", "block-size", "max-num-batched-tokens", "ops", "json"}

// perfBatch answers a CSV file; sizes and formats that its columns leave open come
// from the flags.
func perfBatch(ctx context.Context, c *cli.Command, answer func(context.Context, io.Writer, io.Reader, string, aic.ModelConfig) error) error {
	for _, name := range perRow {
		if c.IsSet(name) {
			return badInput(fmt.Errorf("--%s has no effect with --batch: the columns of the file ask, and CSV answers", name))
		}
	}
	cfg, err := perfModelConfig(c)
	if err != nil {
		return badInput(err)
	}
	f, err := os.Open(c.String("batch"))
	if err != nil {
		return badInput(err)
	}
	defer f.Close()
	err = answer(ctx, c.Root().Writer, f, c.String("systems-path"), cfg)
	if errors.Is(err, aic.ErrBatch) {
		return badInput(fmt.Errorf("%s:%w", c.String("batch"), err))
	}
	return err
}

// noArguments refuses what no flag names.
func noArguments(c *cli.Command) error {
	if c.NArg() > 0 {
		return badInput(fmt.Errorf("unexpected argument %q", c.Args().First()))
	}
	return nil
}

// stepAnswer is what perf step prints.
type stepAnswer struct {
	Phase     string       `json:"phase"`
	Batch     int          `json:"batch"`
	Length    int          `json:"length"`
	Prefix    int          `json:"prefix"`
	LatencyMs float64      `json:"latency_ms"`
	Outside   bool         `json:"outside_measured_grid"`
	Estimated []string     `json:"estimated,omitempty"` // ops that HYBRID had no measured data for
	Ops       []aic.OpCost `json:"ops,omitempty"`
}

func perfStep(ctx context.Context, c *cli.Command) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.String("batch") != "" {
		return perfBatch(ctx, c, aic.BatchSteps)
	}
	a := stepAnswer{Phase: c.String("phase"), Batch: c.Int("batch-size"), Length: c.Int("length"), Prefix: c.Int("prefix")}
	switch {
	case a.Phase != "prefill" && a.Phase != "decode":
		return badInput(fmt.Errorf("--phase must be prefill or decode, got %q", a.Phase))
	case a.Batch < 1 || a.Length < 1:
		return badInput(errors.New("--batch-size and --length must be at least 1"))
	case a.Prefix < 0 || a.Prefix >= a.Length:
		return badInput(errors.New("--prefix must be at least 0 and below --length"))
	case a.Phase == "decode" && a.Prefix > 0:
		return badInput(errors.New("--prefix is of prefill: the --length of a decode pass is the whole context"))
	}
	m, err := perfModel(c)
	if err != nil {
		return err
	}
	if a.Phase == "prefill" {
		a.Ops, err = m.PrefillOps(a.Batch, a.Length-a.Prefix, a.Prefix)
		a.LatencyMs = m.PrefillMs(a.Batch, a.Length-a.Prefix, a.Prefix)
	} else {
		a.Ops, err = m.DecodeOps(a.Batch, a.Length)
		a.LatencyMs = m.DecodeMs(a.Batch, a.Length)
	}
	if err != nil {
		return badInput(err)
	}
	a.Outside = m.Outside().Passes > 0
	for _, op := range a.Ops {
		if op.Estimated && !slices.Contains(a.Estimated, op.Name) {
			a.Estimated = append(a.Estimated, op.Name)
		}
	}
	if !c.Bool("ops") {
		a.Ops = nil
	}
	return a.print(c.Root().Writer, c.Bool("json"))
}

func (a *stepAnswer) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, a)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s of %d requests, length %d, prefix %d: %.6f ms\n", a.Phase, a.Batch, a.Length, a.Prefix, a.LatencyMs)
	for _, op := range a.Ops {
		fmt.Fprintf(&out, "  %-36s %12.6f ms\n", op.Name, op.Ms)
	}
	if len(a.Estimated) > 0 {
		fmt.Fprintf(&out, "  estimated, not measured: %s\n", strings.Join(a.Estimated, ", "))
	}
	if a.Outside {
		fmt.Fprintln(&out, "  outside the measured grid: extrapolated")
	}
	_, err := w.Write(out.Bytes())
	return err
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// capacityAnswer is what perf capacity prints.
type capacityAnswer struct {
	Blocks        int64         `json:"num_gpu_blocks"`
	Tokens        int64         `json:"kv_tokens"`
	BytesPerToken int64         `json:"kv_bytes_per_token"`
	TierBlocks    int64         `json:"tier_blocks,omitempty"` // of --tier-gigabytes
	TierTokens    int64         `json:"tier_tokens,omitempty"`
	Memory        []memoryPart  `json:"memory,omitempty"`
	Ops           []aic.OpBytes `json:"ops,omitempty"`
}

// memoryPart is what one use takes of the memory of a rank.
type memoryPart struct {
	Name  string  `json:"name"`
	Bytes float64 `json:"bytes"`
}

func perfCapacity(ctx context.Context, c *cli.Command) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.String("batch") != "" {
		return perfBatch(ctx, c, aic.BatchCapacity)
	}
	m, err := perfModel(c)
	if err != nil {
		return err
	}
	cfg := aic.CapacityConfig{MemoryFraction: c.Float64("memory-fraction"),
		BlockSize: c.Int("block-size"), MaxNumBatchedTokens: c.Int("max-num-batched-tokens")}
	k, err := m.Capacity(cfg)
	if err != nil {
		return badInput(err)
	}
	a := capacityAnswer{Blocks: k.NumGPUBlocks, Tokens: k.KVTokens, BytesPerToken: k.KVBytesPerToken}
	gigabytes := c.Float64("tier-gigabytes")
	if !(gigabytes >= 0 && gigabytes <= 1e9) {
		return badInput(fmt.Errorf("--tier-gigabytes: must be from 0 to 1e9, got %v", gigabytes))
	}
	if k.NumGPUBlocks > 0 && gigabytes > 0 {
		size := k.KVTokens / k.NumGPUBlocks
		a.TierBlocks = int64(gigabytes * 1e9 / float64(size*k.KVBytesPerToken))
		a.TierTokens = a.TierBlocks * size
	}
	if c.Bool("ops") {
		mem, err := m.Memory(cfg)
		if err != nil {
			return badInput(err)
		}
		a.Memory = []memoryPart{{"weights", mem.Weights}, {"activations", mem.Activations},
			{"collectives", mem.Collectives}, {"other", mem.Other}, {"kv_cache", mem.KVBudget}}
		a.Ops = mem.Ops
	}
	return a.print(c.Root().Writer, c.Bool("json"))
}

func (a *capacityAnswer) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, a)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d KV blocks per rank: %d tokens of %d bytes\n", a.Blocks, a.Tokens, a.BytesPerToken)
	if a.TierBlocks > 0 {
		fmt.Fprintf(&out, "%d blocks in the tier behind: %d tokens, %.2f times the KV pool\n", a.TierBlocks, a.TierTokens, float64(a.TierBlocks)/float64(a.Blocks))
	}
	for _, p := range a.Memory {
		fmt.Fprintf(&out, "  %-36s %16.0f bytes\n", p.Name, p.Bytes)
		if p.Name != "weights" {
			continue
		}
		for _, op := range a.Ops {
			fmt.Fprintf(&out, "    %-34s %16.0f bytes\n", op.Name, op.Bytes)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}
