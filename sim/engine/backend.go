package engine

// Backend names a scheduler: its place in the table of descriptors.
type Backend uint8

const (
	VLLM Backend = iota
	SGLang
	TRTLLM
)

func (b Backend) String() string { return backends[b].Name }

// Descriptor returns what is known of b.
func (b Backend) Descriptor() *Descriptor { return &backends[b] }

// Descriptor says what differs between backends outside their own packages. Code
// elsewhere asks for a capability here and does not compare backends.
type Descriptor struct {
	Name             string
	BlockSize        int     // default of block_size, tokens
	MinBlockSize     int     // least block_size, tokens
	MemoryFraction   float64 // default share of GPU memory for weights and KV
	FractionKey      string  // the launch key of that share
	Disaggregated    bool    // has a prefill and a decode side
	DestinationFirst bool    // decode blocks are reserved before the prompt is computed
	ScheduleInterval bool    // reads prefill_schedule_interval
	DecodeInterval   bool    // reads prefill_decode_interval
	WholePrompts     bool    // can do without chunked prefill
	PreemptionMode   bool    // reads preemption_mode
	SGLangObject     bool    // reads the object engine.sglang
}

// backends is indexed by Backend.
var backends = [...]Descriptor{
	VLLM: {Name: "vllm", BlockSize: 64, MinBlockSize: 2, MemoryFraction: 0.9, FractionKey: "gpu_memory_utilization",
		Disaggregated: true, ScheduleInterval: true, WholePrompts: true, PreemptionMode: true},
	SGLang: {Name: "sglang", BlockSize: 1, MinBlockSize: 1, MemoryFraction: 0.88, FractionKey: "mem_fraction_static",
		Disaggregated: true, DestinationFirst: true, DecodeInterval: true, SGLangObject: true},
	TRTLLM: {Name: "trtllm", BlockSize: 32, MinBlockSize: 2, MemoryFraction: 0.9, FractionKey: "free_gpu_memory_fraction",
		WholePrompts: true},
}

// BackendNames lists the names of all backends, the default first; a Backend is the
// place of its name.
func BackendNames() []string { return columnOf(func(d *Descriptor) string { return d.Name }) }

// FractionKeys lists the launch keys of the memory share, by Backend.
func FractionKeys() []string { return columnOf(func(d *Descriptor) string { return d.FractionKey }) }

func columnOf(field func(*Descriptor) string) []string {
	out := make([]string, len(backends))
	for i := range backends {
		out[i] = field(&backends[i])
	}
	return out
}
