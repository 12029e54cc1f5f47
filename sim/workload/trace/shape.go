package trace

import (
	"fmt"
	"io"
	"math"

	"github.com/dynosweep/dynosweep/sim/rng"
)

// Shape is load whose rate changes over time, of classes with lengths of their own. The
// arrivals are a Poisson process: its rate at a time is Rate times the factors of all
// waves at that time. ParseShape reads one.
type Shape struct {
	DurationS float64
	Rate      float64 // requests per second before any factor
	Seed      uint64
	BlockSize int // tokens per hash id
	Waves     []Wave
	Classes   []Class
}

// Wave is one factor of the rate over time.
type Wave struct {
	Kind   WaveKind
	AtS    float64 // diurnal: a time of the highest rate; else where it begins
	LastsS float64 // diurnal: the period; burst, ramp, flash_crowd: how long it rises or lasts
	EveryS float64 // burst: from one begin to the next, 0: once
	Factor float64 // diurnal: highest over mean rate, 1..2; else what the rate is multiplied by
	DecayS float64 // flash_crowd: time constant of the fall
}

// WaveKind is the form of a wave.
type WaveKind uint8

const (
	Diurnal    WaveKind = iota // a cosine around the mean
	Burst                      // Factor while it lasts, 1 between
	Ramp                       // from 1 to Factor, in a line, and there it stays
	FlashCrowd                 // from 1 to Factor in a line, then back exponentially
)

var waveNames = []string{"diurnal", "burst", "ramp", "flash_crowd"}

// Class is a kind of requests.
type Class struct {
	Name         string  // policy_class of its rows, "" none
	Weight       float64 // share of the requests, relative to the other classes
	Input        Lengths
	Output       Lengths
	PrefixTokens int // of every prompt that its group shares, cut to whole blocks
	PrefixGroups int // groups that the prompts are drawn from
}

// Lengths are token counts: fixed at Median where P95 equals it, else log-normal with
// these quantiles, rounded, at least 1 and at most Max.
type Lengths struct {
	Median, P95 float64
	Max         int // 0: no bound
}

// factor is what a wave multiplies the rate by at a time, in seconds.
func (w *Wave) factor(atS float64) float64 {
	switch since := atS - w.AtS; {
	case w.Kind == Diurnal:
		return 1 + float64((w.Factor-1)*math.Cos(2*math.Pi*since/w.LastsS))
	case since < 0:
		return 1
	case w.Kind == Burst:
		if w.EveryS > 0 {
			since = math.Mod(since, w.EveryS)
		}
		if since < w.LastsS {
			return w.Factor
		}
		return 1
	case since < w.LastsS:
		return 1 + float64((w.Factor-1)*since/w.LastsS)
	case w.Kind == Ramp:
		return w.Factor
	default:
		return 1 + float64((w.Factor-1)*math.Exp(-(since-w.LastsS)/w.DecayS))
	}
}

// highest bounds the factor at all times.
func (w *Wave) highest() float64 { return max(w.Factor, 1) }

// RateAt is the rate at a time in seconds, requests per second.
func (s *Shape) RateAt(atS float64) float64 {
	rate := s.Rate
	for i := range s.Waves {
		rate *= s.Waves[i].factor(atS)
	}
	return rate
}

// maxShapeRequests bounds the requests of a shape: at 2e7 a trace takes gigabytes.
const maxShapeRequests = 20_000_000

// WriteShape writes the load as a mooncake trace, by thinning: candidates come at the
// highest rate there can be, and each stays with the probability that its time asks for
// (Lewis and Shedler, 1979). Equal shapes give equal bytes. It returns the number of
// requests.
func WriteShape(w io.Writer, s *Shape) (int64, error) {
	highest := s.Rate
	for i := range s.Waves {
		highest *= s.Waves[i].highest()
	}
	if expected := highest * s.DurationS; !(expected <= maxShapeRequests) {
		return 0, fmt.Errorf("the highest rate over the whole duration makes %.3g requests, at most %d: lower rate, factors or duration_seconds", expected, maxShapeRequests)
	}
	arrivals, lengths := rng.Stream(s.Seed, "shape arrivals"), rng.Stream(s.Seed, "shape requests")
	out := newRowWriter(w)
	write := s.newRequests(out, &lengths)
	for atS := 0.0; ; {
		atS -= math.Log(1-arrivals.Float64()) / highest
		if !(atS < s.DurationS) {
			break
		}
		if arrivals.Float64()*highest >= s.RateAt(atS) {
			continue
		}
		if err := write(math.Round(atS*1e6) / 1e3); err != nil {
			return out.n, err
		}
	}
	return out.n, out.flush()
}

// newRequests returns what writes one request at a time in ms.
func (s *Shape) newRequests(out *rowWriter, draws *rng.PCG) func(atMs float64) error {
	ends := make([]float64, len(s.Classes)) // of the classes' shares, cumulative
	shared := make([]int, len(s.Classes))   // blocks
	first := make([]uint64, len(s.Classes)) // hash id of the class' first group
	total, fresh := 0.0, uint64(0)
	for i := range s.Classes {
		c := &s.Classes[i]
		total += c.Weight
		ends[i], shared[i], first[i] = total, c.PrefixTokens/s.BlockSize, fresh
		fresh += uint64(shared[i]) * uint64(c.PrefixGroups)
	}
	return func(atMs float64) error {
		class, at := 0, draws.Float64()*total
		for class < len(ends)-1 && at >= ends[class] {
			class++
		}
		c := &s.Classes[class]
		input, output, group := c.Input.draw(draws), c.Output.draw(draws), uint64(0)
		if c.PrefixGroups > 1 {
			group = uint64(draws.IntN(c.PrefixGroups))
		}
		input = max(input, shared[class]*s.BlockSize)
		out.begin()
		out.ms("timestamp", atMs)
		out.int("input_length", int64(input))
		out.int("output_length", int64(output))
		out.ids("hash_ids", (input+s.BlockSize-1)/s.BlockSize, func(i int) uint64 {
			if i < shared[class] {
				return first[class] + group*uint64(shared[class]) + uint64(i)
			}
			fresh++
			return fresh - 1
		})
		if c.Name != "" {
			out.text("policy_class", c.Name)
		}
		return out.end()
	}
}

// p95Deviations is the 95 % quantile of the standard normal distribution.
const p95Deviations = 1.6448536269514722

// draw is one length.
func (l *Lengths) draw(s *rng.PCG) int {
	v := l.Median
	if l.P95 > l.Median {
		z := math.Sqrt2 * math.Erfinv(2*max(s.Float64(), 0x1p-54)-1)
		v *= math.Exp(z * math.Log(l.P95/l.Median) / p95Deviations)
	}
	if l.Max > 0 {
		v = min(v, float64(l.Max))
	}
	return int(max(1, min(math.Round(v), math.MaxInt32)))
}
