package compare

import (
	"slices"
	"strings"
)

// An axis is one of three things. The load is what is asked for: traffic, SLA and the
// model that is served. The environment is what an operator finds: how long a worker
// takes to start, how fast the KV cache is transferred, what a GPU costs. Everything else
// is a knob, which an operator chooses. There is one verdict for every load in every
// environment.

// startupAxis is the time that a worker takes to start, in seconds.
const startupAxis = "planner.startup_seconds"

// isGiven reports whether an axis is part of the load.
func isGiven(axis string) bool {
	return strings.HasPrefix(axis, "workload.") || strings.HasPrefix(axis, "sla.") ||
		strings.HasPrefix(axis, "timing.") && strings.HasSuffix(axis, ".model")
}

// isEnvironment reports whether an axis is part of the environment.
func isEnvironment(axis string) bool {
	return axis == startupAxis || isTransfer(axis) || strings.HasPrefix(axis, "cost.")
}

// isTransfer reports whether an axis says how a KV cache gets from prefill to decode.
func isTransfer(axis string) bool {
	return axis == "topology.kv_transfer.bandwidth_gb_per_second" || axis == "topology.kv_transfer.contention"
}

// unaffected reports whether a point is the same at every value of an axis of the
// environment: a fleet of a fixed size starts no worker, and an aggregated one transfers
// nothing.
func (x *Axis) unaffected(p *Point) bool {
	switch {
	case !x.environment || p.values[x.at] != "":
		return false
	case x.Name == startupAxis:
		return !p.Setup.Planner
	}
	return isTransfer(x.Name) && !p.Setup.Disaggregated
}

// traffic is the values of a point on the axes of the load, as a key.
func (s *Sweep) traffic(p *Point) string {
	var key []string
	for k := range s.Axes {
		if x := &s.Axes[k]; x.load && !x.environment {
			key = append(key, p.values[x.at])
		}
	}
	return strings.Join(key, "\x00")
}

// loads groups the cases by load, in order of appearance, and by environment, in the
// order of its values. A case that an environment does not affect stands in all of them.
func (a *Analysis) loads() {
	var groups []string
	members := map[string][]int{}
	for i := range a.Cases {
		key := a.s.traffic(a.Cases[i].Point)
		if _, ok := members[key]; !ok {
			groups = append(groups, key)
		}
		members[key] = append(members[key], i)
	}
	for traffic, key := range groups {
		for _, env := range a.environments(members[key]) {
			a.addLoad(traffic, members[key], env)
		}
	}
	if len(a.Loads) > 0 && !a.Rejudge {
		a.SLA = a.Loads[0].SLA
		for i := range a.Loads {
			if a.Loads[i].SLA != a.SLA {
				a.SLA = SLA{}
			}
		}
	}
}

// setting is a value of an axis of the environment.
type setting struct {
	axis  *Axis
	value string // "": the default
}

// environments is every combination of the values that the cases have on the axes of the
// environment.
func (a *Analysis) environments(cases []int) [][]setting {
	out := [][]setting{nil}
	for k := range a.s.Axes {
		x := &a.s.Axes[k]
		if !x.environment {
			continue
		}
		seen := map[string]bool{}
		for _, i := range cases {
			if p := a.Cases[i].Point; !x.unaffected(p) {
				seen[p.values[x.at]] = true
			}
		}
		var longer [][]setting
		for _, env := range out {
			for _, v := range append([]string{""}, x.Values...) {
				if seen[v] {
					longer = append(longer, append(slices.Clone(env), setting{x, v}))
				}
			}
		}
		if len(seen) > 0 {
			out = longer
		}
	}
	return out
}

// addLoad adds the load of the cases that run in an environment, unless none does.
func (a *Analysis) addLoad(traffic int, cases []int, env []setting) {
	l := Load{traffic: traffic, environment: env}
	for _, i := range cases {
		p := a.Cases[i].Point
		fits := true
		for _, e := range env {
			fits = fits && (e.axis.unaffected(p) || p.values[e.axis.at] == e.value)
		}
		if fits {
			l.Cases = append(l.Cases, i)
		}
	}
	if len(l.Cases) == 0 {
		return
	}
	k := len(a.Loads)
	for _, i := range l.Cases {
		c := &a.Cases[i]
		if len(c.Loads) == 0 {
			c.Load = k
		}
		c.Loads = append(c.Loads, k)
	}
	first := a.Cases[l.Cases[0]].Point
	l.SLA = first.Setup.SLA
	if a.Rejudge {
		l.SLA = a.SLA
	}
	l.Label = a.s.loadLabel(func(x *Axis) string {
		for _, e := range env {
			if e.axis == x {
				return e.value
			}
		}
		return first.values[x.at]
	})
	a.Loads = append(a.Loads, l)
}

// LoadLabels names the loads that a case stands in.
func (a *Analysis) LoadLabels(c *Case) string {
	var out []string
	for _, k := range c.Loads {
		out = append(out, a.Loads[k].Label)
	}
	return strings.Join(out, "; ")
}

// loadOf spells the load and the environment of a point, as far as they vary; "" if they do
// not.
func (s *Sweep) loadOf(p *Point) string {
	return s.loadLabel(func(x *Axis) string { return p.values[x.at] })
}

func (s *Sweep) loadLabel(value func(*Axis) string) string {
	var parts []string
	for i := range s.Axes {
		x := &s.Axes[i]
		v := ""
		if x.load && !x.echo {
			v = value(x)
		}
		switch {
		case v == "":
		case x.Name == startupAxis:
			parts = append(parts, "startup "+v+" s")
		default:
			parts = append(parts, x.Short()+" "+x.word(v))
		}
	}
	return strings.Join(parts, ", ")
}
