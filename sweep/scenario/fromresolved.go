package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// ParseResolved makes the run of a resolved configuration's text; see FromResolved.
func ParseResolved(text []byte, files *Files) (Run, error) {
	c, err := resolved.Parse(text)
	if err != nil {
		var list []error
		for _, e := range document.Split(err) {
			var at *resolved.Error
			if errors.As(e, &at) {
				e = &document.Fault{Path: at.Path, Msg: at.Msg}
			}
			list = append(list, e)
		}
		return Run{}, errors.Join(list...)
	}
	return FromResolved(c, files)
}

// FromResolved makes the run of a resolved configuration: the same identity, the same
// sim.Config and the same text. What it does not understand, or what would not come
// out again, is an error with a dotted path. files reads the content of the files
// that the configuration names, which must be what it was; with nil the recorded
// digests stand, for those who do not run it here.
func FromResolved(c *resolved.Config, files *Files) (Run, error) {
	r := &resolvedReader{f: &document.Faults{}}
	run := r.run(c)
	if err := r.f.Err(); err != nil {
		return Run{}, err
	}
	if files != nil {
		if err := run.rereadFiles(files); err != nil {
			return Run{}, err
		}
	}
	run.identify()
	return run, sameConfig(jsonOf(c), run.ResolvedJSON())
}

// rereadFiles takes the content of the files that a configuration names; a model that
// was a local folder must be one still.
func (r *Run) rereadFiles(files *Files) error {
	recorded := []resolved.FileRef{r.Router.files.model, r.Transfer.files.model}
	for _, role := range r.roles() {
		recorded = append(recorded, role.files.model)
	}
	for _, ref := range recorded {
		if ref == (resolved.FileRef{}) {
			continue
		}
		if _, err := files.ref(ref.Path); err != nil {
			return err
		}
	}
	return r.refer(files)
}

// sameConfig says where two texts of a configuration differ, nil if nowhere.
func sameConfig(want, got []byte) error {
	var a, b any
	if err := errors.Join(json.Unmarshal(want, &a), json.Unmarshal(got, &b)); err != nil {
		return err
	}
	path, x, y := firstDifference("", a, b)
	switch {
	case path == "":
		return nil
	case strings.HasSuffix(path, ".sha256"):
		return &document.Fault{Path: path, Msg: fmt.Sprintf("the file has changed: its content is %v now, and was %v", y, x)}
	}
	return &document.Fault{Path: path, Msg: fmt.Sprintf("%s does not fit the rest, which makes it %s", compact(x), compact(y))}
}

// firstDifference is the dotted path at which two JSON values differ, "" if nowhere,
// and what stands there.
func firstDifference(path string, a, b any) (string, any, any) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := make([]string, 0, len(x)+len(y))
		for key := range x {
			keys = append(keys, key)
		}
		for key := range y {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			if at, one, other := firstDifference(document.JoinPath(path, key), x[key], y[key]); at != "" {
				return at, one, other
			}
		}
		return "", nil, nil
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			if at, one, other := firstDifference(fmt.Sprintf("%s[%d]", path, i), x[i], y[i]); at != "" {
				return at, one, other
			}
		}
		return "", nil, nil
	default:
		if _, list := b.([]any); !list {
			if _, inner := b.(map[string]any); !inner && a == b {
				return "", nil, nil
			}
		}
	}
	return path, a, b
}

// resolvedReader makes a run of a resolved configuration, with all faults at once.
type resolvedReader struct{ f *document.Faults }

func (r *resolvedReader) fault(path, msg string) {
	r.f.List = append(r.f.List, &document.Fault{Path: path, Msg: msg})
}

func (r *resolvedReader) rule(holds bool, path, msg string) {
	if !holds {
		r.fault(path, msg)
	}
}

// choice is the index of a word in a list.
func (r *resolvedReader) choice(path, word string, list []string) int {
	i := slices.Index(list, word)
	r.rule(i >= 0, path, "must be "+document.OneOf(list)+", got `"+word+"`")
	return max(i, 0)
}

// within checks a whole number.
func (r *resolvedReader) within(path string, v, from, to int) {
	r.rule(v >= from && v <= to, path, fmt.Sprintf("must be from %d to %d, got %d", from, to, v))
}

