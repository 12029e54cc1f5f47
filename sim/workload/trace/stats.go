package trace

import (
	"fmt"
	"math"
	"math/bits"
)

// Stats describes a trace. Lengths are tokens.
type Stats struct {
	Format       string      `json:"format"`
	BlockSize    int         `json:"block_size"`
	Requests     int64       `json:"requests"`
	Sessions     int64       `json:"sessions"`          // or plays of a graph
	Dropped      int64       `json:"dropped"`           // rows of a table without a prompt
	Failed       int64       `json:"failed"`            // rows of failed requests that were left out
	Notices      []string    `json:"notices,omitempty"` // what of the files is not counted here, one sentence each
	InputTokens  int64       `json:"input_tokens"`
	OutputTokens int64       `json:"output_tokens"`
	ISL          Quantiles   `json:"isl"`
	OSL          Quantiles   `json:"osl"`
	DurationMs   float64     `json:"duration_ms"` // first to last timestamp
	RatePerS     float64     `json:"rate_per_s"`  // timed requests over the duration
	Arrivals     []RatePoint `json:"arrivals"`
	Reuse        Reuse       `json:"reuse"`
}

// Quantiles of a length: nearest rank, exact below 65536, above it within 2^-15.
type Quantiles struct {
	Mean float64 `json:"mean"`
	Min  int64   `json:"min"`
	P50  int64   `json:"p50"`
	P75  int64   `json:"p75"`
	P90  int64   `json:"p90"`
	P95  int64   `json:"p95"`
	P99  int64   `json:"p99"`
	Max  int64   `json:"max"`
}

// RatePoint is the arrivals of one stretch of time, counted from the first one.
type RatePoint struct {
	StartMs  float64 `json:"start_ms"`
	WidthMs  float64 `json:"width_ms"`
	Requests int64   `json:"requests"`
	RatePerS float64 `json:"rate_per_s"`
}

// Reuse says how much of the prompts is shared. A block is shared when its whole
// prefix is, too.
type Reuse struct {
	// Infinite is the share of input tokens that a cache that forgets nothing would
	// hold already when the request comes, in file order.
	Infinite float64 `json:"infinite_cache_ratio"`
	// SharedTokens is the share of input tokens in blocks that several requests have.
	SharedTokens float64 `json:"shared_token_ratio"`
	// SharedRequests is the share of requests whose first block others have, too.
	SharedRequests float64 `json:"shared_request_ratio"`
	DistinctBlocks int64   `json:"distinct_blocks"`
	// Sampled is the share of blocks that was looked at; 1 is exact. Large traces
	// are sampled by block, so that memory stays flat.
	Sampled float64 `json:"sampled_ratio"`
	// Curve is the hit share against the size of an LRU cache, at powers of two up to
	// where it is flat. It takes all prompts in file order, those that grow inside a
	// delta session excepted.
	Curve []SizePoint `json:"lru_curve"`
}

// Stat reads files and describes them. Mooncake files and tables stream in flat
// memory; other formats are loaded.
func Stat(files []string, o LoadOptions) (*Stats, error) {
	a := newAccount()
	st := &Stats{BlockSize: o.BlockSize, Arrivals: []RatePoint{}}
	if o.Format == Mooncake || o.Format > Weka {
		if err := o.checkFiles(files); err != nil {
			return nil, err
		}
		rows, err := openRows(files[0], o)
		if err != nil {
			return nil, err
		}
		for rows.next() {
			a.row(rows.row(), rows.spot(), o.BlockSize)
		}
		if _, err := rows.close(); err != nil {
			return nil, err
		}
		left := rows.leftOut()
		st.Dropped, st.Failed, st.Notices = left.dropped, left.failed, left.notices
		if a.requests == 0 {
			return nil, &InputError{File: files[0], Msg: fmt.Sprintf("trace file %s did not contain any requests", files[0])}
		}
	} else {
		t, err := Load(files, o)
		if err != nil {
			return nil, err
		}
		a.trace(t)
		st.Notices = t.Notices()
		st.BlockSize = t.blockSize
	}
	st.Format = o.Format.String()
	a.fill(st)
	return st, nil
}

