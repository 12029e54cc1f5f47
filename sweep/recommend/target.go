package recommend

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Target is what recommend maximises (spec sweeps-and-schema 5.5).
type Target uint8

const (
	ByThroughput Target = iota
	ByThroughputPerGPU
	ByThroughputPerUser
	ByGoodput
	ByGoodputPerGPU
	ByTTFT
	ByE2ELatency
	ByPareto
	ByGPUs
	ByCost
)

// Targets are their names in documents, in order.
var Targets = []string{"throughput", "throughput_per_gpu", "throughput_per_user", "goodput", "goodput_per_gpu",
	"ttft", "e2e_latency", "pareto", "min_gpus", "min_cost"}

func (t Target) String() string { return Targets[t] }

// ParseTarget reads a name.
func ParseTarget(name string) (Target, error) {
	i := slices.Index(Targets, name)
	if i < 0 {
		return 0, fmt.Errorf("must be one of %s, got %q", strings.Join(Targets, ", "), name)
	}
	return Target(i), nil
}

// Goodput reports whether the target counts requests within the SLA.
func (t Target) Goodput() bool {
	return t == ByGoodput || t == ByGoodputPerGPU || t.Least()
}

// Least reports whether the target is the least deployment that meets a goodput.
func (t Target) Least() bool { return t == ByGPUs || t == ByCost }

// Shown is an objective as people read it: a latency, a size or a cost is positive.
func (t Target) Shown(v float64) float64 {
	if t == ByTTFT || t == ByE2ELatency || t.Least() {
		return -v
	}
	return v
}

// ObjectiveNames are the names of what Objectives returns.
func (t Target) ObjectiveNames() []string {
	if t == ByPareto {
		return []string{ByThroughputPerGPU.String(), ByThroughputPerUser.String()}
	}
	return []string{t.String()}
}

// Names under which a deployment's own numbers stand among its figures.
const (
	UsedGPUs   = "used_gpus"    // at the start
	USDPerHour = "usd_per_hour" // cost of the run over its duration
)

// ErrNoSamples says that a figure was asked of a run that measured none.
var ErrNoSamples = errors.New("no samples")

// Objectives returns the values of the target, larger is better; several for
// pareto. A run without the figure, or with one that is not finite, is an error.
func (t Target) Objectives(f Figures) ([]float64, error) {
	if t == ByPareto {
		perGPU, err := ByThroughputPerGPU.value(f)
		if err != nil {
			return nil, err
		}
		perUser, err := ByThroughputPerUser.value(f)
		return []float64{perGPU, perUser}, err
	}
	v, err := t.value(f)
	return []float64{v}, err
}

func (t Target) value(f Figures) (float64, error) {
	switch t {
	case ByThroughput:
		return need(f, "output_throughput_tok_s")
	case ByThroughputPerGPU:
		return perGPU(f, "output_throughput_tok_s")
	case ByThroughputPerUser:
		return need(f, "mean_output_token_throughput_per_user")
	case ByGoodput:
		return need(f, "goodput_output_throughput_tok_s")
	case ByGoodputPerGPU:
		return perGPU(f, "goodput_output_throughput_tok_s")
	case ByTTFT:
		return latency(f, "mean_ttft_ms", "num_ttft_samples")
	case ByE2ELatency:
		return latency(f, "mean_e2e_latency_ms", "num_e2e_latency_samples")
	case ByGPUs:
		v, err := need(f, UsedGPUs)
		return -v, err
	}
	v, err := need(f, USDPerHour)
	return -v, err
}

func need(f Figures, key string) (float64, error) {
	v, ok := f.Get(key)
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("the report has no finite %s", key)
	}
	return v, nil
}

// AverageGPUs is gpu_hours over the duration; 0 if either is not positive.
func AverageGPUs(f Figures) float64 {
	hours, _ := f.Get("gpu_hours")
	ms, _ := f.Get("duration_ms")
	if !(hours > 0) || !(ms > 0) {
		return 0
	}
	return hours / (ms / 3.6e6)
}

// perGPU is a rate over the average GPUs; 0 if there are none.
func perGPU(f Figures, key string) (float64, error) {
	v, err := need(f, key)
	gpus := AverageGPUs(f)
	if err != nil || gpus == 0 {
		return 0, err
	}
	return v / gpus, nil
}

// latency is minus a mean over at least one sample.
func latency(f Figures, key, count string) (float64, error) {
	if n, ok := f.Get(count); !ok || n <= 0 {
		return 0, fmt.Errorf("%s: %w", key, ErrNoSamples)
	}
	v, err := need(f, key)
	return -v, err
}
