package page

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/results/compare"
)

// block is one data block of the page.
type block struct{ name, text string }

// Bounds of the data, so that a page stays small enough to be mailed.
const (
	maxPoints   = 20000 // carried in the table and the scatter
	maxGrids    = 2000  // points that can be judged by other limits
	maxCommands = 2000  // points with their replay command
	maxCurves   = 60    // points with latency curves
)

// num is a number of six significant digits; NaN and infinities are null.
type num float64

func (n num) MarshalJSON() ([]byte, error) {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, v, 'g', 6, 64), nil
}

// column is one column of the points: numbers, or words as indices into Dict.
type column struct {
	Key   string   `json:"key"`
	Name  string   `json:"name"`
	Unit  string   `json:"unit,omitempty"`
	Axis  bool     `json:"axis,omitempty"`
	Nums  []num    `json:"nums,omitempty"`
	Dict  []string `json:"dict,omitempty"`
	Index []int    `json:"index,omitempty"` // -1: null
	Fixed bool     `json:"shown,omitempty"` // shown from the start
}

type loadData struct {
	Label  string       `json:"label"`
	SLA    *compare.SLA `json:"sla"`
	Winner int          `json:"winner"` // -1: none
	Front  []int        `json:"front"`
	Note   string       `json:"note"`
}

// gridData is the attainment of points at every pair of limits.
type gridData struct {
	TTFT   []num         `json:"ttft"`
	ITL    []num         `json:"itl"`
	Shares map[int][]num `json:"shares"` // [point][TTFT limit x ITL limit]
}

// priceData re-ranks by price: GPU-hours per million output tokens by system.
type priceData struct {
	Systems []string `json:"systems"`
	USD     []num    `json:"usd"` // as recorded; null unknown
	Hours   [][]num  `json:"hours"`
}

type curveData struct {
	Point int              `json:"point"`
	MS    map[string][]num `json:"ms"` // ttft, tpot, itl, e2e_latency at the quantiles
}

type pageData struct {
	Name       string         `json:"name"`
	ByCost     bool           `json:"byCost"`
	Objective  string         `json:"objective"`
	Attainment num            `json:"attainment"`
	Dir        string         `json:"dir"`
	Cut        int            `json:"cut"` // points left out of the page
	Loads      []loadData     `json:"loads"`
	ID         []string       `json:"id"`
	Label      []string       `json:"label"`
	Load       []int          `json:"load"` // the first one
	Also       map[int][]int  `json:"also"` // all of them, of points that stand in several
	GPUs       []num          `json:"gpus"`
	Meets      []int          `json:"meets"`
	Share      []num          `json:"share"` // attainment
	Goal       []num          `json:"goal"`  // objective
	Front      []int          `json:"front"`
	Seeds      []int          `json:"seeds"`
	XLow       []num          `json:"xLow"`
	XHigh      []num          `json:"xHigh"`
	YLow       []num          `json:"yLow"`
	YHigh      []num          `json:"yHigh"`
	Columns    []column       `json:"columns"`
	Grid       *gridData      `json:"grid"`
	Prices     *priceData     `json:"prices"`
	Commands   map[int]string `json:"commands"`
	Quantiles  []num          `json:"quantiles"`
	Curves     []curveData    `json:"curves"`
}

// figures are the report columns that the table can show.
var figures = []struct {
	column, name, unit string
	shown              bool
}{
	{"gpus", "GPUs at the start", "", false}, {"gpu_hours", "GPU-hours", "h", false}, {"cost_usd", "cost", "USD", false},
	{"p95_ttft_ms", "TTFT p95", "ms", true}, {"p95_tpot_ms", "mean ITL of a request p95", "ms", true}, {"mean_ttft_ms", "TTFT mean", "ms", false},
	{"median_ttft_ms", "TTFT p50", "ms", false}, {"p99_ttft_ms", "TTFT p99", "ms", false}, {"mean_itl_ms", "ITL mean", "ms", false},
	{"p99_itl_ms", "ITL p99", "ms", false}, {"mean_tpot_ms", "TPOT mean", "ms", false}, {"p95_itl_ms", "ITL p95", "ms", false},
	{"mean_e2e_latency_ms", "latency mean", "ms", false}, {"p95_e2e_latency_ms", "latency p95", "ms", false},
	{"output_throughput_tok_s", "output", "tok/s", false}, {"request_throughput_rps", "requests", "1/s", false},
	{"goodput_request_throughput_rps", "goodput", "1/s", false}, {"prefix_cache_reused_ratio", "prefix reuse", "0..1", false},
	{"completed_requests", "completed", "", false}, {"rejected_requests", "rejected", "", false}, {"preemptions", "preemptions", "", false},
	{"mean_queue_ms", "queue mean", "ms", false}, {"p99_queue_ms", "queue p99", "ms", false}, {"peak_in_flight", "peak in flight", "", false},
	{"decode_kv_occupancy", "KV in use", "0..1", false}, {"planner_gpu_hours", "Planner GPU-hours", "h", false},
}