// account sums up requests one by one.
type account struct {
	requests        int64
	sessions        int64 // counted without a name
	named           *sampledSet
	blocks          *sampledSet // by chain hash; weights are tokens
	firsts          *sampledSet // first blocks of prompts
	held, grownTo   int64       // tokens of prompts that grow inside their session, and those held before
	input, output   lengths
	arrivals        rateCurve
	inputs, outputs int64
	curve           *reuseCurve
}

func newAccount() *account {
	return &account{named: newSampledSet(), blocks: newSampledSet(), firsts: newSampledSet(), curve: newReuseCurve()}
}

// row books a row of a file.
func (a *account) row(r *row, at spot, blockSize int) {
	if r.has&hasSession != 0 {
		a.named.add(hashText(r.session), 0)
	} else {
		a.sessions++
	}
	if r.has&hasTimestamp != 0 {
		a.arrivals.add(r.timestampMs)
	}
	chain := uint64(0)
	a.request(int64(r.input), int64(r.output), len(r.ids), blockSize, func(i int) uint64 {
		chain = mixHash(chain ^ mixHash(r.ids[i]+1))
		return chain
	})
}

// trace books all requests of a loaded trace. Prompts of a delta session hold what
// its turns before hold and generate.
func (a *account) trace(t *Trace) {
	a.sessions = int64(t.Sessions())
	nodes := func(i int) func(k int) uint64 {
		return func(k int) uint64 { return mixHash(uint64(t.nodes[t.turns[i].first+k]) + 1) }
	}
	count := func(i int) int { return (int(t.turns[i].input) + t.blockSize - 1) / t.blockSize }
	if t.graph != nil {
		for i := range t.turns {
			turn := &t.turns[i]
			if t.graph.waits[i] == 0 {
				a.arrivals.add(turn.delayMs)
			}
			a.request(int64(turn.input), int64(turn.output), count(i), t.blockSize, nodes(i))
		}
		return
	}
	for s := range len(t.sessions) - 1 {
		if startMs := t.sessions[s].startMs; !math.IsNaN(startMs) {
			a.arrivals.add(startMs)
		}
		held := int64(0)
		for i := t.sessions[s].first; i < t.sessions[s+1].first; i++ {
			turn := &t.turns[i]
			if held > 0 {
				a.grown(held, int64(turn.input), int64(turn.output))
			} else {
				a.request(int64(turn.input), int64(turn.output), count(int(i)), t.blockSize, nodes(int(i)))
			}
			if t.delta() {
				held += int64(turn.input) + int64(turn.output)
			}
		}
	}
}

// request books one request; chain(i) is the hash of its blocks 0 to i.
func (a *account) request(input, output int64, n, blockSize int, chain func(i int) uint64) {
	a.lengths(input, output)
	a.curve.hashes = a.curve.hashes[:0]
	for i := range n {
		h := chain(i)
		tokens := min(input-int64(i)*int64(blockSize), int64(blockSize))
		if i == 0 {
			a.firsts.add(h, 1)
		}
		a.blocks.add(h, tokens)
		a.curve.hashes = append(a.curve.hashes, h)
	}
	a.curve.request(a.curve.hashes, input, int64(blockSize))
}

// grown books a turn whose prompt begins with held tokens of its own session.
func (a *account) grown(held, input, output int64) {
	a.lengths(held+input, output)
	a.held += held
	a.grownTo += held + input
}

func (a *account) lengths(input, output int64) {
	a.requests++
	a.inputs += input
	a.outputs += output
	a.input.add(input)
	a.output.add(output)
}

