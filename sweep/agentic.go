package sweep

import (
	"math"

	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/trace"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// playOutcome is one entry of agentic_play_outcomes.
type playOutcome struct {
	PlayID     string   `json:"play_id"`
	Status     string   `json:"status"`
	TerminalMs *float64 `json:"causal_terminal_ms,omitempty"`
	SettledMs  *float64 `json:"settled_at_ms,omitempty"`

	FailedRequest string `json:"failure_request_id,omitempty"`
	FailedBy      string `json:"failure_status,omitempty"`
}

// agentic returns the report keys that only agentic load has (spec report 14).
func agentic(in *Inputs, run *scenario.Run, src workload.Source) []metrics.Field {
	plays := src.Plays()
	if plays == nil {
		return nil
	}
	t, err := in.Trace(run.Workload.Trace)
	if err != nil {
		return nil
	}
	g, _ := t.Graph()
	outcomes := make([]playOutcome, len(plays))
	for i, p := range plays {
		outcomes[i] = playOutcome{PlayID: p.PlayID, Status: p.Status, TerminalMs: known(p.TerminalMs), SettledMs: known(p.SettledMs)}
		if p.FailedRequest != "" {
			outcomes[i].FailedRequest, outcomes[i].FailedBy = p.FailedRequest, p.FailedBy.String()
		}
	}
	events, digest := src.Lifecycle()
	fields := []metrics.Field{
		{Name: "agentic_graph", Value: map[string]any{
			"source":       map[string]any{"format": g.Source.Format, "digest": g.Source.Digest},
			"graph_digest": t.GraphDigest(run.Workload.Trace.Drive.Speedup), "block_size": g.BlockSize, "node_count": g.Nodes, "play_count": g.Plays, "source_models": g.Models}},
		{Name: "agentic_lifecycle_event_count", Value: events},
		{Name: "agentic_lifecycle_digest", Value: digest},
		{Name: "agentic_play_outcomes", Value: outcomes},
		{Name: "agentic_model_projection", Value: map[string]any{
			"policy": "project_to_configured_target", "source_models": g.Models, "target_model": orNull(run.Workload.ExecutionModel)}},
	}
	if t.Format() == trace.Weka {
		fields = append(fields, metrics.Field{Name: "weka_nested_timestamp_basis", Value: g.Basis.String()})
	}
	return fields
}

func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
