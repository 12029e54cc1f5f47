package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/results"
)

// Options say how points are judged. The zero value judges as the sweep was run.
type Options struct {
	SLA        SLA     // judge by other bounds; both must be limits that were counted
	Prices     []Price // USD per GPU-hour by system instead of cost_usd
	Attainment float64 // share of requests that must meet the SLA; 0: DefaultAttainment
	Baseline   string  // id, or a beginning of it, of the point that is deployed today
}

// DefaultAttainment is the share of requests that must meet the SLA.
const DefaultAttainment = 0.95

// Price is USD per GPU-hour of a system; system default is every other one.
type Price struct {
	System string
	USD    float64
}

// Case is a finished point as judged: its figures over seeds, and what is thought of
// it. Costs are there if prices are known, attainment if there is an SLA.
type Case struct {
	*Point
	Index int   // in Sweep.Points
	Load  int   // in Analysis.Loads: the first one of Loads
	Loads []int // more than one where the environment does not affect the case

	GPUs           float64 // provisioned on average, in whole numbers without a Planner
	Objective      Sample  // what verdicts go by: see Analysis.ByCost
	TokensPerGPU   Estimate
	TokensPerUser  Estimate
	Throughput     Estimate // output tok/s
	Attainment     Estimate
	USDPerMillion  Estimate // output tokens
	USDPerHour     Estimate
	USDPerGood     Estimate // per request within the SLA
	TTFTMs, ITLMs  Estimate // 95th percentiles of what the SLA judges: ITLMs of the mean ITL of a request, TPOT
	Meets          bool
	Front          bool // no other point of the load is as good in both TokensPerUser and TokensPerGPU and better in one
	NearFront      bool // not on the front, but within the noise of a point that is
	Why            string
	TTFTOK, ITLOK  float64 // share within each bound alone; NaN unknown
	Incomplete     float64 // share of requests that did not complete
	objectiveMean  float64
	cost           Sample // USD per million output tokens
	spentUSD       Sample
	attainmentMean float64 // NaN without an SLA
}

// judge makes the cases of the finished points.
func (s *Sweep) judge(opt *Options) ([]Case, error) {
	j := &judge{s: s, opt: opt}
	if err := j.prepare(); err != nil {
		return nil, err
	}
	var out []Case
	for i := range s.Points {
		if p := &s.Points[i]; len(p.Rows) > 0 {
			c, err := j.one(p)
			if err != nil {
				return nil, err
			}
			c.Index = i
			out = append(out, c)
		}
	}
	return out, nil
}

// judge reads the columns that verdicts need.
type judge struct {
	s        *Sweep
	opt      *Options
	ttft     int // row of the SLA grid, -1: as recorded
	itl      int
	grid     *results.Series
	requests *results.Series
}

func (j *judge) column(name string) *results.Series { return j.s.Frame.Column(name) }

func (j *judge) prepare() error {
	j.ttft, j.itl = -1, -1
	j.grid, j.requests = j.column(results.ColSLAGrid), j.column(results.ColRequests)
	o := j.opt.SLA
	if !o.Set() {
		return nil
	}
	meta := &j.s.Frame.Meta
	if j.grid == nil || len(meta.GridTTFTMs) == 0 {
		return inputf("%s has no column sla_grid: another SLA cannot be judged", j.s.Dir)
	}
	if o.E2EMs > 0 || o.TTFTMs <= 0 || o.ITLMs <= 0 {
		return inputf("--sla: give ttft_ms and itl_ms; requests were counted for pairs of these limits only")
	}
	var err error
	if j.ttft, err = counted("ttft_ms", o.TTFTMs, meta.GridTTFTMs); err != nil {
		return err
	}
	j.itl, err = counted("itl_ms", o.ITLMs, meta.GridITLMs)
	return err
}

// counted finds a limit among those that requests were counted for.
func counted(name string, v float64, limits []float64) (int, error) {
	if i := slices.Index(limits, v); i >= 0 {
		return i, nil
	}
	text := make([]string, len(limits))
	for i, l := range limits {
		text[i] = trim(l, 3)
	}
	return 0, inputf("--sla: %s=%s was not counted while the points ran; counted limits are %s: take one of these, or run the sweep again with that sla", name, trim(v, 6), strings.Join(text, ", "))
}

// sla is the SLA by which a point is judged.
func (j *judge) sla(p *Point) SLA {
	if j.opt.SLA.Set() {
		return j.opt.SLA
	}
	return p.Setup.SLA
}

