package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sim/metrics"
)

// handMade is a finished point of a table made by hand. All carry the same load, so that
// GPUs alone decide what is cheapest. The gaps of a request have a 95th percentile of
// twice their mean.
type handMade struct {
	axes []results.Value
	gpus int64
	itl  float64 // ms

	rejected string // why every request was; "" they completed

	user float64 // tokens per second that a user sees

	planner bool
	startup float64 // seconds
	seconds float64 // that a worker was provisioned; 0: the 10 s of the run
}

// stats are those of figures that are all alike.
func stats(v float64) metrics.Stats {
	return metrics.Stats{Mean: v, Min: v, Max: v, Median: v, P75: v, P90: v, P95: v, P99: v}
}

// analyseTable writes points by hand and reads them back, judged by an SLA of 1 s and 25 ms.
func analyseTable(t *testing.T, axes []results.Axis, points ...handMade) *Analysis {
	t.Helper()
	dir := t.TempDir()
	store, err := results.Open(dir, results.Options{Identity: results.Identity{Name: "hand", SpecDigest: "feed"}, Axes: axes,
		Spec: []byte("name: hand\n"), Now: func() time.Time { return time.Unix(0, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	var plan []results.Planned
	for i, p := range points {
		key := results.Key{Point: fmt.Sprintf("%016x", i)}
		good := int64(1000)
		if p.itl > 25 {
			good = 0
		}
		sum := &metrics.Summary{SLA: metrics.SLA{TTFTMs: 1000, ITLMs: 25}, Requests: 1000, Completed: 1000, TTFTSamples: 1000, TPOTSamples: 1000, Good: good, InputTokens: 100_000, OutputTokens: 100_000, DurationMs: 10_000,
			Totals: metrics.Totals{DecodeWorkerSeconds: 10, DecodeGPUs: int(p.gpus)}}
		sum.TTFT, sum.TPOT, sum.ITL = stats(100), stats(p.itl), stats(2*p.itl)
		if p.rejected != "" {
			sum.Completed, sum.Good, sum.OutputTokens, sum.InputTokens, sum.DurationMs = 0, 0, 0, 0, 0
			sum.TTFTSamples, sum.TPOTSamples = 0, 0
		}
		row := &results.Point{Key: key, Reason: p.rejected, Status: results.Done, Axes: p.axes, GPUs: p.gpus,
			Config:  `{"sla":{"ttft_ms":1000,"itl_ms":25}}`,
			Summary: sum}
		if p.planner {
			row.Config = fmt.Sprintf(`{"sla":{"ttft_ms":1000,"itl_ms":25},"planner":{"mode":"agg"},"engine":{"startup_time":%v}}`, p.startup)
			row.ScalingEvents = results.Maybe{V: 4, OK: true}
		}
		sum.PerUser = stats(p.user)
		if p.seconds > 0 {
			sum.Totals.DecodeWorkerSeconds = p.seconds
		}
		plan = append(plan, results.Planned{Key: key, Row: row})
	}
	if err := store.Finalize(plan); err != nil {
		t.Fatal(err)
	}
	store.Close()
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Analyse(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A model is what is served: a small one does not win over a large one, each has a
// verdict of its own.
func TestEveryModelHasAVerdict(t *testing.T) {
	axes := []results.Axis{{Name: "timing.model", Type: results.String}, {Name: "topology.workers", Type: results.Int64}}
	point := func(model string, workers, gpus int64, itl float64) handMade {
		return handMade{axes: []results.Value{results.Text(model), results.Int(workers)}, gpus: gpus, itl: itl}
	}
	a := analyseTable(t, axes, point("org/small-8b", 1, 1, 10), point("org/small-8b", 2, 2, 10),
		point("org/large-70b", 1, 4, 40), point("org/large-70b", 2, 8, 20))
	if len(a.Loads) != 2 {
		t.Fatalf("%d verdicts", len(a.Loads))
	}
	for i, want := range []struct {
		label string
		gpus  float64
	}{{"model small-8b", 1}, {"model large-70b", 8}} {
		l := &a.Loads[i]
		if l.Label != want.label || l.Verdict.Winner == nil || l.Verdict.Winner.GPUs != want.gpus {
			t.Errorf("%q deploys %+v, want %q on %v GPUs", l.Label, l.Verdict.Winner, want.label, want.gpus)
		}
	}
	// The SLA judges the mean gap of a request, and that is what is shown: not the
	// gaps, whose 95th percentile misses it.
	w := a.Loads[1].Verdict.Winner
	if w == nil {
		t.FailNow()
	}
	if math.Abs(w.ITLMs.Mean-20) > 0.5 {
		t.Errorf("shown %v ms, judged 20 ms", w.ITLMs.Mean)
	}
}

// A point whose requests were all rejected has no latencies: it is lost by rejection,
// deploys nowhere, stands on no front, and says so also without an SLA.
func TestUnansweredPointsNeverRank(t *testing.T) {
	axes := []results.Axis{{Name: "topology.workers", Type: results.Int64}}
	a := analyseTable(t, axes, handMade{axes: []results.Value{results.Int(1)}, gpus: 1, rejected: "no request completed: rejected 1000: prompt exceeds the KV pool"},
		handMade{axes: []results.Value{results.Int(2)}, gpus: 2, itl: 20})
	l := &a.Loads[0]
	bad := &a.Cases[0]
	if bad.Meets || bad.Front || bad.TTFTMs.OK() || l.Verdict.Winner == nil || l.Verdict.Winner.GPUs != 2 {
		t.Errorf("meets %v, front %v, TTFT %v, winner %+v", bad.Meets, bad.Front, bad.TTFTMs, l.Verdict.Winner)
	}
	if want := "no request completed: rejected 1000: prompt exceeds the KV pool"; bad.Why != want {
		t.Errorf("why %q, want %q", bad.Why, want)
	}
	if want := "1 of 1 other point miss the SLA (1 by rejection)."; l.Verdict.Others != want {
		t.Errorf("others %q, want %q", l.Verdict.Others, want)
	}
}

// Start-up time is what an operator finds, not what is chosen: every one has a verdict, in
// which the fleets of a fixed size compete too, and one sentence says whether autoscaling
// pays and from where on it does not.
func TestEveryStartupTimeHasAVerdict(t *testing.T) {
	axes := []results.Axis{{Name: "topology.workers", Type: results.Int64}, {Name: "planner.mode", Type: results.String}, {Name: "planner.startup_seconds", Type: results.Float64}}
	fixed := func(gpus int64, itl float64) handMade {
		return handMade{axes: []results.Value{results.Int(gpus), results.Null, results.Null}, gpus: gpus, itl: itl}
	}
	scaled := func(startup, seconds, itl float64) handMade {
		return handMade{axes: []results.Value{results.Int(1), results.Text("agg"), results.Float(startup)}, gpus: 1, itl: itl, planner: true, startup: startup, seconds: seconds}
	}
	// Fixed fleets: one GPU misses the SLA, four meet it for 40 GPU-seconds.
	a := analyseTable(t, axes, fixed(1, 40), fixed(4, 20), scaled(0, 20, 20), scaled(60, 30, 20), scaled(120, 50, 20), scaled(300, 15, 40))
	if len(a.Loads) != 4 {
		t.Fatalf("%d verdicts", len(a.Loads))
	}
	for i, want := range []struct {
		label  string
		winner int // in the order of the table
		pays   string
	}{
		{"startup 0 s", 2, "Autoscaling pays (-50 %, one run, no interval): "},
		{"startup 60 s", 3, "Autoscaling pays (-25 %, one run, no interval): "},
		{"startup 120 s", 1, "Autoscaling does not pay (+25 %, one run, no interval): "},
		{"startup 300 s", 1, "Autoscaling does not pay: no Planner point meets the SLA, "},
	} {
		l := &a.Loads[i]
		if l.Label != want.label || len(l.Cases) != 3 || l.Verdict.Winner != &a.Cases[want.winner] {
			t.Errorf("%q of %d points deploys %+v, want %q and case %d", l.Label, len(l.Cases), l.Verdict.Winner, want.label, want.winner)
		}
		if text := l.Verdict.Autoscaling; !strings.HasPrefix(text, want.pays) || !strings.HasSuffix(text, " It pays up to a start-up time of 60 s, and no longer at 120 s.") {
			t.Errorf("%s: %q", l.Label, text)
		}
	}
	if c := a.Loads[0].Verdict.Caveats; !slices.ContainsFunc(c, func(s string) bool { return strings.Contains(s, "start in 0 s") }) {
		t.Errorf("no caveat about a start-up in no time: %q", c)
	}
	if got, want := a.LoadLabels(&a.Cases[1]), "startup 0 s; startup 60 s; startup 120 s; startup 300 s"; got != want {
		t.Errorf("the fixed fleet stands in %q, want %q", got, want)
	}
}

// Within the noise over seeds nothing pays; where no fixed fleet meets the SLA nothing is
// claimed.
func TestAutoscalingClaimsNothingUnknown(t *testing.T) {
	axes := []results.Axis{{Name: "planner.mode", Type: results.String}}
	fixed := handMade{axes: []results.Value{results.Null}, gpus: 1, itl: 40}
	scaled := handMade{axes: []results.Value{results.Text("agg")}, gpus: 1, itl: 20, planner: true, startup: 60, seconds: 30}
	a := analyseTable(t, axes, fixed, scaled)
	if text := a.Loads[0].Verdict.Autoscaling; !strings.HasPrefix(text, "Whether autoscaling pays is not known: ") || !strings.Contains(text, "try a larger one") {
		t.Errorf("%q", text)
	}
	a = analyseTable(t, axes, scaled)
	if text := a.Loads[0].Verdict.Autoscaling; !strings.Contains(text, "no fleet of a fixed size") {
		t.Errorf("%q", text)
	}
	fixed.itl, fixed.seconds = 20, 30
	a = analyseTable(t, axes, fixed, scaled)
	if text := a.Loads[0].Verdict.Autoscaling; !strings.HasPrefix(text, "Autoscaling makes no difference beyond the noise: ") {
		t.Errorf("%q", text)
	}
}

// A point that misses the SLA stands on no front, however good it is otherwise, where
// another one meets it.
func TestFrontIsWithinTheSLA(t *testing.T) {
	axes := []results.Axis{{Name: "topology.workers", Type: results.Int64}}
	point := func(gpus int64, itl, user float64) handMade {
		return handMade{axes: []results.Value{results.Int(gpus)}, gpus: gpus, itl: itl, user: user}
	}
	a := analyseTable(t, axes, point(1, 40, 90), point(2, 20, 30), point(4, 10, 60), point(8, 10, 50))
	l := &a.Loads[0]
	var gpus []float64
	for _, i := range l.Front {
		gpus = append(gpus, a.Cases[i].GPUs)
	}
	if want := []float64{2, 4}; !slices.Equal(gpus, want) || a.Cases[0].Front {
		t.Errorf("on the front stand fleets of %v GPUs, want %v", gpus, want)
	}
	if note := l.Verdict.FrontNote; !strings.Contains(note, "within the SLA: 2 points of 3; 1 outside it") {
		t.Errorf("%q", note)
	}
}
