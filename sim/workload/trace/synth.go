package trace

import (
	"io"

	"github.com/dynosweep/dynosweep/sim/workload"
)

// WriteSynthetic writes generated load as a mooncake trace (of cumulative turns: a
// mooncake-delta trace) with blocks of blockSize tokens that replays to the figures of the load itself: the speed-up is in the times, and
// a closed loop is to be replayed with the same concurrency. It streams.
func WriteSynthetic(w io.Writer, s workload.Synthetic, blockSize int) error {
	if _, err := s.NewSource(blockSize); err != nil {
		return err
	}
	feed, shared := s.Sessions(blockSize)
	n := (s.InputTokens + blockSize - 1) / blockSize
	fresh := uint64(max(s.PrefixGroups, 0)) * uint64(shared) // ids below are those of groups
	out := newRowWriter(w)
	for ref, startMs, ok := feed.Next(); ok; ref, startMs, ok = feed.Next() {
		for turn := range feed.Turns(ref) {
			out.begin()
			if n := feed.Names(ref, turn); n.HasSession {
				out.text("session_id", n.Session)
			}
			if turn == 0 {
				out.ms("timestamp", startMs)
			} else {
				out.ms("delay", feed.DelayMs(ref, turn))
			}
			out.int("input_length", int64(s.InputTokens))
			out.int("output_length", int64(s.OutputTokens))
			out.ids("hash_ids", n, func(i int) uint64 {
				if i < shared {
					return uint64(ref.Tag)*uint64(shared) + uint64(i)
				}
				fresh++
				return fresh - 1
			})
			if err := out.end(); err != nil {
				return err
			}
		}
	}
	return out.flush()
}
