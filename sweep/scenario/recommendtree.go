package scenario

import (
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/dynosweep/dynosweep/internal/document"
)

// decision is one choice of a search: alternatives, each of which may write values
// and open decisions of its own. A search space is a product of decisions, so that
// it is counted and addressed without being written out.
type decision struct {
	options []option
	ends    []int64 // [option], combinations up to and with it; made by settle
}

// option is one alternative.
type option struct {
	set  []assign
	then []decision // the last one changes fastest
}

// assign puts a value at a path of the document.
type assign struct {
	path  string // dotted
	v     *document.Node
	quiet bool // no decision: the document says it
}

// maxSpace bounds what is counted; a larger space counts as so many.
const maxSpace = int64(1) << 50

// settle counts the combinations of every decision below; spaces are counted and
// addressed after it.
func settle(ds []decision) {
	for i := range ds {
		d := &ds[i]
		if len(d.ends) == len(d.options) {
			continue // shared with another option
		}
		d.ends = make([]int64, len(d.options))
		n := int64(0)
		for k := range d.options {
			settle(d.options[k].then)
			n = min(n+product(d.options[k].then), maxSpace)
			d.ends[k] = n
		}
	}
}

func (d *decision) size() int64 {
	if len(d.ends) == 0 {
		return 0
	}
	return d.ends[len(d.ends)-1]
}

// product is the number of combinations of settled decisions.
func product(ds []decision) int64 {
	n := int64(1)
	for i := range ds {
		size := ds[i].size()
		if size > 0 && n > maxSpace/size {
			n = maxSpace / size // counts as maxSpace, unless another has nothing
		}
		n *= size
	}
	return n
}

// pick appends the assignments of combination i of the product, 0 <= i < size.
func pick(ds []decision, i int64, out []assign) []assign {
	at := make([]int64, len(ds))
	for k := len(ds) - 1; k >= 0; k-- {
		n := ds[k].size()
		at[k], i = i%n, i/n
	}
	for k := range ds {
		out = ds[k].pick(at[k], out)
	}
	return out
}

func (d *decision) pick(i int64, out []assign) []assign {
	k, _ := slices.BinarySearch(d.ends, i+1) // the first that ends after i
	before := int64(0)
	if k > 0 {
		before = d.ends[k-1]
	}
	o := &d.options[k]
	return pick(o.then, i-before, append(out, o.set...))
}

// one is a decision that is taken.
func one(set ...assign) decision { return decision{options: []option{{set: set}}} }

// values is a decision among values at one path.
func values(path string, vs []*document.Node) decision {
	var d decision
	for _, v := range vs {
		d.options = append(d.options, option{set: []assign{{path: path, v: v.At(path)}}})
	}
	return d
}

// isDomain reports a mapping that stands for several values.
func isDomain(n *document.Node) bool {
	return n != nil && n.Kind == document.Map && (n.Get("choices") != nil || n.Get("range") != nil)
}

// rangeStyle says how a range becomes values.
type rangeStyle uint8

const (
	decimalRange rangeStyle = iota // exact decimal steps
	floatRange                     // repeated addition, as the Planner section does
)

// continuous is the number of values that stand for a range without a step.
const continuous = 1001

// maxExactInteger is where float64 begins to leave integers out.
const maxExactInteger = 1 << 53

// maxChoices bounds the values of one domain.
const maxChoices = 1 << 16

// domain lists the values of n: a scalar is one value, {choices} a list, {range} is
// expanded. Nil is def.
func (r *recommender) domain(n *document.Node, style rangeStyle, def ...string) []*document.Node {
	switch {
	case n == nil:
		out := make([]*document.Node, len(def))
		for i, text := range def {
			out[i] = literal(text)
		}
		return out
	case !isDomain(n):
		if n.Kind == document.Map || n.Kind == document.List {
			r.f.Malformed(n, "invalid type: "+n.Describe()+", expected one value, {choices: [...]} or {range: {...}}")
		}
		return []*document.Node{n}
	case n.Get("choices") != nil:
		r.f.Mapping(n, "a domain", []string{"choices"})
		return r.choices(n.Get("choices"))
	}
	return r.rangeOf(r.f.Mapping(n, "a domain", []string{"range"}), style)
}

// literal is a default value: a number, a boolean or a word.
func literal(text string) *document.Node {
	switch {
	case text == "true" || text == "false":
		return &document.Node{Kind: document.Bool, Text: text}
	case text != "" && (text[0] >= '0' && text[0] <= '9'):
		if n, err := document.NumberNode(text); err == nil {
			return n
		}
	}
	return &document.Node{Kind: document.String, Text: text}
}

