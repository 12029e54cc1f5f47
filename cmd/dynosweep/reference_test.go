package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sim/metrics"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite docs/reference.md from the code")

// TestReferencePageIsCurrent regenerates docs/reference.md and compares.
func TestReferencePageIsCurrent(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "reference.md")
	want := referencePage()
	if *updateDocs {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	old, now := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	i := 0
	for i < min(len(old), len(now)) && old[i] == now[i] {
		i++
	}
	t.Errorf("docs/reference.md:%d is stale; run go test ./cmd/dynosweep -run TestReferencePage -update-docs\n page: %s\n code: %s",
		i+1, lineAt(old, i), lineAt(now, i))
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}

// pageWriter writes Markdown.
type pageWriter struct{ bytes.Buffer }

func (p *pageWriter) text(format string, args ...any) { fmt.Fprintf(p, format+"\n\n", args...) }

// table writes a table of the columns that have a cell.
func (p *pageWriter) table(head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	line := func(cells []string) {
		for _, c := range cells {
			p.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
		}
		p.WriteString("|\n")
	}
	line(head)
	p.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, r := range rows {
		line(r)
	}
	p.WriteString("\n")
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// referencePage is docs/reference.md.
func referencePage() []byte {
	p := &pageWriter{}
	p.text("# Reference")
	p.text("Printed from the code. Every verb and flag, every key of a sweep specification and of the documents inside it, every figure of the report and every column of the results.")
	p.text("[Verbs](#verbs) · [Sweep specification](#sweep-specification) · [Engine arguments](#engine-arguments) · [KV router](#kv-router) · [Planner](#planner-configuration) · [AISimulate file](#aisimulate-file) · [Load shape](#load-shape) · [Report](#report) · [Results](#results)")
	p.verbs()
	p.keys("Sweep specification", "YAML. A list where one value is expected is an axis; a list of mappings is a list of alternatives (sweep.md). Unknown keys are errors.", scenario.SweepReference())
	p.keys("Engine arguments", "JSON for `--extra-engine-args`, `--prefill-engine-args` and `--decode-engine-args`, nested or flat; the same keys side by side under `engine` in a sweep. Unknown keys are errors.", scenario.EngineReference())
	p.keys("KV router", "`router.config` in a sweep, `--router-config` as JSON.", scenario.RouterReference())
	p.keys("Planner configuration", "`planner` in a sweep, `--planner-config` as file or text, JSON or YAML.", scenario.PlannerReference())
	p.keys("AISimulate file", "YAML for `predict` and `recommend`. Unknown keys are errors.", scenario.AISimulateReference())
	p.keys("Load shape", "YAML for `trace synth --shape`. Unknown keys are errors.", scenario.ShapeReference())
	p.report()
	p.results()
	return append(bytes.TrimRight(p.Bytes(), "\n"), '\n')
}

func (p *pageWriter) verbs() {
	p.text("## Verbs")
	p.text("Exit codes: %d good, %d ran and failed, %d bad input, %d interrupted.", exitGood, exitFailed, exitBadInput, exitInterrupted)
	app := newApp(io.Discard, io.Discard)
	p.text("Of every verb:")
	p.flags(app.Flags)
	for _, c := range app.Commands {
		p.verb("", c)
	}
}

func (p *pageWriter) verb(above string, c *cli.Command) {
	name := above + c.Name
	p.text("### %s", name)
	usage := code(strings.TrimSpace("dynosweep " + name + " " + c.ArgsUsage))
	p.text("%s: %s.", usage, strings.TrimSuffix(c.Usage, "."))
	p.flags(c.Flags)
	for _, sub := range c.Commands {
		p.verb(name+" ", sub)
	}
}

// flags writes a table per category, in the order of the flags.
func (p *pageWriter) flags(flags []cli.Flag) {
	var order []string
	byCategory := map[string][][]string{}
	for _, f := range flags {
		cat := ""
		if named, ok := f.(cli.CategorizableFlag); ok {
			cat = named.GetCategory()
		}
		if byCategory[cat] == nil {
			order = append(order, cat)
		}
		byCategory[cat] = append(byCategory[cat], flagRow(f))
	}
	for _, cat := range order {
		if cat != "" {
			p.text("%s:", cat)
		}
		p.table([]string{"flag", "value", "default", "meaning"}, byCategory[cat])
	}
}

var (
	placeholder   = regexp.MustCompile("`([^`]+)`")
	spokenDefault = regexp.MustCompile(` ?\(default ([^)]*)\)`)
	markedDefault = regexp.MustCompile(`(\S+) \(default\)`)
)

// flagRow is a flag's names, value, default and meaning. A default that the usage
// tells goes to its column.
func flagRow(f cli.Flag) []string {
	doc := f.(cli.DocGenerationFlag)
	var names []string
	for _, n := range f.Names() {
		dash := "--"
		if len(n) == 1 {
			dash = "-"
		}
		names = append(names, code(dash+n))
	}
	usage, value, def := doc.GetUsage(), "", ""
	if m := placeholder.FindStringSubmatch(usage); m != nil {
		value = m[1]
	}
	usage = strings.ReplaceAll(usage, "`", "")
	if m := spokenDefault.FindStringSubmatch(usage); m != nil {
		def, usage = m[1], strings.Replace(usage, m[0], "", 1)
	} else if m := markedDefault.FindStringSubmatch(usage); m != nil {
		def, usage = m[1], strings.Replace(usage, m[0], m[1], 1)
	}
	usage = strings.TrimSuffix(usage, ", "+value)
	if doc.TakesValue() {
		if value == "" {
			value = strings.TrimSuffix(strings.TrimSuffix(doc.TypeName(), "64"), "Slice")
		}
		if multi, ok := f.(cli.DocGenerationMultiValueFlag); ok && multi.IsMultiValueFlag() {
			value += " ..."
		}
		if text := strings.Trim(doc.GetValue(), `"`); def == "" && doc.IsDefaultVisible() && text != "[]" {
			def = text
		}
	}
	if def == strconv.Itoa(runtime.GOMAXPROCS(0)) && (f.Names()[0] == "jobs" || f.Names()[0] == "slots") {
		def = "number of cores"
	}
	if env := doc.GetEnvVars(); len(env) > 0 {
		usage += " (also " + code("$"+env[0]) + ")"
	}
	return []string{strings.Join(names, ", "), value, def, usage}
}

func (p *pageWriter) keys(title, note string, tables []scenario.KeyTable) {
	p.text("## %s", title)
	p.text("%s", note)
	for _, t := range tables {
		p.text("### %s: %s", title, t.Title)
		if t.Note != "" {
			p.text("%s", t.Note)
		}
		var rows [][]string
		for _, k := range t.Keys {
			def := k.Default
			if def != "required" {
				def = code(def)
			}
			rows = append(rows, []string{code(k.Path), k.Type, def, k.Meaning})
		}
		p.table([]string{"key", "type", "default", "meaning"}, rows)
	}
}

func (p *pageWriter) report() {
	p.text("## Report")
	p.text("Keys of the report that `--report-json` writes, in order. Figures describe the completed requests unless they say otherwise; a figure without data is 0, or null where the meaning says so. " +
		"Beside them stand `planner` (metadata, ticks, scaling events), `coverage` (what became of every request, queue times, KV occupancy) and `provenance` (version, seeds, digest of the resolved configuration, where capacities and timings come from).")
	kinds := [...]string{metrics.Int: "integer", metrics.Float: "number", metrics.Text: "string"}
	when := [...]string{metrics.Always: "", metrics.WithSLA: " Only with an SLA.", metrics.OfAgentic: " Only of agentic loads."}
	var rows [][]string
	for _, k := range metrics.Keys() {
		wall := ""
		if k.Wall {
			wall = " Real time: differs from run to run."
		}
		rows = append(rows, []string{code(k.Name), kinds[k.Kind], k.Unit, k.Meaning + "." + when[k.When] + wall})
	}
	p.table([]string{"key", "type", "unit", "meaning"}, rows)
}

func (p *pageWriter) results() {
	p.text("## Results")
	p.text("Columns of the Parquet files in a results directory, schema version %d. Columns named `wall_*` hold real time; all others are equal whenever the specification is.", results.SchemaVersion)
	for _, t := range results.Tables() {
		p.text("### %s", t.ID.File())
		p.text("One row per %s.", t.Row)
		if t.ID == results.Points {
			p.text("Axis columns, one per varied key of the specification and named by its dotted path, follow `reason`. " +
				"Every key of the [report](#report) follows `gpus`, under its own name and with its own unit, null where the report has none; those of real time are named `wall_*`.")
		}
		var rows [][]string
		for _, c := range t.Columns {
			if t.ID == results.Points && ofReport(c.Name) {
				continue
			}
			meaning := c.Meaning + "."
			if c.Required {
				meaning += " Never null."
			}
			rows = append(rows, []string{code(c.Name), c.Type.String(), c.Unit, meaning})
		}
		p.table([]string{"column", "type", "unit", "meaning"}, rows)
	}
}

// ofReport reports a column that is a key of the report.
func ofReport(column string) bool {
	for _, k := range metrics.Keys() {
		if column == k.Name || column == "wall_"+k.Name {
			return true
		}
	}
	return false
}
