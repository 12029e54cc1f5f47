package aic

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/safetext"
)

// Answer columns are ignored on input and written anew.
var (
	stepAnswers     = []string{"latency_ms", "error"}
	capacityAnswers = []string{"num_gpu_blocks", "kv_tokens", "kv_bytes_per_token", "error"}
)

// BatchSteps reads rows of model, system, backend, version, parallel
// ("tp_size=2;moe_ep_size=2"), phase (prefill or decode), batch, length (full prompt,
// or context with the current token) and prefix, and writes the same rows in order
// with latency_ms and error. systemsPath is as in Config, base gives what the columns
// leave open. A row that cannot be priced has an error; only unreadable CSV, a failed
// write and the end of ctx stop the batch, after the rows before.
func BatchSteps(ctx context.Context, w io.Writer, r io.Reader, systemsPath string, base ModelConfig) error {
	models := batchModels{}
	return batch(ctx, w, r, []string{"model", "system", "backend", "parallel", "phase", "batch", "length"}, stepAnswers, func(get func(string) string) ([]string, error) {
		m, err := models.get(get, systemsPath, base)
		if err != nil {
			return nil, err
		}
		n, err := batchInts(get, "batch", "length")
		if err != nil {
			return nil, err
		}
		prefix := 0
		if get("prefix") != "" {
			p, err := batchInts(get, "prefix")
			if err != nil {
				return nil, err
			}
			prefix = p[0]
		}
		ms, err := m.Step(get("phase"), n[0], n[1], prefix)
		if err != nil {
			return nil, err
		}
		return []string{strconv.FormatFloat(ms, 'g', -1, 64)}, nil
	})
}

// BatchCapacity reads rows of model, system, backend, parallel, memory_fraction,
// block_size and max_num_batched_tokens, and writes the same rows in order with
// num_gpu_blocks, kv_tokens, kv_bytes_per_token and error.
func BatchCapacity(ctx context.Context, w io.Writer, r io.Reader, systemsPath string, base ModelConfig) error {
	models := batchModels{}
	return batch(ctx, w, r, []string{"model", "system", "backend", "parallel", "block_size", "max_num_batched_tokens"}, capacityAnswers, func(get func(string) string) ([]string, error) {
		n, err := batchInts(get, "block_size", "max_num_batched_tokens")
		if err != nil {
			return nil, err
		}
		fraction := 0.0
		if s := get("memory_fraction"); s != "" {
			if fraction, err = strconv.ParseFloat(s, 64); err != nil {
				return nil, classed(ErrConfig, "memory_fraction: not a number: %q", s)
			}
		}
		m, err := models.get(get, systemsPath, base)
		if err != nil {
			return nil, err
		}
		c, err := m.Capacity(CapacityConfig{fraction, n[0], n[1]})
		if err != nil {
			return nil, err
		}
		return []string{strconv.FormatInt(c.NumGPUBlocks, 10), strconv.FormatInt(c.KVTokens, 10), strconv.FormatInt(c.KVBytesPerToken, 10)}, nil
	})
}

func batchInts(get func(string) string, names ...string) ([]int, error) {
	out := make([]int, len(names))
	for i, name := range names {
		v, err := strconv.ParseUint(strings.TrimSpace(get(name)), 10, 32)
		if err != nil {
			return nil, classed(ErrConfig, "%s: not a whole number: %q", name, get(name))
		}
		out[i] = int(v)
	}
	return out, nil
}

// batch runs answer over the rows of a CSV with a header. The answer's last column is
// the error's. What cannot be read is an ErrBatch that begins with the line.
func batch(ctx context.Context, w io.Writer, r io.Reader, needed, answers []string, answer func(func(string) string) ([]string, error)) error {
	in := csv.NewReader(r)
	head, err := batchHeader(in, needed)
	if err != nil {
		return err
	}
	var kept []int
	var row []string
	for i, name := range head {
		if !slices.Contains(answers, name) {
			kept = append(kept, i)
			row = append(row, name)
		}
	}
	out := csv.NewWriter(w)
	if err := out.Write(safetext.Cells(append(row, answers...))); err != nil {
		return err
	}
	for {
		fields, err := in.Read()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			out.Flush()
			return errors.Join(batchFault(err), out.Error())
		}
		row = row[:0]
		for _, i := range kept {
			row = append(row, fields[i])
		}
		values, err := answer(func(name string) string {
			if i := slices.Index(head, name); i >= 0 {
				return fields[i]
			}
			return ""
		})
		message := ""
		if err != nil {
			values, message = make([]string, len(answers)-1), err.Error()
		}
		if err := out.Write(safetext.Cells(append(append(row, values...), message))); err != nil {
			return err
		}
	}
}

