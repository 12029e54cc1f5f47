package scenario

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// Grid is a sweep specification, expanded: every point with what it runs, or why it
// does not.
type Grid struct {
	Name    string
	Text    []byte // the specification as read
	Axes    []Axis
	Points  []Point // in document order, the first axis outermost, seeds innermost
	Folded  int     // combinations that lower to the configuration of an earlier point
	Cost    Cost
	MaxGPUs int      // 0: no constraint
	Notices []string // keys that were accepted and change nothing
	Digest  string   // identifies the specification with the content of its inputs
}

// AxisType is the type of an axis' values.
type AxisType uint8

const (
	StringAxis AxisType = iota // also of mixed values, and of paths
	IntAxis
	FloatAxis
	BoolAxis
)

func (t AxisType) String() string { return [...]string{"string", "int", "float", "bool"}[t] }

// Axis is a value of the specification that differs between points.
type Axis struct {
	Path   string // dotted, as topology.workers
	Type   AxisType
	Values []any // distinct, in order of appearance; nil stands for null and absent
}

// Point is one row: a configuration and a seed. Its Run shares all big parts with
// other points.
type Point struct {
	ID     string
	Seed   *uint64 // nil: nothing is drawn, or no seeds were given
	Values []any   // [axis]: int64, float64, string, bool or nil
	Run    Run     // zero if Skip says that no configuration came out
	Skip   string  // why the point does not run, "" if it does
	GPUs   int     // at the start; 0 without a configuration
}

// Resolved is the point's whole configuration as JSON, made on demand; null
// without a configuration.
func (p *Point) Resolved() []byte {
	if p.Run.Decode == nil {
		return []byte("null")
	}
	return p.Run.ResolvedJSON()
}

// ReadSweep reads and expands a sweep specification. Files that it names are found
// from its folder, or else from the working directory.
func ReadSweep(path string, files *Files) (*Grid, error) {
	text, err := files.Document("", path)
	if err != nil {
		return nil, err
	}
	return ParseSweep(path, filepath.Dir(path), text, files)
}

// Sections of the grid, by number.
const (
	workloadPart = iota
	enginePart
	topologyPart
	routerPart
	timingPart
	plannerPart
	slaPart
	parts
)

var sectionNames = []string{workloadPart: "workload", enginePart: "engine", topologyPart: "topology",
	routerPart: "router", timingPart: "timing", plannerPart: "planner", slaPart: "sla"}

var sweepKeys = append([]string{"name", "cost", "constraints", "seeds"}, sectionNames...)

// ParseSweep is ReadSweep on a text; origin names it in messages, dir is the folder
// that paths start from.
func ParseSweep(origin, dir string, text []byte, files *Files) (*Grid, error) {
	root, err := document.ParseYAML(origin, text)
	if err != nil {
		return nil, err
	}
	return readGrid(origin, dir, text, root, files)
}

func readGrid(origin, dir string, text []byte, root *document.Node, files *Files) (*Grid, error) {
	g := &gridExpander{f: &document.Faults{Origin: origin}, dir: dir, files: files, ids: map[string]bool{},
		roles: map[roleKey]loweredRole{}, routers: map[routerKey]loweredRouter{}, grid: &Grid{Name: stem(origin), Text: text}}
	if root == nil {
		return nil, &document.Fault{Origin: origin, Line: 1, Msg: "an empty specification: workload is required"}
	}
	m := g.f.Mapping(root, "a mapping of sections", sweepKeys)
	g.head(m)
	g.sections(m)
	if err := g.f.Err(); err != nil {
		return nil, err
	}
	if err := g.decode(); err != nil {
		return nil, err
	}
	if err := g.expand(); err != nil {
		return nil, err
	}
	g.grid.Digest = g.digest(root)
	return g.grid, nil
}

// stem is the file name without folder and extension.
func stem(path string) string {
	name := filepath.Base(path)
	return name[:len(name)-len(filepath.Ext(name))]
}

// head reads what is no section of the grid.
func (g *gridExpander) head(m document.Mapping) {
	if v := m.String("name", document.NotNull); v.Set {
		m.Require(validName(v.Value), "name", "a name is letters, digits, '.', '_' and '-', and begins with a letter or digit")
		g.grid.Name = v.Value
	}
	g.grid.Cost = readCost(g.f, m.Get("cost"))
	c := m.Sub("constraints", "a mapping", []string{"max_gpus"})
	limit := c.Uint("max_gpus", 32, document.OrNull)
	c.Require(!limit.Set || limit.Value > 0, "max_gpus", "max_gpus must be positive, or null")
	g.grid.MaxGPUs = limit.Int(0)
	g.seeds = readSeeds(g.f, m.Get("seeds"))
}

