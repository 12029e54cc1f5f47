package workload

import "io"

// WriteTrace writes the load as a mooncake trace (of cumulative turns: a
// mooncake-delta trace) with blocks of blockSize tokens that replays to the figures of the load itself: the speed-up is in the times, and
// a closed loop is to be replayed with the same concurrency. It streams.
func (s Synthetic) WriteTrace(w io.Writer, blockSize int) error {
	if _, err := s.NewSource(blockSize); err != nil {
		return err
	}
	feed := s.feed(blockSize)
	n := (s.InputTokens + blockSize - 1) / blockSize
	fresh := uint64(max(s.PrefixGroups, 0)) * uint64(feed.shared) // ids below are those of groups
	out := newRowWriter(w)
	for ref, startMs, ok := feed.next(); ok; ref, startMs, ok = feed.next() {
		for turn := range feed.turns(ref) {
			out.begin()
			if n := feed.names(ref, turn); n.HasSession {
				out.text("session_id", n.Session)
			}
			if turn == 0 {
				out.ms("timestamp", startMs)
			} else {
				out.ms("delay", feed.delayMs(ref, turn))
			}
			out.int("input_length", int64(s.InputTokens))
			out.int("output_length", int64(s.OutputTokens))
			out.ids("hash_ids", n, func(i int) uint64 {
				if i < feed.shared {
					return uint64(ref.tag)*uint64(feed.shared) + uint64(i)
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