// picked are the cases that the page carries, all of them up to maxPoints: else the
// front, and the best of every load in turn.
func (v *view) picked() []int {
	n := len(v.Cases)
	if n <= maxPoints {
		out := make([]int, n)
		for i := range out {
			out[i] = i
		}
		return out
	}
	out := v.inTurn(maxPoints)
	slices.Sort(out)
	return out
}

// inTurn lists at most n cases: fronts first, then the best of every load in turn.
func (v *view) inTurn(n int) (out []int) {
	seen := make([]bool, len(v.Cases))
	add := func(i int) {
		if !seen[i] && len(out) < n {
			seen[i] = true
			out = append(out, i)
		}
	}
	for i := range v.Analysis.Loads {
		l := &v.Analysis.Loads[i]
		if w := l.Verdict.Winner; w != nil {
			add(l.Ranked[0])
		}
		for _, k := range l.Front {
			add(k)
		}
	}
	for depth := 0; len(out) < min(n, len(v.Cases)); depth++ {
		for i := range v.Analysis.Loads {
			if l := &v.Analysis.Loads[i]; depth < len(l.Ranked) {
				add(l.Ranked[depth])
			}
		}
	}
	return out
}

// blocks are the data blocks: points, and timelines where a Planner ran.
func (v *view) blocks() ([]block, error) {
	b, err := packed("points", v.points())
	if err != nil {
		return nil, err
	}
	out := []block{b}
	if v.Analysis.Board != nil && len(v.Analysis.Board.Timelines) > 0 {
		if b, err = packed("timelines", v.timelines()); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// packed is a value as JSON, gzipped, in base64.
func packed(name string, v any) (block, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return block{}, err
	}
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return block{}, err
	}
	if err := z.Close(); err != nil {
		return block{}, err
	}
	return block{name, base64.StdEncoding.EncodeToString(b.Bytes())}, nil
}

