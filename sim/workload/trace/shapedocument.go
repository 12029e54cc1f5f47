package trace

import (
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/internal/document"
)

// ShapeTables are the keys of a load shape.
func ShapeTables() []document.Table {
	return []document.Table{
		{Title: "Load shape", Keys: shapeKeys},
		{Title: "Load shape: entries of `waves`", Note: "The rate at a time is `rate` times the factors of all waves.", Keys: waveKeys},
		{Title: "Load shape: entries of `classes`", Keys: classKeys},
		{Title: "Load shape: `input_tokens`, `output_tokens`", Note: "A number is a fixed length.", Keys: lengthKeys},
	}
}

var (
	aboveZero = document.Range{Low: math.SmallestNonzeroFloat64, High: 1e12, Rule: "must be above 0 and at most 1e12"}
	fromZero  = document.Range{Low: 0, High: 1e12, Rule: "must be from 0 to 1e12"}
	aLength   = document.Range{Low: 1, High: math.MaxInt32, Rule: "must be from 1 to 2147483647"}
)

var shapeKeys = []document.Key{
	{Name: "duration_seconds", Kind: document.Float, Required: true, Range: aboveZero, Meaning: "Arrivals lie before this time."},
	{Name: "rate", Kind: document.Float, Required: true, Range: aboveZero, Meaning: "Requests per second before any factor; arrivals are Poisson."},
	{Name: "seed", Kind: document.Int, Default: "42", Meaning: "Decides arrivals and requests."},
	{Name: "block_size", Kind: document.Int, Bits: 20, Default: "512", Meaning: "Tokens per hash id: the --trace-block-size of the replay."},
	{Name: "waves", Kind: document.List, Meaning: "How the rate changes over time."},
	{Name: "classes", Kind: document.List, Required: true, Meaning: "Kinds of requests, at least one."},
}

var waveKeys = []document.Key{
	{Name: "type", Kind: document.String, Required: true, Choices: waveNames, Meaning: "`diurnal`: a cosine; `burst`: a higher or lower rate for a while, once or again and again; `ramp`: a line to another rate, which stays; `flash_crowd`: a steep line up, then an exponential way back."},
	{Name: "factor", Kind: document.Float, Required: true, Range: fromZero, Meaning: "What the rate is multiplied by at the extreme; `diurnal`: highest over mean rate, 1 to 2."},
	{Name: "at_seconds", Kind: document.Float, Range: fromZero, Default: "0", Meaning: "Where it begins; `diurnal`: a time of the highest rate."},
	{Name: "lasts_seconds", Kind: document.Float, Required: true, Range: aboveZero, Meaning: "`diurnal`: the period; `burst`: how long; `ramp`, `flash_crowd`: how long the line takes."},
	{Name: "every_seconds", Kind: document.Float, Range: aboveZero, Meaning: "`burst`: from one begin to the next; absent: once."},
	{Name: "decay_seconds", Kind: document.Float, Range: aboveZero, Meaning: "`flash_crowd`: time constant of the way back; required there."},
}

var classKeys = []document.Key{
	{Name: "name", Kind: document.String, Meaning: "Becomes `policy_class` of the rows."},
	{Name: "weight", Kind: document.Float, Range: aboveZero, Default: "1", Meaning: "Share of the requests, relative to the other classes."},
	{Name: "prefix_tokens", Kind: document.Int, Bits: 31, Default: "0", Meaning: "Tokens of every prompt that its group shares, cut to whole blocks; shorter prompts grow to them."},
	{Name: "prefix_groups", Kind: document.Int, Bits: 31, Default: "1", Meaning: "Groups, drawn alike."},
}

var lengthKeys = []document.Key{
	{Name: "median", Kind: document.Float, Required: true, Range: aLength, Meaning: "Half of the lengths are below."},
	{Name: "p95", Kind: document.Float, Range: aLength, Meaning: "95 % of the lengths are below; at least the median. The distribution is log-normal."},
	{Name: "max", Kind: document.Int, Bits: 31, Meaning: "Longer ones are cut to this."},
}

// lengthFields are the keys of a class that are lengths: a number or a mapping.
var lengthFields = []string{"input_tokens", "output_tokens"}

