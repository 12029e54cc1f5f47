// Package launch turns one point of a sweep into what it takes to run it for real:
// the manifest of a Kubernetes deployment, the commands that start the same fleet on
// one machine, and the AIPerf command that offers it the load of the simulation. It
// also renders a resolved configuration as a replay command.
//
// In order:
//
//	r := &launch.Replayer{Resolve: inputs.Resolve}
//	d, err := launch.New(analysis, point, r)
//	for _, name := range launch.Files { err = d.Write(w, name) }
//
// Deployment.Notes says what the simulation does not know and the user has to set or
// check by hand. Every value comes from the resolved configuration of the point
// (column config of points.parquet); nothing is read from a terminal or a flag.
package launch

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/template"

	"github.com/dynosweep/dynosweep/internal/safetext"
	"github.com/dynosweep/dynosweep/results/compare"
	"github.com/dynosweep/dynosweep/sweep/scenario"
	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

//go:embed templates/*.tmpl
var templateFiles embed.FS

// Files are the names of the files of a deployment.
var Files = []string{"graph.yaml", "launch.sh", "aiperf.sh"}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"sh":   func(args []string) string { return ShellJoin(args) },
	"line": oneLine,
	"list": func(s string) []string { return []string{s} },
	"q":    yamlQuote,
}).ParseFS(templateFiles, "templates/*.tmpl"))

// Deployment is one point as its files show it.
type Deployment struct {
	Name, Point, Label, Sentence string
	Model                        string // placeholder where no document names one
	Backend                      string
	Frontend                     []string // arguments
	Workers                      []Worker
	Planner                      string // its configuration, JSON; "" none
	Replay                       string
	Convert                      []string // command that makes $trace of the trace; none: AIPerf reads it as it is
	AIPerf                       []string
	Notes                        []string // what the simulation does not know
}

// Worker describes the workers of one role.
type Worker struct {
	Service, Sub string // name in the graph, subComponentType
	Replicas     int
	GPUs         int
	Module       string
	Args         []string
}

const modelPlaceholder = "MODEL"

// Write writes one of Files.
func (d *Deployment) Write(w io.Writer, name string) error {
	return templates.ExecuteTemplate(w, name+".tmpl", d)
}

// New describes the deployment of one point of an analysis. The error is that of a
// configuration which cannot be read.
func New(a *compare.Analysis, c *compare.Case, replay *Replayer) (*Deployment, error) {
	config := a.Sweep.Frame.Column("config").Text(c.Rows[0])
	conf, err := resolved.Parse([]byte(config))
	if err != nil {
		return nil, fmt.Errorf("point %s: config: %w", c.ID, err)
	}
	d := &Deployment{Name: "dynosweep-" + compare.ShortID(c.ID), Point: c.ID, Label: c.Label, Sentence: sentenceOf(a, c), Model: modelPlaceholder, Replay: replay.Line(config)}
	roles := conf.Roles()
	for _, r := range roles {
		if r == nil {
			return nil, fmt.Errorf("point %s: its configuration names no engine", c.ID)
		}
	}
	d.Backend = roles[0].Engine.Backend
	d.name(roles[0])
	if conf.PrefillEngine != nil {
		d.worker(conf.PrefillEngine, "prefill", conf.PrefillWorkers)
		d.worker(conf.DecodeEngine, "decode", conf.DecodeWorkers)
	} else {
		d.worker(conf.Engine, "", conf.Workers)
	}
	d.route(&conf.Router)
	if conf.Planner != nil {
		if err := d.plan(config, replay); err != nil {
			return nil, err
		}
	}
	d.measure(&conf.Workload)
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
func (d *Deployment) name(r *resolved.Role) {
	if m := r.Engine.TimingModel.Config.Hardware; m != nil && m.Model.Name != "" {
		d.Model = m.Model.Name
		return
	}
	d.Notes = append(d.Notes, "the point's timing names no model: replace "+modelPlaceholder)
}

var modules = map[string]string{"vllm": "dynamo.vllm", "sglang": "dynamo.sglang", "trtllm": "dynamo.trtllm"}

func (d *Deployment) worker(r *resolved.Role, role string, replicas int) {
	name := map[string]string{"vllm": "Vllm", "sglang": "Sglang", "trtllm": "Trtllm"}[r.Engine.Backend]
	w := Worker{Service: name + "Worker", Sub: role, Replicas: replicas, GPUs: r.TensorParallelSize * r.DPSize * max(r.CPSize, 1), Module: modules[r.Engine.Backend]}
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

// route sets up the frontend's router.
func (d *Deployment) route(r *resolved.Router) {
	d.Frontend = []string{"--router-mode", scenario.FrontendMode(r.Mode)}
	if r.Config == nil {
		return
	}
	for _, of := range [...]struct {
		key   string
		value float64
	}{{"overlap_score_credit", r.Config.OverlapScoreCredit}, {"prefill_load_scale", r.Config.PrefillLoadScale}, {"router_temperature", r.Config.Temperature}} {
		d.Notes = append(d.Notes, fmt.Sprintf("the router ran with %s %s: set it the way your release does", of.key, strconv.FormatFloat(of.value, 'g', -1, 64)))
	}
}

// plan takes the Planner's document from the replay arguments of the point.
func (d *Deployment) plan(config string, replay *Replayer) error {
	args, err := replay.Args(config)
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

// oneLine keeps a text inside a comment, terminal escapes written out.
func oneLine(s string) string { return safetext.Text(strings.Join(strings.Fields(s), " ")) }

// yamlQuote is a double-quoted YAML string: JSON's escapes are all YAML's.
func yamlQuote(s string) string {
	text, _ := json.Marshal(s) // a string marshals
	return string(text)
}
