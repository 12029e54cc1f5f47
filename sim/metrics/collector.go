package metrics

import "slices"

// Collector measures one run. The order of use is Arrive for every request that is
// offered, Finish for every one that ends, Gap (or Record.TokenMs) for the gaps of
// completed requests, and Summary once at the end.
type Collector struct {
	opt Options

	arrived, ended, peak int64     // peak of arrived - ended
	succeeded            int64     // ended as completed
	completed            int64     // of these the measured set: admitted as well
	reasons              []Outcome // rejected, canceled and failed, as they appeared
	durationMs           float64

	input, output, reused, firstReused int64 // tokens over the measured set
	ttft, ttst, tpot, e2e, queue       Exact // ms
	itl, perUser                       Sketch

	good, goodOutput  int64
	within            [len(GridTTFTMs) + 1][len(GridITLMs) + 1]int64 // by the first limits that hold; last: none
	committed         int64
	preempted         int64
	occupancy         [3]Occupancy // [Pool]
	trajectories      Exact
	trajectoriesEnded int64

	records []Record
}

// Limits of the SLA grid, ms, ascending: with them any SLA in between can be
// judged without another run.
var (
	GridTTFTMs = [...]float64{50, 100, 200, 300, 500, 750, 1000, 1500,
		2000, 3000, 5000, 7500, 10000, 15000, 30000, 60000}
	GridITLMs = [...]float64{5, 10, 20, 30, 50, 75, 100, 200}
)

// Outcome counts requests that ended in one way other than completion.
type Outcome struct {
	Status Status
	Reason string
	Count  int64
}

// maxReasons bounds the reasons told apart: texts that name a request would else
// grow without end.
const maxReasons = 64

// OtherReason gathers the reasons beyond the first 64.
const OtherReason = "other reasons"

// maxReserve bounds the values for which room is made beforehand.
const maxReserve = 1 << 20

// NewCollector returns an empty collector.
func NewCollector(opt Options) *Collector {
	c := &Collector{opt: opt}
	for _, d := range []*Exact{&c.ttft, &c.ttst, &c.tpot, &c.e2e, &c.queue} {
		d.values = make([]float64, 0, min(opt.Requests, maxReserve))
	}
	return c
}

// Arrive counts a request that the load offered.
func (c *Collector) Arrive() {
	c.arrived++
	c.peak = max(c.peak, c.arrived-c.ended)
}

// Finish folds in a request at its terminal event. A record with status Unfinished
// is ignored: what never ends is counted by its absence. With capture on, the
// collector keeps a copy of *r and owns r.Detail from here on; r.TokenMs is only
// read, and sets r.ClientMs. Without capture nothing is allocated but the amortised room of five floats.
func (c *Collector) Finish(r *Record) {
	if r.Status == Unfinished {
		return
	}
	c.ended++
	r.ClientMs = c.opt.ClientMs
	if r.Status != Completed {
		c.count(r.Status, r.Reason)
	} else {
		c.succeeded++
		if r.FirstAdmitMs >= 0 {
			c.measure(r)
		}
	}
	if c.opt.Capture {
		c.records = append(c.records, *r)
		c.records[len(c.records)-1].TokenMs = nil
	}
}

// count adds one request to its reason.
func (c *Collector) count(status Status, reason string) {
	for i := range c.reasons {
		if o := &c.reasons[i]; o.Status == status && o.Reason == reason {
			o.Count++
			return
		}
	}
	if len(c.reasons) >= maxReasons && reason != OtherReason {
		c.count(status, OtherReason)
		return
	}
	c.reasons = append(c.reasons, Outcome{status, reason, 1})
}

