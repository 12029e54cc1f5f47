package router

import (
	"errors"
	"fmt"
	"math"
)

// Config is the KV router's configuration, complete (spec kv-router 3).
type Config struct {
	OverlapCredit       float64 // blocks of prefill cost forgiven per cached block, >= 0
	HostWeight          float64 // the same per block found in host memory behind the pool only, 0..1
	CreditDecay         float64 // how fast the credit falls with a rank's backlog, >= 0
	PrefillScale        float64 // factor of the prefill part of the cost, >= 0
	ActiveRequestWeight float64 // blocks of cost per active request of the rank, >= 0
	Temperature         float64 // 0: lowest cost; else softmax over range-normalised costs
	TrackActiveBlocks   bool    // else decode load is always 0
	AssumeKVReuse       bool    // else prompts never share blocks in the book
	TrackPrefillTokens  bool    // else the prefill part of the cost, and busy, are always 0
	Profile             Profile
	Estimator           Estimator // nil: booked prefill load does not melt
}

// DefaultConfig returns what an empty document means.
func DefaultConfig() Config {
	return Config{
		OverlapCredit: 1, HostWeight: 0.75, PrefillScale: 1,
		TrackActiveBlocks: true, AssumeKVReuse: true, TrackPrefillTokens: true,
		Profile: singleClass(none, FCFS),
	}
}

// Validate reports every value out of range.
func (c *Config) Validate() error {
	var errs []error
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"decode_active_request_weight", c.ActiveRequestWeight},
		{"overlap_score_credit", c.OverlapCredit},
		{"overlap_score_credit_decay", c.CreditDecay},
		{"prefill_load_scale", c.PrefillScale},
		{"router_temperature", c.Temperature},
	} {
		if !finite(v.value) {
			errs = append(errs, fmt.Errorf("%s must be finite and non-negative", v.name))
		}
	}
	if len(c.Profile.Classes) == 0 {
		errs = append(errs, errors.New("policy_classes must not be empty"))
	}
	return errors.Join(errs...)
}

// finite reports whether v is finite and not negative.
func finite(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

// Side is the pool a router serves.
type Side uint8

const (
	Aggregated Side = iota
	Prefill
	Decode
)

func (s Side) String() string { return [...]string{"aggregated", "prefill", "decode"}[s] }

// derive returns the configuration of one side of a deployment (spec kv-router
// 9.1): a prefill router has no block load; a decode router sees no overlap, no
// sharing and no prefill load.
func (c Config) derive(side Side) Config {
	switch side {
	case Prefill:
		c.TrackActiveBlocks = false
	case Decode:
		c.OverlapCredit, c.AssumeKVReuse, c.TrackPrefillTokens, c.Estimator = 0, false, false, nil
	}
	return c
}

// QueuePolicy is the order inside a policy class.
type QueuePolicy uint8

const (
	FCFS QueuePolicy = iota // first come, first served
	LCFS                    // last come, first served
	WSPT                    // weighted shortest processing time: priority over uncached tokens
)

func (p QueuePolicy) String() string { return [...]string{"fcfs", "lcfs", "wspt"}[p] }

// none stands for an absent limit or threshold.
const none = -1

// Class is one policy class: a queue of its own, with its busy line, its share of
// the drain and its limits (spec kv-router 8). A negative threshold or limit is
// absent.
type Class struct {
	Name        string
	Policy      QueuePolicy
	Quantum     int64   // tokens that a round of deficit round robin grants, >= 1
	BusyTokens  int64   // a rank with more active prefill tokens is busy
	BusyFrac    float64 // the same, as a fraction of max_num_batched_tokens
	MaxRequests int64   // limits on what waits, per rank of the eligible workers
	MaxISL      int64   // raw prompt tokens
	MaxCached   int64   // prompt tokens that were cached at arrival
}

// queues reports whether requests of the class can ever wait.
func (c *Class) queues() bool { return c.BusyTokens >= 0 || c.BusyFrac >= 0 }

// Profile is a set of policy classes and the rule that finds a request's class: by
// the name of an explicit class, else by family and by uncached prompt length. A
// profile without families has one class for everything.
type Profile struct {
	Classes       []Class
	Explicit      []int    // indices of classes that are asked for by name
	Families      []string // [family]
	DefaultFamily int
	MinTokens     []int64 // [bucket] smallest uncached length, ascending from 0
	Cells         [][]int // [family][bucket] index of a class
}

// singleClass is the profile that applies without a policy file: one class, whose
// busy line is a fraction of max_num_batched_tokens (negative: never queue).
func singleClass(busyFrac float64, policy QueuePolicy) Profile {
	return Profile{Classes: []Class{{Name: "default", Policy: policy, Quantum: 1, BusyTokens: none,
		BusyFrac: busyFrac, MaxRequests: none, MaxISL: none, MaxCached: none}}}
}

// classByName returns the class that a request has whatever its length, -1 if the length
// decides.
func (p *Profile) classByName(name string) int {
	if len(p.Families) == 0 {
		return 0
	}
	if name != "" {
		for _, i := range p.Explicit {
			if p.Classes[i].Name == name {
				return i
			}
		}
	}
	return -1
}

// classify returns the class of a request of uncached tokens. Names that are no
// family, also names of family-bucket classes, fall to the default family.
func (p *Profile) classify(name string, uncached int64) int {
	family := p.DefaultFamily
	if name != "" {
		for i, f := range p.Families {
			if f == name {
				family = i
			}
		}
	}
	bucket := 0
	for i, from := range p.MinTokens {
		if from <= uncached {
			bucket = i
		}
	}
	return p.Cells[family][bucket]
}
