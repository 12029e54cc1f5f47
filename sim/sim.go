package sim

import "dynosweep/sim/kv"

// KVEvents is a batch of KV events of one rank.
type KVEvents = *kv.Events
