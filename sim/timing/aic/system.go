package aic

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// System is a GPU system as its YAML file describes it. Bandwidths are bytes per
// second and GPU in one direction, sizes bytes, times seconds (spec aic-perfmodel 3.1).
type System struct {
	Name           string
	GPUsPerNode    int
	MemoryBytes    float64 // capacity of one GPU
	dataDir        string
	memBW          float64
	memFactor      float64
	memConst       float64
	flops          map[string]float64 // class (bfloat16, int8, fp8, fp4) -> operations per second
	sm             int                // 0 when the file names none
	intraBW        float64
	interBW        float64
	rackBW         float64 // 0 when absent
	gpusPerRack    int     // 0 when absent
	p2pLatency     float64
	ncclMem        map[int]float64
	otherMem       float64
	ncclVersion    string
	onecclVersion  string
	memBWEffective float64 // memBW * memFactor
}

// yamlNumbers reads required and optional numbers and keeps the first error.
type yamlNumbers struct {
	file string
	root *document.Node
	err  error
}

// fault keeps the first error under a path.
func (y *yamlNumbers) fault(path []string, format string, args ...any) {
	if y.err == nil {
		y.err = fmt.Errorf("%s: %s: %s", y.file, strings.Join(path, "."), fmt.Sprintf(format, args...))
	}
}

func (y *yamlNumbers) optional(def float64, path ...string) float64 {
	text, ok := scalarText(y.root, path...)
	if !ok {
		return def
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= math.MaxFloat64) {
		y.fault(path, "must be a number of at least 0, got %q", text)
	}
	return v
}

func (y *yamlNumbers) positive(path ...string) float64 {
	v := y.optional(0, path...)
	if !(v > 0) {
		y.fault(path, "must be a positive number")
	}
	return v
}

func parseSystem(name, file string, data []byte) (*System, error) {
	root, err := parseYAML(file, data)
	if err != nil {
		return nil, err
	}
	y := &yamlNumbers{file: file, root: root}
	s := &System{
		Name:        name,
		GPUsPerNode: int(y.positive("node", "num_gpus_per_node")),
		MemoryBytes: y.positive("gpu", "mem_capacity"),
		memBW:       y.positive("gpu", "mem_bw"),
		memFactor:   y.optional(1, "gpu", "mem_bw_empirical_scaling_factor"),
		memConst:    y.optional(0, "gpu", "mem_empirical_constant_latency"),
		flops:       map[string]float64{},
		sm:          int(y.optional(0, "gpu", "sm_version")),
		intraBW:     y.positive("node", "intra_node_bw"),
		interBW:     y.positive("node", "inter_node_bw"),
		rackBW:      y.optional(0, "node", "inter_rack_bw"),
		gpusPerRack: int(y.optional(0, "node", "num_gpus_per_rack")),
		p2pLatency:  y.optional(0, "node", "p2p_latency"),
		ncclMem:     map[int]float64{},
		otherMem:    y.optional(0, "misc", "other_mem"),
	}
	for _, class := range []string{"bfloat16", "int8", "fp8", "fp4"} {
		if v := y.optional(0, "gpu", class+"_tc_flops"); v > 0 {
			s.flops[class] = v
		}
	}
	s.dataDir, _ = scalarText(root, "data_dir")
	s.ncclVersion, _ = scalarText(root, "misc", "nccl_version")
	s.onecclVersion, _ = scalarText(root, "misc", "oneccl_version")
	if m := below(root, "misc", "nccl_mem"); m != nil && m.Kind == document.Map {
		for _, k := range m.Keys {
			gpus, err := strconv.Atoi(k)
			if err != nil {
				return nil, fmt.Errorf("%s: misc.nccl_mem: not a GPU count: %q", file, k)
			}
			s.ncclMem[gpus] = y.optional(0, "misc", "nccl_mem", k)
		}
	}
	s.memBWEffective = s.memBW * s.memFactor
	if y.err == nil && !(s.memBWEffective > 0) {
		y.err = fmt.Errorf("%s: gpu.mem_bw_empirical_scaling_factor: must be positive", file)
	}
	return s, y.err
}

// memMs is the memory-bound helper: ms to move so many bytes once, with the
// per-call constant (spec aic-perfmodel 5.1).
func (s *System) memMs(bytes float64) float64 {
	return (bytes/s.memBWEffective + s.memConst) * 1000
}

// memSOLMs is memMs at the speed of light (spec aic-perfmodel 11).
func (s *System) memSOLMs(bytes float64) float64 { return bytes / s.memBW * 1000 }

// p2pBW returns bytes per second between the members of a group of k GPUs.
func (s *System) p2pBW(k int) float64 {
	switch {
	case k <= s.GPUsPerNode:
		return s.intraBW
	case s.gpusPerRack == 0 || k <= s.gpusPerRack || s.rackBW == 0:
		return s.interBW
	}
	return s.rackBW
}

// flopsFor returns the peak of a class, an error naming the missing entry otherwise.
func (s *System) flopsFor(class string) (float64, error) {
	if v, ok := s.flops[class]; ok {
		return v, nil
	}
	have := make([]string, 0, len(s.flops))
	for k := range s.flops {
		have = append(have, k+"_tc_flops")
	}
	sort.Strings(have)
	return 0, classed(ErrFlops, "missing system flops: %s has no %s_tc_flops (it has %s): name number formats that it computes", s.Name, class, strings.Join(have, ", "))
}
