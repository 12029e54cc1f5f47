package scenario

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dynosweep/dynosweep/internal/document"
)

// Cost is the price of GPUs; the zero value asks for no cost.
type Cost struct {
	systems []string
	prices  []float64 // [system], USD per GPU-hour
	other   document.Opt[float64]
	memory  [3]float64     // USD per gigabyte-hour of kv_tiers: host, disk, remote
	at      *document.Node // nil: no cost is asked for
}

// costText is a Cost as JSON.
type costText struct {
	Systems []string   `json:"systems"`
	Prices  []float64  `json:"prices"`
	Other   *float64   `json:"default"`
	Memory  [3]float64 `json:"memory"`
}

// MarshalJSON writes the prices; null where no cost is asked for.
func (c Cost) MarshalJSON() ([]byte, error) {
	if !c.Asked() {
		return []byte("null"), nil
	}
	t := costText{Systems: c.systems, Prices: c.prices, Memory: c.memory}
	if c.other.Set {
		t.Other = &c.other.Value
	}
	return json.Marshal(t)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Cost) UnmarshalJSON(text []byte) error {
	var t *costText
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*c = Cost{}
	if t == nil {
		return nil
	}
	if len(t.Systems) != len(t.Prices) {
		return fmt.Errorf("%d systems and %d prices", len(t.Systems), len(t.Prices))
	}
	c.systems, c.prices, c.memory, c.at = t.Systems, t.Prices, t.Memory, &document.Node{}
	if t.Other != nil {
		c.other.Value, c.other.Set = *t.Other, true
	}
	return nil
}

// Asked reports whether the specification asks for costs.
func (c *Cost) Asked() bool { return c.at != nil }

// Price is USD per GPU-hour of a system ("" where no document names one), else the
// default; false if neither is known.
func (c *Cost) Price(system string) (float64, bool) {
	if i := slices.Index(c.systems, system); i >= 0 {
		return c.prices[i], true
	}
	return c.other.Value, c.other.Set
}

// readCost reads the cost section: usd_per_gpu_hour is a mapping from system to price
// with an optional default, or one price.
func readCost(f *document.Faults, n *document.Node) Cost {
	if n == nil || n.Kind == document.Null {
		return Cost{}
	}
	m := f.Mapping(n, "a mapping", []string{"usd_per_gpu_hour", "usd_per_gigabyte_hour"})
	c := Cost{at: n}
	if v := m.Get("usd_per_gigabyte_hour"); v != nil && v.Kind != document.Null {
		c.memory = readMemoryPrices(m)
	}
	prices := m.Get("usd_per_gpu_hour")
	switch {
	case prices == nil:
		m.Missing("usd_per_gpu_hour")
	case prices.Kind == document.Map:
		p := f.Mapping(prices, "", prices.Keys)
		for _, system := range prices.Keys {
			price := p.Float(system, document.NotNull)
			p.Require(document.FiniteFrom(price.Value, 0), system, "a price must be finite and non-negative")
			if system == "default" {
				c.other = price
				continue
			}
			c.systems, c.prices = append(c.systems, system), append(c.prices, price.Value)
		}
	default:
		c.other = m.Float("usd_per_gpu_hour", document.NotNull)
		m.Require(document.FiniteFrom(c.other.Value, 0), "usd_per_gpu_hour", "a price must be finite and non-negative")
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

// readMemoryPrices reads usd_per_gigabyte_hour; what it leaves out costs nothing.
func readMemoryPrices(m document.Mapping) (prices [3]float64) {
	p := m.Sub("usd_per_gigabyte_hour", "a mapping", kvTierNames)
	for i, name := range kvTierNames {
		v := p.Float(name, document.NotNull)
		p.Require(document.FiniteFrom(v.Value, 0), name, "a price must be finite and non-negative")
		prices[i] = v.Value
	}
	return prices
}

// MemoryUSD is what the kv_tiers of a role cost: those of each worker by the hours of
// its workers, shared ones by the hours of the run.
func (c *Cost) MemoryUSD(r *Role, workerHours, hours float64) (usd float64) {
	if r.Tiers == nil {
		return 0
	}
	for i, t := range r.Tiers {
		had := workerHours
		if t.Shared {
			had = hours
		}
		usd += float64(t.Gigabytes * c.memory[i] * had)
	}
	return usd
}
