package router

import (
	"slices"
	"strings"
)

// Mode describes one way to place requests. Everything that differs between modes
// outside their own code stands here; nobody compares their numbers or names.
type Mode struct {
	Name       string   // in documents, results and on the command line
	Aliases    []string // other spellings that documents may use
	Frontend   string   // --router-mode of a Dynamo frontend that does the same
	Summary    string   // what it does, one sentence without a full stop
	Draws      bool     // the router seed decides something among two or more ranks
	Configured bool     // reads Options.Config: cost, queue and policy classes
	Events     bool     // reads KV events, so that EventLagMs matters
	Reference  bool     // the reference has it; search domains that name no mode try these

	build func(Options) (Placement, error)
}

// modes has the default first.
var modes = []*Mode{
	{Name: "round_robin", Frontend: "round-robin", Reference: true,
		Summary: "visits the active workers in turn",
		build:   func(o Options) (Placement, error) { return NewRoundRobin(rotationOf(o.Side), o.DPSize), nil }},
	{Name: "kv_router", Frontend: "kv", Draws: true, Configured: true, Events: true, Reference: true,
		Summary: "weighs cached prefixes against load, by KV events",
		build:   func(o Options) (Placement, error) { return NewKV(o) }},
	{Name: "random", Frontend: "random", Draws: true,
		Summary: "draws an active worker, all alike",
		build:   func(o Options) (Placement, error) { return newBalancer(o, "random", drawAny), nil }},
	{Name: "least_loaded", Aliases: []string{"least-loaded"}, Frontend: "least-loaded", Draws: true,
		Summary: "takes the worker with the fewest requests in flight and draws among equals",
		build:   func(o Options) (Placement, error) { return newBalancer(o, "least_loaded", drawLeastLoaded), nil }},
	{Name: "power_of_two", Aliases: []string{"power-of-two"}, Frontend: "power-of-two", Draws: true,
		Summary: "draws two workers and takes the one with fewer requests in flight",
		build:   func(o Options) (Placement, error) { return newBalancer(o, "power_of_two", drawOfTwo), nil }},
}

// Modes lists all modes, the default first.
func Modes() []*Mode { return slices.Clone(modes) }

// DefaultMode is the mode of a document that names none.
func DefaultMode() *Mode { return modes[0] }

// KVMode is the mode of the KV router.
func KVMode() *Mode { return modes[1] }

// ModeNames lists the names of all modes, the default first.
func ModeNames() []string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = m.Name
	}
	return names
}

// FindMode returns the mode of a name or an alias, nil if there is none.
func FindMode(name string) *Mode {
	for _, m := range modes {
		if m.Name == name || slices.Contains(m.Aliases, name) {
			return m
		}
	}
	return nil
}

// DescribeModes lists all modes, each with its summary, for help and reference.
// format surrounds a name, as "`%`" with % for the name.
func DescribeModes(format string) string {
	parts := make([]string, len(modes))
	for i, m := range modes {
		parts[i] = strings.ReplaceAll(format, "%", m.Name) + " " + m.Summary
		if i == 0 {
			parts[i] += " (default)"
		}
	}
	return strings.Join(parts, "; ")
}

// New returns the placement of one pool, without workers, or what is wrong with o.
// A mode that is not Configured does not look at o.Config.
func (m *Mode) New(o Options) (Placement, error) { return m.build(o) }
