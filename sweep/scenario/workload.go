package scenario

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// Workload is the load of a run: generated or a trace. It is shared by runs and
// never changed.
type Workload struct {
	Synthetic *workload.Synthetic // nil: a trace; its ArrivalSeed is Run.ArrivalSeed's default
	Trace     *Trace              // nil: synthetic
	// ArrivalSeedGiven tells a written seed from the default 42.
	ArrivalSeedGiven bool
	MaxSimTimeMs     float64 // +Inf: no cap
	ExecutionModel   string  // echoed in agentic reports, "" none

	id [32]byte
}

// Trace is a trace workload: the files, how to read them and how to release them.
// Runs whose Paths and Load are equal share one trace.Trace.
type Trace struct {
	Paths []string
	Load  trace.LoadOptions
	Drive trace.Drive // its BlockSize is left to Run.Drive

	refs   []resolved.FileRef
	places []document.Fault // [path], where a document names it; none for a command line
}

// keyed is a broken rule with the key it belongs to, "" for none.
type keyed struct{ key, msg string }

// check returns what is wrong with a trace workload, by the API names of spec
// workload 2.1.
func (t *Trace) check() []keyed {
	var out []keyed
	bad := func(holds bool, key, msg string) {
		if !holds {
			out = append(out, keyed{key, msg})
		}
	}
	d, format := t.Drive, t.Load.Format
	agentic := format == trace.AgenticMooncake || format == trace.Weka
	if d.ClosedLoop {
		bad(d.Concurrency >= 1, "replay_concurrency", "replay_concurrency must be at least 1")
		bad(format != trace.AgenticMooncake, "replay_concurrency", "agentic_mooncake trace format is not supported with replay_concurrency")
		bad(format != trace.Weka, "replay_concurrency", "agentic Dynamo request traces are not supported with replay_concurrency")
	} else {
		bad(d.Speedup > 0 && !math.IsInf(d.Speedup, 1), "arrival_speedup_ratio",
			"ratio must be a finite positive number, got "+plainFloat(d.Speedup))
		bad(format != trace.AppliedCompute, "replay_concurrency", "trace_format='applied_compute_agentic' requires replay_concurrency because source traces do not contain first-turn timestamps")
	}
	if d.Laned {
		bad(d.Lanes >= 1, "agentic_lanes", "agentic_lanes must be at least 1")
		bad(!d.ClosedLoop, "agentic_lanes", "agentic_lanes cannot be combined with replay_concurrency")
		bad(agentic || format == trace.Dynamo, "agentic_lanes", "agentic_lanes requires trace_format='agentic_mooncake', 'weka', or 'dynamo'")
	}
	if format == trace.AppliedCompute {
		bad(document.IsFraction(t.Load.SharedPrefixRatio), "shared_prefix_ratio", "shared_prefix_ratio must be between 0.0 and 1.0, got "+plainFloat(t.Load.SharedPrefixRatio))
		bad(t.Load.PrefixGroups >= 0, "num_prefix_groups", fmt.Sprintf("num_prefix_groups must be at least 0, got %d", t.Load.PrefixGroups))
	}
	if format != trace.Dynamo {
		bad(len(t.Paths) == 1, "trace", fmt.Sprintf("trace_format='%s' requires exactly one trace file, got %d", format, len(t.Paths)))
	}
	return out
}

// scalable reports whether the Planner can look at the load (spec
// sweeps-and-schema 7): synthetic, mooncake and dynamo.
func (w *Workload) scalable() bool {
	return w.Trace == nil || w.Trace.Load.Format == trace.Mooncake || w.Trace.Load.Format == trace.Dynamo
}

// Drawn reports whether the arrival seed decides anything.
func (w *Workload) Drawn() bool { return w.Synthetic != nil && w.Synthetic.Drawn() }

// syntheticFaults returns the broken rules of a synthetic workload, each with the
// API key its text begins with.
func syntheticFaults(s *workload.Synthetic) []keyed {
	var out []keyed
	for _, err := range document.Split(s.Validate()) {
		msg := err.Error()
		key, _, _ := strings.Cut(msg, " ")
		if key == "ratio" {
			key = "arrival_speedup_ratio"
		}
		if !slices.Contains(syntheticNames, key) {
			key = ""
		}
		out = append(out, keyed{key, msg})
	}
	return out
}

var syntheticNames = []string{"input_tokens", "output_tokens", "request_count", "turns_per_session",
	"inter_turn_delay_ms", "shared_prefix_ratio", "num_prefix_groups", "replay_concurrency",
	"request_rate", "arrival_interval_ms", "arrival_seed", "arrival_speedup_ratio"}

// refer reads the content of the trace files, which identifies them.
func (w *Workload) refer(files *Files) error {
	t := w.Trace
	if t == nil {
		return nil
	}
	t.refs = t.refs[:0]
	for i, p := range t.Paths {
		ref, err := t.ref(files, p)
		if err != nil {
			f := document.Fault{}
			if i < len(t.places) {
				f = t.places[i]
			}
			f.Msg = err.Error()
			return &f
		}
		t.refs = append(t.refs, ref)
	}
	return nil
}

// place notes that a document names the next path at n.
func (t *Trace) place(origin string, n *document.Node) {
	t.places = append(t.places, document.Fault{Origin: origin, Line: n.Line, Path: n.Path})
}

// ref describes one trace by its content; only weka has folders of traces. A document
// says what may stand in the place of a folder; the words on a command line are
// upstream's.
func (t *Trace) ref(files *Files, path string) (resolved.FileRef, error) {
	why := ""
	if st, err := os.Stat(path); err == nil && st.IsDir() && t.Load.Format != trace.Weka {
		if len(t.places) > 0 {
			return resolved.FileRef{}, fmt.Errorf("%s is a directory: name a trace file; only format weka reads a directory of traces", path)
		}
		why = "is a directory"
	}
	if why == "" {
		ref, err := files.ref(path)
		if err == nil {
			return ref, nil
		}
		why = strings.TrimPrefix(err.Error(), "cannot read "+path+": ")
	}
	what := "failed to open trace file "
	if t.Load.Format == trace.Dynamo {
		what = "failed to open "
	}
	return resolved.FileRef{}, errors.New(what + path + ": " + why)
}

// timestampBases are the names of trace.WekaTimestamps.
var timestampBases = []string{"auto", "absolute", "relative"}
