package scenario

import (
	"fmt"
	"slices"
)

// Cost is the price of GPUs; the zero value asks for no cost.
type Cost struct {
	systems []string
	prices  []float64 // [system], USD per GPU-hour
	other   opt[float64]
	at      *node
}

// Asked reports whether the specification asks for costs.
func (c *Cost) Asked() bool { return c.at != nil }

// Price is USD per GPU-hour of a system ("" where no document names one), else the
// default; false if neither is known.
func (c *Cost) Price(system string) (float64, bool) {
	if i := slices.Index(c.systems, system); i >= 0 {
		return c.prices[i], true
	}
	return c.other.v, c.other.set
}

// cost reads the cost section: usd_per_gpu_hour is a mapping from system to price
// with an optional default, or one price.
func (f *faults) cost(n *node) Cost {
	if n == nil || n.kind == nullKind {
		return Cost{}
	}
	m := f.mapping(n, "a mapping", []string{"usd_per_gpu_hour"})
	c := Cost{at: n}
	prices := m.get("usd_per_gpu_hour")
	switch {
	case prices == nil:
		m.missing("usd_per_gpu_hour")
	case prices.kind == mapKind:
		p := f.mapping(prices, "", prices.keys)
		for _, system := range prices.keys {
			price := p.float(system, notNull)
			p.rule(finite(price.v, 0), system, "a price must be finite and non-negative")
			if system == "default" {
				c.other = price
				continue
			}
			c.systems, c.prices = append(c.systems, system), append(c.prices, price.v)
		}
	default:
		c.other = m.float("usd_per_gpu_hour", notNull)
		m.rule(finite(c.other.v, 0), "usd_per_gpu_hour", "a price must be finite and non-negative")
	}
	return c
}

// missing says which system of a run has no price, "" if all have one.
func (c *Cost) missing(r *Run) string {
	if !c.Asked() {
		return ""
	}
	for _, role := range [...]*Role{r.Prefill, r.Decode} {
		if role == nil {
			continue
		}
		if _, ok := c.Price(role.System()); !ok {
			return fmt.Sprintf("no price for %s and no default: add one to cost.usd_per_gpu_hour", orText(role.System(), "GPUs whose system is not named"))
		}
	}
	return ""
}