// ParseShape reads the YAML of a load shape; origin names it in messages. All faults come
// at once.
func ParseShape(origin string, text []byte) (*Shape, error) {
	root, err := document.ParseYAML(origin, text)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, &document.Fault{Origin: origin, Line: 1, Msg: "an empty load shape: duration_seconds, rate and classes are required"}
	}
	f := &document.Faults{Origin: origin}
	v := f.Read(root, shapeKeys)
	s := &Shape{DurationS: v.Number("duration_seconds").Value, Rate: v.Number("rate").Value,
		Seed: v.Whole("seed").Or(42), BlockSize: int(v.Whole("block_size").Or(512))}
	v.Require(s.BlockSize > 0, "block_size", "must be at least 1")
	if n := v.Node("waves"); n != nil {
		for _, item := range n.Items {
			s.Waves = append(s.Waves, readWave(f, item))
		}
	}
	if n := v.Node("classes"); n != nil {
		v.Require(len(n.Items) > 0, "classes", "an empty list: give at least one class")
		for _, item := range n.Items {
			s.Classes = append(s.Classes, readClass(f, item))
		}
	}
	return s, f.Err()
}

func readWave(f *document.Faults, n *document.Node) Wave {
	v := f.Read(n, waveKeys)
	w := Wave{AtS: v.Number("at_seconds").Value, LastsS: v.Number("lasts_seconds").Value,
		EveryS: v.Number("every_seconds").Value, Factor: v.Number("factor").Value, DecayS: v.Number("decay_seconds").Value}
	kind := v.Text("type").Value
	for i, name := range waveNames {
		if name == kind {
			w.Kind = WaveKind(i)
		}
	}
	if !v.Has("type") {
		return w
	}
	v.Require(w.Kind != Diurnal || !v.Has("factor") || w.Factor >= 1 && w.Factor <= 2, "factor", "the factor of a diurnal wave is highest over mean rate: from 1 to 2")
	v.Require(w.Kind == Burst || !v.Has("every_seconds"), "every_seconds", "belongs to type burst")
	v.Require(!v.Has("every_seconds") || w.EveryS >= w.LastsS, "every_seconds", "must be at least lasts_seconds")
	v.Require((w.Kind == FlashCrowd) == v.Has("decay_seconds"), "decay_seconds", "is required by type flash_crowd, and belongs to it alone")
	return w
}

func readClass(f *document.Faults, n *document.Node) Class {
	c := Class{}
	plain := document.EmptyMap(n.Line, n.Path)
	lengths := map[string]*document.Node{}
	if n.Kind == document.Map {
		for i, key := range n.Keys {
			if key == lengthFields[0] || key == lengthFields[1] {
				lengths[key] = n.Items[i]
				continue
			}
			plain.Put(key, n.Items[i])
		}
	} else {
		plain = n
	}
	v := f.Read(plain, classKeys)
	c.Name, c.Weight = v.Text("name").Value, v.Number("weight").Or(1)
	c.PrefixTokens, c.PrefixGroups = int(v.Whole("prefix_tokens").Value), int(v.Whole("prefix_groups").Or(1))
	v.Require(c.PrefixGroups > 0, "prefix_groups", "must be at least 1")
	for i, into := range [...]*Lengths{&c.Input, &c.Output} {
		if at := lengths[lengthFields[i]]; at != nil {
			*into = readLengths(f, at)
		} else if n.Kind == document.Map {
			f.Malformed(n, fmt.Sprintf("missing field `%s`", lengthFields[i]))
		}
	}
	return c
}

func readLengths(f *document.Faults, n *document.Node) Lengths {
	if n.Kind == document.Int || n.Kind == document.Float {
		l := n.Number()
		if !(l >= aLength.Low && l <= aLength.High) {
			f.Invalid(n, aLength.Rule)
		}
		return Lengths{Median: l, P95: l}
	}
	v := f.Read(n, lengthKeys)
	l := Lengths{Median: v.Number("median").Value, Max: int(v.Whole("max").Value)}
	l.P95 = v.Number("p95").Or(l.Median)
	v.Require(l.P95 >= l.Median, "p95", "must be at least the median")
	v.Require(!v.Has("max") || float64(l.Max) >= l.Median, "max", "must be at least the median")
	return l
}