func (r *resolvedReader) run(c *resolved.Config) Run {
	run := Run{TelemetryMs: c.TelemetryIntervalMs, RouterSeed: c.Seeds.Router, MTPSeed: val(c.Seeds.MTP, defaultMTPSeed)}
	r.rule(document.FiniteFrom(c.TelemetryIntervalMs, 0), "telemetry_interval_ms", "must be finite and non-negative")
	run.Workload = r.workload(&c.Workload)
	run.ArrivalSeed = defaultArrivalSeed
	if run.Workload != nil && run.Workload.Synthetic != nil {
		run.ArrivalSeed = val(c.Seeds.Arrival, run.Workload.Synthetic.ArrivalSeed)
	}
	switch c.Mode {
	case resolved.Aggregated:
		r.within("workers", c.Workers, 1, maxWorkers)
		run.DecodeWorkers, run.Decode = c.Workers, r.role("engine", c.Engine)
	case resolved.Disaggregated:
		r.within("prefill_workers", c.PrefillWorkers, 1, maxWorkers)
		r.within("decode_workers", c.DecodeWorkers, 1, maxWorkers)
		run.PrefillWorkers, run.Prefill = c.PrefillWorkers, r.role("prefill_engine", c.PrefillEngine)
		run.DecodeWorkers, run.Decode = c.DecodeWorkers, r.role("decode_engine", c.DecodeEngine)
		run.Transfer = r.transfer(c.KVTransfer)
	default:
		r.choice("mode", c.Mode, modeKinds)
	}
	run.Router = r.router(&c.Router)
	if s := c.SLA; s != nil {
		sla, broken := slaBounds{orNil(s.TTFTMs), orNil(s.ITLMs), orNil(s.E2EMs)}.check()
		run.SLA = sla
		for _, k := range broken {
			r.fault(document.JoinPath("sla", k.key), k.msg)
		}
	}
	if c.Planner != nil {
		run.Planner = r.planner(c.Planner)
	}
	if !r.f.OK() {
		return Run{}
	}
	for _, msg := range run.roleFaults() {
		r.fault("mode", msg)
	}
	if run.Planner != nil {
		if why := run.Planner.check(run.Disaggregated(), run.Workload); why != "" {
			r.fault("planner.mode", why)
		}
	}
	return run
}

// role reads the engine arguments of a role by the rules of the documents they came
// from.
func (r *resolvedReader) role(path string, w *resolved.Role) *Role {
	if w == nil {
		r.fault(path, "the key is missing")
		return nil
	}
	n, err := document.ParseJSON("", jsonOf(launchDocument(w)))
	if err != nil {
		r.fault(path, err.Error())
		return nil
	}
	n.Rebase(path)
	f := &document.Faults{}
	role, _ := readRole(f, n, "")
	r.f.List = append(r.f.List, f.List...)
	if role == nil {
		return nil
	}
	role.Hardware = w.Hardware
	measured := role.Timing.Kind == Measured
	role.BlocksGiven = w.Engine.NumGPUBlocks != nil && (measured || role.Rank.Blocks != defaultBlocks)
	if w.StartupTimeMs != 0 {
		r.rule(w.StartupTimeMs/1000 == w.StartupTime, path+".startup_time_ms", "must be startup_time, in ms")
		role.StartupMs = w.StartupTimeMs
	}
	t := &w.Engine.TimingModel.Config
	role.profile = t.Profile
	if measured {
		role.files = recordedFiles(t.Hardware)
	}
	if c := w.Capacity; c != nil && !measured {
		q := r.request(path+".capacity.model", &c.Model)
		r.rule(document.IsFraction(c.MemoryFraction), path+".capacity.memory_fraction", "must be finite and in [0, 1]")
		role.Rank.Blocks, role.files = 0, recordedFiles(&c.Model)
		role.Capacity = &Capacity{Model: q, BlockSize: role.Rank.BlockSize, MaxBatchedTokens: role.Rank.MaxNumBatchedTokens,
			MaxSeqs: role.Rank.MaxNumSeqs, MemoryFraction: c.MemoryFraction, CUDAGraphReserved: c.CUDAGraphReservedBytes}
	}
	return role
}

// launchDocument is a role as nested engine arguments (spec engine-args 2), with
// every key written. A capacity beside timing that is not measured has no such form.
func launchDocument(w *resolved.Role) object {
	e := objectOf(w.Engine)
	if w.Engine.NumGPUBlocks == nil {
		delete(e, "num_gpu_blocks")
	}
	t := &w.Engine.TimingModel
	if t.Type == resolved.External {
		model := e.at("timing_model")
		if t.Config.Hardware != nil {
			model["config"] = hardwareDocument(t.Config.Hardware)
		} else {
			model["config"] = object{"path": t.Config.Profile.Path}
		}
	}
	out := object{"engine": e, "dp_size": w.DPSize, "tensor_parallel_size": w.TensorParallelSize, "startup_time": w.StartupTime}
	if w.Dynamo != nil {
		out["dynamo"] = objectOf(w.Dynamo)
	}
	if c := w.Capacity; c != nil && t.Config.Hardware != nil {
		if i := slices.Index(backendNames, w.Engine.Backend); i >= 0 {
			out[fractionKeys[i]] = c.MemoryFraction
		}
		out["cuda_graph_reserved_bytes"] = c.CUDAGraphReservedBytes
	}
	return out
}

