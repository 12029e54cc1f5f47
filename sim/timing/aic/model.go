// Package aic prices the passes of a serving engine from measured hardware tables,
// and tells how much KV cache fits on a GPU.
//
// Open resolves a system, a backend and a version to a Database, whose tables load
// at first use and are shared by the whole process. NewModel turns a checkpoint, its
// number formats and a parallel layout into two lists of ops, prefill and decode, and
// binds each op to its slice of a table. PrefillMs, DecodeMs and DecodeSeries then
// price passes; Capacity sizes the cache; Outside says how far the questions lay
// outside what was measured. BatchSteps and BatchCapacity answer CSV files.
//
// Times are float64 ms before speed-up, rounding and the least duration of a pass.
// Counts are per attention rank. A pass is the sum of its ops in list order, in the
// reference's order of operations, without fused multiply-add. Missing data is an
// error, except in the modes that estimate it from other shapes.
//
// The method is spec aic-perfmodel; the data and its licence are described in
// data/NOTICE and made by scripts/perfdata.
package aic

import (
	"errors"
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/sim/timing"
)

// ModelConfig is a model on an engine. Zero values mean the default in brackets.
type ModelConfig struct {
	Model       string // bundled id as Qwen/Qwen3-32B, or a directory with config.json
	TP, PP      int    // tensor and pipeline parallelism [1]
	AttentionDP int    // attention data parallelism [1]
	MoETP       int    // expert tensor parallelism [1]
	MoEEP       int    // expert parallelism [1]
	NextN       int    // draft depth of multi-token prediction [0]

	// Number formats [from the checkpoint].
	GEMM, MoE, FMHA, KVCache, Comm string

	Mode             Mode   // [SILICON]
	AttentionBackend string // kernel choice of the attention tables [the framework's]
	DecodeQKNorm     bool   // price query and key norms in decode, as AISimulate core 0.13 does
}

// OpCost is one op of a pass.
type OpCost struct {
	Name      string  `json:"name"`
	Ms        float64 `json:"latency_ms"`
	Estimated bool    `json:"estimated,omitempty"` // by database mode HYBRID, for want of measured data
}

// GPUs returns how many GPUs one engine takes.
func (c ModelConfig) GPUs() int { return max(c.TP, 1) * max(c.PP, 1) * max(c.AttentionDP, 1) }

// Outside tells how often passes were priced beyond the measured points.
type Outside struct {
	Passes, Queried int64   // passes with an op outside, passes asked
	Doublings       float64 // farthest distance to a measured point, in powers of two
	Op              string  // where that was
	Batch, Length   int     // and for which question: length is the full one
}

// Model prices passes of one model on one rank. It memoises and counts, so each
// goroutine needs its own; the tables behind it are shared.
type Model struct {
	db        *Database
	ckpt      *checkpoint
	par       parallel
	quant     quant
	mode      Mode
	nextN     int
	context   []entry
	generate  []entry
	outside   Outside
	err       error
	memo      map[int]*batchMemo // by decode batch
	last      *batchMemo
	st        step // of the call under way, here so that it need not be allocated
	discarded [seriesBlock]timing.Extrapolation
}

// batchMemo holds the decode ops of a batch that do not see the context.
type batchMemo struct {
	batch    int
	ms       []float64            // [op], scaled; the places of the others are 0
	farthest timing.Extrapolation // where they lay
	err      error
}

// NewModel binds a model to a database. A shape whose data is missing in one phase
// fails when that phase is priced.
func NewModel(db *Database, c ModelConfig) (*Model, error) {
	ckpt, err := loadCheckpoint(c.Model)
	if err != nil {
		return nil, err
	}
	if c.NextN < 0 || c.NextN > 5 {
		return nil, classed(ErrConfig, "nextn must be between 0 and 5, got %d", c.NextN)
	}
	one := func(v int) int {
		if v == 0 {
			return 1
		}
		return v
	}
	par := parallel{one(c.TP), one(c.PP), one(c.AttentionDP), one(c.MoETP), one(c.MoEEP)}
	user := quant{gemm: dtype(c.GEMM), moe: dtype(c.MoE), fmha: dtype(c.FMHA), kv: dtype(c.KVCache), comm: dtype(c.Comm)}
	q, err := ckpt.quantModes(user, db.Backend)
	if err == nil {
		err = ckpt.check(par, q)
	}
	if err == nil && c.Mode != SOL {
		err = db.hasData()
	}
	if err != nil {
		return nil, err
	}
	b := &binder{sys: db.System, db: db, lanes: db.root.lanesY, backend: db.Backend, version: db.Version,
		mode: c.Mode, attentionBackend: c.AttentionBackend, decodeQKNorm: c.DecodeQKNorm}
	m := &Model{db: db, ckpt: ckpt, par: par, quant: q, mode: c.Mode, nextN: c.NextN, memo: map[int]*batchMemo{}}
	m.context, m.generate = b.ops(ckpt, par, q, c.NextN)
	return m, b.err
}

