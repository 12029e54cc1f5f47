// Package trtllm is the scheduler of TensorRT-LLM under GUARANTEED_NO_EVICT: the
// paged core of package vllm, which here admits a request only when the pool has the
// blocks that it needs to completion, beside those that the running requests still
// need. So no request is ever preempted (spec engine-vllm 7).
package trtllm

import (
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/engine/vllm"
)

// Core is a TensorRT-LLM rank. It has no disaggregated side (spec
// replay-runtime 8.6).
type Core struct{ *vllm.Core }

var _ engine.Core = Core{}

// New returns the core of one rank.
func New(cfg engine.Config) (Core, error) {
	c, err := vllm.NewVariant(cfg, vllm.Variant{
		Admission: admission{blockSize: int64(cfg.BlockSize), blocks: int64(cfg.Blocks), modelLen: int64(cfg.MaxModelLen)},
		// A fully cached prompt computes nothing: its first token is a decode.
		FullHits:     true,
		NoPreemption: true,
	})
	return Core{c}, err
}

// Handoff returns nil.
func (Core) Handoff() engine.Handoff { return nil }

// admission promises every running request its blocks to completion.
type admission struct{ blockSize, blocks, modelLen int64 }

// Output cuts the output to the model length, then to the pool.
func (a admission) Output(prompt, output int64) int64 {
	if a.modelLen > 0 {
		output = min(output, max(0, a.modelLen-prompt))
	}
	if room := a.blocks*a.blockSize - prompt; room > 0 {
		output = min(output, room)
	}
	return output
}

func (a admission) Refuse(prompt, total int64) engine.Reason {
	needs := func(tokens int64) bool { return (tokens+a.blockSize-1)/a.blockSize > a.blocks }
	switch {
	case needs(prompt):
		return engine.PromptOverPool
	case needs(total):
		return engine.OutputOverPool
	}
	return engine.NoReason
}

func (a admission) Fits(d vllm.Demand) bool {
	return max(0, d.Total-d.HeldHits) <= max(0, d.Room-d.Promised)
}
