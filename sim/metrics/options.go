package metrics

// SLA holds the goodput bounds in ms; 0 means not set (spec report 5).
type SLA struct{ TTFTMs, ITLMs, E2EMs float64 }

// Set reports whether any bound is set.
func (s SLA) Set() bool { return s.TTFTMs > 0 || s.ITLMs > 0 || s.E2EMs > 0 }

// Options say what a Collector keeps.
type Options struct {
	SLA          SLA
	ClientMs     float64 // added to every TTFT and latency (spec calibration 2)
	Capture      bool    // keep a copy of every ended request's record
	Trajectories bool    // the load is agentic: the report has the trajectory keys

	// Requests is how many are expected, 0 if unknown. Room for their values is
	// made at once, which saves what growing copies; more or fewer may come.
	Requests int64
}

// TelemetryOptions asks for samples every IntervalMs of simulated time; 0 is off.
type TelemetryOptions struct {
	IntervalMs float64
	Sink       func(*Sample) error // gets every sample, which it must not keep
}
