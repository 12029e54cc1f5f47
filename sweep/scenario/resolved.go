package scenario

import (
	"os"
	"path/filepath"

	"github.com/dynosweep/dynosweep/sim/engine"
)

// relocate finds the files that the role names from the folder of its document.
func (r *Role) relocate(dir string) {
	if r.Timing.Path != "" {
		r.Timing.Path = pathOf(dir, r.Timing.Path)
	}
	requests := []*AICRequest{&r.Timing.AIC}
	if r.Capacity != nil {
		requests = append(requests, &r.Capacity.Model)
	}
	for _, q := range requests {
		if q.SystemsPath != "" {
			q.SystemsPath = pathOf(dir, q.SystemsPath)
		}
		if q.Model == "" {
			continue
		}
		if local := pathOf(dir, q.Model); q.localConfig(local) != "" {
			q.Model = local
		}
	}
}

// localConfig is the config.json of a model that is a local folder, "" for a name.
func (q *AICRequest) localConfig(model string) string {
	path := filepath.Join(model, "config.json")
	if model == "" {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// request is the model that the role's timing or capacity asks about, zero if none.
func (r *Role) request() AICRequest {
	if r.Capacity != nil {
		return r.Capacity.Model
	}
	return r.Timing.AIC
}

// System is the hardware of the role's GPUs, "" where no document says it.
func (r *Role) System() string { return orText(r.request().System, r.Hardware) }

// seal reads what identifies the role: its profile, local model and table folders
// count by content.
func (r *Role) seal(files *Files) error {
	var err error
	if r.Timing.Path != "" {
		if r.profile, err = files.profile(r.Timing.Path); err != nil {
			return err
		}
	}
	q := r.request()
	if q.SystemsPath != "" {
		if r.systems, err = files.ref(q.SystemsPath); err != nil {
			return err
		}
	}
	if path := q.localConfig(q.Model); path != "" {
		if r.model, err = files.ref(path); err != nil {
			return err
		}
	}
	r.id = digest(r.resolved(false))
	return nil
}

// resolved is the role as plain values in the nested shape of engine arguments.
// What the backend does not look at is left out.
func (r *Role) resolved(paths bool) map[string]any {
	c := &r.Rank
	e := map[string]any{
		"backend": c.Backend.String(), "worker_type": c.Role.String(),
		"num_gpu_blocks": orNil(c.Blocks), "block_size": c.BlockSize, "max_model_len": orNil(c.MaxModelLen),
		"max_num_seqs": orNil(c.MaxNumSeqs), "max_num_batched_tokens": orNil(c.MaxNumBatchedTokens),
		"enable_prefix_caching": c.PrefixCaching, "enable_chunked_prefill": c.ChunkedPrefill,
		"speedup_ratio": c.SpeedupRatio, "decode_speedup_ratio": c.DecodeSpeedupRatio,
		"timing_model": r.resolvedTiming(paths),
	}
	switch c.Backend {
	case engine.VLLM:
		e["prefill_schedule_interval"], e["preemption_mode"] = c.PrefillScheduleInterval, "lifo"
		if c.PreemptFIFO {
			e["preemption_mode"] = "fifo"
		}
	case engine.SGLang:
		e["prefill_decode_interval"] = c.PrefillDecodeInterval
		policy := "fifo"
		if c.SGLang.LPM {
			policy = "lpm"
		}
		e["sglang"] = map[string]any{"schedule_policy": policy, "max_prefill_tokens": c.SGLang.MaxPrefillTokens,
			"chunked_prefill_size": c.SGLang.ChunkedPrefillSize, "clip_max_new_tokens": c.SGLang.ClipMaxNewTokens,
			"schedule_conservativeness": c.SGLang.Conservativeness}
	}
	if c.NextN > 0 {
		e["aic_nextn"], e["aic_nextn_accept_rates"] = c.NextN, r.AcceptRates
		if r.MTPSeedGiven {
			e["aic_mtp_seed"] = c.MTPSeed
		}
	}
	m := map[string]any{"engine": e, "dp_size": r.DPSize, "tensor_parallel_size": r.TensorParallel, "startup_time": r.StartupMs / 1000}
	if r.ContextParallel > 1 {
		m["cp_size"] = r.ContextParallel
	}
	if r.Capacity != nil {
		m["capacity"] = r.resolvedCapacity(paths)
	}
	if r.QueuePolicy != "" {
		m["dynamo"] = map[string]any{"router_queue_policy": r.QueuePolicy}
	}
	return m
}

func (r *Role) resolvedTiming(paths bool) map[string]any {
	switch t := &r.Timing; t.Kind {
	case Fixed:
		return map[string]any{"type": "fixed", "prefill_ms": t.PrefillMs, "decode_ms": t.DecodeMs}
	case Profile:
		return map[string]any{"type": "external", "provider": "dynamo_profile", "config": map[string]any{"path": r.profile.show(paths)}}
	case Measured:
		return map[string]any{"type": "external", "provider": "ais", "config": t.AIC.resolved(r.model, r.systems, paths)}
	}
	return map[string]any{"type": "polynomial"}
}

// resolved is the request with the words of spec aic-perfmodel 1.4; null stands for
// "from the checkpoint" and "not given".
func (q *AICRequest) resolved(model, systems fileRef, paths bool) map[string]any {
	m := map[string]any{"model": q.Model, "system": q.System, "backend": q.Backend, "worker_type": q.Role.String(),
		"backend_version": orText(q.Version, "current"), "tp": q.TP, "pp": q.PP, "attention_dp": q.AttentionDP, "cp_size": q.CP,
		"moe_tp_size": orNil(q.MoETP), "moe_ep_size": orNil(q.MoEEP), "nextn": q.NextN, "database_mode": q.Mode}
	for i, v := range [...]string{q.GEMM, q.MoE, q.FMHA, q.KVCache, q.Comm} {
		m[dtypeNames[i]+"_dtype"] = textOrNil(v)
	}
	if q.AttentionBackend != "" {
		m["attention_backend"] = q.AttentionBackend
	}
	if q.DecodeQKNorm {
		m["decode_qk_norm"] = true
	}
	if model != (fileRef{}) {
		m["model"] = model.show(paths)
	}
	if q.SystemsPath != "" {
		m["systems_path"] = systems.show(paths)
	}
	return m
}

func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (r *Role) resolvedCapacity(paths bool) map[string]any {
	c := r.Capacity
	return map[string]any{"model": c.Model.resolved(r.model, r.systems, paths), "memory_fraction": c.MemoryFraction,
		"cuda_graph_reserved_bytes": c.CUDAGraphReserved, "max_num_batched_tokens": orNil(c.MaxBatchedTokens)}
}
