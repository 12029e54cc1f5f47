package scenario

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sim/timing"
	"github.com/dynosweep/dynosweep/sim/timing/aic"
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
	Corrections         Corrections
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
type named struct{ model, system, version document.Fault }

// names remembers where the configuration names what the tables may not know.
func (a *aicDoc) names() named {
	at := func(key string) document.Fault {
		v := a.Get(key)
		if v == nil {
			return document.Fault{}
		}
		return document.Fault{Origin: a.Faults.Origin, Line: v.Line, Path: v.Path}
	}
	return named{at("model"), at("system"), at("backend_version")}
}

// inGrid leaves the dotted paths alone: the reason in a row tells no file.
func (n named) inGrid() named {
	for _, f := range [...]*document.Fault{&n.model, &n.system, &n.version} {
		*f = document.Fault{Path: plainPath(f.Path)}
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
	at              *document.Node
	kind            TimingKind
	prefill, decode float64
	path            string
	provider        string
	aic             aicDoc
	corrections     Corrections
}

// readTimingModel reads a timing_model (spec engine-args 2.3); nil is polynomial.
func readTimingModel(f *document.Faults, n *document.Node) timingDoc {
	d := timingDoc{at: n}
	if n == nil {
		return d
	}
	if n.Kind != document.Map {
		f.Malformed(n, "invalid type: "+n.Describe()+", expected internally tagged enum TimingModelConfig")
		return d
	}
	tag := document.Mapping{Node: n, Faults: f}
	if n.Get("type") == nil {
		tag.Missing("type")
		return d
	}
	switch kind := tag.Enum("type", "polynomial", "fixed", "external"); {
	case !kind.Set:
	case kind.Value == 0:
		d.corrections = readCorrections(f.Mapping(n, "", []string{"type", "corrections"}))
	case kind.Value == 1:
		m := f.Mapping(n, "", []string{"type", "prefill_ms", "decode_ms", "corrections"})
		d.kind, d.prefill, d.decode = Fixed, readLatency(m, "prefill"), readLatency(m, "decode")
		d.corrections = readCorrections(m)
	default:
		readExternalTiming(f, &d, f.Mapping(n, "", []string{"type", "provider", "config", "corrections"}))
	}
	return d
}

// readLatency reads a required fixed latency: phase is prefill or decode.
func readLatency(m document.Mapping, phase string) float64 {
	key := phase + "_ms"
	if m.Get(key) == nil {
		m.Missing(key)
		return 0
	}
	o := m.Float(key, document.NotNull)
	m.Require(document.FiniteFrom(o.Value, 0), key, "fixed "+phase+" latency must be finite and non-negative")
	return o.Value
}

func readExternalTiming(f *document.Faults, d *timingDoc, m document.Mapping) {
	d.corrections = readCorrections(m)
	provider := m.String("provider", document.NotNull)
	if m.Get("provider") == nil {
		m.Missing("provider")
	}
	if !provider.Set {
		return
	}
	d.provider = provider.Value
	switch d.provider {
	case "dynamo_profile":
		d.kind = Profile
		c := m.Sub("config", "struct ProfileConfig", []string{"path"})
		d.path = c.String("path", document.NotNull).Value
		if c.Get("path") == nil {
			m.Missing("path")
		} else {
			c.Require(d.path != "", "path", "path must not be empty")
		}
	case "ais", "aic":
		d.kind = Measured
		d.aic = readAICConfig(f, m.Get("config"), m.Node)
	default:
		msg := fmt.Sprintf("unsupported external timing provider %q", d.provider)
		if strings.TrimSpace(d.provider) == "" {
			msg = "timing provider cannot be empty"
		}
		m.Require(false, "provider", msg)
	}
}

// aicDoc is the configuration of the ais provider as written.
type aicDoc struct {
	document.Mapping
	tp, pp, attentionDP, cp, moeTP, moeEP, nextN, blockSize document.Opt[uint64]
	role                                                    document.Opt[int]
	fractions                                               [3]document.Opt[float64] // [backend]
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

// readAICConfig reads the configuration of the ais provider (spec aic-perfmodel 1.4).
func readAICConfig(f *document.Faults, n, parent *document.Node) aicDoc {
	if n == nil {
		n = document.EmptyMap(parent.Line, document.JoinPath(parent.Path, "config"))
	}
	m := f.Mapping(n, "struct PerformanceModelConfig", aicKeys)
	d := aicDoc{Mapping: m}
	d.tp, d.pp, d.attentionDP = m.Uint("tp", 32, document.NotNull), m.Uint("pp", 32, document.NotNull), m.Uint("attention_dp", 32, document.NotNull)
	d.cp, d.moeTP, d.moeEP = m.Uint("cp_size", 32, document.OrNull), m.Uint("moe_tp_size", 32, document.OrNull), m.Uint("moe_ep_size", 32, document.OrNull)
	d.nextN, d.blockSize = m.Uint("nextn", 32, document.OrNull), m.Uint("kv_block_size", 64, document.OrNull)
	d.role = m.Enum("worker_type", roleNames...)
	for i, key := range fractionKeys {
		d.fractions[i] = m.Float(key, document.OrNull)
		m.Require(document.IsFraction(d.fractions[i].Value), key, key+" must be finite and in [0, 1]")
	}
	r := &d.req
	r.Model, r.System, r.Backend = m.RequiredString("model"), m.RequiredString("system"), m.String("backend", document.OrNull).Value
	r.Version, r.AttentionBackend = m.String("backend_version", document.OrNull).Value, m.String("attention_backend", document.OrNull).Value
	r.SystemsPath = readSystemsPath(m)
	r.DecodeQKNorm = m.Bool("decode_qk_norm").Value
	for i, dst := range [...]*string{&r.GEMM, &r.MoE, &r.FMHA, &r.KVCache, &r.Comm} {
		*dst = readDataType(m, dtypeNames[i])
	}
	r.Mode = modeNames[0]
	if v := m.String("database_mode", document.OrNull); v.Set {
		r.Mode = strings.ToUpper(v.Value)
		m.Require(contains(modeNames, r.Mode), "database_mode", "database_mode must be "+document.OneOf(modeNames)+", got `"+v.Value+"`")
	}
	if v := m.Get("dcp"); v != nil && v.Kind != document.Null && v.Text != "1" {
		f.Invalid(v, "dcp is not supported")
	}
	if v := m.Get("speculation"); v != nil && v.Kind != document.Null {
		f.Invalid(v, "speculation is not supported here: use aic_nextn")
	}
	return d
}

// readSystemsPath reads systems_path, or a systems_paths list of one.
func readSystemsPath(m document.Mapping) string {
	path := m.String("systems_path", document.OrNull).Value
	list := m.Get("systems_paths")
	if list == nil || list.Kind == document.Null {
		return path
	}
	if list.Kind != document.List || len(list.Items) != 1 || list.Items[0].Kind != document.String || path != "" {
		m.Faults.Invalid(list, "systems_paths must be a list of one path, and excludes systems_path")
		return path
	}
	return list.Items[0].Text
}

// readDataType reads <name>_dtype or its alias <name>_quant_mode; "" means from the
// checkpoint.
func readDataType(m document.Mapping, name string) string {
	dt, alias := m.String(name+"_dtype", document.OrNull), m.String(name+"_quant_mode", document.OrNull)
	if dt.Set && alias.Set {
		m.Faults.Malformed(m.Node, "duplicate field `"+name+"_dtype`")
	}
	return dtypeName(dt.Or(alias.Value))
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
	r.Timing = Timing{Kind: t.kind, PrefillMs: t.prefill, DecodeMs: t.decode, Path: t.path, Corrections: t.corrections}
	if t.kind != Measured {
		if !d.blocks.Set {
			r.Rank.Blocks = defaultBlocks
		}
		return
	}
	a := &t.aic
	q := a.complete(r, d.dir)
	r.Timing.AIC, r.named = q, a.names()
	if d.blocks.Set {
		return
	}
	b := r.Rank.Backend
	own, other := d.fractions[b], a.fractions[b]
	a.Require(!own.Set || !other.Set || own.Value == other.Value, fractionKeys[b],
		fractionKeys[b]+" differs between the launch keys and the timing configuration")
	for i, key := range fractionKeys {
		wrong := i != int(b) && (d.fractions[i].Set || a.fractions[i].Set)
		d.Mapping.Require(!wrong, key, key+" does not belong to backend="+b.String()+": use "+fractionKeys[b])
	}
	r.Capacity = &Capacity{Model: q, BlockSize: r.Rank.BlockSize,
		MaxBatchedTokens: r.Rank.MaxNumBatchedTokens, MaxSeqs: r.Rank.MaxNumSeqs,
		MemoryFraction: own.Or(other.Or(b.Descriptor().MemoryFraction)), CUDAGraphReserved: d.cudaGraph.Value}
}

// complete checks the provider's configuration against the role and fills in
// what it leaves out. The folder of a local model starts from dir.
func (a *aicDoc) complete(r *Role, dir string) AICRequest {
	q := a.req
	backend := r.Rank.Backend.String()
	a.RequireCompatible(q.Backend == "" || q.Backend == backend, "backend",
		"the timing backend "+q.Backend+" must equal the engine's backend "+backend)
	q.Backend, q.Role = backend, r.Rank.Role
	a.RequireCompatible(!a.role.Set || a.role.Value == int(r.Rank.Role), "worker_type", "worker_type must equal engine.worker_type")
	a.RequireCompatible(!a.blockSize.Set || a.blockSize.Value == uint64(r.Rank.BlockSize), "kv_block_size",
		fmt.Sprintf("kv_block_size must equal block_size %d", r.Rank.BlockSize))
	q.TP, q.AttentionDP, q.NextN = r.TensorParallel, r.DPSize, r.Rank.NextN
	a.equals(a.tp, "tp", "tensor_parallel_size", q.TP)
	a.equals(a.attentionDP, "attention_dp", "dp_size", q.AttentionDP)
	a.equals(a.nextN, "nextn", "aic_nextn", q.NextN)
	a.Require(a.pp.Or(1) == 1, "pp", "pp must be 1: engines do not run in a pipeline")
	q.PP, q.CP = 1, r.ContextParallel
	a.Require(a.cp.Or(1) == 1, "cp_size", "cp_size must be 1: context parallelism is not priced")
	a.Require(a.moeTP.Set == a.moeEP.Set, "moe_tp_size", "moe_tp_size and moe_ep_size must be given together")
	if a.moeTP.Set && a.moeEP.Set {
		q.MoETP, q.MoEEP = count(a.moeTP.Value), count(a.moeEP.Value)
		a.expertWidths(&q, dir)
	}
	return q
}

// expertWidths refuses widths of experts that do not come to the GPUs of a worker. For
// a model without experts they mean nothing, whatever they say (spec aic-perfmodel
// 2.5); a model that nobody knows is refused where a table is asked about it.
func (a *aicDoc) expertWidths(q *AICRequest, dir string) {
	width := uint64(q.TP) * uint64(q.AttentionDP) * uint64(q.CP)
	positive := a.moeTP.Value > 0 && a.moeEP.Value > 0
	if positive && a.moeTP.Value*a.moeEP.Value == width {
		return
	}
	experts, err := aic.HasExperts(q.localModel(dir))
	a.RequireCompatible(positive && (err != nil || !experts), "moe_tp_size",
		fmt.Sprintf("Parallelism width mismatch: tp*attention_dp*cp is %d, moe_tp_size*moe_ep_size is %d", width, a.moeTP.Value*a.moeEP.Value))
}

// equals checks that a value given twice is the same.
func (a *aicDoc) equals(o document.Opt[uint64], key, alias string, want int) {
	a.RequireCompatible(!o.Set || o.Value == uint64(want), key, fmt.Sprintf("%s must equal %s %d, got %d", key, alias, want, o.Value))
}