// maxCount is the largest batch or length that may be asked.
const maxCount = math.MaxUint32

// PrefillMs prices a prefill of batch requests, each with newTokens to compute after
// prefix cached ones, per attention rank. Without new tokens it is 0. When data is
// missing it returns NaN and Err tells why.
func (m *Model) PrefillMs(batch, newTokens, prefix int) float64 {
	if batch <= 0 || newTokens <= 0 {
		return 0
	}
	if prefix < 0 || batch > maxCount || newTokens > maxCount || prefix > maxCount-newTokens || newTokens > maxCount/batch {
		return m.fail("", classed(ErrConfig, "prefill of %d requests, %d new tokens, prefix %d is out of range", batch, newTokens, prefix))
	}
	total := 0.0
	st := &m.st
	*st = step{batch: batch, seq: newTokens, prefix: prefix}
	farthest := timing.Extrapolation{}
	for i := range m.context {
		e := &m.context[i]
		st.x = e.tokens(batch, newTokens)
		v := float64(m.mode.value(e.op, st) * e.scale)
		if st.err != nil {
			return m.fail(e.name, st.err)
		}
		total += v
		noteFarthest(&farthest, &st.reach, i)
	}
	m.count(farthest, m.context, batch, newTokens+prefix)
	return total
}

// noteFarthest makes f the op of a pass that went farthest outside, and clears r.
func noteFarthest(f *timing.Extrapolation, r *reach, op int) {
	if !r.outside {
		return
	}
	if !f.Outside || r.doublings > f.Doublings {
		f.Doublings, f.Op = r.doublings, int32(op)
	}
	f.Outside = true
	*r = reach{}
}

func (m *Model) count(f timing.Extrapolation, ops []entry, batch, length int) {
	o := &m.outside
	o.Queried++
	if !f.Outside {
		return
	}
	o.Passes++
	if f.Doublings > o.Doublings {
		o.Doublings, o.Op, o.Batch, o.Length = f.Doublings, ops[f.Op].name, batch, length
	}
}

// CountExtrapolation counts the passes of a decode series that ran: pass j was of batch sequences
// at context+j, and dist[j] is what DecodeSeries noted of it.
func (m *Model) CountExtrapolation(batch, context int, dist []timing.Extrapolation) {
	for j, f := range dist {
		m.count(f, m.generate, batch, context+j)
	}
}

func (m *Model) fail(op string, err error) float64 {
	if m.err == nil {
		if op != "" {
			err = m.named(op, err)
		}
		m.err = err
	}
	return math.NaN()
}

