package planner

// Metadata heads the planner object of a report (spec planner 12.2).
type Metadata struct {
	ConfigDigest       string       `json:"planner_config_digest"`
	IdentityExclusions []string     `json:"planner_config_identity_exclusions"`
	BuiltinPlugins     []string     `json:"builtin_plugin_ids"`
	ConfiguredPlugins  []string     `json:"configured_plugin_identities"`
	Pipeline           []PluginStep `json:"plugin_pipeline"`
	PipelineSchema     string       `json:"pipeline_schema_version"`
	Mode               Mode         `json:"mode"`
	Granularity        int          `json:"benchmark_granularity"`
	Bootstrap          Bootstrap    `json:"bootstrap"`
	DetailsCaptured    bool         `json:"details_captured"`
}

// PluginStep is one stage of the decision pipeline.
type PluginStep struct {
	ID     string `json:"plugin_id"`
	Source string `json:"source"`
}

// Metadata describes the Policy; details says whether ticks are kept.
func (p *Policy) Metadata(details bool) Metadata {
	m := Metadata{
		ConfigDigest: p.cfg.Digest(),
		IdentityExclusions: []string{"report_output_dir", "report_filename", "report_interval_hours",
			"report_write_gzip_log", "live_dashboard_port", "control_api_port"},
		BuiltinPlugins:    []string{"builtin_load_predict", "builtin_load_propose", "builtin_throughput_propose"},
		ConfiguredPlugins: []string{},
		PipelineSchema:    "planner-plugin-pipeline.v1",
		Mode:              p.cfg.Mode,
		Granularity:       p.granularity(),
		Bootstrap:         p.boot,
		DetailsCaptured:   details,
	}
	for _, id := range m.BuiltinPlugins {
		m.Pipeline = append(m.Pipeline, PluginStep{ID: id, Source: "builtin"})
	}
	return m
}

func (p *Policy) granularity() int {
	if p.engines.Granularity > 0 {
		return p.engines.Granularity
	}
	return 8
}
