package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/dynosweep/dynosweep/results/compare"
)

// isTierSize reports whether an axis is the size of memory behind the KV pools.
func isTierSize(axis string) bool {
	return strings.Contains(axis, "kv_tiers.") && strings.HasSuffix(axis, ".gigabytes") ||
		strings.HasSuffix(axis, ".num_host_blocks") || strings.HasSuffix(axis, ".num_g3_blocks")
}

// printTiers says what more memory behind the KV pools buys: the points that differ
// from the choice in the size of one tier alone.
func printTiers(w io.Writer, a *compare.Analysis, l *compare.Load) error {
	for _, s := range l.Slices {
		if !isTierSize(s.Axis.Name) {
			continue
		}
		fmt.Fprintln(w)
		printText(w, "Tier", "What "+s.Axis.Name+" buys, everything else as in the choice.")
		columns := []fitted{{head: "size"}, {head: "TTFT p95"}, {head: "tok/s/user"}, {head: "tok/s/GPU"}, {head: "SLA"}, {head: "$/Mtok"}, {head: "point", left: true}}
		for n, i := range s.Cases {
			if i < 0 {
				continue
			}
			c := &a.Cases[i]
			for k, text := range [...]string{s.Axis.Values[n], c.TTFTMs.Plain(compare.Millis), c.TokensPerUser.Plain(compare.Number), c.TokensPerGPU.Plain(compare.Number),
				c.Attainment.Plain(compare.Percent), c.USDPerMillion.Plain(compare.Dollars), compare.ShortID(c.ID)} {
				columns[k].cells = append(columns[k].cells, text)
			}
		}
		if err := printFitted(w, widthOf(w), leastNames, columns); err != nil {
			return err
		}
	}
	return nil
}