// named puts the op in front of an error, and behind it what to do.
func (m *Model) named(op string, err error) error {
	if m.mode == Silicon && errors.Is(err, ErrMissing) {
		return fmt.Errorf("%s: %w; choose what is measured, or database mode HYBRID, which estimates most of the rest", op, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// Err returns the first error of a pass, nil if all were priced.
func (m *Model) Err() error { return m.err }

// Outside returns the counts so far.
func (m *Model) Outside() Outside { return m.outside }

// ResetExtrapolation sets the counts to zero: what was asked so far is no part of a run.
func (m *Model) ResetExtrapolation() { m.outside = Outside{} }

// DecodeMs prices one decode step of batch sequences whose mean length is context,
// the token being computed included, per attention rank. When data is missing it
// returns NaN and Err tells why.
func (m *Model) DecodeMs(batch, context int) float64 {
	if batch <= 0 {
		return 0
	}
	if !m.validDecode(batch, context) {
		return math.NaN()
	}
	memo := m.batch(batch)
	if memo.err != nil {
		return m.fail("", memo.err)
	}
	ms, farthest := m.decode(memo, batch, context)
	if ms == ms {
		m.count(farthest, m.generate, batch, context)
	}
	return ms
}

func (m *Model) validDecode(batch, context int) bool {
	if context < 1 || context > maxCount || batch > maxCount/(m.nextN+1) {
		m.fail("", classed(ErrConfig, "decode of %d sequences at context %d is out of range", batch, context))
		return false
	}
	return true
}

// batch returns the context-free part of a decode batch.
func (m *Model) batch(batch int) *batchMemo {
	if m.last != nil && m.last.batch == batch {
		return m.last
	}
	memo := m.memo[batch]
	if memo == nil {
		memo = m.newBatch(batch)
		m.memo[batch] = memo
	}
	m.last = memo
	return memo
}

func (m *Model) newBatch(batch int) *batchMemo {
	memo := &batchMemo{batch: batch, ms: make([]float64, len(m.generate))}
	bs := batch * (m.nextN + 1)
	st := step{batch: bs, seq: 1, x: bs}
	for i := range m.generate {
		e := &m.generate[i]
		if e.seq {
			continue
		}
		memo.ms[i] = float64(m.mode.value(e.op, &st) * e.scale)
		if st.err != nil {
			memo.err = m.named(e.name, st.err)
			return memo
		}
		noteFarthest(&memo.farthest, &st.reach, i)
	}
	return memo
}

// decode adds the ops in list order; NaN if one fails.
func (m *Model) decode(memo *batchMemo, batch, context int) (ms float64, farthest timing.Extrapolation) {
	bs := batch * (m.nextN + 1)
	st := &m.st
	*st = step{batch: bs, seq: context, x: bs}
	farthest = memo.farthest
	for i := range m.generate {
		v := memo.ms[i]
		if e := &m.generate[i]; e.seq {
			v = float64(m.mode.value(e.op, st) * e.scale)
			if st.err != nil {
				return m.fail(e.name, st.err), farthest
			}
			noteFarthest(&farthest, &st.reach, i)
		}
		ms += v
	}
	return ms, farthest
}

// seriesBlock is how many passes of a series are priced op by op.
const seriesBlock = 64

// DecodeSeries fills dst[j] with DecodeMs(batch, context+j), bit for bit, and dist[j],
// unless dist is nil, with where that pass lay: the passes of a decode run, in which
// every sequence grows by one. They are not counted before CountExtrapolation.
func (m *Model) DecodeSeries(batch, context int, dst []float64, dist []timing.Extrapolation) {
	for len(dst) > 0 {
		n := min(len(dst), seriesBlock)
		notes := m.discarded[:n]
		if dist != nil {
			notes, dist = dist[:n], dist[n:]
		}
		if batch <= 0 || context < 1 || context > maxCount-n || batch > maxCount/(m.nextN+1) || !m.block(batch, context, dst[:n], notes) {
			counted := m.outside
			clear(notes)
			for j := range n {
				dst[j] = m.DecodeMs(batch, context+j) // mostly NaN: an op fails
			}
			m.outside = counted
		}
		dst, context = dst[n:], context+n
	}
}

// block prices passes op by op, so that the additions of different passes overlap;
// the order inside a pass stays that of the list. False when an op fails.
func (m *Model) block(batch, context int, dst []float64, dist []timing.Extrapolation) bool {
	memo := m.batch(batch)
	if memo.err != nil {
		return false
	}
	for j := range dist {
		dist[j] = memo.farthest
	}
	bs := batch * (m.nextN + 1)
	st := &m.st
	clear(dst)
	for i := range m.generate {
		e := &m.generate[i]
		if !e.seq {
			for j := range dst {
				dst[j] += memo.ms[i]
			}
			continue
		}
		for j := range dst {
			*st = step{batch: bs, seq: context + j, x: bs}
			dst[j] += float64(m.mode.value(e.op, st) * e.scale)
			if st.err != nil {
				return false
			}
			if st.reach.outside {
				noteFarthest(&dist[j], &st.reach, i)
			}
		}
	}
	return true
}

// Step prices one step of a phase, prefill or decode, and tells what is wrong with the
// question or missing in the data. length is the full prompt of a prefill, prefix
// included, and the context of a decode, current token included.
func (m *Model) Step(phase string, batch, length, prefix int) (float64, error) {
	if batch < 1 {
		return 0, classed(ErrConfig, "batch must be at least 1, got %d", batch)
	}
	m.err = nil
	var ms float64
	switch phase {
	case "prefill":
		if prefix >= length {
			return 0, classed(ErrConfig, "isl must be greater than 0 after removing prefix, but got %d", length-prefix)
		}
		ms = m.PrefillMs(batch, length-prefix, prefix)
	case "decode":
		if prefix != 0 {
			return 0, classed(ErrConfig, "prefix %d: a decode step has none, its length is the whole context", prefix)
		}
		ms = m.DecodeMs(batch, length)
	default:
		return 0, classed(ErrConfig, "phase must be prefill or decode, got %q", phase)
	}
	if math.IsNaN(ms) {
		return 0, m.err
	}
	return ms, nil
}

// PrefillOps prices like PrefillMs and returns what each op takes, in list order.
func (m *Model) PrefillOps(batch, newTokens, prefix int) ([]OpCost, error) {
	if _, err := m.Step("prefill", batch, prefix+newTokens, prefix); err != nil {
		return nil, err
	}
	return m.costs(m.context, step{batch: batch, seq: newTokens, prefix: prefix}, func(e *entry) int { return e.tokens(batch, newTokens) }), nil
}

// DecodeOps prices like DecodeMs and returns what each op takes, in list order.
func (m *Model) DecodeOps(batch, context int) ([]OpCost, error) {
	if _, err := m.Step("decode", batch, context, 0); err != nil {
		return nil, err
	}
	bs := batch * (m.nextN + 1)
	return m.costs(m.generate, step{batch: bs, seq: context}, func(*entry) int { return bs }), nil
}

func (m *Model) costs(ops []entry, st step, tokens func(*entry) int) []OpCost {
	costs := make([]OpCost, len(ops))
	for i := range ops {
		st.x, st.estimated = tokens(&ops[i]), false
		ms := float64(m.mode.value(ops[i].op, &st) * ops[i].scale)
		costs[i] = OpCost{ops[i].name, ms, st.estimated}
	}
	return costs
}
