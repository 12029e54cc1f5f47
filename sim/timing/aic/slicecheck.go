package aic

import (
	"fmt"
	"math"
	"strings"
)

// A slice of the tables can be wrong in itself: launch costs that CUDA graphs remove, or
// a kernel that nobody runs. Three engines on the same hardware rarely differ much, so one
// that does is suspect (spec calibration 5). No price is changed by that.

// suspectRatio is how far an engine's price may lie above the mean of the other two.
const suspectRatio = 1.8

var sliceProbes = [...]struct {
	phase         string
	batch, length int
}{{"decode", 4, 2000}, {"decode", 64, 8000}, {"prefill", 1, 4096}}

var sliceBackends = [...]string{"vllm", "sglang", "trtllm"}

// SliceProbe is one pass priced with the tables of every engine.
type SliceProbe struct {
	Phase   string       `json:"phase"`
	Batch   int          `json:"batch_size"`
	Length  int          `json:"length"`
	Prices  []SlicePrice `json:"prices"`
	Suspect string       `json:"suspect,omitempty"` // the engine that is far above the others
	// The op in which Suspect is farthest above the others, and the key that chooses
	// another slice; "" where no op of theirs has its name.
	Op       string  `json:"op,omitempty"`
	OpMs     float64 `json:"op_ms,omitempty"`
	OthersMs float64 `json:"others_ms,omitempty"` // the same op, mean of the others
	Key      string  `json:"key,omitempty"`
}

// SlicePrice is what the pass takes with the tables of one engine.
type SlicePrice struct {
	Backend string  `json:"backend"`
	Ms      float64 `json:"latency_ms,omitempty"`
	Reason  string  `json:"reason,omitempty"` // why there is no price
}

// CheckSlices prices the probes of one model with the tables of all engines. The error is
// that of a model that no engine prices.
func CheckSlices(system, systemsPath string, cfg ModelConfig) ([]SliceProbe, error) {
	var models [len(sliceBackends)]*Model
	var reasons [len(sliceBackends)]error
	opened := 0
	for i, backend := range sliceBackends {
		db, err := Open(Config{System: system, Backend: backend, SystemsPath: systemsPath})
		if err == nil {
			models[i], err = NewModel(db, cfg)
		}
		if reasons[i] = err; err == nil {
			opened++
		}
	}
	if opened == 0 {
		return nil, reasons[0]
	}
	out := make([]SliceProbe, 0, len(sliceProbes))
	for _, p := range sliceProbes {
		probe := SliceProbe{Phase: p.phase, Batch: p.batch, Length: p.length}
		var ops [len(sliceBackends)][]OpCost
		for i, m := range models {
			price := SlicePrice{Backend: sliceBackends[i]}
			err := reasons[i]
			if err == nil {
				price.Ms, err = m.Step(p.phase, p.batch, p.length, 0)
			}
			if err == nil && p.phase == "decode" {
				ops[i], err = m.DecodeOps(p.batch, p.length)
			} else if err == nil {
				ops[i], err = m.PrefillOps(p.batch, p.length, 0)
			}
			if err != nil {
				price = SlicePrice{Backend: price.Backend, Reason: err.Error()}
			}
			probe.Prices = append(probe.Prices, price)
		}
		probe.judge(ops[:])
		out = append(out, probe)
	}
	return out, nil
}

// judge finds the engine that is far above both others, and its op.
func (p *SliceProbe) judge(ops [][]OpCost) {
	for i, price := range p.Prices {
		sum, n := 0.0, 0
		for j, other := range p.Prices {
			if j != i && other.Ms > 0 {
				sum += other.Ms
				n++
			}
		}
		if n < 2 || price.Ms <= suspectRatio*sum/float64(n) {
			continue
		}
		p.Suspect = price.Backend
		worst := 0.0
		for _, op := range ops[i] {
			mean := meanOp(ops, i, op.Name)
			if excess := op.Ms - mean; !math.IsNaN(mean) && excess > worst {
				worst, p.Op, p.OpMs, p.OthersMs = excess, op.Name, op.Ms, mean
			}
		}
		p.Key = formatKey(p.Op)
	}
}

// meanOp is what an op takes with the other engines, NaN where none has it.
func meanOp(ops [][]OpCost, except int, name string) float64 {
	sum, n := 0.0, 0
	for i, list := range ops {
		for _, op := range list {
			if i != except && op.Name == name {
				sum += op.Ms
				n++
			}
		}
	}
	return sum / float64(n)
}

// formatKey is the key that chooses the number format, and so the slice, of an op.
func formatKey(op string) string {
	switch {
	case op == "":
		return ""
	case strings.Contains(op, "moe"):
		return "moe_dtype"
	case strings.Contains(op, "gemm"), strings.Contains(op, "proj"):
		return "gemm_dtype"
	case strings.Contains(op, "attention"), strings.Contains(op, "mla"):
		return "kv_cache_dtype"
	}
	return ""
}

// Notice says what is wrong with the prices of an engine, "" if nothing is.
func (p *SliceProbe) Notice(backend string) string {
	if p.Suspect != backend {
		return ""
	}
	var mine float64
	var others []string
	for _, price := range p.Prices {
		if price.Backend == backend {
			mine = price.Ms
		} else {
			others = append(others, fmt.Sprintf("%.4g with %s", price.Ms, price.Backend))
		}
	}
	text := fmt.Sprintf("%s of %d x %d takes %.4g ms with the tables of %s, %s: a slice of its table is suspect", p.Phase, p.Batch, p.Length, mine, backend, strings.Join(others, ", "))
	if p.Op != "" {
		text += fmt.Sprintf("; %s takes %.3g ms, %.3g with the others", p.Op, p.OpMs, p.OthersMs)
	}
	if p.Key != "" {
		text += "; another " + p.Key + " or engine avoids it"
	}
	return text
}
