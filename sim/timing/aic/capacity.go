package aic

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

// Memory is where the bytes of one rank go.
type Memory struct {
	Weights, Activations, Collectives, Other, KVBudget float64
	Ops                                                []OpBytes // the weights, op by op; ops without any are left out
}

// OpBytes is the weights of one op in all its layers.
type OpBytes struct {
	Name  string  `json:"name"`
	Bytes float64 `json:"weight_bytes"`
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
		return 0, classed(ErrCapacity, "no memory coefficient for tp_size %d (only 1, 2, 4, 8 and above)", p.tp)
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

// Memory returns how the memory of a rank is divided; a budget that is not above 0
// is an error.
func (m *Model) Memory(c CapacityConfig) (Memory, error) {
	fraction := c.MemoryFraction
	if fraction == 0 {
		fraction = DefaultMemoryFraction(m.db.Backend)
	}
	if !(fraction >= 0 && fraction <= 1) {
		return Memory{}, classed(ErrCapacity, "memory fraction must be in [0, 1], got %v", fraction)
	}
	if c.BlockSize < 1 || c.MaxNumBatchedTokens < 0 || c.MaxNumBatchedTokens > maxCount {
		return Memory{}, classed(ErrCapacity, "block size %d or max_num_batched_tokens %d out of range", c.BlockSize, c.MaxNumBatchedTokens)
	}
	act, err := m.activations(c.MaxNumBatchedTokens)
	if err != nil {
		return Memory{}, err
	}
	collectives, ok := m.db.System.ncclMem[min(m.par.tp, 8)]
	if !ok {
		return Memory{}, classed(ErrCapacity, "%s.yaml: misc.nccl_mem: no entry for %d GPUs", m.db.System.Name, min(m.par.tp, 8))
	}
	out := Memory{Activations: act, Other: m.db.System.otherMem, Collectives: collectives}
	for i := range m.context {
		e := &m.context[i]
		v := e.op.weights() * e.scale
		out.Weights += v
		if v > 0 {
			out.Ops = append(out.Ops, OpBytes{e.name, v / float64(m.par.pp)})
		}
	}
	out.Weights /= float64(m.par.pp)
	if m.db.Backend == "sglang" {
		out.Other *= 1.2
	}
	used := out.Weights + act + out.Other + out.Collectives
	out.KVBudget = m.db.System.MemoryBytes*fraction - used
	if m.db.Backend == "trtllm" {
		out.KVBudget = (m.db.System.MemoryBytes - used) * fraction
	}
	if out.KVBudget <= 0 {
		return Memory{}, classed(ErrCapacity, "no KV budget: %.0f bytes of weights, activations and buffers do not fit in %.0f at fraction %v",
			used, m.db.System.MemoryBytes, fraction)
	}
	return out, nil
}

// Capacity returns the KV cache that fits beside weights, activations and buffers.
func (m *Model) Capacity(c CapacityConfig) (Capacity, error) {
	mem, err := m.Memory(c)
	if err != nil {
		return Capacity{}, err
	}
	out := Capacity{KVBytesPerToken: m.KVBytesPerToken()}
	if out.KVBytesPerToken < 1 {
		return Capacity{}, classed(ErrCapacity, "model %s has no KV cache", m.ckpt.name)
	}
	out.KVTokens = m.tokensWithin(mem.KVBudget)
	if out.NumGPUBlocks = out.KVTokens / int64(c.BlockSize); out.NumGPUBlocks == 0 {
		return Capacity{}, classed(ErrCapacity, "the KV budget of %.0f bytes holds %d tokens, less than one block of %d", mem.KVBudget, out.KVTokens, c.BlockSize)
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