// measure folds a completed and admitted request into the measured set
// (spec report 3); latencies are clamped at 0.
func (c *Collector) measure(r *Record) {
	c.completed++
	c.input += int64(r.Input)
	c.output += int64(r.Output)
	c.reused += int64(r.Reused)
	c.firstReused += int64(r.FirstReused)
	c.durationMs = max(c.durationMs, r.TerminalMs)
	c.queue.Add(max(r.FirstAdmitMs-r.ArrivalMs, 0))
	if r.Output >= 1 {
		c.ttft.Add(r.TTFTMs())
		c.e2e.Add(r.E2EMs())
		c.within[slot(GridTTFTMs[:], r.TTFTMs())][slot(GridITLMs[:], r.meanGapMs())]++
	}
	if r.Output >= 2 {
		c.ttst.Add(r.TTSTMs())
		c.tpot.Add(r.TPOTMs())
	}
	if c.opt.SLA.Met(r) {
		c.good++
		c.goodOutput += int64(r.Output)
	}
	for i := 1; i < len(r.TokenMs); i++ {
		c.Gap(r.TokenMs[i]-r.TokenMs[i-1], 1)
	}
}

// slot is the index of the first limit that v meets.
func slot(limits []float64, v float64) int {
	i, _ := slices.BinarySearch(limits, v)
	return i
}

// Gap feeds n equal gaps between successive tokens of completed requests, ms.
func (c *Collector) Gap(ms float64, n int64) {
	ms = max(ms, 0)
	c.itl.Add(ms, n)
	if ms > 0 {
		c.perUser.Add(1000/ms, n)
	}
}

// CommittedPrefill counts prefill tokens of completed passes.
func (c *Collector) CommittedPrefill(tokens int64) { c.committed += tokens }

// Preempted counts preemptions (vLLM) or retractions (SGLang).
func (c *Collector) Preempted(n int64) { c.preempted += n }

// Trajectory counts one agentic play; its latency in ms counts if it completed.
func (c *Collector) Trajectory(e2eMs float64, completed bool) {
	c.trajectoriesEnded++
	if completed {
		c.trajectories.Add(max(e2eMs, 0))
	}
}

// Occupancy is the use of KV blocks over the time of passes. The zero Occupancy is
// empty and ready.
type Occupancy struct {
	usedMs, totalMs, peak float64
	most, of              int64 // peak is at least most / of
}

// Add counts a pass of ms in which a rank had used of total blocks in use.
func (o *Occupancy) Add(used, total int64, ms float64) {
	o.usedMs += float64(float64(used) * ms)
	o.totalMs += float64(float64(total) * ms)
	o.reach(used, total)
}

// AddRun counts passes that end at ends, ms, the first of which began at from and
// had used[0] of total blocks in use.
func (o *Occupancy) AddRun(used []int64, total int64, from float64, ends []float64) {
	usedMs, totalMs := o.usedMs, o.totalMs
	for j, end := range ends {
		usedMs += float64(float64(used[j]) * (end - from))
		totalMs += float64(float64(total) * (end - from))
		from = end
		if used[j] > o.most || total != o.of {
			o.reach(used[j], total)
		}
	}
	o.usedMs, o.totalMs = usedMs, totalMs
}

// reach raises the peak.
func (o *Occupancy) reach(used, total int64) {
	if total > 0 && (used > o.most || total != o.of) {
		o.peak = max(o.peak, float64(used)/float64(total))
		o.most, o.of = used, total
	}
}

// Occupied adds what a rank of the pool used.
func (c *Collector) Occupied(pool Pool, rank Occupancy) {
	o := &c.occupancy[pool]
	o.usedMs += rank.usedMs
	o.totalMs += rank.totalMs
	o.peak = max(o.peak, rank.peak)
}

// Records returns the captured records in order of their end.
func (c *Collector) Records() []Record { return c.records }

// Met reports whether a completed request holds every bound, equality included
// (spec report 5). Without a bound nothing does.
func (s SLA) Met(r *Record) bool {
	if !s.Set() {
		return false
	}
	if r.Output < 1 {
		return s.TTFTMs == 0 && s.ITLMs == 0 && r.TerminalMs-r.ArrivalMs <= s.E2EMs
	}
	return (s.TTFTMs == 0 || r.TTFTMs() <= s.TTFTMs) &&
		(s.E2EMs == 0 || r.E2EMs() <= s.E2EMs) &&
		(s.ITLMs == 0 || r.meanGapMs() <= s.ITLMs)
}
