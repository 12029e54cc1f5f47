package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// origin says where the figures come from: what ran, with which seeds, and the
// source of every value that was not written.
type origin struct {
	Version       string          `json:"version"`
	PointID       string          `json:"point_id"`
	RouterSeed    uint64          `json:"router_seed"`
	ConfigDigest  string          `json:"config_sha256"`
	Config        json.RawMessage `json:"config"`
	KVBlocks      map[string]int  `json:"kv_blocks_per_rank"`
	Defaults      any             `json:"defaults"`
	TimingOutside []timingOutside `json:"timing_outside_grid,omitempty"`
}

type timingOutside struct {
	Role      string  `json:"role"`
	Share     float64 `json:"share_of_passes"`
	Doublings float64 `json:"farthest_doublings"`
	Op        string  `json:"op,omitempty"`
}

func provenance(run *scenario.Run, out *sweep.Outcome) origin {
	cfg := run.ResolvedJSON()
	sum := sha256.Sum256(cfg)
	o := origin{Version: version(), PointID: run.ID(), RouterSeed: run.RouterSeed,
		ConfigDigest: hex.EncodeToString(sum[:]), Config: cfg,
		KVBlocks: map[string]int{}, Defaults: run.Provenance()}
	if run.Disaggregated() {
		o.KVBlocks["prefill"], o.KVBlocks["decode"] = out.Blocks.Prefill, out.Blocks.Decode
	} else {
		o.KVBlocks["aggregated"] = out.Blocks.Decode
	}
	for _, v := range out.Outside {
		o.TimingOutside = append(o.TimingOutside, timingOutside{v.Role, v.Share(), v.Doublings, v.Op})
	}
	return o
}