// batchHeader reads the names of the columns, each once and the needed ones there.
func batchHeader(in *csv.Reader, needed []string) ([]string, error) {
	list := strings.Join(needed, ", ")
	head, err := in.Read()
	if err == io.EOF {
		return nil, classed(ErrBatch, "1: the file is empty; its first line names the columns, at least %s", list)
	}
	if err != nil {
		return nil, batchFault(err)
	}
	head = slices.Clone(head)
	head[0] = strings.TrimPrefix(head[0], "\ufeff")
	for i, n := range head {
		if head[i] = strings.TrimSpace(n); slices.Contains(head[:i], head[i]) {
			return nil, classed(ErrBatch, "1: column %q stands there twice", head[i])
		}
	}
	for _, n := range needed {
		if !slices.Contains(head, n) {
			return nil, classed(ErrBatch, "1: no column %q (needed: %s)", n, list)
		}
	}
	return head, nil
}

// batchFault places an error of the reader; the end of the file is none.
func batchFault(err error) error {
	var at *csv.ParseError
	switch {
	case err == io.EOF:
		return nil
	case errors.As(err, &at):
		return classed(ErrBatch, "%d: %w", at.Line, at.Err)
	}
	return err
}

// batchModels are the models of a batch, bound once per distinct configuration.
type batchModels map[string]boundModel

type boundModel struct {
	*Model
	err error
}

func (models batchModels) get(column func(string) string, systemsPath string, base ModelConfig) (*Model, error) {
	key := strings.Join([]string{column("model"), column("system"), column("backend"), column("version"), column("parallel")}, "\x00")
	m, ok := models[key]
	if !ok {
		m.Model, m.err = bindRow(column, systemsPath, base)
		models[key] = m
	}
	return m.Model, m.err
}

func bindRow(column func(string) string, systemsPath string, base ModelConfig) (*Model, error) {
	db, err := Open(Config{System: column("system"), Backend: column("backend"), Version: column("version"), SystemsPath: systemsPath})
	if err != nil {
		return nil, err
	}
	base.Model = column("model")
	if err := base.SetParallel(column("parallel")); err != nil {
		return nil, err
	}
	return NewModel(db, base)
}

// SetParallel reads "tp_size=2;moe_ep_size=2". Number formats may stand there too, as
// fmha_quant_mode=bfloat16. A name that is unknown or stands there twice is an error.
func (c *ModelConfig) SetParallel(s string) error {
	sizes := map[string]*int{
		"tp_size": &c.TP, "pp_size": &c.PP, "attention_dp_size": &c.AttentionDP,
		"moe_tp_size": &c.MoETP, "moe_ep_size": &c.MoEEP, "nextn": &c.NextN,
	}
	formats := map[string]*string{
		"gemm_quant_mode": &c.GEMM, "moe_quant_mode": &c.MoE, "fmha_quant_mode": &c.FMHA,
		"kvcache_quant_mode": &c.KVCache, "comm_quant_mode": &c.Comm, "attention_backend": &c.AttentionBackend,
	}
	seen := map[string]bool{}
	for _, part := range strings.Split(s, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if seen[name] {
			return classed(ErrConfig, "parallel: %s stands there twice", name)
		}
		seen[name] = true
		if f, ok := formats[name]; ok {
			*f = value
			continue
		}
		p, ok := sizes[name]
		if !ok {
			known := make([]string, 0, len(sizes)+len(formats))
			for k := range sizes {
				known = append(known, k)
			}
			for k := range formats {
				known = append(known, k)
			}
			return classed(ErrConfig, "parallel: unknown name %q; known: %s", name, sortedWords(known))
		}
		v, err := strconv.ParseUint(value, 10, 16)
		if err != nil || (v == 0 && name != "nextn") {
			return classed(ErrConfig, "parallel: %s: not a positive whole number: %q", name, value)
		}
		*p = int(v)
	}
	return nil
}
