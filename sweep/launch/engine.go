package launch

import (
	"encoding/json"
	"strconv"
)

// roleConfig is what of a resolved role matters to a launch command.
type roleConfig struct {
	Engine struct {
		Backend       string `json:"backend"`
		Blocks        *int   `json:"num_gpu_blocks"`
		BlockSize     int    `json:"block_size"`
		MaxModelLen   *int   `json:"max_model_len"`
		MaxSeqs       *int   `json:"max_num_seqs"`
		MaxBatch      *int   `json:"max_num_batched_tokens"`
		PrefixCaching bool   `json:"enable_prefix_caching"`
		Chunked       bool   `json:"enable_chunked_prefill"`
		Timing        struct {
			Config struct {
				Model json.RawMessage `json:"model"`
			} `json:"config"`
		} `json:"timing_model"`
		SGLang struct {
			Policy           string  `json:"schedule_policy"`
			MaxPrefill       int     `json:"max_prefill_tokens"`
			Chunk            int     `json:"chunked_prefill_size"`
			Conservativeness float64 `json:"schedule_conservativeness"`
		} `json:"sglang"`
	} `json:"engine"`
	DP       int `json:"dp_size"`
	TP       int `json:"tensor_parallel_size"`
	CP       int `json:"cp_size"`
	Capacity *struct {
		Memory float64 `json:"memory_fraction"`
	} `json:"capacity"`
}

// engineFlags are the backend's own flags for a resolved role.
func engineFlags(model string, r *roleConfig) []string {
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
			add(flag, strconv.FormatFloat(r.Capacity.Memory, 'g', -1, 64))
		}
	}
	switch e.Backend {
	case "sglang":
		add("--model-path", model)
		add("--tp", strconv.Itoa(r.TP*r.DP))
		width("--dp", r.DP)
		add("--page-size", strconv.Itoa(e.BlockSize))
		number("--max-running-requests", e.MaxSeqs)
		add("--schedule-policy", map[bool]string{true: "lpm", false: "fcfs"}[e.SGLang.Policy == "lpm"])
		add("--max-prefill-tokens", strconv.Itoa(e.SGLang.MaxPrefill))
		add("--chunked-prefill-size", strconv.Itoa(e.SGLang.Chunk))
		add("--schedule-conservativeness", strconv.FormatFloat(e.SGLang.Conservativeness, 'g', -1, 64))
		memory("--mem-fraction-static")
		if !e.PrefixCaching {
			out = append(out, "--disable-radix-cache")
		}
	case "trtllm":
		add("--model-path", model)
		add("--tensor-parallel-size", strconv.Itoa(r.TP))
		number("--max-batch-size", e.MaxSeqs)
		number("--max-num-tokens", e.MaxBatch)
		number("--max-seq-len", e.MaxModelLen)
		memory("--free-gpu-memory-fraction")
	default:
		add("--model", model)
		add("--tensor-parallel-size", strconv.Itoa(r.TP))
		width("--data-parallel-size", r.DP)
		add("--block-size", strconv.Itoa(e.BlockSize))
		number("--max-num-seqs", e.MaxSeqs)
		number("--max-num-batched-tokens", e.MaxBatch)
		number("--max-model-len", e.MaxModelLen)
		number("--num-gpu-blocks-override", e.Blocks)
		memory("--gpu-memory-utilization")
		if !e.PrefixCaching {
			out = append(out, "--no-enable-prefix-caching")
		}
		if !e.Chunked {
			out = append(out, "--no-enable-chunked-prefill")
		}
	}
	return out
}
