package scenario

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
)

// TimingKind names a timing model.
type TimingKind uint8

const (
	Polynomial TimingKind = iota
	Fixed
	Profile  // interpolation of a profile, read from a path
	Measured // hardware tables
)

func (k TimingKind) String() string {
	return [...]string{"polynomial", "fixed", "profile", "aic"}[k]
}

// Timing says how long the passes of a role take (spec engine-timing).
// It is comparable.
type Timing struct {
	Kind                TimingKind
	PrefillMs, DecodeMs float64    // Fixed
	Path                string     // Profile: .npz, raw-data JSON or profiler folder
	AIC                 AICRequest // Measured
}

// AICRequest names one model on one system in the hardware tables (spec
// aic-perfmodel 1.4). It is comparable, so that loaded tables can be shared.
type AICRequest struct {
	Model, System, Backend, Version string // Version "" is the slot current
	TP, PP, AttentionDP, CP         int    // >= 1
	MoETP, MoEEP                    int    // 0: not given
	GEMM, MoE, FMHA, KVCache, Comm  string // data types, "" from the checkpoint
	NextN                           int
	Mode                            string // SILICON, HYBRID, EMPIRICAL, SOL
	AttentionBackend                string
	SystemsPath                     string // data root, "" the built-in tables
	DecodeQKNorm                    bool   // price query and key norms in decode, as AISimulate core 0.13 does
	Role                            engine.Role
}

// Capacity asks how many KV blocks fit a rank (spec aic-perfmodel 9.1).
type Capacity struct {
	Model             AICRequest
	BlockSize         int
	MaxBatchedTokens  int // 0: unlimited, not passed to the estimator
	MaxSeqs           int // 0: unlimited
	MemoryFraction    float64
	CUDAGraphReserved uint64 // bytes
}

// TimingQuery is one question that needs loaded data; a zero part is not asked.
type TimingQuery struct {
	Timing        *Timing     // Profile or Measured: wanted is TimingAnswer.Model
	Capacity      *Capacity   // wanted is TimingAnswer.Blocks
	TransferBytes *AICRequest // wanted is TimingAnswer.BytesPerToken
}

// TimingAnswer is the answer to the asked parts of a TimingQuery.
type TimingAnswer struct {
	Model         timing.Model
	Blocks        int // per rank
	BytesPerToken int // of KV, per rank
}

// TimingResolver answers questions about profiles and hardware tables. The caller
// of Run.Config provides it, so that data is loaded once and shared; it is not
// asked about polynomial and fixed timing. It never guesses: what it does not
// know is an error.
type TimingResolver func(TimingQuery) (TimingAnswer, error)

// KeyError is an answer's error about what one key of the question says: model,
// system or backend_version.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

// named is where a document names the model, the system and the version of a role; a
// zero Fault is nowhere.
type named struct{ model, system, version Fault }

// names remembers where the configuration names what the tables may not know.
func (a *aicDoc) names() named {
	at := func(key string) Fault {
		v := a.get(key)
		if v == nil {
			return Fault{}
		}
		return Fault{Origin: a.f.origin, Line: v.line, Path: v.path}
	}
	return named{at("model"), at("system"), at("backend_version")}
}

// inGrid leaves the dotted paths alone: the reason in a row tells no file.
func (n named) inGrid() named {
	for _, f := range [...]*Fault{&n.model, &n.system, &n.version} {
		*f = Fault{Path: plainPath(f.Path)}
	}
	return n
}

// explain puts a KeyError at the place where the document names its key.
func (n *named) explain(err error) error {
	var k *KeyError
	if !errors.As(err, &k) {
		return err
	}
	at := n.model
	switch {
	case k.Key == "backend_version" && n.version.Path != "":
		at = n.version
	case k.Key != "model":
		at = n.system
	}
	if at.Path == "" {
		return err
	}
	at.Msg = err.Error()
	return &at
}

// timingDoc is a timing_model as written.
type timingDoc struct {
	at              *node
	kind            TimingKind
	prefill, decode float64
	path            string
	provider        string
	aic             aicDoc
}

// timingModel reads a timing_model (spec engine-args 2.3); nil is polynomial.
func (f *faults) timingModel(n *node) timingDoc {
	d := timingDoc{at: n}
	if n == nil {
		return d
	}
	if n.kind != mapKind {
		f.badType(n, "invalid type: "+n.describe()+", expected internally tagged enum TimingModelConfig")
		return d
	}
	tag := mapping{n, f}
	if n.get("type") == nil {
		tag.missing("type")
		return d
	}
	switch kind := tag.enum("type", "polynomial", "fixed", "external"); {
	case !kind.set:
	case kind.v == 0:
		f.mapping(n, "", []string{"type"})
	case kind.v == 1:
		m := f.mapping(n, "", []string{"type", "prefill_ms", "decode_ms"})
		d.kind, d.prefill, d.decode = Fixed, m.latency("prefill"), m.latency("decode")
	default:
		f.externalTiming(&d, f.mapping(n, "", []string{"type", "provider", "config"}))
	}
	return d
}

