package scenario

import (
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/router"
	"github.com/dynosweep/dynosweep/sim/tier"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// Names and defaults of the offload objects of engine arguments (spec kv-offload 1).
var (
	hostKeys = []string{"scope", "num_host_blocks", "d2h_bandwidth_gbps", "h2d_bandwidth_gbps",
		"shared_d2h_bandwidth_gbps", "shared_h2d_bandwidth_gbps", "latency_to_first_byte_ms", "kv_layout_id"}
	thirdKeys = []string{"scope", "num_g3_blocks", "read_bandwidth_gbps", "write_bandwidth_gbps",
		"shared_read_bandwidth_gbps", "shared_write_bandwidth_gbps", "latency_to_first_byte_ms"}
	hostScopes  = []string{"dp_rank_local", "cluster_shared"}
	thirdScopes = []string{"worker_local", "cluster_shared"}
)

const (
	hostKey          = "native_host_offload"
	thirdKey         = "g3_offload"
	bytesKey         = "kv_cache_bytes_per_token"
	defaultHostGBps  = 32
	defaultThirdGBps = 10
	defaultThirdMs   = 0.1
)

// offloadDoc is the offload objects as written.
type offloadDoc struct {
	bytesPerToken document.Opt[uint64]
	host          *tier.Host
	third         *tier.Third
	tiers         *KVTiers
}

func readOffload(e document.Mapping) offloadDoc {
	d := offloadDoc{bytesPerToken: e.Uint64(bytesKey, document.OrNull)}
	if d.bytesPerToken.Set {
		e.Require(d.bytesPerToken.Value > 0, bytesKey, bytesKey+" must be positive")
	}
	d.tiers = readKVTiers(e)
	if v := e.Get(hostKey); v != nil && v.Kind != document.Null {
		d.host = readHost(e)
	}
	if v := e.Get(thirdKey); v != nil && v.Kind != document.Null {
		d.third = readThird(e)
	}
	return d
}

func readHost(e document.Mapping) *tier.Host {
	m := e.Sub(hostKey, "struct HostOffloadConfig", hostKeys)
	o := tierReader{m, hostKey}
	h := &tier.Host{Blocks: o.blocks("num_host_blocks"), Shared: m.Enum("scope", hostScopes...).Value == 1,
		Layout:    m.String("kv_layout_id", document.OrNull).Value,
		WriteGBps: o.number("d2h_bandwidth_gbps", defaultHostGBps), ReadGBps: o.number("h2d_bandwidth_gbps", defaultHostGBps),
		SharedWriteGBps: o.number("shared_d2h_bandwidth_gbps", math.Inf(1)), SharedReadGBps: o.number("shared_h2d_bandwidth_gbps", math.Inf(1)),
		LatencyMs: o.number("latency_to_first_byte_ms", 0)}
	m.Require(!h.Shared || h.Layout != "", "kv_layout_id", "cluster_shared native_host_offload requires a nonempty kv_layout_id")
	return h
}

func readThird(e document.Mapping) *tier.Third {
	m := e.Sub(thirdKey, "struct G3OffloadConfig", thirdKeys)
	o := tierReader{m, thirdKey}
	if m.Get("scope") == nil {
		m.Missing("scope")
	}
	return &tier.Third{Blocks: o.blocks("num_g3_blocks"), Shared: m.Enum("scope", thirdScopes...).Value == 1,
		ReadGBps: o.number("read_bandwidth_gbps", defaultThirdGBps), WriteGBps: o.number("write_bandwidth_gbps", defaultThirdGBps),
		SharedReadGBps: o.number("shared_read_bandwidth_gbps", math.Inf(1)), SharedWriteGBps: o.number("shared_write_bandwidth_gbps", math.Inf(1)),
		LatencyMs: o.number("latency_to_first_byte_ms", defaultThirdMs)}
}

// tierReader reads the numbers of one offload object.
type tierReader struct {
	document.Mapping
	name string
}

func (o tierReader) blocks(key string) int {
	v := o.Uint(key, 64, document.NotNull)
	if !v.Set && o.Get(key) == nil {
		o.Missing(key)
		return 0
	}
	o.Require(v.Value > 0, key, o.name+"."+key+" must be positive")
	o.Require(v.Value <= maxBlocks, key, fmt.Sprintf("%s.%s must be at most %d, got %d", o.name, key, maxBlocks, v.Value))
	return int(min(v.Value, maxBlocks))
}

func (o tierReader) number(key string, def float64) float64 {
	v := o.Float(key, document.NotNull)
	o.Require(!v.Set || document.FiniteFrom(v.Value, 0), key, o.name+"."+key+" must be finite and non-negative")
	return v.Or(def)
}

// offloading checks the offload objects against the rest of the engine arguments and
// completes them.
func (d *launchDoc) offloading(r *Role) {
	d.tiers(r)
	e, o, c := d.engine, &d.offload, &r.Rank
	if o.third != nil && o.host == nil {
		e.RequireCompatible(false, thirdKey, "g3_offload requires native_host_offload")
		return
	}
	if o.host == nil {
		return
	}
	e.RequireCompatible(c.Backend == engine.VLLM, hostKey, "native_host_offload is supported only for backend=vllm")
	e.RequireCompatible(c.PrefixCaching, hostKey, "native_host_offload requires enable_prefix_caching=true")
	e.RequireCompatible(c.NextN == 0, hostKey, "native_host_offload does not support aic_nextn in the initial implementation")
	e.RequireCompatible(o.bytesPerToken.Set, hostKey, "native_host_offload requires kv_cache_bytes_per_token to derive the physical host block size")
	e.RequireCompatible(o.third == nil || r.DPSize == 1, thirdKey, "g3_offload supports only dp_size=1")
	r.Offload = &tier.Config{BlockBytes: float64(c.BlockSize) * float64(o.bytesPerToken.Value), Host: *o.host, Third: o.third}
}

// resolveOffload puts the offload objects into resolved engine arguments.
func (r *Role) resolveOffload(e *resolved.Engine) {
	r.resolveTiers(e)
	o := r.Offload
	if o == nil {
		return
	}
	e.KVCacheBytesPerToken = uint64(o.BlockBytes) / uint64(r.Rank.BlockSize)
	h := &resolved.HostOffload{Scope: hostScopes[0], NumHostBlocks: o.Host.Blocks, WriteGBps: o.Host.WriteGBps,
		ReadGBps: o.Host.ReadGBps, LatencyMs: o.Host.LatencyMs}
	if o.Host.Shared {
		h.Scope, h.Layout = hostScopes[1], o.Host.Layout
		h.SharedWriteGBps, h.SharedReadGBps = finiteOrNil(o.Host.SharedWriteGBps), finiteOrNil(o.Host.SharedReadGBps)
	}
	e.NativeHostOffload = h
	if t := o.Third; t != nil {
		g := &resolved.G3Offload{Scope: thirdScopes[0], NumG3Blocks: t.Blocks, ReadGBps: t.ReadGBps,
			WriteGBps: t.WriteGBps, LatencyMs: t.LatencyMs}
		if t.Shared {
			g.Scope = thirdScopes[1]
			g.SharedReadGBps, g.SharedWriteGBps = finiteOrNil(t.SharedReadGBps), finiteOrNil(t.SharedWriteGBps)
		}
		e.G3Offload = g
	}
}

// finiteOrNil is nil for a bandwidth without a cap.
func finiteOrNil(gbps float64) *float64 {
	if math.IsInf(gbps, 1) {
		return nil
	}
	return &gbps
}

// hostWeight is nil for the default credit of host memory, which configurations
// without any have as well.
func hostWeight(w float64) *float64 {
	if w == router.DefaultConfig().HostWeight {
		return nil
	}
	return &w
}
