package scenario

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/tier"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// kvTiersKey is our own engine key: memory behind the KV pool in sizes that people
// buy. It is lowered to what native_host_offload and g3_offload say in blocks.
const kvTiersKey = "kv_tiers"

var (
	kvTierNames = []string{"host", "disk", "remote"}
	kvTierKeys  = []string{"gigabytes", "gb_per_second", "latency_ms", "shared"}
	// Defaults of gb_per_second (read, write) and latency_ms by tier.
	kvTierDefaults = [...]struct{ readGBps, writeGBps, latencyMs float64 }{
		{defaultHostGBps, defaultHostGBps, 0}, {7, 5, 0.1}, {12, 12, 0.5}}
)

// KVTiers is the kv_tiers of one role: per tier a size, 0 if there is none.
type KVTiers [3]KVTier // host, disk, remote

// KVTier is one tier: decimal gigabytes of a worker, or of all workers if Shared.
type KVTier struct {
	Gigabytes           float64
	ReadGBps, WriteGBps float64
	LatencyMs           float64
	Shared              bool
}

func readKVTiers(e document.Mapping) *KVTiers {
	v := e.Get(kvTiersKey)
	if v == nil || v.Kind == document.Null {
		return nil
	}
	m := e.Sub(kvTiersKey, "a mapping", kvTierNames)
	var t KVTiers
	for i, name := range kvTierNames {
		if n := m.Get(name); n != nil && n.Kind != document.Null {
			t[i] = readKVTier(m, name, i)
		}
	}
	m.Require(t[0].Gigabytes > 0 || t[1].Gigabytes == 0 && t[2].Gigabytes == 0, "host",
		"kv_tiers.disk and kv_tiers.remote stand behind host memory: give kv_tiers.host.gigabytes above 0")
	m.Require(t[1].Gigabytes == 0 || t[2].Gigabytes == 0, "remote",
		"one tier behind the host is simulated: give kv_tiers.disk or kv_tiers.remote")
	return &t
}

func readKVTier(m document.Mapping, name string, i int) KVTier {
	o := m.Sub(name, "a mapping", kvTierKeys)
	number := func(key string, def float64) float64 {
		v := o.Float(key, document.NotNull)
		o.Require(!v.Set || document.FiniteFrom(v.Value, 0), key, "must be finite and non-negative")
		return v.Or(def)
	}
	if o.Get("gigabytes") == nil {
		o.Missing("gigabytes")
	}
	d := kvTierDefaults[i]
	t := KVTier{Gigabytes: number("gigabytes", 0), LatencyMs: number("latency_ms", d.latencyMs),
		Shared: o.Bool("shared").Or(name == "remote")}
	t.ReadGBps, t.WriteGBps = number("gb_per_second", d.readGBps), number("gb_per_second", d.writeGBps)
	return t
}

// tiers checks kv_tiers against the rest of the engine arguments.
func (d *launchDoc) tiers(r *Role) {
	e, t, c := d.engine, d.offload.tiers, &r.Rank
	if t == nil {
		return
	}
	e.RequireCompatible(d.offload.host == nil && d.offload.third == nil, kvTiersKey, "give kv_tiers, or native_host_offload and g3_offload")
	if t[0].Gigabytes == 0 {
		return
	}
	e.RequireCompatible(c.Backend == engine.VLLM, kvTiersKey, "kv_tiers is simulated for backend=vllm only: leave it out, or give host.gigabytes 0")
	e.RequireCompatible(c.PrefixCaching, kvTiersKey, "kv_tiers requires enable_prefix_caching=true")
	e.RequireCompatible(c.NextN == 0, kvTiersKey, "kv_tiers does not support aic_nextn")
	e.RequireCompatible(t[1].Gigabytes+t[2].Gigabytes == 0 || r.DPSize == 1, kvTiersKey, "a tier behind the host supports only dp_size=1")
	r.Tiers, r.tierBytes = t, float64(d.offload.bytesPerToken.Value)
	e.RequireCompatible(d.offload.bytesPerToken.Set || r.request().Model != "" || d.timing.aic.req.Model != "", kvTiersKey,
		"kv_tiers needs the bytes of a token: give kv_cache_bytes_per_token, or aic timing whose model says them")
}

// offload returns the memory behind the role's KV pools, nil if there is none. It asks
// the hardware model for the bytes of a token where no document says them.
func (r *Role) offload(ask TimingResolver) (*tier.Config, error) {
	if r.Tiers == nil {
		return r.Offload, nil
	}
	bytes := r.tierBytes
	if bytes == 0 {
		q := r.request()
		if q.Model == "" || ask == nil {
			return nil, errors.New("kv_tiers: no model says the bytes of a token: give kv_cache_bytes_per_token")
		}
		a, err := ask(TimingQuery{TransferBytes: &q})
		if err != nil {
			return nil, fmt.Errorf("kv_tiers: %w; give kv_cache_bytes_per_token", err)
		}
		bytes = float64(a.BytesPerToken)
	}
	block := bytes * float64(r.Rank.BlockSize)
	blocks := func(t KVTier, share int) int { return int(min(t.Gigabytes*1e9/block/float64(share), maxBlocks)) }
	none := math.Inf(1)
	h := r.Tiers[0]
	share := r.DPSize
	if h.Shared {
		share = 1
	}
	cfg := &tier.Config{BlockBytes: block, Host: tier.Host{Blocks: blocks(h, share), Shared: h.Shared, Layout: kvTiersKey,
		WriteGBps: h.WriteGBps, ReadGBps: h.ReadGBps, LatencyMs: h.LatencyMs, SharedWriteGBps: none, SharedReadGBps: none}}
	for i, t := range r.Tiers[1:] {
		if t.Gigabytes > 0 {
			cfg.Third = &tier.Third{Blocks: blocks(t, 1), Shared: t.Shared, WriteGBps: t.WriteGBps, ReadGBps: t.ReadGBps,
				LatencyMs: t.LatencyMs, SharedWriteGBps: none, SharedReadGBps: none}
			if cfg.Third.Blocks < 1 {
				return nil, fmt.Errorf("kv_tiers.%s: %v GB hold no block of %.0f bytes", kvTierNames[i+1], t.Gigabytes, block)
			}
		}
	}
	if cfg.Host.Blocks < 1 {
		return nil, fmt.Errorf("kv_tiers.host: %v GB hold no block of %.0f bytes", h.Gigabytes, block)
	}
	return cfg, nil
}

// Offloads reports whether the role has memory behind its KV pools.
func (r *Role) Offloads() bool { return r.Offload != nil || r.Tiers != nil }

// resolveTiers puts kv_tiers into resolved engine arguments.
func (r *Role) resolveTiers(e *resolved.Engine) {
	if r.Tiers == nil {
		return
	}
	e.KVCacheBytesPerToken = uint64(r.tierBytes)
	out := &resolved.KVTiers{}
	for i, at := range [...]**resolved.KVTier{&out.Host, &out.Disk, &out.Remote} {
		if t := r.Tiers[i]; t.Gigabytes > 0 {
			*at = &resolved.KVTier{Gigabytes: t.Gigabytes, LatencyMs: t.LatencyMs, Shared: t.Shared}
			if d := kvTierDefaults[i]; t.ReadGBps != d.readGBps || t.WriteGBps != d.writeGBps {
				(*at).GBps = &t.ReadGBps
			}
		}
	}
	e.KVTiers = out
}
