// Package tier simulates the memory behind the KV pool of an engine: host memory (G2)
// and tiers behind that (spec kv-offload). Blocks are copied down when they are
// computed (write-through) and loaded back when a prompt that left the pool returns.
//
//	m := tier.New(config)
//	rank := m.Join(client)                  // every rank that uses the memory
//	job := m.PrepareStore(rank, req, blocks)    // while a pass is made
//	m.SubmitStore(job, passEndMs)           // at its end
//	m.Lookup(rank, blocks)                  // when a waiting request is looked at
//	m.Load(rank, req, blocks, nowMs)
//	m.Advance(nowMs)                        // at m.NextMs(): ends come back to the clients
//
// One Memory belongs to one rank (dp_rank_local) or to all ranks of a deployment
// (cluster_shared). Times are float64 ms, sizes bytes, bandwidths decimal GB/s in a
// Config and bytes/ms inside. A Memory is not safe for concurrent use.
package tier

import (
	"errors"
	"math"
	"slices"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// Config is the memory behind the pools of one role.
type Config struct {
	BlockBytes float64 // of one KV block
	Host       Host
	Third      *Third // nil: nothing behind the host
}

// Host is host memory (G2).
type Host struct {
	Blocks              int
	Shared              bool   // cluster_shared: one pool for all workers; else one per rank
	Layout              string // kv_layout_id
	WriteGBps, ReadGBps float64
	SharedWriteGBps     float64 // of all ranks together; +Inf: no cap
	SharedReadGBps      float64
	LatencyMs           float64
}

// Third is a tier behind the host (G3).
type Third struct {
	Blocks              int
	Shared              bool // cluster_shared; else one per worker
	WriteGBps, ReadGBps float64
	SharedWriteGBps     float64 // +Inf: no cap
	SharedReadGBps      float64
	LatencyMs           float64
}

// Validate returns what no complete configuration contains.
func (c *Config) Validate() error {
	if c.Host.Blocks < 1 || c.BlockBytes <= 0 || c.Third != nil && c.Third.Blocks < 1 {
		return errors.New("native_host_offload: blocks and bytes per block must be positive")
	}
	return nil
}

// Hasher gives the blocks of prompts the hashes by which blocks of equal age are
// evicted.
type Hasher interface {
	// BlockHashes appends the sequence hashes of blocks from..to-1 of the prompt, of
	// which parent is that of block from-1.
	BlockHashes(dst []uint64, p *kv.Prompt, from, to int, parent uint64) []uint64
}

// Blocks are blocks From..To-1 of a prompt.
type Blocks struct {
	Prompt   *kv.Prompt
	From, To int
}

// Client hears of the transfers of its rank and of changes of its host memory.
type Client interface {
	// Stored tells that a store of a request ended, which read these sources.
	Stored(req, job int32, sources []int32)
	// Loaded tells that the blocks of a request's load are there.
	Loaded(req, job int32)
	// Staged tells that blocks which a request waits for came into the host memory.
	Staged(req, job int32)
	// Held tells that blocks came into the host memory, Lost that they left it.
	Held(ids []kv.BlockID)
	Lost(ids []kv.BlockID)
}

type jobKind uint8

const (
	storeJob jobKind = iota // pool to host
	loadJob                 // host to pool
	writeJob                // host to third tier
	readJob                 // third tier to host
)

// job is one transfer.
type job struct {
	kind    jobKind
	running bool
	moving  bool // bytes move (equal shares only)
	rank    int32
	req     int32
	slots   []int32 // in the host memory
	far     []int32 // in the third tier
	sources []int32 // slots in the pool that a store reads, as its client named them
	bytes   float64

	submitMs, readyMs, endMs, left, rate float64
}

// Memory is the host memory of a role and what stands behind it.
type Memory struct {
	cfg     Config
	hasher  Hasher
	ranks   []rank
	hosts   []*host  // one per rank, or one for all
	thirds  []*third // one per worker, or one for all; none without a third tier
	jobs    []job
	free    []int32
	atMs    float64 // of the next change, cached
	inPass  []bool  // [worker], a pass of it is in flight
	hashes  []uint64
	missing []int32 // indices of the blocks of a cohort that are not there
	ids     []kv.BlockID
	lost    []kv.BlockID
}

// rank is a user of the memory.
type rank struct {
	client Client
	host   *host
	third  *third // nil: none
	worker int32
	jobs   int // under way
}

// host is one pool of host memory with its links.
type host struct {
	store         Store
	down, up      link // from the pool, to the pool
	users         []int32
	refused       int64 // stores that found no room
	writes, reads transfers
	shared        bool
	worker        int32 // whose it is, unless shared
}

// third is one pool behind the host.
type third struct {
	shared                         bool
	worker                         int32 // whose it is, unless shared
	store                          Store
	write, read                    link
	probes, hits, pending, crossed int64
	writes, reads                  transfers
	refused                        int64 // writes that found no room
}

type transfers struct {
	submitted, completed int64
	bytes, ms            float64
}

// New returns an empty memory. hasher may be nil.
func New(cfg Config, hasher Hasher) *Memory {
	return &Memory{cfg: cfg, hasher: hasher, atMs: math.Inf(1)}
}

// Join adds a rank of a worker and returns its number. Ranks of a worker come one
// after the other.
func (m *Memory) Join(worker int32, c Client) int32 {
	n := int32(len(m.ranks))
	for int(worker) >= len(m.inPass) {
		m.inPass = append(m.inPass, false)
	}
	r := rank{client: c, worker: worker}
	h := &m.cfg.Host
	if len(m.hosts) == 0 || !h.Shared {
		m.hosts = append(m.hosts, &host{store: newStore(h.Blocks), shared: h.Shared, worker: worker,
			down: newLink(!h.Shared, h.LatencyMs, h.WriteGBps, h.SharedWriteGBps),
			up:   newLink(!h.Shared, h.LatencyMs, h.ReadGBps, h.SharedReadGBps)})
	}
	r.host = m.hosts[len(m.hosts)-1]
	r.host.users = append(r.host.users, n)
	if t := m.cfg.Third; t != nil {
		if len(m.thirds) == 0 || !t.Shared && m.ranks[n-1].worker != worker {
			m.thirds = append(m.thirds, &third{store: newStore(t.Blocks), shared: t.Shared, worker: worker,
				write: newLink(false, t.LatencyMs, t.WriteGBps, t.SharedWriteGBps),
				read:  newLink(false, t.LatencyMs, t.ReadGBps, t.SharedReadGBps)})
		}
		r.third = m.thirds[len(m.thirds)-1]
	}
	m.ranks = append(m.ranks, r)
	return n
}

func newLink(fifo bool, latencyMs, gbps, shared float64) link {
	const perMs = 1e6 // bytes of 1 GB/s
	return link{fifo: fifo, latencyMs: latencyMs, rate: gbps * perMs, shared: shared * perMs}
}

// Busy reports whether a transfer of the rank is under way.
func (m *Memory) Busy(rank int32) bool { return m.ranks[rank].jobs > 0 }

// Shared reports that all ranks use one host memory.
func (m *Memory) Shared() bool { return m.cfg.Host.Shared }

// HasThird reports that something stands behind the host memory.
func (m *Memory) HasThird() bool { return m.cfg.Third != nil }

// Private reports that no rank sees what another does: nothing is shared, and nothing
// stands behind the host memory.
func (m *Memory) Private() bool { return !m.cfg.Host.Shared && m.cfg.Third == nil }

// take returns the number of a job without blocks.
func (m *Memory) take(j job) int32 {
	if n := len(m.free); n > 0 {
		at := m.free[n-1]
		m.free = m.free[:n-1]
		old := &m.jobs[at]
		j.slots, j.far, j.sources = old.slots[:0], old.far[:0], old.sources[:0]
		*old = j
		return at
	}
	m.jobs = append(m.jobs, j)
	return int32(len(m.jobs) - 1)
}

// PrepareStore makes room for those of blocks that the host memory lacks, among them
// the ones that busy, which may be nil, does not report. It answers job -1 if none is
// missing, and false, with nothing changed, if one is busy or there is no room.
func (m *Memory) PrepareStore(rank, req int32, b Blocks, busy func(req int32, i int) bool) (j int32, ok bool) {
	h := m.ranks[rank].host
	held := h.gather(b, &m.missing)
	if len(m.missing) == 0 {
		return -1, true
	}
	if busy != nil {
		for _, i := range m.missing {
			if busy(req, int(i)) {
				return -1, false
			}
		}
	}
	if !m.makeRoom(h, len(m.missing), held, b) {
		h.refused++
		return -1, false
	}
	first := int(m.missing[0])
	m.hash(h, b.Prompt, first, int(m.missing[len(m.missing)-1])+1)
	j = m.take(job{kind: storeJob, rank: rank, req: req, bytes: float64(len(m.missing)) * m.cfg.BlockBytes})
	for _, i := range m.missing {
		slot := h.store.reserve(b.Prompt.Block(int(i)), m.hashes[int(i)-first], rank)
		m.jobs[j].slots = append(m.jobs[j].slots, slot)
	}
	h.touch(Blocks{b.Prompt, 0, b.To})
	return j, true
}

// Missing are the indices of the blocks that the latest PrepareStore will store.
func (m *Memory) Missing() []int32 { return m.missing }

// Source adds a slot of the pool that a prepared store reads.
func (m *Memory) Source(j, slot int32) { m.jobs[j].sources = append(m.jobs[j].sources, slot) }

// Sources lists the slots of the pool that stores of a rank read or will read.
func (m *Memory) Sources(rank int32) (slots []int32) {
	for j := range m.jobs {
		if job := &m.jobs[j]; job.rank == rank && job.kind == storeJob && !slices.Contains(m.free, int32(j)) {
			slots = append(slots, job.sources...)
		}
	}
	return slots
}

// gather fills missing with the indices of blocks that the host memory lacks, and
// returns the number of blocks that it has and could evict.
func (h *host) gather(b Blocks, missing *[]int32) (held int) {
	*missing = (*missing)[:0]
	for i := b.From; i < b.To; {
		id, n := b.Prompt.Run(i, b.To)
		for end := i + n; i < end; {
			resident, absent, pending := h.store.run(id, end-i)
			for k := range absent {
				*missing = append(*missing, int32(i+k))
			}
			for k := range resident {
				if slot := h.store.slot(id + kv.BlockID(k)); h.store.at(slot).pins == 0 {
					held++
				}
			}
			n := resident + absent
			if pending {
				n = 1
			}
			i, id = i+n, id+kv.BlockID(n)
		}
	}
	return held
}

// makeRoom evicts for n blocks, none of the cohort, of which held could be evicted.
func (m *Memory) makeRoom(h *host, n, held int, cohort Blocks) bool {
	need := h.store.used + n - h.store.capacity
	if need <= 0 {
		return true
	}
	if n > h.store.capacity || h.store.idle()-held < need {
		return false
	}
	if held > 0 {
		h.touch(cohort) // the youngest are not evicted
	}
	m.lost = m.lost[:0]
	h.store.room(n, &m.lost)
	for _, u := range h.users {
		m.ranks[u].client.Lost(m.lost)
	}
	return true
}

// hash fills m.hashes with the hashes of blocks from..to-1.
func (m *Memory) hash(h *host, p *kv.Prompt, from, to int) {
	m.hashes = m.hashes[:0]
	if m.hasher == nil {
		for i := from; i < to; i++ {
			m.hashes = append(m.hashes, mix(uint64(p.Block(i))))
		}
		return
	}
	if from == 0 {
		m.hashes = m.hasher.BlockHashes(m.hashes, p, 0, to, 0)
		return
	}
	if slot := h.store.slot(p.Block(from - 1)); slot != 0 {
		m.hashes = m.hasher.BlockHashes(m.hashes, p, from, to, h.store.at(slot).hash)
		return
	}
	m.hashes = m.hasher.BlockHashes(m.hashes, p, 0, to, 0)
	m.hashes = append(m.hashes[:0], m.hashes[from:]...)
}

// mix spreads identities that have no hash of their own.
func mix(x uint64) uint64 {
	x = (x ^ x>>31) * 0x9E3779B97F4A7C15
	x = (x ^ x>>29) * 0xBF58476D1CE4E5B9
	return x ^ x>>32
}

// Touch makes the resident blocks that no transfer reads the youngest, the first
// block the very youngest.
func (m *Memory) Touch(rank int32, b Blocks) { m.ranks[rank].host.touch(b) }

func (h *host) touch(b Blocks) {
	for i := b.To - 1; i >= b.From; i-- {
		if slot := h.store.slot(b.Prompt.Block(i)); slot != 0 {
			h.store.touch(slot)
		}
	}
}

// SubmitStore starts a prepared store.
func (m *Memory) SubmitStore(j int32, nowMs float64) {
	m.ranks[m.jobs[j].rank].host.writes.submitted++
	m.submit(&m.ranks[m.jobs[j].rank].host.down, j, nowMs, nowMs)
}

// StoreEndMs is when a running store ends if no other transfer comes.
func (m *Memory) StoreEndMs(j int32) float64 {
	return m.projectMs(&m.ranks[m.jobs[j].rank].host.down, j)
}

// Lookup counts the leading blocks of b that are resident; pending reports that the
// first one that is not is under way.
func (m *Memory) Lookup(rank int32, b Blocks) (n int, pending bool) {
	h := m.ranks[rank].host
	for i := b.From; i < b.To; {
		id, run := b.Prompt.Run(i, b.To)
		for end := i + run; i < end; {
			resident, _, pending := h.store.run(id, end-i)
			if resident == 0 {
				return n, pending
			}
			n, i, id = n+resident, i+resident, id+kv.BlockID(resident)
		}
	}
	return n, false
}

// Load starts to move resident blocks to the pool, not before notBeforeMs, when
// their room there is free.
func (m *Memory) Load(rank, req int32, b Blocks, nowMs, notBeforeMs float64) (j int32) {
	h := m.ranks[rank].host
	j = m.take(job{kind: loadJob, rank: rank, req: req, bytes: float64(b.To-b.From) * m.cfg.BlockBytes})
	for i := b.From; i < b.To; i++ {
		m.jobs[j].slots = append(m.jobs[j].slots, h.store.slot(b.Prompt.Block(i)))
	}
	h.store.pin(m.jobs[j].slots)
	h.reads.submitted++
	m.submit(&h.up, j, nowMs, notBeforeMs)
	return j
}

// NextMs is the next instant at which a transfer starts to move bytes or ends and
// somebody notices.
func (m *Memory) NextMs() float64 { return m.atMs }

// findNext works out NextMs again. What ends while a worker's pass is in flight is
// noticed at the end of the pass, unless all workers share it.
func (m *Memory) findNext() {
	m.atMs = math.Inf(1)
	for _, h := range m.hosts {
		if h.shared || !m.inPass[h.worker] {
			m.atMs = min(m.atMs, m.nextMs(&h.down), m.nextMs(&h.up))
		}
	}
	for _, t := range m.thirds {
		if t.shared || !m.inPass[t.worker] {
			m.atMs = min(m.atMs, m.nextMs(&t.write), m.nextMs(&t.read))
		}
	}
}

// BeginPass tells that a pass of a worker is in flight.
func (m *Memory) BeginPass(worker int32) {
	m.inPass[worker] = true
	m.findNext()
}

// EndPass tells that no pass of a worker is in flight any more.
func (m *Memory) EndPass(worker int32) {
	if m.inPass[worker] {
		m.inPass[worker] = false
		m.findNext()
	}
}

// Due reports whether a transfer of the worker's own memory has ended by nowMs.
func (m *Memory) Due(worker int32, nowMs float64) bool {
	for _, h := range m.hosts {
		if !h.shared && h.worker == worker && min(m.nextMs(&h.down), m.nextMs(&h.up)) <= nowMs {
			return true
		}
	}
	for _, t := range m.thirds {
		if !t.shared && t.worker == worker && min(m.nextMs(&t.write), m.nextMs(&t.read)) <= nowMs {
			return true
		}
	}
	return false
}

// Advance applies the ends of transfers up to nowMs: of one worker's own memory, or,
// if it is -1, of what all workers share. Of equal times stores come before loads.
// It reports whether there was one.
func (m *Memory) Advance(worker int32, nowMs float64) (any bool) {
	mine := func(shared bool, owner int32) bool { return shared && worker < 0 || !shared && owner == worker }
	for again := true; again; {
		again = false
		for _, t := range m.thirds {
			if mine(t.shared, t.worker) {
				again = m.drain(&t.write, nowMs) || again
				again = m.drain(&t.read, nowMs) || again
			}
		}
		for _, h := range m.hosts {
			if mine(h.shared, h.worker) {
				again = m.drain(&h.down, nowMs) || again
			}
		}
		for _, h := range m.hosts {
			if mine(h.shared, h.worker) {
				again = m.drain(&h.up, nowMs) || again
			}
		}
		any = any || again
	}
	m.findNext()
	return any
}

// drain ends the jobs of a link that are due.
func (m *Memory) drain(l *link, atMs float64) (any bool) {
	if m.nextMs(l) > atMs {
		return false
	}
	for j := m.finished(l, atMs); j >= 0; j = m.finished(l, atMs) {
		m.ended(j, atMs)
		any = true
	}
	return any
}

// ended applies the end of a job at atMs.
func (m *Memory) ended(j int32, atMs float64) {
	job := &m.jobs[j]
	r := &m.ranks[job.rank]
	h, client := r.host, r.client
	switch job.kind {
	case storeJob:
		h.store.complete(job.slots)
		h.writes.add(job)
		m.held(h, job.slots)
		client.Stored(job.req, j, job.sources)
		if r.third != nil {
			m.writeThrough(job.rank, job.slots, atMs)
		}
	case loadJob:
		h.store.unpin(job.slots)
		h.reads.add(job)
		client.Loaded(job.req, j)
	case writeJob:
		h.store.unpin(job.slots)
		r.third.store.complete(job.far)
		r.third.writes.add(job)
	case readJob:
		r.third.store.unpin(job.far)
		h.store.complete(job.slots)
		m.held(h, job.slots)
		r.third.reads.add(job)
		client.Staged(job.req, j)
	}
	job = &m.jobs[j]
	job.running, job.moving = false, false
	m.ranks[job.rank].jobs--
	m.free = append(m.free, j)
}

// held tells every rank of blocks that became resident.
func (m *Memory) held(h *host, slots []int32) {
	m.ids = m.ids[:0]
	for _, slot := range slots {
		m.ids = append(m.ids, h.store.id(slot))
	}
	for _, u := range h.users {
		m.ranks[u].client.Held(m.ids)
	}
}

func (t *transfers) add(j *job) {
	t.completed++
	t.bytes += j.bytes
	t.ms += j.endMs - j.submitMs
}

// Check returns the first broken law.
func (m *Memory) Check() error {
	var errs []error
	for _, h := range m.hosts {
		errs = append(errs, h.store.check())
	}
	for _, t := range m.thirds {
		errs = append(errs, t.store.check())
	}
	return errors.Join(errs...)
}
