package main

import (
	"encoding/json"
	"io"
	"strconv"

	"github.com/dynosweep/dynosweep/sim"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// kvEvent is one line of --kv-events-jsonl. A block id names a block with its whole
// prefix; ids are the run's own and only compare equal. They take 64 bits, which a
// JSON number does not keep everywhere, so they are strings.
type kvEvent struct {
	AtMs   float64  `json:"at_ms"`
	Pool   string   `json:"pool"`
	Worker int32    `json:"worker_id"`
	Rank   int32    `json:"dp_rank"`
	Event  string   `json:"event"`
	Parent *string  `json:"parent,omitempty"` // of the first stored block; absent at the start of a prompt
	Blocks []string `json:"blocks"`
}

// kvEventWriter writes every stored and removed event.
func kvEventWriter(w io.Writer) func(float64, metrics.Pool, int32, int32, sim.KVEvents) error {
	out := json.NewEncoder(w)
	return func(atMs float64, pool metrics.Pool, worker, rank int32, ev sim.KVEvents) error {
		for _, e := range ev.Items {
			line := kvEvent{AtMs: atMs, Pool: pool.String(), Worker: worker, Rank: rank, Event: "removed"}
			if e.Stored {
				line.Event = "stored"
			}
			if e.HasParent {
				id := strconv.FormatUint(uint64(e.Parent), 10)
				line.Parent = &id
			}
			for _, b := range ev.BlocksOf(e) {
				line.Blocks = append(line.Blocks, strconv.FormatUint(uint64(b), 10))
			}
			if err := out.Encode(&line); err != nil {
				return err
			}
		}
		return nil
	}
}
