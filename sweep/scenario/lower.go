package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/sim/engine"
)

// plannerVariant is one variant of the planner section.
type plannerVariant struct {
	planner *Planner // nil: none
	startup opt[float64]
	at      *node
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
func (g *gridder) decode() error {
	for i := range g.parts {
		for _, v := range g.parts[i].variants {
			if len(g.f.list) > 100 {
				break
			}
			g.decodeVariant(g.parts[i].name, v.tree)
		}
	}
	if err := g.f.err(); err != nil {
		return err
	}
	for _, w := range g.workloads {
		if err := w.seal(g.files); err != nil {
			return err
		}
	}
	for _, p := range g.planners {
		if p.planner != nil {
			if err := p.planner.seal(g.files); err != nil {
				g.f.brokenAt(p.at, warmupKey, err.Error())
				return g.f.err()
			}
		}
	}
	return nil
}

func (g *gridder) decodeVariant(section string, n *node) {
	switch section {
	case "workload":
		if n.kind == nullKind {
			g.f.badType(n, "a workload is required: trace or synthetic")
			return
		}
		g.workloads = append(g.workloads, g.f.workloadSection(n, g.dir))
	case "engine":
		if n.kind == nullKind {
			n = emptyMap(n.line, n.path)
		}
		m := g.f.mapping(n, "a mapping", engineSectionKeys)
		g.engines = append(g.engines, m.node)
	case "topology":
		g.topologies = append(g.topologies, g.f.topologySection(n))
	case "router":
		g.docs = append(g.docs, g.f.routerSection(n, g.dir))
	case "timing":
		g.timings = append(g.timings, g.f.timingVariant(n))
	case "planner":
		g.planners = append(g.planners, g.plannerSection(n))
	case "sla":
		g.slas = append(g.slas, g.f.slaSection(n))
	}
}

// plannerSection reads one variant of planner: upstream's keys and startup_seconds.
func (g *gridder) plannerSection(n *node) plannerVariant {
	v := plannerVariant{at: n}
	if n.kind == nullKind {
		return v
	}
	if n.kind != mapKind {
		g.f.badType(n, "invalid type: "+n.describe()+", expected the Planner's configuration, or null")
		return v
	}
	doc := emptyMap(n.line, n.path)
	for i, key := range n.keys {
		item := n.items[i]
		if key == warmupKey && item.kind == stringKind {
			c := *item
			c.text, item = pathOf(g.dir, item.text), &c
		}
		if key != "startup_seconds" {
			doc.put(key, item)
		}
	}
	m := mapping{n, g.f}
	v.startup = m.float("startup_seconds", notNull)
	m.rule(finite(v.startup.v, 0) && v.startup.v <= maxStartupSeconds, "startup_seconds", "startup_seconds must be finite and non-negative")
	p, err := plannerDocument(g.f.origin, n.path, doc, defaultGranularity)
	if err != nil {
		g.f.list = append(g.f.list, &Fault{Msg: err.Error()})
		return v
	}
	v.planner = p
	return v
}

// notices gathers the remarks on the run of a point, each once.
func (g *gridder) notices(run *Run, at *node) {
	for _, n := range run.Notices() {
		if n = at.path + "." + n; !slices.Contains(g.grid.Notices, n) {
			g.grid.Notices = append(g.grid.Notices, n)
		}
	}
}

// expand makes the points: the product of the sections in document order, then the
// seeds.
func (g *gridder) expand() error {
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
func (g *gridder) point(at []int) error {
	run, skip := g.lower(at)
	if err := g.f.err(); err != nil {
		return err
	}
	p := Point{Run: run, Skip: skip}
	if run.Decode != nil {
		p.ID, p.GPUs = run.ID(), run.GPUs()
		if why := g.grid.Cost.missing(&run); why != "" && skip == "" {
			g.f.broken(g.grid.Cost.at, why)
			return g.f.err()
		}
		if skip == "" {
			g.notices(&run, g.planners[at[g.where[plannerPart]]].at)
		}
	} else {
		trees := make([]*node, 0, len(at))
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
func (g *gridder) rows(p Point) error {
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
		return &Fault{Origin: g.f.origin, Msg: fmt.Sprintf("the grid has more than %d points", maxPoints)}
	}
	return nil
}

// lower makes the run of one combination. A combination whose parts do not fit each
// other gives a reason, and no run if a part is missing.
func (g *gridder) lower(at []int) (Run, string) {
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
func (g *gridder) skip(run *Run, t *topology, timing *roleTiming) string {
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
func (g *gridder) role(eng, timing int, t *topology, p plannerVariant, role engine.Role) loweredRole {
	key := roleKey{engine: eng, timing: timing, startup: -1, role: role}
	var over *node
	if role != engine.Aggregated {
		over = t.over[role-engine.Prefill]
		key.over = t.overKey[role-engine.Prefill]
	}
	if p.startup.set {
		key.startup = p.startup.v
	}
	out, ok := g.roles[key]
	if !ok {
		out = g.makeRole(mergedEngine(g.engines[eng], over), g.timings[timing], p, role)
		g.roles[key] = out
	}
	return out
}

func (g *gridder) makeRole(merged *node, timing *roleTiming, p plannerVariant, role engine.Role) loweredRole {
	n := nestEngine(merged)
	eng := n.get("engine")
	model := timing.models[0]
	if role == engine.Decode {
		model = timing.models[1]
	}
	if model != nil {
		if twin := eng.get("timing_model"); twin != nil {
			g.f.broken(twin, "timing and timing_model are given: keep one")
		}
		eng.put("timing_model", model)
	}
	if p.startup.set {
		if twin := n.get("startup_time"); twin != nil {
			g.f.broken(twin, "planner.startup_seconds and startup_time are given: keep one")
		}
		n.put("startup_time", p.at.get("startup_seconds"))
	}
	if eng.get("worker_type") == nil {
		eng.put("worker_type", &node{kind: stringKind, text: role.String(), line: merged.line, path: merged.path})
	}
	f := &faults{origin: g.f.origin}
	r, err := f.role(n)
	if err == nil {
		r.relocate(g.dir)
		r.named = r.named.inGrid()
		if err = r.seal(g.files); err != nil {
			g.f.list = append(g.f.list, &Fault{Origin: g.f.origin, Msg: err.Error()})
		}
		return loweredRole{role: r}
	}
	var reasons []string
	for _, one := range f.list {
		if !one.relation {
			g.f.list = append(g.f.list, f.list...)
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
func (g *gridder) router(i int, queues *Role) loweredRouter {
	d := *g.docs[i]
	key := routerKey{router: i, queuePolicy: queues.QueuePolicy}
	if d.kv && d.ais {
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
		err = r.seal(g.files)
	}
	out = loweredRouter{router: r}
	if err != nil {
		g.adopt(err)
	}
	g.routers[key] = out
	return out
}

// adopt adds an error of a part to the faults of the specification.
func (g *gridder) adopt(err error) {
	for _, e := range unjoin(err) {
		var f *Fault
		if !errors.As(e, &f) {
			f = &Fault{Msg: e.Error()}
		}
		g.f.list = append(g.f.list, f)
	}
}