// latency reads a required fixed latency: phase is prefill or decode.
func (m mapping) latency(phase string) float64 {
	key := phase + "_ms"
	if m.get(key) == nil {
		m.missing(key)
		return 0
	}
	o := m.float(key, notNull)
	m.rule(finite(o.v, 0), key, "fixed "+phase+" latency must be finite and non-negative")
	return o.v
}

func (f *faults) externalTiming(d *timingDoc, m mapping) {
	provider := m.string("provider", notNull)
	if m.get("provider") == nil {
		m.missing("provider")
	}
	if !provider.set {
		return
	}
	d.provider = provider.v
	switch d.provider {
	case "dynamo_profile":
		d.kind = Profile
		c := m.sub("config", "struct ProfileConfig", []string{"path"})
		d.path = c.string("path", notNull).v
		if c.get("path") == nil {
			m.missing("path")
		} else {
			c.rule(d.path != "", "path", "path must not be empty")
		}
	case "ais", "aic":
		d.kind = Measured
		d.aic = f.aicConfig(m.get("config"), m.node)
	default:
		msg := fmt.Sprintf("unsupported external timing provider %q", d.provider)
		if strings.TrimSpace(d.provider) == "" {
			msg = "timing provider cannot be empty"
		}
		m.rule(false, "provider", msg)
	}
}

// aicDoc is the configuration of the ais provider as written.
type aicDoc struct {
	mapping
	tp, pp, attentionDP, cp, moeTP, moeEP, nextN, blockSize opt[uint64]
	role                                                    opt[int]
	fractions                                               [3]opt[float64] // [backend]
	req                                                     AICRequest
}

var (
	dtypeNames = [...]string{"gemm", "moe", "fmha", "kv_cache", "comm"}
	aicKeys    = []string{"model", "system", "backend", "backend_version", "worker_type", "tp", "pp",
		"attention_dp", "moe_tp_size", "moe_ep_size", "cp_size", "dcp",
		"gemm_dtype", "moe_dtype", "fmha_dtype", "kv_cache_dtype", "comm_dtype",
		"gemm_quant_mode", "moe_quant_mode", "fmha_quant_mode", "kv_cache_quant_mode", "comm_quant_mode",
		"nextn", "kv_block_size", "gpu_memory_utilization", "mem_fraction_static",
		"free_gpu_memory_fraction", "database_mode", "attention_backend", "systems_path",
		"systems_paths", "decode_qk_norm", "speculation"}
	modeNames = []string{"SILICON", "HYBRID", "EMPIRICAL", "SOL"}
)

// aicConfig reads the configuration of the ais provider (spec aic-perfmodel 1.4).
func (f *faults) aicConfig(n, parent *node) aicDoc {
	if n == nil {
		n = emptyMap(parent.line, join(parent.path, "config"))
	}
	m := f.mapping(n, "struct PerformanceModelConfig", aicKeys)
	d := aicDoc{mapping: m}
	d.tp, d.pp, d.attentionDP = m.uint("tp", 32, notNull), m.uint("pp", 32, notNull), m.uint("attention_dp", 32, notNull)
	d.cp, d.moeTP, d.moeEP = m.uint("cp_size", 32, orNull), m.uint("moe_tp_size", 32, orNull), m.uint("moe_ep_size", 32, orNull)
	d.nextN, d.blockSize = m.uint("nextn", 32, orNull), m.uint("kv_block_size", 64, orNull)
	d.role = m.enum("worker_type", roleNames...)
	for i, key := range fractionKeys {
		d.fractions[i] = m.float(key, orNull)
		m.rule(fraction(d.fractions[i].v), key, key+" must be finite and in [0, 1]")
	}
	r := &d.req
	r.Model, r.System, r.Backend = m.required("model"), m.required("system"), m.string("backend", orNull).v
	r.Version, r.AttentionBackend = m.string("backend_version", orNull).v, m.string("attention_backend", orNull).v
	r.SystemsPath = m.systems()
	r.DecodeQKNorm = m.bool("decode_qk_norm").v
	for i, dst := range [...]*string{&r.GEMM, &r.MoE, &r.FMHA, &r.KVCache, &r.Comm} {
		*dst = m.dtype(dtypeNames[i])
	}
	r.Mode = modeNames[0]
	if v := m.string("database_mode", orNull); v.set {
		r.Mode = strings.ToUpper(v.v)
		m.rule(contains(modeNames, r.Mode), "database_mode", "database_mode must be "+oneOf(modeNames)+", got `"+v.v+"`")
	}
	if v := m.get("dcp"); v != nil && v.kind != nullKind && v.text != "1" {
		f.broken(v, "dcp is not supported")
	}
	if v := m.get("speculation"); v != nil && v.kind != nullKind {
		f.broken(v, "speculation is not supported here: use aic_nextn")
	}
	return d
}

// required reads a string that must be there and not be blank.
func (m mapping) required(key string) string {
	if m.get(key) == nil {
		m.missing(key)
		return ""
	}
	o := m.string(key, notNull)
	m.rule(!o.set || strings.TrimSpace(o.v) != "", key, key+" must not be empty")
	return o.v
}

