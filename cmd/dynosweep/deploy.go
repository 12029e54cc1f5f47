package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/dynosweep/dynosweep/results/compare"
)

//go:embed deploy/*.tmpl
var deployFiles embed.FS

// deployTemplates are the files of a deployment: graph.yaml, launch.sh, aiperf.sh.
var deployTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"sh":   func(args []string) string { return shellJoin(args) },
	"line": oneLine,
	"list": func(s string) []string { return []string{s} },
	"q":    yamlQuote,
}).ParseFS(deployFiles, "deploy/*.tmpl"))

// deployment is what the templates are filled with.
type deployment struct {
	Name, Point, Label, Sentence string
	Model                        string // placeholder where no document names one
	Backend                      string
	Frontend                     []string // arguments
	Workers                      []deployedRole
	Planner                      string // its configuration, JSON; "" none
	Replay                       string
	Convert                      []string // command that makes $trace of the trace; none: AIPerf reads it as it is
	AIPerf                       []string
	Notes                        []string // what the simulation does not know
}

// deployedRole is the workers of one role.
type deployedRole struct {
	Service, Sub string // name in the graph, subComponentType
	Replicas     int
	GPUs         int
	Module       string
	Args         []string
}

const modelPlaceholder = "MODEL"

// deploy writes the manifest and commands of one point.
func deploy(w io.Writer, a *compare.Analysis, dir, id string) error {
	c, err := pointToDeploy(a, id)
	if err != nil {
		return err
	}
	d, err := describe(a, c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return badInput(err)
	}
	files := &outputs{}
	defer files.discard()
	for _, name := range [...]string{"graph.yaml", "launch.sh", "aiperf.sh"} {
		out, err := files.create(filepath.Join(dir, name), w)
		if err != nil {
			return badInput(err)
		}
		if err := deployTemplates.ExecuteTemplate(out, name+".tmpl", d); err != nil {
			return err
		}
	}
	if err := files.commit(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s  %s\n%s\n", c.ID, c.Label, filepath.Join(dir, "graph.yaml, launch.sh, aiperf.sh"))
	for _, n := range d.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	return nil
}

// pointToDeploy finds the named point, or the choice where there is one.
func pointToDeploy(a *compare.Analysis, id string) (*compare.Case, error) {
	if id == "" {
		if len(a.Loads) == 1 && a.Loads[0].Verdict.Winner != nil {
			return a.Loads[0].Verdict.Winner, nil
		}
		return nil, badInput(errors.New("--deploy: no single point is the choice: name one with --point ID"))
	}
	var found []*compare.Case
	for i := range a.Cases {
		if strings.HasPrefix(a.Cases[i].ID, id) {
			found = append(found, &a.Cases[i])
		}
	}
	if len(found) != 1 {
		return nil, badInput(fmt.Errorf("--point: %d finished points begin with %q; see the point_id column", len(found), id))
	}
	return found[0], nil
}

// roleConfig is what of a resolved role matters to a launch command.
type roleConfig struct {
	Engine struct {
		Backend       string `json:"backend"`
		Blocks        *int   `json:"num_gpu_blocks"`
		BlockSize     int    `json:"block_size"`
		MaxModelLen   *int   `json:"max_model_len"`
		MaxSeqs       *int   `json:"max_num_seqs"`
		MaxBatch      *int   `json:"max_num_batched_tokens"`
		PrefixCaching bool   `json:"enable_prefix_caching"`
		Chunked       bool   `json:"enable_chunked_prefill"`
		Timing        struct {
			Config struct {
				Model json.RawMessage `json:"model"`
			} `json:"config"`
		} `json:"timing_model"`
		SGLang struct {
			Policy           string  `json:"schedule_policy"`
			MaxPrefill       int     `json:"max_prefill_tokens"`
			Chunk            int     `json:"chunked_prefill_size"`
			Conservativeness float64 `json:"schedule_conservativeness"`
		} `json:"sglang"`
	} `json:"engine"`
	DP       int `json:"dp_size"`
	TP       int `json:"tensor_parallel_size"`
	CP       int `json:"cp_size"`
	Capacity *struct {
		Memory float64 `json:"memory_fraction"`
	} `json:"capacity"`
}

// describe turns a resolved configuration into a deployment.
func describe(a *compare.Analysis, c *compare.Case) (*deployment, error) {
	config := a.Sweep.Frame.Column("config").Text(c.Rows[0])
	var raw struct {
		Engine         *roleConfig     `json:"engine"`
		Prefill        *roleConfig     `json:"prefill_engine"`
		Decode         *roleConfig     `json:"decode_engine"`
		Workers        int             `json:"workers"`
		PrefillWorkers int             `json:"prefill_workers"`
		DecodeWorkers  int             `json:"decode_workers"`
		Planner        json.RawMessage `json:"planner"`
		Workload       map[string]any  `json:"workload"`
		Router         struct {
			Mode   string         `json:"mode"`
			Config map[string]any `json:"config"`
		} `json:"router"`
	}
	if err := json.Unmarshal([]byte(config), &raw); err != nil {
		return nil, fmt.Errorf("point %s: config: %w", c.ID, err)
	}
	d := &deployment{Name: "dynosweep-" + shortID(c.ID), Point: c.ID, Label: c.Label, Sentence: sentenceOf(a, c), Model: modelPlaceholder, Replay: (&replayer{}).line(config)}
	roles := []*roleConfig{raw.Engine}
	if raw.Prefill != nil {
		roles = []*roleConfig{raw.Prefill, raw.Decode}
	}
	for _, r := range roles {
		if r == nil {
			return nil, fmt.Errorf("point %s: its configuration names no engine", c.ID)
		}
	}
	d.Backend = roles[0].Engine.Backend
	d.name(roles[0])
	if raw.Prefill != nil {
		d.worker(raw.Prefill, "prefill", raw.PrefillWorkers)
		d.worker(raw.Decode, "decode", raw.DecodeWorkers)
	} else {
		d.worker(raw.Engine, "", raw.Workers)
	}
	d.route(raw.Router.Mode, raw.Router.Config)
	if len(raw.Planner) > 0 && string(raw.Planner) != "null" {
		if err := d.plan(config); err != nil {
			return nil, err
		}
	}
	d.measure(raw.Workload)
	d.Notes = append(d.Notes, "set the container image, and review every flag against the release that you install")
	return d, nil
}

// sentenceOf is what the report says of the point.
func sentenceOf(a *compare.Analysis, c *compare.Case) string {
	if w := a.Loads[c.Load].Verdict.Winner; w == c {
		return a.Loads[c.Load].Verdict.Sentence
	}
	return c.Label + ": " + c.Why
}

// name takes the model from the timing, if that names one.
func (d *deployment) name(r *roleConfig) {
	var model string
	if json.Unmarshal(r.Engine.Timing.Config.Model, &model) == nil && model != "" {
		d.Model = model
		return
	}
	d.Notes = append(d.Notes, "the point's timing names no model: replace "+modelPlaceholder)
}

var modules = map[string]string{"vllm": "dynamo.vllm", "sglang": "dynamo.sglang", "trtllm": "dynamo.trtllm"}

func (d *deployment) worker(r *roleConfig, role string, replicas int) {
	name := map[string]string{"vllm": "Vllm", "sglang": "Sglang", "trtllm": "Trtllm"}[r.Engine.Backend]
	w := deployedRole{Service: name + "Worker", Sub: role, Replicas: replicas, GPUs: r.TP * r.DP * max(r.CP, 1), Module: modules[r.Engine.Backend]}
	switch role {
	case "prefill":
		w.Service = name + "PrefillWorker"
	case "decode":
		w.Service = name + "DecodeWorker"
	default:
		w.Sub = "decode"
	}
	w.Args = engineFlags(d.Model, r)
	if role != "" {
		w.Args = append(w.Args, "--disaggregation-mode", role)
	}
	d.Workers = append(d.Workers, w)
}

// engineFlags are the backend's own flags for a resolved role.
func engineFlags(model string, r *roleConfig) []string {
	e := &r.Engine
	var out []string
	add := func(flag, value string) { out = append(out, flag, value) }
	number := func(flag string, v *int) {
		if v != nil {
			add(flag, strconv.Itoa(*v))
		}
	}
	width := func(flag string, n int) {
		if n > 1 {
			add(flag, strconv.Itoa(n))
		}
	}
	memory := func(flag string) {
		if r.Capacity != nil {
			add(flag, strconv.FormatFloat(r.Capacity.Memory, 'g', -1, 64))
		}
	}
	switch e.Backend {
	case "sglang":
		add("--model-path", model)
		add("--tp", strconv.Itoa(r.TP*r.DP))
		width("--dp", r.DP)
		add("--page-size", strconv.Itoa(e.BlockSize))
		number("--max-running-requests", e.MaxSeqs)
		add("--schedule-policy", map[bool]string{true: "lpm", false: "fcfs"}[e.SGLang.Policy == "lpm"])
		add("--max-prefill-tokens", strconv.Itoa(e.SGLang.MaxPrefill))
		add("--chunked-prefill-size", strconv.Itoa(e.SGLang.Chunk))
		add("--schedule-conservativeness", strconv.FormatFloat(e.SGLang.Conservativeness, 'g', -1, 64))
		memory("--mem-fraction-static")
		if !e.PrefixCaching {
			out = append(out, "--disable-radix-cache")
		}
	case "trtllm":
		add("--model-path", model)
		add("--tensor-parallel-size", strconv.Itoa(r.TP))
		number("--max-batch-size", e.MaxSeqs)
		number("--max-num-tokens", e.MaxBatch)
		number("--max-seq-len", e.MaxModelLen)
		memory("--free-gpu-memory-fraction")
	default:
		add("--model", model)
		add("--tensor-parallel-size", strconv.Itoa(r.TP))
		width("--data-parallel-size", r.DP)
		add("--block-size", strconv.Itoa(e.BlockSize))
		number("--max-num-seqs", e.MaxSeqs)
		number("--max-num-batched-tokens", e.MaxBatch)
		number("--max-model-len", e.MaxModelLen)
		number("--num-gpu-blocks-override", e.Blocks)
		memory("--gpu-memory-utilization")
		if !e.PrefixCaching {
			out = append(out, "--no-enable-prefix-caching")
		}
		if !e.Chunked {
			out = append(out, "--no-enable-chunked-prefill")
		}
	}
	return out
}

// route sets up the frontend's router.
func (d *deployment) route(mode string, config map[string]any) {
	d.Frontend = []string{"--router-mode", "round-robin"}
	if mode != "kv_router" {
		return
	}
	d.Frontend = []string{"--router-mode", "kv"}
	for _, key := range [...]string{"overlap_score_credit", "prefill_load_scale", "router_temperature"} {
		if v, ok := config[key].(float64); ok {
			d.Notes = append(d.Notes, fmt.Sprintf("the router ran with %s %s: set it the way your release does", key, strconv.FormatFloat(v, 'g', -1, 64)))
		}
	}
}

// plan takes the Planner's document from the replay arguments of the point.
func (d *deployment) plan(config string) error {
	args, err := (&replayer{}).args(config)
	if err != nil {
		return err
	}
	for i := range args[:len(args)-1] {
		if args[i] == "--planner-config" {
			d.Planner = args[i+1]
		}
	}
	d.Notes = append(d.Notes, "the Planner starts from the replicas of the simulation and scales the graph itself")
	return nil
}

// measure is the AIPerf command that offers the same load.
func (d *deployment) measure(w map[string]any) {
	d.AIPerf = []string{"aiperf", "profile", "--model", d.Model, "--url", "localhost:8000", "--endpoint-type", "chat", "--streaming"}
	text := func(key string) string {
		switch v := w[key].(type) {
		case float64:
			return strconv.FormatFloat(v, 'f', -1, 64)
		case string:
			return v
		}
		return ""
	}
	add := func(flag, value string) {
		if value != "" {
			d.AIPerf = append(d.AIPerf, flag, value)
		}
	}
	if text("type") != "synthetic" {
		d.measureTrace(w, text)
		return
	}
	add("--synthetic-input-tokens-mean", text("input_tokens"))
	add("--synthetic-input-tokens-stddev", "0")
	add("--output-tokens-mean", text("output_tokens"))
	add("--output-tokens-stddev", "0")
	add("--extra-inputs", "ignore_eos:true")
	add("--request-count", text("requests"))
	add("--concurrency", text("concurrency"))
	speedup, _ := w["arrival_speedup"].(float64)
	if rate, ok := w["request_rate"].(float64); ok {
		add("--request-rate", strconv.FormatFloat(rate*speedup, 'g', -1, 64))
		add("--request-rate-mode", "poisson")
	}
	if ms, ok := w["arrival_interval_ms"].(float64); ok && ms > 0 {
		add("--request-rate", strconv.FormatFloat(1000*speedup/ms, 'g', -1, 64))
		add("--request-rate-mode", "constant")
	}
	if ratio, ok := w["shared_prefix_ratio"].(float64); ok && ratio > 0 {
		d.AIPerf = append(d.AIPerf, "--num-prefix-prompts", text("num_prefix_groups"))
		if n, ok := w["input_tokens"].(float64); ok {
			add("--prefix-prompt-length", strconv.Itoa(int(n*ratio)))
		}
		d.Notes = append(d.Notes, "AIPerf puts the shared prefix before the prompt: lower the mean by it to keep the prompt's length")
	}
}

// measureTrace is the AIPerf command for a trace. A trace that is compressed, sped up
// or cut is converted first.
func (d *deployment) measureTrace(w map[string]any, text func(string) string) {
	var paths []string
	files, _ := w["trace"].([]any)
	for _, f := range files {
		m, _ := f.(map[string]any)
		path, _ := m["path"].(string)
		paths = append(paths, path)
	}
	convert := append([]string{"dynosweep", "trace", "convert", "--format", text("format")}, paths...)
	plain := len(paths) == 1 && text("format") == "mooncake" && !strings.HasSuffix(paths[0], ".gz")
	speedup, _ := w["arrival_speedup"].(float64)
	if speedup != 1 && speedup > 0 && text("concurrency") == "" {
		convert, plain = append(convert, "--speedup", text("arrival_speedup")), false
	}
	if ms, ok := w["max_sim_time_ms"].(float64); ok && text("concurrency") == "" {
		if speedup <= 0 {
			speedup = 1
		}
		convert, plain = append(convert, "--until-seconds", strconv.FormatFloat(ms/1000*speedup, 'g', -1, 64)), false
	} else if ok {
		d.Notes = append(d.Notes, fmt.Sprintf("the simulation stopped at %g s: stop AIPerf there", ms/1000))
	}
	switch format := text("format"); format {
	case "agentic_mooncake", "weka", "mooncake-delta":
		d.Notes = append(d.Notes, "aiperf.sh cannot offer this load: in "+format+" traces requests depend on earlier ones, which AIPerf's mooncake_trace cannot express")
	}
	d.AIPerf = append(d.AIPerf, "--custom-dataset-type", "mooncake_trace")
	if b := text("trace_block_size"); b != "" && b != "512" {
		d.AIPerf = append(d.AIPerf, "--isl-block-size", b)
		convert = append(convert, "--block-size", b)
	}
	if c := text("concurrency"); c != "" {
		d.AIPerf = append(d.AIPerf, "--concurrency", c)
	} else {
		d.AIPerf = append(d.AIPerf, "--fixed-schedule")
	}
	if plain {
		d.AIPerf = append(d.AIPerf, "--input-file", paths[0])
	} else {
		d.Convert = convert
	}
}

// oneLine keeps a text inside a comment.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// yamlQuote is a double-quoted YAML string: JSON's escapes are all YAML's.
func yamlQuote(s string) string {
	text, _ := json.Marshal(s) // a string marshals
	return string(text)
}