func (j *judge) one(p *Point) (Case, error) {
	s := j.s
	c := Case{Point: p, TTFTOK: math.NaN(), ITLOK: math.NaN()}
	float := func(name string) func(int) float64 { return j.reader(name) }
	hours, tokens, duration := float("gpu_hours"), float("total_output_tokens"), float("duration_ms")
	c.Throughput = s.Over(p, results.ColThroughput)
	c.TokensPerUser = s.Over(p, results.ColTokensPerUser)
	c.TTFTMs, c.ITLMs = s.Over(p, results.ColP95TTFT), s.Over(p, results.ColP95TPOT)
	perGPU := s.derived(p, func(i int) float64 { return ratio(tokens(i), hours(i)*3600) })
	c.TokensPerGPU = EstimateOf(perGPU.Values)
	c.GPUs = float64(p.GPUs)
	if p.Setup.Planner || p.GPUs == 0 {
		c.GPUs = EstimateOf(s.derived(p, func(i int) float64 { return ratio(hours(i)*3.6e6, duration(i)) }).Values).Mean
	}
	done, asked := float("completed_requests"), float("num_requests")
	c.Incomplete = EstimateOf(s.derived(p, func(i int) float64 { return 1 - ratio(done(i), asked(i)) }).Values).Mean
	j.attain(&c)
	if err := j.price(&c); err != nil {
		return c, err
	}
	c.Objective = perGPU
	return c, nil
}

// reader reads a column as numbers, NaN for null.
func (j *judge) reader(name string) func(int) float64 {
	col := j.column(name)
	return func(i int) float64 {
		if col == nil {
			return math.NaN()
		}
		v, ok := col.Float(i)
		if !ok {
			return math.NaN()
		}
		return v
	}
}

// ratio is a/b, NaN where b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// attain judges the SLA: by what the run counted, or by the grid.
func (j *judge) attain(c *Case) {
	sla := j.sla(c.Point)
	share := j.reader(results.ColSLAAttainment)
	if j.ttft >= 0 {
		share = func(i int) float64 { return j.within(i, j.ttft, j.itl) }
	}
	c.attainmentMean = math.NaN()
	if sla.Set() {
		c.Attainment = EstimateOf(j.s.derived(c.Point, share).Values)
	}
	if c.Attainment.OK() {
		c.attainmentMean = c.Attainment.Mean
	}
	c.Meets = !c.unanswered() && (!sla.Set() || c.Attainment.OK() && c.Attainment.Mean >= j.opt.Attainment)
	meta := &j.s.Frame.Meta
	alone := func(ttft, itl int) float64 {
		if ttft < 0 || itl < 0 || j.grid == nil {
			return math.NaN()
		}
		e := EstimateOf(j.s.derived(c.Point, func(i int) float64 { return j.within(i, ttft, itl) }).Values)
		if !e.OK() {
			return math.NaN()
		}
		return e.Mean
	}
	c.TTFTOK = alone(slices.Index(meta.GridTTFTMs, sla.TTFTMs), len(meta.GridITLMs)-1)
	c.ITLOK = alone(len(meta.GridTTFTMs)-1, slices.Index(meta.GridITLMs, sla.ITLMs))
}

// within is the share of the requests that arrived which are within two limits.
func (j *judge) within(row, ttft, itl int) float64 {
	g, ok := j.grid.Grid(row)
	n, known := j.requests.Float(row)
	if !ok || !known || n == 0 {
		return math.NaN()
	}
	return float64(g[ttft][itl]) / n
}

// unanswered reports whether not one request of the point completed: it has no latencies,
// and no place among those that do.
func (c *Case) unanswered() bool { return c.Incomplete >= 1 }

// price fills in the costs, from the sweep or from given prices.
func (j *judge) price(c *Case) error {
	usd := j.reader(results.ColCostUSD)
	if len(j.opt.Prices) > 0 {
		pre, dec, err := j.prices(c.Point)
		if err != nil {
			return err
		}
		pws, pg, dws, dg := j.reader(results.ColPrefillWorkerSeconds), j.reader(results.ColPrefillGPUsPerWorker), j.reader(results.ColDecodeWorkerSeconds), j.reader(results.ColDecodeGPUsPerWorker)
		usd = func(i int) float64 {
			return float64(pws(i)*pg(i)/3600*pre) + float64(dws(i)*dg(i)/3600*dec)
		}
	}
	tokens, hours := j.reader(results.ColOutputTokens), j.reader(results.ColGPUHours)
	over := func(of func(int) float64) Estimate { return EstimateOf(j.s.derived(c.Point, of).Values) }
	c.cost = j.s.derived(c.Point, func(i int) float64 { return ratio(usd(i), tokens(i)) * 1e6 })
	c.USDPerMillion, c.spentUSD = EstimateOf(c.cost.Values), j.s.derived(c.Point, usd)
	c.USDPerHour = over(func(i int) float64 { return ratio(usd(i), hours(i)) * c.GPUs })
	good := j.good(c)
	c.USDPerGood = over(func(i int) float64 { return ratio(usd(i), good(i)) })
	return nil
}

