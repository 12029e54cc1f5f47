package scenario

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
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
	v     *node
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
func values(path string, vs []*node) decision {
	var d decision
	for _, v := range vs {
		d.options = append(d.options, option{set: []assign{{path: path, v: v.placed(path)}}})
	}
	return d
}

// placed is the value as if written at path.
func (n *node) placed(path string) *node {
	c := *n
	c.path = path
	return &c
}

// with returns the document with a value put at a dotted path; what is not on the
// path is shared. Missing mappings are made.
func (n *node) with(path string, v *node) *node {
	c := *n
	c.keys, c.items = slices.Clone(n.keys), slices.Clone(n.items)
	key, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		c.put(key, v)
		return &c
	}
	below := n.get(key)
	if below == nil || below.kind != mapKind {
		below = emptyMap(n.line, join(n.path, key))
	}
	c.put(key, below.with(rest, v))
	return &c
}

// without returns the mapping without some keys.
func (n *node) without(keys ...string) *node {
	c := emptyMap(n.line, n.path)
	for i, key := range n.keys {
		if !slices.Contains(keys, key) {
			c.keys, c.items = append(c.keys, key), append(c.items, n.items[i])
		}
	}
	return c
}

// isDomain reports a mapping that stands for several values.
func (n *node) isDomain() bool {
	return n != nil && n.kind == mapKind && (n.get("choices") != nil || n.get("range") != nil)
}

// rangeStyle says how a range becomes values.
type rangeStyle uint8

const (
	decimalRange rangeStyle = iota // exact decimal steps
	floatRange                     // repeated addition, as the Planner section does
)

// continuous is the number of values that stand for a range without a step.
const continuous = 1001

// maxChoices bounds the values of one domain.
const maxChoices = 1 << 16

// domain lists the values of n: a scalar is one value, {choices} a list, {range} is
// expanded. Nil is def.
func (r *recommender) domain(n *node, style rangeStyle, def ...string) []*node {
	switch {
	case n == nil:
		out := make([]*node, len(def))
		for i, text := range def {
			out[i] = literal(text)
		}
		return out
	case !n.isDomain():
		if n.kind == mapKind || n.kind == listKind {
			r.f.badType(n, "invalid type: "+n.describe()+", expected one value, {choices: [...]} or {range: {...}}")
		}
		return []*node{n}
	case n.get("choices") != nil:
		r.f.mapping(n, "a domain", []string{"choices"})
		return r.choices(n.get("choices"))
	}
	return r.rangeOf(r.f.mapping(n, "a domain", []string{"range"}), style)
}

// literal is a default value: a number, a boolean or a word.
func literal(text string) *node {
	switch {
	case text == "true" || text == "false":
		return &node{kind: boolKind, text: text}
	case text != "" && (text[0] >= '0' && text[0] <= '9'):
		if n, err := number(text); err == nil {
			return n
		}
	}
	return &node{kind: stringKind, text: text}
}

func (r *recommender) choices(n *node) []*node {
	if n.kind != listKind || len(n.items) == 0 {
		r.f.badType(n, "choices must be a non-empty list")
		return nil
	}
	seen := map[string]bool{}
	for _, v := range n.items {
		if seen[v.key()] {
			r.f.badType(v, "choices must be unique: "+v.textOf()+" is given twice")
		}
		seen[v.key()] = true
	}
	return n.items
}

// valueRange is a range as written, checked.
type valueRange struct {
	mapping
	low, high           float64
	stepped, log, whole bool // whole: of integers
}

// readRange reads the range under m; false with faults.
func (r *recommender) readRange(m mapping) (g valueRange, ok bool) {
	g.mapping = m.sub("range", "a range", []string{"min", "max", "step", "scale"})
	for _, key := range [...]string{"min", "max"} {
		if g.get(key) == nil {
			g.missing(key)
		}
	}
	low, high, step := g.float("min", notNull), g.float("max", notNull), g.float("step", notNull)
	if g.log = g.enum("scale", "linear", "log").v == 1; !low.set || !high.set {
		return g, false
	}
	g.low, g.high, g.stepped = low.v, high.v, step.set
	g.whole = g.get("min").kind == intKind && g.get("max").kind == intKind && (!step.set || g.get("step").kind == intKind)
	g.rule(g.low <= g.high, "max", "max must be at least min")
	g.rule(!math.IsInf(g.low, 0) && !math.IsInf(g.high, 0), "max", "a range must be finite")
	g.rule(!g.log || g.low > 0, "min", "a log range needs min > 0")
	g.rule(!g.log || !step.set, "step", "a log range takes no step")
	g.rule(!step.set || step.v > 0, "step", "step must be positive")
	g.rule(step.set || g.log || !g.whole || g.low == g.high, "step", "an integer range needs a step")
	if !r.f.ok() {
		return g, false
	}
	listed := g.whole || step.set
	count := (g.high - g.low) / max(step.or(1), 1e-300)
	g.rule(!listed || count < maxChoices, "max", fmt.Sprintf("the range has more than %d values", maxChoices))
	return g, r.f.ok()
}

func (r *recommender) rangeOf(m mapping, style rangeStyle) []*node {
	g, ok := r.readRange(m)
	switch {
	case !ok:
		return nil
	case g.low == g.high:
		return []*node{g.get("min")}
	case g.stepped:
		return stepped(g.mapping, style)
	case g.log && g.whole:
		return everyInteger(g.low, g.high)
	case style == floatRange:
		return []*node{g.get("min"), g.get("max")}
	}
	r.continuous = append(r.continuous, g.path)
	return evenly(g.low, g.high, g.log)
}

// stepped lists min, min+step, ... up to max.
func stepped(g mapping, style rangeStyle) []*node {
	var out []*node
	whole := g.get("min").kind == intKind && g.get("step").kind == intKind
	if style == floatRange && !whole {
		high, step := g.get("max").float(), g.get("step").float()
		for v := g.get("min").float(); v <= high; v += step {
			out = append(out, floatNode(v))
		}
		return out
	}
	low, high, step := rational(g.get("min")), rational(g.get("max")), rational(g.get("step"))
	for v := low; v.Cmp(high) <= 0; v = new(big.Rat).Add(v, step) {
		if whole {
			out = append(out, literal(v.Num().String()))
			continue
		}
		f, _ := v.Float64()
		out = append(out, floatNode(f))
	}
	return out
}

// rational is the decimal number that the text says.
func rational(n *node) *big.Rat {
	v, ok := new(big.Rat).SetString(n.text)
	if !ok {
		panic("scenario: a number node holds " + n.text)
	}
	return v
}

func everyInteger(low, high float64) []*node {
	var out []*node
	for v := low; v <= high; v++ {
		out = append(out, literal(fmt.Sprintf("%.0f", v)))
	}
	return out
}

// evenly spreads values over a continuous range.
func evenly(low, high float64, log bool) []*node {
	out := make([]*node, continuous)
	for i := range out {
		part := float64(i) / (continuous - 1)
		v := low + float64((high-low)*part)
		if log {
			v = low * math.Pow(high/low, part)
		}
		if i == continuous-1 {
			v = high
		}
		out[i] = floatNode(v)
	}
	return out
}