// hardwareDocument is a hardware request as the ais provider's configuration.
func hardwareDocument(m *resolved.HardwareModel) object {
	out := objectOf(m)
	for key, v := range out {
		if v == nil {
			delete(out, key)
		}
	}
	if m.BackendVersion == resolved.CurrentVersion {
		delete(out, "backend_version")
	}
	out["model"] = modelOf(m)
	if m.SystemsPath != nil {
		out["systems_path"] = m.SystemsPath.Path
	}
	return out
}

// modelOf is the name of a model, or the folder of a local one.
func modelOf(m *resolved.HardwareModel) string {
	if m.Model.Config.Path != "" {
		return filepath.Dir(m.Model.Config.Path)
	}
	return m.Model.Name
}

func recordedFiles(m *resolved.HardwareModel) modelFiles {
	out := modelFiles{model: m.Model.Config}
	if m.SystemsPath != nil {
		out.systems = *m.SystemsPath
	}
	return out
}

// request reads a hardware request that is no role's timing.
func (r *resolvedReader) request(path string, m *resolved.HardwareModel) AICRequest {
	q := AICRequest{Model: modelOf(m), System: m.System, Backend: m.Backend, TP: m.TP, PP: m.PP, AttentionDP: m.AttentionDP,
		CP: m.CPSize, MoETP: val(m.MoETPSize, 0), MoEEP: val(m.MoEEPSize, 0), NextN: m.NextN, Mode: m.DatabaseMode,
		GEMM: val(m.GEMMDType, ""), MoE: val(m.MoEDType, ""), FMHA: val(m.FMHADType, ""), KVCache: val(m.KVCacheDType, ""),
		Comm: val(m.CommDType, ""), AttentionBackend: m.AttentionBackend, DecodeQKNorm: m.DecodeQKNorm}
	if m.BackendVersion != resolved.CurrentVersion {
		q.Version = m.BackendVersion
	}
	if m.SystemsPath != nil {
		q.SystemsPath = m.SystemsPath.Path
	}
	r.rule(q.Model != "", path+".model", "must not be empty")
	r.rule(q.System != "", path+".system", "must not be empty")
	r.choice(path+".backend", m.Backend, backendNames)
	r.choice(path+".database_mode", m.DatabaseMode, modeNames)
	q.Role = engine.Role(r.choice(path+".worker_type", m.WorkerType, roleNames))
	for _, c := range [...]struct {
		key      string
		v, least int
	}{{"tp", q.TP, 1}, {"pp", q.PP, 1}, {"attention_dp", q.AttentionDP, 1}, {"cp_size", q.CP, 1}, {"moe_tp_size", q.MoETP, 0}, {"moe_ep_size", q.MoEEP, 0}} {
		r.within(path+"."+c.key, c.v, c.least, maxParallel)
	}
	r.within(path+".nextn", q.NextN, 0, maxDraftTokens)
	return q
}

func (r *resolvedReader) transfer(t *resolved.KVTransfer) KVTransfer {
	if t == nil || *t == (resolved.KVTransfer{}) {
		return KVTransfer{}
	}
	const at = "kv_transfer."
	out := KVTransfer{BytesPerToken: t.BytesPerToken.Value, BytesAuto: t.BytesPerToken.Auto, BandwidthGBps: t.BandwidthGBps,
		DestinationMissing: r.choice(at+"timing_mode", t.TimingMode, transferModes) == 1,
		FairShare:          r.choice(at+"contention", t.Contention, contentions) == 1}
	r.rule(document.FiniteFrom(t.BandwidthGBps, 0) && t.BandwidthGBps > 0, at+"bandwidth_gb_per_second", "must be finite and positive")
	r.rule(out.BytesAuto || document.FiniteFrom(out.BytesPerToken, 0) && out.BytesPerToken > 0, at+"bytes_per_token", "must be auto or a positive number")
	if t.Request != nil {
		out.Model, out.files = r.request(at+"request", t.Request), recordedFiles(t.Request)
	}
	return out
}
