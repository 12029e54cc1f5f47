package calibrate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// documentName is the file that the corrections come from.
const documentName = "calibration.json"

// deploymentJSON says what was fitted.
type deploymentJSON struct {
	Model   string `json:"model,omitempty"`
	System  string `json:"system,omitempty"`
	Backend string `json:"backend"`
	Version string `json:"backend_version,omitempty"`
	DTypes  string `json:"dtypes,omitempty"`
	Tensor  []int  `json:"tensor_parallel"`
}

func (c *Calibration) deployment() deploymentJSON {
	role := c.Deployments[0].Decode
	q := &role.Timing.AIC
	out := deploymentJSON{Model: q.Model, System: q.System, Backend: role.Rank.Backend.String(), Version: q.Version}
	if q.Model != "" {
		out.DTypes = q.DTypes()
	}
	for _, d := range c.Deployments {
		if tp := d.Decode.TensorParallel; !slices.Contains(out.Tensor, tp) {
			out.Tensor = append(out.Tensor, tp)
		}
	}
	return out
}

// Document is calibration.json. It ends with a newline.
func (c *Calibration) Document(r *Result) []byte {
	text, err := json.MarshalIndent(struct {
		Deployment  deploymentJSON     `json:"deployment"`
		Corrections map[string]float64 `json:"corrections"`
		*Result
	}{c.deployment(), r.values(), r}, "", "  ")
	if err != nil {
		panic("calibrate: a result does not marshal: " + err.Error())
	}
	return append(text, '\n')
}

// values are the corrections by name.
func (r *Result) values() map[string]float64 {
	k := &r.Corrections
	return map[string]float64{"prefill_scale": k.PrefillScale, "decode_scale": k.DecodeScale, "pass_ms": k.PassMs,
		"sequence_ms": k.SequenceMs, "client_ms": k.ClientMs}
}

// TimingBlock is timing.yaml: the timing of a sweep with the corrections, which name the
// text of calibration.json.
func (c *Calibration) TimingBlock(r *Result, document []byte) []byte {
	d := c.deployment()
	t := &c.Deployments[0].Decode.Timing
	var b strings.Builder
	b.WriteString("timing:\n")
	line := func(indent int, key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", indent), key, value)
		}
	}
	line(1, "type", t.Kind.String())
	writeModel(line, t, d.Tensor)
	b.WriteString("  corrections:\n")
	for _, name := range parameterNames {
		line(2, name, strconv.FormatFloat(round(r.values()[name]), 'g', -1, 64))
	}
	sum := sha256.Sum256(document)
	b.WriteString("    fitted:\n")
	line(3, "from", documentName)
	line(3, "sha256", hex.EncodeToString(sum[:]))
	line(3, "model", quoted(d.Model))
	line(3, "system", quoted(d.System))
	if d.Model != "" {
		line(3, "backend", d.Backend)
		line(3, "dtypes", quoted(d.DTypes))
	}
	return []byte(b.String())
}

// writeModel writes the keys of a timing that say which model it is.
func writeModel(line func(indent int, key, value string), t *scenario.Timing, tensor []int) {
	q := &t.AIC
	switch t.Kind {
	case scenario.Fixed:
		line(1, "prefill_ms", strconv.FormatFloat(t.PrefillMs, 'g', -1, 64))
		line(1, "decode_ms", strconv.FormatFloat(t.DecodeMs, 'g', -1, 64))
	case scenario.Profile:
		line(1, "path", quoted(t.Path))
	case scenario.Measured:
		line(1, "model", quoted(q.Model))
		line(1, "system", quoted(q.System))
		line(1, "backend_version", quoted(q.Version))
		sizes := fmt.Sprint(tensor[0])
		if len(tensor) > 1 {
			sizes = strings.ReplaceAll(fmt.Sprint(tensor), " ", ", ")
		}
		line(1, "tensor_parallel", sizes)
		for _, k := range [...]struct {
			key string
			v   int
		}{{"attention_data_parallel", q.AttentionDP}, {"moe_tensor_parallel", q.MoETP}, {"moe_expert_parallel", q.MoEEP}} {
			if k.v > 1 || k.v == 1 && strings.HasPrefix(k.key, "moe") {
				line(1, k.key, fmt.Sprint(k.v))
			}
		}
		for _, k := range [...][2]string{{"gemm_dtype", q.GEMM}, {"moe_dtype", q.MoE}, {"fmha_dtype", q.FMHA}, {"kv_cache_dtype", q.KVCache},
			{"comm_dtype", q.Comm}, {"attention_backend", q.AttentionBackend}, {"systems_path", q.SystemsPath}} {
			line(1, k[0], quoted(k[1]))
		}
		if q.Mode != "SILICON" {
			line(1, "database_mode", q.Mode)
		}
		if q.DecodeQKNorm {
			line(1, "decode_qk_norm", "true")
		}
	}
}

// quoted is a string as YAML, which JSON's strings are; "" stays.
func quoted(s string) string {
	if s == "" {
		return ""
	}
	text, _ := json.Marshal(s) // a string always marshals
	return string(text)
}

// round keeps four significant digits: more are not known.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