func (r *recommender) choices(n *document.Node) []*document.Node {
	if n.Kind != document.List || len(n.Items) == 0 {
		r.f.Malformed(n, "choices must be a non-empty list")
		return nil
	}
	seen := map[string]bool{}
	for _, v := range n.Items {
		if seen[valueKey(v)] {
			r.f.Malformed(v, "choices must be unique: "+v.String()+" is given twice")
		}
		seen[valueKey(v)] = true
	}
	return n.Items
}

// valueRange is a range as written, checked.
type valueRange struct {
	document.Mapping
	low, high           float64
	stepped, log, whole bool // whole: of integers
}

// readRange reads the range under m; false with faults.
func (r *recommender) readRange(m document.Mapping) (g valueRange, ok bool) {
	g.Mapping = m.Sub("range", "a range", []string{"min", "max", "step", "scale"})
	for _, key := range [...]string{"min", "max"} {
		if g.Get(key) == nil {
			g.Missing(key)
		}
	}
	low, high, step := g.Float("min", document.NotNull), g.Float("max", document.NotNull), g.Float("step", document.NotNull)
	if g.log = g.Enum("scale", "linear", "log").Value == 1; !low.Set || !high.Set {
		return g, false
	}
	g.low, g.high, g.stepped = low.Value, high.Value, step.Set
	g.whole = g.Get("min").Kind == document.Int && g.Get("max").Kind == document.Int && (!step.Set || g.Get("step").Kind == document.Int)
	g.Require(g.low <= g.high, "max", "max must be at least min")
	g.Require(!math.IsInf(g.low, 0) && !math.IsInf(g.high, 0), "max", "a range must be finite")
	g.Require(!g.log || g.low > 0, "min", "a log range needs min > 0")
	g.Require(!g.log || !step.Set, "step", "a log range takes no step")
	g.Require(!step.Set || step.Value > 0, "step", "step must be positive")
	g.Require(step.Set || g.log || !g.whole || g.low == g.high, "step", "an integer range needs a step")
	if !r.f.OK() {
		return g, false
	}
	listed := g.whole || step.Set
	count := (g.high - g.low) / max(step.Or(1), 1e-300)
	g.Require(!listed || count < maxChoices, "max", fmt.Sprintf("the range has more than %d values", maxChoices))
	widest := max(math.Abs(g.low), math.Abs(g.high))
	g.Require(!step.Set || widest+step.Value > widest, "step", "step is lost in rounding beside numbers as large as the bounds")
	g.Require(!listed || !g.whole || widest < maxExactInteger, "max", "integers of a range must be below 2^53")
	return g, r.f.OK()
}

func (r *recommender) rangeOf(m document.Mapping, style rangeStyle) []*document.Node {
	g, ok := r.readRange(m)
	switch {
	case !ok:
		return nil
	case g.low == g.high:
		return []*document.Node{g.Get("min")}
	case g.stepped:
		return stepped(g.Mapping, style)
	case g.log && g.whole:
		return everyInteger(g.low, g.high)
	case style == floatRange:
		return []*document.Node{g.Get("min"), g.Get("max")}
	}
	r.continuous = append(r.continuous, g.Path)
	return evenly(g.low, g.high, g.log)
}

// stepped lists min, min+step, ... up to max.
func stepped(g document.Mapping, style rangeStyle) []*document.Node {
	var out []*document.Node
	whole := g.Get("min").Kind == document.Int && g.Get("step").Kind == document.Int
	if style == floatRange && !whole {
		high, step := g.Get("max").Number(), g.Get("step").Number()
		for v := g.Get("min").Number(); v <= high; v += step {
			out = append(out, document.FloatNode(v))
		}
		return out
	}
	low, high, step := rational(g.Get("min")), rational(g.Get("max")), rational(g.Get("step"))
	for v := low; v.Cmp(high) <= 0; v = new(big.Rat).Add(v, step) {
		if whole {
			out = append(out, literal(v.Num().String()))
			continue
		}
		f, _ := v.Float64()
		out = append(out, document.FloatNode(f))
	}
	return out
}

// rational is the decimal number that the text says.
func rational(n *document.Node) *big.Rat {
	v, ok := new(big.Rat).SetString(n.Text)
	if !ok {
		panic("scenario: a number node holds " + n.Text)
	}
	return v
}

func everyInteger(low, high float64) []*document.Node {
	var out []*document.Node
	for v := low; v <= high; v++ {
		out = append(out, literal(fmt.Sprintf("%.0f", v)))
	}
	return out
}

// evenly spreads values over a continuous range.
func evenly(low, high float64, log bool) []*document.Node {
	out := make([]*document.Node, continuous)
	for i := range out {
		part := float64(i) / (continuous - 1)
		v := low + float64((high-low)*part)
		if log {
			v = low * math.Pow(high/low, part)
		}
		if i == continuous-1 {
			v = high
		}
		out[i] = document.FloatNode(v)
	}
	return out
}