// good counts the requests within the SLA.
func (j *judge) good(c *Case) func(int) float64 {
	if !j.sla(c.Point).Set() {
		return func(int) float64 { return math.NaN() }
	}
	if j.ttft < 0 {
		return j.reader(results.ColGoodputRequests)
	}
	asked := j.reader(results.ColRequests)
	return func(i int) float64 { return j.within(i, j.ttft, j.itl) * asked(i) }
}

// prices are those of a point's roles.
func (j *judge) prices(p *Point) (prefill, decode float64, err error) {
	if decode, err = j.priceOf(p.Setup.DecodeSystem); err == nil && p.Setup.Disaggregated {
		prefill, err = j.priceOf(p.Setup.PrefillSystem)
	}
	return prefill, decode, err
}

func (j *judge) priceOf(system string) (float64, error) {
	other := math.NaN()
	for _, p := range j.opt.Prices {
		switch p.System {
		case system:
			return p.USD, nil
		case "default":
			other = p.USD
		}
	}
	if !math.IsNaN(other) {
		return other, nil
	}
	if system == "" {
		return 0, inputf("--price: the sweep does not say which GPUs it runs on: add default=USD")
	}
	return 0, inputf("--price: no price for %s: add %s=USD, or default=USD", system, system)
}

// objective chooses what verdicts go by: cost if every case has one, else tokens.
func (a *Analysis) objective(cases []Case) {
	a.ByCost = len(cases) > 0
	for i := range cases {
		a.ByCost = a.ByCost && (cases[i].USDPerMillion.OK() || !cases[i].TokensPerGPU.OK())
	}
	for i := range cases {
		c := &cases[i]
		if a.ByCost {
			c.Objective = c.cost
		}
		if c.objectiveMean = EstimateOf(c.Objective.Values).Mean; len(c.Objective.Values) == 0 {
			c.objectiveMean = math.NaN()
		}
	}
}

// why says in a few words why a case is not the one to deploy.
func (a *Analysis) why(c, winner *Case) string {
	switch {
	case c == winner:
		return "deploy"
	case c.unanswered():
		return c.silence()
	case !c.Meets:
		return "SLA " + c.Attainment.Plain(Percent) + a.fault(c)
	case winner == nil:
		return ""
	}
	d := Compare(winner.Objective, c.Objective)
	if d.Noise() || d.Method == Equal {
		return "~ the choice"
	}
	return d.Mark()
}

// silence says why no request of an unanswered point completed.
func (c *Case) silence() string {
	text, _, _ := strings.Cut(c.Reason, "\n")
	return cmp.Or(text, "no request completed")
}

// fault names the phase that misses the SLA, with a figure: by the shares of requests
// within each bound where they were counted, else by the 95th percentiles.
func (a *Analysis) fault(c *Case) string {
	switch phase, figure := a.phase(c); phase {
	case "":
		return ""
	case rejection:
		return ", " + c.silence()
	case bothPhases:
		return ", " + phase
	default:
		return fmt.Sprintf(", %s at fault (%s)", phase, figure)
	}
}

const (
	bothPhases = "TTFT and ITL alike"
	rejection  = "rejection" // of every request, or their failure
)

// phase is the bound at fault and the figure that shows it.
func (a *Analysis) phase(c *Case) (name, figure string) {
	switch {
	case c.unanswered():
		return rejection, ""
	case math.IsNaN(c.TTFTOK) || math.IsNaN(c.ITLOK):
		return a.phaseByPercentile(c)
	case c.TTFTOK < c.ITLOK:
		return "TTFT", Percent(c.TTFTOK) + " within"
	case c.ITLOK < c.TTFTOK:
		return "ITL", Percent(c.ITLOK) + " within"
	}
	return bothPhases, ""
}

// phaseByPercentile is the bound that the 95th percentile exceeds by the largest
// factor, or, if it exceeds none, the 99th; "" if neither does. The ITL of a request is
// the mean of its gaps, TPOT.
func (a *Analysis) phaseByPercentile(c *Case) (name, figure string) {
	sla := a.Loads[c.Load].SLA
	for _, q := range [...]string{"p95", "p99"} {
		worst := 1.0
		for _, b := range [...]struct {
			name, column string
			limit        float64
		}{{"TTFT", "ttft", sla.TTFTMs}, {"ITL", "tpot", sla.ITLMs}, {"E2E", "e2e_latency", sla.E2EMs}} {
			e := a.s.Over(c.Point, q+"_"+b.column+"_ms")
			if b.limit > 0 && e.OK() && e.Mean/b.limit > worst {
				name, figure, worst = b.name, q+" "+Millis(e.Mean), e.Mean/b.limit
			}
		}
		if name != "" {
			break
		}
	}
	return name, figure
}