// systems reads systems_path, or a systems_paths list of one.
func (m mapping) systems() string {
	path := m.string("systems_path", orNull).v
	list := m.get("systems_paths")
	if list == nil || list.kind == nullKind {
		return path
	}
	if list.kind != listKind || len(list.items) != 1 || list.items[0].kind != stringKind || path != "" {
		m.f.broken(list, "systems_paths must be a list of one path, and excludes systems_path")
		return path
	}
	return list.items[0].text
}

// dtype reads <name>_dtype or its alias <name>_quant_mode; "" means from the
// checkpoint.
func (m mapping) dtype(name string) string {
	dt, alias := m.string(name+"_dtype", orNull), m.string(name+"_quant_mode", orNull)
	if dt.set && alias.set {
		m.f.badType(m.node, "duplicate field `"+name+"_dtype`")
	}
	return dtypeName(dt.or(alias.v))
}

// dtypeName trims a data type; the words for "not given" become "".
func dtypeName(text string) string {
	switch v := strings.TrimSpace(text); v {
	case "auto", "none", "null":
		return ""
	case "int4":
		return "int4_wo"
	default:
		return v
	}
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// timingRules completes the timing of a role and, without num_gpu_blocks, its
// capacity question (spec engine-args 2.3, 4).
func (d *launchDoc) timingRules(r *Role) {
	t := &d.timing
	r.Timing = Timing{Kind: t.kind, PrefillMs: t.prefill, DecodeMs: t.decode, Path: t.path}
	if t.kind != Measured {
		if !d.blocks.set {
			r.Rank.Blocks = defaultBlocks
		}
		return
	}
	a := &t.aic
	q := a.complete(r)
	r.Timing.AIC, r.named = q, a.names()
	if d.blocks.set {
		return
	}
	b := r.Rank.Backend
	own, other := d.fractions[b], a.fractions[b]
	a.rule(!own.set || !other.set || own.v == other.v, fractionKeys[b],
		fractionKeys[b]+" differs between the launch keys and the timing configuration")
	for i, key := range fractionKeys {
		wrong := i != int(b) && (d.fractions[i].set || a.fractions[i].set)
		d.mapping.rule(!wrong, key, key+" does not belong to backend="+b.String()+": use "+fractionKeys[b])
	}
	r.Capacity = &Capacity{Model: q, BlockSize: r.Rank.BlockSize,
		MaxBatchedTokens: r.Rank.MaxNumBatchedTokens, MaxSeqs: r.Rank.MaxNumSeqs,
		MemoryFraction: own.or(other.or(defaultFraction[b])), CUDAGraphReserved: d.cudaGraph.v}
}

var defaultFraction = [...]float64{engine.VLLM: 0.9, engine.SGLang: 0.88, engine.TRTLLM: 0.9}

// complete checks the provider's configuration against the role and fills in
// what it leaves out.
func (a *aicDoc) complete(r *Role) AICRequest {
	q := a.req
	backend := r.Rank.Backend.String()
	a.fits(q.Backend == "" || q.Backend == backend, "backend",
		"the timing backend "+q.Backend+" must equal the engine's backend "+backend)
	q.Backend, q.Role = backend, r.Rank.Role
	a.fits(!a.role.set || a.role.v == int(r.Rank.Role), "worker_type", "worker_type must equal engine.worker_type")
	a.fits(!a.blockSize.set || a.blockSize.v == uint64(r.Rank.BlockSize), "kv_block_size",
		fmt.Sprintf("kv_block_size must equal block_size %d", r.Rank.BlockSize))
	q.TP, q.AttentionDP, q.NextN = r.TensorParallel, r.DPSize, r.Rank.NextN
	a.equals(a.tp, "tp", "tensor_parallel_size", q.TP)
	a.equals(a.attentionDP, "attention_dp", "dp_size", q.AttentionDP)
	a.equals(a.nextN, "nextn", "aic_nextn", q.NextN)
	a.rule(a.pp.or(1) == 1, "pp", "pp must be 1: engines do not run in a pipeline")
	q.PP, q.CP = 1, r.ContextParallel
	a.rule(a.cp.or(1) == 1, "cp_size", "cp_size must be 1: context parallelism is not priced")
	a.rule(a.moeTP.set == a.moeEP.set, "moe_tp_size", "moe_tp_size and moe_ep_size must be given together")
	if a.moeTP.set && a.moeEP.set {
		width := uint64(q.TP) * uint64(q.AttentionDP) * uint64(q.CP)
		a.fits(a.moeTP.v > 0 && a.moeEP.v > 0 && a.moeTP.v*a.moeEP.v == width, "moe_tp_size",
			fmt.Sprintf("Parallelism width mismatch: tp*attention_dp*cp is %d, moe_tp_size*moe_ep_size is %d", width, a.moeTP.v*a.moeEP.v))
		q.MoETP, q.MoEEP = count(a.moeTP.v), count(a.moeEP.v)
	}
	return q
}

// equals checks that a value given twice is the same.
func (a *aicDoc) equals(o opt[uint64], key, twin string, want int) {
	a.fits(!o.set || o.v == uint64(want), key, fmt.Sprintf("%s must equal %s %d, got %d", key, twin, want, o.v))
}
