package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/engine"
)

// plannerVariant is one variant of the planner section.
type plannerVariant struct {
	planner *Planner // nil: none
	startup document.Opt[float64]
	at      *document.Node
}

// roleKey names what a role of a point is made of.
type roleKey struct {
	engine, timing int
	over           string // JSON of the role's own engine keys
	startup        float64
	role           engine.Role
}

// loweredRole is a role, or why there is none.
type loweredRole struct {
	role *Role
	skip string
	err  error // the misfit as a fault
}

type routerKey struct {
	router      int
	queuePolicy string
	estimator   AICRequest
}

// loweredRouter is a router, or why there is none.
type loweredRouter struct {
	router *Router
	skip   string
}

// decode reads every variant of every section; the faults of all are told at once.
func (g *gridExpander) decode() error {
	for i := range g.parts {
		for _, v := range g.parts[i].variants {
			if len(g.f.List) > 100 {
				break
			}
			g.decodeVariant(g.parts[i].name, v.tree)
		}
	}
	if err := g.f.Err(); err != nil {
		return err
	}
	for _, w := range g.workloads {
		if err := w.fingerprint(g.files); err != nil {
			return err
		}
	}
	for _, p := range g.planners {
		if p.planner != nil {
			if err := p.planner.fingerprint(g.files); err != nil {
				g.f.InvalidAt(p.at, warmupKey, err.Error())
				return g.f.Err()
			}
		}
	}
	return nil
}

// checkEngine adds the faults of engine keys by themselves, where unknown keys beside
// them keep roles from being made of them.
func (g *gridExpander) checkEngine(known *document.Node) {
	f := &document.Faults{Origin: g.f.Origin}
	if _, err := readRole(f, nestEngine(known), g.dir); err == nil {
		return
	}
	for _, one := range f.List {
		if !one.Relation {
			g.f.List = append(g.f.List, one)
		}
	}
}

func (g *gridExpander) decodeVariant(section string, n *document.Node) {
	switch section {
	case "workload":
		if n.Kind == document.Null {
			g.f.Malformed(n, "a workload is required: trace or synthetic")
			return
		}
		g.workloads = append(g.workloads, readWorkload(g.f, n, g.dir))
	case "engine":
		if n.Kind == document.Null {
			n = document.EmptyMap(n.Line, n.Path)
		}
		before := len(g.f.List)
		m := g.f.Mapping(n, "a mapping", engineSectionKeys)
		if len(g.f.List) > before {
			g.checkEngine(m.Only(engineSectionKeys...))
		}
		g.engines = append(g.engines, m.Node)
	case "topology":
		g.topologies = append(g.topologies, readTopology(g.f, n))
	case "router":
		g.docs = append(g.docs, readRouter(g.f, n, g.dir))
	case "timing":
		g.timings = append(g.timings, readRoleTiming(g.f, n))
	case "planner":
		g.planners = append(g.planners, g.plannerSection(n))
	case "sla":
		g.slas = append(g.slas, readSLA(g.f, n))
	}
}

// plannerSection reads one variant of planner: upstream's keys and startup_seconds.
func (g *gridExpander) plannerSection(n *document.Node) plannerVariant {
	v := plannerVariant{at: n}
	if n.Kind == document.Null {
		return v
	}
	if n.Kind != document.Map {
		g.f.Malformed(n, "invalid type: "+n.Describe()+", expected the Planner's configuration, or null")
		return v
	}
	doc := document.EmptyMap(n.Line, n.Path)
	for i, key := range n.Keys {
		item := n.Items[i]
		if key == warmupKey && item.Kind == document.String {
			c := *item
			c.Text, item = PathFrom(g.dir, item.Text), &c
		}
		if key != "startup_seconds" {
			doc.Put(key, item)
		}
	}
	m := document.Mapping{Node: n, Faults: g.f}
	v.startup = m.Float("startup_seconds", document.NotNull)
	m.Require(document.FiniteFrom(v.startup.Value, 0) && v.startup.Value <= maxStartupSeconds, "startup_seconds", "startup_seconds must be finite and non-negative")
	v.planner = readPlanner(g.f, doc, defaultGranularity)
	return v
}

