package aic

import "fmt"

// CapacityConfig asks how much KV cache fits (spec aic-perfmodel 9).
type CapacityConfig struct {
	MemoryFraction      float64 // of total memory, on trtllm of free memory; 0 means the backend's default
	BlockSize           int     // tokens
	MaxNumBatchedTokens int     // tokens of one pass
}

// Capacity is the KV cache of one rank.
type Capacity struct {
	NumGPUBlocks    int64
	KVTokens        int64
	KVBytesPerToken int64
}

// DefaultMemoryFraction returns the memory fraction of a backend.
func DefaultMemoryFraction(backend string) float64 {
	if backend == "sglang" {
		return 0.88
	}
	return 0.9
}

// activationFactor is bytes of activations per token and head value, by family and
// tensor parallelism 1, 2, 4, 8.
func activationFactor(f family, backend string, tpc int) (float64, bool) {
	at, ok := map[int]int{1: 0, 2: 1, 4: 2, 8: 3}[tpc]
	if !ok {
		return 0, false
	}
	dense, sparse := [4]float64{11, 6.5, 5, 5}, [4]float64{22, 13, 10, 10}
	if backend == "sglang" {
		dense, sparse = [4]float64{14, 8.5, 6.5, 6.5}, [4]float64{28, 17, 13, 13}
	}
	if f == llama {
		return dense[at], true
	}
	return sparse[at], true
}

// activations returns the bytes of one pass of so many tokens.
func (m *Model) activations(tokens int) (float64, error) {
	c, p := m.ckpt, m.par
	tpc := min(p.tp, 8)
	factor, ok := activationFactor(c.family, m.db.Backend, tpc)
	if !ok {
		return 0, fmt.Errorf("no memory coefficient for tp_size %d (only 1, 2, 4, 8 and above): %w", p.tp, ErrCapacity)
	}
	hh := float64(c.heads * c.headDim)
	act := 2 * float64(tokens) * hh * factor
	if c.family == deepseek || c.family == kimiK25 {
		width := hh
		if m.db.Backend == "sglang" {
			width = float64(c.hidden)
		}
		act += float64(tokens) * width * float64(p.dp) * float64(c.experts) * float64(c.topk) / float64(p.moeEP) / 128 * 4
	}
	const mib = 1 << 20
	if m.db.Backend == "sglang" {
		return max(act, 90*mib) * 1.15, nil
	}
	return max(act, 70*mib), nil
}

// KVBytesPerToken returns the cache bytes of one token on one rank.
func (m *Model) KVBytesPerToken() int64 {
	return floorBytes(m.ckpt.kvBytesPerToken(m.par.tp, m.quant.kv))
}

// Capacity returns the KV cache that fits beside weights, activations and buffers.
func (m *Model) Capacity(c CapacityConfig) (Capacity, error) {
	fraction := c.MemoryFraction
	if fraction == 0 {
		fraction = DefaultMemoryFraction(m.db.Backend)
	}
	if !(fraction >= 0 && fraction <= 1) {
		return Capacity{}, fmt.Errorf("memory fraction must be in [0, 1], got %v: %w", fraction, ErrCapacity)
	}
	if c.BlockSize < 1 || c.MaxNumBatchedTokens < 0 || c.MaxNumBatchedTokens > maxCount {
		return Capacity{}, fmt.Errorf("block size %d or max_num_batched_tokens %d out of range: %w", c.BlockSize, c.MaxNumBatchedTokens, ErrCapacity)
	}
	act, err := m.activations(c.MaxNumBatchedTokens)
	if err != nil {
		return Capacity{}, err
	}
	weights := 0.0
	for i := range m.context {
		weights += m.context[i].op.weights() * m.context[i].scale
	}
	weights /= float64(m.par.pp)
	other := m.db.System.otherMem
	if m.db.Backend == "sglang" {
		other *= 1.2
	}
	used := weights + act + other + m.db.System.ncclMem[min(m.par.tp, 8)]
	budget := m.db.System.MemoryBytes*fraction - used
	if m.db.Backend == "trtllm" {
		budget = (m.db.System.MemoryBytes - used) * fraction
	}
	if budget <= 0 {
		return Capacity{}, fmt.Errorf("no KV budget: %.0f bytes of weights, activations and buffers do not fit in %.0f at fraction %v: %w",
			used, m.db.System.MemoryBytes, fraction, ErrCapacity)
	}
	out := Capacity{KVBytesPerToken: m.KVBytesPerToken()}
	if out.KVBytesPerToken < 1 {
		return Capacity{}, fmt.Errorf("model %s has no KV cache: %w", m.ckpt.name, ErrCapacity)
	}
	out.KVTokens = m.tokensWithin(budget)
	if out.NumGPUBlocks = out.KVTokens / int64(c.BlockSize); out.NumGPUBlocks == 0 {
		return Capacity{}, fmt.Errorf("the KV budget of %.0f bytes holds %d tokens, less than one block of %d: %w", budget, out.KVTokens, c.BlockSize, ErrCapacity)
	}
	return out, nil
}

// tokensWithin returns the tokens of one sequence that fit. Half of the gpt-oss
// layers keep no more than their window.
func (m *Model) tokensWithin(budget float64) int64 {
	perToken := m.ckpt.kvBytesPerToken(m.par.tp, m.quant.kv)
	if m.ckpt.arch != "GptOssForCausalLM" {
		return floorBytes(budget / perToken)
	}
	layers := m.ckpt.layers
	perLayer := perToken / float64(layers)
	used := func(t int64) float64 {
		return perLayer * float64(int64(layers/2)*min(t, gptOssWindow)+int64(layers-layers/2)*t)
	}
	lo, hi := int64(0), floorBytes(budget/perLayer)+1 // used(lo) fits, used(hi) does not
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; used(mid) <= budget {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
