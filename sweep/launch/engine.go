package launch

import (
	"strconv"

	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// engineFlags are the backend's own flags for a resolved role.
func engineFlags(model string, r *resolved.Role) []string {
	e := &r.Engine
	var out []string
	add := func(flag, value string) { out = append(out, flag, value) }
	number := func(flag string, v *int) {
		if v != nil {
			add(flag, strconv.Itoa(*v))
		}
	}
	width := func(flag string, n int) {
		if n > 1 {
			add(flag, strconv.Itoa(n))
		}
	}
	memory := func(flag string) {
		if r.Capacity != nil {
			add(flag, strconv.FormatFloat(r.Capacity.MemoryFraction, 'g', -1, 64))
		}
	}
	switch e.Backend {
	case "sglang":
		s := resolved.SGLang{}
		if e.SGLang != nil {
			s = *e.SGLang
		}
		add("--model-path", model)
		add("--tp", strconv.Itoa(r.TensorParallelSize*r.DPSize))
		width("--dp", r.DPSize)
		add("--page-size", strconv.Itoa(e.BlockSize))
		number("--max-running-requests", e.MaxNumSeqs)
		number("--context-length", e.MaxModelLen)
		add("--schedule-policy", map[bool]string{true: "lpm", false: "fcfs"}[s.SchedulePolicy == "lpm"])
		add("--max-prefill-tokens", strconv.Itoa(s.MaxPrefillTokens))
		add("--chunked-prefill-size", strconv.Itoa(s.ChunkedPrefillSize))
		add("--schedule-conservativeness", strconv.FormatFloat(s.ScheduleConservativeness, 'g', -1, 64))
		memory("--mem-fraction-static")
		if !e.EnablePrefixCaching {
			out = append(out, "--disable-radix-cache")
		}
	case "trtllm":
		add("--model-path", model)
		add("--tensor-parallel-size", strconv.Itoa(r.TensorParallelSize))
		number("--max-batch-size", e.MaxNumSeqs)
		number("--max-num-tokens", e.MaxNumBatchedTokens)
		number("--max-seq-len", e.MaxModelLen)
		memory("--free-gpu-memory-fraction")
	default:
		add("--model", model)
		add("--tensor-parallel-size", strconv.Itoa(r.TensorParallelSize))
		width("--data-parallel-size", r.DPSize)
		add("--block-size", strconv.Itoa(e.BlockSize))
		number("--max-num-seqs", e.MaxNumSeqs)
		number("--max-num-batched-tokens", e.MaxNumBatchedTokens)
		number("--max-model-len", e.MaxModelLen)
		number("--num-gpu-blocks-override", e.NumGPUBlocks)
		memory("--gpu-memory-utilization")
		if !e.EnablePrefixCaching {
			out = append(out, "--no-enable-prefix-caching")
		}
		if !e.EnableChunkedPrefill {
			out = append(out, "--no-enable-chunked-prefill")
		}
	}
	return out
}