// notices gathers the remarks on the run of a point, each once.
func (g *gridExpander) notices(run *Run, at *document.Node) {
	add := func(n string) {
		if !slices.Contains(g.grid.Notices, n) {
			g.grid.Notices = append(g.grid.Notices, n)
		}
	}
	for _, n := range run.correctionNotices() {
		add(n)
	}
	for _, n := range run.plannerNotices() {
		add(at.Path + "." + n)
	}
}

// expand makes the points: the product of the sections in document order, then the
// seeds.
func (g *gridExpander) expand() error {
	at := make([]int, len(g.parts))
	for {
		if err := g.point(at); err != nil {
			return err
		}
		i := len(at) - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < len(g.parts[i].variants) {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			break
		}
	}
	runnable := func(p Point) bool { return p.Run.Decode != nil }
	if g.misfit != nil && !slices.ContainsFunc(g.grid.Points, runnable) {
		return g.misfit // alternatives may not fit each other, but one should
	}
	return nil
}

// point adds the rows of one combination.
func (g *gridExpander) point(at []int) error {
	run, skip := g.lower(at)
	if err := g.f.Err(); err != nil {
		return err
	}
	p := Point{Run: run, Skip: skip}
	if run.Decode != nil {
		p.ID, p.GPUs = run.ID(), run.GPUs()
		if why := g.grid.Cost.missing(&run); why != "" && skip == "" {
			g.f.Invalid(g.grid.Cost.at, why)
			return g.f.Err()
		}
		if skip == "" {
			g.notices(&run, g.planners[at[g.where[plannerPart]]].at)
		}
	} else {
		trees := make([]*document.Node, 0, len(at))
		for _, i := range g.where {
			trees = append(trees, g.parts[i].variants[at[i]].tree)
		}
		p.ID = skippedID(trees)
	}
	if g.ids[p.ID] {
		g.grid.Folded++
		return nil
	}
	g.ids[p.ID] = true
	p.Values = make([]any, 0, len(g.grid.Axes))
	for i, k := range at {
		p.Values = append(p.Values, g.parts[i].values[k]...)
	}
	return g.rows(p)
}

// rows adds a point once per seed, or once if its seed decides nothing.
func (g *gridExpander) rows(p Point) error {
	if p.Skip != "" || len(g.seeds) == 0 || !p.Run.Drawn() {
		if p.Run.Decode != nil {
			p.Run = p.Run.WithDefaultSeeds()
		}
		g.grid.Points = append(g.grid.Points, p)
	} else {
		base := p.Run
		for i := range g.seeds {
			p.Seed, p.Run = &g.seeds[i], base.WithSeed(g.seeds[i])
			g.grid.Points = append(g.grid.Points, p)
		}
	}
	if len(g.grid.Points) > maxPoints {
		return &document.Fault{Origin: g.f.Origin, Msg: fmt.Sprintf("the grid has more than %d points", maxPoints)}
	}
	return nil
}

// lower makes the run of one combination. A combination whose parts do not fit each
// other gives a reason, and no run if a part is missing.
func (g *gridExpander) lower(at []int) (Run, string) {
	var pick [parts]int
	for part, i := range g.where {
		pick[part] = at[i]
	}
	t, p := g.topologies[pick[topologyPart]], g.planners[pick[plannerPart]]
	run := Run{Workload: g.workloads[pick[workloadPart]], SLA: g.slas[pick[slaPart]], Planner: p.planner}
	run.DecodeWorkers = t.decode
	roles := []engine.Role{engine.Aggregated}
	if t.disaggregated {
		roles, run.PrefillWorkers = []engine.Role{engine.Prefill, engine.Decode}, t.prefill
	}
	made := make([]*Role, len(roles))
	for i, role := range roles {
		r := g.role(pick[enginePart], pick[timingPart], t, p, role)
		if r.role == nil {
			if g.misfit == nil {
				g.misfit = r.err
			}
			return Run{}, r.skip
		}
		made[i] = r.role
	}
	run.Decode = made[len(made)-1]
	if t.disaggregated {
		run.Prefill = made[0]
		run.Transfer = t.transfer.price(run.Prefill.Transfer)
	}
	r := g.router(pick[routerPart], made[0])
	if r.router == nil {
		return Run{}, r.skip
	}
	run.Router = r.router
	return run, g.skip(&run, t, g.timings[pick[timingPart]])
}

