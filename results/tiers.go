package results

import "github.com/dynosweep/dynosweep/sim/metrics"

// tierColumns are the figures of the memory behind the KV pools; null without it.
func tierColumns() (cs []columnOf[Point]) {
	for _, tier := range [...][2]string{{"host", "the host memory behind the KV pools"}, {"g3", "the tier behind the host memory"}} {
		add := func(name, unit, meaning string, get func(*metrics.Tier) float64) {
			cs = append(cs, columnOf[Point]{Column{Name: "kv_" + tier[0] + "_" + name, Type: Float64, Unit: unit, Meaning: meaning + " " + tier[1] + "; null without it"},
				ofSummary(func(s *metrics.Summary) Value {
					for i := range s.Totals.Tiers {
						if t := &s.Totals.Tiers[i]; t.Name == tier[0] {
							return Float(get(t))
						}
					}
					return Null
				})})
		}
		add("capacity_blocks", "blocks", "size of", func(t *metrics.Tier) float64 { return float64(t.CapacityBlocks) })
		add("peak_blocks", "blocks", "most blocks ever in", func(t *metrics.Tier) float64 { return float64(t.PeakBlocks) })
		add("hit_tokens", "tokens", "prompt tokens read from", func(t *metrics.Tier) float64 { return float64(t.HitTokens) })
		add("bytes_in", "bytes", "written to", func(t *metrics.Tier) float64 { return t.BytesIn })
		add("bytes_out", "bytes", "read from", func(t *metrics.Tier) float64 { return t.BytesOut })
		add("read_ms", "ms", "submission to end, summed over the reads of", func(t *metrics.Tier) float64 { return t.OutMs })
		add("evictions", "blocks", "blocks evicted from", func(t *metrics.Tier) float64 { return float64(t.Evictions) })
		add("stores_refused", "jobs", "stores, retries included, that found no room in", func(t *metrics.Tier) float64 { return float64(t.StoresRefused) })
	}
	return cs
}