func (a *account) fill(st *Stats) {
	st.Requests, st.InputTokens, st.OutputTokens = a.requests, a.inputs, a.outputs
	st.Sessions = a.sessions + a.named.distinct()
	st.ISL, st.OSL = a.input.quantiles(), a.output.quantiles()
	a.arrivals.fill(st)
	blocks, firsts := a.blocks.sum(), a.firsts.sum()
	share := func(part, whole int64) float64 {
		kept := a.blocks.ratio() // what grows is not sampled
		return (float64(part) + float64(kept*float64(a.held))) / max(float64(whole)+float64(kept*float64(a.grownTo)), 1)
	}
	st.Reuse = Reuse{
		Infinite:       share(blocks.again, blocks.weight),
		SharedTokens:   share(blocks.shared, blocks.weight),
		SharedRequests: float64(firsts.shared) / float64(max(firsts.weight, 1)),
		DistinctBlocks: a.blocks.distinct(),
		Sampled:        a.blocks.ratio(),
		Curve:          a.curve.points(st.BlockSize),
	}
}

// sampledSet counts how often each of many hashes comes, and a weight with it. When
// it is full it keeps every other hash, by the hash itself: what is kept is counted
// exactly, so that shares of it estimate shares of the whole.
type sampledSet struct {
	slots []sampleSlot // power of two
	n     int
	drop  int // leading bits of a hash that must be 0 for it to be kept
}

type sampleSlot struct {
	hash   uint64
	weight int64  // of all times
	first  int32  // weight of the first time
	count  uint32 // 0: empty; stops at its limit
}

// sampleLimit bounds a set: 24 MB.
const sampleLimit = 1 << 19

func newSampledSet() *sampledSet { return &sampledSet{slots: make([]sampleSlot, 1<<10)} }

// add books a hash that comes with a weight.
func (s *sampledSet) add(hash uint64, weight int64) {
	if bits.LeadingZeros64(hash) < s.drop {
		return
	}
	slot := s.find(hash)
	if slot.count == 0 {
		slot.hash, slot.first = hash, int32(weight)
		s.n++
	}
	slot.weight += weight
	slot.count = max(slot.count+1, slot.count)
	if 2*s.n > len(s.slots) {
		s.rebuild()
	}
}

func (s *sampledSet) find(hash uint64) *sampleSlot {
	mask := uint64(len(s.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if slot := &s.slots[i]; slot.count == 0 || slot.hash == hash {
			return slot
		}
	}
}

// rebuild doubles the room, or at the limit halves the sample.
func (s *sampledSet) rebuild() {
	old := s.slots
	if s.n >= sampleLimit {
		s.drop++
		s.slots = make([]sampleSlot, len(old))
	} else {
		s.slots = make([]sampleSlot, 2*len(old))
	}
	s.n = 0
	for _, slot := range old {
		if slot.count > 0 && bits.LeadingZeros64(slot.hash) >= s.drop {
			*s.find(slot.hash) = slot
			s.n++
		}
	}
}

// ratio is the share of hashes that is kept.
func (s *sampledSet) ratio() float64 { return math.Ldexp(1, -s.drop) }

// distinct estimates the number of different hashes.
func (s *sampledSet) distinct() int64 { return int64(s.n) << s.drop }

// sampleSum is the weight of all hashes, of those that came more than once, and of
// all times but the first.
type sampleSum struct{ weight, shared, again int64 }

func (s *sampledSet) sum() (t sampleSum) {
	for i := range s.slots {
		slot := &s.slots[i]
		if slot.count == 0 {
			continue
		}
		t.weight += slot.weight
		if slot.count > 1 {
			t.shared += slot.weight
			t.again += slot.weight - int64(slot.first)
		}
	}
	return t
}

// mixHash spreads every input bit over the output; a bijection.
func mixHash(v uint64) uint64 {
	v += 0x9E3779B97F4A7C15
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	return v ^ v>>31
}

func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mixHash(h)
}