func validName(s string) bool {
	for i, c := range s {
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !word && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// readSeeds reads the list of seeds; a single number is a list of one.
func readSeeds(f *document.Faults, n *document.Node) []uint64 {
	if n == nil || n.Kind == document.Null {
		return nil
	}
	items := []*document.Node{n}
	if n.Kind == document.List {
		items = n.Items
		if len(items) == 0 {
			f.Invalid(n, "an empty list: give at least one value")
		}
	}
	var out []uint64
	for _, v := range items {
		s, err := strconv.ParseUint(v.Text, 10, 63)
		switch {
		case v.Kind != document.Int || err != nil:
			f.Malformed(v, "a seed is a whole number from 0, got "+v.Describe())
		case slices.Contains(out, s):
			f.Invalid(v, "seed "+v.Text+" is given twice")
		default:
			out = append(out, s)
		}
	}
	return out
}

// gridExpander expands one specification.
type gridExpander struct {
	f     *document.Faults
	files *Files
	dir   string
	grid  *Grid
	seeds []uint64
	parts []section  // in document order, absent sections last
	where [parts]int // position in parts of each section

	workloads  []*Workload
	engines    []*document.Node
	topologies []*topology
	docs       []*routerDoc
	timings    []*roleTiming
	planners   []plannerVariant
	slas       []metrics.SLA

	roles   map[roleKey]loweredRole
	routers map[routerKey]loweredRouter
	ids     map[string]bool
	misfit  error // of the first combination that gave no configuration
}

// section is one section with its variants.
type section struct {
	name     string
	variants []variant
	values   [][]any // [variant][axis of the section]
}

// sections expands every section and finds the axes.
func (g *gridExpander) sections(m document.Mapping) {
	names := make([]string, 0, len(sectionNames))
	for _, key := range m.Keys {
		if slices.Contains(sectionNames, key) {
			names = append(names, key)
		}
	}
	if m.Get("workload") == nil {
		m.Missing("workload")
	}
	for _, name := range sectionNames {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	total := 1
	for _, name := range names {
		n := m.Get(name)
		if n == nil {
			n = &document.Node{Line: m.Line, Path: name}
		}
		s := section{name: name, variants: expandNode(g.f, n)}
		if total *= len(s.variants); total > maxPoints {
			g.f.Malformed(m.Node, fmt.Sprintf("the grid has more than %d points", maxPoints))
			return
		}
		g.grid.Axes = append(g.grid.Axes, s.axes()...)
		g.where[slices.Index(sectionNames, name)] = len(g.parts)
		g.parts = append(g.parts, s)
	}
}

// axes returns the axes of a section: the paths that are listed or differ between
// its variants. It fills in the values of every variant.
func (s *section) axes() []Axis {
	type column struct {
		first          string
		seen           int
		listed, varies bool
	}
	columns := map[string]*column{}
	var order []string
	for _, v := range s.variants {
		for _, l := range v.leaves {
			c := columns[l.path]
			text := valueKey(l.v)
			if c == nil {
				c = &column{first: text}
				columns[l.path] = c
				order = append(order, l.path)
			}
			c.seen++
			c.listed = c.listed || l.listed
			c.varies = c.varies || c.first != text
		}
	}
	var axes []Axis
	slot := map[string]int{}
	for _, path := range order {
		if c := columns[path]; c.listed || c.varies || c.seen < len(s.variants) {
			slot[path] = len(axes)
			axes = append(axes, Axis{Path: path})
		}
	}
	s.fill(axes, slot)
	return axes
}

// fill types the axes and sets the values of every variant.
func (s *section) fill(axes []Axis, slot map[string]int) {
	kinds := make([]map[document.Kind]bool, len(axes))
	for i := range kinds {
		kinds[i] = map[document.Kind]bool{}
	}
	s.eachLeaf(slot, func(_, i int, v *document.Node) { kinds[i][v.Kind] = true })
	for i, k := range kinds {
		axes[i].Type = typeOf(k)
	}
	s.values = make([][]any, len(s.variants))
	for j := range s.values {
		s.values[j] = make([]any, len(axes))
	}
	s.eachLeaf(slot, func(j, i int, v *document.Node) { s.values[j][i] = axisValue(v, axes[i].Type) })
	for i := range axes {
		seen := map[any]bool{}
		for _, row := range s.values {
			if x := row[i]; !seen[x] {
				seen[x] = true
				axes[i].Values = append(axes[i].Values, x)
			}
		}
	}
}

// eachLeaf visits the values of every variant j that belong to an axis i.
func (s *section) eachLeaf(slot map[string]int, visit func(j, i int, v *document.Node)) {
	for j, v := range s.variants {
		for _, l := range v.leaves {
			if i, ok := slot[l.path]; ok {
				visit(j, i, l.v)
			}
		}
	}
}

// typeOf is the type of an axis whose values have these kinds.
func typeOf(kinds map[document.Kind]bool) AxisType {
	delete(kinds, document.Null)
	switch {
	case len(kinds) == 1 && kinds[document.Int]:
		return IntAxis
	case len(kinds) == 1 && kinds[document.Bool]:
		return BoolAxis
	case len(kinds) > 0 && !kinds[document.String] && !kinds[document.Bool] && !kinds[document.List]:
		return FloatAxis
	}
	return StringAxis
}

// valueKey tells two values apart.
func valueKey(n *document.Node) string { return string(rune('0'+n.Kind)) + n.String() }

// axisValue is the value in the type of its axis.
func axisValue(n *document.Node, t AxisType) any {
	if n.Kind == document.Null {
		return nil
	}
	switch t {
	case IntAxis:
		if v, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
			return v
		}
		return nil
	case FloatAxis:
		return n.Number()
	case BoolAxis:
		return n.Text == "true"
	}
	return n.String()
}

// digest identifies the specification: its values, whatever the order of keys, and
// its points in their order with the content of their inputs.
func (g *gridExpander) digest(root *document.Node) string {
	h := sha256.New()
	h.Write(root.JSON())
	for i := range g.grid.Points {
		p := &g.grid.Points[i]
		fmt.Fprintf(h, "\n%s", p.ID)
		if p.Seed != nil {
			fmt.Fprintf(h, " %d", *p.Seed)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// skippedID identifies a combination that gives no configuration.
func skippedID(trees []*document.Node) string {
	h := sha256.New()
	for _, n := range trees {
		text, _ := json.Marshal(n.Plain())
		h.Write(append(text, '\n'))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