func (v *view) points() *pageData {
	a := v.Analysis
	pick := v.picked()
	at := make(map[int]int, len(pick)) // case -> position in the page
	for k, i := range pick {
		at[i] = k
	}
	d := &pageData{Name: a.Sweep.Name, ByCost: a.ByCost, Objective: a.ObjectiveName(), Attainment: num(a.Options.Attainment),
		Dir: a.Sweep.Dir, Cut: len(a.Cases) - len(pick), Commands: map[int]string{}, Also: map[int][]int{}}
	for _, q := range compare.Quantiles {
		d.Quantiles = append(d.Quantiles, num(q))
	}
	for _, i := range pick {
		c := &a.Cases[i]
		d.ID, d.Label, d.Load = append(d.ID, c.ID), append(d.Label, c.Label), append(d.Load, c.Load)
		if len(c.Loads) > 1 {
			d.Also[len(d.ID)-1] = c.Loads
		}
		d.GPUs, d.Meets, d.Front = append(d.GPUs, num(c.GPUs)), append(d.Meets, one(c.Meets)), append(d.Front, one(c.Front))
		d.Share, d.Goal, d.Seeds = append(d.Share, mean(c.Attainment)), append(d.Goal, num(c.ObjectiveMean())), append(d.Seeds, len(c.Rows))
		d.XLow, d.XHigh = append(d.XLow, low(c.TokensPerUser)), append(d.XHigh, high(c.TokensPerUser))
		d.YLow, d.YHigh = append(d.YLow, low(c.TokensPerGPU)), append(d.YHigh, high(c.TokensPerGPU))
	}
	d.Loads = v.loadsData(at)
	d.Columns = v.columns(pick)
	d.Grid = v.grid(at)
	d.Prices = v.prices(pick)
	for _, i := range v.inTurn(maxCommands) {
		if k, ok := at[i]; ok && v.Input.Replay != nil {
			d.Commands[k] = v.commands(&a.Cases[i]).Replay
		}
	}
	for _, i := range v.inTurn(maxCurves) {
		if k, ok := at[i]; ok {
			d.Curves = append(d.Curves, v.curve(k, &a.Cases[i]))
		}
	}
	return d
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func mean(e compare.Estimate) num {
	if !e.OK() {
		return num(math.NaN())
	}
	return num(e.Mean)
}

func low(e compare.Estimate) num {
	if !e.Interval() {
		return num(math.NaN())
	}
	return num(e.Low)
}

func high(e compare.Estimate) num {
	if !e.Interval() {
		return num(math.NaN())
	}
	return num(e.High)
}

func (v *view) loadsData(at map[int]int) (out []loadData) {
	// An index of a case that the page leaves out is -1.
	place := func(list []int) []int {
		moved := make([]int, len(list))
		for k, i := range list {
			moved[k] = -1
			if p, ok := at[i]; ok && i >= 0 {
				moved[k] = p
			}
		}
		return moved
	}
	for i := range v.Analysis.Loads {
		l := &v.Analysis.Loads[i]
		d := loadData{Label: l.Label, Winner: -1, Front: place(l.Front), Note: l.Verdict.FrontNote}
		if l.SLA.Set() {
			d.SLA = &l.SLA
		}
		if l.Verdict.Winner != nil {
			d.Winner = place(l.Ranked[:1])[0]
		}
		out = append(out, d)
	}
	return out
}

// columns are the axes, what is judged, and the report's figures.
func (v *view) columns(pick []int) (out []column) {
	f := v.Sweep.Frame
	for k, name := range f.Meta.Axes {
		c := column{Key: name, Name: name, Axis: true}
		index := map[string]int{}
		for _, i := range pick {
			text := v.Cases[i].AxisValues()[k]
			if text == "" {
				c.Index = append(c.Index, -1)
				continue
			}
			n, ok := index[text]
			if !ok {
				n = len(c.Dict)
				index[text] = n
				c.Dict = append(c.Dict, text)
			}
			c.Index = append(c.Index, n)
		}
		out = append(out, c)
	}
	out = append(out, verdicts(v, pick))
	judged := func(key, name, unit string, of func(*compare.Case) num) {
		c := column{Key: key, Name: name, Unit: unit, Fixed: true}
		known := false
		for _, i := range pick {
			x := of(&v.Cases[i])
			known = known || !math.IsNaN(float64(x))
			c.Nums = append(c.Nums, x)
		}
		if known {
			out = append(out, c)
		}
	}
	judged("tokens_per_user", "tok/s/user", "tok/s", func(c *compare.Case) num { return mean(c.TokensPerUser) })
	judged("tokens_per_gpu", "tok/s/GPU", "tok/s", func(c *compare.Case) num { return mean(c.TokensPerGPU) })
	judged("usd_per_million", "$/Mtok", "USD", func(c *compare.Case) num { return mean(c.USDPerMillion) })
	judged("usd_per_hour", "$/hour", "USD", func(c *compare.Case) num { return mean(c.USDPerHour) })
	for _, x := range figures {
		if f.Column(x.column) == nil {
			continue
		}
		c := column{Key: x.column, Name: x.name, Unit: x.unit, Fixed: x.shown}
		known := false
		for _, i := range pick {
			e := v.Sweep.Over(v.Cases[i].Point, x.column)
			known = known || e.OK()
			c.Nums = append(c.Nums, mean(e))
		}
		if known {
			out = append(out, c)
		}
	}
	return out
}

// verdicts are the words about every point.
func verdicts(v *view, pick []int) column {
	c := column{Key: "verdict", Name: "verdict", Fixed: true}
	index := map[string]int{}
	for _, i := range pick {
		why := v.Cases[i].Why
		n, ok := index[why]
		if !ok {
			n = len(c.Dict)
			index[why] = n
			c.Dict = append(c.Dict, why)
		}
		c.Index = append(c.Index, n)
	}
	return c
}

// grid is the attainment at every counted pair of limits of the best points.
func (v *view) grid(at map[int]int) *gridData {
	f := v.Sweep.Frame
	col, asked := f.Column(results.ColSLAGrid), f.Column(results.ColRequests)
	if col == nil || asked == nil || len(f.Meta.GridTTFTMs) == 0 {
		return nil
	}
	g := &gridData{Shares: map[int][]num{}}
	for _, t := range f.Meta.GridTTFTMs {
		g.TTFT = append(g.TTFT, num(t))
	}
	for _, t := range f.Meta.GridITLMs {
		g.ITL = append(g.ITL, num(t))
	}
	for _, i := range v.inTurn(maxGrids) {
		k, ok := at[i]
		if !ok {
			continue
		}
		shares := make([]num, len(g.TTFT)*len(g.ITL))
		n := 0.0
		for _, row := range v.Cases[i].Rows {
			counts, ok := col.Grid(row)
			total, known := asked.Float(row)
			if !ok || !known || total == 0 {
				continue
			}
			n++
			for t := range counts {
				for u := range counts[t] {
					shares[t*len(g.ITL)+u] += num(float64(counts[t][u]) / total)
				}
			}
		}
		if n == 0 {
			continue
		}
		for j := range shares {
			shares[j] /= num(n)
		}
		g.Shares[k] = shares
	}
	return g
}

// prices splits the GPU-hours by system, so that another price re-ranks exactly.
func (v *view) prices(pick []int) *priceData {
	f := v.Sweep.Frame
	pw, pg, dw, dg := f.Column(results.ColPrefillWorkerSeconds), f.Column(results.ColPrefillGPUsPerWorker), f.Column(results.ColDecodeWorkerSeconds), f.Column(results.ColDecodeGPUsPerWorker)
	tokens := f.Column(results.ColOutputTokens)
	if pw == nil || pg == nil || dw == nil || dg == nil || tokens == nil {
		return nil
	}
	p := &priceData{}
	system := func(name string) int {
		if name == "" {
			name = "default"
		}
		k := slices.Index(p.Systems, name)
		if k < 0 {
			k = len(p.Systems)
			p.Systems, p.USD = append(p.Systems, name), append(p.USD, num(math.NaN()))
			p.Hours = append(p.Hours, make([]num, len(pick)))
		}
		return k
	}
	for n, i := range pick {
		c := &v.Cases[i]
		pre, dec, seeds := 0.0, 0.0, 0.0
		for _, row := range c.Rows {
			get := func(s interface{ Float(int) (float64, bool) }) float64 { x, _ := s.Float(row); return x }
			if t := get(tokens); t > 0 {
				pre += get(pw) * get(pg) / 3600 / t * 1e6
				dec += get(dw) * get(dg) / 3600 / t * 1e6
				seeds++
			}
		}
		if seeds == 0 {
			continue
		}
		d := system(c.Setup.DecodeSystem)
		p.Hours[d][n] += num(dec / seeds)
		if c.Setup.Disaggregated {
			p.Hours[system(c.Setup.PrefillSystem)][n] += num(pre / seeds)
		}
		same := !c.Setup.Disaggregated || c.Setup.PrefillSystem == c.Setup.DecodeSystem
		if same && math.IsNaN(float64(p.USD[d])) && c.USDPerMillion.OK() && p.Hours[d][n] > 0 {
			p.USD[d] = num(c.USDPerMillion.Mean / float64(p.Hours[d][n]))
		}
	}
	return p
}

func (v *view) curve(k int, c *compare.Case) curveData {
	d := curveData{Point: k, MS: map[string][]num{}}
	for _, which := range [...]string{"ttft", "tpot", "itl", "e2e_latency"} {
		for _, ms := range v.LatencyMs(c, which) {
			d.MS[which] = append(d.MS[which], num(ms))
		}
	}
	return d
}

// timeline is compare.Timeline in few digits.
type timeline struct {
	ID    string           `json:"id"`
	Label string           `json:"label"`
	SLA   num              `json:"slaTTFT"`
	Of    map[string][]num `json:"of"`
}

func (v *view) timelines() (out []timeline) {
	for i := range v.Analysis.Board.Timelines {
		t := &v.Analysis.Board.Timelines[i]
		c := &v.Cases[t.Case]
		d := timeline{ID: c.ID, Label: v.Sweep.LabelUnderLoad(c.Point), SLA: num(v.Analysis.Loads[c.Load].SLA.TTFTMs), Of: map[string][]num{}}
		for name, vs := range map[string][]float64{"at": t.AtS, "demand": t.Demand, "queued": t.Queued, "ttft": t.TTFTMs, "ttftHigh": t.TTFTHigh, "itl": t.ITLMs,
			"readyPrefill": t.Ready[0], "readyDecode": t.Ready[1], "startingPrefill": t.Starting[0], "startingDecode": t.Starting[1]} {
			for _, x := range vs {
				d.Of[name] = append(d.Of[name], num(x))
			}
		}
		out = append(out, d)
	}
	return out
}