// skip says why a run does not run, "" if it does.
func (g *gridExpander) skip(run *Run, t *topology, timing *roleTiming) string {
	if faults := run.roleFaults(); len(faults) > 0 {
		return strings.Join(faults, "; ")
	}
	if timing.perRole && !t.disaggregated {
		return "a timing per role does not fit an aggregated topology"
	}
	if run.Planner != nil {
		if why := run.Planner.check(t.disaggregated, run.Workload); why != "" {
			return why
		}
	}
	if run.Prefill != nil && run.Transfer.BytesAuto && run.Transfer.BandwidthGBps > 0 && run.Prefill.request().Model == "" {
		return "kv_transfer.bytes_per_token auto needs a model, which only aic timing names: give an integer"
	}
	if limit := g.grid.MaxGPUs; limit > 0 && run.GPUs() > limit {
		return fmt.Sprintf("needs %d GPUs, constraints.max_gpus is %d", run.GPUs(), limit)
	}
	return ""
}

// role lowers the engine of one role, once per distinct input.
func (g *gridExpander) role(eng, timing int, t *topology, p plannerVariant, role engine.Role) loweredRole {
	key := roleKey{engine: eng, timing: timing, startup: -1, role: role}
	var over *document.Node
	if role != engine.Aggregated {
		over = t.over[role-engine.Prefill]
		key.over = t.overKey[role-engine.Prefill]
	}
	if p.startup.Set {
		key.startup = p.startup.Value
	}
	out, ok := g.roles[key]
	if !ok {
		out = g.makeRole(mergedEngine(g.engines[eng], over), g.timings[timing], p, role)
		g.roles[key] = out
	}
	return out
}

func (g *gridExpander) makeRole(merged *document.Node, timing *roleTiming, p plannerVariant, role engine.Role) loweredRole {
	n := nestEngine(merged)
	eng := n.Get("engine")
	model := timing.models[0]
	if role == engine.Decode {
		model = timing.models[1]
	}
	if model != nil {
		if duplicate := eng.Get("timing_model"); duplicate != nil {
			g.f.Invalid(duplicate, "timing and timing_model are given: keep one")
		}
		eng.Put("timing_model", model)
	}
	if p.startup.Set {
		if duplicate := n.Get("startup_time"); duplicate != nil {
			g.f.Invalid(duplicate, "planner.startup_seconds and startup_time are given: keep one")
		}
		n.Put("startup_time", p.at.Get("startup_seconds"))
	}
	if eng.Get("worker_type") == nil {
		eng.Put("worker_type", &document.Node{Kind: document.String, Text: role.String(), Line: merged.Line, Path: merged.Path})
	}
	f := &document.Faults{Origin: g.f.Origin}
	r, err := readRole(f, n, g.dir)
	if err == nil {
		r.relocate(g.dir)
		r.named = r.named.inGrid()
		if err = r.fingerprint(g.files); err != nil {
			g.f.Invalid(merged, err.Error())
		}
		return loweredRole{role: r}
	}
	var reasons []string
	for _, one := range f.List {
		if !one.Relation {
			g.f.List = append(g.f.List, f.List...)
			return loweredRole{}
		}
		if reason := plainPath(one.Path) + ": " + one.Msg; !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return loweredRole{skip: strings.Join(reasons, "; "), err: err}
}

// router completes the placement, once per distinct input. queues is the role whose
// router has the queue, and whose model prices prefill load.
func (g *gridExpander) router(i int, queues *Role) loweredRouter {
	d := *g.docs[i]
	key := routerKey{router: i, queuePolicy: queues.QueuePolicy}
	if d.mode.Configured && d.ais {
		if queues.Timing.Kind != Measured {
			return loweredRouter{skip: "router_prefill_load_model ais needs timing of type aic"}
		}
		key.estimator = queues.Timing.AIC
		d.estimator = &key.estimator
	}
	out, ok := g.routers[key]
	if ok {
		return out
	}
	r, err := d.complete(queues.QueuePolicy, g.files)
	if err == nil {
		err = r.fingerprint(g.files)
	}
	out = loweredRouter{router: r}
	if err != nil {
		g.adopt(err)
	}
	g.routers[key] = out
	return out
}

// adopt adds an error of a part to the faults of the specification.
func (g *gridExpander) adopt(err error) {
	for _, e := range document.Split(err) {
		var f *document.Fault
		if !errors.As(e, &f) {
			f = &document.Fault{Msg: e.Error()}
		}
		g.f.List = append(g.f.List, f)
	}
}
